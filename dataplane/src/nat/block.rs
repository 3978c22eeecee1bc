//! Blocks of ports that hosts take as they need them (RFC 6888, REQ-4; RFC 7857, section 4): who has which block of an outside address.
//!
//! An address with blocks hands out all its ports by blocks, to whichever pool: block k is the ports from k times the size on,
//! of TCP, UDP and ICMP alike, and one host's for as long as the host has a mapping in it. With several workers block k is
//! that worker's whose number k leaves when divided by their number, so that no two workers hand out ports of one block.
//!
//! A host knows its first block, and each block the next one, oldest first. A bitmap has the blocks that cannot be taken.

use std::net::IpAddr;

use tally::{Region, Tally};

use super::port::{Random, next_with_free};
use super::{PoolId, PortRange, Share};

/// Least ports of a block: an address has 4096 blocks at most.
pub const LEAST_BLOCK: u16 = 16;

/// No block.
pub(super) const NO_BLOCK: u16 = u16::MAX;

/// A block that a host has taken, or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Change of the block.
    pub change: BlockChange,
    /// The block.
    pub block: PortBlock,
}

/// Change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// A host has taken it.
    Allocated,
    /// Its last mapping has ended.
    Freed,
}

/// A block of ports, and the host that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortBlock {
    /// The inside address.
    pub inside: IpAddr,
    /// The outside address.
    pub outside: IpAddr,
    /// Its ports, of all protocols.
    pub ports: PortRange,
    /// The pool; none if the present tables no longer have it.
    pub pool: Option<PoolId>,
}

/// Blocks of an outside address.
pub(super) struct Blocks {
    size: u16,
    share: Share,
    /// By number.
    entries: Box<[Entry]>,
    /// Blocks that cannot be taken, a bit each: hosts have them, or they are other workers'.
    taken: Box<[u64]>,
    /// Offset of the entries in [`Region::NatTable`], in bytes; the bitmap is behind them.
    base: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Place of the host that has the block, or [`NONE`].
    host: u32,
    /// Number of mappings.
    held: u32,
    /// Next block of the host, or [`NO_BLOCK`].
    next: u16,
}

const ENTRY: usize = size_of::<Entry>();

/// No host.
const NONE: u32 = u32::MAX;

const FREE: Entry = Entry { host: NONE, held: 0, next: NO_BLOCK };

/// Result of giving a port back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The block has other mappings.
    InUse,
    /// The last mapping has ended: the host no longer has the block.
    Freed,
}

impl Blocks {
    /// Makes blocks of `size` ports; the share's are free.
    pub(super) fn new(size: u16, share: Share) -> Blocks {
        let size = size.max(LEAST_BLOCK);
        let count = 65_536 / u32::from(size);
        let mut taken = vec![0; count.div_ceil(64) as usize].into_boxed_slice();
        for number in (0..count).filter(|number| !share.owns_block(*number as u16)) {
            taken[number as usize / 64] |= 1 << (number % 64);
        }
        Blocks { size, share, entries: vec![FREE; count as usize].into_boxed_slice(), taken, base: 0 }
    }

    /// Says where the blocks lie in [`Region::NatTable`]; returns the end.
    pub(super) fn settle(&mut self, base: usize) -> usize {
        self.base = base;
        base + self.bytes()
    }

    /// Accounts for a read of a block's entry.
    pub(super) fn read<T: Tally>(&self, number: u16, tally: &mut T) {
        // By place and bound, 6; its ports, 4; the next one, 4.
        tally.instructions(14);
        tally.read(Region::NatTable, self.base + usize::from(number) * ENTRY, ENTRY as u32);
    }

    /// Accounts for a change of a block's entry.
    pub(super) fn change<T: Tally>(&self, number: u16, tally: &mut T) {
        // Number, by a division, 30; by place and bound, 6; counted, 4.
        tally.instructions(40);
        tally.atomic(Region::NatTable, self.base + usize::from(number) * ENTRY, ENTRY as u32);
    }

