//! Search for a chip's throughput: trials at loads that close in on the highest one at which no more frames are lost
//! than a goal allows.
//!
//! Two algorithms. [`binary`] is RFC 2544's (section 26.1): whole trials only, halving the interval between a load
//! without loss and one with loss, to a stated precision. [`mlrsearch`] is MLRsearch (RFC 9971, before that
//! draft-ietf-bmwg-mlrsearch): several loss ratios at once, short trials first, every trial of use to every goal.
//! Implemented are its goals (section 4.6), the classification of trials and loads (4.7, appendix A), relevant bounds
//! and conditional throughput (4.8, appendix B). The choice of the next load is left to implementations; here, durations
//! grow and widths shrink fourfold and twofold from one phase to the next, beginning with the rate forwarded at the
//! maximal load.
//!
//! Loads are shares of the traffic as it was described, which is the maximal load. Durations are counted in frames: a
//! trial has the same frames at every load, further apart or closer together. RFC 2544 wants a minute of trial, which at
//! a gigabit is 90 million frames: the caller decides whether fewer will do. There is no pause between trials, since each
//! begins with a machine at rest, and no trial is repeated unless a goal asks for it: the same trial has the same result.

use serde::Serialize;

mod bench;
mod goal;
mod run;
#[cfg(test)]
mod tests;

pub use bench::{Bench, Observed};
pub use goal::{Bound, Goal, classify};
pub use run::{Answer, Inquiry, Method, SearchError};

/// A load below this is none.
const LEAST: f64 = 1e-6;

/// Trials of a phase are that many times as long as those of the phase before.
const GROWTH: u64 = 4;

/// A trial to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The share of the traffic's own rate: above 0, at most 1.
    pub load: f64,
    /// Number of frames to offer, if the traffic has so many.
    pub frames: u64,
    /// Number of earlier trials at this load, from which the random choices of this one should differ.
    pub repeat: u32,
}

impl Request {
    /// All of the traffic as it was described.
    pub const WHOLE: Request = Request { load: 1.0, frames: u64::MAX, repeat: 0 };
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The share of the traffic's own rate.
    pub load: f64,
    /// Frames offered.
    pub frames: u64,
    /// Frames lost to overload.
    pub lost: u64,
    /// Frames offered, in millions a second.
    pub mpps: f64,
    /// Bits of frames offered, in 10^9 a second, without the line's overhead.
    pub gbps: f64,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Result for each goal, in their order.
    pub goals: Vec<GoalResult>,
    /// All trials, in the order in which they were made.
    pub trials: Vec<Trial>,
}

/// Result of a search for a goal. Both bounds are there where the result is regular (RFC 9971, section 4.8.4); without an
/// upper bound the whole traffic can be carried, without a lower bound none of it, and without either there was none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GoalResult {
    /// Goal loss ratio: the share of frames that may be lost.
    pub loss_ratio: f64,
    /// Lower bound: the highest load, below the upper bound, that is known to satisfy the goal.
    pub lower: Option<Trial>,
    /// Upper bound: the lowest load that is known not to satisfy the goal.
    pub upper: Option<Trial>,
    /// Conditional throughput: the rate forwarded at the lower bound, in millions of frames a second.
    pub throughput_mpps: Option<f64>,
    /// Conditional throughput in 10^9 bits a second.
    pub throughput_gbps: Option<f64>,
}

impl Trial {
    /// The share of frames that were lost; 0 where none were offered.
    pub fn loss_ratio(&self) -> f64 {
        self.lost as f64 / self.frames.max(1) as f64
    }
}

/// Searches as RFC 2544 does. `first` is a trial at load 1, and all trials are as long; if `first` had no frames, nothing
/// is found. The search ends when the bounds are apart by no more than `precision`, as a share of the upper one.
pub fn binary<E>(
    first: Trial,
    precision: f64,
    mut measure: impl FnMut(Request) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut trials = vec![first];
    let (mut lower, mut upper) = if first.frames == 0 {
        (None, None)
    } else if first.lost == 0 {
        (Some(first), None)
    } else {
        (None, Some(first))
    };
    while let Some(above) = upper {
        let below = lower.map_or(0.0, |below: Trial| below.load);
        if above.load - below <= precision * above.load || above.load <= LEAST {
            break;
        }
        let load = below.midpoint(above.load);
        let trial = measure(Request { load, frames: first.frames, repeat: 0 })?;
        trials.push(trial);
        *(if trial.lost == 0 { &mut lower } else { &mut upper }) = Some(trial);
    }
    let goal = GoalResult {
        loss_ratio: 0.0,
        lower,
        upper,
        throughput_mpps: lower.map(|lower| lower.mpps),
        throughput_gbps: lower.map(|lower| lower.gbps),
    };
    Ok(Found { goals: vec![goal], trials })
}

