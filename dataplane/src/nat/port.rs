//! Allocation of ports: bitmaps of the ports in use on outside addresses, and the choice of a free one.
//!
//! A port is a bit: one bitmap of 65536 for each outside address and each of TCP, UDP and ICMP identifiers, with
//! a second level in which a bit says that 64 ports are all taken. A search reads at most two words at the ends
//! of the range, 17 of the second level and one more: the same few, whether ports are plenty or gone. Bitmaps
//! belong to the address, not to the pool: pools that share an address cannot hand out one port twice.
//!
//! The inside port is preserved where it is free (RFC 4787, section 4.2.1): as hard to guess as the host has made it. Else
//! the choice is random (RFC 6056, section 3.3.1, algorithm 1: a random port, and the next free one from there), among
//! ports of the same parity and the same side of 1024 first (RFC 4787, REQ-3 and REQ-4); of the search for parity a few
//! words are read, then any port is good. A pool may ask for the random choice always: then an off-path attacker has to
//! guess even where the inside host's own port is known.
//!
//! Ports of services of the gateway itself are kept in a second bitmap of their address, in which all others are taken:
//! an address is exhausted when neither bitmap has a free port.
//!
//! Of an address whose ports go by blocks, all that is not set aside is free, and a search stays within a host's block (`block.rs`).
//!
//! Else ports of other workers are taken from the start, so that no search finds them; the random port is one of the worker's
//! own. Addresses come and go with policies: their bitmaps lie in chunks, one for all addresses that come together.

use lookup::memory::{MemoryError, Slab};
use tally::{Region, Tally};

use super::{PortRange, PortSpace, Share};
use crate::flow::hash::chacha20_block;

const WORDS: usize = 65536 / 64;
const FULL: usize = WORDS / 64;
/// Words of one bitmap with its second level.
const MAP: usize = WORDS + FULL;

/// Bytes of bitmaps of an outside address: three bitmaps of 8320 bytes.
pub(super) const BYTES_OF_ADDRESS: usize = MAP * 8 * PortSpace::COUNT;

/// Bitmaps of all outside addresses, by place in the list of addresses.
pub(super) struct Ports {
    chunks: Vec<Option<Chunk>>,
    homes: Vec<Home>,
    share: Share,
    /// Bytes of all chunks.
    bytes: usize,
    /// Offset of the words in [`Region::NatTable`], in bytes.
    base: usize,
}

/// Bitmaps of addresses that came together.
pub(super) struct Chunk {
    words: Slab<u64>,
    /// Number of addresses whose bitmaps are in use.
    live: u32,
}

/// Location of the bitmaps of an address.
#[derive(Clone, Copy)]
pub(super) struct Home {
    chunk: u32,
    place: u32,
}

/// Location of an address without bitmaps.
const NOWHERE: Home = Home { chunk: u32::MAX, place: 0 };

impl Chunk {
    /// Makes bitmaps for `addresses` addresses; all ports of the share are free but 0, which is never handed out.
    pub(super) fn new(addresses: usize, share: Share) -> Result<Chunk, MemoryError> {
        let mut words = Slab::new(addresses * PortSpace::COUNT * MAP)?;
        let others = others(share);
        for map in words.entries_mut().chunks_exact_mut(MAP) {
            for (place, word) in map[..WORDS].iter_mut().enumerate() {
                // The pattern repeats after as many words as there are workers.
                *word = others[place % others.len()];
            }
            map[0] |= 1;
            note_full(map);
        }
        Ok(Chunk { words, live: 0 })
    }

    /// Makes bitmaps for `addresses` addresses in which no port is free.
    pub(super) fn full(addresses: usize) -> Result<Chunk, MemoryError> {
        let mut words = Slab::new(addresses * PortSpace::COUNT * MAP)?;
        words.entries_mut().fill(u64::MAX);
        Ok(Chunk { words, live: 0 })
    }

    /// Frees other workers' ports of the address at a place: it is shared by blocks. Called before ports are set aside.
    pub(super) fn open(&mut self, place: usize, share: Share) {
        for space in PortSpace::ALL {
            open(map_mut(&mut self.words, place as u32, space), share);
        }
    }

