//! A worker's log records: taken from its shard between two batches, within the rate limits of the policy, and sent to the
//! writer thread. Suppressed records are counted by rule, and reported once a second.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dataplane::log::{Log, Lost, Record};
use dataplane::tables::Tables;
use policy::model::{self, LogEvent, Rate};
use wire::Nanos;

use crate::clock::Clock;
use crate::log::{Feed, LeftOut, Parcel};

/// Records that a worker's shard has room for: several of each frame of a batch, and of all that are released by one.
pub(super) const ROOM: usize = 4_096;

/// Interval between reports of suppressed records: 1 s.
const REPORT_PAUSE: Nanos = Nanos::from_secs(1);

/// A worker's part of the log.
pub(super) struct LogFeed {
    feed: Feed,
    /// Number of the worker.
    worker: usize,
    clock: Clock,
    /// Workers that share the rates.
    workers: u32,
    by_rule: Vec<Bucket>,
    total: Bucket,
    rate: Span,
    total_rate: Span,
    left_out: Left,
    /// Time of the last report of suppressed records.
    reported: Nanos,
}

/// Number of records suppressed since the last report.
#[derive(Default)]
struct Left {
    rules: Vec<u64>,
    /// Records of rules that the tables no longer have.
    unknown: u64,
    connections: u64,
    mappings: u64,
    any: u64,
}

/// A token bucket, as the moment at which it is full again.
#[derive(Clone, Copy, Default)]
struct Bucket {
    full_at: Nanos,
}

/// Cost of one record, and depth of the bucket, as times.
#[derive(Clone, Copy)]
struct Span {
    each: Nanos,
    depth: Nanos,
}

impl Span {
    /// One worker's part of a rate.
    fn of(rate: Rate, workers: u32) -> Span {
        let (count, burst) = (rate.count.div_ceil(workers).max(1), rate.burst.div_ceil(workers).max(1));
        let each = (rate.per.0 / u64::from(count)).max(1);
        Span { each: Nanos(each), depth: Nanos(each.saturating_mul(u64::from(burst))) }
    }
}

impl Bucket {
    fn has(&self, span: Span, now: Nanos) -> bool {
        let full_at = self.full_at.max(now).0.saturating_add(span.each.0);
        full_at - now.0 <= span.depth.0
    }

    fn take(&mut self, span: Span, now: Nanos) {
        self.full_at = Nanos(self.full_at.max(now).0.saturating_add(span.each.0));
    }
}

impl LogFeed {
    pub(super) fn new(feed: Feed, worker: usize, workers: u32, clock: Clock, tables: &Tables) -> LogFeed {
        let workers = workers.max(1);
        let (rate, total_rate) = (model::Log::RATE, model::Log::TOTAL);
        let mut log = LogFeed {
            feed,
            worker,
            clock,
            workers,
            by_rule: Vec::new(),
            total: Bucket::default(),
            rate: Span::of(rate, workers),
            total_rate: Span::of(total_rate, workers),
            left_out: Left::default(),
            reported: Nanos(0),
        };
        log.follow(tables);
        log
    }

    /// Switches to other tables. Unreported suppressed records count as those of rules that the tables no longer have.
    pub(super) fn follow(&mut self, tables: &Tables) {
        let rules = if tables.log.has(LogEvent::Rule) { tables.filter.rules.len() } else { 0 };
        self.by_rule = vec![Bucket::default(); rules];
        let left_out = &mut self.left_out;
        left_out.unknown += left_out.rules.iter().sum::<u64>();
        left_out.rules = vec![0; rules];
        self.rate = Span::of(tables.log.rate(), self.workers);
        self.total_rate = Span::of(tables.log.total(), self.workers);
    }

    /// Sends the pending records of the shard to the writer thread.
    #[cold]
    pub(super) fn send(&mut self, pending: &mut Log, tables: &Arc<Tables>) {
        let at = self.clock.now();
        let before = self.left_out.any;
        let mut records = Vec::new();
        for record in pending.records() {
            if self.admits(record, at) {
                records.push(*record);
            } else {
                self.left_out.count(record);
            }
        }
        pending.clear();
        if !records.is_empty() {
            let (worker, tables) = (self.worker, tables.clone());
            let parcel = Parcel { worker, tables, at, records, left_out: Vec::new() };
            if let Err(parcel) = self.feed.send(parcel) {
                parcel.records.iter().for_each(|record| self.left_out.count(record));
            }
        }
        self.feed.count_left_out(self.left_out.any - before);
    }

    /// Reports the number of suppressed records, if any, when due.
    pub(super) fn tell_left_out(&mut self, pending: &mut Log, tables: &Arc<Tables>, now: Nanos) {
        if now.since(self.reported) >= REPORT_PAUSE {
            self.reported = now;
            self.tell_left_out_at_once(pending, tables);
        }
    }

    /// Reports the number of suppressed records, if any.
    pub(super) fn tell_left_out_at_once(&mut self, pending: &mut Log, tables: &Arc<Tables>) {
        let (worker, at) = (self.worker, self.clock.now());
        let lost = pending.take_lost();
        self.feed.count_left_out(lost.rules + lost.connections + lost.mappings);
        self.left_out.count_lost(lost);
        if self.left_out.any == 0 {
            return;
        }
        let (tables, left_out) = (tables.clone(), self.left_out.counts());
        // Where there is no room it is told later.
        if self.feed.send(Parcel { worker, tables, at, records: Vec::new(), left_out }).is_ok() {
            self.left_out.clear();
        }
    }

    /// Sends the remaining records as the worker ends; waits a little for room in the channel.
    pub(super) fn finish(&mut self, pending: &mut Log, tables: &Arc<Tables>) {
        if !pending.is_empty() {
            self.send(pending, tables);
        }
        for _ in 0..100 {
            self.tell_left_out_at_once(pending, tables);
            if self.left_out.any == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// True if the rate limits admit a record now.
    fn admits(&mut self, record: &Record, now: Nanos) -> bool {
        if !self.total.has(self.total_rate, now) {
            return false;
        }
        if let Record::Rule(hit) = record {
            let Some(bucket) = self.by_rule.get_mut(hit.rule as usize) else { return false };
            if !bucket.has(self.rate, now) {
                return false;
            }
            bucket.take(self.rate, now);
        }
        self.total.take(self.total_rate, now);
        true
    }
}

impl Left {
    fn count(&mut self, record: &Record) {
        let of = match record {
            Record::Rule(hit) => self.rules.get_mut(hit.rule as usize).unwrap_or(&mut self.unknown),
            Record::Opened(_) | Record::Closed(_) => &mut self.connections,
            Record::Mapped(_) | Record::Unmapped(_) | Record::Block(_) => &mut self.mappings,
        };
        *of += 1;
        self.any += 1;
    }

    fn count_lost(&mut self, lost: Lost) {
        self.unknown += lost.rules;
        self.connections += lost.connections;
        self.mappings += lost.mappings;
        self.any += lost.rules + lost.connections + lost.mappings;
    }

    fn counts(&self) -> Vec<LeftOut> {
        let rules = (0..).zip(&self.rules).map(|(place, count)| ("rule", Some(place), *count));
        let others = [
            ("rule", None, self.unknown),
            ("connection", None, self.connections),
            ("nat", None, self.mappings),
        ];
        rules
            .chain(others)
            .filter(|(_, _, count)| *count > 0)
            .map(|(of, rule, count)| LeftOut { of, rule, count })
            .collect()
    }

    fn clear(&mut self) {
        self.rules.fill(0);
        (self.unknown, self.connections, self.mappings, self.any) = (0, 0, 0, 0);
    }
}
