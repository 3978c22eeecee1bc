//! A worker's log records: taken from its shard between two batches, within the rate limits of the policy, and sent to the
//! writer thread. Suppressed records are counted by rule, and reported once a second.

use std::thread;
use std::time::Duration;

use dataplane::log::{Lost, Record};
use dataplane::tables::Tables;
use policy::model::{Log, LogEvent, Rate};
use wire::Nanos;

use super::Worker;
use crate::log::{Feed, LeftOut, Parcel};

/// Records that a worker's shard has room for: several of each frame of a batch, and of all that are released by one.
pub(super) const ROOM: usize = 4_096;

/// Interval between reports of suppressed records: 1 s.
const REPORT_PAUSE: Nanos = Nanos::from_secs(1);

/// A worker's part of the log.
pub(super) struct LogFeed {
    feed: Feed,
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
    pub(super) fn new(feed: Feed, workers: u32, tables: &Tables) -> LogFeed {
        let workers = workers.max(1);
        let (rate, total_rate) = (Log::RATE, Log::TOTAL);
        let mut log = LogFeed {
            feed,
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
    fn follow(&mut self, tables: &Tables) {
        let rules = if tables.log.has(LogEvent::Rule) { tables.filter.rules.len() } else { 0 };
        self.by_rule = vec![Bucket::default(); rules];
        let left_out = &mut self.left_out;
        left_out.unknown += left_out.rules.iter().sum::<u64>();
        left_out.rules = vec![0; rules];
        self.rate = Span::of(tables.log.rate(), self.workers);
        self.total_rate = Span::of(tables.log.total(), self.workers);
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
            Record::Mapped(_) | Record::Unmapped(_) => &mut self.mappings,
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

impl Worker {
    /// Sends pending records to the writer thread.
    #[inline(always)]
    pub(super) fn send_records(&mut self) {
        if !self.shard.log.is_empty() {
            self.send_some_records();
        }
    }

    #[cold]
    fn send_some_records(&mut self) {
        let at = self.clock.now();
        let Some(log) = &mut self.log else { return self.shard.log.clear() };
        let before = log.left_out.any;
        let mut records = Vec::new();
        for record in self.shard.log.records() {
            if log.admits(record, at) {
                records.push(*record);
            } else {
                log.left_out.count(record);
            }
        }
        self.shard.log.clear();
        if !records.is_empty() {
            let (worker, tables) = (self.number, self.tables.clone());
            let parcel = Parcel { worker, tables, at, records, left_out: Vec::new() };
            if let Err(parcel) = log.feed.send(parcel) {
                parcel.records.iter().for_each(|record| log.left_out.count(record));
            }
        }
        log.feed.count_left_out(log.left_out.any - before);
    }

    /// Reports the number of suppressed records, if any, when due.
    pub(super) fn tell_left_out(&mut self, now: Nanos) {
        let Some(log) = &mut self.log else { return };
        if now.since(log.reported) >= REPORT_PAUSE {
            log.reported = now;
            self.tell_left_out_at_once();
        }
    }

    /// Reports the number of suppressed records, if any.
    pub(super) fn tell_left_out_at_once(&mut self) {
        let (worker, at) = (self.number, self.clock.now());
        let Some(log) = &mut self.log else { return };
        let lost = self.shard.log.take_lost();
        log.feed.count_left_out(lost.rules + lost.connections + lost.mappings);
        log.left_out.count_lost(lost);
        if log.left_out.any == 0 {
            return;
        }
        let (tables, left_out) = (self.tables.clone(), log.left_out.counts());
        // Where there is no room it is told later.
        if log.feed.send(Parcel { worker, tables, at, records: Vec::new(), left_out }).is_ok() {
            log.left_out.clear();
        }
    }

    /// Sends the remaining records as the worker ends; waits a little for room in the channel.
    pub(super) fn finish_log(&mut self) {
        self.send_records();
        for _ in 0..100 {
            self.tell_left_out_at_once();
            if self.log.as_ref().is_none_or(|log| log.left_out.any == 0) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Switches the log to the worker's tables.
    pub(super) fn follow_log(&mut self) {
        self.shard.log.follow(&self.tables);
        if let Some(log) = &mut self.log {
            log.follow(&self.tables);
        }
    }
}
