//! State synchronisation with a second gateway: the list of flows that have changed, and what the peer tells of its own.
//!
//! Each flow has a mark beside it where a host synchronises. A flow that changes (set up, another state, translated) enters the list
//! of changes, once until the host takes it from there; the list has room for every flow, so that none is ever lost, however slow the
//! peer. TCP connections are in it from the end of their handshake on: before, their client's next SYN sets them up anew. Flows that have
//! ended are in a list of their own, of fixed size; where it overflows, the host is told, and begins a full synchronisation. A sweep
//! enters flows whose packets the peer has not heard of for a third of their timeout, so that the peer's copies live as long.
//!
//! A flow that the peer tells of is an update where it is there ([`Shard::take_in_synced`]): the gateway that has seen the flow's last
//! packet is right, by the time since that packet, so that the two clocks need not agree. Windows of TCP are learnt anew from the first
//! segments seen here, as the peer goes on without telling of each. A copy counts as the peer's until a packet of it is seen here: it is
//! not sent back, and it makes room for another flow of the peer's. Flows of the gateways themselves stay where they are.
//!
//! Nothing here waits, and nothing allocates but the host's taking.

use std::collections::VecDeque;

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};
use serde::{Deserialize, Serialize};
use tally::NoTally;
use wire::{Nanos, PortId};

use crate::flow::{self, Beside, Cold, Ends, Flow, FlowId, FlowTable, Life, Tick, tcp};
use crate::hop::LOCAL_HOP;
use crate::import::Refused;
use crate::log::Cause;
use crate::nat::{MappingId, Mappings};
use crate::set;
use crate::shard::{NOTHING, Shard, most_flows};
use crate::state::{Ended, FlowRecord, Item};
use crate::tables::{Tables, is_linux};

/// Flows that have ended and that the host has not taken yet, at most.
pub const MOST_ENDED: usize = 16_384;

/// Longest time from a packet that the peer has heard of to the next: 5 min.
const REFRESH: Tick = Tick(5 * 60 * 8);

/// Time within which both gateways have seen packets of a flow, for a conflict: 1 s.
const CONFLICT: Nanos = Nanos::from_secs(1);

/// Synchronisation state of one flow.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Mark {
    /// [`Flow::seen`] when the peer was told of the flow, or told of it.
    seen: u32,
    bits: u8,
    /// Round of the peer's that told of it last.
    round: u8,
    unused: [u8; 2],
}

/// In [`Mark::bits`]: the place is in the list of changes.
const LISTED: u8 = 1;
/// The peer knows the flow.
const KNOWN: u8 = 2;
/// The peer has told of the flow.
const COPY: u8 = 4;
/// The flow has changed since the peer was told.
const CHANGED: u8 = 8;
/// Packets of the flow have been seen here, before the peer told of later ones.
const HEARD: u8 = 16;

impl Mark {
    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// True if the flow is the peer's: no packet of it has been seen here since the peer told of it.
    fn is_copy_of(&self, flow: &Flow) -> bool {
        self.has(COPY) && self.seen == flow.seen
    }
}

/// Flows of one shard that its host is to tell the peer of.
#[derive(Default)]
pub struct Changes {
    marks: Beside<Mark>,
    /// Places of flows that have changed, the first first.
    listed: VecDeque<u32>,
    ended: VecDeque<EndedFlow>,
    /// Flows that have ended and found no room.
    lost: u64,
    /// Place that the sweep has come to.
    place: u32,
}

/// Memory of [`Changes`] for a number of flows.
pub(crate) struct Room {
    marks: Slab<Mark>,
    listed: VecDeque<u32>,
}

/// A flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedFlow {
    /// Ends of packets in the first one's direction, as they arrive.
    pub original: Ends,
    /// Ends of packets in the reply direction, as they arrive.
    pub reply: Ends,
    /// Outside port of its mapping, by which its worker is found; 0 without.
    pub port: u16,
    /// Cause.
    pub cause: EndCause,
}

