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
use crate::load::Length;

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
    /// The lines whose frames cross it.
    pub(super) lines: Vec<Way>,
    pub(super) latency: Ticks,
    pub(super) credits: Option<Credits>,
}

/// Credits of a bus: who sends has one for each element that the receiver has room for.
#[derive(Clone, Debug)]
pub(super) struct Credits {
    most: usize,
    /// Times at which those that are out come back, the earliest first.
    out: VecDeque<Ticks>,
}

impl Credits {
    pub(super) fn new(most: u32) -> Credits {
        Credits { most: most.max(1) as usize, out: VecDeque::with_capacity(most.max(1) as usize) }
    }

    /// Takes a credit that is there at `at`, or later: when it is.
    fn take(&mut self, at: Ticks) -> Ticks {
        if self.out.len() < self.most { at } else { at.max(self.out.pop_front().unwrap_or(at)) }
    }
}

impl Bus {
    /// Sends an element from `at` on: how long that takes the bus, and when the element is there.
    fn send(&mut self, at: Ticks, bytes: u32) -> (Ticks, Ticks) {
        let at = self.credits.as_mut().map_or(at, |credits| credits.take(at)).max(self.free);
        let span = Ticks((u64::from(bytes).div_ceil(self.width) + self.per_element) * self.cycle);
        self.free = at + span;
        let there = self.free + self.latency;
        if let Some(credits) = &mut self.credits {
            credits.out.push_back(there + self.latency);
        }
        (span, there)
    }
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
    pub(super) fn elements(&self, frame: Length) -> u32 {
        frame.elements(self.element)
    }

    /// True if the element is the last of a frame.
    pub(super) fn is_last(&self, number: u32, frame: Length) -> bool {
        number + 1 == self.elements(frame)
    }

    /// Bytes of a frame's element on its line.
    pub(super) fn bytes_of(&self, number: u32, frame: Length) -> u32 {
        frame.of_element(number, self.element)
    }
}

impl Machine<'_> {
    /// The line of the port of that number; past the last port they begin again with the first.
    fn line(&self, port: u16) -> usize {
        usize::from(port) % self.lines.len()
    }

    /// The time that a frame takes on a line.
    fn on_line(&self, line: usize, frame: Length) -> Ticks {
        self.bytes_on_line(line, u64::from(frame.on_line()) + self.lines[line].gap.0)
    }

    /// The time that so many bytes take on a line.
    fn bytes_on_line(&self, line: usize, bytes: u64) -> Ticks {
        if self.ideal == Ideal::Ports {
            return Ticks::ZERO;
        }
        self.time.of_bits(bytes.saturating_mul(8), self.lines[line].rate.0)
    }

    /// Returns the time at which an element sent now has crossed the buses on its path.
    fn over_buses(&mut self, line: usize, bytes: u32, inward: Way, outward: Way) -> Ticks {
        let mut at = self.now();
        for (number, bus) in self.buses.iter_mut().enumerate() {
            let on = (bus.carries_in == Way::On && inward == Way::On)
                || (bus.carries_out == Way::On && outward == Way::On);
            if !on || bus.lines[line] == Way::Off || self.ideal == Ideal::Bus(number) {
                continue;
            }
            let (span, there) = bus.send(at, bytes);
            self.seen.buses[number] += span;
            at = there;
        }
        at
    }
}

