//! IPv6: first 16 bits by index, then a search tree over 32 bits at a time.
//!
//! The addresses with the same first 16 bits form a section, cut into ranges by the following 32 bits;
//! where longer prefixes cut a range again, it leads to a section of its own over the next 32 bits, and so
//! on. 16 + 32 bits reach /48, so that nearly all destinations of the Internet's table are answered by one
//! section. A section is a static B-tree: a block of 64 bytes, one cache line, holds 15 bounds, which four
//! comparisons without a branch search for one of 16 ways.
//!
//! A FIB of few routes has no index: the first section begins with the first bit.
//!
//! Measured against it on 200,000 prefixes like the Internet's: the trie of `v4.rs`, stretched to 128 bits,
//! takes nearly three times the memory and is a sixth slower.

use bytemuck::{Pod, Zeroable};
use tally::{Region, Tally};

use super::range::{Prefix, Range, flatten};
use super::{FibError, NO_ROUTE, Route6, check};
use crate::memory::Slab;

/// An IPv6 forwarding table.
pub struct Fib6 {
    /// Bits by which the first step indexes `root`: 0 or 16.
    root_bits: u32,
    root: Slab<u32>,
    blocks: Slab<Block>,
    slots: Slab<u32>,
}

/// A node of a section's search tree.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Block {
    /// Each way but the first begins past a bound: with the first key that is greater. Ascending.
    bounds: [u32; BOUNDS],
    /// Where the ways begin: in `slots`, or with [`IS_BLOCK`] in `blocks`.
    ways: u32,
}

const WAYS: usize = 16;
const BOUNDS: usize = WAYS - 1;

/// A bound that no key is past.
const NEVER: u32 = u32::MAX;

/// A slot with this bit leads to the first block of a section; any other is a value or [`NO_ROUTE`].
const IS_BLOCK: u32 = 1 << 31;

/// Up to this many ranges, no index is needed.
const SMALL: usize = 256;

/// Look-ups that run side by side.
const GROUP: usize = 32;

impl Block {
    /// How many bounds `key` is past: a binary search that compares always and branches never.
    #[inline(always)]
    fn rank(&self, key: u32) -> u32 {
        let past = |bound: usize| usize::from(key > self.bounds[bound]);
        let mut rank = past(7) * 8;
        rank += past(rank + 3) * 4;
        rank += past(rank + 1) * 2;
        rank += past(rank);
        rank as u32
    }
}

/// The next 32 bits of an address, `rest` being those not used up yet.
#[inline(always)]
fn key(rest: u128) -> u32 {
    (rest >> 96) as u32
}

/// The upper half of an address.
#[inline(always)]
fn high(address: u128) -> u64 {
    (address >> 64) as u64
}

impl Fib6 {
    /// Builds the table. Of routes with equal prefixes the last one holds.
    pub fn new(routes: &[Route6]) -> Result<Self, FibError> {
        let ranges = ranges(routes)?;
        build(if ranges.len() <= SMALL { 0 } else { 16 }, &ranges)
    }

    /// As [`Fib6::new`], with a choice of how many bits the first step takes: 0 or 16.
    #[cfg(test)]
    pub(super) fn with_root_bits(routes: &[Route6], root_bits: u32) -> Result<Self, FibError> {
        build(root_bits, &ranges(routes)?)
    }

    /// The value of the longest prefix that `destination` (host order) lies in.
    #[inline]
    pub fn lookup<T: Tally>(&self, destination: u128, tally: &mut T) -> Option<u32> {
        // Shift, scale and issue the read of the root; test and branch.
        tally.instructions(5);
        let at = self.root_index(destination);
        tally.read(Region::RouteTable, at * 4, 4);
        let found = self.descend(self.root.entries()[at], destination << self.root_bits, tally);
        (found != NO_ROUTE).then_some(found)
    }

    /// Looks up each of `destinations` (host order) into the same place of `hops`, [`NO_ROUTE`] where none
    /// matches, as far as the shorter of the two goes.
    pub fn lookup_bulk(&self, destinations: &[u128], hops: &mut [u32]) {
        for (destinations, hops) in destinations.chunks(GROUP).zip(hops.chunks_mut(GROUP)) {
            self.lookup_group(destinations, hops);
        }
    }

