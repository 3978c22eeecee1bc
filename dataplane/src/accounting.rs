//! Flow records and NAT events for a host that exports them (IPFIX, RFC 7011 and RFC 8158).
//!
//! Packets and bytes are counted by flow and direction as `track` sees them, in memory of their own beside the flows: only a host
//! that exports has it taken. A record of fixed size is written when a flow ends, when it has gone on for the active timeout, and
//! when the shard ends; the host takes the records out between two batches, by giving an empty buffer for the full one. Nothing
//! here waits or allocates: where the buffer is full, a record is counted as lost. The sweep for active timeouts waits for room.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};
use policy::model::IpfixRecord;
use tally::NoTally;
use wire::tcp::Flags;
use wire::{Frame, Nanos, PortId};

use crate::fast_path::Account;
use crate::flow::{self, Beside, Cold, Direction, Flow, FlowId, Key, State};
use crate::hop::Hops;
use crate::log::{Cause, Connection};
use crate::nat::BlockEvent;
use crate::shard::{Shard, most_flows};
use crate::tables::Tables;

/// A record for the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // a box would be an allocation on the packet path
pub enum Record {
    /// Packets and bytes of a flow since its last record.
    Flow(FlowReport),
    /// A translated connection began or ended.
    Nat(NatEvent),
    /// A host has taken a block of ports, or given one back.
    Block(BlockEvent),
}

/// Packets and bytes of a flow since its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Both ends of the connection.
    pub connection: Connection,
    /// The interface that packets of the first direction leave by; none where that is not known, or the gateway itself.
    pub egress: Option<PortId>,
    /// ICMP type << 8 | code of the first packet.
    pub kind: u16,
    /// Cause of the record.
    pub end: End,
    /// Packets of each direction.
    pub counts: Counts,
}

/// Beginning or end of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatEvent {
    /// Both ends of the connection.
    pub connection: Connection,
    /// The event.
    pub session: Session,
}

/// Event of a translated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// The connection began.
    Created,
    /// The connection ended.
    Deleted,
}

/// Cause of a flow record; the values are those of flowEndReason (RFC 5102, section 5.11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// The flow was idle for its timeout.
    Idle = 1,
    /// The flow goes on.
    Active = 2,
    /// Both sides have closed the connection, or one has reset it.
    Closed = 3,
    /// The flow was ended on request, or by another policy; or the shard ends.
    Forced = 4,
    /// The flow made room for another.
    Evicted = 5,
}

/// Packets of a flow, per [`Direction`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Counts([Count; 2]);

/// Packets of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
    /// Time of the first packet, in nanoseconds.
    first: u64,
    /// Time from the first packet to the last, in units of 2^20 ns.
    span: u32,
    /// TCP flags of all packets.
    pub tcp_flags: u8,
    /// DS field of the first packet.
    pub ds_field: u8,
    /// Half of the number of the packet that opened the flow: the upper one in the first direction.
    opener: u16,
}

/// Data records that found no room, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Flow records.
    pub flows: u64,
    /// NAT events.
    pub events: u64,
}

/// Records of one shard that its host has not yet taken, and the counts of its flows.
#[derive(Default)]
pub struct Accounting {
    counts: Beside<Counts>,
    records: Vec<Record>,
    /// A host takes the records.
    has_host: bool,
    wants: Wants,
    active: Nanos,
    /// Place that the sweep for active timeouts has come to.
    place: u32,
    lost: Lost,
}

/// Kinds of records to make.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    flows: bool,
    events: bool,
    blocks: bool,
}

impl Record {
    /// Number of data records: a flow has one for each direction with packets.
    pub fn data_records(&self) -> u64 {
        match self {
            Record::Flow(report) => report.counts.directions(),
            Record::Nat(_) | Record::Block(_) => 1,
        }
    }
}

impl Counts {
    /// Packets of one direction.
    pub fn of(&self, direction: Direction) -> &Count {
        &self.0[direction as usize]
    }

    /// Counts packets of one direction, the last of which was seen at a time.
    pub fn add(&mut self, direction: Direction, packets: u64, bytes: u64, seen: Nanos) {
        self.0[direction as usize].add(packets, bytes, seen);
    }

