//! A chip at work: engines with threads, memories, rings, buffers and ports, in modelled time.
//!
//! A frame that finds room in its port's MAC is run by the [`Load`] at once, with its first bit; the acts of its stages are then
//! played back, task by task, on the threads that the mapping assigns. Engines issue one instruction after another; a
//! waiting thread yields its engine to the thread that has been ready longest. A put to a full ring blocks, so that
//! frames are lost only where they come in.
//!
//! Simplification: the effects of a frame's stages take place on its arrival, all at once and in the order of arrival.
//! The outcome is therefore the same as on every other host; races between engines over one datum are not modelled.

use std::collections::{HashMap, VecDeque};

use crate::agenda::Agenda;
use crate::description::{Chip, bound};
use crate::kernel::{Ticks, Timebase};
use crate::load::{Job, Length, Load};
use crate::mapping::{Mapping, Priority, Task, Work};
use crate::trace::Access;

mod build;
mod cache;
mod controller;
mod deadlock;
mod edge;
mod engine;
mod exit;
mod list;
mod memory;
mod order;
mod pending;
mod program;
mod reorder;
mod rotation;
mod script;
mod seen;
#[cfg(test)]
mod tests;
mod timer;
mod unit;
mod watch;

use cache::Cache;
use edge::{Buffer, Bus, Element, Line, Waiting};
use list::{Link, Linked, Segments};
use memory::SharedMemory;
use order::Order;
use pending::{Held, Outbox, Pending, UNKNOWN, Whose};
use program::Part;
use reorder::Reorder;
use rotation::Rotation;
use script::{Command, Holds, Move, Remembered, View, Writer};
use timer::Clock;
use unit::Unit;

pub(crate) use cache::{CachePlace, CacheSeen};
pub(crate) use memory::{Purpose, Traffic};
pub(crate) use reorder::Ticket;
pub(crate) use seen::{Count, Window};
pub(crate) use watch::{Reference, Spends, Track, Watch};

pub use build::{Ideal, MachineError};
pub use deadlock::Deadlock;
pub use program::PROGRAMS;

/// A chip at work.
pub struct Machine<'a> {
    chip: &'a Chip,
    mapping: &'a Mapping,
    time: Timebase,
    ideal: Ideal,
    agenda: Agenda<Event>,
    views: Vec<View>,
    engines: Vec<Engine>,
    clusters: Vec<Cluster>,
    threads: Vec<Thread>,
    pools: Vec<Crew>,
    /// Timers of the mapping; their threads are behind those of pools.
    clocks: Vec<Clock>,
    rings: Vec<Ring>,
    /// Segments of linked lists in the queues of units, by unit and queue.
    queued: HashMap<(usize, u32), u32>,
    /// Segments of frames, where frames are in linked lists.
    segments: Option<Segments>,
    memories: Vec<SharedMemory>,
    /// True if a memory chooses among the commands that wait for it.
    chooses: bool,
    /// References whose end is not known.
    pending: Pending,
    /// The engines that work and have a cache.
    cached: Vec<usize>,
    units: Vec<Unit>,
    /// Place of the stage that puts cells into their PDUs.
    reassembly: usize,
    buses: Vec<Bus>,
    lines: Vec<Line>,
    receive: Buffer,
    transmit: Buffer,
    /// Elements in MACs, which wait for room in the receive buffer.
    incoming: Waiting,
    /// Elements in the receive buffer, which wait for threads.
    received: Waiting,
    /// Threads that wait for places in the transmit buffer.
    claimants: VecDeque<usize>,
    /// Frames that have begun to depart.
    departures: u64,
    order: Order,
    reorder: Option<Reorder>,
    jobs: Vec<Job>,
    free: Vec<u32>,
    seen: seen::Tallies,
    watch: Option<&'a mut dyn Watch>,
}

