//! Insertion of a cuboid: into the tree that growing would leave it to, whose long leaves are divided.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::editable::Editable;
use super::leaf::{Seen, Slot};
use super::order::Positions;
use super::target::Target;
use crate::classify::budget::Budget;
use crate::classify::tree::entry::{Entry, Fixed};
use crate::classify::tree::forest::{self, Root};
use crate::classify::tree::layout::{Branch, Shape, WIDTH};
use crate::classify::tree::search::Order;
use crate::classify::tree::select::{Member, Selection, select};
use crate::classify::{Position, TooLarge};

/// Branches by which a cuboid's headers may go in a tree that is good for it, besides leaving no more bits open than those that the tree
/// was grown of. Of several such trees, the cuboid comes into that which gathers the most bits: it divides headers best.
const SPREAD: usize = 2048;
/// Trees up to which another one is begun, where none is good for a cuboid: its nodes gather bits that tell such cuboids apart.
const TREES: usize = 6;
/// Cuboids that come into a tree before it is grown anew by itself, at least.
pub(super) const ROOM: u32 = 32;
/// Cuboids that a leaf may have before it is divided.
const LONG: usize = 2 * WIDTH;
/// Branches that may lead to a leaf that is divided: each gets a node of its own.
const SHARED: usize = 4;

impl<S: Shape> Editable<S> {
    /// Puts a cuboid into leaves, for the headers of a part of it.
    ///
    /// # Errors
    /// The budget has no memory for it; some leaves may have it.
    pub(super) fn insert(
        &mut self,
        entry: &Entry<S>,
        part: &Entry<S>,
        order: Positions<'_>,
        budget: &mut Budget,
    ) -> Result<(), TooLarge> {
        let entry = self.narrowed(entry);
        let tree = self.choose(&self.narrowed(part));
        let mut targets = std::mem::take(&mut self.workshop.targets);
        targets.sort_unstable_by_key(|target| target.leaf);
        let slot = Slot::of(&entry);
        let mut groups = targets.chunk_by(|one, other| one.leaf == other.leaf);
        let done = groups.try_for_each(|group| self.put_for(tree, group, &slot, order, budget));
        self.workshop.targets = targets;
        let root = &mut self.forest.roots[tree];
        root.first = root.first.min(order.position(entry.position));
        if root.room != forest::ROOM {
            root.room = root.room.saturating_sub(1);
            if root.room == 0 {
                self.renew(tree, order, budget);
            }
        }
        if !self.forest.roots.is_sorted_by_key(|root| root.first) {
            self.forest.roots.sort_by_key(|root| root.first);
        }
        done
    }

    /// Moves first positions on, for a rule that comes at `position`.
    pub(super) fn make_place(&mut self, position: Position) {
        for root in &mut self.forest.roots {
            root.first += Position::from(root.first >= position && root.first != Position::MAX);
        }
    }

    /// Moves first positions back, for a rule that goes. That of its own tree is then one that no rule there is before.
    pub(super) fn close_place(&mut self, position: Position) {
        for root in &mut self.forest.roots {
            root.first -= Position::from(root.first > position && root.first != Position::MAX);
        }
    }

    /// Chooses the tree for a cuboid; the branches by which its headers go there are in `workshop.targets` then.
    fn choose(&mut self, entry: &Entry<S>) -> usize {
        let mut trees: Vec<usize> = (0..self.forest.roots.len()).collect();
        trees.sort_by_key(|tree| Reverse(self.root_bits(*tree)));
        for tree in &trees {
            let is_like = self.root_open(*tree, entry) <= self.forest.roots[*tree].open;
            if is_like && self.find_targets(*tree, entry, SPREAD).is_ok() {
                return *tree;
            }
        }
        let tree = if trees.len() < TREES {
            self.forest.roots.push(Root {
                branch: Branch::NOWHERE,
                first: Position::MAX,
                room: ROOM,
                open: u32::MAX,
            });
            trees.len()
        } else {
            let fewest = trees.into_iter().min_by_key(|tree| self.root_open(*tree, entry));
            fewest.unwrap_or_default()
        };
        // Never too many for all that there are.
        let _ = self.find_targets(tree, entry, usize::MAX);
        tree
    }

