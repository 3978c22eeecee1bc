//! Sets of addresses: those of ipset, by what `ipset save` prints, and lists of recent sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::Nanos;

use crate::import::cond::{Named, Place};
use crate::import::emit::FoundSet;
use crate::import::name::{Unique, valid};
use crate::import::note::Why;
use crate::import::word;
use crate::model::{AddressRange, DynamicSet, Set};

/// The sets that rules name, or that the source defines.
#[derive(Default)]
pub(super) struct Sets {
    names: Unique,
    defined: BTreeMap<String, Defined>,
    /// Sets that rules add to.
    added: BTreeSet<String>,
    dynamic: BTreeMap<String, FoundSet>,
    fixed: BTreeMap<String, Set>,
    lists: Vec<FoundSet>,
}

/// A set as `ipset save` prints it.
struct Defined {
    timeout: Option<u64>,
    size: u32,
    fixed: Vec<AddressRange>,
    passing: usize,
    /// Reason for which the set has no counterpart.
    unlike: Option<Why>,
}

/// A set that a rule asks for.
pub(super) enum Asked {
    /// Elements come and go.
    Dynamic(Arc<str>),
    /// Elements are the policy's.
    Fixed(Place),
}

impl Sets {
    /// Reads a line of `ipset save`; false if it is none.
    pub(super) fn read(&mut self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["create", name, kind, options @ ..] => {
                self.defined.insert((*name).to_owned(), Defined::read(kind, options));
            }
            ["add", name, element, options @ ..] => match self.defined.get_mut(*name) {
                Some(set) => set.add(element, options),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Notes which sets rules add to: their elements come and go.
    pub(super) fn note(&mut self, words: &[String]) {
        for pair in words.windows(2).filter(|pair| pair[0] == "--add-set") {
            self.added.insert(pair[1].clone());
        }
    }

    /// The set of that name.
    pub(super) fn ask(&mut self, name: &str) -> Result<Asked, Why> {
        let defined = self.defined.get(name);
        if let Some(why) = defined.and_then(|set| set.unlike.clone()) {
            return Err(why);
        }
        if let Some(set) = defined.filter(|set| set.timeout.is_none() && !self.added.contains(name)) {
            let mut place = Place::of(&set.fixed);
            let names = &mut self.names;
            if !set.fixed.is_empty() {
                let set = self.fixed.entry(name.to_owned()).or_insert_with(|| {
                    let name = names.name(&valid(name).unwrap_or_else(|| "set".to_owned()));
                    Set { name, items: set.fixed.clone() }
                });
                place.name = Some(Named { set: Arc::from(set.name.as_str()), except: false });
            }
            return Ok(Asked::Fixed(place));
        }
        let names = &mut self.names;
        let found = self.dynamic.entry(name.to_owned()).or_insert_with(|| {
            let mut found = FoundSet::new(&names.name(&valid(name).unwrap_or_else(|| "set".to_owned())));
            match defined {
                Some(set) => {
                    found.set.timeout = set.timeout.filter(|&seconds| seconds > 0).map(Nanos::from_secs);
                    found.set.size = set.size;
                    (found.fixed, found.passing) = (set.fixed.clone(), set.passing);
                }
                None => found.is_assumed = true,
            }
            found
        });
        Ok(Asked::Dynamic(Arc::from(found.set.name.as_str())))
    }

    /// Makes a set of a list of recent sources, who stay in it for so many seconds, or until they are removed.
    pub(super) fn list(&mut self, name: &str, seconds: Option<u32>) -> Arc<str> {
        let mut found = FoundSet::new(&self.names.name(&valid(name).unwrap_or_else(|| "recent".to_owned())));
        found.set.timeout = seconds.map(|seconds| Nanos::from_secs(u64::from(seconds)));
        let name = Arc::from(found.set.name.as_str());
        self.lists.push(found);
        name
    }

    /// Sets of the policy that rules may name: those with elements of their own, and those whose elements come and go.
    pub(super) fn into_lists(self) -> (Vec<Set>, Vec<FoundSet>) {
        let mut dynamic = self.lists;
        dynamic.extend(self.dynamic.into_values());
        (self.fixed.into_values().collect(), dynamic)
    }
}

impl Defined {
    fn read(kind: &str, options: &[&str]) -> Defined {
        let mut set = Defined {
            timeout: None,
            size: DynamicSet::SIZE,
            fixed: Vec::new(),
            passing: 0,
            unlike: (!matches!(kind, "hash:ip" | "hash:net" | "bitmap:ip"))
                .then(|| Why::Feature(format!("ipset {kind}"))),
        };
        for pair in options.windows(2) {
            match pair[0] {
                "timeout" => set.timeout = pair[1].parse().ok(),
                "maxelem" => set.size = pair[1].parse().ok().filter(|&size| size > 0).unwrap_or(set.size),
                "netmask" | "bitmask" if !matches!(pair[1], "32" | "128") => {
                    set.unlike = Some(Why::Feature(format!("ipset {kind} {} {}", pair[0], pair[1])));
                }
                _ => {}
            }
        }
        set
    }

    fn add(&mut self, element: &str, options: &[&str]) {
        let seconds =
            options.windows(2).find(|pair| pair[0] == "timeout").and_then(|pair| pair[1].parse().ok());
        if options.contains(&"nomatch") {
            self.unlike = Some(Why::Feature("ipset nomatch".to_owned()));
        }
        match word::addresses(element) {
            Some(range) if seconds.unwrap_or(0_u64) == 0 => self.fixed.push(range),
            Some(_) => self.passing += 1,
            None => self.unlike = self.unlike.take().or_else(|| Some(Why::Value(element.to_owned()))),
        }
    }
}
