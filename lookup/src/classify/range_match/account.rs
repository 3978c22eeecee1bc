//! Cost of a search on an engine.
//!
//! The interval tables lie one after the other, then the vectors. An interval takes 8 bytes, 20 of IPv6: its first value
//! and the offset of its vector. The engine reads 32 bytes, the size of eight transfer registers, of each vector in turn,
//! up to the piece that has the first common bit.

use tally::{Branch, Op, Region, Tally};
use wire::Family;

use super::super::simd_vector::Block;
use super::super::{Header, Position};
use super::RangeMatch;
use super::interval::{Dimension, Lookup};

/// Bytes of a vector that are read at once.
const PIECE: usize = 32;

/// Instructions to look up a value directly: taken out of its word (shift, mask), scaled, added to the table.
const DIRECT: u32 = 4;

/// Instructions to begin a search: value, bounds.
const BEGIN: u32 = 3;

/// Instructions of a probe: middle (add, shift), scaled, added to the table, compared, bound moved. And two branches.
const PROBE: u32 = 6;

/// Instructions of a probe of an IPv6 address: three more words to compare with borrow.
const WIDE_PROBE: u32 = PROBE + 3;

/// Instructions of a piece of a vector: place, and eight ANDs.
const AND: u32 = 9;

/// Instructions to see whether any of eight words is not zero: ORed, and a branch.
const TEST: u32 = 8;

/// Instructions from eight words to the first bit set: words tested in turn are counted as four; IXPs find the bit in one
/// instruction and load it by another; the word's number is shifted and added.
const FIND: u32 = 4 + 2 + 2;

impl Lookup {
    /// Bytes of its table.
    fn bytes(&self) -> usize {
        match self {
            Lookup::Direct(rows) => 4 * rows.len(),
            Lookup::Narrow(firsts, _) => 8 * firsts.len(),
            Lookup::Wide(firsts, _) => 20 * firsts.len(),
        }
    }

    /// Instructions of its code.
    fn program(&self) -> u32 {
        match self {
            Lookup::Direct(_) => DIRECT + 1,
            // The loop, its read and its branches.
            Lookup::Narrow(..) => BEGIN + PROBE + 3,
            Lookup::Wide(..) => BEGIN + WIDE_PROBE + 6,
        }
    }
}

impl Dimension {
    /// [`Dimension::row`], of a table that begins `at`.
    fn row_tallied(&self, header: &Header, at: usize, tally: &mut dyn Tally) -> u32 {
        match &self.lookup {
            Lookup::Direct(rows) => {
                tally.instructions(DIRECT);
                let place = self.field.value(header) as usize & (rows.len() - 1);
                tally.read(Region::RuleTable, at + 4 * place, 4);
                rows[place]
            }
            Lookup::Narrow(firsts, rows) => {
                tally.instructions(BEGIN);
                rows[search(firsts, self.field.value(header), |place| {
                    tally.instructions(PROBE);
                    tally.execute(Op::Branch, 1);
                    tally.branch(Branch::Taken);
                    tally.read(Region::RuleTable, at + 8 * place, 8);
                })]
            }
            Lookup::Wide(firsts, rows) => {
                tally.instructions(BEGIN);
                rows[search(firsts, self.field.wide_value(header), |place| {
                    tally.instructions(WIDE_PROBE);
                    tally.execute(Op::Branch, 1);
                    tally.branch(Branch::Taken);
                    tally.read(Region::RuleTable, at + 20 * place, 20);
                })]
            }
        }
    }
}

