//! Observer of a machine, event by event.
//!
//! Most runs have none, and must not pay for one: a machine tests once an event for an observer, and does nothing else.

use super::memory::Purpose;
use crate::kernel::Ticks;
use crate::trace::Access;

/// An observer. Threads, rings and memories have the machine's numbers; a frame has the number of its slot, which is
/// reused once the frame has left. `now` never goes back; spans may begin later than `now`, but those of one thread
/// follow one another.
pub(crate) trait Watch {
    /// A frame comes in, and is given a slot, or none if it is lost.
    fn comes(&mut self, now: Ticks, job: Option<u32>);

    /// A thread begins its pool's task of that number for a frame.
    fn begins(&mut self, now: Ticks, thread: usize, task: usize, job: u32);

    /// A thread is done with its task.
    fn finishes(&mut self, now: Ticks, thread: usize);

    /// A thread has its engine for a while.
    fn spends(&mut self, thread: usize, how: Spends, at: Ticks, span: Ticks);

    /// Idle threads that poll have their engine for a while, in turns. Spans of one engine follow one another; they are told once they are
    /// over, and the last when the run is.
    fn polls(&mut self, engine: usize, at: Ticks, span: Ticks);

    /// A thread refers to a memory.
    fn refers(&mut self, now: Ticks, reference: &Reference);

    /// A ring now has that many entries taken.
    fn fills(&mut self, now: Ticks, ring: usize, filled: usize);

    /// A thread hands an output of the frame to its port, or ends it.
    fn sends(&mut self, now: Ticks, thread: usize, job: u32);

    /// The frame has gone, with all outputs that it caused.
    fn leaves(&mut self, now: Ticks, job: u32);

    /// True if no more frames need come.
    fn has_enough(&self) -> bool;
}

/// Use of an engine's time for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spends {
    /// Executing instructions.
    Executing,
    /// Fetching in vain, after a branch taken.
    Aborted,
    /// Switching to the thread.
    Switching,
    /// Unable to issue a command.
    Stalled,
}

/// A reference to a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) thread: usize,
    pub(crate) memory: usize,
    pub(crate) purpose: Purpose,
    pub(crate) access: Access,
    pub(crate) bytes: u32,
    /// Time of issue.
    pub(crate) at: Ticks,
    /// Time of completion.
    pub(crate) done: Ticks,
}

/// Engine and pool of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    /// Its engine, in the machine's order.
    pub(crate) engine: usize,
    /// Its pool, in the mapping's.
    pub(crate) pool: usize,
}
