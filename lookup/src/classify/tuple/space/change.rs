//! Insertion and removal of entries: the choice of a table, and the order of entries and tables.

use super::super::super::budget::Budget;
use super::super::super::{Pattern, Position, TooLarge};
use super::super::cover::{Cover, Lengths};
use super::super::sieve::{Grain, MOST, Sieve};
use super::super::table::{Bits, GONE, NONE, Table};
use super::{Entry, Key, Link, Rules, Space};

/// The most entries of one hash in a table. What is more goes into a table of longer prefixes, where there can be one.
const CHAIN: usize = 32;

impl<A: Bits> Space<A> {
    /// Puts a rule in at each of its places. Returns the last of its entries, for [`Space::remove`].
    ///
    /// # Errors
    /// There is no memory for the entries; nothing is changed but for memory that is taken.
    pub(in super::super) fn insert(
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
                        self.remove(last, rules, budget);
                        return Err(too_large);
                    }
                }
            }
        }
        self.tidy(rules, budget);
        Ok(last)
    }

    /// Takes a rule's entries out, from the last of them on.
    pub(in super::super) fn remove(&mut self, last: u32, rules: &impl Rules, budget: &mut Budget) {
        let mut at = last;
        while at != NONE {
            let sibling = self.links[at as usize].sibling;
            self.unlink(at);
            self.entries[at as usize].next = self.free;
            self.free = at;
            self.changes += 1;
            at = sibling;
        }
        self.tidy(rules, budget);
    }

    /// Puts the tables in order, once there were as many changes as half of the entries.
    fn tidy(&mut self, rules: &impl Rules, budget: &mut Budget) {
        if self.changes > self.entries.len() / 2 + 32 {
            self.put_in_order(rules, budget);
        }
    }

    /// Puts the tables in the order of their best patterns, and makes the sieves anew, as far as there is memory for them.
    pub(in super::super) fn put_in_order(&mut self, rules: &impl Rules, budget: &mut Budget) {
        self.changes = 0;
        for table in &mut self.tables {
            // The first of each chain is its best.
            let best = table.firsts().map(|first| rules.position(self.entries[first as usize].rule)).min();
            table.best = best.unwrap_or(Position::MAX);
        }
        let mut order: Vec<u32> = (0..self.tables.len() as u32).collect();
        order.sort_by_key(|table| self.tables[*table as usize].best);
        let mut place_of = [0; MOST];
        for (place, table) in (0..).zip(&order) {
            place_of[*table as usize] = place;
        }
        // What is free has a table, too, and of no consequence.
        self.links.iter_mut().for_each(|link| link.table = place_of[link.table as usize]);
        self.tables.sort_by_key(|table| table.best);
        let in_use = self.tables.partition_point(|table| table.entries > 0);
        budget.give_back(self.tables[in_use..].iter().map(Table::slot_bytes).sum());
        self.tables.truncate(in_use);
        let (entries, links) = (&self.entries, &self.links);
        let count: usize = self.tables.iter().map(|table| table.entries).sum();
        let alive = self.tables.iter().flat_map(|table| {
            let chain = move |first| successors(entries, first);
            table.firsts().flat_map(chain)
        });
        let grain = |at: u32| {
            let (entry, link) = (&entries[at as usize], &links[at as usize]);
            let Link { table, lengths, .. } = *link;
            (entry, table, lengths)
        };
        let sources = alive.clone().map(|at| {
            let (entry, table, lengths) = grain(at);
            Grain { address: entry.source, length: lengths.source, table }
        });
        let destinations = alive.map(|at| {
            let (entry, table, lengths) = grain(at);
            Grain { address: entry.destination, length: lengths.destination, table }
        });
        for (sieve, best) in [
            (&mut self.sources, Sieve::best(sources, count, budget)),
            (&mut self.destinations, Sieve::best(destinations, count, budget)),
        ] {
            budget.give_back(std::mem::replace(sieve, best).bytes());
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
        let link = Link { table, hash: 0, lengths, sibling, last: NONE };
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

    /// Returns the table for an entry: the most selective table that admits the entry, unless too many entries there
    /// have its hash.
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
            space.chain(table.first(hash)).take(CHAIN).count()
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
        if let (Some(full), true) = (full, wanted.is_none() || in_use >= MOST - 1) {
            return Ok(full);
        }
        // What no table admits gets one; the last, one for everything.
        let wanted = wanted.filter(|_| in_use < MOST - 1);
        let at = self.new_table(wanted.unwrap_or_default(), budget)?;
        if let Some(full) = full {
            self.split(full, at, &key, rules, budget)?;
        }
        Ok(at)
    }

    /// Makes a table, in the place of one that has no entries any more if there is one.
    fn new_table(&mut self, lengths: Lengths, budget: &mut Budget) -> Result<u32, TooLarge> {
        if let Some(at) = self.tables.iter().position(|table| table.entries == 0) {
            let fresh = Table::new(lengths, budget)?;
            let before = std::mem::replace(&mut self.tables[at], fresh);
            budget.give_back(before.slot_bytes());
            return Ok(at as u32);
        }
        budget.grow(&mut self.tables)?;
        self.tables.push(Table::new(lengths, budget)?);
        Ok(self.tables.len() as u32 - 1)
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
            self.unlink(at);
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
        successors(&self.entries, first)
    }

    /// Puts an entry into a table's chain, behind those of earlier rules.
    fn link(&mut self, at: u32, table: u32, rules: &impl Rules, budget: &mut Budget) -> Result<(), TooLarge> {
        let position = rules.position(self.entries[at as usize].rule);
        let key = self.entries[at as usize].key();
        let owner = &mut self.tables[table as usize];
        let hash = key.hash(owner);
        let first = owner.first(hash);
        let is_after = |other: u32| position < rules.position(self.entries[other as usize].rule);
        if first >= GONE || is_after(first) {
            owner.set_first(hash, at, budget)?;
            self.entries[at as usize].next = if first < GONE { first } else { NONE };
            self.links[at as usize].last = if first < GONE { self.links[first as usize].last } else { at };
        } else {
            let mut before = self.links[first as usize].last;
            if is_after(before) {
                before = first;
                while !is_after(self.entries[before as usize].next) {
                    before = self.entries[before as usize].next;
                }
            } else {
                self.links[first as usize].last = at;
            }
            self.entries[at as usize].next = self.entries[before as usize].next;
            self.entries[before as usize].next = at;
        }
        let link = &mut self.links[at as usize];
        (link.table, link.hash) = (table, hash);
        let owner = &mut self.tables[table as usize];
        owner.entries += 1;
        owner.best = owner.best.min(position);
        let Entry { source, destination, .. } = self.entries[at as usize];
        let lengths = self.links[at as usize].lengths;
        self.sources.add(Grain { address: source, length: lengths.source, table });
        self.destinations.add(Grain { address: destination, length: lengths.destination, table });
        self.changes += 1;
        Ok(())
    }

    /// Takes an entry out of its chain.
    fn unlink(&mut self, at: u32) {
        let Link { table, hash, .. } = self.links[at as usize];
        let next = self.entries[at as usize].next;
        let owner = &mut self.tables[table as usize];
        let first = owner.first(hash);
        owner.entries -= 1;
        if owner.entries == 0 {
            owner.best = Position::MAX;
        }
        if first == at {
            owner.replace_first(hash, next);
            if next < GONE {
                self.links[next as usize].last = self.links[at as usize].last;
            }
        } else {
            let before = self.chain(first).find(|before| self.entries[*before as usize].next == at);
            if let Some(before) = before {
                self.entries[before as usize].next = next;
                if next == NONE {
                    self.links[first as usize].last = before;
                }
            }
        }
    }

    /// Moves all positions from `position` on up by one.
    pub(in super::super) fn make_place(&mut self, position: Position) {
        for table in &mut self.tables {
            table.best += Position::from(table.best >= position && table.best != Position::MAX);
        }
    }

    /// The pattern at `position` has gone.
    pub(in super::super) fn close_place(&mut self, position: Position) {
        for table in &mut self.tables {
            table.best -= Position::from(table.best > position && table.best != Position::MAX);
        }
    }
}

/// Returns an entry and the entries behind it in the chain.
fn successors<A>(entries: &[Entry<A>], first: u32) -> impl Iterator<Item = u32> + Clone + '_ {
    let entry = |at: u32| (at < GONE).then_some(at);
    std::iter::successors(entry(first), move |at| entry(entries[*at as usize].next))
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
