//! Writes a translation into a packet's headers and adjusts its checksums (RFC 1624), from the IP header on.
//!
//! Input is the endpoints that the packet shall have; its present ones are read from the packet. All checksums are
//! adjusted by the difference: a valid checksum stays valid, and an invalid one invalid, for the receiver to notice. A
//! translation and then its inverse restore every byte, with one exception: of the two zeros that a TCP, ICMP or IPv4
//! header checksum can be, 0xffff, which no sender computes, may come back as 0, which means the same.
//!
//! Ports are those of TCP, UDP, UDP-Lite and DCCP, whose checksums cover addresses too; the identifier of ICMP
//! queries; nothing of other protocols, but the call ID of enhanced GRE (PPTP) in quotes. SCTP keeps its ports, as its checksum is a CRC over the whole packet.
//! Bytes that are too short for a header stay as they are; nothing here panics.

use wire::checksum::{self, Delta};
use wire::header::{Ports, Protocol};
use wire::{Family, Part, gre, icmpv4, icmpv6, ipv4, ipv6};

use super::Endpoint;
use crate::flow::Key;

/// New ends of a packet. An absent end stays unchanged.
///
/// An ICMP query has one identifier: of a request, that of the source is written, of a reply, that of the
/// destination, or that of the other end where it is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// New source.
    pub source: Option<Endpoint>,
    /// New destination.
    pub destination: Option<Endpoint>,
}

/// Both ends of an IPv4 packet as they shall be, whether they change or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndsV4 {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Ports; of ICMP, `sport` is a request's identifier and `dport` a reply's.
    pub ports: Ports,
}

/// Both ends of an IPv6 packet as they shall be, whether they change or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndsV6 {
    /// Source address.
    pub source: u128,
    /// Destination address.
    pub destination: u128,
    /// Ports; of ICMPv6, `sport` is a request's identifier and `dport` a reply's.
    pub ports: Ports,
}

/// Location and protocol of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Offset in bytes from the first of the IP header.
    pub offset: usize,
    /// Transport protocol, after all extension headers.
    pub protocol: u8,
    /// A later fragment has none, and only its addresses are rewritten.
    pub part: Part,
}

/// Outcome for the packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// The quoted packet was rewritten as far as it is there.
    Rewritten,
    /// The headers of the quoted packet cannot be read; neither it nor the error was changed.
    Unreadable,
}

/// Writes a translation into `packet`, which begins with the IP header and ends where that header says.
pub fn apply(packet: &mut [u8], transport: Transport, rewrite: &Rewrite) {
    rewrite_any(packet, transport, rewrite);
}

/// Writes both ends into an IPv4 packet: for most packets, some tens of instructions.
#[inline(always)]
pub fn apply_v4(packet: &mut [u8], transport: Transport, ends: &EndsV4) {
    if transport.offset == 20 && transport.part == Part::Whole {
        match Protocol(transport.protocol) {
            Protocol::TCP => {
                if let Some(headers) = packet.first_chunk_mut::<40>() {
                    return rewrite_headers(headers, ends, 36, checksum::adjust);
                }
            }
            Protocol::UDP => {
                if let Some(headers) = packet.first_chunk_mut::<28>() {
                    return rewrite_headers(headers, ends, 26, |old, changes| match old {
                        0 => 0,
                        _ => match checksum::adjust(old, changes) {
                            0 => 0xffff,
                            new => new,
                        },
                    });
                }
            }
            _ => {}
        }
    }
    rewrite_v4(packet, transport, ends);
}

/// The usual case: both headers lie whole and without options, and all changes are folded only once each.
#[inline(always)]
fn rewrite_headers<const N: usize>(
    headers: &mut [u8; N],
    ends: &EndsV4,
    checksum_at: usize,
    adjust: impl Fn(u16, u64) -> u16,
) {
    let ports = u32::from(ends.ports.sport) << 16 | u32::from(ends.ports.dport);
    let change = |old: u32, new: u32| u64::from(!old) + u64::from(new);
    let addresses = change(read32(headers, 12), ends.source) + change(read32(headers, 16), ends.destination);
    let all = addresses + change(read32(headers, 20), ports);
    let header = checksum::adjust(read16(headers, 10), addresses);
    let transport = adjust(read16(headers, checksum_at), all);
    headers[10..12].copy_from_slice(&header.to_be_bytes());
    write32(headers, 12, ends.source);
    write32(headers, 16, ends.destination);
    write32(headers, 20, ports);
    headers[checksum_at..checksum_at + 2].copy_from_slice(&transport.to_be_bytes());
}

/// Writes both ends into an IPv6 packet.
#[inline(always)]
pub fn apply_v6(packet: &mut [u8], transport: Transport, ends: &EndsV6) {
    rewrite_v6(packet, transport, ends);
}

