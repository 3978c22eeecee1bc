//! Stateful NAT64 (RFC 6146): decisions on a flow between an IPv6 and an IPv4 host, and translation of its packets, which is also that of a
//! CLAT (`clat.rs`).
//!
//! A packet to an IPv6 address with an IPv4 address in it (RFC 6052) opens a flow whose replies are IPv4: `dnat` takes the address out, and
//! `snat` chooses an IPv4 endpoint of a pool, as for every source translation. Such an endpoint is mapped for all peers (RFC 6146, section 3.5):
//! a packet to it opens a flow to the IPv6 host, if the rules let it. Rules see both ends as the IPv6 host does: IPv4 hosts
//! under the prefix. `rewrite` translates headers (RFC 7915) where the keys of a flow are of two IP versions; until then sizes are compared as
//! they will be.
//!
//! TCP, UDP and ICMP echo are translated, with the ICMP errors about them. SYN proxies leave such flows alone.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use tally::{Op, Region, Tally};
use wire::header::{Ports, Protocol};
use wire::siit::{self, Mtus, Prefix, Untranslatable};
use wire::{Family, Frame, Part, icmpv4, icmpv6, ipv4, ipv6};

use super::dnat::home_of;
use super::{Cx, Step, clat, header, rewrite};
use crate::flag;
use crate::flow::{Flow, FlowId, Key};
use crate::fragmentation::own::fragment_own;
use crate::fragmentation::{MOST_PARTS, fragment};
use crate::hop::{Hop, WAITING};
use crate::nat::rewrite::{self as ports, EndsV4, EndsV6, Rewrite, Transport};
use crate::nat::{Endpoint, MappingId};
use crate::opening::Opening;
use crate::tables::{Address, SourceAction, Tables, Translator, VrfId, Xlat};
use crate::verdict::Reason;

/// Bytes by which an IPv6 header is longer than an IPv4 header without options.
const LONGER: u16 = (ipv6::HEADER_LEN - ipv4::MIN_HEADER_LEN) as u16;

/// Size of the program that translates packets, where there are some.
pub(super) fn program(tables: &Tables) -> u32 {
    // Headers both ways, 150; ICMP messages and their quotes, 260; fragments, 70.
    if tables.nat.has_translator { 480 } else { 0 }
}

/// Decides on the destination of a first packet, which is under the prefix of a translation, counted from 1.
pub(super) fn open_to_v4<T: Tally>(
    frame: &mut Frame,
    place: u16,
    nat64: Translator,
    cx: &mut Cx<'_, T>,
) -> Step {
    // The address out of four words, 8; its kinds, 12; what it is of the gateway's, 24; the opening's update, 8.
    cx.tally.instructions(52);
    cx.tally.execute(Op::Branch, 14);
    let Some(opening) = cx.shard.openings.of_mut(&frame.meta) else { return Step::Next };
    let destination = Ipv6Addr::from_bits(opening.seen.destination);
    let Some(address) = nat64.prefix.extract(destination).filter(|to| may_be_reached(nat64.prefix, *to))
    else {
        return Step::Answer(Reason::Nat64Address);
    };
    if !is_translatable(frame) {
        return Step::Drop(Reason::Nat64Packet);
    }
    opening.dnat = place;
    let outside = Address::v4(address.to_bits());
    let is_query = frame.meta.flags & flag::QUERY != 0;
    if cx.tables.nat.is_outside(outside) && !is_query {
        let end = Endpoint::v4(address.to_bits(), opening.seen.dport, opening.seen.protocol);
        let mappings = &mut cx.shard.mappings;
        let found = mappings
            .inside_of(&end, cx.tally)
            .filter(|(mapping, inside)| inside.family == Family::V6 && !mappings.is_service(*mapping));
        if let Some((mapping, inside)) = found {
            // Hairpin (RFC 6146, section 3.8): from one IPv6 host to another, each by its IPv4 endpoint.
            opening.inward = mappings.retain(mapping, cx.tally).map(|mapped| mapped.id);
            opening.turned = home_of(cx.tables, outside);
            opening.seen.destination = inside.address;
            (opening.seen.dport, opening.dport) = (inside.port, inside.port);
            return Step::Next;
        }
    }
    if cx.tables.is_own(VrfId::DEFAULT, outside) || cx.tables.nat.is_outside(outside) {
        return Step::Answer(Reason::Nat64Address);
    }
    opening.across = Some(outside);
    Step::Next
}

