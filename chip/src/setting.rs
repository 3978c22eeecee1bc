//! Replacement of one value in the text of a chip or a mapping, by its path, before parsing.
//!
//! The rest of the text is unchanged, so that diagnostics still name the right lines.

use std::ops::Range;

use config::nearest;
use toml::de::{DeTable, DeValue};

/// Most paths that a failure lists; of more than that, the tables that they are in.
const MOST_LISTED: usize = 40;

/// Failure to set a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The text is not TOML, and has no paths.
    #[error("the text is not TOML")]
    NotToml,
    /// No value is at that path.
    #[error("there is no \"{path}\"; {}", instead(.nearest.as_deref(), .known))]
    UnknownPath {
        /// The path.
        path: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Paths under the last table that the path leads through, or where those are many, its tables.
        known: Vec<String>,
    },
    /// The path leads to a table, which has values but is not one.
    #[error("\"{path}\" is a table; name one of its values: {}", .known.join(", "))]
    Table {
        /// The path.
        path: String,
        /// The paths of its values.
        known: Vec<String>,
    },
}

/// The path that was probably meant, or those there are.
fn instead(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("there are {}", known.join(", ")),
    }
}

/// Position of a new value in the text.
enum Spot {
    /// In place of the value here.
    Over(Range<usize>),
    /// As a new key on a line of its own, from here.
    Line(usize),
    /// As a new key of a table in braces, from here; with others after it or not.
    Braces(usize, bool),
}

/// `text` with `value` at `path`. A value that is no TOML is a string. `keys` has the keys of the table at a path
/// that may be written there though they are not.
pub(crate) fn set(
    text: &str,
    path: &str,
    value: &str,
    keys: impl Fn(&[&str]) -> Vec<&'static str>,
) -> Result<String, SetError> {
    let root = DeTable::parse(text).map_err(|_| SetError::NotToml)?;
    let steps: Vec<&str> = path.split('.').collect();
    let value = match DeValue::parse(value) {
        Ok(_) => value.to_owned(),
        Err(_) => toml::Value::String(value.to_owned()).to_string(),
    };
    let (spot, key) = (spot(text, root.get_ref(), &steps, &keys)?, steps[steps.len() - 1]);
    let (range, new) = match spot {
        Spot::Over(range) => (range, value),
        Spot::Line(at) if at > 0 && !text[..at].ends_with('\n') => (at..at, format!("\n{key} = {value}\n")),
        Spot::Line(at) => (at..at, format!("{key} = {value}\n")),
        Spot::Braces(at, true) => (at..at, format!(" {key} = {value},")),
        Spot::Braces(at, false) => (at..at, format!(" {key} = {value} ")),
    };
    Ok(format!("{}{new}{}", &text[..range.start], &text[range.end..]))
}

fn spot(
    text: &str,
    root: &DeTable<'_>,
    steps: &[&str],
    keys: &impl Fn(&[&str]) -> Vec<&'static str>,
) -> Result<Spot, SetError> {
    let path = steps.join(".");
    let mut table = root;
    let mut span = 0..0;
    for (depth, step) in steps.iter().enumerate() {
        let Some(value) = table.get(*step) else {
            let before = &steps[..depth];
            if depth + 1 == steps.len() && keys(before).contains(step) {
                if let Some(spot) = new_key(text, table, &span, depth) {
                    return Ok(spot);
                }
            }
            let mut all = Vec::new();
            gather(&[], root, keys, &mut all);
            let nearest = nearest(&path, all.iter().map(String::as_str)).map(str::to_owned);
            let mut known = Vec::new();
            gather(before, table, keys, &mut known);
            if known.len() > MOST_LISTED {
                known = folded(&known, depth);
            }
            return Err(SetError::UnknownPath { path, nearest, known });
        };
        let whole = depth + 1 == steps.len();
        match value.get_ref() {
            DeValue::Table(inner) if !whole => (table, span) = (inner, value.span()),
            DeValue::Table(inner) if !text[value.span()].starts_with('{') => {
                let mut known = Vec::new();
                gather(steps, inner, keys, &mut known);
                return Err(SetError::Table { path, known });
            }
            _ if whole => return Ok(Spot::Over(value.span())),
            _ => {
                let known = vec![steps[..=depth].join(".")];
                return Err(SetError::UnknownPath { path, nearest: known.first().cloned(), known });
            }
        }
    }
    Err(SetError::UnknownPath { path, nearest: None, known: Vec::new() })
}

/// Returns the position of a new key in a table: one with a header, one in braces, or the top.
fn new_key(text: &str, table: &DeTable<'_>, span: &Range<usize>, depth: usize) -> Option<Spot> {
    if depth == 0 {
        return Some(Spot::Line(0));
    }
    match text[span.start..].chars().next() {
        Some('{') => Some(Spot::Braces(span.start + 1, !table.is_empty())),
        Some('[') => Some(Spot::Line(text[span.end..].find('\n').map_or(text.len(), |at| span.end + at + 1))),
        _ => None,
    }
}

