//! The tables of one family, and the entries in them.

use wire::prefetch;

use super::super::{Header, NO_MATCH, Position};
use super::cover::{Lengths, Match, ports};
use super::sieve::{MOST, Sieve, Tables};
use super::table::{Bits, GONE, NONE, Table};

mod change;

/// Headers that are looked up side by side.
pub(super) const GROUP: usize = 16;

/// Tables and entries.
#[derive(Clone)]
pub(super) struct Space<A> {
    /// At most [`MOST`], in the order of their best patterns, as far as changes have not come in between. An entry that
    /// needs another goes into one there is.
    pub(super) tables: Vec<Table<A>>,
    /// Tables by source.
    sources: Sieve,
    /// Tables by destination.
    destinations: Sieve,
    /// Entries that came or went since tables were put in order.
    changes: usize,
    pub(super) entries: Vec<Entry<A>>,
    /// Parts of entries that only changes need.
    links: Vec<Link>,
    /// The first of the entries that are free; `next` leads to more.
    free: u32,
}

/// A place where a pattern is looked for, with all of its conditions that have one form.
#[derive(Clone, Copy)]
pub(super) struct Entry<A> {
    source: A,
    source_mask: A,
    destination: A,
    destination_mask: A,
    from: u64,
    to: u64,
    dscp: u64,
    sport: u16,
    /// Number of ports after the first.
    sports: u16,
    dport: u16,
    dports: u16,
    protocol: u8,
    protocol_mask: u8,
    tcp_value: u8,
    tcp_mask: u8,
    /// Rule that owns the entry.
    pub(super) rule: u32,
    /// The next entry of the same hash, whose pattern is later.
    pub(super) next: u32,
    pub(super) matched: Match,
}

#[derive(Clone, Copy)]
struct Link {
    table: u32,
    hash: u32,
    lengths: Lengths,
    /// The next entry of the same pattern.
    sibling: u32,
    /// In the first entry of a chain, the last entry, behind which most new entries are put.
    last: u32,
}

/// Tables that are asked ahead of the others.
const AHEAD: usize = 2;

/// A table, and the hash by which it is asked.
#[derive(Clone, Copy)]
struct Probe {
    hash: u32,
    table: u32,
}

/// Tables to be asked, in their order.
#[derive(Clone, Copy)]
pub(super) struct Candidates(Tables);

impl Iterator for Candidates {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let next = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (next < MOST).then_some(next)
    }
}

/// Fields of a header that tables are keyed by.
#[derive(Clone, Copy)]
pub(super) struct Key<A> {
    source: A,
    destination: A,
    /// Protocol, source port, destination port.
    rest: u64,
}

impl<A: Bits> Key<A> {
    #[inline(always)]
    pub(super) fn new(header: &Header) -> Key<A> {
        Key {
            source: A::of(header.source),
            destination: A::of(header.destination),
            rest: u64::from(header.protocol) << 32 | u64::from(ports(header)),
        }
    }

    /// Returns the hash of the key in a table.
    #[inline(always)]
    pub(super) fn hash(&self, table: &Table<A>) -> u32 {
        table.hash(self.source, self.destination, self.rest)
    }
}

impl<A: Bits> Entry<A> {
    /// True if a header is in the place.
    #[inline(always)]
    pub(super) fn admits(&self, key: &Key<A>, header: &Header) -> bool {
        key.source.and(self.source_mask) == self.source
            && key.destination.and(self.destination_mask) == self.destination
            && header.dport.wrapping_sub(self.dport) <= self.dports
            && header.sport.wrapping_sub(self.sport) <= self.sports
            && header.protocol & self.protocol_mask == self.protocol
            && header.tcp_flags & self.tcp_mask == self.tcp_value
            && (self.from >> (header.from & 63))
                & (self.to >> (header.to & 63))
                & (self.dscp >> (header.dscp & 63))
                & 1
                != 0
    }

    fn key(&self) -> Key<A> {
        let ports = u64::from(self.sport) << 16 | u64::from(self.dport);
        Key {
            source: self.source,
            destination: self.destination,
            rest: u64::from(self.protocol) << 32 | ports,
        }
    }
}

/// The patterns, as look-ups and changes need them.
pub(super) trait Rules {
    /// The place of a rule in the list.
    fn position(&self, rule: u32) -> Position;
    /// True if its pattern matches.
    fn matches(&self, rule: u32, header: &Header) -> bool;
}

impl<A: Bits> Space<A> {
    pub(super) fn new() -> Space<A> {
        Space {
            tables: Vec::new(),
            sources: Sieve::OPEN,
            destinations: Sieve::OPEN,
            changes: 0,
            entries: Vec::new(),
            links: Vec::new(),
            free: NONE,
        }
    }

