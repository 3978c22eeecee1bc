//! One side of a ring of AF_XDP: entries in memory shared with the kernel, a producer's and a consumer's position.
//!
//! Positions count on without end; an entry's index is its position modulo the ring's size. The kernel's position is
//! checked: a position further away from ours than the ring's size is ignored.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Plain;
use super::mapping::Mapping;

/// Parts common to producer and consumer.
struct Ring<T> {
    /// Position of our side, read by the kernel.
    ours: NonNull<AtomicU32>,
    /// Position of the kernel's side, read by us.
    theirs: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our position, ahead of the published one.
    at: u32,
    _map: Mapping,
}

/// Offset of a ring in a socket's mapping, and layout of the ring.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) page_offset: i64,
    pub(crate) offsets: libc::xdp_ring_offset,
    /// Entries: a power of two.
    pub(crate) size: u32,
}

impl<T: Plain> Ring<T> {
    fn new(socket: BorrowedFd<'_>, place: Place, ours: u64, theirs: u64) -> io::Result<Ring<T>> {
        let entries = usize::try_from(place.offsets.desc).unwrap_or(usize::MAX);
        let len = entries.saturating_add(place.size as usize * size_of::<T>());
        Ring::over(Mapping::new(socket, len, place.page_offset)?, place, ours, theirs)
    }

    fn over(map: Mapping, place: Place, ours: u64, theirs: u64) -> io::Result<Ring<T>> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let at = |offset: u64| usize::try_from(offset).map_err(|_| bad());
        let word = |offset: u64| map.word(at(offset)?).map(NonNull::from).ok_or_else(bad);
        let (ours, theirs, flags) = (word(ours)?, word(theirs)?, word(place.offsets.flags)?);
        let entries = map.slice(at(place.offsets.desc)?, place.size as usize).ok_or_else(bad)?;
        Ok(Ring { ours, theirs, flags, entries, size: place.size, at: 0, _map: map })
    }

    #[inline]
    fn theirs(&self) -> u32 {
        // SAFETY: the word lies in the mapping, which lives as long as this. Acquire: what the kernel did before it
        // moved its position is seen after this.
        unsafe { self.theirs.as_ref() }.load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self) {
        // SAFETY: as in `theirs`. Release: the kernel sees our entries, or that we have read its own, before this.
        unsafe { self.ours.as_ref() }.store(self.at, Ordering::Release);
    }

    #[inline]
    fn entry(&self, position: u32) -> *mut T {
        // SAFETY: the index is below `size`, and so many entries lie in the mapping.
        unsafe { self.entries.as_ptr().add((position & (self.size - 1)) as usize) }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `theirs`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we fill and the kernel empties.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Position up to which there is room, as last read.
    limit: u32,
}

impl<T: Plain> Producer<T> {
    pub(crate) fn new(socket: BorrowedFd<'_>, place: Place) -> io::Result<Producer<T>> {
        let ring = Ring::new(socket, place, place.offsets.producer, place.offsets.consumer)?;
        Ok(Producer::over(ring))
    }

    fn over(ring: Ring<T>) -> Producer<T> {
        Producer { limit: ring.size, ring }
    }

    /// Entries that may be pushed, at least `wanted` if there is room for so many.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        if self.limit.wrapping_sub(self.ring.at) < wanted {
            let theirs = self.ring.theirs();
            if self.ring.at.wrapping_sub(theirs) <= self.ring.size {
                self.limit = theirs.wrapping_add(self.ring.size);
            }
        }
        self.limit.wrapping_sub(self.ring.at)
    }

    /// Puts an entry into the ring; the kernel does not see it before [`Producer::submit`]. `false` without room.
    #[inline]
    #[must_use]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: within the mapping; there is room, so the kernel does not read this entry.
        unsafe { self.ring.entry(self.ring.at).write(entry) };
        self.ring.at = self.ring.at.wrapping_add(1);
        true
    }

    /// Publishes the pushed entries to the kernel.
    #[inline]
    pub(crate) fn submit(&self) {
        self.ring.publish();
    }

    /// Number of entries that the kernel has not consumed yet.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let waiting = self.ring.at.wrapping_sub(self.ring.theirs());
        if waiting <= self.ring.size { waiting } else { 0 }
    }

    /// True if the kernel looks at the ring only after a call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills and we empty.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Position up to which there are entries, as last read.
    limit: u32,
}

impl<T: Plain> Consumer<T> {
    pub(crate) fn new(socket: BorrowedFd<'_>, place: Place) -> io::Result<Consumer<T>> {
        let ring = Ring::new(socket, place, place.offsets.consumer, place.offsets.producer)?;
        Ok(Consumer { ring, limit: 0 })
    }