/// Elements of a direction that wait, in their order.
pub(super) type Waiting = VecDeque<Element>;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tally::{Address, Region};
    use wire::Bytes;

    use super::super::tests::{Same, chip, drawing, run};
    use super::super::{Ideal, Machine, Window};
    use super::{Bus, Credits, Way};
    use crate::clock::{Cycles, Hertz};
    use crate::description::{self, Cache, Carries, Chip, FrameAccess, PortKind, Unit, UnitWork};
    use crate::kernel::Ticks;
    use crate::mapping::{
        Exit, Extra, Mapping, Place, Pool, PoolPlace, Priority, Ring, ServedPorts, Task, Who, Work,
    };
    use crate::trace::{Access, Act, Referral, Wait};

    /// A bus that takes 16 ticks for 64 bytes, and 50 more until they are there.
    fn bus(credits: Option<u32>) -> Bus {
        Bus {
            free: Ticks::ZERO,
            per_element: 0,
            cycle: 1,
            width: 4,
            carries_in: Way::On,
            carries_out: Way::On,
            lines: vec![Way::On],
            latency: Ticks(50),
            credits: credits.map(Credits::new),
        }
    }

    #[test]
    fn who_has_no_credit_waits_until_one_comes_back() {
        let there = |credits| -> Vec<u64> {
            let mut bus = bus(credits);
            [0, 0, 0, 0, 1_000].map(|at| bus.send(Ticks(at), 64).1.0).into()
        };
        assert_eq!(there(None), [66, 82, 98, 114, 1_066]);
        // The first is there at 66, and acknowledged at 116.
        assert_eq!(there(Some(2)), [66, 82, 116 + 66, 132 + 66, 1_066]);
        assert_eq!(there(Some(1)), [66, 116 + 66, 232 + 66, 348 + 66, 1_066]);
        assert_eq!(there(Some(4)), there(None));
    }

    #[test]
    fn credits_that_are_out_are_bounded() {
        let mut bus = bus(Some(3));
        for at in 0..100 {
            bus.send(Ticks(at), 64);
            assert!(bus.credits.as_ref().is_some_and(|credits| credits.out.len() <= 3));
        }
        // Three go in each 116 ticks, and the last of a hundred alone.
        let out = bus.credits.map(|credits| credits.out);
        assert_eq!(out, Some(VecDeque::from([3_844, 3_860, 3_944].map(Ticks))));
    }

    /// A processor with a cache, whose card is behind a bus of 4 bytes a cycle and moves frames by itself.
    fn computer(ports: Vec<String>) -> Chip {
        let mut chip = chip();
        chip.engines[0].cache =
            Some(Cache { bytes: Bytes(1_024), line: Bytes(64), ways: 4, latency: Cycles(0) });
        let port = chip.ports.0[0].clone();
        chip.ports.0 = vec![
            PortKind { name: Some("card".into()), ..port.clone() },
            PortKind { name: Some("other".into()), ..port },
        ];
        chip.buses = vec![description::Bus {
            name: "pci".into(),
            clock: Hertz(100_000_000),
            width: Bytes(4),
            overhead: Cycles(4),
            carries: Carries::Both,
            ports,
            latency: Cycles(0),
            credits: None,
        }];
        let unit = |name: &str| Unit {
            name: name.into(),
            work: UnitWork::Dma,
            count: 1,
            interval: Cycles(1),
            per_word: 0,
            latency: Cycles(8),
            frames: FrameAccess::Memory,
            lists: None,
            tickets: None,
        };
        chip.units = vec![unit("in"), unit("out")];
        chip.rings[0].memory = Some("sram".into());
        chip
    }

    fn mapping() -> Mapping {
        let pool = |name: &str, place, work, from, to: Option<usize>| Pool {
            name: name.into(),
            place,
            tasks: vec![Task {
                work,
                from,
                to: to.map(|ring| Exit { who: Who::All, ring }).into_iter().collect(),
                ports: ServedPorts::default(),
                extra: Extra::default(),
                priority: Priority::Normal,
            }],
            poll: None,
        };
        let engine = PoolPlace::Engines { kind: 0, numbers: vec![0], threads: 1 };
        let ring = |name: &str| Ring { name: name.into(), kind: 0, entries: 16, order: None };
        Mapping {
            pools: vec![
                pool("receive", PoolPlace::Unit(0), Work::Receive(0..0), None, Some(0)),
                pool("process", engine, Work::Stages(0..1), Some(0), Some(1)),
                pool("transmit", PoolPlace::Unit(1), Work::Transmit, Some(1), None),
            ],
            rings: vec![ring("received"), ring("sent")],
            ..drawing(1, 1, Place::Shared(0))
        }
    }

    fn forwarded(chip: &Chip) -> Window {
        let header = |access| {
            Act::Refer(Referral {
                region: Region::Frame,
                access,
                at: 0,
                bytes: 20,
                address: Address::Computed,
                wait: Wait::Now,
            })
        };
        let mapping = mapping();
        let mut machine = Machine::new(chip, &mapping, Ideal::Nothing).unwrap();
        machine
            .run(
                &mut Same {
                    left: 100,
                    acts: vec![run(10), header(Access::Read), header(Access::Write)],
                    at: 0,
                    every: 1_000,
                },
                0,
            )
            .unwrap()
    }

    #[test]
    fn a_frame_crosses_the_bus_of_its_card_twice_and_no_other() {
        let window = forwarded(&computer(Vec::new()));
        assert_eq!(window.delivered.frames, 100);
        assert_eq!(window.buses, [Ticks(100 * 2 * (64 / 4 + 4))]);
        assert_eq!(forwarded(&computer(vec!["card".into()])).buses, window.buses);
        assert_eq!(forwarded(&computer(vec!["other".into()])).buses, [Ticks(0)]);
    }

    #[test]
    fn a_card_moves_frames_to_memory_and_the_processor_finds_them_in_no_cache() {
        let window = forwarded(&computer(Vec::new()));
        let traffic = |region: Region| {
            let traffic = window.memories[0].regions[region as usize];
            (traffic.references, traffic.bytes)
        };
        // The card writes and reads 64 bytes of each frame, and the processor fetches its header's line; the line that it has changed is
        // written back before the card reads it.
        assert_eq!(traffic(Region::Frame), (400, 400 * 64));
        // Its descriptor is put and got by both.
        assert_eq!(window.memories[0].rings.references, 400);
        let seen = window.caches[0].1;
        assert_eq!((seen.lookups, seen.misses, seen.written), (200, 100, 100), "the header, and its change");
    }
}
