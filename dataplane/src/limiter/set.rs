//! Sets of values by key, for what is bounded: memory is fixed, and a key for which there is no room gets none.

use std::ops::Range;

use bytemuck::Pod;
use lookup::memory::{MemoryError, Paging, Slab};

use crate::flow::Key;

/// Entries of one set.
const WAYS: usize = 8;

/// A set-associative table of values by key. A key is in the emptier of two sets, as it was when the key came.
#[derive(Debug)]
pub(crate) struct Sets<V> {
    pub(crate) keys: Slab<Key>,
    pub(crate) values: Slab<V>,
    mask: usize,
}

impl<V: Pod> Sets<V> {
    /// Room for `entries`, and eight at least; none at all for 0.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub(crate) fn new(entries: usize, paging: Paging) -> Result<Sets<V>, MemoryError> {
        if entries == 0 {
            return Ok(Sets { keys: Slab::copy_of(&[])?, values: Slab::copy_of(&[])?, mask: 0 });
        }
        // Twice the room: with two sets to choose from, next to no key finds both full.
        let sets = (2 * entries / WAYS).max(1).next_power_of_two();
        let (keys, values) = (Slab::paged(sets * WAYS, paging)?, Slab::paged(sets * WAYS, paging)?);
        Ok(Sets { keys, values, mask: sets - 1 })
    }

    /// The place of `key`; one with the value `new` if it has none and a value of its sets is `vacant`.
    pub(crate) fn find_or_take(
        &mut self,
        key: &Key,
        hash: u64,
        new: V,
        vacant: impl Fn(&V) -> bool,
    ) -> Option<u32> {
        let sets = self.sets(hash);
        if let Some(place) = sets.iter().cloned().flatten().find(|place| self.keys[*place] == *key) {
            return u32::try_from(place).ok();
        }
        let is_free = |place: &usize| !self.keys[*place].is_some() || vacant(&self.values[*place]);
        let [first, second] = sets.map(|set| {
            let mut free = set.filter(is_free);
            (free.next(), free.count())
        });
        // The emptier one, so that sets fill evenly.
        let (place, _) = if first.0.is_none() || second.1 > first.1 { second } else { first };
        let place = place?;
        self.keys[place] = *key;
        self.values[place] = new;
        u32::try_from(place).ok()
    }

    /// The value of `key`, if it has one.
    pub(crate) fn get(&self, key: &Key, hash: u64) -> Option<&V> {
        let place = self.sets(hash).into_iter().flatten().find(|place| self.keys[*place] == *key);
        place.and_then(|place| self.values.get(place))
    }

    /// Places of the two sets that a key may be in.
    #[inline(always)]
    fn sets(&self, hash: u64) -> [Range<usize>; 2] {
        [hash, hash >> 32].map(|hash| {
            let first = (hash as usize & self.mask) * WAYS;
            first..(first + WAYS).min(self.keys.len())
        })
    }

    pub(crate) fn value(&mut self, place: u32) -> Option<&mut V> {
        self.values.get_mut(place as usize)
    }

    /// True if the table has no entries at all.
    pub(crate) fn is_none(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of places.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.bytes() + self.values.bytes()
    }
}

#[cfg(test)]
mod tests {
    use wire::random::Random;

    use super::super::subject;
    use super::*;
    use crate::tables::Address;

    /// As many keys as the table is made for have room, whatever their hashes.
    #[test]
    fn as_many_keys_as_entries_have_room() {
        for entries in [8, 100, 256, 1_000, 4_096, 65_536] {
            let mut random = Random::new(entries);
            let keys: Vec<(Key, u64)> =
                (0..entries).map(|n| (subject(Address::v4(n as u32), 0), random.next_u64())).collect();
            let mut sets: Sets<usize> = Sets::new(keys.len(), Paging::OnDemand).unwrap();
            for (n, (key, hash)) in keys.iter().enumerate() {
                assert!(sets.find_or_take(key, *hash, n, |_| false).is_some(), "{n} of {entries}");
            }
            for (n, (key, hash)) in keys.iter().enumerate() {
                assert_eq!(sets.get(key, *hash), Some(&n));
            }
        }
    }

    #[test]
    fn sets_refuse_rather_than_forget_what_counts() {
        let mut sets: Sets<u32> = Sets::new(4, Paging::Prefault).unwrap();
        assert_eq!(sets.keys.len(), WAYS);
        for n in 0..8 {
            let place = sets.find_or_take(&subject(Address::v4(n), 0), 0, 0, |count| *count == 0).unwrap();
            *sets.value(place).unwrap() += 1;
        }
        assert_eq!(sets.find_or_take(&subject(Address::v4(9), 0), 0, 0, |count| *count == 0), None);
        let again = sets.find_or_take(&subject(Address::v4(3), 0), 0, 0, |count| *count == 0).unwrap();
        *sets.value(again).unwrap() -= 1;
        assert_eq!(sets.find_or_take(&subject(Address::v4(9), 0), 0, 0, |count| *count == 0), Some(again));
    }
}
