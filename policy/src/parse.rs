//! The policy file: TOML text to [`Policy`].
//!
//! All errors are gathered, not only the first: syntax errors, unknown keys with the nearest known one, and invalid
//! values. Semantic checks are the business of [`validate`](crate::validate()).

use std::sync::Arc;

use config::file::longer_than_taken;
use config::{Source, document, section, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Code, Diagnostic};
use crate::lines::{Item, Lines};
use crate::model::{Policy, ZoneDefault};
use crate::word;

mod gateway;
mod interface;
mod limit;
mod log;
mod nat;
mod route;
mod rule;
pub(crate) mod value;

type Complaint = config::Complaint<Code>;
type Sink = config::Sink<Code>;
type Table<'s, 't, 'i> = config::Table<'s, 't, 'i, Code>;

/// Longest policy that is read, in bytes: as for any file.
pub use config::file::MOST_BYTES;

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
    let source = Arc::new(Source::new(file, text));
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
    policy.mode = top.take("mode", |value| value::one_of(value, word::MODE)).unwrap_or_default();
    if let Some(mut table) = top.raw("classifier").and_then(|value| Table::of(sink, value, "[classifier]")) {
        let algorithm = table.take("algorithm", |value| value::one_of(value, word::SEARCH_ALGORITHM));
        policy.search.algorithm = algorithm.unwrap_or_default();
        policy.search.memory = table.take("memory", value::mebibytes);
        table.finish();
    }
    for (key, value) in section(&mut top, "interface") {
        let (interface, entry) = interface::read(sink, key, value);
        lines.push(Item::Interface(0), &interface.name, entry);
        policy.interfaces.push(interface);
    }
    for (key, value) in section(&mut top, "set") {
        let (set, entry) = interface::read_set(sink, key, value);
        lines.push(Item::Set(0), &set.name, entry);
        policy.sets.push(set);
    }
    for (key, value) in section(&mut top, "default") {
        if let Some((default, entry)) = read_default(sink, key, value) {
            lines.push(Item::Default(0), "", entry);
            policy.defaults.push(default);
        } else {
            lines.lose(Item::Default(0));
        }
    }
    for table in tables(&mut top, "route", "a route") {
        if let Some((route, entry)) = route::read(table) {
            lines.push(Item::Route(0), "", entry);
            policy.routes.push(route);
        } else {
            lines.lose(Item::Route(0));
        }
    }
    for table in tables(&mut top, "neighbour", "a neighbour") {
        if let Some((neighbour, entry)) = route::read_neighbour(table) {
            lines.push(Item::Neighbour(0), "", entry);
            policy.neighbours.push(neighbour);
        } else {
            lines.lose(Item::Neighbour(0));
        }
    }
    for table in tables(&mut top, "rule", "a rule") {
        let (rule, entry) = rule::read(table);
        lines.push(Item::Rule(0), &rule.name, entry);
        policy.rules.push(rule);
    }
    for table in tables(&mut top, "nat", "a translation") {
        if let Some((nat, entry)) = nat::read(table) {
            lines.push(Item::Nat(0), &nat.name, entry);
            policy.nats.push(nat);
        } else {
            lines.lose(Item::Nat(0));
        }
    }
    if let Some(table) = top.raw("limit").and_then(|value| Table::of(sink, value, "[limit]")) {
        let (limits, entry) = limit::read(table);
        lines.push(Item::Limit, "", entry);
        policy.limits = limits;
    }
    if let Some(table) = top.raw("timeout").and_then(|value| Table::of(sink, value, "[timeout]")) {
        let (timeouts, entry) = limit::read_timeouts(table);
        lines.push(Item::Timeout, "", entry);
        policy.timeouts = timeouts;
    }
    let mut gateway_entry = None;
    if let Some(table) = top.raw("gateway").and_then(|value| Table::of(sink, value, "[gateway]")) {
        let (gateway, entry) = gateway::read(table);
        policy.gateway = gateway;
        gateway_entry = Some(entry);
    }
    let mut entry = top.finish();
    entry.parts.extend(gateway_entry.into_iter().flat_map(|entry| entry.parts));
    lines.push(Item::Top, "", entry);
    policy
}

fn read_default(
    sink: &Sink,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Option<(ZoneDefault, config::Entry)> {
    let action = value::one_of(value.get_ref(), word::ACTION);
    let action = action.map_err(|complaint| sink.report(complaint, value.span())).ok();
    let mut zones = key.get_ref().split('>').map(str::trim);
    let pair = match (zones.next(), zones.next(), zones.next()) {
        (Some(from), Some(to), None) if !from.is_empty() && !to.is_empty() => Some((from, to)),
        _ => {
            let message = format!("\"{}\" is not a pair of zones", key.get_ref());
            let hint = "write \"lan > wan\" = \"accept\"; \"any\" stands for every zone";
            sink.report(Complaint::new(Code::BadZonePair, message).hint(hint), key.span());
            None
        }
    };
    let (from, to) = pair?;
    let default = ZoneDefault { from: from.to_owned(), to: to.to_owned(), action: action? };
    let entry = config::Entry { span: key.span(), ..Default::default() };
    Some((default, entry))
}

#[cfg(test)]
mod tests;
