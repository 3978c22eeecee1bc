//! Numbers that stay with names while tables follow one another.
//!
//! Places in the tables' lists change with every compilation; flows, limits and mappings outlive it. They refer to
//! interfaces, rules and translations by number: whatever has the same name in the tables before keeps its number, and
//! whatever is new gets one that has not been given for the last four thousand million names. A name that goes away and
//! comes back later is another one.
//!
//! Conntrack zones, too, stay with the interfaces that share them, where these are the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use wire::PortId;

use super::vrf::OWN_CT_ZONES;
use super::{LOCAL, OTHER, Tables, VrfNumber};
use crate::flow::MOST_OWN;

/// The number of the gateway itself as an interface; in place of any other number, none.
pub const NO_NUMBER: u32 = 0;

/// The number of [`OTHER`] as an interface.
pub(crate) const OTHER_NUMBER: u32 = u32::MAX;

/// Numbers of interfaces, translations and meters, and the places that they stand for.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Next number to assign.
    next: u32,
    /// First conntrack zone to try for a new interface.
    next_ct_zone: u16,
    /// First number to try for a new VRF.
    next_vrf: u8,
    /// Numbers and places of interfaces, ascending.
    interfaces: Vec<(u32, u16)>,
    /// Likewise of destination translations; places from 0.
    destinations: Vec<(u32, u16)>,
    /// Likewise of source translations.
    sources: Vec<(u32, u16)>,
    /// Numbers of meters and places of their rules.
    meters: Vec<(u32, u32)>,
}

impl Tables {
    /// These tables as the next ones after `old`: their epoch is the next one, and what has a name that `old` has, too,
    /// keeps its number. Flows that were decided by `old` can then be revalidated instead of being forgotten.
    #[must_use]
    pub fn after(mut self, old: &Tables) -> Tables {
        self.epoch = next_epoch(old.epoch);
        self.number(Some(old));
        self.keep_ct_zones(old);
        self.multicast.go_on(&old.multicast);
        self.tunnels.go_on(old.tunnels.sequences().clone());
        for interface in &mut self.interfaces {
            let before = old.interfaces.iter().find(|before| before.number == interface.number);
            before.into_iter().for_each(|before| interface.egress.continue_from(&before.egress));
            let session = before.and_then(|before| before.ppp.as_ref());
            if let (Some(ppp), Some(before)) = (interface.ppp.as_mut().and_then(Arc::get_mut), session) {
                if before.is_same(ppp) {
                    ppp.published = Arc::clone(&before.published);
                }
            }
        }
        self
    }

    /// True if these are the next tables after `old`.
    pub fn follows(&self, old: &Tables) -> bool {
        let known = by_name(Some(old.interfaces.iter().map(|of| (of.name.as_str(), of.number))));
        let mut both =
            self.interfaces.iter().filter_map(|of| Some((of.number, *known.get(of.name.as_str())?)));
        self.epoch == next_epoch(old.epoch)
            && self.numbers.next.wrapping_sub(old.numbers.next) <= u32::MAX / 2
            && both.all(|(number, before)| number == before)
    }

    /// The interface of that number.
    pub fn interface_numbered(&self, number: u32) -> Option<PortId> {
        if number == NO_NUMBER {
            return Some(LOCAL);
        }
        if number == OTHER_NUMBER {
            return self.other.as_ref().map(|_| OTHER);
        }
        place(&self.numbers.interfaces, number).map(PortId)
    }

    /// The number of the interface at a place; [`NO_NUMBER`] for the gateway itself.
    pub fn number_of(&self, id: PortId) -> u32 {
        if id == OTHER {
            return OTHER_NUMBER;
        }
        self.interface(id).map_or(NO_NUMBER, |interface| interface.number)
    }

    /// The place, from 0, of the destination translation of that number.
    pub fn destination_numbered(&self, number: u32) -> Option<u16> {
        place(&self.numbers.destinations, number)
    }

    /// The place, from 0, of the source translation of that number.
    pub fn source_numbered(&self, number: u32) -> Option<u16> {
        place(&self.numbers.sources, number)
    }

    /// The place of the rule whose meter has that number.
    pub(crate) fn rule_of_meter(&self, number: u32) -> Option<u32> {
        place(&self.numbers.meters, number)
    }

