//! Token debts: tokens that are missing in buckets, as the times until they will have come.
//!
//! Times outlive their process: they go on while nothing runs, and mean the same where rates, bursts or the number of workers are
//! others.

use policy::model::MeterKind;
use serde::{Deserialize, Serialize};
use wire::Nanos;

use super::{Bucket, Buckets, Meter, Supply};

/// Times until the buckets of an instance are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debts {
    /// Of the bucket of the committed rate.
    pub committed: Nanos,
    /// Of the bucket of the peak rate, or of the excess.
    pub second: Nanos,
}

impl Debts {
    /// Of each bucket the longer time.
    #[must_use]
    pub fn max(self, other: Debts) -> Debts {
        Debts { committed: self.committed.max(other.committed), second: self.second.max(other.second) }
    }

    /// Returns the debts after a span of time without packets.
    #[must_use]
    pub fn aged(self, by: Nanos) -> Debts {
        Debts { committed: self.committed - by, second: self.second - by }
    }
}

impl Meter {
    /// Debts of buckets at `now`.
    pub fn debts(&self, buckets: &Buckets, now: Nanos) -> Debts {
        let mut later = *buckets;
        self.refill(&mut later, now);
        let Buckets { committed, second, .. } = later;
        let lacks_second = self.second.missing(second);
        let second = match self.kind {
            _ if lacks_second == 0 => Nanos(0),
            // What the first bucket has no room for comes to the second (RFC 2697, section 3).
            MeterKind::SingleRate => {
                let missing = self.committed.missing(committed).saturating_add(lacks_second);
                self.committed.time(missing, committed.remainder)
            }
            _ => self.second.time(lacks_second, second.remainder),
        };
        let lacks = self.committed.missing(committed);
        let committed = if lacks == 0 { Nanos(0) } else { self.committed.time(lacks, committed.remainder) };
        Debts { committed, second }
    }

    /// Buckets with these debts at `now`.
    pub fn indebted(&self, debts: Debts, now: Nanos) -> Buckets {
        let (lacks, remainder) = self.committed.tokens(debts.committed);
        let mut committed = self.committed.without(lacks, remainder);
        let second = match self.kind {
            MeterKind::SingleRate => {
                let (both, remainder) = self.committed.tokens(debts.second);
                if lacks == 0 {
                    committed.remainder = remainder;
                }
                self.second.without(both.saturating_sub(self.committed.missing(committed)), 0)
            }
            _ => {
                let (lacks, remainder) = self.second.tokens(debts.second);
                self.second.without(lacks, remainder)
            }
        };
        Buckets { last: now, committed, second }
    }
}

impl Supply {
    /// Tokens that a bucket lacks.
    fn missing(self, bucket: Bucket) -> u64 {
        self.depth.saturating_sub(bucket.tokens)
    }

    /// Time in which so many tokens come, but for a fraction that has come.
    fn time(self, tokens: u64, remainder: u64) -> Nanos {
        let units = (u128::from(tokens) * u128::from(self.divisor)).saturating_sub(remainder.into());
        // Where none come, never.
        let time = units.div_ceil(u128::from(self.rate).max(1));
        if self.rate == 0 { Nanos::MAX } else { Nanos(u64::try_from(time).unwrap_or(u64::MAX)) }
    }

    /// Tokens that come within a time, the last of them counted whole, and the fraction by which that is too many.
    fn tokens(self, time: Nanos) -> (u64, u64) {
        if self.rate == 0 {
            return (if time == Nanos(0) { 0 } else { u64::MAX }, 0);
        }
        let (units, divisor) = (u128::from(time.0) * u128::from(self.rate), u128::from(self.divisor));
        let tokens = units.div_ceil(divisor);
        (u64::try_from(tokens).unwrap_or(u64::MAX), (tokens * divisor - units) as u64)
    }

    /// Bucket that lacks so many tokens.
    fn without(self, tokens: u64, remainder: u64) -> Bucket {
        if tokens > self.depth {
            return Bucket::default();
        }
        Bucket { tokens: self.depth - tokens, remainder }
    }
}

