//! Words that account for themselves.
//!
//! A [`Counted`] word is a number, the [`Ledger`] that it reports to, and the reference to memory that it comes from,
//! if that may still be under way. Each operation tells the ledger its [`Cost`]; the first one that needs a value
//! from memory waits for it. The ledger passes everything on to a [`Tally`] in the order of execution, and notes
//! where in the source each instruction was, which gives the size of the code.
//!
//! Size of code: an instruction counts once for each place that it stands at. A rolled loop is one place, each pass
//! of an unrolled one is a place of its own, and so is each copy of what is [inlined](Machine::inlined).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{BitAnd, BitOr, BitXor, Not, Range, Shl, Shr};
use std::panic::Location;

use tally::{Access, Address, Branch, Reference, Region, Tally, Ticket};

use crate::machine::{Entries, Machine, Pick, Table, Written, word_of};
use crate::plan::{self, Constants, Moves, Plan, Products, Rounds, Waits};
use crate::word::{Cost, Word};

/// Bytes of one reference to text, at most: RDRAM's (Yin, Tan et al., 4.3).
const TEXT_BURST: usize = 64;
/// Bytes of one reference to a key or table, at most: SRAM's and scratch memory's (likewise).
const TABLE_BURST: usize = 32;

/// Where counted words report to.
pub struct Ledger<'a> {
    tally: RefCell<&'a mut (dyn Tally + 'a)>,
    plan: Plan,
    /// Instructions by where they stand.
    places: RefCell<HashMap<Place, u32>>,
    /// Which copy of the code is being executed: a hash of the loops and calls it lies in.
    copy: Cell<u64>,
    /// Rolled loops over rounds that execution is in.
    rolled: Cell<u32>,
    outstanding: RefCell<Vec<Ticket>>,
    /// The last writes of text: the registers they are sent from must be free before the next.
    written: RefCell<Vec<Ticket>>,
    preloaded: RefCell<BTreeSet<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    file: &'static str,
    line: u32,
    column: u32,
    copy: u64,
    /// Which of several groups of instructions that one operation consists of.
    part: u8,
}

type Caller = &'static Location<'static>;

