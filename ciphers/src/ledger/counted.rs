//! The word that reports each operation to a ledger.

use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};
use std::panic::Location;

use tally::Ticket;

use super::live::Life;
use super::{Caller, Ledger};
use crate::plan::Products;
use crate::word::{Cost, Word};

/// A word that reports its operations.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    pub(super) value: u32,
    /// Reference that the word comes from.
    pub(super) from: Ticket,
    /// Operation that the word is the result of.
    result_of: Option<Done>,
    /// Live range in a general register; none of a word from memory, which is in a transfer register or an operand in local memory.
    life: Option<Life>,
    ledger: &'a Ledger<'a>,
}

/// A completed operation.
///
/// A place in the source is the start of an expression. Operators chained to the left, as in `a ^ b ^ c`, all start at
/// one place; each is told apart by its left operand: the result of the operator before, computed in the same pass of
/// the same loops.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Done {
    line: u32,
    column: u32,
    file: &'static str,
    entered: u32,
    /// Number of operations before it in its chain.
    chained: u8,
}

impl<'a> Counted<'a> {
    /// A word of `value`, available once the reference `from` is done.
    pub(super) fn new(value: u32, from: Ticket, ledger: &'a Ledger<'a>) -> Counted<'a> {
        Counted { value, from, result_of: None, life: None, ledger }
    }

    /// A word of `value` in a general register.
    pub(super) fn in_register(value: u32, ledger: &'a Ledger<'a>) -> Counted<'a> {
        Counted { life: Some(ledger.live.begin()), ..Counted::new(value, Ticket::DONE, ledger) }
    }

    /// Uses the word: waits for it, if it is under way.
    pub(super) fn used(self) {
        self.ledger.wait(self.from);
        if let Some(life) = self.life {
            self.ledger.live.extend(life);
        }
    }

    /// The result of an operation on this word alone.
    #[inline]
    fn alone(self, caller: Caller, cost: Cost, result: impl FnOnce(u32) -> u32) -> Counted<'a> {
        self.used();
        let mut done = Done {
            line: caller.line(),
            column: caller.column(),
            file: caller.file(),
            entered: self.ledger.entered.get(),
            chained: 0,
        };
        if let Some(before) = self.result_of {
            if (Done { chained: 0, ..before }) == done {
                done.chained = before.chained + 1;
            }
        }
        self.ledger.execute(caller, done.chained, cost);
        let value = result(self.value);
        Counted { result_of: Some(done), ..Counted::in_register(value, self.ledger) }
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
        other.used();
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
