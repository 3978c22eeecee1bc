//! The flow table.

use bytemuck::Zeroable;
use tally::{NoTally, Op, Region, Tally};
use wire::{Meta, Nanos};

use super::evictable::Queue;
use super::hash::Hasher;
use super::index::Index;
use super::wheel::Wheel;
use super::{
    Beside, Classified, Cold, Direction, Flow, FlowId, Key, NONE, STATE, State, Tick, Timeouts, tcp,
};

mod epoch;
mod member;
mod restore;

use crate::helper::Helped;
use crate::set::Watch;
use lookup::memory::{MemoryError, Paging, Slab};
pub use member::Member;
pub use restore::{Former, Windows};

/// All flows of one shard. See the module for how to use it.
pub struct FlowTable {
    hasher: Hasher,
    index: Index,
    flows: Slab<Flow>,
    cold: Slab<Cold>,
    /// Number in [`Handshake`](super::Handshake) of each flow whose handshake the gateway has made. Allocated only for a
    /// policy that has the gateway make handshakes.
    pub(crate) numbers: Beside<u32>,
    /// Source MAC addresses of flows, where rules ask for any.
    pub(crate) senders: Beside<[u8; 6]>,
    /// Traffic classes of flows, where the policy has any.
    pub(crate) classes: Beside<Classified>,
    /// Interface that the first packet left by, by its number, where the policy has WANs: it says which WAN the flow keeps.
    pub(crate) wans: Beside<u32>,
    /// Validations of flows, where rules or classes ask for dynamic sets.
    pub(crate) watches: Beside<Watch>,
    /// Helpers' records of flows, where rules name any.
    pub(crate) helped: Beside<Helped>,
    timeouts: Timeouts,
    wheel: Wheel,
    evictable: Queue,
    /// The moment of tick 0.
    start: Nanos,
    /// Time at which [`FlowTable::advance`] next has something to do.
    due: Nanos,
    /// The tick of the last [`FlowTable::advance`], and its first moment.
    latest: Tick,
    begun: Nanos,
    /// First of the free places that have been used before.
    free: u32,
    /// Places from here on have never been used.
    fresh: u32,
    capacity: u32,
    len: u32,
    peak: u32,
    created: u64,
    ended: u64,
    epochs: epoch::Epochs,
    /// Membership in the steering table by which other workers find the flows.
    member: Option<Member>,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The flow.
    pub id: FlowId,
    /// Direction that the key belongs to.
    pub direction: Direction,
}

/// Reason for refusing a flow or a key. The table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are as many flows as the table can hold.
    #[error("the flow table is full")]
    Full,
    /// The key belongs to this flow already. It may have expired: then remove it, and try again.
    #[error("the key belongs to flow {}", .0.id.0)]
    Taken(Hit),
    /// The key has no family: it belongs to no packet.
    #[error("the key belongs to no packet")]
    NoKey,
}

/// Tells the comparison of a key with a flow's.
#[inline(always)]
fn tell_comparison<T: Tally>(key: &Key, tally: &mut T) {
    // The flow's place and bound, and the family, 5; four words compared, all together, 7, of IPv6 ten, 19.
    tally.instructions(if key.is_v4() { 12 } else { 24 });
    tally.execute(Op::Branch, 3);
}

/// A year of ticks.
const YEAR: u32 = 365 * 86_400 * 8;

impl FlowTable {
    /// The most flows that a table can be made for.
    pub const MAX_CAPACITY: u32 = 1 << 30;

    /// Makes a table for `capacity` flows, 1 to [`FlowTable::MAX_CAPACITY`] (others are brought into that range).
    /// `seed` keys the hash: random and secret in a live host, fixed in a replay. Tick 0 lies a year
    /// before `now`, or the longest timeout, or where time begins, so that flows from elsewhere can have been seen, and have
    /// begun, before `now`.
    ///
    /// # Errors
    /// The system has not enough memory to give.
    pub fn new(
        capacity: u32,
        seed: [u64; 2],
        timeouts: Timeouts,
        now: Nanos,
    ) -> Result<FlowTable, MemoryError> {
        FlowTable::paged(capacity, seed, timeouts, now, Paging::Prefault)
    }

