//! One hash table: entries whose prefixes are at least as long as its own, by as much of their fields.

use super::super::budget::Budget;
use super::super::{Position, TooLarge};
use super::cover::Lengths;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// An address of either family.
pub(super) trait Bits: Copy + Eq {
    /// Number of them.
    const WIDTH: u8;
    /// The low bits.
    fn of(bits: u128) -> Self;
    /// Returns a mask of `length` leading ones.
    fn mask(length: u8) -> Self;
    /// Returns some bits that depend on the leading `length` bits alone.
    fn leading(self, length: u8) -> u32;
    /// Returns the bits that the mask has.
    fn and(self, mask: Self) -> Self;
    /// Hashes two addresses together with other bits.
    fn hash(source: Self, destination: Self, rest: u64) -> u32;
}

/// Odd numbers with as many ones as zeros, as multipliers (of wyhash).
const SEED: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// The two halves of a product, one over the other.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Bits for u32 {
    const WIDTH: u8 = 32;
    #[inline(always)]
    fn of(bits: u128) -> u32 {
        bits as u32
    }
    #[inline(always)]
    fn mask(length: u8) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
    }
    #[inline(always)]
    fn leading(self, length: u8) -> u32 {
        let leading = self & u32::mask(length);
        ((u64::from(leading)).wrapping_mul(SEED[0]) >> 40) as u32
    }
    #[inline(always)]
    fn and(self, mask: u32) -> u32 {
        self & mask
    }
    #[inline(always)]
    fn hash(source: u32, destination: u32, rest: u64) -> u32 {
        let addresses = u64::from(source) << 32 | u64::from(destination);
        let hash = fold(addresses ^ SEED[0], rest ^ SEED[1]);
        (hash ^ (hash >> 32)) as u32
    }
}

impl Bits for u128 {
    const WIDTH: u8 = 128;
    #[inline(always)]
    fn of(bits: u128) -> u128 {
        bits
    }
    #[inline(always)]
    fn mask(length: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
    }
    #[inline(always)]
    fn leading(self, length: u8) -> u32 {
        let leading = self & u128::mask(length);
        (fold(leading as u64 ^ SEED[3], (leading >> 64) as u64 ^ SEED[2]) >> 40) as u32
    }
    #[inline(always)]
    fn and(self, mask: u128) -> u128 {
        self & mask
    }
    #[inline(always)]
    fn hash(source: u128, destination: u128, rest: u64) -> u32 {
        let half = |address: u128, seed| fold(address as u64 ^ seed, (address >> 64) as u64 ^ SEED[2]);
        let addresses = half(source, SEED[0]) ^ half(destination, SEED[3]).rotate_left(32);
        let hash = fold(addresses ^ SEED[0], rest ^ SEED[1]);
        (hash ^ (hash >> 32)) as u32
    }
}

/// Slot: the hash of a key, and the first entry with the hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    hash: u32,
    first: u32,
}

const EMPTY: Slot = Slot { hash: 0, first: NONE };

/// A table.
#[derive(Clone)]
pub(super) struct Table<A> {
    pub(super) source: A,
    pub(super) destination: A,
    /// Masks of ports and protocol, as [`Key`](super::space::Key) has them.
    pub(super) rest: u64,
    /// No entry's pattern is before this; after removals it may be a later one.
    pub(super) best: Position,
    pub(super) lengths: Lengths,
    /// Slots, a power of two in number, at least half of them free. Slots whose entries have gone stay, with their hash.
    slots: Vec<Slot>,
    /// Slots that are not free.
    used: usize,
    /// Entries, in all chains.
    pub(super) entries: usize,
}

impl<A: Bits> Table<A> {
    pub(super) fn new(lengths: Lengths, budget: &mut Budget) -> Result<Table<A>, TooLarge> {
        let ports = |length: u8| u64::from(u16::MAX.checked_shl(16 - u32::from(length)).unwrap_or(0));
        let protocol = if lengths.protocol == 0 { 0 } else { 0xff << 32 };
        const FEWEST: usize = 8;
        budget.take(FEWEST * size_of::<Slot>())?;
        Ok(Table {
            source: A::mask(lengths.source),
            destination: A::mask(lengths.destination),
            rest: protocol | ports(lengths.sport) << 16 | ports(lengths.dport),
            best: Position::MAX,
            lengths,
            slots: vec![EMPTY; FEWEST],
            used: 0,
            entries: 0,
        })
    }

