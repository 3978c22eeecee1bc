//! Look-ups for a batch: keys, hashes and flows of its packets, asked for together.
//!
//! A look-up ahead is a guess until the packet's turn has come, as the packets before it may have opened or ended flows.

use tally::{NoTally, Offload, Region, Tally};
use wire::tcp::Flags;
use wire::{BATCH, Family, Frame, Part};

use super::{Track, carry, follow, is_current, key_of, open};
use crate::flag;
use crate::flow::{Hit, Key, State};
use crate::hop::NO_HOP;
use crate::nat::Endpoint;
use crate::stage::{Cx, take};
use crate::tables::Address;

/// Keys, hashes and probable flows of the packets of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    keys: [Key; BATCH],
    hashes: [u64; BATCH],
    guesses: [Option<Hit>; BATCH],
    /// The place of a packet whose key no flow has, as [`Lookups::follow`] has found.
    absent: Option<usize>,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups { keys: [Key::default(); BATCH], hashes: [0; BATCH], guesses: [None; BATCH], absent: None }
    }
}

impl Lookups {
    /// Computes keys and hashes, and asks for buckets and flows. `frames` are at most [`BATCH`].
    #[inline]
    pub(crate) fn prepare<T: Tally>(&mut self, frames: &[Frame], cx: &mut Cx<'_, T>) {
        for ((frame, key), hash) in frames.iter().zip(&mut self.keys).zip(&mut self.hashes) {
            if frame.meta.fate == 0 {
                *key = key_of(frame, cx);
                *hash = cx.shard.flows.hash(key, cx.tally);
                cx.shard.flows.prefetch_bucket(*hash);
            }
        }
        let lookups = self.keys.iter().zip(&self.hashes).zip(&mut self.guesses);
        for (frame, ((key, hash), guess)) in frames.iter().zip(lookups) {
            if frame.meta.fate == 0 {
                *guess = cx.shard.flows.candidate_hit(*hash);
                match guess {
                    Some(hit) => {
                        cx.shard.flows.prefetch_flow(hit.id);
                        cx.shard.flows.watches.prefetch(hit.id);
                    }
                    None => prefetch_for_first(key, cx),
                }
            }
        }
    }

    /// Follows the frames of the prepared batch from `first` on that simply belong to decided flows, up to the
    /// first one that does not, and returns their number. The effect is the same as that of [`Stage::step`](crate::stage::Stage::step); later
    /// stages' work on such a frame depends on nothing that this stage does for frames behind it.
    #[inline(always)]
    pub(crate) fn follow<T: Tally>(
        &mut self,
        first: usize,
        frames: &mut [Frame],
        cx: &mut Cx<'_, T>,
    ) -> usize {
        let many = frames.len();
        self.absent = None;
        // The moment at which nothing was due. Nearly all frames of a batch have come at one.
        let mut quiet = None;
        for (place, frame) in frames.iter_mut().enumerate() {
            if frame.meta.fate != 0 {
                continue;
            }
            let now = frame.meta.received;
            if quiet != Some(now) && cx.shard.is_due(now) {
                return place;
            }
            quiet = match self.follow_one(first + place, frame, cx) {
                Followed::Simply => Some(now),
                Followed::WithChange => None,
                Followed::Not => return place,
            };
        }
        many
    }