    /// Puts a cuboid into a leaf for those that come by these branches.
    fn put_for(
        &mut self,
        tree: usize,
        group: &[Target],
        slot: &Slot<S>,
        order: Positions<'_>,
        budget: &mut Budget,
    ) -> Result<(), TooLarge> {
        let Some(Target { leaf, .. }) = group.first().copied() else { return Ok(()) };
        let is_nowhere = leaf as usize == Branch::NOWHERE.octet();
        let by_all = !is_nowhere && self.references(leaf) as usize == group.len();
        let put = if is_nowhere {
            self.add_leaf(std::slice::from_ref(slot), budget)?
        } else {
            self.put(leaf, slot, if by_all { Seen::ByAll } else { Seen::BySome }, order, budget)?
        };
        if put != leaf {
            let count = group.len() as u32;
            self.refer(put, count);
            for target in group {
                self.lead(tree, target, Branch::leaf(put));
            }
            self.leave(leaf, count);
        }
        if group.len() <= SHARED && self.references(put) as usize == group.len() {
            self.divide(tree, group, put, order, budget);
        }
        Ok(())
    }

    /// Divides a leaf that has become long, if bits tell its cuboids apart and there is memory.
    fn divide(
        &mut self,
        tree: usize,
        group: &[Target],
        leaf: u32,
        order: Positions<'_>,
        budget: &mut Budget,
    ) {
        let mut slots = std::mem::take(&mut self.workshop.slots);
        // Twice as long as when it was looked at last: not each time.
        let blocks = self.blocks(leaf).count();
        if blocks > LONG / WIDTH && (blocks - 1).is_power_of_two() {
            self.read(leaf, order, &mut slots);
            if slots.len() % WIDTH == 1 {
                for target in group {
                    let known = target.known(&self.workshop.visited);
                    let Some(node) = self.node(&slots, &known, budget) else { break };
                    self.lead(tree, target, node);
                    self.leave(leaf, 1);
                }
            }
        }
        self.workshop.slots = slots;
    }

    /// A node for cuboids, where some bits are known.
    fn node(&mut self, slots: &[Slot<S>], known: &Fixed<S::Key>, budget: &mut Budget) -> Option<Branch> {
        let numbered = (0..).zip(slots);
        let members: Vec<Member<S>> = numbered
            .filter_map(|(number, slot)| Some(Member { entry: number, fixed: slot.entry().fixed(known)? }))
            .collect();
        if members.len() <= WIDTH {
            return None;
        }
        let selection: Selection<S> = select(&members, known, u32::MAX, &mut self.workshop.scratch)?;
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); 1 << selection.bits()];
        for member in &members {
            selection.each_cell(&member.fixed, |cell| lists[cell].push(member.entry));
        }
        if lists.iter().any(|list| list.len() == members.len()) {
            return None;
        }
        let mut leaves: HashMap<&[u32], u32> = HashMap::new();
        let mut branches = Vec::with_capacity(lists.len());
        for list in &lists {
            let leaf = match leaves.get(list.as_slice()) {
                Some(leaf) => *leaf,
                None => {
                    let own: Vec<Slot<S>> = list.iter().map(|number| slots[*number as usize]).collect();
                    let leaf = self.add_leaf(&own, budget).ok()?;
                    leaves.insert(list, leaf);
                    leaf
                }
            };
            branches.push(Branch::leaf(leaf));
        }
        let node = self.add_node(&selection, &branches, budget).ok()?;
        // What has no reference is swept up, where there was no memory for all.
        for branch in branches {
            self.refer(branch.octet() as u32, 1);
        }
        Some(node)
    }
}
