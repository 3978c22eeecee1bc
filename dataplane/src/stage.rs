//! A stage is one step of the pipeline, named by a verb; `pipeline` knows their order.

use tally::Tally;
use wire::{Frame, Pool};

use crate::shard::Shard;
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

pub mod answer;
pub mod classify;
mod create;
pub mod dnat;
pub mod filter;
mod handoff;
mod handshake;
mod header;
mod log;
mod option;
pub mod parse;
pub mod proxy;
pub mod queue;
mod revalidate;
pub mod rewrite;
pub mod route;
pub mod snat;
pub mod track;

/// One step of the pipeline.
pub trait Stage<T: Tally> {
    /// Whether this stage has anything to do with `frame`: not with one that has its verdict, as a rule.
    #[inline(always)]
    fn takes(&self, frame: &Frame) -> bool {
        frame.meta.fate == 0
    }

    /// Does the step for one frame.
    fn step(&mut self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step;

    /// Instructions that its code takes in the store of an engine: those of each tally call once, however often it is
    /// executed, one for each reference, and the paths that no tally tells apart. What several stages call is counted with
    /// one of them (`tests/program.rs` says which).
    fn program(&self, tables: &Tables) -> u32;

    /// Does the step for many, first to last. A stage that overrides this to look up in bulk must do what
    /// repeated [`Stage::step`] would.
    #[inline]
    fn run(&mut self, frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        for frame in frames {
            if self.takes(frame) {
                self.step(frame, cx).settle(frame);
            }
        }
    }
}

/// What a stage works with beside the frame.
pub struct Cx<'a, T> {
    /// What the policy compiled to.
    pub tables: &'a Tables,
    /// The mutable memory of this worker.
    pub shard: &'a mut Shard,
    /// Where slots come from, for what needs more than one.
    pub pool: &'a mut Pool,
    /// The account of what it costs.
    pub tally: &'a mut T,
}

/// What a stage decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// On to the next stage.
    Next,
    /// It has been found out to be on its way out: forwarded.
    Forward,
    /// It is for the gateway itself.
    Deliver,
    /// It will be turned into an answer to its sender.
    Answer(Reason),
    /// It is dropped.
    Drop(Reason),
    /// It has to wait.
    Hold(Reason),
}

impl Step {
    /// Writes the decision, where it is final, into the frame's metadata.
    #[inline(always)]
    pub fn settle(self, frame: &mut Frame) {
        // Asked first, or it becomes one of the places of a jump table.
        if self == Step::Next {
            return;
        }
        let verdict = match self {
            Step::Next => return,
            Step::Forward => Verdict::Forwarded,
            Step::Deliver => Verdict::Delivered,
            Step::Answer(reason) => Verdict::Answered(reason),
            Step::Drop(reason) => Verdict::Dropped(reason),
            Step::Hold(reason) => Verdict::Held(reason),
        };
        frame.meta.fate = verdict.to_fate();
    }
}