    /// Follows the frame at `place` of the prepared batch, at a moment when nothing is due.
    #[inline(always)]
    fn follow_one<T: Tally>(&mut self, place: usize, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Followed {
        let hit = match self.find(place, frame, cx) {
            Found::Flow(hit) => hit,
            Found::Absent => {
                self.absent = (!cx.shard.flows.may_be_stale()).then_some(place);
                return Followed::Not;
            }
            Found::Apart => return Followed::Not,
        };
        if frame.meta.tcp_flags & (Flags::SYN.0 | Flags::RST.0) != 0 {
            return Followed::Not;
        }
        let hash = self.hashes[place % BATCH];
        let Cx { shard, tables, tally, .. } = cx;
        let Some(flow) = shard.flows.flow(hit.id) else { return Followed::Not };
        // A published flow is brought up to date first, and its packets are few: the kernel has the others.
        // Of a control connection, what is acknowledged depends on what has been rewritten before.
        let is_up_to_date = !flow.progress.is_published() && !flow.is_helped();
        let has_hop = flow.hops[hit.direction as usize] != NO_HOP;
        let tick = shard.flows.tick(frame.meta.received);
        if !(is_up_to_date && has_hop && is_current(hit.id, flow, tick, shard, tables, *tally)) {
            return Followed::Not;
        }
        // No packet changes the state of such a flow any more. A tally is told of each step by the general case.
        if flow.state() == State::UdpConfirmed && !tally.is_kept() {
            let Some(flow) = shard.flows.flow_mut(hit.id) else { return Followed::Not };
            flow.seen = tick.0;
            shard.fast_path.note(hit.id, hit.direction, &mut flow.progress, frame.meta.ingress);
            carry(frame, hit.id, hit.direction, flow);
            shard.accounting.count(hit.id, hit.direction, frame);
            return Followed::Simply;
        }
        follow_apart(frame, hit, hash, cx);
        Followed::WithChange
    }

    /// Looks for the flow of the frame at `place` of the prepared batch.
    #[inline(always)]
    fn find<T: Tally>(&self, place: usize, frame: &Frame, cx: &mut Cx<'_, T>) -> Found {
        let special = flag::ERROR | flag::GROUP | flag::TO_GROUP;
        if frame.meta.part != Part::Whole || frame.meta.flags & special != 0 {
            return Found::Apart;
        }
        // The remainder is for the compiler, which then has no bound to check.
        let place = place % BATCH;
        match cx.shard.flows.find_from(self.guesses[place], &self.keys[place], self.hashes[place], cx.tally) {
            Some(hit) => Found::Flow(hit),
            None => Found::Absent,
        }
    }

    /// True if no flow has the key of the frame at `place` of the prepared batch, where [`Lookups::follow`] has stopped.
    #[inline(always)]
    pub(crate) fn is_absent(&self, place: usize) -> bool {
        self.absent == Some(place)
    }

    /// Goes on to the next frame of the prepared batch, at `place`, and says if no flow has its key either.
    #[inline(always)]
    pub(crate) fn is_next_absent<T: Tally>(
        &mut self,
        place: usize,
        frame: &Frame,
        cx: &mut Cx<'_, T>,
    ) -> bool {
        let is_in_time = frame.meta.fate == 0 && !cx.shard.is_due(frame.meta.received);
        let is_absent = is_in_time && matches!(self.find(place, frame, cx), Found::Absent);
        self.absent = is_absent.then_some(place);
        is_absent
    }

    /// Takes the frame at `place` of the prepared batch, where [`Lookups::follow`] has stopped, through the stage,
    /// without repeating lookups already done.
    #[inline(always)]
    pub(crate) fn take<T: Tally>(&self, place: usize, frame: &mut Frame, cx: &mut Cx<'_, T>) {
        match self.keys.get(place) {
            Some(key) if self.is_absent(place) => {
                open(frame, *key, self.hashes[place], cx).settle(frame);
            }
            _ => take::<Track, T>(frame, cx),
        }
    }
}

/// Search for a flow by addresses, ports, protocol.
pub(super) fn search(family: Family) -> Offload {
    Offload::Search { region: Region::FlowIndex, bytes: if family == Family::V4 { 13 } else { 37 } }
}

/// Result of looking for a packet's flow.
enum Found {
    /// A flow has its key.
    Flow(Hit),
    /// No flow has.
    Absent,
    /// Its flow does not depend on its key alone.
    Apart,
}

/// Result of following a packet's flow.
enum Followed {
    /// The flow has been seen, and is as it was.
    Simply,
    /// The flow may have changed its state, and so when it expires.
    WithChange,
    /// The packet has not been followed.
    Not,
}

/// [`follow`], as a function of its own: with it, the loop over packets that change nothing would not fit in registers.
#[inline(never)]
fn follow_apart<T: Tally>(frame: &mut Frame, hit: Hit, hash: u64, cx: &mut Cx<'_, T>) {
    follow(frame, hit, hash, cx).settle(frame);
}

/// Prefetches memory that the first packet of a flow will need: the source's most likely mapping, or, without source NAT, the
/// bucket of the reply key.
#[inline(never)]
fn prefetch_for_first<T: Tally>(key: &Key, cx: &Cx<'_, T>) {
    if cx.tables.nat.sources.is_empty() {
        return cx.shard.flows.prefetch_bucket(cx.shard.flows.hash(&key.reversed(), &mut NoTally));
    }
    let source: Address = key.source().into();
    cx.shard.mappings.prefetch(&Endpoint {
        address: source.bits,
        port: key.sport(),
        protocol: key.protocol(),
        family: source.family(),
        ..Endpoint::default()
    });
}
