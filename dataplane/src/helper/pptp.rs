//! Control messages of PPTP (RFC 2637, sections 2 and 3), as far as they name calls.
//!
//! Each side of a call chooses a call ID, by which the other side's GRE packets are for this call. A message names the call ID of its sender,
//! that of its receiver, or both; which of them depends on its type alone, whichever side has opened the connection.

/// Bytes of a message up to the last that is read here: its head.
pub(crate) const HEAD: usize = 17;

/// Bytes of the shortest message.
const SHORTEST: usize = 12;

/// Magic cookie behind length and message type.
const COOKIE: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// PPTP message type of control messages.
const CONTROL: [u8; 2] = [0, 1];

/// Place of the first call ID, and of the second.
pub(crate) const FIRST: usize = 12;
pub(crate) const SECOND: usize = 14;

/// Result code, in replies to call requests: the call is connected.
const CONNECTED: u8 = 1;
/// Place of the result code.
const RESULT: usize = 16;

/// Effect of a message on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Asks for a call: the sender has chosen its call ID.
    Requests,
    /// Accepts the call that has been asked for: both call IDs are chosen.
    Connects,
    /// Refuses it.
    Refuses,
    /// Says something of the call, or asks for its end.
    Names,
    /// Says that the call has ended.
    Ends,
    /// Nothing.
    None,
}

/// A call ID in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    /// Place of its first byte in the message.
    pub(crate) at: usize,
    /// The call ID.
    pub(crate) id: u16,
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Length in bytes.
    pub(crate) len: usize,
    /// Meaning.
    pub(crate) act: Act,
    /// Call ID that the sender has chosen.
    pub(crate) own: Option<CallId>,
    /// Call ID that the receiver has chosen.
    pub(crate) peer: Option<CallId>,
}

/// Outcome of reading a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A message, whose head is whole.
    Message(Message),
    /// Beginning of a head.
    Incomplete,
    /// Something else.
    Other,
}

/// Reads the message that text begins with.
pub(crate) fn read(text: &[u8]) -> Read {
    let known: [u8; 6] = [CONTROL[0], CONTROL[1], COOKIE[0], COOKIE[1], COOKIE[2], COOKIE[3]];
    let begun = text.get(2..).unwrap_or_default();
    if begun.iter().zip(known).any(|(byte, known)| *byte != known) {
        return Read::Other;
    }
    let Some(head) = text.first_chunk::<SHORTEST>() else { return Read::Incomplete };
    let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
    if len < SHORTEST {
        return Read::Other;
    }
    if text.len() < len.min(HEAD) {
        return Read::Incomplete;
    }
    Read::Message(message(&text[..len.min(HEAD)], len))
}

/// The message with this head. One that is shorter than its type says names no call.
fn message(head: &[u8], len: usize) -> Message {
    let result = if head.get(RESULT) == Some(&CONNECTED) { Act::Connects } else { Act::Refuses };
    let (least, act, own, peer) = match head.get(8..10) {
        // Outgoing-Call-Request.
        Some([0, 7]) => (168, Act::Requests, Some(FIRST), None),
        // Outgoing-Call-Reply.
        Some([0, 8]) => (32, result, Some(FIRST), Some(SECOND)),
        // Incoming-Call-Request.
        Some([0, 9]) => (220, Act::Requests, Some(FIRST), None),
        // Incoming-Call-Reply.
        Some([0, 10]) => (24, result, Some(FIRST), Some(SECOND)),
        // Incoming-Call-Connected.
        Some([0, 11]) => (28, Act::Names, None, Some(FIRST)),
        // Call-Clear-Request.
        Some([0, 12]) => (16, Act::Names, Some(FIRST), None),
        // Call-Disconnect-Notify.
        Some([0, 13]) => (148, Act::Ends, Some(FIRST), None),
        // WAN-Error-Notify.
        Some([0, 14]) => (40, Act::Names, None, Some(FIRST)),
        // Set-Link-Info.
        Some([0, 15]) => (24, Act::Names, None, Some(FIRST)),
        _ => (0, Act::None, None, None),
    };
    if len < least {
        return Message { len, act: Act::None, own: None, peer: None };
    }
    let id = |at: usize| Some(CallId { at, id: u16::from_be_bytes(*head.get(at..at + 2)?.first_chunk()?) });
    Message { len, act, own: own.and_then(id), peer: peer.and_then(id) }
}

#[cfg(test)]
mod tests;
