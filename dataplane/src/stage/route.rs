//! `route`: by which interface and next hop does it leave?
//!
//! Longest-prefix match for a flow's first packet, and for every packet where the policy is stateless; later
//! packets of a flow remember. Checks that the source is at home behind the interface it came in by (unicast
//! reverse path forwarding, RFC 3704), the time to live, and the size. Changes no byte.

use policy::model::SourceCheck;
use tally::{Region, Tally};
use wire::{Family, Frame, PortId, ipv4, ipv6};

use super::parse::flag;
use super::{Cx, Stage, Step, header};
use crate::hop::{LOCAL_HOP, NO_HOP};
use crate::tables::{Address, LOCAL, Target};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Route;

impl<T: Tally> Stage<T> for Route {
    #[inline(always)]
    fn step(&mut self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        if frame.meta.hop == NO_HOP {
            if let Err(step) = find(frame, cx) {
                return step;
            }
        }
        if frame.meta.hop == LOCAL_HOP {
            return Step::Next;
        }
        fits(frame, cx)
    }
}

/// Checks time to live and size against the hop.
#[inline(always)]
fn fits<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or(&[]);
    let ttl = if frame.meta.family == Family::V4 {
        ipv4::Header::of(packet).map_or(0, ipv4::Header::ttl)
    } else {
        ipv6::Header::of(packet).map_or(0, ipv6::Header::hop_limit)
    };
    // Load and compare the time to live, load the hop, compare sizes.
    cx.tally.instructions(9);
    cx.tally.read(Region::HopTable, frame.meta.hop as usize * 32, 32);
    if ttl <= 1 {
        return Step::Answer(Reason::TtlExpired);
    }
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return Step::Drop(Reason::NeighbourUnknown) };
    frame.meta.egress = hop.interface;
    if frame.meta.end - frame.meta.network > hop.mtu {
        if frame.meta.flags & flag::DONT_FRAGMENT != 0 {
            return Step::Answer(Reason::PacketTooBig);
        }
        frame.meta.flags |= flag::CUT;
    }
    Step::Next
}

/// Finds the hop, and checks the source.
fn find<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let (source, mut destination) = header::addresses(frame);
    let mut hash = 0;
    if frame.meta.flags & flag::OPENS != 0 {
        destination = cx.shard.pending.destination;
        hash = (cx.shard.pending.hash >> 32) as u32;
    }
    // Two look-ups' set-up, kinds of addresses, the choice among targets.
    cx.tally.instructions(24);
    if frame.meta.flags & flag::TO_GROUP != 0 {
        if !is_ours(destination) {
            return Err(Step::Drop(Reason::MulticastUnrouted));
        }
        to_self(frame);
        return check_source(frame, source, cx);
    }
    check_source(frame, source, cx)?;
    if is_link_local(destination) {
        // Link-local addresses are not in the policy; on its own link the gateway is who is meant.
        to_self(frame);
        return Ok(());
    }
    let target = cx.tables.route(destination, cx.tally).ok_or(Step::Answer(Reason::RouteMissing))?;
    let group = frame.meta.flags & flag::GROUP != 0;
    if group && !matches!(target, Target::Broadcast(_)) {
        return Err(Step::Drop(Reason::LinkBroadcast));
    }
    let hop = match target {
        Target::Local => {
            to_self(frame);
            return Ok(());
        }
        Target::Broadcast(link) if link == frame.meta.ingress => {
            frame.meta.flags |= flag::TO_GROUP;
            to_self(frame);
            return Ok(());
        }
        Target::Broadcast(_) => return Err(Step::Drop(Reason::BroadcastDirected)),
        Target::Blackhole => return Err(Step::Drop(Reason::RouteBlackhole)),
        Target::Unreachable => return Err(Step::Answer(Reason::RouteUnreachable)),
        Target::Link(link) => cx.shard.hops.neighbour(cx.tables, link, destination),
        Target::Gateways { first, count: 1 } => cx.tables.way(first, 1, 0),
        Target::Gateways { first, count } => {
            let hash = if hash == 0 { spread(source, destination, frame) } else { hash };
            cx.tables.way(first, count, hash)
        }
    };
    if is_link_local(source) {
        return Err(Step::Drop(Reason::LinkLocal));
    }
    frame.meta.hop = hop.ok_or(Step::Drop(Reason::NeighbourUnknown))?;
    frame.meta.egress =
        cx.shard.hops.get(frame.meta.hop).ok_or(Step::Drop(Reason::NeighbourUnknown))?.interface;
    Ok(())
}

