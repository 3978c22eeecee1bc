//! Instances of a node: the queues of a subscriber, made when its first packet comes.
//!
//! Memory is fixed. An instance without packets whose shapers are at rest is as good as new, and makes room for another subscriber;
//! where there is none, subscribers share one. As long as there is one left, no two share: the table is probed linearly, and
//! half full at most.

use policy::model::MeterScope;
use wire::Nanos;

use super::ends::Subscriber;
use super::packets::NONE;
use super::subscriber::{RecentDelays, SubscriberCounts};
use crate::tables::Address;

/// Instances of one node.
#[derive(Debug)]
pub(super) struct Instances {
    /// Scope of an instance.
    pub(super) per: MeterScope,
    /// Place of the node's settings.
    pub(super) kind: u32,
    /// Place of the first instance; the shared one lies behind all others.
    base: u32,
    /// Nodes of an instance.
    pub(super) size: u32,
    /// Multiplier of a division by `size`: 2^64 divided by it, rounded up; zero for one.
    reciprocal: u64,
    /// Place of the rings of the first node of the first instance.
    rings: u32,
    /// Rings of an instance.
    rings_each: u32,
    /// Number of the shared instance: of those that there can be beside it.
    pub(super) most: u32,
    /// Numbers of instances, by hashes of subscribers.
    slots: Vec<Slot>,
    /// Subscriber of each instance that has been made.
    owners: Vec<Subscriber>,
    /// Counters of each instance; last those of the shared one.
    counts: Vec<SubscriberCounts>,
    /// Delays of each instance likewise.
    delays: Vec<RecentDelays>,
    hand: u32,
}

/// Memory that an arrival most likely needs. Good for prefetches only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    /// Place of the first node of its subscriber's instance.
    pub(super) first: u32,
    /// Place of that node's rings.
    pub(super) rings: u32,
}

/// Slot of the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// Number of the instance; [`NONE`] if the slot is free.
    number: u32,
}

/// Instances looked at, at once, for one that makes room.
const LOOKED_AT: u32 = 64;

impl Instances {
    /// Creates `most` instances of nothing yet, and the shared one.
    pub(super) fn new(per: MeterScope, kind: u32, base: u32, size: u32, most: u32) -> Instances {
        let most = most.max(1);
        let slots = (2 * most as usize).next_power_of_two();
        Instances {
            per,
            kind,
            base,
            size,
            reciprocal: (u64::MAX / u64::from(size.max(1))).wrapping_add(1),
            rings: 0,
            rings_each: 0,
            most,
            slots: vec![Slot { hash: 0, number: NONE }; slots],
            owners: Vec::with_capacity(most as usize),
            counts: vec![SubscriberCounts::default(); most as usize + 1],
            delays: vec![RecentDelays::default(); most as usize + 1],
            hand: 0,
        }
    }

    /// Notes that rings of the instances lie in a row from the place `first` on, `each` of them of one instance.
    pub(super) fn note_rings(&mut self, first: u32, each: u32) {
        (self.rings, self.rings_each) = (first, each);
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        (self.most + 1) * self.size
    }

