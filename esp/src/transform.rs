//! One direction of one SA with its keys expanded: the narrow trait in front of all libraries.

use wire::esp::{Direction, SUITES, Secret, Suite, SuiteName};

use crate::library;
use crate::packet::Packet;

/// One direction of one SA, keys expanded. Immutable, so that workers share it.
pub trait Transform: Send + Sync {
    /// Algorithms and lengths.
    fn suite(&self) -> &'static Suite;

    /// Name of the library that carries the algorithms out, for a text of so many bytes.
    fn library(&self, text: usize) -> &'static str;

    /// Encrypts the text, padding and trailer included, and writes IV and ICV. SPI and number stand in the header already.
    ///
    /// The IV follows from the number: none may be used twice under a key. Cannot fail, as [`format`](crate::format) made the lengths;
    /// bytes that are no packet of this suite are overwritten with zeros, so that nothing ever leaves in clear.
    fn seal(&self, packet: Packet<'_>);

    /// Verifies the packet and decrypts its text in place. On `Err` the bytes of text are unspecified; the frame is dropped.
    fn open(&self, packet: Packet<'_>) -> Result<(), Forged>;

    /// Seals packets as [`Transform::seal`] would one after another; a library may work on several at a time.
    fn seal_many(&self, packets: &mut [Packet<'_>]) {
        packets.iter_mut().for_each(|packet| self.seal(packet.again()));
    }

    /// Opens packets as [`Transform::open`] would one after another.
    fn open_many(&self, packets: &mut [Packet<'_>], outcomes: &mut [Result<(), Forged>]) {
        for (packet, outcome) in packets.iter_mut().zip(outcomes) {
            *outcome = self.open(packet.again());
        }
    }
}

/// A packet that is not the sender's, or has been changed. Carries no reason, so that no answer can tell one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not genuine")]
pub struct Forged;

/// Keys of one direction of an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Key of the cipher, with its salt behind it (RFC 4106, section 8.1).
    pub cipher: Secret,
    /// Key of the integrity algorithm; empty where the cipher authenticates.
    pub auth: Secret,
}

/// Reason why keys cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key of the cipher has another length.
    #[error("{suite} takes a key of {wanted} bytes{}, not of {given}", with_salt(*suite))]
    Cipher {
        /// Name of the algorithms.
        suite: SuiteName,
        /// Bytes of key and salt.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// The key of the integrity algorithm has another length.
    #[error("{suite} takes an integrity key of {wanted} bytes, not of {given}")]
    Auth {
        /// Name of the algorithms.
        suite: SuiteName,
        /// Bytes of the key.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// No library of this build has the algorithms.
    #[error("no library of this build has {0}")]
    NoLibrary(SuiteName),
}

/// Words behind the length of a key that has a salt behind it.
fn with_salt(suite: SuiteName) -> &'static str {
    let has_salt = SUITES.iter().any(|one| one.name() == suite && one.salt > 0);
    if has_salt { ", salt included" } else { "" }
}

/// Stands in for a transform whose keys are not there: nothing that it seals can be opened, and it opens nothing. Text never leaves in clear.
pub fn locked(suite: &'static Suite) -> Box<dyn Transform> {
    Box::new(Locked(suite))
}

struct Locked(&'static Suite);

impl Transform for Locked {
    fn suite(&self) -> &'static Suite {
        self.0
    }

    fn library(&self, _: usize) -> &'static str {
        "none"
    }

    fn seal(&self, packet: Packet<'_>) {
        match packet.parts(self.0) {
            Ok(parts) => [parts.iv, parts.text, parts.icv].into_iter().for_each(|part| part.fill(0)),
            Err(bytes) => bytes.fill(0),
        }
    }

    fn open(&self, _: Packet<'_>) -> Result<(), Forged> {
        Err(Forged)
    }
}

/// Expands keys for one direction, by the libraries that are the best for its suite. Takes longer than a packet (some 200 ns), and allocates.
pub fn expand(
    suite: &'static Suite,
    keys: &Keys,
    direction: Direction,
) -> Result<Box<dyn Transform>, KeyError> {
    check(suite, keys)?;
    library::expand(suite, keys, direction).ok_or(KeyError::NoLibrary(suite.name()))
}

/// Expands keys by each library of this build that has the suite, by itself: to compare them.
pub fn expand_by_each(
    suite: &'static Suite,
    keys: &Keys,
    direction: Direction,
) -> Result<Vec<Box<dyn Transform>>, KeyError> {
    check(suite, keys)?;
    Ok(library::each(suite, keys, direction))
}

/// Refuses keys of other lengths than the suite's.
fn check(suite: &'static Suite, keys: &Keys) -> Result<(), KeyError> {
    let name = suite.name();
    let (wanted, given) = (usize::from(suite.key) + usize::from(suite.salt), keys.cipher.len());
    if given != wanted {
        return Err(KeyError::Cipher { suite: name, wanted, given });
    }
    let (wanted, given) = (usize::from(suite.auth_key), keys.auth.len());
    if given != wanted {
        return Err(KeyError::Auth { suite: name, wanted, given });
    }
    Ok(())
}
