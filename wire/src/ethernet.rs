//! Ethernet II, with up to two VLAN tags.
//!
//! A frame with a length in place of a type (IEEE 802.3) parses, its [`EtherType::is_length`] says so. A
//! third tag is not walked: its type stays as the frame's, and no protocol of ours has it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::header::{array, be16, put};
use crate::vlan::{self, Tag, Tags};

pub use crate::ethertype::EtherType;

/// Bytes of a header without tags.
pub const HEADER_LEN: usize = 14;

/// Shorter than its header, or than the tags that it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 14 bytes.
    #[error("shorter than an Ethernet header")]
    TooShort,
    /// Ends within a VLAN tag.
    #[error("ends within a VLAN tag")]
    TagPastEnd,
}

/// A frame, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Addresses, and the type as it stands before any tag.
    pub header: Header<'a>,
    /// The VLAN tags, the outer one first.
    pub tags: Tags,
    /// The type after the tags: protocol of the payload.
    pub ethertype: EtherType,
    /// Offset of the payload, in bytes from the frame's start: 14, 18 or 22.
    pub payload_at: usize,
    /// The payload, padding included.
    pub payload: &'a [u8],
}

/// Takes a frame apart, through its VLAN tags.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Layer<'_>, Malformed> {
    let Some((header, payload)) = frame.split_first_chunk() else { return Err(Malformed::TooShort) };
    let header = Header(header);
    let ethertype = header.ethertype();
    let untagged = Layer { header, tags: Tags::NONE, ethertype, payload_at: HEADER_LEN, payload };
    // No loop: with the count of tags known in each branch, the layer stays in registers.
    if !ethertype.is_vlan() {
        return Ok(untagged);
    }
    let tagged = untagged.take_tag()?;
    if !tagged.ethertype.is_vlan() {
        return Ok(tagged);
    }
    tagged.take_tag()
}

impl Layer<'_> {
    /// The layer with the payload's first four bytes as another tag.
    #[inline]
    fn take_tag(self) -> Result<Self, Malformed> {
        let Some((bytes, payload)) = self.payload.split_first_chunk::<4>() else {
            return Err(Malformed::TagPastEnd);
        };
        let tags = self.tags.with(Tag { tpid: self.ethertype, tci: be16(bytes, 0) });
        let ethertype = EtherType(be16(bytes, 2));
        Ok(Layer { tags, ethertype, payload_at: self.payload_at + vlan::TAG_LEN, payload, ..self })
    }
}

/// The 14 bytes before tags and payload.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; 14]);

impl<'a> Header<'a> {
    /// The header at the start of `frame`, or `None` where it is too short.
    #[inline]
    pub fn of(frame: &'a [u8]) -> Option<Header<'a>> {
        frame.first_chunk().map(Header)
    }

    /// Destination address.
    #[inline]
    pub fn dst(self) -> Mac {
        Mac(array(self.0, 0))
    }

    /// Source address.
    #[inline]
    pub fn src(self) -> Mac {
        Mac(array(self.0, 6))
    }

    /// The type; that of the outer tag where there is one.
    #[inline]
    pub fn ethertype(self) -> EtherType {
        EtherType(be16(self.0, 12))
    }
}

/// The 14 bytes before tags and payload, to change.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; 14]);

impl<'a> HeaderMut<'a> {
    /// The header at the start of `frame`, or `None` where it is too short.
    #[inline]
    pub fn of(frame: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        frame.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Mac) {
        put(self.0, 0, dst.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Mac) {
        put(self.0, 6, src.0);
    }

    /// Sets the type.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put(self.0, 12, ethertype.0.to_be_bytes());
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All ones: every station.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// All zeros: no address.
    pub const ZERO: Mac = Mac([0; 6]);

    /// The address as a number of 48 bits, as the wire has them.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address of a number of 48 bits; higher bits do not count.
    #[inline]
    pub const fn from_bits(bits: u64) -> Mac {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Mac([a, b, c, d, e, f])
    }

    /// Returns the address of an IP group (RFC 1112, section 6.4; RFC 2464, section 7).
    pub const fn of_group(group: IpAddr) -> Mac {
        match group {
            IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                Mac([0x01, 0, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(group) => {
                let [.., a, b, c, d] = group.octets();
                Mac([0x33, 0x33, a, b, c, d])
            }
        }
    }

    /// True for a group address, the broadcast address included.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Mac::BROADCAST
    }

    /// True for the address of one station, and not zero: a valid source address.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Mac::ZERO
    }

    /// True for a locally administered address: chosen by an operator or by software, not by a manufacturer.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 == 2
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not six groups of two hexadecimal digits between colons or dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address, which is written as 02:00:5e:10:00:01")]
pub struct BadMac;

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Mac, BadMac> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut groups = text.split(separator);
        for octet in &mut octets {
            let group = groups.next().ok_or(BadMac)?;
            if group.len() != 2 || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(BadMac);
            }
            *octet = u8::from_str_radix(group, 16).map_err(|_| BadMac)?;
        }
        if groups.next().is_some() { Err(BadMac) } else { Ok(Mac(octets)) }
    }
}

#[cfg(test)]
mod tests;