/// Writes translations into an ICMP or ICMPv6 error: `outer` into its own addresses, `quoted` into the packet
/// that it quotes, given as that packet's own source and destination (RFC 5508, REQ-4 and 5). The quote may be
/// cut short anywhere behind its IP header; ports, an identifier or a checksum of which only a part is left
/// stay as they are.
pub fn apply_to_error(packet: &mut [u8], transport: Transport, outer: &Rewrite, quoted: &Rewrite) -> Quote {
    let Some(quote) = packet.get_mut(transport.offset..).and_then(|message| message.get_mut(8..)) else {
        return Quote::Unreadable;
    };
    let Some(of_quote) = transport_of(quote) else { return Quote::Unreadable };
    let inner = rewrite_any(quote, of_quote, quoted).and(rewrite_call_id(quote, of_quote, quoted));
    if let Some(checksum) = packet.get_mut(transport.offset + 2..).and_then(|rest| rest.first_chunk_mut()) {
        *checksum = inner.apply(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
    rewrite_any(packet, transport, outer);
    Quote::Rewritten
}

/// Gives a quoted packet of a PPTP call the call ID that is its destination's port, if its source's is [`Key::CALL`].
fn rewrite_call_id(quote: &mut [u8], transport: Transport, rewrite: &Rewrite) -> Delta {
    let is_call = transport.protocol == Protocol::GRE.0 && transport.part != Part::Later;
    let source = rewrite.source.filter(|source| is_call && source.port == Key::CALL);
    let (Some(_), Some(destination)) = (source, rewrite.destination) else { return Delta::NONE };
    let Some(packet) = quote.get_mut(transport.offset..) else { return Delta::NONE };
    let Some(old) = gre::call_id(packet) else { return Delta::NONE };
    gre::set_call_id(packet, destination.port);
    Delta::NONE.change16(old, destination.port)
}

/// Returns the transport header of a quoted packet; its payload may be missing, its IP header may not.
fn transport_of(quote: &[u8]) -> Option<Transport> {
    match quote.first()? >> 4 {
        4 => {
            let packet = ipv4::parse_prefix(quote).ok()?;
            let part = match packet.header.fragment() {
                None => Part::Whole,
                Some(fragment) if fragment.is_first() => Part::First,
                Some(_) => Part::Later,
            };
            let offset = packet.header.header_len();
            Some(Transport { offset, protocol: packet.header.protocol().0, part })
        }
        6 => {
            let packet = ipv6::parse_prefix(quote).ok()?;
            let part = match packet.extensions.fragment {
                Some(header) if !header.fragment.is_first() => Part::Later,
                Some(header) if header.fragment.more => Part::First,
                _ => Part::Whole,
            };
            Some(Transport { offset: packet.payload_at(), protocol: packet.protocol().0, part })
        }
        _ => None,
    }
}

/// Rewrites the ends that are given, and returns the change of the sum over all bytes.
fn rewrite_any(packet: &mut [u8], transport: Transport, rewrite: &Rewrite) -> Delta {
    let ports = ports_to_be(packet, transport, rewrite);
    let end_of =
        |end: &Option<Endpoint>, family| end.filter(|end| end.family == family).map(|end| end.address);
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let Some(header) = ipv4::Header::of(packet) else { return Delta::NONE };
            // IPv4 addresses lie in the low 32 bits.
            let source = end_of(&rewrite.source, Family::V4).map_or(header.src_bits(), |bits| bits as u32);
            let destination =
                end_of(&rewrite.destination, Family::V4).map_or(header.dst_bits(), |bits| bits as u32);
            rewrite_v4(packet, transport, &EndsV4 { source, destination, ports })
        }
        Some(6) => {
            let Some(header) = ipv6::Header::of(packet) else { return Delta::NONE };
            let source = end_of(&rewrite.source, Family::V6).unwrap_or(header.src().to_bits());
            let destination = end_of(&rewrite.destination, Family::V6).unwrap_or(header.dst().to_bits());
            rewrite_v6(packet, transport, &EndsV6 { source, destination, ports })
        }
        _ => Delta::NONE,
    }
}

/// Returns the ports that the packet shall have: those given, else its own.
fn ports_to_be(packet: &[u8], transport: Transport, rewrite: &Rewrite) -> Ports {
    let payload = packet.get(transport.offset..).unwrap_or(&[]);
    let (source, destination) = (rewrite.source.map(|end| end.port), rewrite.destination.map(|end| end.port));
    if matches!(Protocol(transport.protocol), Protocol::ICMP | Protocol::ICMPV6) {
        let own = icmpv4::Header::of(payload).map_or(0, icmpv4::Header::id);
        return Ports {
            sport: source.or(destination).unwrap_or(own),
            dport: destination.or(source).unwrap_or(own),
        };
    }
    let own = Ports::of(payload).unwrap_or_default();
    Ports { sport: source.unwrap_or(own.sport), dport: destination.unwrap_or(own.dport) }
}

