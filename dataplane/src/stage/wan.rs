//! The WAN of a packet where the default routes are the WANs': chosen for a flow's first packet, and kept by the flow.
//!
//! Packets that go as the first one did leave by the WAN that the first one left by; those that come back leave by the WAN that the
//! first one came in by. A flow so keeps its WAN, and the address that it shows there, whatever tables follow.

use lookup::classify::Header;
use policy::model::{OnFailure, WanState};
use tally::Tally;
use wire::{Family, Frame, PortId};

use super::{Cx, Step, header};
use crate::explain::Membership;
use crate::flag;
use crate::flow::{Direction, FlowId};
use crate::hop::NO_HOP;
use crate::shard::Shard;
use crate::tables::{Address, Asked, Path, Tables, WanChoice, WanId};
use crate::verdict::Reason;

/// Chooses the WAN of a packet without a flow that has one. `hash` is the flow's.
///
/// # Errors
/// Step for the packet: no WAN is up, or not the one that a policy route names.
pub(super) fn choose<T: Tally>(
    frame: &Frame,
    source: Address,
    hash: u32,
    cx: &mut Cx<'_, T>,
) -> Result<WanId, Step> {
    choice(frame, source, hash, cx).map(|choice| choice.wan).map_err(refusal)
}

/// Step for a packet for which no WAN is chosen, for that reason.
pub(super) fn refusal(reason: Reason) -> Step {
    match reason {
        Reason::RouteMissing => Step::Answer(reason),
        reason => Step::Drop(reason),
    }
}

/// The choice of [`choose`], with its grounds.
///
/// # Errors
/// [`Reason::RouteMissing`] or [`Reason::WanDown`].
pub(super) fn choice<T: Tally>(
    frame: &Frame,
    source: Address,
    hash: u32,
    cx: &mut Cx<'_, T>,
) -> Result<WanChoice, Reason> {
    let is_own = frame.meta.flags & flag::OWN != 0;
    let (tables, shard) = (cx.tables, &*cx.shard);
    let opening = shard.openings.of(&frame.meta);
    let family = opening.map_or(frame.meta.family, |opening| opening.destination().family());
    let hash = tables.wans.spread(source, hash, cx.tally);
    let asked = Asked { family, own_source: is_own.then_some(source), hash };
    let seen = |tally: &mut T| {
        let mut seen = header_of(frame, shard, tables);
        let asked = tables.set_questions.of_routes;
        header::ask_sets_of(&mut seen, asked, frame.meta.received, (shard, tables), tally);
        seen
    };
    tables.wans.choose(asked, seen, cx.tally)
}

/// Header of a packet as policy routes see it, but for its memberships in sets.
fn header_of(frame: &Frame, shard: &Shard, tables: &Tables) -> Header {
    shard.openings.of(&frame.meta).map_or_else(|| header::arrived(frame, tables), |opening| opening.seen)
}

/// The dynamic sets that a packet's addresses are in, of those that policy routes ask for; none of a packet that has its way, or meets no
/// policy route.
pub(crate) fn memberships<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Vec<Membership> {
    let asked = cx.tables.set_questions.of_routes;
    if asked == 0 || frame.meta.hop != NO_HOP || frame.meta.flags & flag::OWN != 0 {
        return Vec::new();
    }
    header::memberships(header_of(frame, cx.shard, cx.tables), asked, frame.meta.received, cx)
}

/// Exit of packets: next hop, and interface.
#[derive(Clone, Copy)]
pub(super) struct Exit {
    pub(super) hop: u32,
    pub(super) interface: PortId,
}

/// Exit of packets to `destination` that leave by a WAN; `None` where there is no such hop.
pub(super) fn exit<T: Tally>(id: WanId, destination: Address, cx: &mut Cx<'_, T>) -> Option<Exit> {
    let wan = cx.tables.wans.get(id)?;
    let hop = match wan.path(destination.family()) {
        Path::None => return None,
        Path::Router(hop) => hop,
        Path::Link => cx.shard.hops.neighbour(cx.tables, wan.interface, destination)?,
    };
    Some(Exit { hop, interface: wan.interface })
}

/// The WAN that packets of a flow leave by in a direction, if the flow has one, and packets of the IP version can leave by it.
pub(super) fn of_flow<T: Tally>(
    id: FlowId,
    direction: Direction,
    family: Family,
    cx: &Cx<'_, T>,
) -> Option<WanId> {
    if cx.tables.wans.is_empty() {
        return None;
    }
    let number = match direction {
        Direction::Original => *cx.shard.flows.wans.get(id)?,
        Direction::Reply => cx.shard.flows.cold(id)?.ingress,
    };
    cx.tables.wans.carrying(cx.tables.interface_numbered(number)?, family)
}

/// True if the flows that left by a WAN are to end.
pub(super) fn is_lost<T>(id: WanId, cx: &Cx<'_, T>) -> bool {
    let wan = cx.tables.wans.get(id);
    wan.is_some_and(|wan| wan.state == WanState::Down && wan.on_failure == OnFailure::Kill)
}
