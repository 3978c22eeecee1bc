//! Searching the trees: one header, or many at a time.
//!
//! Of many, each step is made for all before the next: the memory that the next step needs is asked for meanwhile.

use super::forest::{Forest, Root};
use super::kernel::Kernel;
use super::layout::{ASK, Branch, MORE, NUMBER, Node, Octet, Shape, WIDTH, block_octets};
use crate::classify::{Header, NO_MATCH, Position};

/// Positions of the rules whose numbers leaves hold.
pub(super) trait Order: Copy {
    /// True if positions lie in a map of their own.
    const HAS_MAP: bool;

    /// The position of a rule; [`NO_MATCH`] where it is removed.
    fn position(self, number: u32) -> Position;
}

/// Numbers are positions: no rule has come or gone since the trees were grown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unchanged;

impl Order for Unchanged {
    const HAS_MAP: bool = false;

    #[inline(always)]
    fn position(self, number: u32) -> Position {
        number
    }
}

/// Headers whose search is under way at a time.
pub(super) const AT_ONCE: usize = 32;

/// Places of headers among [`AT_ONCE`].
#[derive(Clone, Copy)]
struct Places {
    places: [u8; AT_ONCE],
    count: usize,
}

impl Places {
    const NONE: Places = Places { places: [0; AT_ONCE], count: 0 };

    /// Adds a place, if it is wanted; without a branch, which no processor could foretell.
    #[inline(always)]
    fn add_if(&mut self, place: usize, wanted: bool) {
        self.places[self.count % AT_ONCE] = place as u8;
        self.count += usize::from(wanted);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        self.places[..self.count.min(AT_ONCE)].iter().map(|place| usize::from(*place) % AT_ONCE)
    }
}

impl<S: Shape> Forest<S> {
    /// Finds the first match of each of `headers`, [`AT_ONCE`] at most, all of the family. `matches` tells if a header
    /// matches the pattern of the rule of a number.
    #[inline(always)]
    pub(super) fn find_all<K: Kernel, O: Order>(
        &self,
        kernel: K,
        order: O,
        headers: &[Header],
        matches: impl Fn(&Header, u32) -> bool + Copy,
    ) -> [Position; AT_ONCE] {
        // Known when this is compiled, the number of lanes makes straight code of the comparison.
        if self.asks_zones() {
            self.find_each::<K, O, true>(kernel, order, headers, matches)
        } else {
            self.find_each::<K, O, false>(kernel, order, headers, matches)
        }
    }

    #[inline(always)]
    fn find_each<K: Kernel, O: Order, const ZONES: bool>(
        &self,
        kernel: K,
        order: O,
        headers: &[Header],
        matches: impl Fn(&Header, u32) -> bool + Copy,
    ) -> [Position; AT_ONCE] {
        let headers = &headers[..headers.len().min(AT_ONCE)];
        let mut keys = [S::Key::default(); AT_ONCE];
        for (key, header) in keys.iter_mut().zip(headers) {
            *key = S::key::<ZONES>(header);
        }
        let mut found = [NO_MATCH; AT_ONCE];
        let matches = |place: usize, number| matches(&headers[place], number);
        let search = Search::<S, K, O, ZONES> { forest: self, kernel, order, keys: &keys };
        let Some((root, others)) = self.roots.split_first() else { return found };
        let leaves = search.descend(root, 0..headers.len());
        search.compare(&leaves, 0..headers.len(), &mut found, matches);
        for root in others {
            // What an earlier tree has found cannot be bettered by one that begins later.
            let mut places = Places::NONE;
            for (place, found) in found.iter().enumerate().take(headers.len()) {
                places.add_if(place, *found > root.first);
            }
            let leaves = search.descend(root, places.iter());
            search.compare(&leaves, places.iter(), &mut found, matches);
        }
        found
    }

    /// Returns the first match of the header of these words, or [`NO_MATCH`]. Reports nodes and leaves visited to `visit`.
    #[inline(always)]
    pub(super) fn find<K: Kernel, O: Order>(
        &self,
        kernel: K,
        order: O,
        key: &S::Key,
        matches: impl Fn(u32) -> bool,
        mut visit: impl FnMut(Visit),
    ) -> Position {
        let (branches, octets) = (self.branches.entries(), self.octets.entries());
        let leaves = Leaves { kernel, order, octets };
        let mut found = NO_MATCH;
        for Root { branch, first, .. } in &self.roots {
            if found <= *first {
                break;
            }
            visit(Visit::Tree);
            let mut branch = *branch;
            while branch.is_node() {
                let node = Node::of(&octets[branch.octet()]);
                let chosen = choose(kernel, &node, key);
                visit(Visit::Node { node, octet: branch.octet(), branch: chosen });
                branch = branches[chosen];
            }
            let position = if self.asks_zones() {
                leaves.find::<S, true>(branch, key, &matches, &mut visit)
            } else {
                leaves.find::<S, false>(branch, key, &matches, &mut visit)
            };
            found = found.min(position);
        }
        found
    }
}

/// A search for many headers.
struct Search<'a, S: Shape, K, O, const ZONES: bool> {
    forest: &'a Forest<S>,
    kernel: K,
    order: O,
    keys: &'a [S::Key; AT_ONCE],
}

