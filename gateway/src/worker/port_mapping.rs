//! Port mappings of a worker: requests, news of which it tells, and what a second gateway is told and tells.

use std::net::IpAddr;
use std::sync::Arc;

use dataplane::Tables;
use dataplane::nat::Endpoint;
use dataplane::port_mapping::{
    Holder, NotTaken, PortMappingRemoval, PortMappingUpdate, PortRefusal, PortRequest, TakenPortMappings,
};
use dataplane::state::Ended;
use dataplane::sync::Synced;

use super::Worker;
use super::command::WorkerEvent;
use super::processing::Processing;
use crate::port_mapping::Granted;

/// Port mappings that are asked for, for a second gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedMappings {
    /// All, as a full synchronisation begins.
    All,
    /// Changed mappings alone.
    Changed,
}

/// Changes of port mappings, for a second gateway.
pub struct PortMappingsChanged {
    /// Tables that the indices in the mappings refer to.
    pub tables: Arc<Tables>,
    /// Removals, and mappings that have changed.
    pub taken: TakenPortMappings,
}

/// Result of taking in what a second gateway tells of port mappings.
pub enum TookInPortMappings {
    /// All was looked at.
    Done {
        /// Results by mapping.
        outcomes: Vec<Result<Synced, NotTaken>>,
        /// Number of mappings that have ended.
        ended: u64,
    },
    /// Nothing was taken in: the indices are of other tables than these, which the worker has now.
    Outdated(Arc<Tables>),
}

impl Worker {
    /// Makes a mapping, or changes its end.
    pub(super) fn map_port(&mut self, request: &PortRequest) -> Result<Granted, PortRefusal> {
        let now = self.clock.now();
        let Processing { shard, tables, .. } = &mut self.processing;
        let mapping = shard.map_port(tables, request, now);
        self.tell_of_port_mappings();
        mapping.map(|mapping| Granted { mapping, now })
    }

    /// Removes mappings.
    pub(super) fn unmap_port(&mut self, inside: &Endpoint, holder: &Holder) -> Result<u32, PortRefusal> {
        let now = self.clock.now();
        let removed = self.processing.shard.unmap_port(inside, holder, now);
        self.tell_of_port_mappings();
        removed
    }

    /// Lists the mappings, of a host alone where one is given.
    pub(super) fn list_port_mappings(&self, host: Option<IpAddr>) -> Vec<Granted> {
        let now = self.clock.now();
        let mappings = self.processing.shard.port_mappings(host, now);
        mappings.map(|mapping| Granted { mapping, now }).collect()
    }

    /// Takes changes for a second gateway.
    pub(super) fn port_mapping_changes(&mut self, asked: AskedMappings, most: u32) -> PortMappingsChanged {
        let (now, mut taken) = (self.clock.now(), TakenPortMappings::default());
        let Processing { shard, tables, .. } = &mut self.processing;
        if asked == AskedMappings::All {
            shard.list_port_mappings_anew();
        }
        shard.take_port_mapping_changes(tables, now, most as usize, &mut taken);
        PortMappingsChanged { tables: tables.clone(), taken }
    }

    /// Takes in what a second gateway tells, whose indices are of `tables`.
    pub(super) fn take_in_port_mappings(
        &mut self,
        tables: &Arc<Tables>,
        removed: &[PortMappingRemoval],
        mappings: &[PortMappingUpdate],
        round: u8,
    ) -> TookInPortMappings {
        let now = self.clock.now();
        let Processing { shard, tables: own, .. } = &mut self.processing;
        if !Arc::ptr_eq(tables, own) {
            return TookInPortMappings::Outdated(own.clone());
        }
        let removals = removed.iter().map(|removal| shard.end_synced_port_mapping(removal));
        let ended = removals.filter(|outcome| *outcome == Ended::Now).count() as u64;
        let taken = mappings.iter().map(|update| shard.take_in_port_mapping(own, update, now, round));
        let outcomes = taken.collect();
        self.tell_of_port_mappings();
        TookInPortMappings::Done { outcomes, ended }
    }

    /// Reports mappings made and ended.
    #[inline(always)]
    pub(super) fn tell_of_port_mappings(&mut self) {
        if self.processing.shard.has_port_mapping_news() {
            let news = self.processing.shard.take_port_mapping_news();
            self.tell(WorkerEvent::PortMappings(news));
        }
    }
}
