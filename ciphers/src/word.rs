//! The word that algorithms are written in: 32 bits, with the cost of each operation.
//!
//! [`u32`] is a word that accounts for nothing; [`Counted`](crate::ledger::Counted) reports each operation to a ledger.
//! Only operations of an engine's instruction set are offered, so that code written in them is close to the output of a
//! good compiler.
//!
//! # Cost of an operation
//!
//! Instructions of a microengine of the second version (IXP2400, IXP2800): single issue, one cycle each, an ALU with a
//! shifter before one of its operands. [`Cost`] has the table. Its sources:
//!
//! - *HRM*: Intel IXP2800 Network Processor Hardware Reference Manual, 2.3 and 4.1 to 4.3.
//! - *App. A*: the instruction syntax in appendix A of Johnson and Kunze, "Using IXP2400/2800 Development Tools".
//! - *binutils*: `opcodes/nfp-dis.c`, a disassembler for the NFP, whose microengine kept these instructions. It shows
//!   the fields of each instruction.
//! - *compiled*: code that the NFP's C compiler and intrinsics emit for the operation in public programs.
//!
//! Left out, because only register allocation decides them: moves between the two banks that the operands of an
//! instruction must come from. They would add. Registers that the code needs are counted
//! ([`Ledger::registers`](crate::ledger::Ledger::registers)): beyond those that a thread has, words are operands in local memory.

use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

use tally::Op;

/// A 32-bit word. The operators are those of [`u32`]; a constant may stand on the right of some.
pub trait Word:
    Copy
    + BitXor<Output = Self>
    + BitAnd<Output = Self>
    + BitAnd<u32, Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// The sum modulo 2³².
    fn plus(self, other: Self) -> Self;
    /// The sum with a constant, modulo 2³².
    fn plus_constant(self, constant: u32) -> Self;
    /// The difference modulo 2³².
    fn minus(self, other: Self) -> Self;
    /// The product modulo 2³².
    fn times(self, other: Self) -> Self;
    /// The product of two words below 2¹⁶.
    fn times_halves(self, other: Self) -> Self;
    /// Rotated left by a constant below 32.
    fn rotl(self, by: u32) -> Self;
    /// Rotated left by the low five bits of `by`.
    fn rotl_by(self, by: Self) -> Self;
    /// Rotated right by the low five bits of `by`.
    fn rotr_by(self, by: Self) -> Self;
    /// Shifted right, then masked: a field of the word.
    fn field(self, shift: u32, mask: u32) -> Self;
    /// Rotated left, then masked: bits moved to their places.
    fn turned(self, left: u32, mask: u32) -> Self;
    /// The low half of the word.
    fn low_half(self) -> Self;
    /// This word or another one shifted left.
    fn or_shifted(self, other: Self, left: u32) -> Self;
    /// The word with its four bytes in the opposite order.
    fn swap_bytes(self) -> Self;
    /// The plain number. Costs nothing and waits for nothing: for values that leave the machine.
    fn value(self) -> u32;
}

