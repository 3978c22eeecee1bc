//! Size of the program that schedules and shapes, in an engine's control store: routines that the trees of a policy need.
//!
//! Each number is the sum of what the routine tallies; `dataplane/tests/program.rs` compares.

use policy::model::{Dropper, MeterScope};

use crate::tables::{NodeKind, QueueNode, QueueTrees};

/// Condition on which a node needs a routine.
type Needs = fn(&QueueNode) -> bool;

/// Instructions of the program for these trees; 0 without any.
pub(crate) fn size(trees: &QueueTrees) -> u32 {
    let routines: [(Needs, u32); 7] = [
        (|_| true, SCHEDULER),
        (|node| node.rate.is_some() || node.guarantee.is_some(), SHAPER),
        (|node| node.guarantee.is_some(), GUARANTEE),
        (|node| node.kind == NodeKind::Wfq, FAIR),
        (|node| node.per != MeterScope::All, INSTANCE),
        (is_managed, DROPPER),
        (is_divided, DIVIDED),
    ];
    let nodes = || trees.on.iter().chain(&trees.from).flatten().flat_map(|tree| &tree.nodes);
    routines.into_iter().filter(|(needs, _)| nodes().any(needs)).map(|(_, size)| size).sum()
}

fn is_managed(node: &QueueNode) -> bool {
    matches!(&node.kind, NodeKind::Leaf(leaf) if leaf.drop != Dropper::Tail || leaf.is_divided())
}

fn is_divided(node: &QueueNode) -> bool {
    matches!(&node.kind, NodeKind::Leaf(leaf) if leaf.is_divided())
}

/// Arrival and the line of arrivals, 18; the next event, 6; admission, 23; descent to a leaf, 9, and its head, 22; the way back up,
/// 10, and the end of a turn, 10; activation, 15.
const SCHEDULER: u32 = 113;

/// Charge of a shaper, 34; its timer set, 23, and passed, 23.
const SHAPER: u32 = 80;

/// Timer of a guarantee, set and passed, 46; the first child within its own is found as the first of others.
const GUARANTEE: u32 = 46;

/// Heap of start tags: out and in.
const FAIR: u32 = 40;

/// Hash of a subscriber, 1; slot, comparison of 16 bytes, and place, 29.
const INSTANCE: u32 = 30;

/// State of a queue's management at arrival, 32, and at departure, 22.
const DROPPER: u32 = 54;

/// Hash of a flow, 1; its turn, 12; the longest flow, in a loop of 2.
const DIVIDED: u32 = 15;
