//! The machine that reports references, loops and branches to a ledger.

use std::ops::Range;
use std::panic::Location;

use tally::{Access, Address, Branch, Reference, Region, Ticket};

use super::{Caller, Counted, Ledger};
use crate::machine::{Entries, Layout, Machine, Pick, Table, Written, word_of};
use crate::plan::{self, Rounds, Waits};
use crate::word::Cost;

/// Bytes of one reference to text, at most: RDRAM's (Yin, Tan et al., 4.3).
const TEXT_BURST: usize = 64;
/// Bytes of one reference to a key or table, at most: SRAM's and scratch memory's (likewise).
const TABLE_BURST: usize = 32;

/// The machine whose words report to a ledger.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    pub(super) ledger: &'a Ledger<'a>,
}

impl<'a> Counting<'a> {
    fn word(self, value: u32, from: Ticket) -> Counted<'a> {
        Counted::new(value, from, self.ledger)
    }

    /// Cost of addressing a reference whose address depends on nothing but the counter of a rolled loop.
    fn address(self) -> Cost {
        if self.ledger.rolled.get() > 0 { Cost::ALU } else { Cost::NONE }
    }

    /// Issues a read, counted as an instruction of its own unless the read is of an expanded key.
    fn refer(self, caller: Caller, part: u8, reference: Reference) -> Ticket {
        if reference.region != Region::CipherKey {
            self.ledger.stand(caller, part, 1);
        }
        self.ledger.issue(reference)
    }

    /// Issues a read of the word at a computed index.
    fn fetch(self, caller: Caller, table: Table<'_>, index: usize) -> Counted<'a> {
        let reference = read(table.region, table.at + 4 * index, 4, Address::Computed);
        let from = self.refer(caller, 1, reference);
        self.word(table.words[index], from)
    }

    /// Layout of a table's entries at this step of optimisation.
    fn entries(self, table: Entries<'_>) -> plan::Entries {
        match table.layout {
            Layout::Planned => self.ledger.plan.entries,
            Layout::Packed => plan::Entries::Packed,
        }
    }

    /// Offset of the word that holds an entry, in bytes, and cost of computing it.
    fn locate(self, table: Entries<'_>, index: usize, mask: u32) -> Located {
        match self.entries(table) {
            plan::Entries::Aligned => Located {
                at: 4 * index,
                cost: Cost::SHIFT.and(self.ledger.constant(mask << 2, Cost::constant(mask << 2))),
            },
            plan::Entries::Packed => {
                let in_a_word = 32 / table.bits;
                let mask = (mask / in_a_word) << 2;
                Located {
                    at: 4 * (index / in_a_word as usize),
                    cost: Cost::SHIFT.and(self.ledger.constant(mask, Cost::constant(mask))),
                }
            }
        }
    }
}

struct Located {
    at: usize,
    cost: Cost,
}

impl<'a> Machine for Counting<'a> {
    type Word = Counted<'a>;

