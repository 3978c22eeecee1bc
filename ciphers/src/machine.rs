//! The machine that algorithms run on: words, tables, keys and text, and loops.
//!
//! [`Native`] is the host computer: it accounts for nothing and compiles to plain code.
//! [`Counting`](crate::ledger::Counting) reports everything to a ledger. The contents of memory are kept by the caller
//! either way, so that both compute the same.

use std::ops::Range;

use tally::Region;

use crate::word::Word;

/// A machine for algorithms to run on.
pub trait Machine: Copy {
    /// Type of its words.
    type Word: Word;

    /// A constant in a register.
    fn constant(self, value: u32) -> Self::Word;

    /// Constants in registers.
    fn constants<const N: usize>(self, values: [u32; N]) -> [Self::Word; N];

    /// Looks up the word at index `pick`. Its address is computed from data.
    fn look_up(self, table: Table<'_>, pick: Pick<Self::Word>) -> Self::Word;

    /// Looks up the word at a byte offset that was computed from data.
    fn look_up_at(self, table: Table<'_>, offset: Self::Word) -> Self::Word;

    /// Looks up an entry narrower than a word, at index `base` plus `pick`.
    fn look_up_entry(self, table: Entries<'_>, base: usize, pick: Pick<Self::Word>) -> Self::Word;

    /// Writes an entry narrower than a word that was looked up before, so that its address is at hand. Returns index
    /// and value of the entry for the caller to store.
    fn write_entry(self, table: Entries<'_>, pick: Pick<Self::Word>, value: Self::Word) -> Written;

    /// Reads neighbouring words of a table or key from `index` on, an index known beforehand.
    fn read<const N: usize>(self, table: Table<'_>, index: usize) -> [Self::Word; N];

    /// Reads neighbouring words of the text, most significant byte first, from byte `at` on.
    fn read_text<const N: usize>(self, text: &[u8], at: usize) -> [Self::Word; N];

    /// Writes neighbouring words of the text, most significant byte first, from byte `at` on.
    fn write_text<const N: usize>(self, text: &mut [u8], at: usize, words: [Self::Word; N]);

    /// A loop over rounds, which optimisation unrolls.
    fn rounds(self, range: Range<usize>) -> impl Iterator<Item = usize>;

    /// Code written out once for each number of the range, before all optimisation.
    fn written_out(self, range: Range<usize>) -> impl Iterator<Item = usize>;

    /// A loop over blocks of a message: never unrolled, as their number is not known.
    fn blocks(self, range: Range<usize>) -> impl Iterator<Item = usize>;

    /// Words that change places at the end of a round: moved, unless the loop is unrolled.
    fn rename<const N: usize>(self, words: [Self::Word; N]) -> [Self::Word; N];

    /// An element of an array in local memory that the counter of a round indexes: addressed, unless the loop is
    /// unrolled.
    fn indexed(self, word: Self::Word) -> Self::Word;

    /// Branches on zero: true if the word is zero.
    fn is_zero(self, word: Self::Word) -> bool;

    /// Makes the code a copy of its own for each number until the guard is dropped, as a macro or an inlined function
    /// is for each place of use. Affects only the size of code.
    fn inlined(self, copy: usize) -> impl Drop;

    /// True if reading ahead of use saves time.
    fn reads_ahead(self) -> bool;
}

/// A table of words in memory.
#[derive(Clone, Copy, Debug)]
pub struct Table<'t> {
    /// Region that the table is part of.
    pub region: Region,
    /// Offset in the region, in bytes.
    pub at: usize,
    /// Contents.
    pub words: &'t [u32],
}

/// A table of entries narrower than a word.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'t> {
    /// Region of the table, which begins there at byte 0.
    pub region: Region,
    /// Bits of an entry: 4 or 8.
    pub bits: u32,
    /// Contents, a byte for each entry.
    pub entries: &'t [u8],
    /// Layout in memory.
    pub layout: Layout,
}

/// Layout of entries narrower than a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// That of the step of optimisation ([`Plan::entries`](crate::plan::Plan::entries)).
    Planned,
    /// Packed at every step.
    Packed,
}

/// An index: `bits` bits of a word, `shift` bits from its low end.
#[derive(Clone, Copy, Debug)]
pub struct Pick<W> {
    /// Word to take the index from.
    pub word: W,
    /// Number of bits below the index.
    pub shift: u32,
    /// Width of the index in bits, at most 16.
    pub bits: u32,
}

impl<W: Word> Pick<W> {
    /// The index as a number.
    pub fn index(self) -> usize {
        ((self.word.value() >> self.shift) & self.mask()) as usize
    }

    /// Mask of the index: `bits` ones.
    pub const fn mask(self) -> u32 {
        (1 << self.bits) - 1
    }
}

/// Entry written to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Index of the entry.
    pub index: usize,
    /// New value of the entry.
    pub value: u8,
}

/// The host computer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

/// Guard of [`Native`], without effect.
struct Nothing;

impl Drop for Nothing {
    #[inline(always)]
    fn drop(&mut self) {}
}

impl Machine for Native {
    type Word = u32;

    #[inline(always)]
    fn constant(self, value: u32) -> u32 {
        value
    }

    #[inline(always)]
    fn constants<const N: usize>(self, values: [u32; N]) -> [u32; N] {
        values
    }

    #[inline(always)]
    fn look_up(self, table: Table<'_>, pick: Pick<u32>) -> u32 {
        table.words[pick.index()]
    }

    #[inline(always)]
    fn look_up_at(self, table: Table<'_>, offset: u32) -> u32 {
        table.words[(offset / 4) as usize]
    }

    #[inline(always)]
    fn look_up_entry(self, table: Entries<'_>, base: usize, pick: Pick<u32>) -> u32 {
        u32::from(table.entries[base + pick.index()])
    }

    #[inline(always)]
    fn write_entry(self, _: Entries<'_>, pick: Pick<u32>, value: u32) -> Written {
        Written { index: pick.index(), value: value as u8 }
    }

    #[inline(always)]
    fn read<const N: usize>(self, table: Table<'_>, index: usize) -> [u32; N] {
        std::array::from_fn(|word| table.words[index + word])
    }

    #[inline(always)]
    fn read_text<const N: usize>(self, text: &[u8], at: usize) -> [u32; N] {
        std::array::from_fn(|word| word_of(text, at + 4 * word))
    }

    #[inline(always)]
    fn write_text<const N: usize>(self, text: &mut [u8], at: usize, words: [u32; N]) {
        for (bytes, word) in text[at..at + 4 * N].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    #[inline(always)]
    fn rounds(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range
    }

    #[inline(always)]
    fn written_out(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range
    }

    #[inline(always)]
    fn blocks(self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range
    }

    #[inline(always)]
    fn rename<const N: usize>(self, words: [u32; N]) -> [u32; N] {
        words
    }

    #[inline(always)]
    fn indexed(self, word: u32) -> u32 {
        word
    }

    #[inline(always)]
    fn is_zero(self, word: u32) -> bool {
        word == 0
    }

    #[inline(always)]
    fn inlined(self, _: usize) -> impl Drop {
        Nothing
    }

    #[inline(always)]
    fn reads_ahead(self) -> bool {
        false
    }
}

/// The word at byte `at`, most significant byte first.
#[inline(always)]
pub(crate) fn word_of(text: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]])
}
