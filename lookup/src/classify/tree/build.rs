//! Growing a tree: which bits a node gathers, and which cuboids are left to another tree.

use std::collections::HashMap;

use super::entry::{Entry, Exact, Fixed};
use super::forest::{Forest, ROOM, Root};
use super::hiding::Hiding;
use super::layout::{ASK, Branch, MACS, MISC, MORE, NUMBER, Octet, Shape, WIDTH, ZONES, block_octets, lanes};
use super::select::{Member, Scratch, Selection, select};
use crate::classify::{Bounds, Position, TooLarge};

/// Nodes from root to leaf, at most; bits that tell cuboids apart are used up long before.
const DEEPEST: u32 = 24;

/// Limits on the growth of trees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Number of the bits gathered by the root that may be open in a cuboid, before it is left to another tree.
    pub open: u32,
    /// Number of trees that there may be.
    pub trees: usize,
    /// Work, in cuboids looked at, after which only long lists are divided; after four times as much none is.
    pub work: usize,
    /// Memory of the forest, in bytes, from which on no list is divided.
    pub lean: usize,
    /// Cuboids behind one that has all headers of a branch.
    pub covered: Covered,
}

/// Treatment of cuboids that no header can come to by a branch, because one in front has all headers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covered {
    /// They are left out, and noted as hidden.
    Hidden,
    /// They are listed.
    Listed,
}

/// Cuboids that make a list long.
const LONG: usize = 8 * WIDTH;

/// Grows the trees for `entries`, which are in the order of their patterns.
///
/// # Errors
/// The trees do not keep within the bounds.
pub(super) fn grow<S: Shape>(
    entries: &[Entry<S>],
    growth: Growth,
    bounds: Bounds,
    scratch: &mut Scratch,
) -> Result<Forest<S>, TooLarge> {
    scratch.work = 0;
    // Both lie in one word of a key.
    let asks = |entry: &Entry<S>| {
        entry.low.as_ref()[S::PORTS + ZONES] != 0
            || entry.span.as_ref()[S::PORTS + MACS] != u32::from(u16::MAX)
    };
    let asks_zones = entries.iter().any(asks);
    let mut grower = Grower {
        entries,
        lanes: lanes::<S>(asks_zones),
        roots: Vec::new(),
        branches: Vec::new(),
        octets: Vec::new(),
        leaves: HashMap::new(),
        hiding: Hiding::default(),
        scratch,
        growth,
        bounds,
    };
    // What `Branch::NOWHERE` leads to.
    grower.block(&[], More::No)?;
    let mut rest: Vec<u32> = (0..entries.len() as u32).collect();
    while !rest.is_empty() {
        let is_last = grower.roots.len() + 1 >= growth.trees;
        let open = if is_last { u32::MAX } else { growth.open };
        let (branch, grown, left) = grower.root(&rest, open)?;
        let first = grown.first().map_or(Position::MAX, |at| entries[*at as usize].position);
        grower.roots.push(Root { branch, first, room: ROOM, open });
        rest = left;
    }
    grower.roots.sort_by_key(|root| root.first);
    // A node at the end is asked for as if it were a block.
    grower.octets.resize(grower.octets.len() + block_octets::<S>(asks_zones), Octet::default());
    let mut forest = Forest::new(grower.roots, &grower.branches, &grower.octets, asks_zones)
        .map_err(|error| TooLarge { needed: error.bytes, bound: bounds.memory })?;
    (forest.open, forest.hiding) = (growth.open, grower.hiding);
    Ok(forest)
}

/// Continuation: another block follows, or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Yes,
    No,
}

struct Grower<'a, S: Shape> {
    entries: &'a [Entry<S>],
    /// Number of lanes that are compared.
    lanes: usize,
    roots: Vec<Root>,
    branches: Vec<Branch>,
    octets: Vec<Octet>,
    /// Leaves that exist, by their cuboids.
    leaves: HashMap<Vec<u32>, Branch>,
    /// Rules that were left out of lists.
    hiding: Hiding,
    scratch: &'a mut Scratch,
    growth: Growth,
    bounds: Bounds,
}

