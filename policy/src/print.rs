//! Canonical text of a policy, which reads back as the same policy.
//!
//! Default values are left out.

use std::fmt::{self, Display, Write};

use crate::key::{self, Keys};
use crate::lines::Lines;
use crate::model::Policy;

/// Longest line, in characters; a longer list is broken into one item a line.
const WIDTH: usize = 100;

impl Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Printer::default();
        // What reads a policy prints it, so it asks for one that it may change.
        key::policy(&mut Keys::Print(&mut out), &mut self.clone(), &mut Lines::default());
        f.write_str(out.text.trim_start())
    }
}

/// The text so far. Writing to a string cannot fail.
#[derive(Default)]
pub(crate) struct Printer {
    text: String,
    /// Header of the table, before its first key is printed: a table without keys has none.
    header: Option<String>,
}

impl Printer {
    /// Begins a table.
    pub(crate) fn header(&mut self, header: &str) {
        self.header = Some(header.to_owned());
    }

    /// Prints a key with its value.
    pub(crate) fn line(&mut self, key: &str, value: &str) {
        if let Some(header) = self.header.take() {
            let _ = writeln!(self.text, "\n{header}");
        }
        let _ = writeln!(self.text, "{key} = {value}");
    }

    /// Prints a key with a list of values.
    pub(crate) fn list(&mut self, key: &str, values: &[String]) {
        let line = format!("[{}]", values.join(", "));
        if key.len() + line.len() + 3 <= WIDTH {
            self.line(key, &line);
        } else {
            self.line(key, &format!("[\n    {},\n]", values.join(",\n    ")));
        }
    }

    /// Returns a table in braces, with the keys of `keys_of`.
    pub(crate) fn braces(keys_of: impl FnOnce(&mut Keys<'_, '_>)) -> String {
        let mut out = Printer::default();
        keys_of(&mut Keys::Print(&mut out));
        format!("{{ {} }}", out.text.lines().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests;