    /// Gives numbers to all that has none.
    pub(crate) fn number(&mut self, old: Option<&Tables>) {
        let mut next = old.map_or(NO_NUMBER + 1, |old| old.numbers.next);
        let mut fresh = || {
            let number = next;
            next = if next + 1 == OTHER_NUMBER { NO_NUMBER + 1 } else { next + 1 };
            number
        };
        let known = by_name(old.map(|old| old.interfaces.iter().map(|of| (of.name.as_str(), of.number))));
        for interface in &mut self.interfaces {
            interface.number = known.get(interface.name.as_str()).copied().unwrap_or_else(&mut fresh);
        }
        let known = by_name(old.map(|old| old.filter.rules.iter().map(|rule| (rule.name.as_str(), rule))));
        for rule in &mut self.filter.rules {
            let before = known.get(rule.name.as_str());
            rule.number = before.map_or_else(&mut fresh, |before| before.number);
            // A token debt under one rate says nothing about another.
            let metered = before.filter(|before| before.rate == rule.rate);
            rule.meter = metered.map_or_else(&mut fresh, |before| before.meter);
        }
        self.number_timeouts(old);
        let next_vrf = self.number_vrfs(old);
        let known =
            by_name(old.map(|old| old.nat.destinations.iter().map(|nat| (nat.name.as_str(), nat.number))));
        for nat in &mut self.nat.destinations {
            nat.number = known.get(nat.name.as_str()).copied().unwrap_or_else(&mut fresh);
        }
        let known = by_name(old.map(|old| old.nat.sources.iter().map(|nat| (nat.name.as_str(), nat.number))));
        for nat in &mut self.nat.sources {
            nat.number = known.get(nat.name.as_str()).copied().unwrap_or_else(&mut fresh);
        }
        self.numbers = Numbers {
            next,
            next_ct_zone: 0,
            next_vrf,
            interfaces: sorted(self.interfaces.iter().map(|interface| interface.number)),
            destinations: sorted(self.nat.destinations.iter().map(|nat| nat.number)),
            sources: sorted(self.nat.sources.iter().map(|nat| nat.number)),
            meters: sorted(self.filter.rules.iter().map(|rule| rule.meter)),
        };
    }

    /// Gives numbers to VRFs, and returns the first to try for another: one that has not been in use for long, so that no flow or mapping
    /// is left that knows it.
    fn number_vrfs(&mut self, old: Option<&Tables>) -> u8 {
        let known = by_name(old.map(|old| old.vrfs.list.iter().map(|vrf| (vrf.name.as_str(), vrf.number))));
        let used: HashSet<VrfNumber> = known.values().copied().collect();
        let begin = old.map_or(1, |old| old.numbers.next_vrf.max(1));
        let mut last = begin;
        // More than there can be VRFs.
        let mut free =
            (begin..=u8::MAX).chain(1..begin).map(VrfNumber).filter(|number| !used.contains(number));
        for vrf in &mut self.vrfs.list {
            let fresh = || {
                let fresh = free.next().unwrap_or_default();
                last = fresh.0.wrapping_add(1);
                fresh
            };
            vrf.number = known.get(vrf.name.as_str()).copied().unwrap_or_else(fresh);
        }
        last
    }

    /// Gives numbers to the timeouts of rules. One that is gone leaves its number to another only where they run out: what was
    /// accepted with it then has the other's until its next packet.
    fn number_timeouts(&mut self, old: Option<&Tables>) {
        let wanted: BTreeSet<_> = self.filter.rules.iter().filter_map(|rule| rule.timeout).collect();
        let mut idle = old.map_or_else(Vec::new, |old| old.idle.clone());
        for timeout in &wanted {
            if idle.contains(timeout) {
                continue;
            }
            if idle.len() < MOST_OWN {
                idle.push(*timeout);
            } else if let Some(gone) = idle.iter_mut().find(|timeout| !wanted.contains(timeout)) {
                *gone = *timeout;
            }
        }
        for rule in &mut self.filter.rules {
            let place = rule.timeout.and_then(|timeout| idle.iter().position(|known| *known == timeout));
            // At most 127.
            rule.idle = place.map_or(0, |place| place as u8 + 1);
        }
        self.idle = idle;
    }

