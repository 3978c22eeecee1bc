//! `snat`: under which address does it go out? Then the flow is written down.
//!
//! Chooses the source translation of a flow's first packet, which all stages before have let pass, and enters
//! the flow with all that was decided. If the table is full, or no port is free, the packet is dropped and
//! nothing remains of it; no other flow is touched. Changes no byte: `rewrite` carries it out.

use arrayvec::ArrayVec;
use policy::model::WhenFull;
use tally::{Op, Region, Tally};
use wire::header::Protocol;
use wire::{Frame, Part, PortId, tcp};

use super::log::note_opened;
use super::parse::flag;
use super::route::realm;
use super::track::{is_icmp, reason_of, settings};
use super::{Cx, Stage, Step, filter, header};
use crate::flow::tcp::{Midstream, Segment};
use crate::flow::{Direction, FlowId, Handshake, Key, Refusal, Translated};
use crate::hop::{LOCAL_HOP, NO_HOP, waits};
use crate::log::Cause;
use crate::nat::{self, Endpoint};
use crate::shard::{NOTHING, Pending};
use crate::tables::{Address, NO_NUMBER, SELF, SourceAction, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snat;

/// How many of the flows that are idle longest are compared to find one that makes room.
const CANDIDATES: u32 = 64;

impl<T: Tally> Stage<T> for Snat {
    #[inline(always)]
    fn takes(&self, frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::OPENS != 0
    }

    fn step(&mut self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Groups do not answer from their own address: there is no flow to remember.
        if frame.meta.flags & flag::TO_GROUP != 0 {
            frame.meta.flags &= !flag::OPENS;
            cx.shard.abandon();
            return Step::Next;
        }
        let opened =
            filter::count_source(frame, cx).and_then(|()| choose(frame, cx)).and_then(|()| enter(frame, cx));
        match opened {
            Ok(()) => {
                // What it holds is the flow's now.
                cx.shard.pending = Pending::default();
                Step::Next
            }
            Err(step) => {
                cx.shard.abandon();
                step
            }
        }
    }

    fn program(&self, tables: &Tables) -> u32 {
        // What is told, of this stage, mappings, hosts and ports, and taking the flow in, 438; blocks and quotas, 60; and
        // the search.
        498 + tables.nat.source_search.program()
    }
}

/// Chooses the source translation.
fn choose<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let tables = cx.tables;
    let is_own = frame.meta.flags & flag::OWN != 0;
    if frame.meta.hop == LOCAL_HOP || is_own {
        return Ok(());
    }
    if tables.nat.sources.is_empty() {
        return turn_back(frame, cx);
    }
    let mut seen = header::of(frame, cx);
    let turned = cx.shard.pending.turned;
    let out = turned.unwrap_or(frame.meta.egress);
    if let Some(interface) = tables.interface(out) {
        seen.to = interface.zone;
        seen.egress = out.0;
    }
    // The header's fourteen fields, 20; zones, pool and endpoint, 20.
    cx.tally.instructions(40);
    cx.tally.execute(Op::Branch, 10);
    let Some((place, rule)) = tables.nat.source(&seen, cx.tally) else { return turn_back(frame, cx) };
    cx.tally.read(Region::RuleTable, usize::from(place) * 32, 32);
    let source = cx.shard.pending.source;
    let pool = match &rule.action {
        SourceAction::Exempt => return turn_back(frame, cx),
        SourceAction::OneToOne { inside, outside, .. } => {
            let offset = source.bits.wrapping_sub(*inside);
            cx.shard.pending.source = Address { bits: outside.bits.wrapping_add(offset), v6: outside.v6 };
            cx.shard.pending.snat = place;
            return Ok(());
        }
        action => {
            let (next, destination) = towards(frame, cx);
            let Some(pool) = action.pool(out, next, destination) else {
                count_refused(place, cx);
                return Err(Step::Drop(Reason::NatNoAddress));
            };
            if come_from_forward(frame, &rule.action, out, cx) {
                cx.shard.pending.snat = place;
                return Ok(());
            }
            pool
        }
    };
    map(frame, pool, place, cx)?;
    cx.shard.pending.snat = place;
    Ok(())
}

