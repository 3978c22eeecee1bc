//! Lists of recent sources (`-m recent`), as far as a rate for each source or a dynamic set can replace them.
//!
//! The idiom of all guides: one rule adds the source of each new connection to a list (`--set`), and the next drops the
//! connection if the source has reached a number of connections in a number of seconds (`--update` or `--rcheck`). A bucket
//! of as many tokens, refilled by one token per interval of as many seconds, passes no more in any such interval.
//!
//! Lists that rules only ask for, be it within some seconds, as for knocking and for bans, are sets whose elements stay for so long. Lists
//! with other uses (removal, destinations, counts elsewhere) have no counterpart.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Line;
use super::set::Sets;
use crate::import::member::{Addition, Again, Members, Side};
use crate::import::word;
use crate::model::{Rate, Scope};

/// Translation of one use of a list by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recent {
    /// Addition of the source to a list whose uses are a rate: without effect here.
    Set,
    /// Match on the excess of the rate.
    Rate(Rate),
    /// Condition on a set, or addition to it.
    Member(Members, Option<Addition>),
}

/// Use of a list by a rule.
struct Use<'a> {
    /// Index among all rules, and the chain.
    at: usize,
    chain: Option<usize>,
    /// Place among the rule's uses of lists, and their number.
    place: usize,
    uses: usize,
    name: &'a str,
    kind: Kind,
    /// Conditions of the rule other than on lists.
    rest: Vec<&'a str>,
    target: &'a [String],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    Check { seconds: Option<u32>, hits: u32, found: Found },
    Other,
}

/// Match of a use that checks a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// On those in the list.
    In,
    /// On those in the list, whose time it renews.
    Renewed,
    /// On all others.
    Out,
}

/// Finds the rules whose lists have a counterpart, by index among all rules: the translation of each of their uses of lists.
pub(super) fn find(lines: &[Line], sets: &mut Sets) -> HashMap<usize, Vec<Recent>> {
    let mut lists: BTreeMap<&str, Vec<Use<'_>>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        for of in read(at, line) {
            lists.entry(of.name).or_default().push(of);
        }
    }
    let mut found: HashMap<usize, Vec<Option<Recent>>> = HashMap::new();
    for (name, uses) in &lists {
        let translations = rates(uses, lines).or_else(|| members(name, uses, sets));
        for (index, of) in uses.iter().enumerate() {
            let all = found.entry(of.at).or_insert_with(|| vec![None; of.uses]);
            all[of.place] = translations.as_ref().map(|translations| translations[index].clone());
        }
    }
    found
        .into_iter()
        .filter_map(|(at, all)| Some((at, all.into_iter().collect::<Option<Vec<_>>>()?)))
        .collect()
}

/// Reads the uses of lists by a rule.
fn read(at: usize, line: &Line) -> Vec<Use<'_>> {
    let words = &line.words;
    let target = words.iter().position(|word| matches!(word.as_str(), "-j" | "-g" | "--jump" | "--goto"));
    let (matches, target) = words.split_at(target.unwrap_or(words.len()));
    let (mut modules, mut rest): (Vec<Module<'_>>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut matches = matches.iter().map(String::as_str).peekable();
    while let Some(word) = matches.next() {
        let next = matches.peek().copied();
        // What follows an addition would narrow it.
        if word == "-m" && next != Some("comment") {
            modules.iter_mut().for_each(|module| module.is_last = false);
        }
        match (word, next, modules.last_mut()) {
            ("-m", Some("recent"), _) => {
                matches.next();
                modules.push(Module::default());
            }
            ("!", Some(next), Some(module)) if OWN.contains(&next) => {
                module.odd |= next != "--rcheck";
                module.is_negated = true;
            }
            (word, _, Some(module)) => {
                if !module.option(word, &mut matches) {
                    rest.push(word);
                }
            }
            (word, ..) => rest.push(word),
        }
    }
    let uses = modules.len();
    let mut found = Vec::with_capacity(uses);
    for (place, module) in modules.into_iter().enumerate() {
        let (name, kind, rest) = (module.name, module.kind(), rest.clone());
        found.push(Use { at, chain: line.chain, place, uses, name, kind, rest, target });
    }
    found
}

/// Options of one `-m recent`.
struct Module<'a> {
    name: &'a str,
    checks: bool,
    renews: bool,
    sets: bool,
    odd: bool,
    is_negated: bool,
    /// True if no other match follows.
    is_last: bool,
    seconds: Option<u32>,
    hits: u32,
}

