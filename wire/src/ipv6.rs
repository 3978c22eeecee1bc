//! IPv6 (RFC 8200): header, and a bounded walk over extension headers.
//!
//! The walk passes hop-by-hop options, routing, destination options, fragment and authentication headers. It refuses
//! more than [`MAX_EXTENSIONS`] headers or [`MAX_EXTENSION_BYTES`] bytes of them: no real sender uses so many, and an
//! endless chain must not cost endless work. The walk stops at a fragment other than the first, whose payload is the
//! middle of a packet. Jumbograms (RFC 2675) are not carried.

use std::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::header::{Fragment, Protocol, array, be16, be32, put};
use crate::unit::Dscp;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// The least MTU of a link, in bytes (RFC 8200, section 5).
pub const LEAST_MTU: u16 = 1_280;
/// The most extension headers that the walk passes.
pub const MAX_EXTENSIONS: usize = 8;
/// The most bytes of extension headers that the walk passes.
pub const MAX_EXTENSION_BYTES: usize = 512;

/// Reason why a packet is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 40 bytes.
    #[error("shorter than an IPv6 header")]
    TooShort,
    /// The version field is not 6.
    #[error("IP version is not 6")]
    Version,
    /// The payload length field reaches past the end.
    #[error("IPv6 payload length past the end")]
    PayloadPastEnd,
    /// An extension header reaches past the end.
    #[error("IPv6 extension header past the end")]
    ExtensionPastEnd,
    /// More than [`MAX_EXTENSIONS`] extension headers.
    #[error("more than 8 IPv6 extension headers")]
    TooManyExtensions,
    /// More than [`MAX_EXTENSION_BYTES`] bytes of extension headers.
    #[error("more than 512 bytes of IPv6 extension headers")]
    ExtensionsTooLong,
    /// Hop-by-hop options elsewhere than directly after the fixed header (RFC 8200, section 4.1).
    #[error("IPv6 hop-by-hop options after another extension header")]
    MisplacedHopByHop,
    /// A second fragment header.
    #[error("second IPv6 fragment header")]
    SecondFragmentHeader,
}

/// A packet, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The fixed header.
    pub header: Header<'a>,
    /// Extension headers between the fixed header and the payload.
    pub extensions: Extensions,
    /// Payload, from the last extension header up to the payload length: without padding of the link.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.extensions.protocol
    }

    /// Offset of the payload, in bytes from the packet's start: 40 to 552.
    #[inline]
    pub fn payload_at(&self) -> usize {
        HEADER_LEN + usize::from(self.extensions.len)
    }

    /// The sum of the pseudo header for this packet's payload (of a whole packet, not of a fragment). With a routing
    /// header that has segments left, the destination summed is not the final one.
    #[inline]
    pub fn pseudo_header(&self) -> Sum {
        // The payload length field has 16 bits.
        let length = self.payload.len() as u32;
        Sum::pseudo_v6(self.header.src(), self.header.dst(), self.protocol(), length)
    }
}

/// Result of a walk over extension headers. Offsets count bytes from the first extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// Protocol after the last extension header walked.
    pub protocol: Protocol,
    /// Bytes of all extension headers walked.
    pub len: u16,
    /// Number of extension headers walked, at most [`MAX_EXTENSIONS`].
    pub count: u8,
    /// Fragment header, if there is one.
    pub fragment: Option<FragmentHeader>,
    /// Last routing header, if there is one.
    pub routing: Option<Routing>,
    /// True if an authentication header was among those walked.
    pub is_authenticated: bool,
}

impl Extensions {
    /// No extension header, before `protocol`.
    #[inline]
    pub const fn none(protocol: Protocol) -> Extensions {
        Extensions { protocol, len: 0, count: 0, fragment: None, routing: None, is_authenticated: false }
    }
}

/// Fragment header and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Fragment fields.
    pub fragment: Fragment,
    /// Offset of the fragment header, in bytes from the first extension header.
    pub at: u16,
}

