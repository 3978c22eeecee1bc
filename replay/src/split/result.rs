//! The outcome of one part, as text for whoever merges the parts.

use dataplane::Replay;
use dataplane::limiter::{Ask, ErrorKind};
use policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::Nanos;

use crate::Player;
use crate::measurement::Measurements;
use crate::summary::{Remarks, Span, Summary};

/// Outcome of one part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartResult {
    /// Summary of the part, as [`Summary::to_json`] has it.
    pub(super) summary: Value,
    /// Notes about captures, which each part reads whole.
    pub(super) notes: Vec<String>,
    /// Numbers for further notes.
    pub(super) remarks: Remarks,
    /// Time from the first arrival in the captures to the last departure in this part, in nanoseconds.
    pub(super) lasted: u64,
    /// Memory that the part used at most.
    pub(super) used: Used,
    /// Requests for tokens that all flows share: time, bucket, hash.
    pub(super) asks: Vec<(u64, u32, u64)>,
    /// Requests that are not listed.
    pub(super) asks_lost: u64,
    /// Packets that no part may have.
    pub(super) nowhere: u64,
}

/// Memory in use, at most.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Used {
    /// Flows.
    pub(super) flows: u64,
    /// Neighbours beside those of the policy.
    pub(super) neighbours: u64,
    /// Datagrams with fragments under way.
    pub(super) datagrams: u64,
    /// Fragments held for their first.
    pub(super) fragments: u64,
}

/// Number that stands for a kind of answer among rules.
const ANSWERS: u32 = 1 << 31;

impl PartResult {
    /// Returns the outcome of a part that has been played to its end.
    pub fn new(player: &mut Player, policy: &Policy, measured: &Measurements, span: Span) -> PartResult {
        let nowhere = player.nowhere();
        let Player { replay, captures, .. } = player;
        let summary = Summary::new(replay, policy, captures, measured, span);
        let Replay { shard, .. } = &*replay;
        let fragments = shard.fragments.peak();
        PartResult {
            notes: Summary::notes_on_captures(captures),
            remarks: summary.remarks,
            lasted: measured.end.since(measured.begin).0,
            used: Used {
                flows: shard.flows.peak().into(),
                neighbours: shard.hops.learnt() as u64,
                datagrams: fragments.datagrams.into(),
                fragments: fragments.held.into(),
            },
            asks: shard.limiter.asks.list().iter().map(|ask| written(*ask)).collect(),
            asks_lost: shard.limiter.asks.lost(),
            nowhere,
            summary: summary.to_json(),
        }
    }

    /// Requests for tokens; `None` where they are not this program's.
    pub(super) fn asks(&self) -> Option<Vec<Ask>> {
        self.asks.iter().map(|ask| read(*ask)).collect()
    }
}

fn written(ask: Ask) -> (u64, u32, u64) {
    match ask {
        Ask::Rate { at, rule } => (at.0, rule, 0),
        Ask::Answer { at, kind, hash } => (at.0, ANSWERS | kind as u32, hash),
    }
}

fn read((at, bucket, hash): (u64, u32, u64)) -> Option<Ask> {
    let at = Nanos(at);
    if bucket & ANSWERS == 0 {
        return Some(Ask::Rate { at, rule: bucket });
    }
    let kind = *ErrorKind::ALL.get((bucket & !ANSWERS) as usize)?;
    Some(Ask::Answer { at, kind, hash })
}