    /// The hash of a key, of which the table sees no more than its masks.
    #[inline(always)]
    pub(super) fn hash(&self, source: A, destination: A, rest: u64) -> u32 {
        A::hash(source.and(self.source), destination.and(self.destination), rest & self.rest)
    }

    /// Returns the first slot probed for a hash.
    #[inline(always)]
    pub(super) fn home(&self, hash: u32) -> &Slot {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Returns the first entry of a hash.
    #[inline(always)]
    pub(super) fn first(&self, hash: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.hash == hash || is_free(slot) {
                return slot.first;
            }
            at = (at + 1) & mask;
        }
    }

    /// [`Table::first`], with the slots that are read on the way.
    pub(super) fn first_told(&self, hash: u32, mut tell: impl FnMut(usize)) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            tell(at);
            let slot = self.slots[at];
            if slot.hash == hash || is_free(slot) {
                return slot.first;
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes `first` the first entry of a hash.
    ///
    /// # Errors
    /// There is no room for another slot; nothing is changed.
    pub(super) fn set_first(&mut self, hash: u32, first: u32, budget: &mut Budget) -> Result<(), TooLarge> {
        let mut at = self.place(hash);
        if is_free(self.slots[at]) {
            if 2 * (self.used + 1) > self.slots.len() {
                self.grow(budget)?;
                at = self.place(hash);
            }
            self.used += 1;
        }
        self.slots[at] = Slot { hash, first };
        Ok(())
    }

    /// Makes `first`, which may be none, the first entry of a hash that has entries.
    pub(super) fn replace_first(&mut self, hash: u32, first: u32) {
        let at = self.place(hash);
        // What has no entry any more keeps its place: others may have gone past it.
        self.slots[at] = Slot { hash, first: if first == NONE { GONE } else { first } };
    }

    /// Returns the place of a hash, or the free place for it.
    fn place(&self, hash: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while !is_free(self.slots[at]) && self.slots[at].hash != hash {
            at = (at + 1) & mask;
        }
        at
    }

    /// Twice the slots that are in use, and more, in other memory.
    fn grow(&mut self, budget: &mut Budget) -> Result<(), TooLarge> {
        let in_use = self.slots.iter().filter(|slot| slot.first < GONE).count();
        let length = (4 * (in_use + 1)).next_power_of_two().max(8);
        budget.take(length * size_of::<Slot>())?;
        let before = std::mem::replace(&mut self.slots, vec![EMPTY; length]);
        self.used = in_use;
        for slot in before.iter().filter(|slot| slot.first < GONE) {
            let at = self.place(slot.hash);
            self.slots[at] = *slot;
        }
        budget.give_back(before.len() * size_of::<Slot>());
        Ok(())
    }

    /// Bytes of its slots.
    pub(super) fn slot_bytes(&self) -> usize {
        size_of_val(self.slots.as_slice())
    }

    /// Returns the first entries of all hashes.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.slots.iter().map(|slot| slot.first).filter(|first| *first < GONE)
    }
}

/// No entry any more.
pub(super) const GONE: u32 = NONE - 1;

#[inline(always)]
fn is_free(slot: Slot) -> bool {
    slot.first == NONE
}

#[cfg(test)]
mod tests {
    use super::super::super::Bounds;
    use super::*;

    #[test]
    fn a_table_finds_what_was_put_in_and_not_what_has_gone() {
        let mut budget = Budget::new(Bounds::default());
        let mut table: Table<u32> = Table::new(Lengths::default(), &mut budget).unwrap();
        let hash = |at: u32| at.wrapping_mul(0x9e37_79b9) & !7;
        for at in 0..1_000 {
            table.set_first(hash(at), at, &mut budget).unwrap();
            if at % 3 == 0 {
                table.replace_first(hash(at), NONE);
            }
            assert!(table.used * 2 <= table.slots.len());
        }
        for at in 0..1_000 {
            let found = table.first(hash(at));
            assert_eq!((found < GONE).then_some(found), (at % 3 != 0).then_some(at));
        }
        assert!(table.first(5) >= GONE);
        assert_eq!(budget.taken(), table.slot_bytes());
    }

    #[test]
    fn masks_have_as_many_ones() {
        assert_eq!([u32::mask(0), u32::mask(8), u32::mask(32)], [0, 0xff00_0000, u32::MAX]);
        assert_eq!([u128::mask(0), u128::mask(1), u128::mask(128)], [0, 1 << 127, u128::MAX]);
    }
}