/// A routing header's fixed part (RFC 8200, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The routing type; 0 is deprecated and to be dropped (RFC 5095).
    pub kind: u8,
    /// Number of nodes that are still to be visited.
    pub segments_left: u8,
    /// Offset of the routing header, in bytes from the first extension header.
    pub at: u16,
}

/// Takes a whole packet apart. `bytes` may be longer than the packet, by padding of the link.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let (header, rest) = split(bytes)?;
    match rest.get(..usize::from(header.payload_len())) {
        Some(payload) => finish(header, payload),
        None => Err(Malformed::PayloadPastEnd),
    }
}

/// Takes the beginning of a packet apart: fixed and extension headers must be complete, the payload may be truncated.
/// For packets quoted in ICMP errors, or cut by a snap length.
#[inline]
pub fn parse_prefix(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let (header, rest) = split(bytes)?;
    finish(header, rest.get(..usize::from(header.payload_len())).unwrap_or(rest))
}

#[inline]
fn split(bytes: &[u8]) -> Result<(Header<'_>, &[u8]), Malformed> {
    let Some((first, rest)) = bytes.split_first_chunk() else { return Err(Malformed::TooShort) };
    let header = Header(first);
    if header.version() == 6 { Ok((header, rest)) } else { Err(Malformed::Version) }
}

#[inline]
fn finish<'a>(header: Header<'a>, payload: &'a [u8]) -> Result<Packet<'a>, Malformed> {
    let next = header.next_header();
    if !is_extension(next) {
        return Ok(Packet { header, extensions: Extensions::none(next), payload });
    }
    let extensions = walk(next, payload)?;
    let payload = payload.get(usize::from(extensions.len)..).unwrap_or(&[]);
    Ok(Packet { header, extensions, payload })
}

/// True if the walk passes a header of this number.
#[inline]
pub const fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::AH
            | Protocol::DESTINATION_OPTIONS
    )
}

/// Walks the extension headers in `bytes`, the first of type `next`.
pub fn walk(next: Protocol, bytes: &[u8]) -> Result<Extensions, Malformed> {
    let mut found = Extensions::none(next);
    while is_extension(found.protocol) {
        if usize::from(found.count) == MAX_EXTENSIONS {
            return Err(Malformed::TooManyExtensions);
        }
        if found.protocol == Protocol::HOP_BY_HOP && found.count > 0 {
            return Err(Malformed::MisplacedHopByHop);
        }
        let at = found.len;
        // The shortest of them has 8 bytes.
        let Some(first) = bytes.get(usize::from(at)..).and_then(|rest| rest.first_chunk::<8>()) else {
            return Err(Malformed::ExtensionPastEnd);
        };
        let len = match found.protocol {
            Protocol::FRAGMENT => FRAGMENT_HEADER_LEN,
            Protocol::AH => (usize::from(first[1]) + 2) * 4,
            _ => (usize::from(first[1]) + 1) * 8,
        };
        let end = usize::from(at) + len;
        if end > MAX_EXTENSION_BYTES {
            return Err(Malformed::ExtensionsTooLong);
        }
        if end > bytes.len() {
            return Err(Malformed::ExtensionPastEnd);
        }
        let walked = found.protocol;
        found.protocol = Protocol(first[0]);
        found.len = end as u16; // at most 512
        found.count += 1;
        found.is_authenticated |= walked == Protocol::AH;
        if walked == Protocol::ROUTING {
            found.routing = Some(Routing { kind: first[2], segments_left: first[3], at });
        }
        if walked == Protocol::FRAGMENT {
            if found.fragment.is_some() {
                return Err(Malformed::SecondFragmentHeader);
            }
            let field = be16(first, 2);
            let fragment = Fragment { id: be32(first, 4), offset: field & 0xfff8, more: field & 1 == 1 };
            found.fragment = Some(FragmentHeader { fragment, at });
            if !fragment.is_first() {
                break;
            }
        }
    }
    Ok(found)
}