    #[track_caller]
    fn constant(self, value: u32) -> Counted<'a> {
        self.ledger.execute(Location::caller(), 0, Cost::load(value));
        Counted::in_register(value, self.ledger)
    }

    #[track_caller]
    fn constants<const N: usize>(self, values: [u32; N]) -> [Counted<'a>; N] {
        let cost = values.iter().fold(Cost::NONE, |cost, &value| cost.and(Cost::load(value)));
        self.ledger.execute(Location::caller(), 0, cost);
        values.map(|value| Counted::in_register(value, self.ledger))
    }

    #[track_caller]
    fn look_up(self, table: Table<'_>, pick: Pick<Counted<'a>>) -> Counted<'a> {
        let (caller, ledger) = (Location::caller(), self.ledger);
        // The index is taken out of the word as the byte offset that it stands for.
        let mask = pick.mask() << 2;
        let cost = if pick.shift == 2 { Cost::ALU } else { Cost::SHIFT };
        let load = ledger.constant(mask, Cost::constant(mask));
        pick.word.used();
        ledger.execute(caller, 0, cost.and(load));
        self.fetch(caller, table, pick.index())
    }

    #[track_caller]
    fn look_up_at(self, table: Table<'_>, offset: Counted<'a>) -> Counted<'a> {
        offset.used();
        self.fetch(Location::caller(), table, offset.value as usize / 4)
    }

    #[track_caller]
    fn look_up_entry(self, table: Entries<'_>, base: usize, pick: Pick<Counted<'a>>) -> Counted<'a> {
        let (caller, ledger) = (Location::caller(), self.ledger);
        let index = base + pick.index();
        let Located { at, cost } = self.locate(table, index, pick.mask());
        pick.word.used();
        ledger.execute(caller, 0, cost);
        let from = self.refer(caller, 1, read(table.region, at, 4, Address::Computed));
        if self.entries(table) == plan::Entries::Packed {
            // How far to shift is computed while the word comes.
            ledger.execute(caller, 2, Cost::SHIFT);
            ledger.wait(from);
            ledger.execute(caller, 3, Cost::SHIFT_BY);
            return Counted::in_register(u32::from(table.entries[index]), ledger);
        }
        self.word(u32::from(table.entries[index]), from)
    }

    #[track_caller]
    fn write_entry(self, table: Entries<'_>, pick: Pick<Counted<'a>>, value: Counted<'a>) -> Written {
        let (caller, ledger) = (Location::caller(), self.ledger);
        let index = pick.index();
        let Located { at, .. } = self.locate(table, index, pick.mask());
        pick.word.used();
        value.used();
        if self.entries(table) == plan::Entries::Packed {
            let from = self.refer(caller, 0, read(table.region, at, 4, Address::Computed));
            ledger.wait(from);
            // A mask is shifted to the entry's place, the entry cleared, and the new one shifted in.
            ledger.execute(caller, 1, Cost::SHIFT_BY.and(Cost::ALU).and(Cost::SHIFT_BY));
        }
        ledger.stand(caller, 2, 1);
        ledger.issue_write(write(table.region, at, 4, Address::Computed));
        Written { index, value: value.value as u8 }
    }

    #[track_caller]
    fn read<const N: usize>(self, table: Table<'_>, index: usize) -> [Counted<'a>; N] {
        let caller = Location::caller();
        let mut words = [self.word(0, Ticket::DONE); N];
        for (part, bytes) in self.ledger.bursts(4 * N, TABLE_BURST).enumerate() {
            let part = 2 * part as u8;
            self.ledger.execute(caller, part, self.address());
            let at = table.at + 4 * index + bytes.start;
            let from =
                self.refer(caller, part + 1, read(table.region, at, bytes.len() as u32, Address::Known));
            let values = &table.words[index..][bytes.start / 4..bytes.end / 4];
            for (word, &value) in words[bytes.start / 4..].iter_mut().zip(values) {
                *word = self.word(value, from);
            }
        }
        words
    }

    #[track_caller]
    fn read_text<const N: usize>(self, text: &[u8], at: usize) -> [Counted<'a>; N] {
        let caller = Location::caller();
        let mut words = [self.word(0, Ticket::DONE); N];
        for (part, bytes) in self.ledger.bursts(4 * N, TEXT_BURST).enumerate() {
            let from = self.refer(
                caller,
                part as u8,
                read(Region::Frame, at + bytes.start, bytes.len() as u32, Address::Known),
            );
            let values = text[at + bytes.start..at + bytes.end].chunks_exact(4);
            for (word, value) in words[bytes.start / 4..].iter_mut().zip(values) {
                *word = self.word(word_of(value, 0), from);
            }
        }
        words
    }

    #[track_caller]
    fn write_text<const N: usize>(self, text: &mut [u8], at: usize, words: [Counted<'a>; N]) {
        let (caller, ledger) = (Location::caller(), self.ledger);
        for word in words {
            word.used();
        }
        for (part, bytes) in ledger.bursts(4 * N, TEXT_BURST).enumerate() {
            ledger.stand(caller, part as u8, 1);
            let region = Region::Frame;
            ledger.issue_write(write(region, at + bytes.start, bytes.len() as u32, Address::Known));
        }
        for (bytes, word) in text[at..at + 4 * N].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.value.to_be_bytes());
        }
    }

    #[track_caller]
    fn rounds(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let kind = match self.ledger.plan.rounds {
            Rounds::Rolled => Kind::Rounds,
            Rounds::Unrolled => Kind::WrittenOut,
        };
        Passes::new(self.ledger, Location::caller(), kind, range)
    }

    #[track_caller]
    fn written_out(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        Passes::new(self.ledger, Location::caller(), Kind::WrittenOut, range)
    }

    #[track_caller]
    fn blocks(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        Passes::new(self.ledger, Location::caller(), Kind::Blocks, range)
    }

    #[track_caller]
    fn rename<const N: usize>(self, words: [Counted<'a>; N]) -> [Counted<'a>; N] {
        if self.ledger.rolled.get() > 0 {
            for word in words {
                word.used();
            }
            self.ledger.execute(Location::caller(), 0, Cost::ALU.times(N as u32));
        }
        words
    }

    #[track_caller]
    fn indexed(self, word: Counted<'a>) -> Counted<'a> {
        self.ledger.execute(Location::caller(), 0, self.address());
        word
    }

    #[track_caller]
    fn is_zero(self, word: Counted<'a>) -> bool {
        word.used();
        let branch = if word.value == 0 { Branch::Taken } else { Branch::NotTaken };
        self.ledger.branch(Location::caller(), 0, branch);
        word.value == 0
    }

    #[track_caller]
    fn inlined(self, copy: usize) -> impl Drop {
        Inlined { outer: self.ledger.enter(Location::caller(), copy), ledger: self.ledger }
    }

    fn reads_ahead(self) -> bool {
        self.ledger.plan.waits == Waits::AtUse
    }
}

/// A read of `bytes` bytes.
fn read(region: Region, at: usize, bytes: u32, address: Address) -> Reference {
    Reference { region, at, bytes, access: Access::Read, address }
}

/// A write of `bytes` bytes.
fn write(region: Region, at: usize, bytes: u32, address: Address) -> Reference {
    Reference { region, at, bytes, access: Access::Write, address }
}

/// Makes the code a copy of its own while alive.
struct Inlined<'a> {
    ledger: &'a Ledger<'a>,
    outer: u64,
}

