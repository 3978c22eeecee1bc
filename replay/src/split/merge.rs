//! One summary of the summaries of all parts.

use dataplane::limiter::{Ask, Limiter};
use dataplane::nat::Share;
use dataplane::shard::NEIGHBOURS;
use dataplane::{Tables, fragment};
use lookup::memory::Paging;
use serde_json::{Map, Value, json};
use wire::Nanos;

use super::result::{PartResult, Used};
use crate::summary::Remarks;

/// Reason for which the parts might not come to the same as a replay of all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexact {
    /// The flow table might have been full.
    #[error("the flow table might have been full, with {used} flows in all parts and room for {room}")]
    Flows {
        /// Flows of all parts, each at its most.
        used: u64,
        /// Flows that there is room for.
        room: u64,
    },
    /// The table of neighbours might have been full.
    #[error("there might have been no room for neighbours, with {0} in all parts")]
    Neighbours(u64),
    /// The memory for fragments might have been full, or the share of a source.
    #[error(
        "the memory for fragments might have been full, with {datagrams} datagrams and {held} fragments held in all parts"
    )]
    Fragments {
        /// Datagrams of all parts, each at its most.
        datagrams: u64,
        /// Fragments held, likewise.
        held: u64,
    },
    /// A bound on answers, or the rate of a rule, would have been reached.
    #[error("a bound that all flows share was reached ({})", match .0 {
        Bound::Rate => "the rate of a rule",
        Bound::Answers => "[limit] errors-per-second or errors-in-all",
    })]
    Bound(Bound),
    /// The system has no memory for the buckets of bounds that all flows share.
    #[error("bounds that all flows share could not be checked: no memory for a table of {0} bytes")]
    Memory(usize),
    /// More packets asked for a bound that all flows share than are kept.
    #[error("too many packets asked for tokens of buckets that all flows share")]
    Asks,
    /// There are fragments of ICMP errors.
    #[error("fragments of ICMP errors belong to flows that most of them do not tell ({0} packets)")]
    ErrorFragments(u64),
    /// Packets of a class were delayed.
    #[error("packets with a class waited for fragments, and percentiles of delays cannot be added up")]
    Delays,
    /// The parts are not those of one replay.
    #[error("the parts are not those of one replay: was a capture changed meanwhile?")]
    Differ,
}

/// Bound that all flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Rate of a rule.
    Rate,
    /// Rate of answers.
    Answers,
}

/// Room that is left unused: flows that have expired may be in the table for some packets more.
const SLACK: u64 = 64;

/// Merges the outcomes of all parts of a replay by a policy, compiled to `tables`, that has no [obstacles](super::obstacles).
///
/// The result is the summary of a replay of all packets, but for what depends on the machine (`seconds`, `mpps`), which is left out, and the
/// highest number of flows at a time (`peak` of `flows`), which is null.
///
/// # Errors
/// [`Inexact`]: the result might be another one.
pub fn merge(tables: &Tables, parts: &[PartResult]) -> Result<Value, Inexact> {
    let first = parts.first().ok_or(Inexact::Differ)?;
    check_room(tables, parts)?;
    check_bounds(tables, parts)?;
    let all = |name: &str| parts.iter().map(|part| part.summary.get(name)).collect::<Option<Vec<&Value>>>();
    let all = |name| all(name).ok_or(Inexact::Differ);
    let are_same = |name| Ok(all(name)?.windows(2).all(|two| two[0] == two[1]));
    let are_empty = |name| Ok(all(name)?.iter().all(|value| value.as_array().is_some_and(Vec::is_empty)));
    let is_one = parts.iter().all(|part| part.notes == first.notes)
        && are_same("inputs")?
        && are_empty("queues")?
        && are_empty("sas")?;
    if !is_one {
        return Err(Inexact::Differ);
    }
    let mut whole = Map::new();
    for name in ["frames", "reasons", "rules", "nats", "bytes", "answered", "dropped", "flows"] {
        whole.insert(name.to_owned(), sum(&all(name)?));
    }
    if let Some(flows) = whole.get_mut("flows").and_then(Value::as_object_mut) {
        flows.insert("peak".to_owned(), Value::Null);
    }
    let lasted = Nanos(parts.iter().map(|part| part.lasted).max().unwrap_or(0));
    whole.insert("classes".to_owned(), classes(&all("classes")?, lasted)?);
    for name in ["queues", "sas", "inputs"] {
        whole.insert(name.to_owned(), all(name)?[0].clone());
    }
    let remarks = parts.iter().fold(Remarks::default(), |sum, part| sum.plus(part.remarks));
    let notes: Vec<String> = first.notes.iter().cloned().chain(remarks.notes()).collect();
    whole.insert("notes".to_owned(), json!(notes));
    Ok(Value::Object(whole))
}