    /// Frees ports of the address at a place, as far as they are the share's.
    pub(super) fn offer(&mut self, place: usize, space: PortSpace, ports: PortRange, share: Share) {
        let map = map_mut(&mut self.words, place as u32, space);
        for port in (ports.first..=ports.last).filter(|port| *port != 0 && share.owns(*port)) {
            clear(map, port);
        }
    }

    /// Reserves ports of the address at a place.
    pub(super) fn reserve(&mut self, place: usize, space: PortSpace, ports: PortRange) {
        let map = map_mut(&mut self.words, place as u32, space);
        for port in ports.first..=ports.last {
            set(map, port);
        }
    }
}

/// Bit masks of other workers' ports, one for each aligned group of 64 ports until they repeat.
fn others(share: Share) -> Vec<u64> {
    let words = share.period();
    let of_word = |word: usize| {
        (0..64).filter(|bit| !share.owns((word * 64 + bit) as u16)).fold(0, |set, bit| set | 1 << bit)
    };
    // With more workers than there are words nothing repeats.
    (0..words.min(WORDS)).map(of_word).collect()
}

/// Frees other workers' ports.
fn open(map: &mut [u64], share: Share) {
    let others = others(share);
    for word in 0..WORDS {
        map[word] &= !others[word % others.len()];
    }
    map[0] |= 1;
    note_full(map);
}

/// Takes other workers' ports.
fn close(map: &mut [u64], share: Share) {
    let others = others(share);
    for word in 0..WORDS {
        map[word] |= others[word % others.len()];
    }
    note_full(map);
}

/// Has the second level say what the first does.
fn note_full(map: &mut [u64]) {
    for word in 0..WORDS {
        let bit = 1 << (word % 64);
        let full = &mut map[WORDS + word / 64];
        *full &= !bit;
        if map[word] == u64::MAX {
            map[WORDS + word / 64] |= bit;
        }
    }
}

/// Division of an address's ports among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// By pairs of ports.
    Pairs,
    /// By blocks.
    Blocks,
}

impl Ports {
    /// No bitmaps yet.
    pub(super) fn new(share: Share, base: usize) -> Ports {
        Ports { chunks: Vec::new(), homes: Vec::new(), share, bytes: 0, base }
    }

    /// Returns the share of the ports that are handed out.
    pub(super) fn share(&self) -> Share {
        self.share
    }

    /// Adds bitmaps, and returns the location of those of their first address; others follow.
    pub(super) fn add(&mut self, chunk: Chunk) -> Home {
        let free = self.chunks.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        self.bytes += chunk.words.bytes();
        self.chunks[place] = Some(chunk);
        Home { chunk: place as u32, place: 0 }
    }

    /// Gives the address of that number the bitmaps `further` behind `home`.
    pub(super) fn settle(&mut self, address: u32, home: Home, further: u32) {
        let address = address as usize;
        if self.homes.len() <= address {
            self.homes.resize(address + 1, NOWHERE);
        }
        self.homes[address] = Home { place: home.place + further, ..home };
        if let Some(chunk) = self.chunks.get_mut(home.chunk as usize).and_then(Option::as_mut) {
            chunk.live += 1;
        }
    }

    /// Releases the bitmaps of the address of that number.
    pub(super) fn leave(&mut self, address: u32) {
        let Some(home) = self.homes.get_mut(address as usize) else { return };
        let home = std::mem::replace(home, NOWHERE);
        if let Some(chunk) = self.chunks.get_mut(home.chunk as usize).and_then(Option::as_mut) {
            chunk.live -= 1;
        }
    }

    /// Returns bitmaps that no address uses, for the caller to free when it has time.
    pub(super) fn unused(&mut self) -> Vec<Chunk> {
        let idle = self.chunks.iter_mut().filter(|chunk| chunk.as_ref().is_some_and(|chunk| chunk.live == 0));
        let idle: Vec<Chunk> = idle.filter_map(Option::take).collect();
        self.bytes -= idle.iter().map(|chunk| chunk.words.bytes()).sum::<usize>();
        idle
    }

    /// Reserves ports until they are [freed](Ports::free).
    pub(super) fn reserve(&mut self, address: u32, space: PortSpace, ports: PortRange) {
        let map = self.map_mut(address, space);
        for port in ports.first..=ports.last {
            set(map, port);
        }
    }

