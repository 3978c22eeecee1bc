//! `track`: which flow does it belong to?
//!
//! A packet of a flow that has been decided carries the decision on: hop, rule, translations, class; the
//! stages in between let it pass. A first packet opens a flow, about which `dnat` to `snat` decide
//! ([`Opening`]) and which `snat` creates. ICMP errors belong to the flow they quote, fragments to the flow of their first.
//! Changes no byte.
//!
//! For a batch, `Lookups::prepare` asks for the memory of all its flows before the first is looked at.

use policy::model::{Checksum, Mode, Pickup};
use tally::{Branch, Op, Region, Tally};
use wire::checksum::Sum;
use wire::header::Protocol;
use wire::meta::Fields;
use wire::tcp::Flags;
use wire::{Family, Frame, Part, icmpv4, ipv4, ipv6, tcp, udp};

use super::peer::{self, Effect};
use super::route::{back, is_link_local};
use super::vrf::{self, ct_zone};
use super::{
    About, Cx, Packets, Stage, Step, handoff, handshake, header, helper, protect, replicate, revalidate, wan,
};
use crate::client;
use crate::flag;
use crate::flow::tcp::{Fault, Midstream, Segment, Settings};
use crate::flow::{Direction, Flow, FlowId, Hit, Key, State, Tick};
use crate::fragment::{DatagramKey, Kept, Later, Release, Span};
use crate::hop::{ASKED_HOP, LINK_HOP, LOCAL_HOP, NO_HOP};
use crate::opening::Opening;
use crate::shard::Shard;
use crate::tables::{Address, LOCAL, Tables};
use crate::verdict::Reason;

mod lookups;
mod related;

pub(crate) use lookups::Lookups;
use lookups::search;
pub(crate) use related::ends;
pub(super) use related::quoted_key;
use related::relate;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Track;

impl Stage for Track {
    const ABOUT: About = About {
        name: "track",
        asks: "Which flow does it belong to?",
        reads: Fields::SEEN.and(Fields::RECEIVED).and(Fields::NUMBER).and(Fields::EGRESS).and(Fields::HOP),
        writes: Fields::FLOW
            .and(Fields::RULE)
            .and(Fields::NAT)
            .and(Fields::HOP)
            .and(Fields::EGRESS)
            .and(Fields::FLAGS)
            .and(Fields::HEADERS)
            .and(Fields::PACKET)
            .and(Fields::OPENING),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.mode == Mode::Stateful { Packets::Every } else { Packets::None }
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // When a flow is due, of two words, 5; the oldest datagram in fragments by place and bound, and those given up, 5; whether there are
        // tunnels, 2; part, error, 4.
        cx.tally.instructions(16);
        cx.tally.execute(Op::Branch, 8);
        pass_time(frame.meta.received, cx);
        if frame.meta.part != Part::Whole && frame.meta.flags & flag::RESUMED == 0 {
            if let Err(step) = follow_first(frame, cx) {
                return step;
            }
        }
        if frame.meta.flags & flag::TO_GROUP != 0 && replicate::is_replicated(frame, cx) {
            return Step::Next;
        }
        if frame.meta.flags & flag::ERROR != 0 {
            return relate(frame, cx);
        }
        // The key is made of fields that a unit for searches has from the header.
        cx.tally.begin_offload(search(frame.meta.family));
        let key = key_of(frame, cx);
        let (hash, found) = find(&key, cx);
        cx.tally.end_offload();
        match live(found, &key, hash, frame, cx) {
            Ok(Some(hit)) if frame.meta.flags & flag::WAITED != 0 => go_on(frame, hit, hash, cx),
            Ok(Some(hit)) if is_another(frame, hit, cx) => {
                cx.shard.end_flow(hit.id, cx.tally);
                open(frame, key, hash, cx)
            }
            Ok(Some(hit)) => follow(frame, hit, hash, cx),
            Ok(None) => open(frame, key, hash, cx),
            Err(step) => step,
        }
    }

