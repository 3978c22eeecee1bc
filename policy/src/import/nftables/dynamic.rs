//! Sets whose elements come and go: those with timeouts, and those that rules add to.
//!
//! `nft -j` does not print the flag `dynamic`, so rules tell. A set of addresses and ports that rules add a source to with a port that is
//! the same for all packets, as for port knocking, becomes a set of sources for each such port.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use wire::Nanos;

use super::Key;
use super::expression::{Field, address, bare, constant, field, items};
use crate::import::IpVersion;
use crate::import::emit::FoundSet;
use crate::import::member::{Addition, Again};
use crate::import::name::{Unique, valid};
use crate::import::note::Why;
use crate::model::DynamicSet;

/// Most ports that a set is divided by.
const MOST_PORTS: usize = 16;

/// The sets of a rule set whose elements come and go.
#[derive(Default)]
pub(super) struct DynamicSets {
    sets: BTreeMap<Key, Dynamic>,
    /// Maps that rules change.
    maps: BTreeSet<Key>,
}

/// A set whose elements come and go.
pub(super) struct Dynamic {
    /// Names in the policy, by the port that goes with the address; of addresses alone under an empty word.
    names: BTreeMap<String, Arc<str>>,
    /// True if elements have limits of their own: then to be in the set says nothing.
    has_limits: bool,
    set: FoundSet,
}

impl DynamicSets {
    pub(super) fn gather(sets: &BTreeMap<Key, &Value>, rules: &[(Key, &Value)]) -> DynamicSets {
        let mut uses: BTreeMap<Key, Uses> = BTreeMap::new();
        let mut found = DynamicSets::default();
        for (key, rule) in rules {
            let statements = rule.get("expr").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for body in statements.iter().filter_map(|statement| statement.get("set")) {
                let Some(name) = set_name(body) else { continue };
                uses.entry((key.0.clone(), key.1.clone(), name.to_owned())).or_default().note(body);
            }
            for name in statements.iter().filter_map(changed) {
                let uses = uses.entry((key.0.clone(), key.1.clone(), name.to_owned())).or_default();
                uses.adds = true;
            }
        }
        let mut names = Unique::default();
        // What keeps the name of a set has it to itself.
        for (key, set) in sets {
            let flags = set.get("flags").map_or_else(String::new, Value::to_string);
            let is_timed =
                set.get("timeout").is_some() || flags.contains("timeout") || flags.contains("dynamic");
            let uses = uses.remove(key).unwrap_or_default();
            if set.get("map").is_some() {
                if uses.adds || uses.limits {
                    found.maps.insert(key.clone());
                }
                continue;
            }
            if !(is_timed || uses.adds || uses.limits) {
                continue;
            }
            let name = valid(&key.2).unwrap_or_else(|| "set".to_owned());
            let ports = if uses.ports.is_empty() { BTreeSet::from([String::new()]) } else { uses.ports };
            let name_of = |port: String| {
                let wanted = if port.is_empty() { name.clone() } else { format!("{name}-{port}") };
                (port, Arc::from(names.name(&wanted)))
            };
            let names = ports.into_iter().take(MOST_PORTS).map(name_of).collect();
            found.sets.insert(key.clone(), Dynamic { names, has_limits: uses.limits, set: read(set) });
        }
        found
    }

    /// The set of that name, in the table of `key`.
    pub(super) fn get(&self, key: &Key, name: &str) -> Option<&Dynamic> {
        self.sets.get(&(key.0.clone(), key.1.clone(), name.to_owned()))
    }

    /// True if rules change the map of that name, in the table of `key`.
    pub(super) fn changes_map(&self, key: &Key, name: &str) -> bool {
        self.maps.contains(&(key.0.clone(), key.1.clone(), name.to_owned()))
    }

    /// True if a set of the policy has that name.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.sets.values().any(|set| set.names.values().any(|taken| **taken == *name))
    }

    /// All sets, by their names in the policy.
    pub(super) fn into_list(self) -> Vec<FoundSet> {
        let named = |set: Dynamic| {
            let Dynamic { names, set, .. } = set;
            names.into_values().map(move |name| {
                let dynamic = DynamicSet { name: name.to_string(), ..set.set.clone() };
                FoundSet { set: dynamic, ..set.clone() }
            })
        };
        self.sets.into_values().flat_map(named).collect()
    }
}

impl Dynamic {
    /// Name of the set of addresses.
    pub(super) fn addresses(&self, name: &str) -> Result<&Arc<str>, Why> {
        let set = self.names.get("").filter(|_| !self.has_limits);
        set.ok_or_else(|| Why::DynamicSet(name.to_owned()))
    }