/// Event of the simulation.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next frame's first bit is there.
    Arrive { port: u16, length: Length },
    /// An element's last bit is there.
    Element(Element),
    /// An element is in the receive buffer.
    Received(Element),
    /// An engine's thread comes to a move that is not mere time.
    Reach(usize),
    /// An engine goes on with its thread.
    Resume(usize),
    /// An engine that was held up is free.
    Free(usize),
    /// A thread's wait is over.
    Ready(usize),
    /// A frame is in a ring.
    Deliver { ring: usize, job: u32 },
    /// A reorder buffer has released a frame into a ring.
    Release { ring: usize, job: u32 },
    /// Commands of a cluster may leave it.
    Outbox(usize),
    /// A memory may start its next command.
    Serve { memory: u16, lane: u32 },
    /// Write-back of a value that a reference has read and changed.
    Back(u32),
    /// A timer wakes.
    Tick,
    /// A line's MAC has room for the next element.
    Cross(usize),
    /// An element has left the transmit buffer.
    Crossed,
    /// A frame has left: the one of that place among the job's outputs.
    Sent { job: u32, output: u32, bytes: u32 },
}

/// An engine, or a unit in its place.
#[derive(Clone, Debug)]
struct Engine {
    view: usize,
    cluster: usize,
    switch: Ticks,
    current: Option<usize>,
    held: bool,
    ready: VecDeque<usize>,
    remembered: Remembered,
    cache: Option<Cache>,
    /// Turns of its threads, where some of them poll.
    rotation: Option<Rotation>,
}

/// Engines that share a command bus. It takes commands in order, and holds so many.
#[derive(Clone, Debug)]
struct Cluster {
    most: usize,
    departures: VecDeque<Ticks>,
    last: Ticks,
    /// Commands after those, which leave at times that show later.
    outbox: Outbox,
}

#[derive(Clone, Debug)]
struct Thread {
    engine: usize,
    pool: usize,
    /// Place among the threads of its pool.
    place: usize,
    task: usize,
    /// Frame that it works on, and the element, where it receives or transmits.
    element: Element,
    script: Vec<Move>,
    next: usize,
    tickets: Vec<Held>,
    /// Ticket whose end it waits for, while that is not known.
    awaits: Option<u32>,
    waits: Waits,
    /// Priority of its task's commands.
    priority: Priority,
}

/// Cause of a thread's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Frames,
    Engine,
    Memory,
    Room(usize),
    Elements,
}

/// A pool's idle threads, and its elements to transmit.
#[derive(Clone, Debug, Default)]
struct Crew {
    /// The threads that have nothing to do, the one that has been so longest first.
    hungry: VecDeque<usize>,
    /// Elements of frames that have begun to depart, one at most of each.
    elements: Vec<Element>,
}

#[derive(Clone, Debug)]
struct Ring {
    most: usize,
    /// Queues of strict priority.
    priorities: u32,
    memory: Option<usize>,
    linked: Option<Linked>,
    entry: u32,
    latency: Ticks,
    /// Number of stages that frames in it have passed.
    passed: usize,
    /// Frames in the order in which they are taken: by priority, and within one as they came.
    frames: VecDeque<u32>,
    reserved: usize,
    blocked: VecDeque<usize>,
    /// True if a unit gives frames to it in the order in which they were received.
    is_ordered: bool,
    /// Contexts of that unit whose first frame waits for room.
    waiting: VecDeque<u32>,
}

impl<'a> Machine<'a> {
    /// Runs all frames of `load` through the machine, and returns the counts; the time before arrival number `warm` is
    /// left out, and the time after the last arrival, too, unless `warm` is 0.
    pub(crate) fn run(&mut self, load: &mut dyn Load, warm: u64) -> Result<Window, Deadlock> {
        self.seen.warm = warm;
        self.start(load);
        self.expect(load);
        self.expect_tick();
        while let Some(event) = self.agenda.take() {
            match event {
                Event::Arrive { port, length } => self.arrive(port, length, load),
                Event::Element(element) => self.element_came(element),
                Event::Received(element) => self.received(element, load),
                Event::Reach(engine) => self.reach(engine, load),
                Event::Resume(engine) => self.go(engine, Ticks::ZERO),
                Event::Free(engine) => {
                    self.engines[engine].held = false;
                    self.dispatch(engine);
                }
                Event::Ready(thread) => self.ready(thread),
                Event::Deliver { ring, job } => self.deliver(ring, job, load),
                Event::Release { ring, job } => self.enter(ring, job, load),
                Event::Outbox(cluster) => self.empty_outbox(cluster),
                Event::Serve { memory, lane } => self.serve(memory, lane as usize),
                Event::Back(reference) => self.write_back(reference),
                Event::Tick => self.tick(),
                Event::Cross(line) => self.cross_due(line),
                Event::Crossed => self.crossed(load),
                Event::Sent { job, output, bytes } => self.sent(job, output, bytes),
            }
        }
        if self.seen.under_way > 0 {
            return Err(self.deadlock());
        }
        if self.watch.is_some() {
            self.tell_last_looks();
        }
        Ok(self.window())
    }

