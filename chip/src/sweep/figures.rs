//! Figures of a combination: means over its runs, with confidence intervals.

use std::fmt;

use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};
use statrs::statistics::Statistics;

use crate::estimate::line::quantile;
use crate::report::Report;

/// Mean of a figure over the runs of a combination, with the half-width of its confidence interval.
///
/// The method is replication/deletion (Law, Simulation Modeling and Analysis, 5th edition, 2015, section 9.5.2; Law and Kelton before
/// it): each run has random numbers of its own, begins with a machine at rest, and its first frames, `warm` of them, are left out.
/// Runs are independent, however a queue ties the frames of one to those before; their means are close to normal, so that the true
/// mean lies within `value` ± `half_width`, by Student's t distribution, in 95 of 100 sweeps
/// ([`CONFIDENCE`](crate::estimate::line::CONFIDENCE)). Batch means of one run (section 9.5.3) would cost fewer warm-ups, but want
/// batches far longer than queues remember, which runs of some thousand frames have not: near saturation their intervals are too
/// narrow. All combinations have the same seeds (common random numbers, section 11.2), so that they differ by their parameters alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Mean over the runs.
    pub value: f64,
    /// Half-width of the interval; `None` of a single run. 0 where all runs have the same value.
    pub half_width: Option<f64>,
}

impl Mean {
    /// Returns the mean of values, one of each run: one at least.
    pub fn of(values: &[f64]) -> Mean {
        let first = values.first().copied().unwrap_or_default();
        // As differences from the first: what is the same in all runs is that value exactly, and its interval 0.
        let differences = || values.iter().map(|value| value - first);
        let runs = values.len() as f64;
        let half_width =
            (values.len() > 1).then(|| quantile(runs - 1.0) * differences().std_dev() / runs.sqrt());
        Mean { value: first + differences().mean(), half_width }
    }
}

/// Figures of a combination in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Frames offered, in millions a second.
    pub offered_mpps: Mean,
    /// Frames that left, in millions a second.
    pub delivered_mpps: Mean,
    /// Frames ended by the policy inside the chip, in millions a second.
    pub ended_mpps: Mean,
    /// Frames that left or were ended by the policy, in millions a second.
    pub dealt_mpps: Mean,
    /// Bits of the frames that left, in 10^9 a second.
    pub gbps: Mean,
    /// Frames lost to overload.
    pub lost: Mean,
    /// Frames that left after a later one of their flow.
    pub reordered: Mean,
    /// Median latency, in nanoseconds.
    pub p50_ns: Mean,
    /// 99th percentile of latency, in nanoseconds.
    pub p99_ns: Mean,
    /// Busiest engine; empty where there is none.
    pub engine: String,
    /// Share of time that the busiest engine was not idle: executing, aborted or stalled.
    pub engine_busy: Mean,
    /// Busiest memory; empty where there is none.
    pub memory: String,
    /// Share of time that its channels were busy.
    pub memory_busy: Mean,
}

/// Value in a column of a row.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A name; empty where there is none.
    Name(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => number.fmt(f),
            Cell::Name(name) => f.write_str(name),
        }
    }
}

impl Figures {
    /// Names of the columns of figures, in their order.
    const NAMES: [&'static str; 13] = [
        "offered_mpps",
        "delivered_mpps",
        "ended_mpps",
        "dealt_mpps",
        "gbps",
        "lost",
        "reordered",
        "p50_ns",
        "p99_ns",
        "engine",
        "engine_busy",
        "memory",
        "memory_busy",
    ];

    /// Ending of the name of a column that has the half-width of an interval.
    const INTERVAL: &'static str = "_ci95";

    /// Makes so many `runs`, one at least, on all cores, each given its number from 0, and takes the figures from their reports.
    ///
    /// # Errors
    /// The first run that fails, by number.
    pub fn over<E: Send>(
        runs: u32,
        run: impl Fn(u32) -> Result<Report, E> + Sync + Send,
    ) -> Result<Figures, E> {
        // Collected before errors are: which one is told must not depend on the cores.
        let reports: Vec<Result<Report, E>> = (0..runs.max(1)).into_par_iter().map(run).collect();
        Ok(Figures::of(&reports.into_iter().collect::<Result<Vec<Report>, E>>()?))
    }

