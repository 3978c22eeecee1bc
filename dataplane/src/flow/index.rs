//! Index from the hash of a key to the entry that may hold the key: buckets of one cache line.
//!
//! A bucket holds ten entries, each told by 16 bits of its hash, and counts those that belonged here but found
//! it full and went on to the next bucket (the scheme of Facebook's F14). A look-up compares all tags of the first bucket at
//! once, and reads the next bucket only if that count is not zero. Nothing is left behind by removal: no tombstones, no
//! rebuilding. There are more places than entries may exist, so that an insertion always finds one; buckets are at most three
//! quarters full, so that it is nearly always in the first.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};
use tally::{Branch, Op, Region, Tally};
use wide::{CmpEq, i8x16, i16x16};

/// Entries of a bucket.
const PLACES: usize = 10;

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Bucket {
    /// Tags of the entries; 0 is an empty place.
    tags: [u16; PLACES],
    /// Number of entries that went on to the next bucket.
    went_on: u32,
    entries: [u32; PLACES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Value of a place that was used and is empty: the number of no entry.
const NOTHING: u32 = u32::MAX;

impl Bucket {
    /// Places whose tag equals `tag`.
    #[inline(always)]
    fn places(&self, tag: u16) -> Places {
        // The tags, and what lies behind them up to the half of the line.
        let [first, _]: &[[i16; 16]; 2] = bytemuck::cast_ref(self);
        let equal = i16x16::new(*first).cmp_eq(i16x16::splat(tag as i16));
        Places(i8x16::from_i16x16_saturate(equal).move_mask() as u32 & ((1 << PLACES) - 1))
    }
}

/// A set of places of one bucket, a bit each.
struct Places(u32);

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        // Never more, but the compiler does not know.
        Some(place.min(PLACES - 1))
    }
}

/// The buckets.
pub(super) struct Index {
    buckets: Slab<Bucket>,
}

impl Index {
    /// An index for at most `entries` entries.
    pub(super) fn new(entries: usize, paging: Paging) -> Result<Index, MemoryError> {
        // A quarter of the places stays free; one bucket more, so that even the smallest index has some.
        Ok(Index { buckets: Slab::paged(entries * 4 / (PLACES * 3) + 1, paging)? })
    }

    /// The entry with this hash for which `is` holds.
    #[inline(always)]
    pub(super) fn find<T: Tally>(
        &self,
        hash: u64,
        tally: &mut T,
        mut is: impl FnMut(u32, &mut T) -> bool,
    ) -> Option<u32> {
        let buckets = self.buckets.entries();
        let tag = tag(hash);
        let mut at = home(hash, buckets.len());
        loop {
            let bucket = &buckets[at];
            // Home, 5; five words of two tags each: difference, whether a half of it is zero, 20, and which, as a bit, 15; place and
            // entry, 8; whether others went on, 2.
            tally.instructions(50);
            tally.execute(Op::Branch, 9);
            tally.branch(Branch::Taken);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            for place in bucket.places(tag) {
                let entry = bucket.entries[place];
                if is(entry, tally) {
                    return Some(entry);
                }
            }
            if bucket.went_on == 0 {
                return None;
            }
            at = after(at, buckets.len());
        }
    }

    /// The entry in the first bucket that most likely has this hash.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u64) -> Option<u32> {
        let buckets = self.buckets.entries();
        let bucket = &buckets[home(hash, buckets.len())];
        bucket.places(tag(hash)).next().map(|place| bucket.entries[place])
    }

    /// Asks for the first bucket of this hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let buckets = self.buckets.entries();
        wire::prefetch::read(&buckets[home(hash, buckets.len())]);
    }

    /// Adds `entry`, of which the caller knows that it is not there and that there is room.
    pub(super) fn insert<T: Tally>(&mut self, hash: u64, entry: u32, tally: &mut T) {
        let buckets = self.buckets.entries_mut();
        let count = buckets.len();
        let mut at = home(hash, count);
        loop {
            let bucket = &mut buckets[at];
            // Home, 5; tags, 20; the first place, 3, and its two words, 6.
            tally.instructions(34);
            tally.execute(Op::Branch, 8);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            if let Some(place) = bucket.places(0).next() {
                bucket.tags[place] = tag(hash);
                bucket.entries[place] = entry;
                tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 8);
                return;
            }
            bucket.went_on += 1;
            tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 4);
            at = after(at, count);
        }
    }

    /// Takes `entry` away, of which the caller knows that it is there under this hash.
    pub(super) fn remove<T: Tally>(&mut self, hash: u64, entry: u32, tally: &mut T) {
        let buckets = self.buckets.entries_mut();
        let count = buckets.len();
        let tag = tag(hash);
        let mut at = home(hash, count);
        loop {
            let bucket = &mut buckets[at];
            // Home, 5; tags, 20; the first place, 3, and its two words, 6.
            tally.instructions(34);
            tally.execute(Op::Branch, 8);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            if let Some(place) = bucket.places(tag).find(|place| bucket.entries[*place] == entry) {
                bucket.tags[place] = 0;
                bucket.entries[place] = NOTHING;
                tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 8);
                return;
            }
            // The caller's word is checked here: past a bucket that nothing left there is nothing to find.
            debug_assert!(bucket.went_on > 0, "entry {entry} is not in the index");
            if bucket.went_on == 0 {
                return;
            }
            bucket.went_on -= 1;
            tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 4);
            at = after(at, count);
        }
    }

    /// Empties the index.
    pub(super) fn clear(&mut self) {
        self.buckets.entries_mut().fill(Bucket::zeroed());
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// True if every bucket is empty and nothing is said to have gone on.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.buckets.entries().iter().all(|bucket| bucket.tags == [0; PLACES] && bucket.went_on == 0)
    }
}

/// The bucket in which a search begins: the upper half of the hash, scaled to the number of buckets.
#[inline(always)]
fn home(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

#[inline(always)]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

#[inline(always)]
fn after(at: usize, buckets: usize) -> usize {
    if at + 1 == buckets { 0 } else { at + 1 }
}