    fn program(tables: &Tables) -> u32 {
        // This stage, the index, the flow table and fragments, 541; quotes and kinds of ICMP, 60; the way
        // back, 40. Of handshakes: the cookie, whose rounds are a loop, 60; the SYN that comes of it, 60; its numbers, 30.
        // Of helpers: the key and the expectation, 90; the acknowledgement, 20.
        641 + if tables.filter.has_syn_proxy { 150 } else { 0 }
            + if tables.filter.has_helpers { 110 } else { 0 }
            // Of calls: GRE without one, 20; the quote of one, 60.
            + if tables.filter.has_calls { 80 } else { 0 }
    }
}

/// The key of a packet as it arrives.
#[inline(always)]
fn key_of<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Key {
    let meta = &frame.meta;
    // What stands for ports, 8; where the header is, with its bounds, 8; two addresses across three words, 6, of IPv6 eight across nine,
    // 12; ports, protocol, family, in ten words that are compared, 16; the conntrack zone by a table, 8.
    cx.tally.instructions(if meta.family == Family::V4 { 46 } else { 52 });
    cx.tally.execute(Op::Branch, 12);
    let (sport, dport) = if meta.flags & flag::QUERY != 0 {
        Key::query_ports(meta.family, (meta.dport >> 8) as u8, meta.sport)
    } else if is_icmp(frame) {
        (0, 0)
    } else {
        (meta.sport, meta.dport)
    };
    let packet = frame.bytes().get(usize::from(meta.network)..);
    let key = if meta.family == Family::V4 {
        packet
            .and_then(ipv4::Header::of)
            .map(|ip| Key::v4(ip.src_bits(), ip.dst_bits(), sport, dport, meta.protocol))
    } else {
        packet
            .and_then(ipv6::Header::of)
            .map(|ip| Key::v6(ip.src_bits(), ip.dst_bits(), sport, dport, meta.protocol))
    };
    key.unwrap_or_default().in_ct_zone(ct_zone(frame, cx))
}

pub(super) fn is_icmp(frame: &Frame) -> bool {
    match frame.meta.family {
        Family::V4 => frame.meta.protocol == Protocol::ICMP.0,
        _ => frame.meta.protocol == Protocol::ICMPV6.0,
    }
}

/// Finds the flow with this key; returns the key's hash, too.
#[inline(always)]
fn find<T: Tally>(key: &Key, cx: &mut Cx<'_, T>) -> (u64, Option<Hit>) {
    let hash = cx.shard.flows.hash(key, cx.tally);
    (hash, cx.shard.flows.find(key, hash, cx.tally))
}

