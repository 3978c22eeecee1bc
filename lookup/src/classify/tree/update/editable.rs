//! Trees of one family with the account that changing them needs: branches to each leaf, and memory that is free.
//!
//! A leaf may be the target of many branches. It is changed where it lies if all of them are to see the change, else copied.
//! Blocks of leaves that are left are used again; nodes stay until trees are grown anew.

use std::ops::Range;

use super::journal::Written;
use super::leaf::Slot;
use super::order::Positions;
use super::target::{Target, Visited};
use crate::classify::budget::Budget;
use crate::classify::tree::entry::Entry;
use crate::classify::tree::forest::Forest;
use crate::classify::tree::layout::{ASK, Branch, MORE, NUMBER, Node, Octet, Shape, WIDTH, block_octets};
use crate::classify::tree::search::Order;
use crate::classify::tree::select::{Scratch, Selection};
use crate::classify::{Position, TooLarge};
use crate::memory::{MemoryError, Slab};

/// Free runs of blocks are kept by their number, up to this one; longer ones are cut.
const RUN: usize = 8;
/// In the place of a leaf's references: a node, and one that is free.
const NODE: u32 = u32::MAX;
const FREE_NODE: u32 = NODE - 1;
/// Numbers of bits that nodes may gather.
const BITS: usize = 24;
/// The end of a list of free runs; at octet 0 lies the leaf of no pattern, which is never free.
const END: u32 = 0;

/// Trees that are changed in place.
pub(super) struct Editable<S: Shape> {
    pub(super) forest: Forest<S>,
    /// Octets of a block.
    pub(super) length: usize,
    /// Octets that have been given out; there is room behind them.
    pub(super) octets: usize,
    /// Branches that have been given out, likewise.
    branches: usize,
    /// Branches to the leaf that begins at each octet; [`NODE`] at nodes.
    references: Vec<u32>,
    /// The first free run of each number of blocks; its first octet begins with the place of the next.
    free: [u32; RUN],
    /// The first free node; its octet begins with the place of the next.
    free_node: u32,
    /// The first free run of as many branches as have these bits, plus 1, or 0; the run begins with the next.
    free_branches: [u32; BITS],
    /// Octets, and counts of branches to them, that were written since the version before.
    written: Written<4>,
    /// Branches that were.
    written_branches: Written<32>,
    pub(super) workshop: Workshop<S>,
}

/// Lists that are filled anew for each change: allocating them would be most of the work.
pub(super) struct Workshop<S: Shape> {
    pub(super) targets: Vec<Target>,
    pub(super) visited: Vec<Visited<S>>,
    pub(super) slots: Vec<Slot<S>>,
    pub(super) entries: Vec<Entry<S>>,
    pub(super) scratch: Scratch,
}

