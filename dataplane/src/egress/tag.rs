//! Children of a node that are served by start tags: start-time fair queueing (Goyal, Vin and Cheng 1996).
//!
//! Virtual time is the start tag of the packet that is sent. When all children of a priority have been served and the last packet has
//! gone, time goes on to the last finish tag, as the paper has it: whoever comes then begins with the others, and nobody is held back
//! for what was sent before the pause. Tags count modulo 2^64, and are compared by their distance.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use wire::Nanos;

use super::node::{NO_RING, Node, PRIORITIES};

/// Children of a node that have something to send.
#[derive(Debug, Default)]
pub(super) struct Tagged {
    /// For each priority, the start tags of children.
    heaps: [BinaryHeap<Start>; PRIORITIES],
    times: [Times; PRIORITIES],
}

/// Virtual time of one priority.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Start tag of the packet sent last.
    now: u64,
    /// Last of the finish tags.
    last: u64,
    /// Moment at which that packet began.
    began: Nanos,
}

/// Packet that a tree is sending, or has sent last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    /// Moment at which it begins.
    pub(super) began: Nanos,
    /// Moment at which the next may begin.
    pub(super) until: Nanos,
}

impl Service {
    /// True if it is being sent at `now`: what comes at the very end finds no pause.
    fn is_at(&self, now: Nanos) -> bool {
        now <= self.until
    }
}

/// A child's start tag. Of a heap the first is the greatest: the one with the lowest tag, of the same tag the lowest place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    tag: u64,
    place: u32,
}

impl Ord for Start {
    fn cmp(&self, other: &Start) -> Ordering {
        // Tags of one heap are within a packet's length of virtual time of each other.
        let distance = other.tag.wrapping_sub(self.tag) as i64;
        distance.cmp(&0).then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for Start {
    fn partial_cmp(&self, other: &Start) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Bits of the fraction of a virtual byte.
const FRACTION: u32 = 16;

/// Longest span of virtual time that a packet takes: 2^32 bytes at a weight of one.
const LONGEST: u64 = 1 << (32 + FRACTION);

impl Tagged {
    /// Place of the first child; `taken` are the priorities of which there are some.
    #[inline]
    pub(super) fn first(&self, taken: u8) -> Option<u32> {
        self.heaps.get(taken.trailing_zeros() as usize)?.peek().map(|start| start.place)
    }

    /// Makes room for so many children of a priority.
    pub(super) fn reserve(&mut self, priority: u8, children: usize) {
        self.heaps[usize::from(priority) % PRIORITIES].reserve_exact(children);
    }

    /// Adds a child of a priority that has something to send at `now`; virtual time goes on first, where all others have been served and
    /// their last packet, if it is `service`, has gone.
    pub(super) fn offer(
        &mut self,
        place: u32,
        priority: u8,
        nodes: &mut [Node],
        service: &Service,
        now: Nanos,
    ) {
        let number = usize::from(priority) % PRIORITIES;
        let times = &mut self.times[number];
        let is_served = times.began == service.began && service.is_at(now);
        if self.heaps[number].is_empty() && !is_served {
            times.now = times.last;
        }
        self.insert(place, priority, nodes);
    }

    /// Adds a child of a priority that has something to send, at once after it has sent.
    #[inline]
    pub(super) fn insert(&mut self, place: u32, priority: u8, nodes: &mut [Node]) {
        let (number, now) = (usize::from(priority) % PRIORITIES, self.now(priority));
        let node = &mut nodes[place as usize];
        node.ring = priority;
        let is_ahead = node.finish.wrapping_sub(now) <= LONGEST;
        self.heaps[number].push(Start { tag: if is_ahead { node.finish } else { now }, place });
        let parent = node.parent;
        nodes[parent as usize].sharing |= 1 << number;
    }

    /// Takes out the first child of a priority, which sends so many bytes from `now` on.
    #[inline]
    pub(super) fn take(&mut self, priority: u8, bytes: u32, weight: u32, nodes: &mut [Node], now: Nanos) {
        let number = usize::from(priority) % PRIORITIES;
        let Some(Start { tag, place }) = self.heaps[number].pop() else { return };
        let times = &mut self.times[number];
        (times.now, times.began) = (tag, now);
        let node = &mut nodes[place as usize];
        node.ring = NO_RING;
        node.finish = tag.wrapping_add((u64::from(bytes) << FRACTION) / u64::from(weight.max(1)));
        if node.finish.wrapping_sub(times.last) <= LONGEST {
            times.last = node.finish;
        }
        if self.heaps[number].is_empty() {
            let parent = node.parent;
            nodes[parent as usize].sharing &= !(1 << number);
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Tagged>()
            + self.heaps.iter().map(|heap| heap.capacity() * size_of::<Start>()).sum::<usize>()
    }

    fn now(&self, priority: u8) -> u64 {
        self.times[usize::from(priority) % PRIORITIES].now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::packets::NONE;

    /// Bytes sent by each of the children of these weights, always backlogged, from a virtual time on.
    fn served(from: u64, weights: &[u32], packets: usize) -> Vec<u64> {
        let mut nodes = vec![Node::new(NONE, 0, 0, NONE)];
        nodes.extend(weights.iter().map(|_| Node { finish: from, ..Node::new(0, 0, 0, NONE) }));
        let mut tagged = Tagged::default();
        tagged.times[0] = Times { now: from, last: from, began: Nanos(0) };
        (1..nodes.len() as u32).for_each(|place| tagged.insert(place, 0, &mut nodes));
        let mut sent = vec![0; weights.len()];
        for _ in 0..packets {
            let place = tagged.first(nodes[0].sharing).unwrap();
            let child = place as usize - 1;
            sent[child] += 1_500;
            tagged.take(0, 1_500, weights[child], &mut nodes, Nanos(0));
            tagged.insert(place, 0, &mut nodes);
        }
        sent
    }

    #[test]
    fn shares_hold_where_tags_begin_anew() {
        let weights = [1, 2, 5, 100];
        let expected = served(0, &weights, 10_000);
        for before in [1, 1 << 20, 1 << 30, 1 << 34] {
            assert_eq!(served(0_u64.wrapping_sub(before), &weights, 10_000), expected, "{before}");
            assert_eq!(served((1 << 63) - before, &weights, 10_000), expected, "{before}");
        }
    }

    /// A tag of long ago, half the tags behind, is no tag to come.
    #[test]
    fn who_comes_back_after_any_time_begins_now() {
        for since in [0, 1, LONGEST, 1 << 62, 1 << 63, (1 << 63) + 1, u64::MAX - LONGEST - 1] {
            let mut nodes =
                vec![Node::new(NONE, 0, 0, NONE), Node::new(0, 0, 0, NONE), Node::new(0, 0, 0, NONE)];
            let mut tagged = Tagged::default();
            tagged.times[0] = Times { now: since, last: since, began: Nanos(0) };
            nodes[1].finish = since.wrapping_add(5);
            tagged.insert(1, 0, &mut nodes);
            tagged.insert(2, 0, &mut nodes);
            assert_eq!(tagged.first(nodes[0].sharing), Some(2), "{since}");
        }
    }
}
