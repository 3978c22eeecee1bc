//! Fair queueing by flow in a leaf, as FQ-CoDel has it (RFC 8290): deficit round robin, new flows first. Where hosts share before
//! their flows do, they have turns of their own: deficit round robin of hosts, and of flows within each. What a new flow sends is
//! charged to its host, so that a host gains nothing by many flows, old or new.
//!
//! A flow's queue is found by its hash, in sets of eight: as long as a set has room, no two flows, and no two hosts, share one.

use lookup::memory::{MemoryError, list_of};
use wire::Nanos;

use super::dropper::{Aqm, Decision};
use super::kind::Kind;
use super::packets::{List, NONE, Packets, Waiting};
use crate::stage::header;
use crate::tables::{FqSettings, LeafSettings};

#[cfg(test)]
mod tests;

/// Queues of one leaf.
#[derive(Debug)]
pub(super) struct Fq {
    flows: Vec<Flow>,
    /// Bytes of each queue, in a row: the longest is looked for.
    backlogs: Vec<u64>,
    /// Hosts of flows with queues; one where flows share by themselves.
    hosts: Vec<Host>,
    new: Ring,
    /// Hosts in the order of their turns.
    turns: Ring,
}

/// Queue of a flow.
#[derive(Clone, Debug)]
struct Flow {
    list: List,
    /// Hash of the flow that has the queue.
    tag: u32,
    deficit: i64,
    next: u32,
    host: u32,
    aqm: Aqm,
    is_listed: bool,
    /// True if packets of other flows may be among its own: their set was full.
    is_shared: bool,
}

/// Flows of a host.
#[derive(Clone, Debug)]
struct Host {
    /// Hash of the host.
    tag: u32,
    deficit: i64,
    /// Number of its flows that are listed.
    flows: u32,
    /// Its flows that are not new, in the order of their turns.
    old: Ring,
    next: u32,
    is_listed: bool,
}

/// Elements in the order of their turns.
#[derive(Clone, Copy, Debug)]
struct Ring {
    head: u32,
    tail: u32,
}

/// Element of a ring.
trait Linked {
    fn next(&mut self) -> &mut u32;
}

/// Hashes of the flow and the host of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowHash {
    /// Of addresses, protocol and ports.
    pub(crate) flow: u32,
    /// Of the address that hosts are told apart by.
    pub(crate) host: u32,
}

/// Queues that a flow may have, by its hash.
const WAYS: usize = 8;

/// Turns by which a host may be ahead for its new flows.
const AHEAD: i64 = 4;

impl Fq {
    /// Creates empty queues.
    ///
    /// # Errors
    /// The system has not the memory for them.
    pub(super) fn new(fq: &FqSettings, settings: &LeafSettings) -> Result<Fq, MemoryError> {
        let flow = Flow {
            list: List::EMPTY,
            tag: 0,
            deficit: 0,
            next: NONE,
            host: 0,
            aqm: Aqm::new(settings),
            is_listed: false,
            is_shared: false,
        };
        let host = Host { tag: 0, deficit: 0, flows: 0, old: Ring::EMPTY, next: NONE, is_listed: false };
        let count = fq.flows.max(1).next_power_of_two() as usize;
        let hosts = if fq.isolate == policy::model::Isolation::Flow { 1 } else { count };
        Ok(Fq {
            flows: list_of(flow, count)?,
            backlogs: list_of(0, count)?,
            hosts: list_of(host, hosts)?,
            new: Ring::EMPTY,
            turns: Ring::EMPTY,
        })
    }

