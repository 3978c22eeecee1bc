//! Which worker is it for, where there are several? What `track` asks where it knows no flow.
//!
//! - A packet of a flow goes to the worker that has it, as far as the steering table knows.
//! - A packet that opens one goes to its *home*: of what is for a mapping of source NAT, the worker that hands out that
//!   port, as nobody else knows the mapping; else the worker of its source, so that mappings, quotas and bounds of one host
//!   are exact. What the gateway itself sends begins where Linux gives it, packets to groups where they come in.
//! - A fragment goes to the worker of its datagram first, of which each worker thinks the same; there it gets to know its
//!   ports, and goes on as any packet.

use tally::Tally;
use wire::{Family, Frame, Part};

use super::parse::flag;
use super::{Cx, Step, dnat, header};
use crate::flow::Member;
use crate::fragment::DatagramKey;
use crate::handoff::{MOST, address, times};
use crate::nat::Share;
use crate::tables::{Address, OWN_ACCORD};
use crate::verdict::Reason;

/// To the worker that puts the fragments of this datagram in order, unless that is this one.
#[cold]
pub(super) fn to_datagram<T: Tally>(frame: &mut Frame, key: &DatagramKey, cx: &Cx<'_, T>) -> Option<Step> {
    if times(&frame.meta) > 0 || frame.meta.flags & flag::WAITED != 0 {
        return None;
    }
    let member = cx.shard.flows.member()?;
    let address = |bits| Address { bits, v6: key.family == Family::V6 };
    let (source, destination) = (address(key.source), address(key.destination));
    let home = member.steering.home_of_datagram(source, destination, key.id, key.protocol);
    (home != member.worker).then(|| hand(frame, home))
}

/// To the worker that has the flow of packets whose key has this hash, if one is known to.
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

/// To the worker where the flow that it opens begins, unless that is this one.
#[inline(never)]
pub(super) fn to_home<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<Step> {
    let member = member(frame, cx)?;
    if times(&frame.meta) >= MOST || frame.meta.flags & flag::OWN != 0 {
        return None;
    }
    let (own, workers) = (member.worker, member.steering.workers());
    let home = match mapped_port(frame, cx) {
        Some(port) => Share::owner(port, workers),
        None => {
            let (source, _) = header::addresses(frame);
            cx.shard.flows.member()?.steering.home_of_source(source)
        }
    };
    (home != own).then(|| hand_on(frame, home))
}

/// The outside port of a packet that may be for a mapping of source NAT.
fn mapped_port<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Option<u16> {
    let tables = cx.tables;
    let (_, destination) = header::addresses(frame);
    if !tables.nat.is_outside(destination) || !dnat::has_port(frame) {
        return None;
    }
    let port = if frame.meta.flags & flag::QUERY != 0 { frame.meta.sport } else { frame.meta.dport };
    let ip = destination.to_ip();
    // Nobody is let in from outside by what the gateway maps of its own accord.
    let mut pools = tables.nat.pools.iter().zip(&tables.nat.owners).filter(|(_, of)| of.source != OWN_ACCORD);
    let may_be_mapped = pools.any(|(pool, _)| pool.has_port(port) && pool.has(ip));
    // What is forwarded needs no mapping, and is spread over all workers.
    if !may_be_mapped || tables.nat.destination(&header::of(frame, cx), cx.tally).is_some() {
        return None;
    }
    Some(port)
}

/// This worker, where there are others, and the frame may be theirs.
fn member<'a, T>(frame: &Frame, cx: &'a Cx<'_, T>) -> Option<&'a Member> {
    let stays = flag::TO_GROUP | flag::WAITED;
    cx.shard.flows.member().filter(|_| frame.meta.flags & stays == 0)
}

/// Hands over a packet; of a fragment it is known what its first one said.
fn hand_on(frame: &mut Frame, worker: u16) -> Step {
    if frame.meta.part != Part::Whole {
        frame.meta.flags |= flag::RESUMED;
    }
    hand(frame, worker)
}

fn hand(frame: &mut Frame, worker: u16) -> Step {
    address(&mut frame.meta, worker);
    Step::Hold(Reason::HandedOff)
}
