//! `wirerate chip optimise`: which configurations are best?

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use chip::plan::Prepared;
use chip::sweep::objective::{BadBound, Better, Bound, OBJECTIVES, Objective};
use chip::sweep::{Axis, Cell, Figures, Grid, Row, Sweep};
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::package::{Work, request, row};
use super::plan::{Subject, keys};
use super::search::Ratio;
use super::sweep::refused;
use super::table;
use crate::failure::{ChipError, Exit, Failure, OutputError, PackageError};
use crate::progress::{Progress, Unit};
use crate::screen::{BAD, DIM, HEADING, Table, count, number};
use crate::{screen, with_exit_codes};

mod picture;

/// Search configurations of a modelled chip for those that are best: the Pareto front of some objectives
///
/// A configuration is a combination of values, as in a sweep, and it is on the front if no other one equals or surpasses it in
/// all objectives and surpasses it in one. If there are no more configurations than trials, all of them are run, once, and the
/// front is exact. Otherwise NSGA-II chooses which are run, by the Python package and Optuna: the same seed has the same
/// front, whatever the number of cores.
///
/// A configuration that does not meet a requirement, or that cannot be run, is not on the front, and leads the search away
/// from it.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// A parameter and its values, as of `chip sweep`; any number of combinations may come of them; may be repeated
    #[arg(long, required = true, value_name = "PATH=VALUES")]
    vary: Vec<Axis>,

    /// Objectives, as throughput,latency
    #[arg(long, required = true, value_name = "NAME,...", value_delimiter = ',')]
    objective: Vec<Objective>,

    /// Requirement of a configuration, as 'throughput>=1Gbit/s', 'latency<=5us' or 'engines<=4'; may be repeated
    #[arg(long, value_name = "NAME>=VALUE | NAME<=VALUE")]
    require: Vec<Requirement>,

    /// Run N configurations at most
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_TRIALS))]
    trials: u32,

    /// Share of frames that may be lost at the throughput
    #[arg(long, default_value = "0", value_name = "RATIO")]
    loss: Ratio,

    /// Leave the first N frames, and what comes after the last, out of what is told, for a steady state
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// Run each configuration N times, with the seeds SEED, SEED+1 and so on, and compare means
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeat: u32,

    /// Run the configurations on the Ray cluster at this address, as auto or HOST:6379, as of `chip sweep`
    #[arg(long, value_name = "ADDRESS")]
    ray: Option<String>,

    /// Draw the front of the first objective and each other one into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// A bound, as it was written.
#[derive(Clone, Debug)]
struct Requirement {
    text: String,
    bound: Bound,
}

impl FromStr for Requirement {
    type Err = BadBound;

    fn from_str(text: &str) -> Result<Requirement, BadBound> {
        Ok(Requirement { text: text.to_owned(), bound: text.parse()? })
    }
}

/// Configurations that are run, at most.
const MOST_TRIALS: i64 = chip::sweep::MOST as i64;

/// The search, as the package does it.
const SEARCH: Work = Work { module: &["wirerate.pareto"], extra: "optimise", what: "the search" };

/// Configurations that cannot be run, of which that many are shown.
const SHOWN: usize = 3;

fn help() -> String {
    let mut text = String::from(
        "\
Examples:
  wirerate chip optimise --chip ixp2400 policies/firewall.toml \\
    'lan>wan,flows=each,frames=1000' --objective engines,throughput \\
    --vary pool.process.at=1,1-2,1-4,1-6
  wirerate chip optimise --chip ixp2400 policies/firewall.toml \\
    'lan>wan,flows=each,frames=1000,rate=150kpps' --vary rules=200 \\
    --vary pool.process.at=1,1-2,1-4,1-6 \\
    --vary pool.process.threads=1..8 \\
    --vary region.rule-table=sram,dram,scratch \\
    --objective engines,threads,latency --require 'lost<=0' \\
    --trials 40 --plot front.svg
  wirerate chip optimise --chip ixp2800 policies/home-office.toml \\
    'lan>wan,both,size=imix,frames=1000' --objective power,latency,memory \\
    --require 'delivered>=1Gbit/s' --vary pool.process.at=1,1-2,1-4,1-8 \\
    --vary 'clock=1000 MHz,1400 MHz' --json

Objectives, and units of their requirements:
",
    );
    for objective in OBJECTIVES {
        let side = match objective.better {
            Better::More => "the more",
            Better::Less => "the less",
        };
        text.push_str(&format!("  {:10} {side}: {}\n", objective.name, objective.about));
    }
    text.push_str(
        "  throughput also in Mpps, and in % of the load of the traffic; delivered in Mpps; times in ns, us, ms, s; memory in B, KB,
  MB, GB. Gbit/s are bits of frames: a full gigabit line of 64-byte frames is 0.76 Gbit/s, or 1.488 Mpps.

The search needs python3 with the package: pip install 'wirerate[optimise]'.

",
    );
    text.push_str(&keys());
    text.push_str(
        "
--json prints one object:
  combinations            configurations that there are
  exact                   true if all of them were run
  front                   parameters and figures of each, as of `chip sweep`, the best in the first objective first
  trials                  the same of all that were run, in that order, with feasible, and with error where there are no figures",
    );
    text
}