/// Where a packet goes next on its way out, and where in the end; of one that is turned back, the outside address that it was
/// sent to.
fn towards<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> (Address, Address) {
    let pending = &cx.shard.pending;
    if pending.turned.is_some() {
        let outside = pending.key.destination().into();
        return (outside, outside);
    }
    let next = cx.shard.hops.owner(frame.meta.hop).map(|owner| owner.address);
    (next.unwrap_or(pending.destination), pending.destination)
}

/// Lets what the target of a port forward sends from there have the outside port as its source, where one of that address
/// would be chosen; says whether it does. The port is set aside for the forward, so that no mapping has it.
fn come_from_forward<T: Tally>(
    frame: &Frame,
    action: &SourceAction,
    out: PortId,
    cx: &mut Cx<'_, T>,
) -> bool {
    let (tables, pending) = (cx.tables, &cx.shard.pending);
    if tables.nat.returning.is_empty() || frame.meta.flags & flag::QUERY != 0 {
        return false;
    }
    let (source, sport) = (pending.source, pending.sport);
    let zone = tables.interface(out).map_or(SELF, |interface| interface.zone);
    let (next, destination) = towards(frame, cx);
    let shown = action.pool(out, next, destination);
    // That which would be chosen anyway before others.
    let rank = |address: Address| {
        let ip = address.to_ip();
        let has = |pool: u16| tables.nat.pools.get(usize::from(pool)).is_some_and(|pool| pool.has(ip));
        if shown.is_some_and(has) {
            return Some(0);
        }
        action.own(out, source.v6).iter().any(|own| own.net.addr() == ip).then_some(1)
    };
    let mut best: Option<(u8, Address, u16)> = None;
    for forward in tables.nat.returning(source, sport, frame.meta.protocol) {
        let port = forward.outside_port.wrapping_add(sport - forward.ports.first);
        for home in forward.homes.iter().filter(|home| home.zones & (1 << zone) != 0) {
            let address = Address { bits: home.addresses.first, v6: home.addresses.v6 };
            if let Some(rank) = rank(address).filter(|rank| best.is_none_or(|(known, ..)| *rank < known)) {
                best = Some((rank, address, port));
            }
        }
    }
    let Some((_, address, port)) = best else { return false };
    cx.shard.pending.pool = shown.map(|pool| (nat::PoolId(pool), sport));
    (cx.shard.pending.source, cx.shard.pending.sport) = (address, port);
    true
}

/// Translates, of the gateway's own accord, the source of what is turned back to the link that it came from: a server would
/// answer its neighbour directly, past the gateway, from an address that the client does not know (RFC 4787, REQ-9).
fn turn_back<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let (tables, pending) = (cx.tables, &cx.shard.pending);
    if pending.dnat == 0 && pending.inward.is_none() || frame.meta.ingress != frame.meta.egress {
        return Ok(());
    }
    let ends = [pending.source.to_ip(), pending.destination.to_ip()];
    let link = tables.interface(frame.meta.egress);
    let are_neighbours = link
        .is_some_and(|link| link.networks.iter().any(|network| ends.iter().all(|end| network.contains(end))));
    if !are_neighbours {
        return Ok(());
    }
    // As who the client has called, else as the gateway is known where that is.
    let (nat, outside) = (&tables.nat, pending.key.destination().into());
    let home = pending.turned.or_else(|| super::dnat::home_of(tables, outside));
    let pool = nat
        .accord_of(outside)
        .or_else(|| nat.accord_on(home?, outside))
        .or_else(|| nat.accord_on(frame.meta.egress, pending.destination));
    pool.map_or(Ok(()), |pool| map(frame, pool, 0, cx))
}

