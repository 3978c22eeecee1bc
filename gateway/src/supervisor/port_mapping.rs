//! Port mappings: the server at which hosts ask, and access to the workers' mappings.

use std::time::Instant;

use dataplane::port_mapping::PortMappingNews;

use super::Supervisor;
use crate::port_mapping::{Mapper, Server, ends, log};

/// Server of PCP and NAT-PMP, and the beginning of its epoch.
pub(super) struct PortMappings {
    server: Server,
    /// Start, or the last loss of mappings that nobody asked for (RFC 6887, section 8.5).
    since: Instant,
}

impl PortMappings {
    pub(super) fn new() -> PortMappings {
        PortMappings { server: Server::default(), since: Instant::now() }
    }

    /// Logs news of mappings.
    pub(super) fn heard(&mut self, news: &[PortMappingNews]) {
        if log(news) {
            self.begin_anew();
        }
    }

    /// Begins another epoch, by which hosts know that mappings are lost.
    pub(super) fn begin_anew(&mut self) {
        self.since = Instant::now();
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
            epoch: self.port_mappings.since.elapsed(),
        }
    }
}
