//! One frame through the pipeline, told stage by stage.
//!
//! The frame goes the way that all frames go ([`Pipeline::step_watched`](crate::Pipeline::step_watched)); what is
//! told is what really happened, and it has happened: flows, ports and counters are changed by it. Nothing here
//! prints.

use std::mem;

use tally::Count;
use wire::{Frame, Meta, Nanos, PortId};

use crate::flow::{Flow, FlowId};
use crate::opening::Opening;
use crate::pipeline::Watch;
use crate::replay::{Replay, Witness};
use crate::stage::Cx;
use crate::verdict::{Reason, Verdict};

/// What became of one frame, and how.
#[derive(Clone, Debug)]
pub struct Account {
    /// The stages that took the frame, in their order. None if it was too large to be taken in.
    pub visits: Vec<Visit>,
    /// What left because of it, in order: itself, its parts, its answer, or what waited for it.
    pub sent: Vec<Sent>,
    /// Its fate.
    pub verdict: Verdict,
}

/// What one stage did with the frame.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The stage's name.
    pub stage: &'static str,
    /// What was known of the frame before.
    pub before: Meta,
    /// What is known of it now, its fate included.
    pub after: Meta,
    /// What is decided by now about the flow that it opens, if it does.
    pub opening: Option<Opening>,
    /// The flow that it belongs to, as it is now.
    pub flow: Option<Flow>,
    /// Number of flows that there were before and after.
    pub flows: [u32; 2],
    /// What the stage cost.
    pub cost: Count,
    /// The frame's bytes, where the stage has changed them.
    pub bytes: Option<Vec<u8>>,
}

/// A frame that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port it left by.
    pub port: PortId,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its verdict; `None` for further fragments of a packet.
    pub verdict: Option<Verdict>,
}

impl Replay {
    /// Does what [`Replay::receive`] and [`Replay::pass`] do with one frame, and tells how. Frames that were
    /// received before go through first, and what is due before it departs. `number` must not be that of another frame under way.
    pub fn explain(
        &mut self,
        ingress: PortId,
        at: Nanos,
        number: u32,
        bytes: &[u8],
        witness: &mut impl Witness,
    ) -> Account {
        self.advance(at, witness);
        let mut listener = Listener { witness, number, sent: Vec::new(), verdict: None };
        self.receive(ingress, at, number, bytes, &mut listener);
        let mut watcher = Watcher::default();
        let mut tally = Count::default();
        self.pass_watched(&mut listener, &mut tally, &mut watcher);
        let Listener { sent, verdict, .. } = listener;
        // Of what waits nobody has been told; its last stage knows.
        let last = watcher.visits.last().and_then(|visit| Verdict::of_fate(visit.after.fate));
        let verdict = verdict.or(last).unwrap_or(Verdict::Held(Reason::FragmentWaits));
        Account { visits: watcher.visits, sent, verdict }
    }
}

/// Notes what each stage does.
#[derive(Default)]
struct Watcher {
    visits: Vec<Visit>,
    meta: Meta,
    flows: u32,
    bytes: Vec<u8>,
}

impl Watch<Count> for Watcher {
    fn before(&mut self, _: &'static str, frame: &Frame, cx: &mut Cx<'_, Count>) {
        self.meta = frame.meta.clone();
        self.flows = cx.shard.flows.len();
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.bytes());
        *cx.tally = Count::default();
    }

    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, Count>) {
        self.visits.push(Visit {
            stage,
            before: self.meta.clone(),
            after: frame.meta.clone(),
            opening: cx.shard.openings.of(&frame.meta).copied(),
            flow: cx.shard.flows.flow(FlowId(frame.meta.flow)).copied(),
            flows: [self.flows, cx.shard.flows.len()],
            cost: mem::take(cx.tally),
            bytes: (frame.bytes() != self.bytes).then(|| frame.bytes().to_vec()),
        });
    }
}

/// Hears what becomes of the frame, and passes all of it on.
struct Listener<'a, W> {
    witness: &'a mut W,
    number: u32,
    sent: Vec<Sent>,
    verdict: Option<Verdict>,
}

impl<W: Witness> Witness for Listener<'_, W> {
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let verdict = Verdict::of_fate(frame.meta.fate);
        if frame.meta.number == self.number && verdict.is_some() {
            self.verdict = verdict;
        }
        self.sent.push(Sent { port, bytes: frame.bytes().to_vec(), verdict });
        self.witness.queued(port, frame);
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.witness.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        if frame.meta.number == self.number {
            self.verdict = Some(verdict);
        }
        self.witness.ended(frame, verdict);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        if number == self.number {
            self.verdict = Some(Verdict::Dropped(reason));
        }
        self.witness.refused(number, ingress, reason);
    }
}

#[cfg(test)]
mod tests;
