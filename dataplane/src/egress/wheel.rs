//! Timers of shapers: a hierarchical timing wheel (Varghese and Lauck 1987) of nanosecond resolution.
//!
//! A timer lies in a slot of 256 ns, or of a power of 256 times as long; a slot that comes is spread over shorter ones, and at last
//! into a heap of the timers of one slot, which have their exact order. Setting a timer takes constant time however many there are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use wire::Nanos;

/// No timer.
const NONE: u32 = u32::MAX;

/// Length of the shortest slot, as a power of two: 256 ns.
const SHIFT: u32 = 8;

/// Slots of a level, as a power of two.
const BITS: u32 = 8;

const SLOTS: usize = 1 << BITS;

/// Levels: all of the 64 bits of time.
const LEVELS: usize = ((64 - SHIFT) / BITS) as usize;

/// Timers, each known by its number; a timer that is set is not set again until it has gone off.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Number of the slot of the shortest length up to which timers are in the heap.
    cursor: u64,
    slots: Box<[[u32; SLOTS]; LEVELS]>,
    /// Slots of each level that are not empty.
    taken: [Taken; LEVELS],
    /// A bit for each level that has one.
    levels: u8,
    timers: Vec<Timer>,
    /// Timers up to the end of the slot at `cursor`.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Number of timers that are set.
    set: usize,
    /// Moment that is not after that of the first timer.
    bound: u64,
}

/// Slots of a level that are not empty: all behind the cursor's, whose timers have gone to shorter ones or off.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// A bit for each slot.
    slots: [u32; SLOTS / 32],
    /// A bit for each of these that is not zero.
    words: u8,
}

impl Taken {
    #[inline]
    fn insert(&mut self, slot: usize) {
        self.slots[slot / 32] |= 1 << (slot % 32);
        self.words |= 1 << (slot / 32);
    }

    #[inline]
    fn remove(&mut self, slot: usize) {
        let word = &mut self.slots[slot / 32];
        *word &= !(1 << (slot % 32));
        self.words &= !(u8::from(*word == 0) << (slot / 32));
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        let word = self.words.trailing_zeros() as usize;
        self.slots.get(word).map(|slots| word * 32 + slots.trailing_zeros() as usize)
    }
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    at: u64,
    next: u32,
}

impl Wheel {
    /// Creates a wheel with that many timers, of which none is set.
    pub(super) fn new(timers: usize) -> Wheel {
        Wheel {
            cursor: 0,
            slots: Box::new([[NONE; SLOTS]; LEVELS]),
            taken: [Taken::default(); LEVELS],
            levels: 0,
            timers: vec![Timer { at: 0, next: NONE }; timers],
            due: BinaryHeap::with_capacity(timers),
            set: 0,
            bound: u64::MAX,
        }
    }

    /// Sets a timer to go off at `at`.
    pub(super) fn set(&mut self, timer: u32, at: Nanos) {
        self.bound = if self.set == 0 { at.0 } else { self.bound.min(at.0) };
        self.set += 1;
        self.place(timer, at.0);
    }

    /// Returns a moment that is not after that of the first timer, and after the last moment that was advanced to or equal to it.
    #[inline(always)]
    pub(super) fn bound(&self) -> Option<Nanos> {
        (self.set != 0).then_some(Nanos(self.bound))
    }

    /// The bound by what lies in slots and heap.
    fn bound_now(&self) -> u64 {
        match self.due.peek() {
            Some(Reverse((at, _))) => *at,
            None => self.next_slot().map_or(u64::MAX, |(_, _, start)| start << SHIFT),
        }
    }

