//! Decision trees for look-up speed.
//!
//! Patterns are cut into cuboids of the header space. A node gathers some bits of a header, from wherever they tell the
//! cuboids apart best, into the number of a branch; a leaf compares a header with eight cuboids at a time. Cuboids
//! that leave most of the chosen bits open would be copied into most branches: they are left to another tree.
//! A node or two and one block of comparisons are a usual search (docs/decisions/0017).

use tally::{Op, Region, Tally};
use wire::Family;

use self::build::{Forest, Growth};
use self::layout::{POSITION, V4, V6};
use self::search::{AT_ONCE, Places, Visit};
use super::simd_tree::{Kernel, Plain};
use super::{Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};

mod build;
mod entry;
mod layout;
mod search;
mod select;

pub(super) use self::layout::{Octet, Shape, lane};
pub(super) use self::search::hits as scalar_hits;

/// Trees over patterns.
#[derive(Clone, Debug)]
pub struct Tree {
    v4: Forest<V4>,
    v6: Forest<V6>,
    /// All of them: some cuboids do not say all that their patterns ask.
    patterns: Vec<Pattern>,
}

impl Tree {
    /// # Errors
    /// No trees of these patterns keep within the bounds.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<Tree, TooLarge> {
        let own: usize = patterns.len() * size_of::<Pattern>();
        bounds.admit(own)?;
        if patterns.len() >= POSITION as usize {
            return Err(TooLarge { needed: usize::MAX, bound: bounds.memory });
        }
        let v4 = grow(patterns, Bounds { memory: bounds.memory - own })?;
        let v6 = grow(patterns, Bounds { memory: bounds.memory - own - v4.bytes() })?;
        Ok(Tree { v4, v6, patterns: patterns.to_vec() })
    }

    fn matches(&self, header: &Header, position: Position) -> bool {
        self.patterns.get(position as usize).is_some_and(|pattern| pattern.matches(header))
    }

    #[inline(always)]
    fn find_all<K: Kernel>(&self, kernel: K, headers: &[Header], positions: &mut [Position]) {
        for (headers, positions) in headers.chunks(AT_ONCE).zip(positions.chunks_mut(AT_ONCE)) {
            let (mut v4, mut v6) = (Places::NONE, Places::NONE);
            for (place, header) in headers.iter().enumerate() {
                v4.add_if(place, header.family == Family::V4);
                v6.add_if(place, header.family == Family::V6);
            }
            let mut found = [NO_MATCH; AT_ONCE];
            let matches = |header: &Header, position| self.matches(header, position);
            if !v4.is_empty() {
                self.v4.find_all(kernel, headers, &v4, &mut found, matches);
            }
            if !v6.is_empty() {
                self.v6.find_all(kernel, headers, &v6, &mut found, matches);
            }
            for (position, found) in positions.iter_mut().zip(found) {
                *position = found;
            }
        }
    }

    #[inline(always)]
    fn find<K: Kernel>(&self, kernel: K, header: &Header, visit: impl FnMut(Visit<'_>)) -> Option<Position> {
        let matches = |position| self.matches(header, position);
        let found = match header.family {
            Family::V4 => self.v4.find(kernel, header, matches, visit),
            Family::V6 => self.v6.find(kernel, header, matches, visit),
            Family::Other => NO_MATCH,
        };
        (found != NO_MATCH).then_some(found)
    }
}

/// The trees of one family.
fn grow<S: Shape>(patterns: &[Pattern], bounds: Bounds) -> Result<Forest<S>, TooLarge> {
    let mut entries = Vec::new();
    for (position, pattern) in patterns.iter().enumerate() {
        entry::of_pattern::<S>(pattern, position as Position, &mut entries);
        bounds.admit(size_of_val(entries.as_slice()))?;
    }
    let open = std::env::var("OPEN").ok().and_then(|open| open.parse().ok()).unwrap_or(6);
    let trees = std::env::var("TREES").ok().and_then(|open| open.parse().ok()).unwrap_or(4);
    Forest::grow(&entries, Growth { open, trees }, bounds)
}

impl Classifier for Tree {
    fn classify(&self, header: &Header) -> Option<Position> {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = super::simd_tree::Avx2::found() {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find(kernel, header, |_| ()),
            );
        }
        self.find(Plain, header, |_| ())
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = super::simd_tree::Avx2::found() {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find_all(kernel, headers, positions),
            );
        }
        self.find_all(Plain, headers, positions);
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        self.find(Plain, header, |visit| match visit {
            Visit::Node(node, number, branch) => {
                tally.read(Region::RuleTable, number * 32, 24);
                let _ = (node, branch);
                tally.instructions(10);
                tally.execute(Op::Branch, 1);
            }
            Visit::Leaf(..) => tally.instructions(10),
        })
    }

    fn memory_bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes() + size_of_val(self.patterns.as_slice())
    }

    fn region_bytes(&self) -> u64 {
        (self.v4.bytes() + self.v6.bytes()) as u64
    }

    fn program(&self) -> u32 {
        60
    }
}

/// Gathers the bits of `word` that `mask` has into the lowest bits.
#[inline]
pub(super) fn gather(word: u64, mask: u64) -> u64 {
    let (mut gathered, mut place, mut rest) = (0, 0, mask);
    while rest != 0 {
        let bit = rest.trailing_zeros();
        rest &= rest - 1;
        gathered |= (word >> bit & 1) << place;
        place += 1;
    }
    gathered
}
