//! `snat`: under which address does it go out? Then its flow is created (`create.rs`).
//!
//! Chooses the source translation of a flow's first packet, which all stages before have let pass. If no port is free, the
//! packet is dropped and no state remains. Changes no byte: `rewrite` carries out the translation.

use policy::model::Mode;
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::{Frame, PortId};

use super::{About, Cx, Packets, Stage, Step, create, filter, header, helper, nat64, vrf};
use crate::explain::Membership;
use crate::flag;
use crate::hop::LOCAL_HOP;
use crate::nat;
use crate::opening::Opening;
use crate::tables::{Address, SourceAction, Tables, Translator};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snat;

impl Stage for Snat {
    const ABOUT: About = About {
        name: "snat",
        asks: "Under which address does it go out?",
        reads: Fields::SEEN
            .and(Fields::RECEIVED)
            .and(Fields::OPENING)
            .and(Fields::HOP)
            .and(Fields::EGRESS)
            .and(Fields::RULE),
        writes: Fields::FLOW.and(Fields::NAT).and(Fields::FLAGS).and(Fields::OPENING),
    };

    fn packets(tables: &Tables) -> Packets {
        // It creates the flow, translated or not.
        if tables.mode == Mode::Stateful { Packets::First } else { Packets::None }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::OPENS != 0
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Groups do not answer from their own address: there is no flow to remember.
        if frame.meta.flags & flag::TO_GROUP != 0 {
            frame.meta.flags &= !flag::OPENS;
            cx.shard.abandon_opening(frame);
            return Step::Next;
        }
        let Some(mut opening) = cx.shard.openings.take(&mut frame.meta) else { return Step::Next };
        let opened = filter::count_source(frame, &mut opening, cx)
            .and_then(|()| translate(frame, &mut opening, cx))
            .and_then(|()| create::flow(frame, &mut opening, cx));
        match opened {
            // What it holds is the flow's now.
            Ok(()) => Step::Next,
            Err(step) => {
                cx.shard.abandon(&opening);
                step
            }
        }
    }

    fn program(tables: &Tables) -> u32 {
        // This stage, mappings, hosts and ports, and taking the flow in, 448; blocks and quotas, 60; and the search.
        let nat64 = if tables.nat.has_translator { 90 } else { 0 };
        let sets = if tables.set_questions.of_sources != 0 { header::SETS } else { 0 };
        508 + nat64 + sets + tables.nat.source_search.program()
    }
}

/// The dynamic sets that a first packet's addresses are in, its destination after translation, of those that source translations ask for.
pub(crate) fn memberships<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Vec<Membership> {
    let Some(opening) = cx.shard.openings.of(&frame.meta).filter(|_| Snat::takes(frame)) else {
        return Vec::new();
    };
    let asked = cx.tables.set_questions.of_sources;
    header::memberships(opening.seen, asked, frame.meta.received, cx)
}

/// Chooses the source translation, or that which an expected connection has.
#[inline(always)]
fn translate<T: Tally>(frame: &Frame, opening: &mut Opening, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    if helper::choose_call(opening, cx) {
        return Ok(());
    }
    choose(frame, opening, cx)?;
    follow_control(opening, cx);
    Ok(())
}

/// Gives an expected connection that no translation concerns the source by which its control connection is known.
#[inline(always)]
fn follow_control<T>(opening: &mut Opening, cx: &Cx<'_, T>) {
    let is_own = opening.source == opening.key.source().into();
    if let Some(expectation) = helper::of_opening(opening, cx).filter(|_| is_own) {
        opening.source = expectation.source;
    }
}

