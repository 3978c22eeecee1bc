//! Importer for the output of `iptables-save` and `ip6tables-save`.
//!
//! `filter`, `nat`, `mangle`, `raw` and `security` are translated as far as there are counterparts; chains for the gateway's
//! own packets are counted unless all their rules accept. Byte and packet counters, before a rule or in a chain's line, do not
//! affect packets and are skipped. The output of `ipset save` may stand in front, and defines the sets that rules name.

use std::collections::{BTreeSet, HashMap};

use super::chain::{Base, SourceRule};
use super::emit::{Found, Translation, emit};
use super::interface::Names;
use super::name;
use super::note::{Origin, Why};
use super::{Import, ImportError, Importer, IpVersion};
use set::Sets;

mod recent;
mod rule;
mod set;
mod target;

pub(super) use rule::flag_ways;
pub(super) use target::{forward, netmap, redirect, reject};

/// `iptables-save` and `ip6tables-save`.
pub(super) const IMPORTER: Importer = Importer {
    name: "iptables",
    reads: "what iptables-save or ip6tables-save prints, after ipset save's",
    read,
};

fn read(source: &[u8], version: Option<IpVersion>) -> Result<Import, ImportError> {
    let text = String::from_utf8_lossy(source);
    let version = version.unwrap_or_else(|| infer(&text));
    let mut save = Save::default();
    let mut table = String::new();
    let mut known = false;
    for (index, line) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let line = line.trim();
        let mut understood = true;
        if line.is_empty() || line.starts_with('#') {
            continue;
        } else if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(chain) = line.strip_prefix(':') {
            let mut words = chain.split_ascii_whitespace();
            let chain = save.chain(&table, words.next().unwrap_or_default());
            save.chains[chain].drops = words.next() == Some("DROP");
        } else if line != "COMMIT" {
            let is_of_set = table.is_empty() && words(line).is_some_and(|words| save.sets.read(&words));
            understood = is_of_set || save.append(&table, number, line);
        }
        known |= understood;
    }
    if !known && !save.lines.is_empty() {
        return Err(ImportError::NothingKnown { format: "iptables-save" });
    }
    Ok(emit(save.found(version)))
}

/// Infers the IP version: IPv6 if the text says so, or has IPv6 addresses.
fn infer(text: &str) -> IpVersion {
    let mut words = text.split_ascii_whitespace();
    let v6 = words.any(|word| {
        word.starts_with("ip6tables-save")
            || word == "ipv6-icmp"
            || word == "icmp6-port-unreachable"
            || word.split('/').next().is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
    });
    if v6 { IpVersion::V6 } else { IpVersion::V4 }
}

/// A parsed save.
#[derive(Default)]
struct Save {
    chains: Vec<Chain>,
    index: HashMap<(String, String), usize>,
    lines: Vec<Line>,
    sets: Sets,
}

struct Chain {
    table: String,
    name: String,
    drops: bool,
    lines: usize,
}

/// Line of a rule, split into words; none if the line is malformed.
struct Line {
    number: u32,
    text: String,
    chain: Option<usize>,
    words: Vec<String>,
    label: String,
}

impl Save {
    fn chain(&mut self, table: &str, name: &str) -> usize {
        let key = (table.to_owned(), name.to_owned());
        let chains = &mut self.chains;
        *self.index.entry(key).or_insert_with(|| {
            chains.push(Chain { table: table.to_owned(), name: name.to_owned(), drops: false, lines: 0 });
            chains.len() - 1
        })
    }

