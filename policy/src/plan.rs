//! Differences between two policies, by name: the plan shown before a reload.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;

use crate::model::{Policy, Route, ZoneDefault};

/// One difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind of difference.
    pub kind: Kind,
    /// Kind and name of the item: `rule web-in`.
    pub thing: String,
    /// Lines removed from the item's text.
    pub old: Vec<String>,
    /// Lines added to the item's text.
    pub new: Vec<String>,
}

/// Kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A new item.
    Added,
    /// A removed item.
    Removed,
    /// An item with another text.
    Changed,
    /// An unchanged item at another position, in a list whose first match counts.
    Moved,
}

impl Kind {
    /// Returns `add`, `remove`, `change` or `move`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Added => "add",
            Kind::Removed => "remove",
            Kind::Changed => "change",
            Kind::Moved => "move",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.thing)?;
        for line in &self.old {
            write!(f, "\n  - {line}")?;
        }
        for line in &self.new {
            write!(f, "\n  + {line}")?;
        }
        Ok(())
    }
}

/// Returns the changes from `old` to `new`; none for equal policies.
pub fn plan(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for (kind, order, things) in KINDS {
        compare(kind, *order, &things(old), &things(new), &mut changes);
    }
    changes.iter_mut().for_each(hide_keys);
    changes
}

/// Hides the keys of security associations: a plan goes to terminals and logs.
fn hide_keys(change: &mut Change) {
    if change.thing.starts_with("interface ") {
        let lines = change.old.iter_mut().chain(&mut change.new);
        for line in lines {
            if let Some(key) =
                ["key", "auth-key"].into_iter().find(|key| line.starts_with(&format!("{key} = ")))
            {
                *line = format!("{key} = (not shown)");
            }
        }
    }
}

/// An item by itself.
struct Thing {
    name: String,
    lines: Vec<String>,
}

/// Significance of the order of items of one kind: it counts for lists whose first match decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Counts,
    IsNothing,
}

type Things = fn(&Policy) -> Vec<Thing>;

const KINDS: &[(&str, Order, Things)] = &[
    ("", Order::IsNothing, |policy| {
        vec![
            thing("mode".into(), Policy { mode: policy.mode, ..Policy::default() }),
            thing("classifier".into(), Policy { search: policy.search, ..Policy::default() }),
        ]
    }),
    ("interface", Order::IsNothing, |policy| {
        each(&policy.interfaces, |one| {
            (one.name.clone(), Policy { interfaces: vec![one], ..Policy::default() })
        })
    }),
    ("set", Order::IsNothing, |policy| {
        each(&policy.sets, |one| (one.name.clone(), Policy { sets: vec![one], ..Policy::default() }))
    }),
    ("dynamic-set", Order::IsNothing, |policy| {
        each(&policy.dynamic_sets, |one| {
            (one.name.clone(), Policy { dynamic_sets: vec![one], ..Policy::default() })
        })
    }),
    ("default", Order::IsNothing, |policy| {
        each(&policy.defaults, |one| (pair(&one), Policy { defaults: vec![one], ..Policy::default() }))
    }),
    ("route", Order::IsNothing, |policy| {
        each(&policy.routes, |one: Route| {
            (route_name(&one), Policy { routes: vec![one], ..Policy::default() })
        })
    }),
    ("wan", Order::IsNothing, |policy| {
        each(&policy.wans, |one| (one.name.clone(), Policy { wans: vec![one], ..Policy::default() }))
    }),
    ("policy-route", Order::Counts, |policy| {
        each(&policy.policy_routes, |one| {
            (one.name.clone(), Policy { policy_routes: vec![one], ..Policy::default() })
        })
    }),
    ("neighbour", Order::IsNothing, |policy| {
        each(&policy.neighbours, |one| {
            let name = format!("{} on {}", one.address, one.interface);
            (name, Policy { neighbours: vec![one], ..Policy::default() })
        })
    }),
    ("cross-connect", Order::IsNothing, |policy| {
        each(&policy.cross_connects, |one| {
            (one.name.clone(), Policy { cross_connects: vec![one], ..Policy::default() })
        })
    }),
    ("nat", Order::Counts, |policy| {
        each(&policy.nats, |one| (one.name.clone(), Policy { nats: vec![one], ..Policy::default() }))
    }),
    ("rule", Order::Counts, |policy| {
        each(&policy.rules, |one| (one.name.clone(), Policy { rules: vec![one], ..Policy::default() }))
    }),
    ("class", Order::Counts, |policy| {
        each(&policy.classes, |one| (one.name.clone(), Policy { classes: vec![one], ..Policy::default() }))
    }),
    ("meter", Order::IsNothing, |policy| {
        each(&policy.meters, |one| (one.name.clone(), Policy { meters: vec![one], ..Policy::default() }))
    }),
    // Children of a strict scheduler are served in their order.
    ("queue", Order::Counts, |policy| {
        each(&policy.queues, |one| (one.name.clone(), Policy { queues: vec![one], ..Policy::default() }))
    }),
    ("shape", Order::IsNothing, |policy| {
        each(&policy.shapes, |one| (one.interface.clone(), Policy { shapes: vec![one], ..Policy::default() }))
    }),
    ("", Order::IsNothing, |policy| {
        vec![
            thing("limits".into(), Policy { limits: policy.limits, ..Policy::default() }),
            thing("timeouts".into(), Policy { timeouts: policy.timeouts, ..Policy::default() }),
            thing("gateway".into(), Policy { gateway: policy.gateway.clone(), ..Policy::default() }),
        ]
    }),
];

