//! Arrival times of the frames of one direction of a stream.

use wire::atm::CELL_LEN;
use wire::ethernet::EtherType;
use wire::link_kind::LinkKind;
use wire::random::Random;
use wire::rfc2684::Channel;
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
    /// ATM channel in whose cells frames come.
    channel: Option<(Channel, LinkKind)>,
}

impl Line {
    /// Bytes that a frame takes on the line.
    fn bytes_of(&self, frame: usize) -> f64 {
        match self.channel {
            Some((channel, link)) => (channel.cells(link, EtherType::IPV4, frame) * CELL_LEN) as f64,
            None => frame as f64 + self.gap.0 as f64,
        }
    }
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
    /// The line of an interface, and the ATM channel in whose cells its frames come.
    pub(super) fn of(&self, interface: PortId, channel: Option<(Channel, LinkKind)>) -> Line {
        let gap = self.ports.kind_of(self.wiring.port(interface)).map_or(Bytes(0), |port| port.gap);
        Line { rate: self.rate_of(interface), gap, channel }
    }

    /// Rate of an interface's line.
    pub(super) fn rate_of(&self, interface: PortId) -> BitRate {
        // A chip has one port at least.
        self.ports.kind_of(self.wiring.port(interface)).map_or(BitRate(1), |port| port.rate)
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
        let seconds = match self.rate {
            Rate::Line(share) => self.line.bytes_of(bytes) * 8.0 / self.line.rate.0.max(1) as f64 / share,
            Rate::Frames(rate) => 1.0 / rate,
            Rate::Bits(rate) => bytes as f64 * 8.0 / rate,
        };
        // A cast of what is too large is the largest; then it is never.
        (seconds * 1e9 * PARTS) as u64 as Parts
    }

    fn exponential(&mut self, mean: Parts) -> Parts {
        let mean = u64::try_from(mean).unwrap_or(u64::MAX);
        Parts::from(self.random.exponential(Nanos(mean)).0)
    }
}
