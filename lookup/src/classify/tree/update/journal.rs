//! Journal of what has changed since a version, so that the version before is brought up to date by copying it.
//!
//! A change is made twice, once in either of two versions. Copying what the first one wrote takes a fraction of the time of finding it.

use std::ops::Range;

/// Parts of a list that were written, in units of so many items.
#[derive(Debug, Default)]
pub(super) struct Written<const UNIT: usize>(Vec<u64>);

impl<const UNIT: usize> Written<UNIT> {
    /// Notes items that are written.
    #[inline]
    pub(super) fn note(&mut self, items: Range<usize>) {
        let units = items.start / UNIT..items.end.div_ceil(UNIT);
        if units.end > 64 * self.0.len() {
            self.0.resize(units.end.div_ceil(64), 0);
        }
        for unit in units {
            self.0[unit / 64] |= 1 << (unit % 64);
        }
    }

    /// Forgets all that was written.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Calls `each` for the items of each unit that was written, of a list of `length`.
    pub(super) fn each(&self, length: usize, mut each: impl FnMut(Range<usize>)) {
        for (place, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                let unit = 64 * place + left.trailing_zeros() as usize;
                left &= left - 1;
                each((unit * UNIT).min(length)..((unit + 1) * UNIT).min(length));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::random::Random;

    use super::*;

    #[test]
    fn a_list_is_copied_by_what_was_written() {
        let mut random = Random::new(7);
        let (mut list, mut before) = (vec![0u32; 1003], vec![0u32; 1003]);
        let mut written = Written::<8>::default();
        for round in 1..200 {
            for _ in 0..random.below(5) {
                let first = random.below(1003) as usize;
                let end = (first + random.below(30) as usize).min(1003);
                list[first..end].fill(round);
                written.note(first..end);
            }
            let mut copied = 0;
            written.each(list.len(), |items| {
                copied += items.len();
                before[items.clone()].copy_from_slice(&list[items]);
            });
            written.clear();
            assert_eq!(before, list);
            assert!(copied <= 4 * (30 + 2 * 8), "{copied}");
        }
    }
}