impl<S: Shape, K: Kernel, O: Order, const ZONES: bool> Search<'_, S, K, O, ZONES> {
    /// The leaves of one tree that the headers at these places come to.
    #[inline(always)]
    fn descend(&self, root: &Root, places: impl Iterator<Item = usize> + Clone) -> [Branch; AT_ONCE] {
        let (branches, octets) = (self.forest.branches.entries(), self.forest.octets.entries());
        let mut leaves = [root.branch; AT_ONCE];
        if !root.branch.is_node() {
            return leaves;
        }
        let mut chosen = [0u32; AT_ONCE];
        let node = Node::of(&octets[root.branch.octet()]);
        for place in places.clone() {
            let branch = choose(self.kernel, &node, &self.keys[place]);
            chosen[place] = branch as u32;
            wire::prefetch::read(&branches[branch]);
        }
        let mut at_nodes = Places::NONE;
        for place in places {
            let branch = branches[chosen[place] as usize];
            leaves[place] = branch;
            at_nodes.add_if(place, branch.is_node());
            prefetch::<S, ZONES>(octets, branch);
        }
        while at_nodes.count > 0 {
            for place in at_nodes.iter() {
                let branch =
                    choose(self.kernel, &Node::of(&octets[leaves[place].octet()]), &self.keys[place]);
                chosen[place] = branch as u32;
                wire::prefetch::read(&branches[branch]);
            }
            let mut left = Places::NONE;
            for place in at_nodes.iter() {
                let branch = branches[chosen[place] as usize];
                leaves[place] = branch;
                left.add_if(place, branch.is_node());
                prefetch::<S, ZONES>(octets, branch);
            }
            at_nodes = left;
        }
        leaves
    }

    /// Compares the headers at these places with what is in their leaves; what comes first is `found`.
    #[inline(always)]
    fn compare(
        &self,
        leaves: &[Branch; AT_ONCE],
        places: impl Iterator<Item = usize>,
        found: &mut [Position; AT_ONCE],
        matches: impl Fn(usize, u32) -> bool,
    ) {
        let in_leaves =
            Leaves { kernel: self.kernel, order: self.order, octets: self.forest.octets.entries() };
        for place in places {
            let (leaf, key) = (leaves[place], &self.keys[place]);
            let matches = |number| matches(place, number);
            let position = in_leaves.find::<S, ZONES>(leaf, key, matches, &mut |_| ());
            found[place] = found[place].min(position);
        }
    }
}

/// A step of a search.
#[derive(Clone, Copy, Debug)]
pub(super) enum Visit {
    /// The next tree.
    Tree,
    /// A node, its octet, and the number of the branch taken.
    Node { node: Node, octet: usize, branch: usize },
    /// The block that begins with this octet, and the number of its cuboids compared, up to the match.
    Block { block: usize, compared: usize },
    /// The cuboid of the rule of this number contains the header: its position is asked for.
    Hit { number: u32 },
}

/// Prefetches the target of a branch: as if it were a block, because no processor could predict the kind.
#[inline(always)]
fn prefetch<S: Shape, const ZONES: bool>(octets: &[Octet], branch: Branch) {
    let begin = branch.octet();
    if let Some(block) = octets.get(begin..begin + block_octets::<S>(ZONES)) {
        for octet in block.iter().step_by(2) {
            wire::prefetch::read(octet);
        }
    }
}

/// Leaves, to be searched.
struct Leaves<'a, K, O> {
    kernel: K,
    order: O,
    octets: &'a [Octet],
}

impl<K: Kernel, O: Order> Leaves<'_, K, O> {
    /// Returns the first match in a leaf, or [`NO_MATCH`].
    #[inline(always)]
    fn find<S: Shape, const ZONES: bool>(
        &self,
        leaf: Branch,
        key: &S::Key,
        matches: impl Fn(u32) -> bool,
        visit: &mut impl FnMut(Visit),
    ) -> Position {
        let length = block_octets::<S>(ZONES);
        let mut begin = leaf.octet();
        loop {
            let Some(block) = self.octets.get(begin..begin + length) else { return NO_MATCH };
            let tags = &block[length - 1].0;
            let mut hits = self.kernel.hits::<S, ZONES>(block, key);
            while hits != 0 {
                let place = hits.trailing_zeros() as usize % WIDTH;
                let number = tags[place] & NUMBER;
                visit(Visit::Hit { number });
                let position = self.order.position(number);
                if position != NO_MATCH && (tags[place] & ASK == 0 || matches(number)) {
                    visit(Visit::Block { block: begin, compared: place + 1 });
                    return position;
                }
                hits &= hits - 1;
            }
            visit(Visit::Block { block: begin, compared: WIDTH });
            if tags[WIDTH - 1] & MORE == 0 {
                return NO_MATCH;
            }
            begin += length;
        }
    }
}

/// The number of the branch that a node sends a header to.
#[inline(always)]
fn choose<K: Kernel, Key: AsRef<[u64]>>(kernel: K, node: &Node, key: &Key) -> usize {
    let words = key.as_ref();
    // A power of two of them: no word is outside.
    let word = |place: usize| words[usize::from(node.words[place]) & (words.len() - 1)];
    let low = kernel.gather(word(0), node.masks[0]);
    let high = kernel.gather(word(1), node.masks[1]);
    node.first as usize + (low | high << (node.shift & 63)) as usize
}