/// Refuses where memory that flows share might have been full.
fn check_room(tables: &Tables, parts: &[PartResult]) -> Result<(), Inexact> {
    let nowhere = parts.iter().map(|part| part.nowhere).max().unwrap_or(0);
    if nowhere > 0 {
        return Err(Inexact::ErrorFragments(nowhere));
    }
    let used = parts.iter().fold(Used::default(), |sum, part| sum.plus(part.used));
    let room = u64::from(tables.limits.flows);
    if used.flows > 0 && used.flows + used.flows / SLACK + 1 > room {
        return Err(Inexact::Flows { used: used.flows, room });
    }
    if used.neighbours > NEIGHBOURS as u64 {
        return Err(Inexact::Neighbours(used.neighbours));
    }
    let of_each = fragment::room(&tables.limits.fragments);
    // Where no further one could be held, a fragment is refused for that, whatever else is wrong with it.
    let might_have_filled = used.fragments > 0 && used.fragments >= of_each.held.into();
    if used.datagrams > of_each.datagrams.into() || might_have_filled {
        return Err(Inexact::Fragments { datagrams: used.datagrams, held: used.fragments });
    }
    Ok(())
}

/// Refuses where one of all requests for tokens would have been refused. As long as none is, each part has done what a replay of all
/// packets would have done.
fn check_bounds(tables: &Tables, parts: &[PartResult]) -> Result<(), Inexact> {
    if parts.iter().any(|part| part.asks_lost > 0) {
        return Err(Inexact::Asks);
    }
    let lists: Option<Vec<Vec<Ask>>> = parts.iter().map(PartResult::asks).collect();
    let mut asks = lists.ok_or(Inexact::Differ)?.concat();
    asks.sort_by_key(|ask| ask.at());
    let mut limiter =
        Limiter::new(tables, Share::WHOLE, Paging::OnDemand).map_err(|error| Inexact::Memory(error.bytes))?;
    match asks.into_iter().find(|ask| !limiter.grant(*ask, tables)) {
        None => Ok(()),
        Some(Ask::Rate { .. }) => Err(Inexact::Bound(Bound::Rate)),
        Some(Ask::Answer { .. }) => Err(Inexact::Bound(Bound::Answers)),
    }
}

/// Sum of numbers, and of objects key by key.
fn sum(values: &[&Value]) -> Value {
    let objects = || values.iter().filter_map(|value| value.as_object());
    if objects().next().is_none() {
        return values.iter().filter_map(|value| value.as_u64()).sum::<u64>().into();
    }
    let mut keys: Vec<&String> = Vec::new();
    for key in objects().flat_map(Map::keys) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let of = |key: &str| sum(&objects().filter_map(|object| object.get(key)).collect::<Vec<_>>());
    Value::Object(keys.into_iter().map(|key| (key.clone(), of(key))).collect())
}

/// Times of which percentiles are told.
const TIMES: [&str; 2] = ["delay_ns", "ipdv_ns"];

/// Classes, in their order.
fn classes(parts: &[&Value], lasted: Nanos) -> Result<Value, Inexact> {
    let names = parts.first().and_then(|first| first.as_object()).ok_or(Inexact::Differ)?.keys();
    let class = |name: &String| {
        let rows: Option<Vec<&Map<_, _>>> =
            parts.iter().map(|part| part.get(name).and_then(Value::as_object)).collect();
        Ok((name.clone(), row(&rows.ok_or(Inexact::Differ)?, lasted)?))
    };
    names.map(class).collect::<Result<Map<_, _>, Inexact>>().map(Value::Object)
}

/// One class. Figures of packets that were sent or lost are only in the rows of parts that had some, and in those of parts without packets,
/// where they are zero.
fn row(rows: &[&Map<String, Value>], lasted: Nanos) -> Result<Value, Inexact> {
    let number = |row: &Map<String, Value>, name: &str| row.get(name).and_then(Value::as_u64).unwrap_or(0);
    let all = |name: &str| rows.iter().map(|row| number(row, name)).sum::<u64>();
    let mut whole = Map::new();
    for name in ["frames", "bytes", "green", "yellow", "red"] {
        whole.insert(name.to_owned(), all(name).into());
    }
    let has_packets = |row: &Map<String, Value>| number(row, "frames") > 0;
    let has_figures = |row: &&&Map<String, Value>| row.contains_key("sent");
    let any = rows.iter().any(|row| has_packets(row));
    let Some(figures) = rows.iter().filter(has_figures).find(|row| !any || has_packets(row)) else {
        return Ok(Value::Object(whole));
    };
    for name in ["sent", "sent_bytes", "marked"] {
        whole.insert(name.to_owned(), all(name).into());
    }
    let seconds = lasted.as_secs_f64();
    let rate = if seconds > 0.0 { all("sent_bytes") as f64 * 8.0 / seconds } else { 0.0 };
    whole.insert("rate_bps".to_owned(), (rate.round() as u64).into());
    let lost: Vec<&Value> = rows.iter().filter_map(|row| row.get("lost")).collect();
    whole.insert("lost".to_owned(), sum(&lost));
    for name in TIMES {
        let longest = |row: &&Map<String, Value>| row.get(name)?.get("max")?.as_u64();
        if rows.iter().filter_map(longest).any(|longest| longest > 0) {
            return Err(Inexact::Delays);
        }
        whole.insert(name.to_owned(), figures.get(name).cloned().ok_or(Inexact::Differ)?);
    }
    Ok(Value::Object(whole))
}

impl Used {
    fn plus(self, other: Used) -> Used {
        Used {
            flows: self.flows + other.flows,
            neighbours: self.neighbours + other.neighbours,
            datagrams: self.datagrams + other.datagrams,
            fragments: self.fragments + other.fragments,
        }
    }
}
