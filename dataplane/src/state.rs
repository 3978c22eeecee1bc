//! State of a shard: its parts, and the operations on each.
//!
//! A `Part` prepares its reload on another thread and applies it in bounded time, exports and imports the items that
//! outlive a process or go to another worker, and reports its memory in bytes and by region of a network processor.
//! `PARTS` lists all parts for reload, the state file, handoff between processes, `status` and the chip's memories. A
//! new part is a file here and a line in the list, beside its field in [`Shard`].
//!
//! [`Shard::export`] returns plain data in steps, so that a worker can go on between the calls; an item that changes
//! meanwhile is exported as it is at its turn. Published flows are as current as [`Shard::update_before_export`] makes them. [`Shard::import`] takes one item at a time. The importing process may have
//! another seed, clock, number of workers and other tables: items name interfaces, rules and translations by their places
//! in the exporter's tables, and [`Places`] translates these into places in the importer's, by name. An imported flow
//! keeps its outside ports, and is revalidated at its next packet. An item that has become impossible is refused, with a
//! reason, and counted.
//!
//! Not exported: fragments and cells, which live for seconds; frames; counters; neighbours, which the host updates.

use std::ops::Range;

use tally::Region;
use wire::{Frame, Nanos};

use crate::hop::TooMany;
use crate::import::{Imports, Refused};
use crate::shard::{Setup, Shard, ShardError};
use crate::tables::{Neighbour, Renumbering, Tables};

mod channel;
mod counter;
mod filter;
mod flow;
mod fragment;
mod item;
mod limiter;
mod mapping;
mod meter;
mod names;
mod neighbour;
mod own;
mod port_mapping;
mod ppp;
mod queue;
mod recorder;
mod sa;
mod set;

pub use filter::FlowFilter;
pub use flow::Ended;
pub use item::{
    DebtRecord, ElementRecord, FlowRecord, Item, MappingRecord, MeterRecord, Numbered, OwnRecord,
    PortMappingRecord, Prefix, RemovalRecord, SaRecord, Standing, Subject, Through,
};
pub use names::{Names, Places};
pub(crate) use set::element_of;

/// All parts, in the order in which a reload is applied to them and items are exported.
///
/// Counters come before what ends frames. Queues and fragments come after neighbours, whose frames are released with the
/// numbers of the new tables. The record of drops comes last: the reload itself drops frames.
pub(crate) const PARTS: [&dyn Part; 15] = [
    &flow::Flows,
    &mapping::Translations,
    &limiter::Limits,
    &meter::Buckets,
    &counter::Counts,
    &neighbour::Neighbours,
    &queue::Queues,
    &fragment::Datagrams,
    &own::Own,
    &sa::Associations,
    &channel::Pdus,
    &ppp::Links,
    &set::Elements,
    &port_mapping::Requested,
    &recorder::Records,
];

/// A part of a shard's state.
pub(crate) trait Part: Sync {
    /// Name of the part in `status`.
    fn name(&self) -> &'static str;

    /// Prepares a reload of the part, on another thread, with all the memory that the reload needs.
    ///
    /// # Errors
    /// The system has not enough memory, or the tables ask for the impossible.
    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError>;

    /// Bytes of memory that the part takes.
    fn memory_bytes(&self, shard: &Shard) -> usize;

    /// Bytes of each region of a network processor's memory that the part lies in, by the bounds that the tables state.
    fn regions(&self, shard: &Shard, tables: &Tables) -> Vec<(Region, usize)>;

    /// Number of places that may have an item; none where nothing is exported.
    fn places(&self, _: &Shard, _: &Tables) -> u32 {
        0
    }

    /// The item in a place, if there is one.
    fn export(&self, _: &Shard, _: &Tables, _place: u32, _now: Nanos) -> Option<Item> {
        None
    }

    /// Brings these places up to date with what is done elsewhere, before they are exported.
    fn update(&self, _: &mut Shard, _places: Range<u32>) {}

    /// Takes in an item of this part; `None` for one of another.
    fn import(&self, _: &mut Shard, _: &Tables, _: &Item, _now: Nanos) -> Option<Result<(), Refused>> {
        None
    }
}

/// The prepared reload of a part. Once applied, it owns the retired state, whose memory another thread frees.
pub(crate) trait Plan: Send {
    /// Applies it, between two batches, in a time that does not depend on the number of flows.
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>);

    /// Completes the reload of the part, after all parts have been applied.
    fn finish(&mut self, _: &mut Shard, _: &mut Applying<'_>) {}

    /// Neighbour update, while the plan is being prepared.
    ///
    /// # Errors
    /// The neighbour stays unknown: there is no room for more.
    fn update_neighbour(&mut self, _: &Tables, _: &Neighbour) -> Result<(), TooMany> {
        Ok(())
    }
}

/// Input of the preparation of a reload.
pub(crate) struct Reload<'a> {
    /// Tables that the shard works with.
    pub(crate) old: &'a Tables,
    /// Tables that the shard will work with.
    pub(crate) new: &'a Tables,
    /// Places in the old tables and in the new ones, by name.
    pub(crate) renumbering: &'a Renumbering,
    /// As for [`Shard::new`].
    pub(crate) setup: Setup,
}

