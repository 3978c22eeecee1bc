//! Translation between IPv4 and IPv6 headers (SIIT, RFC 7915): the bytes of one packet, whoever chose its addresses.
//!
//! [`to_v4`] and [`to_v6`] replace a frame's link-layer and IP headers by a header of the other family, adjust the transport checksum for
//! the other pseudo header, and turn ICMP messages into their counterparts with the packets that errors quote. Ports and
//! identifiers stay: a stateful translator (RFC 6146) rewrites them afterwards. The payload is not moved, except that of an ICMP
//! error, which is written anew.
//!
//! A packet without a counterpart stays as it is, and the error says why: multicast group management, neighbour discovery, fragments of
//! ICMP, an authentication header, whose sum covers the header that would change. Traffic class, hop limit and fragment fields are copied, and
//! neither hop limits nor lengths are compared with what a link takes: that is a router's business.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{Delta, Sum};
use crate::frame::Frame;
use crate::header::{Fragment, Protocol, RawOption};
use crate::meta::{Family, Part};
use crate::{icmpv4, icmpv6, ipv4, ipv6, udp};

mod icmp;
mod prefix;

pub use prefix::{BadPrefix, Prefix};

/// Most bytes of an IPv4 packet that routers may fragment where its sender did not say so (RFC 7915, section 5.1): as IPv6 it had the least MTU
/// of that.
const FRAGMENTABLE: usize = 1_260;

/// Addresses of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndsV4 {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// Addresses of an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndsV6 {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// MTUs of the links on both sides, in bytes: bounds of the MTU that a translated "too big" may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtus {
    /// Of the link that IPv4 packets take.
    pub v4: u16,
    /// Of the link that IPv6 packets take.
    pub v6: u16,
}

/// Reason why a packet has no counterpart in the other family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// The headers cannot be read.
    #[error("headers cannot be read")]
    Malformed,
    /// An IPv4 source route that has not been walked to its end (RFC 7915, section 4.1): answered by "source route failed".
    #[error("IPv4 source route with hops left")]
    SourceRoute,
    /// An IPv6 routing header with segments left (RFC 7915, section 5.1): answered by a parameter problem.
    #[error("IPv6 routing header with segments left")]
    Routing {
        /// Offset of the field of segments left, in bytes from the start of the IPv6 header.
        pointer: u32,
    },
    /// A protocol that means something else in the other family: ICMP of the wrong family, group management, extension
    /// headers as IPv4's protocol, an authentication header.
    #[error("protocol {0} has no counterpart")]
    Protocol(Protocol),
    /// A fragment of an ICMP message: the sum over the whole message, of which IPv6's takes the length, is not known.
    #[error("fragment of an ICMP message")]
    IcmpFragment,
    /// The first fragment of a UDP datagram without a checksum, which IPv6 demands.
    #[error("fragment of a UDP datagram without a checksum")]
    NoChecksum,
    /// An ICMP message without a counterpart.
    #[error("ICMP message has no counterpart")]
    Message,
    /// The checksum of an ICMP error is wrong: it cannot be carried on, as the message is written anew.
    #[error("wrong checksum of an ICMP error")]
    Checksum,
    /// More bytes than the other family's length field or the frame has room for.
    #[error("too long for the other family")]
    TooLong,
}

