//! Traffic classes that no packet is of, as earlier ones have all that they would have; and packets that two policies have in different
//! classes.
//!
//! A class is found as a rule is: the first whose conditions hold. Classes are therefore analysed as rules are, once for each set of
//! classes that packets of a priority of VLAN tags may be of. What the gateway itself sends has classes, too: it comes from an
//! interface more, of the zone `self`.

use std::collections::{BTreeMap, BTreeSet};

use dataplane::tables::{CompileError, SetUses, SourceMacs};
use policy::Policy;
use policy::model::{Action, Interface, LinkKind, Mode, Rate, Rule, SELF_ZONE, Scope};
use wire::Nanos;
use wire::vlan::Priority;

use super::algebra::Effort;
use super::difference::{Comparison, compare};
use super::rules::{Finding, Look, findings};
use super::{Decider, Outcome, Region};

/// A class that no packet is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyClass {
    /// Its place in the policy.
    pub class: usize,
    /// Places of earlier classes that together match all that it matches; none where its conditions exclude one another.
    pub by: Vec<usize>,
}

/// Result of the search for classes that no packet is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmptyClasses {
    /// Classes found, in the order of the policy.
    pub list: Vec<EmptyClass>,
    /// Classes left open at the end of the effort.
    pub open: Vec<usize>,
}

/// Name of the origin of what the gateway itself sends; no interface can have it.
const ITSELF: &str = "the gateway itself";

/// Looks at the classes of `policy`.
///
/// # Errors
/// The policy cannot be compiled.
pub fn empty_classes(policy: &Policy, effort: Effort<'_>) -> Result<EmptyClasses, CompileError> {
    let sets: BTreeSet<Vec<usize>> = Priority::all().map(|priority| members(policy, priority)).collect();
    let share = effort.share(sets.len());
    // Of each class: what hides it in the sets looked at so far, as long as something does.
    let mut hidden: BTreeMap<usize, BTreeSet<usize>> =
        (0..policy.classes.len()).map(|class| (class, BTreeSet::new())).collect();
    let mut open = BTreeSet::new();
    for set in &sets {
        let found = findings(&as_rules(policy, set, &BTreeMap::new()), Look::Effect, share)?;
        let mut by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let class = |rule: &u32| set.get(*rule as usize).copied();
        for finding in &found.list {
            let earlier = match finding {
                Finding::Impossible { .. } => Vec::new(),
                Finding::Hidden { by, .. } => by.iter().filter_map(class).collect(),
                Finding::Redundant { .. } | Finding::Overlap { .. } => continue,
            };
            by.extend(class(&finding.rule()).map(|class| (class, earlier)));
        }
        open.extend(found.open.iter().filter_map(class));
        for class in set {
            match by.remove(class) {
                Some(earlier) => {
                    hidden.entry(*class).and_modify(|all| all.extend(earlier));
                }
                None => {
                    hidden.remove(class);
                }
            }
        }
    }
    let list = hidden.into_iter().map(|(class, by)| EmptyClass { class, by: by.into_iter().collect() });
    let list = list.filter(|empty| !open.contains(&empty.class)).collect();
    Ok(EmptyClasses { list, open: open.into_iter().collect() })
}

/// Packets that are of another class in another policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassDifference {
    /// The packets.
    pub region: Region,
    /// Priorities of their VLAN tags; all of them where no class asks.
    pub priorities: Vec<Priority>,
    /// Place of their class in the old policy; `None` for no class.
    pub old: Option<usize>,
    /// Place of their class in the new policy.
    pub new: Option<usize>,
}

/// Result of comparing the classes of two policies.
#[derive(Clone, Debug)]
pub struct ClassComparison {
    /// Origins and ends that both have, by which regions name them: their interfaces, and the gateway itself.
    pub names: Vec<String>,
    /// Classes of source MAC addresses, by which regions name them; `None` where no class asks for any.
    pub macs: Option<SourceMacs>,
    /// Dynamic sets that classes ask for, by which regions name them.
    pub sets: SetUses,
    /// Differences, disjoint.
    pub differences: Vec<ClassDifference>,
    /// Completeness: there may be more differences.
    pub outcome: Outcome,
}

/// Compares the classes, by name, that `old` and `new` have packets in, between interfaces that both have.
///
/// # Errors
/// One of the policies cannot be compiled.
pub fn compare_classes(
    old: &Policy,
    new: &Policy,
    effort: Effort<'_>,
) -> Result<ClassComparison, CompileError> {
    let mut sets: BTreeMap<[Vec<usize>; 2], Vec<Priority>> = BTreeMap::new();
    for priority in Priority::all() {
        sets.entry([members(old, priority), members(new, priority)]).or_default().push(priority);
    }
    let mut numbers = BTreeMap::new();
    for class in old.classes.iter().chain(&new.classes) {
        let next = numbers.len() as u64;
        numbers.entry(class.name.as_str()).or_insert(next);
    }
    let share = effort.share(sets.len());
    let mut result = ClassComparison {
        names: Vec::new(),
        macs: None,
        sets: SetUses::default(),
        differences: Vec::new(),
        outcome: Outcome::Complete,
    };
    for ([before, after], priorities) in sets {
        let rules = [as_rules(old, &before, &numbers), as_rules(new, &after, &numbers)];
        let Comparison { interfaces, macs, sets, differences, outcome } =
            compare(&rules[0], &rules[1], share)?;
        let place = |set: &[usize], by: Decider| match by {
            Decider::Rule(rule) => set.get(rule as usize).copied(),
            Decider::Default => None,
        };
        result.differences.extend(differences.into_iter().map(|one| ClassDifference {
            old: place(&before, one.old.by),
            new: place(&after, one.new.by),
            region: one.region,
            priorities: priorities.clone(),
        }));
        (result.names, result.macs, result.sets) = (interfaces, macs, sets);
        if outcome == Outcome::Stopped {
            result.outcome = outcome;
        }
    }
    Ok(result)
}

/// Places of the classes that packets of a priority may be of.
fn members(policy: &Policy, priority: Priority) -> Vec<usize> {
    let admitting = policy.classes.iter().enumerate().filter(|(_, class)| class.admits(priority));
    admitting.map(|(place, _)| place).collect()
}

/// The policy with those classes as its rules, which do different things where classes have different numbers.
fn as_rules(policy: &Policy, classes: &[usize], numbers: &BTreeMap<&str, u64>) -> Policy {
    // A rule with a rate has an effect of its own on whatever it matches: none is redundant.
    let rate = Rate { count: 1, per: Nanos::from_secs(1), burst: 1, scope: Scope::Rule };
    let rules = classes.iter().filter_map(|place| policy.classes.get(*place)).map(|class| Rule {
        name: class.name.clone(),
        conditions: class.conditions.clone(),
        action: Action::Accept,
        rate: Some(rate),
        timeout: numbers.get(class.name.as_str()).copied().map(Nanos),
        ..Rule::default()
    });
    let itself = Interface { link: LinkKind::Ip, ..Interface::new(ITSELF, SELF_ZONE) };
    Policy {
        mode: Mode::Stateless,
        interfaces: policy.interfaces.iter().cloned().chain([itself]).collect(),
        sets: policy.sets.clone(),
        dynamic_sets: policy.dynamic_sets.clone(),
        rules: rules.collect(),
        // By which the bits of dynamic sets are the same, whatever classes are asked about.
        classes: policy.classes.clone(),
        ..Policy::default()
    }
}
