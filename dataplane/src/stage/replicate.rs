//! `replicate`: which interfaces want a copy?
//!
//! Finds the multicast route of a packet to a group, and copies the packet for each interface that the route leads to, as `ipmr` of Linux
//! does: by the interface that the route comes from alone, and where the time to live is above the threshold. The frame itself is the first
//! copy; the others go through the stages from `track` on by themselves, behind the frame. So each meets the rules, the class, the
//! queue of its own interface. No copy is tracked or translated.
//!
//! A packet without a route is given to Linux, where its interface is one of a multicast router: as a bare header, since all it is for is to have the
//! router's daemon asked for a route. Other packets are left to `route`, which drops them. The group's messages of membership
//! (IGMP) go to the gateway itself.

use policy::model::Mode;
use tally::{Op, Region, Tally};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Family, Frame, Meta, PortId, ipv4, ipv6};

use super::route::{check_source, is_ours, is_search, ttl};
use super::{About, Cx, Packets, Stage, Step, header};
use crate::flag;
use crate::flow::Key;
use crate::hop::{LOCAL_HOP, NO_HOP};
use crate::tables::{Address, LOCAL, MulticastRoute, Tables};
use crate::tunnel;
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replicate;

impl Stage for Replicate {
    const ABOUT: About = About {
        name: "replicate",
        asks: "Which interfaces want a copy?",
        reads: Fields::SEEN.and(Fields::RECEIVED).and(Fields::HOP).and(Fields::EGRESS),
        writes: Fields::PACKET.and(Fields::HEADERS).and(Fields::HOP).and(Fields::EGRESS),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.multicast.is_unused() {
            Packets::None
        } else if tables.mode == Mode::Stateful {
            Packets::First
        } else {
            Packets::Every
        }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::TO_GROUP != 0 && frame.meta.hop == NO_HOP
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Addresses, 16; the group's scope and the protocol, 8.
        cx.tally.instructions(24);
        cx.tally.execute(Op::Branch, 8);
        let (source, group) = header::addresses(frame);
        if !may_be_routed(frame, group, cx.tables) {
            return Step::Next;
        }
        let newer = cx.shard.multicast.clone();
        let routes = newer.as_deref().unwrap_or(&cx.tables.multicast);
        let Some(route) = routes.find(source, group, cx.tally) else {
            return ask_for_route(frame, source, group, cx);
        };
        forward(frame, source, route, cx).unwrap_or_else(|step| step)
    }

    fn program(_: &Tables) -> u32 {
        // This stage, the look-up and the copy, which is a loop over words.
        190
    }
}

/// True for a packet to a group that this stage takes, or a copy of one: there is no flow to remember of either.
#[cold]
pub(super) fn is_replicated<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> bool {
    !cx.tables.multicast.is_unused() && may_be_routed(frame, header::addresses(frame).1, cx.tables)
}

/// True for a packet that routers forward: its group is of more than a link, and it is none of the messages by which hosts join groups
/// (IGMPv2 sends reports to the group itself), nor a search for the gateway's own services.
pub(super) fn may_be_routed(frame: &Frame, group: Address, tables: &Tables) -> bool {
    !is_ours(group)
        && frame.meta.protocol != Protocol::IGMP.0
        && !is_search(frame.meta.ingress, group, tables)
}

/// Copies a packet to the interfaces that its route leads to.
///
/// # Errors
/// Step of a packet that does not go on.
fn forward<T: Tally>(
    frame: &mut Frame,
    source: Address,
    route: &MulticastRoute,
    cx: &mut Cx<'_, T>,
) -> Result<Step, Step> {
    // The interface compared, 3; the time to live, 6; the count, 12.
    cx.tally.instructions(21);
    cx.tally.execute(Op::Branch, 6);
    if frame.meta.ingress != route.from {
        return Err(Step::Drop(Reason::MulticastInterface));
    }
    check_source(frame.meta.ingress, source, cx)?;
    if route.exits.is_empty() {
        return Err(Step::Drop(Reason::MulticastUnrouted));
    }
    let ttl = ttl(frame);
    let mut wanted = route.exits.iter().filter(|exit| ttl > exit.threshold).map(|exit| exit.interface);
    if frame.meta.flags & flag::WAITED != 0 {
        // A copy that has waited for the way of its tunnel.
        let egress = frame.meta.egress;
        let egress = wanted.find(|interface| *interface == egress);
        lead(frame, egress.ok_or(Step::Drop(Reason::MulticastUnrouted))?, cx)?;
        return Ok(Step::Next);
    }
    let first = wanted.next().ok_or(Step::Drop(Reason::MulticastTtl))?;
    cx.tally.atomic(Region::Counter, 0, 16);
    route.count.count(u64::from(frame.meta.end.saturating_sub(frame.meta.network)));
    // The last in front of the others, so that they go on in the order of the route, and before what else has been released.
    for interface in wanted.rev() {
        copy(frame, interface, cx);
    }
    lead(frame, first, cx)?;
    Ok(Step::Next)
}

