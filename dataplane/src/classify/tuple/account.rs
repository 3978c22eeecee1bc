//! What a search costs on an engine.
//!
//! Tables lie in the order in which they are asked, 32 bytes each: masks, best pattern, where its slots are. Then the
//! slots of all, 8 bytes each, and the entries. Hashing is told as such.

use tally::{Branch, Op, Region, Tally};

use super::super::{Header, NO_MATCH, Position};
use super::cover::Match;
use super::space::{Entry, Key, Rules, Space};
use super::table::{Bits, GONE, Table};

/// Bytes of a table's description: two masks as lengths, those of ports and protocol, best, place and number of slots.
const TABLE: usize = 32;

/// Bytes of a slot.
const SLOT: usize = 8;

/// Instructions of a table, but for the masks of addresses: its place and end, 2; best, 1; rest of the key masked, 2; slot's
/// place, 3; its hash, and whether it is free, 2.
const ASK: u32 = 10;

/// Instructions that compare an entry: two addresses, mask and compare, 4; ports, difference and compare, 8; protocol and
/// flags, mask and compare, 4; bits of zones and code point, 5.
const COMPARE: u32 = 21;

/// Branches of an entry: one for each of these conditions, and to the next.
const BRANCHES: u32 = 8;

/// Instructions in the store: for both families, a table's and an entry's, with reads and branches; what has no such form
/// is compared as by the linear scan.
pub(super) const PROGRAM: u32 = 2 * (ASK + 10 + 6 + COMPARE + 8 + BRANCHES + 4) + 35;

impl<A: Bits> Table<A> {
    fn told_bytes(&self) -> usize {
        TABLE + self.slot_bytes()
    }
}

pub(super) fn region_bytes<A: Bits>(space: &Space<A>) -> usize {
    space.tables.iter().map(Table::told_bytes).sum::<usize>() + space.entries.len() * size_of::<Entry<A>>()
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
    let mut best = NO_MATCH;
    for (place, number) in space.order.iter().enumerate() {
        let table = &space.tables[*number as usize];
        tally.read(Region::RuleTable, at + place * TABLE, TABLE as u32);
        if table.best >= best {
            tally.branch(Branch::Taken);
            break;
        }
        tally.instructions(ASK + 2 * words);
        tally.execute(Op::Branch, 3);
        tally.branch(Branch::Taken);
        tally.hash(8 * words + 5);
        let own = slots + space.tables[..*number as usize].iter().map(Table::slot_bytes).sum::<usize>();
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