    /// Gives an address the bitmaps of another, which has the same ports, to be shared otherwise from now on.
    pub(super) fn take_over(&mut self, address: u32, from: u32, sharing: [Sharing; 2]) {
        let home = self.homes.get(from as usize).copied().unwrap_or(NOWHERE);
        self.settle(address, home, 0);
        let share = self.share;
        for space in PortSpace::ALL {
            let map = self.map_mut(address, space);
            match sharing {
                [Sharing::Blocks, Sharing::Pairs] => close(map, share),
                [Sharing::Pairs, Sharing::Blocks] => open(map, share),
                [Sharing::Pairs, Sharing::Pairs] | [Sharing::Blocks, Sharing::Blocks] => {}
            }
        }
    }

    /// Returns true if no port of a range is taken but those for which `is_aside` holds.
    pub(super) fn is_clean(
        &self,
        address: u32,
        space: PortSpace,
        range: PortRange,
        mut is_aside: impl FnMut(u16) -> bool,
    ) -> bool {
        let map = self.map(address, space);
        (range.first / 64..=range.last / 64).all(|word| {
            let from = range.first.max(word * 64) % 64;
            let to = range.last.min(word * 64 + 63) % 64;
            let mask = u64::MAX << from & u64::MAX >> (63 - to);
            let mut taken = map[usize::from(word)] & mask;
            while taken != 0 && is_aside(word * 64 + taken.trailing_zeros() as u16) {
                taken &= taken - 1;
            }
            taken == 0
        })
    }

    /// True if a range has a free port.
    pub(super) fn has_free<T: Tally>(
        &self,
        address: u32,
        space: PortSpace,
        range: PortRange,
        tally: &mut T,
    ) -> bool {
        let map = Map { words: self.map(address, space), base: self.base + place(address, space) * 8 };
        next_free(map, range.first, range.last, tally).is_some()
    }

    /// Frees a port without a holder, known by the caller to be one that may be handed out.
    pub(super) fn free(&mut self, address: u32, space: PortSpace, port: u16) {
        if port != 0 {
            clear(self.map_mut(address, space), port);
        }
    }

    /// Takes one port, known by the caller to have no holder.
    pub(super) fn claim(&mut self, address: u32, space: PortSpace, port: u16) {
        set(self.map_mut(address, space), port);
    }

    /// Takes a wanted port, if one is free.
    pub(super) fn take<T: Tally>(
        &mut self,
        address: u32,
        space: PortSpace,
        Wanted { ranges, wish, share }: Wanted<'_>,
        random: &mut Random,
        tally: &mut T,
    ) -> Option<u16> {
        if !self.has_maps(address) {
            return None;
        }
        let base = self.base + place(address, space) * 8;
        let words = self.map_mut(address, space);
        let map = Map { words, base };
        let port = match wish {
            Wish::Any => any(map, ranges, share, random, tally),
            Wish::Port(port) => preserve(map, ranges, share, port, random, tally),
        }?;
        set(words, port);
        // Set a bit in one of two words: address (6), shift, or, 6; test both for all ones, 6; number of those taken, 6.
        tally.instructions(24);
        tally.write(Region::NatTable, base + usize::from(port) / 64 * 8, 8);
        Some(port)
    }

    /// Returns the next free port of a range, from one of its ports on.
    #[cfg(test)]
    pub(super) fn next(
        &mut self,
        address: u32,
        space: PortSpace,
        range: PortRange,
        start: u16,
    ) -> Option<u16> {
        let map = Map { words: self.map_mut(address, space), base: 0 };
        let next = |first, last, tally: &mut tally::NoTally| next_free(map, first, last, tally);
        around(&[range], EVERY, 0, start, next, &mut tally::NoTally)
    }

