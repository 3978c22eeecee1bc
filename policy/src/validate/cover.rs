//! Shadowed translations: those that never match because one earlier translation matches all their packets. Rules are left to
//! the exact analysis of the crate `analysis`.
//!
//! Sound: every report is true. Incomplete: a translation covered only by several earlier ones together is not found, nor any
//! past a fixed amount of work.

use std::collections::HashMap;

use super::shape::Shape;
use super::space::{Family, Space};

/// Most comparisons and look-ups, some seconds' worth; the search ends there.
const MOST_STEPS: usize = 50_000_000;

/// Indices of a hidden item and of the earlier one that hides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shadow {
    pub(super) hidden: usize,
    pub(super) by: usize,
}

/// Returns all shapes that one earlier shape covers, each with the first to do so.
pub(super) fn shadows(shapes: &[Option<Shape<'_>>]) -> Vec<Shadow> {
    let mut index = Index::default();
    let mut found = Vec::new();
    let mut steps = 0;
    for (hidden, shape) in shapes.iter().enumerate() {
        let Some(shape) = shape else { continue };
        // One that matches nothing is another fault.
        let Some(family) = shape.families().next() else { continue };
        let key = Key::of(shape, family);
        let mut by: Option<usize> = None;
        for lengths in index.tuples.get(&family.bits()).into_iter().flatten() {
            steps += 1;
            if lengths.source > key.source.length || lengths.destination > key.destination.length {
                continue;
            }
            let wider = Key {
                bits: key.bits,
                source: key.source.cut(lengths.source, family),
                destination: key.destination.cut(lengths.destination, family),
            };
            let candidates = index.shapes.get(&wider).map_or(&[][..], Vec::as_slice);
            for candidate in candidates {
                steps += 1;
                if by.is_some_and(|by| by <= *candidate) {
                    break;
                }
                if shapes[*candidate].as_ref().is_some_and(|earlier| earlier.covers(shape)) {
                    by = Some(*candidate);
                    break;
                }
            }
        }
        if steps > MOST_STEPS {
            break;
        }
        match by {
            Some(by) => found.push(Shadow { hidden, by }),
            // What a hidden one would hide, the one that hides it does.
            None => shape.families().for_each(|family| index.insert(Key::of(shape, family), hidden)),
        }
    }
    found
}

/// Index of shapes by the shortest prefixes that contain all their addresses. A shape that covers another has, in both
/// dimensions, the same prefix or a shorter one of it.
#[derive(Default)]
struct Index {
    shapes: HashMap<Key, Vec<usize>>,
    /// For each family, by its number of bits, the pairs of prefix lengths present.
    tuples: HashMap<u32, Vec<Lengths>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Lengths {
    source: u32,
    destination: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    bits: u32,
    source: Hull,
    destination: Hull,
}

/// A prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Hull {
    address: u128,
    length: u32,
}

impl Index {
    fn insert(&mut self, key: Key, shape: usize) {
        let lengths = Lengths { source: key.source.length, destination: key.destination.length };
        let tuples = self.tuples.entry(key.bits).or_default();
        if !tuples.contains(&lengths) {
            tuples.push(lengths);
        }
        self.shapes.entry(key).or_default().push(shape);
    }
}

impl Key {
    fn of(shape: &Shape<'_>, family: Family) -> Key {
        Key {
            bits: family.bits(),
            source: Hull::of(&shape.source, family),
            destination: Hull::of(&shape.destination, family),
        }
    }
}

impl Hull {
    fn of(space: &Space, family: Family) -> Hull {
        let intervals = space.intervals(family);
        let first = intervals.first().map_or(0, |interval| interval.first);
        let last = intervals.last().map_or(0, |interval| interval.last);
        let length = (first ^ last).leading_zeros() - (128 - family.bits());
        Hull { address: first, length: family.bits() }.cut(length, family)
    }

    fn cut(self, length: u32, family: Family) -> Hull {
        let host_bits = family.bits() - length;
        let address = if host_bits == 128 { 0 } else { self.address >> host_bits << host_bits };
        Hull { address, length }
    }
}

#[cfg(test)]
mod tests;