    /// Takes the figures from the reports of a combination's runs. The busiest engine and memory are the busiest on average.
    fn of(reports: &[Report]) -> Figures {
        let mean =
            |figure: &dyn Fn(&Report) -> f64| Mean::of(&reports.iter().map(figure).collect::<Vec<_>>());
        // All runs have the same parts, in the same order. Of those as busy as each other, the first.
        let busiest = |parts: &dyn Fn(&Report) -> Vec<(f64, String)>| {
            let runs: Vec<Vec<(f64, String)>> = reports.iter().map(parts).collect();
            let names = runs.first().into_iter().flatten().map(|(_, name)| name);
            let means = names.enumerate().map(|(place, name)| {
                let shares = runs.iter().filter_map(|run| run.get(place)).map(|(busy, _)| *busy);
                (Mean::of(&shares.collect::<Vec<_>>()), name)
            });
            let most = means.reduce(|best, next| if next.0.value > best.0.value { next } else { best });
            most.map_or_else(|| (mean(&|_| 0.0), String::new()), |(busy, name)| (busy, name.clone()))
        };
        let (engine_busy, engine) = busiest(&|report| {
            report
                .engines
                .iter()
                .map(|engine| (1.0 - engine.idle - engine.polling, engine.name.clone()))
                .collect()
        });
        let (memory_busy, memory) = busiest(&|report| {
            report.memories.iter().map(|memory| (memory.utilisation, memory.name.clone())).collect()
        });
        Figures {
            offered_mpps: mean(&|report| report.offered_mpps),
            delivered_mpps: mean(&|report| report.delivered_mpps),
            ended_mpps: mean(&|report| report.ended_mpps),
            dealt_mpps: mean(&Report::dealt_mpps),
            gbps: mean(&|report| report.gbps),
            lost: mean(&|report| report.lost as f64),
            reordered: mean(&|report| report.reordered as f64),
            p50_ns: mean(&|report| report.latency_ns.p50),
            p99_ns: mean(&|report| report.latency_ns.p99),
            engine,
            engine_busy,
            memory,
            memory_busy,
        }
    }

    /// Returns the names of the columns: the figures, and behind them, where a combination has several `runs`, the half-widths of
    /// their intervals.
    pub fn columns(runs: u32) -> Vec<String> {
        let figures = Figures::NAMES.map(str::to_owned);
        let has_interval = |name: &&str| !["engine", "memory"].contains(name);
        let intervals = Figures::NAMES.into_iter().filter(has_interval).filter(|_| runs > 1);
        figures.into_iter().chain(intervals.map(|name| format!("{name}{}", Figures::INTERVAL))).collect()
    }

    /// Returns the values of [`Figures::columns`], in their order.
    pub fn cells(&self) -> Vec<Cell> {
        let means = |means: &[Mean]| means.iter().map(|mean| Cell::Number(mean.value)).collect::<Vec<_>>();
        let name = |name: &String| vec![Cell::Name(name.clone())];
        let half_widths = self.means().into_iter().filter_map(|mean| mean.half_width);
        [
            means(&self.rates()),
            name(&self.engine),
            means(&[self.engine_busy]),
            name(&self.memory),
            means(&[self.memory_busy]),
            half_widths.map(Cell::Number).collect(),
        ]
        .concat()
    }

    /// Takes figures from the values of [`Figures::columns`], of so many `runs`; `None` where they are not those.
    pub fn from_cells(cells: &[Cell], runs: u32) -> Option<Figures> {
        let columns = Figures::columns(runs);
        if cells.len() != columns.len() {
            return None;
        }
        let cell =
            |name: &str| columns.iter().zip(cells).find(|(column, _)| *column == name).map(|(_, cell)| cell);
        let number = |name: &str| match cell(name)? {
            Cell::Number(number) => Some(*number),
            Cell::Name(_) => None,
        };
        let word = |name: &str| match cell(name)? {
            Cell::Name(word) => Some(word.clone()),
            Cell::Number(_) => None,
        };
        let mean = |name: &str| {
            let half_width = match runs {
                0..=1 => None,
                _ => Some(number(&format!("{name}{}", Figures::INTERVAL))?),
            };
            Some(Mean { value: number(name)?, half_width })
        };
        Some(Figures {
            offered_mpps: mean("offered_mpps")?,
            delivered_mpps: mean("delivered_mpps")?,
            ended_mpps: mean("ended_mpps")?,
            dealt_mpps: mean("dealt_mpps")?,
            gbps: mean("gbps")?,
            lost: mean("lost")?,
            reordered: mean("reordered")?,
            p50_ns: mean("p50_ns")?,
            p99_ns: mean("p99_ns")?,
            engine: word("engine")?,
            engine_busy: mean("engine_busy")?,
            memory: word("memory")?,
            memory_busy: mean("memory_busy")?,
        })
    }

    /// True if there were several runs, and all had the same figures.
    pub fn is_the_same_in_all_runs(&self) -> bool {
        self.means().iter().all(|mean| mean.half_width == Some(0.0))
    }

    /// Means, in the order of the columns.
    fn means(&self) -> Vec<Mean> {
        [&self.rates()[..], &[self.engine_busy, self.memory_busy]].concat()
    }

    /// Throughput, loss and latency, in the order of the columns.
    fn rates(&self) -> [Mean; 9] {
        [
            self.offered_mpps,
            self.delivered_mpps,
            self.ended_mpps,
            self.dealt_mpps,
            self.gbps,
            self.lost,
            self.reordered,
            self.p50_ns,
            self.p99_ns,
        ]
    }
}