impl<S: Shape> Grower<'_, S> {
    /// Grows a tree of the cuboids that are not too open. Returns its root, the cuboids in it and those left to other
    /// trees.
    fn root(&mut self, list: &[u32], open: u32) -> Result<(Branch, Vec<u32>, Vec<u32>), TooLarge> {
        let known = Fixed { mask: S::Key::default(), value: S::Key::default() };
        let members = self.members(list, &known);
        let selection =
            if members.len() > WIDTH { select::<S>(&members, &known, open, self.scratch) } else { None };
        let Some(selection) = selection else {
            let listed: Vec<u32> = members.iter().map(|member| member.entry).collect();
            let branch = self.leaf(&listed)?;
            return Ok((branch, listed, Vec::new()));
        };
        let (grown, left): (Vec<Member<S>>, Vec<Member<S>>) =
            members.into_iter().partition(|member| selection.open(&member.fixed) <= open);
        let numbers = |members: &[Member<S>]| members.iter().map(|member| member.entry).collect::<Vec<u32>>();
        let (listed, left) = (numbers(&grown), numbers(&left));
        let branch = self.node(&grown, &selection, &known, 0)?;
        Ok((branch, listed, left))
    }

    /// Returns the listed cuboids that have headers with the known bits, up to a cuboid that has all such headers.
    fn members(&mut self, list: &[u32], known: &Fixed<S::Key>) -> Vec<Member<S>> {
        self.scratch.work += list.len();
        let mut members = Vec::with_capacity(list.len());
        let mut rest = list.iter();
        for number in rest.by_ref() {
            let entry = &self.entries[*number as usize];
            if let Some(fixed) = entry.fixed(known) {
                members.push(Member { entry: *number, fixed });
                let hides = self.growth.covered == Covered::Hidden && entry.exact == Exact::Yes;
                if hides && entry.covers(known) {
                    let hidden = rest.map(|number| self.entries[*number as usize].position);
                    hidden
                        .filter(|hidden| *hidden != entry.position)
                        .for_each(|hidden| self.hiding.add(entry.position, hidden));
                    break;
                }
            }
        }
        members
    }

    fn branch(&mut self, list: &[u32], known: &Fixed<S::Key>, depth: u32) -> Result<Branch, TooLarge> {
        let members = self.members(list, known);
        if depth < DEEPEST && self.divides(members.len()) {
            if let Some(selection) = select::<S>(&members, known, u32::MAX, self.scratch) {
                return self.node(&members, &selection, known, depth);
            }
        }
        let listed: Vec<u32> = members.iter().map(|member| member.entry).collect();
        self.leaf(&listed)
    }

    fn node(
        &mut self,
        members: &[Member<S>],
        selection: &Selection<S>,
        known: &Fixed<S::Key>,
        depth: u32,
    ) -> Result<Branch, TooLarge> {
        let cells = 1usize << selection.bits();
        let first = self.branches.len();
        let octet = self.octets.len();
        self.octets.push(selection.node(first as u32).to_octet());
        self.branches.resize(first + cells, Branch::NOWHERE);
        let mut begins = vec![0u32; cells + 1];
        for member in members {
            selection.each_cell(&member.fixed, |cell| begins[cell + 1] += 1);
        }
        for cell in 0..cells {
            begins[cell + 1] += begins[cell];
        }
        let copies = begins[cells] as usize;
        self.admit(copies * size_of::<u32>())?;
        let mut next = begins.clone();
        let mut listed = vec![0u32; copies];
        for member in members {
            selection.each_cell(&member.fixed, |cell| {
                listed[next[cell] as usize] = member.entry;
                next[cell] += 1;
            });
        }
        for cell in 0..cells {
            let list = &listed[begins[cell] as usize..begins[cell + 1] as usize];
            if !list.is_empty() {
                let known = selection.within(known, cell);
                self.branches[first + cell] = self.branch(list, &known, depth + 1)?;
            }
        }
        Ok(Branch::node(octet as u32))
    }

    /// A leaf of these cuboids, in order.
    fn leaf(&mut self, list: &[u32]) -> Result<Branch, TooLarge> {
        if list.is_empty() {
            return Ok(Branch::NOWHERE);
        }
        if let Some(branch) = self.leaves.get(list) {
            return Ok(*branch);
        }
        let branch = Branch::leaf(self.octets.len() as u32);
        let mut blocks = list.chunks(WIDTH).peekable();
        while let Some(block) = blocks.next() {
            let more = if blocks.peek().is_some() { More::Yes } else { More::No };
            self.block(block, more)?;
        }
        self.leaves.insert(list.to_vec(), branch);
        Ok(branch)
    }

    fn block(&mut self, list: &[u32], more: More) -> Result<(), TooLarge> {
        self.admit((2 * self.lanes + 1) * size_of::<Octet>())?;
        let entry = |place: usize| list.get(place).map(|number| &self.entries[*number as usize]);
        for lane in 0..self.lanes {
            let (mut low, mut span) = (Octet::default(), Octet::default());
            for place in 0..WIDTH {
                // Where there is no cuboid, no bit that is looked at has its value: nothing matches.
                let nothing = (0, u32::from(lane == S::PORTS + MISC));
                (low.0[place], span.0[place]) = entry(place)
                    .map_or(nothing, |entry| (entry.low.as_ref()[lane], entry.span.as_ref()[lane]));
            }
            self.octets.extend([low, span]);
        }
        let mut positions = Octet::default();
        for place in 0..WIDTH {
            positions.0[place] = entry(place)
                .map_or(NUMBER, |entry| entry.position | if entry.exact == Exact::Yes { 0 } else { ASK });
        }
        if more == More::Yes {
            positions.0[WIDTH - 1] |= MORE;
        }
        self.octets.push(positions);
        Ok(())
    }

    /// True if a list of so many cuboids is divided.
    fn divides(&self, members: usize) -> bool {
        let most_work = self.growth.work * if members > LONG { 4 } else { 1 };
        members > WIDTH && self.scratch.work < most_work && self.bytes() < self.growth.lean
    }

    /// # Errors
    /// The bounds do not admit `more` bytes.
    fn admit(&self, more: usize) -> Result<(), TooLarge> {
        self.bounds.admit(self.bytes() + more)
    }

    fn bytes(&self) -> usize {
        size_of_val(self.branches.as_slice()) + size_of_val(self.octets.as_slice())
    }
}
