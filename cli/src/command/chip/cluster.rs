//! A sweep on a Ray cluster, by the Python package: the plan goes to it as JSON, and rows come back.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use chip::plan::Item;
use chip::plan::texts::Text;
use chip::sweep::{Cell, Figures, Row, Sweep};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::Subject;
use crate::failure::{ClusterError, Failure};

/// Interpreter that has the package.
const PYTHON: &str = "python3";

/// Line of the package's output.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// Number of rows that are done.
    Done { done: u64 },
    /// A row, in the order of combinations.
    Row { cells: Option<Vec<Cell>>, error: Option<String> },
}

/// Runs all combinations on the cluster at `address`, tells `progress` how many are done, and hands the rows to `take`, in their order.
pub(super) fn run(
    address: &str,
    subject: &Subject,
    sweep: &Sweep,
    mut progress: impl FnMut(u64),
    mut take: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut package = Command::new(PYTHON)
        .args(["-m", "wirerate.ray", "sweep", "--address", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(ClusterError::NoPython)?;
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
        let _ = stdin.write_all(asked(subject, sweep).to_string().as_bytes());
    }
    let outcome = match package.stdout.take() {
        Some(out) => rows(out, sweep, &mut progress, &mut take),
        None => Ok(0),
    };
    let status = finish(package, outcome.is_err())?;
    let told = told.and_then(|told| told.join().ok()).unwrap_or_default();
    let number = outcome?;
    if !status || number < sweep.grid.combinations() {
        return Err(refusal(&told).into());
    }
    Ok(())
}

/// Reads rows until there are no more, and returns their number.
fn rows(
    out: ChildStdout,
    sweep: &Sweep,
    progress: &mut impl FnMut(u64),
    take: &mut impl FnMut(Row) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let mut number = 0;
    for line in BufReader::new(out).lines() {
        let line = line.map_err(ClusterError::Lost)?;
        let line = serde_json::from_str(&line).map_err(|_| ClusterError::Garbled { line })?;
        let (cells, error) = match line {
            Line::Done { done } => {
                progress(done);
                continue;
            }
            Line::Row { cells, error } => (cells, error),
        };
        if number >= sweep.grid.combinations() {
            return Err(ClusterError::Garbled { line: "one row more".to_owned() }.into());
        }
        let values = sweep.grid.combination(number).iter().map(|choice| choice.value.to_owned()).collect();
        let outcome = match (cells, error) {
            (_, Some(error)) => Err(error),
            (Some(cells), None) => Ok(Figures::from_cells(&cells, sweep.runs)
                .ok_or_else(|| ClusterError::Garbled { line: "a row of other columns".to_owned() })?),
            (None, None) => return Err(ClusterError::Garbled { line: "a row of nothing".to_owned() }.into()),
        };
        take(Row { values, outcome })?;
        number += 1;
    }
    Ok(number)
}

/// Waits for the end; nobody reads on where the rows were refused. Returns true if it ended well.
fn finish(mut package: Child, is_refused: bool) -> Result<bool, Failure> {
    if is_refused {
        // It may have ended by itself.
        let _ = package.kill();
    }
    let status = package.wait().map_err(ClusterError::Lost)?;
    Ok(status.success())
}

/// Error for a package that ended with these words.
fn refusal(told: &str) -> ClusterError {
    if told.contains("No module named") && told.contains("wirerate") {
        return ClusterError::NoPackage;
    }
    let last = told.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
    ClusterError::Failed { told: last.strip_prefix("error: ").unwrap_or(last).to_owned() }
}

/// Request for the runs, as `python3 -m wirerate.ray sweep` reads it.
fn asked(subject: &Subject, sweep: &Sweep) -> Value {
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
        "traffic": traffic.collect::<Vec<_>>(),
        "vary": vary.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "seed": subject.seed,
        "warm": sweep.warm,
        "repeat": sweep.runs,
    })
}

/// The path from the root, since workers begin elsewhere.
fn absolute(path: &std::path::Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_: io::Error| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{ClusterError, refusal};

    #[test]
    fn the_last_words_of_the_package_are_told() {
        let missing = "/usr/bin/python3: Error while finding module specification for 'wirerate.ray' (ModuleNotFoundError: No module named \
                       'wirerate')\n";
        assert!(matches!(refusal(missing), ClusterError::NoPackage));
        let told = refusal("warning: slow\nerror: no Ray cluster at x\n\n").to_string();
        assert!(told.ends_with(": no Ray cluster at x"), "{told}");
        assert!(refusal("").to_string().ends_with("it ended without a word"));
    }
}
