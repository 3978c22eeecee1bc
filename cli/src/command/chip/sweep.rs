//! `wirerate chip sweep`: what becomes of it when a parameter changes?

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use chip::plan::{Prepared, Problems};
use chip::sweep::{Axis, Figures, Grid, Mean, Row, Sweep, SweepError};
use clap::Args;
use serde_json::{Map, Value, json};

use super::plan::{Subject, keys, tell_problems};
use super::search::Ratio;
use super::{package, table};
use crate::failure::{ChipError, Exit, Failure, OutputError};
use crate::progress::{Progress, Unit};
use crate::screen::{DIM, HEADING, Table, count, number};
use crate::{builtin, screen, with_exit_codes};

/// Run a policy and traffic on a modelled chip with all combinations of some parameters
///
/// Each combination is a run of its own, on all cores; each is a row. What cannot be run, as more threads than there are,
/// is a row that says why. A parameter is one of the chip or the mapping by its path, as with --set; a key of generated
/// traffic, in all streams; or `rules` or `classes`: how many of them that match nothing are put before those of the policy.
///
/// With --repeat, a row has the means over independent runs of generated traffic, and the half-widths of their 95 %
/// confidence intervals by Student's t: what another choice of seeds would change. Run K of N is that of `chip run` with
/// --seed SEED+K-1; all combinations have the same seeds.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// A parameter and its values: a list, FIRST..LAST or FIRST..LAST:STEP; values of TOML may have commas in braces; may be
    /// repeated
    #[arg(long, required = true, value_name = "PATH=VALUES")]
    vary: Vec<Axis>,

    /// Leave the first N frames, and what comes after the last, out of what is told, for a steady state
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// Run each combination N times, with the seeds SEED, SEED+1 and so on, and show means with 95 % confidence intervals;
    /// five to ten are usual
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_RUNS))]
    repeat: u32,

    /// Also search, in each run, for the highest load at which no larger share of frames is lost, up to that of the traffic: 0 for no loss
    #[arg(long, value_name = "RATIO")]
    loss: Option<Ratio>,

    /// Run the combinations on the Ray cluster at this address, as auto or HOST:6379, whose nodes have the Python package
    /// and its extra `ray`; so must the python3 of this machine
    #[arg(long, value_name = "ADDRESS")]
    ray: Option<String>,

    /// Write the rows into this file as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print one JSON array instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs of a combination, at most.
const MOST_RUNS: i64 = 1_000;

