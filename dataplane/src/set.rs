//! Dynamic sets: elements that rules, files and requests add, and that go by their time.
//!
//! An element is a prefix in a set, for good or until a moment. A packet meets an element as long as its own time is before that
//! moment: expiry is a comparison, so that it comes out the same on every host. Memory is given back later: by an addition to a
//! full set, which first takes the place of an element that is over, and by a sweep of some elements at a time.
//!
//! - All memory is taken for the sizes that the tables state. A full set takes no new element, and counts that.
//! - An element that is added again keeps the later of the two times, so that several workers, told in any order, come to the same.
//! - A change that rules may notice is stamped (`set/stamp.rs`): flows whose addresses it may be about are validated again.

use std::net::IpAddr;

use ipnet::IpNet;
use lookup::memory::{MemoryError, Paging};
use lookup::set::{HashKeys, Prefix};
use tally::Tally;
use wire::{Family, Nanos};

use crate::flow::hash::chacha20_block;
use crate::flow::{Flow, FlowId};
use crate::shard::Shard;
use crate::tables::{Address, Side, Tables};
pub(crate) use stamp::{Stamps, Watch};
use store::Store;
use sync::By;
pub(crate) use sync::Changes;
pub use sync::{SweptElements, TakenElements};

mod expiry;
mod stamp;
mod store;
mod sync;

/// Element of a dynamic set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Place of the set in [`Tables::sets`].
    pub set: u16,
    /// Addresses of the element.
    pub prefix: IpNet,
    /// Moment from which on it is over; `None`: never.
    pub until: Option<Nanos>,
}

/// Change of a dynamic set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// The element is added; one that is there keeps the later of the two times.
    Add(Element),
    /// The element is removed.
    Remove {
        /// Place of the set.
        set: u16,
        /// Addresses of the element.
        prefix: IpNet,
    },
    /// All elements are removed.
    Flush {
        /// Place of the set.
        set: u16,
    },
}

/// Outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The element is there, and was not before.
    Added,
    /// The element was there before.
    Refreshed,
    /// The element, or all of them, were removed.
    Removed,
    /// There was no such element, or there is no such set.
    Absent,
    /// The set has no room for another element.
    Full,
}

/// State of a dynamic set in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetReport {
    /// Number of elements; some of them may be over.
    pub elements: u32,
    /// Most elements.
    pub size: u32,
    /// Additions that a full set has refused.
    pub refused: u64,
    /// Elements that were over, and gave their memory back.
    pub expired: u64,
    /// Elements for which a reload left no room.
    pub dropped: u64,
    /// Additions by rules that [`Shard::take_set_additions`] has not told, as there were too many at once.
    pub untold: u64,
}

/// Elements of all dynamic sets of a shard; nothing where the policy has none.
#[derive(Default)]
pub struct Sets {
    store: Option<Box<Store>>,
    pub(crate) stamps: Stamps,
}

/// Time in a store: the moment itself, or never.
pub(crate) const NEVER: u64 = u64::MAX;

impl Sets {
    /// Takes memory for the elements that the tables allow.
    pub(crate) fn new(tables: &Tables, seed: [u64; 2], paging: Paging) -> Result<Sets, MemoryError> {
        let store = match tables.sets.is_empty() {
            true => None,
            false => Some(Box::new(Store::new(tables, keys(seed), paging)?)),
        };
        Ok(Sets { store, stamps: Stamps::new(tables) })
    }

    /// Bits of the sets that an address is in at a moment, as headers have them.
    #[inline]
    pub(crate) fn bits<T: Tally>(
        &self,
        tables: &Tables,
        side: Side,
        address: Address,
        now: Nanos,
        tally: &mut T,
    ) -> u32 {
        let Some(store) = &self.store else { return 0 };
        store.bits(&tables.set_questions, side, address, now.0, tally)
    }

