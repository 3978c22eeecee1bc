//! Decision trees for look-up speed.
//!
//! Patterns are cut into cuboids of the header space. A node gathers some bits of a header, from wherever they tell the
//! cuboids apart best, into the number of a branch; a leaf compares a header with eight cuboids at a time. Cuboids
//! that leave most of the chosen bits open would be copied into most branches: they are left to another tree.
//! A node or two and one block of comparisons are a usual search (docs/decisions/0017).

use tally::Tally;
use wire::Family;

use self::account::Account;
use self::build::Growth;
use self::entry::{Entry, of_pattern};
use self::forest::Forest;
use self::kernel::{Kernel, Plain};
use self::layout::{POSITION, Shape, V4, V6};
use self::search::{AT_ONCE, Visit};
use self::select::Scratch;
#[cfg(target_arch = "x86_64")]
use super::simd_tree::Avx2;
use super::{Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};

mod account;
mod build;
mod entry;
mod forest;
pub(super) mod kernel;
pub(super) mod layout;
mod search;
mod select;
mod weigh;

/// Trees over patterns.
pub struct Tree {
    v4: Forest<V4>,
    v6: Forest<V6>,
    /// Patterns that some cuboid says only a part of, by position.
    asked: Vec<(Position, Pattern)>,
    /// Bytes of these.
    asked_bytes: usize,
    /// The processor has the instructions of the fast kernel.
    #[cfg(target_arch = "x86_64")]
    fast: Option<Avx2>,
}

impl Tree {
    /// # Errors
    /// No trees of these patterns keep within the bounds.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<Tree, TooLarge> {
        if patterns.len() >= POSITION as usize {
            return Err(TooLarge { needed: usize::MAX, bound: bounds.memory });
        }
        let v4 = entries::<V4>(patterns, bounds)?;
        let v6 = entries::<V6>(patterns, bounds)?;
        let mut asked: Vec<Position> =
            v4.iter().filter_map(Entry::asks).chain(v6.iter().filter_map(Entry::asks)).collect();
        asked.sort_unstable();
        asked.dedup();
        let bytes = |position: &Position| size_of::<Position>() + patterns[*position as usize].bytes();
        let asked_bytes = asked.iter().map(bytes).sum();
        bounds.admit(asked_bytes)?;
        let v4 = grow(&v4, Bounds { memory: bounds.memory - asked_bytes })?;
        let v6 = grow(&v6, Bounds { memory: bounds.memory.saturating_sub(asked_bytes + v4.bytes()) })?;
        let pattern = |position: Position| (position, patterns[position as usize].clone());
        Ok(Tree {
            v4,
            v6,
            asked: asked.into_iter().map(pattern).collect(),
            asked_bytes,
            #[cfg(target_arch = "x86_64")]
            fast: Avx2::found(),
        })
    }

    #[cold]
    fn matches(&self, header: &Header, position: Position) -> bool {
        let found = self.asked.binary_search_by_key(&position, |(position, _)| *position);
        found.is_ok_and(|at| self.asked[at].1.matches(header))
    }

    #[inline(always)]
    fn find_all<K: Kernel>(&self, kernel: K, headers: &[Header], positions: &mut [Position]) {
        let matches = |header: &Header, position| self.matches(header, position);
        for (headers, positions) in headers.chunks(AT_ONCE).zip(positions.chunks_mut(AT_ONCE)) {
            if headers.iter().all(|header| header.family == Family::V4) {
                positions.copy_from_slice(&self.v4.find_all(kernel, headers, matches)[..headers.len()]);
            } else {
                positions.fill(NO_MATCH);
                self.find_some(kernel, &self.v4, headers, positions);
                self.find_some(kernel, &self.v6, headers, positions);
            }
        }
    }

    /// Finds the first match of those headers that are of the trees' family.
    #[inline(always)]
    fn find_some<K: Kernel, S: Shape>(
        &self,
        kernel: K,
        forest: &Forest<S>,
        headers: &[Header],
        positions: &mut [Position],
    ) {
        let mut own = [Header::default(); AT_ONCE];
        let mut places = [0; AT_ONCE];
        let mut count = 0;
        for (place, header) in headers.iter().enumerate().filter(|(_, header)| header.family == S::FAMILY) {
            (own[count], places[count]) = (*header, place);
            count += 1;
        }
        if count == 0 {
            return;
        }
        let found = forest.find_all(kernel, &own[..count], |header, position| self.matches(header, position));
        for (place, found) in places[..count].iter().zip(found) {
            positions[*place] = found;
        }
    }

    #[inline(always)]
    fn find<K: Kernel>(&self, kernel: K, header: &Header, visit: impl FnMut(Visit)) -> Option<Position> {
        let matches = |position| self.matches(header, position);
        let found = match header.family {
            Family::V4 => self.v4.find(kernel, &V4::key::<true>(header), matches, visit),
            Family::V6 => self.v6.find(kernel, &V6::key::<true>(header), matches, visit),
            Family::Other => NO_MATCH,
        };
        (found != NO_MATCH).then_some(found)
    }
}

