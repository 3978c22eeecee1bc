//! Selection of packets of unknown flows that the second gateway has or opens ([`crate::peer`]).
//!
//! - A packet that opens nothing (a segment without SYN, an answer or an error of ICMP) is handed over whoever owns its flow: here nothing is known of
//!   it.
//! - A packet to an outside port that a mapping may have is of the gateway that allocates this port. All other packets are of the one that
//!   [`Pair`](crate::tables::Pair) says, by the ends that both directions of a flow have; so are those whose destination is translated, and the answers to them.
//! - A TCP connection with a helper is its owner's, though the other knows it.
//! - Packets for this gateway alone, to groups, and out of tunnels and PPP sessions stay.

use lookup::classify::Header;
use policy::model::Half;
use tally::Tally;
use wire::{Frame, LinkKind};

use super::{Cx, Step, clat, dnat, header};
use crate::flag;
use crate::flow::Flow;
use crate::peer::Handover;
use crate::tables::{Address, NewDestination, Pair, Tables, VrfId, is_within, pair};
use crate::tunnel;
use crate::verdict::Reason;

/// Effect of a packet of an unknown flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The packet opens a flow.
    Opens,
    /// The packet opens none.
    Nothing,
}

/// Hands over a packet of an unknown flow; `None` where the packet is this gateway's.
#[inline(always)]
pub(super) fn hand_over<T: Tally>(frame: &Frame, effect: Effect, cx: &mut Cx<'_, T>) -> Option<Step> {
    if cx.shard.handover == Handover::None { None } else { by_owner(frame, effect, cx) }
}

/// Hands over a packet of a known connection with a helper: its numbers, and what it announces, are the owner's alone. `None` where that is this
/// gateway.
#[inline(always)]
pub(super) fn hand_over_helped<T: Tally>(frame: &Frame, flow: &Flow, cx: &mut Cx<'_, T>) -> Option<Step> {
    if cx.shard.handover != Handover::Owned {
        return None;
    }
    let pair = cx.tables.pair.as_ref().filter(|pair| may_go(frame, pair, cx.tables))?;
    (owner_of(flow, pair, cx.tables) != pair.half).then_some(Step::Hold(Reason::PeerOwns))
}

/// The owner of a flow that is known, the same for both directions.
fn owner_of(flow: &Flow, pair: &Pair, tables: &Tables) -> Half {
    let (original, reply) = (flow.original(), flow.reply());
    let (source, destination) = (Address::from(original.source()), Address::from(original.destination()));
    let shown = reply.destination();
    if tables.nat.pools.iter().any(|pool| pool.has_port(reply.dport()) && pool.has(shown)) {
        return tables.nat.half_of_port(shown, reply.dport());
    }
    if is_translated(destination, tables) {
        return Pair::half_of(source);
    }
    pair.owner(source, destination, pair::Ports::Some, |_| false)
}

/// True if an address is one that a destination translation has.
fn is_translated(destination: Address, tables: &Tables) -> bool {
    let actions = tables.nat.destinations.iter().map(|rule| &rule.action);
    let mut of_addresses = actions.filter(|action| action.is_of_addresses());
    of_addresses.any(|action| is_within(&action.addresses, destination))
}

#[inline(never)]
fn by_owner<T: Tally>(frame: &Frame, effect: Effect, cx: &mut Cx<'_, T>) -> Option<Step> {
    let pair = cx.tables.pair.as_ref().filter(|pair| may_go(frame, pair, cx.tables))?;
    let goes = match (cx.shard.handover, effect) {
        (Handover::None, _) => false,
        (Handover::All, _) | (Handover::Owned, Effect::Nothing) => true,
        (Handover::Owned, Effect::Opens) => owner(frame, pair, cx).is_some_and(|half| half != pair.half),
    };
    goes.then_some(Step::Hold(Reason::PeerOwns))
}

/// True if a frame is as it came from an Ethernet, is for one host, and has not been handed over.
fn may_go(frame: &Frame, pair: &Pair, tables: &Tables) -> bool {
    const STAYS: u16 = flag::OWN | flag::GROUP | flag::TO_GROUP | flag::WAITED;
    let meta = &frame.meta;
    let (_, destination) = header::addresses(frame);
    let is_whole = tables.interface(meta.ingress).is_some_and(|interface| {
        let is_wrapped = interface.ppp.is_some() || interface.channel.is_some() || interface.tunnel.is_some();
        interface.link == LinkKind::Ethernet && !is_wrapped
    });
    is_whole
        && meta.flags & STAYS == 0
        && meta.tunnel & (tunnel::IN | tunnel::PEER) == 0
        && (pair.is_shared(destination) || !tables.is_own(tables.vrf_of(meta.ingress), destination))
}

/// The owner of the flow that a packet opens; `None` where that is whoever receives it.
fn owner<T: Tally>(frame: &Frame, pair: &Pair, cx: &mut Cx<'_, T>) -> Option<Half> {
    let tables = cx.tables;
    let (source, destination) = header::addresses(frame);
    let has_port = dnat::has_port(frame);
    let is_of_vrf = tables.vrf_of(frame.meta.ingress) != VrfId::DEFAULT;
    let shows = |address: Address| !is_of_vrf && tables.nat.is_outside(address);
    let mut seen: Header = header::on_arrival(frame, cx);
    header::ask_sets(&mut seen, tables.set_questions.of_destinations, frame.meta.received, cx);
    let forwarded = tables.nat.destination(&seen, cx.tally);
    let forwarded = forwarded
        .filter(|(_, rule)| !clat::leaves_alone(&rule.action, destination, tables, cx.tally))
        .map(|(_, rule)| rule);
    if let Some(rule) = forwarded {
        let is_redirected = matches!(rule.action.to, NewDestination::Gateway(_));
        return (!is_redirected).then(|| Pair::half_of(source));
    }
    if has_port && shows(destination) {
        let port = if frame.meta.flags & flag::QUERY != 0 { frame.meta.sport } else { frame.meta.dport };
        let ip = destination.to_ip();
        if tables.nat.pools.iter().any(|pool| pool.has_port(port) && pool.has(ip)) {
            return Some(tables.nat.half_of_port(ip, port));
        }
    }
    // What a helper expects has other ports than the forward of the control connection.
    if is_translated(destination, tables) {
        return Some(Pair::half_of(source));
    }
    let is_query = frame.meta.flags & flag::QUERY != 0;
    if !is_query && tables.nat.returning(source, frame.meta.sport, frame.meta.protocol).next().is_some() {
        return Some(Pair::half_of(destination));
    }
    let ports = if has_port { pair::Ports::Some } else { pair::Ports::None };
    Some(pair.owner(source, destination, ports, shows))
}
