//! IPv4 (RFC 791): header, options, fragments.
//!
//! [`parse`] makes all checks that a router must make first (RFC 1812, section 5.2.2), and returns the one that failed.
//! [`parse_prefix`] is for truncated packets: quoted in an ICMP error, or cut by a snap length.

use std::net::Ipv4Addr;

use crate::checksum::{self, Delta, Sum, verifies_20};
pub use crate::header::Protocol;
use crate::header::{Fragment, RawOptions, be16, be32, put};
use crate::unit::Dscp;

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;

/// Reason why a packet is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 20 bytes.
    #[error("shorter than an IPv4 header")]
    TooShort,
    /// The version field is not 4.
    #[error("IP version is not 4")]
    Version,
    /// The header length field is below 20 bytes.
    #[error("IPv4 header length below 20 bytes")]
    HeaderLength,
    /// The header length field reaches past the end.
    #[error("IPv4 header length past the end")]
    HeaderPastEnd,
    /// The total length field is below the header's length.
    #[error("IPv4 total length below that of its header")]
    TotalLengthBelowHeader,
    /// The total length field reaches past the end.
    #[error("IPv4 total length past the end")]
    TotalLengthPastEnd,
    /// The header checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    Checksum,
}

/// A packet, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The first 20 bytes.
    pub header: Header<'a>,
    /// The options, 0 to 40 bytes.
    pub options: &'a [u8],
    /// Payload, from the header up to the total length: without padding of the link.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Walks the options.
    #[inline]
    pub fn options(&self) -> RawOptions<'a> {
        RawOptions::new(self.options)
    }

    /// True if the header checksum, options included, is right. [`parse`] verifies it.
    #[inline]
    pub fn checksum_is_right(&self) -> bool {
        if self.options.is_empty() { verifies_20(self.header.0) } else { self.optioned_checksum_is_right() }
    }

    // Apart, so that the usual header's five adds are inlined without it.
    #[cold]
    fn optioned_checksum_is_right(&self) -> bool {
        Sum::of(self.header.0).and(self.options).verifies()
    }

    /// The sum of the pseudo header for this packet's payload (of a whole packet, not of a fragment).
    #[inline]
    pub fn pseudo_header(&self) -> Sum {
        // The total length field has 16 bits, so the payload's length has too.
        let length = self.payload.len() as u16;
        Sum::pseudo_v4(self.header.src(), self.header.dst(), self.header.protocol(), length)
    }
}

/// Option types (IANA, "IP Option Numbers").
pub mod option {
    /// Loose source route (RFC 791).
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source route (RFC 791).
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Record route (RFC 791).
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp (RFC 791).
    pub const TIMESTAMP: u8 = 68;
    /// Router alert (RFC 2113).
    pub const ROUTER_ALERT: u8 = 148;
}

/// Takes a whole packet apart: version, lengths and header checksum are right if it returns `Ok`. `bytes`
/// may be longer than the packet, by padding of the link.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let Some((first, _)) = bytes.split_first_chunk::<MIN_HEADER_LEN>() else {
        return Err(Malformed::TooShort);
    };
    let header = Header(first);
    let header_len = check_header_len(header, bytes)?;
    let total_len = usize::from(header.total_len());
    if total_len < header_len {
        return Err(Malformed::TotalLengthBelowHeader);
    }
    let Some(whole) = bytes.get(..total_len) else { return Err(Malformed::TotalLengthPastEnd) };
    let packet = split(header, header_len, whole)?;
    if packet.checksum_is_right() { Ok(packet) } else { Err(Malformed::Checksum) }
}

/// Takes the beginning of a packet apart: the header must be complete, the payload may be truncated. The total length
/// may reach past the end, and the checksum is not verified: routers may have changed the header of a quoted packet.
#[inline]
pub fn parse_prefix(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let Some(header) = Header::of(bytes) else { return Err(Malformed::TooShort) };
    let header_len = check_header_len(header, bytes)?;
    let total_len = usize::from(header.total_len());
    if total_len < header_len {
        return Err(Malformed::TotalLengthBelowHeader);
    }
    split(header, header_len, bytes.get(..total_len).unwrap_or(bytes))
}