/// Decides on the destination of a first packet that is for the outside endpoint of a host of the other IP version.
pub(super) fn open_inward<T: Tally>(
    frame: &mut Frame,
    mapping: MappingId,
    inside: Endpoint,
    cx: &mut Cx<'_, T>,
) -> Step {
    cx.tally.instructions(40);
    cx.tally.execute(Op::Branch, 10);
    let nat = &cx.tables.nat;
    let pool = cx.shard.mappings.pool_of(mapping);
    let source = pool.and_then(|pool| nat.owners.get(usize::from(pool.0))).map(|owner| owner.source);
    let action = source.and_then(|source| nat.sources.get(usize::from(source))).map(|rule| &rule.action);
    let (Some(source), Some(SourceAction::Across { xlat, prefix, .. })) = (source, action) else {
        return Step::Drop(Reason::Nat64Packet);
    };
    let is_translated = is_translatable(frame) && frame.meta.flags & flag::QUERY == 0;
    let Some(opening) = cx.shard.openings.of_mut(&frame.meta) else { return Step::Next };
    let outside = opening.destination();
    let peer = xlat.peer(*prefix, opening.source).filter(|_| is_translated);
    let Some(peer) = peer else {
        return match xlat {
            Xlat::Plat => Step::Drop(Reason::Nat64Packet),
            // An IPv6 host calls the gateway itself: no IPv4 host has its address.
            Xlat::Clat => Step::Next,
        };
    };
    opening.source = peer;
    opening.seen.family = peer.family();
    (opening.seen.source, opening.seen.destination) = (peer.bits, inside.address);
    (opening.seen.dport, opening.dport) = (inside.port, inside.port);
    opening.snat = source + 1;
    opening.inward = cx.shard.mappings.retain(mapping, cx.tally).map(|mapped| mapped.id);
    opening.turned = home_of(cx.tables, outside).filter(|home| *home != frame.meta.ingress);
    Step::Next
}

/// True if a packet leaves as one of the other IP version: by the decisions on the flow that it opens, or by its flow.
#[inline(always)]
pub(super) fn is_across<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
    cx.tables.nat.has_translator && is_of_flow_across(frame, cx)
}

#[inline(never)]
fn is_of_flow_across<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
    // The opening by its place, or the flow by place and bound, 6; two families, 4.
    cx.tally.instructions(10);
    cx.tally.execute(Op::Branch, 4);
    if let Some(opening) = cx.shard.openings.of(&frame.meta) {
        return opening.is_across();
    }
    if frame.meta.flags & flag::TRANSLATED == 0 {
        return false;
    }
    cx.tally.read(Region::FlowTable, frame.meta.flow as usize * 128, 80);
    cx.shard.flows.flow(FlowId(frame.meta.flow)).is_some_and(Flow::is_across)
}

/// The translation by which a first packet's destination was chosen, if it is one between IP versions.
pub(super) fn of_opening<T: Tally>(opening: &Opening, cx: &Cx<'_, T>) -> Option<Translator> {
    let place = usize::from(opening.dnat).checked_sub(1)?;
    cx.tables.nat.destinations.get(place)?.action.translator()
}

/// Addresses of IPv4 that a host may reach under a prefix: unicast addresses that are routed; under the well-known prefix public ones
/// only (RFC 6052, section 3.1).
pub(super) fn may_be_reached(prefix: Prefix, address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_routed = !matches!(first, 0 | 127 | 224..) && !address.is_link_local();
    // 100.64.0.0/10 is shared address space (RFC 6598), 198.18.0.0/15 is for benchmarks (RFC 2544).
    let is_shared = first == 100 && second & 0xc0 == 64 || first == 198 && second & 0xfe == 18;
    is_routed && (prefix != Prefix::WELL_KNOWN || !address.is_private() && !is_shared)
}

