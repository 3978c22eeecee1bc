//! Sweeps and searches by the Python package: the plan goes to it as JSON, and rows come back, a line each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use chip::plan::Item;
use chip::plan::texts::Text;
use chip::sweep::{Cell, Figures, Row, Sweep};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::plan::Subject;
use crate::failure::{Failure, PackageError};

/// Interpreter that has the package.
const PYTHON: &str = "python3";

/// Work that a module of the package does.
pub(super) struct Work {
    /// Module, with its arguments.
    pub(super) module: &'static [&'static str],
    /// Extra of the package that it needs.
    pub(super) extra: &'static str,
    /// Work as a subject of errors: "the sweep on the cluster".
    pub(super) what: &'static str,
}

/// A sweep on a Ray cluster.
const SWEEP: Work =
    Work { module: &["wirerate.ray", "sweep"], extra: "ray", what: "the sweep on the cluster" };

/// Line of a sweep.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// Number of rows that are done.
    Done { done: u64 },
    /// A row, in the order of combinations.
    Row { cells: Option<Vec<Cell>>, error: Option<String> },
}

/// Runs all combinations on the cluster at `address`, tells `progress` how many are done, and hands the rows to `take`, in their order.
pub(super) fn sweep(
    address: &str,
    subject: &Subject,
    sweep: &Sweep,
    mut progress: impl FnMut(u64),
    mut take: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut number = 0;
    let all = sweep.grid.combinations();
    SWEEP.run(Some(address), &request(subject, sweep), |line| {
        let (cells, error) = match line {
            Line::Done { done } => {
                progress(done);
                return Ok(());
            }
            Line::Row { cells, error } => (cells, error),
        };
        if number >= all {
            return Err(PackageError::Garbled { line: "one row more".to_owned() }.into());
        }
        take(row(sweep, number, cells, error)?)?;
        number += 1;
        Ok(())
    })?;
    if number < all { Err(SWEEP.refusal("").into()) } else { Ok(()) }
}

/// Returns the row of a combination, from what the package says of it.
pub(super) fn row(
    sweep: &Sweep,
    number: usize,
    cells: Option<Vec<Cell>>,
    error: Option<String>,
) -> Result<Row, PackageError> {
    let values = sweep.grid.combination(number).iter().map(|choice| choice.value.to_owned()).collect();
    let outcome = match (cells, error) {
        (_, Some(error)) => Err(error),
        (Some(cells), None) => Ok(Figures::from_cells(&cells, sweep.runs, sweep.loss)
            .ok_or_else(|| PackageError::Garbled { line: "a row of other columns".to_owned() })?),
        (None, None) => return Err(PackageError::Garbled { line: "a row of nothing".to_owned() }),
    };
    Ok(Row { values, outcome })
}

impl Work {
    /// Does the work that is asked for, on the cluster at `address` if there is one, and hands each line to `take`.
    pub(super) fn run<Line: DeserializeOwned>(
        &self,
        address: Option<&str>,
        request: &Value,
        mut take: impl FnMut(Line) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut package = Command::new(PYTHON)
            .arg("-m")
            .args(self.module)
            .args(address.map(|address| ["--address", address]).into_iter().flatten())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| PackageError::NoPython { error, extra: self.extra })?;
        let told = package.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // What could be read is told.
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        if let Some(mut stdin) = package.stdin.take() {
            // One that ends before it has read everything says why on standard error.
            let _ = stdin.write_all(request.to_string().as_bytes());
        }
        let outcome = match package.stdout.take() {
            Some(out) => lines(out, &mut take),
            None => Ok(()),
        };
        let is_done = finish(package, outcome.is_err())?;
        let told = told.and_then(|told| told.join().ok()).unwrap_or_default();
        outcome?;
        if is_done { Ok(()) } else { Err(self.refusal(&told).into()) }
    }

    /// Error for a package that ended with these words.
    pub(super) fn refusal(&self, told: &str) -> PackageError {
        if told.contains("No module named") && told.contains("wirerate") {
            return PackageError::NoPackage { extra: self.extra };
        }
        // Libraries may have something to say behind it.
        let said = told.lines().rev().find_map(|line| line.strip_prefix("error: "));
        let last = || told.lines().rev().find(|line| !line.trim().is_empty());
        let told = said.or_else(last).unwrap_or("it ended without a word").to_owned();
        PackageError::Failed { what: self.what, told }
    }
}

/// Reads lines until there are no more.
fn lines<Line: DeserializeOwned>(
    out: ChildStdout,
    take: &mut impl FnMut(Line) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for line in BufReader::new(out).lines() {
        let line = line.map_err(PackageError::Lost)?;
        take(serde_json::from_str(&line).map_err(|_| PackageError::Garbled { line })?)?;
    }
    Ok(())
}

/// Waits for the end; nobody reads on where a line was refused. Returns true if it ended well.
fn finish(mut package: Child, is_refused: bool) -> Result<bool, Failure> {
    if is_refused {
        // It may have ended by itself.
        let _ = package.kill();
    }
    let status = package.wait().map_err(PackageError::Lost)?;
    Ok(status.success())
}

/// Request for the runs of a sweep, as `wirerate.request` reads it.
pub(super) fn request(subject: &Subject, sweep: &Sweep) -> Value {
    let text = |Text { file, text }: &Text| json!([file, text]);
    let traffic = subject.traffic.iter().map(|item| match item {
        Item::Capture(named) => json!([named.interface, absolute(&named.path)]),
        Item::Stream(text, _) => json!([null, text]),
    });
    let vary = sweep.grid.axes().iter().map(|axis| json!([axis.name, axis.values]));
    let ports = subject.port.iter().map(|wish| json!([wish.interface, wish.port]));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "chip": text(&sweep.texts.chip),
        "mapping": text(&sweep.texts.mapping),
        "policy": [subject.policy, sweep.plan.policy.to_string()],
        "static_keys": subject.keys.are_read(),
        "traffic": traffic.collect::<Vec<_>>(),
        "vary": vary.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "seed": subject.seed,
        "warm": sweep.warm,
        "repeat": sweep.runs,
        "loss": sweep.loss,
    })
}

/// The path from the root, since workers begin elsewhere.
fn absolute(path: &std::path::Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_: io::Error| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{PackageError, SWEEP};

    #[test]
    fn the_last_words_of_the_package_are_told() {
        let missing = "/usr/bin/python3: Error while finding module specification for 'wirerate.ray' (ModuleNotFoundError: No module named \
                       'wirerate')\n";
        assert!(matches!(SWEEP.refusal(missing), PackageError::NoPackage { extra: "ray" }));
        let told = SWEEP.refusal("warning: slow\nerror: no Ray cluster at x\n\n").to_string();
        assert!(told.ends_with(": no Ray cluster at x"), "{told}");
        let told = SWEEP.refusal("error: no chip\n(raylet) The node has been marked dead\n").to_string();
        assert!(told.ends_with(": no chip"), "{told}");
        assert!(SWEEP.refusal("").to_string().ends_with("it ended without a word"));
    }
}
