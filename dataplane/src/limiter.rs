//! Bounds on rates and on numbers of connections, by rule or by source address.
//!
//! Memory is fixed. Limits by source live in a table of sets of eight entries; a new source both of whose sets are full of
//! counting ones is refused rather than let through uncounted.
//!
//! Of a bound for all workers each worker lets pass its share, rounded up. A source belongs to one worker, which counts
//! all of its traffic.
//!
//! Answers (ICMP errors and resets) are bounded by receiver, in buckets found by the hash of the address. Two receivers
//! may share one, unpredictably without the seed of the hash; memory is fixed. Each kind of answer has buckets of its
//! own, and a bound of its own over all receivers.
//!
//! Across a reload counts of a rule stay with its name, the token debt under a rate with name and rate. Flows refer to
//! their counts by places that stay.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging};
use policy::model::{Rate, Scope};
use wire::Nanos;

use crate::flow::Key;
use crate::nat::Share;
use crate::tables::{Address, FilterRule, Tables, VrfNumber};

mod ask;
mod set;

pub use ask::{Ask, Asks};
pub(crate) use set::Sets;

/// A token bucket, kept as the time at which the bucket would be full again (the generic cell rate algorithm, ITU-T
/// I.371): eight bytes, and no arithmetic between packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bucket {
    pub(crate) full_at: Nanos,
}

impl Bucket {
    /// Takes one token; a new one comes every `interval`, and there are at most `burst`. `false` if there is none.
    #[inline]
    pub fn take(&mut self, now: Nanos, interval: Nanos, burst: u32) -> bool {
        let has = self.has(now, interval, burst);
        if has {
            self.full_at = Nanos(now.0.saturating_add(self.full_at.since(now).0)) + interval;
        }
        has
    }

    /// True if there is a token to take.
    #[inline]
    fn has(self, now: Nanos, interval: Nanos, burst: u32) -> bool {
        let depth = Nanos(interval.0.saturating_mul(u64::from(burst.max(1)) - 1));
        self.full_at.since(now) <= depth
    }

    /// True if the bucket is full, and so holds no state worth keeping.
    pub(crate) fn is_full(self, now: Nanos) -> bool {
        self.full_at <= now
    }
}

/// The time between two tokens of a rate.
pub fn interval(rate: &Rate) -> Nanos {
    Nanos((rate.per.0 / u64::from(rate.count.max(1))).max(1))
}

/// Buckets and counts of one shard.
#[derive(Debug)]
pub struct Limiter {
    /// By rule.
    pub(crate) rates: Vec<Bucket>,
    /// Counts of rules as wholes, those of rules that are gone included, while not zero.
    pub(crate) counts: Vec<u32>,
    /// By rule, the place of its count; `NONE` for a rule that counts nothing as a whole.
    pub(crate) places: Vec<u32>,
    pub(crate) rates_by_source: Sets<Bucket>,
    pub(crate) counts_by_source: Sets<u32>,
    /// Answers in all, by [`ErrorKind`].
    pub(crate) errors: [Bucket; ErrorKind::COUNT],
    /// Answers to receivers: a run of [`RECEIVERS`] for each kind.
    errors_to: Vec<Bucket>,
    /// Share of this shard in a bound for all workers.
    share: Share,
    /// Requests for tokens of buckets that flows share, where a host has them kept.
    pub asks: Asks,
}

/// Kind of answer; none uses up another's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Packet too big: path MTU discovery fails without these answers (RFC 4443, section 2.4 f).
    TooBig,
    /// No route to the destination, or time exceeded.
    Routing,
    /// Refusal by the rules.
    Refusal,
    /// Loopback of an ATM connection: no error, but an answer that anybody on the line may ask for.
    Loopback,
    /// Offer of an access concentrator, for which anybody on the link may ask.
    Discovery,
}

impl ErrorKind {
    const COUNT: usize = 5;

    /// All kinds, in the order of their numbers.
    pub const ALL: [ErrorKind; ErrorKind::COUNT] = [
        ErrorKind::TooBig,
        ErrorKind::Routing,
        ErrorKind::Refusal,
        ErrorKind::Loopback,
        ErrorKind::Discovery,
    ];
}

/// Highest rates of answers of one kind, per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorBounds {
    /// To one receiver.
    pub receiver: u32,
    /// To all together.
    pub all: u32,
}

impl ErrorBounds {
    /// Bounds of the policy.
    pub fn of(tables: &Tables) -> ErrorBounds {
        ErrorBounds { receiver: tables.limits.errors_per_second, all: tables.limits.errors_in_all }
    }
}

/// Buckets of receivers, for each kind of answer: 32 KiB.
const RECEIVERS: usize = 4_096;

/// Place of a connection's count in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountId(pub u32);

/// Set in a [`CountId`] that counts for a rule as a whole.
const WHOLE: u32 = 1 << 31;

/// No count.
pub(crate) const NONE: u32 = u32::MAX;

/// Number in place of a rule's for the bound on all flows of one source: no rule has it.
pub const ALL_RULES: u32 = 0;