#[inline(always)]
fn rewrite_v4(packet: &mut [u8], transport: Transport, ends: &EndsV4) -> Delta {
    let Some((head, payload)) = packet.split_at_mut_checked(transport.offset) else { return Delta::NONE };
    let Some(header) = head.first_chunk_mut::<20>() else { return Delta::NONE };
    let (source, destination) = (read32(header, 12), read32(header, 16));
    write32(header, 12, ends.source);
    write32(header, 16, ends.destination);
    let addresses = Delta::NONE.change32(source, ends.source).change32(destination, ends.destination);
    let of_header = adjust(header, 10, addresses, Delta::apply);
    let of_payload = rewrite_transport(payload, transport, ends.ports, addresses);
    addresses.and(of_header).and(of_payload)
}

#[inline(always)]
fn rewrite_v6(packet: &mut [u8], transport: Transport, ends: &EndsV6) -> Delta {
    let Some((head, payload)) = packet.split_at_mut_checked(transport.offset) else { return Delta::NONE };
    let Some(header) = head.first_chunk_mut::<40>() else { return Delta::NONE };
    let (source, destination) = (read128(header, 8), read128(header, 24));
    header[8..24].copy_from_slice(&ends.source.to_be_bytes());
    header[24..40].copy_from_slice(&ends.destination.to_be_bytes());
    let addresses = Delta::NONE.change128(source, ends.source).change128(destination, ends.destination);
    addresses.and(rewrite_transport(payload, transport, ends.ports, addresses))
}

/// Rewrites ports and checksum of a transport header, and returns the change of the sum over its bytes.
#[inline(always)]
fn rewrite_transport(payload: &mut [u8], transport: Transport, ports: Ports, addresses: Delta) -> Delta {
    if transport.part == Part::Later {
        return Delta::NONE;
    }
    match Protocol(transport.protocol) {
        Protocol::TCP => match payload.first_chunk_mut::<18>() {
            Some(header) => {
                let changed = rewrite_ports(header, ports);
                changed.and(adjust(header, 16, addresses.and(changed), Delta::apply))
            }
            None => rewrite_ports_alone(payload, ports),
        },
        Protocol::UDP | Protocol::UDPLITE => match payload.first_chunk_mut::<8>() {
            Some(header) => {
                let changed = rewrite_ports(header, ports);
                changed.and(adjust(header, 6, addresses.and(changed), Delta::apply_udp))
            }
            None => rewrite_ports_alone(payload, ports),
        },
        Protocol::DCCP => match payload.first_chunk_mut::<8>() {
            Some(header) => {
                let changed = rewrite_ports(header, ports);
                changed.and(adjust(header, 6, addresses.and(changed), Delta::apply))
            }
            None => rewrite_ports_alone(payload, ports),
        },
        Protocol::ICMP => {
            let class = payload.first().map(|kind| icmpv4::Type(*kind).class());
            rewrite_icmp(payload, class, ports, Delta::NONE)
        }
        Protocol::ICMPV6 => {
            let class = payload.first().map(|kind| icmpv6::Type(*kind).class());
            rewrite_icmp(payload, class, ports, addresses)
        }
        _ => Delta::NONE,
    }
}

fn rewrite_icmp(payload: &mut [u8], class: Option<icmpv4::Class>, ports: Ports, pseudo: Delta) -> Delta {
    let Some(header) = payload.first_chunk_mut::<8>() else { return Delta::NONE };
    let (old, checksum) = (read16(header, 4), read16(header, 2));
    let id = match class {
        Some(icmpv4::Class::Request) => ports.sport,
        Some(icmpv4::Class::Reply) => ports.dport,
        _ => old,
    };
    header[4..6].copy_from_slice(&id.to_be_bytes());
    let changed = Delta::NONE.change16(old, id);
    let all = changed.and(pseudo);
    if all == Delta::NONE {
        // The checksum stays as it is, too.
        return changed;
    }
    // Knows about messages that are all zeros, which only ICMP has.
    icmpv4::adjust_checksum(payload, all);
    let now = payload.first_chunk::<4>().map_or(checksum, |header| read16(header, 2));
    changed.change16(checksum, now)
}

#[inline(always)]
fn rewrite_ports<const N: usize>(header: &mut [u8; N], ports: Ports) -> Delta {
    let (old, new) = (read32(header, 0), u32::from(ports.sport) << 16 | u32::from(ports.dport));
    write32(header, 0, new);
    Delta::NONE.change32(old, new)
}

/// Rewrites the ports of a header that was cut before its checksum.
fn rewrite_ports_alone(payload: &mut [u8], ports: Ports) -> Delta {
    payload.first_chunk_mut::<4>().map_or(Delta::NONE, |header| rewrite_ports(header, ports))
}

/// Adjusts the checksum at `at`, and returns its change.
#[inline(always)]
fn adjust<const N: usize>(
    header: &mut [u8; N],
    at: usize,
    delta: Delta,
    apply: impl Fn(Delta, u16) -> u16,
) -> Delta {
    let old = read16(header, at);
    let new = apply(delta, old);
    header[at..at + 2].copy_from_slice(&new.to_be_bytes());
    Delta::NONE.change16(old, new)
}

#[inline(always)]
fn read16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn read32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn read128<const N: usize>(bytes: &[u8; N], at: usize) -> u128 {
    u128::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[inline(always)]
fn write32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