impl<S: Shape> Default for Workshop<S> {
    fn default() -> Workshop<S> {
        Workshop {
            targets: Vec::new(),
            visited: Vec::new(),
            slots: Vec::new(),
            entries: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}

impl<S: Shape> Editable<S> {
    /// Takes trees as they were grown, whose numbers are in `order`.
    pub(super) fn new(forest: Forest<S>, order: Positions<'_>) -> Editable<S> {
        let (octets, branches) = (forest.octets.len(), forest.branches.len());
        let mut editable = Editable {
            length: block_octets::<S>(forest.asks_zones()),
            octets,
            branches,
            references: vec![0; octets],
            free: [END; RUN],
            free_node: END,
            free_branches: [0; BITS],
            written: Written::default(),
            written_branches: Written::default(),
            workshop: Workshop::default(),
            forest,
        };
        editable.count_references();
        editable.sweep(order);
        editable.begin_version();
        editable
    }

    /// An independent copy.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub(super) fn copy(&self) -> Result<Editable<S>, MemoryError> {
        Ok(Editable {
            forest: self.forest.copy()?,
            length: self.length,
            octets: self.octets,
            branches: self.branches,
            references: self.references.clone(),
            free: self.free,
            free_node: self.free_node,
            free_branches: self.free_branches,
            written: Written::default(),
            written_branches: Written::default(),
            workshop: Workshop::default(),
        })
    }

    /// Becomes what `newer` has become of it, by copying what was written there.
    ///
    /// # Errors
    /// The system has not that much memory; these trees are of no use any more.
    pub(super) fn follow(&mut self, newer: &Editable<S>) -> Result<(), MemoryError> {
        let (octets, branches) = (&newer.forest.octets, &newer.forest.branches);
        if self.forest.octets.len() == octets.len() {
            newer.written.each(octets.len(), |items| {
                self.forest.octets[items.clone()].copy_from_slice(&octets[items.clone()]);
                self.references[items.clone()].copy_from_slice(&newer.references[items]);
            });
        } else {
            self.forest.octets = Slab::copy_of(octets)?;
            self.references.clone_from(&newer.references);
        }
        if self.forest.branches.len() == branches.len() {
            newer.written_branches.each(branches.len(), |items| {
                self.forest.branches[items.clone()].copy_from_slice(&branches[items]);
            });
        } else {
            self.forest.branches = Slab::copy_of(branches)?;
        }
        self.forest.roots.clone_from(&newer.forest.roots);
        (self.octets, self.branches) = (newer.octets, newer.branches);
        (self.free, self.free_node, self.free_branches) = (newer.free, newer.free_node, newer.free_branches);
        self.begin_version();
        Ok(())
    }

    /// Begins a version: nothing was written since.
    fn begin_version(&mut self) {
        self.written.clear();
        self.written_branches.clear();
    }

    /// Octets that are going to be written.
    pub(super) fn octets_mut(&mut self, items: Range<usize>) -> &mut [Octet] {
        self.written.note(items.clone());
        &mut self.forest.octets[items]
    }

    /// Branches that are going to be written.
    fn branches_mut(&mut self, items: Range<usize>) -> &mut [Branch] {
        self.written_branches.note(items.clone());
        &mut self.forest.branches[items]
    }

    fn set_references(&mut self, octet: usize, references: u32) {
        self.written.note(octet..octet + 1);
        self.references[octet] = references;
    }

    /// Trees without room in them, whose leaves have positions in the place of numbers. All rules that are removed must be
    /// swept out.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub(super) fn settled(&self, order: Positions<'_>) -> Result<Forest<S>, MemoryError> {
        let from = &self.forest;
        // A node at the end is asked for as if it were a block.
        let end = (self.octets + self.length).min(from.octets.len());
        let (branches, octets) = (&from.branches[..self.branches], &from.octets[..end]);
        let mut forest = Forest::new(from.roots.clone(), branches, octets, from.asks_zones())?;
        (forest.time, forest.open) = (from.time, from.open);
        let octets = forest.octets.entries_mut();
        for leaf in self.leaves() {
            for block in self.blocks(leaf) {
                for tag in &mut octets[block + self.length - 1].0 {
                    // Where no cuboid is, there is no number.
                    if *tag & NUMBER != NUMBER {
                        *tag = *tag & !NUMBER | order.position(*tag & NUMBER) & NUMBER;
                    }
                }
            }
        }
        Ok(forest)
    }

