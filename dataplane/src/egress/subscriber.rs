//! Subscribers of a tree: counters of instances, and what is reported of them.

use std::sync::Arc;

use wire::{Nanos, PortId};

use super::TreeSide;
use crate::tables::{Address, QueueTree};

/// Counters of an instance, since its subscriber has had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCounts {
    /// Packets sent.
    pub sent: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
    /// Packets dropped for want of room.
    pub full: u32,
    /// Packets dropped by active queue management.
    pub early: u32,
    /// Delay of packets sent: a mean in which the last counts one eighth.
    pub delay: Nanos,
}

impl SubscriberCounts {
    /// Counts a packet that departs after that delay.
    #[inline]
    pub(super) fn count_sent(&mut self, length: u32, delay: Nanos) {
        let last = if self.sent == 0 { delay.0 } else { self.delay.0 };
        self.sent += 1;
        self.sent_bytes += u64::from(length);
        self.delay = Nanos(last - last / 8 + delay.0 / 8);
    }
}

/// A subscriber that has queues of its own now.
#[derive(Clone, Debug)]
pub struct SubscriberReport {
    /// Interface that the packets leave by, or come by.
    pub port: PortId,
    /// Direction.
    pub side: TreeSide,
    /// Settings of the tree.
    pub settings: Arc<QueueTree>,
    /// Place of the settings of the node with instances.
    pub node: u32,
    /// Number of the instance.
    pub number: u32,
    /// Address, or first address of a prefix; `None` of a flow, and of what all share for whom there is no instance left.
    pub address: Option<Address>,
    /// Packets that wait, and bytes of IP packets.
    pub packets: u64,
    /// Bytes of IP packets that wait.
    pub bytes: u64,
    /// Counters.
    pub counts: SubscriberCounts,
}