/// Translates the source by a pool; `place` is that of the source translation, counted from 1.
fn map<T: Tally>(frame: &Frame, pool: u16, place: u16, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let inside = inside(frame, cx.shard.pending.sport, cx);
    let source = cx.shard.pending.source;
    let has_port = super::dnat::has_port(frame);
    if has_port {
        let mut mapped = cx.shard.mappings.map(nat::PoolId(pool), inside, cx.tally);
        if matches!(mapped, Err(nat::Refusal::TableFull)) {
            // Mappings are as many as flows: where each flow has its own, this table is full first.
            if make_room(cx) {
                mapped = cx.shard.mappings.map(nat::PoolId(pool), inside, cx.tally);
            } else if cx.shard.flows.len() >= cx.shard.flows.capacity() {
                return Err(Step::Drop(Reason::FlowTableFull));
            }
        }
        match mapped {
            Ok(mapped) => {
                cx.shard.pending.pool = Some((nat::PoolId(pool), inside.port));
                take(mapped, cx);
            }
            Err(refusal) => return Err(refused(place, refusal, cx)),
        }
    } else {
        match cx.shard.mappings.map_address(nat::PoolId(pool), inside, cx.tally) {
            Ok(outside) => cx.shard.pending.source = Address { bits: outside.address, v6: source.v6 },
            Err(refusal) => return Err(refused(place, refusal, cx)),
        }
    }
    Ok(())
}

/// The inside endpoint of the flow that is opened.
fn inside<T: Tally>(frame: &Frame, port: u16, cx: &Cx<'_, T>) -> Endpoint {
    let source = Address::from(cx.shard.pending.key.source());
    Endpoint { address: source.bits, port, protocol: frame.meta.protocol, family: source.family() }
}

/// The flow shows this mapping's outside end.
fn take<T: Tally>(mapped: nat::Mapped, cx: &mut Cx<'_, T>) {
    cx.shard.log.note_mapped(&cx.shard.mappings, mapped.id);
    let pending = &mut cx.shard.pending;
    pending.mapping = Some(mapped.id);
    pending.source = Address { bits: mapped.outside.address, v6: pending.source.v6 };
    pending.sport = mapped.outside.port;
}

fn count_refused<T: Tally>(place: u16, cx: &mut Cx<'_, T>) {
    if let Some(count) = cx.shard.counters.nat_refused.get_mut(usize::from(place).wrapping_sub(1)) {
        *count += 1;
    }
}

fn refused<T: Tally>(place: u16, refusal: nat::Refusal, cx: &mut Cx<'_, T>) -> Step {
    count_refused(place, cx);
    Step::Drop(match refusal {
        nat::Refusal::PortsExhausted => Reason::NatPorts,
        nat::Refusal::QuotaReached => Reason::NatQuota,
        nat::Refusal::TableFull => Reason::NatTableFull,
        // Pools are asked only for the families and hosts that they are for; all the same:
        nat::Refusal::NoAddress | nat::Refusal::NoPorts | nat::Refusal::NoPool => Reason::NatPorts,
    })
}

/// How many other mappings are tried where another flow has the same ends outside.
const MOST_TRIES: usize = 8;

/// Enters the key of a reply with another outside port, because another flow has the same ends outside: of a pool, a further
/// mapping's; what the gateway itself sends, which is not translated otherwise, is so then, as in netfilter. `None` where there
/// is no such port.
#[cold]
fn settle_otherwise<T: Tally>(id: FlowId, frame: &Frame, cx: &mut Cx<'_, T>) -> Option<Key> {
    if !super::dnat::has_port(frame) {
        return None;
    }
    let is_own = frame.meta.flags & flag::OWN != 0;
    let own = cx.tables.nat.accord_of(cx.shard.pending.source).filter(|_| is_own);
    let own = own.map(|pool| (nat::PoolId(pool), cx.shard.pending.sport));
    let (pool, port) = cx.shard.pending.pool.or(own)?;
    let inside = inside(frame, port, cx);
    // What has been tried is held meanwhile, or it would be chosen again.
    let mut tried: ArrayVec<nat::MappingId, { MOST_TRIES + 1 }> = ArrayVec::new();
    let mut settled = None;
    while settled.is_none() && !tried.is_full() {
        tried.extend(cx.shard.pending.mapping.take());
        let Ok(mapped) = cx.shard.mappings.map_another(pool, inside, cx.tally) else { break };
        take(mapped, cx);
        let reply = reply_key(frame, cx);
        let hash = cx.shard.flows.hash(&reply, cx.tally);
        settled = set_reply(id, &reply, hash, frame, cx).is_ok().then_some(reply);
    }
    for mapping in tried {
        cx.shard.mappings.release(mapping, cx.tally);
    }
    settled
}

