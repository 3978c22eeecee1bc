//! Filters: their conditions, class and actions.

use super::action::{self, Action};
use super::source::{Object, Parent, Verb};
use super::unit::Handle;
use crate::import::IpVersion;
use crate::import::cond::Cond;
use crate::import::note::{NoteKind, Why};

mod flower;
mod selector;

/// A filter that can be translated.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    /// Index of the object.
    pub(super) object: usize,
    pub(super) parent: Parent,
    /// Packets that match: any of these.
    pub(super) conds: Vec<Cond>,
    /// Class that they are sent to.
    pub(super) target: Option<Handle>,
    pub(super) actions: Vec<Action>,
}

/// Words of a filter, in the order of the source.
pub(super) struct Words<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &'a [String]) -> Words<'a> {
        Words { words, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at += usize::from(word.is_some());
        word
    }

    /// Position to go [`back`](Words::back) to.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn back(&mut self, position: usize) {
        self.at = position;
    }

    /// Returns the value of the word before.
    pub(super) fn value(&mut self) -> Result<&'a str, Why> {
        self.next().ok_or(Why::Syntax)
    }

    /// Takes the word if it is this one.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Skips a remark in parentheses.
    pub(super) fn skip_remark(&mut self, first: &str) {
        let mut word = first;
        while !word.ends_with(')') {
            let Some(next) = self.next() else { return };
            word = next;
        }
    }
}

/// Parts of filters of all kinds.
#[derive(Default)]
struct Common {
    target: Option<Handle>,
    actions: Vec<Action>,
}

impl Common {
    /// Reads a word that any kind may have; false for one of the kind's own.
    fn reads(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, Why> {
        match word {
            "flowid" | "*flowid" | "classid" => {
                let id = words.value()?;
                self.target = Some(Handle::parse(id).ok_or_else(|| Why::Value(id.to_owned()))?);
            }
            "action" => self.actions.push(action::read(words)?),
            "police" => self.actions.push(action::police(words)?),
            "skip_hw" | "in_hw" | "not_in_hw" | "verbose" => {}
            "in_hw_count" => drop(words.next()),
            "skip_sw" => return Err(Why::Feature("skip_sw".to_owned())),
            word if word.starts_with('(') => words.skip_remark(word),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads a filter; `None` for what is none: the beginning of a list, or a hash table.
pub(super) fn read(
    index: usize,
    object: &Object,
    note: &mut dyn FnMut(NoteKind),
) -> Result<Option<Filter>, Why> {
    if let Some(chain) = object.filter.chain.filter(|chain| *chain != 0) {
        return Err(Why::Feature(format!("chain {chain}")));
    }
    let versions = versions(object.filter.protocol.as_deref())?;
    let is_listed = object.verb == Verb::Is;
    if is_listed && object.words.is_empty() && object.filter.id.is_none() {
        return Ok(None);
    }
    let mut common = Common::default();
    let mut words = Words::new(&object.words);
    let conds = match object.kind.as_str() {
        "u32" => match selector::read(&mut words, &versions, &mut common, note)? {
            Some(conds) => conds,
            None => return Ok(None),
        },
        "flower" => flower::read(&mut words, &versions, &mut common, is_listed, note)?,
        "matchall" => {
            while let Some(word) = words.next() {
                if !common.reads(word, &mut words)? {
                    return Err(Why::Feature(word.to_owned()));
                }
            }
            versions.iter().map(|version| Cond::of(*version)).collect()
        }
        "fw" => return Err(Why::Mark),
        kind => return Err(Why::Feature(kind.to_owned())),
    };
    let conds = conds.into_iter().filter(|cond| !cond.is_empty()).collect();
    let Common { target, actions } = common;
    Ok(Some(Filter { object: index, parent: object.parent, conds: whole(conds), target, actions }))
}

/// Makes one condition of two that are for all packets of both IP versions.
fn whole(conds: Vec<Cond>) -> Vec<Cond> {
    let of = |version| conds.contains(&Cond::of(version));
    match conds.len() == 2 && of(IpVersion::V4) && of(IpVersion::V6) {
        true => vec![Cond::default()],
        false => conds,
    }
}

/// IP versions that the protocol of a filter stands for.
fn versions(protocol: Option<&str>) -> Result<Vec<IpVersion>, Why> {
    match protocol.unwrap_or("all").to_ascii_lowercase().as_str() {
        "all" | "[3]" | "0x3" | "0x0003" => Ok(vec![IpVersion::V4, IpVersion::V6]),
        "ip" | "ipv4" | "0x800" | "0x0800" | "[2048]" | "800" => Ok(vec![IpVersion::V4]),
        "ipv6" | "ip6" | "0x86dd" | "[34525]" | "86dd" => Ok(vec![IpVersion::V6]),
        other => Err(Why::Feature(format!("protocol {other}"))),
    }
}

/// Reads `value/mask`, or a value alone.
fn masked(word: &str, parse: impl Fn(&str) -> Option<u32>) -> Option<(u32, Option<u32>)> {
    match word.split_once('/') {
        Some((value, mask)) => Some((parse(value)?, Some(super::unit::hex(mask)?))),
        None => Some((parse(word)?, None)),
    }
}

/// Class that a filter leads to, where all that is known of it are its words.
pub(super) fn target(object: &Object) -> Option<Handle> {
    let at =
        object.words.iter().position(|word| matches!(word.as_str(), "flowid" | "*flowid" | "classid"))?;
    Handle::parse(object.words.get(at + 1)?)
}
