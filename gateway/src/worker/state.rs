//! Export and import of a worker's state between two turns, in small steps.

use std::net::IpAddr;
use std::sync::Arc;

use dataplane::Tables;
use dataplane::flow::SteeringTable;
use dataplane::import::Refused;
use dataplane::nat::Share;
use dataplane::state::{Cursor, Item, Subject};
use dataplane::tables::Address;
use wire::Nanos;

use super::processing::Processing;
use crate::about::About;
use crate::clock::Clock;

/// Part of a worker's state.
pub struct Exported {
    /// Tables that the indices in the items refer to.
    pub tables: Arc<Tables>,
    /// Items of the state.
    pub items: Vec<Item>,
    /// Cursor to go on from; none at the end.
    pub next: Option<Cursor>,
}

/// Result of an import.
pub enum Imported {
    /// Results by item.
    Done(Vec<Result<(), Refused>>),
    /// No item imported: their indices are of other tables than these, which the worker has now.
    Outdated(Arc<Tables>),
}

impl Processing {
    /// Exports the items in `most` places from a cursor on: all, or those that bear on a packet.
    pub(super) fn export(&mut self, about: Option<&About>, now: Nanos, from: Cursor, most: u32) -> Exported {
        self.shard.update_before_export(&self.tables, from, most);
        let mut items = Vec::new();
        let next = self.shard.export(&self.tables, now, from, most, |item| {
            if about.is_none_or(|about| about.admits(&item)) {
                items.push(item);
            }
        });
        Exported { tables: self.tables.clone(), items, next }
    }

    /// Imports items whose indices are of `tables`. Existing state stays as it is.
    pub(super) fn import(&mut self, tables: &Arc<Tables>, items: &[Item], clock: Clock) -> Imported {
        if !Arc::ptr_eq(tables, &self.tables) {
            return Imported::Outdated(self.tables.clone());
        }
        Imported::Done(items.iter().map(|item| self.remember(item, clock.now())).collect())
    }

    /// Imports an item of another worker's state.
    ///
    /// # Errors
    /// Item that cannot be imported here: [`Refused`].
    pub(super) fn remember(&mut self, item: &Item, now: Nanos) -> Result<(), Refused> {
        self.shard.import(&self.tables, item, now)
    }
}

/// Returns the worker that owns an item, `None` where all workers do. A flow whose translation has a port belongs to
/// the worker that allocates that port; any other flow, and the token debts of a source or of a flow, to the owner of the source.
pub(crate) fn owner_of(item: &Item, workers: usize, steering: Option<&SteeringTable>) -> Option<usize> {
    let home = |source: IpAddr| {
        let source = Address::from(source).bits;
        steering.map_or(0, |steering| usize::from(steering.home_of_source(source)))
    };
    match item {
        Item::Flow(flow) => Some(match flow.mapping.or(flow.inward) {
            Some(mapping) => usize::from(Share::owner(mapping.outside.port, workers as u16)),
            None => home(flow.original.source),
        }),
        Item::Debt(debt) => debt.source.map(home),
        Item::Own(_) | Item::Sa(_) | Item::Element(_) => None,
        Item::Meter(record) => match record.subject {
            Subject::Flow { ends, .. } => Some(home(ends.source)),
            Subject::Source(prefix) => prefix.alone().map(home),
            Subject::All | Subject::Destination(_) => None,
        },
    }
}
