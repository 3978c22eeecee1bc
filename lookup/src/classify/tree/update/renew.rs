//! One tree grown anew by itself, in the place of the one that it has become.

use std::collections::{HashMap, HashSet};

use super::editable::{Editable, blocks};
use super::insert::ROOM;
use super::leaf::Slot;
use super::order::Positions;
use crate::classify::budget::Budget;
use crate::classify::tree::build::{self, Covered, Growth};
use crate::classify::tree::entry::Entry;
use crate::classify::tree::forest::Forest;
use crate::classify::tree::layout::{Branch, Node, Shape};
use crate::classify::tree::search::Order;
use crate::classify::tree::select::Selection;
use crate::classify::tree::{work, worth};
use crate::classify::{Bounds, Position};

impl<S: Shape> Editable<S> {
    /// Grows a tree anew by itself, for what has come into it since it was grown: its nodes were made for few cuboids. It
    /// stays as it is where there is no memory for another one.
    pub(super) fn renew(&mut self, tree: usize, order: Positions<'_>, budget: &mut Budget) {
        let mut slots: HashSet<Slot<S>> = HashSet::new();
        let mut listed = Vec::new();
        for leaf in self.leaves_of(tree) {
            self.read(leaf, order, &mut listed);
            slots.extend(listed.iter());
        }
        let mut entries: Vec<Entry<S>> = slots.iter().map(Slot::entry).collect();
        // Cuboids of one rule have an order, too: copies of these trees are to come to the same.
        entries.sort_by_key(|entry| (order.position(entry.position), entry.low, entry.span));
        let count = entries.len();
        self.forest.roots[tree].room = ROOM + 2 * count as u32;
        let growth = Growth {
            open: u32::MAX,
            trees: 1,
            work: work(count),
            lean: worth(count),
            covered: Covered::Listed,
        };
        let bounds = Bounds { memory: budget.left() };
        let grown = build::grow(&entries, growth, bounds, &mut self.workshop.scratch);
        let Ok(grown) = grown else { return };
        let root = grown.roots.first().map_or(Branch::NOWHERE, |root| root.branch);
        if grown.asks_zones() != self.forest.asks_zones() {
            return;
        }
        let Some(branch) = self.transplant(&grown, root, &mut HashMap::new(), budget) else { return };
        if !branch.is_node() {
            self.refer(branch.octet() as u32, 1);
        }
        let old = std::mem::replace(&mut self.forest.roots[tree].branch, branch);
        self.leave_all(old);
        self.forest.roots[tree].first =
            entries.first().map_or(Position::MAX, |first| order.position(first.position));
    }

    /// A copy of a node or leaf of other trees, and of all that it leads to. `None` where there is no memory.
    fn transplant(
        &mut self,
        from: &Forest<S>,
        branch: Branch,
        leaves: &mut HashMap<usize, Branch>,
        budget: &mut Budget,
    ) -> Option<Branch> {
        if branch == Branch::NOWHERE {
            return Some(branch);
        }
        if branch.is_node() {
            let node = Node::of(&from.octets[branch.octet()]);
            let selection = Selection::<S>::of_node(&node);
            let first = node.first as usize;
            let mut branches = Vec::with_capacity(1 << selection.bits());
            for branch in &from.branches[first..first + (1 << selection.bits())] {
                branches.push(self.transplant(from, *branch, leaves, budget)?);
            }
            let node = self.add_node(&selection, &branches, budget).ok()?;
            branches
                .iter()
                .filter(|branch| !branch.is_node())
                .for_each(|leaf| self.refer(leaf.octet() as u32, 1));
            return Some(node);
        }
        if let Some(leaf) = leaves.get(&branch.octet()) {
            return Some(*leaf);
        }
        let blocks = blocks(&from.octets, branch.octet(), self.length).count();
        let leaf = self.take(blocks, budget).ok()?;
        let octets = &from.octets[branch.octet()..branch.octet() + blocks * self.length];
        self.octets_mut(leaf as usize..leaf as usize + octets.len()).copy_from_slice(octets);
        leaves.insert(branch.octet(), Branch::leaf(leaf));
        Some(Branch::leaf(leaf))
    }
}
