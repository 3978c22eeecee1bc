//! Arrival times of the frames of one direction of a stream.

use wire::random::Random;
use wire::{BitRate, Bytes, Nanos, PortId};

use super::stream::{Arrivals, Rate};
use crate::description::Ports;
use crate::host::Wiring;

/// A line that frames come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its rate.
    rate: BitRate,
    /// Bytes on the line beside each frame's own: preamble, check sequence, gap.
    gap: Bytes,
}

/// The lines that frames of a policy's interfaces come by.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The ports that there are.
    pub ports: &'a Ports,
    /// Port of each interface.
    pub wiring: &'a Wiring,
}

impl Lines<'_> {
    pub(super) fn of(&self, interface: PortId) -> Line {
        match self.ports.kind_of(self.wiring.port(interface)) {
            Some(port) => Line { rate: port.rate, gap: port.gap },
            // A chip has one at least.
            None => Line { rate: BitRate(1), gap: Bytes(0) },
        }
    }
}

/// Parts of a nanosecond that time is counted in, so that rounding never adds up to anything.
const PARTS: f64 = 65_536.0;

/// A moment or span in those parts.
type Parts = u128;

/// Clock of the next frame's arrival.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    rate: Rate,
    arrivals: Arrivals,
    line: Line,
    random: Random,
    at: Parts,
    /// End of the burst, where frames come in bursts.
    on_until: Parts,
}

impl Clock {
    pub(super) fn new(rate: Rate, arrivals: Arrivals, line: Line, start: Nanos, random: Random) -> Clock {
        let at = Parts::from(start.0) << 16;
        let mut clock = Clock { rate, arrivals, line, random, at, on_until: at };
        if let Arrivals::OnOff { on, .. } = arrivals {
            clock.on_until += clock.exponential(Parts::from(on.0) << 16);
        }
        clock
    }

    /// Returns the time of the next frame.
    pub(super) fn at(&self) -> Nanos {
        Nanos(u64::try_from(self.at >> 16).unwrap_or(u64::MAX))
    }

    /// Advances past a frame of `bytes` bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        let mean = self.gap(bytes);
        match self.arrivals {
            Arrivals::Constant => self.at += mean,
            Arrivals::Poisson => self.at += self.exponential(mean),
            Arrivals::OnOff { on, off } => {
                self.at += mean;
                while self.at >= self.on_until {
                    let pause = self.exponential(Parts::from(off.0) << 16);
                    // A burst of no length would be no burst, and the loop would not end.
                    let burst = self.exponential(Parts::from(on.0) << 16).max(1);
                    self.at += pause;
                    self.on_until += pause + burst;
                }
            }
        }
    }

    /// The mean time from a frame of that many bytes to the next.
    fn gap(&self, bytes: usize) -> Parts {
        let bytes = bytes as f64;
        let seconds = match self.rate {
            Rate::Line(share) => {
                (bytes + self.line.gap.0 as f64) * 8.0 / self.line.rate.0.max(1) as f64 / share
            }
            Rate::Frames(rate) => 1.0 / rate,
            Rate::Bits(rate) => bytes * 8.0 / rate,
        };
        // A cast of what is too large is the largest; then it is never.
        (seconds * 1e9 * PARTS) as u64 as Parts
    }

    fn exponential(&mut self, mean: Parts) -> Parts {
        let mean = u64::try_from(mean).unwrap_or(u64::MAX);
        Parts::from(self.random.exponential(Nanos(mean)).0)
    }
}
