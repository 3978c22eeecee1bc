//! A sweep: a plan, and the grid of what varies in it.

use dataplane::Replay;
use dataplane::replay::Way;

use super::{BadAxis, Choice, Figures, Grid, Key, Measured, Row, with_classes, with_rules};
use crate::cost::{Cost, watts};
use crate::plan::texts::{Texts, first_error};
use crate::plan::{Plan, PlanError, Problems, Variant, extents, fits};
use crate::search::{Bench, Inquiry, Method, Request};
use crate::traffic::BadStream;

/// Plan that is run with each combination of a grid.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Combinations.
    pub grid: Grid,
    /// Texts of chip and mapping, before anything is varied.
    pub texts: Texts,
    /// Policy and traffic, before anything is varied.
    pub plan: Plan,
    /// Runs of a combination, each with a seed of its own: one at least.
    pub runs: u32,
    /// Number of frames in each run before the reported ones.
    pub warm: u64,
    /// Share of frames that may be lost at the throughput, which each run then has a search for: from 0 to below 1.
    pub loss: Option<f64>,
}

/// How close the bounds of a throughput come, as a share of the upper one.
pub const PRECISION: f64 = 0.005;

/// Reason for refusing a sweep before anything is run.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// There is no such parameter.
    #[error(transparent)]
    Set(PlanError),
    /// The axes make no sense.
    #[error(transparent)]
    Grid(BadAxis),
    /// A key of generated traffic cannot be varied like that.
    #[error(transparent)]
    Stream(BadStream),
    /// Runs are to be repeated that have nothing random.
    #[error("captures are the same in every run: there is nothing to repeat")]
    NothingRandom,
    /// Power is wanted of a chip that does not say what it draws.
    #[error(
        "nothing is known of the power of {chip}: its description has no [power] with `engines` and `idle`"
    )]
    NoPower {
        /// The chip.
        chip: String,
    },
}

/// Message about a run that reports nothing.
pub const NOTHING_OFFERED: &str = "the traffic has no frame that would count";

impl Sweep {
    /// Makes sure that what is varied is there, before anything is run. Whether its values are right shows with each.
    ///
    /// # Errors
    /// A parameter is not there, or is of traffic that is not generated.
    pub fn check(&self) -> Result<(), SweepError> {
        for axis in self.grid.axes() {
            match &axis.key {
                // A path is there or is not, whatever the value, and to look for it is to read the texts.
                Key::Parameter(path) => {
                    let value = axis.values.first().map_or("", String::as_str);
                    self.texts.clone().set(path, value).map_err(SweepError::Set)?;
                }
                Key::Traffic(_) if self.plan.streams.is_empty() => {
                    return Err(SweepError::Grid(BadAxis::NoStream { name: axis.name.clone() }));
                }
                Key::Traffic(key) => {
                    for value in &axis.values {
                        for stream in &self.plan.streams {
                            stream.clone().set(key, value).map_err(SweepError::Stream)?;
                        }
                    }
                }
                Key::Rules | Key::Classes => {}
            }
        }
        if self.runs > 1 && self.plan.streams.is_empty() {
            return Err(SweepError::NothingRandom);
        }
        Ok(())
    }

    /// Makes sure that the chip has what a search for this figure needs.
    ///
    /// # Errors
    /// Power is wanted, and the chip does not say what it draws.
    pub fn check_column(&self, column: &str) -> Result<(), SweepError> {
        let described = self.texts.read().map_err(SweepError::Set)?;
        let knows_power = described.chip.power.is_some_and(|power| power.shares.is_some());
        if column == "watts" && !knows_power {
            return Err(SweepError::NoPower { chip: described.chip.name });
        }
        Ok(())
    }

    /// Runs the combination of that number, counted from 0; what is wrong with captures goes to `problems`.
    pub fn row(&self, number: usize, problems: &Problems) -> Row {
        let choices = self.grid.combination(number);
        let values = choices.iter().map(|choice| choice.value.to_owned()).collect();
        Row { values, outcome: self.figures(&choices, problems) }
    }

    /// Runs a combination.
    ///
    /// # Errors
    /// Reason for which it cannot be run, in a sentence.
    pub fn figures(&self, choices: &[Choice<'_>], problems: &Problems) -> Result<Figures, String> {
        let (mut texts, mut plan) = (self.texts.clone(), self.plan.clone());
        for Choice { key, value } in choices {
            match key {
                Key::Parameter(path) => texts.set(path, value).map_err(text)?,
                Key::Rules => plan.policy = with_rules(&plan.policy, value).map_err(text)?,
                Key::Classes => plan.policy = with_classes(&plan.policy, value).map_err(text)?,
                Key::Traffic(key) => {
                    for stream in &mut plan.streams {
                        stream.set(key, value).map_err(text)?;
                    }
                }
            }
        }
        let described = texts.read_quietly()?;
        let plan = plan.on(&described.chip, &described.mapping);
        let tables = plan.tables().map_err(text)?;
        let replay = Replay::new(tables, plan.start, Way::Step).map_err(text)?;
        let found = fits(&described, &replay);
        if found.iter().any(|found| found.is_error()) {
            return Err(first_error(&found));
        }
        let (chip, mapping, warm) = (&described.chip, &described.mapping, self.warm);
        let cost = Cost::of(chip, mapping, &extents(&replay));
        drop(replay);
        // The chip whose power is known: what it draws as another one follows from that.
        let reference = match chip.power {
            Some(_) => Some(self.texts.read_quietly()?.chip),
            None => None,
        };
        Figures::over(cost, self.runs, |repeat| {
            let source = |request: Request| {
                let repeat = repeat.saturating_add(request.repeat);
                plan.source(Variant { load: request.load, repeat }, problems)
            };
            let bench = Bench { chip, mapping, source: &source, warm };
            let whole = bench.observe(Request::WHOLE).map_err(text)?;
            let is_wanting = warm > 0 && whole.report.seconds == 0.0;
            if is_wanting || (self.loss.is_some() && whole.trial.frames == 0) {
                return Err(NOTHING_OFFERED.to_owned());
            }
            let goal = match self.loss {
                Some(loss) => {
                    let found = throughput(loss).find(whole.trial, |request| {
                        let trial = bench.measure(request).map_err(text)?;
                        // Of traffic that was stopped, trials would say nothing for ever.
                        if trial.frames > 0 { Ok(trial) } else { Err(NOTHING_OFFERED.to_owned()) }
                    });
                    found?.goals.first().copied()
                }
                None => None,
            };
            let watts = reference.as_ref().and_then(|reference| watts(reference, chip, &whole.report));
            Ok(Measured { report: whole.report, watts, goal })
        })
    }
}

/// Search for the highest load at which no larger share of frames is lost.
fn throughput(loss: f64) -> Inquiry {
    Inquiry { method: Method::Mlrsearch, losses: vec![loss], precision: PRECISION, trials: 1, exceed: 0.0 }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
