//! Searching the trees: one header, or many at a time.
//!
//! Of many, each step is made for all before the next: the memory that the next step needs is asked for meanwhile.

use super::build::{Forest, Root};
use super::layout::{ASK, Branch, MORE, Node, POSITION, Shape, WIDTH, lane};
use crate::classify::simd_tree::Kernel;
use crate::classify::{Header, NO_MATCH, Position};

/// Headers whose search is under way at a time.
pub(super) const AT_ONCE: usize = 32;

/// Places of headers among [`AT_ONCE`].
#[derive(Clone, Copy)]
pub(super) struct Places {
    places: [u8; AT_ONCE],
    count: usize,
}

impl Places {
    /// None.
    pub(super) const NONE: Places = Places { places: [0; AT_ONCE], count: 0 };

    /// Adds a place, if it is wanted; without a branch, which no processor could foretell.
    #[inline(always)]
    pub(super) fn add_if(&mut self, place: usize, wanted: bool) {
        if let Some(next) = self.places.get_mut(self.count) {
            *next = place as u8;
            self.count += usize::from(wanted);
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.places[..self.count.min(AT_ONCE)].iter().map(|place| usize::from(*place) % AT_ONCE)
    }
}

impl<S: Shape> Forest<S> {
    /// The first match of those of `headers`, [`AT_ONCE`] at most, that `places` names; all are of the family. `matches`
    /// says whether a header matches the pattern of a position.
    #[inline(always)]
    pub(super) fn find_all<K: Kernel>(
        &self,
        kernel: K,
        headers: &[Header],
        places: &Places,
        positions: &mut [Position; AT_ONCE],
        matches: impl Fn(&Header, Position) -> bool + Copy,
    ) {
        let mut keys = [S::Key::default(); AT_ONCE];
        for place in places.iter() {
            if let Some(header) = headers.get(place) {
                keys[place] = S::key(header);
            }
        }
        for root in &self.roots {
            let mut branches = [root.branch; AT_ONCE];
            // What an earlier tree has found cannot be bettered by one that begins later.
            let mut searched = Places::NONE;
            for place in places.iter() {
                searched.add_if(place, positions[place] > root.first);
            }
            if root.branch.is_node() {
                self.descend(kernel, &keys, searched, &mut branches);
            }
            for place in searched.iter() {
                let found = self.find_in_leaf(kernel, branches[place], &keys[place], |position| {
                    headers.get(place).is_some_and(|header| matches(header, position))
                });
                positions[place] = positions[place].min(found);
            }
        }
    }

    /// Follows the branches from nodes to leaves.
    #[inline(always)]
    fn descend<K: Kernel>(
        &self,
        kernel: K,
        keys: &[S::Key; AT_ONCE],
        mut at_nodes: Places,
        branches: &mut [Branch; AT_ONCE],
    ) {
        let mut chosen = [0u32; AT_ONCE];
        while at_nodes.count > 0 {
            for place in at_nodes.iter() {
                let node = &self.nodes[branches[place].number()];
                let branch = choose(kernel, node, &keys[place]);
                chosen[place] = branch as u32;
                wire::prefetch::read(&self.branches[branch]);
            }
            let mut left = Places::NONE;
            for place in at_nodes.iter() {
                let branch = self.branches[chosen[place] as usize];
                branches[place] = branch;
                left.add_if(place, branch.is_node());
                if branch.is_node() {
                    wire::prefetch::read(&self.nodes[branch.number()]);
                } else {
                    self.prefetch_block(branch);
                }
            }
            at_nodes = left;
        }
    }

    #[inline(always)]
    fn prefetch_block(&self, leaf: Branch) {
        let block = &self.octets[leaf.number()..];
        for octet in block.iter().take(self.block_octets()).step_by(2) {
            wire::prefetch::read(octet);
        }
    }

    /// The first match in a leaf, or [`NO_MATCH`].
    #[inline(always)]
    fn find_in_leaf<K: Kernel>(
        &self,
        kernel: K,
        leaf: Branch,
        key: &S::Key,
        matches: impl Fn(Position) -> bool,
    ) -> Position {
        let octets = self.block_octets();
        let mut begin = leaf.number();
        loop {
            let Some(block) = self.octets.get(begin..begin + octets) else { return NO_MATCH };
            let positions = &block[octets - 1].0;
            let mut hits = kernel.hits::<S>(block, key.as_ref(), self.lanes);
            while hits != 0 {
                let entry = positions[hits.trailing_zeros() as usize % WIDTH];
                let position = entry & POSITION;
                if entry & ASK == 0 || matches(position) {
                    return position;
                }
                hits &= hits - 1;
            }
            if positions[WIDTH - 1] & MORE == 0 {
                return NO_MATCH;
            }
            begin += octets;
        }
    }

    /// The first match of one header, or [`NO_MATCH`]. What is visited on the way is told to `visit`.
    pub(super) fn find<K: Kernel>(
        &self,
        kernel: K,
        header: &Header,
        matches: impl Fn(Position) -> bool,
        mut visit: impl FnMut(Visit<'_>),
    ) -> Position {
        let key = S::key(header);
        let mut best = NO_MATCH;
        for Root { branch, first } in &self.roots {
            if best <= *first {
                break;
            }
            let mut branch = *branch;
            while branch.is_node() {
                let node = &self.nodes[branch.number()];
                let chosen = choose(kernel, node, &key);
                visit(Visit::Node(node, branch.number(), chosen));
                branch = self.branches[chosen];
            }
            let found = self.find_in_leaf(kernel, branch, &key, &matches);
            visit(Visit::Leaf(branch.number(), found));
            best = best.min(found);
        }
        best
    }
}

/// A step of a search.
#[derive(Clone, Copy, Debug)]
pub(super) enum Visit<'a> {
    /// A node, its number, and the branch taken.
    Node(&'a Node, usize, usize),
    /// The leaf that begins with this octet, and what was found there.
    Leaf(usize, Position),
}

/// The number of the branch that a node sends a header to.
#[inline(always)]
fn choose<K: Kernel>(kernel: K, node: &Node, key: &impl AsRef<[u64]>) -> usize {
    let words = key.as_ref();
    // A power of two of them: no word is outside.
    let word = |place: usize| words[usize::from(node.words[place]) & (words.len() - 1)];
    let low = kernel.gather(word(0), node.masks[0]);
    let high = kernel.gather(word(1), node.masks[1]);
    node.first as usize + (low | high << (node.shift & 63)) as usize
}

/// The lanes of a header side by side with those of a block, without vectors.
#[inline(always)]
pub(in crate::classify) fn hits<S: Shape>(block: &[super::layout::Octet], key: &[u64], lanes: usize) -> u32 {
    let mut hits = 0;
    for place in 0..WIDTH {
        let holds = (0..lanes).all(|at| {
            let (shown, low, span) = (lane(key, at), block[2 * at].0[place], block[2 * at + 1].0[place]);
            if at < S::PORTS {
                shown.wrapping_sub(low) <= span
            } else if at == S::PORTS {
                let halves = [0, 16].map(|shift| [shown, low, span].map(|lane| (lane >> shift) as u16));
                halves.into_iter().all(|[shown, low, span]| shown.wrapping_sub(low) <= span)
            } else {
                shown & low == span
            }
        });
        hits |= u32::from(holds) << place;
    }
    hits
}