    /// Returns the conversion of ticks to seconds.
    pub fn timebase(&self) -> Timebase {
        self.time
    }

    fn now(&self) -> Ticks {
        self.agenda.now()
    }

    /// Passes an event to the observer, if there is one.
    #[inline]
    fn tell(&mut self, what: impl FnOnce(&mut dyn Watch, Ticks)) {
        if let Some(watch) = &mut self.watch {
            what(&mut **watch, self.agenda.now());
        }
    }

    // ---- Work for threads -----------------------------------------------------------------------------------------

    /// Gives every thread of tasks without a ring or a buffer before them something to do.
    fn start(&mut self, load: &mut dyn Load) {
        for thread in (0..self.threads.len()).filter(|thread| !self.is_timer(*thread)).collect::<Vec<_>>() {
            let pool = self.threads[thread].pool;
            if self.mapping.pools[pool].tasks.iter().any(exit::is_closed) {
                self.seen.is_closed = true;
                self.pools[pool].hungry.retain(|hungry| *hungry != thread);
                if self.take_work(thread, load) {
                    self.ready(thread);
                }
            }
        }
    }

    /// Finds a frame for a thread that is free: from the last of its pool's tasks that has one.
    fn take_work(&mut self, thread: usize, load: &mut dyn Load) -> bool {
        let pool = self.threads[thread].pool;
        let mapping = self.mapping;
        let mut is_reserve = false;
        for (number, task) in mapping.pools[pool].tasks.iter().enumerate().rev() {
            // Somebody must be there to transmit when a line has room: who is waited for by the rings does not wait for them.
            if is_reserve && self.pools[pool].hungry.is_empty() {
                break;
            }
            let whole = |job| Element { job, ..Element::default() };
            let element = match (&task.work, task.from) {
                (Work::Receive(_), _) => self.take_received(thread, task),
                (Work::Transmit, Some(ring)) => {
                    self.take_element(pool).or_else(|| self.take_departing(ring).map(|job| self.depart(job)))
                }
                (_, Some(ring)) => self.take_from(ring).map(whole),
                (_, None) => self.draw(load).map(whole),
            };
            if let Some(element) = element {
                self.begin(thread, number, task, element);
                return true;
            }
            is_reserve |= self.waits_to_transmit(pool, task);
        }
        self.threads[thread].waits = Waits::Frames;
        self.pools[pool].hungry.push_back(thread);
        false
    }

    /// A frame for a thread that takes the next one as soon as it is done with one.
    fn draw(&mut self, load: &mut dyn Load) -> Option<u32> {
        let arrival = self.next_arrival(load)?;
        self.open();
        self.seen.offer(arrival.length.bytes);
        Some(self.job(self.now(), load))
    }

    fn take_from(&mut self, ring: usize) -> Option<u32> {
        self.take_at(ring, 0)
    }

    /// Takes the first frame that can depart: frames wait before each line by themselves.
    fn take_departing(&mut self, ring: usize) -> Option<u32> {
        let place = self.rings[ring].frames.iter().position(|job| self.can_depart(*job))?;
        self.take_at(ring, place)
    }

    fn take_at(&mut self, ring: usize, place: usize) -> Option<u32> {
        let of = &mut self.rings[ring];
        let job = of.frames.remove(place)?;
        if let Some(thread) = of.blocked.pop_front() {
            self.agenda.note(self.agenda.now(), Event::Ready(thread));
        }
        let filled = of.frames.len() + of.reserved;
        self.tell(|watch, now| watch.fills(now, ring, filled));
        self.release_into(ring);
        Some(job)
    }

    fn feed_receivers(&mut self, load: &mut dyn Load) {
        let mapping = self.mapping;
        for (pool, of) in mapping.pools.iter().enumerate() {
            if self.received.is_empty() {
                return;
            }
            let receives = |thread: &usize| {
                let mut tasks = of.tasks.iter().filter(|task| task.receives());
                tasks.any(|task| self.has_received(*thread, task).is_some())
            };
            if let Some(place) = self.pools[pool].hungry.iter().position(receives) {
                let thread = self.pools[pool].hungry.remove(place);
                self.employ(thread, load);
            }
        }
    }

