//! Idle threads that poll: each looks for work in its turn, and takes its engine for the look.
//!
//! The threads of an engine take turns in the order of their numbers. An idle thread that polls takes so many instructions in its turn, and finds
//! nothing; one that is ready runs until it waits. Turns are not cut short: who becomes ready waits for the look that is under way, and for
//! those of the idle threads between its owner and itself. The look that finds something is the beginning of the work on it, and a part of
//! that.
//!
//! Looks are reckoned when somebody is ready, all at once, so that an engine whose threads do nothing else costs no events.
//!
//! Simplifications: of several threads that are ready the one that has been so longest is next, as on engines on which nobody polls, with
//! the looks before its turn; and a look's answer is there by the thread's next turn.

use super::{Machine, Waits};
use crate::kernel::Ticks;

/// Turns of the threads of an engine on which some poll.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// The threads, and the time that a look of each takes: none of one that does not poll.
    threads: Vec<(usize, Ticks)>,
    /// Place of the thread whose turn was last.
    turn: usize,
    /// Time from which nobody has had the engine but for looks.
    since: Ticks,
}

impl Rotation {
    /// A rotation of no threads.
    pub(super) fn new() -> Rotation {
        Rotation { threads: Vec::new(), turn: 0, since: Ticks::ZERO }
    }

    /// Adds a thread behind the others; the first of all has the first turn.
    pub(super) fn add(&mut self, thread: usize, look: Ticks) {
        self.turn = self.threads.len();
        self.threads.push((thread, look));
    }

    /// True if a thread polls.
    pub(super) fn polls(&self) -> bool {
        self.threads.iter().any(|(_, look)| *look > Ticks::ZERO)
    }

    /// Places behind the last turn, once round, up to that place itself.
    fn behind(&self) -> impl Iterator<Item = usize> + use<> {
        let (turn, count) = (self.turn, self.threads.len());
        (1..=count).map(move |step| (turn + step) % count.max(1))
    }
}

impl Machine<'_> {
    /// Time that a look takes at that place of an engine's rotation: none where the thread does not poll or has work.
    fn look(&self, rotation: &Rotation, place: usize) -> Ticks {
        let (thread, look) = rotation.threads[place];
        if self.threads[thread].waits == Waits::Frames { look } else { Ticks::ZERO }
    }

    /// Reckons the looks since the engine was left to itself, and returns the time until the one under way ends.
    pub(super) fn finish_looks(&mut self, engine: usize) -> Ticks {
        let now = self.now();
        let Some(mut rotation) = self.engines[engine].rotation.take() else { return Ticks::ZERO };
        let round: u64 = (0..rotation.threads.len()).map(|place| self.look(&rotation, place).0).sum();
        let mut rest = Ticks::ZERO;
        let elapsed = now.since(rotation.since);
        // A look that ends now was the last turn.
        if let Some(mut left) = elapsed.0.saturating_sub(1).checked_rem(round) {
            left += elapsed.0.min(1);
            for place in rotation.behind() {
                let look = self.look(&rotation, place).0;
                if left == 0 {
                    break;
                }
                if look > 0 {
                    rotation.turn = place;
                    rest = Ticks(look.saturating_sub(left));
                    left = left.saturating_sub(look);
                }
            }
            self.seen.engines[engine].polling += elapsed + rest;
            self.tell(|watch, _| watch.polls(engine, rotation.since, elapsed + rest));
        }
        rotation.since = now;
        self.engines[engine].rotation = Some(rotation);
        rest
    }

    /// Gives a thread its turn after the rest of a look, and returns the time of the further looks before it.
    pub(super) fn take_turn(&mut self, engine: usize, thread: usize, rest: Ticks) -> Ticks {
        let Some(mut rotation) = self.engines[engine].rotation.take() else { return Ticks::ZERO };
        let mut looks = Ticks::ZERO;
        for place in rotation.behind() {
            if rotation.threads[place].0 == thread {
                rotation.turn = place;
                break;
            }
            looks += self.look(&rotation, place);
        }
        self.seen.engines[engine].polling += looks;
        self.tell(|watch, now| watch.polls(engine, now + rest, looks));
        self.engines[engine].rotation = Some(rotation);
        looks
    }

    /// Nobody is ready: idle threads poll from now on.
    pub(super) fn begin_looks(&mut self, engine: usize) {
        let now = self.now();
        self.engines[engine].rotation.iter_mut().for_each(|rotation| rotation.since = now);
    }

    /// Tells the observer of the looks at the end of the run.
    pub(super) fn tell_last_looks(&mut self) {
        let at = self.reached();
        for engine in 0..self.engines.len() {
            let looks = self.looked(engine, at);
            let Some(since) = self.engines[engine].rotation.as_ref().map(|rotation| rotation.since) else {
                continue;
            };
            self.tell(|watch, _| watch.polls(engine, since, looks));
        }
    }

    /// Time that idle threads have polled an engine up to `at` since they were left alone with it.
    pub(super) fn looked(&self, engine: usize, at: Ticks) -> Ticks {
        let of = &self.engines[engine];
        let alone = of.rotation.as_ref().filter(|_| of.current.is_none() && !of.held);
        let polls = |rotation: &&Rotation| {
            (0..rotation.threads.len()).any(|place| self.look(rotation, place) > Ticks::ZERO)
        };
        alone.filter(polls).map_or(Ticks::ZERO, |rotation| at.since(rotation.since))
    }
}