impl<'a> Ledger<'a> {
    /// A ledger that passes on to `tally` what code optimised as `plan` says does.
    pub fn new(plan: Plan, tally: &'a mut (dyn Tally + 'a)) -> Ledger<'a> {
        Ledger {
            tally: RefCell::new(tally),
            plan,
            places: RefCell::default(),
            copy: Cell::new(0),
            rolled: Cell::new(0),
            outstanding: RefCell::default(),
            written: RefCell::default(),
            preloaded: RefCell::default(),
        }
    }

    /// The machine whose words report here.
    pub fn machine(&'a self) -> Counting<'a> {
        Counting { ledger: self }
    }

    /// Instructions of the code that was executed so far, references to tables and text included. Expanded keys
    /// are taken to be operands, see [`home`](crate::home).
    pub fn code_size(&self) -> u32 {
        self.places.borrow().values().sum()
    }

    /// Constants that are loaded beforehand, each of them one register or word of local memory.
    pub fn preloaded(&self) -> usize {
        self.preloaded.borrow().len()
    }

    /// Waits for whatever is still under way.
    pub fn finish(&self) {
        let outstanding = std::mem::take(&mut *self.outstanding.borrow_mut());
        for ticket in outstanding {
            self.tally.borrow_mut().wait(ticket);
        }
    }

    fn execute(&self, caller: Caller, part: u8, cost: Cost) {
        let mut tally = self.tally.borrow_mut();
        for (op, count) in cost.by_op() {
            if count > 0 {
                tally.execute(op, count);
            }
        }
        drop(tally);
        self.stand(caller, part, cost.total());
    }

    fn branch(&self, caller: Caller, part: u8, branch: Branch) {
        self.tally.borrow_mut().branch(branch);
        self.stand(caller, part, 1);
    }

    fn stand(&self, caller: Caller, part: u8, instructions: u32) {
        let place = Place {
            file: caller.file(),
            line: caller.line(),
            column: caller.column(),
            copy: self.copy.get(),
            part,
        };
        let mut places = self.places.borrow_mut();
        let known = places.entry(place).or_default();
        *known = instructions.max(*known);
    }

    fn issue(&self, reference: Reference) -> Ticket {
        let ticket = self.tally.borrow_mut().issue(reference);
        if ticket == Ticket::DONE {
            return ticket;
        }
        match self.plan.waits {
            Waits::AtIssue => {
                self.tally.borrow_mut().wait(ticket);
                Ticket::DONE
            }
            Waits::AtUse => {
                self.outstanding.borrow_mut().push(ticket);
                ticket
            }
        }
    }

    fn wait(&self, ticket: Ticket) {
        if ticket == Ticket::DONE {
            return;
        }
        let mut outstanding = self.outstanding.borrow_mut();
        if let Some(index) = outstanding.iter().position(|&other| other == ticket) {
            outstanding.remove(index);
            drop(outstanding);
            self.tally.borrow_mut().wait(ticket);
        }
    }

    /// Loading a constant as the plan says, where it is used.
    fn constant(&self, constant: u32, cost: Cost) -> Cost {
        if cost == Cost::NONE {
            return cost;
        }
        match self.plan.constants {
            Constants::AtUse => cost,
            Constants::Preloaded => {
                self.preloaded.borrow_mut().insert(constant);
                Cost::NONE
            }
        }
    }

    /// Bytes of the references that move `bytes` neighbouring bytes, at most `burst` at once.
    fn bursts(&self, bytes: usize, burst: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let step = match self.plan.moves {
            Moves::Words => 4,
            Moves::Bursts => burst,
        };
        (0..bytes).step_by(step).map(move |from| from..bytes.min(from + step))
    }

    fn enter(&self, caller: Caller, pass: usize) -> u64 {
        let outer = self.copy.get();
        let mut hasher = DefaultHasher::new();
        (outer, caller.file(), caller.line(), caller.column(), pass).hash(&mut hasher);
        self.copy.replace(hasher.finish())
    }
}

/// The machine whose words report to a ledger.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    ledger: &'a Ledger<'a>,
}

/// A word that reports what is done with it.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    value: u32,
    /// The reference that it comes from.
    from: Ticket,
    ledger: &'a Ledger<'a>,
}

impl<'a> Counted<'a> {
    /// The result of an operation on this word alone.
    #[inline]
    fn alone(self, caller: Caller, cost: Cost, result: impl FnOnce(u32) -> u32) -> Counted<'a> {
        self.ledger.wait(self.from);
        self.ledger.execute(caller, 0, cost);
        Counted { value: result(self.value), from: Ticket::DONE, ledger: self.ledger }
    }

    /// The result of an operation on two words.
    #[inline]
    fn with(
        self,
        other: Counted<'a>,
        caller: Caller,
        cost: Cost,
        result: impl FnOnce(u32, u32) -> u32,
    ) -> Counted<'a> {
        self.ledger.wait(other.from);
        self.alone(caller, cost, |value| result(value, other.value))
    }
}

impl BitXor for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn bitxor(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::ALU, |a, b| a ^ b)
    }
}

impl BitAnd for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn bitand(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::ALU, |a, b| a & b)
    }
}

impl BitAnd<u32> for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn bitand(self, mask: u32) -> Self {
        let load = self.ledger.constant(mask, Cost::mask(mask));
        self.alone(Location::caller(), Cost::ALU.and(load), |a| a & mask)
    }
}

impl BitOr for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn bitor(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::ALU, |a, b| a | b)
    }
}

impl Not for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.alone(Location::caller(), Cost::ALU, |a| !a)
    }
}

impl Shl<u32> for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn shl(self, by: u32) -> Self {
        self.alone(Location::caller(), Cost::SHIFT, |a| a << by)
    }
}

impl Shr<u32> for Counted<'_> {
    type Output = Self;
    #[track_caller]
    fn shr(self, by: u32) -> Self {
        self.alone(Location::caller(), Cost::SHIFT, |a| a >> by)
    }
}

