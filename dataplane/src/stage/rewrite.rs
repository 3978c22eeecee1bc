//! `rewrite`: carries out on the bytes what was decided.
//!
//! Translates addresses and ports, lowers the time to live and the MSS, puts the next hop's link-layer header
//! in front. A packet to a neighbour whose address is not known becomes pending. Until
//! here the frame is as received, so that an error can quote the packet as its sender sent it. Checksums are updated
//! incrementally (RFC 1624).

use tally::{Branch, Offload, Op, Region, Tally};
use wire::header::{Ports, Protocol};
use wire::meta::Fields;
use wire::tcp::Flags;
use wire::{Family, Frame, Part, ipv4, ipv6, tcp};

use super::{About, Cx, Stage, Step, handshake, header, helper, link, nat64, option, route, underlay};
use crate::client;
use crate::flag;
use crate::flow::{FlowId, Key};
use crate::hop::{Hop, LINK_HOP, leaves, waits};
use crate::nat::Endpoint;
use crate::nat::rewrite::{self as nat, EndsV4, EndsV6, Transport};
use crate::tables::{Address, Interface, LOCAL, Tables};
use crate::tunnel;
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewrite;

impl Stage for Rewrite {
    const ABOUT: About = About {
        name: "rewrite",
        asks: "What becomes of its bytes?",
        reads: Fields::SEEN
            .and(Fields::RECEIVED)
            .and(Fields::HOP)
            .and(Fields::EGRESS)
            .and(Fields::FLOW)
            .and(Fields::CLASS)
            .and(Fields::COLOUR)
            .and(Fields::TUNNEL),
        writes: Fields::PACKET.and(Fields::HEADERS).and(Fields::FLAGS).and(Fields::HOP).and(Fields::PARTS),
    };

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        const UNTOUCHED: u16 = flag::TRANSLATED | flag::OWN | flag::TO_GROUP;
        let meta = &frame.meta;
        let is_plain = meta.flags & UNTOUCHED == 0
            && meta.tunnel & tunnel::OUT == 0
            && meta.tcp_flags & Flags::SYN.0 == 0;
        // A tally is told of each step by the general case.
        if is_plain && !cx.tally.is_kept() && forward_plain4(frame, cx) {
            return Step::Next;
        }
        general(frame, cx)
    }

    fn program(tables: &Tables) -> u32 {
        // This stage, translation and the MSS, 192. Of handshakes: numbers, windows and options, 60; the
        // acknowledgements to both sides, 60.
        192 + nat64::program(tables)
            + link::program(tables)
            + if tables.filter.has_syn_proxy { 120 } else { 0 }
            + helper::program(tables)
    }
}

/// The step in all cases.
#[inline(always)]
fn general<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    if !leaves(frame.meta.hop) {
        if waits(frame.meta.hop) {
            return wait(frame, cx);
        }
        if nat64::is_across(frame, cx) {
            return Step::Drop(Reason::Nat64Address);
        }
        return match translate_for_itself(frame, cx) {
            Ok(()) => Step::Deliver,
            Err(step) => step,
        };
    }
    if frame.meta.tunnel & tunnel::OUT != 0 {
        if let Err(step) = underlay::ready(frame.meta.egress, cx) {
            return step;
        }
    }
    if frame.meta.flags & flag::TRANSLATED != 0 {
        if nat64::is_across(frame, cx) {
            return nat64::leave(frame, cx);
        }
        if let Err(step) = translate(frame, cx) {
            return step;
        }
    }
    finish(frame, frame.meta.family, cx)
}

