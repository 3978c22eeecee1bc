//! Index whose newest entries are buffered, and written to their slots when the slots' memory has come.
//!
//! The slot of a new entry is anywhere in memory: an insertion that waits for it takes as long as a hundred instructions. The memory is
//! asked for at once, and the slot is written some insertions later. Meanwhile a search finds the entry in the buffer.

use arrayvec::ArrayVec;
use lookup::memory::{MemoryError, Paging};
use tally::Tally;

use super::index::Index;

/// Entries that are buffered: memory has come before so many more packets have opened their flows.
const ENTRIES: usize = 4;

/// An [`Index`] with a buffer of entries.
pub(super) struct WriteBehind {
    index: Index,
    /// Hash and number of entries that are in no slot yet, oldest first.
    buffer: ArrayVec<(u32, u32), ENTRIES>,
}

impl WriteBehind {
    /// As [`Index::new`].
    pub(super) fn new(entries: usize, base: usize, paging: Paging) -> Result<WriteBehind, MemoryError> {
        Ok(WriteBehind { index: Index::new(entries, base, paging)?, buffer: ArrayVec::new() })
    }

    /// As [`Index::find`].
    #[inline]
    pub(super) fn find<T: Tally>(
        &self,
        hash: u32,
        tally: &mut T,
        mut is: impl FnMut(u32, &mut T) -> bool,
    ) -> Option<u32> {
        for (of, number) in &self.buffer {
            if *of == hash && is(*number, tally) {
                return Some(*number);
            }
        }
        self.index.find(hash, tally, is)
    }

    /// As [`Index::insert`].
    pub(super) fn insert<T: Tally>(&mut self, hash: u32, number: u32, tally: &mut T) {
        // What a thread of a chip writes, it writes while it has the packet.
        if tally.is_kept() {
            return self.index.insert(hash, number, tally);
        }
        self.index.prefetch(hash);
        if self.buffer.is_full() {
            let (oldest, its_number) = self.buffer.remove(0);
            self.index.insert(oldest, its_number, tally);
        }
        self.buffer.push((hash, number));
    }

    /// As [`Index::remove`].
    pub(super) fn remove<T: Tally>(&mut self, hash: u32, number: u32, tally: &mut T) {
        match self.buffer.iter().position(|entry| *entry == (hash, number)) {
            Some(place) => drop(self.buffer.remove(place)),
            None => self.index.remove(hash, number, tally),
        }
    }

    /// As [`Index::bytes`].
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes()
    }

    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.buffer.is_empty() && self.index.is_blank()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tally::NoTally;
    use wire::random::Random;

    use super::{Paging, WriteBehind};

    /// Entries come and go at random, many of them under one hash: the index has those that a map has.
    #[test]
    fn finds_what_is_buffered_and_what_is_written() {
        let (mut random, mut known) = (Random::new(1), BTreeSet::new());
        let mut index = WriteBehind::new(64, 0, Paging::Prefault).unwrap();
        for _ in 0..20_000 {
            let number = (random.next_u64() % 64) as u32;
            // Four hashes, so that their slots are neighbours.
            let hash = (number % 4) << 30;
            if known.remove(&number) {
                index.remove(hash, number, &mut NoTally);
            } else {
                known.insert(number);
                index.insert(hash, number, &mut NoTally);
            }
            for number in 0..64 {
                let found = index.find((number % 4) << 30, &mut NoTally, |found, _| found == number);
                assert_eq!(found, known.get(&number).copied());
            }
        }
        for number in &known {
            index.remove((number % 4) << 30, *number, &mut NoTally);
        }
        assert!(index.is_blank());
    }
}