impl Word for Counted<'_> {
    #[track_caller]
    fn plus(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::ALU, u32::wrapping_add)
    }

    #[track_caller]
    fn plus_constant(self, constant: u32) -> Self {
        let load = self.ledger.constant(constant, Cost::constant(constant));
        self.alone(Location::caller(), Cost::ALU.and(load), |a| a.wrapping_add(constant))
    }

    #[track_caller]
    fn minus(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::ALU, u32::wrapping_sub)
    }

    #[track_caller]
    fn times(self, other: Self) -> Self {
        self.with(other, Location::caller(), Cost::TIMES, u32::wrapping_mul)
    }

    #[track_caller]
    fn times_halves(self, other: Self) -> Self {
        let cost = match self.ledger.plan.products {
            Products::Full => Cost::TIMES,
            Products::Narrow => Cost::TIMES_HALVES,
        };
        self.with(other, Location::caller(), cost, u32::wrapping_mul)
    }

    #[track_caller]
    fn rotl(self, by: u32) -> Self {
        self.alone(Location::caller(), Cost::SHIFT, |a| a.rotate_left(by))
    }

    #[track_caller]
    fn rotl_by(self, by: Self) -> Self {
        self.with(by, Location::caller(), Cost::ROTL_BY, |a, by| a.rotate_left(by & 31))
    }

    #[track_caller]
    fn rotr_by(self, by: Self) -> Self {
        self.with(by, Location::caller(), Cost::ROTR_BY, |a, by| a.rotate_right(by & 31))
    }

    #[track_caller]
    fn field(self, shift: u32, mask: u32) -> Self {
        let load = self.ledger.constant(mask, Cost::mask(mask));
        self.alone(Location::caller(), Cost::SHIFT.and(load), |a| (a >> shift) & mask)
    }

    #[track_caller]
    fn turned(self, left: u32, mask: u32) -> Self {
        let load = self.ledger.constant(mask, Cost::mask(mask));
        self.alone(Location::caller(), Cost::SHIFT.and(load), |a| a.rotate_left(left) & mask)
    }

    #[track_caller]
    fn low_half(self) -> Self {
        self.alone(Location::caller(), Cost::BYTES, |a| a & 0xffff)
    }

    #[track_caller]
    fn or_shifted(self, other: Self, left: u32) -> Self {
        self.with(other, Location::caller(), Cost::SHIFT, |a, b| a | (b << left))
    }

    #[track_caller]
    fn swap_bytes(self) -> Self {
        self.alone(Location::caller(), Cost::SWAP_BYTES, u32::swap_bytes)
    }

    fn value(self) -> u32 {
        self.value
    }
}