    /// Bits of the sets that the ends of a packet are in.
    #[inline]
    pub(crate) fn bits_of<T: Tally>(
        &self,
        tables: &Tables,
        [source, destination]: [Address; 2],
        now: Nanos,
        tally: &mut T,
    ) -> u32 {
        self.bits(tables, Side::Source, source, now, tally)
            | self.bits(tables, Side::Destination, destination, now, tally)
    }

    /// Makes a change, and stamps it if packets can notice.
    pub(crate) fn change(&mut self, change: &SetChange, now: Nanos) -> SetOutcome {
        self.change_by(change, now, By::Own)
    }

    fn change_by(&mut self, change: &SetChange, now: Nanos, by: By) -> SetOutcome {
        let Some(store) = &mut self.store else { return SetOutcome::Absent };
        match *change {
            SetChange::Add(Element { set, prefix, until }) => {
                let prefix = of_net(prefix);
                let outcome = store.add(set, prefix, until.map_or(NEVER, |until| until.0), now.0, by);
                if outcome == SetOutcome::Added {
                    self.stamps.note_added(set, prefix);
                }
                outcome
            }
            SetChange::Remove { set, prefix } => {
                let prefix = of_net(prefix);
                let outcome = store.remove(set, prefix, now.0, by);
                if outcome == SetOutcome::Removed {
                    self.stamps.note_removed(set, prefix);
                }
                outcome
            }
            SetChange::Flush { set } => {
                let outcome = store.flush(set, by);
                if outcome == SetOutcome::Removed {
                    self.stamps.note_flushed(set);
                }
                outcome
            }
        }
    }

    /// Adds the source of a packet that has matched a rule.
    pub(crate) fn add_source(&mut self, set: u16, source: Address, lasts: Option<Nanos>, now: Nanos) {
        let Some(store) = &mut self.store else { return };
        let prefix = Prefix::host(source.family(), source.bits);
        let until = lasts.map_or(NEVER, |lasts| now.0.saturating_add(lasts.0));
        let outcome = store.add(set, prefix, until, now.0, By::Own);
        if outcome == SetOutcome::Added {
            self.stamps.note_added(set, prefix);
        }
        if outcome != SetOutcome::Full {
            store.note_told(set, prefix);
        }
    }

    /// True if elements are over, or flushed, and hold memory.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_due(now.0))
    }

    /// Gives back memory of elements that are over: of a bounded number.
    pub(crate) fn sweep(&mut self, now: Nanos) {
        if let Some(store) = &mut self.store {
            store.sweep(now.0);
        }
    }

    /// Takes over the elements of sets that have those places here, and leaves this memory in their place. Stamps stay.
    pub(crate) fn take_over(&mut self, sets: &mut Sets, places: &[Option<u16>], now: Nanos) {
        if let (Some(store), Some(before)) = (&mut self.store, &sets.store) {
            store.take_over(before, places, now);
        }
        std::mem::swap(&mut self.store, &mut sets.store);
    }

    /// Number of places that may have an element.
    pub(crate) fn places(&self) -> u32 {
        self.store.as_ref().map_or(0, |store| store.places())
    }

    /// The element in a place.
    pub(crate) fn element_at(&self, place: u32, now: Nanos) -> Option<Element> {
        self.store.as_ref()?.element_at(place, now.0)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Sets>() + self.stamps.memory_bytes() + self.region_bytes()
    }

    /// Bytes of the elements.
    pub(crate) fn region_bytes(&self) -> usize {
        self.store.as_ref().map_or(0, |store| store.memory_bytes())
    }
}

impl Shard {
    /// Changes a dynamic set of these tables, the ones that the shard works with.
    pub fn change_set(&mut self, _: &Tables, change: &SetChange, now: Nanos) -> SetOutcome {
        self.sets.change(change, now)
    }

    /// True if [`Shard::take_set_additions`] has elements to give.
    #[inline(always)]
    pub fn has_set_additions(&self) -> bool {
        self.sets.store.as_ref().is_some_and(|store| store.has_told())
    }

