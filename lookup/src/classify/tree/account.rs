//! Cost of a search on an engine, which compares one cuboid after the other.

use tally::{Branch, Op, Region, Tally};

use super::forest::Forest;
use super::layout::{Node, Octet, Shape, WIDTH, lanes};
use super::search::{Order, Visit};

/// Instructions for a tree, without branches: its first position compared with the position found, and its root taken.
const TREE: u32 = 3;

/// Instructions for a node, without branches and the gathering: two words of the header taken, 4; the two parts put
/// together and added to the first branch, 3; the branch taken apart, 2.
const NODE: u32 = 9;

/// Instructions for each run of adjacent bits in a node's mask: shifted, masked, put to the others.
const RUN: u32 = 3;

/// Instructions for a block: its place, and the test for another block.
const BLOCK: u32 = 4;

/// Instructions for a cuboid. Of each lane with addresses: the lowest taken away and compared with the span, 2; of that
/// with ports: both halves of three words taken out, taken away and compared, 10; of the others: masked and compared, 2;
/// and 6 for the next: its lanes' place, and whether one differed.
const fn compare<S: Shape>(zones: bool) -> u32 {
    let others = (lanes::<S>(zones) - S::PORTS - 1) as u32;
    2 * S::PORTS as u32 + 10 + 2 * others + 6
}

/// Instructions for the position of a rule's number in trees that have changed: chunk and offset taken apart, 2; both places,
/// 2; start of the chunk and offset added, 1; the test for a removed rule, 1.
pub(super) const MAP: u32 = 6;

/// Bytes that are read of a node.
const NODE_BYTES: u32 = 24;

/// Tells a search to a tally.
pub(super) struct Account<'a> {
    tally: &'a mut dyn Tally,
}

impl<'a> Account<'a> {
    pub(super) fn new(tally: &'a mut dyn Tally) -> Account<'a> {
        Account { tally }
    }

    /// One step in trees that begin at this place of the region; the map from numbers to positions begins at `map`.
    pub(super) fn add<S: Shape, O: Order>(
        &mut self,
        forest: &Forest<S>,
        begin: usize,
        map: usize,
        visit: Visit,
    ) {
        let tally = &mut *self.tally;
        let octet = |number: usize| begin + number * size_of::<Octet>();
        match visit {
            Visit::Tree => {
                tally.instructions(TREE);
                tally.execute(Op::Branch, 1);
            }
            Visit::Node { node, octet: number, branch } => {
                tally.read(Region::RuleTable, octet(number), NODE_BYTES);
                tally.instructions(NODE + RUN * runs(&node));
                tally.read(Region::RuleTable, begin + forest.octets.bytes() + 4 * branch, 4);
                tally.branch(Branch::Taken);
            }
            Visit::Block { block, compared } => {
                let lanes = lanes::<S>(forest.asks_zones());
                tally.instructions(BLOCK);
                for place in 0..compared {
                    // As an engine would have them, a cuboid's lanes side by side.
                    tally.read(Region::RuleTable, octet(block) + 8 * lanes * place, 8 * lanes as u32);
                    tally.instructions(compare::<S>(forest.asks_zones()));
                    tally.execute(Op::Branch, lanes as u32 + 1);
                }
                // The rule's number, or that there is another block.
                tally.read(Region::RuleTable, octet(block) + 8 * lanes * WIDTH, 4);
                tally.branch(Branch::Taken);
            }
            Visit::Hit { number } if O::HAS_MAP => {
                tally.instructions(MAP);
                tally.execute(Op::Branch, 1);
                // The place of the number, and the start of its chunk, which lies in front.
                tally.read(Region::RuleTable, map + 4 * number as usize, 4);
                tally.read(Region::RuleTable, map, 4);
            }
            Visit::Hit { .. } => {}
        }
    }
}

/// Returns the number of runs of ones in the masks of a node.
fn runs(node: &Node) -> u32 {
    node.masks.iter().map(|mask| (mask & !(mask << 1)).count_ones()).sum()
}

/// Instructions in the store of an engine; 0 where there is nothing to search.
pub(super) fn program<S: Shape>(forest: &Forest<S>) -> u32 {
    if forest.roots.is_empty() {
        return 0;
    }
    // Runs are gathered in a loop: a word with shift and mask each, 4 with its branch; the branches of the others.
    TREE + NODE + RUN + 4 + BLOCK + compare::<S>(forest.asks_zones()) + 8
}
