//! Port mappings of a worker: requests, and news of which it tells.

use std::net::IpAddr;

use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, PortRefusal, PortRequest};

use super::Worker;
use super::command::WorkerEvent;
use super::processing::Processing;
use crate::port_mapping::Granted;

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

    /// Reports mappings made and ended.
    #[inline(always)]
    pub(super) fn tell_of_port_mappings(&mut self) {
        if self.processing.shard.has_port_mapping_news() {
            let news = self.processing.shard.take_port_mapping_news();
            self.tell(WorkerEvent::PortMappings(news));
        }
    }
}
