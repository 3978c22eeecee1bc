//! A sweep: a plan, and the grid of what varies in it.

use dataplane::Replay;
use dataplane::replay::Way;

use super::{BadAxis, Choice, Figures, Grid, Key, Row, with_classes, with_rules};
use crate::machine::Ideal;
use crate::plan::texts::{Texts, first_error};
use crate::plan::{Plan, PlanError, Problems, Variant, fits};
use crate::run::Setup;
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
}

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
            for value in &axis.values {
                match &axis.key {
                    Key::Parameter(path) => self.texts.clone().set(path, value).map_err(SweepError::Set)?,
                    Key::Traffic(_) if self.plan.streams.is_empty() => {
                        return Err(SweepError::Grid(BadAxis::NoStream { name: axis.name.clone() }));
                    }
                    Key::Traffic(key) => {
                        for stream in &self.plan.streams {
                            stream.clone().set(key, value).map_err(SweepError::Stream)?;
                        }
                    }
                    Key::Rules | Key::Classes => {}
                }
            }
        }
        if self.runs > 1 && self.plan.streams.is_empty() {
            return Err(SweepError::NothingRandom);
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
        drop(replay);
        Figures::over(self.runs, |repeat| {
            let source = || plan.source(Variant { repeat, ..Variant::WHOLE }, problems);
            let (chip, mapping, warm) = (&described.chip, &described.mapping, self.warm);
            let setup = Setup { chip, mapping, source: &source, warm };
            let report = setup.run(Ideal::Nothing, &mut ()).map_err(text)?;
            let counts = warm == 0 || report.seconds > 0.0;
            counts.then_some(report).ok_or_else(|| NOTHING_OFFERED.to_owned())
        })
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
