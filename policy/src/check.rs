//! Front door of the crate: reads a policy and validates it.

use std::path::Path;

use config::{LoadError, Severity, file};

use crate::diagnostic::Diagnostic;
use crate::lines::Lines;
use crate::model::Policy;
use crate::parse;
use crate::validate::validate;

/// A policy with its diagnostics.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The policy; `None` if there are errors. Warnings are no errors.
    pub policy: Option<Policy>,
    /// Positions of the policy's items in the text.
    pub lines: Lines,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// A policy without errors.
#[derive(Clone, Debug)]
pub struct Sound {
    /// The policy.
    pub policy: Policy,
    /// Positions of its items in the text.
    pub lines: Lines,
    /// Warnings and notes, in the order of the text.
    pub warnings: Vec<Diagnostic>,
}

impl Checked {
    /// Returns the policy.
    ///
    /// # Errors
    /// All errors.
    pub fn sound(self) -> Result<Sound, Vec<Diagnostic>> {
        let Checked { policy, lines, diagnostics } = self;
        match policy {
            Some(policy) => Ok(Sound { policy, lines, warnings: diagnostics }),
            None => Err(diagnostics.into_iter().filter(Diagnostic::is_error).collect()),
        }
    }

    /// Diagnostics that are errors.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Diagnostics that are no errors.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning)
    }
}

/// Reads and validates the text of a policy; `file` is its name in diagnostics.
///
/// Items that could be read are validated even where others could not.
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
