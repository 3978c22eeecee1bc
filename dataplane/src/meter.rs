//! Traffic meters: the colour of a packet by the rate of the packets before (RFC 2475, section 2.3.3.1).
//!
//! A bucket is kept as S1 of the DiffServ study on IXP1200 keeps it: time of the last packet, and tokens left then. Arithmetic
//! is exact: what is less than a token is carried to the next packet, so that a meter of any rate passes its rate over any
//! time. Clocks that stand or go back add no tokens; one that is set back by more than a second goes on from there.

use bytemuck::{Pod, Zeroable};
use fastdivide::DividerU64;
use policy::model::{Colour, ColourMode, Meter as Settings, MeterKind, MeterRate, Overhead};
use serde::{Deserialize, Serialize};
use wire::{Bytes, Nanos};

use crate::nat::Share;

mod debt;
mod instance;

pub use debt::Debts;
pub use instance::{MeteredEnds, Meters};

/// A compiled meter: rates and depths of its two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    kind: MeterKind,
    colours: ColourMode,
    overhead: Overhead,
    /// Unit of tokens: bytes or packets.
    unit: Unit,
    /// Rate and depth of the bucket of the committed rate (C).
    committed: Supply,
    /// Of the bucket of the peak rate (P) or of the excess (E).
    second: Supply,
}

/// Unit of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes, with the overhead of each packet.
    Bytes,
    /// Packets.
    Packets,
}

/// Tokens of the buckets that a packet finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterState {
    /// Unit of all numbers.
    pub unit: Unit,
    /// Bucket of the committed rate.
    pub committed: Level,
    /// Bucket of the peak rate, or of the excess; `None` if the meter has none.
    pub second: Option<Level>,
}

impl MeterState {
    /// The state of a meter of which several workers have a part each.
    #[must_use]
    pub fn and(&self, other: &MeterState) -> MeterState {
        let sum = |one: &Level, other: &Level| Level {
            tokens: one.tokens.saturating_add(other.tokens),
            depth: one.depth.saturating_add(other.depth),
        };
        let second = self.second.as_ref().zip(other.second.as_ref()).map(|(one, other)| sum(one, other));
        MeterState { unit: self.unit, committed: sum(&self.committed, &other.committed), second }
    }
}

/// Level of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Tokens in it.
    pub tokens: u64,
    /// Tokens that there is room for.
    pub depth: u64,
}

/// Rate, in tokens per `divisor` nanoseconds, in lowest terms, and depth, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Supply {
    rate: u64,
    divisor: u64,
    /// Division by `divisor`, by a multiplication.
    divider: DividerU64,
    depth: u64,
}

/// A packet, as meters see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes of the IP packet.
    pub length: u64,
    /// Colour that the packet came with, as the meter reads it.
    pub before: Colour,
    /// Time of its arrival.
    pub at: Nanos,
}

/// State of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Buckets {
    /// Time of the last packet.
    last: Nanos,
    committed: Bucket,
    second: Bucket,
}

/// Tokens, and the numerator of the fraction of one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Bucket {
    tokens: u64,
    remainder: u64,
}

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Time by which a clock goes back only if it is set.
const SET_BACK: Nanos = Nanos(SECOND);

impl Meter {
    /// Compiles a meter for the worker with that share of the work, where workers meter together (`Share::WHOLE` where each
    /// meters what it has by itself). A worker's part of a burst has room for an IP packet of `least` bytes.
    pub fn new(settings: &Settings, share: Share, least: Bytes) -> Meter {
        let workers = u64::from(share.workers());
        let unit = match settings.rate {
            MeterRate::Bits(_) => Unit::Bytes,
            MeterRate::Packets(_) => Unit::Packets,
        };
        let least = match unit {
            Unit::Bytes => settings.overhead.count(least.0),
            Unit::Packets => 1,
        };
        let supply = |rate: Option<MeterRate>, burst: Option<u64>| {
            let (rate, divisor) = match rate {
                Some(MeterRate::Bits(rate)) => (rate.0, 8 * SECOND),
                Some(MeterRate::Packets(rate)) => (rate, SECOND),
                None => (0, SECOND),
            };
            let burst = burst.unwrap_or(0);
            let depth = if workers == 1 { burst } else { (burst / workers).max(least.min(burst)) };
            Supply::new(rate, divisor * workers, depth)
        };
        let (rate, burst) = match settings.kind {
            MeterKind::TwoRate => (settings.peak_rate, settings.peak_burst),
            _ => (settings.excess_rate, settings.excess_burst),
        };
        Meter {
            kind: settings.kind,
            colours: settings.colours,
            overhead: settings.overhead,
            unit,
            committed: supply(Some(settings.rate), Some(settings.burst)),
            second: supply(rate, burst),
        }
    }

    /// Number of rates by which tokens come, 1 or 2.
    pub(crate) fn rates(&self) -> u32 {
        if self.second.rate == 0 { 1 } else { 2 }
    }

    /// Buckets that are full at `now`.
    pub fn full(&self, now: Nanos) -> Buckets {
        let bucket = |supply: Supply| Bucket { tokens: supply.depth, remainder: 0 };
        Buckets { last: now, committed: bucket(self.committed), second: bucket(self.second) }
    }

    /// True if the buckets will be full at `now`, and so hold nothing worth keeping.
    pub fn is_full(&self, buckets: &Buckets, now: Nanos) -> bool {
        let mut later = *buckets;
        self.refill(&mut later, now);
        later.committed.tokens >= self.committed.depth && later.second.tokens >= self.second.depth
    }

