//! Report of a worker's counters.

use dataplane::counter::Counters;
use dataplane::egress::TreeReport;
use dataplane::port_mapping::PortMappingReport;
use dataplane::sa::SaView;
use dataplane::set::SetReport;
use ports::Statistics;
use serde::Serialize;
use wire::Nanos;

use crate::view::SessionStatus;

/// Counters of a worker.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of the worker.
    pub worker: usize,
    /// Counters by verdict, reason, rule and translation.
    pub counters: Counters,
    /// Number of blocks of ports that hosts have, by source translation, in the order of the tables.
    pub nat_blocks: Vec<u32>,
    /// Counters by interface, in the order of the tables.
    pub links: Vec<LinkReport>,
    /// Number of frames in each interface's queue.
    pub queued: Vec<usize>,
    /// Trees of queues, with counters of their leaves.
    pub trees: Vec<TreeReport>,
    /// Security associations.
    pub sas: Vec<SaView>,
    /// Dynamic sets, in the order of the tables.
    pub sets: Vec<SetReport>,
    /// Counts of port mappings.
    pub port_mappings: PortMappingReport,
    /// PPP sessions: the interface's name, and the phase; on the worker that has them.
    pub sessions: Vec<SessionStatus>,
    /// Number of flows.
    pub flows: u32,
    /// Number of flows among them that the kernel carries.
    pub published: u32,
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

/// An interface in a report.
#[derive(Clone, Debug, Default)]
pub struct LinkReport {
    /// Name of the interface.
    pub name: String,
    /// Counters of frames and bytes.
    pub counts: LinkCounts,
    /// Frames and bytes among them that the kernel carried.
    pub fast: LinkCounts,
    /// Counters of the port's driver; none without a port.
    pub driver: Option<Statistics>,
}

/// Counters of one worker for an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Frames received by the port.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Frames sent by the port.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames that the port had not taken when it went away, and those of the gateway itself while there was none.
    pub unsent: u64,
    /// Times that the device did not take all frames that it was given: the rest waits behind the egress.
    pub backpressure: u64,
    /// Frames given to Linux.
    pub delivered: u64,
    /// Frames that Linux did not take.
    pub undelivered: u64,
    /// Frames that Linux sent.
    pub originated: u64,
}

impl LinkCounts {
    /// Adds the frames and bytes received and sent that others have counted.
    pub(super) fn add_traffic(&mut self, other: &LinkCounts) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
    }
}

/// Account of a worker's turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Number of turns.
    pub(super) turns: u64,
    /// Time spent on turns that found something to do.
    pub(super) busy: Nanos,
}
