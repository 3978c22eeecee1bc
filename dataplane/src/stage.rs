//! Stages, the steps of the pipeline, named by verbs; `pipeline` knows their order.

use serde::Serialize;
use tally::Tally;
use wire::meta::Fields;
use wire::{Frame, Pool};

use crate::shard::Shard;
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

pub mod answer;
mod cipher;
pub mod classify;
mod clat;
mod create;
pub mod decap;
pub mod dnat;
pub mod encap;
pub mod filter;
pub mod fragment;
mod handoff;
mod handshake;
pub(crate) mod header;
pub(crate) mod helper;
mod link;
mod log;
pub mod mark;
mod nat64;
mod option;
mod own;
pub mod parse;
mod peer;
pub mod police;
mod protect;
pub mod proxy;
pub mod queue;
pub mod reassemble;
pub mod replicate;
mod revalidate;
pub mod rewrite;
pub mod route;
mod selector;
pub mod snat;
pub mod terminate;
pub mod track;
mod underlay;
pub(crate) mod vrf;
pub(crate) mod wan;

/// One step of the pipeline: a type without values, whose file says all that the rest of the program knows of it. The lists of
/// stages are in [`pipeline`](crate::pipeline); `docs/add/stage.md` adds one.
pub trait Stage {
    /// Name, question, and the fields of a frame's metadata that the stage reads and writes.
    const ABOUT: About;

    /// The packets that it is there for where these tables are in force: a stage that these cannot need is not in their pipeline.
    fn packets(tables: &Tables) -> Packets {
        let _ = tables;
        Packets::Every
    }

    /// True if the stage processes `frame`: as a rule, unless the frame has its verdict.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0
    }

    /// Processes one frame.
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step;

    /// Processes many frames, first to last. A stage that overrides this to look up in bulk must do what
    /// repeated [`Stage::step`] would; what it does for a frame must not depend on what later stages do with the frames before.
    #[inline]
    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        for frame in frames {
            take::<Self, T>(frame, cx);
        }
    }

    /// Instructions that its code takes in the store of an engine, one for each reference, and with the paths that no tally tells
    /// apart. Counted by hand: the store has a loop over words and a routine for 64 bits or a place and its bound once, where a tally tells
    /// what is executed. Code that several stages call is counted with one of them (`tests/program.rs` says which).
    fn program(tables: &Tables) -> u32;
}

/// Takes a frame through a stage, where it has anything to do with the frame.
#[inline(always)]
pub(crate) fn take<S: Stage + ?Sized, T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    if S::takes(frame) {
        S::step(frame, cx).settle(frame);
    }
}

/// Description of a stage.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Name, a verb: used in mappings, captures and `wirerate explain`.
    pub name: &'static str,
    /// Question about a packet that the stage answers.
    pub asks: &'static str,
    /// Fields that the stage reads: none that only a later stage writes.
    pub reads: Fields,
    /// All fields that the stage writes.
    pub writes: Fields,
}

/// Packets that a stage processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packets {
    /// None: the stage is not in the pipeline.
    None,
    /// First packets of flows; later packets take the decisions from the flow.
    First,
    /// Packets that will be answered.
    Answered,
    /// All packets.
    Every,
}

/// Context of a stage's step, beside the frame.
pub struct Cx<'a, T> {
    /// Compiled policy.
    pub tables: &'a Tables,
    /// Mutable memory of this worker.
    pub shard: &'a mut Shard,
    /// Frame pool, for packets that need a further slot.
    pub pool: &'a mut Pool,
    /// Account of the step's cost.
    pub tally: &'a mut T,
}

/// Decision of a stage on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Goes on to the next stage.
    Next,
    /// Forwarded: leaves by a port.
    Forward,
    /// Delivered to the gateway itself.
    Deliver,
    /// Turned into an answer to the sender.
    Answer(Reason),
    /// Dropped.
    Drop(Reason),
    /// Held: pending, or handed off to another worker.
    Hold(Reason),
}

impl Step {
    /// Writes the decision, unless `Step::Next`, into the frame's metadata as the verdict.
    #[inline(always)]
    pub fn settle(self, frame: &mut Frame) {
        // The usual two alone, or they become places of a jump table.
        match self {
            Step::Next => {}
            Step::Forward => frame.meta.fate = Verdict::Forwarded.to_fate(),
            _ => self.end(frame),
        }
    }

    /// [`Step::settle`], of the steps that few frames come to.
    #[inline(never)]
    fn end(self, frame: &mut Frame) {
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
