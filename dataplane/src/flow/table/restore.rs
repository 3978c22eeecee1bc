//! Flows that come from another table.

use tally::NoTally;

use super::{FlowTable, Refusal};
use crate::flow::{Flow, FlowId, Key, STALE, Side, State, Tick, tcp};

/// What is known of both sides of a TCP connection, as [`Flow`] keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Window scales: the original side's in the low four bits, the reply side's in the high four.
    pub scales: u8,
    /// Of the original side, then of the other: the highest sequence number that it has sent, plus one.
    pub end: [u32; 2],
    /// Likewise the highest that the other side allows it to send, plus one.
    pub max_end: [u32; 2],
    /// Likewise the largest window that it has offered, scaled.
    pub max_window: [u32; 2],
}

/// A flow that another table has had.
#[derive(Clone, Copy, Debug)]
pub struct Former<'a> {
    /// The keys of both directions.
    pub keys: [&'a Key; 2],
    /// Where the connection stands: a state of its protocol.
    pub state: State,
    /// What is known of its sides.
    pub windows: &'a Windows,
    /// Ticks since its last packet.
    pub idle: u32,
    /// Ticks since its first.
    pub age: u32,
}

impl Flow {
    /// What is known of its sides.
    pub fn windows(&self) -> Windows {
        let sides = &self.sides;
        Windows {
            scales: self.scales,
            end: [sides[0].end, sides[1].end],
            max_end: [sides[0].max_end, sides[1].max_end],
            max_window: [sides[0].max_window, sides[1].max_window],
        }
    }
}

impl FlowTable {
    /// Takes in a flow that another table has had, as one of an earlier epoch. What was before ticks began was when they
    /// began.
    ///
    /// # Errors
    /// [`Refusal`]: there is no room, or a key is taken; the table is as it was.
    pub fn restore(&mut self, former: &Former<'_>, now: Tick) -> Result<FlowId, Refusal> {
        let seen = Tick(now.0.saturating_sub(former.idle));
        let [original, reply] = former.keys;
        let hashes = former.keys.map(|key| self.hash(key, &mut NoTally));
        if let Some(hit) = self.find(reply, hashes[1], &mut NoTally) {
            return Err(Refusal::Taken(hit));
        }
        let id = self.insert(original, hashes[0], seen, &mut NoTally)?;
        if let Err(refusal) = self.set_reply(id, reply, hashes[1], &mut NoTally) {
            self.remove(id, &mut NoTally);
            return Err(refusal);
        }
        self.set_state(id, former.state, seen, &mut NoTally);
        if let Some(cold) = self.cold_mut(id) {
            cold.created = now.0.saturating_sub(former.age);
        }
        if let Some(flow) = self.flow_mut(id) {
            let windows = former.windows;
            flow.epoch = STALE;
            flow.scales = windows.scales;
            flow.sides = [0, 1].map(|side| Side {
                end: windows.end[side],
                max_end: windows.max_end[side],
                max_window: windows.max_window[side].min(tcp::MAX_WINDOW),
            });
        }
        self.note_stale();
        Ok(id)
    }

    /// Goes on counting where another table, whose flows this one has taken in, has come to.
    pub(crate) fn go_on_from(&mut self, other: &FlowTable) {
        self.created = other.created;
        self.ended = other.created - u64::from(self.len);
        self.peak = self.peak.max(other.peak);
    }
}