/// The paths to that depth, each once: `memory.…` for all that is deeper.
fn folded(paths: &[String], depth: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for path in paths {
        let steps: Vec<&str> = path.split('.').collect();
        let short = match steps.get(..=depth) {
            Some(first) if first.len() < steps.len() => format!("{}.…", first.join(".")),
            _ => path.clone(),
        };
        if !found.contains(&short) {
            found.push(short);
        }
    }
    found
}

/// The paths of all that can be set under `table`.
fn gather(
    path: &[&str],
    table: &DeTable<'_>,
    keys: &impl Fn(&[&str]) -> Vec<&'static str>,
    found: &mut Vec<String>,
) {
    let under = |key: &str| path.iter().copied().chain([key]).collect::<Vec<_>>().join(".");
    for (key, value) in table {
        match value.get_ref() {
            DeValue::Table(inner) => {
                let deeper: Vec<&str> = path.iter().copied().chain([key.get_ref().as_ref()]).collect();
                gather(&deeper, inner, keys, found);
            }
            _ => found.push(under(key.get_ref())),
        }
    }
    found.extend(keys(path).into_iter().filter(|key| !table.contains_key(*key)).map(under));
}

#[cfg(test)]
mod tests {
    use super::{SetError, set};

    const TEXT: &str = "\
about = 'x'
[memory.sram] # fast
size = \"8 MB\"
latency = 90
[region]
rule-table = { memory = \"sram\" }
";

    fn keys(path: &[&str]) -> Vec<&'static str> {
        match path {
            ["memory", _] => vec!["size", "latency", "queue"],
            ["region", _] => vec!["memory", "cache"],
            [] => vec!["about", "classifier"],
            _ => vec![],
        }
    }

    fn changed(path: &str, value: &str) -> String {
        let new = set(TEXT, path, value, keys).unwrap();
        let old: Vec<&str> = TEXT.lines().collect();
        new.lines().filter(|line| !old.contains(line)).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn a_value_is_replaced_where_it_stands() {
        assert_eq!(changed("memory.sram.latency", "45"), "latency = 45");
        assert_eq!(changed("memory.sram.size", "16 MB"), "size = \"16 MB\"");
        assert_eq!(changed("region.rule-table", "local"), "rule-table = \"local\"");
        assert_eq!(changed("region.rule-table.memory", "dram"), "rule-table = { memory = \"dram\" }");
    }

    #[test]
    fn a_key_that_may_be_there_is_added() {
        assert_eq!(changed("memory.sram.queue", "16"), "queue = 16");
        assert_eq!(changed("classifier", "linear"), "classifier = \"linear\"");
        assert_eq!(
            changed("region.rule-table.cache", "64 B"),
            "rule-table = { cache = \"64 B\", memory = \"sram\" }"
        );
        for path in ["memory.sram.queue", "classifier", "region.rule-table.cache"] {
            let new = set(TEXT, path, "16", keys).unwrap();
            let value: toml::Table = new.parse().unwrap();
            let mut steps = path.split('.');
            let found = steps.try_fold(&toml::Value::Table(value), |value, step| value.get(step)).cloned();
            assert_eq!(found, Some(toml::Value::Integer(16)), "{new}");
        }
        assert!(
            set("[memory.sram]", "memory.sram.queue", "16", keys).unwrap().parse::<toml::Table>().is_ok()
        );
    }

    #[test]
    fn of_many_paths_the_tables_are_told() {
        let mut text = String::from("about = 'x'\n");
        for table in 0..30 {
            text += &format!("[memory.m{table}]\nsize = 1\nlatency = 2\n");
        }
        let told = |path| set(&text, path, "1", |_| Vec::new()).unwrap_err().to_string();
        assert_eq!(told("zzzzzzzzzzzz.t"), "there is no \"zzzzzzzzzzzz.t\"; there are about, memory.…");
        assert!(
            told("memory.zzzzzzzzzzzz.t").contains("memory.m0.…, memory.m1.…, "),
            "{}",
            told("memory.zzzzzzzzzzzz.t")
        );
        assert!(told("memory.m7.zzzzzzzzzzzz").ends_with("there are memory.m7.latency, memory.m7.size"));
    }

    #[test]
    fn a_path_that_is_not_there_is_told_the_nearest() {
        let told = |path| set(TEXT, path, "1", keys).unwrap_err().to_string();
        assert_eq!(
            told("memory.sram.latncy"),
            "there is no \"memory.sram.latncy\"; did you mean \"memory.sram.latency\"?"
        );
        assert_eq!(
            told("memory.sam.queue"),
            "there is no \"memory.sam.queue\"; did you mean \"memory.sram.queue\"?"
        );
        assert!(
            told("memory.sram.wibble-wobble").contains("memory.sram.size"),
            "{}",
            told("memory.sram.wibble-wobble")
        );
        assert!(told("memory.sram").contains("is a table"));
        assert!(told("about.x").contains("\"about\""));
        assert_eq!(set("a = ", "a", "1", keys), Err(SetError::NotToml));
    }
}
