//! The VRF in whose routes a packet's way is looked for.
//!
//! That of the interface that it came in by; but a port forward may lead into another VRF, and a packet to the outside endpoint of a mapping
//! goes to the VRF of its host. What comes back on a flow goes to the VRF of its first packet, by whatever it comes: so answers find the
//! way back across a route leak.

use tally::Tally;
use wire::{Frame, PortId};

use super::Cx;
use crate::flow::{Direction, FlowId};
use crate::nat::MappingId;
use crate::opening::Opening;
use crate::shard::NOTHING;
use crate::tables::vrf::OWN_CT_ZONES;
use crate::tables::{Address, LOCAL, NO_NUMBER, Tables, VrfId, VrfNumber};

/// The VRF in whose routes a packet that no flow remembers is looked up.
#[inline(always)]
pub(crate) fn of_packet<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> VrfId {
    if cx.tables.vrfs.is_empty() {
        return VrfId::DEFAULT;
    }
    match cx.shard.openings.of(&frame.meta) {
        Some(opening) => of_opening(frame.meta.ingress, opening, cx),
        None => cx.tables.vrf_of_frame(frame),
    }
}

/// The VRF in whose routes the first packet of a flow is looked up.
pub(super) fn of_opening<T: Tally>(ingress: PortId, opening: &Opening, cx: &Cx<'_, T>) -> VrfId {
    if cx.tables.vrfs.is_empty() {
        return VrfId::DEFAULT;
    }
    // Places are counted from 1.
    let forward = usize::from(opening.dnat).checked_sub(1);
    let led = led(forward, opening.inward, cx);
    led.unwrap_or_else(|| began(ingress, opening.key.ct_zone(), cx.tables))
}

/// Number of the VRF that the first packet of a flow came from.
pub(super) fn of_source<T: Tally>(ingress: PortId, opening: &Opening, cx: &Cx<'_, T>) -> VrfNumber {
    if cx.tables.vrfs.is_empty() {
        return VrfNumber::DEFAULT;
    }
    cx.tables.vrf_number(began(ingress, opening.key.ct_zone(), cx.tables))
}

/// Destination of packets, and the VRF in whose routes it is looked up.
#[derive(Clone, Copy)]
pub(super) struct Towards {
    pub(super) vrf: VrfId,
    pub(super) address: Address,
}

/// The destination of the packets of a direction of a flow, in their VRF.
pub(super) fn towards<T: Tally>(
    id: FlowId,
    direction: Direction,
    address: Address,
    cx: &Cx<'_, T>,
) -> Towards {
    Towards { vrf: of_flow(id, direction, cx), address }
}

/// The VRF in whose routes the packets of a direction of a flow are looked up.
pub(super) fn of_flow<T: Tally>(id: FlowId, direction: Direction, cx: &Cx<'_, T>) -> VrfId {
    if cx.tables.vrfs.is_empty() {
        return VrfId::DEFAULT;
    }
    let (Some(flow), Some(cold)) = (cx.shard.flows.flow(id), cx.shard.flows.cold(id)) else {
        return VrfId::DEFAULT;
    };
    let began = || {
        let ingress = cx.tables.interface_numbered(cold.ingress).unwrap_or(LOCAL);
        began(ingress, flow.original().ct_zone(), cx.tables)
    };
    if direction == Direction::Reply {
        return began();
    }
    let forward = if cold.dnat == NO_NUMBER { None } else { cx.tables.destination_numbered(cold.dnat) };
    let inward = (cold.inward != NOTHING).then_some(MappingId(cold.inward));
    led(forward.map(usize::from), inward, cx).unwrap_or_else(began)
}

/// The VRF of packets that came in by an interface, in that conntrack zone.
fn began(ingress: PortId, ct_zone: u16, tables: &Tables) -> VrfId {
    if ingress == LOCAL { tables.vrf_of_own(ct_zone).unwrap_or_default() } else { tables.vrf_of(ingress) }
}

/// The VRF that a destination translation, by place, or a mapping leads to.
fn led<T: Tally>(forward: Option<usize>, inward: Option<MappingId>, cx: &Cx<'_, T>) -> Option<VrfId> {
    let forward = forward.and_then(|place| cx.tables.nat.destinations.get(place));
    if let Some(vrf) = forward.and_then(|rule| rule.action.vrf) {
        return Some(vrf);
    }
    let inside = cx.shard.mappings.get(inward?)?.inside;
    cx.tables.vrf_numbered(inside.vrf)
}

/// True if a conntrack zone is that of interfaces in another VRF than a packet came from.
pub(super) fn is_of_another<T: Tally>(frame: &Frame, ct_zone: u16, cx: &Cx<'_, T>) -> bool {
    let tables = cx.tables;
    if tables.vrfs.is_empty() {
        return false;
    }
    let vrf = if ct_zone >= OWN_CT_ZONES {
        tables.vrf_of_own(ct_zone)
    } else {
        let place = tables.interfaces.iter().position(|interface| interface.ct_zone == ct_zone);
        place.map(|place| tables.vrf_of(PortId(place as u16)))
    };
    vrf.is_some_and(|vrf| vrf != tables.vrf_of_frame(frame))
}

/// Conntrack zone that a packet arrives in.
#[inline(always)]
pub(super) fn ct_zone<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> u16 {
    cx.tables.ct_zone(frame.meta.ingress, cx.tables.vrf_of_frame(frame))
}