    /// Counts of a flow that has been opened by the packet of that number.
    fn opened_by(number: u32) -> Counts {
        let mut counts = Counts::default();
        [counts.0[0].opener, counts.0[1].opener] = [(number >> 16) as u16, number as u16];
        counts
    }

    /// Number by which the host knows the packet that opened the flow.
    pub fn opener(&self) -> u32 {
        u32::from(self.0[0].opener) << 16 | u32::from(self.0[1].opener)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|count| count.packets == 0)
    }

    /// Number of directions with packets.
    fn directions(&self) -> u64 {
        self.0.iter().filter(|count| count.packets > 0).count() as u64
    }

    /// Time of the first packet of either direction.
    fn first(&self) -> Nanos {
        let counted = self.0.iter().filter(|count| count.packets > 0);
        counted.map(Count::first).min().unwrap_or(Nanos(0))
    }

    /// Time of the last packet of either direction.
    fn last(&self) -> Nanos {
        self.0.iter().map(Count::last).max().unwrap_or(Nanos(0))
    }
}

impl Count {
    /// Time of the first packet.
    pub fn first(&self) -> Nanos {
        Nanos(self.first)
    }

    /// Time of the last packet, to a millisecond.
    pub fn last(&self) -> Nanos {
        Nanos(self.first + (u64::from(self.span) << 20))
    }

    #[inline(always)]
    fn add(&mut self, packets: u64, bytes: u64, seen: Nanos) {
        if self.packets == 0 {
            (self.first, self.span) = (seen.0, 0);
        } else {
            let span = u32::try_from(seen.0.saturating_sub(self.first) >> 20).unwrap_or(u32::MAX);
            self.span = self.span.max(span);
        }
        self.packets += packets;
        self.bytes += bytes;
    }
}

impl Accounting {
    /// Makes the records that these tables ask for from now on, as far as there is memory for them.
    pub fn follow(&mut self, tables: &Tables) {
        self.wants = Wants {
            flows: tables.ipfix.has(IpfixRecord::Flow) && self.counts.is_kept(),
            events: tables.ipfix.has(IpfixRecord::Nat) && self.has_host,
            blocks: tables.ipfix.has(IpfixRecord::NatBlock) && self.has_host,
        };
        self.active = tables.ipfix.active_timeout();
    }

    /// Takes an empty buffer for the records that come, in the place of the one with those that have come.
    pub fn exchange(&mut self, empty: Vec<Record>) -> Vec<Record> {
        std::mem::replace(&mut self.records, empty)
    }

    /// True if any records are made.
    pub fn is_on(&self) -> bool {
        self.wants.flows || self.wants.events || self.wants.blocks
    }

    /// True if there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// True if the buffer has no memory yet.
    pub fn has_no_buffer(&self) -> bool {
        self.records.capacity() == 0
    }

    /// True if half the buffer is used: time to take what is there.
    #[inline(always)]
    pub fn is_half_full(&self) -> bool {
        self.records.len() * 2 > self.records.capacity()
    }

