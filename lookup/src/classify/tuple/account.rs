//! Cost of a search on an engine.
//!
//! Tables lie in the order in which they are asked, 32 bytes each: masks, best pattern, offset of the slots. Then the slots
//! of all, 8 bytes each, the entries, and the sieves' sets. Hashing is reported as an operation of its own.

use tally::{Branch, Op, Region, Tally};

use super::super::{Header, NO_MATCH, Position};
use super::cover::Match;
use super::space::{Entry, Key, Rules, Space};
use super::table::{Bits, GONE, Table};

/// Bytes of a table's description: two masks as lengths, those of ports and protocol, best, place and number of slots.
const TABLE: usize = 32;

/// Bytes of a slot.
const SLOT: usize = 8;

/// Instructions of a table, but for the masks of addresses: its place and end, 2; best, 1; rest of the key masked, 2;
/// slot's place, 3; the slot's hash, and the test for a free slot, 2.
const ASK: u32 = 10;

/// Instructions of a sieve, but for the mask of the address: hashed with a multiplication, 2; set's place, 2; four words of
/// it combined, 4.
const SIEVE: u32 = 8;

/// Instructions to the next table of a set: lowest bit found and cleared in its word, 4.
const NEXT: u32 = 4;

/// Instructions that compare an entry: two addresses, mask and compare, 4; ports, difference and compare, 8; protocol and
/// flags, mask and compare, 4; bits of zones and code point, 5.
const COMPARE: u32 = 21;

/// Branches of an entry: one for each of these conditions, and to the next.
const BRANCHES: u32 = 8;

/// Instructions in the store: for both families, a table's and an entry's, with reads and branches; what has no such form
/// is compared as by the linear scan.
pub(super) const PROGRAM: u32 = 2 * (2 * SIEVE + NEXT + ASK + 14 + 6 + COMPARE + 8 + BRANCHES + 4) + 35;

impl<A: Bits> Table<A> {
    fn told_bytes(&self) -> usize {
        TABLE + self.slot_bytes()
    }
}

pub(super) fn region_bytes<A: Bits>(space: &Space<A>) -> usize {
    space.tables.iter().map(Table::told_bytes).sum::<usize>()
        + space.entries.len() * size_of::<Entry<A>>()
        + space.sieve_bytes()
}

/// [`Space::find`] of tables that begin `at`.
pub(super) fn find<A: Bits>(
    space: &Space<A>,
    header: &Header,
    rules: &impl Rules,
    at: usize,
    tally: &mut dyn Tally,
) -> Position {
    let key = Key::new(header);
    let words = u32::from(A::WIDTH) / 32;
    let slots = at + space.tables.len() * TABLE;
    let entries = slots + space.tables.iter().map(Table::slot_bytes).sum::<usize>();
    let sieves = entries + space.entries.len() * size_of::<Entry<A>>();
    let mut best = NO_MATCH;
    space.tell_sieves(&key, |of_sieve| {
        tally.instructions(SIEVE + words);
        tally.read(Region::RuleTable, sieves + of_sieve, 16);
    });
    for number in space.candidates(&key) {
        let Some(table) = space.tables.get(number) else { break };
        tally.instructions(NEXT);
        tally.read(Region::RuleTable, at + number * TABLE, TABLE as u32);
        if table.best >= best {
            tally.branch(Branch::Taken);
            continue;
        }
        tally.instructions(ASK + 2 * words);
        tally.execute(Op::Branch, 3);
        tally.branch(Branch::Taken);
        tally.hash(8 * words + 5);
        let own = slots + space.tables[..number].iter().map(Table::slot_bytes).sum::<usize>();
        let first = table.first_told(key.hash(table), |slot| {
            tally.read(Region::RuleTable, own + slot * SLOT, SLOT as u32);
        });
        let mut next = first;
        while next < GONE {
            let entry = &space.entries[next as usize];
            let bytes = size_of::<Entry<A>>();
            tally.read(Region::RuleTable, entries + next as usize * bytes, bytes as u32);
            tally.instructions(COMPARE + 4 * (words - 1));
            tally.execute(Op::Branch, BRANCHES - 1);
            tally.branch(Branch::Taken);
            if entry.admits(&key, header) {
                if entry.matched == Match::Part {
                    // The pattern itself, beside the entry.
                    tally.read(Region::RuleTable, entries + next as usize * bytes, 32);
                    tally.instructions(COMPARE);
                    tally.execute(Op::Branch, BRANCHES);
                }
                if entry.matched == Match::Whole || rules.matches(entry.rule, header) {
                    best = best.min(rules.position(entry.rule));
                    break;
                }
            }
            next = entry.next;
        }
    }
    best
}