    /// [`FlowTable::new`], with pages of memory at the moment that `paging` says.
    ///
    /// # Errors
    /// The system has not enough memory to give.
    pub fn paged(
        capacity: u32,
        seed: [u64; 2],
        timeouts: Timeouts,
        now: Nanos,
        paging: Paging,
    ) -> Result<FlowTable, MemoryError> {
        let capacity = capacity.clamp(1, FlowTable::MAX_CAPACITY);
        let before = Tick::within(now).0.min(timeouts.longest().max(YEAR));
        let start = Nanos(now.0 - u64::from(before) * Tick::LENGTH.0);
        Ok(FlowTable {
            numbers: Beside::default(),
            senders: Beside::default(),
            classes: Beside::default(),
            wans: Beside::default(),
            watches: Beside::default(),
            helped: Beside::default(),
            hasher: Hasher::new(seed),
            index: Index::new(2 * capacity as usize, paging)?,
            flows: Slab::paged(capacity as usize, paging)?,
            cold: Slab::paged(capacity as usize, paging)?,
            timeouts,
            wheel: Wheel::new(Tick(before)),
            evictable: Queue::new(),
            start,
            due: now,
            latest: Tick(before),
            begun: now,
            free: NONE,
            fresh: 0,
            capacity,
            len: 0,
            peak: 0,
            created: 0,
            ended: 0,
            epochs: epoch::Epochs::new(Tick(before)),
            member: None,
        })
    }

    /// The hash of a key, for the calls below.
    #[inline(always)]
    pub fn hash<T: Tally>(&self, key: &Key, tally: &mut T) -> u64 {
        // The hash unit takes what the key's family fills: addresses, ports, protocol.
        tally.hash(if key.is_v4() { 13 } else { 37 });
        self.hasher.hash(key)
    }

