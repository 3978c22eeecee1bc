//! References whose end is not known when they are issued: a memory's controller chooses when their commands start.
//!
//! They leave their cluster in the order of issue. The first one waits there for room in the queue of its memory, and holds up all behind,
//! whatever memory those go to; once the cluster is full, so are the engines that issue more. What waits for a reference is told when the last
//! of its commands starts, for by then the end is known.
//!
//! Simplification: what a memory without atomic operations is given back, changed, always finds room in the queue.

use std::collections::VecDeque;

use super::script::Command;
use super::{Event, Machine, Reference, Spends, Waits};
use crate::kernel::Ticks;
use crate::mapping::Priority;
use crate::trace::Access;

/// A time that is not known yet.
pub(super) const UNKNOWN: Ticks = Ticks(u64::MAX);

/// No reference that is pending.
pub(super) const SETTLED: u32 = u32::MAX;

/// Ticket of a reference that its thread waits for at once.
pub(super) const NOW: u32 = u32::MAX - 1;

/// A reference that a thread has under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The ticket by which the thread's code knows it.
    pub(super) ticket: u32,
    /// Its number while its end is not known; [`SETTLED`] from then on.
    pub(super) reference: u32,
    /// Time of its completion; [`UNKNOWN`] until it is known.
    pub(super) done: Ticks,
}

/// Who is told of the end of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Nobody.
    Nobody,
    /// A thread, which knows it by that ticket.
    Thread { thread: usize, ticket: u32 },
    /// A ring, into which a frame is put.
    Ring { ring: usize, job: u32 },
}

/// References whose end is not known, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    references: Vec<Issue>,
    free: Vec<u32>,
}

/// A reference that is pending.
#[derive(Clone, Copy, Debug)]
struct Issue {
    command: Command,
    priority: Priority,
    /// Thread that has issued it.
    thread: Option<usize>,
    /// Who is told; absent while it is being issued.
    whose: Option<Whose>,
    /// Time of issue, once it is the next one of its cluster.
    at: Ticks,
    /// Time from which its next command has waited to enter a queue.
    since: Ticks,
    /// Address of its next command, and bytes from there on.
    next: u64,
    left: u32,
    /// Commands in a queue.
    queued: u32,
    /// Time by which all commands that have started are done.
    done: Ticks,
    stage: Stage,
}

/// State of a pending reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Under way.
    First,
    /// Read, and being written back.
    Back,
    /// Known to be done while it was being issued.
    Done,
}

/// Commands of a cluster that have not left it, and the engines that are held up by them.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    /// References in the order of issue; [`SETTLED`] for one that leaves at a time that is known.
    waiting: VecDeque<u32>,
    /// Engines that are held up until as many have left as each has issued when there was no room.
    stalled: VecDeque<Stall>,
    /// Commands that the engine whose turn it is has issued when there was no room.
    owed: u32,
    /// True if the first one waits for room in a queue.
    is_blocked: bool,
}

/// An engine that is held up.
#[derive(Clone, Copy, Debug)]
struct Stall {
    engine: usize,
    thread: Option<usize>,
    since: Ticks,
    then: Then,
    owed: u32,
}

/// Next move of an engine that was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Engine: turns to another thread.
    Leave,
    /// Engine: goes on with its thread.
    Resume,
}

impl Pending {
    fn add(&mut self, issue: Issue) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.references[number as usize] = issue;
                number
            }
            None => {
                self.references.push(issue);
                (self.references.len() - 1) as u32
            }
        }
    }

    fn of(&mut self, number: u32) -> &mut Issue {
        &mut self.references[number as usize]
    }
}

