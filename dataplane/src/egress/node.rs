//! Nodes of a tree, and the rings in which a node has its children.

use policy::model::Queue;

use super::kind::{Above, Work};
use super::packets::{List, NONE};
use super::shaper::Busy;

/// Priorities of a parent.
pub(super) const PRIORITIES: usize = Queue::PRIORITIES as usize;

/// Node of a tree: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Node {
    /// Its parent; [`NONE`] of the root.
    pub(super) parent: u32,
    /// Place of its settings.
    pub(super) kind: u32,
    /// Work of the node, as its settings say.
    pub(super) work: Work,
    /// Account of what it sends.
    pub(super) account: Account,
    /// Place of its children, of a leaf's flows, or of its active queue management.
    pub(super) inside: u32,
    /// Place of its shaper; [`NONE`] if it has none.
    pub(super) shaper: u32,
    /// Neighbours in the ring of its parent.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Bytes that it may still send in this turn; below zero, a debt.
    pub(super) deficit: i32,
    /// Priority of the ring or heap of its parent that it is in; [`NO_RING`] if in none.
    pub(super) ring: u8,
    /// True while its ceiling lets nothing go.
    pub(super) is_throttled: bool,
    /// A bit for each priority of which children have something to send.
    pub(super) sharing: u8,
    /// A bit for each priority of which children within their guarantees have something to send.
    pub(super) guaranteed: u8,
    /// Packets of a leaf; with fair queueing their number alone.
    pub(super) list: List,
    /// Finish tag of what it sent last, among siblings that are served by tags.
    pub(super) finish: u64,
}

/// Account of what a node sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// None: it is the root, without a ceiling.
    Root,
    /// Its deficit alone: it has no shaper, and is served by deficit round robin.
    Deficit,
    /// A shaper or a tag, too.
    Shaped,
}

impl Account {
    /// Account of a node with that shaper, which is served by `above`.
    pub(super) fn of(shaper: u32, above: Above) -> Account {
        match above {
            Above::Nothing if shaper == NONE => Account::Root,
            Above::Drr if shaper == NONE => Account::Deficit,
            _ => Account::Shaped,
        }
    }
}

/// Number of no ring.
pub(super) const NO_RING: u8 = u8::MAX;

impl Node {
    /// A node that has nothing to send: a leaf without a parent's scheduler, until its settings are known.
    pub(super) fn new(parent: u32, kind: u32, inside: u32, shaper: u32) -> Node {
        Node {
            parent,
            kind,
            work: Work::Fifo,
            account: Account::Root,
            inside,
            shaper,
            next: NONE,
            previous: NONE,
            deficit: 0,
            ring: NO_RING,
            is_throttled: false,
            sharing: 0,
            guaranteed: 0,
            list: List::EMPTY,
            finish: 0,
        }
    }

    /// True if the node has anything to send, but for its ceiling.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        // A leaf has no children, and a parent no packets.
        u32::from(self.sharing) | self.list.packets != 0
    }
}

/// Shaper of a node: state of its ceiling and of its guarantee.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Shaping {
    pub(super) ceiling: Busy,
    pub(super) guarantee: Busy,
    /// Neighbours in the ring of those within their guarantees.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Its node.
    pub(super) node: u32,
    /// True while the node is in that ring.
    pub(super) is_guaranteed: bool,
    /// True while a timer waits for the guarantee to hold again.
    pub(super) is_guarantee_awaited: bool,
}

/// Children of a node that have something to send. All of them are in a ring for each priority, where they share; those within their
/// guarantees are in another one, too, so that they do not lose their turns in the first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Rings {
    sharing: [u32; PRIORITIES],
    /// Heads of the rings of those within their guarantees: places of their shapers.
    guaranteed: [u32; PRIORITIES],
}

/// Place in a ring for a node that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// The place that the node had, as far as it is known.
    Former,
    /// Behind all others.
    End,
}

impl Rings {
    pub(super) const EMPTY: Rings = Rings { sharing: [NONE; PRIORITIES], guaranteed: [NONE; PRIORITIES] };

    /// First of the children that share; `taken` are the priorities of which there are some.
    #[inline(always)]
    pub(super) fn first(&self, taken: u8) -> u32 {
        self.sharing[taken.trailing_zeros() as usize % PRIORITIES]
    }

