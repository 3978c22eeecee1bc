//! Creation of flows: the entry of the flow table (netfilter: a conntrack entry) that a first packet opens.
//!
//! A flow is created after all stages that may drop its first packet, so that a refused packet leaves nothing (netfilter: a
//! conntrack entry is confirmed). A flow has two keys, of the original and of the reply direction. If another flow has the same
//! reply key, another outside port is chosen; if the table is full, an idle flow is evicted, if the policy says so.

use arrayvec::ArrayVec;
use policy::model::WhenFull;
use tally::{Op, Tally};
use wire::header::Protocol;
use wire::{Frame, Part, tcp};

use super::log::note_opened;
use super::track::{is_icmp, reason_of, settings};
use super::vrf;
use super::{Cx, Step, header, helper};
use crate::flag;
use crate::flow::tcp::{Midstream, Segment};
use crate::flow::{Classified, Direction, FlowId, FlowTable, Handshake, Key, Refusal, Translated};
use crate::hop::{LOCAL_HOP, NO_HOP, waits};
use crate::log::Cause;
use crate::nat;
use crate::opening::Opening;
use crate::shard::{NOTHING, Shard};
use crate::tables::{NO_NUMBER, Tables};
use crate::verdict::Reason;

/// Number of long-idle flows compared to find the flow to evict.
const CANDIDATES: u32 = 64;

/// Creates the flow that a first packet opens, with all decisions of the stages before. From here on `track` finds the flow for
/// packets of both directions, and the rules are not looked up again.
///
/// # Errors
/// Step that ends the packet: nothing remains of its flow, and no other flow is touched but an evicted one.
pub(super) fn flow<T: Tally>(
    frame: &mut Frame,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    // The opening's 53 words, 53; the reply's key from six fields, with its conntrack zone, 44; the flow's place and bound, four times, 16;
    // rule, translation, hops, epoch, 30; what shows a translation, 20; the second record's eleven fields, with three numbers of interfaces and
    // rules by place and bound, 85; sender, 20; classes, 32; the metadata, 12; what is asked of rule, log and handshake, 18.
    cx.tally.instructions(330);
    cx.tally.execute(Op::Branch, 100);
    // The gateway has answered for a server that it is itself by now.
    if opening.cookie.is_some() && frame.meta.hop == LOCAL_HOP {
        return Err(Step::Drop(Reason::FlowNotOpen));
    }
    let tick = cx.shard.flows.tick(frame.meta.received);
    let reply = reply_key(frame, opening, cx);
    let reply_hash = cx.shard.flows.hash(&reply, cx.tally);
    // Its bucket comes while the flow is written.
    cx.shard.flows.prefetch_bucket(reply_hash);
    let id = insert(&opening.key, opening.hash, frame, cx)?;
    let settled = match set_reply(id, &reply, reply_hash, frame, cx) {
        Ok(()) => Ok(reply),
        Err(step) => settle_otherwise(id, frame, opening, cx).ok_or(step),
    };
    let reply = match settled {
        Ok(reply) => reply,
        Err(step) => {
            cx.shard.flows.remove(id, cx.tally);
            return Err(step);
        }
    };
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
        // The header, 28, its options, 32; flags and state, 16; the side's numbers and scale, 34.
        cx.tally.instructions(110);
        cx.tally.execute(Op::Branch, 32);
        match crate::flow::tcp::track(flow, Direction::Original, &Segment::of(&segment), settings) {
            Ok(state) => cx.shard.flows.set_state(id, state, tick, cx.tally),
            Err(fault) => {
                cx.shard.flows.remove(id, cx.tally);
                return Err(Step::Drop(reason_of(fault)));
            }
        }
    }
    if cx.shard.flows.helped.is_kept() {
        if let Err(step) = helper::begin(id, frame, opening, cx) {
            cx.shard.flows.remove(id, cx.tally);
            return Err(step);
        }
    }
    let pair = cx.tables.nat.pair(opening.dnat, opening.snat);
    let translated = reply != opening.key.reversed().in_ct_zone(reply.ct_zone());
    let mut is_helped = false;
    if let Some(flow) = cx.shard.flows.flow_mut(id) {
        let is_own = frame.meta.flags & flag::OWN != 0;
        // A neighbour that is asked for is looked up again when it is known.
        let onward = if waits(frame.meta.hop) { NO_HOP } else { frame.meta.hop };
        flow.hops = [onward, if is_own { LOCAL_HOP } else { NO_HOP }];
        flow.rule = frame.meta.rule;
        flow.nat = pair;
        is_helped = flow.is_helped();
        let changes = translated || opening.cookie.is_some() || is_helped;
        flow.set_translated(if changes { Translated::Yes } else { Translated::No });
        flow.epoch = cx.tables.epoch;
    }
    let idle = cx.shard.flows.idle_by(id, cx.tables.filter.rules.get(frame.meta.rule as usize));
    if idle != 0 {
        cx.shard.flows.set_idle(id, idle, cx.tally);
    }
    if let Some(cookie) = opening.cookie {
        if cx.shard.flows.set_handshake(id, Handshake::Shown(cookie)).is_err() {
            cx.shard.flows.remove(id, cx.tally);
            return Err(Step::Drop(Reason::FlowTableFull));
        }
    }
    let number = |id| cx.tables.interface(id).map_or(NO_NUMBER, |interface| interface.number);
    let (ingress, is_icmp) = (number(frame.meta.ingress), is_icmp(frame));
    let [dnat, snat] = numbers(cx.tables, opening);
    if let Some(cold) = cx.shard.flows.cold_mut(id) {
        (cold.ingress, cold.dnat, cold.snat) = (ingress, dnat, snat);
        cold.kind = if is_icmp { frame.meta.dport } else { 0 };
        // As it came: `mark` may have given it another.
        cold.ds_field = opening.seen.dscp << 2;
        cold.tcp_flags = if frame.meta.protocol == Protocol::TCP.0 { frame.meta.tcp_flags } else { 0 };
        cold.mapping = opening.mapping.map_or(NOTHING, |mapping| mapping.0);
        cold.inward = opening.inward.map_or(NOTHING, |mapping| mapping.0);
        cold.limit = opening.count.map_or(NOTHING, |count| count.0);
        cold.source = opening.source_count.map_or(NOTHING, |count| count.0);
    }
    cx.shard.flows.note_sender(id, Some(header::sender(frame)));
    cx.shard.watch_now(id, cx.tables, frame.meta.received, cx.tally);
    if let Some(wan) = cx.shard.flows.wans.get_mut(id) {
        *wan = number(frame.meta.egress);
    }
    if let Some(classified) = cx.shard.flows.classes.get_mut(id) {
        *classified = Classified::new(number(frame.meta.egress));
        classified.set(Direction::Original, opening.class_kind, opening.class);
    }
    cx.shard.changes.begin(id);
    if cx.shard.log.wants_connections() {
        note_opened(id, frame, cx);
    }
    if cx.shard.accounting.is_on() {
        begin_accounts(id, frame, cx);
    }
    frame.meta.flow = id.0;
    frame.meta.nat = pair;
    if is_helped {
        helper::note_quotes(id, cx);
    }
    // A first datagram may be a message.
    if translated || is_helped {
        frame.meta.flags |= flag::TRANSLATED;
    }
    Ok(())
}