fn help() -> String {
    format!(
        "\
Examples:
  wirerate chip sweep --chip ixp2400 policies/firewall.toml \\
    'lan>wan,both,frames=20000' --vary memory.sram.latency=50,90,150
  wirerate chip sweep --chip ixp2400 --mapping firewall \\
    policies/firewall.toml 'lan>wan,flows=each,frames=5000' \\
    --vary pool.firewall.threads=1..8:2 --vary rules=1..64:21 --csv rules.csv
  wirerate chip sweep --chip ixp2800 policies/home-office.toml \\
    'lan>wan,both,frames=5000' \\
    --vary size=64,512,1518 --vary flows=100,10000 --json
  wirerate chip sweep --chip ixp2400 --mapping firewall \\
    policies/firewall.toml 'lan>wan,flows=each,frames=5000' \\
    --vary region.rule-table=sram,local --vary 'pool.firewall.at=5,5-6,5-7'
  wirerate chip sweep --chip ixp2400 policies/firewall.toml \\
    'lan>wan,arrivals=poisson,rate=60%,frames=5000' --warm 1000 \\
    --vary memory.sram.latency=90,150 --repeat 5
  wirerate chip sweep --chip ixp2400 policies/firewall.toml \\
    'lan>wan,flows=each,frames=2000' --loss 0.1% \\
    --vary pool.process.at=1,1-2,1-4

{}
--json prints one array of objects, --csv has the same as columns:
  the parameters          by their names, as text
  offered_mpps delivered_mpps ended_mpps gbps lost
  reordered               frames that left after a later one of their flow
  dealt_mpps              delivered and ended
  p50_ns p99_ns           latency
  engine engine_busy      the busiest engine: executing, aborted and stalled; from 0 to 1
  memory memory_busy      the busiest memory, the mean over its channels
  engines threads memory_bytes watts
                          costs, as `chip optimise --help` has them; watts only of a chip whose [power] says enough
  throughput_mpps throughput_gbps throughput_share
                          with --loss: what is carried, and its share of the load of the traffic
  NAME_ci95               with --repeat, of each number: half-width of its 95 % interval
  error                   why there is nothing of that",
        keys()
    )
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Prepared { texts, plan, .. } = self.subject.prepare_unfitted()?;
        let grid = Grid::new(self.vary.clone()).map_err(ChipError::Grid)?;
        let (runs, warm, loss) = (self.repeat, self.warm, self.loss.map(|loss| loss.0));
        let sweep = Sweep { grid, texts, plan, runs, warm, loss };
        sweep.check().map_err(refused)?;
        let grid = &sweep.grid;
        let problems = Problems::default();
        let mut rows = Rows::new(&self, grid)?;
        let all = grid.combinations() as u64;
        let mut progress = Progress::new("sweep", Unit::Packet, all);
        match &self.ray {
            Some(address) => {
                let tell = |done| progress.reach(done, count(done, "combination", "combinations"));
                package::sweep(address, &self.subject, &sweep, tell, |row| rows.take(row))?;
            }
            None => grid.run(
                |number| sweep.row(number, &problems),
                |row| -> Result<(), Failure> {
                    rows.take(row)?;
                    progress.reach(rows.done, count(rows.done, "combination", "combinations"));
                    Ok(())
                },
            )?,
        }
        progress.finish();
        rows.finish()?;
        if rows.same == rows.done {
            screen::note(&format_args!(
                "nothing in this traffic is random: all {} of a combination are the same",
                count(self.repeat.into(), "run", "runs")
            ));
        }
        if rows.wrong == rows.done {
            return Err(ChipError::NothingRan(grid.combinations()).into());
        }
        Ok(tell_problems(&problems))
    }
}

pub(super) fn refused(error: SweepError) -> Failure {
    match error {
        SweepError::Set(error) => builtin::failed(error),
        SweepError::Grid(error) => ChipError::Grid(error).into(),
        SweepError::Stream(error) => ChipError::Stream(error).into(),
        SweepError::NothingRandom => ChipError::NothingRandom.into(),
        error @ SweepError::NoPower { .. } => ChipError::NoPower(error).into(),
    }
}

/// Output of rows.
struct Rows {
    names: Vec<String>,
    /// Columns of figures.
    columns: Vec<String>,
    /// Runs of a combination.
    runs: u32,
    csv: Option<Csv>,
    json: bool,
    shown: Vec<Row>,
    done: u64,
    wrong: u64,
    /// Number of rows whose runs are all the same.
    same: u64,
}

/// A file of comma-separated values (RFC 4180, but for its line ends).
struct Csv {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Rows {
    fn new(arguments: &Arguments, grid: &Grid) -> Result<Rows, Failure> {
        let names: Vec<String> = grid.axes().iter().map(|axis| axis.name.clone()).collect();
        let columns = Figures::columns(arguments.repeat, arguments.loss.map(|loss| loss.0));
        let csv = match &arguments.csv {
            Some(path) => {
                let path = path.clone();
                let out =
                    File::create(&path).map_err(|error| OutputError::Write { path: path.clone(), error })?;
                let mut csv = Csv { path, out: BufWriter::new(out) };
                let heads = names.iter().chain(&columns).map(String::as_str).chain(["error"]);
                csv.line(heads)?;
                Some(csv)
            }
            None => None,
        };
        let (runs, json, shown) = (arguments.repeat, arguments.json, Vec::new());
        Ok(Rows { names, columns, runs, csv, json, shown, done: 0, wrong: 0, same: 0 })
    }

