//! Index from the hash of a key to the entry that may hold the key: buckets of one cache line.
//!
//! A bucket holds ten entries, each told by 16 bits of its hash, and counts those that belonged here but found
//! it full and went on to the next bucket (the scheme of Facebook's F14, without its vector instructions). A
//! look-up reads the first bucket, and the next only if that count is not zero. Nothing is left behind by
//! removal: no tombstones, no rebuilding. There are more places than entries may exist, so that an insertion
//! always finds one; buckets are at most three quarters full, so that it is nearly always in the first.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Slab};
use tally::{Branch, Op, Region, Tally};

/// Entries of a bucket.
const PLACES: usize = 10;

/// One cache line. Sixteen-bit tags lie four to a word; the upper half of the third word counts entries that
/// went on. Tag 0 is an empty place.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u64; 3],
    entries: [u32; PLACES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

const LOW: u64 = 0x0001_0001_0001_0001;
const HIGH: u64 = 0x8000_8000_8000_8000;
/// The tags in the third word.
const LAST: u64 = 0xffff_ffff;
const ONE_WENT_ON: u64 = 1 << 32;
/// Value of a place that was used and is empty: the number of no entry, so that a false match of a tag leads nowhere.
const NOTHING: u32 = u32::MAX;

impl Bucket {
    /// Places whose tag equals `tag`, as a set of bits. The first is right; a later one may be wrong (the
    /// subtraction borrows across tags), so whoever goes on must compare keys, as they must anyway.
    #[inline(always)]
    fn places(&self, tag: u64) -> Places {
        let wanted = tag.wrapping_mul(LOW);
        let equal = |word: u64| {
            let difference = word ^ wanted;
            difference.wrapping_sub(LOW) & !difference & HIGH
        };
        let [a, b, c] = self.tags;
        Places(equal(a) >> 15 | equal(b) >> 14 | (equal(c) & LAST) >> 13)
    }

    #[inline(always)]
    fn went_on(&self) -> bool {
        self.tags[2] > LAST
    }

    fn set_tag(&mut self, place: usize, tag: u64) {
        let shift = place % 4 * 16;
        let word = &mut self.tags[place / 4];
        *word = *word & !(0xffff << shift) | tag << shift;
    }
}

/// A set of places of one bucket: bit 16 i + j stands for place 4 j + i.
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some((bit % 16 * 4 + bit / 16).min(PLACES - 1))
    }
}

/// The buckets.
pub(super) struct Index {
    buckets: Slab<Bucket>,
}

impl Index {
    /// An index for at most `entries` entries.
    pub(super) fn new(entries: usize) -> Result<Index, MemoryError> {
        // A quarter of the places stays free; one bucket more, so that even the smallest index has some.
        Ok(Index { buckets: Slab::new(entries * 4 / (PLACES * 3) + 1)? })
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
            // Home, 3; five words of two tags each: difference, and whether a half of it is zero, 20; place and entry, 5.
            tally.instructions(28);
            tally.execute(Op::Branch, 6);
            tally.branch(Branch::Taken);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            for place in bucket.places(tag) {
                let entry = bucket.entries[place];
                if is(entry, tally) {
                    return Some(entry);
                }
            }
            if !bucket.went_on() {
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
            tally.instructions(28);
            tally.execute(Op::Branch, 7);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            if let Some(place) = bucket.places(0).next() {
                bucket.set_tag(place, tag(hash));
                bucket.entries[place] = entry;
                tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 8);
                return;
            }
            bucket.tags[2] += ONE_WENT_ON;
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
            tally.instructions(28);
            tally.execute(Op::Branch, 7);
            tally.read(Region::FlowIndex, at * size_of::<Bucket>(), 64);
            if let Some(place) = bucket.places(tag).find(|place| bucket.entries[*place] == entry) {
                bucket.set_tag(place, 0);
                bucket.entries[place] = NOTHING;
                tally.write(Region::FlowIndex, at * size_of::<Bucket>(), 8);
                return;
            }
            // The caller's word is checked here: past a bucket that nothing left there is nothing to find.
            debug_assert!(bucket.went_on(), "entry {entry} is not in the index");
            if !bucket.went_on() {
                return;
            }
            bucket.tags[2] -= ONE_WENT_ON;
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
        self.buckets.entries().iter().all(|bucket| bucket.tags == [0; 3])
    }
}

/// The bucket in which a search begins: the upper half of the hash, scaled to the number of buckets.
#[inline(always)]
fn home(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash & 0xffff).max(1)
}

#[inline(always)]
fn after(at: usize, buckets: usize) -> usize {
    if at + 1 == buckets { 0 } else { at + 1 }
}
