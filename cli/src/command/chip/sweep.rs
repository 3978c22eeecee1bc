//! `wirerate chip sweep`: what becomes of it when a parameter changes?

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use chip::machine::Ideal;
use chip::run::Setup;
use chip::sweep::{Axis, BadAxis, Choice, Figures, Grid, Key, Row, with_rules};
use clap::Args;
use dataplane::Replay;
use dataplane::replay::Way;
use serde_json::{Map, Value, json};

use super::captured::Problems;
use super::plan::{Plan, Prepared, Subject, Variant, fits, keys, tell_problems};
use super::table;
use crate::builtin::{Texts, first_error};
use crate::failure::{ChipError, Exit, Failure, OutputError};
use crate::progress::{Progress, Unit};
use crate::screen::{DIM, HEADING, Table, count, number};
use crate::{screen, with_exit_codes};

/// Run a policy and traffic on a modelled chip with all combinations of some parameters
///
/// Each combination is a run of its own, on all cores; each is a row. What cannot be run, as more threads than there are,
/// is a row that says why. A parameter is one of the chip or the mapping by its path, as with --set; a key of generated
/// traffic, in all streams; or `rules`: how many rules that match nothing are put before those of the policy.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// A parameter and its values: a list, FIRST..LAST or FIRST..LAST:STEP; may be repeated
    #[arg(long, required = true, value_name = "PATH=VALUES")]
    vary: Vec<Axis>,

    /// Leave the first N frames, and what comes after the last, out of what is told, for a steady state
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// Write the rows into this file as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print one JSON array instead of the table
    #[arg(long)]
    json: bool,
}

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

{}
--json prints one array of objects, --csv has the same as columns:
  the parameters          by their names, as text
  offered_mpps delivered_mpps ended_mpps gbps lost
  p50_ns p99_ns           latency
  engine engine_busy      the busiest engine: executing, aborted and stalled; from 0 to 1
  memory memory_busy      the busiest memory, the mean over its channels
  error                   why there is nothing of that",
        keys()
    )
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Prepared { texts, plan, .. } = self.subject.prepare_unfitted()?;
        let grid = Grid::new(self.vary.clone()).map_err(ChipError::Grid)?;
        check(&grid, &texts, &plan)?;
        let problems = Problems::default();
        let mut rows = Rows::new(&self, &grid)?;
        let all = grid.combinations() as u64;
        let mut progress = Progress::new("sweep", Unit::Packet, all);
        let run = |choices: &[Choice<'_>]| figures(choices, &texts, &plan, self.warm, &problems);
        grid.run(run, |row| -> Result<(), Failure> {
            rows.take(row)?;
            progress.reach(rows.done, count(rows.done, "combination", "combinations"));
            Ok(())
        })?;
        progress.finish();
        rows.finish()?;
        if rows.wrong == rows.done {
            return Err(ChipError::NothingRan(grid.combinations()).into());
        }
        Ok(tell_problems(&problems))
    }
}

/// Makes sure that what is varied is there, before anything is run. Whether its values are right shows with each.
fn check(grid: &Grid, texts: &Texts, plan: &Plan) -> Result<(), Failure> {
    for axis in grid.axes() {
        for value in &axis.values {
            match &axis.key {
                Key::Parameter(path) => texts.clone().set(path, value)?,
                Key::Traffic(_) if plan.streams.is_empty() => {
                    return Err(ChipError::Grid(BadAxis::NoStream { name: axis.name.clone() }).into());
                }
                Key::Traffic(key) => {
                    for stream in &plan.streams {
                        stream.clone().set(key, value).map_err(ChipError::Stream)?;
                    }
                }
                Key::Rules => {}
            }
        }
    }
    Ok(())
}