/// Cause of a flow's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCause {
    /// An operator ended the flow, wherever its packets go.
    Killed,
    /// The flow was idle, or made room, or is not let in any more by the policy there.
    Other,
}

/// Outcome of an item of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// The flow or port mapping is new here.
    Created,
    /// The flow or port mapping is now as the peer has it.
    Updated,
    /// A later packet has been seen here, or a port mapping is here as it is there or later: it stays as it is.
    Older,
    /// Packets of the flow have been seen here and by the peer within a second.
    Conflict,
}

/// Sweep over the copies of the peer's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySweep {
    /// The peer has begun anew, without its flows: they are this gateway's own.
    Adopt,
    /// The peer has told of all its flows in this round: those of others have ended there.
    Purge {
        /// The round.
        round: u8,
    },
}

/// Changes that a host takes at once.
#[derive(Debug, Default)]
pub struct Taken {
    /// Flows that have changed.
    pub flows: Vec<Item>,
    /// Flows that have ended. They go before the others: one of these may have the ends of one of those.
    pub ended: Vec<EndedFlow>,
    /// Flows that have ended and found no room since the last time.
    pub lost: u64,
}

impl Room {
    /// Takes memory.
    ///
    /// # Errors
    /// The system refused memory.
    pub(crate) fn new(tables: &Tables) -> Result<Room, MemoryError> {
        let flows = most_flows(tables);
        Ok(Room {
            marks: flow::records(flows, Paging::Prefault)?,
            listed: VecDeque::with_capacity(flows as usize),
        })
    }
}

impl Changes {
    /// True if changes are listed.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.marks.is_kept()
    }

    /// Number of flows listed.
    pub fn len(&self) -> usize {
        self.listed.len() + self.ended.len()
    }

    /// True if nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.marks.bytes()
            + self.listed.capacity() * size_of::<u32>()
            + self.ended.capacity() * size_of::<EndedFlow>()
    }

    /// Lists changes in this memory from now on. What was listed in that of before is lost; that memory is given back.
    pub(crate) fn keep(&mut self, room: Room) -> Option<Room> {
        self.lost += self.len() as u64;
        self.ended.clear();
        self.place = 0;
        let marks = self.marks.forget();
        let spare = self.marks.keep(room.marks);
        debug_assert!(spare.is_none(), "none are kept");
        let listed = std::mem::replace(&mut self.listed, room.listed);
        marks.map(|marks| Room { marks, listed })
    }

    /// Forgets the flow that had this place before, and notes the one that begins there.
    #[inline(always)]
    pub(crate) fn begin(&mut self, id: FlowId) {
        if let Some(mark) = self.marks.get_mut(id) {
            *mark = Mark { bits: mark.bits & LISTED, ..Mark::default() };
            self.note(id);
        }
    }

    /// Notes that a flow has changed by its own packet.
    #[inline(always)]
    pub(crate) fn note(&mut self, id: FlowId) {
        let Some(mark) = self.marks.get_mut(id) else { return };
        mark.bits = mark.bits & !COPY | CHANGED;
        // As many as flows, and each once: there is room.
        if !mark.has(LISTED) && self.listed.len() < self.listed.capacity() {
            mark.bits |= LISTED;
            self.listed.push_back(id.0);
        }
    }

    /// Notes that a flow ends, if the peer knows it and does not know this.
    #[inline(always)]
    pub(crate) fn note_ended(
        &mut self,
        id: FlowId,
        flow: &Flow,
        cold: &Cold,
        cause: Cause,
        mappings: &Mappings,
    ) {
        let Some(mark) = self.marks.get_mut(id) else { return };
        let is_told = mark.has(KNOWN) && (cause == Cause::Killed || !mark.is_copy_of(flow));
        mark.bits &= LISTED;
        if is_told {
            self.push_ended(flow, cold, cause, mappings);
        }
    }

    #[inline(never)]
    fn push_ended(&mut self, flow: &Flow, cold: &Cold, cause: Cause, mappings: &Mappings) {
        if self.ended.len() >= self.ended.capacity() {
            self.lost += 1;
            return;
        }
        let mapping = if cold.mapping != NOTHING { cold.mapping } else { cold.inward };
        self.ended.push_back(EndedFlow {
            original: Ends::of(flow.original()),
            reply: Ends::of(flow.reply()),
            port: mappings.get(MappingId(mapping)).map_or(0, |mapping| mapping.outside.port),
            cause: if cause == Cause::Killed { EndCause::Killed } else { EndCause::Other },
        });
    }
}