    /// Returns the counts of records that found no room, and resets them.
    pub fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.counts.bytes() + self.records.capacity() * size_of::<Record>()
    }

    /// Counts flows by these counts from now on, unless they are counted already; gives back memory that is not needed.
    pub(crate) fn keep(&mut self, counts: Slab<Counts>) -> Option<Slab<Counts>> {
        self.counts.keep(counts)
    }

    /// Counts flows no more, and gives back the memory.
    pub(crate) fn forget(&mut self) -> Option<Slab<Counts>> {
        self.counts.forget()
    }

    /// True if a host takes the records.
    pub(crate) fn has_host(&self) -> bool {
        self.has_host
    }

    /// Forgets the counts of the flow that had this place before. The packet of that number has opened the one that has it now.
    pub(crate) fn begin(&mut self, id: FlowId, number: u32) {
        if let Some(counts) = self.counts.get_mut(id) {
            *counts = Counts::opened_by(number);
        }
    }

    /// Counts a packet of a flow.
    #[inline(always)]
    pub(crate) fn count(&mut self, id: FlowId, direction: Direction, frame: &Frame) {
        if self.wants.flows {
            self.count_one(id, direction, frame);
        }
    }

    #[inline(never)]
    fn count_one(&mut self, id: FlowId, direction: Direction, frame: &Frame) {
        let meta = &frame.meta;
        let Some(counts) = self.counts.get_mut(id) else { return };
        let count = &mut counts.0[direction as usize];
        if count.packets == 0 {
            count.ds_field = meta.ds_field;
        }
        count.tcp_flags |= meta.tcp_flags;
        count.add(1, meta.end.saturating_sub(meta.network).into(), meta.received);
    }

    /// Counts the segments of a packet beside the frame that stands for all.
    pub(crate) fn count_further(&mut self, id: FlowId, direction: Direction, further: u64, bytes: u64) {
        if !self.wants.flows {
            return;
        }
        if let Some(counts) = self.counts.get_mut(id) {
            let count = &mut counts.0[direction as usize];
            count.packets += further;
            count.bytes += bytes;
        }
    }

    /// Counts packets of a flow that the kernel has carried. The first of them was seen at most a sweep before the last.
    pub(crate) fn count_carried(&mut self, id: FlowId, account: &Account) {
        let Some(seen) = account.seen.filter(|_| self.wants.flows) else { return };
        let Some(counts) = self.counts.get_mut(id) else { return };
        for (count, carried) in counts.0.iter_mut().zip(account.carried) {
            if carried.packets > 0 {
                count.add(carried.packets, carried.packet_bytes, seen);
                if account.sides.is_some() {
                    count.tcp_flags |= Flags::ACK.0;
                }
            }
        }
    }

    /// Notes that a flow has begun, if it is translated.
    #[inline(always)]
    pub(crate) fn note_begun(&mut self, flow: &Flow, cold: &Cold) {
        if self.wants.events && flow.is_translated() {
            self.note_session(flow, cold, Session::Created);
        }
    }

    /// Notes that a flow ends.
    #[inline(always)]
    pub(crate) fn note_ended(&mut self, id: FlowId, flow: &Flow, cold: &Cold, cause: Cause, hops: &Hops) {
        if self.wants.flows {
            let end = match cause {
                Cause::Timeout if is_over(flow.state()) => End::Closed,
                Cause::Timeout => End::Idle,
                Cause::Killed | Cause::Revoked => End::Forced,
                Cause::Evicted => End::Evicted,
            };
            self.note_flow(id, flow, cold, end, hops);
        }
        if self.wants.events && flow.is_translated() {
            self.note_session(flow, cold, Session::Deleted);
        }
    }

    /// Notes a block of ports that a host has taken or given back.
    #[cold]
    pub(crate) fn note_block(&mut self, event: BlockEvent) {
        if self.wants.blocks {
            self.note(Record::Block(event));
        }
    }

    /// Notes what was counted of a flow, if anything, and counts from zero.
    #[cold]
    fn note_flow(&mut self, id: FlowId, flow: &Flow, cold: &Cold, end: End, hops: &Hops) {
        let Some(counts) = self.counts.get_mut(id) else { return };
        let zero = Counts::opened_by(counts.opener());
        let counts = std::mem::replace(counts, zero);
        if counts.is_empty() {
            return;
        }
        let connection = Connection::of(flow, cold);
        let egress = hops.get(flow.hops[Direction::Original as usize]).map(|hop| hop.interface);
        self.note(Record::Flow(FlowReport { connection, egress, kind: cold.kind, end, counts }));
    }

    #[cold]
    fn note_session(&mut self, flow: &Flow, cold: &Cold, session: Session) {
        let connection = Connection::of(flow, cold);
        // Of a handshake that the gateway makes, sequence numbers alone are translated.
        if connection.is_translated() {
            self.note(Record::Nat(NatEvent { connection, session }));
        }
    }

    fn note(&mut self, record: Record) {
        if self.has_room() {
            self.records.push(record);
            return;
        }
        let lost = match record {
            Record::Flow(_) => &mut self.lost.flows,
            Record::Nat(_) | Record::Block(_) => &mut self.lost.events,
        };
        *lost += record.data_records();
    }

    fn has_room(&self) -> bool {
        self.records.len() < self.records.capacity()
    }
}

impl Shard {
    /// Takes memory for the counts of flows, where these tables ask for any, and makes records from now on.
    ///
    /// # Errors
    /// The system refused memory.
    pub fn keep_accounts(&mut self, tables: &Tables) -> Result<(), MemoryError> {
        if let Some(counts) = counts(tables)? {
            self.accounting.keep(counts);
        }
        self.accounting.has_host = true;
        self.accounting.follow(tables);
        Ok(())
    }

