//! A chip on the bench: trials of it.

use dataplane::Verdict;
use dataplane::replay::Witness;
use wire::{Frame, Nanos, PortId};

use super::{Request, Trial};
use crate::description::Chip;
use crate::host::{Entry, Onlooker};
use crate::machine::Ideal;
use crate::mapping::Mapping;
use crate::report::Report;
use crate::run::{RunError, Setup, Source, SourceError};
use crate::traffic::First;

/// A chip, its mapping, and its traffic at any load.
pub struct Bench<'a> {
    /// The chip.
    pub chip: &'a Chip,
    /// The mapping.
    pub mapping: &'a Mapping,
    /// Makes a pipeline and its traffic, from the beginning, at the load and for the repetition that are asked for. How
    /// many frames are asked for is no matter to it.
    pub source: &'a (dyn Fn(Request) -> Result<Source, SourceError> + Sync),
    /// Number of frames in each trial before the reported ones.
    pub warm: u64,
}

/// A trial, and all that is known of the run that it was.
pub struct Observed {
    /// The trial.
    pub trial: Trial,
    /// Report of the run.
    pub report: Report,
}

impl Bench<'_> {
    /// Makes a trial.
    pub fn measure(&self, request: Request) -> Result<Trial, RunError> {
        self.observe(request).map(|observed| observed.trial)
    }

    /// Makes a trial, and keeps its report.
    pub fn observe(&self, request: Request) -> Result<Observed, RunError> {
        let mut counter = Counter::new(self.warm);
        let report = self.with(request, |setup| setup.run(Ideal::Nothing, &mut counter))?;
        Ok(Observed { trial: counter.trial(request.load), report })
    }

    /// Makes a trial and looks for the bottleneck.
    pub fn explain(&self, request: Request) -> Result<Report, RunError> {
        self.with(request, |setup| setup.explain(&mut ()))
    }

    fn with(
        &self,
        request: Request,
        run: impl FnOnce(&Setup<'_>) -> Result<Report, RunError>,
    ) -> Result<Report, RunError> {
        let frames = request.frames.saturating_add(self.warm);
        let source = || {
            let source = (self.source)(request)?;
            Ok(Source { traffic: Box::new(First::new(source.traffic, frames)), ..source })
        };
        run(&Setup { chip: self.chip, mapping: self.mapping, source: &source, warm: self.warm })
    }
}

/// Counter of frames offered and lost, after the first `warm` ones.
struct Counter {
    warm: u64,
    came: u64,
    lost: u64,
    first: Nanos,
    last: Nanos,
    /// Bytes of all frames but the latest.
    bytes: u64,
    latest: u64,
}

impl Counter {
    fn new(warm: u64) -> Counter {
        Counter { warm, came: 0, lost: 0, first: Nanos(0), last: Nanos(0), bytes: 0, latest: 0 }
    }

    fn trial(&self, load: f64) -> Trial {
        let frames = self.came.saturating_sub(self.warm);
        let seconds = self.last.since(self.first).0 as f64 / 1e9;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Trial {
            load,
            frames,
            lost: self.lost,
            mpps: rate(frames.saturating_sub(1)) / 1e6,
            gbps: rate(self.bytes) * 8.0 / 1e9,
        }
    }
}

impl Witness for Counter {
    fn sent(&mut self, _: PortId, _: Nanos, _: &Frame, _: Option<Verdict>) {}

    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

impl Onlooker for Counter {
    fn came(&mut self, _: u32, entry: &Entry, bytes: &[u8]) {
        self.came += 1;
        if self.came <= self.warm {
            return;
        }
        if self.came == self.warm + 1 {
            self.first = entry.at;
        }
        self.bytes += self.latest;
        self.latest = bytes.len() as u64;
        self.last = entry.at;
    }

    fn lost(&mut self, _: u32) {
        // Told of right behind the frame, before the next one comes.
        if self.came > self.warm {
            self.lost += 1;
        }
    }
}
