//! Estimate of the time of a search, from the nodes and leaves that it visits.

use wire::random::Random;

use super::entry::Entry;
use super::forest::Forest;
use super::kernel::Plain;
use super::layout::{Kind, Shape};
use super::search::{Order, Visit};

/// Headers that are searched for an estimate.
const SAMPLES: usize = 1024;

/// Nanoseconds that each tree took, each block of a leaf past the first, and each node, on a processor of 2023 (many searches
/// under way at a time, all in caches that are the core's own). Only their proportions count.
const TREE: f32 = 10.5;
const BLOCK: f32 = 4.0;
const NODE: f32 = 2.8;
/// Bytes of a core's private caches, and nanoseconds that a visit takes more with each doubling of the trees' size.
const NEAR: f32 = 2.0 * 1024.0 * 1024.0;
const FAR: f32 = 0.7;

/// Returns the average time of a search, in nanoseconds, for headers that each match some cuboid: good to select the
/// fastest of several forests.
pub(super) fn weigh<S: Shape>(forest: &Forest<S>, order: impl Order, entries: &[Entry<S>]) -> f32 {
    let step = entries.len().div_ceil(SAMPLES).max(1);
    let mut random = Random::new(1);
    let (mut nodes, mut blocks, mut trees, mut searches) = (0u32, 0u32, 0u32, 0u32);
    for entry in entries.iter().step_by(step) {
        let key = inside(entry, &mut random);
        searches += 1;
        forest.find(
            Plain,
            order,
            &key,
            |_| true,
            |visit| match visit {
                Visit::Tree => trees += 1,
                Visit::Node { .. } => nodes += 1,
                Visit::Block { .. } => blocks += 1,
                Visit::Hit { .. } => {}
            },
        );
    }
    let of_one = |count: u32| count as f32 / searches.max(1) as f32;
    let [nodes, blocks, trees] = [nodes, blocks, trees].map(of_one);
    let far = FAR * (forest.bytes() as f32 / NEAR).log2().max(0.0);
    trees * TREE + (blocks - trees) * BLOCK + nodes * NODE + (nodes + blocks) * far
}

/// The words of a header that lies in a cuboid.
fn inside<S: Shape>(entry: &Entry<S>, random: &mut Random) -> S::Key {
    let mut key = S::Key::default();
    for slice in S::SLICES {
        let low = slice.of(entry.low.as_ref()[slice.lane]);
        let span = slice.of(entry.span.as_ref()[slice.lane]);
        let value = match slice.kind {
            Kind::Range => low + random.below(u64::from(span) + 1) as u32,
            Kind::Bits => span | random.next_u64() as u32 & !low & slice.highest(),
        };
        key.as_mut()[slice.word()] |= u64::from(value) << slice.shift_in_word();
    }
    key
}
