//! Copy-on-write map in buckets: cheap to snapshot while it goes on changing.
//!
//! A snapshot of a million routes copies one pointer. A later change copies its own bucket, a few hundred entries, once
//! per snapshot. Unchanged buckets share memory, so a comparison of two generations of one map skips them.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

/// Number of buckets: with a million entries, 250 in each.
const BUCKETS: usize = 4096;

/// Entries of one bucket, by key.
type Bucket<K, V> = Arc<Vec<(K, V)>>;

/// Map whose copies share their unchanged buckets.
#[derive(Clone)]
pub struct Map<K, V> {
    buckets: Arc<Vec<Bucket<K, V>>>,
    len: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        let empty = Arc::new(Vec::new());
        Map { buckets: Arc::new(vec![empty; BUCKETS]), len: 0 }
    }
}

impl<K: Ord + Hash + Clone, V: Clone + PartialEq> Map<K, V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let bucket = &self.buckets[place(key)];
        bucket.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &bucket[at].1)
    }

    /// Iterates over all entries, in an order that depends on their keys alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter()).map(|(key, value)| (key, value))
    }

    /// Sets the value of `key`, and returns the former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let bucket = Arc::make_mut(&mut Arc::make_mut(&mut self.buckets)[place(&key)]);
        match bucket.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut bucket[at].1, value)),
            Err(at) => {
                bucket.insert(at, (key, value));
                self.len += 1;
                None
            }
        }
    }

    /// Removes `key`, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = place(key);
        let at = self.buckets[place].binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        let bucket = Arc::make_mut(&mut Arc::make_mut(&mut self.buckets)[place]);
        self.len -= 1;
        Some(bucket.remove(at).1)
    }

    /// Returns the differences from `old` to `self`, key by key.
    pub fn differences<'a>(&'a self, old: &'a Map<K, V>) -> Vec<Difference<'a, K, V>> {
        let mut found = Vec::new();
        for (new, old) in self.buckets.iter().zip(old.buckets.iter()) {
            if Arc::ptr_eq(new, old) {
                continue;
            }
            let (mut new, mut old) = (new.iter().peekable(), old.iter().peekable());
            loop {
                let order = match (new.peek(), old.peek()) {
                    (None, None) => break,
                    (Some(_), None) => std::cmp::Ordering::Less,
                    (None, Some(_)) => std::cmp::Ordering::Greater,
                    (Some((new, _)), Some((old, _))) => new.cmp(old),
                };
                let is = if order.is_le() { new.next() } else { None };
                let was = if order.is_ge() { old.next() } else { None };
                match (was, is) {
                    (None, Some((key, is))) => found.push(Difference { key, was: None, is: Some(is) }),
                    (Some((key, was)), None) => found.push(Difference { key, was: Some(was), is: None }),
                    (Some((key, was)), Some((_, is))) if was != is => {
                        found.push(Difference { key, was: Some(was), is: Some(is) });
                    }
                    _ => {}
                }
            }
        }
        found
    }
}

/// Difference of one key between two maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference<'a, K, V> {
    /// Key.
    pub key: &'a K,
    /// Value before.
    pub was: Option<&'a V>,
    /// Value now.
    pub is: Option<&'a V>,
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.buckets.iter().flat_map(|bucket| bucket.iter());
        f.debug_map().entries(entries.map(|(key, value)| (key, value))).finish()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Map<K, V> {
    fn eq(&self, other: &Map<K, V>) -> bool {
        self.len == other.len
            && self.buckets.iter().zip(other.buckets.iter()).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl<K: Eq, V: Eq> Eq for Map<K, V> {}

/// Bucket of a key: the same in every map and every run.
fn place<K: Hash>(key: &K) -> usize {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, prop, proptest};

    use super::*;

    proptest! {
        /// Equivalence with the standard library's map; a copy stays unchanged.
        #[test]
        fn a_map_is_a_map(steps in prop::collection::vec((any::<u8>(), prop::option::of(any::<u8>())), 0..200)) {
            let mut map = Map::default();
            let mut plain = BTreeMap::new();
            let mut copies = Vec::new();
            for (at, (key, value)) in steps.into_iter().enumerate() {
                match value {
                    Some(value) => assert_eq!(map.insert(key, value), plain.insert(key, value)),
                    None => assert_eq!(map.remove(&key), plain.remove(&key)),
                }
                assert_eq!(map.len(), plain.len());
                assert_eq!(map.get(&key), plain.get(&key));
                if at % 20 == 0 {
                    copies.push((map.clone(), plain.clone()));
                }
            }
            copies.push((map.clone(), plain.clone()));
            for (copy, plain) in copies {
                let entries: BTreeMap<u8, u8> = copy.iter().map(|(key, value)| (*key, *value)).collect();
                assert_eq!(entries, plain);
                // Told the differences, a copy becomes the map.
                let mut told = copy.clone();
                let mut steps = 0;
                for Difference { key, was, is } in map.differences(&copy) {
                    assert_ne!(was, is);
                    let before = match is {
                        Some(is) => told.insert(*key, *is),
                        None => told.remove(key),
                    };
                    assert_eq!(before.as_ref(), was);
                    steps += 1;
                }
                assert_eq!(told, map);
                assert_eq!(copy == map, steps == 0);
            }
        }
    }
}