    /// Gives interfaces that share a conntrack zone the one that the same interfaces had before. Those who share conntrack zone 0 do so
    /// because their sources are not checked, and go on to.
    fn keep_ct_zones(&mut self, old: &Tables) {
        let before = groups(old);
        let used: HashSet<u16> = before.keys().copied().collect();
        let known: HashMap<BTreeSet<u32>, u16> =
            before.into_iter().map(|(ct_zone, group)| (group, ct_zone)).collect();
        let groups = groups(self);
        let mut ct_zones: HashMap<u16, u16> =
            groups.iter().filter_map(|(ct_zone, group)| Some((*ct_zone, *known.get(group)?))).collect();
        // One that has not been in use for long, so that no flow is left that knows it.
        let begin = old.numbers.next_ct_zone.clamp(1, OWN_CT_ZONES - 1);
        let mut free = (begin..OWN_CT_ZONES).chain(1..begin).filter(|ct_zone| !used.contains(ct_zone));
        let mut last = begin;
        for ct_zone in groups.keys() {
            if !ct_zones.contains_key(ct_zone) {
                // Where they run out, all are numbered anew: what is not revalidated finds no flow, at worst.
                let Some(fresh) = free.next() else { return };
                ct_zones.insert(*ct_zone, fresh);
                last = fresh + 1;
            }
        }
        self.numbers.next_ct_zone = last;
        for interface in &mut self.interfaces {
            interface.ct_zone = ct_zones.get(&interface.ct_zone).copied().unwrap_or(interface.ct_zone);
        }
    }
}

/// The epoch after another one; 0 stands for none.
fn next_epoch(epoch: u16) -> u16 {
    epoch.wrapping_add(1).max(1)
}

/// Interfaces, by number, that share each conntrack zone but 0.
fn groups(tables: &Tables) -> BTreeMap<u16, BTreeSet<u32>> {
    let mut groups: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
    for interface in tables.interfaces.iter().filter(|interface| interface.ct_zone != 0) {
        groups.entry(interface.ct_zone).or_default().insert(interface.number);
    }
    groups
}

fn by_name<'a, V>(list: Option<impl Iterator<Item = (&'a str, V)>>) -> HashMap<&'a str, V> {
    list.into_iter().flatten().collect()
}

fn sorted<P>(numbers: impl Iterator<Item = u32>) -> Vec<(u32, P)>
where
    std::ops::RangeFrom<P>: Iterator<Item = P>,
    P: Ord + Default,
{
    let mut places: Vec<(u32, P)> = numbers.zip(P::default()..).collect();
    places.sort_unstable();
    places
}

fn place<P: Copy>(places: &[(u32, P)], number: u32) -> Option<P> {
    let at = places.binary_search_by_key(&number, |(number, _)| *number).ok()?;
    Some(places[at].1)
}

#[cfg(test)]
mod tests {
    use super::super::VrfId;
    use super::*;

    fn tables(interfaces: &[&str], more: &str) -> Tables {
        let mut text = String::new();
        for (place, name) in interfaces.iter().enumerate() {
            text += &format!("[interface.{name}]\nzone = \"z\"\naddresses = [\"10.0.{place}.1/24\"]\n");
        }
        let checked = policy::check(&(text + more), "test.toml");
        let wrong: Vec<String> = checked.errors().map(|error| error.message.clone()).collect();
        Tables::compile(&checked.policy.unwrap_or_else(|| panic!("{wrong:?}")), 1).unwrap()
    }

    fn number(tables: &Tables, name: &str) -> u32 {
        tables.interface(tables.interface_named(name).unwrap()).unwrap().number
    }

    #[test]
    fn vrfs_keep_their_numbers_and_new_ones_have_none_of_the_last() {
        let of = |vrfs: &[&str]| {
            let text: String = vrfs
                .iter()
                .map(|vrf| format!("[interface.{vrf}0]\nzone = \"{vrf}\"\nvrf = \"{vrf}\"\n"))
                .collect();
            tables(&["a"], &text)
        };
        let numbers = |tables: &Tables| -> Vec<(String, u8)> {
            tables.vrfs.list.iter().map(|vrf| (vrf.name.clone(), vrf.number.0)).collect()
        };
        let one = of(&["red", "blue"]);
        assert_eq!(numbers(&one), [("red".to_owned(), 1), ("blue".to_owned(), 2)]);
        let two = of(&["green", "blue"]).after(&one);
        assert_eq!(numbers(&two), [("green".to_owned(), 3), ("blue".to_owned(), 2)]);
        let three = of(&["red", "green"]).after(&two);
        assert_eq!(numbers(&three), [("red".to_owned(), 4), ("green".to_owned(), 3)]);
        let red = three.interface_named("red0").unwrap();
        assert_eq!((three.vrf_name(red), three.vrf_of(red).0), (Some("red"), 1));
        assert_eq!(three.vrf_numbered(VrfNumber(2)), None, "blue is gone");
        // The gateway itself has a conntrack zone in each, and its VRF is told from that.
        let own = three.ct_zone(LOCAL, three.vrf_of(red));
        assert_eq!(
            (three.vrf_of_own(own), three.vrf_of_own(u16::MAX)),
            (Some(three.vrf_of(red)), Some(VrfId::DEFAULT))
        );
    }

