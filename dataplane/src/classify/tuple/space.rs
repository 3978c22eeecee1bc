//! The tables of one family, and the entries in them.

use wire::prefetch;

use super::super::budget::Budget;
use super::super::{Header, NO_MATCH, Pattern, Position, TooLarge};
use super::cover::{Cover, Lengths, Match, ports};
use super::table::{Bits, GONE, NONE, Table};

/// The most entries of one hash in a table. What is more goes into a table of longer prefixes, where there can be one.
const CHAIN: usize = 8;

/// The most tables: a look-up may ask each of them. What needs another goes into one there is.
const TABLES: usize = 128;

/// Headers that are looked up side by side.
pub(super) const GROUP: usize = 16;

/// Tables and entries.
#[derive(Clone)]
pub(super) struct Space<A> {
    pub(super) tables: Vec<Table<A>>,
    /// Tables in the order of their best patterns.
    pub(super) order: Vec<u32>,
    pub(super) entries: Vec<Entry<A>>,
    /// What of an entry only changes need to know.
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
    /// How many more ports follow the first.
    sports: u16,
    dport: u16,
    dports: u16,
    protocol: u8,
    protocol_mask: u8,
    tcp_value: u8,
    tcp_mask: u8,
    /// Whose it is.
    pub(super) rule: u32,
    /// The next of the same hash, whose pattern is later.
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
}

/// What tables look at of a header.
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

    /// Its hash in a table.
    #[inline(always)]
    pub(super) fn hash(&self, table: &Table<A>) -> u32 {
        table.hash(self.source, self.destination, self.rest)
    }
}

impl<A: Bits> Entry<A> {
    /// Whether a header is in the place.
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
    /// Whether its pattern matches.
    fn matches(&self, rule: u32, header: &Header) -> bool;
}

impl<A: Bits> Space<A> {
    pub(super) fn new() -> Space<A> {
        Space { tables: Vec::new(), order: Vec::new(), entries: Vec::new(), links: Vec::new(), free: NONE }
    }

    /// The first pattern that a header matches; [`NO_MATCH`] if there is none.
    #[inline(always)]
    pub(super) fn find(&self, header: &Header, rules: &impl Rules) -> Position {
        let key = Key::new(header);
        let mut best = NO_MATCH;
        for table in &self.order {
            let table = &self.tables[*table as usize];
            if table.best >= best {
                break;
            }
            let hash = key.hash(table);
            best = best.min(self.first_of(table.first(hash), &key, header, rules));
        }
        best
    }

    /// [`Space::find`] for up to [`GROUP`] headers: those of `wanted`, a bit each. Their positions are [`NO_MATCH`] before.
    #[inline(always)]
    pub(super) fn find_group(
        &self,
        headers: &[Header],
        wanted: u32,
        positions: &mut [Position],
        rules: &impl Rules,
    ) {
        let mut keys = [Key { source: A::of(0), destination: A::of(0), rest: 0 }; GROUP];
        for (key, header) in keys.iter_mut().zip(headers) {
            *key = Key::new(header);
        }
        let mut hashes = [0; GROUP];
        for table in &self.order {
            let table = &self.tables[*table as usize];
            for (hash, key) in hashes.iter_mut().zip(&keys) {
                *hash = key.hash(table);
                prefetch::read(table.home(*hash));
            }
            let mut open = false;
            for (at, (header, position)) in headers.iter().zip(positions.iter_mut()).enumerate() {
                if wanted & (1 << at) != 0 && table.best < *position {
                    open = true;
                    let first = table.first(hashes[at]);
                    if first < GONE {
                        *position = (*position).min(self.first_of(first, &keys[at], header, rules));
                    }
                }
            }
            if !open {
                break;
            }
        }
    }

    /// The first match from an entry on.
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