/// Runs a combination, or says why that cannot be.
fn figures(
    choices: &[Choice<'_>],
    texts: &Texts,
    plan: &Plan,
    warm: u64,
    problems: &Problems,
) -> Result<Figures, String> {
    let (mut texts, mut plan) = (texts.clone(), plan.clone());
    for Choice { key, value } in choices {
        match key {
            Key::Parameter(path) => texts.set(path, value).map_err(|error| error.to_string())?,
            Key::Rules => plan.policy = with_rules(&plan.policy, value).map_err(|error| error.to_string())?,
            Key::Traffic(key) => {
                for stream in &mut plan.streams {
                    stream.set(key, value).map_err(|error| error.to_string())?;
                }
            }
        }
    }
    let described = texts.read_quietly()?;
    let plan = plan.on(&described.chip, &described.mapping);
    let tables = plan.tables().map_err(|error| error.to_string())?;
    let replay = Replay::new(tables, plan.start, Way::Step).map_err(|error| error.to_string())?;
    let found = fits(&described, &replay);
    if found.iter().any(|found| found.is_error()) {
        return Err(first_error(&found));
    }
    drop(replay);
    let source = || plan.source(Variant::WHOLE, problems);
    let setup = Setup { chip: &described.chip, mapping: &described.mapping, source: &source, warm };
    let report = setup.run(Ideal::Nothing, &mut ()).map_err(|error| error.to_string())?;
    Ok(Figures::of(&report))
}

/// Output of rows.
struct Rows {
    names: Vec<String>,
    csv: Option<Csv>,
    json: bool,
    shown: Vec<Row>,
    done: u64,
    wrong: u64,
}

/// A file of comma-separated values (RFC 4180, but for its line ends).
struct Csv {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Rows {
    fn new(arguments: &Arguments, grid: &Grid) -> Result<Rows, Failure> {
        let names: Vec<String> = grid.axes().iter().map(|axis| axis.name.clone()).collect();
        let csv = match &arguments.csv {
            Some(path) => {
                let path = path.clone();
                let out =
                    File::create(&path).map_err(|error| OutputError::Write { path: path.clone(), error })?;
                let mut csv = Csv { path, out: BufWriter::new(out) };
                let heads = names.iter().map(String::as_str).chain(Figures::NAMES).chain(["error"]);
                csv.line(heads)?;
                Some(csv)
            }
            None => None,
        };
        Ok(Rows { names, csv, json: arguments.json, shown: Vec::new(), done: 0, wrong: 0 })
    }

    fn take(&mut self, row: Row) -> Result<(), Failure> {
        self.done += 1;
        self.wrong += u64::from(row.outcome.is_err());
        if let Some(csv) = &mut self.csv {
            let (cells, error) = match &row.outcome {
                Ok(figures) => (figures.cells(), ""),
                Err(error) => (std::array::from_fn(|_| String::new()), error.as_str()),
            };
            let values = row.values.iter().map(String::as_str);
            csv.line(values.chain(cells.iter().map(String::as_str)).chain([error]))?;
        }
        if self.json {
            let mut out = screen::out();
            let before = if self.done == 1 { "[\n" } else { ",\n" };
            write!(out, "{before}{}", self.object(&row)?)?;
        } else {
            self.shown.push(row);
        }
        Ok(())
    }

    fn object(&self, row: &Row) -> io::Result<Value> {
        let mut object: Map<String, Value> =
            self.names.iter().cloned().zip(row.values.iter().map(|value| json!(value))).collect();
        match &row.outcome {
            Ok(figures) => {
                if let Value::Object(figures) = serde_json::to_value(figures)? {
                    object.extend(figures);
                }
            }
            Err(error) => {
                object.insert("error".to_owned(), json!(error));
            }
        }
        Ok(Value::Object(object))
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
            "{HEADING}{}{HEADING:#} {DIM}millions of frames a second{DIM:#}",
            self.names.join(", ")
        )?;
        let mut table = Table::new(&[0, 1, 2, 3, 4, 5, 6]);
        let heads = [
            "",
            "offered",
            "dealt with",
            "Gbit/s",
            "lost",
            "50 %",
            "99 %",
            "busiest engine",
            "busiest memory",
        ];
        table.row(heads.map(str::to_owned));
        for row in &self.shown {
            let values = row.values.join(", ");
            let Ok(figures) = &row.outcome else {
                table.row([values, "-".to_owned()]);
                continue;
            };
            let busy = |name: &str, share: f64| format!("{name} {:.1} %", share * 100.0);
            table.row([
                values,
                format!("{:.4}", figures.offered_mpps),
                format!("{:.4}", figures.delivered_mpps + figures.ended_mpps),
                format!("{:.4}", figures.gbps),
                number(figures.lost),
                table::time(figures.p50_ns),
                table::time(figures.p99_ns),
                busy(&figures.engine, figures.engine_busy),
                busy(&figures.memory, figures.memory_busy),
            ]);
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
