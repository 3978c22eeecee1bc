//! Export and import of a worker's state between two turns, in small steps.

use std::net::IpAddr;
use std::sync::Arc;

use dataplane::Tables;
use dataplane::flow::{FlowId, SteeringTable};
use dataplane::import::Refused;
use dataplane::nat::Endpoint;
use dataplane::state::{Cursor, Ended, FlowRecord, Item, Subject};
use dataplane::sync::{EndedFlow, Synced, Taken};
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

/// Changes for a second gateway.
pub struct Changed {
    /// Tables that the indices in the flows refer to.
    pub tables: Arc<Tables>,
    /// Flows that have changed or ended.
    pub taken: Taken,
    /// Place to go on from; none at the end, and where no place was asked for.
    pub next: Option<FlowId>,
    /// Changes of port mappings, which are asked for by themselves.
    pub port_mappings: Pending,
}

/// Changes that are there to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Some.
    Some,
    /// None.
    None,
}

/// Result of taking in what a second gateway tells.
pub enum TookIn {
    /// All was looked at.
    Done {
        /// Results by flow.
        outcomes: Vec<Result<Synced, Refused>>,
        /// Number of flows ended.
        ended: u64,
    },
    /// Nothing was taken in: the indices are of other tables than these, which the worker has now.
    Outdated(Arc<Tables>),
}

impl Processing {
    /// Takes changes for a second gateway.
    pub(super) fn changes(&mut self, all: Option<FlowId>, most: u32, mut into: Taken, now: Nanos) -> Changed {
        let Processing { shard, tables, .. } = self;
        let next = match all {
            Some(first) => shard.take_all(tables, now, first, most, &mut into),
            None => {
                shard.take_changes(tables, now, most as usize, &mut into);
                None
            }
        };
        let port_mappings = if shard.has_port_mapping_changes() { Pending::Some } else { Pending::None };
        Changed { tables: tables.clone(), taken: into, next, port_mappings }
    }

    /// Takes in what a second gateway tells, whose indices are of `tables`.
    pub(super) fn take_in(
        &mut self,
        tables: &Arc<Tables>,
        flows: &[FlowRecord],
        ended: &[EndedFlow],
        round: u8,
        now: Nanos,
    ) -> TookIn {
        if !Arc::ptr_eq(tables, &self.tables) {
            return TookIn::Outdated(self.tables.clone());
        }
        let shard = &mut self.shard;
        let ended = ended.iter().filter(|ended| shard.end_synced(tables, ended) == Ended::Now).count() as u64;
        let outcomes = flows.iter().map(|flow| shard.take_in_synced(tables, flow, now, round)).collect();
        TookIn::Done { outcomes, ended }
    }

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
pub(crate) fn owner_of(
    item: &Item,
    tables: &Tables,
    workers: usize,
    steering: Option<&SteeringTable>,
) -> Option<usize> {
    let home = |source: IpAddr| {
        let source = Address::from(source).bits;
        steering.map_or(0, |steering| usize::from(steering.home_of_source(source)))
    };
    match item {
        Item::Flow(flow) => Some(match flow.mapping.or(flow.inward) {
            Some(mapping) => {
                let Endpoint { port, .. } = mapping.outside;
                usize::from(tables.nat.owner_of_port(mapping.outside.ip(), port, workers as u16))
            }
            None => home(flow.original.source),
        }),
        Item::Debt(debt) => debt.source.map(home),
        Item::PortMapping(record) => Some(home(record.mapping.inside.ip())),
        Item::Own(_) | Item::Sa(_) | Item::Element(_) => None,
        Item::Meter(record) => match record.subject {
            Subject::Flow { ends, .. } => Some(home(ends.source)),
            Subject::Source(prefix) => prefix.alone().map(home),
            Subject::All | Subject::Destination(_) => None,
        },
    }
}