impl Machine<'_> {
    /// Issues a command on a chip with memories that choose: when the engine may go on, and when the command is done, as far as that is
    /// known. A thread that is told later has a ticket for it.
    pub(super) fn issue(&mut self, engine: usize, command: Command, whose: Whose) -> (Ticks, Ticks) {
        let now = self.now();
        let number = self.engines[engine].cluster;
        let cluster = &mut self.clusters[number];
        while cluster.departures.front().is_some_and(|departure| *departure <= now) {
            cluster.departures.pop_front();
        }
        let is_full = cluster.departures.len() + cluster.outbox.waiting.len() >= cluster.most;
        let goes = match is_full {
            true => cluster.departures.pop_front().unwrap_or_else(|| {
                cluster.outbox.owed += 1;
                UNKNOWN
            }),
            false => now,
        };
        let is_first = cluster.outbox.waiting.is_empty();
        let at = if is_first { goes.max(cluster.last) } else { UNKNOWN };
        let chooses = self.memories[usize::from(command.memory)].chooses();
        if is_first && !chooses {
            return (goes, self.refer_at(engine, at, command));
        }
        let thread = self.engines[engine].current;
        if is_first && at <= now {
            let Command { memory, access, address, bytes, purpose } = command;
            let of = &mut self.memories[usize::from(memory)];
            if let Some(done) = of.serve_at_once(now, (address, bytes, access), purpose) {
                self.clusters[number].last = now;
                if let (Some(watch), Some(thread)) = (&mut self.watch, thread) {
                    let memory = memory.into();
                    watch.refers(now, &Reference { thread, memory, purpose, access, bytes, at: now, done });
                }
                return (goes, done);
            }
        }
        let reference = self.pending.add(Issue {
            command,
            priority: thread.map_or(Priority::Normal, |thread| self.threads[thread].priority),
            thread,
            whose: None,
            at: UNKNOWN,
            since: UNKNOWN,
            next: command.address,
            left: command.bytes.max(1),
            queued: 0,
            done: Ticks::ZERO,
            stage: Stage::First,
        });
        self.clusters[number].outbox.waiting.push_back(reference);
        match is_first && at > now {
            true => {
                self.clusters[number].last = at;
                self.agenda.note(at, Event::Outbox(number));
            }
            false if is_first => self.empty_outbox(number),
            false => {}
        }
        let issue = self.pending.of(reference);
        if issue.stage == Stage::Done {
            let done = issue.done;
            self.pending.free.push(reference);
            return (goes, done);
        }
        issue.whose = Some(whose);
        if let Whose::Thread { thread, ticket } = whose {
            self.threads[thread].tickets.push(Held { ticket, reference, done: UNKNOWN });
        }
        (goes, UNKNOWN)
    }

    /// Lets commands out of a cluster, as far as there is room for them.
    pub(super) fn empty_outbox(&mut self, number: usize) {
        let now = self.now();
        while let Some(reference) = self.clusters[number].outbox.waiting.front().copied() {
            let cluster = &self.clusters[number];
            if cluster.outbox.is_blocked || cluster.last > now {
                return;
            }
            if reference != SETTLED && !self.let_out(number, reference) {
                return;
            }
            let outbox = &mut self.clusters[number].outbox;
            outbox.waiting.pop_front();
            let Some(first) = outbox.stalled.front_mut() else { continue };
            first.owed = first.owed.saturating_sub(1);
            if first.owed == 0 {
                let stall = outbox.stalled.pop_front();
                stall.into_iter().for_each(|stall| self.release_engine(stall));
            }
        }
    }

    /// Gives a reference to its memory: true if all of it is there now.
    fn let_out(&mut self, cluster: usize, reference: u32) -> bool {
        let now = self.now();
        let issue = self.pending.of(reference);
        if issue.at == UNKNOWN {
            (issue.at, issue.since) = (now, now);
        }
        let Command { memory, access, address, bytes, purpose } = issue.command;
        if !self.memories[usize::from(memory)].chooses() {
            let underway = self.memories[usize::from(memory)].refer(now, address, bytes, access, purpose);
            self.clusters[cluster].last = underway.admitted;
            self.known(reference, underway.done);
            if underway.admitted > now {
                if let Some(first) = self.clusters[cluster].outbox.waiting.front_mut() {
                    *first = SETTLED;
                }
                self.agenda.note(underway.admitted, Event::Outbox(cluster));
                return false;
            }
            return true;
        }
        loop {
            let Issue { next, left, priority, since, .. } = *self.pending.of(reference);
            if left == 0 {
                self.clusters[cluster].last = now;
                return true;
            }
            let of = &mut self.memories[usize::from(memory)];
            let (lane, some) = of.lane(next, left, access);
            if !of.has_room(lane, priority) {
                self.clusters[cluster].outbox.is_blocked = true;
                of.controller().into_iter().for_each(|of| of.block(lane, priority, cluster));
                return false;
            }
            of.enter(reference, (next, some, access), priority, since);
            let issue = self.pending.of(reference);
            (issue.next, issue.left, issue.since) = (next + u64::from(some), left - some, now);
            issue.queued += 1;
            self.serve(memory, lane);
        }
    }

    /// Starts the command of a memory's lane that is next, if its pins and its bank are free.
    pub(super) fn serve(&mut self, memory: u16, lane: usize) {
        let now = self.now();
        let of = usize::from(memory);
        self.memories[of].controller().into_iter().for_each(|controller| controller.reach(lane, now));
        while let Some(started) = self.memories[of].start(lane, now) {
            self.started(started.reference, started.done);
            let controller = self.memories[of].controller();
            let controller = controller.filter(|of| of.has_room(lane, started.priority));
            // Who is let in may wait for room again at once.
            if let Some(cluster) = controller.and_then(|of| of.unblock(lane, started.priority)) {
                self.clusters[cluster].outbox.is_blocked = false;
                self.empty_outbox(cluster);
            }
        }
        if let Some(at) = self.memories[of].expect(lane) {
            self.agenda.note(at, Event::Serve { memory, lane: lane as u32 });
        }
    }

    /// A command of a reference has started, and will be done at `done`.
    fn started(&mut self, reference: u32, done: Ticks) {
        let issue = self.pending.of(reference);
        issue.queued -= 1;
        issue.done = issue.done.max(done);
        if issue.left > 0 || issue.queued > 0 {
            return;
        }
        let Issue { command, done, stage, .. } = *issue;
        let is_written_back = self.memories[usize::from(command.memory)].is_written_back(command.access);
        if is_written_back && stage == Stage::First {
            return self.agenda.note(done, Event::Back(reference));
        }
        let at = self.pending.of(reference).at;
        let of = &mut self.memories[usize::from(command.memory)];
        of.count(command.purpose, command.bytes, done.since(at));
        self.known(reference, done);
    }

    /// Write-back of a value that was read and changed.
    pub(super) fn write_back(&mut self, reference: u32) {
        let now = self.now();
        let issue = self.pending.of(reference);
        issue.stage = Stage::Back;
        let Issue { command, priority, .. } = *issue;
        let (mut next, mut left) = (command.address, command.bytes.max(1));
        let mut lanes = Vec::new();
        while left > 0 {
            let of = &mut self.memories[usize::from(command.memory)];
            let (lane, some) = of.lane(next, left, Access::Write);
            of.enter(reference, (next, some, Access::Write), priority, now);
            self.pending.of(reference).queued += 1;
            (next, left) = (next + u64::from(some), left - some);
            lanes.push(lane);
        }
        lanes.into_iter().for_each(|lane| self.serve(command.memory, lane));
    }

    /// The end of a reference is known: whoever waits for it is told.
    fn known(&mut self, reference: u32, done: Ticks) {
        let issue = self.pending.of(reference);
        let Issue { command, whose, thread, at, .. } = *issue;
        issue.done = done;
        if let (Some(watch), Some(thread)) = (&mut self.watch, thread) {
            let Command { memory, access, bytes, purpose, .. } = command;
            let reference = Reference { thread, memory: memory.into(), purpose, access, bytes, at, done };
            watch.refers(self.agenda.now(), &reference);
        }
        match whose {
            None => {
                self.pending.of(reference).stage = Stage::Done;
                return;
            }
            Some(Whose::Nobody) => {}
            Some(Whose::Ring { ring, job }) => self.agenda.note(done, Event::Deliver { ring, job }),
            Some(Whose::Thread { thread, .. }) => {
                let held = self.threads[thread].tickets.iter_mut().find(|held| held.reference == reference);
                // Nobody waits any more for a write of a task that has ended.
                if let Some(held) = held {
                    (held.reference, held.done) = (SETTLED, done);
                    self.wake(thread);
                }
            }
        }
        self.pending.free.push(reference);
    }

    /// Wakes a thread that waits for a ticket once the end of all references with it is known.
    fn wake(&mut self, thread: usize) {
        let Some(ticket) = self.threads[thread].awaits else { return };
        if let Some(done) = self.end_of(thread, ticket).filter(|done| *done != UNKNOWN) {
            self.threads[thread].awaits = None;
            self.agenda.note(done, Event::Ready(thread));
        }
    }

    /// The time at which all references of a thread with that ticket are done, which then are forgotten; [`UNKNOWN`] where that is not known,
    /// `None` where there are none.
    pub(super) fn end_of(&mut self, thread: usize, ticket: u32) -> Option<Ticks> {
        let tickets = &mut self.threads[thread].tickets;
        let done = tickets.iter().filter(|held| held.ticket == ticket).map(|held| held.done).max()?;
        if done != UNKNOWN {
            tickets.retain(|held| held.ticket != ticket);
        }
        Some(done)
    }

    /// The thread waits for a ticket whose end is not known; its engine turns to another one at `goes`.
    pub(super) fn wait_for(&mut self, engine: usize, thread: usize, goes: Ticks, ticket: u32) {
        self.threads[thread].waits = Waits::Memory;
        self.threads[thread].awaits = Some(ticket);
        self.leave(engine, goes);
    }

    /// The engine does not wait for room for what was issued for it.
    pub(super) fn go_past(&mut self, engine: usize) {
        self.clusters[self.engines[engine].cluster].outbox.owed = 0;
    }

    /// The engine is held up until the commands of its cluster have left for which there was no room.
    pub(super) fn hold(&mut self, engine: usize, thread: Option<usize>, then: Then) {
        let since = self.now();
        self.engines[engine].held = true;
        let cluster = &mut self.clusters[self.engines[engine].cluster];
        let owed = std::mem::take(&mut cluster.outbox.owed);
        cluster.outbox.stalled.push_back(Stall { engine, thread, since, then, owed });
    }

    /// The engine that was held up goes on.
    fn release_engine(&mut self, stall: Stall) {
        let Stall { engine, thread, since, then, .. } = stall;
        let span = self.now().since(since);
        self.seen.engines[engine].stalled += span;
        if let Some(thread) = thread {
            self.tell(|watch, _| watch.spends(thread, Spends::Stalled, since, span));
        }
        let event = match then {
            Then::Leave => Event::Free(engine),
            Then::Resume => {
                self.engines[engine].held = false;
                Event::Resume(engine)
            }
        };
        self.agenda.note(self.agenda.now(), event);
    }
}
