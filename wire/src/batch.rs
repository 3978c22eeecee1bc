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

    /// Appends frames of `pool` with copies of `packets`, as [`Frame::fill`] makes them, and shows each to `received`, as long as the batch and
    /// the pool have room; ends before a packet that is longer than a slot has room for. Returns the number of frames.
    #[inline(always)]
    pub fn receive<'a>(
        &mut self,
        pool: &mut Pool,
        packets: impl Iterator<Item = &'a [u8]>,
        mut received: impl FnMut(&mut Frame),
    ) -> usize {
        self.extend(packets.map_while(|packet| {
            let mut frame = pool.take_filled(packet)?;
            received(&mut frame);
            Some(frame)
        }))
    }

    /// Appends frames as long as there is room, without taking a further one from `frames`. Returns their number.
    #[inline(always)]
    pub fn extend(&mut self, frames: impl Iterator<Item = Frame>) -> usize {
        let before = self.frames.len();
        self.frames.extend(frames.take(self.frames.remaining_capacity()));
        self.frames.len() - before
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_received_as_long_as_there_is_room() {
        let packets: Vec<Vec<u8>> = (0..100).map(|number| vec![number; 60 + usize::from(number)]).collect();
        let all = || packets.iter().map(Vec::as_slice);
        for slots in [0, 1, 63, 64, 65] {
            let (mut pool, mut batch) = (Pool::new(slots.max(1), 2048).unwrap(), Batch::new());
            if slots == 0 {
                batch.extend(pool.take().into_iter());
            }
            let before = batch.len();
            let mut seen = Vec::new();
            let many = batch.receive(&mut pool, all(), |frame| seen.push(frame.len()));
            assert_eq!(many, (slots as usize).min(BATCH));
            assert!(batch[before..].iter().map(Frame::bytes).eq(all().take(many)));
            assert!(seen.into_iter().eq(all().take(many).map(<[u8]>::len)));
            // What was not taken left no slot behind.
            pool.put_all(batch.drain());
            assert_eq!(pool.available(), slots.max(1) as usize);
        }
        let (mut pool, mut batch) = (Pool::new(4, 2048).unwrap(), Batch::new());
        let long = [0; 4096];
        assert_eq!(batch.receive(&mut pool, [&long[..60], &long, &long[..60]].into_iter(), |_| ()), 1);
    }
}