    /// Bytes of memory that the table takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.root.bytes() + self.blocks.bytes() + self.slots.bytes()
    }

    #[inline(always)]
    fn root_index(&self, destination: u128) -> usize {
        // In two steps: a shift by all 64 bits at once is not defined.
        (high(destination) >> (63 - self.root_bits) >> 1) as usize
    }

    /// Up to [`GROUP`] look-ups in step, one block each a round, so that their waits for memory overlap and
    /// the number of rounds, which differs from one to another, costs no mispredicted branches.
    #[inline(always)]
    fn lookup_group(&self, destinations: &[u128], hops: &mut [u32]) {
        let count = destinations.len().min(hops.len());
        let (root, blocks, slots) = (self.root.entries(), self.blocks.entries(), self.slots.entries());
        let mut keys = [0_u32; GROUP];
        let mut at = [0_u32; GROUP];
        // The look-ups that are still on their way, first `live` of them.
        let mut lanes = [0_u8; GROUP];
        let mut live = 0;
        for lane in 0..count {
            let found = root[self.root_index(destinations[lane])];
            // As `key` does, at the price of a shift of 64 bits: index and key lie in the upper half.
            keys[lane] = (high(destinations[lane]) << self.root_bits >> 32) as u32;
            at[lane] = found;
            hops[lane] = found;
            lanes[live] = lane as u8;
            live += (found >> 31) as usize;
        }
        let sections = lanes;
        let section_count = live;
        while live > 0 {
            let mut still = 0;
            for place in 0..live {
                let lane = lanes[place] as usize % GROUP;
                let block = &blocks[(at[lane] & !IS_BLOCK) as usize];
                at[lane] = block.ways + block.rank(keys[lane]);
                lanes[still] = lane as u8;
                still += (block.ways >> 31) as usize;
            }
            live = still;
        }
        for &lane in &sections[..section_count] {
            let lane = lane as usize % GROUP;
            hops[lane] = slots[at[lane] as usize];
        }
        for (hop, destination) in hops[..count].iter_mut().zip(destinations) {
            if *hop & IS_BLOCK != 0 {
                let rest = destination << self.root_bits << 32;
                *hop = self.descend(*hop, rest, &mut tally::NoTally);
            }
        }
    }

    /// Follows `found` to a value (or [`NO_ROUTE`]), `rest` being the bits that are not used up yet.
    fn descend<T: Tally>(&self, mut found: u32, mut rest: u128, tally: &mut T) -> u32 {
        while found & IS_BLOCK != 0 {
            let key = key(rest);
            let mut at = (found ^ IS_BLOCK) as usize;
            let slot = loop {
                let block = &self.blocks.entries()[at];
                // Issue the read: 1. A binary search over 15 bounds in the registers that the line was read
                // to: 4 steps of compare, branch, next. Test, branch, add, scale for the way: 4.
                tally.instructions(17);
                tally.read(Region::RouteTable, self.root.bytes() + at * size_of::<Block>(), 64);
                at = (block.ways & !IS_BLOCK) as usize + block.rank(key) as usize;
                if block.ways & IS_BLOCK == 0 {
                    break at;
                }
            };
            // Issue the read, test, branch, move to the next 32 bits.
            tally.instructions(4);
            let slots = self.root.bytes() + self.blocks.bytes();
            tally.read(Region::RouteTable, slots + slot * 4, 4);
            found = self.slots.entries()[slot];
            rest <<= 32;
        }
        found
    }
}

fn ranges(routes: &[Route6]) -> Result<Vec<Range>, FibError> {
    let prefixes: Vec<Prefix> = routes
        .iter()
        .map(|route| Prefix { address: route.address, length: route.length, value: route.value })
        .collect();
    check(&prefixes, 128)?;
    Ok(flatten(prefixes, 128))
}