    /// Notes flows that have gone on for the active timeout, and TCP connections that are over, among the flows of the next `most`
    /// places, as long as the buffer has room. Published flows are as current as the sweeps of the fast path have made them.
    pub fn report_active(&mut self, most: u32, now: Nanos) {
        let Shard { accounting, flows, hops, .. } = self;
        if !accounting.wants.flows {
            return;
        }
        for _ in 0..most.min(flows.used()) {
            if !accounting.has_room() {
                return;
            }
            let id = FlowId(accounting.place);
            accounting.place = if id.0 + 1 < flows.used() { id.0 + 1 } else { 0 };
            let Some(counts) = accounting.counts.get(id).filter(|counts| !counts.is_empty()) else {
                continue;
            };
            let (Some(flow), Some(cold)) = (flows.flow(id), flows.cold(id)) else { continue };
            let is_due = now.since(counts.first()) >= accounting.active;
            let is_done = is_over(flow.state()) && now.since(counts.last()) >= LINGER;
            if is_done || is_due {
                accounting.note_flow(id, flow, cold, if is_done { End::Closed } else { End::Active }, hops);
            }
        }
    }

    /// Notes the flows of places from `first` on as the shard ends, as long as the buffer has room. Returns the place to go on from; none
    /// at the end.
    pub fn report_rest(&mut self, first: FlowId) -> Option<FlowId> {
        let Shard { accounting, flows, hops, .. } = self;
        if !accounting.wants.flows {
            return None;
        }
        for id in (first.0..flows.used()).map(FlowId) {
            if !accounting.has_room() {
                return Some(id);
            }
            if let (Some(flow), Some(cold)) = (flows.flow(id), flows.cold(id)) {
                accounting.note_flow(id, flow, cold, End::Forced, hops);
            }
        }
        None
    }

    /// Number of data records that were not taken: those in the buffer, and those of flows from a place on, if any is left.
    pub fn unreported(&self, first: Option<FlowId>) -> u64 {
        let left = first.map_or(0..0, |first| first.0..self.flows.used());
        let counts = left.filter_map(|place| self.accounting.counts.get(FlowId(place)));
        let buffered = self.accounting.records.iter().map(Record::data_records);
        buffered.sum::<u64>() + counts.map(Counts::directions).sum::<u64>()
    }

    /// Hands over the counts of a flow that has moved to other memory, where it has this key.
    pub(crate) fn move_counts(&self, from: FlowId, fresh: &mut Shard, key: &Key) {
        let Some(old) = self.accounting.counts.get(from) else { return };
        let hash = fresh.flows.hash(key, &mut NoTally);
        let Some(hit) = fresh.flows.find(key, hash, &mut NoTally) else { return };
        if let Some(new) = fresh.accounting.counts.get_mut(hit.id) {
            *new = *old;
        }
    }

    /// Notes a flow that has found no place in other memory.
    pub(crate) fn note_left_behind(&mut self, id: FlowId, cause: Cause) {
        let Shard { accounting, flows, hops, .. } = self;
        if let (Some(flow), Some(cold)) = (flows.flow(id), flows.cold(id)) {
            accounting.note_ended(id, flow, cold, cause, hops);
        }
    }

    /// Takes over the counts of other memory, for flows that have moved there.
    pub(crate) fn take_counts(&mut self, fresh: &mut Shard) {
        std::mem::swap(&mut self.accounting.counts, &mut fresh.accounting.counts);
        self.accounting.place = 0;
    }
}

/// Time that a connection which is over has for its last packets, before it is reported: 2 s.
const LINGER: Nanos = Nanos::from_secs(2);

/// True if nothing but repeated packets is expected of a TCP connection.
fn is_over(state: State) -> bool {
    matches!(state, State::TimeWait | State::Reset)
}

/// Takes memory for the counts of flows, where the tables ask for any.
pub(crate) fn counts(tables: &Tables) -> Result<Option<Slab<Counts>>, MemoryError> {
    let has = tables.ipfix.has(IpfixRecord::Flow);
    has.then(|| flow::records(most_flows(tables), Paging::Prefault)).transpose()
}
