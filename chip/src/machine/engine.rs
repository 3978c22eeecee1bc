//! Engines: threads that take turns, instruction by instruction, and the commands that they issue.

use super::cache::Issued;
use super::script::{Command, Move, WRITES};
use super::{Event, Machine, Reference, Spends, Waits};
use crate::kernel::Ticks;
use crate::load::Load;
use crate::trace::{Access, Wait};

impl Machine<'_> {
    /// The thread can go on when its engine comes to it.
    pub(super) fn ready(&mut self, thread: usize) {
        self.threads[thread].waits = Waits::Engine;
        let engine = self.threads[thread].engine;
        self.engines[engine].ready.push_back(thread);
        if self.engines[engine].current.is_none() && !self.engines[engine].held {
            self.dispatch(engine);
        }
    }

    /// Gives the engine to the thread that has been ready longest.
    pub(super) fn dispatch(&mut self, engine: usize) {
        let of = &mut self.engines[engine];
        of.current = of.ready.pop_front();
        if let Some(thread) = of.current {
            let switch = of.switch;
            self.seen.engines[engine].aborted += switch;
            self.tell(|watch, now| watch.spends(thread, Spends::Switching, now, switch));
            self.go(engine, switch);
        }
    }

    /// Lets the engine's thread go on, up to the next move that is not mere time.
    pub(super) fn go(&mut self, engine: usize, after: Ticks) {
        let Some(number) = self.engines[engine].current else { return };
        let thread = &mut self.threads[number];
        let mut at = self.agenda.now() + after;
        while let Some(step) = thread.script.get(thread.next) {
            match step {
                Move::Busy(busy) => {
                    if let Some(watch) = &mut self.watch {
                        watch.spends(number, Spends::Executing, at, busy.executing);
                        watch.spends(number, Spends::Aborted, at + busy.executing, busy.aborted);
                    }
                    at += busy.executing + busy.aborted;
                    let seen = &mut self.seen.engines[engine];
                    seen.instructions += u64::from(busy.instructions);
                    seen.executing += busy.executing;
                    seen.aborted += busy.aborted;
                }
                // What lay in the engine itself was there at once, and has no ticket.
                Move::Await(ticket)
                    if thread.tickets.iter().all(|(held, done)| held != ticket || *done <= at) =>
                {
                    thread.tickets.retain(|(held, _)| held != ticket);
                }
                _ => break,
            }
            thread.next += 1;
        }
        self.agenda.note(at, Event::Reach(engine));
    }

    pub(super) fn reach(&mut self, engine: usize, load: &mut dyn Load) {
        let Some(number) = self.engines[engine].current else { return };
        let thread = &mut self.threads[number];
        let Some(step) = thread.script.get(thread.next).copied() else {
            return self.finish(engine, number, load);
        };
        thread.next += 1;
        match step {
            // Time alone is played out by `go`.
            Move::Busy(_) => self.go(engine, Ticks::ZERO),
            Move::Refer(command, wait) => match (self.refer(engine, command), wait) {
                (Issued::Hit(latency), _) => self.go(engine, latency),
                (Issued::Sent { goes, done }, Wait::Now) => {
                    self.wait_until(engine, number, goes, done, Waits::Memory)
                }
                (Issued::Sent { goes, done }, Wait::Later(ticket)) => {
                    self.threads[number].tickets.push((ticket, done));
                    self.resume(engine, goes);
                }
            },
            Move::Await(ticket) => {
                let tickets = &mut self.threads[number].tickets;
                let done = tickets.iter().position(|(held, _)| *held == ticket);
                let done = done.map_or(self.agenda.now(), |place| tickets.swap_remove(place).1);
                if done <= self.agenda.now() {
                    self.go(engine, Ticks::ZERO);
                } else {
                    self.wait_until(engine, number, self.agenda.now(), done, Waits::Memory);
                }
            }
            Move::Settle => {
                let tickets = &mut self.threads[number].tickets;
                let writes = tickets.iter().filter(|(held, _)| *held == WRITES);
                let done = writes.map(|(_, done)| *done).max().unwrap_or_default();
                tickets.retain(|(held, _)| *held != WRITES);
                if done <= self.agenda.now() {
                    self.go(engine, Ticks::ZERO);
                } else {
                    self.wait_until(engine, number, self.agenda.now(), done, Waits::Memory);
                }
            }
            Move::Hand { unit, bytes } => {
                let done = self.hand(unit.into(), bytes);
                self.wait_until(engine, number, self.now(), done, Waits::Memory);
            }
            Move::Give { unit, bytes } => {
                self.hand(unit.into(), bytes);
                self.go(engine, Ticks::ZERO);
            }
            Move::Link { ring, link, number: segment } => {
                let goes = self.link(engine, number, ring.into(), link, segment);
                self.resume(engine, goes);
            }
            Move::Get(ring) => {
                let ring = &self.rings[usize::from(ring)];
                let get = ring.command(0, Access::Read);
                let (goes, done) = self.command(engine, get);
                self.wait_until(engine, number, goes, done, Waits::Memory);
            }
            Move::Release => {
                self.release(number);
                self.go(engine, Ticks::ZERO);
            }
            Move::Gather => {
                self.gather(number);
                self.go(engine, Ticks::ZERO);
            }
            Move::Claim => self.claim(engine, number, load),
            Move::Send => {
                if self.is_last_element(number) {
                    let job = self.threads[number].element.job;
                    self.tell(|watch, now| watch.sends(now, number, job));
                }
                self.send(number);
                self.go(engine, Ticks::ZERO);
            }
            Move::Sleep(span) => {
                self.wait_until(engine, number, self.now(), self.now() + span, Waits::Memory)
            }
            Move::Put(ring) => self.put(engine, number, ring.into()),
            Move::End => {
                let job = self.threads[number].element.job;
                self.tell(|watch, now| watch.sends(now, number, job));
                self.end(job);
                self.go(engine, Ticks::ZERO);
            }
        }
    }

    /// A thread is done with its task: it takes the next frame, or its engine turns to another thread.
    fn finish(&mut self, engine: usize, thread: usize, load: &mut dyn Load) {
        self.tell(|watch, now| watch.finishes(now, thread));
        if self.take_work(thread, load) {
            self.threads[thread].waits = Waits::Engine;
            self.go(engine, Ticks::ZERO);
        } else {
            self.dispatch(engine);
        }
    }

    /// Issues a command: when the engine may go on, and when it is done.
    pub(super) fn command(&mut self, engine: usize, command: Command) -> (Ticks, Ticks) {
        let Command { memory, access, address, bytes, purpose } = command;
        let now = self.agenda.now();
        let cluster = &mut self.clusters[self.engines[engine].cluster];
        let mut goes = now;
        while cluster.departures.front().is_some_and(|departure| *departure <= now) {
            cluster.departures.pop_front();
        }
        if cluster.departures.len() >= cluster.most {
            goes = cluster.departures.pop_front().unwrap_or(now);
        }
        let at = goes.max(cluster.last);
        let underway = self.memories[usize::from(memory)].refer(at, address, bytes, access, purpose);
        if underway.admitted > now {
            cluster.departures.push_back(underway.admitted);
        }
        cluster.last = underway.admitted;
        if let (Some(watch), Some(thread)) = (&mut self.watch, self.engines[engine].current) {
            let reference =
                Reference { thread, memory: memory.into(), purpose, access, bytes, at, done: underway.done };
            watch.refers(now, &reference);
        }
        (goes, underway.done)
    }

    /// The thread waits until `done`; its engine is held up until `goes`, and then turns to another one.
    fn wait_until(&mut self, engine: usize, thread: usize, goes: Ticks, done: Ticks, waits: Waits) {
        self.threads[thread].waits = waits;
        self.agenda.note(done.max(goes), Event::Ready(thread));
        self.leave(engine, goes);
    }

    /// The engine turns to another thread at `goes`.
    pub(super) fn leave(&mut self, engine: usize, goes: Ticks) {
        let now = self.now();
        let left = self.engines[engine].current.take();
        if goes > now {
            self.seen.engines[engine].stalled += goes.since(now);
            if let Some(thread) = left {
                self.tell(|watch, _| watch.spends(thread, Spends::Stalled, now, goes.since(now)));
            }
            self.engines[engine].held = true;
            self.agenda.note(goes, Event::Free(engine));
        } else {
            self.dispatch(engine);
        }
    }

    /// The engine goes on with its thread at `goes`.
    pub(super) fn resume(&mut self, engine: usize, goes: Ticks) {
        let now = self.now();
        if goes > now {
            self.seen.engines[engine].stalled += goes.since(now);
            if let Some(thread) = self.engines[engine].current {
                self.tell(|watch, _| watch.spends(thread, Spends::Stalled, now, goes.since(now)));
            }
            self.agenda.note(goes, Event::Resume(engine));
        } else {
            self.go(engine, Ticks::ZERO);
        }
    }
}
