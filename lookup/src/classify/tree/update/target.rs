//! Branches that lead a cuboid's headers to leaves.

use super::editable::Editable;
use crate::classify::tree::entry::{Entry, Fixed};
use crate::classify::tree::layout::{Branch, Kind, Node, Shape};
use crate::classify::tree::select::Selection;

/// A branch to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The leaf's first octet.
    pub(super) leaf: u32,
    /// Place of the node among those visited; [`ROOT`] where the tree is nothing but a leaf.
    node: u32,
    /// Number of the branch among those of the node.
    cell: u32,
    /// Number of the branch among all.
    branch: u32,
}

const ROOT: u32 = u32::MAX;

/// A node that was visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visited<S: Shape> {
    selection: Selection<S>,
    known: Fixed<S::Key>,
}

/// There are more branches than were to be looked for.
pub(super) struct TooMany;

impl Target {
    /// Number of the branch among all; `None` for the root of a tree.
    pub(super) fn branch(&self) -> Option<usize> {
        (self.node != ROOT).then_some(self.branch as usize)
    }

    /// Bits that are known of headers that come this way.
    pub(super) fn known<S: Shape>(&self, visited: &[Visited<S>]) -> Fixed<S::Key> {
        match visited.get(self.node as usize) {
            Some(Visited { selection, known }) => selection.within(known, self.cell as usize),
            None => nothing::<S>(),
        }
    }
}

fn nothing<S: Shape>() -> Fixed<S::Key> {
    Fixed { mask: S::Key::default(), value: S::Key::default() }
}

impl<S: Shape> Editable<S> {
    /// Number of bits that the root of a tree gathers.
    pub(super) fn root_bits(&self, tree: usize) -> u32 {
        let root = self.forest.roots[tree].branch;
        let bits = |node: &Node| Selection::<S>::of_node(node).bits();
        if root.is_node() { bits(&Node::of(&self.forest.octets[root.octet()])) } else { 0 }
    }

    /// Number of the bits gathered by a tree's root that a cuboid leaves open.
    pub(super) fn root_open(&self, tree: usize, entry: &Entry<S>) -> u32 {
        let root = self.forest.roots[tree].branch;
        if !root.is_node() {
            return 0;
        }
        let selection = Selection::<S>::of_node(&Node::of(&self.forest.octets[root.octet()]));
        entry.fixed(&nothing::<S>()).map_or(0, |fixed| selection.open(&fixed))
    }

    /// Finds the branches of a tree that lead headers of a cuboid to leaves, `most` of them; puts them into `workshop.targets`.
    ///
    /// # Errors
    /// There are more.
    pub(super) fn find_targets(&mut self, tree: usize, entry: &Entry<S>, most: usize) -> Result<(), TooMany> {
        let root = self.forest.roots[tree].branch;
        let (targets, visited) = (&mut self.workshop.targets, &mut self.workshop.visited);
        targets.clear();
        visited.clear();
        if !root.is_node() {
            targets.push(Target { leaf: root.octet() as u32, node: ROOT, cell: 0, branch: 0 });
            return Ok(());
        }
        // Of a prefix, the first bits tell all.
        let has_range = S::SLICES.iter().filter(|slice| slice.kind == Kind::Range).any(|slice| {
            let (low, span) =
                (slice.of(entry.low.as_ref()[slice.lane]), slice.of(entry.span.as_ref()[slice.lane]));
            span & span.wrapping_add(1) != 0 || low & span != 0
        });
        let (branches, octets) = (self.forest.branches.entries(), self.forest.octets.entries());
        let mut left: Vec<(Branch, Fixed<S::Key>)> = vec![(root, nothing::<S>())];
        while let Some((branch, known)) = left.pop() {
            let Some(fixed) = entry.fixed(&known) else { continue };
            let node = Node::of(&octets[branch.octet()]);
            let selection = Selection::<S>::of_node(&node);
            if targets.len() + left.len() + (1 << selection.open(&fixed)) > most {
                return Err(TooMany);
            }
            let number = visited.len() as u32;
            visited.push(Visited { selection, known });
            selection.each_cell(&fixed, |cell| {
                let branch = node.first as usize + cell;
                let to = branches[branch];
                if to.is_node() {
                    left.push((to, selection.within(&known, cell)));
                } else if !has_range || entry.fixed(&selection.within(&known, cell)).is_some() {
                    let (leaf, cell, branch) = (to.octet() as u32, cell as u32, branch as u32);
                    targets.push(Target { leaf, node: number, cell, branch });
                }
            });
        }
        Ok(())
    }
}
