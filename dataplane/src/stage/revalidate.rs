//! Revalidation of flows of earlier epochs by the tables in force.
//!
//! The first packet of a flow after a reload, in either direction, has the whole flow re-evaluated by the rules, as the
//! flow's very first packet would be: with the source before and the destination after the flow's translation, from the
//! interface where the flow began to the interface where routes now lead. An accepted flow keeps its translation, state and
//! windows; its next hop, rule and class are chosen anew. The flow counts against the limit of the rule that now accepts it,
//! even beyond the limit: limits and rates refuse new flows only. A refused flow ends. A flow also ends if the name or the
//! outside address of its translation is gone, or if it is masqueraded and now leaves by another interface, as in netfilter:
//! an inside host gets a reset, if the flow is TCP. A flow without a route stays until there is one.
//!
//! A flow without an answer has no translation to lose: if another translation would now be chosen, the flow ends, and its
//! packet opens another flow. A flow with an answer keeps its translation, or goes on without one, as in netfilter.
//!
//! Before revalidation, the conntrack zone in which the flow's packets now arrive is unknown, so the lookup covers all zones;
//! only packets of the right zone match the flow.

use arrayvec::ArrayVec;
use lookup::classify::Header;
use policy::model::{Action, OnFailure, RejectWith, ServerState};
use tally::{Op, Region, Tally};
use wire::esp::Direction as Side;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Dscp, Family, Frame, Meta, Nanos, PortId};

use super::header::{ask_sets, ask_sets_of, class_of, sender as sender_of};
use super::log::note_hit;
use super::route::{check_source, is_link_local};
use super::{Cx, Step, clat, dnat, filter, helper, protect, selector, track, vrf, wan};
use crate::fast_path::Progress;
use crate::flag;
use crate::flow::{Classified, Cold, Direction, Flow, FlowId, Hit, Key, State};
use crate::hop::{ASKED_HOP, LINK_HOP, LOCAL_HOP, NO_HOP};
use crate::log::Cause;
use crate::nat::{MappingId, PoolConfig, PoolId};
use crate::shard::NOTHING;
use crate::tables::{
    Address, Asked, Asker, DNAT, Destination, DestinationAction, LOCAL, NO_MAC, NO_NUMBER, NatRule,
    NewDestination, OWN_ACCORD, PatternRule, SELF, SourceAction, Tables, Target, VrfId, is_linux, is_within,
    vrf::MOST,
};
use crate::verdict::Reason;

/// Flows that may turn out not to be a packet's, one after the other: as many as there are conntrack zones in which the same
/// addresses and ports are in use, such as those of VRFs.
const STRANGERS: usize = MOST + 1;

/// Outcome of revalidating a flow.
enum Outcome {
    /// The flow goes on.
    Kept,
    /// The packet is of another conntrack zone than the flow.
    Stranger,
    /// The flow has ended, and the packet may open another.
    Ended,
    /// The flow has ended, or has no path; the packet goes no further.
    Refused(Step),
}

