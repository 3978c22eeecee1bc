//! The machine's edge: ports, their MACs, buses, and the buffers between those and the engines.
//!
//! Frames come and go by elements of the buffers (Intel's mpackets), while they are worked on. A MAC keeps elements that have
//! come by its line until the receive buffer has room, and those that leave until its line has sent them. A frame is taken in
//! with its first bit, if its MAC has room by then, and else lost; frames are lost nowhere else.
//!
//! Simplification: a frame that was taken in is never lost halfway. What of it finds no room is kept for it, and counted as an
//! overrun: hardware would lose the whole frame.

use std::collections::VecDeque;

use wire::{BitRate, Bytes};

use super::{Ideal, Machine};
use crate::description::{Buffer as Described, PortKind};
use crate::kernel::Ticks;

mod arrival;
mod departure;

pub(super) use departure::Outgoing;

/// A bus between MACs and buffers.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    pub(super) free: Ticks,
    pub(super) per_element: u64,
    pub(super) cycle: u64,
    pub(super) width: u64,
    pub(super) carries_in: Way,
    pub(super) carries_out: Way,
}

/// Place of a bus: on a way, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    On,
    Off,
}

/// A port: its line and its MAC, both ways.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) rate: BitRate,
    pub(super) gap: Bytes,
    /// Bytes that the MAC keeps, each way.
    pub(super) fifo: u32,
    /// Time from which the next frame can come.
    pub(super) incoming: Ticks,
    /// Bytes of elements that have come, and are not in the receive buffer yet.
    pub(super) held: u32,
    /// Elements in the receive buffer, and the most there: one for each thread that is bound to the line.
    pub(super) buffered: u32,
    pub(super) most: u32,
    /// Frames that leave.
    pub(super) outgoing: Outgoing,
}

/// A buffer of elements between MACs and engines.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) element: u32,
    /// Elements that nobody has.
    pub(super) free: u32,
}

/// An element of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) job: u32,
    /// The frame that leaves, by its place among the job's outputs; 0 of one that comes.
    pub(super) output: u32,
    /// Its place in the frame.
    pub(super) number: u32,
    /// Its turn on the line that it leaves by.
    pub(super) turn: u64,
}

/// Entries of a ring or buffer, and bytes of a MAC, that are never full.
pub(super) const UNBOUNDED: u32 = 1 << 30;

impl Line {
    pub(super) fn new(port: &PortKind, fifo: u32, most: u32) -> Line {
        Line {
            rate: port.rate,
            gap: port.gap,
            fifo,
            incoming: Ticks::ZERO,
            held: 0,
            buffered: 0,
            most,
            outgoing: Outgoing::default(),
        }
    }
}

impl Buffer {
    pub(super) fn new(described: &Described, is_ideal: bool) -> Buffer {
        Buffer {
            element: u32::try_from(described.element.0).unwrap_or(u32::MAX).max(1),
            free: if is_ideal { UNBOUNDED } else { described.elements },
        }
    }

    /// Number of elements of a frame: 1 at least.
    pub(super) fn elements(&self, bytes: u32) -> u32 {
        bytes.max(1).div_ceil(self.element)
    }

    /// True if the element is the last of a frame.
    pub(super) fn is_last(&self, number: u32, frame: u32) -> bool {
        number + 1 == self.elements(frame)
    }

    /// Bytes of a frame's element.
    pub(super) fn bytes_of(&self, number: u32, frame: u32) -> u32 {
        frame.saturating_sub(number.saturating_mul(self.element)).min(self.element)
    }
}

impl Machine<'_> {
    /// The line of the port of that number; past the last port they begin again with the first.
    fn line(&self, port: u16) -> usize {
        usize::from(port) % self.lines.len()
    }

    /// The time that a frame takes on a line.
    fn on_line(&self, line: usize, bytes: u32) -> Ticks {
        self.bytes_on_line(line, u64::from(bytes) + self.lines[line].gap.0)
    }

    /// The time that so many bytes take on a line.
    fn bytes_on_line(&self, line: usize, bytes: u64) -> Ticks {
        if self.ideal == Ideal::Ports {
            return Ticks::ZERO;
        }
        self.time.of_bits(bytes.saturating_mul(8), self.lines[line].rate.0)
    }

    /// Returns the time at which an element sent now has crossed the buses on its path.
    fn over_buses(&mut self, bytes: u32, inward: Way, outward: Way) -> Ticks {
        let mut at = self.now();
        for (number, bus) in self.buses.iter_mut().enumerate() {
            let on = (bus.carries_in == Way::On && inward == Way::On)
                || (bus.carries_out == Way::On && outward == Way::On);
            if !on || self.ideal == Ideal::Bus(number) {
                continue;
            }
            let cycles = u64::from(bytes).div_ceil(bus.width) + bus.per_element;
            let span = Ticks(cycles * bus.cycle);
            at = at.max(bus.free) + span;
            bus.free = at;
            self.seen.buses[number] += span;
        }
        at
    }
}

/// Elements of a direction that wait, in their order.
pub(super) type Waiting = VecDeque<Element>;
