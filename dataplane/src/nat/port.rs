//! Which ports of outside addresses are taken, and the choice of a free one.
//!
//! A port is a bit: one bitmap of 65536 for each outside address and each of TCP, UDP and ICMP identifiers, with
//! a second level in which a bit says that 64 ports are all taken. A search reads at most two words at the ends
//! of the range, 17 of the second level and one more: the same few, whether ports are plenty or gone. Bitmaps
//! belong to the address, not to the pool: pools that share an address cannot hand out one port twice.
//!
//! The choice is random (RFC 6056, section 3.3.1, algorithm 1: a random port, and the next free one from there),
//! so that an off-path attacker has to guess. The inside port is not preferred, though RFC 4787, section 4.2.1
//! permits it: preservation would tell the attacker the port whenever he knows the host's own, and tempt
//! applications to depend on it.

use tally::{Region, Tally};

use super::{PortRange, PortSpace};
use crate::flow::hash::chacha20_block;
use crate::memory::{MemoryError, Slab};

const WORDS: usize = 65536 / 64;
const FULL: usize = WORDS / 64;
/// Words of one bitmap with its second level.
const MAP: usize = WORDS + FULL;

/// Bytes that an outside address takes: three bitmaps of 8320 bytes.
pub(super) const BYTES_OF_ADDRESS: usize = MAP * 8 * PortSpace::COUNT;

pub(super) struct Ports {
    words: Slab<u64>,
    /// Where the words lie in [`Region::NatTable`].
    base: usize,
}

impl Ports {
    /// Bitmaps for `addresses` addresses; all ports free but 0, which nobody may be given.
    pub(super) fn new(addresses: usize, base: usize) -> Result<Ports, MemoryError> {
        let mut ports = Ports { words: Slab::new(addresses * PortSpace::COUNT * MAP)?, base };
        for map in ports.words.entries_mut().chunks_exact_mut(MAP) {
            map[0] = 1;
        }
        Ok(ports)
    }

    /// Takes ports out of the choice for ever.
    pub(super) fn reserve(&mut self, address: u32, space: PortSpace, ports: PortRange) {
        for port in ports.first..=ports.last {
            set(self.map_mut(address, space), port);
        }
    }

    /// Takes the first free port from `start` up to the range's end, and from its beginning up to `start`.
    pub(super) fn take<T: Tally>(
        &mut self,
        address: u32,
        space: PortSpace,
        range: PortRange,
        start: u16,
        tally: &mut T,
    ) -> Option<u16> {
        let base = self.base + place(address, space) * 8;
        let map = self.map_mut(address, space);
        let mut found = next_free(map, start, range.last, base, tally);
        if found.is_none() && start > range.first {
            found = next_free(map, range.first, start - 1, base, tally);
        }
        let port = found?;
        set(map, port);
        // Set a bit: address (3), shift, or; test for all ones, branch.
        tally.instructions(7);
        tally.write(Region::NatTable, base + usize::from(port) / 64 * 8, 8);
        Some(port)
    }

    /// Gives a port back.
    pub(super) fn give_back<T: Tally>(&mut self, address: u32, space: PortSpace, port: u16, tally: &mut T) {
        let base = self.base + place(address, space) * 8;
        let map = self.map_mut(address, space);
        let word = usize::from(port) / 64;
        map[word] &= !(1 << (port % 64));
        map[WORDS + word / 64] &= !(1 << (word % 64));
        // Twice: address (3), shift, complement, and.
        tally.instructions(12);
        tally.atomic(Region::NatTable, base + word * 8, 8);
        tally.atomic(Region::NatTable, base + (WORDS + word / 64) * 8, 8);
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn map_mut(&mut self, address: u32, space: PortSpace) -> &mut [u64] {
        let at = place(address, space);
        &mut self.words.entries_mut()[at..at + MAP]
    }
}

/// Where a bitmap begins, in words.
fn place(address: u32, space: PortSpace) -> usize {
    (address as usize * PortSpace::COUNT + space as usize) * MAP
}

fn set(map: &mut [u64], port: u16) {
    let word = usize::from(port) / 64;
    map[word] |= 1 << (port % 64);
    if map[word] == u64::MAX {
        map[WORDS + word / 64] |= 1 << (word % 64);
    }
}

/// The first free port from `first` to `last`.
fn next_free<T: Tally>(map: &[u64], first: u16, last: u16, base: usize, tally: &mut T) -> Option<u16> {
    let word = usize::from(first) / 64;
    // Address (2), load two words, mask, complement, and, find first set (2), compare, branch.
    tally.instructions(12);
    tally.read(Region::NatTable, base + word * 8, 8);
    let mut free = !map[word] & (u64::MAX << (first % 64));
    let mut at = word;
    if free == 0 {
        at = next_with_free(&map[WORDS..], word + 1, usize::from(last) / 64, base + WORDS * 8, tally)?;
        tally.instructions(12);
        tally.read(Region::NatTable, base + at * 8, 8);
        free = !map[at];
    }
    let port = (at * 64) as u32 + free.trailing_zeros();
    u16::try_from(port).ok().filter(|port| *port <= last)
}

/// The first bit that is not set, from `first` to `last`, in a bitmap that holds both.
pub(super) fn next_with_free<T: Tally>(
    full: &[u64],
    first: usize,
    last: usize,
    base: usize,
    tally: &mut T,
) -> Option<usize> {
    let mut mask = u64::MAX << (first % 64);
    for at in first / 64..=last / 64 {
        // Load two words, complement, mask, compare, branch, advance, find first set (2).
        tally.instructions(9);
        tally.read(Region::NatTable, base + at * 8, 8);
        let free = !full.get(at)? & mask;
        if free != 0 {
            let found = at * 64 + free.trailing_zeros() as usize;
            return (found <= last).then_some(found);
        }
        mask = u64::MAX;
    }
    None
}

/// Random numbers that nobody predicts from those seen: the key stream of ChaCha20 (RFC 8439). The same seed
/// gives the same numbers, so that a replay hands out the same ports.
pub(super) struct Random {
    key: [u32; 8],
    block: [u32; 16],
    counter: u32,
    turn: u32,
    used: usize,
}

impl Random {
    pub(super) fn new(seed: [u64; 2]) -> Random {
        let half = [seed[0] as u32, (seed[0] >> 32) as u32, seed[1] as u32, (seed[1] >> 32) as u32];
        let key = [half[0], half[1], half[2], half[3], half[0], half[1], half[2], half[3]];
        Random { key, block: [0; 16], counter: 0, turn: 0, used: 16 }
    }

    /// A port of the range; each is as likely as any other, to within 1 in 65536.
    pub(super) fn port<T: Tally>(&mut self, range: PortRange, tally: &mut T) -> u16 {
        if self.used == self.block.len() {
            // The nonce differs from that of the hash's secret numbers, which come from the same seed.
            self.block = chacha20_block(&self.key, self.counter, &[1, self.turn, 0]);
            (self.counter, self.turn) = match self.counter.checked_add(1) {
                Some(counter) => (counter, self.turn),
                None => (0, self.turn.wrapping_add(1)),
            };
            self.used = 0;
            // 80 quarter rounds of 12, and the final addition of 16 words.
            for _ in 0..80 {
                tally.instructions(12);
            }
            tally.instructions(16);
        }
        let number = self.block[self.used];
        self.used += 1;
        let size = u32::from(range.last - range.first) + 1;
        // Load, advance, compare, branch, multiply, shift, add.
        tally.instructions(7);
        range.first + ((u64::from(number) * u64::from(size)) >> 32) as u16
    }
}