/// Translates an IPv6 packet to IPv4 (RFC 7915, section 5).
///
/// `frame` begins with its link-layer header, and `frame.meta` says the offsets of its headers, as it does afterwards: the frame then begins
/// with the IPv4 header, and ends where that says. `quote` are the addresses of the packet that an ICMPv6 error quotes; `id` is the
/// identification of a packet without a fragment header.
///
/// # Errors
/// The packet has no counterpart, and the frame is unchanged.
pub fn to_v4(
    frame: &mut Frame,
    ends: &EndsV4,
    quote: Option<&EndsV4>,
    id: u16,
    mtus: Mtus,
) -> Result<(), Untranslatable> {
    let begin = usize::from(frame.meta.network);
    let (end, protocol) = (usize::from(frame.meta.end), Protocol(frame.meta.protocol));
    let bytes = frame.bytes().get(begin..end).ok_or(Untranslatable::Malformed)?;
    let packet = ipv6::parse(bytes).map_err(|_| Untranslatable::Malformed)?;
    refuse_v6(&packet)?;
    let payload_at = begin + packet.payload_at();
    refuse_room(frame, payload_at, ipv4::MIN_HEADER_LEN)?;
    let (hops, ds_field) = (packet.header.hop_limit(), packet.header.ds_field());
    let fragment = packet.extensions.fragment.map(|header| header.fragment);
    let addresses = pseudo_v4(ends).and(pseudo_v6(&addresses_v6(packet.header)).inverse());
    let part = part_of(fragment);
    let kind = match protocol {
        Protocol::ICMPV6 => icmp::refuse_fragment(part).and_then(|()| icmp::kind_of_v6(packet.payload))?,
        _ => icmp::Kind::Other,
    };
    let new_protocol = if protocol == Protocol::ICMPV6 { Protocol::ICMP } else { protocol };
    match kind {
        icmp::Kind::Error => {
            if !packet.pseudo_header().and(packet.payload).verifies() {
                return Err(Untranslatable::Checksum);
            }
            let message = icmp::error_to_v4(packet.payload, quote.ok_or(Untranslatable::Message)?, mtus)?;
            replace_payload(frame, payload_at, end, &message)?;
        }
        icmp::Kind::Query => {
            let pseudo = Delta::from_bits(packet.pseudo_header().fold());
            let payload = payload_mut(frame, payload_at, end)?;
            icmp::query_to_v4(payload, pseudo);
        }
        icmp::Kind::Other => {
            adjust_transport(payload_mut(frame, payload_at, end)?, protocol, part, addresses);
        }
    }
    let header = V4 { ds_field, hops, protocol: new_protocol, fragment, id, ends: *ends };
    // The end may be another one than before, that of an error's counterpart.
    let total = ipv4::MIN_HEADER_LEN + usize::from(frame.meta.end).saturating_sub(payload_at);
    // `refuse_room` has compared it.
    put_header(frame, payload_at, &header.bytes(total as u16));
    finish(frame, Family::V4, new_protocol);
    Ok(())
}

/// Translates an IPv4 packet to IPv6 (RFC 7915, section 4).
///
/// As [`to_v4`], the other way. A fragment gets a fragment header; a whole packet gets none, whatever "don't fragment" says: one that is too long
/// for the IPv6 side and may be fragmented is to be fragmented before.
///
/// # Errors
/// The packet has no counterpart, and the frame is unchanged.
pub fn to_v6(
    frame: &mut Frame,
    ends: &EndsV6,
    quote: Option<&EndsV6>,
    mtus: Mtus,
) -> Result<(), Untranslatable> {
    let begin = usize::from(frame.meta.network);
    let (end, protocol) = (usize::from(frame.meta.end), Protocol(frame.meta.protocol));
    let bytes = frame.bytes().get(begin..end).ok_or(Untranslatable::Malformed)?;
    let packet = ipv4::parse_prefix(bytes).map_err(|_| Untranslatable::Malformed)?;
    refuse_v4(&packet)?;
    let payload_at = begin + packet.header.header_len();
    refuse_room(frame, payload_at, ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN)?;
    let (hops, ds_field) = (packet.header.ttl(), packet.header.ds_field());
    let fragment = packet.header.fragment();
    let addresses = pseudo_v6(ends).and(pseudo_v4(&addresses_v4(packet.header)).inverse());
    let part = part_of(fragment);
    let kind = match protocol {
        Protocol::ICMP => icmp::refuse_fragment(part).and_then(|()| icmp::kind_of_v4(packet.payload))?,
        _ => icmp::Kind::Other,
    };
    let new_protocol = if protocol == Protocol::ICMP { Protocol::ICMPV6 } else { protocol };
    match kind {
        icmp::Kind::Error => {
            if !Sum::of(packet.payload).verifies() {
                return Err(Untranslatable::Checksum);
            }
            let message =
                icmp::error_to_v6(packet.payload, ends, quote.ok_or(Untranslatable::Message)?, mtus)?;
            replace_payload(frame, payload_at, end, &message)?;
        }
        icmp::Kind::Query => {
            let payload = payload_mut(frame, payload_at, end)?;
            // The payload length field has 16 bits.
            let pseudo = Sum::pseudo_v6(ends.source, ends.destination, new_protocol, payload.len() as u32);
            icmp::query_to_v6(payload, Delta::from_bits(pseudo.fold()));
        }
        icmp::Kind::Other => {
            let sum = unsummed(packet.payload, protocol, part, ends)?;
            let payload = payload_mut(frame, payload_at, end)?;
            adjust_transport(payload, protocol, part, addresses);
            if let (Some(sum), Some(mut header)) = (sum, udp::HeaderMut::of(payload)) {
                header.set_checksum(sum);
            }
        }
    }
    let payload_len = usize::from(frame.meta.end).saturating_sub(payload_at);
    let header = V6 { ds_field, hops, protocol: new_protocol, ends: *ends };
    match fragment {
        None => put_header(frame, payload_at, &header.bytes(payload_len as u16)),
        Some(fragment) => {
            put_header(frame, payload_at, &header.bytes_of_fragment(payload_len as u16, fragment))
        }
    }
    finish(frame, Family::V6, new_protocol);
    Ok(())
}

