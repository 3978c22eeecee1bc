//! What a worker has counted.

use dataplane::counter::Counters;
use wire::Nanos;

use super::Worker;
use super::link::{Link, LinkReport};

/// What a worker has counted so far.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its number.
    pub worker: usize,
    /// By verdict, reason, rule and translation.
    pub counters: Counters,
    /// By interface, in the order of the tables.
    pub links: Vec<LinkReport>,
    /// Frames that wait in each interface's queue.
    pub queued: Vec<usize>,
    /// Flows that exist.
    pub flows: u32,
    /// The most there can be.
    pub flow_capacity: u32,
    /// Flows begun and ended.
    pub flow_turnover: [u64; 2],
    /// Bytes of memory of each part of the shard, by name.
    pub memory: Vec<(&'static str, usize)>,
    /// Frames of the pool that are free.
    pub free_frames: usize,
    /// When it was made.
    pub now: Nanos,
    /// Time spent on turns that found something to do.
    pub busy: Nanos,
    /// Turns made.
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