    /// Takes a timer that goes off by `now`, in the order of time, then of numbers. `None` if there is none;
    /// [`bound`](Wheel::bound) is after `now` only then, and may be too early before.
    pub(super) fn take(&mut self, now: Nanos) -> Option<u32> {
        loop {
            if let Some(Reverse((at, timer))) = self.due.peek().copied() {
                if at > now.0 {
                    self.bound = at;
                    return None;
                }
                self.due.pop();
                self.set -= 1;
                return Some(timer);
            }
            let (level, slot, start) = self.next_slot()?;
            if start << SHIFT > now.0 {
                self.bound = start << SHIFT;
                return None;
            }
            self.cursor = start;
            self.taken[level].remove(slot);
            self.levels &= !(u8::from(self.taken[level].words == 0) << level);
            let mut timer = std::mem::replace(&mut self.slots[level][slot], NONE);
            while let Some(Timer { at, next }) = self.timers.get(timer as usize).copied() {
                self.place(timer, at);
                timer = next;
            }
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        let mut all: Vec<(u32, u64)> = self.due.drain().map(|Reverse((at, timer))| (timer, at)).collect();
        for level in self.slots.iter_mut() {
            for slot in level {
                let mut timer = std::mem::replace(slot, NONE);
                while let Some(Timer { at, next }) = self.timers.get(timer as usize).copied() {
                    all.push((timer, at));
                    timer = next;
                }
            }
        }
        (self.taken, self.levels) = ([Taken::default(); LEVELS], 0);
        self.cursor = 0;
        for (timer, at) in all {
            self.place(timer, at.saturating_sub(span.0));
        }
        self.bound = self.bound_now();
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(self.timers.as_slice()) + self.due.capacity() * 16
    }

    fn place(&mut self, timer: u32, at: u64) {
        let start = at >> SHIFT;
        if start <= self.cursor {
            self.due.push(Reverse((at, timer)));
            return;
        }
        // The level of the first digit that differs.
        let level = (63 - (start ^ self.cursor).leading_zeros()) / BITS;
        let slot = (start >> (level * BITS)) as usize % SLOTS;
        let level = level as usize;
        let Some(entry) = self.timers.get_mut(timer as usize) else { return };
        *entry = Timer { at, next: self.slots[level][slot] };
        self.slots[level][slot] = timer;
        self.taken[level].insert(slot);
        self.levels |= 1 << level;
    }

    /// Level, place and beginning of the first slot that is not empty; all of a level come before those of the next.
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.taken.get(level)?.first()?;
        let shift = level as u32 * BITS;
        // The digits above are those of the cursor, the ones below zero.
        let above = if shift + BITS >= 64 { 0 } else { self.cursor >> (shift + BITS) << (shift + BITS) };
        Some((level, slot, above | (slot as u64) << shift))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Timers go off in the order of a sorted list, however far apart, at moments that the bound announces.
        #[test]
        fn timers_go_off_in_their_order(
            delays in prop::collection::vec((0_u64..64, any::<u64>()), 1..200),
            back in prop::option::of(0_u64..1 << 40),
        ) {
            let mut wheel = Wheel::new(delays.len());
            let mut expected: Vec<(u64, u32)> = Vec::new();
            for (timer, (bits, random)) in (0..).zip(&delays) {
                let at = random >> bits;
                wheel.set(timer, Nanos(at));
                expected.push((at, timer));
            }
            if let Some(back) = back {
                wheel.set_back(Nanos(back));
                expected.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(back));
            }
            expected.sort_unstable();
            let mut seen = Vec::new();
            let mut last = 0;
            while let Some(bound) = wheel.bound() {
                prop_assert!(bound.0 >= last);
                last = bound.0;
                while let Some(timer) = wheel.take(bound) {
                    seen.push((bound.0, timer));
                }
            }
            prop_assert_eq!(seen, expected);
        }

        /// Timers that are set while time goes on go off at their moments.
        #[test]
        fn timers_are_set_while_time_goes_on(delays in prop::collection::vec(0_u64..1 << 30, 1..300)) {
            let mut wheel = Wheel::new(1);
            let mut now = 0;
            for delay in delays {
                let at = now + delay;
                wheel.set(0, Nanos(at));
                loop {
                    let bound = wheel.bound().unwrap();
                    prop_assert!(bound.0 <= at && bound.0 >= now);
                    now = bound.0;
                    if wheel.take(bound).is_some() {
                        break;
                    }
                }
                prop_assert_eq!(now, at);
                prop_assert_eq!(wheel.bound(), None);
            }
        }
    }
}