/// The hop that the packets of a flow which come back leave by: found at the first of them.
pub(super) fn back<T: Tally>(
    frame: &mut Frame,
    destination: Address,
    hash: u64,
    cx: &mut Cx<'_, T>,
) -> Result<u32, Reason> {
    match cx.tables.route(destination, cx.tally) {
        Some(Target::Link(link)) => {
            cx.shard.hops.neighbour(cx.tables, link, destination).ok_or(Reason::NeighbourUnknown)
        }
        Some(Target::Gateways { first, count }) => {
            cx.tables.way(first, count, (hash >> 32) as u32).ok_or(Reason::RouteMissing)
        }
        Some(Target::Local) => {
            to_self(frame);
            Ok(LOCAL_HOP)
        }
        _ => Err(Reason::RouteMissing),
    }
}

fn to_self(frame: &mut Frame) {
    frame.meta.hop = LOCAL_HOP;
    frame.meta.egress = LOCAL;
}

/// Whether the source is at home behind the interface that the packet came in by.
fn check_source<T: Tally>(frame: &Frame, source: Address, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let Some(interface) = cx.tables.interface(frame.meta.ingress) else { return Ok(()) };
    if interface.source_check == SourceCheck::Off || source.bits == 0 || is_link_local(source) {
        return Ok(());
    }
    let spoofed = Err(Step::Drop(Reason::SourceSpoofed));
    match cx.tables.route(source, cx.tally) {
        // The gateway's own address, or a network's broadcast address, as source.
        Some(Target::Local | Target::Broadcast(_)) => spoofed,
        Some(target) if interface.source_check == SourceCheck::Strict => {
            if cx.tables.leads_by(target, frame.meta.ingress) { Ok(()) } else { spoofed }
        }
        Some(Target::Blackhole | Target::Unreachable) | None => spoofed,
        Some(_) => Ok(()),
    }
}

/// Link-local groups, and what is sent to everybody on the link.
fn is_ours(group: Address) -> bool {
    if group.v6 {
        // RFC 4291, section 2.7: scopes 1 and 2, interface and link.
        matches!(group.bits >> 112 & 0xf, 1 | 2)
    } else {
        let bits = group.bits as u32;
        // RFC 5771, section 4: 224.0.0.0/24 is never routed.
        bits == u32::MAX || bits >> 8 == 0x00e0_0000
    }
}

/// 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291).
fn is_link_local(address: Address) -> bool {
    if address.v6 { address.bits >> 118 == 0x3fa } else { address.bits >> 16 == 0xa9fe }
}

/// Spreads flows over next hops where no flow is tracked: both ends mixed, so that packets of one flow take
/// one way.
fn spread(source: Address, destination: Address, frame: &Frame) -> u32 {
    let fold = |bits: u128| (bits as u64) ^ (bits >> 64) as u64;
    let ports = u64::from(frame.meta.sport) << 16 | u64::from(frame.meta.dport);
    let mixed = (fold(source.bits) ^ ports.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ fold(destination.bits).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

/// The interface at a place, for the tests of realms.
pub(super) fn realm<T: Tally>(id: PortId, cx: &Cx<'_, T>) -> u16 {
    cx.tables.interface(id).map_or(0, |interface| interface.realm)
}
