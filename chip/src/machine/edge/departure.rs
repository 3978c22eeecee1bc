//! The way out: from threads by the transmit buffer and the buses into a MAC, and onto its line.
//!
//! Threads claim places for elements in the order in which those leave, line by line, and serve the frame that departs first before
//! others: what is claimed can always leave, so there is no deadlock, however long frames are and however small the buffer.

use std::collections::VecDeque;

use super::{Element, Way};
use crate::kernel::Ticks;
use crate::load::{Length, Load, Output};
use crate::machine::{Event, Machine, Waits};
use crate::mapping::{Task, Work};

/// Frames that leave by a line.
#[derive(Clone, Debug, Default)]
pub(in crate::machine) struct Outgoing {
    /// Turn of the next element that is given one.
    next: u64,
    /// Frames that have no turns yet, and leave before others that wait: further ones because of a frame of which a part departs.
    reserved: u32,
    /// Turn of the next element to have a place in the transmit buffer.
    claims: u64,
    /// Elements that have one, in the order of their turns.
    claimed: VecDeque<Claimed>,
    /// Time at which the line has sent all that the MAC has been given.
    until: Ticks,
    /// Beginning of the frame that the line sends, were it sent without a pause, and its bytes so far, with the gap.
    began: Ticks,
    bytes: u64,
    /// True if the crossing of the first element has been noted.
    is_due: bool,
}

/// A place in the transmit buffer.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    job: u32,
    /// Its place among the job's outputs.
    output: u32,
    /// Bytes of the element, and of its frame.
    bytes: u32,
    frame: Length,
    place: Place,
    is_filled: bool,
}

/// Place of an element in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    is_first: bool,
    is_last: bool,
}

