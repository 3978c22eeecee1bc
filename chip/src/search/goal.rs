//! Goals of a search, and the classification of loads by their trials.

use super::Trial;

/// A goal of MLRsearch (RFC 9971, section 4.6). Durations are in frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The share of frames that a trial may lose: 0 to below 1.
    pub loss_ratio: f64,
    /// The share of trials, by duration, that may lose more: 0 to below 1.
    pub exceed_ratio: f64,
    /// Distance that the bounds may have, as a share of the upper one: above 0.
    pub width: f64,
    /// Duration of the first trials.
    pub initial: u64,
    /// Duration from which a trial counts in full.
    pub last: u64,
    /// Duration that the trials at a load must have together.
    pub sum: u64,
}

/// Classification of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Satisfies the goal, whatever further trials would show.
    Lower,
    /// Does not satisfy the goal, whatever further trials would show.
    Upper,
    /// Depends on further trials.
    Undecided,
}

/// Classifies a load by its `trials`, for the goal (RFC 9971, appendix A).
pub fn classify<'a>(goal: &Goal, trials: impl Iterator<Item = &'a Trial>) -> Bound {
    let (mut full_high, mut full_low, mut short_high, mut short_low) = (0.0, 0.0, 0.0, 0.0);
    for trial in trials {
        let sum = match (trial.frames >= goal.last, trial.loss_ratio() > goal.loss_ratio) {
            (true, true) => &mut full_high,
            (true, false) => &mut full_low,
            (false, true) => &mut short_high,
            (false, false) => &mut short_low,
        };
        *sum += trial.frames as f64;
    }
    // Short trials without much loss say little for a load, but make up for short ones with it.
    let balancing = short_low * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let high = full_high + f64::max(0.0, short_high - balancing);
    let whole = f64::max(full_low + high, goal.sum as f64);
    let (least, most) = (high, whole - full_low);
    let allowed = whole * goal.exceed_ratio;
    if most <= allowed {
        Bound::Lower
    } else if least > allowed {
        Bound::Upper
    } else {
        Bound::Undecided
    }
}

impl Goal {
    /// The loss ratio that all but the worst trials, as many as the goal lets exceed it, stay within (RFC 9971,
    /// appendix B).
    pub(super) fn quantile_loss<'a>(&self, trials: impl Iterator<Item = &'a Trial>) -> f64 {
        let mut full: Vec<&Trial> = trials.filter(|trial| trial.frames >= self.last).collect();
        full.sort_by(|one, other| one.loss_ratio().total_cmp(&other.loss_ratio()));
        let measured: u64 = full.iter().map(|trial| trial.frames).sum();
        let mut remaining = measured.max(self.sum) as f64 * (1.0 - self.exceed_ratio);
        let mut quantile = None;
        for trial in full {
            if quantile.is_some() && remaining <= 0.0 {
                return quantile.unwrap_or(1.0);
            }
            quantile = Some(trial.loss_ratio());
            remaining -= trial.frames as f64;
        }
        if remaining > 0.0 { 1.0 } else { quantile.unwrap_or(1.0) }
    }
}
