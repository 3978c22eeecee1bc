//! Shapers: the moment from which a rate lets the next packet go.

use wire::{BitRate, Bytes, Nanos};

/// Rate of a shaper, compiled: the time that a byte takes, and the time that may be made up for after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Nanoseconds that a byte takes: the lower 32 bits.
    whole: u32,
    /// The upper 32 bits, of rates below two bits a second.
    slow: u32,
    /// Fraction of a nanosecond more, in units of 2^-32 ns.
    fraction: u32,
    /// Time by which packets may be ahead of the rate.
    tolerance: Nanos,
}

/// State of a shaper: the moment at which what was sent will have taken its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    until: Nanos,
    /// Fraction of a nanosecond more, in units of 2^-32 ns.
    fraction: u32,
}

/// Bits of the fraction of a nanosecond.
const FRACTION: u32 = 32;

impl Pace {
    /// Compiles the part of `rate` that one of `workers` has. `burst` bytes may be sent at once after a pause, `longest` of them
    /// as the packet that any rate lets go.
    pub(super) fn new(rate: BitRate, burst: Bytes, longest: Bytes, workers: u16) -> Pace {
        let numerator = (8_000_000_000_u128 * u128::from(workers)) << FRACTION;
        let byte = numerator / u128::from(rate.0.max(1));
        let beyond = burst.0.saturating_sub(longest.0);
        let tolerance = byte.saturating_mul(u128::from(beyond)) >> FRACTION;
        let whole = u64::try_from(byte >> FRACTION).unwrap_or(u64::MAX);
        Pace {
            whole: whole as u32,
            slow: (whole >> 32) as u32,
            fraction: byte as u32,
            tolerance: Nanos(u64::try_from(tolerance).unwrap_or(u64::MAX)),
        }
    }

    /// Charges a packet of that many bytes that goes at `now`.
    #[inline(always)]
    pub(super) fn charge(&self, busy: &mut Busy, now: Nanos, bytes: u32) {
        // One that has been idle begins with nothing left over.
        let (from, fraction) = if busy.until < now { (now, 0) } else { (busy.until, busy.fraction) };
        // Two factors of 32 bits and a term of 32 have no overflow.
        let parts = u64::from(self.fraction) * u64::from(bytes) + u64::from(fraction);
        let span = u64::from(self.whole) * u64::from(bytes) + (parts >> FRACTION);
        let span = if self.slow == 0 { span } else { self.much(span, bytes) };
        *busy = Busy { until: Nanos(from.0.saturating_add(span)), fraction: parts as u32 };
    }

    /// Adds what the upper bits of the time of a byte make up.
    #[cold]
    fn much(&self, span: u64, bytes: u32) -> u64 {
        span.saturating_add((u64::from(self.slow) << 32).saturating_mul(bytes.into()))
    }

    /// Moment from which the next packet may go.
    #[inline(always)]
    pub(super) fn ready(&self, busy: &Busy) -> Nanos {
        Nanos(busy.until.0.saturating_sub(self.tolerance.0))
    }
}

impl Busy {
    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        self.until = Nanos(self.until.0.saturating_sub(span.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that are always there, each with the moment at which it goes.
    fn departures(pace: Pace, bytes: u32, packets: usize) -> Vec<u64> {
        let (mut busy, mut now) = (Busy::default(), Nanos(1_000));
        let mut all = Vec::new();
        for _ in 0..packets {
            now = now.max(pace.ready(&busy));
            all.push(now.0);
            pace.charge(&mut busy, now, bytes);
        }
        all
    }

    /// RENA-CHIP, section 3.2: 64 bytes with 20 of overhead take 672 ns at 1 Gbit/s; 242 bytes at 3.96 Mbit/s 1/2048 s.
    #[test]
    fn packets_go_at_their_rate_to_the_nanosecond() {
        let pace = Pace::new(BitRate(1_000_000_000), Bytes(0), Bytes(1_514), 1);
        assert_eq!(departures(pace, 84, 4), [1_000, 1_672, 2_344, 3_016]);
        let pace = Pace::new(BitRate(3_964_928), Bytes(0), Bytes(1_514), 1);
        let last = departures(pace, 242, 2_049)[2_048];
        assert!(last.abs_diff(1_000 + 1_000_000_000) <= 1, "{last}");
        // A third of a nanosecond a byte: nothing is lost over a million packets.
        let pace = Pace::new(BitRate(24_000_000_000), Bytes(0), Bytes(1_514), 1);
        let last = departures(pace, 1, 1_000_001)[1_000_000];
        assert!(last.abs_diff(1_000 + 333_333) <= 1, "{last}");
    }

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate() {
        let pace = Pace::new(BitRate(8_000_000), Bytes(3_000), Bytes(1_000), 1);
        assert_eq!(departures(pace, 1_000, 5), [1_000, 1_000, 1_000, 1_001_000, 2_001_000]);
    }

    #[test]
    fn workers_have_parts_of_a_rate() {
        let pace = Pace::new(BitRate(8_000_000), Bytes(0), Bytes(1_000), 4);
        assert_eq!(departures(pace, 1_000, 2), [1_000, 4_001_000]);
    }

    #[test]
    fn the_slowest_rate_does_not_overflow() {
        let pace = Pace::new(BitRate(1), Bytes(u64::MAX), Bytes(1), u16::MAX);
        let mut busy = Busy::default();
        for _ in 0..10 {
            pace.charge(&mut busy, Nanos(u64::MAX - 5), u32::MAX);
        }
        assert_eq!(busy.until, Nanos::MAX);
    }
}
