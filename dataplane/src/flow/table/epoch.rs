//! Flows that earlier tables have decided.
//!
//! A flow has the epoch of the tables that decided it. When others take their place it is of an earlier epoch, which its
//! next packet finds out; nobody goes over all flows for that. Epochs are 16 bits and come again. So that no flow is ever
//! taken for one of the present by accident, each is marked [`STALE`] when the timer wheel comes by and finds it of another
//! epoch: the wheel looks at every flow once a turn, 512 seconds. Epochs that began within the last two turns are counted;
//! if they come to nearly all that there are, all flows are marked at once, which takes some milliseconds for a million.

use tally::{Op, Region, Tally};
use wire::Nanos;

use super::{FlowTable, Hit, Refusal};
use crate::flow::wheel::Wheel;
use crate::flow::{Flow, FlowId, Key, STALE, Tick, Timeouts};

/// Epochs that may begin before flows of the first of them have been marked.
const MOST: u32 = u16::MAX as u32 - 8;

/// The current epoch, and counts of the recent ones.
pub(super) struct Epochs {
    now: u16,
    /// True if flows of earlier epochs may be in the table.
    any_stale: bool,
    /// Start of the present turn, and numbers of epochs begun in it and in the turn before.
    turn: Tick,
    begun: [u32; 2],
}

impl Epochs {
    pub(super) fn new(turn: Tick) -> Epochs {
        Epochs { now: STALE, any_stale: false, turn, begun: [0; 2] }
    }
}

impl FlowTable {
    /// The epoch of the present tables.
    pub fn epoch(&self) -> u16 {
        self.epochs.now
    }

    /// Other tables hold from now on: flows that are in the table are of an earlier epoch. Timeouts hold at once; a flow
    /// that is over by shorter ones is found out at its next packet, or within 512 seconds.
    pub fn begin_epoch(&mut self, epoch: u16, timeouts: Timeouts) {
        let Epochs { turn, begun, .. } = &mut self.epochs;
        let cursor = self.wheel.cursor();
        if cursor.since(*turn) >= Wheel::TURN {
            // Whoever was of an epoch that ended before the last turn has been marked since.
            (*turn, *begun) = (cursor, [0, begun[0]]);
        }
        begun[0] += 1;
        if begun[0] + begun[1] >= MOST {
            self.mark_all();
        }
        self.epochs.now = epoch;
        self.epochs.any_stale = self.len > 0;
        self.timeouts = timeouts;
    }

    fn mark_all(&mut self) {
        for flow in &mut self.flows.entries_mut()[..self.fresh as usize] {
            flow.epoch = STALE;
        }
        self.epochs.begun = [0; 2];
    }

    /// Marks the flow at a place if it is of an earlier epoch.
    #[inline(always)]
    pub(super) fn age(&mut self, place: u32) {
        let flow = &mut self.flows.entries_mut()[place as usize];
        if flow.epoch != self.epochs.now {
            flow.epoch = STALE;
        }
    }

    /// Notes that a flow of an earlier epoch has been put in.
    pub(super) fn note_stale(&mut self) {
        self.epochs.any_stale = true;
    }

    /// True if [`FlowTable::find_stale`] may find any.
    #[inline(always)]
    pub fn may_be_stale(&self) -> bool {
        self.epochs.any_stale
    }

    /// True if earlier tables have decided a flow.
    #[inline(always)]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        flow.epoch != self.epochs.now
    }

    /// Returns a flow of an earlier epoch, none of `but`, whose key equals this one but for the conntrack zone: the
    /// present zone of the flow is unknown until revalidation.
    pub fn find_stale<T: Tally>(&self, key: &Key, hash: u64, but: &[FlowId], tally: &mut T) -> Option<Hit> {
        let flows = self.flows.entries();
        let entry = self.index.find(hash, tally, |entry, tally| {
            let hit = Hit::from_entry(entry);
            tally.read(Region::FlowTable, hit.offset(), 64);
            // The flow's place and bound, 3; ten words compared, 19; its epoch, 2.
            tally.instructions(24);
            tally.execute(Op::Branch, 3);
            flows.get(hit.id.0 as usize).is_some_and(|flow| {
                flow.epoch != self.epochs.now
                    && flow.key(hit.direction).in_ct_zone(key.ct_zone()) == *key
                    && !but.contains(&hit.id)
            })
        })?;
        Some(Hit::from_entry(entry))
    }

    /// Moves both keys of a flow to other conntrack zones.
    ///
    /// # Errors
    /// [`Refusal::Taken`]: another flow has one of the keys there; nothing is changed.
    pub fn move_to<T: Tally>(
        &mut self,
        id: FlowId,
        ct_zones: [u16; 2],
        tally: &mut T,
    ) -> Result<(), Refusal> {
        let Some(flow) = self.flow(id) else { return Ok(()) };
        let keys = [flow.original, flow.reply];
        let moved = [keys[0].in_ct_zone(ct_zones[0]), keys[1].in_ct_zone(ct_zones[1])];
        for (key, before) in moved.iter().zip(&keys) {
            if key != before {
                let hash = self.hash(key, tally);
                if let Some(hit) = self.find(key, hash, tally).filter(|hit| hit.id != id) {
                    return Err(Refusal::Taken(hit));
                }
            }
        }
        // The index knows nothing of conntrack zones.
        if let Some(flow) = self.flow_mut(id) {
            [flow.original, flow.reply] = moved;
        }
        Ok(())
    }

    /// Returns the time since the last packet of a flow.
    pub fn idle(&self, flow: &Flow, now: Nanos) -> Nanos {
        Nanos(u64::from(self.tick(now).since(Tick(flow.seen))) * Tick::LENGTH.0)
    }
}
