//! Frames that travel together.

use std::mem;
use std::ops::{Deref, DerefMut};

use arrayvec::{ArrayVec, IntoIter};

use crate::frame::Frame;
use crate::pool::Pool;

/// The most frames that travel together: enough to hide a cache miss behind the work on the others, few
/// enough that their metadata stays in the first-level cache.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] frames that travel together, in the order in which they were received. A slice of
/// frames in all but growing.
#[derive(Debug, Default)]
pub struct Batch {
    frames: ArrayVec<Frame, BATCH>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Appends a frame, or gives it back if the batch is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        self.frames.try_push(frame).map_err(|full| full.element())
    }

    /// Appends an empty frame from `pool` and lends it, to be filled; `None` where the batch is full or the pool
    /// is empty.
    #[inline(always)]
    pub fn extend_from(&mut self, pool: &mut Pool) -> Option<&mut Frame> {
        if self.frames.is_full() {
            return None;
        }
        self.frames.push(pool.take()?);
        self.frames.last_mut()
    }

    /// True if no further frame fits.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Number of further frames that fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.frames.remaining_capacity()
    }

    /// Takes all frames out, first to last.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.frames.drain(..)
    }

    /// Takes out the first `frames` frames, or all if there are fewer; the others move up.
    #[inline]
    pub fn drain_front(&mut self, frames: usize) -> impl Iterator<Item = Frame> + '_ {
        let frames = frames.min(self.frames.len());
        self.frames.drain(..frames)
    }

    /// Takes all frames out, and lends those not yet taken from the iterator.
    #[inline]
    pub fn take(&mut self) -> IntoIter<Frame, BATCH> {
        mem::take(&mut self.frames).into_iter()
    }

    /// Takes the last frame out.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }
}

impl Deref for Batch {
    type Target = [Frame];
    #[inline(always)]
    fn deref(&self) -> &[Frame] {
        &self.frames
    }
}

impl DerefMut for Batch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }
}
