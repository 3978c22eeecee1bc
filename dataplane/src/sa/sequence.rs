//! Sequence numbers under one key, which all workers count together, and the memory of keys that were used before.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esp::Fingerprint;
use wire::Nanos;
use wire::esp::Direction;

use super::Used;
use crate::tables::SaSpec;

/// Sequence numbers used under one key: sent, or received. Workers share it, reloads take it over, and a shard that begins anew goes on
/// from it: whatever comes and goes, a number is never used twice under a key. On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Sequence {
    /// Highest number used: taken by a packet that leaves, or accepted from the peer.
    last: AtomicU64,
    /// Highest number that may be taken.
    ceiling: AtomicU64,
    /// Moment of the latest packet that took a number, in nanoseconds.
    sent: AtomicU64,
    /// Packets and bytes, for bounds on them.
    pub used: Used,
}

/// No number can be taken: they are used up, or none is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp;

impl Sequence {
    /// Numbers from `last` + 1 on.
    pub fn from(last: u64) -> Sequence {
        Sequence::going_on(last, u64::MAX, Used::default())
    }

    /// The same, none of which may be taken before [`Sequence::reserve`] allows it.
    pub fn unreserved(last: u64) -> Sequence {
        Sequence::going_on(last, last, Used::default())
    }

    /// Numbers from `last` + 1 up to `ceiling`, and the use so far.
    pub fn going_on(last: u64, ceiling: u64, used: Used) -> Sequence {
        let [last, ceiling, sent] = [last, ceiling, 0].map(AtomicU64::new);
        Sequence { last, ceiling, sent, used }
    }

    /// Takes the next number, `most` at most.
    #[inline]
    pub(crate) fn take(&self, most: u64) -> Result<u64, UsedUp> {
        let most = most.min(self.ceiling.load(Ordering::Relaxed));
        // Checked before, so that refusals do not move it, and after, as other workers take numbers meanwhile. Relaxed: each number is
        // taken once whatever the order in which workers see other memory.
        if self.last.load(Ordering::Relaxed) >= most {
            return Err(UsedUp);
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if number > most { Err(UsedUp) } else { Ok(number) }
    }

    /// Takes the next `count` numbers, at least one, `most` at most: all, or none.
    #[inline]
    pub(crate) fn take_all(&self, count: u64, most: u64) -> Option<RangeInclusive<u64>> {
        let most = most.min(self.ceiling.load(Ordering::Relaxed));
        let fits = |last: u64| last.checked_add(count).filter(|end| *end <= most);
        fits(self.last.load(Ordering::Relaxed))?;
        let last = self.last.fetch_add(count, Ordering::Relaxed);
        // Other workers have taken some meanwhile: these are taken by nobody.
        fits(last).map(|end| last + 1..=end)
    }

    /// Notes the moment of a packet that has taken a number.
    #[inline]
    pub(crate) fn note_sent(&self, now: Nanos) {
        // On the line that the number was just taken from.
        self.sent.store(now.0, Ordering::Relaxed);
    }

    /// Moment of the latest packet that has taken a number, by whichever worker.
    pub(crate) fn sent(&self) -> Nanos {
        Nanos(self.sent.load(Ordering::Relaxed))
    }

    /// Notes the highest number accepted. The owner of the SA alone does so.
    #[inline]
    pub(crate) fn note(&self, top: u64) {
        if top != self.last.load(Ordering::Relaxed) {
            self.last.store(top, Ordering::Relaxed);
        }
    }

    /// Highest number used.
    pub fn last(&self) -> u64 {
        // Refusals may have moved it by one for each worker.
        self.last.load(Ordering::Relaxed).min(self.ceiling())
    }

    /// Highest number that may be taken.
    pub fn ceiling(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed)
    }

    /// Allows numbers up to `ceiling`, which has been written where a restart finds it. Never less than before.
    pub fn reserve(&self, ceiling: u64) {
        self.ceiling.fetch_max(ceiling, Ordering::Relaxed);
    }

    /// Goes on behind `last`, which another process used.
    pub fn raise(&self, last: u64) {
        self.last.fetch_max(last, Ordering::Relaxed);
    }
}

/// Sequences by the fingerprint of their key: of keys in use, and of those that are gone, up to [`Sequences::MOST`]. A key that returns goes on
/// where it was. The one that has been gone for longest is forgotten first.
///
/// Tables that follow one another have one in common, as has whoever adds keys meanwhile; no worker asks.
#[derive(Clone, Debug, Default)]
pub struct Sequences(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// Sequences in use, behind those that are gone.
    list: Vec<Known>,
    /// Numbers of keys that are not known yet.
    numbering: Numbering,
}

/// Sequence of a key.
#[derive(Clone, Debug)]
pub struct Known {
    /// The key's fingerprint.
    pub fingerprint: Fingerprint,
    /// Direction of what is numbered.
    pub direction: Direction,
    /// Its numbers.
    pub sequence: Arc<Sequence>,
}

/// Numbers of a key at its first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// All numbers may be taken.
    #[default]
    Free,
    /// None may be taken before it is [reserved](Sequence::reserve).
    Reserved,
}