impl<'a> Counting<'a> {
    fn word(self, value: u32, from: Ticket) -> Counted<'a> {
        Counted { value, from, ledger: self.ledger }
    }

    /// What addressing a reference costs whose address is known but for the counter of a rolled loop.
    fn address(self) -> Cost {
        if self.ledger.rolled.get() > 0 { Cost::ALU } else { Cost::NONE }
    }

    /// Issues a reference; it is an instruction of its own unless it is to an expanded key.
    fn refer(self, caller: Caller, part: u8, reference: Reference) -> Ticket {
        if reference.region != Region::CipherKey {
            self.ledger.stand(caller, part, 1);
        }
        self.ledger.issue(reference)
    }

    /// Issues a read of the word that was computed.
    fn fetch(self, caller: Caller, table: Table<'_>, index: usize) -> Counted<'a> {
        let reference = read(table.region, table.at + 4 * index, 4, Address::Computed);
        let from = self.refer(caller, 1, reference);
        self.word(table.words[index], from)
    }

    /// Where the word lies that holds an entry, and what finding that out costs.
    fn locate(self, table: Entries<'_>, index: usize, mask: u32) -> Located {
        match self.ledger.plan.entries {
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
        self.word(value, Ticket::DONE)
    }

    #[track_caller]
    fn look_up(self, table: Table<'_>, pick: Pick<Counted<'a>>) -> Counted<'a> {
        let (caller, ledger) = (Location::caller(), self.ledger);
        // The index is taken out of the word as the byte offset that it stands for.
        let mask = pick.mask() << 2;
        let cost = if pick.shift == 2 { Cost::ALU } else { Cost::SHIFT };
        let load = ledger.constant(mask, Cost::constant(mask));
        ledger.wait(pick.word.from);
        ledger.execute(caller, 0, cost.and(load));
        self.fetch(caller, table, pick.index())
    }

    #[track_caller]
    fn look_up_at(self, table: Table<'_>, offset: Counted<'a>) -> Counted<'a> {
        self.ledger.wait(offset.from);
        self.fetch(Location::caller(), table, offset.value as usize / 4)
    }

    #[track_caller]
    fn look_up_entry(self, table: Entries<'_>, base: usize, pick: Pick<Counted<'a>>) -> Counted<'a> {
        let (caller, ledger) = (Location::caller(), self.ledger);
        let index = base + pick.index();
        let Located { at, cost } = self.locate(table, index, pick.mask());
        ledger.wait(pick.word.from);
        ledger.execute(caller, 0, cost);
        let mut from = self.refer(caller, 1, read(table.region, at, 4, Address::Computed));
        if ledger.plan.entries == plan::Entries::Packed {
            // How far to shift is computed while the word comes.
            ledger.execute(caller, 2, Cost::SHIFT);
            ledger.wait(from);
            ledger.execute(caller, 3, Cost::SHIFT_BY);
            from = Ticket::DONE;
        }
        self.word(u32::from(table.entries[index]), from)
    }

    #[track_caller]
    fn write_entry(self, table: Entries<'_>, pick: Pick<Counted<'a>>, value: Counted<'a>) -> Written {
        let (caller, ledger) = (Location::caller(), self.ledger);
        let index = pick.index();
        let Located { at, .. } = self.locate(table, index, pick.mask());
        ledger.wait(pick.word.from);
        ledger.wait(value.from);
        if ledger.plan.entries == plan::Entries::Packed {
            let from = self.refer(caller, 0, read(table.region, at, 4, Address::Computed));
            ledger.wait(from);
            // A mask is shifted to the entry's place, the entry cleared, and the new one shifted in.
            ledger.execute(caller, 1, Cost::SHIFT_BY.and(Cost::ALU).and(Cost::SHIFT_BY));
        }
        self.refer(
            caller,
            2,
            Reference {
                region: table.region,
                at,
                bytes: 4,
                access: Access::Write,
                address: Address::Computed,
            },
        );
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
            for word in bytes.start / 4..bytes.end / 4 {
                words[word] = self.word(table.words[index + word], from);
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
            for word in bytes.start / 4..bytes.end / 4 {
                words[word] = self.word(word_of(text, at + 4 * word), from);
            }
        }
        words
    }

    #[track_caller]
    fn write_text<const N: usize>(self, text: &mut [u8], at: usize, words: [Counted<'a>; N]) {
        let (caller, ledger) = (Location::caller(), self.ledger);
        for word in words {
            ledger.wait(word.from);
        }
        for ticket in std::mem::take(&mut *ledger.written.borrow_mut()) {
            ledger.wait(ticket);
        }
        for (part, bytes) in ledger.bursts(4 * N, TEXT_BURST).enumerate() {
            let ticket = self.refer(
                caller,
                part as u8,
                Reference {
                    region: Region::Frame,
                    at: at + bytes.start,
                    bytes: bytes.len() as u32,
                    access: Access::Write,
                    address: Address::Known,
                },
            );
            ledger.written.borrow_mut().push(ticket);
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
                self.ledger.wait(word.from);
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
        self.ledger.wait(word.from);
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

/// While it lives, the code is a copy of its own.
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

/// The passes of a loop. What the loop itself costs is told as it goes round.
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
        Passes { ledger, caller, kind, range, outer: ledger.copy.get(), begun: false }
    }
}

impl Iterator for Passes<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let pass = self.range.next();
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
        if self.kind == Kind::Rounds {
            self.ledger.rolled.set(self.ledger.rolled.get() - 1);
        }
    }
}
