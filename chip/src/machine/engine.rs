//! Engines: threads that take turns, instruction by instruction, and the commands that they issue.

use super::cache::Issued;
use super::pending::{Held, NOW, SETTLED, Then, UNKNOWN, Whose};
use super::script::{Command, Move, WRITES};
use super::{Event, Machine, Reference, Spends, Waits};
use crate::kernel::Ticks;
use crate::load::Load;
use crate::trace::{Access, Wait};

impl Machine<'_> {
    /// The thread can go on when its engine comes to it.
    pub(super) fn ready(&mut self, thread: usize) {
        let engine = self.threads[thread].engine;
        let of = &self.engines[engine];
        let is_free = of.current.is_none() && !of.held;
        let look = if is_free && of.rotation.is_some() { self.finish_looks(engine) } else { Ticks::ZERO };
        self.threads[thread].waits = Waits::Engine;
        self.engines[engine].ready.push_back(thread);
        if is_free {
            self.dispatch_after(engine, look);
        }
    }

    /// Gives the engine to the thread that has been ready longest.
    pub(super) fn dispatch(&mut self, engine: usize) {
        self.dispatch_after(engine, Ticks::ZERO);
    }

    /// Gives the engine to that thread after the rest of a look that is under way.
    fn dispatch_after(&mut self, engine: usize, look: Ticks) {
        let of = &mut self.engines[engine];
        of.current = of.ready.pop_front();
        let (switch, current, polls) = (of.switch, of.current, of.rotation.is_some());
        if let Some(thread) = current {
            let looks = if polls { look + self.take_turn(engine, thread, look) } else { Ticks::ZERO };
            self.seen.engines[engine].aborted += switch;
            self.tell(|watch, now| watch.spends(thread, Spends::Switching, now + looks, switch));
            self.go(engine, looks + switch);
        } else if polls {
            self.begin_looks(engine);
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
                    if thread.tickets.iter().all(|held| held.ticket != *ticket || held.done <= at) =>
                {
                    thread.tickets.retain(|held| held.ticket != *ticket);
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
            Move::Refer(command, wait) => {
                let ticket = if let Wait::Later(ticket) = wait { ticket } else { NOW };
                match (self.refer(engine, number, command, ticket), wait) {
                    (Issued::Hit(latency), _) => self.go(engine, latency),
                    (Issued::Sent { goes, done }, Wait::Now) => self.wait(engine, number, goes, done),
                    (Issued::Sent { goes, done }, Wait::Later(ticket)) => {
                        self.hold_ticket(number, ticket, done);
                        self.resume(engine, goes);
                    }
                }
            }
            Move::Await(ticket) => self.wait_for_ticket(engine, number, ticket),
            Move::Settle => self.wait_for_ticket(engine, number, WRITES),
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
                let whose = Whose::Thread { thread: number, ticket: NOW };
                let (goes, done) = self.command(engine, get, whose);
                self.wait(engine, number, goes, done);
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
        if self.is_timer(thread) {
            self.threads[thread].waits = Waits::Frames;
            return self.dispatch(engine);
        }
        self.tell(|watch, now| watch.finishes(now, thread));
        if self.take_work(thread, load) {
            self.threads[thread].waits = Waits::Engine;
            self.go(engine, Ticks::ZERO);
        } else {
            self.dispatch(engine);
        }
    }

    /// Issues a command: when the engine may go on, and when it is done; [`UNKNOWN`] where that shows later, and is said to `whose` it is.
    pub(super) fn command(&mut self, engine: usize, command: Command, whose: Whose) -> (Ticks, Ticks) {
        if self.chooses {
            return self.issue(engine, command, whose);
        }
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
        (goes, self.refer_at(engine, at, command))
    }

    /// Issues a command to a memory that serves in the order of arrival: when it is done.
    pub(super) fn refer_at(&mut self, engine: usize, at: Ticks, command: Command) -> Ticks {
        let Command { memory, access, address, bytes, purpose } = command;
        let now = self.agenda.now();
        let cluster = &mut self.clusters[self.engines[engine].cluster];
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
        underway.done
    }

    /// A thread has a ticket for what is done at `done`; for what shows later it has one already.
    pub(super) fn hold_ticket(&mut self, thread: usize, ticket: u32, done: Ticks) {
        if done != UNKNOWN {
            self.threads[thread].tickets.push(Held { ticket, reference: SETTLED, done });
        }
    }

    /// The thread waits for all references with that ticket, if they are not done.
    fn wait_for_ticket(&mut self, engine: usize, thread: usize, ticket: u32) {
        let now = self.agenda.now();
        match self.end_of(thread, ticket) {
            Some(UNKNOWN) => self.wait_for(engine, thread, now, ticket),
            Some(done) if done > now => self.wait_until(engine, thread, now, done, Waits::Memory),
            _ => self.go(engine, Ticks::ZERO),
        }
    }

    /// The thread waits for the reference that it has issued; its engine is held up until `goes`.
    fn wait(&mut self, engine: usize, thread: usize, goes: Ticks, done: Ticks) {
        match done {
            UNKNOWN => self.wait_for(engine, thread, goes, NOW),
            _ => self.wait_until(engine, thread, goes, done, Waits::Memory),
        }
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
        if goes == UNKNOWN {
            self.hold(engine, left, Then::Leave);
        } else if goes > now {
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
        if goes == UNKNOWN {
            self.hold(engine, self.engines[engine].current, Then::Resume);
        } else if goes > now {
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
