//! Importer for the output of `nft -j list ruleset` (libnftables-json(5)).
//!
//! Tables of families ip, ip6 and inet are translated; rules of other families, and those at hooks without a counterpart, are
//! listed unless all of them accept. Counters do not affect packets and are skipped. A rule is identified by its handle.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::chain::{Base, SourceRule};
use super::emit::{Found, Translation, emit};
use super::interface::Names;
use super::name;
use super::note::{Note, NoteKind, Origin, Why};
use super::{Import, ImportError, Importer, IpVersion};
use crate::model::{Helper, Set};

use dynamic::DynamicSets;
use expression::items;

mod dynamic;
mod expression;
mod limit;
mod mangle;
mod spread;
mod statement;
mod translation;

/// Priorities of NAT chains: destination, then source.
const DESTINATION_NAT: i64 = -100;
const SOURCE_NAT: i64 = 100;

/// `nft -j list ruleset`.
pub(super) const IMPORTER: Importer =
    Importer { name: "nft", reads: "what `nft -j list ruleset` prints", read };

fn read(source: &[u8], _: Option<IpVersion>) -> Result<Import, ImportError> {
    let value: Value = serde_json::from_slice(source).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match error.is_eof() {
            true => ImportError::JsonEnds { line, column },
            false => ImportError::Json { line, column },
        }
    })?;
    let list = value.get("nftables").and_then(Value::as_array).ok_or(ImportError::NotNftables)?;
    Ok(emit(Ruleset::gather(list).found()))
}

/// Family and table, and the name of a chain, set or map.
type Key = (String, String, String);