/// The rest of the step, after translation, for a packet that came as one of the IP version `came`.
#[inline(always)]
pub(super) fn finish<T: Tally>(frame: &mut Frame, came: Family, cx: &mut Cx<'_, T>) -> Step {
    let is_syn = frame.meta.tcp_flags & Flags::SYN.0 != 0;
    if is_syn && frame.meta.protocol == Protocol::TCP.0 && frame.meta.part != Part::Later {
        clamp(frame, came, cx);
    }
    cx.tally.begin_offload(Offload::Modify { bytes: 32 });
    // Nobody lowers that of what the gateway itself sends.
    let is_own = frame.meta.flags & flag::OWN != 0;
    let is_done = !is_own && forward_plain4(frame, cx);
    let is_lowered = !is_done && !is_own;
    if is_lowered && lower_ttl(frame) == Options::Some {
        record(frame, cx);
    }
    // Flags, family, 8; time to live with its checksum, 8; options, 1; the hop's place and bound, 4; its header's three words
    // beside the type, 5; lengths, of the frame, of the header and of the hop's, 7.
    cx.tally.instructions(33);
    cx.tally.execute(Op::Branch, 16);
    cx.tally.branch(Branch::Taken);
    cx.tally.read(Region::HopTable, frame.meta.hop as usize * 32, 32);
    cx.tally.write(Region::Frame, 0, 32);
    cx.tally.end_offload();
    if !is_done && !link::replace(frame, cx) {
        return Step::Drop(link::refusal(frame, cx));
    }
    if frame.meta.flags & flag::TO_GROUP != 0 {
        link::address_group(frame, cx);
    }
    Step::Next
}

/// Has a packet wait for its neighbour. A DHCP server's answer to a host that has no address yet does not: the host could not answer, and
/// the server has sent the frame to its link-layer address (RFC 2131, section 4.1), so it leaves as Linux made it.
#[cold]
#[inline(never)]
fn wait<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let meta = &frame.meta;
    let is_answer = meta.ingress == LOCAL
        && client::is_answer(Family::V4, meta.protocol, meta.sport, meta.dport)
        && meta.part == Part::Whole
        && meta.flags & flag::TRANSLATED == 0
        && meta.tunnel & tunnel::OUT == 0;
    // Not by a router, whose address can be asked for.
    if !is_answer || route::awaited(frame, cx).address != header::addresses(frame).1 {
        return Step::Hold(Reason::NeighbourWaits);
    }
    frame.meta.hop = LINK_HOP;
    Step::Deliver
}

/// [`translate`], of what is delivered.
#[inline(never)]
fn translate_for_itself<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    if frame.meta.flags & flag::TRANSLATED != 0 { translate(frame, cx) } else { Ok(()) }
}

/// Translates the packet as its flow says: it shall look like what the other direction's key answers.
///
/// # Errors
/// Step for a packet that a helper does not let pass.
#[inline(always)]
fn translate<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    // The flow's place and bound, 4; direction and keys, 8; where the transport is, 8; four words of the packet put
    // together, 4; three changes with their carries, 12; two checksums, 11 each; four words put back, 7.
    cx.tally.instructions(65);
    cx.tally.execute(Op::Branch, 14);
    if frame.meta.protocol == Protocol::ICMP.0 || frame.meta.protocol == Protocol::ICMPV6.0 {
        // The type says where the identifier stands, 10; its own checksum, 6.
        cx.tally.instructions(16);
        cx.tally.execute(Op::Branch, 4);
    }
    cx.tally.branch(Branch::Taken);
    cx.tally.branch(Branch::Always);
    cx.tally.read(Region::FlowTable, frame.meta.flow as usize * 128, 80);
    let Some(flow) = cx.shard.flows.flow(FlowId(frame.meta.flow)) else { return Ok(()) };
    let direction = flag::direction(frame.meta.flags);
    let (arrives, other) = (flow.key(direction), flow.key(direction.turned()));
    let transport = Transport {
        offset: usize::from(frame.meta.transport - frame.meta.network),
        protocol: frame.meta.protocol,
        part: frame.meta.part,
    };
    let is_related = frame.meta.flags & flag::RELATED != 0;
    let (is_proxied, is_helped) = (flow.is_proxied(), flow.is_helped());
    let range = usize::from(frame.meta.network)..usize::from(frame.meta.end);
    let Some(packet) = frame.bytes_mut().get_mut(range) else { return Ok(()) };
    let ports = Ports { sport: other.dport(), dport: other.sport() };
    if is_related {
        translate_error(packet, transport, arrives, other);
    } else if other.is_v4() {
        let ends = EndsV4 { source: other.destination_v4(), destination: other.source_v4(), ports };
        nat::apply_v4(packet, transport, &ends);
    } else {
        let ends = EndsV6 { source: other.destination_v6(), destination: other.source_v6(), ports };
        nat::apply_v6(packet, transport, &ends);
    }
    if is_proxied {
        handshake::splice(frame, direction, cx);
    }
    if is_helped { helper::apply(frame, direction, cx) } else { Ok(()) }
}