impl Shard {
    /// Takes memory for the lists of changes, where these tables synchronise, and lists them from now on: those of sets by the first
    /// worker alone, as all have the same.
    ///
    /// # Errors
    /// The system refused memory.
    pub fn keep_changes(&mut self, tables: &Tables) -> Result<(), MemoryError> {
        if tables.synchronises {
            drop(self.changes.keep(Room::new(tables)?));
            self.changes.ended = VecDeque::with_capacity(MOST_ENDED);
        }
        if self.flows.member().is_none_or(|member| member.worker == 0) {
            self.sets.keep_changes(set::Changes::new(tables));
        }
        Ok(())
    }

    /// Lists flows whose last packet that the peer has heard of is a third of their timeout ago, among those of the next `most` places, if
    /// there have been others since. Published flows are as current as the sweeps of the fast path have made them.
    pub fn list_refreshes(&mut self, most: u32, now: Nanos) {
        let Shard { changes, flows, .. } = self;
        if !changes.is_on() {
            return;
        }
        let tick = flows.tick(now);
        for _ in 0..most.min(flows.used()) {
            let id = FlowId(changes.place);
            changes.place = if id.0 + 1 < flows.used() { id.0 + 1 } else { 0 };
            let (Some(flow), Some(mark)) = (flows.flow(id), changes.marks.get(id)) else { continue };
            let after = (flows.timeout(flow) / 3).min(REFRESH.0);
            let is_due = flow.seen != mark.seen && tick.since(Tick(mark.seen)) >= after;
            // One that full synchronisation has told of may still be listed, as nothing that has changed.
            if is_due && !mark.has(CHANGED) && flow.state().life() != Life::TcpHalfOpen {
                changes.note(id);
            }
        }
    }

    /// Takes up to `most` flows that have changed, and all that have ended, from the list.
    pub fn take_changes(&mut self, tables: &Tables, now: Nanos, most: usize, into: &mut Taken) {
        into.ended.extend(self.changes.ended.drain(..));
        into.lost += std::mem::take(&mut self.changes.lost);
        for _ in 0..most {
            let Some(place) = self.changes.listed.pop_front() else { return };
            let Some(mark) = self.changes.marks.get_mut(FlowId(place)) else { continue };
            mark.bits &= !LISTED;
            if !mark.has(CHANGED) {
                continue;
            }
            into.flows.extend(self.record_for_peer(tables, FlowId(place), now).map(Item::Flow));
        }
    }

    /// Takes the flows of `most` places from the first on that are not the peer's, for a full synchronisation. Returns the place to go on
    /// from; none at the end.
    pub fn take_all(
        &mut self,
        tables: &Tables,
        now: Nanos,
        first: FlowId,
        most: u32,
        into: &mut Taken,
    ) -> Option<FlowId> {
        if first == FlowId(0) {
            self.changes.ended.clear();
            self.changes.lost = 0;
        }
        let end = first.0.saturating_add(most.max(1)).min(self.flows.used());
        for id in (first.0..end).map(FlowId) {
            into.flows.extend(self.record_for_peer(tables, id, now).map(Item::Flow));
        }
        (end < self.flows.used()).then_some(FlowId(end))
    }

