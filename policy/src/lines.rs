//! Positions of a policy's items in its text, for diagnostics and `explain`.
//!
//! Indices are those of the vectors of [`Policy`](crate::Policy). A policy that came from no text has no positions: every
//! method returns `None`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use config::{Entry, Place, Source};

/// Kinds of items.
const KINDS: usize = 19;

/// Positions of a policy's items.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    source: Option<Arc<Source>>,
    entries: [Vec<Entry>; KINDS],
    /// For each kind of item, true if one could not be read at all.
    lost: [bool; KINDS],
    rules: HashMap<String, u32>,
    nats: HashMap<String, u32>,
    interfaces: HashMap<String, u32>,
    wans: HashMap<String, u32>,
    policy_routes: HashMap<String, u32>,
    sets: HashMap<String, u32>,
}

/// An item of a policy: an index into a vector of [`Policy`](crate::Policy), or one of the policy's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// An interface.
    Interface(usize),
    /// A set.
    Set(usize),
    /// A dynamic set.
    DynamicSet(usize),
    /// A route.
    Route(usize),
    /// A WAN.
    Wan(usize),
    /// A policy route.
    PolicyRoute(usize),
    /// A multicast route.
    MulticastRoute(usize),
    /// A neighbour.
    Neighbour(usize),
    /// A cross-connection.
    CrossConnect(usize),
    /// A default action.
    Default(usize),
    /// A rule.
    Rule(usize),
    /// A translation.
    Nat(usize),
    /// A traffic class.
    Class(usize),
    /// A meter.
    Meter(usize),
    /// A queue.
    Queue(usize),
    /// A shape.
    Shape(usize),
    /// The limits.
    Limit,
    /// The timeouts.
    Timeout,
    /// The daemon's settings, and the top of the file.
    Top,
}

impl Lines {
    /// Line of the rule named `name`.
    pub fn rule(&self, name: &str) -> Option<u32> {
        self.rules.get(name).copied()
    }

    /// Line of the translation named `name`.
    pub fn nat(&self, name: &str) -> Option<u32> {
        self.nats.get(name).copied()
    }

    /// Line of the interface named `name`.
    pub fn interface(&self, name: &str) -> Option<u32> {
        self.interfaces.get(name).copied()
    }

    /// Line of the WAN named `name`.
    pub fn wan(&self, name: &str) -> Option<u32> {
        self.wans.get(name).copied()
    }

    /// Line of the policy route named `name`.
    pub fn policy_route(&self, name: &str) -> Option<u32> {
        self.policy_routes.get(name).copied()
    }

    /// Line of the set named `name`, dynamic or not.
    pub fn set(&self, name: &str) -> Option<u32> {
        self.sets.get(name).copied()
    }

    /// Line of the route at `index`.
    pub fn route(&self, index: usize) -> Option<u32> {
        self.place(Item::Route(index)).map(|place| place.line())
    }

    /// Position of an item.
    pub fn place(&self, item: Item) -> Option<Place> {
        self.at(self.entry(item)?.span.clone())
    }

    /// Position of the value of an item's key; of the item if the key is absent.
    pub fn place_of(&self, item: Item, key: &str) -> Option<Place> {
        self.place_of_item(item, key, None)
    }

    /// Position of one element of the list at an item's key; else of the whole value, else of the item.
    pub fn place_in(&self, item: Item, key: &str, index: usize) -> Option<Place> {
        self.place_of_item(item, key, Some(index))
    }

    fn place_of_item(&self, item: Item, key: &str, index: Option<usize>) -> Option<Place> {
        self.at(self.entry(item)?.span_of(key, index))
    }

    /// True if a part of the item could not be read.
    pub(crate) fn is_broken(&self, item: Item) -> bool {
        self.entry(item).is_some_and(|entry| entry.broken)
    }

    /// True if a part of any item of the kind of `like` could not be read.
    pub(crate) fn any_broken(&self, like: Item) -> bool {
        self.lost[like.kind()] || self.entries[like.kind()].iter().any(|entry| entry.broken)
    }

    fn at(&self, span: Range<usize>) -> Option<Place> {
        self.source.as_ref().map(|source| Place::new(Arc::clone(source), span))
    }

    fn entry(&self, item: Item) -> Option<&Entry> {
        self.entries[item.kind()].get(item.index())
    }

    pub(crate) fn of(source: &Arc<Source>) -> Lines {
        Lines { source: Some(Arc::clone(source)), ..Lines::default() }
    }

    /// Adds the positions of items of the kind of `like`: `None` for one that could not be read at all. The others' names
    /// are `names`.
    pub(crate) fn extend<'a>(
        &mut self,
        like: Item,
        entries: impl IntoIterator<Item = Option<Entry>>,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        let mut names = names.into_iter();
        for entry in entries {
            match entry {
                Some(entry) => self.push(like, names.next().unwrap_or_default(), entry),
                None => self.lost[like.kind()] = true,
            }
        }
    }

    /// Adds the position of the next item of the kind of `like`.
    pub(crate) fn push(&mut self, like: Item, name: &str, entry: Entry) {
        let line = self.source.as_ref().map_or(0, |source| source.line(entry.span.start));
        let names = match like {
            Item::Rule(_) => Some(&mut self.rules),
            Item::Nat(_) => Some(&mut self.nats),
            Item::Interface(_) => Some(&mut self.interfaces),
            Item::Wan(_) => Some(&mut self.wans),
            Item::PolicyRoute(_) => Some(&mut self.policy_routes),
            Item::Set(_) | Item::DynamicSet(_) => Some(&mut self.sets),
            _ => None,
        };
        if let Some(names) = names {
            // Of two by one name, which is an error, the first.
            names.entry(name.to_owned()).or_insert(line);
        }
        self.entries[like.kind()].push(entry);
    }
}

impl Item {
    fn kind(self) -> usize {
        match self {
            Item::Interface(_) => 0,
            Item::Set(_) => 1,
            Item::Route(_) => 2,
            Item::Neighbour(_) => 3,
            Item::Default(_) => 4,
            Item::Rule(_) => 5,
            Item::Nat(_) => 6,
            Item::Class(_) => 7,
            Item::Meter(_) => 8,
            Item::Queue(_) => 9,
            Item::Shape(_) => 10,
            Item::Limit => 11,
            Item::Timeout => 12,
            Item::Top => 13,
            Item::CrossConnect(_) => 14,
            Item::Wan(_) => 15,
            Item::PolicyRoute(_) => 16,
            Item::DynamicSet(_) => 17,
            Item::MulticastRoute(_) => 18,
        }
    }

    fn index(self) -> usize {
        match self {
            Item::Interface(index)
            | Item::Set(index)
            | Item::DynamicSet(index)
            | Item::Route(index)
            | Item::Wan(index)
            | Item::PolicyRoute(index)
            | Item::MulticastRoute(index)
            | Item::Neighbour(index)
            | Item::CrossConnect(index)
            | Item::Default(index)
            | Item::Rule(index)
            | Item::Nat(index)
            | Item::Class(index)
            | Item::Meter(index)
            | Item::Queue(index)
            | Item::Shape(index) => index,
            Item::Limit | Item::Timeout | Item::Top => 0,
        }
    }
}
