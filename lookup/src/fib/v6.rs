//! IPv6: first 16 bits by index, then as many as tell a section's ranges apart, then a search tree over 32 bits at a time.
//!
//! The addresses with the same first 16 bits form a section, cut into ranges by the following 32 bits;
//! where longer prefixes cut a range again, it leads to a section of its own over the next 32 bits, and so
//! on. 16 + 32 bits reach /48, so that nearly all destinations of the Internet's table are answered by one
//! section. A section is a static B-tree: a block of 64 bytes, one cache line, holds 15 bounds, which four
//! comparisons without a branch search for one of 16 ways. A first section of many ranges is divided
//! into equal slices before, with a tree for each slice that needs one: one look at an index in the place of the upper
//! levels of one large tree.
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
    root: Slab<Root>,
    /// The ways of the first sections' slices: values, or with [`IS_BLOCK`] where their trees begin.
    index: Slab<u32>,
    blocks: Slab<Block>,
    slots: Slab<u32>,
}

/// A first section: its slices, told apart by the upper bits of the key.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Root {
    /// Place of the first slice in `index`; the others follow.
    first: u32,
    /// Bits of the key below those that tell slices apart: 32 where there is one slice.
    shift: u32,
}

impl Root {
    /// Place of the way of `key` in `index`.
    #[inline(always)]
    fn place(self, key: u32) -> usize {
        self.first as usize + (u64::from(key) >> self.shift) as usize
    }
}

/// A node of a section's search tree.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Block {
    /// Each way but the first begins past a bound: with the first key that is greater. Ascending.
    bounds: [u32; BOUNDS],
    /// Index of the first of the ways: in `slots`, or with [`IS_BLOCK`] in `blocks`.
    ways: u32,
}

const WAYS: usize = 16;
const BOUNDS: usize = WAYS - 1;

/// A bound that no key is past.
const NEVER: u32 = u32::MAX;

/// A slot with this bit leads to the first block of a section; any other is a value or [`NO_ROUTE`].
const IS_BLOCK: u32 = 1 << 31;

/// Number of ranges up to which no index is needed.
const SMALL: usize = 256;

/// Look-ups that run side by side: a batch. 32 were a tenth slower.
const GROUP: usize = 64;