/// Finds the flow of an earlier epoch that a packet with this key belongs to, and revalidates the flow. `None` if there is no
/// flow, or the flow has ended and the packet may open another.
///
/// # Errors
/// Step for the packet: the flow has ended, or has no path.
#[cold]
#[inline(never)]
pub(super) fn find<T: Tally>(
    key: &Key,
    hash: u64,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Hit>, Step> {
    let tick = cx.shard.flows.tick(frame.meta.received);
    let mut strangers: ArrayVec<FlowId, STRANGERS> = ArrayVec::new();
    while let Some(hit) = cx.shard.flows.find_stale(key, hash, &strangers, cx.tally) {
        if cx.shard.flows.flow(hit.id).is_some_and(|flow| flow.progress.is_published()) {
            cx.shard.take_back(hit.id);
        }
        let Some((flow, cold)) = both(hit.id, cx) else { return Ok(None) };
        if cx.shard.flows.is_expired(&flow, tick) {
            cx.shard.end_flow(hit.id, cx.tally);
            continue;
        }
        match revalidate(hit, &flow, &cold, frame, cx) {
            Outcome::Kept => return Ok(Some(hit)),
            Outcome::Stranger if strangers.try_push(hit.id).is_ok() => {}
            Outcome::Stranger | Outcome::Ended => return Ok(None),
            Outcome::Refused(step) => return Err(step),
        }
    }
    Ok(None)
}

/// Validates a flow again that these tables have decided, where a set has changed that one of its addresses is in. `None` if the
/// flow has ended and the packet may open another.
///
/// # Errors
/// Step for the packet: the flow has ended, or has no path.
#[cold]
#[inline(never)]
pub(super) fn by_sets<T: Tally>(
    hit: Hit,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Hit>, Step> {
    let Some((flow, cold)) = both(hit.id, cx) else { return Ok(None) };
    if !cx.shard.sets_concern(hit.id, &flow, cx.tables, frame.meta.received, cx.tally) {
        return Ok(Some(hit));
    }
    if flow.progress.is_published() {
        cx.shard.take_back(hit.id);
    }
    match revalidate(hit, &flow, &cold, frame, cx) {
        Outcome::Kept => Ok(Some(hit)),
        Outcome::Stranger | Outcome::Ended => Ok(None),
        Outcome::Refused(step) => Err(step),
    }
}

fn both<T: Tally>(id: FlowId, cx: &Cx<'_, T>) -> Option<(Flow, Cold)> {
    Some((*cx.shard.flows.flow(id)?, *cx.shard.flows.cold(id)?))
}

/// Path of a flow: next hop and egress interface.
#[derive(Clone, Copy)]
struct Way {
    hop: u32,
    egress: PortId,
}

fn revalidate<T: Tally>(
    hit: Hit,
    flow: &Flow,
    cold: &Cold,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Outcome {
    // Interfaces, conntrack zones and translations by number, 30; the header's fourteen fields, 20; the choice, 5; limits, 10;
    // the flow's fields, 15. Searches and routes tell their own.
    cx.tally.instructions(80);
    cx.tally.execute(Op::Branch, 24);
    cx.tally.read(Region::Timer, hit.id.0 as usize * size_of::<Cold>(), size_of::<Cold>() as u32);
    let Some(ingress) = cx.tables.interface_numbered(cold.ingress) else {
        return over(hit.id, Reason::InterfaceGone, frame, cx);
    };
    let came = vrf::ct_zone(frame, cx);
    let [there, back] = [Direction::Original, Direction::Reply].map(|of| vrf::of_flow(hit.id, of, cx));
    let begins = cx.tables.ct_zone(ingress, back);
    if hit.direction == Direction::Original && came != begins {
        return Outcome::Stranger;
    }
    let is_first = hit.direction == Direction::Original && frame.meta.flags & flag::ERROR == 0;
    let now = frame.meta.received;
    let way = match way(hit.id, flow, cold, ingress, now, cx) {
        Ok(way) => way,
        // What became of the way of another VRF's flow is not this packet's.
        Err(_)
            if hit.direction == Direction::Reply && vrf::is_of_another(frame, flow.reply().ct_zone(), cx) =>
        {
            return Outcome::Stranger;
        }
        Err(Step::Drop(Reason::WanDown)) => return lose(hit, Reason::WanDown, frame, cx),
        // Whoever answers is not told of the way there.
        Err(Step::Answer(reason)) if hit.direction == Direction::Reply => {
            return Outcome::Refused(Step::Drop(reason));
        }
        Err(Step::Answer(Reason::RouteMissing))
            if is_first && begins_otherwise(flow, cold, ingress, now, cx) =>
        {
            return over(hit.id, Reason::FlowTranslation, frame, cx);
        }
        Err(step) => return Outcome::Refused(step),
    };
    let answers = cx.tables.ct_zone(way.egress, there);
    if hit.direction == Direction::Reply && came != answers {
        return Outcome::Stranger;
    }
    if has_lost_server(flow, cold, cx) {
        return lose(hit, Reason::ServerDown, frame, cx);
    }
    // An expected connection is let in, and translated, as its control connection is.
    let related = cx.shard.flows.related_by(hit.id).and_then(|number| cx.tables.helper_rule(number));
    let Some(pair) = translations((flow, related), cold, ingress, way, cx) else {
        let is_inside = hit.direction == Direction::Original && cold.snat != NO_NUMBER;
        return match over(hit.id, Reason::FlowTranslation, frame, cx) {
            Outcome::Refused(Step::Drop(reason)) if is_inside => {
                Outcome::Refused(filter::reject(frame, RejectWith::TcpReset, reason))
            }
            outcome => outcome,
        };
    };
    if is_first && is_unanswered(flow) && is_translated_otherwise(flow, cold, (ingress, way), now, cx) {
        return over(hit.id, Reason::FlowTranslation, frame, cx);
    }
    let sender = sender(hit, flow, frame, cx);
    let decided = match related {
        Some(rule) => Ok(Some(rule)),
        None => rule(flow, cold, (ingress, sender), way, now, cx),
    };
    let rule = match decided {
        Ok(rule) => rule,
        Err(refusal) => return refuse(hit, refusal, way, frame, cx),
    };
    if cx.shard.flows.move_to(hit.id, [begins, answers], cx.tally).is_err() {
        end(hit.id, cx);
        return Outcome::Refused(Step::Drop(Reason::NatClash));
    }
    recount(hit.id, flow, cold, ingress, rule, cx);
    let by = rule.and_then(|place| cx.tables.filter.rules.get(place as usize));
    let idle = cx.shard.flows.idle_by(hit.id, by);
    cx.shard.flows.set_idle(hit.id, idle, cx.tally);
    if let Some(flow) = cx.shard.flows.flow_mut(hit.id) {
        // A neighbour that has to be asked for is looked up again when it is known.
        let onward = if way.hop == ASKED_HOP { NO_HOP } else { way.hop };
        flow.hops = [onward, if is_linux(ingress) { LOCAL_HOP } else { NO_HOP }];
        flow.rule = rule.unwrap_or(Meta::NO_RULE);
        flow.nat = pair;
        flow.epoch = cx.tables.epoch;
        flow.progress = Progress::default();
    }
    if related.is_none() && cx.shard.flows.helped.is_kept() {
        let helper = rule.and_then(|place| cx.tables.filter.rules.get(place as usize));
        let number = helper.filter(|rule| rule.helper.is_some() && flow.is_helped()).map(|rule| rule.number);
        cx.shard.flows.set_helper_rule(hit.id, number.unwrap_or(NO_NUMBER));
    }
    helper::note_quotes(hit.id, cx);
    cx.shard.watch_now(hit.id, cx.tables, frame.meta.received, cx.tally);
    if let Some(classified) = cx.shard.flows.classes.get_mut(hit.id) {
        let egress = cx.tables.interface(way.egress).map_or(NO_NUMBER, |interface| interface.number);
        *classified = Classified::new(egress);
    }
    cx.tally.write(Region::FlowTable, hit.id.0 as usize * size_of::<Flow>() + 40, 24);
    Outcome::Kept
}

/// Ends a flow whose WAN or server is down. Its packet may be the first of another flow, by another one; who opened it gets a reset, if
/// the flow is TCP.
fn lose<T: Tally>(hit: Hit, reason: Reason, frame: &Frame, cx: &mut Cx<'_, T>) -> Outcome {
    match over(hit.id, reason, frame, cx) {
        Outcome::Refused(Step::Drop(reason)) if hit.direction == Direction::Original => {
            Outcome::Refused(filter::reject(frame, RejectWith::TcpReset, reason))
        }
        outcome => outcome,
    }
}

/// Returns the path by current routes, for packets in the original direction.
fn way<T: Tally>(
    flow_id: FlowId,
    flow: &Flow,
    cold: &Cold,
    ingress: PortId,
    now: Nanos,
    cx: &mut Cx<'_, T>,
) -> Result<Way, Step> {
    let (source, destination) = (flow.original().source().into(), flow.reply().source().into());
    let is_own = is_linux(ingress);
    check_source(ingress, source, cx)?;
    if is_link_local(destination) {
        // No route says on which link: the one that it was on.
        let link = || cx.tables.interfaces.iter().position(|of| of.ct_zone == flow.reply().ct_zone());
        return match link() {
            _ if !is_own => Ok(Way { hop: LOCAL_HOP, egress: LOCAL }),
            Some(link) => Ok(Way { hop: LINK_HOP, egress: PortId(link as u16) }),
            None => Err(Step::Drop(Reason::InterfaceGone)),
        };
    }
    let hash = cx.shard.flows.hash(flow.original(), cx.tally);
    let unknown = Step::Drop(Reason::NeighbourUnknown);
    let vrf = vrf::of_flow(flow_id, Direction::Original, cx);
    let mut target = cx.tables.route(vrf, destination, cx.tally).copied();
    if vrf == VrfId::DEFAULT && !cx.tables.tunnels.spd.is_empty() {
        if !is_own && cx.tables.tunnel_of(ingress).is_none() {
            protect::in_clear(&selector::of_key(flow.original(), Side::In), cx)?;
        }
        target = protect::of_flow(flow, Direction::Original, target, cx).map_err(Step::Drop)?;
    }
    let way = match target.ok_or(Step::Answer(Reason::RouteMissing))? {
        Target::Gateways { first, count } => {
            let hop = cx.tables.way(first, count, (hash >> 32) as u32, cx.tally).ok_or(unknown)?;
            let gateway = cx.tables.gateways.get(hop as usize).ok_or(unknown)?;
            Way { hop, egress: gateway.interface }
        }
        Target::Wans => {
            let kept = wan::of_flow(flow_id, Direction::Original, destination.family(), cx);
            let id = match kept {
                Some(id) if wan::is_lost(id, cx) => return Err(Step::Drop(Reason::WanDown)),
                Some(id) => id,
                None => {
                    // One that began before there were WANs may show the address of one.
                    let tables = cx.tables;
                    let shown: Address = flow.reply().destination().into();
                    let own_source =
                        Some(shown).filter(|shown| is_own || tables.wans.owner(*shown).is_some());
                    let source = flow.original().source().into();
                    let hash = tables.wans.spread(source, (hash >> 32) as u32, cx.tally);
                    let asked = Asked { family: destination.family(), own_source, hash };
                    let nowhere = Way { hop: NO_HOP, egress: LOCAL };
                    let shard = &*cx.shard;
                    let seen = |tally: &mut T| {
                        let mut seen = header(flow, cold, ingress, nowhere, tables);
                        let asked = tables.set_questions.of_routes;
                        ask_sets_of(&mut seen, asked, now, (shard, tables), tally);
                        seen
                    };
                    tables.wans.choose(asked, seen, cx.tally).map_err(wan::refusal)?.wan
                }
            };
            if let Some(wan) = cx.shard.flows.wans.get_mut(flow_id) {
                *wan = cx.tables.wans.get(id).map_or(NO_NUMBER, |wan| cx.tables.number_of(wan.interface));
            }
            let exit = wan::exit(id, destination, cx).ok_or(unknown)?;
            Way { hop: exit.hop, egress: exit.interface }
        }
        Target::Link(egress) => {
            let hop = cx.shard.hops.neighbour(cx.tables, egress, destination).ok_or(unknown)?;
            Way { hop, egress }
        }
        Target::Local => return Ok(Way { hop: LOCAL_HOP, egress: LOCAL }),
        Target::Broadcast(_) => return Err(Step::Drop(Reason::BroadcastDirected)),
        Target::Blackhole => return Err(Step::Drop(Reason::RouteBlackhole)),
        Target::Unreachable => return Err(Step::Answer(Reason::RouteUnreachable)),
    };
    if is_link_local(source) {
        return Err(Step::Drop(Reason::LinkLocal));
    }
    Ok(way)
}

/// True if the flow is one of a server that is down, whose flows are to end.
fn has_lost_server<T: Tally>(flow: &Flow, cold: &Cold, cx: &Cx<'_, T>) -> bool {
    if cold.dnat == NO_NUMBER {
        return false;
    }
    let place = cx.tables.destination_numbered(cold.dnat);
    let rule = place.and_then(|place| cx.tables.nat.destinations.get(usize::from(place)));
    let [arrived, has] = ends(flow);
    let server = rule.and_then(|rule| rule.action.server(arrived, has));
    server.is_some_and(|(servers, server)| {
        server.state == ServerState::Down && servers.on_failure == OnFailure::Kill
    })
}

/// Destination of a flow before translation, and after it.
fn ends(flow: &Flow) -> [Destination; 2] {
    let (arrived, has) = (flow.original(), flow.reply());
    [
        Destination { address: arrived.destination().into(), port: arrived.dport() },
        Destination { address: has.source().into(), port: has.sport() },
    ]
}

/// The pair of translations that a flow has, which `related` accepts if it was expected, by their places now; `None` where one of them, or its address, is gone.
fn translations<T: Tally>(
    (flow, related): (&Flow, Option<u32>),
    cold: &Cold,
    ingress: PortId,
    way: Way,
    cx: &Cx<'_, T>,
) -> Option<u16> {
    let nat = &cx.tables.nat;
    let outside = flow.original().destination().into();
    let mut turned = None;
    let mut pair = [0; 2];
    if cold.dnat != NO_NUMBER {
        let place = cx.tables.destination_numbered(cold.dnat)?;
        let action = &nat.destinations.get(usize::from(place))?.action;
        if !is_within(&action.addresses, outside) {
            return None;
        }
        // Its address is the gateway's no longer.
        if matches!(action.to, NewDestination::Gateway(_)) && way.hop != LOCAL_HOP {
            return None;
        }
        pair[0] = place + 1;
        turned = action.turned(outside, cx.tables.zone(ingress));
    }
    if cold.inward != NOTHING {
        cx.shard.mappings.pool_of(MappingId(cold.inward))?;
        turned = dnat::home_of(cx.tables, outside).filter(|home| *home != ingress);
    }
    if cold.snat != NO_NUMBER {
        let place = cx.tables.source_numbered(cold.snat)?;
        let action = &nat.sources.get(usize::from(place))?.action;
        let shown: Address = flow.reply().destination().into();
        let is_there = match action {
            SourceAction::Exempt => false,
            SourceAction::Network(pair) => pair.shows(shown),
            // From a peer outside.
            SourceAction::Across { xlat, prefix, .. } if flow.is_across() && cold.dnat == NO_NUMBER => {
                xlat.peer(*prefix, flow.original().source().into()) == Some(shown)
            }
            SourceAction::Across { .. } if flow.is_across() => {
                let pool = cx.shard.mappings.pool_of(MappingId(cold.mapping));
                pool.is_some_and(|PoolId(pool)| action.has_pool(way.egress, shown.v6, pool))
            }
            // Turned back from one IPv6 host to another.
            SourceAction::Across { .. } => {
                let PoolId(pool) = cx.shard.mappings.pool_of(MappingId(cold.mapping))?;
                nat.owners.get(usize::from(pool)).is_some_and(|owner| owner.source == place)
            }
            action => {
                let out = turned.unwrap_or(way.egress);
                if cold.mapping != NOTHING {
                    let PoolId(pool) = cx.shard.mappings.pool_of(MappingId(cold.mapping))?;
                    action.has_pool(out, shown.v6, pool)
                } else {
                    let has = |pool: &PoolConfig| pool.has(shown.to_ip());
                    let mut pools = (0..).zip(&nat.pools).filter(|(_, config)| has(config));
                    pools.any(|(pool, _)| action.has_pool(out, shown.v6, pool))
                }
            }
        };
        if !is_there || way.hop == LOCAL_HOP {
            return None;
        }
        pair[1] = place + 1;
    } else if cold.mapping != NOTHING {
        let PoolId(pool) = cx.shard.mappings.pool_of(MappingId(cold.mapping))?;
        let owner = nat.owners.get(usize::from(pool))?;
        if owner.source != OWN_ACCORD || way.hop == LOCAL_HOP {
            return None;
        }
    } else if flow.reply().destination() != flow.original().source() && related.is_none() {
        nat.accord_of(flow.reply().destination().into())?;
    }
    Some(nat.pair(pair[0], pair[1]))
}

/// True if nothing has come back yet, as far as is known. Of an ICMP query: since the last tables.
fn is_unanswered(flow: &Flow) -> bool {
    match flow.state() {
        State::Opening | State::SynSent | State::Udp | State::Other => true,
        State::Icmp => flow.hops[Direction::Reply as usize] == NO_HOP,
        _ => false,
    }
}

/// True if a flow without an answer and without a route would be given another destination, were it to begin now: a CLAT has what no route of
/// IPv4 leads to any more.
fn begins_otherwise<T: Tally>(
    flow: &Flow,
    cold: &Cold,
    ingress: PortId,
    now: Nanos,
    cx: &mut Cx<'_, T>,
) -> bool {
    if is_linux(ingress) || !is_unanswered(flow) || cold.inward != NOTHING {
        return false;
    }
    let seen = header(flow, cold, ingress, Way { hop: NO_HOP, egress: LOCAL }, cx.tables);
    let translation = destination_translation(flow, &seen, now, cx);
    translation.map_or(NO_NUMBER, |(_, rule)| rule.number) != cold.dnat
}

/// True if a flow would be given other translations than it has, were it to begin now.
fn is_translated_otherwise<T: Tally>(
    flow: &Flow,
    cold: &Cold,
    (ingress, way): (PortId, Way),
    now: Nanos,
    cx: &mut Cx<'_, T>,
) -> bool {
    if is_linux(ingress) {
        return false;
    }
    let nat = &cx.tables.nat;
    let outside: Address = flow.original().destination().into();
    // From a peer outside, or turned back, the translation holds as long as it is there.
    let is_inward = flow.is_across() && cold.dnat == NO_NUMBER;
    if is_inward || cold.inward != NOTHING && cold.dnat != NO_NUMBER {
        return false;
    }
    let seen = header(flow, cold, ingress, way, cx.tables);
    let destination = destination_translation(flow, &seen, now, cx);
    if destination.map_or(NO_NUMBER, |(_, rule)| rule.number) != cold.dnat {
        return true;
    }
    let mut turned = None;
    if let Some((_, rule)) = destination {
        if let Some(translator) = rule.action.translator() {
            let source = nat.sources.get(usize::from(translator.source));
            return translator.destination(outside) != Some(flow.reply().source().into())
                || source.is_none_or(|source| source.number != cold.snat);
        }
        let [arrived, kept] = ends(flow);
        let hash = (cx.shard.flows.hash(flow.original(), cx.tally) >> 32) as u32;
        let asker = Asker { source: flow.original().source().into(), ingress, hash };
        // A flow keeps its server while that is up, whoever has come or gone.
        let keeps = match rule.action.server(arrived, kept) {
            Some((_, server)) => server.state == ServerState::Up,
            None => rule.action.translate(arrived, asker, cx.tally) == Ok(kept),
        };
        if !keeps {
            return true;
        }
        turned = rule.action.turned(outside, seen.from);
    } else if cold.inward != NOTHING {
        turned = dnat::home_of(cx.tables, outside).filter(|home| *home != ingress);
    }
    if way.hop == LOCAL_HOP {
        return false;
    }
    let out = turned.unwrap_or(way.egress);
    let mut leaves = Header { to: cx.tables.zone(out), egress: out.0, ..seen };
    ask_sets(&mut leaves, cx.tables.set_questions.of_sources, now, cx);
    let Some((_, rule)) = nat.source(&leaves, cx.tally) else { return cold.snat != NO_NUMBER };
    match rule.action {
        SourceAction::Exempt | SourceAction::Across { .. } => cold.snat != NO_NUMBER,
        SourceAction::Network(pair) => {
            let shown = pair.outward(flow.original().source().into());
            rule.number != cold.snat || shown != Some(flow.reply().destination().into())
        }
        _ => rule.number != cold.snat,
    }
}

/// The destination translation that a flow would be given, were it to begin now; `seen` is its header as the rules see it.
fn destination_translation<'a, T: Tally>(
    flow: &Flow,
    seen: &Header,
    now: Nanos,
    cx: &mut Cx<'a, T>,
) -> Option<(u16, &'a NatRule<DestinationAction>)> {
    let outside: Address = flow.original().destination().into();
    let is_icmp = matches!(Protocol(seen.protocol), Protocol::ICMP | Protocol::ICMPV6);
    let mut arrived = Header {
        destination: outside.bits,
        dport: if is_icmp { seen.dport } else { flow.original().dport() },
        ..*seen
    };
    let tables = cx.tables;
    ask_sets(&mut arrived, tables.set_questions.of_destinations, now, cx);
    let found = tables.nat.destination(&arrived, cx.tally);
    found.filter(|(_, rule)| !clat::leaves_alone(&rule.action, outside, tables, cx.tally))
}

/// Refusal of a flow.
struct Refusal {
    /// Rule that refuses the flow; `None` for the default action.
    rule: Option<u32>,
    action: Action,
    /// Header fields that the rule was matched against.
    seen: Header,
}

/// Returns the rule that accepts a flow from `sender`; `None` if the default action accepts the flow, or the
/// flow began in the gateway itself.
fn rule<T: Tally>(
    flow: &Flow,
    cold: &Cold,
    (ingress, sender): (PortId, Mac),
    way: Way,
    now: Nanos,
    cx: &mut Cx<'_, T>,
) -> Result<Option<u32>, Refusal> {
    if ingress == LOCAL {
        return Ok(None);
    }
    let source_mac = class_of(cx.tables, ingress, sender);
    let mut seen = Header { source_mac, ..header(flow, cold, ingress, way, cx.tables) };
    ask_sets(&mut seen, cx.tables.set_questions.of_rules, now, cx);
    let rule = cx.tables.filter.find_within_rates(&seen, cx.tally).map(PatternRule::place);
    let action = match rule.and_then(|place| cx.tables.filter.rules.get(place as usize)) {
        Some(rule) => rule.action,
        None if cold.inward != NOTHING && cx.shard.port_mappings.is_open(MappingId(cold.inward), now) => {
            Action::Accept
        }
        None => cx.tables.filter.default_action(seen.from, seen.to),
    };
    if action == Action::Accept { Ok(rule) } else { Err(Refusal { rule, action, seen }) }
}

/// The source address of the frame that a flow began with. Where the flow is older than the first rule that asks for one: that of
/// the packet, if it goes the same way, else that of the neighbour to whom answers go.
fn sender<T: Tally>(hit: Hit, flow: &Flow, frame: &Frame, cx: &mut Cx<'_, T>) -> Mac {
    if cx.tables.source_macs.is_none() {
        return Mac::ZERO;
    }
    if let Some(mac) = cx.shard.flows.sender(hit.id) {
        return mac;
    }
    if hit.direction == Direction::Original && frame.meta.flags & flag::ERROR == 0 {
        let mac = sender_of(frame);
        cx.shard.flows.note_sender(hit.id, Some(mac));
        return mac;
    }
    let source = flow.original().source().into();
    let vrf = vrf::of_flow(hit.id, Direction::Reply, cx);
    let hop = match cx.tables.route(vrf, source, cx.tally).copied() {
        Some(Target::Link(link)) => cx.shard.hops.neighbour(cx.tables, link, source),
        Some(Target::Gateways { first, count }) => {
            let hash = cx.shard.flows.hash(flow.reply(), cx.tally);
            cx.tables.way(first, count, (hash >> 32) as u32, cx.tally)
        }
        Some(Target::Wans) => {
            let wan = wan::of_flow(hit.id, Direction::Reply, source.family(), cx);
            wan.and_then(|wan| wan::exit(wan, source, cx)).map(|exit| exit.hop)
        }
        _ => None,
    };
    let header = hop.and_then(|hop| cx.shard.hops.get(hop)).and_then(|hop| hop.header());
    header.and_then(|header| header.first_chunk()).map_or(Mac::ZERO, |mac| Mac(*mac))
}

/// Header of a flow's first packet as the rules saw it, after revalidation by the present tables; `None` if an interface of the
/// flow is gone.
pub(super) fn first_packet<T: Tally>(id: FlowId, cx: &Cx<'_, T>) -> Option<Header> {
    let (flow, cold) = (cx.shard.flows.flow(id)?, cx.shard.flows.cold(id)?);
    let interface = |number| cx.tables.interface_numbered(number);
    let classified = cx.shard.flows.classes.get(id)?;
    let (ingress, egress) = (interface(cold.ingress)?, interface(classified.egress())?);
    let way = Way { hop: if egress == LOCAL { LOCAL_HOP } else { NO_HOP }, egress };
    let seen = header(flow, cold, ingress, way, cx.tables);
    let sender = cx.shard.flows.sender(id);
    Some(Header { source_mac: sender.map_or(NO_MAC, |mac| class_of(cx.tables, ingress, mac)), ..seen })
}

/// Header of the flow's first packet as the rules would see it, but for its MAC address, for which translations do not ask, and memberships
/// in sets.
fn header(flow: &Flow, cold: &Cold, ingress: PortId, way: Way, tables: &Tables) -> Header {
    let (there, back) = (flow.original(), flow.reply());
    let (mut source, mut destination): (Address, Address) = (there.source().into(), back.source().into());
    let mut protocol = there.protocol();
    if flow.is_across() {
        // As the host that is served sees both.
        if cold.dnat == NO_NUMBER {
            (source, protocol) = (back.destination().into(), back.protocol());
        } else {
            destination = there.destination().into();
        }
    }
    let family = source.family();
    let icmp = if family == Family::V4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    // Ports of ICMP queries are theirs alone.
    let is_moved =
        there.destination() != back.source() || protocol != icmp.0 && there.dport() != back.sport();
    let is_translated = cold.dnat != NO_NUMBER && !flow.is_across() && is_moved;
    Header {
        source: source.bits,
        destination: destination.bits,
        sport: there.sport(),
        dport: if protocol == icmp.0 { cold.kind } else { back.sport() },
        protocol,
        tcp_flags: cold.tcp_flags,
        dscp: Dscp::of_field(cold.ds_field).value(),
        family,
        from: tables.zone(ingress),
        to: if way.hop == LOCAL_HOP { SELF } else { tables.zone(way.egress) },
        ingress: ingress.0,
        egress: way.egress.0,
        source_mac: NO_MAC,
        sets: if is_translated { DNAT } else { 0 },
    }
}

/// Ends a flow that is not let in any more; the packet has the fate that the rule or default says.
fn refuse<T: Tally>(hit: Hit, refusal: Refusal, way: Way, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Outcome {
    end(hit.id, cx);
    frame.meta.rule = refusal.rule.unwrap_or(Meta::NO_RULE);
    if let Some(place) = refusal.rule {
        cx.tally.atomic(Region::Counter, place as usize * 16, 16);
    }
    let step = match refusal.action {
        Action::Reject(with) if hit.direction == Direction::Original => {
            // By which the answer knows what the default of the zones asks for.
            frame.meta.egress = way.egress;
            filter::reject(frame, with, Reason::FlowRevoked)
        }
        _ => Step::Drop(Reason::FlowRevoked),
    };
    note_hit(refusal.rule, &refusal.seen, step, frame, cx);
    Outcome::Refused(step)
}

/// Ends a flow that cannot go on as it was. Its packet may be the first of another.
fn over<T: Tally>(id: FlowId, reason: Reason, frame: &Frame, cx: &mut Cx<'_, T>) -> Outcome {
    end(id, cx);
    if frame.meta.flags & flag::ERROR == 0 && track::may_open(frame, cx.tables).is_ok() {
        Outcome::Ended
    } else {
        Outcome::Refused(Step::Drop(reason))
    }
}

fn end<T: Tally>(id: FlowId, cx: &mut Cx<'_, T>) {
    cx.shard.end_flow_for(id, Cause::Revoked, cx.tally);
    cx.shard.counters.revoked += 1;
}

/// Moves what a flow counts for to the rule that now lets it in.
fn recount<T: Tally>(
    id: FlowId,
    flow: &Flow,
    cold: &Cold,
    ingress: PortId,
    rule: Option<u32>,
    cx: &mut Cx<'_, T>,
) {
    cx.shard.uncount([cold.limit, cold.source]);
    let source = flow.original().source().into();
    let [limit, source] = cx.shard.count_anyway(cx.tables, source, ingress, rule);
    if let Some(cold) = cx.shard.flows.cold_mut(id) {
        (cold.limit, cold.source) = (limit, source);
    }
}
