//! Nodes of a tree, and the rings and heaps in which a node has its children.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use policy::model::Queue;

use super::packets::{List, NONE};
use super::shaper::Busy;

/// Priorities of a parent.
pub(super) const PRIORITIES: usize = Queue::PRIORITIES as usize;

/// Node of a tree.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Node {
    /// Its parent; [`NONE`] of the root.
    pub(super) parent: u32,
    /// Neighbours in the ring of its parent.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Place of its settings.
    pub(super) kind: u32,
    /// Bytes that it may still send in this turn; below zero, a debt.
    pub(super) deficit: i32,
    /// Place of its shaper; [`NONE`] if it has none.
    pub(super) shaper: u32,
    /// Place of its children, of a leaf's flows, or of its active queue management.
    pub(super) inside: u32,
    /// Priority of the ring or heap of its parent that it is in; [`NO_RING`] if in none.
    pub(super) ring: u8,
    /// True while its ceiling lets nothing go.
    pub(super) is_throttled: bool,
    /// Finish tag of what it sent last, among siblings that are served by tags.
    pub(super) finish: u64,
    /// Packets of a leaf; with fair queueing their number alone.
    pub(super) list: List,
}

/// Number of no ring.
pub(super) const NO_RING: u8 = u8::MAX;

/// Shaper of a node: state of its ceiling and of its guarantee.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shaping {
    pub(super) ceiling: Busy,
    pub(super) guarantee: Busy,
    /// Neighbours in the ring of those within their guarantees.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// True while the node is in that ring.
    pub(super) is_guaranteed: bool,
    /// True while a timer waits for the guarantee to hold again.
    pub(super) is_guarantee_awaited: bool,
    /// Its node.
    pub(super) node: u32,
}

/// Children of a node that have something to send. All of them are in a ring for each priority, where they share; those within their
/// guarantees are in another one, too, so that they do not lose their turns in the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    sharing: [u32; PRIORITIES],
    /// Heads of the rings of those within their guarantees: places of their shapers.
    guaranteed: [u32; PRIORITIES],
    /// A bit for each ring that is not empty.
    sharing_taken: u8,
    guaranteed_taken: u8,
}

impl Rings {
    pub(super) const EMPTY: Rings = Rings {
        sharing: [NONE; PRIORITIES],
        guaranteed: [NONE; PRIORITIES],
        sharing_taken: 0,
        guaranteed_taken: 0,
    };

