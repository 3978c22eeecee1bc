//! Live ranges of words, and the number of registers that they need at once.

use std::cell::{Cell, RefCell};

/// Live range of a word in a general register: from the operation that it is the result of to its last use, in operations.
type Range = (usize, usize);

/// Live ranges so far.
#[derive(Default)]
pub(super) struct Live {
    ranges: RefCell<Vec<Range>>,
    /// Registers of the loops under way, and their highest number so far: counters and pointers.
    held: Cell<usize>,
    most_held: Cell<usize>,
}

/// Number of a live range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life(usize);

impl Live {
    /// Begins the range of a result. Its register may be that of an operand that is used for the last time.
    pub(super) fn begin(&self) -> Life {
        let mut ranges = self.ranges.borrow_mut();
        let now = ranges.len();
        ranges.push((now, now));
        Life(now)
    }

    /// Extends the range to a use, now.
    pub(super) fn extend(&self, life: Life) {
        let mut ranges = self.ranges.borrow_mut();
        let now = ranges.len();
        if let Some((_, last)) = ranges.get_mut(life.0) {
            *last = now;
        }
    }

    /// Takes registers for a loop.
    pub(super) fn hold(&self, registers: usize) {
        self.held.set(self.held.get() + registers);
        self.most_held.set(self.most_held.get().max(self.held.get()));
    }

    /// Releases registers of a loop.
    pub(super) fn release(&self, registers: usize) {
        self.held.set(self.held.get().saturating_sub(registers));
    }

    /// Returns the highest number of registers needed at once: of live words, by a sweep over the ends of their ranges (Appel, Modern
    /// Compiler Implementation, 2nd edition, 2002, chapter 10), and of loops. No allocation of registers does with fewer, and one
    /// without spills does with so many where code has no branches that rejoin.
    pub(super) fn registers(&self) -> usize {
        let ranges = self.ranges.borrow();
        let mut ends: Vec<usize> =
            ranges.iter().filter(|(first, last)| last > first).map(|(_, last)| *last).collect();
        ends.sort_unstable();
        let (mut ended, mut live, mut most) = (0, 0_usize, 0);
        for (first, last) in ranges.iter() {
            while ends.get(ended).is_some_and(|end| end <= first) {
                ended += 1;
                live -= 1;
            }
            if last > first {
                live += 1;
                most = most.max(live);
            }
        }
        most + self.most_held.get()
    }
}

#[cfg(test)]
mod tests {
    use super::Live;

    #[test]
    fn registers_are_as_many_as_words_that_are_live_at_once() {
        let live = Live::default();
        let (a, b) = (live.begin(), live.begin());
        // a + b, in the place of one of them, which nobody needs any more.
        live.extend(a);
        live.extend(b);
        let sum = live.begin();
        assert_eq!(live.registers(), 2);
        // A result that is never used needs none.
        live.begin();
        live.extend(sum);
        assert_eq!(live.registers(), 2);
        let more: Vec<_> = (0..3).map(|_| live.begin()).collect();
        live.extend(sum);
        more.iter().for_each(|life| live.extend(*life));
        assert_eq!(live.registers(), 4);
        live.hold(2);
        live.release(2);
        live.hold(1);
        assert_eq!(live.registers(), 6);
    }
}
