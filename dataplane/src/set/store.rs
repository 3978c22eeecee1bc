//! Elements of dynamic sets in one memory: found by prefix, listed by set, in the order of their moments.
//!
//! A prefix that several sets have is one entry of the table, whose tag leads to a chain of elements, one a set. A set keeps its
//! elements in a list. A flush gives the list to that of all that is flushed, and begins another generation, so that it takes one
//! step; elements of an earlier generation are in no set, and their memory is given back little by little.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};
use lookup::set::{HashKeys, Holders, Prefix, SetTable};
use policy::model::{DynamicSet, SetSource};
use tally::{Op, Region, Tally};
use wire::{Family, Nanos};

use super::expiry::Expiry;
use super::sync::{By, Changes, LISTED};
use super::{Element, NEVER, SetOutcome, SetReport, to_net};
use crate::tables::{Address, SetQuestions, Side, Tables};

/// No element.
pub(super) const NONE: u32 = u32::MAX;

/// Elements whose memory is given back at once.
const SWEPT_AT_ONCE: u32 = 256;

/// Time between two sweeps while elements are over, and while none is known to be.
const SOON: u64 = 1_000_000;
const LATER: u64 = 125_000_000;

/// Most elements that wait to be told.
const MOST_TOLD: usize = 16_384;

/// An element.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Node {
    high: u64,
    low: u64,
    /// Moment from which on it is over.
    until: u64,
    /// The next element of the same prefix; of a free place, the next free one.
    next: u32,
    /// Neighbours in the list of the set, or of what is flushed.
    before: u32,
    behind: u32,
    /// Place among the timers.
    pub(super) timer: u32,
    /// Generation of the set.
    generation: u32,
    pub(super) set: u8,
    length: u8,
    family: u8,
    /// Bits: [`WAITS`], and those of [`super::sync`].
    pub(super) marks: u8,
}

const _: () = assert!(size_of::<Node>() == 48);

/// In [`Node::marks`]: the element waits to be told.
pub(super) const WAITS: u8 = 1;

/// A set.
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
    size: u32,
    generation: u32,
    expiry: Expiry,
    /// Rules and requests fill the set: a second gateway is told of its elements.
    pub(super) is_own: bool,
    refused: u64,
    expired: u64,
    dropped: u64,
    untold: u64,
}

/// Elements of all sets.
pub(crate) struct Store {
    table: SetTable,
    pub(super) nodes: Slab<Node>,
    /// Free places, and the first that has never been in use.
    free: u32,
    pub(super) fresh: u32,
    pub(super) lists: Vec<List>,
    /// Flushed elements that hold memory: first and last.
    flushed: [u32; 2],
    /// Elements that wait to be told.
    told: Vec<u32>,
    /// Moment of the next sweep, and of the last one.
    due: u64,
    swept: u64,
    /// Changes that a second gateway is to be told of.
    pub(super) changes: Option<Changes>,
}