    /// Positions of the rules that leaves ask for.
    pub(super) fn asked(&self, order: Positions<'_>) -> Vec<Position> {
        let octets = self.forest.octets.entries();
        let tags = self
            .leaves()
            .flat_map(|leaf| self.blocks(leaf).flat_map(|block| octets[block + self.length - 1].0));
        let asks = tags.filter(|tag| tag & ASK != 0 && tag & NUMBER != NUMBER);
        let mut positions: Vec<Position> = asks.map(|tag| order.position(tag & NUMBER)).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Bytes of all of it, with the room in it.
    pub(super) fn bytes(&self) -> usize {
        self.forest.bytes() + self.references.capacity() * size_of::<u32>()
    }

    /// The first octets of all leaves but that of no pattern.
    pub(super) fn leaves(&self) -> impl Iterator<Item = u32> {
        let begins = (0..).zip(&self.references[..self.octets]).skip(self.length);
        begins.filter(|(_, references)| !matches!(**references, 0 | NODE | FREE_NODE)).map(|(octet, _)| octet)
    }

    /// The first octets of a leaf's blocks.
    pub(super) fn blocks(&self, leaf: u32) -> impl Iterator<Item = usize> {
        blocks(self.forest.octets.entries(), leaf as usize, self.length)
    }

    /// The first octets of the leaves of a tree.
    pub(super) fn leaves_of(&self, tree: usize) -> Vec<u32> {
        let mut leaves = Vec::new();
        let mut left = vec![self.forest.roots[tree].branch];
        while let Some(branch) = left.pop() {
            if branch.is_node() {
                left.extend_from_slice(self.branches_of(branch));
            } else if branch != Branch::NOWHERE {
                leaves.push(branch.octet() as u32);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// The branches of a node.
    fn branches_of(&self, node: Branch) -> &[Branch] {
        let node = Node::of(&self.forest.octets[node.octet()]);
        let first = node.first as usize;
        &self.forest.branches[first..first + (1 << Selection::<S>::of_node(&node).bits())]
    }

    /// Branches to a leaf.
    pub(super) fn references(&self, leaf: u32) -> u32 {
        self.references[leaf as usize]
    }

    /// Sets a branch, of the root of `tree` or of a node.
    pub(super) fn lead(&mut self, tree: usize, target: &Target, to: Branch) {
        match target.branch() {
            Some(branch) => self.branches_mut(branch..branch + 1)[0] = to,
            None => self.forest.roots[tree].branch = to,
        }
    }

    /// Notes so many more branches to a leaf. Those to no pattern are not counted.
    pub(super) fn refer(&mut self, leaf: u32, more: u32) {
        if leaf as usize != Branch::NOWHERE.octet() {
            self.set_references(leaf as usize, self.references(leaf) + more);
        }
    }

    /// Notes so many branches less; a leaf without any is free.
    pub(super) fn leave(&mut self, leaf: u32, fewer: u32) {
        if leaf as usize == Branch::NOWHERE.octet() {
            return;
        }
        self.set_references(leaf as usize, self.references(leaf) - fewer);
        if self.references(leaf) == 0 {
            let blocks = self.blocks(leaf).count();
            self.release(leaf as usize, leaf as usize + blocks * self.length);
        }
    }

    /// Takes memory for a node with these branches.
    ///
    /// # Errors
    /// The budget has no memory for it.
    pub(super) fn add_node(
        &mut self,
        selection: &Selection<S>,
        targets: &[Branch],
        budget: &mut Budget,
    ) -> Result<Branch, TooLarge> {
        let octet = if self.free_node == END { self.octets } else { self.free_node as usize };
        self.make_room(octet + 1, budget)?;
        let free = &mut self.free_branches[selection.bits() as usize % BITS];
        let first = if let Some(first) = free.checked_sub(1) {
            *free = self.forest.branches[first as usize].octet() as u32;
            first as usize
        } else {
            let first = self.branches;
            self.make_branches(first + targets.len(), budget)?;
            self.branches = first + targets.len();
            first
        };
        if octet == self.octets {
            self.octets += 1;
        } else {
            self.free_node = self.forest.octets[octet].0[0];
        }
        self.octets_mut(octet..octet + 1)[0] = selection.node(first as u32).to_octet();
        self.branches_mut(first..first + targets.len()).copy_from_slice(targets);
        self.set_references(octet, NODE);
        Ok(Branch::node(octet as u32))
    }

    /// Leaves a node or leaf, and all that it alone leads to.
    pub(super) fn leave_all(&mut self, branch: Branch) {
        let mut left = vec![branch];
        while let Some(branch) = left.pop() {
            if !branch.is_node() {
                self.leave(branch.octet() as u32, 1);
                continue;
            }
            let branches = self.branches_of(branch);
            let bits = branches.len().ilog2() as usize % BITS;
            left.extend_from_slice(branches);
            let Node { first, .. } = Node::of(&self.forest.octets[branch.octet()]);
            let (next, octet) = (Branch::leaf(self.free_branches[bits]), branch.octet());
            self.branches_mut(first as usize..first as usize + 1)[0] = next;
            self.free_branches[bits] = first + 1;
            let next = self.free_node;
            self.octets_mut(octet..octet + 1)[0].0[0] = next;
            self.free_node = octet as u32;
            self.set_references(octet, FREE_NODE);
        }
    }

    /// Takes a run of blocks, to which nothing leads yet.
    ///
    /// # Errors
    /// The budget has no memory for them.
    pub(super) fn take(&mut self, blocks: usize, budget: &mut Budget) -> Result<u32, TooLarge> {
        for run in blocks..=RUN {
            let begin = self.free[run - 1];
            if begin != END {
                self.free[run - 1] = self.forest.octets[begin as usize].0[0];
                let end = begin as usize + run * self.length;
                self.release(begin as usize + blocks * self.length, end);
                return Ok(begin);
            }
        }
        let begin = self.octets;
        self.make_room(begin + blocks * self.length, budget)?;
        self.octets = begin + blocks * self.length;
        Ok(begin as u32)
    }

    /// Keeps octets that nothing leads to, to be used again: as many as make whole blocks.
    pub(super) fn release(&mut self, mut begin: usize, end: usize) {
        let mut blocks = (end - begin) / self.length;
        while blocks > 0 {
            let run = blocks.min(RUN);
            let next = self.free[run - 1];
            self.octets_mut(begin..begin + 1)[0].0[0] = next;
            self.free[run - 1] = begin as u32;
            begin += run * self.length;
            blocks -= run;
        }
    }

    /// Takes removed rules out of all leaves, and looks for free memory anew.
    pub(super) fn sweep(&mut self, order: Positions<'_>) {
        self.free = [END; RUN];
        let (mut at, mut free) = (self.length, self.length);
        while at < self.octets {
            let (begin, end) = match self.references[at] {
                0 => {
                    at += 1;
                    continue;
                }
                NODE | FREE_NODE => (at + 1, at + 1),
                _ => {
                    let blocks = self.blocks(at as u32).count();
                    let kept = self.purge(at as u32, blocks, order);
                    (at + kept * self.length, at + blocks * self.length)
                }
            };
            self.release(free, at);
            (free, at) = (begin, end);
        }
        self.octets = free;
    }

    fn count_references(&mut self) {
        let mut left: Vec<Branch> = self.forest.roots.iter().map(|root| root.branch).collect();
        while let Some(branch) = left.pop() {
            if branch.is_node() {
                self.references[branch.octet()] = NODE;
                left.extend_from_slice(self.branches_of(branch));
            } else if branch != Branch::NOWHERE {
                self.references[branch.octet()] += 1;
            }
        }
    }

    /// Makes room for so many octets in all.
    fn make_room(&mut self, octets: usize, budget: &mut Budget) -> Result<(), TooLarge> {
        if octets > self.references.len() {
            let had = &self.forest.octets[..self.octets];
            let grown = grown(had, [octets + self.octets / 2, octets + octets / 64], budget)?;
            let more = grown.len() - self.references.len();
            budget.make_room(&mut self.references, more).inspect_err(|_| budget.give_back(grown.bytes()))?;
            budget.give_back(self.forest.octets.bytes());
            self.references.resize(grown.len(), 0);
            self.forest.octets = grown;
        }
        Ok(())
    }

    /// Makes room for so many branches in all.
    fn make_branches(&mut self, branches: usize, budget: &mut Budget) -> Result<(), TooLarge> {
        if branches > self.forest.branches.len() {
            let had = &self.forest.branches[..self.branches];
            let grown = grown(had, [branches + self.branches / 2, branches + branches / 64], budget)?;
            budget.give_back(self.forest.branches.bytes());
            self.forest.branches = grown;
        }
        Ok(())
    }
}

/// The first octets of a leaf's blocks, each of `length` octets.
pub(super) fn blocks(octets: &[Octet], leaf: usize, length: usize) -> impl Iterator<Item = usize> {
    let next = move |block: &usize| {
        let has_more = octets[block + length - 1].0[WIDTH - 1] & MORE != 0;
        has_more.then_some(block + length)
    };
    std::iter::successors(Some(leaf), next)
}

/// A larger copy of a list, of the first of these lengths that the budget has memory for.
fn grown<T: bytemuck::Pod>(
    list: &[T],
    lengths: [usize; 2],
    budget: &mut Budget,
) -> Result<Slab<T>, TooLarge> {
    let take = |length: usize, budget: &mut Budget| budget.take(length * size_of::<T>()).map(|()| length);
    let length = take(lengths[0], budget).or_else(|_| take(lengths[1], budget))?;
    let mut slab = Slab::new(length).map_err(|error| {
        budget.give_back(length * size_of::<T>());
        TooLarge { needed: error.bytes, bound: budget.bounds().memory }
    })?;
    slab[..list.len()].copy_from_slice(list);
    Ok(slab)
}

impl Octet {
    /// Inserts a value at a place, and returns what is moved out at the end.
    pub(super) fn insert(&mut self, place: usize, value: u32) -> u32 {
        let last = self.0[WIDTH - 1];
        self.0.copy_within(place..WIDTH - 1, place + 1);
        self.0[place] = value;
        last
    }
}