/// Counts the first packet of a flow, and notes a translation.
#[cold]
fn begin_accounts<T: Tally>(id: FlowId, frame: &Frame, cx: &mut Cx<'_, T>) {
    let Shard { accounting, flows, .. } = &mut *cx.shard;
    if let (Some(flow), Some(cold)) = (flows.flow(id), flows.cold(id)) {
        accounting.begin(id, frame.meta.number);
        accounting.count(id, Direction::Original, frame);
        accounting.note_begun(flow, cold);
    }
}

/// Enters the flow with its original key; one that is idle makes room where the policy has it so.
fn insert<T: Tally>(key: &Key, hash: u64, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<FlowId, Step> {
    let tick = cx.shard.flows.tick(frame.meta.received);
    // `track` has found that no flow has the key, and nothing has been entered since. A flow of earlier tables, however, may have
    // it: one that is a stranger to the packet, because conntrack zones have changed.
    let enter = if cx.shard.flows.may_be_stale() { FlowTable::insert } else { FlowTable::insert_absent };
    match enter(&mut cx.shard.flows, key, hash, tick, cx.tally) {
        Ok(id) => return Ok(id),
        Err(Refusal::Taken(_)) => return Err(Step::Drop(Reason::NatClash)),
        Err(Refusal::NoKey) => return Err(Step::Drop(Reason::FlowNotOpen)),
        Err(Refusal::Full) => {}
    }
    if make_room(cx) {
        if let Ok(id) = enter(&mut cx.shard.flows, key, hash, tick, cx.tally) {
            return Ok(id);
        }
    }
    Err(Step::Drop(Reason::FlowTableFull))
}

/// Ends a flow that makes room for another, where the policy has it so and there is one. Says whether.
pub(super) fn make_room<T: Tally>(cx: &mut Cx<'_, T>) -> bool {
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

/// Number of further mappings tried where another flow has the same outside endpoints.
const MOST_TRIES: usize = 8;

/// Enters the key of a reply with another outside port, because another flow has the same outside endpoints. The port is of
/// a further mapping of the NAT pool. Packets of the gateway itself are translated in this case only, as in netfilter. `None` if
/// no port is free.
#[cold]
fn settle_otherwise<T: Tally>(
    id: FlowId,
    frame: &Frame,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Option<Key> {
    if !super::dnat::has_port(frame) {
        return None;
    }
    let is_own = frame.meta.flags & flag::OWN != 0;
    let own = cx.tables.nat.accord_of(opening.source).filter(|_| is_own);
    let own = own.map(|pool| (nat::PoolId(pool), opening.sport));
    let Some((pool, port)) = opening.pool.or(own) else {
        return settle_by_port(id, frame, opening, cx);
    };
    let inside = opening.inside(port, vrf::of_source(frame.meta.ingress, opening, cx));
    // What has been tried is held meanwhile, or it would be chosen again.
    let mut tried: ArrayVec<nat::MappingId, { MOST_TRIES + 1 }> = ArrayVec::new();
    let mut settled = None;
    while settled.is_none() && !tried.is_full() {
        tried.extend(opening.mapping.take());
        let Ok(mapped) = cx.shard.mappings.map_another(pool, inside, cx.tally) else { break };
        cx.shard.note_blocks();
        cx.shard.log.note_mapped(&cx.shard.mappings, mapped.id);
        opening.map_source(mapped);
        let reply = reply_key(frame, opening, cx);
        let hash = cx.shard.flows.hash(&reply, cx.tally);
        settled = set_reply(id, &reply, hash, frame, cx).is_ok().then_some(reply);
    }
    for mapping in tried {
        cx.shard.mappings.release(mapping, cx.tally);
        cx.shard.note_blocks();
    }
    settled
}

/// Enters the key of a reply with another source port and no other address, as netfilter does: a destination translation may
/// lead two connections of one client to one endpoint, and the client may use one port for both.
fn settle_by_port<T: Tally>(
    id: FlowId,
    frame: &Frame,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Option<Key> {
    let own = opening.sport;
    // On the same side of 1024 and of 512, as in netfilter.
    let (first, count) = match own {
        0..512 => (1, 511),
        512..1024 => (600, 424),
        1024.. => (1024, u16::MAX - 1023),
    };
    for number in 0..MOST_TRIES as u32 {
        opening.sport = first + opening.hash.rotate_left(number * 8) as u16 % count;
        let reply = reply_key(frame, opening, cx);
        let hash = cx.shard.flows.hash(&reply, cx.tally);
        if set_reply(id, &reply, hash, frame, cx).is_ok() {
            return Some(reply);
        }
    }
    opening.sport = own;
    None
}

/// Returns the key of reply packets.
fn reply_key<T: Tally>(frame: &Frame, opening: &Opening, cx: &Cx<'_, T>) -> Key {
    let (from, to) = (opening.destination(), opening.source);
    // Of a query, the destination's side keeps the kind of question, which only one to the other IP version changes.
    let (mut sport, mut protocol) = (opening.dport, frame.meta.protocol);
    if opening.is_across() {
        (sport, protocol) = Key::across(sport, protocol, from.family());
    }
    let key = if from.v6 {
        Key::v6(from.bits, to.bits, sport, opening.sport, protocol)
    } else {
        Key::v4(from.bits as u32, to.bits as u32, sport, opening.sport, protocol)
    };
    let vrf = vrf::of_opening(frame.meta.ingress, opening, cx);
    key.in_ct_zone(cx.tables.ct_zone(frame.meta.egress, vrf))
}

/// The numbers of the destination and source translations that apply.
fn numbers(tables: &Tables, opening: &Opening) -> [u32; 2] {
    // They are counted from 1, here.
    let place = |counted: u16| usize::from(counted).wrapping_sub(1);
    let dnat = tables.nat.destinations.get(place(opening.dnat)).map_or(NO_NUMBER, |nat| nat.number);
    let snat = tables.nat.sources.get(place(opening.snat)).map_or(NO_NUMBER, |nat| nat.number);
    [dnat, snat]
}