impl Machine<'_> {
    /// Begins the departure of all that leaves because of a frame, and returns the first element. Of two frames the one that comes first
    /// has the earlier turns on every line.
    pub(in crate::machine) fn depart(&mut self, job: u32) -> Element {
        self.return_ticket(job);
        self.departures += 1;
        self.jobs[job as usize].departure = self.departures;
        for output in 1..self.jobs[job as usize].outputs.len() {
            let line = self.line(self.output(job, output as u32).port);
            self.lines[line].outgoing.reserved += 1;
        }
        self.first_element(job, 0)
    }

    /// Gives turns to all elements of one frame that leaves, and returns the first.
    fn first_element(&mut self, job: u32, output: u32) -> Element {
        let Output { port, length, .. } = self.output(job, output);
        let (line, elements) = (self.line(port), self.transmit.elements(length));
        let outgoing = &mut self.lines[line].outgoing;
        outgoing.reserved -= u32::from(output > 0);
        let turn = outgoing.next;
        outgoing.next += u64::from(elements);
        Element { job, output, number: 0, turn }
    }

    /// True if a frame can depart: its line can send, and none of those by which it leaves has an earlier one still to come.
    pub(in crate::machine) fn can_depart(&self, job: u32) -> bool {
        let mut outputs = self.jobs[job as usize].outputs.iter();
        outputs.all(|output| self.lines[self.line(output.port)].outgoing.reserved == 0)
            && self.can_send(job, 0)
    }

    /// Takes an element that waits for a thread of the pool: of the frame that departs first.
    pub(in crate::machine) fn take_element(&mut self, pool: usize) -> Option<Element> {
        let elements = self.pools[pool].elements.iter().enumerate();
        let able = elements.filter(|(_, element)| self.can_send(element.job, element.output));
        let departs = |element: &Element| self.jobs[element.job as usize].departure;
        let (place, _) = able.min_by_key(|(_, element)| departs(element))?;
        Some(self.pools[pool].elements.swap_remove(place))
    }

    /// True if the line that a frame leaves by can take one more element: none in the transmit buffer waits for room in its MAC. So a slow
    /// line takes neither places there nor threads from the others.
    fn can_send(&self, job: u32, output: u32) -> bool {
        let line = self.line(self.output(job, output).port);
        !self.lines[line].outgoing.is_due
    }

    fn output(&self, job: u32, output: u32) -> Output {
        let outputs = &self.jobs[job as usize].outputs;
        outputs.get(output as usize).copied().unwrap_or(Output { port: 0, length: Length::of(0), flow: 0 })
    }

    /// Claims a place in the transmit buffer for the thread's element, or waits for it.
    pub(in crate::machine) fn claim(&mut self, engine: usize, thread: usize, load: &mut dyn Load) {
        if self.can_claim(thread) {
            self.grant(thread, load);
            self.go(engine, Ticks::ZERO);
            self.wake_claimants(load);
        } else {
            self.claimants.push_back(thread);
            self.threads[thread].next -= 1;
            self.threads[thread].waits = Waits::Elements;
            self.leave(engine, self.now());
        }
    }

    fn can_claim(&self, thread: usize) -> bool {
        let Element { job, output, turn, .. } = self.threads[thread].element;
        let line = self.line(self.output(job, output).port);
        self.transmit.free > 0 && self.lines[line].outgoing.claims == turn
    }

    /// Gives the thread's element its place, and the element behind it to another thread.
    fn grant(&mut self, thread: usize, load: &mut dyn Load) {
        let element = self.threads[thread].element;
        let Element { job, output, .. } = element;
        let Output { port, length: frame, .. } = self.output(job, output);
        let place =
            Place { is_first: element.number == 0, is_last: self.transmit.is_last(element.number, frame) };
        self.transmit.free -= 1;
        let line = self.line(port);
        let bytes = self.transmit.bytes_of(element.number, frame);
        let outgoing = &mut self.lines[line].outgoing;
        outgoing.claims += 1;
        outgoing.claimed.push_back(Claimed { job, output, bytes, frame, place, is_filled: false });
        let behind = if !place.is_last {
            Some(Element { number: element.number + 1, turn: element.turn + 1, ..element })
        } else if element.output as usize + 1 < self.jobs[element.job as usize].outputs.len() {
            Some(self.first_element(element.job, element.output + 1))
        } else {
            None
        };
        if let Some(behind) = behind {
            let pool = self.threads[thread].pool;
            self.pools[pool].elements.push(behind);
            self.feed(pool, load);
        }
    }

    /// Grants places to threads that wait for them, the one first that has waited longest.
    fn wake_claimants(&mut self, load: &mut dyn Load) {
        while let Some(place) = self.claimants.iter().position(|thread| self.can_claim(*thread)) {
            let Some(thread) = self.claimants.remove(place) else { return };
            self.grant(thread, load);
            self.threads[thread].next += 1;
            self.ready(thread);
        }
    }

    /// The thread's element is in the transmit buffer.
    pub(in crate::machine) fn send(&mut self, thread: usize) {
        let Element { job, output, turn, .. } = self.threads[thread].element;
        let line = self.line(self.output(job, output).port);
        let outgoing = &mut self.lines[line].outgoing;
        let first = outgoing.claims - outgoing.claimed.len() as u64;
        if let Some(claimed) = outgoing.claimed.get_mut(turn.saturating_sub(first) as usize) {
            claimed.is_filled = true;
        }
        self.cross(line);
    }

    /// True if the thread's element is the last of its frame.
    pub(in crate::machine) fn is_last_element(&self, thread: usize) -> bool {
        let Element { job, output, number, .. } = self.threads[thread].element;
        self.transmit.is_last(number, self.output(job, output).length)
    }

    /// The time noted for a crossing has come.
    pub(in crate::machine) fn cross_due(&mut self, line: usize) {
        self.lines[line].outgoing.is_due = false;
        self.cross(line);
    }

    /// Moves elements into the MAC, in their order, while it has room for them.
    fn cross(&mut self, line: usize) {
        while let Some(first) =
            self.lines[line].outgoing.claimed.front().filter(|first| first.is_filled).copied()
        {
            let Outgoing { until, is_due, .. } = self.lines[line].outgoing;
            // The MAC has room once no more than the rest of it is still to be sent.
            let rest = self.lines[line].fifo.saturating_sub(first.bytes);
            let room = until - self.bytes_on_line(line, rest.into());
            if room > self.now() {
                if !is_due {
                    self.lines[line].outgoing.is_due = true;
                    self.agenda.note(room, Event::Cross(line));
                }
                return;
            }
            self.lines[line].outgoing.claimed.pop_front();
            let over = self.over_buses(line, first.bytes, Way::Off, Way::On);
            self.agenda.note(over, Event::Crossed);
            self.onto_line(line, first, over);
        }
    }

    /// Lets the line send an element that the MAC has at `over`. A MAC that has not got the next element of a frame by then waits
    /// for it, where hardware would end the frame.
    fn onto_line(&mut self, line: usize, element: Claimed, over: Ticks) {
        let gap = self.lines[line].gap.0;
        let outgoing = &mut self.lines[line].outgoing;
        if element.place.is_first {
            (outgoing.began, outgoing.bytes) = (outgoing.until.max(over), gap);
        }
        outgoing.bytes += u64::from(element.bytes);
        let (began, bytes) = (outgoing.began, outgoing.bytes);
        let by_line = began + self.bytes_on_line(line, bytes);
        let by_element = over + self.bytes_on_line(line, element.bytes.into());
        let until = by_line.max(by_element);
        let outgoing = &mut self.lines[line].outgoing;
        outgoing.began += until - by_line;
        outgoing.until = until;
        if element.place.is_last {
            let span = self.on_line(line, element.frame);
            self.seen.line(line, span);
            let Claimed { job, output, frame, .. } = element;
            self.agenda.note(until, Event::Sent { job, output, bytes: frame.bytes });
        }
    }

    /// An element has left the transmit buffer, and its place is another's.
    pub(in crate::machine) fn crossed(&mut self, load: &mut dyn Load) {
        self.transmit.free += 1;
        self.wake_claimants(load);
        self.feed_transmitters(load);
    }

    /// True if frames, or parts of them, wait for the task to transmit them.
    pub(in crate::machine) fn waits_to_transmit(&self, pool: usize, task: &Task) -> bool {
        let waits = |ring: usize| !self.rings[ring].frames.is_empty();
        task.work == Work::Transmit && (!self.pools[pool].elements.is_empty() || task.from.is_some_and(waits))
    }

    /// Wakes a thread of each pool that transmits, if frames wait that it could not take before, as their lines had no room.
    fn feed_transmitters(&mut self, load: &mut dyn Load) {
        for (pool, of) in self.mapping.pools.iter().enumerate() {
            let is_idle = !self.pools[pool].hungry.is_empty();
            if is_idle && of.tasks.iter().any(|task| self.waits_to_transmit(pool, task)) {
                self.feed(pool, load);
            }
        }
    }

    /// A frame's last bit has left.
    pub(in crate::machine) fn sent(&mut self, job: u32, output: u32, bytes: u32) {
        let of = &mut self.jobs[job as usize];
        of.unsent -= 1;
        if of.places.get(output as usize).is_some_and(|place| self.order.leave(*place)) {
            self.seen.reordered += 1;
        }
        let (last, arrived) = (of.unsent == 0, of.arrived);
        self.seen.depart(bytes, self.agenda.now().since(arrived));
        if last {
            self.seen.under_way -= 1;
            self.note_end();
            self.free.push(job);
            self.tell(|watch, now| watch.leaves(now, job));
        } else {
            self.seen.further += 1;
        }
    }
}