/// True if packets of this kind open flows between IP versions: TCP, UDP and ICMP echo requests.
pub(super) fn is_translatable(frame: &Frame) -> bool {
    let kind = (frame.meta.dport >> 8) as u8;
    match (frame.meta.family, Protocol(frame.meta.protocol)) {
        (_, Protocol::TCP | Protocol::UDP) => true,
        (Family::V6, Protocol::ICMPV6) => icmpv6::Type(kind) == icmpv6::Type::ECHO_REQUEST,
        (Family::V4, Protocol::ICMP) => icmpv4::Type(kind) == icmpv4::Type::ECHO_REQUEST,
        _ => false,
    }
}

/// Compares the length that a packet will have with the MTU of its hop.
#[inline(never)]
pub(super) fn fits<T: Tally>(frame: &mut Frame, cx: &Cx<'_, T>) -> Step {
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return Step::Drop(Reason::NeighbourUnknown) };
    if hop.is_closed() {
        return Step::Drop(Reason::PppNotOpen);
    }
    if hop.mtu == 0 {
        frame.meta.hop |= WAITING;
        return Step::Next;
    }
    let length = length(frame);
    let (mtu, may_be_cut) = match frame.meta.family {
        // Without knowledge of the path beyond, fragments have the least MTU of IPv6 (RFC 7915, section 4).
        Family::V4 if frame.meta.flags & flag::DONT_FRAGMENT == 0 => (hop.mtu.min(ipv6::LEAST_MTU), true),
        Family::V4 => (hop.told_mtu(Family::V6), false),
        // As short as this, and fragments, routers of IPv4 may fragment (RFC 7915, section 5.1).
        _ => (hop.mtu, frame.meta.part != Part::Whole || length <= ipv6::LEAST_MTU - LONGER),
    };
    if length <= mtu {
        return Step::Next;
    }
    if !may_be_cut {
        return Step::Answer(Reason::PacketTooBig);
    }
    frame.meta.flags |= flag::CUT;
    Step::Next
}

/// Bytes that the IP packet will have.
fn length(frame: &Frame) -> u16 {
    let meta = &frame.meta;
    let payload = meta.end.saturating_sub(meta.transport);
    match (meta.family, meta.part) {
        (Family::V4, Part::Whole) => payload.saturating_add(ipv6::HEADER_LEN as u16),
        (Family::V4, _) => payload.saturating_add((ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN) as u16),
        _ => payload.saturating_add(ipv4::MIN_HEADER_LEN as u16),
    }
}

/// MTU that the sender of a packet is told, which its packet of the other IP version was too long for.
pub(super) fn told_mtu(frame: &Frame, hop: &Hop) -> u16 {
    if frame.meta.family == Family::V4 {
        hop.told_mtu(Family::V6).saturating_sub(LONGER)
    } else {
        hop.told_mtu(Family::V4).saturating_add(LONGER).max(ipv6::LEAST_MTU)
    }
}

/// Translates a packet that leaves as one of the other IP version, and lets it leave; in fragments, if IPv6 is to carry it so.
#[inline(never)]
pub(super) fn leave<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    if frame.meta.family != Family::V4 || frame.meta.flags & flag::CUT == 0 {
        return leave_one(frame, cx);
    }
    frame.meta.flags &= !flag::CUT;
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return Step::Drop(Reason::NeighbourUnknown) };
    let mtu = hop.mtu.min(ipv6::LEAST_MTU);
    if cx.shard.parts.capacity() - cx.shard.parts.len() < MOST_PARTS {
        return Step::Drop(Reason::SlotTooSmall);
    }
    let mut parts: ArrayVec<Frame, MOST_PARTS> = ArrayVec::new();
    let step = if frame.meta.part == Part::Whole {
        leave_then_fragment(frame, mtu, &mut parts, cx)
    } else {
        fragment_then_leave(frame, mtu, &mut parts, cx)
    };
    if step != Step::Next {
        parts.into_iter().for_each(|part| cx.pool.put(part));
        return step;
    }
    frame.meta.parts = parts.len() as u8; // at most `MOST_PARTS`
    cx.shard.parts.extend(parts);
    Step::Next
}