    fn take(&mut self, row: Row) -> Result<(), Failure> {
        self.done += 1;
        self.wrong += u64::from(row.outcome.is_err());
        self.same += u64::from(row.outcome.as_ref().is_ok_and(Figures::is_the_same_in_all_runs));
        if let Some(csv) = &mut self.csv {
            let (cells, error) = match &row.outcome {
                Ok(figures) => (figures.cells().iter().map(ToString::to_string).collect(), ""),
                Err(error) => (vec![String::new(); self.columns.len()], error.as_str()),
            };
            let values = row.values.iter().map(String::as_str);
            csv.line(values.chain(cells.iter().map(String::as_str)).chain([error]))?;
        }
        if self.json {
            let mut out = screen::out();
            let before = if self.done == 1 { "[\n" } else { ",\n" };
            write!(out, "{before}{}", self.object(&row))?;
        } else {
            self.shown.push(row);
        }
        Ok(())
    }

    fn object(&self, row: &Row) -> Value {
        let mut object: Map<String, Value> =
            self.names.iter().cloned().zip(row.values.iter().map(|value| json!(value))).collect();
        match &row.outcome {
            Ok(figures) => {
                let cells = figures.cells();
                object.extend(self.columns.iter().cloned().zip(cells.iter().map(|cell| json!(cell))));
            }
            Err(error) => {
                object.insert("error".to_owned(), json!(error));
            }
        }
        Value::Object(object)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let mut out = screen::out();
        if self.json {
            writeln!(out, "\n]")?;
        } else {
            self.print(&mut out)?;
        }
        let Some(mut csv) = self.csv.take() else { return Ok(()) };
        csv.out.flush().map_err(|error| OutputError::Write { path: csv.path.clone(), error })?;
        if !self.json {
            writeln!(out, "Written to {}.", csv.path.display())?;
        }
        Ok(())
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{HEADING}{}{HEADING:#} {DIM}millions of frames a second{}{DIM:#}",
            self.names.join(", "),
            if self.runs > 1 {
                format!("; means of {} runs ± half of their 95 % confidence interval", self.runs)
            } else {
                String::new()
            }
        )?;
        let has_throughput =
            self.shown.iter().any(|row| row.outcome.as_ref().is_ok_and(|of| of.throughput.is_some()));
        let mut table = Table::new(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let heads = [
            "",
            "offered",
            "dealt with",
            "Gbit/s",
            "lost",
            "reordered",
            "50 %",
            "99 %",
            "busiest engine",
            "busiest memory",
        ];
        let throughput = has_throughput.then_some("throughput");
        table.row(heads.into_iter().chain(throughput).map(str::to_owned));
        for row in &self.shown {
            let values = row.values.join(", ");
            let Ok(figures) = &row.outcome else {
                table.row([values, "-".to_owned()]);
                continue;
            };
            let rate = |rate: f64| format!("{rate:.4}");
            let busy = |name: &str, share: Mean| format!("{name} {:.1} %", share.value * 100.0);
            let cells = [
                values,
                shown(figures.offered_mpps, &rate),
                shown(figures.dealt_mpps, &rate),
                shown(figures.gbps, &rate),
                shown(figures.lost, &frames),
                shown(figures.reordered, &frames),
                shown(figures.p50_ns, &table::time),
                shown(figures.p99_ns, &table::time),
                busy(&figures.engine, figures.engine_busy),
                busy(&figures.memory, figures.memory_busy),
            ];
            let throughput = figures.throughput.map(|of| format!("{} Gbit/s", shown(of.gbps, &rate)));
            table.row(cells.into_iter().chain(throughput));
        }
        write!(out, "{table}")?;
        for row in &self.shown {
            if let Err(error) = &row.outcome {
                writeln!(out, "{DIM}{}:{DIM:#} {error}", row.values.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A mean as a cell of the table, with its interval.
fn shown(mean: Mean, each: &dyn Fn(f64) -> String) -> String {
    match mean.half_width {
        Some(half_width) => format!("{} ± {}", each(mean.value), each(half_width)),
        None => each(mean.value),
    }
}

/// A number of frames, which as a mean need not be whole.
fn frames(frames: f64) -> String {
    if frames.fract() == 0.0 { number(frames as u64) } else { format!("{frames:.1}") }
}

impl Csv {
    fn line<'a>(&mut self, cells: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let cells: Vec<String> = cells.map(quoted).collect();
        writeln!(self.out, "{}", cells.join(","))
            .map_err(|error| OutputError::Write { path: self.path.clone(), error })?;
        Ok(())
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("8 MB"), "8 MB");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