/// Context of the application of a reload.
pub(crate) struct Applying<'a> {
    /// The new tables.
    pub(crate) tables: &'a Tables,
    /// Places in the old tables and in the new ones, by name.
    pub(crate) renumbering: &'a Renumbering,
    /// Time of the reload.
    pub(crate) now: Nanos,
    /// Frames ended by the reload.
    pub(crate) ended: &'a mut Vec<Frame>,
    /// Flows that were moved into other memory.
    pub(crate) carried: Imports,
}

/// Position of an export; the default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of parts that are done.
    done: usize,
    /// The next place of the part under way.
    place: u32,
}

impl Shard {
    /// Exports items from a cursor on, the default one at first, and returns the cursor to go on from; `None` at the end.
    /// Looks at up to `most` places of one part, which may be empty: some thousand take well under a millisecond.
    /// `tables` are the ones that the shard works with.
    pub fn export(
        &self,
        tables: &Tables,
        now: Nanos,
        from: Cursor,
        most: u32,
        give: impl FnMut(Item),
    ) -> Option<Cursor> {
        let part = PARTS.get(from.done)?;
        let places = part.places(self, tables);
        let end = from.place.saturating_add(most.max(1)).min(places);
        (from.place..end).filter_map(|place| part.export(self, tables, place, now)).for_each(give);
        if end < places {
            return Some(Cursor { place: end, ..from });
        }
        let has_places = |done: &usize| PARTS[*done].places(self, tables) > 0;
        let done = (from.done + 1..PARTS.len()).find(has_places)?;
        Some(Cursor { done, place: 0 })
    }

    /// Brings the published flows up to date that an export of `most` places from this cursor on is about to give.
    pub fn update_before_export(&mut self, tables: &Tables, from: Cursor, most: u32) {
        if let Some(part) = PARTS.get(from.done) {
            let end = from.place.saturating_add(most.max(1)).min(part.places(self, tables));
            part.update(self, from.place..end);
        }
    }

    /// Takes in an item that another shard, or this one at another time, has exported. Places in it are places in `tables`
    /// ([`Places::moved`] translates them), the tables that the shard works with.
    ///
    /// # Errors
    /// [`Refused`]; the shard is as it was, but for the count.
    pub fn import(&mut self, tables: &Tables, item: &Item, now: Nanos) -> Result<(), Refused> {
        let outcome = PARTS.iter().find_map(|part| part.import(self, tables, item, now));
        let outcome = outcome.unwrap_or(Err(Refused::Malformed));
        self.imports.count(outcome);
        outcome
    }

    /// Bytes of memory that each part takes, with its name.
    pub fn memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PARTS.iter().map(|part| (part.name(), part.memory_bytes(self)))
    }

    /// Bytes of memory that all parts take.
    pub fn memory_bytes(&self) -> usize {
        self.memory().map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hop::Resolve;
    use crate::nat::Share;

    fn shard() -> (Tables, Shard) {
        let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[default]\n\"lan > self\" = \"drop\"\n\
                    [[rule]]\nname = \"few\"\nfrom = \"lan\"\nrate = \"10/second per source\"\naction = \"accept\"\n\
                    [[rule]]\nname = \"rest\"\nfrom = \"lan\"\nrate = \"1/second\"\naction = \"accept\"\n";
        let tables = Tables::compile(&policy::check(text, "state.toml").policy.unwrap(), 1).unwrap();
        let setup =
            Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::ByHost, share: Share::new(0, 1).unwrap() };
        let shard = Shard::new(&tables, setup).unwrap();
        (tables, shard)
    }

    #[test]
    fn parts_have_names_and_regions_of_their_own() {
        let (tables, shard) = shard();
        let names: BTreeSet<_> = PARTS.iter().map(|part| part.name()).collect();
        assert_eq!(names.len(), PARTS.len());
        let regions: Vec<Region> =
            PARTS.iter().flat_map(|part| part.regions(&shard, &tables)).map(|(region, _)| region).collect();
        let different: BTreeSet<String> = regions.iter().map(|region| format!("{region:?}")).collect();
        assert_eq!(different.len(), regions.len(), "two parts lie in one region: {regions:?}");
        assert!(shard.memory().all(|(_, bytes)| bytes > 0), "{:?}", shard.memory().collect::<Vec<_>>());
    }

    #[test]
    fn an_export_comes_to_its_end_by_steps_of_any_size() {
        let (tables, mut shard) = shard();
        let now = Nanos::from_secs(1);
        let debts = [(0, Some([192, 168, 1, 7].into())), (0, Some([192, 168, 1, 8].into())), (1, None)];
        for (rule, source) in debts {
            let debt = DebtRecord { rule, source, debt: Nanos::from_secs(5) };
            shard.import(&tables, &Item::Debt(debt), now).unwrap();
        }
        shard.import(&tables, &Item::Own(OwnRecord { next_id: 99, errors: Nanos(7) }), now).unwrap();
        for most in [0, 1, 2, 3, 1000, u32::MAX] {
            let mut items = Vec::new();
            let mut cursor = Some(Cursor::default());
            while let Some(from) = cursor {
                cursor = shard.export(&tables, now, from, most, |item| items.push(item));
            }
            assert_eq!(items.len(), 4, "steps of {most}: {items:?}");
            let own = Item::Own(OwnRecord { next_id: 99, errors: Nanos(7) });
            assert_eq!(items.iter().filter(|item| **item == own).count(), 1);
            assert_eq!(items.iter().filter(|item| matches!(item, Item::Debt(_))).count(), 3);
        }
    }
}