    /// The tables that may have an entry for a key.
    #[inline(always)]
    pub(super) fn candidates(&self, key: &Key<A>) -> Candidates {
        Candidates(self.sources.tables(key.source) & self.destinations.tables(key.destination))
    }

    /// Reports the offsets, in bytes, of the sets that [`Space::candidates`] reads, both sieves' one after the other.
    pub(super) fn tell_sieves(&self, key: &Key<A>, mut tell: impl FnMut(usize)) {
        let sieves =
            [(&self.sources, key.source, 0), (&self.destinations, key.destination, self.sources.bytes())];
        for (sieve, address, begin) in sieves {
            if let Some(at) = sieve.offset(address) {
                tell(begin + at);
            }
        }
    }

    pub(super) fn sieve_bytes(&self) -> usize {
        self.sources.bytes() + self.destinations.bytes()
    }

    /// Returns the first pattern that a header matches; [`NO_MATCH`] if there is none.
    #[inline(always)]
    pub(super) fn find(&self, header: &Header, rules: &impl Rules) -> Position {
        let key = Key::new(header);
        self.find_in(self.candidates(&key), &key, header, NO_MATCH, rules)
    }

    /// Returns the first pattern of some tables, unless `best` is before it.
    #[inline(always)]
    fn find_in(
        &self,
        candidates: Candidates,
        key: &Key<A>,
        header: &Header,
        mut best: Position,
        rules: &impl Rules,
    ) -> Position {
        for table in candidates {
            let Some(table) = self.tables.get(table) else { break };
            if table.best < best {
                let first = table.first(key.hash(table));
                best = best.min(self.first_of(first, key, header, rules));
            }
        }
        best
    }

    /// [`Space::find`] for up to [`GROUP`] headers: those of `wanted`, a bit each.
    #[inline(always)]
    pub(super) fn find_group(
        &self,
        headers: &[Header],
        wanted: u32,
        positions: &mut [Position],
        rules: &impl Rules,
    ) {
        const NOBODY: Probe = Probe { hash: 0, table: 0 };
        let mut keys = [Key { source: A::of(0), destination: A::of(0), rest: 0 }; GROUP];
        let mut candidates = [Candidates(0); GROUP];
        for (at, (key, header)) in keys.iter_mut().zip(headers).enumerate() {
            if wanted & (1 << at) != 0 {
                *key = Key::new(header);
                candidates[at] = self.candidates(key);
            }
        }
        // Slots of the first few tables are asked for, then what they lead to, then it is compared.
        let mut probes = [[NOBODY; AHEAD]; GROUP];
        let mut counts = [0; GROUP];
        for at in 0..headers.len().min(GROUP) {
            while counts[at] < AHEAD {
                let Some(number) = candidates[at].next() else { break };
                let Some(table) = self.tables.get(number) else { break };
                let hash = keys[at].hash(table);
                prefetch::read(table.home(hash));
                probes[at][counts[at]] = Probe { hash, table: number as u32 };
                counts[at] += 1;
            }
        }
        for (probes, count) in probes.iter_mut().zip(counts) {
            for probe in &mut probes[..count] {
                // From here on it is the first entry.
                probe.hash = self.tables[probe.table as usize].first(probe.hash);
                if let Some(entry) = self.entries.get(probe.hash as usize) {
                    prefetch::read(entry);
                }
            }
        }
        for (at, (header, position)) in headers.iter().zip(positions.iter_mut()).enumerate() {
            if wanted & (1 << at) == 0 {
                continue;
            }
            let mut best = NO_MATCH;
            for probe in &probes[at][..counts[at]] {
                if probe.hash < GONE && self.tables[probe.table as usize].best < best {
                    best = best.min(self.first_of(probe.hash, &keys[at], header, rules));
                }
            }
            *position = self.find_in(candidates[at], &keys[at], header, best, rules);
        }
    }

    /// Returns the first match from an entry on.
    #[inline(always)]
    fn first_of(&self, first: u32, key: &Key<A>, header: &Header, rules: &impl Rules) -> Position {
        let mut at = first;
        while at < GONE {
            let entry = &self.entries[at as usize];
            if entry.admits(key, header)
                && (entry.matched == Match::Whole || rules.matches(entry.rule, header))
            {
                return rules.position(entry.rule);
            }
            at = entry.next;
        }
        NO_MATCH
    }

    /// Bytes of all its lists, with the room in them.
    pub(super) fn bytes(&self) -> usize {
        self.tables.capacity() * size_of::<Table<A>>()
            + self.sources.bytes()
            + self.destinations.bytes()
            + self.tables.iter().map(Table::slot_bytes).sum::<usize>()
            + self.entries.capacity() * size_of::<Entry<A>>()
            + self.links.capacity() * size_of::<Link>()
    }
}
