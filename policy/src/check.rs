//! The front door: reads a policy and validates it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::lines::Lines;
use crate::model::Policy;
use crate::parse::{self, MOST_BYTES};
use crate::validate::validate;

/// A policy, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The policy; `None` if anything is wrong. Warnings do not make it wrong.
    pub policy: Option<Policy>,
    /// Where things stand.
    pub lines: Lines,
    /// What is wrong, and what is unwise, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Those that make the policy wrong.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Those that do not.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning)
    }
}

/// Reads and validates the text of a policy; `file` is its name in diagnostics.
///
/// What could not be read does not keep the rest from being validated.
pub fn check(text: &str, file: &str) -> Checked {
    let draft = parse::draft(text, file);
    let mut diagnostics = draft.diagnostics;
    if let Some(policy) = &draft.policy {
        diagnostics.append(&mut validate(policy, &draft.lines));
    }
    Diagnostic::sort(&mut diagnostics);
    let wrong = diagnostics.iter().any(Diagnostic::is_error);
    Checked { policy: draft.policy.filter(|_| !wrong), lines: draft.lines, diagnostics }
}

/// Reads and validates the file at `path`.
pub fn load(path: &Path) -> Result<Checked, LoadError> {
    Ok(match text(path, "policy")? {
        Ok(text) => check(&text, &path.display().to_string()),
        Err(wrong) => {
            let is_long = wrong.code == Code::TooLarge;
            let wrong = if is_long { wrong.hint(parse::WHERE_TOO_LARGE) } else { wrong };
            Checked { policy: None, lines: Lines::default(), diagnostics: vec![wrong] }
        }
    })
}

/// The text of the file at `path`, which is to be a `what`: a policy, say. In place of a text that is too long or
/// not UTF-8 there is a diagnostic.
pub fn text(path: &Path, what: &'static str) -> Result<Result<String, Diagnostic>, LoadError> {
    let unreadable = |error| LoadError { what, path: path.to_owned(), error };
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte more than is taken tells a file that is too long; it may have no end at all.
    File::open(path)
        .and_then(|opened| opened.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        let hint = format!("a {what} is written by hand and far shorter: name another file");
        return Ok(Err(parse::longer_than_taken(&file).hint(hint)));
    }
    Ok(String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("{file} is not UTF-8: byte {at}, on line {line}");
        let hint = format!("save it as UTF-8; a capture or an archive is no {what}");
        Diagnostic::new(Code::NotUtf8, message).hint(hint)
    }))
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the {what} {path}: {error}")]
pub struct LoadError {
    /// What it was to be.
    pub what: &'static str,
    /// Which one.
    pub path: PathBuf,
    /// What the system says.
    pub error: io::Error,
}

#[cfg(test)]
mod tests;