    fn append(&mut self, table: &str, number: u32, line: &str) -> bool {
        let rule = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((_, rule)) => rule.trim_start(),
            None => line,
        };
        let mut words = words(rule).unwrap_or_default();
        let understood = words.len() > 1 && matches!(words[0].as_str(), "-A" | "--append");
        let mut chain = None;
        let mut label = format!("line-{number}");
        if understood {
            let at = self.chain(table, &words[1]);
            self.chains[at].lines += 1;
            let chain_name =
                name::valid(&words[1].to_ascii_lowercase()).unwrap_or_else(|| "chain".to_owned());
            label = format!("{chain_name}-{}", self.chains[at].lines);
            chain = Some(at);
            words.drain(..2);
        }
        self.lines.push(Line { number, text: line.to_owned(), chain, words, label });
        understood
    }

    fn found(mut self, version: IpVersion) -> Found {
        let mut notes = BTreeSet::new();
        let mut names = Names::default();
        for line in &self.lines {
            for (at, pair) in line.words.windows(2).enumerate() {
                if matches!(pair[0].as_str(), "-i" | "-o" | "--in-interface" | "--out-interface") {
                    // Old rules have the `!` after the option.
                    let after = pair[1] == "!";
                    let negated = after || at > 0 && line.words[at - 1] == "!";
                    let named = if after { line.words.get(at + 2) } else { Some(&pair[1]) };
                    if let Some(name) = named {
                        names.gather(name, negated);
                    }
                }
            }
        }
        names.close(&mut notes);
        let silent = match version {
            IpVersion::V4 => IpVersion::V6,
            IpVersion::V6 => IpVersion::V4,
        };
        self.lines.iter().for_each(|line| self.sets.note(&line.words));
        let recent = recent::find(&self.lines, &mut self.sets);
        let mut shared: HashMap<&str, usize> = HashMap::new();
        for pair in self.lines.iter().flat_map(|line| line.words.windows(2)) {
            if pair[0] == "--hashlimit-name" {
                *shared.entry(pair[1].as_str()).or_default() += 1;
            }
        }
        let mut found = Found { notes, silent: Some(silent), ..Found::default() };
        found.program.chains = vec![Vec::new(); self.chains.len()];
        for line in &self.lines {
            let index = found.program.rules.len();
            let mut label = line.label.clone();
            let body = match line.chain {
                None => Err(Why::Syntax),
                Some(chain) => {
                    found.program.chains[chain].push(index);
                    let table = &self.chains[chain].table;
                    let input = table != "nat" && self.chains[chain].name == "INPUT";
                    let mut reader = rule::Reader::new(
                        version,
                        &names,
                        Origin::Line(line.number),
                        &mut found.notes,
                        &shared,
                        &mut self.sets,
                    );
                    reader.input = input;
                    reader.recent = recent.get(&index).cloned().map(Vec::into_iter);
                    let body = reader.read(&line.words, |target| {
                        self.index.get(&(table.clone(), target.to_owned())).copied()
                    });
                    found.stateful |= reader.stateful;
                    if let Some(comment) = reader.comment.as_deref().and_then(name::valid) {
                        label = comment;
                    }
                    body
                }
            };
            let origin = Origin::Line(line.number);
            found.program.rules.push(SourceRule { origin, text: line.text.clone(), label, body });
        }
        for (hook, tables) in HOOKS {
            let bases: Vec<Base> = tables
                .iter()
                .filter_map(|table| self.index.get(&((*table).to_owned(), (*hook).to_owned())))
                .map(|&chain| Base { chain, version: Some(version), drops: self.chains[chain].drops })
                .collect();
            match (*hook, *tables) {
                ("INPUT", ["mangle", ..]) => found.input = bases,
                ("FORWARD", ["mangle", ..]) => found.forward = bases,
                ("PREROUTING", ["raw", ..]) => {
                    found.early = bases.into_iter().map(|base| (base, Translation::Before)).collect();
                }
                ("POSTROUTING", ["mangle"]) => found.late = bases,
                ("OUTPUT", _) => found.own.push((hook.to_string(), bases)),
                ("PREROUTING", ["nat"]) => found.prerouting = bases,
                ("POSTROUTING", ["nat"]) => found.postrouting = bases,
                (hook, tables) => {
                    found.foreign.push((format!("{} {hook}", tables.join(" ")), bases));
                }
            }
        }
        found.interfaces = names.into_list();
        (found.sets, found.dynamic_sets) = self.sets.into_lists();
        found
    }
}

/// Hooks and their tables, in calling order, as far as one list can represent them.
const HOOKS: &[(&str, &[&str])] = &[
    ("INPUT", &["mangle", "filter", "security"]),
    ("FORWARD", &["mangle", "filter", "security"]),
    ("PREROUTING", &["nat"]),
    ("POSTROUTING", &["nat"]),
    ("PREROUTING", &["raw", "mangle"]),
    ("POSTROUTING", &["mangle"]),
    ("OUTPUT", &["raw", "mangle", "nat", "filter", "security"]),
    ("INPUT", &["nat"]),
];

/// Splits a line into words, with double quotes and backslashes as iptables writes them.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Some(words);
        }
        let mut word = String::new();
        let mut quoted = false;
        while let Some(&c) = chars.peek() {
            if c.is_ascii_whitespace() && !quoted {
                break;
            }
            chars.next();
            match c {
                '"' => quoted = !quoted,
                '\\' => word.push(chars.next()?),
                c => word.push(c),
            }
        }
        if quoted {
            return None;
        }
        words.push(word);
    }
}