    /// Record of a flow that the peer is to know, and has not told of itself.
    fn record_for_peer(&mut self, tables: &Tables, id: FlowId, now: Nanos) -> Option<FlowRecord> {
        if self.flows.flow(id)?.progress.is_published() {
            self.bring_up_to_date(id);
        }
        let flow = self.flows.flow(id)?;
        let is_early = flow.state().life() == Life::TcpHalfOpen;
        let mark = self.changes.marks.get(id)?;
        if is_early || mark.is_copy_of(flow) || self.is_of_gateway(flow) {
            return None;
        }
        let seen = flow.seen;
        let record =
            self.flow_record(tables, id, now).filter(|record| !record.ingress.is_some_and(is_linux))?;
        if let Some(mark) = self.changes.marks.get_mut(id) {
            mark.seen = seen;
            mark.bits = mark.bits & (LISTED | HEARD) | KNOWN;
        }
        Some(record)
    }

    /// True if one end of a flow is the gateway itself.
    fn is_of_gateway(&self, flow: &Flow) -> bool {
        // Hops of other tables say nothing.
        !self.flows.is_stale(flow) && flow.hops.contains(&LOCAL_HOP)
    }

    /// Takes in a flow that the peer tells of: a new one, or another state of one that is there. Places in it are places in `tables`.
    ///
    /// # Errors
    /// [`Refused`]; a flow that is there stays as it is.
    pub fn take_in_synced(
        &mut self,
        tables: &Tables,
        record: &FlowRecord,
        now: Nanos,
        round: u8,
    ) -> Result<Synced, Refused> {
        let ingress = record.ingress.filter(|ingress| !is_linux(*ingress)).ok_or(Refused::InterfaceGone)?;
        let Some(there) = self.find_ends(tables, &record.original, Some(ingress)) else {
            return self.create_synced(tables, record, now, round);
        };
        if self.flows.flow(there).is_some_and(|flow| flow.progress.is_published()) {
            self.bring_up_to_date(there);
        }
        let flow = self.flows.flow(there).ok_or(Refused::Taken)?;
        let idle = self.flows.idle(flow, now);
        let is_copy = self.changes.marks.get(there).is_some_and(|mark| mark.is_copy_of(flow));
        let is_same = Ends::of(flow.original()) == record.original && Ends::of(flow.reply()) == record.reply;
        // Each may have seen one side's end of a connection.
        let closed =
            tcp::closed_by_both(flow.state(), record.state).filter(|_| is_same && tables.pair.is_some());
        if !is_copy && idle <= record.idle {
            if let Some(state) = closed {
                let seen = Tick(flow.seen);
                self.flows.set_state(there, state, seen, &mut NoTally);
                self.changes.note(there);
            }
            let both = idle < CONFLICT && record.idle < CONFLICT;
            return Ok(if both { Synced::Conflict } else { Synced::Older });
        }
        let is_conflict = !is_copy && idle < CONFLICT;
        if !is_same {
            self.end_silently(there);
            return self.create_synced(tables, record, now, round);
        }
        let tick = self.flows.tick(now);
        let seen = Tick(tick.0.saturating_sub(Tick::within(record.idle).0));
        if self.flows.flow(there).is_some_and(|flow| flow.progress.is_published()) {
            self.take_back(there);
        }
        self.flows.set_state(there, closed.unwrap_or(record.state), seen, &mut NoTally);
        // Not another one's, as memory for handshakes is the policy's matter.
        let _ = self.flows.set_handshake(there, record.handshake);
        self.flows.forget_windows(there);
        let had = self.changes.marks.get(there).is_some_and(|mark| mark.has(HEARD));
        self.mark_copy(there, round);
        if let Some(mark) = self.changes.marks.get_mut(there).filter(|_| had || !is_copy) {
            mark.bits |= HEARD;
        }
        if closed.is_some() {
            self.changes.note(there);
        }
        Ok(if is_conflict { Synced::Conflict } else { Synced::Updated })
    }