/// MLRsearch for all `goals`. `first` is a trial at load 1. Where it had no frames, no goal can be decided, and nothing is
/// found.
pub fn mlrsearch<E>(
    first: Trial,
    goals: &[Goal],
    measure: impl FnMut(Request) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut controller = Controller { trials: vec![first], measure };
    if first.frames == 0 {
        let goals = goals.iter().map(|goal| controller.result(goal)).collect();
        return Ok(Found { goals, trials: controller.trials });
    }
    let phases: Vec<Vec<Goal>> = goals.iter().map(phases).collect();
    let most = phases.iter().map(Vec::len).max().unwrap_or(0);
    let mut hints = vec![Hint { lower: None, upper: Some(1.0) }; goals.len()];
    for phase in 0..most {
        for (phases, hint) in phases.iter().zip(&mut hints) {
            // Goals of fewer phases join in with their first when the others have as few left.
            let own = (phase + phases.len()).checked_sub(most);
            if let Some(goal) = own.and_then(|own| phases.get(own)) {
                *hint = controller.close_in(goal, *hint)?;
            }
        }
    }
    let goals = goals.iter().map(|goal| controller.result(goal)).collect();
    Ok(Found { goals, trials: controller.trials })
}

/// A goal's coarse predecessors, the shortest first, and itself: one trial a load is enough for them.
fn phases(goal: &Goal) -> Vec<Goal> {
    let mut phases = vec![*goal];
    let (mut frames, mut width) = (goal.last, goal.width);
    while frames > goal.initial.max(1) {
        frames = (frames / GROWTH).max(goal.initial).max(1);
        width = (width * 2.0).min(0.5);
        phases.push(Goal { last: frames, sum: frames, width, ..*goal });
    }
    phases.reverse();
    phases
}

/// Bounds of the phase before, as loads.
#[derive(Clone, Copy, Debug)]
struct Hint {
    lower: Option<f64>,
    upper: Option<f64>,
}

struct Controller<M> {
    trials: Vec<Trial>,
    measure: M,
}

impl<E, M: FnMut(Request) -> Result<Trial, E>> Controller<M> {
    /// Measures until the goal's bounds are close enough; returns them.
    fn close_in(&mut self, goal: &Goal, hint: Hint) -> Result<Hint, E> {
        let mut step = goal.width * 2.0;
        loop {
            let now = self.bounds(goal);
            let load = match (now.lower, now.upper) {
                (Some(lower), Some(upper)) if upper - lower <= goal.width * upper => return Ok(now),
                (Some(lower), Some(upper)) => lower.midpoint(upper),
                (None, Some(upper)) if upper <= LEAST => return Ok(now),
                (None, Some(upper)) => match hint.lower.filter(|hint| *hint < upper) {
                    Some(hint) => hint,
                    None => self.below(upper, &mut step),
                },
                (Some(lower), None) if lower >= 1.0 => return Ok(now),
                (Some(lower), None) => match hint.upper.filter(|hint| *hint > lower) {
                    Some(hint) => hint,
                    None => above(lower, &mut step),
                },
                (None, None) => hint.lower.or(hint.upper).unwrap_or(1.0),
            };
            self.decide(goal, load)?;
        }
    }

    /// Returns a load below `upper`, which loses too much: the load forwarded there, or a step down that doubles each
    /// time, whichever is lower.
    fn below(&self, upper: f64, step: &mut f64) -> f64 {
        let forwarded = self.at(upper).map(|trial| upper * (1.0 - trial.loss_ratio())).fold(upper, f64::min);
        let stepped = upper * (1.0 - step.min(0.5));
        *step *= 2.0;
        stepped.min(forwarded).max(LEAST / 2.0)
    }

    /// Measures at a load until it is known to be one bound or the other.
    fn decide(&mut self, goal: &Goal, load: f64) -> Result<(), E> {
        while classify(goal, self.at(load)) == Bound::Undecided {
            let repeat = self.at(load).filter(|trial| trial.frames >= goal.last).count();
            let request =
                Request { load, frames: goal.last, repeat: u32::try_from(repeat).unwrap_or(u32::MAX) };
            let trial = (self.measure)(request)?;
            self.trials.push(Trial { load, ..trial });
        }
        Ok(())
    }

    fn at(&self, load: f64) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.load == load)
    }

    /// The relevant bounds (RFC 9971, sections 4.8.1 and 4.8.2).
    fn bounds(&self, goal: &Goal) -> Hint {
        let of = |bound: Bound| {
            let loads = self.trials.iter().map(|trial| trial.load);
            loads.filter(move |load| classify(goal, self.at(*load)) == bound)
        };
        let upper = of(Bound::Upper).min_by(f64::total_cmp);
        let lower = of(Bound::Lower).filter(|load| upper.is_none_or(|upper| *load < upper));
        Hint { lower: lower.max_by(f64::total_cmp), upper }
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let Hint { lower, upper } = self.bounds(goal);
        // Of the trials at a load, the longest and latest stands for it.
        let stands = |load: f64| self.at(load).max_by_key(|trial| trial.frames).copied();
        let share = lower.map(|lower| 1.0 - goal.quantile_loss(self.at(lower)));
        let lower = lower.and_then(stands);
        GoalResult {
            loss_ratio: goal.loss_ratio,
            lower,
            upper: upper.and_then(stands),
            throughput_mpps: lower.zip(share).map(|(lower, share)| lower.mpps * share),
            throughput_gbps: lower.zip(share).map(|(lower, share)| lower.gbps * share),
        }
    }
}

/// A load above one that loses little enough, by a step that doubles each time.
fn above(lower: f64, step: &mut f64) -> f64 {
    let stepped = lower / (1.0 - step.min(0.5));
    *step *= 2.0;
    stepped.min(1.0)
}
