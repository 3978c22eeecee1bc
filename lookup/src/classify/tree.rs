//! Decision trees for look-up speed.
//!
//! Patterns are cut into cuboids of the header space. A node gathers some bits of a header, from wherever they tell the
//! cuboids apart best, into the number of a branch; a leaf compares a header with eight cuboids at a time. Cuboids
//! that leave most of the chosen bits open would be copied into most branches: they are left to another tree.
//! A node or two and one block of comparisons are a usual search (docs/decisions/0017).

use tally::Tally;

use self::build::{Covered, Growth};
use self::entry::{Entry, of_pattern};
use self::families::{Families, Processor};
use self::forest::Forest;
use self::layout::{NUMBER, Shape, V4, V6};
use self::search::Unchanged;
use self::select::Scratch;
use self::update::UpdatableTree;
use super::{Bounds, Classifier, Header, Pattern, Position, TooLarge, Updatable};

mod account;
mod build;
mod entry;
mod families;
mod forest;
mod hiding;
pub(super) mod kernel;
pub(super) mod layout;
mod search;
mod select;
mod update;
mod weigh;

/// Trees over patterns.
pub struct Tree {
    pair: Pair,
    /// Patterns that some cuboid says only a part of, by position.
    asked: Vec<(Position, Pattern)>,
    /// Bytes of these.
    asked_bytes: usize,
    /// Number of patterns.
    count: usize,
    bounds: Bounds,
    processor: Processor,
}

impl Tree {
    /// # Errors
    /// No trees of these patterns keep within the bounds.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<Tree, TooLarge> {
        let cuboids = Cuboids::of(patterns.iter(), bounds)?;
        let mut asked: Vec<Position> = cuboids.v4.iter().filter_map(Entry::asks).collect();
        asked.extend(cuboids.v6.iter().filter_map(Entry::asks));
        asked.sort_unstable();
        asked.dedup();
        let asked: Vec<(Position, Pattern)> =
            asked.into_iter().map(|position| (position, patterns[position as usize].clone())).collect();
        let asked_bytes = bytes_of(&asked);
        bounds.admit(asked_bytes)?;
        let pair = cuboids.grow(None, Bounds { memory: bounds.memory - asked_bytes })?;
        let (count, processor) = (patterns.len(), Processor::detect());
        Ok(Tree { pair, asked, asked_bytes, count, bounds, processor })
    }

    #[cold]
    fn matches(&self, header: &Header, position: Position) -> bool {
        let found = self.asked.binary_search_by_key(&position, |(position, _)| *position);
        found.is_ok_and(|at| self.asked[at].1.matches(header))
    }

    #[inline(always)]
    fn families(&self) -> Families<'_, Unchanged, impl Fn(&Header, Position) -> bool + Copy> {
        let matches = |header: &Header, position| self.matches(header, position);
        Families { v4: &self.pair.v4, v6: &self.pair.v6, order: Unchanged, matches }
    }
}

/// Bytes of patterns with their positions.
fn bytes_of(asked: &[(Position, Pattern)]) -> usize {
    asked.iter().map(|(_, pattern)| size_of::<Position>() + pattern.bytes()).sum()
}

/// The cuboids of patterns, in the order of the patterns.
struct Cuboids {
    v4: Vec<Entry<V4>>,
    v6: Vec<Entry<V6>>,
}

/// Number of open bits that trees of either family were grown with ([`Growth::open`]).
#[derive(Clone, Copy)]
struct Openness {
    v4: u32,
    v6: u32,
}

/// Trees of both families.
struct Pair {
    v4: Forest<V4>,
    v6: Forest<V6>,
}

impl Cuboids {
    /// # Errors
    /// They alone would take more memory than `bounds` admits.
    fn of<'a>(
        patterns: impl Iterator<Item = &'a Pattern> + Clone,
        bounds: Bounds,
    ) -> Result<Cuboids, TooLarge> {
        Ok(Cuboids { v4: entries(patterns.clone(), bounds)?, v6: entries(patterns, bounds)? })
    }

    /// Grows trees, with the openness of those that were the fastest for much the same cuboids, where there are such.
    ///
    /// # Errors
    /// No trees of these keep within the bounds.
    fn grow(&self, like: Option<Openness>, bounds: Bounds) -> Result<Pair, TooLarge> {
        let v4 = grow(&self.v4, like.map(|like| like.v4), bounds)?;
        let left = bounds.memory.saturating_sub(v4.bytes() + v4.hiding.bytes());
        let v6 = grow(&self.v6, like.map(|like| like.v6), Bounds { memory: left })?;
        let pair = Pair { v4, v6 };
        bounds.admit(pair.bytes())?;
        Ok(pair)
    }
}

