//! Fair queueing by flow in a leaf, as FQ-CoDel has it (RFC 8290): deficit round robin, new flows first; hosts may share before
//! their flows do, as in CAKE: a flow's turn is then divided by the number of its host's flows.

use wire::Nanos;

use super::dropper::{Aqm, Decision};
use super::packets::{List, NONE, Packets, Waiting};
use crate::tables::{FqSettings, LeafSettings};

/// Queues of one leaf.
#[derive(Debug)]
pub(super) struct Fq {
    flows: Vec<Flow>,
    /// Bytes of each queue, in a row: the longest is looked for.
    backlogs: Vec<u64>,
    /// Number of flows with packets, by the hash of their host.
    hosts: Vec<u16>,
    new: Ring,
    old: Ring,
}

/// Queue of the flows of one hash.
#[derive(Clone, Debug)]
struct Flow {
    list: List,
    deficit: i64,
    next: u32,
    host: u32,
    aqm: Aqm,
    is_listed: bool,
}

/// Flows in the order of their turns.
#[derive(Clone, Copy, Debug)]
struct Ring {
    head: u32,
    tail: u32,
}

/// Hashes of the flow and the host of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowHash {
    /// Of addresses, protocol and ports.
    pub(crate) flow: u32,
    /// Of the address that hosts are told apart by.
    pub(crate) host: u32,
}

impl Fq {
    /// Creates empty queues.
    pub(super) fn new(fq: &FqSettings, settings: &LeafSettings) -> Fq {
        let flow = Flow {
            list: List::EMPTY,
            deficit: 0,
            next: NONE,
            host: 0,
            aqm: Aqm::new(settings),
            is_listed: false,
        };
        let count = fq.flows.max(1).next_power_of_two() as usize;
        let empty = Ring { head: NONE, tail: NONE };
        Fq {
            flows: vec![flow; count],
            backlogs: vec![0; count],
            hosts: vec![0; count],
            new: empty,
            old: empty,
        }
    }

    /// Puts a packet into the queue of its flow.
    ///
    /// # Errors
    /// There is no room in the tree; the packet comes back.
    pub(super) fn push(
        &mut self,
        settings: &LeafSettings,
        hash: FlowHash,
        packet: Waiting,
        packets: &mut Packets,
    ) -> Result<(), Waiting> {
        let mask = self.flows.len() as u32 - 1;
        let place = hash.flow & mask;
        let Some(flow) = self.flows.get_mut(place as usize) else { return Err(packet) };
        packets.push(&mut flow.list, packet)?;
        self.backlogs[place as usize] = flow.list.bytes;
        if !flow.is_listed {
            flow.is_listed = true;
            flow.host = hash.host & mask;
            let host = flow.host;
            if let Some(count) = self.hosts.get_mut(host as usize) {
                *count = count.saturating_add(1);
            }
            let turn = self.turn(settings, host);
            if let Some(flow) = self.flows.get_mut(place as usize) {
                flow.deficit = turn;
            }
            self.new.push(place, &mut self.flows);
        }
        Ok(())
    }

    /// Active queue management of the flow that a packet comes to.
    pub(super) fn of(&mut self, hash: FlowHash) -> Option<(&mut Aqm, &List)> {
        let place = hash.flow as usize & (self.flows.len() - 1);
        self.flows.get_mut(place).map(|flow| (&mut flow.aqm, &flow.list))
    }

    /// Takes the packet whose turn it is, with the decision on it.
    pub(super) fn pop(
        &mut self,
        settings: &LeafSettings,
        now: Nanos,
        packets: &mut Packets,
    ) -> Option<(Waiting, Decision)> {
        loop {
            let is_new = self.new.head != NONE;
            let ring = if is_new { &mut self.new } else { &mut self.old };
            let place = ring.head;
            let flow = self.flows.get_mut(place as usize)?;
            if flow.deficit <= 0 {
                ring.pop(&mut self.flows);
                self.old.push(place, &mut self.flows);
                let host = self.flows[place as usize].host;
                self.flows[place as usize].deficit += self.turn(settings, host);
                continue;
            }
            let Some(packet) = packets.pop(&mut flow.list) else {
                ring.pop(&mut self.flows);
                // A flow that comes back at once must not count as new each time (RFC 8290, section 4.2).
                if is_new && self.old.head != NONE {
                    self.old.push(place, &mut self.flows);
                } else {
                    self.end(place);
                }
                continue;
            };
            self.backlogs[place as usize] = flow.list.bytes;
            let decision = flow.aqm.departs(settings, packet.since, &flow.list, now);
            let goes = decision == Decision::Keep || decision == Decision::Signal && settings.ecn;
            if goes {
                flow.deficit -= i64::from(packet.length);
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

    fn end(&mut self, place: u32) {
        let Some(flow) = self.flows.get_mut(place as usize) else { return };
        flow.is_listed = false;
        if let Some(count) = self.hosts.get_mut(flow.host as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// Bytes of a turn of a flow of that host.
    fn turn(&self, settings: &LeafSettings, host: u32) -> i64 {
        let Some(fq) = settings.fq else { return 1 };
        let flows = self.hosts.get(host as usize).map_or(1, |count| i64::from(*count).max(1));
        let flows = if fq.isolate == policy::model::Isolation::Flow { 1 } else { flows };
        (i64::from(fq.quantum) / flows).max(1)
    }
}

impl Ring {
    fn push(&mut self, place: u32, flows: &mut [Flow]) {
        if let Some(flow) = flows.get_mut(place as usize) {
            flow.next = NONE;
        }
        match flows.get_mut(self.tail as usize) {
            Some(last) => last.next = place,
            None => self.head = place,
        }
        self.tail = place;
    }

    fn pop(&mut self, flows: &mut [Flow]) {
        if let Some(flow) = flows.get(self.head as usize) {
            self.head = flow.next;
        }
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}