    /// Puts a rule in at each of its places. The last of its entries, for [`Space::remove`].
    ///
    /// # Errors
    /// There is no memory for it; nothing is changed but for memory that is taken.
    pub(super) fn insert(
        &mut self,
        rule: u32,
        pattern: &Pattern,
        cover: &Cover,
        rules: &impl Rules,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        let mut last = NONE;
        for source in &cover.sources {
            for destination in &cover.destinations {
                let lengths = Lengths {
                    source: source.length,
                    destination: destination.length,
                    sport: cover.sport.length,
                    dport: cover.dport.length,
                    protocol: if cover.protocol.is_some() { 8 } else { 0 },
                };
                let entry = Entry {
                    source: A::of(source.value),
                    source_mask: A::mask(source.length),
                    destination: A::of(destination.value),
                    destination_mask: A::mask(destination.length),
                    from: pattern.from,
                    to: pattern.to,
                    dscp: pattern.dscp,
                    sport: cover.sport.first,
                    sports: cover.sport.last - cover.sport.first,
                    dport: cover.dport.first,
                    dports: cover.dport.last - cover.dport.first,
                    protocol: cover.protocol.unwrap_or(0),
                    protocol_mask: if cover.protocol.is_some() { u8::MAX } else { 0 },
                    tcp_value: pattern.tcp_value,
                    tcp_mask: pattern.tcp_mask,
                    rule,
                    next: NONE,
                    matched: cover.matched,
                };
                match self.insert_entry(entry, lengths, last, rules, budget) {
                    Ok(at) => last = at,
                    Err(too_large) => {
                        self.remove(last, rules);
                        return Err(too_large);
                    }
                }
            }
        }
        Ok(last)
    }

    /// Takes a rule's entries out, from the last of them on.
    pub(super) fn remove(&mut self, last: u32, rules: &impl Rules) {
        let mut at = last;
        while at != NONE {
            let sibling = self.links[at as usize].sibling;
            self.unlink(at, rules);
            self.entries[at as usize].next = self.free;
            self.free = at;
            at = sibling;
        }
    }

    fn insert_entry(
        &mut self,
        entry: Entry<A>,
        lengths: Lengths,
        sibling: u32,
        rules: &impl Rules,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        let table = self.table_for(&entry, lengths, rules, budget)?;
        let link = Link { table, hash: 0, lengths, sibling };
        let at = if self.free == NONE {
            budget.grow(&mut self.entries)?;
            budget.grow(&mut self.links)?;
            self.entries.push(entry);
            self.links.push(link);
            self.entries.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            self.links[at as usize] = link;
            at
        };
        match self.link(at, table, rules, budget) {
            Ok(()) => Ok(at),
            Err(too_large) => {
                self.entries[at as usize].next = self.free;
                self.free = at;
                Err(too_large)
            }
        }
    }

    /// The table that takes an entry: the most telling of those that admit it, unless too many there have its hash.
    fn table_for(
        &mut self,
        entry: &Entry<A>,
        lengths: Lengths,
        rules: &impl Rules,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        let key = entry.key();
        let chain = |space: &Space<A>, table: &Table<A>| {
            let hash = key.hash(table);
            space.chain(table.first(hash)).count()
        };
        let admits = self.tables.iter().zip(0..).filter(|(table, _)| table.lengths.admit(lengths));
        let telling = admits.max_by_key(|(table, _)| table.lengths.bits()).map(|(_, at)| at);
        let full = match telling {
            Some(at) if chain(self, &self.tables[at as usize]) < CHAIN => return Ok(at),
            full => full,
        };
        let roomy = lengths_of_table(lengths, A::WIDTH);
        let known = |lengths| self.tables.iter().any(|table| table.lengths == lengths);
        // Of the same key as others in all lengths, it has to be beside them.
        let wanted = [roomy, lengths].into_iter().find(|lengths| {
            !known(*lengths)
                && full.is_none_or(|full| lengths.bits() > self.tables[full as usize].lengths.bits())
        });
        let in_use = self.tables.iter().filter(|table| table.entries > 0).count();
        if let (Some(full), true) = (full, wanted.is_none() || in_use >= TABLES) {
            return Ok(full);
        }
        // What no table admits gets one, and where there are many, one for everything.
        let wanted = wanted.filter(|_| in_use < TABLES);
        let at = self.new_table(wanted.unwrap_or_default(), budget)?;
        if let Some(full) = full {
            self.split(full, at, &key, rules, budget)?;
        }
        Ok(at)
    }

    /// Another table, in the place of one that has no entries any more if there is such a one.
    fn new_table(&mut self, lengths: Lengths, budget: &mut Budget) -> Result<u32, TooLarge> {
        if let Some(at) = self.tables.iter().position(|table| table.entries == 0) {
            let fresh = Table::new(lengths, budget)?;
            let before = std::mem::replace(&mut self.tables[at], fresh);
            budget.give_back(before.slot_bytes());
            return Ok(at as u32);
        }
        budget.grow(&mut self.tables)?;
        budget.grow(&mut self.order)?;
        self.tables.push(Table::new(lengths, budget)?);
        let at = self.tables.len() as u32 - 1;
        self.order.push(at);
        Ok(at)
    }