    fn ct_zone(tables: &Tables, name: &str) -> u16 {
        tables.interface(tables.interface_named(name).unwrap()).unwrap().ct_zone
    }

    #[test]
    fn names_keep_their_numbers_wherever_they_stand() {
        let one = tables(&["a", "b", "c"], "");
        let two = tables(&["d", "c", "a"], "").after(&one);
        let three = tables(&["a", "b", "c"], "").after(&two);
        for name in ["a", "c"] {
            assert_eq!((number(&one, name), number(&two, name)), (number(&two, name), number(&three, name)));
            assert_eq!(two.interface_numbered(number(&one, name)), two.interface_named(name));
        }
        assert_eq!(two.interface_numbered(number(&one, "b")), None);
        // Back again, and another one.
        assert_ne!(number(&three, "b"), number(&one, "b"));
        assert_eq!(three.interface_numbered(number(&one, "b")), None);
        assert_eq!((one.epoch, two.epoch, three.epoch), (1, 2, 3));
        assert!(two.follows(&one) && three.follows(&two) && !three.follows(&one));
        assert!(!tables(&["b", "a"], "").follows(&one));
        assert_eq!(one.interface_numbered(NO_NUMBER), Some(LOCAL));
    }

    #[test]
    fn a_meter_stays_with_name_and_rate() {
        let rule = |name: &str, rate: &str| {
            format!("[[rule]]\nname = \"{name}\"\nrate = \"{rate}\"\naction = \"accept\"\n")
        };
        let one = tables(&["a"], &(rule("x", "1/second") + &rule("y", "1/second")));
        let two = tables(&["a"], &(rule("y", "2/second") + &rule("x", "1/second"))).after(&one);
        let [old, new] = [&one, &two].map(|tables| {
            let of = |name: &str| tables.filter.rules.iter().find(|rule| rule.name == name).unwrap().clone();
            [of("x"), of("y")].map(|rule| (rule.number, rule.meter))
        });
        assert_eq!(old[0], new[0]);
        assert_eq!(old[1].0, new[1].0);
        assert_ne!(old[1].1, new[1].1);
        assert_eq!(two.rule_of_meter(new[1].1), Some(0));
    }

    #[test]
    fn epochs_skip_the_one_that_stands_for_none() {
        let mut old = tables(&["a"], "");
        old.epoch = u16::MAX;
        let new = tables(&["a"], "").after(&old);
        assert_eq!(new.epoch, 1);
        assert!(new.follows(&old));
    }

    #[test]
    fn ct_zones_stay_with_those_who_share_them() {
        let ways = |ways: &str| format!("[[route]]\nto = \"0.0.0.0/0\"\nvia = [{ways}]\n");
        let one = tables(&["a", "b", "c"], "");
        // The first two of these stand in for one another now.
        let two = tables(&["c", "b", "a"], &ways("\"10.0.1.9\", \"10.0.2.9\"")).after(&one);
        assert_eq!(ct_zone(&two, "c"), ct_zone(&one, "c"));
        let shared = ct_zone(&two, "a");
        assert_eq!(ct_zone(&two, "b"), shared);
        assert!(["a", "b", "c"].iter().all(|name| ct_zone(&one, name) != shared));
        // And no longer: each has one that none of the last had.
        let three = tables(&["a", "b", "c"], "").after(&two);
        assert_eq!(ct_zone(&three, "c"), ct_zone(&one, "c"));
        let apart = ["a", "b"].map(|name| ct_zone(&three, name));
        assert!(apart[0] != apart[1] && !apart.contains(&shared) && !apart.contains(&ct_zone(&three, "c")));
    }
}
