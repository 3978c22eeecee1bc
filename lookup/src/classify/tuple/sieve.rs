//! Sieves: for the leading bits of an address, the set of tables that can have an entry for it.
//!
//! Most tables have entries of few networks. A look-up takes the sets of its two addresses, and asks only tables in both
//! sets (pruned tuple space search, Srinivasan et al. 1999, with bits for lists). A set lacks no table that has such an
//! entry, but may keep a table that has none any more.

use super::super::budget::Budget;
use super::table::Bits;

/// A set of tables, a bit each.
pub(super) type Tables = u128;

/// The most tables.
pub(super) const MOST: usize = 128;

/// The most sets.
const MOST_SETS: usize = 4096;

/// Sets of tables by an address.
#[derive(Clone)]
pub(super) struct Sieve {
    /// Number of leading bits compared.
    length: u8,
    /// Sets, a power of two in number, by the hash of the leading bits.
    sets: Vec<Tables>,
    /// Tables with an entry of fewer than `length` bits.
    all: Tables,
}

/// A prefix of an entry, and the entry's table.
#[derive(Clone, Copy)]
pub(super) struct Grain<A> {
    pub(super) address: A,
    pub(super) length: u8,
    pub(super) table: u32,
}

impl Sieve {
    /// Lets all tables through.
    pub(super) const OPEN: Sieve = Sieve { length: 0, sets: Vec::new(), all: Tables::MAX };

    /// Returns the sieve, of some lengths, that lets through the fewest addresses like those of the entries; an open one
    /// where there is no memory for any.
    pub(super) fn best<A: Bits>(
        grains: impl Iterator<Item = Grain<A>> + Clone,
        count: usize,
        budget: &mut Budget,
    ) -> Sieve {
        let sets = count.next_power_of_two().clamp(16, MOST_SETS);
        let bytes = sets * size_of::<Tables>();
        let mut best = Sieve::OPEN;
        let mut fewest = u64::MAX;
        for eighths in [2, 4, 5, 6] {
            if budget.take(bytes).is_err() {
                break;
            }
            let mut sieve = Sieve { length: A::WIDTH / 8 * eighths, sets: vec![0; sets], all: 0 };
            grains.clone().for_each(|grain| sieve.add(grain));
            let through: u64 =
                grains.clone().map(|grain| u64::from(sieve.tables(grain.address).count_ones())).sum();
            let other = if through < fewest { std::mem::replace(&mut best, sieve) } else { sieve };
            fewest = fewest.min(through);
            budget.give_back(other.bytes());
        }
        best
    }

    /// The tables that may have an entry for an address.
    #[inline(always)]
    pub(super) fn tables<A: Bits>(&self, address: A) -> Tables {
        self.sets.get(self.place(address)).copied().unwrap_or(0) | self.all
    }

    #[inline(always)]
    fn place<A: Bits>(&self, address: A) -> usize {
        address.leading(self.length) as usize & self.sets.len().wrapping_sub(1)
    }

    /// Returns the offset of an address's set, in bytes; `None` in a sieve that lets all through.
    pub(super) fn offset<A: Bits>(&self, address: A) -> Option<usize> {
        (!self.sets.is_empty()).then(|| self.place(address) * size_of::<Tables>())
    }

    /// Puts a table into the sets of a prefix.
    pub(super) fn add<A: Bits>(&mut self, grain: Grain<A>) {
        let table = 1 << (grain.table as usize % MOST);
        let place = self.place(grain.address);
        match self.sets.get_mut(place) {
            Some(set) if grain.length >= self.length => *set |= table,
            _ => self.all |= table,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.sets.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Bounds;
    use super::*;

    #[test]
    fn no_table_with_an_entry_is_left_out_and_few_others_are_let_through() {
        let mut budget = Budget::new(Bounds::default());
        // Each table has hosts of a network of its own; the last has one of everything.
        let host = |at: u32| Grain { address: (at % 100) << 20 | at, length: 32, table: at % 100 };
        let all = Grain { address: 0, length: 0, table: 100 };
        let grains = (0..1_000).map(host).chain([all]);
        let mut sieve = Sieve::best(grains.clone(), 1_001, &mut budget);
        assert_eq!(budget.taken(), sieve.bytes());
        let mut through = 0;
        for grain in grains.take(1_000) {
            let tables = sieve.tables(grain.address);
            assert!(tables & (1 << grain.table) != 0 && tables & (1 << 100) != 0);
            through += tables.count_ones();
        }
        assert!(through < 3_000, "{through}");
        sieve.add(Grain { address: 0xff00_0000_u32, length: 8, table: 101 });
        assert!(sieve.tables(0xff12_3456_u32) & (1 << 101) != 0);
    }

    #[test]
    fn an_open_one_lets_all_through() {
        assert_eq!(Sieve::OPEN.tables(7_u32), Tables::MAX);
        let grain = Grain { address: 7_u32, length: 32, table: 0 };
        let mut none = Budget::new(Bounds { memory: 100 });
        assert_eq!(Sieve::best([grain].into_iter(), 1, &mut none).tables(9_u32), Tables::MAX);
        // There is room for one, and not for another beside it.
        let mut little = Budget::new(Bounds { memory: 16 * 16 + 100 });
        let sieve = Sieve::best([grain].into_iter(), 1, &mut little);
        assert_eq!(little.taken(), sieve.bytes());
        let mut sieve = Sieve::OPEN;
        sieve.add(Grain { address: 7_u128, length: 128, table: 3 });
        assert_eq!(sieve.tables(9_u128), Tables::MAX);
    }
}
