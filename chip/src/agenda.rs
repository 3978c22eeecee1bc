//! Event queue of the simulation: in the order of time; at one moment, in the order in which events were noted.
//!
//! A timing wheel has the events of the near future, by their moments (Varghese and Lauck, Hashed and Hierarchical Timing Wheels, 1987,
//! scheme 4), a heap those further off. They come to the wheel in their order, as soon as it reaches their moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::kernel::Ticks;

/// Moments of the wheel, from now on. Hundreds of cycles of any clock: what an engine or a memory takes is within it.
const SLOTS: usize = 8_192;

/// Slots of a word of the wheel's bits.
const WORD: usize = 64;

/// No event.
const NONE: u32 = u32::MAX;

/// Event queue.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    /// Events of each moment within the wheel, by the moment modulo their number.
    slots: Vec<Slot>,
    /// A bit for each slot with an event.
    occupied: [u64; SLOTS / WORD],
    /// A bit for each word of `occupied` that is not 0.
    words: u128,
    nodes: Vec<Node<E>>,
    /// First of the nodes without an event.
    free: u32,
    /// Events further off: moment, number in the order of noting, node.
    far: BinaryHeap<Reverse<(Ticks, u64, u32)>>,
    noted: u64,
    now: Ticks,
}

/// Events of one moment: the first node, and the last.
#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    event: E,
    next: u32,
}

impl<E: Copy> Agenda<E> {
    /// Returns an empty queue, at time zero.
    pub fn new() -> Agenda<E> {
        Agenda {
            slots: vec![Slot { first: NONE, last: NONE }; SLOTS],
            occupied: [0; SLOTS / WORD],
            words: 0,
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            noted: 0,
            now: Ticks::ZERO,
        }
    }

    /// The moment of the event that was taken last.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// True if no event is left.
    pub fn is_empty(&self) -> bool {
        self.words == 0 && self.far.is_empty()
    }

    /// Notes that `event` will happen at `at`; now, if that is past.
    #[inline]
    pub fn note(&mut self, at: Ticks, event: E) {
        let at = at.max(self.now);
        let node = self.node(event);
        if at.since(self.now) < Ticks(SLOTS as u64) {
            return self.put(at, node);
        }
        self.noted += 1;
        self.far.push(Reverse((at, self.noted, node)));
    }

    /// The next event; it is its moment now.
    #[inline]
    pub fn take(&mut self) -> Option<E> {
        let at = match self.next() {
            Some(at) => at,
            None => self.far.peek()?.0.0,
        };
        if at != self.now {
            self.now = at;
            self.reach();
        }
        let slot = at.0 as usize % SLOTS;
        let first = self.slots[slot].first;
        let Node { event, next } = *self.nodes.get(first as usize)?;
        self.slots[slot].first = next;
        if next == NONE {
            let word = slot / WORD;
            self.occupied[word] &= !(1 << (slot % WORD));
            if self.occupied[word] == 0 {
                self.words &= !(1 << word);
            }
        }
        self.nodes[first as usize].next = self.free;
        self.free = first;
        Some(event)
    }

    /// The next moment with an event in the wheel.
    #[inline]
    fn next(&self) -> Option<Ticks> {
        let start = self.now.0 as usize % SLOTS;
        let (word, behind) = (start / WORD, u64::MAX << (start % WORD));
        let here = self.occupied[word] & behind;
        let slot = if here != 0 {
            word * WORD + here.trailing_zeros() as usize
        } else {
            // The words behind this one, then those from the first one on to this one itself.
            let later = self.words & (u128::MAX << word << 1);
            let words = if later != 0 { later } else { self.words };
            if words == 0 {
                return None;
            }
            let found = words.trailing_zeros() as usize;
            found * WORD + self.occupied[found].trailing_zeros() as usize
        };
        Some(self.now + Ticks((slot.wrapping_sub(start) % SLOTS) as u64))
    }

    /// Takes in what is within the wheel now.
    #[inline]
    fn reach(&mut self) {
        while let Some(Reverse((at, _, node))) = self.far.peek().copied() {
            if at.since(self.now) >= Ticks(SLOTS as u64) {
                break;
            }
            self.far.pop();
            self.put(at, node);
        }
    }

    /// Puts an event behind those of its moment.
    #[inline]
    fn put(&mut self, at: Ticks, node: u32) {
        let place = at.0 as usize % SLOTS;
        let slot = &mut self.slots[place];
        if slot.first == NONE {
            slot.first = node;
            self.occupied[place / WORD] |= 1 << (place % WORD);
            self.words |= 1 << (place / WORD);
        } else {
            self.nodes[slot.last as usize].next = node;
        }
        slot.last = node;
    }

    /// A node with an event.
    #[inline]
    fn node(&mut self, event: E) -> u32 {
        let node = Node { event, next: NONE };
        match self.nodes.get_mut(self.free as usize) {
            Some(free) => {
                let place = self.free;
                self.free = free.next;
                *free = node;
                place
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }
}

impl<E: Copy> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_then_of_noting() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.note(Ticks(at), event);
        }
        assert_eq!(agenda.take(), Some('a'));
        agenda.note(Ticks(1), 'x');
        let rest: Vec<char> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(rest, ['b', 'x', 'c', 'd'], "what is past happens now, after what was noted for now");
        assert_eq!(agenda.now(), Ticks(5));
    }

    proptest! {
        /// Whatever is noted, and when, comes as from a list that is sorted by time and order of noting.
        #[test]
        fn events_come_as_from_a_sorted_list(
            acts in vec(prop_oneof![
                (0u64..70).prop_map(Some),
                (0..3 * SLOTS as u64).prop_map(Some),
                (0..u64::from(u32::MAX)).prop_map(Some),
                Just(None),
                Just(None),
            ], 0..400),
        ) {
            let mut agenda = Agenda::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            let next = |list: &mut Vec<(u64, usize)>| {
                let least = *list.iter().min()?;
                list.retain(|entry| *entry != least);
                Some(least)
            };
            for (number, act) in acts.into_iter().enumerate() {
                match act {
                    Some(after) => {
                        agenda.note(Ticks(now + after), number);
                        list.push((now + after, number));
                    }
                    None => {
                        let expected = next(&mut list);
                        prop_assert_eq!(agenda.take(), expected.map(|(_, number)| number));
                        now = expected.map_or(now, |(at, _)| at);
                        prop_assert_eq!(agenda.now(), Ticks(now));
                    }
                }
            }
            while let Some((at, number)) = next(&mut list) {
                prop_assert!(!agenda.is_empty());
                prop_assert_eq!((agenda.take(), agenda.now()), (Some(number), Ticks(at)));
            }
            prop_assert!(agenda.is_empty());
            prop_assert_eq!(agenda.take(), None);
        }
    }
}
