//! Memberships: the sets of prefixes that an address is in, while prefixes come and go.
//!
//! A [`SetTable`] holds prefixes of both families, each with a bit for every set that has the prefix, in one hash table keyed by
//! length and prefix. A look-up asks once for each length in use, of which there are few: hosts, and the prefixes that block
//! lists have. A change takes one probe, whatever the size of the table, and nothing is built anew.
//!
//! - All memory is taken when the table is made. Prefixes past the capacity are refused ([`Full`]).
//! - The hash is strongly universal (MULTILINEAR-HM; Lemire and Kaser, The Computer Journal 57(11), 2014): who does not know its
//!   keys finds no addresses that crowd one place.
//! - A removed prefix leaves no mark: those behind it move up, so that searches stay as short as in a new table.

use bytemuck::{Pod, Zeroable};
use tally::{Branch, Op, Region, Tally};
use wire::Family;

use crate::memory::{MemoryError, Paging, Slab};

/// Prefix of one family. Bits behind the length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// IPv4 or IPv6; another family has no prefixes.
    pub family: Family,
    /// The address; IPv4 in the low 32 bits.
    pub bits: u128,
    /// Number of bits that count.
    pub length: u8,
}

/// Sets that have a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// A bit for each set; none: the prefix is in no set.
    pub sets: u32,
    /// A number of the caller's, kept beside the prefix.
    pub tag: u32,
}

/// Secret numbers of the hash: random in a live host, fixed where results are compared.
#[derive(Clone, Copy, Debug)]
pub struct HashKeys(pub [u64; 7]);

/// There are as many prefixes as there is memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Prefixes with their sets.
pub struct SetTable {
    slots: Slab<Slot>,
    /// Number of slots, a power of two, less one.
    mask: u32,
    keys: [u64; 7],
    v4: Lengths<33>,
    v6: Lengths<129>,
    len: u32,
    most: u32,
}

/// A place of the table.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Slot {
    high: u64,
    low: u64,
    sets: u32,
    tag: u32,
    hash: u32,
    /// Family and length; 0: nothing is here.
    kind: u32,
}

const _: () = assert!(size_of::<Slot>() == 32, "two to a cache line");

/// Key of a slot.
#[derive(Clone, Copy)]
struct Key {
    high: u64,
    low: u64,
    kind: u32,
}

/// Prefix lengths in use.
struct Lengths<const N: usize> {
    counts: [u32; N],
    /// A bit for each length in use.
    used: [u64; 3],
}

impl Prefix {
    /// The prefix of an address alone.
    pub const fn host(family: Family, bits: u128) -> Prefix {
        Prefix { family, bits, length: width(family) }
    }

    /// The prefix of an address, of so many bits at most.
    pub const fn new(family: Family, bits: u128, length: u8) -> Prefix {
        let length = if length > width(family) { width(family) } else { length };
        Prefix { family, bits: bits & prefix_mask(family, length), length }
    }

    /// True if it is one address.
    pub const fn is_host(self) -> bool {
        self.length == width(self.family)
    }

    /// True if an address of the same family is in it.
    pub const fn has(self, bits: u128) -> bool {
        bits & prefix_mask(self.family, self.length) == self.bits
    }

    #[inline(always)]
    fn key(self) -> Key {
        Key { high: (self.bits >> 64) as u64, low: self.bits as u64, kind: kind(self.family, self.length) }
    }
}

/// Bits of an address.
const fn width(family: Family) -> u8 {
    match family {
        Family::V6 => 128,
        Family::V4 | Family::Other => 32,
    }
}

#[inline(always)]
const fn prefix_mask(family: Family, length: u8) -> u128 {
    if length == 0 {
        return 0;
    }
    match family {
        Family::V6 => u128::MAX << (128 - length as u32),
        Family::V4 | Family::Other => (u32::MAX << (32 - length as u32)) as u128,
    }
}

/// Family and length in a word that is never 0.
#[inline(always)]
const fn kind(family: Family, length: u8) -> u32 {
    (if matches!(family, Family::V6) { 0x200 } else { 0x100 }) | length as u32
}