/// Addresses of the packet that an ICMP error quotes, IPv4's in IPv4; `None` where `frame` is no such error.
pub fn quoted_v4(frame: &Frame) -> Option<EndsV4> {
    let quote = quote_of(frame)?;
    ipv4::Header::of(quote).filter(|header| header.version() == 4).map(addresses_v4)
}

/// Addresses of the packet that an ICMPv6 error quotes, IPv6's in IPv6; `None` where `frame` is no such error.
pub fn quoted_v6(frame: &Frame) -> Option<EndsV6> {
    let quote = quote_of(frame)?;
    ipv6::Header::of(quote).filter(|header| header.version() == 6).map(addresses_v6)
}

fn quote_of(frame: &Frame) -> Option<&[u8]> {
    let meta = &frame.meta;
    let payload = frame.bytes().get(usize::from(meta.transport)..usize::from(meta.end))?;
    let kind = *payload.first()?;
    let is_error = match Protocol(meta.protocol) {
        Protocol::ICMP => icmpv4::Type(kind).class() == icmpv4::Class::Error,
        Protocol::ICMPV6 => icmpv6::Type(kind).class() == icmpv6::Class::Error,
        _ => false,
    };
    payload.get(icmpv4::HEADER_LEN..).filter(|_| is_error && meta.part == Part::Whole)
}

fn addresses_v4(header: ipv4::Header<'_>) -> EndsV4 {
    EndsV4 { source: header.src(), destination: header.dst() }
}

fn addresses_v6(header: ipv6::Header<'_>) -> EndsV6 {
    EndsV6 { source: header.src(), destination: header.dst() }
}

/// Sum over the addresses: all that differs between the pseudo headers of both families.
fn pseudo_v4(ends: &EndsV4) -> Delta {
    Delta::NONE.change32(0, ends.source.to_bits()).change32(0, ends.destination.to_bits())
}

fn pseudo_v6(ends: &EndsV6) -> Delta {
    Delta::NONE.change128(0, ends.source.to_bits()).change128(0, ends.destination.to_bits())
}

fn part_of(fragment: Option<Fragment>) -> Part {
    match fragment {
        Some(fragment) if !fragment.is_first() => Part::Later,
        Some(fragment) if fragment.more => Part::First,
        _ => Part::Whole,
    }
}

/// Refuses what an IPv6 packet says that IPv4 cannot.
fn refuse_v6(packet: &ipv6::Packet<'_>) -> Result<(), Untranslatable> {
    if let Some(routing) = packet.extensions.routing.filter(|routing| routing.segments_left > 0) {
        let pointer = ipv6::HEADER_LEN as u32 + u32::from(routing.at) + 3;
        return Err(Untranslatable::Routing { pointer });
    }
    if packet.extensions.is_authenticated {
        return Err(Untranslatable::Protocol(Protocol::AH));
    }
    match packet.protocol() {
        protocol @ (Protocol::ICMP | Protocol::IGMP | Protocol::NO_NEXT) => {
            Err(Untranslatable::Protocol(protocol))
        }
        _ => Ok(()),
    }
}

