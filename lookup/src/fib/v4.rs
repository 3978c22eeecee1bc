//! IPv4: a trie whose first step takes 18 bits at once and whose further steps take 6.
//!
//! A node stands for 64 equal blocks of addresses. Neighbouring blocks that lead the same way share one
//! slot, and a 64-bit map marks where the next slot begins, so a block's slot is found by counting ones;
//! the idea is Poptrie's (Asai and Ohara, SIGCOMM 2015), with one map instead of two. 18 + 6 bits reach
//! /24, so that all but a few destinations are answered by one node and one slot. A table of the Internet
//! takes about 10 MB and lies in the cache, where a flat table of all /24s (DIR-24-8) takes 32 to 64 MB.
//!
//! A FIB of few routes begins with 14 bits instead: 256 KB, of which few lines are ever touched. Three steps reach /32 from there, which a
//! gateway's own addresses take among those of its links.

use bytemuck::{Pod, Zeroable};
use tally::{Region, Tally};

use super::range::{Prefix, Range, flatten};
use super::{FibError, NO_ROUTE, Route4, check};
use crate::memory::Slab;

/// An IPv4 forwarding table.
pub struct Fib4 {
    /// Bits by which the first step indexes `nodes`.
    root_bits: u32,
    nodes: Slab<Node>,
    slots: Slab<u32>,
}

/// 64 equal blocks of addresses.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Node {
    /// Bit n is set where block n has another slot than block n - 1. Bit 0 never is.
    changes: u64,
    /// The slot of block 0; the others follow.
    slot: u32,
    unused: u32,
}

/// Bits that a step below the root takes.
const STEP: u32 = 6;

/// A slot with this bit leads to a node; any other is a value or [`NO_ROUTE`].
const IS_NODE: u32 = 1 << 31;

/// Number of ranges up to which [`SMALL_ROOT`] bits at the root suffice.
const SMALL: usize = 8192;

/// Bits of the first step in a FIB of few routes, and of many.
const SMALL_ROOT: u32 = 14;
const ROOT: u32 = 18;

/// Look-ups that run side by side. 16 are a tenth slower; a batch of 64 is two groups.
const GROUP: usize = 32;

impl Fib4 {
    /// Builds the table. Of routes with equal prefixes the last one holds.
    pub fn new(routes: &[Route4]) -> Result<Self, FibError> {
        let ranges = ranges(routes)?;
        Builder::build(if ranges.len() <= SMALL { SMALL_ROOT } else { ROOT }, &ranges)
    }

    /// As [`Fib4::new`], with a choice of how the first step is made: 14 or 18 bits.
    #[cfg(test)]
    pub(super) fn with_root_bits(routes: &[Route4], root_bits: u32) -> Result<Self, FibError> {
        Builder::build(root_bits, &ranges(routes)?)
    }

    /// The value of the longest prefix that `destination` (host order) lies in.
    #[inline]
    pub fn lookup<T: Tally>(&self, destination: u32, tally: &mut T) -> Option<u32> {
        let (mut node, mut rest) = self.root(destination);
        // Shift and add to reach the root.
        tally.instructions(2);
        loop {
            let slot = self.slot(node, rest);
            // Two issued reads. Block number: shift, mask. Ones in 64 bits on 32-bit words: both words
            // masked (4), 12 to count in each, one multiply saved by adding the bytes of both first: 27.
            // Add to the slot, scale, test, branch: 4.
            tally.instructions(35);
            tally.read(Region::RouteTable, node * size_of::<Node>(), size_of::<Node>() as u32);
            tally.read(Region::RouteTable, self.nodes.bytes() + slot * 4, 4);
            let found = self.slots.entries()[slot];
            if found & IS_NODE == 0 {
                return (found != NO_ROUTE).then_some(found);
            }
            node = (found ^ IS_NODE) as usize;
            rest <<= STEP;
        }
    }

    /// Looks up each of `destinations` (host order) into the same place of `hops`, [`NO_ROUTE`] where none
    /// matches, as far as the shorter of the two goes.
    pub fn lookup_bulk(&self, destinations: &[u32], hops: &mut [u32]) {
        let count = destinations.len().min(hops.len());
        let mut groups = destinations[..count].chunks_exact(GROUP);
        let mut hop_groups = hops[..count].chunks_exact_mut(GROUP);
        for (destinations, hops) in groups.by_ref().zip(hop_groups.by_ref()) {
            self.lookup_group(destinations, hops);
        }
        for (destination, hop) in groups.remainder().iter().zip(hop_groups.into_remainder()) {
            let (node, rest) = self.root(*destination);
            *hop = self.follow(self.slots.entries()[self.slot(node, rest)], rest);
        }
    }

    /// [`GROUP`] look-ups side by side: none waits for another one's memory.
    #[inline(always)]
    fn lookup_group(&self, destinations: &[u32], hops: &mut [u32]) {
        let (destinations, hops) = (&destinations[..GROUP], &mut hops[..GROUP]);
        let slots: [usize; GROUP] = std::array::from_fn(|lane| {
            let (node, rest) = self.root(destinations[lane]);
            self.slot(node, rest)
        });
        for lane in 0..GROUP {
            let found = self.slots.entries()[slots[lane]];
            hops[lane] = self.follow(found, self.root(destinations[lane]).1);
        }
    }

