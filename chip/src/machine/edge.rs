//! The machine's edge: how frames come in and leave, by lines, buses and buffers.
//!
//! A frame is taken in with its first bit, if there is room in the receive buffer by then; it is there with its last one,
//! behind the buses on its way. One that leaves has room in the transmit buffer from when a thread claims it until its last
//! bit is on the line. Frames are lost nowhere else than where they come in.

use std::collections::VecDeque;

use wire::BitRate;

use super::{Event, Ideal, Machine, Waits, script};
use crate::description::PortKind;
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Load, Output};

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

/// A port's line, both ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) rate: BitRate,
    pub(super) gap: wire::Bytes,
    pub(super) incoming: Ticks,
    pub(super) outgoing: Ticks,
}

impl Line {
    pub(super) fn of(port: &PortKind) -> Line {
        Line { rate: port.rate, gap: port.gap, incoming: Ticks::ZERO, outgoing: Ticks::ZERO }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) element: wire::Bytes,
    pub(super) free: u32,
    pub(super) waiting: VecDeque<u32>,
    pub(super) blocked: VecDeque<usize>,
}

impl Machine<'_> {
    /// Notes the next arrival: frames are run in the order in which they begin, whatever port they come by. One whose port is
    /// still taken by the frame before holds up those after it, which then come no closer together than their own lines
    /// let them.
    pub(super) fn expect(&mut self, load: &mut dyn Load) {
        if self.seen.is_closed {
            return;
        }
        let Some(arrival) = self.next_arrival(load) else { return };
        let line = self.line(arrival.port);
        let span = self.on_line(line, arrival.bytes);
        let begins = arrival.at.max(self.lines[line].incoming).max(self.now());
        self.lines[line].incoming = begins + span;
        self.agenda.note(begins, Event::Arrive { port: arrival.port, bytes: arrival.bytes });
    }

    /// Returns the next arrival; `None`, which closes the window, at the end of the load or once the observer has enough.
    pub(super) fn next_arrival(&mut self, load: &mut dyn Load) -> Option<Arrival> {
        let enough = self.watch.as_ref().is_some_and(|watch| watch.has_enough());
        let arrival = if enough { None } else { load.next() };
        match arrival {
            Some(arrival) => self.seen.expected = arrival,
            None if !self.seen.all_arrived => {
                self.seen.all_arrived = true;
                self.seal();
            }
            None => {}
        }
        arrival
    }

    /// A frame's first bit is there: it is taken in, or lost where the receive buffer has no room.
    pub(super) fn arrive(&mut self, port: u16, bytes: u32, load: &mut dyn Load) {
        self.open();
        self.seen.offer(bytes);
        let elements = script::elements(bytes, self.receive.element);
        if elements <= self.receive.free {
            self.receive.free -= elements;
            let landed = self.now() + self.on_line(self.line(port), bytes);
            let job = self.job(landed, load);
            self.agenda.note(landed, Event::Landed(job));
        } else {
            self.seen.lose(port);
            self.tell(|watch, now| watch.comes(now, None));
        }
        self.expect(load);
    }

    /// A frame's last bit is there: over the buses it goes into the receive buffer.
    pub(super) fn landed(&mut self, job: u32) {
        let at = self.over_buses(self.jobs[job as usize].bytes, Way::On, Way::Off);
        self.agenda.note(at, Event::Received(job));
    }

    /// Takes in the frame that was given last, whose last bit comes at `landed`.
    pub(super) fn job(&mut self, landed: Ticks, load: &mut dyn Load) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(Job::default());
            self.jobs.len() as u32 - 1
        });
        let job = &mut self.jobs[number as usize];
        job.renew(&self.seen.expected, landed);
        load.accept(job);
        job.unsent = job.outputs.len() as u32;
        self.seen.under_way += 1;
        self.tell(|watch, now| watch.comes(now, Some(number)));
        number
    }

    /// The line of the port of that number; past the last port they begin again with the first.
    fn line(&self, port: u16) -> usize {
        usize::from(port) % self.lines.len()
    }

    /// The time that a frame takes on a line.
    fn on_line(&self, line: usize, bytes: u32) -> Ticks {
        if self.ideal == Ideal::Ports {
            return Ticks::ZERO;
        }
        let Line { rate, gap, .. } = self.lines[line];
        self.time.of_bits((u64::from(bytes) + gap.0) * 8, rate.0)
    }

    /// Returns the time at which a frame sent now has crossed the buses on its path.
    fn over_buses(&mut self, bytes: u32, inward: Way, outward: Way) -> Ticks {
        let mut at = self.now();
        for (number, bus) in self.buses.iter_mut().enumerate() {
            let on = (bus.carries_in == Way::On && inward == Way::On)
                || (bus.carries_out == Way::On && outward == Way::On);
            if !on || self.ideal == Ideal::Bus(number) {
                continue;
            }
            let elements = u64::from(script::elements(bytes, self.receive.element));
            let cycles = u64::from(bytes).div_ceil(bus.width) + elements * bus.per_element;
            let span = Ticks(cycles * bus.cycle);
            at = at.max(bus.free) + span;
            bus.free = at;
            self.seen.buses[number] += span;
        }
        at
    }

    /// Claims elements of the transmit buffer for the thread's output, or waits for them.
    pub(super) fn claim(&mut self, engine: usize, number: usize) {
        let elements = self.elements_of_output(number);
        if elements > self.transmit.free {
            self.transmit.blocked.push_back(number);
            self.threads[number].next -= 1;
            self.threads[number].waits = Waits::Elements;
            return self.leave(engine, self.now());
        }
        self.transmit.free -= elements;
        self.go(engine, Ticks::ZERO);
    }

    /// Returns the thread's next output.
    fn output(&self, thread: usize) -> Output {
        let thread = &self.threads[thread];
        let outputs = &self.jobs[thread.job as usize].outputs;
        outputs.get(thread.output).copied().unwrap_or(Output { port: 0, bytes: 0 })
    }

    fn elements_of_output(&self, thread: usize) -> u32 {
        script::elements(self.output(thread).bytes, self.transmit.element).min(self.chip.transmit.elements)
    }

    /// Sends the thread's output: over the buses, to its line.
    pub(super) fn send(&mut self, thread: usize) {
        let output = self.output(thread);
        let elements = self.elements_of_output(thread);
        let job = self.threads[thread].job;
        self.threads[thread].output += 1;
        let over = self.over_buses(output.bytes, Way::Off, Way::On);
        let line = self.line(output.port);
        let span = self.on_line(line, output.bytes);
        let gone = over.max(self.lines[line].outgoing) + span;
        self.lines[line].outgoing = gone;
        self.seen.line(line, span);
        self.agenda.note(gone, Event::Sent { job, elements, bytes: output.bytes });
    }

    /// A frame's last bit has left, and its room is another's.
    pub(super) fn sent(&mut self, job: u32, elements: u32, bytes: u32) {
        self.transmit.free += elements;
        if let Some(thread) = self.transmit.blocked.pop_front() {
            self.ready(thread);
        }
        let of = &mut self.jobs[job as usize];
        of.unsent -= 1;
        let (last, arrived) = (of.unsent == 0, of.arrived);
        self.seen.depart(bytes, self.agenda.now().since(arrived));
        if last {
            self.seen.under_way -= 1;
            self.free.push(job);
            self.tell(|watch, now| watch.leaves(now, job));
        }
    }
}