    /// Place of the shaper of the first child within its guarantee.
    #[inline(always)]
    pub(super) fn first_guaranteed(&self, taken: u8) -> u32 {
        self.guaranteed[taken.trailing_zeros() as usize % PRIORITIES]
    }

    /// Puts a node into the ring of a priority of its parent.
    #[inline(always)]
    pub(super) fn insert(&mut self, place: u32, priority: u8, at: At, nodes: &mut [Node]) {
        let head = &mut self.sharing[usize::from(priority) % PRIORITIES];
        let (next, previous) = if *head == NONE {
            *head = place;
            (place, place)
        } else {
            let Node { next: behind, previous: before, .. } = nodes[place as usize];
            let mut next = *head;
            if at == At::Former {
                // The first has its turn to end; before the first is whoever would have had his meanwhile.
                let is_known = nodes.get(behind as usize).is_some_and(|behind| behind.ring == priority);
                if before == NONE || is_known && behind == *head {
                    *head = place;
                } else if is_known {
                    next = behind;
                }
            }
            let previous = std::mem::replace(&mut nodes[next as usize].previous, place);
            nodes[previous as usize].next = place;
            (next, previous)
        };
        let node = &mut nodes[place as usize];
        (node.next, node.previous, node.ring) = (next, previous, priority);
        let parent = node.parent;
        nodes[parent as usize].sharing |= 1 << (priority % PRIORITIES as u8);
    }

    /// Takes a node out of its ring. Its neighbours are known until it comes back; of the first there was none before it.
    #[inline(always)]
    pub(super) fn remove(&mut self, place: u32, nodes: &mut [Node]) {
        let node = &mut nodes[place as usize];
        let Node { next, previous, parent, .. } = *node;
        let priority = std::mem::replace(&mut node.ring, NO_RING);
        let head = &mut self.sharing[usize::from(priority) % PRIORITIES];
        if next == place {
            *head = NONE;
            node.previous = NONE;
            nodes[parent as usize].sharing &= !(1 << (priority % PRIORITIES as u8));
            return;
        }
        if *head == place {
            *head = next;
            node.previous = NONE;
        } else if *head == next {
            // Behind the last there is nobody.
            node.next = NONE;
        }
        nodes[previous as usize].next = next;
        nodes[next as usize].previous = previous;
    }

    /// Ends the turn of the first node of a ring.
    #[inline(always)]
    pub(super) fn rotate(&mut self, priority: u8, nodes: &[Node]) {
        let head = &mut self.sharing[usize::from(priority) % PRIORITIES];
        *head = nodes[*head as usize].next;
    }

    /// Puts a shaper at the end of the ring of those within their guarantees.
    pub(super) fn insert_guaranteed(&mut self, shaper: u32, priority: u8, shapers: &mut [Shaping]) {
        let head = &mut self.guaranteed[usize::from(priority) % PRIORITIES];
        let (next, previous) = match shapers.get(*head as usize) {
            Some(first) => (*head, first.previous),
            None => (shaper, shaper),
        };
        if *head == NONE {
            *head = shaper;
        }
        let shaping = &mut shapers[shaper as usize];
        (shaping.next, shaping.previous, shaping.is_guaranteed) = (next, previous, true);
        shapers[previous as usize].next = shaper;
        shapers[next as usize].previous = shaper;
    }

    /// Takes a shaper out of the ring of those within their guarantees. True if it was the last.
    #[must_use]
    pub(super) fn remove_guaranteed(&mut self, shaper: u32, priority: u8, shapers: &mut [Shaping]) -> bool {
        let Shaping { next, previous, .. } = shapers[shaper as usize];
        shapers[shaper as usize].is_guaranteed = false;
        let head = &mut self.guaranteed[usize::from(priority) % PRIORITIES];
        if next == shaper {
            *head = NONE;
            return true;
        }
        if *head == shaper {
            *head = next;
        }
        shapers[previous as usize].next = next;
        shapers[next as usize].previous = previous;
        false
    }

    /// Ends the turn of the first of those within their guarantees.
    pub(super) fn rotate_guaranteed(&mut self, priority: u8, shapers: &[Shaping]) {
        let head = &mut self.guaranteed[usize::from(priority) % PRIORITIES];
        *head = shapers[*head as usize].next;
    }
}
