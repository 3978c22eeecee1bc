//! Reports on a failing case, as `wirerate test` and the project's own tests print them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use policy::Diagnostic;

use super::host::Host;
use super::{Failure, Fault, Open, Unplayable, Unusable, play, read};

/// Report on a case that does not pass. `Display` writes a line for the case, then indented lines, each with its line end.
#[derive(Debug, thiserror::Error)]
pub struct Report {
    /// File of the case.
    pub path: PathBuf,
    /// Text of the file.
    pub text: String,
    /// Problem found.
    pub problem: Problem,
}

/// Problem with a case.
#[derive(Debug)]
pub enum Problem {
    /// Faults of the file.
    Faults(Vec<Fault>),
    /// Errors of the policy.
    Policy(Vec<Diagnostic>),
    /// No host can play the policy.
    Unplayable(Unplayable),
    /// The results are not the expected ones.
    Failures {
        /// Title of the case.
        title: String,
        /// Differences.
        failures: Vec<Failure>,
    },
}

/// Reads the case of this `text`, which is that of the file at `path`, and plays it on the replay host and on `further`
/// hosts. The policies that it names are read with `open`. Returns its title if it passes.
pub fn pass(text: &str, path: &Path, open: Open, further: &[Host]) -> Result<String, Report> {
    let report = |problem| Report { path: path.to_owned(), text: text.to_owned(), problem };
    let case = read(text, path, open).map_err(|unusable| match unusable {
        Unusable::Faults(faults) => report(Problem::Faults(faults)),
        Unusable::Policy(diagnostics) => report(Problem::Policy(diagnostics)),
    })?;
    let failures = play(&case, further).map_err(|error| report(Problem::Unplayable(error)))?;
    match failures.is_empty() {
        true => Ok(case.title),
        false => Err(report(Problem::Failures { title: case.title, failures })),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.display();
        match &self.problem {
            Problem::Faults(faults) => {
                writeln!(f, "{file}: it is not a case")?;
                for fault in faults {
                    let source = self.line(f, fault.line, fault)?;
                    let marks = fault.marks(source);
                    // Under the line without its indentation.
                    let indentation = source.len() - source.trim_start().len();
                    if let Some(marks) = marks.get(indentation..).filter(|marks| !marks.is_empty()) {
                        writeln!(f, "      | {marks}")?;
                    }
                    if let Some(hint) = fault.hint() {
                        writeln!(f, "      help: {hint}")?;
                    }
                }
                Ok(())
            }
            Problem::Policy(diagnostics) => {
                writeln!(f, "{file}: its policy is wrong")?;
                for found in diagnostics {
                    let place = found.place.as_ref().map_or(file.to_string(), ToString::to_string);
                    writeln!(f, "  {place}: {}: {}", found.severity, found.message)?;
                    if let Some(hint) = &found.hint {
                        writeln!(f, "      help: {hint}")?;
                    }
                }
                Ok(())
            }
            Problem::Unplayable(error) => writeln!(f, "{file}: its policy cannot be played: {error}"),
            Problem::Failures { title, failures } => {
                writeln!(f, "{file}: {title}")?;
                for failure in failures {
                    let mut lines = failure.text.iter();
                    self.line(f, failure.line, &lines.next().map_or("", String::as_str))?;
                    lines.try_for_each(|line| writeln!(f, "      {line}"))?;
                }
                Ok(())
            }
        }
    }
}

impl Report {
    /// Writes the fault of a line of the case, and that line, which it returns; 0 for none.
    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        line: usize,
        what: &dyn fmt::Display,
    ) -> Result<&str, fmt::Error> {
        match line.checked_sub(1).and_then(|place| self.text.lines().nth(place)) {
            Some(source) => {
                writeln!(f, "  {}:{line}: {what}\n      | {}", self.path.display(), source.trim())?;
                Ok(source)
            }
            None => writeln!(f, "  {what}").map(|()| ""),
        }
    }
}

/// A path that case files were looked for at and that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", .path.display())]
pub struct Unreadable {
    /// The path.
    pub path: PathBuf,
    /// The system's reason.
    #[source]
    pub error: io::Error,
}

/// Adds the case files at a path to `files`: the file itself, or all files below a directory that end in `.case`, in
/// order of their names. Those found before a path that cannot be read are there.
pub fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Unreadable> {
    let at = |place: &Path| {
        let path = place.to_owned();
        move |error| Unreadable { path, error }
    };
    if !fs::metadata(path).map_err(at(path))?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut inside = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        inside.push(entry.map_err(at(path))?.path());
    }
    inside.sort();
    for place in inside {
        if place.is_dir() || place.extension().is_some_and(|ending| ending == "case") {
            collect(&place, files)?;
        }
    }
    Ok(())
}