    /// Meters a packet, and takes its tokens.
    #[inline]
    pub fn colour(&self, buckets: &mut Buckets, packet: Arrival) -> Colour {
        let Arrival { length, before, at } = packet;
        self.refill(buckets, at);
        let size = match self.unit {
            Unit::Bytes => self.overhead.count(length),
            Unit::Packets => 1,
        };
        let before = if self.colours == ColourMode::Blind { Colour::Green } else { before };
        let Buckets { committed, second, .. } = buckets;
        if before == Colour::Red {
            return Colour::Red;
        }
        match self.kind {
            MeterKind::TokenBucket => {
                if committed.take(size) {
                    before
                } else {
                    Colour::Red
                }
            }
            // RFC 2697, section 3, and RFC 4115, section 3.2, differ in how tokens come, not in how they go.
            MeterKind::SingleRate | MeterKind::Rfc4115 => {
                if before == Colour::Green && committed.take(size) {
                    Colour::Green
                } else if second.take(size) {
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
            // RFC 2698, section 3: what is green has tokens of both.
            MeterKind::TwoRate => {
                if !second.take(size) {
                    Colour::Red
                } else if before == Colour::Green && committed.take(size) {
                    Colour::Green
                } else {
                    Colour::Yellow
                }
            }
        }
    }

    /// Buckets with these tokens at `at`.
    fn with(&self, state: &MeterState, at: Nanos) -> Buckets {
        let bucket =
            |level: &Level, supply: Supply| Bucket { tokens: level.tokens.min(supply.depth), remainder: 0 };
        let second = state.second.as_ref().map_or_else(Bucket::default, |level| bucket(level, self.second));
        Buckets { last: at, committed: bucket(&state.committed, self.committed), second }
    }

    /// The tokens that a packet would find at `at`.
    pub fn state(&self, buckets: &Buckets, at: Nanos) -> MeterState {
        let mut buckets = *buckets;
        self.refill(&mut buckets, at);
        let level = |bucket: Bucket, supply: Supply| Level { tokens: bucket.tokens, depth: supply.depth };
        let second = (self.kind != MeterKind::TokenBucket).then(|| level(buckets.second, self.second));
        MeterState { unit: self.unit, committed: level(buckets.committed, self.committed), second }
    }

    /// Adds the tokens that have come since the last packet.
    #[inline]
    fn refill(&self, buckets: &mut Buckets, now: Nanos) {
        let elapsed = now.since(buckets.last);
        if elapsed == Nanos(0) {
            // Packets that overtook one another leave it as it is, or the time between them would count twice.
            if buckets.last.since(now) > SET_BACK {
                buckets.last = now;
            }
            return;
        }
        buckets.last = now;
        let excess = buckets.committed.fill(self.committed, self.committed.come(elapsed, buckets.committed));
        let come = match self.kind {
            // RFC 2697, section 3: what the first bucket has no room for.
            MeterKind::SingleRate => Come { tokens: excess, remainder: buckets.second.remainder },
            _ => self.second.come(elapsed, buckets.second),
        };
        buckets.second.fill(self.second, come);
    }
}

/// Tokens that come, with the fraction that is left over.
#[derive(Clone, Copy)]
struct Come {
    tokens: u64,
    remainder: u64,
}

impl Supply {
    fn new(rate: u64, divisor: u64, depth: u64) -> Supply {
        // Products of a time are then of 64 bits as long as may be.
        let common = gcd(rate, divisor);
        let (rate, divisor) = (rate / common, divisor / common);
        Supply { rate, divisor, divider: DividerU64::divide_by(divisor), depth }
    }

    /// Tokens that come in a time, with those of the fraction that the bucket has.
    #[inline]
    fn come(self, elapsed: Nanos, bucket: Bucket) -> Come {
        if self.rate == 0 {
            return Come { tokens: 0, remainder: 0 };
        }
        let product =
            elapsed.0.checked_mul(self.rate).and_then(|product| product.checked_add(bucket.remainder));
        match product {
            // Most packets come within a second of one another: a division of 64 bits will do.
            Some(total) => {
                let tokens = self.divider.divide(total);
                Come { tokens, remainder: total - tokens * self.divisor }
            }
            None => {
                let total = u128::from(elapsed.0) * u128::from(self.rate) + u128::from(bucket.remainder);
                let divisor = u128::from(self.divisor);
                let tokens = u64::try_from(total / divisor).unwrap_or(u64::MAX);
                Come { tokens, remainder: (total % divisor) as u64 }
            }
        }
    }
}

/// Greatest common divisor; the other one where one is 0.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Bucket {
    /// Adds tokens up to the depth, and returns the number of those that there was no room for.
    #[inline]
    fn fill(&mut self, supply: Supply, come: Come) -> u64 {
        let room = supply.depth - self.tokens.min(supply.depth);
        if come.tokens < room {
            (self.tokens, self.remainder) = (self.tokens + come.tokens, come.remainder);
            return 0;
        }
        // In the RFCs tokens come one by one, and one that finds the bucket full is lost: the next comes in its turn.
        (self.tokens, self.remainder) = (supply.depth, come.remainder);
        come.tokens - room
    }

    /// Takes tokens, if there are as many.
    #[inline]
    fn take(&mut self, size: u64) -> bool {
        let has = self.tokens >= size;
        if has {
            self.tokens -= size;
        }
        has
    }
}

#[cfg(test)]
mod tests;
