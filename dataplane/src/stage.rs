//! A stage is one step of the pipeline, named by a verb; `pipeline` knows their order.

use serde::Serialize;
use tally::Tally;
use wire::meta::Fields;
use wire::{Frame, Pool};

use crate::shard::Shard;
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

pub mod answer;
pub mod classify;
mod create;
pub mod dnat;
pub mod filter;
pub mod fragment;
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

/// One step of the pipeline: a type without values, whose file says all that the rest of the program knows of it. The lists of
/// stages are in [`pipeline`](crate::pipeline); `docs/add/stage.md` adds one.
pub trait Stage {
    /// Its name, its question, and the fields of a frame's metadata that it reads and writes.
    const ABOUT: About;

    /// The packets that it is there for where these tables are in force: a stage that these cannot need is not in their pipeline.
    fn packets(tables: &Tables) -> Packets {
        let _ = tables;
        Packets::Every
    }

    /// Says if it has anything to do with `frame`: not with one that has its verdict, as a rule.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0
    }

    /// Does the step for one frame.
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step;

    /// Does the step for many, first to last. A stage that overrides this to look up in bulk must do what
    /// repeated [`Stage::step`] would; what it does for a frame must not depend on what later stages do with the frames before.
    #[inline]
    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        for frame in frames {
            take::<Self, T>(frame, cx);
        }
    }

    /// Instructions that its code takes in the store of an engine: those of each tally call once, however often it is
    /// executed, one for each reference, and the paths that no tally tells apart. What several stages call is counted with
    /// one of them (`tests/program.rs` says which).
    fn program(tables: &Tables) -> u32;
}

/// Takes a frame through a stage, where it has anything to do with the frame.
#[inline(always)]
pub(crate) fn take<S: Stage + ?Sized, T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    if S::takes(frame) {
        S::step(frame, cx).settle(frame);
    }
}

/// What a stage says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name, a verb: as mappings, captures and `wirerate explain` have it.
    pub name: &'static str,
    /// The question that it answers of a packet.
    pub asks: &'static str,
    /// What it reads: none that only a later stage writes.
    pub reads: Fields,
    /// What it writes, and nothing else.
    pub writes: Fields,
}

/// The packets that a stage is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packets {
    /// None: the stage is not in the pipeline.
    None,
    /// The first packets of flows, which later ones follow.
    First,
    /// Those that will be answered.
    Answered,
    /// All.
    Every,
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