    /// Asks for the memory in which [`FlowTable::find`] will look first.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// The flow that this hash most likely leads to. A guess, good for [`FlowTable::prefetch_flow`] only.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<FlowId> {
        self.index.candidate(hash).map(|entry| FlowId(entry >> 1))
    }

    /// Like [`FlowTable::candidate`], with the direction, for [`FlowTable::find_from`].
    #[inline(always)]
    pub fn candidate_hit(&self, hash: u64) -> Option<Hit> {
        self.index.candidate(hash).map(Hit::from_entry)
    }

    /// [`FlowTable::find`], which begins with a guess of [`FlowTable::candidate_hit`], nearly always right, and so
    /// spares looking through the bucket again.
    #[inline(always)]
    pub fn find_from<T: Tally>(
        &self,
        guess: Option<Hit>,
        key: &Key,
        hash: u64,
        tally: &mut T,
    ) -> Option<Hit> {
        if let Some(hit) = guess {
            tally.read(Region::FlowTable, hit.offset(), 64);
            tell_comparison(key, tally);
            let flow = self.flows.entries().get(hit.id.0 as usize);
            if flow.is_some_and(|flow| flow.key(hit.direction) == key) && key.is_some() {
                return guess;
            }
        }
        self.find_apart(key, hash, tally)
    }

    /// [`FlowTable::find`], as a function of its own.
    #[inline(never)]
    fn find_apart<T: Tally>(&self, key: &Key, hash: u64, tally: &mut T) -> Option<Hit> {
        self.find(key, hash, tally)
    }

    /// Asks for the memory of a flow.
    #[inline(always)]
    pub fn prefetch_flow(&self, id: FlowId) {
        if let Some(flow) = self.flows.entries().get(id.0 as usize) {
            wire::prefetch::read(&flow.original);
            wire::prefetch::read(&flow.reply);
        }
    }

    /// The flow with this key in one of its directions. It may have [expired](FlowTable::is_expired).
    #[inline(always)]
    pub fn find<T: Tally>(&self, key: &Key, hash: u64, tally: &mut T) -> Option<Hit> {
        let flows = self.flows.entries();
        let entry = self.index.find(hash, tally, |entry, tally| {
            let hit = Hit::from_entry(entry);
            tally.read(Region::FlowTable, hit.offset(), 64);
            tell_comparison(key, tally);
            flows.get(hit.id.0 as usize).is_some_and(|flow| flow.key(hit.direction) == key)
        })?;
        Some(Hit::from_entry(entry))
    }

    /// Takes in a new flow with the key of its first packet, not yet that of its replies
    /// ([`FlowTable::set_reply`]). It is in the first state of its protocol and seen at `now`.
    ///
    /// # Errors
    /// [`Refusal`]: the table is full, or the key is taken or none.
    pub fn insert<T: Tally>(
        &mut self,
        key: &Key,
        hash: u64,
        now: Tick,
        tally: &mut T,
    ) -> Result<FlowId, Refusal> {
        if let Some(hit) = self.find(key, hash, tally) {
            return Err(Refusal::Taken(hit));
        }
        self.insert_absent(key, hash, now, tally)
    }

    /// [`FlowTable::insert`] of a key that no flow has, as [`FlowTable::find`] has told: no other look-up is made.
    ///
    /// # Errors
    /// [`Refusal`]: the table is full, or the key is none.
    pub fn insert_absent<T: Tally>(
        &mut self,
        key: &Key,
        hash: u64,
        now: Tick,
        tally: &mut T,
    ) -> Result<FlowId, Refusal> {
        if !key.is_some() {
            return Err(Refusal::NoKey);
        }
        debug_assert!(self.find(key, hash, &mut NoTally).is_none(), "{key:?} has a flow");
        let place = self.take_place().ok_or(Refusal::Full)?;
        let id = FlowId(place);
        let state = State::first(key.protocol());
        self.flows.entries_mut()[place as usize] =
            Flow { original: *key, seen: now.0, state: state as u8, scales: 0xff, ..Flow::zeroed() };
        let cold = self.cold.entries_mut();
        cold[place as usize] =
            Cold { created: now.0, mapping: NONE, limit: NONE, source: NONE, inward: NONE, ..Cold::zeroed() };
        self.wheel.link(cold, place, Tick(now.0.saturating_add(self.timeouts.of(state))));
        self.evictable.join(cold, place);
        self.index.insert(hash, entry(id, Direction::Original), tally);
        self.publish(hash);
        // A place, 10; the flow's words, 32, and the timer's, 8; the wheel's level, slot and list, 34; the list of those
        // that may make room, 16; the state with its timeout, 14; three counters, 16.
        tally.instructions(130);
        tally.write(Region::FlowTable, id.0 as usize * size_of::<Flow>(), 128);
        tally.write(Region::Timer, id.0 as usize * size_of::<Cold>(), 32);
        self.len += 1;
        self.peak = self.peak.max(self.len);
        self.created += 1;
        Ok(id)
    }

    /// Sets the key by which the packets that come back are found; an earlier one no longer leads here. Nothing
    /// happens if there is no flow at this place.
    ///
    /// # Errors
    /// [`Refusal::Taken`]: the key belongs to a flow already (perhaps this one, whose packets answer themselves).
    /// [`Refusal::NoKey`]: it is none.
    pub fn set_reply<T: Tally>(
        &mut self,
        id: FlowId,
        key: &Key,
        hash: u64,
        tally: &mut T,
    ) -> Result<(), Refusal> {
        if !key.is_some() {
            return Err(Refusal::NoKey);
        }
        if let Some(hit) = self.find(key, hash, tally) {
            let same = hit == Hit { id, direction: Direction::Reply };
            return if same { Ok(()) } else { Err(Refusal::Taken(hit)) };
        }
        let Some(flow) = self.flow_mut(id) else { return Ok(()) };
        let earlier = std::mem::replace(&mut flow.reply, *key);
        if earlier.is_some() {
            let hash = self.hash(&earlier, tally);
            self.index.remove(hash, entry(id, Direction::Reply), tally);
            self.withdraw(hash);
        }
        self.index.insert(hash, entry(id, Direction::Reply), tally);
        self.publish(hash);
        // The flow's place and bound, 4; the key's ten words, taken out and put there, 40; whether there was one, 16.
        tally.instructions(60);
        tally.write(Region::FlowTable, id.0 as usize * size_of::<Flow>() + 64, 40);
        Ok(())
    }

    /// Ends a flow at once. Nothing happens if there is none at this place.
    pub fn remove<T: Tally>(&mut self, id: FlowId, tally: &mut T) {
        let Some(flow) = self.flow(id) else { return };
        let (original, reply, state) = (flow.original, flow.reply, flow.state());
        let hash = self.hash(&original, tally);
        self.index.remove(hash, entry(id, Direction::Original), tally);
        self.withdraw(hash);
        if reply.is_some() {
            let hash = self.hash(&reply, tally);
            self.index.remove(hash, entry(id, Direction::Reply), tally);
            self.withdraw(hash);
        }
        self.flows.entries_mut()[id.0 as usize] = Flow::zeroed();
        let cold = self.cold.entries_mut();
        self.wheel.unlink(cold, id.0);
        if !state.is_established() {
            self.evictable.leave(cold, id.0);
        }
        cold[id.0 as usize].next = std::mem::replace(&mut self.free, id.0);
        tally.write(Region::FlowTable, id.0 as usize * size_of::<Flow>(), 128);
        tally.write(Region::Timer, id.0 as usize * size_of::<Cold>(), 32);
        self.len -= 1;
        self.ended += 1;
    }

    /// The flow at a place, unless that is free.
    #[inline(always)]
    pub fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.entries().get(id.0 as usize).filter(|flow| flow.is_live())
    }

    /// The flow at a place, to be changed, unless that is free.
    #[inline(always)]
    pub fn flow_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.flows.entries_mut().get_mut(id.0 as usize).filter(|flow| flow.is_live())
    }

    /// Returns the rarely needed fields of the flow at a place, unless the place is free.
    pub fn cold(&self, id: FlowId) -> Option<&Cold> {
        self.flow(id)?;
        self.cold.entries().get(id.0 as usize)
    }

    /// Returns the rarely needed fields of the flow at a place, mutably, unless the place is free.
    pub fn cold_mut(&mut self, id: FlowId) -> Option<&mut Cold> {
        self.flow(id)?;
        self.cold.entries_mut().get_mut(id.0 as usize)
    }

    /// Moves a flow to another state, from which its timeout follows. Notes that it was seen at `now`.
    pub fn set_state<T: Tally>(&mut self, id: FlowId, state: State, now: Tick, tally: &mut T) {
        let FlowTable { flows, timeouts, .. } = self;
        let Some(flow) = flows.entries_mut().get_mut(id.0 as usize).filter(|flow| flow.is_live()) else {
            return;
        };
        let (before, was) = (flow.state(), timeouts.of_flow(flow));
        flow.state = flow.state & !STATE | state as u8;
        flow.seen = now.0;
        let timeout = timeouts.of_flow(flow);
        tally.write(Region::FlowTable, id.0 as usize * size_of::<Flow>() + 48, 16);
        if before == state {
            return;
        }
        let cold = self.cold.entries_mut();
        match (before.is_established(), state.is_established()) {
            (false, true) => self.evictable.leave(cold, id.0),
            (true, false) => self.evictable.join(cold, id.0),
            _ => {}
        }
        // A longer timeout can wait until the wheel comes by; a shorter one cannot.
        if timeout < was {
            self.wheel.unlink(cold, id.0);
            self.wheel.link(cold, id.0, Tick(now.0.saturating_add(timeout)));
            tally.atomic(Region::Timer, id.0 as usize * size_of::<Cold>(), 32);
        }
    }

    /// Gives a flow a timeout of its own, by its number among those that rules say ([`Timeouts::with_own`]); 0 for none.
    pub fn set_idle<T: Tally>(&mut self, id: FlowId, number: u8, tally: &mut T) {
        let FlowTable { flows, timeouts, .. } = self;
        let Some(flow) = flows.entries_mut().get_mut(id.0 as usize).filter(|flow| flow.is_live()) else {
            return;
        };
        if flow.idle_number() == number {
            return;
        }
        let before = timeouts.of_flow(flow);
        flow.flags = flow.flags & super::TRANSLATED | number << 1;
        let (after, seen) = (timeouts.of_flow(flow), flow.seen);
        if after < before {
            let cold = self.cold.entries_mut();
            self.wheel.unlink(cold, id.0);
            self.wheel.link(cold, id.0, Tick(seen.saturating_add(after)));
            tally.atomic(Region::Timer, id.0 as usize * size_of::<Cold>(), 32);
        }
    }

    /// Tracks a TCP connection by a segment in the direction of `hit`, sets the state that follows, and notes that the
    /// flow was seen.
    ///
    /// # Errors
    /// [`tcp::Fault`]: the segment is to be dropped; the flow is as it was.
    #[inline]
    pub fn track_tcp<T: Tally>(
        &mut self,
        hit: Hit,
        segment: &tcp::Segment,
        settings: tcp::Settings,
        now: Tick,
        tally: &mut T,
    ) -> Result<State, tcp::Fault> {
        let id = hit.id;
        let flow = self.flow_mut(id).ok_or(tcp::Fault::NotOpen)?;
        // Flags 4, loads 12, four conditions 16, learning 20, state 8: counted from the source.
        tally.instructions(60);
        let before = flow.state();
        let state = tcp::track(flow, hit.direction, segment, settings)?;
        if state == before {
            if tcp::renews(before, state, segment.flags) {
                flow.seen = now.0;
            }
            tally.write(Region::FlowTable, id.0 as usize * size_of::<Flow>() + 104, 24);
        } else {
            self.set_state(id, state, now, tally);
        }
        Ok(state)
    }

    /// True if a flow has been idle for its timeout or longer. It is then as good as gone, whether
    /// [`FlowTable::advance`] has come by or not: whoever finds it removes it.
    #[inline(always)]
    pub fn is_expired(&self, flow: &Flow, now: Tick) -> bool {
        now.since(Tick(flow.seen)) >= self.timeouts.of_flow(flow)
    }

    /// Idle timeout of a flow, in ticks.
    pub(crate) fn timeout(&self, flow: &Flow) -> u32 {
        self.timeouts.of_flow(flow)
    }

    /// The tick of a moment; 0 before the table was made.
    #[inline(always)]
    pub fn tick(&self, now: Nanos) -> Tick {
        // Nearly all packets come in the tick of the last `advance`, and need no division.
        let is_latest = now.0.wrapping_sub(self.begun.0) < Tick::LENGTH.0;
        if is_latest { self.latest } else { Tick::within(now.since(self.start)) }
    }

    /// Moment of tick 0.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// True if [`FlowTable::advance`] has something to do. Cheap enough to ask for every batch.
    #[inline(always)]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// True if [`FlowTable::advance`] to that time has left nothing over.
    pub fn is_swept(&self, now: Nanos) -> bool {
        self.wheel.is_swept(self.tick(now))
    }

    /// Ends flows that have expired, each after `ended` has been told of it. Of published flows, `carried` returns when the kernel
    /// has carried the last packet. Looks at no more than `most` flows;
    /// what is left is due at once. Time that goes backwards, or jumps, does no harm.
    pub fn advance<T: Tally>(
        &mut self,
        now: Nanos,
        most: u32,
        tally: &mut T,
        mut carried: impl FnMut(FlowId) -> Option<Nanos>,
        mut ended: impl FnMut(FlowId, &Flow, &Cold),
    ) {
        let tick = self.tick(now);
        if now >= self.start {
            (self.latest, self.begun) = (tick, self.start + Nanos(u64::from(tick.0) * Tick::LENGTH.0));
        }
        for _ in 0..most {
            let Some(place) = self.wheel.due(tick) else {
                let next = Nanos((u64::from(tick.0) + 1).saturating_mul(Tick::LENGTH.0));
                self.due = self.due.max(self.start + next);
                return;
            };
            tally.read(Region::Timer, place as usize * size_of::<Cold>(), 32);
            tally.read(Region::FlowTable, place as usize * size_of::<Flow>(), 64);
            if self.flows.entries()[place as usize].progress.is_published() {
                let seen = carried(FlowId(place)).map_or(0, |seen| self.tick(seen).0);
                let flow = &mut self.flows.entries_mut()[place as usize];
                flow.seen = flow.seen.max(seen);
            }
            let flow = &self.flows.entries()[place as usize];
            if self.is_expired(flow, tick) {
                ended(FlowId(place), flow, &self.cold.entries()[place as usize]);
                self.remove(FlowId(place), tally);
            } else {
                let deadline = Tick(flow.seen.saturating_add(self.timeouts.of_flow(flow)));
                self.age(place);
                let cold = self.cold.entries_mut();
                self.wheel.unlink(cold, place);
                self.wheel.link(cold, place, deadline);
                tally.atomic(Region::Timer, place as usize * size_of::<Cold>(), 32);
            }
        }
    }

    /// Of the `candidates` flows that have been unestablished for longest, the one that has been idle longest: it
    /// may make room for another. None if all flows are established.
    pub fn idlest(&self, candidates: u32) -> Option<FlowId> {
        let flows = self.flows.entries();
        let oldest = self.evictable.iter(self.cold.entries()).take(candidates as usize);
        oldest.min_by_key(|place| flows[*place as usize].seen).map(FlowId)
    }

    /// The live flows, expired ones among them.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        let used = &self.flows.entries()[..self.fresh as usize];
        used.iter().enumerate().filter(|(_, flow)| flow.is_live()).map(|(at, flow)| (FlowId(at as u32), flow))
    }

    /// Lets flows forget the hops that are gone; their next packets look for them.
    pub(crate) fn forget_hops(&mut self, is_gone: impl Fn(u32) -> bool) {
        let used = &mut self.flows.entries_mut()[..self.fresh as usize];
        for hop in used.iter_mut().flat_map(|flow| &mut flow.hops) {
            if is_gone(*hop) {
                *hop = Meta::NO_HOP;
            }
        }
    }

    /// Ends all flows at once. Whoever keeps something on their behalf clears that too.
    pub fn clear(&mut self) {
        self.withdraw_all();
        self.index.clear();
        self.wheel.clear();
        self.evictable = Queue::new();
        self.flows.entries_mut()[..self.fresh as usize].fill(Flow::zeroed());
        self.ended += u64::from(self.len);
        (self.len, self.fresh, self.free) = (0, 0, NONE);
    }

    /// Places from the first on among which all flows are.
    pub fn used(&self) -> u32 {
        self.fresh
    }

    /// Flows in the table.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if there is no flow.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Flows that the table can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The most flows that it has held at one time.
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Flows taken in so far.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Flows that have ended so far; `created - ended` is [`FlowTable::len`].
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Bytes of memory that the table takes, all of them since it was made.
    pub fn memory_bytes(&self) -> usize {
        self.parts_bytes().into_iter().sum()
    }

    /// The same by parts: the index, the flows, and what timers need of them.
    pub fn parts_bytes(&self) -> [usize; 3] {
        let beside = self.numbers.bytes()
            + self.senders.bytes()
            + self.classes.bytes()
            + self.wans.bytes()
            + self.watches.bytes()
            + self.helped.bytes();
        [self.index.bytes(), self.flows.bytes(), self.cold.bytes() + self.wheel.bytes() + beside]
    }

    fn take_place(&mut self) -> Option<u32> {
        if self.free != NONE {
            let place = self.free;
            self.free = self.cold.entries()[place as usize].next;
            return Some(place);
        }
        (self.fresh < self.capacity).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// True if nothing is left of any flow.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.index.is_blank() && self.idlest(1).is_none()
    }
}

impl Hit {
    #[inline(always)]
    fn from_entry(entry: u32) -> Hit {
        let direction = if entry & 1 == 0 { Direction::Original } else { Direction::Reply };
        Hit { id: FlowId(entry >> 1), direction }
    }

    /// Returns the offset of the key in the table, in bytes.
    #[inline(always)]
    fn offset(self) -> usize {
        self.id.0 as usize * size_of::<Flow>() + self.direction as usize * 64
    }
}

impl Flow {
    #[inline(always)]
    fn is_live(&self) -> bool {
        self.original.is_some()
    }
}

#[inline(always)]
fn entry(id: FlowId, direction: Direction) -> u32 {
    id.0 << 1 | direction as u32
}