/// Returns the last interval that begins at `value` or before, by bisection.
fn search<V: Copy + Ord>(firsts: &[V], value: V, mut probe: impl FnMut(usize)) -> usize {
    let (mut low, mut high) = (0, firsts.len());
    while high - low > 1 {
        let middle = low.midpoint(high);
        probe(middle);
        if firsts[middle] <= value {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

pub(super) fn classify(search: &RangeMatch, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
    if header.family == Family::Other {
        // `parse` has told the families apart.
        return None;
    }
    let concerned = search.dimensions_of(header.family);
    let mut rows = Vec::with_capacity(concerned.len());
    let mut at = 0;
    for dimension in &search.dimensions {
        if concerned.iter().any(|concerned| concerned.field == dimension.field) {
            rows.push(dimension.row_tallied(header, at, tally));
        }
        at += dimension.lookup.bytes();
    }
    if rows.is_empty() {
        tally.execute(Op::Branch, 1);
        return (search.patterns > 0).then_some(0);
    }
    let vectors = Vectors { blocks: &search.blocks, rows: &rows, at };
    if search.shape.summaries == 0 {
        return vectors.first_bit(0, search.patterns.div_ceil(PIECE * 8), tally);
    }
    vectors.first_summarised(search.shape.summaries, search.shape.lines, tally)
}

/// Vectors that are ANDed.
struct Vectors<'a> {
    blocks: &'a [Block],
    rows: &'a [u32],
    /// Offset of the first vector.
    at: usize,
}

impl Vectors<'_> {
    /// A piece of all, ANDed: four words.
    fn piece(&self, piece: usize, tally: &mut dyn Tally) -> [u64; 4] {
        let mut common = [u64::MAX; 4];
        for row in self.rows {
            tally.instructions(AND);
            let block = *row as usize + piece / 2;
            tally.read(
                Region::RuleTable,
                self.at + block * size_of::<Block>() + piece % 2 * PIECE,
                PIECE as u32,
            );
            let words = self.blocks[block].0.iter().skip(piece % 2 * 4);
            common.iter_mut().zip(words).for_each(|(common, word)| *common &= word);
        }
        tally.instructions(TEST - 1);
        common
    }

    /// Returns the first bit of pieces from `from` on.
    fn first_bit(&self, from: usize, pieces: usize, tally: &mut dyn Tally) -> Option<Position> {
        for piece in 0..pieces {
            let common = self.piece(from + piece, tally);
            if let Some(word) = common.iter().position(|word| *word != 0) {
                tally.branch(Branch::Taken);
                tally.instructions(FIND);
                return Some((piece * 256 + word * 64) as u32 + common[word].trailing_zeros());
            }
            tally.branch(Branch::NotTaken);
            // The next piece: count, branch back.
            tally.instructions(1);
            tally.branch(Branch::Taken);
        }
        None
    }

    /// Returns the first bit, by summaries: a bit of a summary stands for 64.
    fn first_summarised(&self, summaries: usize, lines: usize, tally: &mut dyn Tally) -> Option<Position> {
        for piece in 0..(lines * 8).div_ceil(PIECE * 8) {
            let candidates = self.piece(piece, tally);
            tally.execute(Op::Branch, 1);
            for (place, mut candidates) in candidates.into_iter().enumerate() {
                while candidates != 0 {
                    let word = piece * 256 + place * 64 + candidates.trailing_zeros() as usize;
                    candidates &= candidates - 1;
                    // The bit is cleared, its word's place made: shift, add.
                    tally.instructions(FIND + 3);
                    let common = self.word(summaries + word / 8, word % 8, tally);
                    if common != 0 {
                        tally.instructions(FIND);
                        return Some(word as u32 * 64 + common.trailing_zeros());
                    }
                }
            }
        }
        None
    }

    /// 64 bits of all, up to where none is left.
    fn word(&self, line: usize, place: usize, tally: &mut dyn Tally) -> u64 {
        let mut common = u64::MAX;
        for row in self.rows {
            let block = *row as usize + line;
            // Added to the vector's place; two words ANDed, and ORed to be tested.
            tally.instructions(4);
            tally.read(Region::RuleTable, self.at + block * size_of::<Block>() + 8 * place, 8);
            common &= self.blocks[block].0[place];
            if common == 0 {
                tally.branch(Branch::Taken);
                break;
            }
            tally.branch(Branch::NotTaken);
        }
        common
    }
}

pub(super) fn region_bytes(search: &RangeMatch) -> u64 {
    let tables: usize = search.dimensions.iter().map(|dimension| dimension.lookup.bytes()).sum();
    (tables + size_of_val(search.blocks.as_slice())) as u64
}

pub(super) fn program(search: &RangeMatch) -> u32 {
    let lookups: u32 = search.dimensions.iter().map(|dimension| dimension.lookup.program()).sum();
    let ands = search.dimensions.len() as u32 * (AND + 1);
    let summaries =
        if search.shape.summaries == 0 { 0 } else { search.dimensions.len() as u32 * 6 + 2 * FIND + 8 };
    // And the end of the loop over pieces, and what branches to the search and back.
    lookups + ands + TEST + FIND + 3 + summaries + 2
}