/// The flow that has been found for this key, unless it has expired: then it has ended. One that earlier tables have decided is
/// revalidated first.
///
/// # Errors
/// The flow is not to go on, or there is no way for it, and the packet opens none.
#[inline(always)]
fn live<T: Tally>(
    found: Option<Hit>,
    key: &Key,
    hash: u64,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Hit>, Step> {
    match found {
        Some(hit) if current(hit, frame, cx).is_some() => Ok(found),
        None if !cx.shard.flows.may_be_stale() => Ok(None),
        _ => renew(found, key, hash, frame, cx),
    }
}

/// The flow that has been found, if it has not expired and these tables have decided it.
#[inline(always)]
fn current<'a, T: Tally>(hit: Hit, frame: &Frame, cx: &'a mut Cx<'_, T>) -> Option<&'a Flow> {
    if cx.shard.flows.flow(hit.id)?.progress.is_published() {
        cx.shard.bring_up_to_date(hit.id);
    }
    let flow = cx.shard.flows.flow(hit.id)?;
    let tick = cx.shard.flows.tick(frame.meta.received);
    is_current(hit.id, flow, tick, cx.shard, cx.tables, cx.tally).then_some(flow)
}

/// True if a flow, which is up to date, has not expired and these tables have decided it, with the sets as they are.
#[inline(always)]
fn is_current<T: Tally>(
    id: FlowId,
    flow: &Flow,
    tick: Tick,
    shard: &Shard,
    tables: &Tables,
    tally: &mut T,
) -> bool {
    // Time in the present tick, of two words, 6; since when the flow was seen, 2; its timeout by its state, 6; epoch, 2; place and bound, 3.
    tally.instructions(19);
    tally.execute(Op::Branch, 7);
    if tables.set_questions.are_watched() {
        // The record beside the flow, two stamps and that of all, by place and bound, 20; each of two words compared, 12.
        tally.instructions(32);
        tally.execute(Op::Branch, 6);
        tally.read(Region::Timer, id.0 as usize * 16, 16);
        tally.read(Region::SetTable, 0, 8);
        tally.read(Region::SetTable, 0, 8);
        if shard.sets_have_changed(id) {
            return false;
        }
    }
    !shard.flows.is_expired(flow, tick) && flow.epoch == tables.epoch
}

/// [`live`], of a flow that is not current.
#[inline(never)]
fn renew<T: Tally>(
    found: Option<Hit>,
    key: &Key,
    hash: u64,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Hit>, Step> {
    if let Some(hit) = found {
        let tick = cx.shard.flows.tick(frame.meta.received);
        let Some(flow) = cx.shard.flows.flow(hit.id) else { return Ok(None) };
        if cx.shard.flows.is_expired(flow, tick) {
            cx.shard.end_flow(hit.id, cx.tally);
            return Ok(None);
        }
        if !cx.shard.flows.is_stale(flow) {
            return revalidate::by_sets(hit, frame, cx);
        }
    }
    revalidate::find(key, hash, frame, cx)
}

/// The flow of a packet as it arrives, if it has not expired and these tables have decided it.
pub(crate) fn decided<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Option<Hit> {
    let key = key_of(frame, cx);
    let (_, found) = find(&key, cx);
    found.filter(|hit| current(*hit, frame, cx).is_some())
}

/// True if a packet opens a new connection in place of the flow that it matches: the rules decide anew.
#[inline(always)]
fn is_another<T: Tally>(frame: &Frame, hit: Hit, cx: &mut Cx<'_, T>) -> bool {
    let flags = Flags(frame.meta.tcp_flags);
    let is_syn = flags.contains(Flags::SYN) && frame.meta.protocol == Protocol::TCP.0;
    is_syn
        && frame.meta.part != Part::Later
        && cx.shard.flows.flow(hit.id).is_some_and(|flow| crate::flow::tcp::reopens(flow.state(), flags))
        && checksum_is_right(frame, cx)
}

/// Goes on with a flow that has been decided.
#[inline(always)]
fn follow<T: Tally>(frame: &mut Frame, hit: Hit, hash: u64, cx: &mut Cx<'_, T>) -> Step {
    let Hit { id, direction } = hit;
    let tick = cx.shard.flows.tick(frame.meta.received);
    let is_tcp = frame.meta.protocol == Protocol::TCP.0 && frame.meta.part != Part::Later;
    const CHANGES: u8 = Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0;
    if is_tcp && frame.meta.tcp_flags & CHANGES != 0 && !checksum_is_right(frame, cx) {
        return Step::Drop(Reason::TransportChecksum);
    }
    let settings = settings(cx);
    let Some(mut flow) = cx.shard.flows.flow_mut(id) else { return Step::Drop(Reason::FlowNotOpen) };
    let before = flow.state();
    let is_published = flow.progress.is_published();
    let sides_before = if is_published { flow.tcp_sides() } else { None };
    let mut renewed = true;
    let state = if is_tcp {
        let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
        let Ok(segment) = tcp::parse(frame.bytes().get(range).unwrap_or(&[])) else {
            return Step::Drop(Reason::TransportLength);
        };
        // The header across words, with its length, 26; flags and state, 14; four bounds, the widest of which depends on
        // both sides, 28; whether it is closed, 4; what it allows, with scales, 18, and four updates, 22; the next
        // state, 8. Taken: past a FIN, a connection that was picked up, a side not heard yet.
        cx.tally.instructions(120);
        cx.tally.execute(Op::Branch, 36);
        cx.tally.branch(Branch::Taken);
        cx.tally.branch(Branch::Taken);
        cx.tally.branch(Branch::Taken);
        if direction == Direction::Original {
            // That of the other direction's key has them.
            cx.tally.read(Region::FlowTable, id.0 as usize * 128 + 104, 24);
        }
        cx.tally.write(Region::FlowTable, id.0 as usize * 128 + 104, 24);
        let mut segment = Segment::of(&segment);
        let is_proxied = flow.is_proxied();
        if is_proxied {
            segment = match handshake::join(frame, hit, segment, cx) {
                Ok(segment) => segment,
                Err(step) => return step,
            };
            match cx.shard.flows.flow_mut(id) {
                Some(same) => flow = same,
                None => return Step::Drop(Reason::FlowNotOpen),
            }
        } else if flow.is_helped() {
            let known = *flow;
            if let Some(step) = peer::hand_over_helped(frame, &known, cx) {
                return step;
            }
            segment.ack = helper::acknowledged(hit, segment.ack, cx);
            match cx.shard.flows.flow_mut(id) {
                Some(same) => flow = same,
                None => return Step::Drop(Reason::FlowNotOpen),
            }
        }
        match crate::flow::tcp::track(flow, direction, &segment, settings) {
            // The gateway acknowledges it for the client.
            Ok(State::SynReceived) if is_proxied => State::Established,
            Ok(state) => {
                renewed = crate::flow::tcp::renews(before, state, segment.flags);
                state
            }
            Err(fault) => return Step::Drop(reason_of(fault)),
        }
    } else {
        match (before, direction) {
            (State::Udp, Direction::Reply) => State::UdpAnswered,
            (State::UdpAnswered, Direction::Original) => State::UdpConfirmed,
            (State::Other, Direction::Reply) => State::OtherAnswered,
            (state, _) => state,
        }
    };
    if renewed {
        flow.seen = tick.0;
    }
    if state == before && matches!(state, State::Established | State::UdpConfirmed) {
        cx.shard.fast_path.note(id, direction, &mut flow.progress, frame.meta.ingress);
    }
    carry(frame, id, direction, flow);
    cx.shard.accounting.count(id, direction, frame);
    // What is asked of SYNs, 8; protocol and its change of state, 10; the flow's place and bound, twice, 8; six fields taken out of their
    // words and put into the frame's, 18; flags, 8; hop and when it was seen, 5; settings, 5.
    cx.tally.instructions(62);
    cx.tally.execute(Op::Branch, 16);
    cx.tally.branch(Branch::Taken);
    if direction == Direction::Reply {
        cx.tally.read(Region::FlowTable, id.0 as usize * 128 + 40, 24);
    }
    cx.tally.write(Region::FlowTable, id.0 as usize * 128 + 32, 32);
    if state != before {
        cx.shard.flows.set_state(id, state, tick, cx.tally);
        cx.shard.changes.note(id);
    }
    if is_published {
        cx.shard.follow_published(id, direction, sides_before);
    }
    if frame.meta.hop == NO_HOP { come_back(frame, hit, hash, cx) } else { Step::Next }
}

/// Goes on with a packet that its flow has seen before, when it had to wait for a neighbour.
#[cold]
fn go_on<T: Tally>(frame: &mut Frame, hit: Hit, hash: u64, cx: &mut Cx<'_, T>) -> Step {
    let tick = cx.shard.flows.tick(frame.meta.received);
    let Some(flow) = cx.shard.flows.flow_mut(hit.id) else { return Step::Drop(Reason::FlowNotOpen) };
    flow.seen = tick.0;
    carry(frame, hit.id, hit.direction, flow);
    if frame.meta.hop == NO_HOP { come_back(frame, hit, hash, cx) } else { Step::Next }
}

/// Lets the frame carry what its flow remembers.
#[inline(always)]
pub(crate) fn carry(frame: &mut Frame, id: FlowId, direction: Direction, flow: &Flow) {
    let meta = &mut frame.meta;
    meta.flow = id.0;
    meta.rule = flow.rule;
    meta.nat = flow.nat;
    meta.flags |= flag::HIT | if flow.is_translated() { flag::TRANSLATED } else { 0 };
    if direction == Direction::Reply {
        meta.flags |= flag::REPLY;
    }
    meta.hop = flow.hops[direction as usize];
    if meta.hop == LOCAL_HOP {
        meta.egress = LOCAL;
    }
}

/// The first packet that comes back, or one whose way was not known yet: where those of the other direction came from,
/// there it goes.
fn come_back<T: Tally>(frame: &mut Frame, hit: Hit, hash: u64, cx: &mut Cx<'_, T>) -> Step {
    let Some(flow) = cx.shard.flows.flow(hit.id) else { return Step::Drop(Reason::FlowNotOpen) };
    let destination: Address = flow.key(hit.direction.turned()).source().into();
    if frame.meta.flags & flag::OWN != 0 && is_link_local(destination) {
        frame.meta.hop = LINK_HOP;
        return Step::Next;
    }
    let (flow, direction) = (*flow, hit.direction);
    let protected = |routed, cx: &mut Cx<'_, T>| protect::of_flow(&flow, direction, routed, cx);
    let wan = wan::of_flow(hit.id, direction, destination.family(), cx);
    let hop = match back(frame, vrf::towards(hit.id, direction, destination, cx), hash, wan, protected, cx) {
        Ok(hop) => hop,
        Err(Reason::RouteMissing) => return Step::Answer(Reason::RouteMissing),
        Err(reason) => return Step::Drop(reason),
    };
    frame.meta.hop = hop;
    if hop == ASKED_HOP {
        return Step::Next;
    }
    if let Some(flow) = cx.shard.flows.flow_mut(hit.id) {
        flow.hops[hit.direction as usize] = hop;
    }
    Step::Next
}

/// Lets the packet open a flow, if it may.
fn open<T: Tally>(frame: &mut Frame, key: Key, hash: u64, cx: &mut Cx<'_, T>) -> Step {
    // Protocol, flags and kinds of ICMP, 20; addresses, 6; workers, and a client's side of a handshake, 14.
    cx.tally.instructions(40);
    cx.tally.execute(Op::Branch, 14);
    let whole = frame.meta.part != Part::Later;
    // One question where there is one worker.
    let is_shared = cx.shard.flows.member().is_some();
    if let Some(step) = if is_shared { handoff::to_flow(frame, hash, cx) } else { None } {
        return step;
    }
    let expected = match if cx.tables.filter.has_helpers { helper::find(frame, &key, cx) } else { Ok(None) } {
        Ok(expected) => expected,
        Err(step) => return step,
    };
    if let Some(step) = with_client(frame, cx) {
        return step;
    }
    if expected.is_none() && frame.meta.protocol == Protocol::GRE.0 && frame.meta.sport == Key::CALL {
        // The second gateway may have the call's control connection.
        if let Some(step) = peer::hand_over(frame, Effect::Nothing, cx) {
            return step;
        }
        return by_addresses(frame, cx);
    }
    let shown = if cx.tables.filter.has_syn_proxy { handshake::shown(frame, &key, cx) } else { None };
    let refused = if shown.is_none() { may_open(frame, cx.tables).err() } else { None };
    let effect = if refused.is_some() { Effect::Nothing } else { Effect::Opens };
    let is_unclaimed = expected.is_none() && shown.is_none();
    if let Some(step) = if is_unclaimed { peer::hand_over(frame, effect, cx) } else { None } {
        return step;
    }
    if let Some(reason) = refused {
        return Step::Drop(reason);
    }
    let may_move = is_shared && expected.is_none();
    if let Some(step) = if may_move { handoff::to_home(frame, cx) } else { None } {
        return step;
    }
    if whole && !checksum_is_right(frame, cx) {
        return Step::Drop(Reason::TransportChecksum);
    }
    if let Some(shown) = shown {
        if handshake::begin(frame, &shown).is_none() {
            return Step::Drop(Reason::SlotTooSmall);
        }
    }
    // The header's fourteen fields in two families, with the zone by place and bound, 50; a place for the opening, 8; its 53 words, of which
    // half are nothing yet, and so are written as such, 110.
    cx.tally.instructions(168);
    cx.tally.execute(Op::Branch, 32);
    let mut seen = header::on_arrival(frame, cx);
    if frame.meta.flags & flag::QUERY == 0 {
        seen.dport = key.dport();
    }
    let Ok(opening) = cx.shard.openings.give(&mut frame.meta) else {
        // There are as many as frames under way.
        return Step::Drop(Reason::FlowTableFull);
    };
    *opening = Opening {
        cookie: shown.map(|shown| shown.cookie),
        expected,
        key,
        hash,
        source: Address { bits: seen.source, v6: seen.family == Family::V6 },
        sport: key.sport(),
        dport: key.dport(),
        seen,
        ..Opening::default()
    };
    frame.meta.flags |= flag::OPENS;
    Step::Next
}

/// Goes on with a GRE packet whose call ID nobody has announced: its flow is that of its addresses, as that of any other GRE.
#[cold]
fn by_addresses<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    (frame.meta.sport, frame.meta.dport) = (0, 0);
    let key = key_of(frame, cx);
    let (hash, found) = find(&key, cx);
    match live(found, &key, hash, frame, cx) {
        Ok(Some(hit)) => follow(frame, hit, hash, cx),
        Ok(None) => open(frame, key, hash, cx),
        Err(step) => step,
    }
}

/// Serves DHCP clients on the gateway itself: records a request to one server, and accepts an answer from any address and to any
/// address if there was a request by its interface. Neither opens a flow.
#[inline(always)]
fn with_client<T: Tally>(frame: &mut Frame, cx: &Cx<'_, T>) -> Option<Step> {
    let meta = &frame.meta;
    let (family, protocol, is_own) = (meta.family, meta.protocol, meta.flags & flag::OWN != 0);
    if is_own && client::is_request(family, protocol, meta.sport, meta.dport) {
        cx.shard.clients.ask(family, meta.number, meta.received);
    } else if !is_own && client::is_answer(family, protocol, meta.sport, meta.dport) {
        let interface = cx.tables.interface(meta.ingress)?.number;
        if cx.shard.clients.have_asked(family, interface, meta.received) {
            frame.meta.hop = LOCAL_HOP;
            frame.meta.egress = LOCAL;
            return Some(Step::Deliver);
        }
    }
    None
}

/// Checks that a packet of its kind may open a flow.
///
/// # Errors
/// Reason for dropping the packet.
#[inline(always)]
pub(super) fn may_open(frame: &Frame, tables: &Tables) -> Result<(), Reason> {
    let whole = frame.meta.part != Part::Later;
    match Protocol(frame.meta.protocol) {
        Protocol::TCP if whole => {
            let flags = Flags(frame.meta.tcp_flags);
            if !crate::flow::tcp::are_possible(flags) {
                return Err(Reason::TcpFlags);
            }
            let is_syn = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
            // A connection of the gateway itself that began unseen its own TCP vouches for.
            let is_own = frame.meta.flags & flag::OWN != 0;
            let picked_up = (is_own || tables.limits.pickup == Pickup::Accept) && !flags.contains(Flags::RST);
            if !is_syn && !picked_up {
                return Err(Reason::FlowNotOpen);
            }
        }
        Protocol::TCP => return Err(Reason::FlowNotOpen),
        Protocol::ICMP | Protocol::ICMPV6 if whole && frame.meta.flags & flag::QUERY != 0 => {
            let kind = (frame.meta.dport >> 8) as u8;
            let class = if frame.meta.family == Family::V4 {
                icmpv4::Type(kind).class()
            } else {
                wire::icmpv6::Type(kind).class()
            };
            if class == icmpv4::Class::Reply {
                return Err(Reason::IcmpUnrelated);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Gives a fragment the ports of its datagram's first fragment, or makes the fragment pending for the first.
fn follow_first<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let now = frame.meta.received;
    let (key, span) = datagram(frame, cx).ok_or(Step::Drop(Reason::FragmentTiny))?;
    if let Some(step) = handoff::to_datagram(frame, &key, cx) {
        return Err(step);
    }
    if frame.meta.part == Part::First {
        let kept = Kept {
            sport: frame.meta.sport,
            dport: frame.meta.dport,
            protocol: frame.meta.protocol,
            tcp_flags: frame.meta.tcp_flags,
            own: frame.meta.flags & (flag::QUERY | flag::ERROR),
        };
        cx.shard.fragments.first(&key, span, kept, now, cx.tally).map_err(Step::Drop)?;
        while let Some(mut waited) = cx.shard.fragments.release(&key, cx.tally) {
            waited.meta.fate = 0;
            waited.meta.flags |= flag::RESUMED;
            adopt(&mut waited, kept);
            let (number, first) = (waited.meta.number, frame.meta.number);
            cx.shard.releases.note(Release { number, first });
            cx.shard.released.push_back(waited);
        }
        return Ok(());
    }
    match cx.shard.fragments.later(&key, span, now, cx.tally) {
        Later::Kept(kept) => {
            adopt(frame, kept);
            Ok(())
        }
        Later::Wait => Err(Step::Hold(Reason::FragmentWaits)),
        Later::Refuse(reason) => Err(Step::Drop(reason)),
    }
}

/// Gives a later fragment what its first one has said.
fn adopt(frame: &mut Frame, kept: Kept) {
    frame.meta.sport = kept.sport;
    frame.meta.dport = kept.dport;
    frame.meta.protocol = kept.protocol;
    frame.meta.tcp_flags = kept.tcp_flags;
    frame.meta.flags |= kept.own;
}

/// Returns the key of the datagram that a fragment belongs to, and the fragment's span of bytes.
pub(crate) fn datagram<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Option<(DatagramKey, Span)> {
    let meta = &frame.meta;
    let packet = frame.bytes().get(usize::from(meta.network)..usize::from(meta.end))?;
    let (source, destination) = header::addresses(frame);
    let (fragment, protocol, begins) = if meta.family == Family::V4 {
        let header = ipv4::Header::of(packet)?;
        (header.fragment()?, meta.protocol, header.header_len())
    } else {
        let found = ipv6::parse(packet).ok()?.extensions.fragment?;
        let begins = ipv6::HEADER_LEN + usize::from(found.at) + ipv6::FRAGMENT_HEADER_LEN;
        // RFC 8200, section 4.5: addresses and identification alone tell datagrams apart.
        (found.fragment, 0, begins)
    };
    let key = DatagramKey {
        source: source.bits,
        destination: destination.bits,
        id: fragment.id,
        protocol,
        family: meta.family,
        ct_zone: ct_zone(frame, cx),
    };
    let span = Span {
        offset: u32::from(fragment.offset),
        len: packet.len().saturating_sub(begins) as u32,
        more: fragment.more,
    };
    Some((key, span))
}

/// Advances the time to `now`: expires idle flows and pending fragments, and puts news of tunnels in force.
#[inline(always)]
pub(crate) fn pass_time<T: Tally>(now: wire::Nanos, cx: &mut Cx<'_, T>) {
    if cx.shard.is_due(now) {
        do_what_is_due(now, cx);
    }
}

#[inline(never)]
fn do_what_is_due<T: Tally>(now: wire::Nanos, cx: &mut Cx<'_, T>) {
    if cx.shard.flows.is_due(now) {
        cx.shard.expire(now, cx.tally);
    }
    if cx.shard.sets.is_due(now) {
        cx.shard.sets.sweep(now);
    }
    if cx.shard.expectations.is_due(now) {
        cx.shard.expire_expectations(now);
    }
    cx.shard.expire_port_mappings(now);
    while cx.shard.fragments.is_due(now) {
        expire_fragments(cx, now);
    }
    if cx.shard.sas.is_due(now) {
        let Shard { sas, hops, .. } = &mut *cx.shard;
        sas.pass_time(now, hops, cx.tables);
    }
}

/// Drops fragments for which the first fragment of their datagram did not come in time.
fn expire_fragments<T: Tally>(cx: &mut Cx<'_, T>, now: wire::Nanos) {
    let Shard { fragments, released, .. } = &mut *cx.shard;
    fragments.expire(now, cx.tally, |mut frame, reason| {
        Step::Drop(reason).settle(&mut frame);
        released.push_back(frame);
    });
}

/// Returns the strictness of TCP tracking: window check and midstream pickup.
#[inline(always)]
pub(crate) fn settings<T: Tally>(cx: &Cx<'_, T>) -> Settings {
    Settings {
        window: cx.tables.window,
        midstream: match cx.tables.limits.pickup {
            Pickup::Refuse => Midstream::Refuse,
            Pickup::Accept => Midstream::Learn,
        },
    }
}

/// The reason of a fault.
pub(super) fn reason_of(fault: Fault) -> Reason {
    match fault {
        Fault::Flags => Reason::TcpFlags,
        Fault::NotOpen => Reason::FlowNotOpen,
        Fault::Window => Reason::TcpWindow,
        Fault::State => Reason::TcpState,
    }
}

/// True if the transport checksum is right, where it can be known and is wanted. Fragments' is unknown.
pub(super) fn checksum_is_right<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
    let meta = &frame.meta;
    if cx.tables.limits.checksum == Checksum::Ignore || meta.part != Part::Whole {
        return true;
    }
    let range = usize::from(meta.transport)..usize::from(meta.end);
    let payload = frame.bytes().get(range).unwrap_or(&[]);
    // Bounds, lengths, and which checksum it is, 44; the pseudo-header, with its carries, 44, of IPv6 74; a fold and what it is compared
    // with, 14. For each four bytes a sum with its carry, the next place, and whether it is the last, 5.
    let pseudo = if meta.family == Family::V6 { 74 } else { 44 };
    cx.tally.instructions(58 + pseudo + payload.len() as u32 / 4 * 5);
    cx.tally.execute(Op::Branch, 18);
    cx.tally.read(Region::Frame, usize::from(meta.transport), payload.len() as u32);
    let packet = frame.bytes().get(usize::from(meta.network)..).unwrap_or(&[]);
    let protocol = Protocol(meta.protocol);
    // A UDP datagram may end before its packet does (RFC 768; RFC 9868 has options there): what is behind it is not covered.
    let covered = match udp::Header::of(payload) {
        Some(header) if protocol == Protocol::UDP => header.length(),
        _ => payload.len() as u16,
    };
    let pseudo = if meta.family == Family::V4 {
        let Some(ip) = ipv4::Header::of(packet) else { return false };
        Sum::pseudo_v4(ip.src(), ip.dst(), protocol, covered)
    } else {
        let Some(ip) = ipv6::Header::of(packet) else { return false };
        Sum::pseudo_v6(ip.src(), ip.dst(), protocol, covered.into())
    };
    match protocol {
        Protocol::TCP => pseudo.and(payload).verifies(),
        Protocol::UDP => udp::parse(payload).is_ok_and(|datagram| match datagram.check(pseudo) {
            // RFC 8200, section 8.1: over IPv6 there must be one.
            udp::Check::None => meta.family == Family::V4,
            udp::Check::Right => true,
            udp::Check::Wrong => false,
        }),
        Protocol::ICMP if meta.family == Family::V4 => wire::checksum::verifies(payload),
        Protocol::ICMPV6 if meta.family == Family::V6 => pseudo.and(payload).verifies(),
        _ => true,
    }
}