/// Builds from `ranges`, which begin with the address zero.
fn build(root_bits: u32, ranges: &[Range]) -> Result<Fib6, FibError> {
    let mut builder = Builder { ranges, blocks: Vec::new(), slots: Vec::new() };
    let mut root = Vec::with_capacity(1 << root_bits);
    // The range that the section at hand begins in, which may have begun before it.
    let mut first = 0;
    for index in 0..1_u128 << root_bits {
        let start = index << (127 - root_bits) << 1;
        let within = |range: &&Range| (range.start ^ start) >> (127 - root_bits) >> 1 == 0;
        if ranges.get(first + 1).is_some_and(|range| range.start == start) {
            first += 1;
        }
        let end = first + 1 + ranges[first + 1..].iter().take_while(within).count();
        root.push(builder.way(first, end, root_bits));
        first = end - 1;
    }
    Ok(Fib6 {
        root_bits,
        root: Slab::copy_of(&root)?,
        blocks: Slab::copy_of(&builder.blocks)?,
        slots: Slab::copy_of(&builder.slots)?,
    })
}

struct Builder<'a> {
    ranges: &'a [Range],
    blocks: Vec<Block>,
    slots: Vec<u32>,
}

/// One way of a section, from `key` on.
#[derive(Clone, Copy)]
struct Way {
    key: u32,
    slot: u32,
}

impl Builder<'_> {
    /// The slot for addresses that agree in their first `used` bits and lie in the ranges `first` to `end`
    /// (not included), of which `first` may begin before them and the others do not.
    fn way(&mut self, first: usize, end: usize, used: u32) -> u32 {
        if end == first + 1 {
            return self.ranges[first].value;
        }
        let ranges = self.ranges;
        let mut ways = vec![Way { key: 0, slot: ranges[first].value }];
        let mut next = first + 1;
        while next < end {
            let key = piece(ranges[next].start, used);
            let same = ranges[next..end].iter().take_while(|range| piece(range.start, used) == key).count();
            // If the first of them does not begin with the key, the range before it does.
            let begins = ranges[next].start << used << 32 == 0;
            let slot = self.way(if begins { next } else { next - 1 }, next + same, used + 32);
            next += same;
            append(&mut ways, Way { key, slot });
            if let Some(key) = key.checked_add(1) {
                append(&mut ways, Way { key, slot: ranges[next - 1].value });
            }
        }
        IS_BLOCK | self.tree(&ways)
    }

    /// Lays out the search tree over `ways`, from the lowest blocks up. Returns the topmost block.
    fn tree(&mut self, ways: &[Way]) -> u32 {
        let slots = self.slots.len() as u32;
        self.slots.extend(ways.iter().map(|way| way.slot));
        let keys: Vec<u32> = ways.iter().map(|way| way.key).collect();
        let mut level = self.level(&keys, |index| slots + index as u32);
        while level.len() > 1 {
            let below = self.blocks.len() - level.len();
            level = self.level(&level, |index| IS_BLOCK | (below + index) as u32);
        }
        (self.blocks.len() - 1) as u32
    }

    /// Adds the blocks above what begins with each of `keys`; `ways` says where that lies. Returns the first
    /// key under each of the new blocks.
    fn level(&mut self, keys: &[u32], ways: impl Fn(usize) -> u32) -> Vec<u32> {
        let groups = keys.chunks(WAYS).enumerate();
        self.blocks.extend(groups.map(|(group, keys)| {
            let mut bounds = [NEVER; BOUNDS];
            for (bound, key) in bounds.iter_mut().zip(&keys[1..]) {
                *bound = key - 1;
            }
            Block { bounds, ways: ways(group * WAYS) }
        }));
        keys.iter().copied().step_by(WAYS).collect()
    }
}

/// Adds a way, which takes the place of one that would begin with the same key.
fn append(ways: &mut Vec<Way>, way: Way) {
    if ways.last().is_some_and(|last| last.key == way.key) {
        ways.pop();
    }
    if ways.last().is_none_or(|last| last.slot != way.slot) {
        ways.push(way);
    }
}

/// The 32 bits of `address` that follow its first `used` ones.
fn piece(address: u128, used: u32) -> u32 {
    key(address << used)
}