/// Translates a whole packet, whose checksum may take all of it, and fragments what comes of it.
fn leave_then_fragment<T: Tally>(
    frame: &mut Frame,
    mtu: u16,
    parts: &mut ArrayVec<Frame, MOST_PARTS>,
    cx: &mut Cx<'_, T>,
) -> Step {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..);
    let id = packet.and_then(ipv4::Header::of).map_or(0, ipv4::Header::id);
    let step = leave_one(frame, cx);
    if step != Step::Next {
        return step;
    }
    fragment_own(frame, mtu, id.into(), cx.pool, parts, cx.tally).map_or_else(Step::Drop, |_| Step::Next)
}

/// Fragments a fragment as one of IPv4, and translates what comes of it.
fn fragment_then_leave<T: Tally>(
    frame: &mut Frame,
    mtu: u16,
    parts: &mut ArrayVec<Frame, MOST_PARTS>,
    cx: &mut Cx<'_, T>,
) -> Step {
    let network = usize::from(frame.meta.network);
    let header_len =
        frame.bytes().get(network..).and_then(ipv4::Header::of).map_or(0, ipv4::Header::header_len);
    // Each header is replaced by one with a fragment header.
    const REPLACED: u16 = (ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN) as u16;
    let mtu = mtu - REPLACED + header_len as u16; // at most 60
    let mut step = match fragment(frame, network, mtu, cx.pool, parts, cx.tally) {
        Ok(_) => leave_one(frame, cx),
        Err(reason) => Step::Drop(reason),
    };
    for part in parts {
        if step == Step::Next {
            step = leave_one(part, cx);
        }
    }
    step
}

fn leave_one<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let came = frame.meta.family;
    match translate(frame, cx) {
        Ok(()) => rewrite::finish(frame, came, cx),
        Err(reason) => Step::Drop(reason),
    }
}

/// Translates headers, then ports or identifier. No link-layer header stands before the packet then.
fn translate<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
    // The flow's place and bound, direction and keys, 12; where headers are, 16; fields of one header read, 16, and of the other written, 20;
    // sums over ten words of addresses with their carries, 60; headers of IPv4 have a sum, 24; checksum and ports, 50.
    cx.tally.instructions(198);
    cx.tally.execute(Op::Branch, 40);
    cx.tally.read(Region::FlowTable, frame.meta.flow as usize * 128, 80);
    cx.tally.write(Region::Frame, usize::from(frame.meta.network), 48);
    let Some(flow) = cx.shard.flows.flow(FlowId(frame.meta.flow)).copied() else {
        return Err(Reason::FlowNotOpen);
    };
    let direction = flag::direction(frame.meta.flags);
    let (arrives, other) = (flow.key(direction), flow.key(direction.turned()));
    let is_related = frame.meta.flags & flag::RELATED != 0;
    let mtus = mtus(frame, cx);
    let outcome = if other.is_v4() {
        let reached = Ipv4Addr::from_bits(other.destination_v4());
        let destination = Ipv4Addr::from_bits(other.source_v4());
        let source = if is_related { sender_v4(frame, &flow, arrives, reached, cx) } else { reached };
        let ends = siit::EndsV4 { source, destination };
        let quote = siit::EndsV4 { source: destination, destination: reached };
        let id = identification(frame);
        siit::to_v4(frame, &ends, is_related.then_some(&quote), id, mtus)
    } else {
        let reached = Ipv6Addr::from_bits(other.destination_v6());
        let destination = Ipv6Addr::from_bits(other.source_v6());
        let source = if is_related { sender_v6(frame, &flow, arrives, reached, cx) } else { reached };
        let ends = siit::EndsV6 { source, destination };
        let quote = siit::EndsV6 { source: destination, destination: reached };
        siit::to_v6(frame, &ends, is_related.then_some(&quote), mtus)
    };
    outcome.map_err(reason_of)?;
    let transport = Transport {
        offset: usize::from(frame.meta.transport - frame.meta.network),
        protocol: frame.meta.protocol,
        part: frame.meta.part,
    };
    let range = usize::from(frame.meta.network)..usize::from(frame.meta.end);
    let Some(packet) = frame.bytes_mut().get_mut(range) else { return Err(Reason::Nat64Packet) };
    if is_related {
        let end = |address, port| Some(Endpoint::new(address, port, other.protocol()));
        let quoted = Rewrite {
            source: end(other.source(), other.sport()),
            destination: end(other.destination(), other.dport()),
        };
        ports::apply_to_error(packet, transport, &Rewrite::default(), &quoted);
        return Ok(());
    }
    let ports = Ports { sport: other.dport(), dport: other.sport() };
    if other.is_v4() {
        let ends = EndsV4 { source: other.destination_v4(), destination: other.source_v4(), ports };
        ports::apply_v4(packet, transport, &ends);
    } else {
        let ends = EndsV6 { source: other.destination_v6(), destination: other.source_v6(), ports };
        ports::apply_v6(packet, transport, &ends);
    }
    Ok(())
}

