//! Words that account for themselves.
//!
//! A [`Counted`] word is a number, the [`Ledger`] that it reports to, and the reference to memory that it comes from,
//! if that may still be under way. Each operation tells the ledger its [`Cost`]; the first one that needs a value
//! from memory waits for it. The ledger passes everything on to a [`Tally`] in the order of execution, and notes
//! where in the source each instruction was, which gives the size of the code.
//!
//! Size of code: an instruction counts once for each place that it stands at. A rolled loop is one place, each pass
//! of an unrolled one is a place of its own, and so is each copy of what is [inlined](crate::machine::Machine::inlined).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::Location;

use tally::{Branch, Reference, Region, Tally, Ticket};

pub use counted::Counted;
pub use counting::Counting;

use crate::plan::{Constants, Moves, Plan, Waits};
use crate::word::Cost;

mod counted;
mod counting;
#[cfg(test)]
mod tests;

/// Transfer registers that a thread writes from, for DRAM and for the other memories each: 512 of four kinds,
/// shared by eight threads (HRM 2.3.4, see [`word`](crate::word)).
const WRITE_REGISTERS: usize = 16;

/// Where counted words report to.
pub struct Ledger<'a> {
    tally: RefCell<&'a mut (dyn Tally + 'a)>,
    plan: Plan,
    /// Instructions by where they stand.
    places: RefCell<HashMap<Place, u32>>,
    /// Which copy of the code is being executed: a hash of the loops and calls it lies in.
    copy: Cell<u64>,
    /// How many passes of loops and copies were entered so far.
    entered: Cell<u32>,
    /// Rolled loops over rounds that execution is in.
    rolled: Cell<u32>,
    outstanding: RefCell<Vec<Ticket>>,
    /// Writes under way: of text, and of tables.
    writes: [RefCell<VecDeque<Write>>; 2],
    preloaded: RefCell<BTreeSet<u32>>,
}

/// A write under way, and the words that it keeps transfer registers occupied with.
struct Write {
    ticket: Ticket,
    words: usize,
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
            entered: Cell::new(0),
            rolled: Cell::new(0),
            outstanding: RefCell::default(),
            writes: Default::default(),
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

    /// Issues a write, after those before it whose registers it needs.
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

    fn pass(&self) {
        self.entered.set(self.entered.get() + 1);
    }

    fn enter(&self, caller: Caller, pass: usize) -> u64 {
        self.pass();
        let outer = self.copy.get();
        let mut hasher = DefaultHasher::new();
        (outer, caller.file(), caller.line(), caller.column(), pass).hash(&mut hasher);
        self.copy.replace(hasher.finish())
    }
}