    /// Names of the sets of addresses, each with the port that goes with it.
    pub(super) fn by_port(&self, name: &str) -> Result<impl Iterator<Item = (&str, &Arc<str>)>, Why> {
        let is_divided = !self.names.contains_key("") && !self.has_limits;
        // Elements of a set of addresses and ports.
        if !is_divided || !self.set.fixed.is_empty() || self.set.passing > 0 {
            return Err(Why::DynamicSet(name.to_owned()));
        }
        Ok(self.names.iter().map(|(port, set)| (port.as_str(), set)))
    }

    /// Reads the addition that a statement makes, and the IP version of its packets.
    pub(super) fn addition(&self, body: &Value) -> Result<(Addition, IpVersion), Why> {
        let name = set_name(body).unwrap_or_default();
        let op = body.get("op").and_then(Value::as_str).unwrap_or("add");
        let again = match op {
            "add" => Again::Keeps,
            "update" => Again::Renews,
            other => return Err(Why::Feature(format!("{other} @{name}"))),
        };
        let element = body.get("elem").unwrap_or(&Value::Null);
        let (added, port) = added(element).ok_or_else(|| unlike(op, name))?;
        let Field::Source { v6 } = field(added).map_err(|_| unlike(op, name))? else {
            return Err(unlike(op, name));
        };
        let set = self.names.get(&port).filter(|_| !self.has_limits);
        let set = set.ok_or_else(|| Why::DynamicSet(name.to_owned()))?.clone();
        let lasts = element.get("elem").and_then(|elem| elem.get("timeout")).and_then(Value::as_u64);
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        Ok((Addition { set, lasts: lasts.map(Nanos::from_secs), again }, version))
    }
}

/// Uses of a set by rules that change it.
#[derive(Default)]
struct Uses {
    adds: bool,
    limits: bool,
    ports: BTreeSet<String>,
}

impl Uses {
    fn note(&mut self, body: &Value) {
        if limits(body).next().is_some() {
            self.limits = true;
            return;
        }
        self.adds = true;
        let port = body.get("elem").and_then(added).map(|(_, port)| port);
        self.ports.extend(port.filter(|port| !port.is_empty()));
    }
}

/// Name of the set that a statement changes.
pub(super) fn set_name(body: &Value) -> Option<&str> {
    named(body, "set")
}

/// Name of the map that a statement changes. Versions of nft that have no JSON for such a statement print it as a text.
fn changed(statement: &Value) -> Option<&str> {
    let Some(text) = statement.as_str() else { return named(statement.get("map")?, "map") };
    let mut words = text.split_whitespace();
    let is_change = matches!(words.next(), Some("add" | "update" | "delete"));
    words.next().filter(|_| is_change)?.strip_prefix('@')
}

/// Name of the set or map that a statement changes, under a key.
fn named<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    let name = body.get(key).and_then(Value::as_str)?;
    Some(name.strip_prefix('@').unwrap_or(name))
}

/// Statements on each element of a set, but for counters.
pub(super) fn limits(body: &Value) -> impl Iterator<Item = &Value> {
    let statements = match body.get("stmt") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    statements.iter().filter(|statement| statement.get("counter").is_none())
}

/// Expression that an element is made of, and the port that goes with it, an empty word if there is none.
fn added(element: &Value) -> Option<(&Value, String)> {
    let value = bare(element);
    match value.get("concat").and_then(Value::as_array).map(Vec::as_slice) {
        Some([added, port]) => Some((added, constant(port).ok()?)),
        Some(_) => None,
        None => Some((value, String::new())),
    }
}

fn unlike(op: &str, name: &str) -> Why {
    Why::Feature(format!("{op} @{name} of anything but a source address"))
}

/// Reads a set, without its name.
fn read(set: &Value) -> FoundSet {
    let mut found = FoundSet::new("");
    let seconds = set.get("timeout").and_then(Value::as_u64).filter(|&seconds| seconds > 0);
    found.set.timeout = seconds.map(Nanos::from_secs);
    let size = set.get("size").and_then(Value::as_u64).filter(|&size| size > 0);
    found.set.size = size.map_or(DynamicSet::SIZE, |size| u32::try_from(size).unwrap_or(u32::MAX));
    for item in set.get("elem").map_or_else(Vec::new, items) {
        let expires =
            item.get("elem").is_some_and(|elem| elem.get("expires").or(elem.get("timeout")).is_some());
        match address(item) {
            Ok(range) if !expires && found.set.timeout.is_none() => found.fixed.push(range),
            _ => found.passing += 1,
        }
    }
    found
}