/// Refuses what an IPv4 packet says that IPv6 cannot, and what would be read as an extension header.
fn refuse_v4(packet: &ipv4::Packet<'_>) -> Result<(), Untranslatable> {
    let is_route = |option: &RawOption<'_>| {
        matches!(option.kind, ipv4::option::LOOSE_SOURCE_ROUTE | ipv4::option::STRICT_SOURCE_ROUTE)
    };
    for option in packet.options().flatten().filter(is_route) {
        // The pointer counts from the option's first byte, as 1; past the end no hop is left (RFC 791, section 3.1).
        let length = option.data.len() + 2;
        if option.data.first().is_some_and(|pointer| usize::from(*pointer) <= length) {
            return Err(Untranslatable::SourceRoute);
        }
    }
    match packet.header.protocol() {
        protocol @ (Protocol::ICMPV6 | Protocol::IGMP | Protocol::NO_NEXT) => {
            Err(Untranslatable::Protocol(protocol))
        }
        protocol if ipv6::is_extension(protocol) => Err(Untranslatable::Protocol(protocol)),
        _ => Ok(()),
    }
}

/// Checksum of a whole UDP datagram that came without one; `None` for all else.
fn unsummed(
    payload: &[u8],
    protocol: Protocol,
    part: Part,
    ends: &EndsV6,
) -> Result<Option<u16>, Untranslatable> {
    if protocol != Protocol::UDP || part == Part::Later {
        return Ok(None);
    }
    let Some(header) = udp::Header::of(payload).filter(|header| header.checksum() == 0) else {
        return Ok(None);
    };
    if part == Part::First {
        return Err(Untranslatable::NoChecksum);
    }
    let length = header.length();
    let covered = payload.get(..usize::from(length)).ok_or(Untranslatable::Malformed)?;
    let pseudo = Sum::pseudo_v6(ends.source, ends.destination, protocol, u32::from(length));
    Ok(Some(pseudo.and(covered).udp_checksum()))
}

