//! `queue`: is there room before its interface?
//!
//! One first-in-first-out queue for each port, of fixed length; a frame that finds the queue full is dropped (tail drop).
//! The pipeline then moves the frame into the queue.

use tally::{Op, Region, Tally};
use wire::Frame;
use wire::meta::Fields;

use super::{About, Cx, Stage, Step};
use crate::tables::{LOCAL, Tables};
use crate::verdict::{Reason, Verdict};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue;

impl Stage for Queue {
    const ABOUT: About = About {
        name: "queue",
        asks: "Is there room before its interface?",
        reads: Fields::EGRESS,
        writes: Fields::EGRESS,
    };

    /// Answers go out like what is forwarded.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 || frame.meta.fate >> 8 == ANSWERED
    }

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // The interface's port and its queue, each by place and bound, 8; length, those admitted, capacity, 4; egress, 2.
        cx.tally.instructions(14);
        cx.tally.execute(Op::Branch, 4);
        cx.tally.write(Region::Queue, usize::from(frame.meta.egress.0) * 64, 8);
        let root = cx.tables.interfaces.get(usize::from(frame.meta.egress.0)).map(|interface| interface.root);
        let Some(queue) = root.and_then(|root| cx.shard.egress.port(root)) else {
            // Only an answer to the gateway itself comes here without a port.
            let is_own = frame.meta.fate != 0 && frame.meta.egress == LOCAL;
            return if is_own { Step::Next } else { Step::Drop(Reason::NeighbourUnknown) };
        };
        if queue.is_full() {
            return Step::Drop(Reason::QueueFull);
        }
        // From here on it is the port that counts, not which of its VLANs the frame is in.
        frame.meta.egress = root.unwrap_or(frame.meta.egress);
        if frame.meta.fate == 0 { Step::Forward } else { Step::Next }
    }

    fn program(_: &Tables) -> u32 {
        19
    }
}

/// The high byte of an answered frame's fate.
pub(crate) const ANSWERED: u16 = Verdict::Answered(Reason::TtlExpired).to_fate() >> 8;