/// Source that an error of IPv6 has in IPv4. Routers outside a CLAT are shown: by the IPv4 address in theirs, else by the one that stands for
/// routers of IPv6 alone. Routers behind a NAT64 hide behind its endpoint.
fn sender_v4<T: Tally>(
    frame: &Frame,
    flow: &Flow,
    arrives: &Key,
    reached: Ipv4Addr,
    cx: &Cx<'_, T>,
) -> Ipv4Addr {
    let (from, _) = header::addresses(frame);
    let is_peer = !arrives.is_v4() && from.bits == arrives.source_v6();
    match translator_of(flow, cx) {
        Some((Xlat::Clat, prefix)) if !is_peer => {
            prefix.extract(Ipv6Addr::from_bits(from.bits)).unwrap_or(clat::ROUTER_OF_V6)
        }
        _ => reached,
    }
}

/// Source that an error of IPv4 has in IPv6: behind a NAT64 its sender's address under the prefix, so that `traceroute` shows routers (RFC 6146,
/// section 3.6.1). Routers of a CLAT's hosts hide behind its endpoint.
fn sender_v6<T: Tally>(
    frame: &Frame,
    flow: &Flow,
    arrives: &Key,
    reached: Ipv6Addr,
    cx: &Cx<'_, T>,
) -> Ipv6Addr {
    let (from, _) = header::addresses(frame);
    if arrives.is_v4() && from.bits == u128::from(arrives.source_v4()) {
        return reached;
    }
    match translator_of(flow, cx) {
        Some((Xlat::Plat, prefix)) => prefix.embed(Ipv4Addr::from_bits(from.bits as u32)),
        _ => reached,
    }
}

/// Side and prefix of the translation of a flow between IP versions.
fn translator_of<T: Tally>(flow: &Flow, cx: &Cx<'_, T>) -> Option<(Xlat, Prefix)> {
    let nat = &cx.tables.nat;
    let (_, source) = nat.places(flow.nat);
    match &nat.sources.get(source?)?.action {
        SourceAction::Across { xlat, prefix, .. } => Some((*xlat, *prefix)),
        _ => None,
    }
}

/// MTUs of the links that a packet comes and goes by.
fn mtus<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Mtus {
    let came = cx.tables.interface(frame.meta.ingress).map_or(u16::MAX, |interface| interface.mtu);
    let goes = cx.shard.hops.get(frame.meta.hop).map_or(u16::MAX, |hop| hop.mtu);
    if frame.meta.family == Family::V4 { Mtus { v4: came, v6: goes } } else { Mtus { v4: goes, v6: came } }
}

/// Identification of an IPv4 packet that routers may fragment: its transport checksum, which is unlike that of other packets between the same ends,
/// and the same for whoever translates the packet.
fn identification(frame: &Frame) -> u16 {
    let at = match Protocol(frame.meta.protocol) {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        _ => 2,
    };
    let field =
        frame.bytes().get(usize::from(frame.meta.transport) + at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u16::from_be_bytes(*field))
}

fn reason_of(untranslatable: Untranslatable) -> Reason {
    match untranslatable {
        Untranslatable::Checksum => Reason::TransportChecksum,
        Untranslatable::TooLong => Reason::SlotTooSmall,
        _ => Reason::Nat64Packet,
    }
}