/// Translates an ICMP error and the packet that it quotes, which went the other way (RFC 5508, REQ-4 and 5).
/// The error may come from a router on the way: where its side is hidden, so is the router.
#[cold]
fn translate_error(packet: &mut [u8], transport: Transport, arrives: &Key, other: &Key) {
    let source = Endpoint::new(other.source(), other.sport(), other.protocol());
    let destination = Endpoint::new(other.destination(), other.dport(), other.protocol());
    let is_hidden = arrives.source() != other.destination();
    let outer = nat::Rewrite { source: is_hidden.then_some(destination), destination: Some(source) };
    let quoted = nat::Rewrite { source: Some(source), destination: Some(destination) };
    nat::apply_to_error(packet, transport, &outer, &quoted);
}

/// Makes the MSS that a SYN announces fit both links that it crosses.
fn clamp<T: Tally>(frame: &mut Frame, came: Family, cx: &mut Cx<'_, T>) {
    // Two interfaces by place and bound, 10; the lesser MSS, 3; where the options are, 4; the option, compared and written beside its
    // checksum, 7.
    cx.tally.instructions(24);
    cx.tally.execute(Op::Branch, 9);
    let of = |id, family| {
        cx.tables.interface(id).map_or(u16::MAX, |own| if family == Family::V4 { own.mss4 } else { own.mss6 })
    };
    let limit = of(frame.meta.ingress, came).min(of(frame.meta.egress, frame.meta.family));
    if limit == u16::MAX {
        return;
    }
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    if let Some(segment) = frame.bytes_mut().get_mut(range) {
        tcp::clamp_mss(segment, limit);
    }
}

/// The usual case, in fewer steps than [`lower_ttl`] and [`link::replace`], and to the same effect: IPv4 without options that leaves, from a
/// link without tags to another. `false`, and nothing done, if it is another.
#[inline(always)]
fn forward_plain4<T: Tally>(frame: &mut Frame, cx: &Cx<'_, T>) -> bool {
    let meta = &frame.meta;
    if meta.family != Family::V4 || meta.network != 14 || meta.transport != 34 {
        return false;
    }
    let end = usize::from(meta.end);
    let Some(link) = cx.shard.hops.get(meta.hop).and_then(Hop::plain_header) else { return false };
    let Some(headers) = frame.bytes_mut().first_chunk_mut::<34>() else { return false };
    headers[..12].copy_from_slice(link);
    if let Some(mut header) = ipv4::HeaderMut::of(&mut headers[14..]) {
        header.decrement_ttl();
    }
    // What the old link had padded.
    frame.truncate(end);
    true
}

/// Options of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Options {
    None,
    Some,
}

/// Takes one hop off the time to live or the hop limit.
#[inline(always)]
pub(super) fn lower_ttl(frame: &mut Frame) -> Options {
    let network = usize::from(frame.meta.network);
    let v4 = frame.meta.family == Family::V4;
    let Some(packet) = frame.bytes_mut().get_mut(network..) else { return Options::None };
    if v4 {
        if let Some(mut header) = ipv4::HeaderMut::of(packet) {
            header.decrement_ttl();
            if header.view().header_len() != ipv4::MIN_HEADER_LEN {
                return Options::Some;
            }
        }
    } else if let Some(mut header) = ipv6::HeaderMut::of(packet) {
        header.decrement_hop_limit();
    }
    Options::None
}

/// Writes into options what their sender asks routers for.
#[cold]
#[inline(never)]
fn record<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    // Two walks over forty bytes at most.
    cx.tally.instructions(80);
    let own = |of: &Interface| of.address4;
    let out = cx.tables.interface(frame.meta.egress).and_then(own);
    let Some(own) = out.or_else(|| cx.tables.interfaces.iter().find_map(own)) else { return };
    let (now, network) = (frame.meta.received, usize::from(frame.meta.network));
    let vrf = cx.tables.vrf_of(frame.meta.ingress);
    if let Some(packet) = frame.bytes_mut().get_mut(network..) {
        option::record(packet, own, now, |address| cx.tables.is_own(vrf, Address::v4(address)));
    }
}