impl Limiter {
    /// Makes room for the rules of `tables`, and for as many sources as there can be flows. `share` is this shard's part
    /// in bounds for all workers.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub fn new(tables: &Tables, share: Share, paging: Paging) -> Result<Limiter, MemoryError> {
        let rules = &tables.filter.rules;
        let mut counts = Vec::new();
        let mut place = |rule: &FilterRule| {
            if counts_as_whole(rule) {
                counts.push(0);
                counts.len() as u32 - 1
            } else {
                NONE
            }
        };
        let sources = |has: fn(&Tables) -> bool| if has(tables) { tables.limits.flows as usize } else { 0 };
        Ok(Limiter {
            rates: vec![Bucket::default(); rules.len()],
            places: rules.iter().map(&mut place).collect(),
            counts,
            rates_by_source: Sets::new(sources(rates_sources), paging)?,
            counts_by_source: Sets::new(sources(counts_sources), paging)?,
            errors: [Bucket::default(); ErrorKind::COUNT],
            errors_to: vec![Bucket::default(); RECEIVERS * ErrorKind::COUNT],
            share,
            asks: Asks::default(),
        })
    }

    /// True if one more passes under the rate of the rule at a place. `hash` is that of the [`subject`] by the number of
    /// the rule's meter.
    pub fn admits(&mut self, rule: u32, rate: &Rate, subject: &Key, hash: u64, now: Nanos) -> bool {
        let interval = interval(rate);
        match rate.scope {
            Scope::Rule => {
                self.asks.note(Ask::Rate { at: now, rule });
                let interval = Nanos(interval.0.saturating_mul(u64::from(self.share.workers())));
                let burst = self.share.of_bound(rate.burst);
                self.rates.get_mut(rule as usize).is_some_and(|bucket| bucket.take(now, interval, burst))
            }
            Scope::Source => {
                let place = self
                    .rates_by_source
                    .find_or_take(subject, hash, Bucket::default(), |bucket| bucket.is_full(now));
                place
                    .and_then(|place| self.rates_by_source.value(place))
                    .is_some_and(|bucket| bucket.take(now, interval, rate.burst))
            }
        }
    }

    /// Counts one more connection under a bound of the rule at a place, unless there are `most` already. `hash` is that of
    /// the [`subject`] by the rule's number.
    pub fn count(&mut self, rule: u32, scope: Scope, most: u32, subject: &Key, hash: u64) -> Option<CountId> {
        let (count, id, most) = match scope {
            Scope::Rule => {
                let place = *self.places.get(rule as usize)?;
                (self.counts.get_mut(place as usize)?, place | WHOLE, self.share.of_bound(most))
            }
            Scope::Source => {
                let place = self.counts_by_source.find_or_take(subject, hash, 0, |count| *count == 0)?;
                (self.counts_by_source.value(place)?, place, most)
            }
        };
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(CountId(id))
    }

    /// Counts off a connection that has ended.
    pub fn uncount(&mut self, id: CountId) {
        let count = if id.0 & WHOLE != 0 {
            self.counts.get_mut((id.0 & !WHOLE) as usize)
        } else {
            self.counts_by_source.value(id.0)
        };
        if let Some(count) = count {
            *count = count.saturating_sub(1);
        }
    }

    /// True if one more answer of a kind may be sent to the receiver whose [`subject`] has this hash. A receiver at its
    /// bound takes no tokens from the others.
    pub fn admits_error(&mut self, kind: ErrorKind, hash: u64, bounds: ErrorBounds, now: Nanos) -> bool {
        let interval = |per_second: u32| Nanos((1_000_000_000 / u64::from(per_second)).max(1));
        let (receiver, all) = (bounds.receiver, self.share.of_bound(bounds.all));
        if receiver == 0 || bounds.all == 0 {
            return false;
        }
        self.asks.note(Ask::Answer { at: now, kind, hash });
        // The upper bits: the lower ones choose the worker.
        let place = kind as usize * RECEIVERS + (hash >> 32) as usize % RECEIVERS;
        let whole = &mut self.errors[kind as usize];
        let is_left = whole.has(now, interval(all), all);
        let bucket = self.errors_to.get_mut(place);
        is_left
            && bucket.is_some_and(|bucket| bucket.take(now, interval(receiver), receiver))
            && whole.take(now, interval(all), all)
    }

    /// Takes the token that an earlier packet has [asked](Limiter::asks) for; `false` if there is none.
    pub fn grant(&mut self, ask: Ask, tables: &Tables) -> bool {
        match ask {
            Ask::Rate { at, rule } => {
                let rate = tables.filter.rules.get(rule as usize).and_then(|rule| rule.rate);
                rate.is_some_and(|rate| self.admits(rule, &rate, &Key::default(), 0, at))
            }
            Ask::Answer { at, kind, hash } => self.admits_error(kind, hash, ErrorBounds::of(tables), at),
        }
    }

    /// Number of times that connections are counted now, by rules and by sources.
    pub fn counted(&self) -> u64 {
        self.counts.iter().chain(self.counts_by_source.values.entries()).map(|count| u64::from(*count)).sum()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let errors = size_of_val(self.errors_to.as_slice());
        self.rates_by_source.memory_bytes() + self.counts_by_source.memory_bytes() + errors
    }
}

