//! Report of a worker's counters.

use dataplane::counter::Counters;
use wire::Nanos;

use super::Worker;
use super::link::{Link, LinkReport};

/// Counters of a worker.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of the worker.
    pub worker: usize,
    /// Counters by verdict, reason, rule and translation.
    pub counters: Counters,
    /// Counters by interface, in the order of the tables.
    pub links: Vec<LinkReport>,
    /// Number of frames in each interface's queue.
    pub queued: Vec<usize>,
    /// Number of flows.
    pub flows: u32,
    /// Capacity of the flow table.
    pub flow_capacity: u32,
    /// Numbers of flows begun and ended.
    pub flow_turnover: [u64; 2],
    /// Memory of each part of the shard, in bytes, by name.
    pub memory: Vec<(&'static str, usize)>,
    /// Number of free frames in the pool.
    pub free_frames: usize,
    /// Time of the report.
    pub now: Nanos,
    /// Time spent on turns that found something to do.
    pub busy: Nanos,
    /// Number of turns.
    pub turns: u64,
}

impl Worker {
    pub(super) fn report(&mut self) -> Report {
        let mut links: Vec<LinkReport> = self.links.iter_mut().map(Link::report).collect();
        for (name, counts) in self.links.iter().flat_map(Link::vlans) {
            if let Some(link) = links.iter_mut().find(|link| link.name == *name) {
                link.counts.received += counts.received;
                link.counts.received_bytes += counts.received_bytes;
                link.counts.sent += counts.sent;
                link.counts.sent_bytes += counts.sent_bytes;
            }
        }
        Report {
            worker: self.number,
            counters: self.shard.counters.clone(),
            links,
            queued: self.shard.egress.lengths().collect(),
            flows: self.shard.flows.len(),
            flow_capacity: self.shard.flows.capacity(),
            flow_turnover: [self.shard.flows.created(), self.shard.flows.ended()],
            memory: self.shard.memory().collect(),
            free_frames: self.pool.available(),
            now: self.clock.now(),
            busy: self.busy,
            turns: self.turns,
        }
    }
}