    /// Moves entries with a key from one table to another that tells them apart better.
    fn split(
        &mut self,
        from: u32,
        to: u32,
        key: &Key<A>,
        rules: &impl Rules,
        budget: &mut Budget,
    ) -> Result<(), TooLarge> {
        let (table, better) = (&self.tables[from as usize], self.tables[to as usize].lengths);
        let first = table.first(key.hash(table));
        let moving = self.chain(first).filter(|at| better.admit(self.links[*at as usize].lengths));
        // There are a few more than fit only where nothing could tell them apart.
        let mut chosen = [NONE; 4 * CHAIN];
        chosen.iter_mut().zip(moving).for_each(|(chosen, at)| *chosen = at);
        for at in chosen.into_iter().filter(|at| *at != NONE) {
            self.unlink(at, rules);
            if let Err(too_large) = self.link(at, to, rules, budget) {
                // It was there before, and its slot still is.
                self.link(at, from, rules, budget)?;
                return Err(too_large);
            }
        }
        Ok(())
    }

    /// The entries of a hash.
    fn chain(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let entry = |at: u32| (at < GONE).then_some(at);
        std::iter::successors(entry(first), move |at| entry(self.entries[*at as usize].next))
    }

    /// Puts an entry into a table's chain, behind those of earlier rules.
    fn link(&mut self, at: u32, table: u32, rules: &impl Rules, budget: &mut Budget) -> Result<(), TooLarge> {
        let position = rules.position(self.entries[at as usize].rule);
        let key = self.entries[at as usize].key();
        let owner = &mut self.tables[table as usize];
        let hash = key.hash(owner);
        let first = owner.first(hash);
        let before = |next: u32| next < GONE && rules.position(self.entries[next as usize].rule) <= position;
        if before(first) {
            let mut last = first;
            while before(self.entries[last as usize].next) {
                last = self.entries[last as usize].next;
            }
            self.entries[at as usize].next = self.entries[last as usize].next;
            self.entries[last as usize].next = at;
        } else {
            owner.set_first(hash, at, budget)?;
            self.entries[at as usize].next = if first < GONE { first } else { NONE };
        }
        let link = &mut self.links[at as usize];
        (link.table, link.hash) = (table, hash);
        let owner = &mut self.tables[table as usize];
        owner.entries += 1;
        if position < owner.best {
            owner.best = position;
            self.sort();
        }
        Ok(())
    }

    /// Takes an entry out of its chain.
    fn unlink(&mut self, at: u32, rules: &impl Rules) {
        let Link { table, hash, .. } = self.links[at as usize];
        let Entry { next, rule, .. } = self.entries[at as usize];
        let owner = &mut self.tables[table as usize];
        let first = owner.first(hash);
        owner.entries -= 1;
        if first == at {
            owner.replace_first(hash, next);
        } else {
            let before = self.chain(first).find(|before| self.entries[*before as usize].next == at);
            if let Some(before) = before {
                self.entries[before as usize].next = next;
            }
        }
        let owner = &self.tables[table as usize];
        if rules.position(rule) == owner.best {
            // The first of each chain is its best.
            let best = owner.firsts().map(|first| rules.position(self.entries[first as usize].rule)).min();
            self.tables[table as usize].best = best.unwrap_or(Position::MAX);
            self.sort();
        }
    }

    /// Tables in the order of their best patterns: nearly sorted already.
    fn sort(&mut self) {
        let tables = &self.tables;
        self.order.sort_by_key(|table| tables[*table as usize].best);
    }

    /// From `position` on, all have one place more.
    pub(super) fn make_place(&mut self, position: Position) {
        for table in &mut self.tables {
            table.best += Position::from(table.best >= position && table.best != Position::MAX);
        }
    }

    /// The pattern at `position` has gone.
    pub(super) fn close_place(&mut self, position: Position) {
        for table in &mut self.tables {
            table.best -= Position::from(table.best > position && table.best != Position::MAX);
        }
    }

    /// Bytes of all its lists, with the room in them.
    pub(super) fn bytes(&self) -> usize {
        self.tables.capacity() * size_of::<Table<A>>()
            + self.order.capacity() * size_of::<u32>()
            + self.tables.iter().map(Table::slot_bytes).sum::<usize>()
            + self.entries.capacity() * size_of::<Entry<A>>()
            + self.links.capacity() * size_of::<Link>()
    }
}

/// The lengths of a new table for an entry: fewer than its own, so that others fit in.
fn lengths_of_table(lengths: Lengths, width: u8) -> Lengths {
    let address = |length: u8| if width == 32 { length / 8 * 8 } else { length / 16 * 16 };
    Lengths {
        source: address(lengths.source),
        destination: address(lengths.destination),
        sport: 0,
        dport: 0,
        protocol: 0,
    }
}
