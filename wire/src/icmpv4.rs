//! ICMP for IPv4 (RFC 792): errors, which quote the packet that caused them, and queries.

use crate::checksum::{self, Delta};
use crate::header::{be16, put};

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;

/// The type of a message (IANA, "ICMP Type Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Type(pub u8);

impl Type {
    /// Answer to an echo request.
    pub const ECHO_REPLY: Type = Type(0);
    /// Error: not delivered; [`mod@unreachable`] names the codes.
    pub const DESTINATION_UNREACHABLE: Type = Type(3);
    /// Error: deprecated (RFC 6633).
    pub const SOURCE_QUENCH: Type = Type(4);
    /// Error: a better first hop exists.
    pub const REDIRECT: Type = Type(5);
    /// Query: asks for an echo reply.
    pub const ECHO_REQUEST: Type = Type(8);
    /// A router's announcement (RFC 1256).
    pub const ROUTER_ADVERTISEMENT: Type = Type(9);
    /// A host's request for router advertisements (RFC 1256).
    pub const ROUTER_SOLICITATION: Type = Type(10);
    /// Error: the time to live ran out (code 0), or that of reassembly (code 1).
    pub const TIME_EXCEEDED: Type = Type(11);
    /// Error: the header is wrong at a given byte.
    pub const PARAMETER_PROBLEM: Type = Type(12);
    /// Query: asks for the time.
    pub const TIMESTAMP_REQUEST: Type = Type(13);
    /// Answer to a timestamp request.
    pub const TIMESTAMP_REPLY: Type = Type(14);

    /// Class of the message in connection tracking.
    #[inline]
    pub const fn class(self) -> Class {
        match self.0 {
            3 | 4 | 5 | 11 | 12 => Class::Error,
            // Information and address mask (15 to 18) are deprecated, but have their identifier too.
            8 | 13 | 15 | 17 => Class::Request,
            0 | 14 | 16 | 18 => Class::Reply,
            _ => Class::Other,
        }
    }
}

/// Codes of [`Type::DESTINATION_UNREACHABLE`].
pub mod unreachable {
    /// No route.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens at the port.
    pub const PORT: u8 = 3;
    /// Too big for the next link, and may not be fragmented (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Forbidden by an administrator (RFC 1812).
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Classes of messages in connection tracking; common to ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reports on the packet that it quotes.
    Error,
    /// Asks, with an identifier that the reply repeats.
    Request,
    /// Answers, with the request's identifier.
    Reply,
    /// Neither: local to the link, or unknown.
    Other,
}

/// Reason why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 8 bytes.
    #[error("shorter than an ICMP header")]
    TooShort,
    /// The checksum is wrong.
    #[error("wrong ICMP checksum")]
    Checksum,
}

/// A message, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The first 8 bytes.
    pub header: Header<'a>,
    /// Message body, after the first 8 bytes.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Beginning of the packet that an error quotes, for [`crate::ipv4::parse_prefix`]. Extensions after it (RFC 4884)
    /// lie past the quoted packet's total length or are part of its cut payload.
    #[inline]
    pub fn quoted(&self) -> Option<&'a [u8]> {
        matches!(self.header.kind().class(), Class::Error).then_some(self.body)
    }
}

/// Takes a message apart, its checksum unseen.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Message<'_>, Malformed> {
    match payload.split_first_chunk() {
        Some((header, body)) => Ok(Message { header: Header(header), body }),
        None => Err(Malformed::TooShort),
    }
}

/// Takes a message apart and verifies its checksum, for which it must be whole: no fragment, not cut.
#[inline]
pub fn parse_verified(payload: &[u8]) -> Result<Message<'_>, Malformed> {
    let message = parse(payload)?;
    if checksum::verifies(payload) { Ok(message) } else { Err(Malformed::Checksum) }
}

/// The first 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The bytes at the start of `payload`, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a [u8]) -> Option<Header<'a>> {
        payload.first_chunk().map(Header)
    }

    /// The type.
    #[inline]
    pub fn kind(self) -> Type {
        Type(self.0[0])
    }

    /// The code, whose meaning depends on the type.
    #[inline]
    pub fn code(self) -> u8 {
        self.0[1]
    }

    /// The checksum.
    #[inline]
    pub fn checksum(self) -> u16 {
        be16(self.0, 2)
    }

    /// The identifier of a request or reply; bytes of another meaning in any other message.
    #[inline]
    pub fn id(self) -> u16 {
        be16(self.0, 4)
    }

    /// The sequence number of a request or reply; bytes of another meaning in any other message.
    #[inline]
    pub fn seq(self) -> u16 {
        be16(self.0, 6)
    }

    /// The next link's MTU in bytes, in [`unreachable::FRAGMENTATION_NEEDED`]; 0 from routers that predate
    /// RFC 1191.
    #[inline]
    pub fn mtu(self) -> u16 {
        be16(self.0, 6)
    }

    /// Pointer of [`Type::PARAMETER_PROBLEM`]: offset of the wrong byte in the quoted packet.
    #[inline]
    pub fn pointer(self) -> u8 {
        self.0[4]
    }
}

/// The first 8 bytes, to change. The checksum is the caller's.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The bytes at the start of `payload`, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        payload.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the type.
    #[inline]
    pub fn set_kind(&mut self, kind: Type) {
        self.0[0] = kind.0;
    }

    /// Sets the code.
    #[inline]
    pub fn set_code(&mut self, code: u8) {
        self.0[1] = code;
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0, 2, checksum.to_be_bytes());
    }

    /// Sets the identifier.
    #[inline]
    pub fn set_id(&mut self, id: u16) {
        put(self.0, 4, id.to_be_bytes());
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u16) {
        put(self.0, 6, seq.to_be_bytes());
    }
}

/// Adjusts the checksum of `message` for fields of it that have changed. Bytes too short for a header stay.
///
/// ICMP alone has no pseudo header and can be all zeros: an echo reply of identifier 0, sequence 0 and
/// zeros as data. Its checksum is then 0xffff, where the adjustment arrives at 0; one look at the rest
/// in 65536 adjustments tells the two apart.
#[inline]
pub fn adjust_checksum(message: &mut [u8], delta: Delta) {
    let Some(header) = Header::of(message) else { return };
    let mut checksum = delta.apply(header.checksum());
    if checksum == 0 && message[..2].iter().chain(&message[4..]).all(|byte| *byte == 0) {
        checksum = 0xffff;
    }
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Changes the identifier of a request or reply and adjusts the checksum. Bytes too short for a header stay.
#[inline]
pub fn rewrite_id(message: &mut [u8], id: u16) {
    let Some(mut header) = HeaderMut::of(message) else { return };
    let old = header.view().id();
    header.set_id(id);
    adjust_checksum(message, Delta::NONE.change16(old, id));
}

#[cfg(test)]
mod tests;
