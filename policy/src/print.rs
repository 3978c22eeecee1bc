//! Canonical text of a policy, which reads back as the same policy, and the keys of single items.
//!
//! Default values are left out.

use std::fmt::{self, Display, Write};

use crate::key::{self, Keys};
use crate::lines::Lines;
use crate::model::{Class, Meter, Policy, Queue};

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

/// Key of an item with its values, as a policy file has them but without quotes: for pictures and tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Key.
    pub key: String,
    /// Values; more than one of a list.
    pub values: Vec<String>,
}

/// Item of a policy whose keys can be listed.
pub trait Settings {
    /// Returns the keys that a policy file needs for the item, the name first, in the order of the file.
    fn settings(&self) -> Vec<Setting>;
}

impl Settings for Class {
    fn settings(&self) -> Vec<Setting> {
        listed(|keys| key::class(keys, &mut self.clone()))
    }
}

impl Settings for Meter {
    fn settings(&self) -> Vec<Setting> {
        listed(|keys| key::meter(keys, &mut self.clone()))
    }
}

impl Settings for Queue {
    fn settings(&self) -> Vec<Setting> {
        listed(|keys| key::queue(keys, &mut self.clone()))
    }
}

fn listed(keys_of: impl FnOnce(&mut Keys<'_, '_>) -> bool) -> Vec<Setting> {
    let mut out = Printer { settings: Some(Vec::new()), ..Printer::default() };
    keys_of(&mut Keys::Print(&mut out));
    out.settings.unwrap_or_default()
}

/// The text so far. Writing to a string cannot fail.
#[derive(Default)]
pub(crate) struct Printer {
    text: String,
    /// Header of the table, before its first key is printed: a table without keys has none.
    header: Option<String>,
    /// Keys in the place of text.
    settings: Option<Vec<Setting>>,
}

impl Printer {
    /// Begins a table.
    pub(crate) fn header(&mut self, header: &str) {
        self.header = Some(header.to_owned());
    }

    /// Begins a table that is printed even without keys.
    pub(crate) fn open(&mut self, header: &str) {
        let _ = writeln!(self.text, "\n{header}");
        self.header = None;
    }

    /// Prints a key with its value.
    pub(crate) fn line(&mut self, key: &str, value: &str) {
        if let Some(settings) = &mut self.settings {
            return settings.push(Setting { key: key.to_owned(), values: vec![bare(value)] });
        }
        if let Some(header) = self.header.take() {
            let _ = writeln!(self.text, "\n{header}");
        }
        let _ = writeln!(self.text, "{key} = {value}");
    }

    /// Prints a key with a list of values.
    pub(crate) fn list(&mut self, key: &str, values: &[String]) {
        if let Some(settings) = &mut self.settings {
            return settings.push(Setting {
                key: key.to_owned(),
                values: values.iter().map(|value| bare(value)).collect(),
            });
        }
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

/// A value without quotes.
fn bare(value: &str) -> String {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests;
