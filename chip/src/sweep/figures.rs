//! Figures of a combination: means over its runs, with confidence intervals.

use std::fmt;

use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};
use statrs::statistics::Statistics;
use wire::Bytes;

use crate::cost::Cost;
use crate::estimate::line::quantile;
use crate::report::Report;
use crate::search::GoalResult;

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
    /// Parts of the chip that the combination takes.
    pub cost: Cost,
    /// Power consumption in watts, by [`watts`](crate::cost::watts); absent where the chip has no shares of power.
    pub watts: Option<Mean>,
    /// Highest load that is carried; absent where none was sought.
    pub throughput: Option<Throughput>,
}

/// Highest load, up to that of the traffic as described, at which no larger share of frames is lost than was allowed: throughput as of RFC 9971,
/// and for no loss as of RFC 2544. 0 where no load was within that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Frames forwarded, in millions a second.
    pub mpps: Mean,
    /// Bits of the frames forwarded, in 10^9 a second.
    pub gbps: Mean,
    /// Share of the load as described.
    pub share: Mean,
}

/// A run of a combination, and what was found beside it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Report of the run.
    pub report: Report,
    /// Power consumption in watts; absent where the chip has no shares of power.
    pub watts: Option<f64>,
    /// Result of a search for the throughput; absent where none was made.
    pub goal: Option<GoalResult>,
}

/// Value in a column of a row.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A name; empty where there is none.
    Name(String),
    /// No value: of what the chip does not say.
    Nothing,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => number.fmt(f),
            Cell::Name(name) => f.write_str(name),
            Cell::Nothing => Ok(()),
        }
    }
}

impl From<&Item> for Cell {
    fn from(item: &Item) -> Cell {
        match item {
            Item::Mean(Some(mean)) => Cell::Number(mean.value),
            Item::Mean(None) => Cell::Nothing,
            Item::Count(count) => Cell::Number(*count as f64),
            Item::Name(name) => Cell::Name(name.clone()),
        }
    }
}

/// Figure of any kind.
enum Item {
    /// A mean over the runs, which has an interval; absent of what the chip does not say.
    Mean(Option<Mean>),
    /// A number that is the same in all runs.
    Count(u64),
    /// A name.
    Name(String),
}

impl Figures {
    /// Names of the columns of figures, in their order.
    const NAMES: [&'static str; 17] = [
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
        "engines",
        "threads",
        "memory_bytes",
        "watts",
    ];