/// Writes the flow down.
fn enter<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    // The reply's key from six fields, the entry's twelve.
    cx.tally.instructions(40);
    let pending = cx.shard.pending;
    // The gateway has answered for a server that it is itself by now.
    if pending.cookie.is_some() && frame.meta.hop == LOCAL_HOP {
        return Err(Step::Drop(Reason::FlowNotOpen));
    }
    let tick = cx.shard.flows.tick(frame.meta.received);
    let reply = reply_key(frame, cx);
    let reply_hash = cx.shard.flows.hash(&reply, cx.tally);
    // Its bucket comes while the flow is written.
    cx.shard.flows.prefetch_bucket(reply_hash);
    let id = insert(&pending.key, pending.hash, frame, cx)?;
    let settled = match set_reply(id, &reply, reply_hash, frame, cx) {
        Ok(()) => Ok(reply),
        Err(step) => settle_otherwise(id, frame, cx).ok_or(step),
    };
    let reply = match settled {
        Ok(reply) => reply,
        Err(step) => {
            cx.shard.flows.remove(id, cx.tally);
            return Err(step);
        }
    };
    // Another port may have been chosen.
    let pending = cx.shard.pending;
    if frame.meta.protocol == Protocol::TCP.0 && frame.meta.part != Part::Later {
        let mut settings = settings(cx);
        if frame.meta.flags & flag::OWN != 0 {
            settings.midstream = Midstream::Learn;
        }
        let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
        let segment = tcp::parse(frame.bytes().get(range).unwrap_or(&[]));
        let (Ok(segment), Some(flow)) = (segment, cx.shard.flows.flow_mut(id)) else {
            cx.shard.flows.remove(id, cx.tally);
            return Err(Step::Drop(Reason::TransportLength));
        };
        // The header, 20, its options, 12; flags and state, 8; the side's numbers and scale, 14.
        cx.tally.instructions(54);
        cx.tally.execute(Op::Branch, 16);
        match crate::flow::tcp::track(flow, Direction::Original, &Segment::of(&segment), settings) {
            Ok(state) => cx.shard.flows.set_state(id, state, tick, cx.tally),
            Err(fault) => {
                cx.shard.flows.remove(id, cx.tally);
                return Err(Step::Drop(reason_of(fault)));
            }
        }
    }
    let pair = cx.tables.nat.pair(pending.dnat, pending.snat);
    let translated = reply != pending.key.reversed().in_realm(realm(frame.meta.egress, cx));
    if let Some(flow) = cx.shard.flows.flow_mut(id) {
        let is_own = frame.meta.flags & flag::OWN != 0;
        // A neighbour that is asked for is looked up again when it is known.
        let onward = if waits(frame.meta.hop) { NO_HOP } else { frame.meta.hop };
        flow.hops = [onward, if is_own { LOCAL_HOP } else { NO_HOP }];
        flow.rule = frame.meta.rule;
        flow.nat = pair;
        let changes = translated || pending.cookie.is_some();
        flow.set_translated(if changes { Translated::Yes } else { Translated::No });
        flow.epoch = cx.tables.epoch;
        flow.class = frame.meta.class as u8;
    }
    let idle = cx.tables.filter.rules.get(frame.meta.rule as usize).map_or(0, |rule| rule.idle);
    if idle != 0 {
        cx.shard.flows.set_idle(id, idle, cx.tally);
    }
    if let Some(cookie) = pending.cookie {
        if cx.shard.flows.set_handshake(id, Handshake::Shown(cookie)).is_err() {
            cx.shard.flows.remove(id, cx.tally);
            return Err(Step::Drop(Reason::FlowTableFull));
        }
    }
    let number = |id| cx.tables.interface(id).map_or(NO_NUMBER, |interface| interface.number);
    let (ingress, is_icmp) = (number(frame.meta.ingress), is_icmp(frame));
    let [dnat, snat] = numbers(cx.tables, &pending);
    if let Some(cold) = cx.shard.flows.cold_mut(id) {
        (cold.ingress, cold.dnat, cold.snat) = (ingress, dnat, snat);
        cold.kind = if is_icmp { frame.meta.dport } else { 0 };
        cold.ds_field = frame.meta.ds_field;
        cold.tcp_flags = if frame.meta.protocol == Protocol::TCP.0 { frame.meta.tcp_flags } else { 0 };
        cold.mapping = pending.mapping.map_or(NOTHING, |mapping| mapping.0);
        cold.inward = pending.inward.map_or(NOTHING, |mapping| mapping.0);
        cold.limit = pending.count.map_or(NOTHING, |count| count.0);
        cold.source = pending.source_count.map_or(NOTHING, |count| count.0);
    }
    cx.shard.flows.note_sender(id, Some(header::sender(frame)));
    if cx.shard.log.wants_connections() {
        note_opened(id, frame, cx);
    }
    frame.meta.flow = id.0;
    frame.meta.nat = pair;
    if translated {
        frame.meta.flags |= flag::TRANSLATED;
    }
    Ok(())
}