    /// Puts a packet into the queue of its flow.
    ///
    /// # Errors
    /// There is no room in the tree; the packet comes back.
    pub(super) fn push(
        &mut self,
        fq: &FqSettings,
        hash: FlowHash,
        packet: Waiting,
        packets: &mut Packets,
    ) -> Result<(), Waiting> {
        let quantum = i64::from(fq.quantum);
        let place = self.place(hash);
        let Some(flow) = self.flows.get_mut(place as usize) else { return Err(packet) };
        packets.push(&mut flow.list, packet)?;
        self.backlogs[place as usize] = flow.list.bytes;
        if flow.is_listed {
            flow.is_shared |= flow.tag != hash.flow;
            return Ok(());
        }
        let at = self.host(hash);
        let (flow, host) = (&mut self.flows[place as usize], &mut self.hosts[at as usize]);
        (flow.is_listed, flow.tag, flow.host, flow.deficit) = (true, hash.flow, at, quantum);
        if host.flows == 0 && !host.is_listed {
            (host.tag, host.deficit) = (hash.host, quantum);
        }
        host.flows += 1;
        self.new.push(place, &mut self.flows);
        Ok(())
    }

    /// Active queue management of the flow that a packet comes to.
    pub(super) fn of(&mut self, hash: FlowHash) -> Option<(&mut Aqm, &List)> {
        let place = self.place(hash);
        self.flows.get_mut(place as usize).map(|flow| (&mut flow.aqm, &flow.list))
    }

    /// Takes the packet whose turn it is, with the decision on it. Turns count what the leaf counts with each packet, its overhead.
    pub(super) fn pop(
        &mut self,
        fq: &FqSettings,
        kind: &Kind,
        settings: &LeafSettings,
        now: Nanos,
        packets: &mut Packets,
    ) -> Option<(Waiting, Decision)> {
        loop {
            let (place, is_new) = self.turn(i64::from(fq.quantum))?;
            let flow = self.flows.get_mut(place as usize)?;
            let Some(packet) = packets.pop(&mut flow.list) else {
                self.rest(place, is_new);
                continue;
            };
            self.backlogs[place as usize] = flow.list.bytes;
            let decision = flow.aqm.departs(settings, packet.since, &flow.list, now);
            // Who is dropped takes no turn. A packet without ECN is dropped where the caller cannot mark it.
            let goes = match decision {
                Decision::Keep => true,
                Decision::Signal => settings.ecn && header::is_ecn_capable(&packet.frame),
                Decision::Drop => false,
            };
            if goes {
                let counted = i64::from(kind.counted(packet.length));
                flow.deficit -= counted;
                self.hosts[flow.host as usize].deficit -= counted;
            }
            return Some((packet, decision));
        }
    }

    /// Takes the first packet of the longest queue, for want of room.
    pub(super) fn pop_longest(&mut self, packets: &mut Packets) -> Option<Waiting> {
        let most = self.backlogs.iter().max()?;
        let longest = self.backlogs.iter().position(|bytes| bytes == most)?;
        let list = &mut self.flows.get_mut(longest)?.list;
        let packet = packets.pop(list);
        self.backlogs[longest] = list.bytes;
        packet
    }

    /// The queues.
    pub(super) fn lists_mut(&mut self) -> impl Iterator<Item = &mut List> {
        self.flows.iter_mut().map(|flow| &mut flow.list)
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        self.flows.iter_mut().for_each(|flow| flow.aqm.set_back(span));
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(self.flows.as_slice())
            + size_of_val(self.backlogs.as_slice())
            + size_of_val(self.hosts.as_slice())
    }

    /// The flow whose turn it is, and whether it is a new one.
    fn turn(&mut self, quantum: i64) -> Option<(u32, bool)> {
        // Flows that share by themselves are all of one host, whose turn it always is.
        let has_hosts = self.hosts.len() > 1;
        loop {
            if let Some(flow) = self.flows.get_mut(self.new.head as usize) {
                let place = self.new.head;
                let is_ahead = has_hosts && self.hosts[flow.host as usize].deficit <= -AHEAD * quantum;
                if flow.deficit > 0 && !is_ahead {
                    return Some((place, true));
                }
                if flow.deficit <= 0 {
                    flow.deficit += quantum;
                }
                self.new.pop(&mut self.flows);
                self.make_old(place);
                continue;
            }
            let host = self.hosts.get_mut(self.turns.head as usize)?;
            if has_hosts && host.deficit <= 0 {
                host.deficit += quantum;
                let place = self.turns.pop(&mut self.hosts);
                self.turns.push(place, &mut self.hosts);
                continue;
            }
            let Some(flow) = self.flows.get_mut(host.old.head as usize) else {
                // It has nothing, and its turn has passed.
                host.is_listed = false;
                self.turns.pop(&mut self.hosts);
                continue;
            };
            if flow.deficit <= 0 {
                flow.deficit += quantum;
                let place = host.old.pop(&mut self.flows);
                host.old.push(place, &mut self.flows);
                continue;
            }
            return Some((host.old.head, false));
        }
    }