/// The fixed header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The bytes at the start of `bytes`, unchecked, or `None` where there are too few.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Option<Header<'a>> {
        bytes.first_chunk().map(Header)
    }

    /// The version field; 6.
    #[inline]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// The traffic class: code point and congestion notification (RFC 2474, RFC 3168).
    #[inline]
    pub fn ds_field(self) -> u8 {
        (be16(self.0, 0) >> 4) as u8
    }

    /// The DiffServ code point.
    #[inline]
    pub fn dscp(self) -> Dscp {
        Dscp::of_field(self.ds_field())
    }

    /// The flow label, 20 bits.
    #[inline]
    pub fn flow_label(self) -> u32 {
        be32(self.0, 0) & 0x000f_ffff
    }

    /// Bytes after the fixed header, extension headers included.
    #[inline]
    pub fn payload_len(self) -> u16 {
        be16(self.0, 4)
    }

    /// Next header: protocol after the fixed header.
    #[inline]
    pub fn next_header(self) -> Protocol {
        Protocol(self.0[6])
    }

    /// The hop limit.
    #[inline]
    pub fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Source address.
    #[inline]
    pub fn src(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.src_bits())
    }

    /// Destination address.
    #[inline]
    pub fn dst(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.dst_bits())
    }

    /// Source address, the first octet uppermost.
    #[inline]
    pub fn src_bits(self) -> u128 {
        u128::from_be_bytes(self.src_octets())
    }

    /// Destination address, the first octet uppermost.
    #[inline]
    pub fn dst_bits(self) -> u128 {
        u128::from_be_bytes(self.dst_octets())
    }

    /// Source address as on the wire.
    #[inline]
    pub fn src_octets(self) -> [u8; 16] {
        array(self.0, 8)
    }

    /// Destination address as on the wire.
    #[inline]
    pub fn dst_octets(self) -> [u8; 16] {
        array(self.0, 24)
    }
}

/// The fixed header, to change. IPv6 has no header checksum; the transport checksum covers the addresses.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The bytes at the start of `bytes`, unchecked, or `None` where there are too few.
    #[inline]
    pub fn of(bytes: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        bytes.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets version 6, traffic class, and the lower 20 bits of `flow_label`.
    #[inline]
    pub fn set_first_word(&mut self, ds_field: u8, flow_label: u32) {
        let word = 0x6000_0000 | (u32::from(ds_field) << 20) | (flow_label & 0x000f_ffff);
        put(self.0, 0, word.to_be_bytes());
    }

    /// Sets the bytes after the fixed header.
    #[inline]
    pub fn set_payload_len(&mut self, bytes: u16) {
        put(self.0, 4, bytes.to_be_bytes());
    }

    /// Sets the next header: protocol after the fixed header.
    #[inline]
    pub fn set_next_header(&mut self, protocol: Protocol) {
        self.0[6] = protocol.0;
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.0[7] = hops;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Ipv6Addr) {
        put(self.0, 8, src.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        put(self.0, 24, dst.octets());
    }

    /// Decrements the hop limit. At 0 it stays 0.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        self.0[7] = self.0[7].saturating_sub(1);
    }

    /// Changes the code point, keeps the congestion notification.
    #[inline]
    pub fn mark(&mut self, dscp: Dscp) {
        let old = be16(self.0, 0);
        put(self.0, 0, ((old & 0xf03f) | (u16::from(dscp.value()) << 6)).to_be_bytes());
    }

    /// Sets "congestion experienced" (RFC 3168, section 5). False, and unchanged, if the transport is not capable of ECN.
    pub fn mark_congestion(&mut self) -> bool {
        if be16(self.0, 0) & 0x0030 == 0 {
            return false;
        }
        self.set_congestion(3);
        true
    }

    /// Sets the field of congestion notification (RFC 3168, section 5): the lower two bits of `ecn`.
    pub fn set_congestion(&mut self, ecn: u8) {
        let old = be16(self.0, 0);
        put(self.0, 0, (old & !0x0030 | u16::from(ecn & 3) << 4).to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