    /// Makes a flow that the peer tells of. Copies of the peer's that stand in its way have ended there.
    fn create_synced(
        &mut self,
        tables: &Tables,
        record: &FlowRecord,
        now: Nanos,
        round: u8,
    ) -> Result<Synced, Refused> {
        if record.state.life() == Life::TcpHalfOpen {
            return Err(Refused::Malformed);
        }
        let mut made = self.import_flow(tables, record, now);
        if made == Err(Refused::Taken) {
            let other = self.find_ends(tables, &record.reply, None);
            let is_copy = |id: &FlowId| {
                let (flow, mark) = (self.flows.flow(*id), self.changes.marks.get(*id));
                flow.zip(mark).is_some_and(|(flow, mark)| mark.is_copy_of(flow))
            };
            if let Some(other) = other.filter(is_copy) {
                self.end_silently(other);
                made = self.import_flow(tables, record, now);
            }
        }
        let id = made.inspect_err(|refused| self.imports.count(Err(*refused)))?;
        self.imports.count(Ok(()));
        self.flows.forget_windows(id);
        self.mark_copy(id, round);
        Ok(Synced::Created)
    }

    fn mark_copy(&mut self, id: FlowId, round: u8) {
        let Some(seen) = self.flows.flow(id).map(|flow| flow.seen) else { return };
        if let Some(mark) = self.changes.marks.get_mut(id) {
            let bits = mark.bits & LISTED | KNOWN | COPY;
            *mark = Mark { seen, bits, round, ..Mark::default() };
        }
    }

    /// Ends a flow that has ended at the peer's, unless packets of it have been seen here since.
    pub fn end_synced(&mut self, tables: &Tables, ended: &EndedFlow) -> Ended {
        let Some(id) = self.find_ends(tables, &ended.original, None) else { return Ended::Before };
        let (Some(flow), Some(mark)) = (self.flows.flow(id), self.changes.marks.get(id)) else {
            return Ended::Before;
        };
        let is_same = Ends::of(flow.original()) == ended.original && Ends::of(flow.reply()) == ended.reply;
        if !is_same || ended.cause != EndCause::Killed && !mark.is_copy_of(flow) {
            return Ended::Before;
        }
        self.end_silently(id);
        Ended::Now
    }

    /// Sweeps the copies among the flows of `most` places from the first on. Returns the place to go on from; none at the end.
    pub fn sweep_copies(&mut self, sweep: CopySweep, first: FlowId, most: u32) -> Option<FlowId> {
        let end = first.0.saturating_add(most.max(1)).min(self.flows.used());
        for id in (first.0..end).map(FlowId) {
            let (Some(flow), Some(mark)) = (self.flows.flow(id), self.changes.marks.get_mut(id)) else {
                continue;
            };
            match sweep {
                CopySweep::Adopt => mark.bits &= LISTED,
                // Both may hold a flow for the other's, where both have seen packets: that one ends by its timeout.
                CopySweep::Purge { round }
                    if mark.is_copy_of(flow) && mark.round != round && !mark.has(HEARD) =>
                {
                    self.end_silently(id);
                }
                CopySweep::Purge { .. } => {}
            }
        }
        (end < self.flows.used()).then_some(FlowId(end))
    }

    /// Ends a flow of which the peer is not told.
    fn end_silently(&mut self, id: FlowId) {
        if let Some(mark) = self.changes.marks.get_mut(id) {
            mark.bits &= LISTED;
        }
        self.end_flow_for(id, Cause::Timeout, &mut NoTally);
    }

    /// The flow of which packets with these ends are, in either direction: in the conntrack zone of an interface, or in any.
    fn find_ends(&self, tables: &Tables, ends: &Ends, ingress: Option<PortId>) -> Option<FlowId> {
        let key = ends.to_key()?;
        let find = |table: &FlowTable, ct_zone| {
            let key = key.in_ct_zone(ct_zone);
            let hash = table.hash(&key, &mut NoTally);
            table.find(&key, hash, &mut NoTally).map(|hit| hit.id)
        };
        match ingress {
            Some(ingress) => find(&self.flows, tables.interface(ingress)?.ct_zone),
            None => {
                let mut zones = tables.interfaces.iter().map(|interface| interface.ct_zone);
                find(&self.flows, 0).or_else(|| zones.find_map(|zone| find(&self.flows, zone)))
            }
        }
    }
}