impl Drop for Inlined<'_> {
    fn drop(&mut self) {
        self.ledger.copy.set(self.outer);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A rolled loop over rounds.
    Rounds,
    /// Each pass a copy of its own.
    WrittenOut,
    /// A loop over blocks.
    Blocks,
}

impl Kind {
    /// Registers of the loop: a counter, and a pointer to the block.
    fn registers(self) -> usize {
        match self {
            Kind::Rounds => 1,
            Kind::WrittenOut => 0,
            Kind::Blocks => 2,
        }
    }
}

/// The passes of a loop, each of which reports the loop's own cost.
struct Passes<'a> {
    ledger: &'a Ledger<'a>,
    caller: Caller,
    kind: Kind,
    range: Range<usize>,
    outer: u64,
    begun: bool,
}

impl<'a> Passes<'a> {
    fn new(ledger: &'a Ledger<'a>, caller: Caller, kind: Kind, range: Range<usize>) -> Passes<'a> {
        if kind == Kind::Rounds {
            ledger.rolled.set(ledger.rolled.get() + 1);
        }
        ledger.live.hold(kind.registers());
        Passes { ledger, caller, kind, range, outer: ledger.copy.get(), begun: false }
    }
}

impl Iterator for Passes<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let pass = self.range.next();
        self.ledger.pass();
        if self.kind == Kind::WrittenOut {
            self.ledger.copy.set(self.outer);
            if let Some(pass) = pass {
                self.ledger.enter(self.caller, pass);
            }
        } else if !self.begun {
            let counter = self.range.len() as u32;
            self.ledger.execute(self.caller, 0, Cost::load(counter));
        } else {
            // The counter, and where there are blocks the pointer to them; the flags are the counter's.
            let pointer = if self.kind == Kind::Blocks { Cost::ALU } else { Cost::NONE };
            self.ledger.execute(self.caller, 1, Cost::ALU.and(pointer));
            let branch = if pass.is_some() { Branch::Taken } else { Branch::NotTaken };
            self.ledger.branch(self.caller, 2, branch);
        }
        self.begun = true;
        pass
    }
}

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.ledger.copy.set(self.outer);
        self.ledger.live.release(self.kind.registers());
        if self.kind == Kind::Rounds {
            self.ledger.rolled.set(self.ledger.rolled.get() - 1);
        }
    }
}