/// Chooses the source translation.
fn choose<T: Tally>(frame: &Frame, opening: &mut Opening, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let tables = cx.tables;
    let is_own = frame.meta.flags & flag::OWN != 0;
    if opening.is_across() && frame.meta.hop == LOCAL_HOP {
        return Err(Step::Drop(Reason::Nat64Address));
    }
    // A peer outside has the address that hosts of the other IP version know.
    let is_inward = opening.is_across() && opening.across.is_none();
    if frame.meta.hop == LOCAL_HOP || is_own || is_inward {
        return Ok(());
    }
    if let Some(translator) = nat64::of_opening(opening, cx) {
        return choose_across(frame, opening, translator, cx);
    }
    if tables.nat.sources.is_empty() {
        return turn_back(frame, opening, cx);
    }
    let mut seen = opening.seen;
    header::set_egress(&mut seen, frame, cx);
    let out = opening.turned.unwrap_or(frame.meta.egress);
    if let Some(interface) = tables.interface(out) {
        seen.to = interface.zone;
        seen.egress = out.0;
    }
    header::ask_sets(&mut seen, tables.set_questions.of_sources, frame.meta.received, cx);
    // The header's fourteen fields in two families, 42; interface and zone by place and bound, 12; the rule's action, 20; the pool, by the
    // next hop's address, 30; the endpoint, 36.
    cx.tally.instructions(140);
    cx.tally.execute(Op::Branch, 40);
    let Some((place, rule)) = tables.nat.source(&seen, cx.tally) else {
        return turn_back(frame, opening, cx);
    };
    cx.tally.read(Region::RuleTable, usize::from(place) * 32, 32);
    let source = opening.source;
    let pool = match &rule.action {
        SourceAction::Exempt | SourceAction::Across { .. } => return turn_back(frame, opening, cx),
        SourceAction::Network(pair) => {
            cx.tally.instructions(pair.instructions());
            let Some(shown) = pair.outward(source) else {
                count_refused(place, cx);
                return Err(Step::Drop(Reason::NatNoAddress));
            };
            opening.source = shown;
            opening.snat = place;
            return Ok(());
        }
        action => {
            let (next, destination) = towards(frame, opening, cx);
            let Some(pool) = action.pool(out, next, destination) else {
                count_refused(place, cx);
                return Err(Step::Drop(Reason::NatNoAddress));
            };
            if come_from_forward(frame, opening, &rule.action, out, cx) {
                opening.snat = place;
                return Ok(());
            }
            pool
        }
    };
    map(frame, opening, pool, place, cx)?;
    opening.snat = place;
    Ok(())
}

/// Chooses the endpoint of the other IP version of a host; of a packet that is turned back to another IPv6 host, under the prefix.
#[cold]
fn choose_across<T: Tally>(
    frame: &Frame,
    opening: &mut Opening,
    translator: Translator,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    // The translation by place and bound, 8; the pool, by the next hop's address, 30; the endpoint, 36.
    cx.tally.instructions(74);
    cx.tally.execute(Op::Branch, 16);
    let place = translator.source + 1;
    let tables = cx.tables;
    let Some(rule) = tables.nat.sources.get(usize::from(translator.source)) else {
        return Err(Step::Drop(Reason::NatNoAddress));
    };
    let (out, next, destination) = if let Some(destination) = opening.across {
        let next = cx.shard.hops.owner(frame.meta.hop).map(|owner| owner.address);
        let next = next.filter(|next| next.v6 == destination.v6).unwrap_or(destination);
        (frame.meta.egress, next, destination)
    } else {
        let shown = translator.destination(opening.key.destination().into()).unwrap_or_default();
        (opening.turned.unwrap_or(frame.meta.egress), shown, shown)
    };
    let Some(pool) = rule.action.pool(out, next, destination) else {
        count_refused(place, cx);
        return Err(Step::Drop(Reason::NatNoAddress));
    };
    map(frame, opening, pool, place, cx)?;
    opening.snat = place;
    if opening.across.is_none() {
        let shown = translator.xlat.peer(translator.prefix, opening.source);
        opening.source = shown.ok_or(Step::Drop(Reason::NatNoAddress))?;
    }
    Ok(())
}

/// Returns the addresses of the next hop and of the final destination; for a hairpinned packet, the outside address to which
/// the packet was sent, twice.
fn towards<T: Tally>(frame: &Frame, opening: &Opening, cx: &Cx<'_, T>) -> (Address, Address) {
    if opening.turned.is_some() {
        let outside = opening.key.destination().into();
        return (outside, outside);
    }
    let next = cx.shard.hops.owner(frame.meta.hop).map(|owner| owner.address);
    (next.unwrap_or(opening.destination()), opening.destination())
}