    /// True if no child has anything to send.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.sharing_taken == 0
    }

    /// First of the children that share.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u32> {
        self.sharing.get(self.sharing_taken.trailing_zeros() as usize).copied()
    }

    /// Place of the shaper of the first child within its guarantee.
    #[inline(always)]
    pub(super) fn first_guaranteed(&self) -> Option<u32> {
        self.guaranteed.get(self.guaranteed_taken.trailing_zeros() as usize).copied()
    }

    /// Puts a node at the end of the ring of a priority.
    #[inline]
    pub(super) fn insert(&mut self, place: u32, priority: u8, nodes: &mut [Node]) {
        let head = &mut self.sharing[usize::from(priority)];
        let (next, previous) = match nodes.get(*head as usize) {
            Some(first) => (*head, first.previous),
            None => (place, place),
        };
        if *head == NONE {
            *head = place;
            self.sharing_taken |= 1 << priority;
        }
        let node = &mut nodes[place as usize];
        (node.next, node.previous, node.ring) = (next, previous, priority);
        nodes[previous as usize].next = place;
        nodes[next as usize].previous = place;
    }

    /// Takes a node out of its ring.
    #[inline]
    pub(super) fn remove(&mut self, place: u32, nodes: &mut [Node]) {
        let Node { next, previous, ring, .. } = nodes[place as usize];
        nodes[place as usize].ring = NO_RING;
        let head = &mut self.sharing[usize::from(ring)];
        if next == place {
            *head = NONE;
            self.sharing_taken &= !(1 << ring);
            return;
        }
        if *head == place {
            *head = next;
        }
        nodes[previous as usize].next = next;
        nodes[next as usize].previous = previous;
    }

    /// Ends the turn of the first node of a ring.
    #[inline(always)]
    pub(super) fn rotate(&mut self, priority: u8, nodes: &[Node]) {
        let head = &mut self.sharing[usize::from(priority)];
        *head = nodes[*head as usize].next;
    }

    /// Puts a shaper at the end of the ring of those within their guarantees.
    pub(super) fn insert_guaranteed(&mut self, shaper: u32, priority: u8, shapers: &mut [Shaping]) {
        let head = &mut self.guaranteed[usize::from(priority)];
        let (next, previous) = match shapers.get(*head as usize) {
            Some(first) => (*head, first.previous),
            None => (shaper, shaper),
        };
        if *head == NONE {
            *head = shaper;
            self.guaranteed_taken |= 1 << priority;
        }
        let shaping = &mut shapers[shaper as usize];
        (shaping.next, shaping.previous, shaping.is_guaranteed) = (next, previous, true);
        shapers[previous as usize].next = shaper;
        shapers[next as usize].previous = shaper;
    }

    /// Takes a shaper out of the ring of those within their guarantees.
    pub(super) fn remove_guaranteed(&mut self, shaper: u32, priority: u8, shapers: &mut [Shaping]) {
        let Shaping { next, previous, .. } = shapers[shaper as usize];
        shapers[shaper as usize].is_guaranteed = false;
        let head = &mut self.guaranteed[usize::from(priority)];
        if next == shaper {
            *head = NONE;
            self.guaranteed_taken &= !(1 << priority);
            return;
        }
        if *head == shaper {
            *head = next;
        }
        shapers[previous as usize].next = next;
        shapers[next as usize].previous = previous;
    }

    /// Ends the turn of the first of those within their guarantees.
    pub(super) fn rotate_guaranteed(&mut self, priority: u8, shapers: &[Shaping]) {
        let head = &mut self.guaranteed[usize::from(priority)];
        *head = shapers[*head as usize].next;
    }
}

/// Children of a node that have something to send, by start tags (Goyal, Vin and Cheng 1996).
#[derive(Debug, Default)]
pub(super) struct Tagged {
    /// For each priority, the start tags of children.
    heaps: [BinaryHeap<Reverse<(u64, u32)>>; PRIORITIES],
    /// Virtual time: the start tag of the packet sent last, by priority.
    time: [u64; PRIORITIES],
}

/// Bits of the fraction of a virtual byte.
const TAG_FRACTION: u32 = 16;

impl Tagged {
    /// Priority of the first child, and its place.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.heaps.iter().find_map(|heap| heap.peek().map(|Reverse((_, place))| *place))
    }

    /// True if no child has anything to send.
    pub(super) fn is_empty(&self) -> bool {
        self.heaps.iter().all(BinaryHeap::is_empty)
    }

    /// Makes room for another child of a priority.
    pub(super) fn reserve(&mut self, priority: u8) {
        let heap = &mut self.heaps[usize::from(priority) % PRIORITIES];
        heap.reserve_exact(heap.len() + 1);
    }

    /// Adds a child that has something to send.
    #[inline]
    pub(super) fn insert(&mut self, place: u32, priority: u8, nodes: &mut [Node]) {
        let priority = usize::from(priority) % PRIORITIES;
        let node = &mut nodes[place as usize];
        node.ring = priority as u8;
        self.heaps[priority].push(Reverse((node.finish.max(self.time[priority]), place)));
    }

    /// Takes out the first child of a priority, which has sent so many bytes.
    #[inline]
    pub(super) fn take(&mut self, priority: u8, bytes: u64, weight: u32, nodes: &mut [Node]) {
        let priority = usize::from(priority) % PRIORITIES;
        let Some(Reverse((start, place))) = self.heaps[priority].pop() else { return };
        self.time[priority] = start;
        let node = &mut nodes[place as usize];
        node.ring = NO_RING;
        node.finish = start.saturating_add((bytes << TAG_FRACTION) / u64::from(weight.max(1)));
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Tagged>() + self.heaps.iter().map(|heap| heap.capacity() * 16).sum::<usize>()
    }
}