impl Sequences {
    /// Number of keys remembered.
    pub const MOST: usize = 65_536;

    /// These sequences, the one to be forgotten first in front.
    pub fn new(list: Vec<Known>, numbering: Numbering) -> Sequences {
        Sequences(Arc::new(Mutex::new(Memory { list, numbering })))
    }

    /// All of them, the one to be forgotten first in front.
    pub fn all(&self) -> Vec<Known> {
        self.memory().list.clone()
    }

    /// The sequence of a key that comes into use.
    pub fn of(&self, fingerprint: Fingerprint, direction: Direction) -> Arc<Sequence> {
        let mut memory = self.memory();
        let Memory { list, numbering } = &mut *memory;
        let known = match list.iter().position(|known| known.fingerprint == fingerprint) {
            Some(place) => list.remove(place),
            None => Known { fingerprint, direction, sequence: numbering.first(direction) },
        };
        let sequence = Arc::clone(&known.sequence);
        list.push(known);
        memory.forget();
        sequence
    }

    /// Replaces each sequence in use by the one that its key has had, and remembers them all.
    pub(crate) fn take_over<'a>(&self, used: impl Iterator<Item = &'a mut SaSpec>) {
        let mut memory = self.memory();
        let mut known: HashMap<Fingerprint, Arc<Sequence>> =
            memory.list.iter().map(|known| (known.fingerprint, Arc::clone(&known.sequence))).collect();
        let mut in_use = Vec::new();
        let mut are_used = HashSet::new();
        for SaSpec { fingerprint, direction, sequence, .. } in used {
            let (fingerprint, direction) = (*fingerprint, *direction);
            let first = || memory.numbering.first(direction);
            *sequence = Arc::clone(known.entry(fingerprint).or_insert_with(first));
            if are_used.insert(fingerprint) {
                in_use.push(Known { fingerprint, direction, sequence: Arc::clone(sequence) });
            }
        }
        memory.list.retain(|known| !are_used.contains(&known.fingerprint));
        memory.list.append(&mut in_use);
        memory.forget();
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Whoever panicked has left a list of whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn forget(&mut self) {
        let excess = self.list.len().saturating_sub(Sequences::MOST);
        self.list.drain(..excess);
    }
}

impl Numbering {
    /// Numbers of a key at its first use. Numbers received are the peer's to reserve.
    fn first(self, direction: Direction) -> Arc<Sequence> {
        Arc::new(match (self, direction) {
            (Numbering::Reserved, Direction::Out) => Sequence::unreserved(0),
            (Numbering::Free, _) | (_, Direction::In) => Sequence::from(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_with_the_field_and_do_not_begin_again() {
        let most = u64::from(u32::MAX);
        let sequence = Sequence::from(0);
        assert_eq!((sequence.take(most), sequence.take(most)), (Ok(1), Ok(2)));
        sequence.raise(most - 1);
        assert_eq!(sequence.take(most), Ok(most));
        assert_eq!((sequence.take(most), sequence.take(most)), (Err(UsedUp), Err(UsedUp)));
        assert_eq!(sequence.last(), most);
        // Extended numbers go on, and end as well.
        assert_eq!(sequence.take(u64::MAX), Ok(most + 1));
        sequence.raise(u64::MAX);
        assert_eq!(sequence.take(u64::MAX), Err(UsedUp));
    }

    #[test]
    fn numbers_end_where_none_is_reserved() {
        let sequence = Sequence::unreserved(7);
        assert_eq!((sequence.take(99), sequence.last()), (Err(UsedUp), 7));
        sequence.reserve(9);
        sequence.reserve(8);
        assert_eq!((sequence.take(99), sequence.take(99), sequence.take(99)), (Ok(8), Ok(9), Err(UsedUp)));
    }

    #[test]
    fn workers_take_each_number_once() {
        let sequence = Sequence::unreserved(0);
        sequence.reserve(40_000);
        let take = || std::iter::from_fn(|| sequence.take(u64::MAX).ok()).collect::<Vec<u64>>();
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=40_000).collect::<Vec<u64>>());
        assert_eq!(sequence.last(), 40_000);
    }

    #[test]
    fn a_key_that_returns_goes_on_and_the_oldest_is_forgotten_first() {
        let print = |number: usize| {
            let mut bytes = [0; Fingerprint::LEN];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            Fingerprint::from_bytes(bytes)
        };
        let sequences = Sequences::new(Vec::new(), Numbering::Reserved);
        let of = |number| sequences.of(print(number), Direction::Out);
        assert_eq!(of(0).ceiling(), 0);
        assert_eq!(sequences.of(print(usize::MAX), Direction::In).ceiling(), u64::MAX);
        for number in 0..Sequences::MOST - 1 {
            of(number).reserve(u64::MAX);
            of(number).raise(number as u64 + 1);
        }
        assert_eq!((of(0).last(), of(5).last()), (1, 6));
        // One more than there is room for: the key in was used last before all others.
        of(Sequences::MOST);
        assert!(sequences.all().iter().all(|known| known.direction == Direction::Out));
        assert_eq!(sequences.all().len(), Sequences::MOST);
        assert_eq!(of(0).last(), 1);
    }
}