/// Lets what the target of a port forward sends from there have the outside port as its source, where one of that address
/// would be chosen; says whether it does. The port is set aside for the forward, so that no mapping has it.
fn come_from_forward<T: Tally>(
    frame: &Frame,
    opening: &mut Opening,
    action: &SourceAction,
    out: PortId,
    cx: &mut Cx<'_, T>,
) -> bool {
    let tables = cx.tables;
    if tables.nat.returning.is_empty() || frame.meta.flags & flag::QUERY != 0 {
        return false;
    }
    let (source, sport) = (opening.source, opening.sport);
    let zone = tables.zone(out);
    let (next, destination) = towards(frame, opening, cx);
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
    let vrf = tables.vrf_of(frame.meta.ingress);
    let forwards = tables.nat.returning(source, sport, frame.meta.protocol);
    for forward in forwards.filter(|forward| forward.vrf == vrf) {
        let port = forward.outside_port.wrapping_add(sport - forward.ports.first);
        for home in forward.homes.iter().filter(|home| home.zones & (1 << zone) != 0) {
            let address = Address { bits: home.addresses.first, v6: home.addresses.v6 };
            if let Some(rank) = rank(address).filter(|rank| best.is_none_or(|(known, ..)| *rank < known)) {
                best = Some((rank, address, port));
            }
        }
    }
    let Some((_, address, port)) = best else { return false };
    opening.pool = shown.map(|pool| (nat::PoolId(pool), sport));
    (opening.source, opening.sport) = (address, port);
    true
}

/// Translates, of the gateway's own accord, the source of what is turned back to the link that it came from: a server would
/// answer its neighbour directly, past the gateway, from an address that the client does not know (RFC 4787, REQ-9).
fn turn_back<T: Tally>(frame: &Frame, opening: &mut Opening, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let tables = cx.tables;
    if opening.dnat == 0 && opening.inward.is_none() || frame.meta.ingress != frame.meta.egress {
        return Ok(());
    }
    let ends = [opening.source.to_ip(), opening.destination().to_ip()];
    let link = tables.interface(frame.meta.egress);
    let are_neighbours = link
        .is_some_and(|link| link.networks.iter().any(|network| ends.iter().all(|end| network.contains(end))));
    if !are_neighbours {
        return Ok(());
    }
    // As who the client has called, else as the gateway is known where that is.
    let (nat, outside) = (&tables.nat, opening.key.destination().into());
    let home = opening.turned.or_else(|| super::dnat::home_of(tables, outside));
    let pool = nat
        .accord_of(outside)
        .or_else(|| nat.accord_on(home?, outside))
        .or_else(|| nat.accord_on(frame.meta.egress, opening.destination()));
    pool.map_or(Ok(()), |pool| map(frame, opening, pool, 0, cx))
}

/// Translates the source by a pool; `place` is that of the source translation, counted from 1.
fn map<T: Tally>(
    frame: &Frame,
    opening: &mut Opening,
    pool: u16,
    place: u16,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let inside = opening.inside(opening.sport, vrf::of_source(frame.meta.ingress, opening, cx));
    let source = opening.source;
    let has_port = super::dnat::has_port(frame);
    if has_port {
        let mut mapped = cx.shard.mappings.map(nat::PoolId(pool), inside, cx.tally);
        if matches!(mapped, Err(nat::Refusal::TableFull)) {
            // Mappings are as many as flows: where each flow has its own, this table is full first.
            if create::make_room(cx) {
                mapped = cx.shard.mappings.map(nat::PoolId(pool), inside, cx.tally);
            } else if cx.shard.flows.len() >= cx.shard.flows.capacity() {
                return Err(Step::Drop(Reason::FlowTableFull));
            }
        }
        cx.shard.note_blocks();
        match mapped {
            Ok(mapped) => {
                opening.pool = Some((nat::PoolId(pool), inside.port));
                cx.shard.log.note_mapped(&cx.shard.mappings, mapped.id);
                opening.map_source(mapped);
            }
            Err(refusal) => return Err(refused(place, refusal, cx)),
        }
    } else {
        match cx.shard.mappings.map_address(nat::PoolId(pool), inside, cx.tally) {
            Ok(outside) => opening.source = Address { bits: outside.address, v6: source.v6 },
            Err(refusal) => return Err(refused(place, refusal, cx)),
        }
    }
    Ok(())
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
