//! Account of words that count their own operations.
//!
//! A [`Counted`] word is a number, the [`Ledger`] that it reports to, and the memory reference that the word comes
//! from, if still under way. Each operation reports its [`Cost`] to the ledger; the first operation that needs a value
//! from memory waits for the reference. The ledger passes everything on to a [`Tally`] in the order of execution, and
//! notes the place of each instruction in the source, which gives the size of the code.
//!
//! Size of code: an instruction counts once for each place. A rolled loop is one place, each pass of an unrolled loop
//! is a place of its own, and so is each copy of [inlined](crate::machine::Machine::inlined) code.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::Location;

use foldhash::fast::FixedState;
use tally::{Branch, Reference, Region, Tally, Ticket};

pub use counted::Counted;
pub use counting::Counting;

use crate::plan::{Constants, Moves, Plan, Waits};
use crate::word::Cost;

mod counted;
mod counting;
mod live;
#[cfg(test)]
mod tests;

/// Transfer registers that a thread writes from, for DRAM and for the other memories each: 512 of four kinds,
/// shared by eight threads (HRM 2.3.4, see [`word`](crate::word)).
const WRITE_REGISTERS: usize = 16;

/// Account that counted words report to.
pub struct Ledger<'a> {
    tally: RefCell<&'a mut (dyn Tally + 'a)>,
    plan: Plan,
    /// Number of instructions at each place of the code.
    places: RefCell<HashMap<Place, u32, FixedState>>,
    /// Copy of the code in execution: a hash of the enclosing loops and calls.
    copy: Cell<u64>,
    /// Number of passes of loops and of copies entered so far.
    entered: Cell<u32>,
    /// Number of enclosing rolled loops over rounds.
    rolled: Cell<u32>,
    outstanding: RefCell<Vec<Ticket>>,
    /// Writes under way: of text, and of tables.
    writes: [RefCell<VecDeque<Write>>; 2],
    preloaded: RefCell<BTreeSet<u32>>,
    live: live::Live,
}

/// A write under way, with the number of transfer registers that it occupies.
struct Write {
    ticket: Ticket,
    words: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    file: &'static str,
    line: u32,
    column: u32,
    copy: u64,
    /// Number of the group of instructions within an operation of several groups.
    part: u8,
}

impl Hash for Place {
    /// Places of one line and column in several files are few: their hashes do not tell them apart, as a file's name takes longer to hash
    /// than all else.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.copy);
        state.write_u64(u64::from(self.line) << 32 | u64::from(self.column));
        state.write_u8(self.part);
    }
}

type Caller = &'static Location<'static>;

impl<'a> Ledger<'a> {
    /// A ledger that passes the account of code optimised by `plan` to `tally`.
    pub fn new(plan: Plan, tally: &'a mut (dyn Tally + 'a)) -> Ledger<'a> {
        Ledger {
            tally: RefCell::new(tally),
            plan,
            places: RefCell::default(),
            copy: Cell::new(0),
            entered: Cell::new(0),
            rolled: Cell::new(0),
            outstanding: RefCell::default(),
            writes: Default::default(),
            preloaded: RefCell::default(),
            live: live::Live::default(),
        }
    }

    /// The machine whose words report here.
    pub fn machine(&'a self) -> Counting<'a> {
        Counting { ledger: self }
    }

    /// Number of instructions of the code executed so far, references to tables and text included. Expanded keys are
    /// taken to be operands, see [`home`](crate::home).
    pub fn code_size(&self) -> u32 {
        self.places.borrow().values().sum()
    }

    /// Number of constants loaded beforehand, each into one register or word of local memory.
    pub fn preloaded(&self) -> usize {
        self.preloaded.borrow().len()
    }

    /// Number of general registers that the code needs at once, without constants loaded beforehand. Words from memory are in
    /// transfer registers, or operands in local memory.
    pub fn registers(&self) -> usize {
        self.live.registers()
    }

    /// Waits for all references under way.
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

    /// Issues a write, after earlier writes whose registers it needs.
    fn issue_write(&self, reference: Reference) {
        let words = reference.bytes.div_ceil(4) as usize;
        let mut writes = self.writes[usize::from(reference.region != Region::Frame)].borrow_mut();
        while writes.iter().map(|write| write.words).sum::<usize>() + words > WRITE_REGISTERS {
            let Some(oldest) = writes.pop_front() else { break };
            self.wait(oldest.ticket);
        }
        let ticket = self.issue(reference);
        if ticket != Ticket::DONE {
            writes.push_back(Write { ticket, words });
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

    /// Cost of loading a constant where it is used, by the plan.
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

    fn pass(&self) {
        self.entered.set(self.entered.get() + 1);
    }

    fn enter(&self, caller: Caller, pass: usize) -> u64 {
        self.pass();
        let outer = self.copy.get();
        let at = (outer, caller.file(), caller.line(), caller.column(), pass);
        self.copy.replace(FixedState::default().hash_one(at))
    }
}
