//! Instances of a node: the queues of a subscriber, made when its first packet comes.
//!
//! Memory is fixed. An instance without packets whose shapers are at rest is as good as new, and makes room for another subscriber;
//! where there is none, subscribers share one.

use crate::flow::Key;
use crate::limiter::Sets;

/// Instances of one node.
#[derive(Debug)]
pub(super) struct Instances {
    /// Place of the node's settings.
    pub(super) kind: u32,
    /// Place of the first instance; the shared one lies behind all others.
    pub(super) base: u32,
    /// Nodes of an instance.
    pub(super) size: u32,
    most: u32,
    /// Number of each subscriber's instance.
    numbers: Sets<u32>,
    /// For each instance, the place of its subscriber in `numbers`.
    owners: Vec<u32>,
    hand: u32,
}

/// Instances looked at, at once, for one that makes room.
const LOOKED_AT: u32 = 64;

impl Instances {
    /// Creates `most` instances of nothing yet, and the shared one.
    pub(super) fn new(kind: u32, base: u32, size: u32, most: u32) -> Instances {
        let most = most.max(1);
        Instances {
            kind,
            base,
            size,
            most,
            numbers: Sets::new(most as usize),
            owners: Vec::with_capacity(most as usize),
            hand: 0,
        }
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        (self.most + 1) * self.size
    }

    /// Place of the first node of a subscriber's instance. `is_vacant` says whether the instance at a place is as good as new.
    pub(super) fn find(&mut self, key: &Key, hash: u64, is_vacant: impl Fn(u32) -> bool) -> u32 {
        if let Some(number) = self.numbers.find(key, hash).and_then(|place| self.numbers.value(place)) {
            return self.base + *number * self.size;
        }
        let shared = self.base + self.most * self.size;
        let Some(number) = self.take_number(is_vacant) else { return shared };
        let Some(place) = self.numbers.find_or_take(key, hash, number, |_| false) else {
            // The set of eight is full, which is rare: the number waits for another subscriber.
            if let Some(owner) = self.owners.get_mut(number as usize) {
                *owner = u32::MAX;
            }
            return shared;
        };
        if let Some(owner) = self.owners.get_mut(number as usize) {
            *owner = place;
        }
        self.base + number * self.size
    }

    /// Number of subscribers that have had an instance.
    pub(super) fn made(&self) -> usize {
        self.owners.len()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.numbers.memory_bytes() + self.owners.capacity() * 4
    }

    fn take_number(&mut self, is_vacant: impl Fn(u32) -> bool) -> Option<u32> {
        let made = self.owners.len() as u32;
        if made < self.most {
            self.owners.push(u32::MAX);
            return Some(made);
        }
        for _ in 0..LOOKED_AT.min(self.most) {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.most;
            if is_vacant(self.base + number * self.size) {
                self.numbers.forget(self.owners[number as usize]);
                return Some(number);
            }
        }
        None
    }
}
