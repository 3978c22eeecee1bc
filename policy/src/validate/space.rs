//! Sets of addresses, with their algebra.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::model::{AddressItem, AddressRange, Addresses, DynamicSet, FamilyMatch, Set};

/// Addresses of one family as numbers, from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) first: u128,
    pub(super) last: u128,
}

/// An IP version, and the index of its addresses in a [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Family; 2] = [Family::V4, Family::V6];

    pub(super) fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// Number of bits of an address.
    pub(super) fn bits(self) -> u32 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    pub(super) fn all(self) -> Interval {
        Interval { first: 0, last: u128::MAX >> (128 - self.bits()) }
    }
}

/// A set of addresses of both families: for each, disjoint intervals in order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Space([Vec<Interval>; 2]);

impl Space {
    /// Returns all addresses.
    pub(super) fn all() -> Space {
        Space([vec![Family::V4.all()], vec![Family::V6.all()]])
    }

    pub(super) fn of(address: IpAddr) -> Space {
        Space::of_ranges([AddressRange::single(address)])
    }

    pub(super) fn of_net(net: IpNet) -> Space {
        Space::of_ranges([AddressRange::from(net)])
    }

    pub(super) fn of_ranges(ranges: impl IntoIterator<Item = AddressRange>) -> Space {
        let mut lists = [Vec::new(), Vec::new()];
        for range in ranges {
            lists[Family::of(range.first) as usize].push(interval(range));
        }
        Space(lists.map(merged))
    }

    pub(super) fn of_intervals(family: Family, intervals: Vec<Interval>) -> Space {
        let mut space = Space::default();
        space.0[family as usize] = merged(intervals);
        space
    }

    pub(super) fn intervals(&self, family: Family) -> &[Interval] {
        &self.0[family as usize]
    }

    pub(super) fn has(&self, family: Family) -> bool {
        !self.0[family as usize].is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        Family::BOTH.iter().all(|family| !self.has(*family))
    }

    /// Families with addresses in the set.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::BOTH.into_iter().filter(|family| self.has(*family))
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.overlaps(&Space::of(address))
    }

    /// Number of addresses of the family.
    pub(super) fn count(&self, family: Family) -> u128 {
        let size = |interval: &Interval| (interval.last - interval.first).saturating_add(1);
        self.intervals(family).iter().map(size).fold(0, u128::saturating_add)
    }

    pub(super) fn overlaps(&self, other: &Space) -> bool {
        Family::BOTH.iter().any(|family| overlap(self.intervals(*family), other.intervals(*family)))
    }

    /// True if all addresses of `other` of the family are in the set.
    pub(super) fn covers(&self, other: &Space, family: Family) -> bool {
        let mine = self.intervals(family);
        other.intervals(family).iter().all(|theirs| {
            // Mine do not touch one another, so one of them must hold all of it.
            let at = mine.partition_point(|interval| interval.last < theirs.first);
            mine.get(at)
                .is_some_and(|interval| interval.first <= theirs.first && theirs.last <= interval.last)
        })
    }

    pub(super) fn union(mut self, other: &Space) -> Space {
        for family in Family::BOTH {
            let list = &mut self.0[family as usize];
            list.extend_from_slice(other.intervals(family));
            *list = merged(std::mem::take(list));
        }
        self
    }

    pub(super) fn intersection(&self, other: &Space) -> Space {
        Space(Family::BOTH.map(|family| {
            let (a, b) = (self.intervals(family), other.intervals(family));
            let (mut i, mut j, mut both) = (0, 0, Vec::new());
            while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
                let (first, last) = (x.first.max(y.first), x.last.min(y.last));
                if first <= last {
                    both.push(Interval { first, last });
                }
                if x.last < y.last { i += 1 } else { j += 1 }
            }
            both
        }))
    }

    /// Returns all other addresses, of the families in the set.
    pub(super) fn complement(&self) -> Space {
        Space(Family::BOTH.map(|family| {
            let mut rest = Vec::new();
            if !self.has(family) {
                return rest;
            }
            let mut next = Some(0);
            for interval in self.intervals(family) {
                if let Some(first) = next.filter(|first| *first < interval.first) {
                    rest.push(Interval { first, last: interval.first - 1 });
                }
                next = interval.last.checked_add(1);
            }
            let last = family.all().last;
            if let Some(first) = next.filter(|first| *first <= last) {
                rest.push(Interval { first, last });
            }
            rest
        }))
    }

    /// Returns the addresses that are not in `other`.
    pub(super) fn without(&self, other: &Space) -> Space {
        let mut rest = other.complement();
        for family in Family::BOTH.into_iter().filter(|family| !other.has(*family)) {
            rest.0[family as usize] = vec![family.all()];
        }
        self.intersection(&rest)
    }

    /// Returns the addresses of the families in `family`.
    pub(super) fn only(mut self, family: FamilyMatch) -> Space {
        match family {
            FamilyMatch::Both => {}
            FamilyMatch::V4 => self.0[1].clear(),
            FamilyMatch::V6 => self.0[0].clear(),
        }
        self
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Converts the addresses of `range` to numbers.
pub(super) fn interval(range: AddressRange) -> Interval {
    Interval { first: number(range.first), last: number(range.last) }
}

fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match merged.last_mut() {
            Some(last) if interval.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(interval.last)
            }
            _ => merged.push(interval),
        }
    }
    merged
}

