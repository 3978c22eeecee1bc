//! The way of a tunnel's outer packets: they are routed again, to the peer.

use tally::{Op, Tally};
use wire::PortId;

use super::{Cx, Step};
use crate::hop::Wanted;
use crate::tables::{Address, Target};
use crate::verdict::Reason;

/// Checks that a packet can leave by the tunnel whose interface is `egress`, before a byte of it is changed.
///
/// # Errors
/// No route leads to the peer, or its neighbour is not known yet: the packet waits as it was received.
#[inline(never)]
pub(super) fn ready<T: Tally>(egress: PortId, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let way = way(egress, cx)?;
    match cx.shard.hops.get(way.hop).is_some_and(|hop| hop.is_known()) {
        true => Ok(()),
        false => Err(Step::Hold(Reason::NeighbourWaits)),
    }
}

/// The neighbour that packets for the tunnel whose interface is `egress` wait for.
pub(super) fn awaited<T: Tally>(egress: PortId, cx: &mut Cx<'_, T>) -> Option<Wanted> {
    let Way { hop, link, remote } = way(egress, cx).ok()?;
    let on_link = link.map(|interface| Wanted { interface, address: remote });
    cx.shard.hops.owner(hop).or(on_link)
}

/// Way of a tunnel's outer packets.
pub(super) struct Way {
    /// Hop, known or not.
    pub(super) hop: u32,
    /// Interface of a peer that is on the link itself.
    link: Option<PortId>,
    remote: Address,
}

/// Routes the outer packets of the tunnel whose interface is `egress`.
///
/// # Errors
/// No route leads to the peer, or only one into a tunnel.
pub(super) fn way<T: Tally>(egress: PortId, cx: &mut Cx<'_, T>) -> Result<Way, Step> {
    // The tunnel by interface and place, 6; the target's kind, 3; its hop, 4; is it a tunnel, 3.
    cx.tally.instructions(16);
    cx.tally.execute(Op::Branch, 7);
    let missing = Step::Answer(Reason::RouteMissing);
    let turns_back = Step::Drop(Reason::TunnelLoop);
    let tables = cx.tables;
    let out = tables.tunnel_of(egress).and_then(|number| cx.shard.sas.outbound(number)).ok_or(missing)?;
    let (remote, spi) = (out.peer.address, out.spi);
    let (hop, link) = match tables.route(remote, cx.tally) {
        Some(Target::Link(link)) if tables.tunnel_of(link).is_some() => return Err(turns_back),
        Some(Target::Link(link)) => (cx.shard.hops.neighbour(tables, link, remote), Some(link)),
        // All packets of one security association take one way, so that they stay in order.
        Some(Target::Gateways { first, count }) => {
            let hop = tables.way(first, count, spi.wrapping_mul(0x9e37_79b9));
            let leads = |hop: &u32| {
                let router = tables.gateways.get(*hop as usize);
                router.is_some_and(|router| tables.tunnel_of(router.interface).is_none())
            };
            (Some(hop.filter(leads).ok_or(turns_back)?), None)
        }
        _ => return Err(missing),
    };
    Ok(Way { hop: hop.ok_or(Step::Drop(Reason::NeighbourUnknown))?, link, remote })
}