    /// Wakes a thread of the pool that has nothing to do.
    fn feed(&mut self, pool: usize, load: &mut dyn Load) {
        let thread = self.pools[pool].hungry.pop_front();
        self.employ(thread, load);
    }

    /// Gives a thread something to do, if there is any.
    fn employ(&mut self, thread: Option<usize>, load: &mut dyn Load) {
        if let Some(thread) = thread.filter(|thread| self.take_work(*thread, load)) {
            self.ready(thread);
        }
    }

    /// A frame is where it was put: in the ring, or in its place before it.
    fn deliver(&mut self, ring: usize, job: u32, load: &mut dyn Load) {
        if self.is_ordered(ring, job) {
            self.fill_place(ring, job);
        } else {
            self.enter(ring, job, load);
        }
    }

    /// A frame is in a ring, where room was reserved for it.
    fn enter(&mut self, ring: usize, job: u32, load: &mut dyn Load) {
        self.rings[ring].reserved -= 1;
        let Machine { rings, jobs, .. } = self;
        let of = &mut rings[ring];
        let priority = |job: u32| of.priority(jobs[job as usize].precedence);
        let own = priority(job);
        let place = match of.priorities {
            1 => of.frames.len(),
            _ => of.frames.partition_point(|other| priority(*other) >= own),
        };
        of.frames.insert(place, job);
        let mapping = self.mapping;
        for (pool, of) in mapping.pools.iter().enumerate() {
            if of.tasks.iter().any(|task| task.from == Some(ring)) && !self.pools[pool].hungry.is_empty() {
                return self.feed(pool, load);
            }
        }
    }

    /// Writes the thread's script for that frame, or element of one.
    fn begin(&mut self, thread: usize, number: usize, task: &Task, element: Element) {
        self.tell(|watch, now| watch.begins(now, thread, number, element.job));
        let of = &mut self.threads[thread];
        of.script.clear();
        (of.next, of.task, of.element, of.priority) = (0, number, element, task.priority);
        of.tickets.clear();
        let is_part = matches!(task.work, Work::Receive(_) | Work::Transmit);
        let holds = if is_part || task.from.is_none() { Holds::Nothing } else { Holds::Packet };
        let reassembly = self.reassembly;
        let (mut writer, rings, unit, ends) = self.writer(thread, holds);
        let job = ends.job;
        let from = task.from.map(|ring| (ring as u16, &rings[ring]));
        match &task.work {
            Work::Receive(stages) => {
                let part = Part::of(element, job.length, ends.receive);
                match unit {
                    Some(unit) => writer.receive_in_unit(unit, part),
                    None => writer.receive(part, job.length.is_cell() && stages.contains(&reassembly)),
                }
            }
            Work::Transmit => {
                let of = job.outputs.get(element.output as usize);
                let length = of.map_or(Length::of(0), |output| output.length);
                let part = Part::of(element, length, ends.transmit);
                let first = from.filter(|_| part.is_first && element.output == 0);
                match unit {
                    Some(unit) => writer.transmit_in_unit(unit, first, from, part),
                    None => writer.transmit(first, from, part, job),
                }
            }
            Work::Stages(stages) => {
                if let Some((number, ring)) = from {
                    if unit.is_none() {
                        writer.take(number, ring, job);
                    }
                    writer.link_frame(number, ring, job, Link::Dequeue, exit::access(unit));
                }
                match unit {
                    Some(unit) => writer.stages_in_unit(unit, job.length.bytes, job.acts_of(stages)),
                    None => {
                        writer.acts(job.acts_of(stages));
                        writer.extra(task.extra, Purpose::Extra);
                    }
                }
                exit::go_on(&mut writer, task, job, rings, unit);
            }
        }
    }