/// Destination of a route, with its VRF: two VRFs may have routes to one destination.
fn route_name(route: &Route) -> String {
    match &route.vrf {
        None => route.destination.to_string(),
        Some(vrf) => format!("{} in VRF {vrf}", route.destination),
    }
}

fn pair(default: &ZoneDefault) -> String {
    format!("\"{} > {}\"", default.from, default.to)
}

fn each<T: Clone>(all: &[T], alone: impl Fn(T) -> (String, Policy)) -> Vec<Thing> {
    let things = all.iter().cloned().map(alone);
    things.map(|(name, policy)| thing(name, policy)).collect()
}

/// Text of one item: that of a policy which has nothing else.
fn thing(name: String, alone: Policy) -> Thing {
    let text = alone.to_string();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('['));
    Thing { name, lines: lines.map(str::to_owned).collect() }
}

fn compare(kind: &str, order: Order, old: &[Thing], new: &[Thing], changes: &mut Vec<Change>) {
    let called = |name: &str| if kind.is_empty() { name.to_owned() } else { format!("{kind} {name}") };
    let position = |all: &[Thing], name: &str| all.iter().position(|thing| thing.name == name);
    for thing in old.iter().filter(|thing| position(new, &thing.name).is_none()) {
        changes.push(Change {
            kind: Kind::Removed,
            thing: called(&thing.name),
            old: thing.lines.clone(),
            new: Vec::new(),
        });
    }
    let names = |all: &[Thing]| all.iter().map(|thing| thing.name.clone()).collect::<Vec<String>>();
    let stayed: HashSet<usize> = staying(&names(old), &names(new)).iter().map(|pair| pair.new).collect();
    for (place, after) in new.iter().enumerate() {
        let Some(before) = old.iter().find(|thing| thing.name == after.name) else {
            changes.push(Change {
                kind: Kind::Added,
                thing: called(&after.name),
                old: Vec::new(),
                new: after.lines.clone(),
            });
            continue;
        };
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
        };
        if before.lines != after.lines {
            changes.push(Change {
                kind: Kind::Changed,
                thing: called(&after.name),
                old: only(&before.lines, &after.lines),
                new: only(&after.lines, &before.lines),
            });
        }
        if order == Order::Counts && !stayed.contains(&place) {
            let behind = match place.checked_sub(1).and_then(|place| new.get(place)) {
                Some(previous) => format!("now behind {}", previous.name),
                None => "now the first".to_owned(),
            };
            changes.push(Change {
                kind: Kind::Moved,
                thing: called(&after.name),
                old: Vec::new(),
                new: vec![behind],
            });
        }
    }
}

/// Pairs of the positions of common elements, in an order that both lists have: a longest common subsequence, so that as
/// few elements as possible have moved. An element that a list has several times is paired once.
pub fn staying<T: Eq + Hash>(old: &[T], new: &[T]) -> Vec<Pair> {
    let places: HashMap<&T, usize> = old.iter().enumerate().map(|(place, thing)| (thing, place)).collect();
    // Longest ascending run of old places, by patience sorting: `tops` are the places in `common` that the piles end with.
    let common: Vec<Pair> = new
        .iter()
        .enumerate()
        .filter_map(|(place, thing)| Some(Pair { old: *places.get(thing)?, new: place }))
        .collect();
    let mut tops: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; common.len()];
    for (at, pair) in common.iter().enumerate() {
        let pile = tops.partition_point(|top| common[*top].old < pair.old);
        before[at] = pile.checked_sub(1).map(|pile| tops[pile]);
        if pile == tops.len() { tops.push(at) } else { tops[pile] = at }
    }
    let mut run = Vec::new();
    let mut at = tops.last().copied();
    while let Some(place) = at {
        run.push(common[place]);
        at = before[place];
    }
    run.reverse();
    run
}

