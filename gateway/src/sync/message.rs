//! Messages between two gateways: a length, then the message in postcard encoding, as in a state file.

use std::fmt;

use dataplane::port_mapping::{PortMappingRemoval, PortMappingUpdate};
use dataplane::sa::Fingerprint;
use dataplane::state::{ElementRecord, Item, Names, RemovalRecord};
use dataplane::sync::EndedFlow;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt};
use wire::Nanos;

use super::Instance;
use super::session::SessionError;
use crate::port_mapping::EpochRecord;
use crate::store;

/// Version of the session: of the messages and their order. Items have the version of the state file.
const VERSION: u32 = 4;

/// Bytes of a greeting, at most.
const LONGEST_GREETING: u64 = 64;

/// Bytes of a message, at most: names of the largest policies.
const LONGEST: u32 = 16 << 20;

/// Characters of a program's version, at most.
const LONGEST_VERSION: usize = 64;

/// Message to the other gateway.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Always the first, and only there.
    Hello(Hello),
    /// Names that indices in later items refer to.
    Names(Names),
    /// Flows that are new or have changed.
    Flows(#[serde(deserialize_with = "store::block_items")] Vec<Item>),
    /// Flows that have ended.
    Ended(#[serde(deserialize_with = "store::block_items")] Vec<EndedFlow>),
    /// Fingerprints of the keys by which the policy's tunnels send: numbers under a key are one gateway's. Nothing of a key can be told
    /// from them.
    Keys(#[serde(deserialize_with = "store::block_items")] Vec<[u8; Fingerprint::LEN]>),
    /// Elements of dynamic sets that are new, or are over later than before.
    Elements(#[serde(deserialize_with = "store::block_items")] Vec<ElementRecord>),
    /// Elements that were removed from dynamic sets.
    Removed(#[serde(deserialize_with = "store::block_items")] Vec<RemovalRecord>),
    /// A full synchronisation begins.
    FullBegins,
    /// All flows and elements of sets have been told of since the full synchronisation began.
    FullEnds,
    /// Nothing has changed for a while.
    Alive,
    /// Port mappings that are new or have changed.
    PortMappings(#[serde(deserialize_with = "store::block_items")] Vec<PortMappingUpdate>),
    /// Port mappings that have ended before their time.
    Unmapped(#[serde(deserialize_with = "store::block_items")] Vec<PortMappingRemoval>),
    /// All port mappings have been told of since the full synchronisation began. They are told after its end, when flows that have ended are
    /// gone, and so are the mappings whose ports they had.
    AllMapped,
    /// Epoch of the server of port mappings.
    Epoch(EpochRecord),
    /// The sender has been told of all flows, and can own some.
    Complete,
}

/// Introduction of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Identity of its flows.
    pub(super) instance: Instance,
    /// Version of the program.
    #[serde(deserialize_with = "version")]
    pub(super) version: String,
    /// Time of day (UTC), since 1970: for a word on clocks that differ.
    pub(super) time_of_day: Nanos,
    /// Number of its half of flows and outside ports; none where its policy divides nothing.
    pub(super) half: Option<u16>,
}

/// Deserializes a short text.
fn version<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > LONGEST_VERSION || text.chars().any(char::is_control) {
        return Err(serde::de::Error::custom("no version"));
    }
    Ok(text)
}

/// Versions that two gateways must have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting(String);

impl Greeting {
    /// That of this gateway.
    pub(super) fn own() -> Greeting {
        let state = String::from_utf8_lossy(store::HEAD);
        Greeting(format!("wirerate sync {VERSION}, {}", state.trim_end()))
    }

    /// The line that is sent.
    pub(super) fn line(&self) -> String {
        format!("{}\n", self.0)
    }

    /// Reads the other's, which must be the same.
    ///
    /// # Errors
    /// Another version; no greeting; the connection broke.
    pub(super) async fn read<R: AsyncBufRead + Unpin>(&self, from: &mut R) -> Result<(), SessionError> {
        let mut line = Vec::new();
        from.take(LONGEST_GREETING).read_until(b'\n', &mut line).await.map_err(SessionError::Read)?;
        let Some((b'\n', line)) = line.split_last() else {
            return Err(if line.is_empty() { SessionError::Closed } else { SessionError::NoGreeting });
        };
        if line == self.0.as_bytes() {
            return Ok(());
        }
        match std::str::from_utf8(line) {
            Ok(theirs) if theirs.starts_with("wirerate sync ") && !theirs.chars().any(char::is_control) => {
                Err(SessionError::Version { theirs: theirs.to_owned(), own: self.0.clone() })
            }
            _ => Err(SessionError::NoGreeting),
        }
    }
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Encodes a message, with its length, behind what is in `into`.
///
/// # Errors
/// The message is too long: names of a policy beyond all bounds.
pub(super) fn encode(message: &Message, into: &mut Vec<u8>) -> Result<(), SessionError> {
    let begin = into.len();
    into.extend([0; 4]);
    let bytes = postcard::to_extend(message, std::mem::take(into)).map_err(|_| SessionError::TooLong)?;
    *into = bytes;
    let length = u32::try_from(into.len() - begin - 4).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or(SessionError::TooLong)?;
    into[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Reads a message; `bytes` is memory for it.
///
/// # Errors
/// Bytes that are no message, or a message that is too long; the connection broke or was closed.
pub(super) async fn read<R: AsyncRead + Unpin>(
    from: &mut R,
    bytes: &mut Vec<u8>,
) -> Result<Message, SessionError> {
    let length = from.read_u32_le().await.map_err(SessionError::of_read)?;
    if length > LONGEST {
        return Err(SessionError::NoMessage);
    }
    bytes.clear();
    // Not all at once: a length that is wrong must not take memory that the peer does not fill.
    let got = from.take(length.into()).read_to_end(bytes).await.map_err(SessionError::Read)?;
    if got != length as usize {
        return Err(SessionError::Closed);
    }
    postcard::from_bytes(bytes).map_err(|_| SessionError::NoMessage)
}
