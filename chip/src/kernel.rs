//! Modelled time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use crate::clock::{Cycles, Hertz};

/// A moment or a span of modelled time, in ticks. A tick is the longest span that every clock of the chip has a whole
/// number of in a cycle, so that no clock drifts by rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// No time, and the beginning of time.
    pub const ZERO: Ticks = Ticks(0);

    /// Latest moment of an arrival: later moments are left for the events that the arrival causes.
    pub const LATEST: Ticks = Ticks(u64::MAX / 16 * 15);

    /// The span from `earlier` to here, zero if it is later.
    pub const fn since(self, earlier: Ticks) -> Ticks {
        Ticks(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Ticks {
    type Output = Ticks;
    fn add(self, other: Ticks) -> Ticks {
        Ticks(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Ticks) {
        *self = *self + other;
    }
}

impl Sub for Ticks {
    type Output = Ticks;
    fn sub(self, other: Ticks) -> Ticks {
        self.since(other)
    }
}

/// Conversion of ticks to and from seconds and cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timebase {
    ticks_per_second: u64,
}

impl Timebase {
    /// A timebase of that many ticks a second, at least one.
    pub const fn new(ticks_per_second: u64) -> Timebase {
        Timebase { ticks_per_second: if ticks_per_second == 0 { 1 } else { ticks_per_second } }
    }

    /// Ticks in a cycle of `clock`: a whole number where the clock is one of the chip's.
    pub const fn cycle(self, clock: Hertz) -> Ticks {
        Ticks(match self.ticks_per_second.checked_div(clock.0) {
            Some(ticks) => ticks,
            None => 1,
        })
    }

    /// `cycles` cycles of `clock`.
    pub const fn cycles(self, cycles: Cycles, clock: Hertz) -> Ticks {
        Ticks(self.cycle(clock).0.saturating_mul(cycles.0))
    }

    /// `nanos` nanoseconds, rounded down; [`Ticks::LATEST`] at most.
    pub const fn of_nanos(self, nanos: u64) -> Ticks {
        let ticks = nanos as u128 * self.ticks_per_second as u128 / 1_000_000_000;
        if ticks > Ticks::LATEST.0 as u128 { Ticks::LATEST } else { Ticks(ticks as u64) }
    }

    /// The longest span that [`Timebase::of_nanos`] still tells from longer ones, in nanoseconds.
    pub const fn longest(self) -> u64 {
        let nanos = Ticks::LATEST.0 as u128 * 1_000_000_000 / self.ticks_per_second as u128;
        if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
    }

    /// The time that `bits` bits take at `rate` bits a second, rounded up.
    pub const fn of_bits(self, bits: u64, rate: u64) -> Ticks {
        let rate = if rate == 0 { 1 } else { rate };
        Ticks((bits as u128 * self.ticks_per_second as u128).div_ceil(rate as u128) as u64)
    }

    /// A span in whole picoseconds, rounded down.
    pub const fn to_picos(self, span: Ticks) -> u128 {
        span.0 as u128 * 1_000_000_000_000 / self.ticks_per_second as u128
    }

    /// A span in nanoseconds.
    pub fn to_nanos(self, span: Ticks) -> f64 {
        self.to_seconds(span) * 1e9
    }

    /// A span in seconds.
    pub fn to_seconds(self, span: Ticks) -> f64 {
        span.0 as f64 / self.ticks_per_second as f64
    }

    /// A span in cycles of `clock`.
    pub fn to_cycles(self, span: Ticks, clock: Hertz) -> f64 {
        span.0 as f64 / self.cycle(clock).0 as f64
    }
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ticks", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_begin_again_where_it_ends() {
        let time = Timebase::new(7_800_000_000);
        let years = |years: u64| years * 365 * 86_400 * 1_000_000_000;
        assert_eq!(time.of_nanos(years(10)), Ticks(years(10) / 1_000_000_000 * 7_800_000_000));
        assert_eq!(time.of_nanos(years(136)), Ticks::LATEST);
        assert_eq!(time.of_nanos(u64::MAX), Ticks::LATEST);
        assert!(time.of_nanos(time.longest()) <= Ticks::LATEST);
        assert_eq!(time.of_nanos(time.longest() + 1), Ticks::LATEST);
        assert!(time.longest() > years(65) && time.longest() < years(76), "{}", time.longest());
        assert_eq!(Timebase::new(1).longest(), u64::MAX);
    }

    #[test]
    fn a_frame_of_64_bytes_takes_672_ns_at_a_gigabit() {
        let time = Timebase::new(600_000_000);
        assert_eq!(time.cycle(Hertz(200_000_000)), Ticks(3));
        let frame = time.of_bits(84 * 8, 1_000_000_000);
        assert_eq!(frame, Ticks(404), "403.2 cycles of 600 MHz, rounded up");
        assert_eq!(time.of_nanos(672), Ticks(403));
        // Hours are no matter.
        assert_eq!(time.of_nanos(3_600_000_000_000 * 24), Ticks(600_000_000 * 86_400));
    }
}
