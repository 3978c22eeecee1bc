//! Index from a keyed hash to an entry of a table: open addressing, linear probing, one word a slot.
//!
//! A slot holds 32 bits of hash and the entry's number, so that a search reads an entry only where all 32 bits
//! agree, and a removal can shift the slots behind it back (Knuth, TAOCP volume 3, algorithm 6.4R) without
//! reading entries: nothing is left behind, and a search costs the same after years of coming and going.
//! One slot in three stays free, so that a search in vain reads five on average, and fewer before the table is full. The hash
//! is keyed, so that nobody outside can aim entries at one place.

use lookup::memory::{MemoryError, Paging, Slab};
use tally::{Region, Tally};

/// Bytes of a slot.
const SLOT: usize = 8;

pub(super) struct Index {
    /// hash << 32 | entry + 1; 0 is free.
    slots: Slab<u64>,
    /// Offset of the slots in [`Region::NatTable`], in bytes.
    base: usize,
}

impl Index {
    /// An index for at most `entries` entries.
    pub(super) fn new(entries: usize, base: usize, paging: Paging) -> Result<Index, MemoryError> {
        Ok(Index { slots: Slab::paged(entries + entries / 2 + 2, paging)?, base })
    }

    /// The entry under this hash for which `is` holds.
    #[inline]
    pub(super) fn find<T: Tally>(
        &self,
        hash: u32,
        tally: &mut T,
        mut is: impl FnMut(u32, &mut T) -> bool,
    ) -> Option<u32> {
        let slots = self.slots.entries();
        let mut at = home(hash, slots.len());
        // Home: of 64 bits, 4; bound, 2.
        tally.instructions(6);
        loop {
            let slot = slots[at];
            // By place and bound, 4; test for free, 3; compare hashes, 4; ask the caller, 8; advance, wrap, 5.
            tally.instructions(24);
            tally.read(Region::NatTable, self.base + at * SLOT, SLOT as u32);
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == hash && is(entry(slot), tally) {
                return Some(entry(slot));
            }
            at = after(at, slots.len());
        }
    }

    /// Asks for the slot in which a search for this hash begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        let slots = self.slots.entries();
        wire::prefetch::read(&slots[home(hash, slots.len())]);
    }

    /// Adds an entry, of which the caller knows that it is not there and that there is room.
    pub(super) fn insert<T: Tally>(&mut self, hash: u32, number: u32, tally: &mut T) {
        let slots = self.slots.entries_mut();
        let count = slots.len();
        let mut at = home(hash, count);
        while slots[at] != 0 {
            // By place and bound, 4; test for free, 3; advance, wrap, 5.
            tally.instructions(12);
            tally.read(Region::NatTable, self.base + at * SLOT, SLOT as u32);
            at = after(at, count);
        }
        slots[at] = u64::from(hash) << 32 | (u64::from(number) + 1);
        // Home, 4; by place and bound, 4; both words, and for how long one may search, 12.
        tally.instructions(20);
        tally.write(Region::NatTable, self.base + at * SLOT, SLOT as u32);
    }

    /// Takes an entry away that lies under this hash.
    pub(super) fn remove<T: Tally>(&mut self, hash: u32, number: u32, tally: &mut T) {
        let slots = self.slots.entries_mut();
        let count = slots.len();
        let wanted = u64::from(hash) << 32 | (u64::from(number) + 1);
        let mut hole = home(hash, count);
        while slots[hole] != wanted {
            tally.instructions(6);
            tally.read(Region::NatTable, self.base + hole * SLOT, SLOT as u32);
            debug_assert!(slots[hole] != 0, "entry {number} is not in the index");
            if slots[hole] == 0 {
                return;
            }
            hole = after(hole, count);
        }
        let mut at = after(hole, count);
        while slots[at] != 0 {
            // Load, home (2), two distances with wrap (6), compare, branch, advance, wrap.
            tally.instructions(13);
            tally.read(Region::NatTable, self.base + at * SLOT, SLOT as u32);
            let from_home = distance(home((slots[at] >> 32) as u32, count), at, count);
            // A slot may move back as far as its home.
            if from_home >= distance(hole, at, count) {
                slots[hole] = slots[at];
                tally.write(Region::NatTable, self.base + hole * SLOT, SLOT as u32);
                hole = at;
            }
            at = after(at, count);
        }
        slots[hole] = 0;
        tally.write(Region::NatTable, self.base + hole * SLOT, SLOT as u32);
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.slots.entries().iter().all(|slot| *slot == 0)
    }
}

#[inline(always)]
fn entry(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

#[inline(always)]
fn home(hash: u32, slots: usize) -> usize {
    ((u64::from(hash) * slots as u64) >> 32) as usize
}

#[inline(always)]
fn after(at: usize, slots: usize) -> usize {
    if at + 1 == slots { 0 } else { at + 1 }
}

/// Number of steps forward that lead from one slot to another.
#[inline(always)]
fn distance(from: usize, to: usize, slots: usize) -> usize {
    if to >= from { to - from } else { to + slots - from }
}