#[inline]
fn check_header_len(header: Header<'_>, bytes: &[u8]) -> Result<usize, Malformed> {
    if header.version() != 4 {
        return Err(Malformed::Version);
    }
    let header_len = header.header_len();
    if header_len < MIN_HEADER_LEN {
        return Err(Malformed::HeaderLength);
    }
    if header_len > bytes.len() {
        return Err(Malformed::HeaderPastEnd);
    }
    Ok(header_len)
}

#[inline]
fn split<'a>(header: Header<'a>, header_len: usize, whole: &'a [u8]) -> Result<Packet<'a>, Malformed> {
    let Some((head, payload)) = whole.split_at_checked(header_len) else {
        return Err(Malformed::HeaderPastEnd);
    };
    let options = head.get(MIN_HEADER_LEN..).unwrap_or(&[]);
    Ok(Packet { header, options, payload })
}

/// The first 20 bytes of a header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; MIN_HEADER_LEN]);

impl<'a> Header<'a> {
    /// The bytes at the start of `bytes`, unchecked, or `None` where there are too few.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Option<Header<'a>> {
        bytes.first_chunk().map(Header)
    }

    /// The version field; 4.
    #[inline]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Bytes of the header with its options, by its field: 0 to 60, and 20 to 60 once parsed.
    #[inline]
    pub fn header_len(self) -> usize {
        usize::from(self.0[0] & 0x0f) * 4
    }

    /// The byte with code point and congestion notification (RFC 2474, RFC 3168).
    #[inline]
    pub fn ds_field(self) -> u8 {
        self.0[1]
    }

    /// The DiffServ code point.
    #[inline]
    pub fn dscp(self) -> Dscp {
        Dscp::of_field(self.0[1])
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn total_len(self) -> u16 {
        be16(self.0, 2)
    }

    /// The identification, common to all fragments of a packet.
    #[inline]
    pub fn id(self) -> u16 {
        be16(self.0, 4)
    }

    /// Flags (3 bits) and fragment offset (13 bits, in units of 8 bytes).
    #[inline]
    pub fn flags_and_offset(self) -> u16 {
        be16(self.0, 6)
    }

    /// Don't fragment: true if routers may not fragment the packet.
    #[inline]
    pub fn dont_fragment(self) -> bool {
        self.flags_and_offset() & 0x4000 != 0
    }

    /// True for a fragment: one test for the packet path.
    #[inline]
    pub fn is_fragment(self) -> bool {
        self.flags_and_offset() & 0x3fff != 0
    }

    /// Fragment fields, or `None` for a whole packet.
    #[inline]
    pub fn fragment(self) -> Option<Fragment> {
        let field = self.flags_and_offset();
        if field & 0x3fff == 0 {
            return None;
        }
        // Shifted out are the three flags, shifted in the factor of 8.
        Some(Fragment { id: u32::from(self.id()), offset: field << 3, more: field & 0x2000 != 0 })
    }

    /// Time to live, in hops.
    #[inline]
    pub fn ttl(self) -> u8 {
        self.0[8]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(self) -> Protocol {
        Protocol(self.0[9])
    }

    /// The header checksum.
    #[inline]
    pub fn checksum(self) -> u16 {
        be16(self.0, 10)
    }

    /// Source address.
    #[inline]
    pub fn src(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.src_bits())
    }

    /// Destination address.
    #[inline]
    pub fn dst(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.dst_bits())
    }

    /// Source address, the first octet uppermost.
    #[inline]
    pub fn src_bits(self) -> u32 {
        be32(self.0, 12)
    }

    /// Destination address, the first octet uppermost.
    #[inline]
    pub fn dst_bits(self) -> u32 {
        be32(self.0, 16)
    }
}