    /// Gives a port back.
    pub(super) fn give_back<T: Tally>(&mut self, address: u32, space: PortSpace, port: u16, tally: &mut T) {
        let base = self.base + place(address, space) * 8;
        let word = usize::from(port) / 64;
        clear(self.map_mut(address, space), port);
        // Twice: address (3), shift, complement, and.
        tally.instructions(12);
        tally.atomic(Region::NatTable, base + word * 8, 8);
        tally.atomic(Region::NatTable, base + (WORDS + word / 64) * 8, 8);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the address of that number has bitmaps.
    fn has_maps(&self, address: u32) -> bool {
        self.homes.get(address as usize).is_some_and(|home| home.chunk != NOWHERE.chunk)
    }

    fn map(&self, address: u32, space: PortSpace) -> &[u64] {
        let home = self.homes[address as usize];
        match self.chunks.get(home.chunk as usize) {
            Some(Some(chunk)) => {
                let at = place(home.place, space);
                &chunk.words.entries()[at..at + MAP]
            }
            _ => &[],
        }
    }

    fn map_mut(&mut self, address: u32, space: PortSpace) -> &mut [u64] {
        let home = self.homes[address as usize];
        match self.chunks.get_mut(home.chunk as usize) {
            Some(Some(chunk)) => map_mut(&mut chunk.words, home.place, space),
            // Who has no bitmaps hands nothing out, and is not asked.
            _ => &mut [],
        }
    }
}

/// The bitmap of the address at a place.
fn map_mut(words: &mut Slab<u64>, address: u32, space: PortSpace) -> &mut [u64] {
    let at = place(address, space);
    &mut words.entries_mut()[at..at + MAP]
}

/// Returns the offset of a bitmap, in words.
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

fn clear(map: &mut [u64], port: u16) {
    let word = usize::from(port) / 64;
    map[word] &= !(1 << (port % 64));
    map[WORDS + word / 64] &= !(1 << (word % 64));
}

/// Constraints on the choice of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Acceptable ranges: disjoint, ascending.
    pub(super) ranges: &'a [PortRange],
    /// Preference among them.
    pub(super) wish: Wish,
    /// Share of the ports that the search is among.
    pub(super) share: Share,
}

/// A bitmap, with its offset in [`Region::NatTable`].
#[derive(Clone, Copy)]
struct Map<'a> {
    words: &'a [u64],
    base: usize,
}

/// Preference for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Any free port.
    Any,
    /// This port, or the free one most like it (parity, class).
    Port(u16),
}

/// The range of well-known ports, and the range of all others (RFC 4787, REQ-3).
const CLASSES: [PortRange; 2] =
    [PortRange { first: 0, last: 1023 }, PortRange { first: 1024, last: u16::MAX }];

/// Every port.
const EVERY: PortRange = PortRange { first: 0, last: u16::MAX };

/// Takes that port, else one of its class and parity, else one of its class, else any.
fn preserve<T: Tally>(
    map: Map<'_>,
    ranges: &[PortRange],
    share: Share,
    port: u16,
    random: &mut Random,
    tally: &mut T,
) -> Option<u16> {
    // Map and ranges by place and bound, 12; each range compared, 8; address (6), one of two words, shift, and, compare, branch, 12.
    tally.instructions(30 + 8 * ranges.len() as u32);
    tally.read(Region::NatTable, map.base + usize::from(port) / 64 * 8, 8);
    if ranges.iter().any(|range| range.has(port)) && is_free(map.words, port) {
        return Some(port);
    }
    let class = CLASSES[usize::from(port >= 1024)];
    let (place, start) = random.port(ranges, class, share, tally).unzip();
    if let (Some(place), Some(start)) = (place, start) {
        let even = 0x5555_5555_5555_5555_u64;
        let mask = if port % 2 == 0 { even } else { !even };
        let like = |first, last, tally: &mut T| next_of(map, mask, first, last, tally);
        if let Some(found) = around(ranges, class, place, start, like, tally) {
            return Some(found);
        }
        let next = |first, last, tally: &mut T| next_free(map, first, last, tally);
        if let Some(found) = around(ranges, class, place, start, next, tally) {
            return Some(found);
        }
    }
    any(map, ranges, share, random, tally)
}

/// Takes a random port, or the next free one from there.
fn any<T: Tally>(
    map: Map<'_>,
    ranges: &[PortRange],
    share: Share,
    random: &mut Random,
    tally: &mut T,
) -> Option<u16> {
    let (place, start) = random.port(ranges, EVERY, share, tally)?;
    around(ranges, EVERY, place, start, |first, last, tally| next_free(map, first, last, tally), tally)
}