/// Line of the package's output.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// Number of configurations that were run.
    Done { done: u64 },
    /// Numbers of the front's configurations among all combinations, the best first.
    Front { front: Vec<usize>, exact: bool },
    /// A configuration that was run.
    Trial { number: usize, feasible: bool, cells: Option<Vec<Cell>>, error: Option<String> },
}

/// Configuration that was run.
struct Trial {
    row: Row,
    is_feasible: bool,
}

/// Result of a search.
struct Found {
    /// Configurations in the order in which they were run.
    trials: Vec<Trial>,
    /// Places of the front's configurations among them, the best first.
    front: Vec<usize>,
    is_exact: bool,
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.check()?;
        let Prepared { texts, plan, .. } = self.subject.prepare_unfitted()?;
        let grid = Grid::vast(self.vary.clone()).map_err(ChipError::Grid)?;
        let columns = || {
            let bounds = self.require.iter().map(|requirement| requirement.bound.column);
            self.objective.iter().map(|objective| objective.column).chain(bounds)
        };
        let loss = columns().any(|column| column.starts_with("throughput_")).then_some(self.loss.0);
        let sweep = Sweep { grid, texts, plan, runs: self.repeat, warm: self.warm, loss };
        sweep.check().map_err(refused)?;
        columns().try_for_each(|column| sweep.check_column(column)).map_err(refused)?;
        let found = self.search(&sweep)?;
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", self.object(&sweep, &found))?;
        } else {
            self.print(&mut out, &sweep, &found)?;
        }
        if let Some(path) = &self.plot {
            let drawn = picture::of(&self.objective, &found).map_err(ChipError::Objectives)?;
            fs::write(path, drawn).map_err(|error| OutputError::Write { path: path.clone(), error })?;
            if !self.json {
                writeln!(out, "Drawn in {}.", path.display())?;
            }
        }
        if found.trials.iter().all(|trial| trial.row.outcome.is_err()) {
            return Err(ChipError::NothingRan(found.trials.len()).into());
        }
        Ok(Exit::Done)
    }

    /// Makes sure that the objectives make sense together, before anything is read.
    fn check(&self) -> Result<(), Failure> {
        for (place, objective) in self.objective.iter().enumerate() {
            if self.objective[..place].contains(objective) {
                let message = format!("{} is an objective twice", objective.name);
                return Err(ChipError::Objectives(message).into());
            }
        }
        if self.plot.is_some() && self.objective.len() < 2 {
            let message = "a picture of a front takes two objectives or more".to_owned();
            return Err(ChipError::Objectives(message).into());
        }
        Ok(())
    }

    fn search(&self, sweep: &Sweep) -> Result<Found, Failure> {
        let mut asked = request(&self.subject, sweep);
        let names = self.objective.iter().map(|objective| objective.name);
        asked["objectives"] = json!(names.collect::<Vec<_>>());
        let require = self.require.iter().map(|requirement| requirement.text.as_str());
        asked["require"] = json!(require.collect::<Vec<_>>());
        asked["trials"] = json!(self.trials);
        let most = sweep.grid.combinations().min(self.trials as usize) as u64;
        let mut progress = Progress::new("optimise", Unit::Packet, most);
        let mut trials = Vec::new();
        let mut places = BTreeMap::new();
        let mut ended = None;
        SEARCH.run(self.ray.as_deref(), &asked, |line| {
            match line {
                Line::Done { done } => {
                    progress.reach(done, count(done, "configuration", "configurations"));
                }
                Line::Front { front, exact } => ended = Some((front, exact)),
                Line::Trial { number, feasible, cells, error } => {
                    if number >= sweep.grid.combinations() {
                        let line = "a configuration that there is not".to_owned();
                        return Err(PackageError::Garbled { line }.into());
                    }
                    places.insert(number, trials.len());
                    trials.push(Trial { row: row(sweep, number, cells, error)?, is_feasible: feasible });
                }
            }
            Ok(())
        })?;
        progress.finish();
        let (numbers, is_exact) = ended.ok_or_else(|| SEARCH.refusal(""))?;
        let front: Option<Vec<usize>> = numbers.iter().map(|number| places.get(number).copied()).collect();
        let front = front.ok_or_else(|| PackageError::Garbled { line: "a front of others".to_owned() })?;
        Ok(Found { trials, front, is_exact })
    }

    fn object(&self, sweep: &Sweep, found: &Found) -> Value {
        let names: Vec<&str> = sweep.grid.axes().iter().map(|axis| axis.name.as_str()).collect();
        let columns = Figures::columns(sweep.runs, sweep.loss);
        let object = |trial: &Trial| -> Map<String, Value> {
            let values = trial.row.values.iter().map(|value| json!(value));
            let mut object: Map<String, Value> =
                names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            match &trial.row.outcome {
                Ok(figures) => {
                    let cells = figures.cells();
                    object.extend(columns.iter().cloned().zip(cells.iter().map(|cell| json!(cell))));
                }
                Err(error) => {
                    object.insert("error".to_owned(), json!(error));
                }
            }
            object
        };
        let front = found.front.iter().map(|place| object(&found.trials[*place]));
        let trials = found.trials.iter().map(|trial| {
            let mut object = object(trial);
            object.insert("feasible".to_owned(), json!(trial.is_feasible));
            object
        });
        json!({
            "combinations": sweep.grid.combinations(),
            "exact": found.is_exact,
            "front": front.collect::<Vec<_>>(),
            "trials": trials.collect::<Vec<_>>(),
        })
    }

    fn print(&self, out: &mut impl Write, sweep: &Sweep, found: &Found) -> io::Result<()> {
        let run = found.trials.len() as u64;
        let of = match found.is_exact {
            true => format!("all {} were run", count(run, "configuration", "configurations")),
            false => format!(
                "{} of {} configurations were run, chosen by NSGA-II",
                number(run),
                number(sweep.grid.combinations() as u64)
            ),
        };
        let names = self.objective.iter().map(|objective| objective.name).collect::<Vec<_>>().join(", ");
        writeln!(out, "{HEADING}Pareto front of {names}{HEADING:#} {DIM}{of}{DIM:#}")?;
        let mut shown = Table::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let heads = sweep.grid.axes().iter().map(|axis| axis.name.clone());
        shown.row(heads.chain(self.objective.iter().map(|objective| objective.name.to_owned())));
        for trial in found.front.iter().map(|place| &found.trials[*place]) {
            let figures = self.objective.iter().map(|objective| {
                figure(trial, objective).map_or_else(|| "-".to_owned(), |value| in_words(objective, value))
            });
            shown.row(trial.row.values.iter().cloned().chain(figures));
        }
        if found.front.is_empty() {
            writeln!(out, "  {BAD}none: no configuration that was run meets what is required{BAD:#}")?;
        } else {
            write!(out, "{shown}")?;
        }
        let missed = |trial: &&Trial| !trial.is_feasible && trial.row.outcome.is_ok();
        match found.trials.iter().filter(missed).count() as u64 {
            0 => {}
            missed => writeln!(
                out,
                "{DIM}{} what is required.{DIM:#}",
                match missed {
                    1 => "1 configuration does not meet".to_owned(),
                    missed => format!("{} configurations do not meet", number(missed)),
                }
            )?,
        }
        let errors =
            || found.trials.iter().filter_map(|trial| Some((trial, trial.row.outcome.as_ref().err()?)));
        for (trial, error) in errors().take(SHOWN) {
            writeln!(out, "{DIM}{}:{DIM:#} {error}", trial.row.values.join(", "))?;
        }
        match errors().count().saturating_sub(SHOWN) as u64 {
            0 => Ok(()),
            more => writeln!(out, "{DIM}{} more cannot be run; --json has each.{DIM:#}", number(more)),
        }
    }
}

/// Figure of a configuration that an objective is about; `None` where it could not be run.
fn figure(trial: &Trial, objective: &Objective) -> Option<f64> {
    let figures = trial.row.outcome.as_ref().ok()?;
    let loss = figures.throughput.map(|_| 0.0);
    let columns = Figures::columns(1, loss);
    let place = columns.iter().position(|column| column == objective.column)?;
    match figures.cells().get(place)? {
        Cell::Number(number) => Some(*number),
        Cell::Name(_) | Cell::Nothing => None,
    }
}

/// A value with its unit.
fn in_words(objective: &Objective, value: f64) -> String {
    match objective.unit {
        "ns" => table::time(value),
        "B" => format!("{} B", number(value.round() as u64)),
        "" if value.fract() == 0.0 => number(value as u64),
        "" => format!("{value:.1}"),
        "W" => format!("{value:.2} W"),
        unit => format!("{value:.4} {unit}"),
    }
}
