//! The way of a tunnel's outer packets: they are routed again, to the peer.

use lookup::classify::Header;
use tally::{Op, Tally};
use wire::PortId;

use super::{Cx, Step, wan};
use crate::hop::{Wanted, leaves};
use crate::sa::Way;
use crate::tables::{Asked, Target, VrfId};
use crate::verdict::Reason;

/// Checks that a packet can leave by the tunnel whose interface is `egress`, before a byte of it is changed. One that no security association
/// carries need not wait: `encap` drops it, and knows what it has become by then.
///
/// # Errors
/// No route leads to the peer, or its neighbour is not known yet: the packet waits as it was received.
#[inline]
pub(super) fn ready<T: Tally>(egress: PortId, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let way = match way(egress, cx) {
        Err(Step::Drop(Reason::SaMissing)) => return Ok(()),
        way => way?,
    };
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

/// Way of the outer packets of the tunnel whose interface is `egress`: as it was routed last, or anew.
///
/// # Errors
/// No route leads to the peer, or only one into a tunnel; the tunnel has no security association out, or the peer's address is not known.
#[inline]
pub(super) fn way<T: Tally>(egress: PortId, cx: &mut Cx<'_, T>) -> Result<Way, Step> {
    // The tunnel by interface and place, 6; its way, and is it to where the peer is, 6.
    cx.tally.instructions(12);
    cx.tally.execute(Op::Branch, 4);
    let tunnel = cx.tables.tunnel_of(egress).ok_or(MISSING)?;
    match cx.shard.sas.outbound(tunnel).ok_or(WITHOUT)?.way() {
        Some(way) => Ok(way),
        None => routed(tunnel, cx),
    }
}

/// Verdict on a packet for a peer that no route leads to.
const MISSING: Step = Step::Answer(Reason::RouteMissing);

/// Verdict on a packet for a tunnel that has no security association out.
const WITHOUT: Step = Step::Drop(Reason::SaMissing);

/// Verdict on a packet for a peer that has not said yet where it is.
const NOWHERE: Step = Step::Drop(Reason::TunnelPeerUnknown);

/// Routes the outer packets of the tunnel of that number, and notes their way. What waits is routed again: its neighbour has no number yet.
#[inline(never)]
fn routed<T: Tally>(tunnel: u16, cx: &mut Cx<'_, T>) -> Result<Way, Step> {
    // The target's kind, 3; its hop, 4; is it a tunnel, 3; noted, 3.
    cx.tally.instructions(13);
    cx.tally.execute(Op::Branch, 4);
    let turns_back = Step::Drop(Reason::TunnelLoop);
    let tables = cx.tables;
    let out = cx.shard.sas.outbound(tunnel).ok_or(WITHOUT)?;
    if !out.peer.is_known() {
        return Err(NOWHERE);
    }
    let (remote, spi) = (out.peer.address, out.spi);
    let spread = spi.wrapping_mul(0x9e37_79b9);
    let (hop, link) = match tables.route(VrfId::DEFAULT, remote, cx.tally).copied() {
        Some(Target::Link(link)) if tables.tunnel_of(link).is_some() => return Err(turns_back),
        Some(Target::Link(link)) => (cx.shard.hops.neighbour(tables, link, remote), Some(link)),
        // All packets of one security association take one way, so that they stay in order.
        Some(Target::Gateways { first, count }) => {
            let hop = tables.way(first, count, spread, cx.tally);
            let leads = |hop: &u32| {
                let router = tables.gateways.get(*hop as usize);
                router.is_some_and(|router| tables.tunnel_of(router.interface).is_none())
            };
            (Some(hop.filter(leads).ok_or(turns_back)?), None)
        }
        // By the WAN that has the tunnel's own address: the peer would not take its packets from another.
        Some(Target::Wans) => {
            let local = tables.tunnels.list.get(usize::from(tunnel)).map(|tunnel| tunnel.local);
            let asked = Asked { family: remote.family(), own_source: local, hash: spread };
            let choice = tables.wans.choose(asked, |_| Header::default(), cx.tally).map_err(|_| MISSING)?;
            let exit = wan::exit(choice.wan, remote, cx).ok_or(MISSING)?;
            (Some(exit.hop), Some(exit.interface))
        }
        _ => return Err(MISSING),
    };
    let way = Way { hop: hop.ok_or(Step::Drop(Reason::NeighbourUnknown))?, link, remote };
    if leaves(way.hop) {
        cx.shard.sas.note_way(tunnel, way);
    }
    Ok(way)
}
