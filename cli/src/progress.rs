//! Progress on a terminal, for tasks longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Delay before progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Unit of progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Packet,
    Case,
}

impl Unit {
    /// Steps between two looks at the clock.
    const fn stride(self) -> u64 {
        match self {
            Unit::Packet => 1024,
            Unit::Case => 1,
        }
    }

    fn count(self, steps: u64) -> String {
        match self {
            Unit::Packet => crate::screen::count(steps, "packet", "packets"),
            Unit::Case => crate::screen::count(steps, "case", "cases"),
        }
    }
}

/// A line on standard error that tells what has been done so far.
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: Unit,
    begun: Instant,
    shown: Shown,
    steps: u64,
    total: u64,
}

/// Progress of jobs that are done on several cores.
pub(crate) struct Jobs(ProgressBar);

impl Jobs {
    /// Returns the progress of `total` jobs, under the name `what`.
    pub(crate) fn new(what: &'static str, total: usize) -> Jobs {
        // Draws nothing where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} [{bar:30}] {pos} of {len}  {msg}  {elapsed}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what);
        bar.enable_steady_tick(PATIENCE);
        Jobs(bar)
    }

    /// One more, called `what`, is done.
    pub(crate) fn done(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    NotYet,
    Yes,
}

impl Progress {
    /// Returns the progress of `total` bytes, or other units, under the name `what`.
    pub(crate) fn new(what: &'static str, unit: Unit, total: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{prefix} [{bar:30}] {percent}%  {msg}  {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what);
        Progress { bar, unit, begun: Instant::now(), shown: Shown::NotYet, steps: 0, total }
    }

    /// One step more; `done` of the total is done.
    pub(crate) fn step(&mut self, done: u64) {
        self.steps += 1;
        if self.steps % self.unit.stride() == 0 {
            self.reach(done, self.unit.count(self.steps));
        }
    }

    /// `done` of the total is done, which is to be called `said`.
    pub(crate) fn reach(&mut self, done: u64, said: String) {
        if self.shown == Shown::NotYet {
            if self.begun.elapsed() < PATIENCE {
                return;
            }
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = Shown::Yes;
        }
        self.bar.set_position(done.min(self.total));
        self.bar.set_message(said);
    }

    /// Writes something else to the terminal, the line out of its way.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
