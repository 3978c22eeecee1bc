//! Who is told, event by event, what happens in a machine.
//!
//! Most runs have nobody, and are not to pay for it: a machine asks once an event whether there is anybody, and does
//! nothing else.

use super::memory::Purpose;
use crate::kernel::Ticks;
use crate::trace::Access;

/// Somebody who watches. Threads, rings and memories are numbered as the machine has them; a frame is known by its slot,
/// which the next one has when it has left. `now` never goes back; spans may begin later than that, but those of one
/// thread follow one another.
pub(crate) trait Watch {
    /// A frame comes in, and is given a slot, or none if it is lost.
    fn comes(&mut self, now: Ticks, job: Option<u32>);

    /// A thread begins its pool's task of that number for a frame.
    fn begins(&mut self, now: Ticks, thread: usize, task: usize, job: u32);

    /// A thread is done with its task.
    fn finishes(&mut self, now: Ticks, thread: usize);

    /// A thread has its engine for a while.
    fn spends(&mut self, thread: usize, how: Spends, at: Ticks, span: Ticks);

    /// A thread refers to a memory.
    fn refers(&mut self, now: Ticks, reference: &Reference);

    /// A ring now has that many entries taken.
    fn fills(&mut self, now: Ticks, ring: usize, filled: usize);

    /// A thread hands an output of the frame to its port, or ends it.
    fn sends(&mut self, now: Ticks, thread: usize, job: u32);

    /// The frame has gone, and so has all that it brought about.
    fn leaves(&mut self, now: Ticks, job: u32);

    /// No more frames need come.
    fn has_enough(&self) -> bool;
}

/// What an engine does with a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spends {
    /// It executes.
    Executing,
    /// It has fetched in vain, for a branch.
    Aborted,
    /// It turns to the thread.
    Switching,
    /// It cannot issue a command.
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
    /// When it is issued.
    pub(crate) at: Ticks,
    /// When it is done.
    pub(crate) done: Ticks,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    /// Its engine, in the machine's order.
    pub(crate) engine: usize,
    /// Its pool, in the mapping's.
    pub(crate) pool: usize,
}
