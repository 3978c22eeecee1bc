//! The way in: from a line by its MAC and the buses into the receive buffer, and from there to threads.

use super::{Element, Way};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load, Output};
use crate::machine::order::Course;
use crate::machine::{Event, Machine};
use crate::mapping::{ServedPorts, Task};

impl Machine<'_> {
    /// Notes the next arrival: frames are run in the order in which they begin, whatever port they come by. One whose port is
    /// still taken by the frame before holds up those after it, which then come no closer together than their own lines
    /// let them.
    pub(in crate::machine) fn expect(&mut self, load: &mut dyn Load) {
        if self.seen.is_closed {
            return;
        }
        let Some(arrival) = self.next_arrival(load) else { return };
        let line = self.line(arrival.port);
        let span = self.on_line(line, arrival.length);
        let begins = arrival.at.max(self.lines[line].incoming).max(self.now());
        self.lines[line].incoming = begins + span;
        self.agenda.note(begins, Event::Arrive { port: arrival.port, length: arrival.length });
    }

    /// Returns the next arrival; `None`, which closes the window, at the end of the load or once the observer has enough.
    pub(in crate::machine) fn next_arrival(&mut self, load: &mut dyn Load) -> Option<Arrival> {
        let enough = self.watch.as_ref().is_some_and(|watch| watch.has_enough());
        let arrival = if enough { None } else { load.next() };
        match arrival {
            Some(arrival) => self.seen.expected = arrival,
            None if !self.seen.all_arrived => {
                self.seen.all_arrived = true;
                self.note_end();
                self.seal();
            }
            None => {}
        }
        arrival
    }

    /// A frame's first bit is there: the frame is taken in, or lost where its MAC has no room for its first element.
    pub(in crate::machine) fn arrive(&mut self, port: u16, length: Length, load: &mut dyn Load) {
        self.open();
        self.seen.offer(length.bytes);
        let line = self.line(port);
        let first = self.receive.bytes_of(0, length);
        if self.lines[line].held + first <= self.lines[line].fifo {
            let landed = self.now() + self.on_line(line, length);
            let job = self.job(landed, load);
            self.jobs[job as usize].line = line;
            self.expect_element(job, 0);
        } else {
            self.seen.lose(line);
            self.tell(|watch, now| watch.comes(now, None));
        }
        self.expect(load);
    }

    /// Takes in the frame that was given last, whose last bit comes at `landed`.
    pub(in crate::machine) fn job(&mut self, landed: Ticks, load: &mut dyn Load) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(Job::default());
            self.jobs.len() as u32 - 1
        });
        let Machine { jobs, lines, order, .. } = self;
        let job = &mut jobs[number as usize];
        job.renew(&self.seen.expected, landed);
        load.accept(job);
        job.unsent = job.outputs.len() as u32;
        for Output { port, flow, .. } in &job.outputs {
            let line = (usize::from(*port) % lines.len()) as u32;
            job.places.push(order.enter(Course { flow: *flow, line, precedence: job.precedence }));
        }
        job.segment = self.segments.as_mut().map_or(0, |segments| segments.give(job.length.bytes));
        self.seen.under_way += 1;
        self.tell(|watch, now| watch.comes(now, Some(number)));
        number
    }

    /// Notes when the last bit of a frame's element comes.
    fn expect_element(&mut self, job: u32, number: u32) {
        let Job { length, arrived, line, .. } = self.jobs[job as usize];
        let element = self.receive.bytes_of(0, length);
        let behind = length.on_line().saturating_sub((number + 1).saturating_mul(element));
        let at = arrived - self.bytes_on_line(line, behind.into());
        self.agenda.note(at, Event::Element(Element { job, number, ..Element::default() }));
    }

    /// An element's last bit has come: the element waits in the MAC for room in the receive buffer.
    pub(in crate::machine) fn element_came(&mut self, element: Element) {
        let job = &mut self.jobs[element.job as usize];
        let line = &mut self.lines[job.line];
        line.held += self.receive.bytes_of(element.number, job.length);
        if line.held > line.fifo && !job.has_overrun {
            job.has_overrun = true;
            self.seen.overruns += 1;
        }
        if !self.receive.is_last(element.number, job.length) {
            self.expect_element(element.job, element.number + 1);
        }
        self.incoming.push_back(element);
        self.fill_receive_buffer();
    }

    /// Moves elements from MACs into the receive buffer while it has room, in the order in which they came. Threads that are bound to
    /// a line ask for one element each: a line whose threads are slow does not fill the buffer, but its MAC.
    pub(in crate::machine) fn fill_receive_buffer(&mut self) {
        while self.receive.free > 0 {
            let asked = |element: &Element| {
                let line = &self.lines[self.jobs[element.job as usize].line];
                line.buffered < line.most && self.is_admitted(element)
            };
            let first = self.incoming.iter().position(asked);
            let Some(element) = first.and_then(|place| self.incoming.remove(place)) else { return };
            self.admit(element);
            let line = self.jobs[element.job as usize].line;
            self.lines[line].buffered += 1;
            self.receive.free -= 1;
            let bytes = self.receive.bytes_of(element.number, self.jobs[element.job as usize].length);
            let at = self.over_buses(line, bytes, Way::On, Way::Off);
            self.agenda.note(at, Event::Received(element));
        }
    }

    /// An element is in the receive buffer, and its MAC has room for another.
    pub(in crate::machine) fn received(&mut self, element: Element, load: &mut dyn Load) {
        let job = &self.jobs[element.job as usize];
        self.lines[job.line].held -= self.receive.bytes_of(element.number, job.length);
        self.received.push_back(element);
        self.feed_receivers(load);
    }

    /// The place of an element that the task of a thread takes, among those in the receive buffer: the first of its ports.
    pub(in crate::machine) fn has_received(&self, thread: usize, task: &Task) -> Option<usize> {
        let ServedPorts { numbers, bound } = &task.ports;
        let place = self.threads[thread].place;
        let serves = |line: usize| match (bound, numbers.is_empty()) {
            (false, true) => true,
            (false, false) => numbers.iter().any(|port| self.line(*port) == line),
            (true, true) => place % self.lines.len() == line,
            (true, false) => self.line(numbers[place % numbers.len()]) == line,
        };
        self.received.iter().position(|element| serves(self.jobs[element.job as usize].line))
    }

    /// Takes an element from the receive buffer for the task of a thread.
    pub(in crate::machine) fn take_received(&mut self, thread: usize, task: &Task) -> Option<Element> {
        let place = self.has_received(thread, task)?;
        self.received.remove(place)
    }

    /// A thread has copied its element, whose place in the receive buffer is another's.
    pub(in crate::machine) fn release(&mut self, thread: usize) {
        let line = self.jobs[self.threads[thread].element.job as usize].line;
        self.lines[line].buffered -= 1;
        self.receive.free += 1;
        self.fill_receive_buffer();
    }

    /// A thread is done with an element of a frame: it goes on with the frame if that was all of it.
    pub(in crate::machine) fn gather(&mut self, thread: usize) {
        let job = &mut self.jobs[self.threads[thread].element.job as usize];
        job.gathered += 1;
        if job.gathered == self.receive.elements(job.length) {
            self.go_on(thread);
        }
    }
}
