//! Assembler for BPF: a list of instructions, with forward jumps to labels.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{BPF_EXIT, Instruction, R10};

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Jumps, and the labels that they lead to.
    jumps: Vec<(usize, Label)>,
    /// Place of each label, once it is known.
    places: Vec<Option<usize>>,
}

/// A jump target, forwards only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Condition of a jump: comparison of the lower 32 bits of a register, unsigned unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    Equal,
    Unequal,
    Above,
    Below,
    /// A bit of the value is set.
    Has,
    SignedAbove,
    SignedBelow,
}

impl If {
    fn code(self) -> u8 {
        match self {
            If::Equal => 0x10,
            If::Unequal => 0x50,
            If::Above => 0x20,
            If::Below => 0xa0,
            If::Has => 0x40,
            If::SignedAbove => 0x60,
            If::SignedBelow => 0xc0,
        }
    }
}

/// Operation of two operands, the first of which takes the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Subtract,
    Multiply,
    /// Unsigned.
    Divide,
    And,
    Or,
    Xor,
    Left,
    /// The second operand alone.
    Copy,
}

impl Op {
    fn code(self) -> u8 {
        match self {
            Op::Add => 0x00,
            Op::Subtract => 0x10,
            Op::Multiply => 0x20,
            Op::Divide => 0x30,
            Op::Or => 0x40,
            Op::And => 0x50,
            Op::Left => 0x60,
            Op::Xor => 0xa0,
            Op::Copy => 0xb0,
        }
    }
}

// Instruction classes: arithmetic and jumps in 64 and in 32 bits. With the flag the second operand is a register, else a number.
const LONG: u8 = 0x07;
const WORD: u8 = 0x04;
const JUMP_LONG: u8 = 0x05;
const JUMP_WORD: u8 = 0x06;
const REGISTER: u8 = 0x08;

/// Bytes that are loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Byte,
    Half,
    Word,
    Double,
}

impl Width {
    fn code(self) -> u8 {
        match self {
            Width::Word => 0x00,
            Width::Half => 0x08,
            Width::Byte => 0x10,
            Width::Double => 0x18,
        }
    }
}

/// Atomic operation on 64 bits in memory.
const ATOMIC_LONG: u8 = 0xdb;

impl Assembler {
    /// Instructions so far.
    pub(crate) fn len(&self) -> usize {
        self.code.len()
    }

    /// Instructions as they are.
    pub(crate) fn all(&mut self, instructions: &[Instruction]) {
        self.code.extend_from_slice(instructions);
    }

    fn one(&mut self, code: u8, registers: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// A label that is placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Puts a label here.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// Jumps if the register compares so with `value`.
    pub(crate) fn jump_if(&mut self, register: u8, how: If, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.one(JUMP_WORD | how.code(), register, 0, value as i32);
    }

    /// Jumps if the register compares so with another.
    pub(crate) fn jump_if_to(&mut self, register: u8, how: If, other: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.one(JUMP_WORD | REGISTER | how.code(), register | other << 4, 0, 0);
    }

    /// Jumps if the register compares so with another, in 64 bits.
    pub(crate) fn jump_if_long(&mut self, register: u8, how: If, other: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.one(JUMP_LONG | REGISTER | how.code(), register | other << 4, 0, 0);
    }

    /// Jumps if all 64 bits of a register are zero, as in a null pointer.
    pub(crate) fn jump_if_null(&mut self, register: u8, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.one(0x15, register, 0, 0);
    }

    /// Jumps.
    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.one(0x05, 0, 0, 0);
    }

    /// `target = *(source + offset)`
    pub(crate) fn load(&mut self, width: Width, target: u8, source: u8, offset: i16) {
        self.one(0x61 | width.code(), target | source << 4, offset, 0);
    }

    /// `target = *(stack + offset)`, in the order of the network, as a number.
    pub(crate) fn load_network(&mut self, width: Width, target: u8, offset: i16) {
        self.load(width, target, R10, offset);
        match width {
            Width::Half => self.one(0xdc, target, 0, 16),
            Width::Word => self.one(0xdc, target, 0, 32),
            Width::Byte | Width::Double => {}
        }
    }

    /// The lower 16 bits of a register in the order of the network, and no others.
    pub(crate) fn network_order(&mut self, register: u8) {
        self.one(0xdc, register, 0, 16);
    }

