//! Elements that a second gateway is told of, and those that it tells: of sets that rules and requests fill.
//!
//! A change enters a list, once for each element; an element is read when it is told, so that a slow peer costs no memory and gets the
//! latest state. What is removed by request goes by a list of its own, of fixed size; where it overflows, the host begins a full
//! synchronisation. Of a removal and an addition of the same element the removal is told first. Expiry is not told: times go as spans.
//!
//! An element that the peer has told of is a copy until a rule or a request here adds it, too: it is not told back, and goes when a full
//! synchronisation of the peer's leaves it out. Of two times of an element the later holds, as between workers.
//!
//! One worker of a gateway keeps the list, as all have the same elements.

use std::collections::VecDeque;

use ipnet::IpNet;
use lookup::set::Prefix;
use policy::model::SetSource;
use wire::Nanos;

use super::store::{Node, Store, element, is_used, prefix_of};
use super::{Element, SetChange, SetOutcome, Sets, to_net};
use crate::import::Refused;
use crate::shard::Shard;
use crate::state::{self, ElementRecord, RemovalRecord};
use crate::sync::CopySweep;
use crate::tables::Tables;

/// In [`Node::marks`]: the place is in the list of changes.
pub(super) const LISTED: u8 = 2;
/// The peer has told of the element, and nobody here has added it.
const COPY: u8 = 4;
/// The element has changed since the peer was told.
const CHANGED: u8 = 8;
/// Bits of the peer's round that told of a copy last.
const ROUND: u8 = 0xf0;

/// Removals that the host has not taken yet, at most.
const MOST_REMOVED: usize = 16_384;

/// Origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A rule, a request or a list here.
    Own,
    /// The second gateway, in a round of its full synchronisations.
    Peer { round: u8 },
}

/// Changes of one shard's sets that its host is to tell the peer of.
pub(crate) struct Changes {
    /// Places of elements, the first first.
    listed: VecDeque<u32>,
    removed: VecDeque<Removed>,
    /// Removals that found no room.
    lost: u64,
}

/// A removal: of one element, or of all.
#[derive(Clone, Copy)]
struct Removed {
    set: u16,
    prefix: Option<Prefix>,
}

/// Changes of sets that a host takes at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakenElements {
    /// Removals. They go before the elements: one of those may have been added anew.
    pub removed: Vec<RemovalRecord>,
    /// Elements that are new, or are over later than before.
    pub elements: Vec<ElementRecord>,
    /// Removals that found no room since the last time.
    pub lost: u64,
}

/// Outcome of a sweep over some copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SweptElements {
    /// Copies that have been removed, for the other workers.
    pub removed: Vec<RemovalRecord>,
    /// Place to go on from; none at the end.
    pub next: Option<u32>,
}