    /// Ports of a block.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.taken)
    }

    /// Number of the block of a port; the ports past the last whole block are in none.
    pub(super) fn number(&self, port: u16) -> Option<u16> {
        let number = port / self.size;
        (usize::from(number) < self.entries.len()).then_some(number)
    }

    /// Ports of a block.
    pub(super) fn ports(&self, number: u16) -> PortRange {
        let first = number * self.size;
        PortRange { first, last: first + (self.size - 1) }
    }

    /// Place of the host that has a block.
    pub(super) fn host(&self, number: u16) -> Option<u32> {
        self.entries.get(usize::from(number)).map(|entry| entry.host).filter(|host| *host != NONE)
    }

    /// Blocks of a host, from its first one on, oldest first.
    pub(super) fn of(&self, first: u16) -> impl Iterator<Item = u16> + '_ {
        let entries = &self.entries;
        std::iter::successors(entries.get(usize::from(first)).map(|_| first), |number| {
            Some(entries[usize::from(*number)].next).filter(|next| *next != NO_BLOCK)
        })
    }

    /// Blocks of a host likewise, without those that a second gateway has given the host.
    pub(super) fn own_of(&self, first: u16) -> impl Iterator<Item = u16> + '_ {
        self.of(first).filter(|number| self.share.owns_block(*number))
    }

    /// Blocks that hosts have.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        (0..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.host != NONE)
            .map(|(number, entry)| (number, entry.host))
    }

    /// Returns a free block that lies within the ranges and is good, from a random one on.
    pub(super) fn find<T: Tally>(
        &self,
        ranges: &[PortRange],
        random: &mut Random,
        mut is_good: impl FnMut(PortRange) -> bool,
        tally: &mut T,
    ) -> Option<u16> {
        let total: usize = ranges.iter().map(|range| self.within(range).len()).sum();
        let mut turn = random.below(total as u32, tally)? as usize;
        // Two divisions for each range, 60.
        tally.instructions(60 * ranges.len() as u32);
        let begin = ranges.iter().position(|range| {
            let here = self.within(range).len();
            let is_here = turn < here;
            turn -= if is_here { 0 } else { here };
            is_here
        })?;
        let first = self.within(&ranges[begin]).start + turn;
        let bitmap = self.base + self.entries.len() * ENTRY;
        // From there to the end of its range, the other ranges, and what is before it in its own.
        for step in 0..=ranges.len() {
            let range = self.within(&ranges[(begin + step) % ranges.len()]);
            let (from, end) = match step {
                0 => (first, range.end),
                last if last == ranges.len() => (range.start, first),
                _ => (range.start, range.end),
            };
            let mut from = from;
            while from < end {
                let found = next_with_free(&self.taken, from, end - 1, bitmap, tally);
                let Some(number) = found else { break };
                if is_good(self.ports(number as u16)) {
                    return Some(number as u16);
                }
                from = number + 1;
            }
        }
        None
    }

    /// Gives a block to a host whose last block is `last`.
    pub(super) fn give(&mut self, number: u16, host: u32, last: Option<u16>) {
        self.entries[usize::from(number)] = Entry { host, ..FREE };
        if let Some(last) = last {
            self.entries[usize::from(last)].next = number;
        }
        self.taken[usize::from(number) / 64] |= 1 << (number % 64);
    }

    /// Counts a mapping of a block.
    pub(super) fn hold(&mut self, number: u16) {
        self.entries[usize::from(number)].held += 1;
    }

    /// Counts a mapping of a block off. The last one frees the block; `first` is the host's first block, and follows.
    pub(super) fn leave(&mut self, number: u16, first: &mut u16) -> Left {
        let entry = &mut self.entries[usize::from(number)];
        entry.held = entry.held.saturating_sub(1);
        if entry.held > 0 {
            return Left::InUse;
        }
        let next = entry.next;
        *entry = FREE;
        // One of a second gateway's stays taken.
        if self.share.owns_block(number) {
            self.taken[usize::from(number) / 64] &= !(1 << (number % 64));
        }
        if *first == number {
            *first = next;
        } else {
            let before = self.of(*first).find(|before| self.entries[usize::from(*before)].next == number);
            if let Some(before) = before {
                self.entries[usize::from(before)].next = next;
            }
        }
        Left::Freed
    }

    /// True if no host has a block.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.entries.iter().all(|entry| entry.host == NONE && entry.held == 0)
    }

    /// Numbers of the blocks that lie within a range.
    fn within(&self, range: &PortRange) -> std::ops::Range<usize> {
        let size = usize::from(self.size);
        let start = usize::from(range.first.max(1)).div_ceil(size);
        start..((usize::from(range.last) + 1) / size).max(start)
    }
}
