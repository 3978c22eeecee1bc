//! The policy file: TOML text to [`Policy`].
//!
//! All errors are gathered, not only the first: syntax errors, unknown keys with the nearest known one, and invalid
//! values. Semantic checks are the business of [`validate`](crate::validate()).

use std::sync::Arc;

use config::file::longer_than_taken;
use config::{Source, document};
use toml::de::DeTable;

use crate::diagnostic::{Code, Diagnostic};
use crate::key::{self, Keys, Table};
use crate::lines::{Item, Lines};
use crate::model::Policy;

type Sink = config::Sink<Code>;

/// Longest policy that is read, in bytes: as for any file.
pub use config::file::MOST_BYTES;

/// Keys of the file whose values are secrets: no diagnostic shows them.
const SECRETS: &[&str] = &["key", "auth-key"];

/// Result of parsing a policy.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The policy; `None` if there are errors.
    pub policy: Option<Policy>,
    /// Positions of the policy's items in the text.
    pub lines: Lines,
    /// Errors, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the text of a policy; `file` is its name in diagnostics.
pub fn parse(text: &str, file: &str) -> Parsed {
    let draft = draft(text, file);
    let policy = draft.policy.filter(|_| !draft.diagnostics.iter().any(Diagnostic::is_error));
    Parsed { policy, lines: draft.lines, diagnostics: draft.diagnostics }
}

/// Result of parsing a policy, with the readable part of a text that has errors.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The readable part; `None` if the text is not TOML.
    pub(crate) policy: Option<Policy>,
    pub(crate) lines: Lines,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Reads the text of a policy, and keeps the readable part.
pub(crate) fn draft(text: &str, file: &str) -> Draft {
    if text.len() > MOST_BYTES {
        let diagnostic = too_large(file);
        return Draft { policy: None, lines: Lines::default(), diagnostics: vec![diagnostic] };
    }
    let source = Arc::new(Source::new(file, text).with_secrets(SECRETS));
    let mut lines = Lines::of(&source);
    let sink = Sink::new(&source);
    let policy = document(&source, &sink, |table| read(&sink, &mut lines, table));
    let mut diagnostics = sink.into_diagnostics();
    Diagnostic::sort(&mut diagnostics);
    Draft { policy, lines, diagnostics }
}

/// Diagnostic for a policy of more than [`MOST_BYTES`].
fn too_large(file: &str) -> Diagnostic {
    longer_than_taken(file).hint(WHERE_TOO_LARGE)
}

/// Hint for a policy that is too long.
pub const WHERE_TOO_LARGE: &str = "write prefixes and ranges in the place of single addresses";

fn read(sink: &Sink, lines: &mut Lines, root: &DeTable<'_>) -> Policy {
    let mut policy = Policy::default();
    let mut top = Table::new(sink, root, 0..0, "a policy");
    key::policy(&mut Keys::Read(&mut top), &mut policy, lines);
    lines.push(Item::Top, "", top.finish());
    policy
}

#[cfg(test)]
pub(crate) mod tests;