    /// Nodes and rings of the instance that a hash most likely leads to: the shared one, where the hash leads to none.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u32) -> Guess {
        let number = self.slots.get(self.home(hash)).map_or(NONE, |slot| slot.number).min(self.most);
        Guess { first: self.place(number), rings: self.rings + number * self.rings_each }
    }

    /// Place of the first node of a subscriber's instance. `is_vacant` says whether the instance at a place is as good as new.
    #[inline]
    pub(super) fn find(&mut self, subscriber: &Subscriber, is_vacant: impl Fn(u32) -> bool) -> u32 {
        let mut slot = self.home(subscriber.hash);
        while let Some(&Slot { hash, number }) = self.slots.get(slot) {
            if number == NONE {
                break;
            }
            if hash == subscriber.hash && self.owners.get(number as usize) == Some(subscriber) {
                return self.place(number);
            }
            slot = self.after(slot);
        }
        self.make(subscriber, is_vacant)
    }

    /// Counters of the instance that a node is in.
    #[inline]
    pub(super) fn counts_of(&mut self, node: u32) -> Option<&mut SubscriberCounts> {
        let number = self.number_of(node);
        self.counts.get_mut(number)
    }

    /// Counts a packet that a node has sent after that delay. Returns the first node of the instance.
    #[inline(always)]
    pub(super) fn count_sent(&mut self, node: u32, length: u32, delay: Nanos) -> u32 {
        let number = self.number_of(node);
        if let Some(counts) = self.counts.get_mut(number) {
            counts.count_sent(length, delay);
            if counts.is_sample() {
                if let Some(delays) = self.delays.get_mut(number) {
                    delays.count(delay);
                }
            }
        }
        self.place(number as u32)
    }

    /// Asks for the counters of the instance that a node is in.
    pub(super) fn prefetch_counts(&self, node: u32) {
        self.counts.get(self.number_of(node)).into_iter().for_each(wire::prefetch::read);
    }

    /// Place of the rings of the first node of the instance that a node is in.
    pub(super) fn rings_of(&self, node: u32) -> u32 {
        self.rings.wrapping_add((self.number_of(node) as u32).wrapping_mul(self.rings_each))
    }

    #[inline(always)]
    fn number_of(&self, node: u32) -> usize {
        let place = node.wrapping_sub(self.base);
        if self.size <= 1 {
            return place as usize;
        }
        // Exact for 32 bits (Lemire, Kaser and Kurz 2019): a division takes several times as long.
        ((u128::from(self.reciprocal) * u128::from(place)) >> 64) as usize
    }

    /// Delays of an instance, by number.
    pub(super) fn delays(&self, number: u32) -> RecentDelays {
        self.delays.get(number as usize).copied().unwrap_or_default()
    }

    /// Counters of an instance, by number.
    pub(super) fn counts(&self, number: u32) -> SubscriberCounts {
        self.counts.get(number as usize).copied().unwrap_or_default()
    }

    /// Address of the subscriber of an instance; `None` of a flow, and of the shared one.
    pub(super) fn address(&self, number: u32) -> Option<Address> {
        self.owners.get(number as usize)?.address()
    }

    /// Number of subscribers that have had an instance.
    pub(super) fn made(&self) -> usize {
        self.owners.len()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(self.slots.as_slice())
            + size_of_val(self.counts.as_slice())
            + size_of_val(self.delays.as_slice())
            + self.owners.capacity() * size_of::<Subscriber>()
    }

    #[inline(always)]
    pub(super) fn place(&self, number: u32) -> u32 {
        self.base + number * self.size
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Makes an instance for a subscriber that has none.
    #[inline(never)]
    fn make(&mut self, subscriber: &Subscriber, is_vacant: impl Fn(u32) -> bool) -> u32 {
        let Some(number) = self.take_number(subscriber, is_vacant) else { return self.place(self.most) };
        let mut slot = self.home(subscriber.hash);
        while self.slots[slot].number != NONE {
            slot = self.after(slot);
        }
        self.slots[slot] = Slot { hash: subscriber.hash, number };
        self.place(number)
    }

    fn take_number(&mut self, subscriber: &Subscriber, is_vacant: impl Fn(u32) -> bool) -> Option<u32> {
        let made = self.owners.len() as u32;
        if made < self.most {
            self.owners.push(*subscriber);
            return Some(made);
        }
        for _ in 0..LOOKED_AT.min(self.most) {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.most;
            if is_vacant(self.place(number)) {
                self.forget(number);
                self.owners[number as usize] = *subscriber;
                self.counts[number as usize] = SubscriberCounts::default();
                self.delays[number as usize] = RecentDelays::default();
                return Some(number);
            }
        }
        None
    }

    /// Takes the number of an instance out of the table, and closes the gap: a subscriber is found without a free slot between.
    fn forget(&mut self, number: u32) {
        let mut gap = self.home(self.owners[number as usize].hash);
        while self.slots[gap].number != number {
            gap = self.after(gap);
        }
        let mask = self.slots.len() - 1;
        let mut slot = gap;
        loop {
            slot = self.after(slot);
            let Slot { hash, number } = self.slots[slot];
            if number == NONE {
                break;
            }
            // One whose home lies behind the gap stays.
            let (from_home, from_gap) =
                (slot.wrapping_sub(self.home(hash)) & mask, slot.wrapping_sub(gap) & mask);
            if from_home >= from_gap {
                self.slots[gap] = Slot { hash, number };
                gap = slot;
            }
        }
        self.slots[gap].number = NONE;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use policy::model::MeterScope;
    use proptest::prelude::*;

    use super::*;
    use crate::egress::Ends;
    use crate::tables::Address;

    const PER: MeterScope = MeterScope::Source(32, 128);

    fn subscriber(number: u32) -> Subscriber {
        Ends::of_source(Address::v4(number)).subscriber(PER, 7)
    }

    #[test]
    fn as_many_subscribers_as_instances_have_one_each() {
        for most in [1, 3, 8, 64, 1_000, 4_096] {
            let mut instances = Instances::new(PER, 0, 10, 3, most);
            let places: Vec<u32> = (0..most).map(|n| instances.find(&subscriber(n), |_| false)).collect();
            assert_eq!(places, (0..most).map(|n| 10 + 3 * n).collect::<Vec<_>>());
            assert_eq!(instances.find(&subscriber(most), |_| false), 10 + 3 * most, "the shared one");
            assert_eq!(instances.find(&subscriber(0), |_| false), 10);
        }
    }

    proptest! {
        /// As a map of subscribers to numbers, whichever instances make room.
        #[test]
        fn instances_are_found_as_in_a_map(
            most in 1_u32..20,
            packets in prop::collection::vec((0_u32..60, any::<u32>()), 1..400),
        ) {
            let mut instances = Instances::new(PER, 0, 0, 1, most);
            let mut owners: HashMap<u32, u32> = HashMap::new();
            for (number, busy) in packets {
                // Instances are busy at random; what is found has then to be vacant, or new.
                let is_busy = |place: u32| busy >> (place % 32) & 1 == 1;
                let place = instances.find(&subscriber(number), |place| !is_busy(place));
                match owners.get(&number) {
                    Some(known) => prop_assert_eq!(place, *known),
                    None if place == most => prop_assert!(owners.len() == most as usize && (0..most).all(is_busy)),
                    None => {
                        if let Some(old) = owners.iter().find(|(_, at)| **at == place).map(|(old, _)| *old) {
                            prop_assert!(!is_busy(place) && owners.len() == most as usize);
                            owners.remove(&old);
                        }
                        owners.insert(number, place);
                    }
                }
            }
        }
    }
}
