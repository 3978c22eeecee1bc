//! The interfaces that rules name, by index.
//!
//! All names are gathered before any rule is read, so that "all but" and patterns have a meaning. An interface named
//! `elsewhere` then stands for those that no rule names, and `ppp0` for those of a pattern `ppp+` that matches no name.

use std::collections::BTreeSet;

use super::cond::Interfaces;
use super::note::{Note, NoteKind, Why};

const LOOPBACK: &str = "lo";

/// Most interfaces of one import.
const MOST: usize = 4095;

/// Interfaces of an import.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<String>,
    seen: BTreeSet<String>,
    patterns: BTreeSet<String>,
    /// Patterns for which an interface was made up.
    stood: BTreeSet<String>,
    negated: bool,
}

impl Names {
    /// Adds a name or a pattern of a rule.
    pub(super) fn gather(&mut self, word: &str, negated: bool) {
        self.negated |= negated && word != LOOPBACK;
        if pattern(word).is_some_and(|prefix| !prefix.is_empty()) && self.patterns.len() < MOST {
            self.patterns.insert(word.to_owned());
        }
        let named = pattern(word).is_none() && word != LOOPBACK && !word.is_empty();
        if named && self.list.len() < MOST && self.seen.insert(word.to_owned()) {
            self.list.push(word.to_owned());
        }
    }

    /// Ends the gathering: makes up interfaces for unmatched patterns and for "all but".
    pub(super) fn close(&mut self, notes: &mut BTreeSet<Note>) {
        for word in std::mem::take(&mut self.patterns) {
            let Some(prefix) = pattern(&word) else { continue };
            if self.list.iter().any(|name| name.starts_with(prefix)) || self.list.len() >= MOST {
                continue;
            }
            let interface = format!("{prefix}0");
            self.seen.insert(interface.clone());
            self.list.push(interface.clone());
            self.stood.insert(word.clone());
            let kind = NoteKind::PatternInterface { pattern: word, interface };
            notes.insert(Note { origin: None, kind });
        }
        if !self.negated {
            return;
        }
        let mut name = "elsewhere".to_owned();
        while self.seen.contains(&name) {
            name.push('-');
        }
        notes.insert(Note { origin: None, kind: NoteKind::OtherInterface { interface: name.clone() } });
        self.list.push(name);
    }

    /// Returns the interfaces named by any of `words`, or all others.
    pub(super) fn select(
        &self,
        words: &[&str],
        negated: bool,
        notes: &mut BTreeSet<Note>,
    ) -> Result<Interfaces, Why> {
        let mut chosen = BTreeSet::new();
        for &word in words {
            match pattern(word) {
                Some("") => return Ok(if negated { Some(Vec::new()) } else { None }),
                Some(prefix) => {
                    if !self.stood.contains(word) {
                        let kind = NoteKind::Pattern { pattern: word.to_owned() };
                        notes.insert(Note { origin: None, kind });
                    }
                    let before = chosen.len();
                    chosen.extend((0..self.list.len()).filter(|&at| self.list[at].starts_with(prefix)));
                    if chosen.len() == before {
                        return Err(Why::Missing(word.to_owned()));
                    }
                }
                None if word == LOOPBACK => {
                    notes.insert(Note { origin: None, kind: NoteKind::Loopback });
                }
                None => {
                    let at = self.list.iter().position(|name| name == word);
                    chosen.insert(at.ok_or_else(|| Why::Missing(word.to_owned()))?);
                }
            }
        }
        if negated && chosen.is_empty() {
            return Ok(None);
        }
        // The list never passes `MOST` and one.
        let indices = (0..self.list.len()).filter(|at| chosen.contains(at) != negated).map(|at| at as u16);
        Ok(Some(indices.collect()))
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.list
    }
}

/// Prefix of a pattern: `eth+` in iptables, `eth*` in nftables.
fn pattern(word: &str) -> Option<&str> {
    word.strip_suffix('+').or_else(|| word.strip_suffix('*'))
}