impl Block {
    /// Number of bounds that `key` is past: a binary search that compares always and branches never.
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

/// Returns the next 32 bits of an address, `rest` being those not used up yet.
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
        // Shift across two words, scale and issue the read of the root; shift, add, scale and issue the read of the index; test and branch.
        tally.instructions(13);
        let at = self.root_index(destination);
        tally.read(Region::RouteTable, at * size_of::<Root>(), size_of::<Root>() as u32);
        let rest = destination << self.root_bits;
        let place = self.root.entries()[at].place(key(rest));
        tally.read(Region::RouteTable, self.root.bytes() + place * 4, 4);
        let found = self.descend(self.index.entries()[place], rest, tally);
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
        size_of::<Self>() + self.root.bytes() + self.index.bytes() + self.blocks.bytes() + self.slots.bytes()
    }

    #[inline(always)]
    fn root_index(&self, destination: u128) -> usize {
        // In two steps: a shift by all 64 bits at once is not defined.
        (high(destination) >> (63 - self.root_bits) >> 1) as usize
    }

    /// Up to [`GROUP`] look-ups in step, one block each a round, so that their waits for memory overlap and
    /// the number of rounds, which differs from one to another, costs no mispredicted branches. What a look-up reads in the
    /// next round is asked for in this one, which made half as many again a second.
    #[inline(always)]
    fn lookup_group(&self, destinations: &[u128], hops: &mut [u32]) {
        let count = destinations.len().min(hops.len());
        let (root, index) = (self.root.entries(), self.index.entries());
        let (blocks, slots) = (self.blocks.entries(), self.slots.entries());
        let mut keys = [0_u32; GROUP];
        let mut at = [0_u32; GROUP];
        // The look-ups that are still on their way, first `live` of them.
        let mut lanes = [0_u8; GROUP];
        let mut live = 0;
        for lane in 0..count {
            // As `key` does, at the price of a shift of 64 bits: index and key lie in the upper half.
            keys[lane] = (high(destinations[lane]) << self.root_bits >> 32) as u32;
            at[lane] = root[self.root_index(destinations[lane])].place(keys[lane]) as u32;
            if let Some(way) = index.get(at[lane] as usize) {
                wire::prefetch::read(way);
            }
        }
        for lane in 0..count {
            let found = index[at[lane] as usize];
            if let Some(block) = blocks.get((found & !IS_BLOCK) as usize) {
                wire::prefetch::read(block);
            }
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
                let way = block.ways + block.rank(keys[lane]);
                at[lane] = way;
                if way & IS_BLOCK == 0 {
                    if let Some(slot) = slots.get(way as usize) {
                        wire::prefetch::read(slot);
                    }
                } else if let Some(block) = blocks.get((way & !IS_BLOCK) as usize) {
                    wire::prefetch::read(block);
                }
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
                // The key across two words, 4; issue the read, 1. A binary search over 15 bounds in the registers that the line was
                // read to: 4 steps of place, compare, branch, next. Test, branch, add, scale for the way, and whether it is a block: 6.
                tally.instructions(27);
                let blocks = self.root.bytes() + self.index.bytes();
                tally.read(Region::RouteTable, blocks + at * size_of::<Block>(), 64);
                at = (block.ways & !IS_BLOCK) as usize + block.rank(key) as usize;
                if block.ways & IS_BLOCK == 0 {
                    break at;
                }
            };
            // Issue the read, test, branch, move by a word: 3.
            tally.instructions(6);
            let slots = self.root.bytes() + self.index.bytes() + self.blocks.bytes();
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
    let mut index: Vec<u32> = Vec::new();
    // The range that the section at hand begins in, which may have begun before it.
    let mut first = 0;
    for number in 0..1_u128 << root_bits {
        let start = number << (127 - root_bits) << 1;
        let many = builder.reach(&mut first, start, root_bits);
        let slice_bits = slice_bits(many);
        let shift = u32::BITS - slice_bits;
        if many == 1 && index.last() == Some(&ranges[first].value) {
            // Nothing but what the slice before it has.
            root.push(Root { first: index.len() as u32 - 1, shift });
            continue;
        }
        root.push(Root { first: index.len() as u32, shift });
        let bits = root_bits + slice_bits;
        for slice in 0..1_u128 << slice_bits {
            let many = builder.reach(&mut first, start | slice << (127 - bits) << 1, bits);
            index.push(builder.way(first, first + many, root_bits));
            first += many - 1;
        }
    }
    Ok(Fib6 {
        root_bits,
        root: Slab::copy_of(&root)?,
        index: Slab::copy_of(&index)?,
        blocks: Slab::copy_of(&builder.blocks)?,
        slots: Slab::copy_of(&builder.slots)?,
    })
}

/// Number of bits that divide a section of that many ranges into slices: none where one block holds it, else a slice for each
/// eight ranges or so. As many slices as ranges were a twentieth slower, for their memory; no slices a fifth.
fn slice_bits(ranges: usize) -> u32 {
    if ranges <= WAYS { 0 } else { (ranges.ilog2() - 3).min(MOST_SLICE_BITS) }
}

/// 2^20 slices take 4 MB.
const MOST_SLICE_BITS: u32 = 20;

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
    /// Moves `first` on to the range that the addresses from `start` on begin in, where that begins with them; how many ranges
    /// the addresses lie in that agree with `start` in their first `bits`.
    fn reach(&self, first: &mut usize, start: u128, bits: u32) -> usize {
        if self.ranges.get(*first + 1).is_some_and(|range| range.start == start) {
            *first += 1;
        }
        let within = |range: &&Range| (range.start ^ start) >> (127 - bits) >> 1 == 0;
        1 + self.ranges[*first + 1..].iter().take_while(within).count()
    }

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

    /// Adds the blocks above the nodes that begin with `keys`; `ways` returns the index of a node. Returns the first key
    /// under each of the new blocks.
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