impl Default for Module<'_> {
    fn default() -> Self {
        Module {
            name: "DEFAULT",
            checks: false,
            renews: false,
            sets: false,
            odd: false,
            is_negated: false,
            is_last: true,
            seconds: None,
            hits: 1,
        }
    }
}

impl<'a> Module<'a> {
    /// Reads an option and its arguments; false if it is another module's.
    fn option(&mut self, word: &'a str, arguments: &mut impl Iterator<Item = &'a str>) -> bool {
        match word {
            "--set" => self.sets = true,
            "--update" => (self.checks, self.renews) = (true, true),
            "--rcheck" => self.checks = true,
            "--rsource" | "--reap" => {}
            "--name" => self.name = arguments.next().unwrap_or_default(),
            "--seconds" => {
                self.seconds = arguments.next().and_then(|word| word.parse().ok());
                self.odd |= self.seconds.is_none_or(|seconds| seconds == 0);
            }
            "--hitcount" => match arguments.next().and_then(|word| word.parse().ok()) {
                Some(count) => self.hits = count,
                None => self.odd = true,
            },
            "--mask" => {
                let mask = arguments.next();
                self.odd |=
                    !matches!(mask, Some("255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
            }
            word if OWN.contains(&word) => self.odd = true,
            _ => return false,
        }
        true
    }

    fn kind(&self) -> Kind {
        let narrowed = (self.sets || self.renews) && !self.is_last;
        if self.odd || narrowed || self.sets == self.checks {
            return Kind::Other;
        }
        if self.sets {
            let is_plain = self.seconds.is_none() && !self.is_negated;
            return if is_plain { Kind::Set } else { Kind::Other };
        }
        let found = match (self.renews, self.is_negated) {
            (true, _) => Found::Renewed,
            (false, false) => Found::In,
            (false, true) => Found::Out,
        };
        Kind::Check { seconds: self.seconds, hits: self.hits, found }
    }
}

/// Options of `-m recent`.
const OWN: &[&str] = &["--set", "--update", "--rcheck", "--remove", "--rdest", "--rsource", "--rttl"];

/// Translations of all uses of one list to a rate.
fn rates(uses: &[Use<'_>], lines: &[Line]) -> Option<Vec<Recent>> {
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
        if of.chain != first.chain || of.rest != first.rest || of.uses != 1 || found.len() != between {
            return None;
        }
        if of.at == set.at {
            found.push(Recent::Set);
            continue;
        }
        let Kind::Check { seconds: Some(seconds), hits, found: Found::In | Found::Renewed } = of.kind else {
            return None;
        };
        // A connection that is set before counts itself.
        let most = hits.checked_sub(u32::from(sets_first)).filter(|&most| most > 0)?;
        found.push(Recent::Rate(rate(seconds, most)?));
    }
    Some(found)
}

/// Returns a rate of `most` at once, and one more per `seconds`, or per a slightly longer time.
fn rate(seconds: u32, most: u32) -> Option<Rate> {
    let units = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    let (unit, length) = units.into_iter().find(|&(_, length)| seconds > 0 && seconds <= length)?;
    Some(Rate { count: length / seconds, per: word::unit(unit)?, burst: most, scope: Scope::Source })
}

/// Translations of all uses of one list to a set: all ask within the same time.
fn members(name: &str, uses: &[Use<'_>], sets: &mut Sets) -> Option<Vec<Recent>> {
    let mut times = uses.iter().filter_map(|of| match of.kind {
        Kind::Check { seconds, .. } => Some(seconds),
        _ => None,
    });
    // Nobody asks for the list.
    if uses.iter().all(|of| of.kind == Kind::Set) {
        return Some(vec![Recent::Set; uses.len()]);
    }
    let seconds = times.next()?;
    let is_member = |of: &Use<'_>| match of.kind {
        Kind::Set => true,
        Kind::Check { seconds: other, hits, .. } => other == seconds && hits <= 1,
        Kind::Other => false,
    };
    if !uses.iter().all(is_member) {
        return None;
    }
    let set = sets.list(name, seconds);
    let is_in = |is_in| Members::one(&set, Side::Source, is_in);
    let adds = || Some(Addition { set: Arc::clone(&set), lasts: None, again: Again::Renews });
    let translated = uses.iter().map(|of| match of.kind {
        Kind::Check { found: Found::In, .. } => Recent::Member(is_in(true), None),
        Kind::Check { found: Found::Renewed, .. } => Recent::Member(is_in(true), adds()),
        Kind::Check { found: Found::Out, .. } => Recent::Member(is_in(false), None),
        Kind::Set | Kind::Other => Recent::Member(Members::default(), adds()),
    });
    Some(translated.collect())
}
