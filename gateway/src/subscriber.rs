//! Subscribers for operators: those of a tree that send most, or of whom most waits.

use std::collections::HashMap;
use std::time::Duration;

use dataplane::Tables;
use dataplane::egress::{RecentDelays, SubscriberCounts, SubscriberReport, TreeSide};
use dataplane::tables::Address;
use policy::model::MeterScope;
use serde::{Deserialize, Serialize};

use crate::view::Count;

/// Query parameters of `GET /subscribers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberQuery {
    /// Name of a queue with `per`; absent: all of them.
    pub of: Option<String>,
    /// Order.
    #[serde(default)]
    pub by: SubscriberOrder,
    /// Subscribers listed, at most.
    pub most: Option<usize>,
    /// Time over which rates are measured, in milliseconds.
    pub millis: Option<u64>,
}

/// Order of subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubscriberOrder {
    /// Highest rates first.
    #[default]
    Rate,
    /// Most waiting bytes first.
    Backlog,
}

/// Subscriber, with counters since it has had its queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriberView {
    /// Address, or prefix; `flow` for one of many flows; `others` for those who share, as there is no instance left.
    pub subscriber: String,
    /// Name of the queue with `per`.
    pub queue: String,
    /// Name of the interface.
    pub interface: String,
    /// `on` or `from`.
    pub side: String,
    /// Rate now, in bits of IP packets per second.
    pub rate_bps: f64,
    /// Packets that wait.
    pub waiting: u64,
    /// Bytes of IP packets that wait.
    pub waiting_bytes: u64,
    /// Packets sent, and their bytes.
    pub sent: Count,
    /// Packets dropped for want of room.
    pub dropped_full: u64,
    /// Packets dropped by active queue management.
    pub dropped_early: u64,
    /// Delay of the last packets sent, in nanoseconds: a mean in which each later one counts one eighth.
    pub delay_ns: u64,
    /// Delays of the last packets sent.
    pub delay: SubscriberDelays,
}

/// Delays that so many of the last packets did not exceed, of one in sixteen, in nanoseconds, to a power of two; null without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberDelays {
    /// Half of the packets.
    pub p50: Option<u64>,
    /// Nine of ten.
    pub p90: Option<u64>,
    /// All but one of a hundred.
    pub p99: Option<u64>,
}

/// Subscribers of all workers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    subscribers: HashMap<Key, Sum>,
}

/// Subscriber of all workers together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    interface: String,
    side: TreeSide,
    queue: String,
    subscriber: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    packets: u64,
    bytes: u64,
    counts: SubscriberCounts,
    delays: RecentDelays,
}

impl Snapshot {
    /// Adds a subscriber of a worker, if it is of the queue that is asked for.
    pub(crate) fn add(&mut self, found: &SubscriberReport, tables: &Tables, of: Option<&str>) {
        let Some(node) = found.settings.nodes.get(found.node as usize) else { return };
        if of.is_some_and(|of| of != node.name) {
            return;
        }
        let interface = tables.interface(found.port).map_or_else(String::new, |one| one.name.clone());
        let subscriber = match (found.address, node.per) {
            (Some(address), per) => prefix(address, per),
            (None, MeterScope::Flow) => format!("flow {}", found.number),
            (None, _) => "others".to_owned(),
        };
        let key = Key { interface, side: found.side, queue: node.name.clone(), subscriber };
        let sum = self.subscribers.entry(key).or_default();
        sum.packets += found.packets;
        sum.bytes += found.bytes;
        sum.counts.add(&found.counts);
        sum.delays.add(&found.delays);
    }

    /// The first `most` in that order, with their rates since `before`, which was so long ago.
    pub(crate) fn first(
        self,
        before: &Snapshot,
        ago: Duration,
        by: SubscriberOrder,
        most: usize,
    ) -> Vec<SubscriberView> {
        let seconds = ago.as_secs_f64().max(1e-3);
        let sent_before = |key: &Key, now: u64| {
            let before = before.subscribers.get(key).map_or(0, |sum| sum.counts.sent_bytes);
            // Counters of an instance begin anew with another subscriber, and so with one who comes back.
            if before > now { 0 } else { before }
        };
        let rate = |key: &Key, sum: &Sum| sum.counts.sent_bytes - sent_before(key, sum.counts.sent_bytes);
        let mut all: Vec<(u64, Key, Sum)> =
            self.subscribers.into_iter().map(|(key, sum)| (rate(&key, &sum), key, sum)).collect();
        all.sort_by(|(rate, key, sum), (other_rate, other_key, other)| {
            let (one, another) = match by {
                SubscriberOrder::Rate => ((*rate, sum.bytes), (*other_rate, other.bytes)),
                SubscriberOrder::Backlog => ((sum.bytes, *rate), (other.bytes, *other_rate)),
            };
            another.cmp(&one).then_with(|| key.cmp(other_key))
        });
        all.truncate(most);
        let view = |(bytes, key, sum): (u64, Key, Sum)| SubscriberView {
            subscriber: key.subscriber,
            queue: key.queue,
            interface: key.interface,
            side: key.side.name().to_owned(),
            rate_bps: bytes as f64 * 8.0 / seconds,
            waiting: sum.packets,
            waiting_bytes: sum.bytes,
            sent: Count { packets: sum.counts.sent, bytes: sum.counts.sent_bytes },
            dropped_full: sum.counts.full.into(),
            dropped_early: sum.counts.early.into(),
            delay_ns: sum.counts.delay.0,
            delay: SubscriberDelays::of(&sum.delays),
        };
        all.into_iter().map(view).collect()
    }
}

impl SubscriberDelays {
    fn of(delays: &RecentDelays) -> SubscriberDelays {
        let percentile = |per_mille| delays.percentile(per_mille).map(|delay| delay.0);
        SubscriberDelays { p50: percentile(500), p90: percentile(900), p99: percentile(990) }
    }
}

/// An address, with the length of its prefix where that is not all of it.
fn prefix(address: Address, per: MeterScope) -> String {
    let (v4, v6) = match per {
        MeterScope::Source(v4, v6) | MeterScope::Destination(v4, v6) => (v4, v6),
        MeterScope::All | MeterScope::Flow => (32, 128),
    };
    match (address.to_ip(), if address.v6 { v6 } else { v4 }) {
        (ip, length) if length == if address.v6 { 128 } else { 32 } => ip.to_string(),
        (ip, length) => format!("{ip}/{length}"),
    }
}
