//! The front door: reads a policy and validates it.

use std::path::Path;

use config::{LoadError, Severity, file};

use crate::diagnostic::Diagnostic;
use crate::lines::Lines;
use crate::model::Policy;
use crate::parse;
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
    Ok(match file::text(path, "policy")? {
        Ok(text) => check(&text, &path.display().to_string()),
        Err(wrong) => {
            let is_long = wrong.code == config::Code::TooLarge.into();
            let wrong = if is_long { wrong.hint(parse::WHERE_TOO_LARGE) } else { wrong };
            Checked { policy: None, lines: Lines::default(), diagnostics: vec![wrong] }
        }
    })
}

#[cfg(test)]
mod tests;