    /// Gives the elements that rules have added or refreshed since the last call, each once: the host tells other workers. Too many at
    /// once are not told, and counted ([`SetReport::untold`]).
    pub fn take_set_additions(&mut self, give: impl FnMut(Element)) {
        if let Some(store) = &mut self.sets.store {
            store.take_told(give);
        }
    }

    /// Gives the elements of a set that are among `most` places from `from` on, 0 at first, and returns the place to go on from; `None`
    /// at the end. An element that is added meanwhile may be left out.
    #[allow(clippy::too_many_arguments)] // a step of a walk, as an export is
    pub fn set_elements(
        &self,
        _: &Tables,
        set: u16,
        from: u32,
        most: u32,
        now: Nanos,
        give: impl FnMut(Element),
    ) -> Option<u32> {
        self.sets.store.as_ref()?.elements(set, from, most, now.0, give)
    }

    /// Returns the state of a set.
    pub fn set_report(&self, set: u16) -> SetReport {
        self.sets.store.as_ref().map_or_else(SetReport::default, |store| store.report(set))
    }

    /// True if a set has changed since a flow was validated, as far as one stamp for many addresses tells.
    #[inline(always)]
    pub(crate) fn sets_have_changed(&self, id: FlowId) -> bool {
        self.flows.watches.get(id).is_some_and(|watch| self.sets.stamps.is_after(watch))
    }

    /// True if a change since a flow was validated is about the flow's own addresses. If not, the flow is validated from now on.
    #[cold]
    pub(crate) fn sets_concern<T: Tally>(
        &mut self,
        id: FlowId,
        flow: &Flow,
        tables: &Tables,
        now: Nanos,
        tally: &mut T,
    ) -> bool {
        let Some(watch) = self.flows.watches.get(id).copied() else { return false };
        let bits = self.sets.bits_of(tables, ends(flow), now, tally);
        if self.sets.stamps.concern(&watch, bits, &tables.set_questions) {
            return true;
        }
        self.watch(id, flow, bits);
        false
    }

    /// Notes that a flow is validated now, where rules or classes ask for sets.
    #[inline(always)]
    pub(crate) fn watch_now<T: Tally>(&mut self, id: FlowId, tables: &Tables, now: Nanos, tally: &mut T) {
        if self.flows.watches.is_kept() {
            if let Some(flow) = self.flows.flow(id).copied() {
                let bits = self.sets.bits_of(tables, ends(&flow), now, tally);
                self.watch(id, &flow, bits);
            }
        }
    }

    /// Notes that a flow has been validated with these memberships.
    fn watch(&mut self, id: FlowId, flow: &Flow, bits: u32) {
        let ends = ends(flow);
        if let Some(watch) = self.flows.watches.get_mut(id) {
            *watch = self.sets.stamps.watch(ends, bits);
        }
    }
}

/// Ends of a flow as rules see them.
fn ends(flow: &Flow) -> [Address; 2] {
    [flow.original().source().into(), flow.reply().source().into()]
}

fn of_net(net: IpNet) -> Prefix {
    let address = Address::from(net.addr());
    Prefix::new(address.family(), address.bits, net.prefix_len())
}

fn to_net(prefix: Prefix) -> IpNet {
    let address: IpAddr = Address { bits: prefix.bits, v6: prefix.family == Family::V6 }.to_ip();
    IpNet::new(address, prefix.length).unwrap_or_else(|_| IpNet::from(address))
}

/// Secret numbers of the hash of prefixes.
fn keys(seed: [u64; 2]) -> HashKeys {
    let half = [seed[0] as u32, (seed[0] >> 32) as u32, seed[1] as u32, (seed[1] >> 32) as u32];
    let key = [half[0], half[1], half[2], half[3], half[0], half[1], half[2], half[3]];
    // Other blocks of the stream than those of the flow table's hash.
    let words = chacha20_block(&key, 0x5e75, &[0; 3]);
    HashKeys(std::array::from_fn(|at| u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32))
}