#[cfg(test)]
mod tests {
    use policy::model::{Colour, ColourMode, Meter as Settings, MeterRate, Overhead};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use wire::{BitRate, Bytes};

    use super::*;
    use crate::meter::Arrival;
    use crate::nat::Share;

    const KINDS: [MeterKind; 4] =
        [MeterKind::TokenBucket, MeterKind::SingleRate, MeterKind::TwoRate, MeterKind::Rfc4115];

    fn meter(kind: MeterKind, rate: u64, workers: u16) -> Meter {
        let bits = |rate| MeterRate::Bits(BitRate(rate));
        let settings = Settings {
            kind,
            rate: bits(rate),
            burst: 20_000,
            peak_rate: Some(bits(rate * 3)),
            peak_burst: Some(30_000),
            excess_rate: Some(bits(rate / 2 + 1)),
            excess_burst: Some(10_000),
            colours: ColourMode::Blind,
            overhead: Overhead::IP,
            ..Settings::new("meter")
        };
        Meter::new(&settings, Share::new(0, workers).unwrap(), Bytes(1_500))
    }

    /// Numbers of green, yellow and red packets of 200.
    fn colours(meter: &Meter, mut buckets: Buckets, from: Nanos, gap: u64) -> [i32; 3] {
        let mut counts = [0; 3];
        for number in 0..200 {
            let packet = Arrival { length: 700, before: Colour::Green, at: from + Nanos(number * gap) };
            counts[meter.colour(&mut buckets, packet) as usize] += 1;
        }
        counts
    }

    proptest! {
        /// The oracle is the meter that has gone on: after any packets and any pause, buckets made from debts colour what comes
        /// as they would have.
        #[test]
        fn buckets_come_back_from_their_debts(
            kind in 0..4_usize, rate in 8_000..100_000_000_u64, packets in 0..60_u64, gap in 0..3_000_000_u64,
            away in 0..2_000_000_000_u64, clock in any::<u32>(), after in 0..2_000_000_u64,
        ) {
            let meter = meter(KINDS[kind], rate, 1);
            let start = Nanos::from_secs(5);
            let mut buckets = meter.full(start);
            let mut now = start;
            for _ in 0..packets {
                now += Nanos(gap);
                meter.colour(&mut buckets, Arrival { length: 1_400, before: Colour::Green, at: now });
            }
            let debts = meter.debts(&buckets, now).aged(Nanos(away));
            // Another process has another clock.
            let then = Nanos::from_secs(clock.into());
            let restored = meter.indebted(debts, then);
            let again = meter.debts(&restored, then);
            prop_assert_eq!(again.committed, debts.committed);
            prop_assert!(again.second.0.abs_diff(debts.second.0) <= 1, "{:?}, {:?}", again, debts);
            // Times are whole nanoseconds: a packet of that very moment may find one token less.
            let went_on = colours(&meter, buckets, now + Nanos(away), after);
            for (one, other) in colours(&meter, restored, then, after).iter().zip(went_on) {
                prop_assert!((one - other).abs() <= 1, "{} {}", one, other);
            }
        }
    }

    #[test]
    fn a_part_of_a_meter_keeps_its_time() {
        let (whole, half) = (meter(KINDS[0], 80_000, 1), meter(KINDS[0], 80_000, 2));
        let now = Nanos::from_secs(1);
        // 10 kB a second: 20 kB have come in two seconds, however many share them.
        let drained = Debts { committed: Nanos::from_secs(2), second: Nanos(0) };
        assert_eq!(whole.debts(&whole.indebted(drained, now), now), drained);
        let buckets = half.indebted(drained, now);
        assert_eq!(half.debts(&buckets, now), drained);
        assert_eq!(half.debts(&buckets, now + Nanos::from_secs(1)).committed, Nanos::from_secs(1));
        // A debt beyond what the bucket holds is forgiven.
        let longer = Debts { committed: Nanos::MAX, second: Nanos::MAX };
        assert_eq!(whole.debts(&whole.indebted(longer, now), now).committed, Nanos::from_secs(2));
    }
}