fn overlap(a: &[Interval], b: &[Interval]) -> bool {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    few.iter().any(|interval| {
        let at = many.partition_point(|other| other.last < interval.first);
        many.get(at).is_some_and(|other| other.first <= interval.last)
    })
}

/// The named sets, each as one space. A dynamic set may have any address.
pub(super) struct Spaces<'a> {
    fixed: HashMap<&'a str, Arc<Space>>,
    dynamic: HashMap<&'a str, Arc<Space>>,
}

impl<'a> Spaces<'a> {
    pub(super) fn of(sets: &'a [Set], dynamic: &'a [DynamicSet]) -> Spaces<'a> {
        let space = |set: &'a Set| (set.name.as_str(), Arc::new(Space::of_ranges(set.items.iter().copied())));
        let all = Arc::new(Space::all());
        Spaces {
            fixed: sets.iter().map(space).collect(),
            dynamic: dynamic.iter().map(|set| (set.name.as_str(), Arc::clone(&all))).collect(),
        }
    }

    /// Addresses of one element of a list; none if its set is unknown.
    pub(super) fn of_item(&self, item: &AddressItem) -> Arc<Space> {
        match item {
            AddressItem::Range(range) => Arc::new(Space::of_ranges([*range])),
            AddressItem::Set(name) => {
                let set = self.fixed.get(name.as_str()).or_else(|| self.dynamic.get(name.as_str()));
                set.cloned().unwrap_or_default()
            }
        }
    }

    /// Addresses of a whole list.
    pub(super) fn of_addresses(&self, addresses: &Addresses) -> Arc<Space> {
        if addresses.items.is_empty() {
            return Arc::new(Space::all());
        }
        let is_dynamic = |item: &&AddressItem| matches!(item, AddressItem::Set(name) if self.dynamic.contains_key(name.as_str()));
        if addresses.except && addresses.items.iter().any(|item| is_dynamic(&item)) {
            // Such a set has addresses of both families, or none.
            let fixed = addresses.items.iter().filter(|item| !is_dynamic(item));
            let named = fixed.fold(Space::default(), |named, item| named.union(&self.of_item(item)));
            return Arc::new(Space::all().without(&named));
        }
        let named = match &addresses.items[..] {
            [one] => self.of_item(one),
            many => {
                let spaces = many.iter().map(|item| self.of_item(item));
                let mut lists = Space::default();
                for space in spaces {
                    for family in Family::BOTH {
                        lists.0[family as usize].extend_from_slice(space.intervals(family));
                    }
                }
                Arc::new(Space(lists.0.map(merged)))
            }
        };
        if addresses.except { Arc::new(named.complement()) } else { named }
    }
}

#[cfg(test)]
mod tests;