/// Searches from `start`, in the range at a place, through all ranges and back to it, as far as they are in `class`.
fn around<T: Tally>(
    ranges: &[PortRange],
    class: PortRange,
    place: usize,
    start: u16,
    mut look: impl FnMut(u16, u16, &mut T) -> Option<u16>,
    tally: &mut T,
) -> Option<u16> {
    let part = |at: usize| ranges.get(at).and_then(|range| range.within(class));
    let own = part(place)?;
    if let Some(port) = look(start, own.last, tally) {
        return Some(port);
    }
    for at in (place + 1..ranges.len()).chain(0..place) {
        if let Some(port) = part(at).and_then(|range| look(range.first, range.last, tally)) {
            return Some(port);
        }
    }
    if start > own.first { look(own.first, start - 1, tally) } else { None }
}

fn is_free(map: &[u64], port: u16) -> bool {
    map[usize::from(port) / 64] >> (port % 64) & 1 == 0
}

/// Words read for a port of one parity: with as many, one of a hundred ports free is enough.
const PARITY_WORDS: usize = 16;

/// Returns a free port from `first` to `last` whose bit of a word is in the mask, if one is found soon.
fn next_of<T: Tally>(map: Map<'_>, mask: u64, first: u16, last: u16, tally: &mut T) -> Option<u16> {
    let from = usize::from(first) / 64;
    let (parity, mut mask) = (mask, mask & (u64::MAX << (first % 64)));
    let until = (usize::from(last) / 64).min(from + PARITY_WORDS - 1);
    for at in from..=until {
        let word = map.words.get(at)?;
        // Address (4), two words, complement, mask, 10; compare, branch, advance, 6; find first set across both, 8.
        tally.instructions(28);
        tally.read(Region::NatTable, map.base + at * 8, 8);
        let free = !word & mask;
        if free != 0 {
            let port = (at * 64) as u32 + free.trailing_zeros();
            return u16::try_from(port).ok().filter(|port| *port <= last);
        }
        mask = parity;
    }
    None
}

/// The first free port from `first` to `last`.
fn next_free<T: Tally>(
    Map { words: map, base }: Map<'_>,
    first: u16,
    last: u16,
    tally: &mut T,
) -> Option<u16> {
    let word = usize::from(first) / 64;
    // Address (4), two words, mask, complement, 10; find first set across both, 8; compare, branch, 6.
    tally.instructions(28);
    tally.read(Region::NatTable, base + word * 8, 8);
    let mut free = !map[word] & (u64::MAX << (first % 64));
    let mut at = word;
    if free == 0 {
        at = next_with_free(&map[WORDS..], word + 1, usize::from(last) / 64, base + WORDS * 8, tally)?;
        tally.instructions(22);
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
        // Address (4), two words, complement, mask, 10; compare, branch, advance, 6; find first set across both, 8.
        tally.instructions(28);
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

/// Random numbers, unpredictable from those seen: the key stream of ChaCha20 (RFC 8439). The same seed gives the same
/// numbers, so that a replay hands out the same ports.
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

    /// A port of the share in the ranges, as far as they are in `class`, with the place of its range; each port is as
    /// likely as any other, to within 1 in 65536. `None` where there is none.
    fn port<T: Tally>(
        &mut self,
        ranges: &[PortRange],
        class: PortRange,
        share: Share,
        tally: &mut T,
    ) -> Option<(usize, u16)> {
        let parts = || ranges.iter().enumerate().filter_map(|(at, range)| Some((at, range.within(class)?)));
        let size: u32 = parts().map(|(_, range)| share.within(range)).sum();
        let mut turn = self.below(size, tally)?;
        for (at, range) in parts() {
            let here = share.within(range);
            if turn < here {
                return Some((at, share.nth(range, turn)));
            }
            turn -= here;
        }
        None
    }

    /// A number below `size`, each as likely as any other to within 1 in 65536 where `size` is at most 65536; `None` below 0.
    pub(super) fn below<T: Tally>(&mut self, size: u32, tally: &mut T) -> Option<u32> {
        if size == 0 {
            return None;
        }
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
        // Load, advance, compare, branch, multiply, shift, add.
        tally.instructions(7);
        Some(((u64::from(number) * u64::from(size)) >> 32) as u32)
    }
}