/// Has a packet leave by an interface, to the group.
fn lead<T: Tally>(frame: &mut Frame, interface: PortId, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let hop = cx.shard.hops.group(interface).ok_or(Step::Drop(Reason::NeighbourUnknown))?;
    (frame.meta.hop, frame.meta.egress) = (hop, interface);
    Ok(())
}

/// Copies a packet for an interface. Where there is no slot, the copy is lost, and counted.
fn copy<T: Tally>(frame: &Frame, interface: PortId, cx: &mut Cx<'_, T>) {
    // A slot, 8; metadata, 32; of the bytes a load and a store of each word.
    cx.tally.instructions(40 + frame.len() as u32 / 2);
    cx.tally.execute(Op::Branch, 8 + frame.len() as u32 / 16);
    cx.tally.read(Region::Frame, 0, frame.len() as u32);
    cx.tally.write(Region::Frame, 0, frame.len() as u32);
    cx.shard.counters.copied += 1;
    let has_room = cx.shard.released.len() < cx.shard.released.capacity();
    let slot = if has_room { cx.pool.take() } else { None };
    let Some(mut copied) = slot else { return cx.shard.counters.count_copy_lost() };
    if !copied.fill(frame.bytes()) {
        cx.pool.put(copied);
        return cx.shard.counters.count_copy_lost();
    }
    copied.meta = Meta { opening: Meta::NO_OPENING, ..frame.meta.clone() };
    // A fragment has its ports.
    copied.meta.flags = copied.meta.flags & !flag::OPENS | flag::RESUMED;
    copied.meta.tunnel |= tunnel::COPY;
    if let Err(step) = lead(&mut copied, interface, cx) {
        step.settle(&mut copied);
    }
    cx.shard.counters.held += 1;
    cx.shard.released.push_front(copied);
}

/// Gives the header of a packet without a route to Linux, where its interface is one of a multicast router.
fn ask_for_route<T: Tally>(frame: &mut Frame, source: Address, group: Address, cx: &mut Cx<'_, T>) -> Step {
    // The interface by place and bound, 5; a hash, 16; the place and its moment, 8.
    cx.tally.instructions(29);
    cx.tally.execute(Op::Branch, 6);
    if !cx.tables.punts_groups(frame.meta.ingress) || frame.meta.flags & flag::WAITED != 0 {
        return Step::Next;
    }
    if let Err(step) = check_source(frame.meta.ingress, source, cx) {
        return step;
    }
    let ends = if group.v6 {
        Key::v6(source.bits, group.bits, 0, 0, 0)
    } else {
        Key::v4(source.bits as u32, group.bits as u32, 0, 0, 0)
    };
    let hash = cx.shard.flows.hash(&ends, cx.tally);
    if !cx.shard.misses.admits(hash, frame.meta.received) || !behead(frame) {
        return Step::Next;
    }
    (frame.meta.hop, frame.meta.egress) = (LOCAL_HOP, LOCAL);
    Step::Deliver
}

/// Reduces a packet to its IP header. `false` if it has none that could be written.
fn behead(frame: &mut Frame) -> bool {
    let network = usize::from(frame.meta.network);
    let is_v4 = frame.meta.family == Family::V4;
    let Some(packet) = frame.bytes_mut().get_mut(network..) else { return false };
    let len = if is_v4 {
        let Some(mut header) = ipv4::HeaderMut::of(packet) else { return false };
        let len = header.view().header_len();
        header.set_total_len(len as u16);
        header.set_flags_and_offset(0);
        let Some(bytes) = packet.get_mut(..len) else { return false };
        ipv4::fill_checksum(bytes);
        len
    } else {
        let Some(mut header) = ipv6::HeaderMut::of(packet) else { return false };
        header.set_payload_len(0);
        header.set_next_header(Protocol::NO_NEXT);
        ipv6::HEADER_LEN
    };
    frame.truncate(network + len);
    (frame.meta.transport, frame.meta.end) = ((network + len) as u16, (network + len) as u16);
    true
}