    /// Goes on with a frame whose last element the thread has received.
    fn go_on(&mut self, thread: usize) {
        let mapping = self.mapping;
        let Thread { pool, task, .. } = self.threads[thread];
        let Some(task) = mapping.pools[pool].tasks.get(task) else { return };
        let (mut writer, rings, unit, ends) = self.writer(thread, Holds::Packet);
        let stages = task.stages();
        match unit {
            _ if stages.is_empty() => {}
            Some(unit) => writer.stages_in_unit(unit, ends.job.length.bytes, ends.job.acts_of(&stages)),
            None => {
                if ends.receive.elements(ends.job.length) == 1 {
                    writer.hold_header();
                }
                writer.acts(ends.job.acts_of(&stages));
                writer.extra(task.extra, Purpose::Extra);
            }
        }
        exit::go_on(&mut writer, task, ends.job, rings, unit);
    }

    /// A writer at the end of the thread's script, and what it looks at.
    fn writer(&mut self, thread: usize, holds: Holds) -> (Writer<'_>, &[Ring], Option<&Unit>, Ends<'_>) {
        let Machine { threads, engines, views, jobs, rings, segments, receive, transmit, chip, .. } = self;
        let unit = program::unit_of(&self.mapping.pools[threads[thread].pool], chip);
        let thread = &mut threads[thread];
        let engine = &mut engines[thread.engine];
        engine.remembered.begin_script();
        let job = &jobs[thread.element.job as usize];
        let writer = Writer {
            moves: &mut thread.script,
            view: &views[engine.view],
            remembered: &mut engine.remembered,
            slot: thread.element.job,
            segment: segments.as_ref().map(|segments| segments.offset(job.segment)),
            holds,
        };
        let ends = Ends { job, receive, transmit };
        (writer, rings, unit.map(|unit| &self.units[unit]), ends)
    }

    // ---- Rings, and the end of the way -----------------------------------------------------------------------------

    fn put(&mut self, engine: usize, number: usize, ring: usize) {
        let job = self.threads[number].element.job;
        if !self.is_ordered(ring, job) {
            if !self.has_room(ring) {
                self.rings[ring].blocked.push_back(number);
                self.threads[number].next -= 1;
                self.threads[number].waits = Waits::Room(ring);
                self.seen.rings[ring].blocked += 1;
                return self.leave(engine, self.now());
            }
            self.reserve(ring);
        }
        let of = &self.rings[ring];
        let (memory, put) = (of.memory, of.command(4, Access::Write));
        match memory {
            Some(_) => {
                let (goes, done) = self.command(engine, put, Whose::Ring { ring, job });
                if done != UNKNOWN {
                    self.agenda.note(done, Event::Deliver { ring, job });
                }
                self.resume(engine, goes);
            }
            None => {
                self.agenda.note(self.now(), Event::Deliver { ring, job });
                self.go(engine, Ticks::ZERO);
            }
        }
    }

    fn has_room(&self, ring: usize) -> bool {
        let of = &self.rings[ring];
        of.frames.len() + of.reserved < of.most
    }

    /// Reserves room in a ring for a frame that is put into it.
    fn reserve(&mut self, ring: usize) {
        let of = &mut self.rings[ring];
        of.reserved += 1;
        let filled = of.frames.len() + of.reserved;
        let seen = &mut self.seen.rings[ring];
        seen.puts += 1;
        seen.filled += filled as u64;
        seen.most = seen.most.max(filled as u64);
        self.tell(|watch, now| watch.fills(now, ring, filled));
    }

    /// A frame goes no further.
    fn end(&mut self, job: u32) {
        self.return_ticket(job);
        let of = &self.jobs[job as usize];
        of.places.iter().for_each(|place| self.order.remove(*place));
        self.seen.end(of.length.bytes, self.agenda.now().since(of.arrived));
        self.seen.under_way -= 1;
        self.note_end();
        self.free.push(job);
        self.tell(|watch, now| watch.leaves(now, job));
    }
}

/// Frame of a script, and the buffers that it crosses.
struct Ends<'a> {
    job: &'a Job,
    receive: &'a Buffer,
    transmit: &'a Buffer,
}

impl Ring {
    /// The queue of frames of that class selector; the highest number is served first.
    fn priority(&self, precedence: u8) -> u32 {
        u32::from(precedence) * self.priorities / bound::PRIORITIES
    }

    /// A put or a get, as a command to the memory that the ring lies in.
    fn command(&self, address: u64, access: Access) -> Command {
        let memory = self.memory.unwrap_or(0) as u16;
        Command { memory, access, address, bytes: self.entry, purpose: Purpose::Ring }
    }
}