    /// Names of the columns that are there where throughput was sought.
    const THROUGHPUT: [&'static str; 3] = ["throughput_mpps", "throughput_gbps", "throughput_share"];

    /// Names of columns that have no interval.
    const CERTAIN: [&'static str; 5] = ["engine", "memory", "engines", "threads", "memory_bytes"];

    /// Ending of the name of a column that has the half-width of an interval.
    const INTERVAL: &'static str = "_ci95";

    /// Makes so many `runs`, one at least, on all cores, each given its number from 0, and takes the figures from what was measured, of a
    /// combination with that cost.
    ///
    /// # Errors
    /// The first run that fails, by number.
    pub fn over<E: Send>(
        cost: Cost,
        runs: u32,
        run: impl Fn(u32) -> Result<Measured, E> + Sync + Send,
    ) -> Result<Figures, E> {
        // Collected before errors are: which one is told must not depend on the cores.
        let measured: Vec<Result<Measured, E>> = (0..runs.max(1)).into_par_iter().map(run).collect();
        Ok(Figures::of(cost, &measured.into_iter().collect::<Result<Vec<Measured>, E>>()?))
    }

    /// Takes the figures from the runs of a combination. The busiest engine and memory are the busiest on average.
    fn of(cost: Cost, measured: &[Measured]) -> Figures {
        let reports: Vec<&Report> = measured.iter().map(|run| &run.report).collect();
        let mean = |figure: &dyn Fn(&Report) -> f64| {
            Mean::of(&reports.iter().map(|report| figure(report)).collect::<Vec<_>>())
        };
        let watts: Option<Vec<f64>> = measured.iter().map(|run| run.watts).collect();
        let goals: Option<Vec<GoalResult>> = measured.iter().map(|run| run.goal).collect();
        let throughput = goals.map(|goals| {
            // Where even the lowest load is too much, nothing is carried.
            let mean = |figure: &dyn Fn(&GoalResult) -> Option<f64>| {
                Mean::of(&goals.iter().map(|goal| figure(goal).unwrap_or(0.0)).collect::<Vec<_>>())
            };
            Throughput {
                mpps: mean(&|goal| goal.throughput_mpps),
                gbps: mean(&|goal| goal.throughput_gbps),
                share: mean(&|goal| goal.lower.map(|lower| lower.load)),
            }
        });
        // All runs have the same parts, in the same order. Of those as busy as each other, the first.
        let busiest = |parts: &dyn Fn(&Report) -> Vec<(f64, String)>| {
            let runs: Vec<Vec<(f64, String)>> = reports.iter().map(|report| parts(report)).collect();
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
            cost,
            watts: watts.map(|watts| Mean::of(&watts)),
            throughput,
        }
    }

    /// Returns the names of the columns: the figures, with throughput where it was sought, of that loss; and behind them, where a
    /// combination has several `runs`, the half-widths of their intervals.
    pub fn columns(runs: u32, loss: Option<f64>) -> Vec<String> {
        let throughput = Figures::THROUGHPUT.into_iter().filter(|_| loss.is_some());
        let names: Vec<&str> = Figures::NAMES.into_iter().chain(throughput).collect();
        let has_interval = |name: &&&str| !Figures::CERTAIN.contains(*name) && runs > 1;
        let intervals = names.iter().filter(has_interval).map(|name| format!("{name}{}", Figures::INTERVAL));
        names.iter().map(|name| (*name).to_owned()).chain(intervals).collect()
    }

    /// Returns the values of [`Figures::columns`], in their order.
    pub fn cells(&self) -> Vec<Cell> {
        let items = self.items();
        let has_interval = self.offered_mpps.half_width.is_some();
        let intervals = items.iter().filter(|_| has_interval).filter_map(|item| match item {
            Item::Mean(mean) => {
                Some(mean.and_then(|mean| mean.half_width).map_or(Cell::Nothing, Cell::Number))
            }
            Item::Count(_) | Item::Name(_) => None,
        });
        items.iter().map(Cell::from).chain(intervals).collect()
    }

    /// Takes figures from the values of [`Figures::columns`], of so many `runs` and for that loss; `None` where they are not those.
    pub fn from_cells(cells: &[Cell], runs: u32, loss: Option<f64>) -> Option<Figures> {
        let columns = Figures::columns(runs, loss);
        if cells.len() != columns.len() {
            return None;
        }
        let cell =
            |name: &str| columns.iter().zip(cells).find(|(column, _)| *column == name).map(|(_, cell)| cell);
        let number = |name: &str| match cell(name)? {
            Cell::Number(number) => Some(*number),
            Cell::Name(_) | Cell::Nothing => None,
        };
        let word = |name: &str| match cell(name)? {
            Cell::Name(word) => Some(word.clone()),
            Cell::Number(_) | Cell::Nothing => None,
        };
        let count = |name: &str| number(name).filter(|number| *number >= 0.0 && number.fract() == 0.0);
        let mean = |name: &str| {
            let half_width = match runs {
                0..=1 => None,
                _ => Some(number(&format!("{name}{}", Figures::INTERVAL))?),
            };
            Some(Mean { value: number(name)?, half_width })
        };
        let throughput = match loss {
            None => None,
            Some(_) => Some(Throughput {
                mpps: mean("throughput_mpps")?,
                gbps: mean("throughput_gbps")?,
                share: mean("throughput_share")?,
            }),
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
            cost: Cost {
                engines: count("engines")? as u32,
                threads: count("threads")? as u32,
                memory: Bytes(count("memory_bytes")? as u64),
            },
            watts: match cell("watts")? {
                Cell::Nothing => None,
                _ => Some(mean("watts")?),
            },
            throughput,
        })
    }

    /// True if there were several runs, and all had the same figures.
    pub fn is_the_same_in_all_runs(&self) -> bool {
        let items = self.items();
        let mut means = items.iter().filter_map(|item| match item {
            Item::Mean(mean) => *mean,
            Item::Count(_) | Item::Name(_) => None,
        });
        means.all(|mean| mean.half_width == Some(0.0))
    }

    /// Figures in the order of the columns, without intervals.
    fn items(&self) -> Vec<Item> {
        let mean = |mean: Mean| Item::Mean(Some(mean));
        let Cost { engines, threads, memory } = self.cost;
        let mut items = vec![
            mean(self.offered_mpps),
            mean(self.delivered_mpps),
            mean(self.ended_mpps),
            mean(self.dealt_mpps),
            mean(self.gbps),
            mean(self.lost),
            mean(self.reordered),
            mean(self.p50_ns),
            mean(self.p99_ns),
            Item::Name(self.engine.clone()),
            mean(self.engine_busy),
            Item::Name(self.memory.clone()),
            mean(self.memory_busy),
            Item::Count(engines.into()),
            Item::Count(threads.into()),
            Item::Count(memory.0),
            Item::Mean(self.watts),
        ];
        if let Some(Throughput { mpps, gbps, share }) = self.throughput {
            items.extend([mpps, gbps, share].map(mean));
        }
        items
    }
}
