//! Timers of a mapping: work that an engine does at intervals, whatever frames come.
//!
//! A timer wakes a thread of its own, as an interrupt does: it takes none of the engine's, and no turn before the threads that are ready. One
//! that is still at work when its time comes again leaves that time out. Its references are to what it shares with other engines, and
//! pass caches by.
//!
//! Simplification: it has no effect but its time. What the data plane knows of time is the moment that it is given.

use super::edge::Element;
use super::memory::Purpose;
use super::script::{Holds, Remembered, Writer};
use super::{Event, Machine, MachineError, Thread, Waits};
use crate::kernel::Ticks;
use crate::mapping::Priority;

/// A timer at work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    thread: usize,
    every: Ticks,
    /// Time at which it wakes next.
    next: Ticks,
}

impl Machine<'_> {
    /// Makes the timers of the mapping, each with a thread that is not one of its engine's.
    pub(super) fn make_timers(&mut self) -> Result<(), MachineError> {
        let (chip, mapping) = (self.chip, self.mapping);
        for (number, timer) in mapping.timers.iter().enumerate() {
            let kind = chip.engines.get(timer.engine).ok_or(MachineError::Unmapped("a kind of engine"))?;
            if timer.number >= kind.count {
                return Err(MachineError::Unmapped("an engine"));
            }
            if timer.work.references > 0 && timer.work.memory >= chip.memories.len() {
                return Err(MachineError::Unmapped("a memory"));
            }
            let engine = Machine::engine_of(chip, timer.engine, timer.number);
            let mut script = Vec::new();
            let mut writer = Writer {
                moves: &mut script,
                view: &self.views[self.engines[engine].view],
                remembered: &mut Remembered::default(),
                slot: 0,
                segment: None,
                holds: Holds::Nothing,
            };
            writer.extra(timer.work, Purpose::Timer);
            let every = self.time.of_nanos(timer.every.0).max(Ticks(1));
            self.clocks.push(Clock { thread: self.threads.len(), every, next: every });
            self.threads.push(Thread {
                engine,
                pool: mapping.pools.len() + number,
                place: 0,
                task: 0,
                element: Element::default(),
                script,
                next: 0,
                tickets: Vec::new(),
                awaits: None,
                waits: Waits::Frames,
                priority: Priority::Normal,
            });
        }
        Ok(())
    }

    /// True if the thread is a timer's.
    pub(super) fn is_timer(&self, thread: usize) -> bool {
        self.threads[thread].pool >= self.mapping.pools.len()
    }

    /// Notes the next time at which a timer wakes.
    pub(super) fn expect_tick(&mut self) {
        if let Some(next) = self.clocks.iter().map(|clock| clock.next).min() {
            self.agenda.note(next, Event::Tick);
        }
    }

    /// Wakes the timers whose time has come. Where nothing else is to happen, the run is over, and so are they.
    pub(super) fn tick(&mut self) {
        if self.agenda.is_empty() {
            return;
        }
        let now = self.now();
        for place in 0..self.clocks.len() {
            let Clock { thread, every, next } = self.clocks[place];
            if next > now {
                continue;
            }
            self.clocks[place].next = next + every;
            if self.threads[thread].waits == Waits::Frames {
                self.threads[thread].next = 0;
                self.ready(thread);
            }
        }
        self.expect_tick();
    }

    /// Notes the end of the run: nothing more comes, and nothing is under way. What timers do from then on is outside of it.
    pub(super) fn note_end(&mut self) {
        if self.seen.under_way == 0 && self.seen.all_arrived && !self.clocks.is_empty() {
            self.seen.until = Some(self.now());
        }
    }
}
