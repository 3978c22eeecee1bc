//! Port mappings: the server at which hosts ask, and access to the workers' mappings.

use std::sync::Arc;

use dataplane::port_mapping::PortMappingNews;

use super::Supervisor;
use crate::port_mapping::{Epoch, Mapper, Server, ends, log};

/// Server of PCP and NAT-PMP, and its epoch.
pub(super) struct PortMappings {
    server: Server,
    /// Begun at the start, and with each loss of mappings that nobody asked for (RFC 6887, section 8.5).
    epoch: Arc<Epoch>,
}

impl PortMappings {
    pub(super) fn new() -> PortMappings {
        PortMappings { server: Server::default(), epoch: Arc::default() }
    }

    /// The epoch.
    pub(super) fn epoch(&self) -> Arc<Epoch> {
        self.epoch.clone()
    }

    /// Logs news of mappings.
    pub(super) fn heard(&self, news: &[PortMappingNews]) {
        if log(news) {
            self.begin_anew();
        }
    }

    /// Begins another epoch, by which hosts know that mappings are lost.
    pub(super) fn begin_anew(&self) {
        self.epoch.begin_anew();
    }
}

impl Supervisor {
    /// Has the server listen where the policy in force and Linux's addresses let hosts ask.
    pub(super) fn follow_port_mappings(&mut self) {
        let ends = ends(&self.reload.effective.policy, &self.kernel.state);
        self.port_mappings.server.follow(ends, &self.sender);
    }

    pub(super) fn port_mapper(&self) -> Mapper {
        Mapper {
            workers: self.workers.commands(),
            steering: self.workers.steering(),
            epoch: self.port_mappings.epoch(),
        }
    }
}