/// True if connections are counted for a rule as a whole.
pub(crate) fn counts_as_whole(rule: &FilterRule) -> bool {
    rule.connections.is_some_and(|limit| limit.scope == Scope::Rule)
}

/// True if rates are bounded by source.
pub(crate) fn rates_sources(tables: &Tables) -> bool {
    tables.filter.rules.iter().any(|rule| rule.rate.is_some_and(|rate| rate.scope == Scope::Source))
}

/// True if connections are counted by source.
pub(crate) fn counts_sources(tables: &Tables) -> bool {
    let by_source = |rule: &FilterRule| rule.connections.is_some_and(|limit| limit.scope == Scope::Source);
    tables.limits.flows_per_source.is_some() || tables.filter.rules.iter().any(by_source)
}

/// Returns the key to hash for a limit by source: the source and a number, of the rule or of its meter.
pub fn subject(source: Address, number: u32) -> Key {
    subject_in(VrfNumber::DEFAULT, source, number)
}

/// [`subject`] of a source in a VRF.
pub(crate) fn subject_in(vrf: VrfNumber, source: Address, number: u32) -> Key {
    let [high, low] = [(number >> 16) as u16, number as u16];
    if source.v6 {
        Key::v6(source.bits, 0, high, low, vrf.0)
    } else {
        Key::v4(source.bits as u32, 0, high, low, vrf.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_what_is_bounded_as_a_whole() {
        let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[default]\n\"lan > self\" = \"drop\"\n\
                    [[rule]]\nname = \"few\"\nfrom = \"lan\"\nrate = \"10/second burst 5\"\nconnections = 7\naction = \"accept\"\n";
        let tables = Tables::compile(&policy::check(text, "few.toml").policy.unwrap(), 1).unwrap();
        let rule = &tables.filter.rules[0];
        let (rate, subject) = (rule.rate.unwrap(), subject(Address::v4(1), 0));
        for (workers, passed, counted) in [(1, 5 + 20, 7), (2, 3 + 10, 4), (5, 1 + 4, 2), (20, 1 + 1, 1)] {
            let mut limiter =
                Limiter::new(&tables, Share::new(0, workers).unwrap(), Paging::Prefault).unwrap();
            // At once, and then over two seconds, as many as are tried.
            let start = Nanos::from_secs(100);
            let moments =
                (0..40).map(|n| if n < 20 { start } else { start + Nanos::from_millis(100 * (n - 19)) });
            let admitted = moments.filter(|now| limiter.admits(0, &rate, &subject, 0, *now)).count();
            assert_eq!(admitted, passed, "{workers} workers");
            let one = |limiter: &mut Limiter| limiter.count(0, Scope::Rule, 7, &subject, 0).is_some();
            assert_eq!((0..20).filter(|_| one(&mut limiter)).count(), counted, "{workers} workers");
            // Each to another receiver.
            let bounds = ErrorBounds { receiver: 30, all: 30 };
            let mut admits = |n: u64| limiter.admits_error(ErrorKind::Refusal, n << 32, bounds, start);
            let errors = (0..100).filter(|n| admits(*n)).count();
            assert_eq!(errors, 30usize.div_ceil(usize::from(workers)));
        }
    }

    #[test]
    fn a_receiver_and_a_kind_take_nothing_from_others() {
        let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n";
        let tables = Tables::compile(&policy::check(text, "one.toml").policy.unwrap(), 1).unwrap();
        let mut limiter = Limiter::new(&tables, Share::new(0, 1).unwrap(), Paging::Prefault).unwrap();
        let (start, bounds) = (Nanos::from_secs(100), ErrorBounds { receiver: 10, all: 50 });
        let mut sent = |kind, receiver: u64, tries| {
            (0..tries).filter(|_| limiter.admits_error(kind, receiver << 32, bounds, start)).count()
        };
        // Whoever floods gets its share; what it is refused is not taken from the bound in all.
        assert_eq!(sent(ErrorKind::Routing, 1, 1_000), 10);
        assert_eq!(sent(ErrorKind::Routing, 2, 10), 10);
        // From many sources the bound in all holds, for that kind alone.
        assert_eq!((3..100).map(|receiver| sent(ErrorKind::Routing, receiver, 5)).sum::<usize>(), 30);
        for kind in [ErrorKind::TooBig, ErrorKind::Refusal] {
            assert_eq!(sent(kind, 1, 1_000), 10);
        }
    }

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_its_rate() {
        let mut bucket = Bucket::default();
        let second = Nanos::from_secs(1);
        let start = Nanos::from_secs(1_000);
        let mut passed = 0;
        for _ in 0..20 {
            passed += u32::from(bucket.take(start, second, 5));
        }
        assert_eq!(passed, 5);
        assert!(!bucket.take(start + Nanos::from_millis(999), second, 5));
        assert!(bucket.take(start + second, second, 5));
        assert!(!bucket.take(start + second, second, 5));
        // Full again after five seconds' rest, never fuller.
        let later = start + Nanos::from_secs(100);
        assert_eq!((0..20).filter(|_| bucket.take(later, second, 5)).count(), 5);
    }
}
