//! Runs a cipher on counting words, and sums up the account.

use tally::{Branch, Count, Op, Reference, Region, Tally, Ticket};

use crate::block::{self, BlockCipher};
use crate::hash::{self, Hash};
use crate::ledger::{Counting, Ledger};
use crate::stream::StreamCipher;
use crate::{KeyLength, Optimisation};

/// Run of a cipher on a counting machine, with key and text; returns the digest of a hash function, else nothing.
pub(crate) type Run = for<'a> fn(&[u8], &mut [u8], Counting<'a>) -> Result<Vec<u8>, KeyLength>;

pub(crate) fn measure(
    run: Run,
    optimisation: Optimisation,
    key: &[u8],
    text: &mut [u8],
    tally: &mut dyn Tally,
) -> Result<Report, KeyLength> {
    let mut watched = Watched { count: Count::default(), tally };
    let ledger = Ledger::new(optimisation.plan(), &mut watched);
    let digest = run(key, text, ledger.machine())?;
    ledger.finish();
    let (code_size, preloaded, registers) = (ledger.code_size(), ledger.preloaded(), ledger.registers());
    Ok(Report { count: watched.count, code_size, preloaded, registers, digest })
}

pub(crate) fn block<const N: usize, C: BlockCipher<N>>(
    key: &[u8],
    text: &mut [u8],
    machine: Counting<'_>,
) -> Result<Vec<u8>, KeyLength> {
    block::encrypt(&C::new(key)?, machine, [0; N], text);
    Ok(Vec::new())
}

pub(crate) fn stream<C: StreamCipher>(
    key: &[u8],
    text: &mut [u8],
    machine: Counting<'_>,
) -> Result<Vec<u8>, KeyLength> {
    C::new(key)?.apply(machine, text);
    Ok(Vec::new())
}

pub(crate) fn hash<const N: usize, H: Hash<N>>(
    _: &[u8],
    text: &mut [u8],
    machine: Counting<'_>,
) -> Result<Vec<u8>, KeyLength> {
    Ok(hash::bytes::<N, H>(hash::digest::<N, H, _>(machine, text)))
}

/// Result of a measurement.
#[derive(Clone, Debug)]
pub struct Report {
    /// Instructions by kind and references by region. References are instructions too, but counted separately.
    pub count: Count,
    /// Number of instructions of the code, see [`Ledger::code_size`].
    pub code_size: u32,
    /// Number of constants loaded beforehand.
    pub preloaded: usize,
    /// Number of general registers needed at once, see [`Ledger::registers`].
    pub registers: usize,
    /// The digest, from a hash function.
    pub digest: Vec<u8>,
}

impl Report {
    /// Number of references that are instructions: to text and tables. Expanded keys are operands in their
    /// [`home`](crate::home), local memory.
    pub fn references(&self) -> u64 {
        [Region::Frame, Region::CipherTable]
            .map(|region| self.count.references(region))
            .map(|sum| sum.reads + sum.writes)
            .iter()
            .sum()
    }

    /// Instructions, those that refer to memory included.
    pub fn instructions(&self) -> u64 {
        self.count.executed_total() + self.references()
    }

    /// The shares of kinds of instructions, as the study's figure 2 divides them.
    pub fn mix(&self) -> Mix {
        let share = |count: u64| count as f64 / self.instructions().max(1) as f64;
        let executed = |op| share(self.count.executed(op));
        Mix {
            alu: executed(Op::Alu) + executed(Op::Shift),
            multiply: executed(Op::Multiply),
            immediate: executed(Op::Immediate),
            branch: executed(Op::Branch),
            memory: share(self.references()),
        }
    }
}

/// Shares of the instructions executed; they sum to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Arithmetic, logic and shifts.
    pub alu: f64,
    /// Steps of multiplications.
    pub multiply: f64,
    /// Loads of constants.
    pub immediate: f64,
    /// Branches.
    pub branch: f64,
    /// References to memory.
    pub memory: f64,
}

/// A tally that counts and passes on.
struct Watched<'a> {
    count: Count,
    tally: &'a mut dyn Tally,
}

impl Tally for Watched<'_> {
    fn execute(&mut self, op: Op, count: u32) {
        self.count.execute(op, count);
        self.tally.execute(op, count);
    }

    fn read(&mut self, region: Region, at: usize, bytes: u32) {
        self.count.read(region, at, bytes);
        self.tally.read(region, at, bytes);
    }

    fn write(&mut self, region: Region, at: usize, bytes: u32) {
        self.count.write(region, at, bytes);
        self.tally.write(region, at, bytes);
    }

    fn atomic(&mut self, region: Region, at: usize, bytes: u32) {
        self.count.atomic(region, at, bytes);
        self.tally.atomic(region, at, bytes);
    }

    fn hash(&mut self, bytes: u32) {
        self.count.hash(bytes);
        self.tally.hash(bytes);
    }

    fn issue(&mut self, reference: Reference) -> Ticket {
        self.count.issue(reference);
        self.tally.issue(reference)
    }

    fn wait(&mut self, ticket: Ticket) {
        self.tally.wait(ticket);
    }

    fn branch(&mut self, branch: Branch) {
        self.count.branch(branch);
        self.tally.branch(branch);
    }
}