impl Pair {
    /// Bytes of the trees, and of what they hide.
    fn bytes(&self) -> usize {
        self.v4.bytes() + self.v4.hiding.bytes() + self.v6.bytes() + self.v6.hiding.bytes()
    }

    fn openness(&self) -> Openness {
        Openness { v4: self.v4.open, v6: self.v6.open }
    }
}

/// The cuboids of one family.
fn entries<'a, S: Shape>(
    patterns: impl Iterator<Item = &'a Pattern>,
    bounds: Bounds,
) -> Result<Vec<Entry<S>>, TooLarge> {
    let mut entries = Vec::new();
    for (position, pattern) in (0..).zip(patterns) {
        if position >= NUMBER {
            return Err(TooLarge { needed: usize::MAX, bound: bounds.memory });
        }
        of_pattern::<S>(pattern, position, &mut entries);
        bounds.admit(size_of_val(entries.as_slice()))?;
    }
    Ok(entries)
}

/// The fastest trees of one family that keep within the bounds; those of one openness, where it is known to be good.
fn grow<S: Shape>(entries: &[Entry<S>], like: Option<u32>, bounds: Bounds) -> Result<Forest<S>, TooLarge> {
    // How open a cuboid may be that stays in a tree has no value that suits all patterns: some are tried.
    let tried: &[u32] = match &like {
        Some(open) => std::slice::from_ref(open),
        None if entries.len() > MANY => &[4, 6, 8],
        None => &[2, 4, 6, 7, 8, 10, 12],
    };
    let worth = Bounds { memory: bounds.memory.min(worth(entries.len())) };
    let work = work(entries.len());
    let mut scratch = Scratch::default();
    let mut best: Option<(f32, Forest<S>)> = None;
    let mut worse = 0;
    for open in tried {
        let growth =
            Growth { open: *open, trees: TREES, work, lean: worth.memory / 2, covered: Covered::Hidden };
        let time = build::grow(entries, growth, worth, &mut scratch).map_or(f32::INFINITY, |mut forest| {
            let time = weigh::weigh(&forest, Unchanged, entries);
            forest.time = time;
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, forest));
            }
            time
        });
        worse = if best.as_ref().is_some_and(|(least, _)| time > 1.2 * least) { worse + 1 } else { 0 };
        if worse > 1 {
            break;
        }
    }
    match best {
        Some((_, forest)) => Ok(forest),
        None if like.is_some() => grow(entries, None, bounds),
        // Longer lists at the leaves take less memory.
        None => {
            let growth =
                Growth { open: 2, trees: 2 * TREES, work, lean: bounds.memory / 4, covered: Covered::Hidden };
            let mut forest = build::grow(entries, growth, bounds, &mut scratch)?;
            forest.time = weigh::weigh(&forest, Unchanged, entries);
            Ok(forest)
        }
    }
}

/// Returns the limit on the work of growing trees of so many cuboids, in cuboids looked at.
fn work(cuboids: usize) -> usize {
    EACH * cuboids + ANYWAY
}

/// Returns the memory that trees of so many cuboids may take, in bytes.
fn worth(cuboids: usize) -> usize {
    WORTH * cuboids + NEAR
}

/// Trees that a header is searched in, at most, as a rule.
const TREES: usize = 4;
/// Bytes that trees may take for each cuboid, and that they may take in any case: a core has as much in caches of its own.
const WORTH: usize = 2048;
const NEAR: usize = 2 << 20;
/// Limit on the work of growing trees, in looks at each cuboid on average, and the limit in any case: a tenth of a second
/// for ten thousand cuboids. Trees that are fast take half of it; others, in which cuboids are copied over and over, could
/// take minutes.
const EACH: usize = 256;
const ANYWAY: usize = 1 << 20;
/// Cuboids of which building takes so long that fewer ways are tried.
const MANY: usize = 20_000;

impl Classifier for Tree {
    fn classify(&self, header: &Header) -> Option<Position> {
        self.families().classify(self.processor, header)
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        self.families().classify_bulk(self.processor, headers, positions);
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        self.families().classify_tallied(header, tally)
    }

    fn memory_bytes(&self) -> usize {
        self.pair.bytes() + self.asked_bytes
    }

    fn region_bytes(&self) -> u64 {
        (self.pair.v4.bytes() + self.pair.v6.bytes()) as u64
    }

    fn program(&self) -> u32 {
        account::program(&self.pair.v4) + account::program(&self.pair.v6)
    }

    fn to_updatable(&self, patterns: &[Pattern]) -> Option<Box<dyn Updatable>> {
        Some(Box::new(UpdatableTree::new(self, patterns)?))
    }
}

#[cfg(test)]
mod tests;