/// The objects of a rule set, by kind.
#[derive(Default)]
struct Ruleset<'a> {
    chains: Vec<(Key, &'a Value)>,
    rules: Vec<(Key, &'a Value)>,
    /// Sets and maps.
    sets: BTreeMap<Key, &'a Value>,
    helpers: BTreeMap<Key, &'a Value>,
    limits: BTreeMap<Key, &'a Value>,
    /// Rules with each named limit.
    limit_uses: BTreeMap<Key, usize>,
    flowtables: bool,
    /// Tables whose chains are not in force, by family and name.
    dormant: BTreeSet<(String, String)>,
    /// Tables with flags that the source does not name.
    flagged: BTreeSet<(String, String)>,
}

impl<'a> Ruleset<'a> {
    fn gather(list: &'a [Value]) -> Ruleset<'a> {
        let mut ruleset = Ruleset::default();
        // A file of commands wraps each object in `add`.
        let objects = list.iter().map(|object| object.get("add").unwrap_or(object));
        let objects = objects.filter_map(|object| object.as_object().and_then(|map| map.iter().next()));
        let word = |body: &Value, name| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        for (_, body) in objects.clone().filter(|(kind, _)| *kind == "table") {
            let Some(flags) = body.get("flags") else { continue };
            let table = (word(body, "family"), word(body, "name"));
            let flags: Vec<&str> = items(flags).into_iter().filter_map(Value::as_str).collect();
            if flags.contains(&"dormant") {
                ruleset.dormant.insert(table);
            } else if flags.iter().any(|flag| !matches!(*flag, "owner" | "persist")) {
                // nft 1.0.6 prints the table's name there.
                ruleset.flagged.insert(table);
            }
        }
        for (kind, body) in objects {
            if ruleset.dormant.contains(&(word(body, "family"), word(body, "table"))) {
                continue;
            }
            match kind.as_str() {
                "chain" => ruleset.chains.push((key(body, "name"), body)),
                "rule" => {
                    let of = key(body, "chain");
                    let statements = body.get("expr").and_then(Value::as_array).into_iter().flatten();
                    for name in statements.filter_map(|statement| statement.get("limit")?.as_str()) {
                        let key = (of.0.clone(), of.1.clone(), name.to_owned());
                        *ruleset.limit_uses.entry(key).or_default() += 1;
                    }
                    ruleset.rules.push((of, body));
                }
                "set" | "map" => {
                    ruleset.sets.insert(key(body, "name"), body);
                }
                "ct helper" => {
                    ruleset.helpers.insert(key(body, "name"), body);
                }
                "limit" => {
                    ruleset.limits.insert(key(body, "name"), body);
                }
                "flowtable" => ruleset.flowtables = true,
                _ => {}
            }
        }
        ruleset
    }

    fn found(&self) -> Found {
        let mut notes = BTreeSet::new();
        if self.flowtables {
            notes.insert(Note { origin: None, kind: NoteKind::FastPath });
        }
        for (family, name) in &self.dormant {
            notes
                .insert(Note { origin: None, kind: NoteKind::Dormant { table: format!("{family} {name}") } });
        }
        for (family, name) in &self.flagged {
            notes.insert(Note {
                origin: None,
                kind: NoteKind::TableFlags { table: format!("{family} {name}") },
            });
        }
        let mut names = Names::default();
        for (key, rule) in &self.rules {
            expression::gather_interfaces(rule, &mut names, &|name| self.elements(key, name));
        }
        names.close(&mut notes);
        let mut found = Found { notes, silent: self.silent(), ..Found::default() };
        let mut index: HashMap<&Key, usize> = HashMap::new();
        for (at, (key, _)) in self.chains.iter().enumerate() {
            index.insert(key, at);
        }
        found.program.chains = vec![Vec::new(); self.chains.len()];
        let inputs = self.only_from_input(&index);
        let mut sets: BTreeMap<String, Set> = BTreeMap::new();
        let dynamic = DynamicSets::gather(&self.sets, &self.rules);
        for (key, rule) in &self.rules {
            let at = found.program.rules.len();
            let chain = index.get(key).copied();
            let chain_name = name::valid(&key.2.to_lowercase()).unwrap_or_else(|| "chain".to_owned());
            let mut label = format!("{chain_name}-{}", at + 1);
            if let Some(rules) = chain.and_then(|chain| found.program.chains.get_mut(chain)) {
                rules.push(at);
                label = format!("{chain_name}-{}", rules.len());
            }
            if let Some(comment) = rule.get("comment").and_then(Value::as_str).and_then(name::valid) {
                label = comment;
            }
            let handle = rule.get("handle").and_then(Value::as_u64).unwrap_or(at as u64 + 1);
            let origin = Origin::Handle(u32::try_from(handle).unwrap_or(u32::MAX));
            let body = if !matches!(key.0.as_str(), "ip" | "ip6" | "inet") {
                Err(Why::Family(key.0.clone()))
            } else if chain.is_none() {
                Err(Why::Missing(key.2.clone()))
            } else {
                let mut context = statement::Context {
                    family: &key.0,
                    origin,
                    names: &names,
                    notes: &mut found.notes,
                    stateful: &mut found.stateful,
                    sets: &mut sets,
                    dynamic: &|name| dynamic.get(key, name),
                    changes_map: &|name| dynamic.changes_map(key, name),
                    is_taken: &|name| dynamic.is_taken(name),
                    input: chain.is_some_and(|chain| inputs.contains(&chain)),
                    chain: &|name| index.get(&(key.0.clone(), key.1.clone(), name.to_owned())).copied(),
                    named: &|name| self.elements(key, name),
                    helper: &|name| self.helper(key, name),
                    limit: &|name| self.limit(key, name),
                };
                context.rule(rule.get("expr").and_then(Value::as_array).map_or(&[], Vec::as_slice))
            };
            let expr = rule.get("expr").map_or_else(String::new, Value::to_string);
            let text = format!("{} {} {} {expr}", key.0, key.1, key.2);
            found.program.rules.push(SourceRule { origin, text, label, body });
        }
        self.hooks(&mut found);
        found.sets = sets.into_values().collect();
        found.dynamic_sets = dynamic.into_list();
        found.interfaces = names.into_list();
        found
    }

    /// IP version without a table, if the other has one.
    fn silent(&self) -> Option<IpVersion> {
        let families = self.chains.iter().map(|(key, _)| key.0.as_str());
        let (v4, v6) = families.fold((false, false), |(v4, v6), family| {
            (v4 || matches!(family, "ip" | "inet"), v6 || matches!(family, "ip6" | "inet"))
        });
        match (v4, v6) {
            (true, false) => Some(IpVersion::V6),
            (false, true) => Some(IpVersion::V4),
            _ => None,
        }
    }

    /// Object of a named set or map, in the table of `key`.
    fn elements(&self, key: &Key, name: &str) -> Option<&'a Value> {
        self.sets.get(&(key.0.clone(), key.1.clone(), name.to_owned())).copied()
    }

    /// Helper of a named object, in the table of `key`.
    fn helper(&self, key: &Key, name: &str) -> Result<Helper, Why> {
        let object = self.helpers.get(&(key.0.clone(), key.1.clone(), name.to_owned()));
        let object = object.ok_or_else(|| Why::Missing(name.to_owned()))?;
        let word = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
        match (word("type"), word("protocol")) {
            ("ftp", "tcp") => Ok(Helper::Ftp),
            ("sip", "udp") => Ok(Helper::Sip),
            ("pptp", "tcp") => Ok(Helper::Pptp),
            (kind, protocol) => Err(Why::Feature(format!("ct helper {kind} over {protocol}"))),
        }
    }

    /// Named limit in the table of `key`, of one rule alone.
    fn limit(&self, key: &Key, name: &str) -> Result<&'a Value, Why> {
        let key = (key.0.clone(), key.1.clone(), name.to_owned());
        let limit = self.limits.get(&key).copied().ok_or_else(|| Why::Missing(name.to_owned()))?;
        if self.limit_uses.get(&key) == Some(&1) { Ok(limit) } else { Err(Why::Limit) }
    }

    /// Base chains at the hook `input`.
    fn only_from_input(&self, index: &HashMap<&Key, usize>) -> BTreeSet<usize> {
        let hook = |body: &Value| body.get("hook").and_then(Value::as_str) == Some("input");
        self.chains
            .iter()
            .filter(|(_, body)| hook(body))
            .filter_map(|(key, _)| index.get(key).copied())
            .collect()
    }

    fn hooks(&self, found: &mut Found) {
        let mut bases: Vec<(i64, &str, &str, Base, &str)> = Vec::new();
        for (chain, (key, body)) in self.chains.iter().enumerate() {
            let word = |name: &str| body.get(name).and_then(Value::as_str);
            let Some(hook) = word("hook") else { continue };
            let priority = body.get("prio").and_then(Value::as_i64).unwrap_or(0);
            let version = match key.0.as_str() {
                "ip" => Some(IpVersion::V4),
                "ip6" => Some(IpVersion::V6),
                _ => None,
            };
            let base = Base { chain, version, drops: word("policy") == Some("drop") };
            bases.push((priority, hook, word("type").unwrap_or("filter"), base, &key.0));
        }
        bases.sort_by_key(|base| base.0);
        for (priority, hook, kind, base, family) in bases {
            let translated = matches!(family, "ip" | "ip6" | "inet");
            match (hook, kind) {
                _ if !translated => found.foreign.push((format!("{family} {hook}"), vec![base])),
                ("prerouting", "filter") => {
                    let before = priority <= DESTINATION_NAT;
                    let translation = if before { Translation::Before } else { Translation::After };
                    found.early.push((base, translation));
                }
                ("postrouting", "filter") if priority < SOURCE_NAT => found.late.push(base),
                ("output", _) => found.own.push((hook.to_owned(), vec![base])),
                ("input", "filter") => found.input.push(base),
                ("forward", "filter") => found.forward.push(base),
                ("prerouting", "nat") => found.prerouting.push(base),
                ("postrouting", "nat") => found.postrouting.push(base),
                _ => found.foreign.push((hook.to_owned(), vec![base])),
            }
        }
    }
}

fn key(body: &Value, name: &str) -> Key {
    let word = |name| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (word("family"), word("table"), word(name))
}