impl Store {
    pub(crate) fn new(tables: &Tables, keys: HashKeys, paging: Paging) -> Result<Store, MemoryError> {
        // No sound policy asks for more.
        let all: u64 = tables.sets.iter().map(|set| u64::from(set.size)).sum();
        let all = all.min(DynamicSet::MOST_SIZE.into()) as u32;
        let list = |size, is_own| {
            Ok(List {
                first: NONE,
                last: NONE,
                len: 0,
                size,
                generation: 0,
                expiry: Expiry::new(if is_own { size } else { 0 }, paging)?,
                is_own,
                refused: 0,
                expired: 0,
                dropped: 0,
                untold: 0,
            })
        };
        let lists = tables.sets.iter().map(|set| list(set.size, set.source == SetSource::Rules));
        let told = if tables.set_questions.has_additions { MOST_TOLD } else { 0 };
        Ok(Store {
            table: SetTable::paged(all, keys, paging)?,
            nodes: Slab::paged(all as usize, paging)?,
            free: NONE,
            fresh: 0,
            lists: lists.collect::<Result<_, MemoryError>>()?,
            flushed: [NONE; 2],
            told: Vec::with_capacity(told),
            due: NEVER,
            swept: 0,
            changes: None,
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let timers: usize = self.lists.iter().map(|list| list.expiry.memory_bytes()).sum();
        let changes = self.changes.as_ref().map_or(0, Changes::memory_bytes);
        self.table.memory_bytes() + self.nodes.bytes() + timers + changes
    }

    /// Bits of the sets that an address is in at a moment.
    #[inline]
    pub(crate) fn bits<T: Tally>(
        &self,
        questions: &SetQuestions,
        side: Side,
        address: Address,
        now: u64,
        tally: &mut T,
    ) -> u32 {
        let asked = questions.asked[side as usize];
        if asked == 0 {
            return 0;
        }
        let mut bits = 0;
        self.table.each(address.family(), address.bits, tally, |holders, tally| {
            if holders.sets & asked == 0 {
                return;
            }
            let mut at = holders.tag;
            while let Some(node) = self.nodes.get(at as usize) {
                let offset = self.table.memory_bytes() + at as usize * size_of::<Node>();
                tally.read(Region::SetTable, offset, 32);
                // Its moment of two words, 6; its generation by place and bound, 6; the bits of its set likewise, 6; the next, 2.
                tally.instructions(20);
                tally.execute(Op::Branch, 5);
                if self.is_member(node, now) {
                    bits |= questions.bits.get(usize::from(node.set)).map_or(0, |bits| bits[side as usize]);
                }
                at = node.next;
            }
        });
        bits
    }

    /// Adds an element, or lets one that is there last longer.
    pub(crate) fn add(&mut self, set: u16, prefix: Prefix, until: u64, now: u64, by: By) -> SetOutcome {
        let put = self.put(set, prefix, until, now);
        if let Some(at) = put.place {
            self.mark(at, by, put.outcome, put.is_changed);
        }
        put.outcome
    }

    fn put(&mut self, set: u16, prefix: Prefix, until: u64, now: u64) -> Put {
        let Some(list) = self.lists.get_mut(usize::from(set)) else { return Put::not(SetOutcome::Absent) };
        let until = if list.expiry.memory_bytes() == 0 { NEVER } else { until };
        let generation = list.generation;
        if let Some(at) = self.find(set, prefix) {
            let node = self.nodes[at as usize];
            if node.generation == generation {
                let was_member = node.until > now;
                let until = if was_member { until.max(node.until) } else { until };
                self.set_until(at, until);
                if !was_member {
                    self.lists[usize::from(set)].expired += 1;
                    return Put::new_at(at);
                }
                let is_changed = until != node.until;
                return Put { place: Some(at), outcome: SetOutcome::Refreshed, is_changed };
            }
        }
        if !self.make_room(set, now) {
            self.lists[usize::from(set)].refused += 1;
            return Put::not(SetOutcome::Full);
        }
        let at = match self.find(set, prefix) {
            Some(at) => {
                self.unlist(at, ListOf::Flushed);
                at
            }
            None => {
                let Some(at) = self.take_place() else {
                    self.lists[usize::from(set)].refused += 1;
                    return Put::not(SetOutcome::Full);
                };
                let holders = self.table.get(prefix);
                let next = if holders.sets == 0 { NONE } else { holders.tag };
                let sets = holders.sets | 1 << (set % 32);
                if self.table.put(prefix, Holders { sets, tag: at }).is_err() {
                    self.nodes[at as usize].next = self.free;
                    self.free = at;
                    self.lists[usize::from(set)].refused += 1;
                    return Put::not(SetOutcome::Full);
                }
                self.nodes[at as usize] = Node {
                    high: (prefix.bits >> 64) as u64,
                    low: prefix.bits as u64,
                    next,
                    set: set as u8,
                    length: prefix.length,
                    family: prefix.family as u8,
                    marks: self.nodes[at as usize].marks & LISTED,
                    ..Node::zeroed()
                };
                at
            }
        };
        self.enlist(at, set, until);
        Put::new_at(at)
    }

    /// Removes an element.
    pub(crate) fn remove(&mut self, set: u16, prefix: Prefix, now: u64, by: By) -> SetOutcome {
        let Some(at) = self.find(set, prefix) else { return SetOutcome::Absent };
        let node = &self.nodes[at as usize];
        if node.generation != self.lists[usize::from(set)].generation {
            return SetOutcome::Absent;
        }
        let was_member = node.until > now;
        self.give_back(at);
        if was_member {
            self.note_removed(set, Some(prefix), by);
            SetOutcome::Removed
        } else {
            SetOutcome::Absent
        }
    }

    /// Removes all elements of a set, in one step.
    pub(crate) fn flush(&mut self, set: u16, by: By) -> SetOutcome {
        let Some(list) = self.lists.get_mut(usize::from(set)).filter(|list| list.len > 0) else {
            return SetOutcome::Absent;
        };
        let [first, last] = [list.first, list.last];
        (list.first, list.last, list.len) = (NONE, NONE, 0);
        list.generation = list.generation.wrapping_add(1);
        list.expiry.clear();
        match self.flushed {
            [NONE, _] => self.flushed = [first, last],
            [_, end] => {
                self.nodes[end as usize].behind = first;
                self.nodes[first as usize].before = end;
                self.flushed[1] = last;
            }
        }
        self.due = self.due.min(self.swept.saturating_add(SOON));
        self.note_removed(set, None, by);
        SetOutcome::Removed
    }

    /// Notes that an element that a rule has added or refreshed is to be told.
    pub(crate) fn note_told(&mut self, set: u16, prefix: Prefix) {
        let Some(at) = self.find(set, prefix) else { return };
        let node = &mut self.nodes[at as usize];
        if node.marks & WAITS != 0 {
            return;
        }
        if self.told.len() < self.told.capacity() {
            node.marks |= WAITS;
            self.told.push(at);
        } else {
            self.lists[usize::from(set)].untold += 1;
        }
    }

    /// True if elements wait to be told.
    #[inline(always)]
    pub(crate) fn has_told(&self) -> bool {
        !self.told.is_empty()
    }

    /// Gives the elements that wait to be told.
    pub(crate) fn take_told(&mut self, mut give: impl FnMut(Element)) {
        for place in 0..self.told.len() {
            let at = self.told[place] as usize;
            let node = self.nodes[at];
            let is_listed =
                self.lists.get(usize::from(node.set)).is_some_and(|list| list.generation == node.generation);
            if node.marks & WAITS != 0 && is_listed {
                give(element(&node));
            }
            self.nodes[at].marks &= !WAITS;
        }
        self.told.clear();
    }

    /// Gives the elements of a set that are in some places, and returns the next place.
    pub(crate) fn elements(
        &self,
        set: u16,
        from: u32,
        most: u32,
        now: u64,
        give: impl FnMut(Element),
    ) -> Option<u32> {
        let end = from.saturating_add(most.max(1)).min(self.fresh);
        let nodes = self.nodes.get(from as usize..end as usize).unwrap_or_default();
        let own = nodes.iter().filter(|node| is_used(node) && u16::from(node.set) == set);
        own.filter(|node| self.is_member(node, now)).map(element).for_each(give);
        (end < self.fresh).then_some(end)
    }

    /// Number of places that may have an element.
    pub(crate) fn places(&self) -> u32 {
        self.fresh
    }

    /// The element in a place, if it is one at a moment.
    pub(crate) fn element_at(&self, place: u32, now: u64) -> Option<Element> {
        let node = self.nodes.get(place as usize).filter(|_| place < self.fresh)?;
        (is_used(node) && self.is_member(node, now)).then(|| element(node))
    }

    pub(crate) fn report(&self, set: u16) -> SetReport {
        let Some(list) = self.lists.get(usize::from(set)) else { return SetReport::default() };
        let List { len, size, refused, expired, dropped, untold, .. } = *list;
        SetReport { elements: len, size, refused, expired, dropped, untold }
    }

    #[inline(always)]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// Gives back memory of some elements that are over or flushed.
    pub(crate) fn sweep(&mut self, now: u64) {
        let mut left = SWEPT_AT_ONCE;
        while left > 0 && self.flushed[0] != NONE {
            self.give_back(self.flushed[0]);
            left -= 1;
        }
        let mut next = NEVER;
        for set in 0..self.lists.len() {
            while let Some((until, at)) = self.lists[set].expiry.first() {
                if until > now || left == 0 {
                    next = next.min(until);
                    break;
                }
                self.lists[set].expired += 1;
                self.give_back(at);
                left -= 1;
            }
        }
        self.swept = now;
        let is_done = self.flushed[0] == NONE && next > now;
        self.due = match next {
            _ if !is_done => now.saturating_add(SOON),
            NEVER => NEVER,
            next => next.max(now.saturating_add(LATER)),
        };
    }

    /// Takes in the elements of another store, whose sets have those places here, in their order, and the counts. Elements that there is no
    /// room for are dropped, and counted.
    pub(crate) fn take_over(&mut self, other: &Store, places: &[Option<u16>], now: Nanos) {
        for (from, to) in other.lists.iter().zip(places) {
            let Some(to) = *to else { continue };
            let mut at = from.first;
            while let Some(node) = other.nodes.get(at as usize) {
                if node.until > now.0 {
                    let prefix = prefix_of(node);
                    match self.put(to, prefix, node.until, now.0).place {
                        None => self.lists[usize::from(to)].dropped += 1,
                        Some(at) => {
                            self.move_marks(at, node);
                            if node.marks & WAITS != 0 {
                                self.note_told(to, prefix);
                            }
                        }
                    }
                }
                at = node.behind;
            }
            if let Some(list) = self.lists.get_mut(usize::from(to)) {
                list.refused = from.refused;
                list.expired += from.expired;
                list.dropped += from.dropped;
                list.untold += from.untold;
            }
        }
        self.move_removed(other, places);
    }

    #[inline(always)]
    pub(super) fn is_member(&self, node: &Node, now: u64) -> bool {
        let generation = self.lists.get(usize::from(node.set)).map(|list| list.generation);
        node.until > now && generation == Some(node.generation)
    }

    /// The element of a set with that prefix, which may be over or flushed.
    fn find(&self, set: u16, prefix: Prefix) -> Option<u32> {
        let holders = self.table.get(prefix);
        if holders.sets >> (set % 32) & 1 == 0 {
            return None;
        }
        let mut at = holders.tag;
        while let Some(node) = self.nodes.get(at as usize) {
            if u16::from(node.set) == set {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    /// Makes room for an element in a set: true if there is any.
    fn make_room(&mut self, set: u16, now: u64) -> bool {
        let list = &mut self.lists[usize::from(set)];
        if list.len < list.size {
            return true;
        }
        let Some((_, at)) = list.expiry.first().filter(|(until, _)| *until <= now) else { return false };
        list.expired += 1;
        self.give_back(at);
        true
    }

    /// A free place.
    fn take_place(&mut self) -> Option<u32> {
        if self.free == NONE && self.fresh as usize >= self.nodes.len() && self.flushed[0] != NONE {
            self.give_back(self.flushed[0]);
        }
        if self.free != NONE {
            let at = self.free;
            self.free = self.nodes[at as usize].next;
            return Some(at);
        }
        let is_there = (self.fresh as usize) < self.nodes.len();
        is_there.then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Puts an element at the end of its set's list, with its moment.
    fn enlist(&mut self, at: u32, set: u16, until: u64) {
        let list = &mut self.lists[usize::from(set)];
        let node = &mut self.nodes[at as usize];
        (node.before, node.behind) = (list.last, NONE);
        (node.generation, node.timer) = (list.generation, NONE);
        match list.last {
            NONE => list.first = at,
            last => self.nodes[last as usize].behind = at,
        }
        (list.last, list.len) = (at, list.len + 1);
        self.set_until(at, until);
    }

    /// Sets the moment of an element that is in its set's list.
    fn set_until(&mut self, at: u32, until: u64) {
        let node = &mut self.nodes[at as usize];
        node.until = until;
        let timer = node.timer;
        let expiry = &mut self.lists[usize::from(self.nodes[at as usize].set)].expiry;
        if until != NEVER {
            expiry.set(at, until, self.nodes.entries_mut());
            self.due = self.due.min(until.max(self.swept.saturating_add(LATER)));
        } else if timer != NONE {
            expiry.remove(at, self.nodes.entries_mut());
        }
    }

    /// Takes an element out of its list: that of its set, or that of what is flushed.
    fn unlist(&mut self, at: u32, of: ListOf) {
        let Node { before, behind, set, .. } = self.nodes[at as usize];
        let list = &mut self.lists[usize::from(set)];
        let [first, last] = match of {
            ListOf::Set => [&mut list.first, &mut list.last],
            ListOf::Flushed => self.flushed.each_mut(),
        };
        if before == NONE {
            *first = behind;
        }
        if behind == NONE {
            *last = before;
        }
        if let Some(node) = self.nodes.get_mut(before as usize) {
            node.behind = behind;
        }
        if let Some(node) = self.nodes.get_mut(behind as usize) {
            node.before = before;
        }
    }

    /// Gives back the memory of an element.
    fn give_back(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let set = usize::from(node.set);
        if self.lists[set].generation == node.generation {
            self.unlist(at, ListOf::Set);
            let list = &mut self.lists[set];
            list.len -= 1;
            if node.timer != NONE {
                list.expiry.remove(at, self.nodes.entries_mut());
            }
        } else {
            self.unlist(at, ListOf::Flushed);
        }
        let prefix = prefix_of(&node);
        let holders = self.table.get(prefix);
        let mut tag = holders.tag;
        if tag == at {
            tag = node.next;
        } else {
            let mut one = tag;
            while let Some(other) = self.nodes.get_mut(one as usize) {
                if other.next == at {
                    other.next = node.next;
                    break;
                }
                one = other.next;
            }
        }
        let sets = holders.sets & !(1 << (node.set % 32));
        // There is room for what is there already.
        let _ = self.table.put(prefix, Holders { sets, tag });
        // Its place in the list of changes stays taken.
        self.nodes[at as usize] = Node { next: self.free, marks: node.marks & LISTED, ..Node::zeroed() };
        self.free = at;
    }
}

/// Outcome of [`Store::put`].
struct Put {
    /// Place of the element; none where the set does not have it.
    place: Option<u32>,
    outcome: SetOutcome,
    /// The element is new, or is over later than before.
    is_changed: bool,
}

impl Put {
    fn not(outcome: SetOutcome) -> Put {
        Put { place: None, outcome, is_changed: false }
    }

    fn new_at(place: u32) -> Put {
        Put { place: Some(place), outcome: SetOutcome::Added, is_changed: true }
    }
}

/// List that an element is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListOf {
    Set,
    Flushed,
}

/// True unless the place is free.
pub(super) fn is_used(node: &Node) -> bool {
    node.family != 0
}

pub(super) fn prefix_of(node: &Node) -> Prefix {
    let family = if node.family == Family::V6 as u8 { Family::V6 } else { Family::V4 };
    Prefix { family, bits: u128::from(node.high) << 64 | u128::from(node.low), length: node.length }
}

pub(super) fn element(node: &Node) -> Element {
    let until = (node.until != NEVER).then_some(Nanos(node.until));
    Element { set: node.set.into(), prefix: to_net(prefix_of(node)), until }
}
