//! Lists of recent sources (`-m recent`), as far as a rate for each source can replace them.
//!
//! The idiom of all guides: one rule adds the source of each new connection to a list (`--set`), and the next drops the
//! connection if the source has reached a number of connections in a number of seconds (`--update` or `--rcheck`). A bucket
//! of as many tokens, refilled by one token per interval of as many seconds, passes no more in any such interval. Lists
//! with other uses (knocking, bans set elsewhere, destinations) have no counterpart.

use std::collections::{BTreeMap, HashMap};

use super::Line;
use crate::import::word;
use crate::model::{Rate, Scope};

/// Translation of a rule that uses a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recent {
    /// Addition of the source to the list: without effect here.
    Set,
    /// Match on the excess of the rate.
    Rate(Rate),
}

/// Use of a list by a rule.
struct Use<'a> {
    /// Index among all rules, and the chain.
    at: usize,
    chain: Option<usize>,
    kind: Kind,
    /// Conditions of the rule other than on the list.
    rest: Vec<&'a str>,
    target: &'a [String],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    Check { seconds: u32, hits: u32 },
    Other,
}

/// Finds the rules whose lists a rate can replace, by index among all rules.
pub(super) fn find(lines: &[Line]) -> HashMap<usize, Recent> {
    let mut lists: BTreeMap<&str, Vec<Use<'_>>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        if line.words.windows(2).any(|pair| pair[0] == "-m" && pair[1] == "recent") {
            let (name, of) = read(at, line);
            lists.entry(name).or_default().push(of);
        }
    }
    let mut found = HashMap::new();
    for uses in lists.values() {
        found.extend(rates(uses, lines).into_iter().flatten());
    }
    found
}

/// Reads the name of a rule's list, and the rule's use of it.
fn read(at: usize, line: &Line) -> (&str, Use<'_>) {
    let words = &line.words;
    let target = words.iter().position(|word| matches!(word.as_str(), "-j" | "-g" | "--jump" | "--goto"));
    let (matches, target) = words.split_at(target.unwrap_or(words.len()));
    let mut of = Use { at, chain: line.chain, kind: Kind::Other, rest: Vec::new(), target };
    let (mut name, mut checks, mut sets, mut odd) = ("DEFAULT", false, false, false);
    let (mut seconds, mut hits) = (None, 1);
    let mut matches = matches.iter().map(String::as_str).peekable();
    while let Some(word) = matches.next() {
        match word {
            "-m" if matches.peek() == Some(&"recent") => {
                matches.next();
            }
            "!" if matches.peek().is_some_and(|next| OWN.contains(next)) => odd = true,
            "--set" => sets = true,
            "--update" | "--rcheck" => checks = true,
            "--rsource" | "--reap" => {}
            "--name" => name = matches.next().unwrap_or_default(),
            "--seconds" => seconds = matches.next().and_then(|word| word.parse().ok()),
            "--hitcount" => match matches.next().and_then(|word| word.parse().ok()) {
                Some(count) => hits = count,
                None => odd = true,
            },
            "--mask" => {
                let mask = matches.next();
                odd |= !matches!(mask, Some("255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
            }
            word if OWN.contains(&word) => odd = true,
            word => of.rest.push(word),
        }
    }
    of.kind = match (odd, sets, checks, seconds) {
        (false, true, false, None) => Kind::Set,
        (false, false, true, Some(seconds)) => Kind::Check { seconds, hits },
        _ => Kind::Other,
    };
    (name, of)
}

/// Options of `-m recent`.
const OWN: &[&str] = &["--set", "--update", "--rcheck", "--remove", "--rdest", "--rsource", "--rttl"];

/// Translations of all uses of one list, each with the index of its rule.
fn rates(uses: &[Use<'_>], lines: &[Line]) -> Option<Vec<(usize, Recent)>> {
    let (first, last) = (uses.first()?, uses.last()?);
    let sets_first = first.kind == Kind::Set && first.target.is_empty();
    let set = if sets_first { first } else { last };
    if set.kind != Kind::Set || uses.len() < 2 {
        return None;
    }
    let mut found = Vec::new();
    for of in uses {
        // Other rules in between would take packets that are counted, or count for others.
        let between = lines[first.at..of.at].iter().filter(|line| line.chain == first.chain).count();
        if of.chain != first.chain || of.rest != first.rest || found.len() != between {
            return None;
        }
        if of.at == set.at {
            found.push((of.at, Recent::Set));
            continue;
        }
        let Kind::Check { seconds, hits } = of.kind else { return None };
        // A connection that is set before counts itself.
        let most = hits.checked_sub(u32::from(sets_first)).filter(|&most| most > 0)?;
        found.push((of.at, Recent::Rate(rate(seconds, most)?)));
    }
    Some(found)
}

/// Returns a rate of `most` at once, and one more per `seconds`, or per a slightly longer time.
fn rate(seconds: u32, most: u32) -> Option<Rate> {
    let units = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    let (unit, length) = units.into_iter().find(|&(_, length)| seconds > 0 && seconds <= length)?;
    Some(Rate { count: length / seconds, per: word::unit(unit)?, burst: most, scope: Scope::Source })
}