impl Word for u32 {
    #[inline(always)]
    fn plus(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn plus_constant(self, constant: u32) -> u32 {
        self.wrapping_add(constant)
    }
    #[inline(always)]
    fn minus(self, other: u32) -> u32 {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn times(self, other: u32) -> u32 {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn times_halves(self, other: u32) -> u32 {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn rotl(self, by: u32) -> u32 {
        self.rotate_left(by)
    }
    #[inline(always)]
    fn rotl_by(self, by: u32) -> u32 {
        self.rotate_left(by & 31)
    }
    #[inline(always)]
    fn rotr_by(self, by: u32) -> u32 {
        self.rotate_right(by & 31)
    }
    #[inline(always)]
    fn field(self, shift: u32, mask: u32) -> u32 {
        (self >> shift) & mask
    }
    #[inline(always)]
    fn turned(self, left: u32, mask: u32) -> u32 {
        self.rotate_left(left) & mask
    }
    #[inline(always)]
    fn low_half(self) -> u32 {
        self & 0xffff
    }
    #[inline(always)]
    fn or_shifted(self, other: u32, left: u32) -> u32 {
        self | (other << left)
    }
    #[inline(always)]
    fn swap_bytes(self) -> u32 {
        u32::swap_bytes(self)
    }
    #[inline(always)]
    fn value(self) -> u32 {
        self
    }
}

/// Instructions by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Arithmetic and logic without a shift.
    pub alu: u32,
    /// Every use of the shifter: shifts, rotations, fields, byte moves.
    pub shift: u32,
    /// Steps of a multiplication.
    pub multiply: u32,
    /// Loads of a constant.
    pub immediate: u32,
}

impl Cost {
    /// Add, subtract, and, or, xor, not: `alu` (App. A). A constant below 256 can be an operand (binutils: ten bits
    /// name an operand, eight of them a constant).
    pub const ALU: Cost = Cost { alu: 1, ..Cost::NONE };
    /// A shift or rotation by a constant, alone or with B, ~B, AND, ~AND, AND~ or OR to follow: `alu_shf` (App. A).
    /// Not with XOR or addition: the operator has three bits, and its other two codes are taken (binutils).
    pub const SHIFT: Cost = Cost { shift: 1, ..Cost::NONE };
    /// A move of whole bytes with a shift: `ld_field`, `ld_field_w_clr` (App. A).
    pub const BYTES: Cost = Cost::SHIFT;
    /// All four bytes reversed: two `ld_field` with rotations (compiled).
    pub const SWAP_BYTES: Cost = Cost { shift: 2, ..Cost::NONE };
    /// A shift by a variable, with a mask: the amount is the A operand of the instruction before (App. A: `<<
    /// indirect`; compiled: `alu[--, n, OR, 0]` then `alu_shf`).
    pub const SHIFT_BY: Cost = Cost { alu: 1, shift: 1, ..Cost::NONE };
    /// A rotation right by a variable: `dbl_shf` of a word with itself, by an amount that the instruction before
    /// names; that one copies the word to the other bank (compiled, but for the copy: assumed).
    pub const ROTR_BY: Cost = Cost { alu: 1, shift: 1, ..Cost::NONE };
    /// A rotation left by a variable: `dbl_shf` shifts right only, so the amount is negated first.
    pub const ROTL_BY: Cost = Cost { alu: 2, shift: 1, ..Cost::NONE };
    /// The low 32 bits of a product: `mul_step` start, four steps, last (binutils, compiled).
    pub const TIMES: Cost = Cost { multiply: 6, ..Cost::NONE };
    /// A product of 16-bit words: `mul_step` start, two steps, last (binutils, compiled).
    pub const TIMES_HALVES: Cost = Cost { multiply: 4, ..Cost::NONE };
    /// Nothing.
    pub const NONE: Cost = Cost { alu: 0, shift: 0, multiply: 0, immediate: 0 };

    /// Loading a constant for use as an operand: none below 256 (see [`Cost::ALU`]); one `immed` for 16 bits at
    /// any byte, the others all zeros or all ones; else two, `immed` and `immed_w1` (App. A, compiled).
    pub const fn constant(constant: u32) -> Cost {
        let immediate = if constant <= 0xff { 0 } else { loads(constant) };
        Cost { immediate, ..Cost::NONE }
    }

    /// Putting a constant into a register: as [`Cost::constant`], but a small one takes an instruction too.
    pub const fn load(constant: u32) -> Cost {
        Cost { immediate: loads(constant), ..Cost::NONE }
    }

    /// Masking with a constant: where the mask is of whole bytes it is part of the instruction (`ld_field_w_clr`).
    pub const fn mask(mask: u32) -> Cost {
        if is_of_bytes(mask) { Cost::NONE } else { Cost::constant(mask) }
    }

    /// The sum of both costs.
    pub const fn and(self, other: Cost) -> Cost {
        Cost {
            alu: self.alu + other.alu,
            shift: self.shift + other.shift,
            multiply: self.multiply + other.multiply,
            immediate: self.immediate + other.immediate,
        }
    }

    /// The cost of `count` repetitions.
    pub const fn times(self, count: u32) -> Cost {
        Cost {
            alu: self.alu * count,
            shift: self.shift * count,
            multiply: self.multiply * count,
            immediate: self.immediate * count,
        }
    }

    /// Instructions of all kinds.
    pub const fn total(self) -> u32 {
        self.alu + self.shift + self.multiply + self.immediate
    }

    /// The kinds, each with its count.
    pub fn by_op(self) -> [(Op, u32); 4] {
        [
            (Op::Alu, self.alu),
            (Op::Shift, self.shift),
            (Op::Multiply, self.multiply),
            (Op::Immediate, self.immediate),
        ]
    }
}

const fn loads(constant: u32) -> u32 {
    let mut shift = 0;
    while shift <= 16 {
        let window = 0xffff << shift;
        if constant & !window == 0 || !constant & !window == 0 {
            return 1;
        }
        shift += 8;
    }
    2
}

const fn is_of_bytes(mask: u32) -> bool {
    let mut shift = 0;
    while shift < 32 {
        let byte = (mask >> shift) & 0xff;
        if byte != 0 && byte != 0xff {
            return false;
        }
        shift += 8;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_cost_what_fits_in_an_instruction() {
        for (constant, loads) in [
            (0, 0),
            (0xff, 0),
            (0x100, 1),
            (0xffff, 1),
            (0x00ff_ff00, 1),
            (0xffff_0000, 1),
            (0xffff_1234, 1),
            (0xff12_34ff, 1),
            (0x0001_ff01, 2),
            (0x6745_2301, 2),
        ] {
            assert_eq!(Cost::constant(constant).immediate, loads, "{constant:#x}");
        }
        assert_eq!(Cost::load(7).immediate, 1);
    }

    #[test]
    fn a_mask_of_bytes_is_part_of_the_instruction() {
        assert_eq!(Cost::mask(0x00ff_ff00), Cost::NONE);
        assert_eq!(Cost::mask(0xff), Cost::NONE);
        assert_eq!(Cost::mask(0x3fc).immediate, 1);
        assert_eq!(Cost::mask(0x3333_3333).immediate, 2);
    }
}
