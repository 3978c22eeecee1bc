//! A search as it is asked for: goals, or RFC 2544's, and the bottleneck above what was found.

use serde_json::{Value, json};

use super::{Bench, Found, Goal, Request, Trial, binary, mlrsearch};
use crate::report::Report;
use crate::run::RunError;

/// Bounds never come closer than this.
const FINEST: f64 = 1e-6;

/// Load at which the bottleneck is looked for, relative to the load that is too much.
const ABOVE: f64 = 1.25;

/// The first trials have one in so many of the frames.
const SHORT: u64 = 64;

/// Ratios of frames that may be lost, where none are given.
const LOSSES: [f64; 2] = [0.0, 0.005];

/// Search, as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Inquiry {
    /// Algorithm.
    pub method: Method,
    /// Ratios of frames that may be lost, a goal each; without any, none and half a per cent.
    pub losses: Vec<f64>,
    /// How close bounds come, as a share of the upper one.
    pub precision: f64,
    /// Whole trials at each load, each with a seed of its own.
    pub trials: u32,
    /// Share of them that may lose more.
    pub exceed: f64,
}

/// Algorithm of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// MLRsearch (RFC 9971).
    Mlrsearch,
    /// Binary search of RFC 2544, for no loss.
    Rfc2544,
}

/// Result of an inquiry.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Algorithm.
    pub method: Method,
    /// Precision that was used.
    pub precision: f64,
    /// Bounds and trials.
    pub found: Found,
    /// Report with the bottleneck a quarter above the first goal's load; `None` where everything is carried.
    pub above: Option<Report>,
}

/// Reason for having no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The traffic has no frame to search with.
    #[error("{}", crate::sweep::NOTHING_OFFERED)]
    NothingOffered,
    /// A trial failed.
    #[error(transparent)]
    Run(RunError),
}

impl Inquiry {
    /// Makes the search, all of whose trials are made by `bench`; `tell` is called after each.
    ///
    /// # Errors
    /// There is nothing to search with, or a trial fails.
    pub fn run(&self, bench: &Bench<'_>, mut tell: impl FnMut()) -> Result<Answer, SearchError> {
        let mut measure = |request: Request| {
            let trial = bench.measure(request).map_err(SearchError::Run)?;
            tell();
            // Of traffic that was stopped, further trials would say nothing for ever.
            if trial.frames > 0 { Ok(trial) } else { Err(SearchError::NothingOffered) }
        };
        let first = measure(Request::WHOLE)?;
        let found = self.find(first, &mut measure)?;
        let precision = self.precision.max(FINEST);
        let upper = found.goals.first().and_then(|goal| goal.upper);
        let above = upper.map(|trial| {
            bench.explain(Request { load: (trial.load * ABOVE).min(1.0), frames: first.frames, repeat: 0 })
        });
        let above = above.transpose().map_err(SearchError::Run)?;
        Ok(Answer { method: self.method, precision, found, above })
    }

    /// Closes in on the goals from `first`, a trial with all of the traffic that had a frame; `measure` makes the others.
    ///
    /// # Errors
    /// A trial fails.
    pub fn find<E>(
        &self,
        first: Trial,
        measure: impl FnMut(Request) -> Result<Trial, E>,
    ) -> Result<Found, E> {
        let precision = self.precision.max(FINEST);
        match self.method {
            Method::Rfc2544 => binary(first, precision, measure),
            Method::Mlrsearch => mlrsearch(first, &self.goals(first, precision), measure),
        }
    }

    fn goals(&self, first: Trial, width: f64) -> Vec<Goal> {
        let last = first.frames.max(1);
        let losses = if self.losses.is_empty() { &LOSSES[..] } else { &self.losses };
        let goal = |loss: &f64| Goal {
            loss_ratio: *loss,
            exceed_ratio: self.exceed,
            width,
            initial: (last / SHORT).max(1),
            last,
            sum: last.saturating_mul(u64::from(self.trials)),
        };
        losses.iter().map(goal).collect()
    }
}

impl Answer {
    /// The answer as an object: method, precision, goals, trials, bottleneck.
    pub fn to_json(&self) -> Value {
        let trials = self.found.trials.iter().map(|trial| {
            let Trial { load, frames, lost, mpps, gbps } = trial;
            json!({
                "load": load, "frames": frames, "lost": lost, "loss_ratio": trial.loss_ratio(), "mpps": mpps,
                "gbps": gbps
            })
        });
        json!({
            "method": match self.method {
                Method::Rfc2544 => "rfc2544",
                Method::Mlrsearch => "mlrsearch",
            },
            "precision": self.precision,
            "goals": self.found.goals,
            "trials": trials.collect::<Vec<_>>(),
            "bottleneck": self.above.as_ref().and_then(|report| report.bottleneck.as_ref()),
        })
    }
}
