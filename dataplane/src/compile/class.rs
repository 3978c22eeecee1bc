//! Compilation of traffic classes and meters.

use std::sync::Arc;

use lookup::classify::{Algorithm, Choice};
use policy::Policy;
use policy::model::Class;
use wire::vlan::Priority;

use super::pattern::{About, of_conditions};
use super::task;
use crate::tables::{ClassEntry, ClassSearch, Classes, CompileError};

/// The classes of a policy, to be searched by `wanted`.
pub(super) fn compile(
    policy: &Policy,
    about: &About<'_>,
    wanted: Option<&'static Algorithm>,
) -> Result<Classes, CompileError> {
    let place = |name: &String| {
        let place = policy.meters.iter().position(|meter| meter.name == *name);
        place.map(|place| place as u16).ok_or_else(|| CompileError::UnknownMeter(name.clone()))
    };
    let mut list = Vec::with_capacity(policy.classes.len());
    let mut patterns = Vec::with_capacity(policy.classes.len());
    for class in &policy.classes {
        list.push(ClassEntry {
            name: class.name.clone(),
            meter: class.meter.as_ref().map(place).transpose()?,
            mark: class.mark,
            mark_pcp: class.mark_pcp,
        });
        patterns.push(of_conditions(&class.conditions, policy, about)?);
    }
    let priorities: Vec<u64> = policy.classes.iter().map(priorities).collect();
    let priority_kinds: [u8; Priority::COUNT] = kinds(priorities.iter().copied());
    let kinds = kinds(patterns.iter().flatten().map(|pattern| pattern.dscp));
    // A search for each kind, with the classes that have its priorities.
    let count = priority_kinds.iter().max().map_or(1, |last| last + 1);
    let search = |kind: u8| {
        let member = priority_kinds.iter().position(|of| *of == kind).unwrap_or(0);
        let those = || {
            let own = (1..).zip(&patterns).zip(&priorities).filter(|(_, set)| **set >> member & 1 == 1);
            own.flat_map(|((number, patterns), _)| patterns.iter().map(move |pattern| (number, pattern)))
        };
        let patterns = those().map(|(_, pattern)| pattern.clone()).collect();
        ClassSearch {
            search: Arc::new(Choice::new(task(policy, patterns, wanted))),
            numbers: those().map(|(number, _)| number).collect(),
        }
    };
    let searches = (0..count).map(search).collect();
    Ok(Classes { list, meters: policy.meters.clone(), searches, kinds, priority_kinds })
}

/// VLAN priorities of the packets of a class, as a set of their four bits.
fn priorities(class: &Class) -> u64 {
    let admitted = Priority::all().filter(|priority| class.admits(*priority));
    admitted.fold(0, |set, priority| set | 1 << priority.bits())
}

/// Numbers of the kinds of values, of code points or priorities: two are of one kind if each set has both or neither.
fn kinds<const N: usize>(sets: impl Iterator<Item = u64>) -> [u8; N] {
    let mut kinds = [0_u8; N];
    for set in sets {
        // Each kind splits into those of its code points that the set has, and the others.
        let mut numbers: Vec<(u8, bool)> = Vec::new();
        for (point, kind) in kinds.iter_mut().enumerate() {
            let side = (*kind, set >> point & 1 == 1);
            let number = numbers.iter().position(|known| *known == side).unwrap_or_else(|| {
                numbers.push(side);
                numbers.len() - 1
            });
            *kind = number as u8;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::kinds;

    #[test]
    fn code_points_that_no_class_tells_apart_are_of_one_kind() {
        assert_eq!(kinds::<64>([u64::MAX].into_iter()), [0; 64]);
        let (ef, af) = (1 << 46, 1 << 10 | 1 << 12 | 1 << 14);
        let kinds_of: [u8; 64] = kinds([u64::MAX, ef, af | ef, 1 << 10].into_iter());
        let distinct: std::collections::BTreeSet<u8> = kinds_of.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(kinds_of[12], kinds_of[14]);
        assert_ne!(kinds_of[10], kinds_of[12]);
        assert_ne!(kinds_of[46], kinds_of[0]);
        let all: [u8; 64] = kinds((0..64).map(|point| 1 << point));
        assert_eq!(all.into_iter().collect::<std::collections::BTreeSet<u8>>().len(), 64);
    }
}
