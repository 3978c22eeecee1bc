//! The queue of flows that may make room for others: those not established, oldest first.
//!
//! A flow joins at the end when it enters such a state and leaves when it is established or removed. The
//! links lie in the flows' cold records.

use super::{Cold, NONE};

/// A doubly linked list through `older` and `younger`.
pub(super) struct Queue {
    oldest: u32,
    youngest: u32,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { oldest: NONE, youngest: NONE }
    }

    /// Adds a flow that is not in the queue.
    pub(super) fn join(&mut self, cold: &mut [Cold], flow: u32) {
        let older = std::mem::replace(&mut self.youngest, flow);
        cold[flow as usize].older = older;
        cold[flow as usize].younger = NONE;
        match older {
            NONE => self.oldest = flow,
            older => cold[older as usize].younger = flow,
        }
    }

    /// Takes out a flow that is in the queue.
    pub(super) fn leave(&mut self, cold: &mut [Cold], flow: u32) {
        let Cold { older, younger, .. } = cold[flow as usize];
        match older {
            NONE => self.oldest = younger,
            older => cold[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => cold[younger as usize].older = older,
        }
    }

    /// The flows of the queue, oldest first.
    pub(super) fn iter<'a>(&self, cold: &'a [Cold]) -> impl Iterator<Item = u32> + use<'a> {
        let here = |flow: u32| (flow != NONE).then_some(flow);
        std::iter::successors(here(self.oldest), move |flow| here(cold[*flow as usize].younger))
    }
}