/// The cuboids of one family.
fn entries<S: Shape>(patterns: &[Pattern], bounds: Bounds) -> Result<Vec<Entry<S>>, TooLarge> {
    let mut entries = Vec::new();
    for (position, pattern) in patterns.iter().enumerate() {
        of_pattern::<S>(pattern, position as Position, &mut entries);
        bounds.admit(size_of_val(entries.as_slice()))?;
    }
    Ok(entries)
}

/// The fastest trees of one family that keep within the bounds.
fn grow<S: Shape>(entries: &[Entry<S>], bounds: Bounds) -> Result<Forest<S>, TooLarge> {
    // How open a cuboid may be that stays in a tree has no value that suits all patterns: some are tried.
    let tried: &[u32] = if entries.len() > MANY { &[4, 6, 8] } else { &[2, 4, 6, 7, 8, 10, 12] };
    let worth = Bounds { memory: bounds.memory.min(WORTH * entries.len() + NEAR) };
    let work = work(entries.len());
    let mut scratch = Scratch::default();
    let mut best: Option<(f32, Forest<S>)> = None;
    let mut worse = 0;
    for open in tried {
        let growth = Growth { open: *open, trees: TREES, work, lean: worth.memory / 2 };
        let time = build::grow(entries, growth, worth, &mut scratch).map_or(f32::INFINITY, |forest| {
            let time = weigh::weigh(&forest, entries);
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
        // Longer lists at the leaves take less memory.
        None => {
            let growth = Growth { open: 2, trees: 2 * TREES, work, lean: bounds.memory / 4 };
            build::grow(entries, growth, bounds, &mut scratch)
        }
    }
}

/// Returns the limit on the work of growing trees of so many cuboids, in cuboids looked at.
fn work(cuboids: usize) -> usize {
    EACH * cuboids + ANYWAY
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
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = self.fast {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find(kernel, header, |_| ()),
            );
        }
        self.find(Plain, header, |_| ())
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = self.fast {
            return kernel.run(
                #[inline(always)]
                |kernel| self.find_all(kernel, headers, positions),
            );
        }
        self.find_all(Plain, headers, positions);
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        let mut account = Account::new(tally);
        match header.family {
            Family::V4 => self.find(Plain, header, |visit| account.add(&self.v4, 0, visit)),
            Family::V6 => self.find(Plain, header, |visit| account.add(&self.v6, self.v4.bytes(), visit)),
            Family::Other => None,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes() + self.asked_bytes
    }

    fn region_bytes(&self) -> u64 {
        (self.v4.bytes() + self.v6.bytes()) as u64
    }

    fn program(&self) -> u32 {
        account::program(&self.v4) + account::program(&self.v6)
    }
}

#[cfg(test)]
mod tests;