/// Adjusts the checksum of a transport header, as far as it is there, for other addresses in its pseudo header.
fn adjust_transport(payload: &mut [u8], protocol: Protocol, part: Part, addresses: Delta) {
    if part == Part::Later {
        return;
    }
    let (at, adjust): (usize, fn(Delta, u16) -> u16) = match protocol {
        Protocol::TCP => (16, Delta::apply),
        Protocol::UDP | Protocol::UDPLITE => (6, Delta::apply_udp),
        Protocol::DCCP => (6, Delta::apply),
        _ => return,
    };
    if let Some(checksum) = payload.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *checksum = adjust(addresses, u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}

fn payload_mut(frame: &mut Frame, from: usize, end: usize) -> Result<&mut [u8], Untranslatable> {
    frame.bytes_mut().get_mut(from..end).ok_or(Untranslatable::Malformed)
}

/// Writes another payload in place of that from `from` to `end`, and notes its end.
fn replace_payload(frame: &mut Frame, from: usize, end: usize, message: &[u8]) -> Result<(), Untranslatable> {
    let new_end = from + message.len();
    let more = new_end.saturating_sub(frame.len());
    if more > 0 {
        frame.push_back(more).ok_or(Untranslatable::TooLong)?;
    }
    debug_assert!(end <= frame.len(), "the payload lies in the frame");
    payload_mut(frame, from, new_end)?.copy_from_slice(message);
    frame.meta.end = new_end as u16; // a frame's length has 16 bits
    Ok(())
}

/// Refuses a packet that would be longer than its length field or its frame can say, before anything has changed.
fn refuse_room(frame: &Frame, payload_at: usize, header_len: usize) -> Result<(), Untranslatable> {
    let len = usize::from(frame.meta.end).saturating_sub(payload_at);
    let fits = frame.headroom() + payload_at >= header_len && header_len + len <= usize::from(u16::MAX);
    if fits { Ok(()) } else { Err(Untranslatable::TooLong) }
}

/// Puts `header` in front of the payload at `payload_at`, in place of all headers there, and cuts off what lies past the packet.
fn put_header(frame: &mut Frame, payload_at: usize, header: &[u8]) {
    let end = usize::from(frame.meta.end);
    frame.truncate(end);
    frame.pull_front(payload_at);
    if let Some(front) = frame.push_front(header.len()) {
        front.copy_from_slice(header);
    }
    frame.meta.network = 0;
    frame.meta.transport = header.len() as u16; // at most 48
    frame.meta.end = frame.len() as u16; // a frame's length has 16 bits
}

fn finish(frame: &mut Frame, family: Family, protocol: Protocol) {
    frame.meta.family = family;
    frame.meta.protocol = protocol.0;
    if matches!(protocol, Protocol::ICMP | Protocol::ICMPV6) {
        let at = usize::from(frame.meta.transport);
        if let Some(kind) = frame.bytes().get(at..).and_then(|message| message.first_chunk()) {
            frame.meta.dport = u16::from_be_bytes(*kind);
        }
    }
}

/// Fields of an IPv4 header without options.
struct V4 {
    ds_field: u8,
    hops: u8,
    protocol: Protocol,
    fragment: Option<Fragment>,
    id: u16,
    ends: EndsV4,
}

impl V4 {
    fn bytes(&self, total: u16) -> [u8; ipv4::MIN_HEADER_LEN] {
        const DONT_FRAGMENT: u16 = 0x4000;
        const MORE: u16 = 0x2000;
        let mut bytes = [0; ipv4::MIN_HEADER_LEN];
        let (id, field) = match self.fragment {
            // The lower 16 bits (RFC 7915, section 5.1.1).
            Some(fragment) => {
                (fragment.id as u16, fragment.offset >> 3 | if fragment.more { MORE } else { 0 })
            }
            None if usize::from(total) <= FRAGMENTABLE => (self.id, 0),
            None => (self.id, DONT_FRAGMENT),
        };
        if let Some(mut header) = ipv4::HeaderMut::of(&mut bytes) {
            header.set_header_len(ipv4::MIN_HEADER_LEN);
            header.set_ds_field(self.ds_field);
            header.set_total_len(total);
            header.set_id(id);
            header.set_flags_and_offset(field);
            header.set_ttl(self.hops);
            header.set_protocol(self.protocol);
            header.set_src(self.ends.source);
            header.set_dst(self.ends.destination);
        }
        ipv4::fill_checksum(&mut bytes);
        bytes
    }
}

/// Fields of an IPv6 header.
struct V6 {
    ds_field: u8,
    hops: u8,
    protocol: Protocol,
    ends: EndsV6,
}

impl V6 {
    fn bytes(&self, payload_len: u16) -> [u8; ipv6::HEADER_LEN] {
        let mut bytes = [0; ipv6::HEADER_LEN];
        if let Some(mut header) = ipv6::HeaderMut::of(&mut bytes) {
            header.set_first_word(self.ds_field, 0);
            header.set_payload_len(payload_len);
            header.set_next_header(self.protocol);
            header.set_hop_limit(self.hops);
            header.set_src(self.ends.source);
            header.set_dst(self.ends.destination);
        }
        bytes
    }

    /// With a fragment header: offset and "more" are copied, the identification stands in the lower 16 bits (RFC 7915, section 4.1).
    fn bytes_of_fragment(
        &self,
        payload_len: u16,
        fragment: Fragment,
    ) -> [u8; ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN] {
        let mut bytes = [0; ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN];
        let (fixed, extension) = bytes.split_at_mut(ipv6::HEADER_LEN);
        // An IPv4 payload has at most 65515 bytes.
        let payload_len = payload_len.saturating_add(ipv6::FRAGMENT_HEADER_LEN as u16);
        fixed.copy_from_slice(&V6 { protocol: Protocol::FRAGMENT, ..*self }.bytes(payload_len));
        extension[0] = self.protocol.0;
        extension[2..4].copy_from_slice(&(fragment.offset | u16::from(fragment.more)).to_be_bytes());
        extension[4..8].copy_from_slice(&fragment.id.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