/// The numbers of the destination and source translations that apply.
fn numbers(tables: &Tables, pending: &Pending) -> [u32; 2] {
    // They are counted from 1, here.
    let place = |counted: u16| usize::from(counted).wrapping_sub(1);
    let dnat = tables.nat.destinations.get(place(pending.dnat)).map_or(NO_NUMBER, |nat| nat.number);
    let snat = tables.nat.sources.get(place(pending.snat)).map_or(NO_NUMBER, |nat| nat.number);
    [dnat, snat]
}

/// The key of the packets that come back.
fn reply_key<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Key {
    let pending = &cx.shard.pending;
    let protocol = frame.meta.protocol;
    let (from, to) = (pending.destination, pending.source);
    // Of a query, the destination's side keeps the kind of question, which no translation changes.
    let sport = pending.dport;
    let key = if from.v6 {
        Key::v6(from.bits, to.bits, sport, pending.sport, protocol)
    } else {
        Key::v4(from.bits as u32, to.bits as u32, sport, pending.sport, protocol)
    };
    key.in_realm(realm(frame.meta.egress, cx))
}

fn insert<T: Tally>(key: &Key, hash: u64, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<FlowId, Step> {
    let tick = cx.shard.flows.tick(frame.meta.received);
    match cx.shard.flows.insert(key, hash, tick, cx.tally) {
        Ok(id) => return Ok(id),
        Err(Refusal::Taken(_)) => return Err(Step::Drop(Reason::NatClash)),
        Err(Refusal::NoKey) => return Err(Step::Drop(Reason::FlowNotOpen)),
        Err(Refusal::Full) => {}
    }
    if make_room(cx) {
        if let Ok(id) = cx.shard.flows.insert(key, hash, tick, cx.tally) {
            return Ok(id);
        }
    }
    Err(Step::Drop(Reason::FlowTableFull))
}

/// Ends a flow that makes room for another, where the policy has it so and there is one. Says whether.
fn make_room<T: Tally>(cx: &mut Cx<'_, T>) -> bool {
    if cx.tables.limits.when_full != WhenFull::EvictIdle {
        return false;
    }
    let Some(idlest) = cx.shard.flows.idlest(CANDIDATES) else { return false };
    cx.shard.end_flow_for(idlest, Cause::Evicted, cx.tally);
    cx.shard.counters.evicted += 1;
    true
}

/// Enters the reply's key; a flow that holds it and has expired makes room.
fn set_reply<T: Tally>(
    id: FlowId,
    reply: &Key,
    hash: u64,
    frame: &Frame,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let Err(Refusal::Taken(hit)) = cx.shard.flows.set_reply(id, reply, hash, cx.tally) else { return Ok(()) };
    let tick = cx.shard.flows.tick(frame.meta.received);
    let expired = cx.shard.flows.flow(hit.id).is_some_and(|flow| cx.shard.flows.is_expired(flow, tick));
    if expired && hit.id != id {
        cx.shard.end_flow(hit.id, cx.tally);
        if cx.shard.flows.set_reply(id, reply, hash, cx.tally).is_ok() {
            return Ok(());
        }
    }
    Err(Step::Drop(Reason::NatClash))
}
