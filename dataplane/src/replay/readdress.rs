//! Answers in a capture that was taken inside, addressed as the far end would have addressed them.

use tally::NoTally;
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::{Family, Part, icmpv4, icmpv6, ipv4, ipv6};

use crate::flow::{Direction, Ends, Flow, FlowTable, Key};
use crate::nat::Endpoint;
use crate::nat::rewrite::{self, Rewrite, Transport};
use crate::stage::track::ends;
use crate::tables::Tables;

/// Outcome of readdressing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readdressed {
    /// Addressed anew: the frame answers a translated flow.
    Yes,
    /// Left as it was.
    No,
}

/// Flow key and transport header found in a packet.
struct Seen {
    /// Key of the packets that this packet answers.
    answers: Key,
    transport: Transport,
    is_error: bool,
}

/// Returns the ends of the packets that a frame answers; of an ICMP error, of the packet that it quotes. `None` for a
/// frame without an IP packet, or without the ends: a later fragment, an error that quotes too little.
pub fn answered_ends(frame: &[u8]) -> Option<Ends> {
    let layer = ethernet::parse(frame).ok()?;
    let (seen, _) = match layer.ethertype {
        EtherType::IPV4 => seen4(layer.payload)?,
        EtherType::IPV6 => seen6(layer.payload)?,
        _ => return None,
    };
    Some(Ends::of(&seen.answers))
}

/// Finds the translated flow that a frame answers, and addresses the frame to its outside end.
pub(super) fn readdress(tables: &Tables, flows: &FlowTable, bytes: &mut [u8]) -> Readdressed {
    let Ok(layer) = ethernet::parse(bytes) else { return Readdressed::No };
    let (network, ethertype) = (layer.payload_at, layer.ethertype);
    let Some((seen, len)) = (match ethertype {
        EtherType::IPV4 => seen4(layer.payload),
        EtherType::IPV6 => seen6(layer.payload),
        _ => None,
    }) else {
        return Readdressed::No;
    };
    let Some(flow) = answered(tables, flows, &seen.answers) else { return Readdressed::No };
    let (inside, outside) = (flow.original(), flow.reply());
    if inside.source() == outside.destination() && inside.sport() == outside.dport() {
        return Readdressed::No;
    }
    let outside = Endpoint::new(outside.destination(), outside.dport(), outside.protocol());
    let Some(packet) = bytes.get_mut(network..network + len) else { return Readdressed::No };
    let outer = Rewrite { source: None, destination: Some(outside) };
    if seen.is_error {
        let quoted = Rewrite { source: Some(outside), destination: None };
        rewrite::apply_to_error(packet, seen.transport, &outer, &quoted);
    } else {
        rewrite::apply(packet, seen.transport, &outer);
    }
    Readdressed::Yes
}

/// Returns the flow whose first packets have this key, whichever interface they came in by.
fn answered<'a>(tables: &Tables, flows: &'a FlowTable, key: &Key) -> Option<&'a Flow> {
    tables.interfaces.iter().find_map(|interface| {
        let key = key.in_ct_zone(interface.ct_zone);
        let hash = flows.hash(&key, &mut NoTally);
        let hit = flows.find(&key, hash, &mut NoTally)?;
        if hit.direction == Direction::Original { flows.flow(hit.id) } else { None }
    })
}

fn seen4(bytes: &[u8]) -> Option<(Seen, usize)> {
    let packet = ipv4::parse(bytes).ok()?;
    let header = packet.header;
    if header.fragment().is_some_and(|fragment| !fragment.is_first()) {
        return None;
    }
    let protocol = header.protocol();
    let transport = Transport {
        offset: header.header_len(),
        protocol: protocol.0,
        part: if header.is_fragment() { Part::First } else { Part::Whole },
    };
    let is_error = protocol == Protocol::ICMP
        && icmpv4::Header::of(packet.payload)?.kind().class() == icmpv4::Class::Error;
    let answers = if is_error {
        let quote = ipv4::parse_prefix(packet.payload.get(8..)?).ok()?;
        let (sport, dport) = ends(quote.header.protocol(), quote.payload, Family::V4)?;
        let of = quote.header;
        Key::v4(of.src_bits(), of.dst_bits(), sport, dport, of.protocol().0)
    } else {
        let (sport, dport) = ends(protocol, packet.payload, Family::V4)?;
        Key::v4(header.dst_bits(), header.src_bits(), dport, sport, protocol.0)
    };
    Some((Seen { answers, transport, is_error }, usize::from(header.total_len())))
}

fn seen6(bytes: &[u8]) -> Option<(Seen, usize)> {
    let packet = ipv6::parse(bytes).ok()?;
    let header = packet.header;
    let fragment = packet.extensions.fragment.map(|found| found.fragment);
    if fragment.is_some_and(|fragment| !fragment.is_first()) {
        return None;
    }
    let protocol = packet.protocol();
    let whole = fragment.is_none_or(|fragment| fragment.is_atomic());
    let transport = Transport {
        offset: packet.payload_at(),
        protocol: protocol.0,
        part: if whole { Part::Whole } else { Part::First },
    };
    let is_error = protocol == Protocol::ICMPV6
        && icmpv6::Header::of(packet.payload)?.kind().class() == icmpv6::Class::Error;
    let answers = if is_error {
        let quote = ipv6::parse_prefix(packet.payload.get(8..)?).ok()?;
        let (sport, dport) = ends(quote.protocol(), quote.payload, Family::V6)?;
        Key::v6(quote.header.src_bits(), quote.header.dst_bits(), sport, dport, quote.protocol().0)
    } else {
        let (sport, dport) = ends(protocol, packet.payload, Family::V6)?;
        Key::v6(header.dst_bits(), header.src_bits(), dport, sport, protocol.0)
    };
    Some((Seen { answers, transport, is_error }, ipv6::HEADER_LEN + usize::from(header.payload_len())))
}