    /// The next entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.limit == self.ring.at {
            let theirs = self.ring.theirs();
            if theirs.wrapping_sub(self.ring.at) > self.ring.size {
                return None;
            }
            self.limit = theirs;
            if self.limit == self.ring.at {
                return None;
            }
        }
        // SAFETY: within the mapping; the kernel has written the entry, and does not touch it before we move on. Any
        // pattern of bits is a value.
        let entry = unsafe { self.ring.entry(self.ring.at).read() };
        self.ring.at = self.ring.at.wrapping_add(1);
        Some(entry)
    }

    /// Returns the popped entries to the kernel.
    #[inline]
    pub(crate) fn release(&self) {
        self.ring.publish();
    }
}

// SAFETY: the only user of this side of the ring; positions are atomic on both sides.
unsafe impl<T: Plain> Send for Ring<T> {}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const SIZE: u32 = 8;
    const PLACE: Place = Place {
        page_offset: 0,
        offsets: libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 },
        size: SIZE,
    };

    /// A ring, and the kernel's view of it.
    fn ring(ours: u64, theirs: u64) -> (Ring<u64>, Mapping) {
        let [map, kernel] = Mapping::twice(192 + SIZE as usize * 8);
        (Ring::over(map, PLACE, ours, theirs).unwrap(), kernel)
    }

    fn word(kernel: &Mapping, at: u64) -> &AtomicU32 {
        kernel.word(at as usize).unwrap()
    }

    fn entry(position: u32) -> usize {
        192 + (position % SIZE) as usize * 8
    }

    proptest! {
        #[test]
        fn what_is_pushed_arrives_in_order(turns in vec((0..12u32, 0..12u32), 0..200)) {
            let (ring, kernel) = ring(0, 64);
            let mut producer = Producer::over(ring);
            let (mut next, mut expected, mut position) = (0u64, VecDeque::new(), 0u32);
            for (pushes, pops) in turns {
                for _ in 0..pushes {
                    let room = SIZE as usize - expected.len();
                    prop_assert_eq!(producer.push(next), room > 0);
                    if room > 0 {
                        expected.push_back(next);
                        next += 1;
                    }
                }
                producer.submit();
                prop_assert_eq!(producer.waiting() as usize, expected.len());
                let told = word(&kernel, 0).load(Ordering::Acquire);
                for _ in 0..pops.min(told.wrapping_sub(position)) {
                    prop_assert_eq!(kernel.read::<u64>(entry(position)), expected.pop_front());
                    position = position.wrapping_add(1);
                }
                word(&kernel, 64).store(position, Ordering::Release);
            }
        }

        #[test]
        fn what_the_kernel_puts_in_is_taken_once_and_in_order(turns in vec((0..9u32, 0..12u32), 0..200)) {
            let (ring, kernel) = ring(64, 0);
            let mut consumer = Consumer { ring, limit: 0 };
            let (mut put, mut taken) = (0u32, 0u32);
            for (puts, pops) in turns {
                let released = word(&kernel, 64).load(Ordering::Acquire);
                for _ in 0..puts.min(SIZE - put.wrapping_sub(released)) {
                    kernel.write(entry(put), u64::from(put));
                    put = put.wrapping_add(1);
                }
                word(&kernel, 0).store(put, Ordering::Release);
                for _ in 0..pops {
                    let expected = (taken != put).then_some(u64::from(taken));
                    prop_assert_eq!(consumer.pop(), expected);
                    taken += u32::from(expected.is_some());
                }
                consumer.release();
            }
        }

        #[test]
        fn a_position_that_cannot_be_moves_nothing(positions in vec(any::<u32>(), 1..50)) {
            let (ring_in, kernel_in) = ring(64, 0);
            let mut consumer = Consumer { ring: ring_in, limit: 0 };
            let (ring_out, kernel_out) = ring(0, 64);
            let mut producer = Producer::over(ring_out);
            let mut popped = 0;
            for position in positions {
                word(&kernel_in, 0).store(position, Ordering::Release);
                word(&kernel_out, 64).store(position, Ordering::Release);
                let mut here = 0;
                while consumer.pop().is_some() {
                    here += 1;
                }
                popped += here;
                prop_assert!(here <= SIZE);
                prop_assert!(producer.room(SIZE) <= SIZE);
                prop_assert!(producer.waiting() <= SIZE);
                let _ = producer.push(1);
            }
            prop_assert_eq!(consumer.ring.at, popped);
        }
    }

    #[test]
    fn positions_go_round() {
        let (mut ring, kernel) = ring(64, 0);
        ring.at = u32::MAX - 2;
        let mut consumer = Consumer { ring, limit: u32::MAX - 2 };
        word(&kernel, 0).store(3, Ordering::Release);
        assert_eq!(std::iter::from_fn(|| consumer.pop()).count(), 6);
        consumer.release();
        assert_eq!(word(&kernel, 64).load(Ordering::Acquire), 3);
    }

    #[test]
    fn a_ring_that_does_not_fit_its_memory_is_refused() {
        for (len, ours) in [(192 + 63, 0), (256, 2), (256, 300)] {
            let [map, _] = Mapping::twice(len);
            assert!(Ring::<u64>::over(map, PLACE, ours, 64).is_err(), "{len} {ours}");
        }
    }
}