impl Changes {
    /// Takes memory, where these tables synchronise.
    pub(crate) fn new(tables: &Tables) -> Option<Changes> {
        let own = tables.sets.iter().filter(|set| set.source == SetSource::Rules);
        let most = own.map(|set| set.size as usize).sum();
        (tables.synchronises && most > 0).then(|| Changes {
            listed: VecDeque::with_capacity(most),
            removed: VecDeque::with_capacity(MOST_REMOVED),
            lost: 0,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.listed.capacity() * size_of::<u32>() + self.removed.capacity() * size_of::<Removed>()
    }

    fn list(&mut self, at: u32, node: &mut Node) {
        node.marks |= CHANGED;
        // Each place once: there is room for those of all elements.
        if node.marks & LISTED == 0 && self.listed.len() < self.listed.capacity() {
            node.marks |= LISTED;
            self.listed.push_back(at);
        }
    }

    fn push_removed(&mut self, removed: Removed) {
        if self.removed.len() < self.removed.capacity() {
            self.removed.push_back(removed);
        } else {
            self.lost += 1;
        }
    }
}

impl Store {
    /// Notes the origin of an element that has been added or refreshed.
    #[inline(always)]
    pub(super) fn mark(&mut self, at: u32, by: By, outcome: SetOutcome, is_changed: bool) {
        let Some(changes) = &mut self.changes else { return };
        let node = &mut self.nodes[at as usize];
        if !self.lists[usize::from(node.set)].is_own {
            return;
        }
        let was_copy = node.marks & COPY != 0;
        match by {
            By::Own => {
                node.marks &= !(COPY | ROUND);
                if is_changed || was_copy {
                    changes.list(at, node);
                }
            }
            By::Peer { round } if was_copy || outcome == SetOutcome::Added => {
                node.marks = node.marks & !(ROUND | CHANGED) | COPY | round << 4;
            }
            By::Peer { .. } => {}
        }
    }

    /// Notes that an element, or all, were removed from a set.
    pub(super) fn note_removed(&mut self, set: u16, prefix: Option<Prefix>, by: By) {
        let is_own = self.lists.get(usize::from(set)).is_some_and(|list| list.is_own);
        if let (Some(changes), By::Own, true) = (&mut self.changes, by, is_own) {
            changes.push_removed(Removed { set, prefix });
        }
    }

    /// Gives an element the marks that it had in another store.
    pub(super) fn move_marks(&mut self, at: u32, from: &Node) {
        let node = &mut self.nodes[at as usize];
        node.marks = node.marks & !(COPY | ROUND) | from.marks & (COPY | ROUND);
        if let Some(changes) = self.changes.as_mut().filter(|_| from.marks & CHANGED != 0) {
            changes.list(at, node);
        }
    }

    /// Takes over the removals of another store, whose sets have those places here.
    pub(super) fn move_removed(&mut self, other: &Store, places: &[Option<u16>]) {
        let (Some(changes), Some(before)) = (&mut self.changes, &other.changes) else { return };
        changes.lost = before.lost;
        for removed in &before.removed {
            if let Some(set) = places.get(usize::from(removed.set)).copied().flatten() {
                changes.push_removed(Removed { set, ..*removed });
            }
        }
    }

    /// Own element in a place, of a set that rules and requests fill.
    fn own_at(&self, at: u32, now: u64) -> Option<Element> {
        let node = self.nodes.get(at as usize).filter(|node| is_used(node) && node.marks & COPY == 0)?;
        let is_own = self.lists.get(usize::from(node.set)).is_some_and(|list| list.is_own);
        (is_own && self.is_member(node, now)).then(|| element(node))
    }

    /// Copy in a place, by a round of the peer's other than this one.
    fn outdated_copy_at(&self, at: u32, round: u8, now: u64) -> Option<Element> {
        let node = self.nodes.get(at as usize).filter(|node| is_used(node) && node.marks & COPY != 0)?;
        (node.marks & ROUND != round << 4 && self.is_member(node, now)).then(|| element(node))
    }
}

impl Sets {
    /// Lists changes for a second gateway from now on.
    pub(crate) fn keep_changes(&mut self, changes: Option<Changes>) {
        if let Some(store) = &mut self.store {
            store.changes = changes;
        }
    }
}

impl Shard {
    /// Takes all removals, and up to `most` elements that have changed, from the list.
    pub fn take_set_changes(&mut self, _: &Tables, now: Nanos, most: usize, into: &mut TakenElements) {
        let Some(store) = &mut self.sets.store else { return };
        let Some(changes) = &mut store.changes else { return };
        into.lost += std::mem::take(&mut changes.lost);
        into.removed.extend(changes.removed.drain(..).map(|removed| removal(removed.set, removed.prefix)));
        for _ in 0..most {
            let Some(at) = store.changes.as_mut().and_then(|changes| changes.listed.pop_front()) else {
                return;
            };
            let node = &mut store.nodes[at as usize];
            let has_changed = node.marks & CHANGED != 0;
            node.marks &= !(LISTED | CHANGED);
            let own = store.own_at(at, now.0).filter(|_| has_changed);
            into.elements.extend(own.map(|element| record(&element, now)));
        }
    }

    /// Takes the elements of `most` places from `first` on, 0 at first, that are not the peer's, for a full synchronisation. Returns the
    /// place to go on from; none at the end.
    pub fn take_all_elements(
        &mut self,
        _: &Tables,
        now: Nanos,
        first: u32,
        most: u32,
        into: &mut TakenElements,
    ) -> Option<u32> {
        let store = self.sets.store.as_mut()?;
        let changes = store.changes.as_mut()?;
        if first == 0 {
            changes.removed.clear();
            changes.lost = 0;
        }
        let end = first.saturating_add(most.max(1)).min(store.fresh);
        for at in first..end {
            store.nodes[at as usize].marks &= !CHANGED;
            into.elements.extend(store.own_at(at, now.0).map(|element| record(&element, now)));
        }
        (end < store.fresh).then_some(end)
    }

    /// Takes in an element that the peer tells of, in a round of its full synchronisations.
    ///
    /// # Errors
    /// [`Refused`]: these tables have no such set that rules and requests fill, or the set is full.
    pub fn take_in_element(
        &mut self,
        tables: &Tables,
        record: &ElementRecord,
        now: Nanos,
        round: u8,
    ) -> Result<SetOutcome, Refused> {
        let Some(element) = state::element_of(tables, record, now)? else { return Ok(SetOutcome::Absent) };
        match self.sets.change_by(&SetChange::Add(element), now, By::Peer { round }) {
            SetOutcome::Full => Err(Refused::TableFull),
            outcome => Ok(outcome),
        }
    }

    /// Removes an element that was removed at the peer's, or all of a set; whoever has added them.
    pub fn remove_synced(&mut self, tables: &Tables, removal: &RemovalRecord, now: Nanos) -> SetOutcome {
        let set = removal.set.filter(|set| {
            tables.sets.get(usize::from(*set)).is_some_and(|set| set.source == SetSource::Rules)
        });
        let Some(set) = set else { return SetOutcome::Absent };
        let change = match removal.prefix.map(|prefix| IpNet::new(prefix.first, prefix.bits)) {
            None => SetChange::Flush { set },
            Some(Ok(prefix)) => SetChange::Remove { set, prefix: prefix.trunc() },
            Some(Err(_)) => return SetOutcome::Absent,
        };
        // The round is of no use to what goes.
        self.sets.change_by(&change, now, By::Peer { round: 0 })
    }

    /// Sweeps the copies of the peer's elements in `most` places from `first` on.
    pub fn sweep_element_copies(
        &mut self,
        _: &Tables,
        sweep: CopySweep,
        now: Nanos,
        first: u32,
        most: u32,
    ) -> SweptElements {
        let mut swept = SweptElements::default();
        let Some(store) = self.sets.store.as_mut().filter(|store| store.changes.is_some()) else {
            return swept;
        };
        let end = first.saturating_add(most.max(1)).min(store.fresh);
        swept.next = (end < store.fresh).then_some(end);
        for at in first..end {
            match sweep {
                CopySweep::Adopt => store.nodes[at as usize].marks &= !(COPY | ROUND),
                CopySweep::Purge { round } => {
                    let Some(Element { set, prefix, .. }) = store.outdated_copy_at(at, round, now.0) else {
                        continue;
                    };
                    let key = prefix_of(&store.nodes[at as usize]);
                    if store.remove(set, key, now.0, By::Peer { round }) == SetOutcome::Removed {
                        self.sets.stamps.note_removed(set, key);
                        let prefix = state::Prefix { first: prefix.addr(), bits: prefix.prefix_len() };
                        swept.removed.push(RemovalRecord { set: Some(set), prefix: Some(prefix) });
                    }
                }
            }
        }
        swept
    }
}

fn record(element: &Element, now: Nanos) -> ElementRecord {
    let Element { set, prefix, until } = *element;
    let prefix = state::Prefix { first: prefix.addr(), bits: prefix.prefix_len() };
    ElementRecord { set: Some(set), prefix, left: until.map(|until| until.since(now)) }
}

fn removal(set: u16, prefix: Option<Prefix>) -> RemovalRecord {
    let prefix = prefix.map(to_net);
    let prefix = prefix.map(|prefix| state::Prefix { first: prefix.addr(), bits: prefix.prefix_len() });
    RemovalRecord { set: Some(set), prefix }
}
