//! Everything that is wrong with a policy, without effect or unwise: diagnostics of the text, and findings about rules and classes.

use std::sync::Arc;

use analysis::{Effort, Look};
use dataplane::Tables;
use dataplane::tables::CompileError;
use lookup::classify::Choice;
use policy::{Checked, Diagnostic, Policy, Severity};
use serde_json::{Value, json};

mod class;
mod finding;

/// Epoch of tables that are never replaced.
const EPOCH: u16 = 1;

/// Report on one policy.
pub struct Check {
    /// Name of the file.
    pub file: String,
    /// The policy; `None` if its text has errors.
    pub policy: Option<Policy>,
    /// Errors, warnings and notes, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Error of a policy whose text has none, and that cannot be compiled.
    pub uncompiled: Option<CompileError>,
    /// Number of rules and classes that the analysis did not settle.
    pub open: usize,
    /// True if there are more overlaps than were looked for.
    pub more_overlaps: bool,
    /// Selection of the classifier of the rules.
    pub search: Option<Arc<Choice>>,
}

impl Check {
    /// Analyses the rules and classes of a policy that has been read from `file`, where its text has no errors.
    pub fn of(file: String, checked: Checked, look: Look, effort: Effort<'_>) -> Check {
        let Checked { policy, lines, diagnostics } = checked;
        let mut check = Check {
            file,
            policy: None,
            diagnostics,
            uncompiled: None,
            open: 0,
            more_overlaps: false,
            search: None,
        };
        if let Some(policy) = &policy {
            match Tables::compile(policy, EPOCH) {
                Ok(tables) => {
                    check.search = Some(Arc::clone(&tables.filter.search));
                    match finding::of(policy, tables, &lines, &check.diagnostics, look, effort) {
                        Ok(found) => {
                            check.diagnostics.extend(found.diagnostics);
                            (check.open, check.more_overlaps) = (found.open, found.more_overlaps);
                        }
                        Err(error) => check.uncompiled = Some(error),
                    }
                    match class::of(policy, &lines, effort) {
                        Ok(found) => {
                            check.diagnostics.extend(found.diagnostics);
                            check.open += found.open;
                        }
                        Err(error) => check.uncompiled = Some(error),
                    }
                    Diagnostic::sort(&mut check.diagnostics);
                }
                Err(error) => check.uncompiled = Some(error),
            }
        }
        check.policy = policy;
        check
    }

    /// Number of errors, that of the compiler among them.
    pub fn errors(&self) -> usize {
        self.number(Severity::Error) + usize::from(self.uncompiled.is_some())
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        self.number(Severity::Warning)
    }

    /// Number of notes.
    pub fn notes(&self) -> usize {
        self.number(Severity::Note)
    }

    fn number(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|found| found.severity == severity).count()
    }

    /// Returns the algorithms tried for the rules that would exceed the memory limit, each with its reason.
    pub fn gave_way(&self) -> Vec<String> {
        let tried = self.search.iter().flat_map(|search| &search.gave_way);
        tried.map(|(algorithm, why)| format!("{}: it {why}", algorithm.name)).collect()
    }

    /// Returns the report as an object: counts, diagnostics, and the classifier.
    pub fn to_json(&self) -> Value {
        let mut list: Vec<Value> = self.diagnostics.iter().map(|found| json!(found)).collect();
        if let Some(error) = &self.uncompiled {
            let message = error.to_string();
            list.push(json!({
                "code": "compile", "severity": "error", "message": message, "hint": null,
                "file": self.file, "line": null, "column": null, "related": [],
            }));
        }
        json!({
            "file": self.file, "errors": self.errors(), "warnings": self.warnings(), "notes": self.notes(),
            "diagnostics": list, "open": self.open,
            "classifier": self.search.as_ref().map(|search| search.algorithm.name),
            "gave_way": self.gave_way(),
        })
    }
}
