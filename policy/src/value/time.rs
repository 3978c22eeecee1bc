//! Times, and rates and bounds of connections.

use std::fmt::Write;

use config::quantity;
use config::value::text;
use config::wrong_type;
use toml::de::DeValue;
use wire::Nanos;

use super::{Complaint, Read, Text, Value, number, quoted};
use crate::diagnostic::Code;
use crate::model::{ConnectionLimit, Rate, Scope};
use crate::word::{Words, word_for};

/// A duration: whole seconds, or numbers with units, the longest first.
pub(crate) const DURATION: Value<Nanos> =
    Value { read: duration, print: |time| quoted(&duration_text(*time)) };

/// A rate: `N/second burst M per source`.
pub(crate) const RATE: Text<Rate> = Text { read: rate, print: rate_text };

/// A bound on connections: `N` or `N per source`.
pub(crate) const CONNECTIONS: Value<ConnectionLimit> = Value { read: connections, print: connections_text };

const SECOND: u64 = 1_000_000_000;

fn duration(value: &DeValue<'_>) -> Read<Nanos> {
    match value {
        DeValue::Integer(integer) => {
            let seconds =
                number(value, 0, u64::MAX / SECOND).map_err(|_| bad_duration(&integer.to_string()))?;
            Ok(Nanos(seconds * SECOND))
        }
        DeValue::String(text) => duration_of(text),
        other => Err(wrong_type("a duration such as \"30s\", or a number of seconds", other)),
    }
}

fn duration_of(text: &str) -> Read<Nanos> {
    quantity::duration(text).map(Nanos).ok_or_else(|| bad_duration(text))
}

fn bad_duration(text: &str) -> Complaint {
    Complaint::new(Code::BadDuration, format!("\"{text}\" is not a duration"))
        .hint("write \"30s\", \"4m\", \"2h4m\", \"250ms\", or a number of seconds; 584 years at most")
}

/// Formats a duration as numbers with units, the longest first.
pub(crate) fn duration_text(time: Nanos) -> String {
    let mut rest = time.0;
    let mut text = String::new();
    for (unit, nanos) in quantity::TIME_UNITS {
        if rest >= *nanos {
            let _ = write!(text, "{}{unit}", rest / nanos);
            rest %= nanos;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Intervals of rates that have names.
const PER: Words<Nanos> = &[
    ("second", Nanos(SECOND)),
    ("minute", Nanos(60 * SECOND)),
    ("hour", Nanos(3_600 * SECOND)),
    ("day", Nanos(86_400 * SECOND)),
];

fn rate(text: &str) -> Read<Rate> {
    let bad = |what: &str| {
        Complaint::new(Code::BadRate, format!("\"{text}\" is not a rate: {what}"))
            .hint("write \"10/second\", \"10/second burst 20\" or \"10/minute burst 20 per source\"")
    };
    let mut words = text.split_whitespace();
    let (count, per) = words.next().and_then(|word| word.split_once('/')).ok_or_else(|| bad("no N/time"))?;
    let count: u32 = positive(count).ok_or_else(|| bad("the number is 1 at least"))?;
    let per = match PER.iter().find(|(word, _)| *word == per) {
        Some((_, per)) => *per,
        None => duration_of(per).map_err(|_| bad("the time is second, minute, hour, day or a duration"))?,
    };
    if per == Nanos(0) {
        return Err(bad("the time is nothing"));
    }
    let mut rate = Rate { count, per, burst: count, scope: Scope::Rule };
    let mut word = words.next();
    if word == Some("burst") {
        rate.burst = words.next().and_then(positive).ok_or_else(|| bad("the burst is 1 at least"))?;
        word = words.next();
    }
    rate.scope = scope(word, words).ok_or_else(|| bad("what follows is \"per source\" or nothing"))?;
    Ok(rate)
}

fn rate_text(rate: &Rate) -> String {
    let per = word_for(PER, &rate.per).map_or_else(|| duration_text(rate.per), str::to_owned);
    let burst = if rate.burst == rate.count { String::new() } else { format!(" burst {}", rate.burst) };
    format!("{}/{per}{burst}{}", rate.count, scope_text(rate.scope))
}

fn connections(value: &DeValue<'_>) -> Read<ConnectionLimit> {
    let bad = |what: &str| {
        Complaint::new(Code::BadRate, format!("{what} is not a number of connections"))
            .hint("write 100 or \"100 per source\", 1 at least")
    };
    if let DeValue::Integer(integer) = value {
        let most = number(value, 1, u32::MAX.into()).map_err(|_| bad(&integer.to_string()))?;
        return Ok(ConnectionLimit { most: most as u32, scope: Scope::Rule });
    }
    let text = text(value)?;
    let mut words = text.split_whitespace();
    let most = words.next().and_then(positive);
    let scope = scope(words.next(), words);
    most.zip(scope)
        .map(|(most, scope)| ConnectionLimit { most, scope })
        .ok_or_else(|| bad(&format!("\"{text}\"")))
}

fn connections_text(limit: &ConnectionLimit) -> String {
    match limit.scope {
        Scope::Rule => limit.most.to_string(),
        Scope::Source => quoted(&format!("{}{}", limit.most, scope_text(limit.scope))),
    }
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Reads a scope: `per source` or nothing.
fn scope<'a>(first: Option<&str>, mut rest: impl Iterator<Item = &'a str>) -> Option<Scope> {
    match (first, rest.next(), rest.next()) {
        (None, None, None) => Some(Scope::Rule),
        (Some("per"), Some("source"), None) => Some(Scope::Source),
        _ => None,
    }
}

fn scope_text(scope: Scope) -> &'static str {
    match scope {
        Scope::Rule => "",
        Scope::Source => " per source",
    }
}