    /// Bytes of memory that the table takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.bytes() + self.slots.bytes()
    }

    /// The node for the first bits of `destination`, and the other bits, left-aligned.
    #[inline(always)]
    fn root(&self, destination: u32) -> (usize, u32) {
        let node = (destination >> (32 - self.root_bits)) as usize;
        (node, destination << self.root_bits)
    }

    /// Goes on from `found`, the slot of the block that the upper six bits of `rest` name, to a value.
    #[inline(always)]
    fn follow(&self, mut found: u32, mut rest: u32) -> u32 {
        while found & IS_NODE != 0 {
            rest <<= STEP;
            found = self.slots.entries()[self.slot((found ^ IS_NODE) as usize, rest)];
        }
        found
    }

    /// The slot of the block that the upper six bits of `rest` name.
    #[inline(always)]
    fn slot(&self, node: usize, rest: u32) -> usize {
        let node = &self.nodes.entries()[node];
        (node.slot + node.changes_until(rest).count_ones()) as usize
    }
}

impl Node {
    /// Returns a word with as many ones as there are changes up to the block that the upper six bits of `rest` name.
    #[inline(always)]
    fn changes_until(&self, rest: u32) -> u64 {
        self.changes << (63 - (rest >> (32 - STEP)))
    }
}

fn ranges(routes: &[Route4]) -> Result<Vec<Range>, FibError> {
    let prefixes: Vec<Prefix> = routes
        .iter()
        .map(|route| Prefix { address: u128::from(route.address), length: route.length, value: route.value })
        .collect();
    check(&prefixes, 32)?;
    Ok(flatten(prefixes, 32))
}

struct Builder<'a> {
    ranges: &'a [Range],
    nodes: Vec<Node>,
    slots: Vec<u32>,
}

impl Builder<'_> {
    fn build(root_bits: u32, ranges: &[Range]) -> Result<Fib4, FibError> {
        let nodes = vec![Node::default(); 1 << root_bits];
        let mut builder = Builder { ranges, nodes, slots: Vec::new() };
        let mut first = 0;
        // Where a whole node has one value, it shares the slot of the last such node, if that is the same.
        let mut uniform = None;
        for root in 0..builder.nodes.len() {
            first =
                builder.fill(root, (root as u64) << (36 - root_bits), 36 - root_bits, first, &mut uniform);
        }
        let (nodes, slots) = (Slab::copy_of(&builder.nodes)?, Slab::copy_of(&builder.slots)?);
        Ok(Fib4 { root_bits, nodes, slots })
    }

    /// Fills `node`, which stands for the 2^`bits` addresses from `start`, `first` being the range that
    /// `start` lies in. Returns the range that the end lies in. Addresses are in units of a sixteenth, 36
    /// bits wide: the steps do not end at 32 bits.
    fn fill(
        &mut self,
        node: usize,
        start: u64,
        bits: u32,
        first: usize,
        uniform: &mut Option<(u32, u32)>,
    ) -> usize {
        let mut range = first;
        let mut changes = 0_u64;
        let mut slots = [0_u32; 64];
        let mut count = 0;
        let mut children = [(0_usize, 0_u64, 0_usize); 64];
        let mut child_count = 0;
        while self.start(range + 1) <= start {
            range += 1;
        }
        // Most nodes of a root have one value.
        let is_uniform = self.start(range + 1) >= start + (1 << bits);
        if is_uniform {
            (slots[0], count) = (self.ranges[range].value, 1);
        }
        let blocks = if is_uniform { 0..0 } else { 0..64_u64 };
        for block in blocks {
            let from = start + (block << (bits - STEP));
            let to = from + (1 << (bits - STEP));
            while self.start(range + 1) <= from {
                range += 1;
            }
            let slot = if self.start(range + 1) >= to {
                self.ranges[range].value
            } else {
                let child = self.nodes.len();
                self.nodes.push(Node::default());
                children[child_count] = (child, from, range);
                child_count += 1;
                IS_NODE | child as u32
            };
            if block == 0 || slots[count - 1] != slot {
                if block > 0 {
                    changes |= 1 << block;
                }
                slots[count] = slot;
                count += 1;
            }
        }
        let at = match *uniform {
            Some((value, at)) if count == 1 && slots[0] == value => at,
            _ => {
                let at = self.slots.len() as u32;
                self.slots.extend_from_slice(&slots[..count]);
                if count == 1 {
                    *uniform = Some((slots[0], at));
                }
                at
            }
        };
        self.nodes[node] = Node { changes, slot: at, unused: 0 };
        for &(child, from, range) in &children[..child_count] {
            self.fill(child, from, bits - STEP, range, &mut None);
        }
        range
    }

    /// Returns the start of a range, in sixteenths; past the last range, a value beyond the address space.
    fn start(&self, range: usize) -> u64 {
        self.ranges.get(range).map_or(u64::MAX, |range| (range.start as u64) << 4)
    }
}