/// Positions of one element in two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Index in the old list.
    pub old: usize,
    /// Index in the new list.
    pub new: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::arbitrary;
    use proptest::prelude::*;

    fn policy(rules: &str) -> Policy {
        let text = format!("[interface.lan]\nzone = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n{rules}");
        crate::check(&text, "test").policy.expect("a sound policy")
    }

    fn rules(names: &[&str]) -> String {
        let rule = |name: &&str| {
            format!("[[rule]]\nname = \"{name}\"\nfrom = \"lan\"\naction = \"drop\"\ndscp = {}\n", name.len())
        };
        names.iter().map(rule).collect()
    }

    #[test]
    fn rules_are_compared_by_name() {
        let old = policy(&rules(&["a", "bb", "ccc"]));
        let mut new = policy(&rules(&["ccc", "a", "dddd"]));
        new.rules[1].log = crate::model::Logging::On;
        let told: Vec<String> = plan(&old, &new).iter().map(|change| change.to_string()).collect();
        assert_eq!(
            told,
            [
                "remove rule bb\n  - name = \"bb\"\n  - from = \"lan\"\n  - dscp = 2\n  - action = \"drop\"",
                "move rule ccc\n  + now the first",
                "change rule a\n  + log = true",
                "add rule dddd\n  + name = \"dddd\"\n  + from = \"lan\"\n  + dscp = 4\n  + action = \"drop\"",
            ]
        );
    }

    #[test]
    fn keys_are_not_shown() {
        let text = include_str!("../../tests/cases/esp/site.toml");
        let with = crate::check(text, "site.toml").policy.expect("a sound policy");
        let other = text
            .replace("000102030405060708090a0b0c0d0e0f10111213", "c0ffee030405060708090a0b0c0d0e0f10111213");
        let other = crate::check(&other, "other.toml").policy.expect("a sound policy");
        let changed: Vec<String> = plan(&with, &other).iter().map(Change::to_string).collect();
        assert_eq!(changed, ["change interface site-b\n  - key = (not shown)\n  + key = (not shown)"]);
        let signed = text.replace(
            "algorithm = \"aes128-gcm\"\nkey = \"000102030405060708090a0b0c0d0e0f10111213\"",
            "algorithm = \"null\"\nauth = \"hmac-sha1-96\"\nauth-key = \"c0ffee030405060708090a0b0c0d0e0f10111213\"",
        );
        let signed = crate::check(&signed, "signed.toml").policy.expect("a sound policy");
        let changed: String = plan(&with, &signed).iter().map(Change::to_string).collect();
        assert!(changed.contains("+ auth-key = (not shown)") && !changed.contains("c0ffee"), "{changed}");
        let added: String = plan(&Policy::default(), &with).iter().map(Change::to_string).collect();
        assert!(
            added.contains("spi = 4096") && !added.contains("000102") && !added.contains("202122"),
            "{added}"
        );
    }

    /// Removes duplicate names, as a sound policy has none.
    fn unique(mut policy: Policy) -> Policy {
        fn first<T>(all: &mut Vec<T>, name: impl Fn(&T) -> String) {
            let mut seen = HashSet::new();
            all.retain(|one| seen.insert(name(one)));
        }
        first(&mut policy.cross_connects, |one| one.name.clone());
        first(&mut policy.rules, |one| one.name.clone());
        first(&mut policy.nats, |one| one.name.clone());
        first(&mut policy.classes, |one| one.name.clone());
        first(&mut policy.meters, |one| one.name.clone());
        first(&mut policy.queues, |one| one.name.clone());
        first(&mut policy.routes, route_name);
        first(&mut policy.wans, |one| one.name.clone());
        first(&mut policy.policy_routes, |one| one.name.clone());
        first(&mut policy.neighbours, |one| format!("{} {}", one.address, one.interface));
        first(&mut policy.defaults, pair);
        policy
    }

    proptest! {
        #[test]
        fn equal_policies_have_no_plan(policy in arbitrary::policy()) {
            let policy = unique(policy);
            prop_assert_eq!(plan(&policy, &policy), []);
        }

        #[test]
        fn what_goes_and_what_comes_is_all_there(old in arbitrary::policy(), new in arbitrary::policy()) {
            let (old, new) = (unique(old), unique(new));
            let plan = plan(&old, &new);
            let count = |kind, thing: &str| {
                plan.iter().filter(|change| change.kind == kind && change.thing.starts_with(thing)).count()
            };
            let only = |these: &Policy, those: &Policy| {
                these.rules.iter().filter(|rule| those.rules.iter().all(|other| other.name != rule.name)).count()
            };
            prop_assert_eq!(count(Kind::Removed, "rule "), only(&old, &new));
            prop_assert_eq!(count(Kind::Added, "rule "), only(&new, &old));
            let kept = new.rules.iter().filter_map(|rule| Some((rule, old.rules.iter().find(|one| one.name == rule.name)?)));
            prop_assert_eq!(count(Kind::Changed, "rule "), kept.filter(|(now, before)| now != before).count());
        }
    }
}