impl SetTable {
    /// Takes memory for so many prefixes, one at least.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub fn new(most: u32, keys: HashKeys) -> Result<SetTable, MemoryError> {
        SetTable::paged(most, keys, Paging::Prefault)
    }

    /// [`SetTable::new`], with pages of memory at the moment that `paging` says.
    ///
    /// # Errors
    /// As of [`SetTable::new`].
    pub fn paged(most: u32, keys: HashKeys, paging: Paging) -> Result<SetTable, MemoryError> {
        let most = most.clamp(1, 1 << 30);
        // Three of four places at the most are taken.
        let places = (most + most / 3 + 1).next_power_of_two();
        Ok(SetTable {
            slots: Slab::paged(places as usize, paging)?,
            mask: places - 1,
            keys: keys.0,
            v4: Lengths { counts: [0; 33], used: [0; 3] },
            v6: Lengths { counts: [0; 129], used: [0; 3] },
            len: 0,
            most,
        })
    }

    /// Returns the sets that an address is in, a bit each.
    #[inline]
    pub fn lookup<T: Tally>(&self, family: Family, address: u128, tally: &mut T) -> u32 {
        let mut sets = 0;
        self.each(family, address, tally, |holders, _| sets |= holders.sets);
        sets
    }

    /// Calls `visit` for each prefix that contains an address, the shortest first.
    #[inline(always)]
    pub fn each<T: Tally>(
        &self,
        family: Family,
        address: u128,
        tally: &mut T,
        mut visit: impl FnMut(Holders, &mut T),
    ) {
        let used = match family {
            Family::V4 => [self.v4.used[0], 0, 0],
            Family::V6 => self.v6.used,
            Family::Other => [0; 3],
        };
        for (word, lengths) in used.into_iter().enumerate() {
            let mut lengths = lengths;
            while lengths != 0 {
                let length = (word * 64) as u8 + lengths.trailing_zeros() as u8;
                lengths &= lengths - 1;
                let key = Prefix::new(family, address, length).key();
                if let Some(place) = self.find(&key, self.hash(&key), tally) {
                    let slot = &self.slots[place];
                    visit(Holders { sets: slot.sets, tag: slot.tag }, tally);
                }
            }
        }
    }

    /// Finds the sets of many addresses of one family; `sets` is as long as `addresses`. Their memory is asked for side by side.
    pub fn lookup_bulk(&self, family: Family, addresses: &[u128], sets: &mut [u32]) {
        const AT_ONCE: usize = 32;
        sets.fill(0);
        let used = match family {
            Family::V4 => [self.v4.used[0], 0, 0],
            Family::V6 => self.v6.used,
            Family::Other => return,
        };
        for (addresses, sets) in addresses.chunks(AT_ONCE).zip(sets.chunks_mut(AT_ONCE)) {
            for (word, lengths) in used.into_iter().enumerate() {
                let mut lengths = lengths;
                while lengths != 0 {
                    let length = (word * 64) as u8 + lengths.trailing_zeros() as u8;
                    lengths &= lengths - 1;
                    let mut hashes = [0; AT_ONCE];
                    for (address, hash) in addresses.iter().zip(&mut hashes) {
                        *hash = self.hash(&Prefix::new(family, *address, length).key());
                        wire::prefetch::read(&self.slots[(*hash & self.mask) as usize]);
                    }
                    for ((address, hash), sets) in addresses.iter().zip(hashes).zip(&mut *sets) {
                        let key = Prefix::new(family, *address, length).key();
                        if let Some(place) = self.find(&key, hash, &mut tally::NoTally) {
                            *sets |= self.slots[place].sets;
                        }
                    }
                }
            }
        }
    }

    /// Returns the sets that have exactly this prefix; none of them where it is in no set.
    pub fn get(&self, prefix: Prefix) -> Holders {
        let key = prefix.key();
        let found = self.find(&key, self.hash(&key), &mut tally::NoTally);
        found.map_or(Holders::default(), |place| Holders {
            sets: self.slots[place].sets,
            tag: self.slots[place].tag,
        })
    }

    /// Sets the sets that have exactly this prefix; without any it is removed.
    ///
    /// # Errors
    /// There is no room; nothing is changed.
    pub fn put(&mut self, prefix: Prefix, holders: Holders) -> Result<(), Full> {
        if prefix.family == Family::Other {
            return Err(Full);
        }
        let key = prefix.key();
        let hash = self.hash(&key);
        match self.find(&key, hash, &mut tally::NoTally) {
            Some(place) if holders.sets == 0 => {
                self.remove(place);
                self.count(prefix, -1);
            }
            Some(place) => {
                let slot = &mut self.slots[place];
                (slot.sets, slot.tag) = (holders.sets, holders.tag);
            }
            None if holders.sets == 0 => {}
            None if self.len >= self.most => return Err(Full),
            None => {
                let mut place = hash & self.mask;
                while self.slots[place as usize].kind != 0 {
                    place = (place + 1) & self.mask;
                }
                let Key { high, low, kind } = key;
                self.slots[place as usize] =
                    Slot { high, low, sets: holders.sets, tag: holders.tag, hash, kind };
                self.count(prefix, 1);
            }
        }
        Ok(())
    }

    /// Number of prefixes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most prefixes.
    pub fn capacity(&self) -> u32 {
        self.most
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.slots.bytes()
    }

    fn count(&mut self, prefix: Prefix, by: i32) {
        self.len = self.len.wrapping_add_signed(by);
        match prefix.family {
            Family::V6 => self.v6.count(prefix.length, by),
            Family::V4 | Family::Other => self.v4.count(prefix.length, by),
        }
    }

    #[inline(always)]
    fn hash(&self, key: &Key) -> u32 {
        let k = &self.keys;
        let pair =
            |a: u64, x: u32, b: u64, y: u32| a.wrapping_add(x.into()).wrapping_mul(b.wrapping_add(y.into()));
        let low = pair(k[1], key.low as u32, k[2], key.kind).wrapping_add(k[0]);
        let sum = if key.kind & 0x200 == 0 {
            low
        } else {
            let middle = pair(k[3], (key.low >> 32) as u32, k[4], key.high as u32);
            low.wrapping_add(middle).wrapping_add(pair(k[5], (key.high >> 32) as u32, k[6], 0))
        };
        // One-to-one, so that it keeps the property; breaks up the regular spacing of consecutive addresses.
        let hash = (sum >> 32) as u32;
        let hash = (hash ^ (hash >> 16)).wrapping_mul(0x7feb_352d);
        hash ^ (hash >> 15)
    }

    /// Place of a key.
    #[inline(always)]
    fn find<T: Tally>(&self, key: &Key, hash: u32, tally: &mut T) -> Option<usize> {
        // The next length, its mask, and the prefix, 8; the hash of IPv4, 12; of IPv6, 30; the place, 2.
        tally.instructions(if key.kind & 0x200 == 0 { 22 } else { 40 });
        tally.execute(Op::Branch, 2);
        let mut place = hash & self.mask;
        loop {
            let slot = self.slots.get(place as usize)?;
            tally.read(Region::SetTable, place as usize * size_of::<Slot>(), size_of::<Slot>() as u32);
            // Kind and address compared, 4; the next place, 2.
            tally.instructions(6);
            tally.execute(Op::Branch, 2);
            if slot.kind == 0 {
                return None;
            }
            if slot.low == key.low && slot.high == key.high && slot.kind == key.kind {
                tally.branch(Branch::Taken);
                return Some(place as usize);
            }
            place = (place + 1) & self.mask;
        }
    }

    /// Empties a place, and moves up those behind it that belong before where they are.
    fn remove(&mut self, place: usize) {
        let mut hole = place as u32;
        let mut next = (hole + 1) & self.mask;
        while self.slots[next as usize].kind != 0 {
            let home = self.slots[next as usize].hash & self.mask;
            if next.wrapping_sub(home) & self.mask >= next.wrapping_sub(hole) & self.mask {
                self.slots[hole as usize] = self.slots[next as usize];
                hole = next;
            }
            next = (next + 1) & self.mask;
        }
        self.slots[hole as usize] = Slot::zeroed();
    }
}

impl<const N: usize> Lengths<N> {
    fn count(&mut self, length: u8, by: i32) {
        let place = usize::from(length);
        if let Some(count) = self.counts.get_mut(place) {
            *count = count.wrapping_add_signed(by);
            let bit = 1 << (place % 64);
            if *count == 0 { self.used[place / 64] &= !bit } else { self.used[place / 64] |= bit }
        }
    }
}

#[cfg(test)]
mod tests;