/// The first 20 bytes of a header, to change. A setter leaves the checksum to the caller; the other verbs adjust the
/// checksum.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; MIN_HEADER_LEN]);

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

    /// Sets version 4 and the header length in bytes, a multiple of 4 up to 60.
    #[inline]
    pub fn set_header_len(&mut self, bytes: usize) {
        self.0[0] = 0x40 | (bytes / 4).min(15) as u8;
    }

    /// Sets code point and congestion notification.
    #[inline]
    pub fn set_ds_field(&mut self, field: u8) {
        self.0[1] = field;
    }

    /// Sets the bytes of header and payload.
    #[inline]
    pub fn set_total_len(&mut self, bytes: u16) {
        put(self.0, 2, bytes.to_be_bytes());
    }

    /// Sets the identification.
    #[inline]
    pub fn set_id(&mut self, id: u16) {
        put(self.0, 4, id.to_be_bytes());
    }

    /// Sets flags (0x4000 don't fragment, 0x2000 more fragments) and offset (in units of 8 bytes).
    #[inline]
    pub fn set_flags_and_offset(&mut self, field: u16) {
        put(self.0, 6, field.to_be_bytes());
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, hops: u8) {
        self.0[8] = hops;
    }

    /// Sets the protocol of the payload.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.0[9] = protocol.0;
    }

    /// Sets the header checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0, 10, checksum.to_be_bytes());
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Ipv4Addr) {
        put(self.0, 12, src.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        put(self.0, 16, dst.octets());
    }

    /// Adjusts the checksum for fields that changed.
    #[inline]
    pub fn adjust_checksum(&mut self, delta: Delta) {
        let checksum = delta.apply(self.view().checksum());
        self.set_checksum(checksum);
    }

    /// Takes one hop off the time to live and adjusts the checksum. At 0 it stays 0.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        if self.0[8] == 0 {
            return;
        }
        self.0[8] -= 1;
        // The word lost 0x0100, so its complement's sum gains that, with the end-around carry (RFC 1141). The sum is the same in
        // either order of bytes (RFC 1071, section 2): with the lower byte first it gains 1.
        let sum = u32::from(u16::from_le_bytes([self.0[10], self.0[11]])) + 1;
        put(self.0, 10, ((sum + u32::from(sum >= 0xffff)) as u16).to_le_bytes());
    }

    /// Changes the code point, keeps the congestion notification, and adjusts the checksum.
    #[inline]
    pub fn mark(&mut self, dscp: Dscp) {
        let old = be16(self.0, 0);
        let new = (old & 0xff03) | (u16::from(dscp.value()) << 2);
        put(self.0, 0, new.to_be_bytes());
        let checksum = checksum::update16(self.view().checksum(), old, new);
        self.set_checksum(checksum);
    }

    /// Sets "congestion experienced" (RFC 3168, section 5), and adjusts the checksum. False, and unchanged, if the transport is
    /// not capable of ECN.
    pub fn mark_congestion(&mut self) -> bool {
        if be16(self.0, 0) & 0x0003 == 0 {
            return false;
        }
        self.set_congestion(3);
        true
    }

    /// Sets the field of congestion notification (RFC 3168, section 5), the lower two bits of `ecn`, and adjusts the checksum.
    pub fn set_congestion(&mut self, ecn: u8) {
        let old = be16(self.0, 0);
        let new = old & !0x0003 | u16::from(ecn & 3);
        put(self.0, 0, new.to_be_bytes());
        let checksum = checksum::update16(self.view().checksum(), old, new);
        self.set_checksum(checksum);
    }
}

/// Computes and sets the checksum of the header at the start of `packet`, options included. Bytes without a whole
/// header stay unchanged.
#[inline]
pub fn fill_checksum(packet: &mut [u8]) {
    let Some(header_len) = Header::of(packet).map(Header::header_len) else { return };
    let Some(head) = packet.get_mut(..header_len) else { return };
    let Some(mut header) = HeaderMut::of(head) else { return };
    header.set_checksum(0);
    let checksum = checksum::of(head);
    if let Some(mut header) = HeaderMut::of(head) {
        header.set_checksum(checksum);
    }
}

#[cfg(test)]
mod tests;
