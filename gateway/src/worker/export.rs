//! A worker's flow records and NAT events: taken from its shard between two batches, in buffers that go round between worker and exporter.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::accounting::Lost;
use dataplane::flow::FlowId;
use dataplane::tables::Tables;
use dataplane::{Reason, Shard};
use policy::model::IpfixRecord;
use wire::Nanos;

use crate::clock::Clock;
use crate::ipfix::RecordFeed;

/// Interval at which records are sent where they are few: 100 ms.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Interval at which ports that are exhausted are told of: 1 s.
const EXHAUSTED_PAUSE: Nanos = Nanos::from_secs(1);

/// Time within which all flows are looked at for the active timeout, in turns of 20 ms: 1 s.
const TURNS: u32 = 50;

/// Most flows looked at in a turn.
const MOST_SWEPT: u32 = 20_000;

/// Time limit for the last records as the worker ends.
const LAST: Duration = Duration::from_millis(500);

/// A worker's part of the export.
pub(super) struct RecordExport {
    feed: RecordFeed,
    clock: Clock,
    sent: Nanos,
    /// Flows and packets refused for want of ports, by source translation, when they were last told of.
    refused: Vec<u64>,
    /// Packets dropped for want of ports, all of them, then.
    dropped: u64,
    /// Time at which they were.
    told: Nanos,
}

impl RecordExport {
    pub(super) fn new(feed: RecordFeed, clock: Clock) -> RecordExport {
        RecordExport { feed, clock, sent: Nanos(0), refused: Vec::new(), dropped: 0, told: Nanos(0) }
    }

    /// Gives the shard a buffer, if it makes records and has none. To be called whenever tables are others.
    pub(super) fn begin(&mut self, shard: &mut Shard) {
        self.refused.clone_from(&shard.counters.nat_refused);
        self.dropped = shard.counters.dropped_for(Reason::NatPorts);
        if shard.accounting.is_on() && shard.accounting.has_no_buffer() {
            if let Some(empty) = self.feed.buffer() {
                shard.accounting.exchange(empty);
            }
        }
    }

    /// Notes that the shard has gone with its buffer, and data records in both.
    pub(super) fn restart(&mut self, unreported: u64) {
        self.feed.made_less();
        self.feed.count_lost(unreported);
    }

    /// Looks for flows whose active timeout is over, and sends records that have waited for long enough.
    pub(super) fn tend(&mut self, shard: &mut Shard, tables: &Arc<Tables>, now: Nanos) {
        let most = (shard.flows.used() / TURNS).clamp(64, MOST_SWEPT);
        shard.report_active(most, now);
        if now.since(self.sent) >= PAUSE || shard.accounting.is_half_full() {
            self.send(shard, tables);
        }
    }

    /// Sends the records of the shard. Where no buffer is free they stay.
    #[cold]
    pub(super) fn send(&mut self, shard: &mut Shard, tables: &Arc<Tables>) {
        self.sent = self.clock.now();
        let Lost { flows, events } = shard.accounting.take_lost();
        self.feed.count_lost(flows + events);
        let exhausted = self.exhausted(shard, tables);
        if shard.accounting.is_empty() && exhausted.is_empty() {
            return;
        }
        let Some(empty) = self.feed.buffer() else { return self.feed.count_lost(exhausted.len() as u64) };
        let records = shard.accounting.exchange(empty);
        self.feed.send(tables.clone(), self.sent, records, exhausted);
    }

    /// Source translations that have had no port left since this was last told, once a second at most; by place.
    fn exhausted(&mut self, shard: &Shard, tables: &Tables) -> Vec<usize> {
        // Quotas of hosts count among the refusals, too.
        let (refused, dropped) = (&shard.counters.nat_refused, shard.counters.dropped_for(Reason::NatPorts));
        let is_due = self.sent.since(self.told) >= EXHAUSTED_PAUSE;
        let is_told = tables.ipfix.has(IpfixRecord::Nat) || tables.ipfix.has(IpfixRecord::NatBlock);
        if !is_due || dropped == self.dropped || !is_told {
            return Vec::new();
        }
        let places = refused.iter().zip(&self.refused).enumerate();
        let exhausted = places.filter(|(_, (now, before))| now != before).map(|(place, _)| place).collect();
        (self.told, self.dropped) = (self.sent, dropped);
        self.refused.clone_from(refused);
        exhausted
    }

    /// Sends what was counted of all flows as the worker ends; waits a little for room.
    pub(super) fn finish(&mut self, shard: &mut Shard, tables: &Arc<Tables>) {
        let until = Instant::now() + LAST;
        let mut next = Some(FlowId(0));
        while let Some(first) = next {
            next = shard.report_rest(first);
            self.send(shard, tables);
            if !shard.accounting.is_empty() {
                if Instant::now() >= until {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        while !shard.accounting.is_empty() && Instant::now() < until {
            self.send(shard, tables);
            thread::sleep(Duration::from_millis(1));
        }
        self.feed.count_lost(shard.unreported(next));
    }
}
