//! The pair of addresses that a frame is assigned by.
//!
//! Addresses alone, in no order: both directions of a flow and all fragments of a datagram have the same. An ICMP error has those of the
//! packet that it quotes, as it belongs to that packet's flow.

use std::net::IpAddr;

use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::{ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// Ground on which a frame is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No IP packet.
    None,
    /// Hash of the pair of addresses.
    Hash(u64),
    /// Fragment of an ICMP error, with the quote.
    Unknown,
}

/// Addresses, in no order.
type Pair = [IpAddr; 2];

/// Returns the ground on which an Ethernet frame is assigned.
pub(super) fn place(frame: &[u8]) -> Place {
    let Ok(layer) = ethernet::parse(frame) else { return Place::None };
    let found = match layer.ethertype {
        EtherType::IPV4 => v4(layer.payload),
        EtherType::IPV6 => v6(layer.payload),
        _ => None,
    };
    match found {
        None => Place::None,
        Some(Found::Pair(pair)) => Place::Hash(hash(pair)),
        Some(Found::Unknown) => Place::Unknown,
    }
}

enum Found {
    Pair(Pair),
    Unknown,
}

/// Also of packets that are malformed: they are dropped by any part.
fn v4(bytes: &[u8]) -> Option<Found> {
    let header = ipv4::Header::of(bytes).filter(|header| header.version() == 4)?;
    let own = Found::Pair([header.src().into(), header.dst().into()]);
    if header.protocol() != Protocol::ICMP || header.fragment().is_some_and(|fragment| fragment.offset > 0) {
        return Some(own);
    }
    let message = bytes.get(header.header_len()..).unwrap_or_default();
    let is_error =
        icmpv4::Header::of(message).is_some_and(|icmp| icmp.kind().class() == icmpv4::Class::Error);
    if !is_error {
        return Some(own);
    }
    if header.is_fragment() {
        return Some(Found::Unknown);
    }
    let quoted = message.get(8..).and_then(|quoted| ipv4::parse_prefix(quoted).ok());
    Some(quoted.map_or(own, |quoted| Found::Pair([quoted.header.src().into(), quoted.header.dst().into()])))
}

fn v6(bytes: &[u8]) -> Option<Found> {
    let header = ipv6::Header::of(bytes).filter(|header| header.version() == 6)?;
    let own = Found::Pair([header.src().into(), header.dst().into()]);
    let Ok(packet) = ipv6::parse_prefix(bytes) else { return Some(own) };
    // An atomic fragment is a whole packet (RFC 6946).
    let fragment = packet.extensions.fragment.filter(|found| !found.fragment.is_atomic());
    if packet.protocol() != Protocol::ICMPV6 || fragment.is_some_and(|found| found.fragment.offset > 0) {
        return Some(own);
    }
    let is_error = icmpv4::Header::of(packet.payload)
        .is_some_and(|icmp| icmpv6::Type(icmp.kind().0).class() == icmpv4::Class::Error);
    if !is_error {
        return Some(own);
    }
    if fragment.is_some() {
        return Some(Found::Unknown);
    }
    let quoted = packet.payload.get(8..).and_then(|quoted| ipv6::parse_prefix(quoted).ok());
    Some(quoted.map_or(own, |quoted| Found::Pair([quoted.header.src().into(), quoted.header.dst().into()])))
}

/// The same on all machines and in all builds: tasks on different ones divide alike.
fn hash(pair: Pair) -> u64 {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let [a, b] = pair.map(bits);
    let fold = |bits: u128| mix(bits as u64 ^ mix((bits >> 64) as u64));
    mix(fold(a.min(b)) ^ fold(a.max(b)).rotate_left(1))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
const fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
