//! Flows restored from another table.

use serde::{Deserialize, Serialize};
use tally::NoTally;

use super::{FlowTable, Refusal};
use crate::flow::{Flow, FlowId, Key, Life, MIDWAY, STALE, Side, State, Tick, UNHEARD, tcp};

/// TCP window state of both sides of a connection, as [`Flow`] keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Window scales: the original side's in the low four bits, the reply side's in the high four.
    pub scales: u8,
    /// Highest sequence number sent, plus one: by the original side, then by the other.
    pub end: [u32; 2],
    /// Highest sequence number that the other side allows, plus one; in the same order.
    pub max_end: [u32; 2],
    /// Largest window offered, scaled; in the same order.
    pub max_window: [u32; 2],
}

/// A flow from another table.
#[derive(Clone, Copy, Debug)]
pub struct Former<'a> {
    /// The keys of both directions.
    pub keys: [&'a Key; 2],
    /// State of the connection, one of its protocol's.
    pub state: State,
    /// TCP window state of both sides.
    pub windows: &'a Windows,
    /// Ticks since the last packet.
    pub idle: u32,
    /// Ticks since the first packet.
    pub age: u32,
}

impl Flow {
    /// Returns the TCP window state of both sides.
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
    /// Takes in a flow from another table, as a flow of an earlier epoch. Times before tick 0 become tick 0.
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

    /// Forgets the TCP windows of a connection whose handshake is over: they are learnt anew from its next segments.
    pub(crate) fn forget_windows(&mut self, id: FlowId) {
        let Some(flow) = self.flow_mut(id) else { return };
        if matches!(flow.state().life(), Life::TcpEstablished | Life::TcpClosing) {
            flow.sides = [Side::default(); 2];
            flow.state = flow.state & !MIDWAY | UNHEARD;
        }
    }

    /// Continues the counters of another table whose flows this one has taken in.
    pub(crate) fn go_on_from(&mut self, other: &FlowTable) {
        self.created = other.created;
        self.ended = other.created - u64::from(self.len);
        self.peak = self.peak.max(other.peak);
    }
}