    /// `*(base + offset) = source`
    pub(crate) fn store_to(&mut self, width: Width, base: u8, offset: i16, source: u8) {
        self.one(0x63 | width.code(), base | source << 4, offset, 0);
    }

    /// `*(base + offset) += source`, 64 bits, atomically.
    pub(crate) fn add_atomic(&mut self, base: u8, offset: i16, source: u8) {
        self.one(ATOMIC_LONG, base | source << 4, offset, 0);
    }

    /// As [`Assembler::add_atomic`], and `source` becomes the value before.
    pub(crate) fn fetch_add(&mut self, base: u8, offset: i16, source: u8) {
        const FETCH: i32 = 1;
        self.one(ATOMIC_LONG, base | source << 4, offset, FETCH);
    }

    /// `target = target op source`, in 64 bits.
    pub(crate) fn long(&mut self, op: Op, target: u8, source: u8) {
        self.one(LONG | REGISTER | op.code(), target | source << 4, 0, 0);
    }

    /// `target = target op value`, in 64 bits, the value with its sign.
    pub(crate) fn long_by(&mut self, op: Op, target: u8, value: i32) {
        self.one(LONG | op.code(), target, 0, value);
    }

    /// `target = target op source`, in 32 bits; the upper half of the target becomes zero.
    pub(crate) fn word(&mut self, op: Op, target: u8, source: u8) {
        self.one(WORD | REGISTER | op.code(), target | source << 4, 0, 0);
    }

    /// `target = target op value`, in 32 bits; the upper half of the target becomes zero.
    pub(crate) fn word_by(&mut self, op: Op, target: u8, value: u32) {
        self.one(WORD | op.code(), target, 0, value as i32);
    }

    /// `target = value`, of 64 bits.
    pub(crate) fn constant(&mut self, target: u8, value: u64) {
        self.one(0x18, target, 0, value as u32 as i32);
        self.one(0, 0, 0, (value >> 32) as u32 as i32);
    }

    /// `target = address of a byte of the only value of an array`; the loader fills in the address of the value.
    pub(crate) fn address(&mut self, target: u8, array: BorrowedFd<'_>, offset: usize) {
        const BPF_PSEUDO_MAP_VALUE: u8 = 2;
        self.one(0x18, target | BPF_PSEUDO_MAP_VALUE << 4, 0, array.as_raw_fd());
        self.one(0, 0, 0, offset as i32);
    }

    /// `*(stack + offset) = source`
    pub(crate) fn store(&mut self, width: Width, offset: i16, source: u8) {
        self.one(0x63 | width.code(), R10 | source << 4, offset, 0);
    }

    /// `target = source`, in 64 bits.
    pub(crate) fn copy(&mut self, target: u8, source: u8) {
        self.one(0xbf, target | source << 4, 0, 0);
    }

    /// `target = value`, in 64 bits, with its sign.
    pub(crate) fn number(&mut self, target: u8, value: i32) {
        self.one(0xb7, target, 0, value);
    }

    /// `target = stack + offset`
    pub(crate) fn stack(&mut self, target: u8, offset: i16) {
        self.copy(target, R10);
        self.one(0x07, target, 0, offset.into());
    }

    /// `target &= value`
    pub(crate) fn and(&mut self, target: u8, value: i32) {
        self.one(0x57, target, 0, value);
    }

    /// `target |= value`
    pub(crate) fn or(&mut self, target: u8, value: i32) {
        self.one(0x47, target, 0, value);
    }

    /// `target <<= bits`
    pub(crate) fn shift(&mut self, target: u8, bits: i32) {
        self.one(0x67, target, 0, bits);
    }

    /// `target -= source`
    pub(crate) fn subtract(&mut self, target: u8, source: u8) {
        self.one(0x1f, target | source << 4, 0, 0);
    }

    /// `target >>= bits`
    pub(crate) fn shift_down(&mut self, target: u8, bits: i32) {
        self.one(0x77, target, 0, bits);
    }

    /// Ends with a verdict.
    pub(crate) fn end(&mut self, verdict: i32) {
        self.one(0xb4, 0, 0, verdict);
        self.one(BPF_EXIT, 0, 0, 0);
    }

    /// The program; `None` if a jump is too long for the kernel.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let place = self.places[label.0]?;
            self.code[at].offset = i16::try_from(place as i64 - at as i64 - 1).ok()?;
        }
        Some(self.code)
    }
}