    /// Puts a flow among the old ones of its host.
    fn make_old(&mut self, place: u32) {
        let at = self.flows[place as usize].host;
        let host = &mut self.hosts[at as usize];
        host.old.push(place, &mut self.flows);
        if !host.is_listed {
            host.is_listed = true;
            self.turns.push(at, &mut self.hosts);
        }
    }

    /// Takes the flow whose turn it is out of its ring, as it has no packets.
    fn rest(&mut self, place: u32, is_new: bool) {
        if is_new {
            self.new.pop(&mut self.flows);
            // A flow that comes back at once must not count as new each time (RFC 8290, section 4.2).
            if self.turns.head != NONE {
                return self.make_old(place);
            }
        } else {
            let at = self.flows[place as usize].host;
            self.hosts[at as usize].old.pop(&mut self.flows);
        }
        let flow = &mut self.flows[place as usize];
        (flow.is_listed, flow.is_shared) = (false, false);
        self.hosts[flow.host as usize].flows -= 1;
    }

    /// Place of a flow: the one that it has, or one without packets, or, where its set is full, another flow's.
    fn place(&self, hash: FlowHash) -> u32 {
        choose(
            &self.flows,
            hash.flow,
            |flow| flow.tag == hash.flow,
            |flow| !flow.is_listed,
            |flow| flow.is_shared,
        )
    }

    /// Place of a host.
    fn host(&self, hash: FlowHash) -> u32 {
        choose(
            &self.hosts,
            hash.host,
            |host| host.tag == hash.host,
            |host| host.flows == 0 && !host.is_listed,
            |_| false,
        )
    }
}

/// Place in the set of a hash: of the element that is the hash's, or else of one that is free, if possible the one that the hash says. Who had
/// to share that one stays there, and keeps his order.
fn choose<T>(
    all: &[T],
    hash: u32,
    is_own: impl Fn(&T) -> bool,
    is_free: impl Fn(&T) -> bool,
    is_shared: impl Fn(&T) -> bool,
) -> u32 {
    let direct = hash as usize & (all.len() - 1);
    // Nearly always.
    if is_own(&all[direct]) {
        return direct as u32;
    }
    let first = direct & !(WAYS - 1);
    let set = &all[first..(first + WAYS).min(all.len())];
    let own = set.iter().position(is_own).map(|way| first + way);
    let free = || set.iter().position(&is_free).map(|way| first + way);
    let place = match own {
        Some(own) => own,
        None if is_free(&all[direct]) || is_shared(&all[direct]) => direct,
        None => free().unwrap_or(direct),
    };
    place as u32
}

impl Linked for Flow {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Linked for Host {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Ring {
    const EMPTY: Ring = Ring { head: NONE, tail: NONE };

    fn push<T: Linked>(&mut self, place: u32, all: &mut [T]) {
        if let Some(one) = all.get_mut(place as usize) {
            *one.next() = NONE;
        }
        match all.get_mut(self.tail as usize) {
            Some(last) => *last.next() = place,
            None => self.head = place,
        }
        self.tail = place;
    }

    /// Takes out the first; [`NONE`] if there is none.
    fn pop<T: Linked>(&mut self, all: &mut [T]) -> u32 {
        let place = self.head;
        if let Some(one) = all.get_mut(place as usize) {
            self.head = *one.next();
        }
        if self.head == NONE {
            self.tail = NONE;
        }
        place
    }
}
