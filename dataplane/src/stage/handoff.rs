//! Selection of the worker for a packet of a flow that `track` does not know, or of a security association of another worker.
//!
//! - A packet of a known flow goes to the flow's owner, as far as the flow steering table knows.
//! - A packet that opens a flow goes to the flow's future owner: for an outside port of source NAT, the worker that
//!   allocates this port, as no other worker knows the mapping; otherwise the worker of the source address, so that mappings,
//!   quotas and limits of one host are exact. Packets of the gateway itself stay on the worker that receives them from Linux,
//!   packets to groups on the worker that receives them.
//! - An outer packet of a tunnel goes, before `decap` has looked at it, to the owner of its security association; the inner packet is a new
//!   packet, and goes on from there as any other.
//! - A fragment goes first to the worker of its datagram, for which all workers compute the same number; there the fragment
//!   gets its ports, and goes on as any packet.

use std::net::IpAddr;

use tally::Tally;
use wire::{Frame, Part};

use super::{Cx, Step, clat, dnat, header};
use crate::flag;
use crate::flow::Member;
use crate::fragment::DatagramKey;
use crate::handoff::{MOST, address, times};
use crate::ppp;
use crate::tables::{OWN_ACCORD, VrfId};
use crate::verdict::Reason;

/// Hands a fragment off to the owner of its datagram; `None` if the owner is this worker.
#[cold]
pub(super) fn to_datagram<T: Tally>(frame: &mut Frame, key: &DatagramKey, cx: &Cx<'_, T>) -> Option<Step> {
    if times(&frame.meta) > 0 || frame.meta.flags & flag::WAITED != 0 {
        return None;
    }
    let member = cx.shard.flows.member()?;
    let home = member.steering.home_of_datagram(key.source, key.destination, key.id, key.protocol);
    (home != member.worker).then(|| hand(frame, home))
}

/// Hands an outer packet off to the owner of its security association, whose window is the only one; `None` if the owner is this worker.
#[inline]
pub(super) fn to_sa<T: Tally>(frame: &mut Frame, spi: u32, cx: &Cx<'_, T>) -> Option<Step> {
    if times(&frame.meta) > 0 {
        return None;
    }
    let member = cx.shard.flows.member()?;
    let owner = member.steering.owner_of_sa(spi);
    (owner != member.worker).then(|| hand(frame, owner))
}

/// Hands a packet off to the owner of the flow with this hash of its key; `None` if no other worker is known to own the flow.
#[inline(never)]
pub(super) fn to_flow<T: Tally>(frame: &mut Frame, hash: u64, cx: &Cx<'_, T>) -> Option<Step> {
    let member = member(frame, cx)?;
    // The last time is for going home.
    if times(&frame.meta) + 1 >= MOST {
        return None;
    }
    let worker = member.steering.find(hash, member.worker)?;
    Some(hand_on(frame, worker))
}

/// Hands a packet that opens a flow off to the flow's future owner; `None` if the owner is this worker.
#[inline(never)]
pub(super) fn to_home<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<Step> {
    let member = member(frame, cx)?;
    if times(&frame.meta) >= MOST || frame.meta.flags & flag::OWN != 0 {
        return None;
    }
    let (own, workers) = (member.worker, member.steering.workers());
    let home = match mapped_port(frame, cx) {
        Some((outside, port)) => cx.tables.nat.owner_of_port(outside, port, workers),
        None => {
            let (source, _) = header::addresses(frame);
            cx.shard.flows.member()?.steering.home_of_source(source.bits)
        }
    };
    (home != own).then(|| hand_on(frame, home))
}

/// The outside address and port of a packet that may be for a mapping of source NAT.
fn mapped_port<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Option<(IpAddr, u16)> {
    let tables = cx.tables;
    let (_, destination) = header::addresses(frame);
    let is_of_vrf = tables.vrf_of(frame.meta.ingress) != VrfId::DEFAULT;
    if is_of_vrf || !tables.nat.is_outside(destination) || !dnat::has_port(frame) {
        return None;
    }
    let port = if frame.meta.flags & flag::QUERY != 0 { frame.meta.sport } else { frame.meta.dport };
    let ip = destination.to_ip();
    // Nobody is let in from outside by what the gateway maps of its own accord.
    let mut pools = tables.nat.pools.iter().zip(&tables.nat.owners).filter(|(_, of)| of.source != OWN_ACCORD);
    let may_be_mapped = pools.any(|(pool, _)| pool.has_port(port) && pool.has(ip));
    // What is forwarded needs no mapping, and is spread over all workers.
    let mut seen = header::of(frame, cx);
    header::ask_sets(&mut seen, tables.set_questions.of_destinations, frame.meta.received, cx);
    let forwarded = tables.nat.destination(&seen, cx.tally);
    let forwarded =
        forwarded.filter(|(_, rule)| !clat::leaves_alone(&rule.action, destination, tables, cx.tally));
    if !may_be_mapped || forwarded.is_some() {
        return None;
    }
    Some((ip, port))
}

/// Returns this worker's place among the workers; `None` if it is the only one, or the frame cannot be another worker's.
fn member<'a, T>(frame: &Frame, cx: &'a Cx<'_, T>) -> Option<&'a Member> {
    let stays = flag::TO_GROUP | flag::WAITED;
    cx.shard.flows.member().filter(|_| frame.meta.flags & stays == 0)
}

/// Hands a packet off; a fragment with the ports of its datagram's first fragment.
fn hand_on(frame: &mut Frame, worker: u16) -> Step {
    if frame.meta.part != Part::Whole {
        frame.meta.flags |= flag::RESUMED;
    }
    hand(frame, worker)
}

/// Hands a control packet of a PPP session off to the worker that has the sessions; `None` if that is this worker.
#[cold]
pub(super) fn to_sessions<T: Tally>(frame: &mut Frame, cx: &Cx<'_, T>) -> Option<Step> {
    if times(&frame.meta) > 0 {
        return None;
    }
    let member = cx.shard.flows.member()?;
    (member.worker != ppp::OWNER).then(|| hand(frame, ppp::OWNER))
}

fn hand(frame: &mut Frame, worker: u16) -> Step {
    address(&mut frame.meta, worker);
    Step::Hold(Reason::HandedOff)
}
