//! One dimension: its intervals, and the bit vector of each.
//!
//! A dimension is planned first: the values at which patterns begin and end, and how many different vectors lie between.
//! Vectors are told apart by a hash that changes with each pattern by itself, so that no vector is made to count them.
//! Memory for all is then taken at once, and filled.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::budget::Budget;
use super::super::field::{Field, Span};
use super::super::simd_vector::{BLOCK_BITS, Block};
use super::super::{Header, Pattern, Position, TooLarge};
use super::Shape;

/// A dimension: where its intervals begin, and where the vector of each does.
#[derive(Clone, Debug)]
pub(super) struct Dimension {
    pub(super) field: Field,
    pub(super) lookup: Lookup,
}

/// Map from a value to the first block of its vector.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// Table indexed by the value.
    Direct(Vec<u32>),
    /// Binary search: the first value of each interval, and its vector.
    Narrow(Vec<u32>, Vec<u32>),
    /// Binary search in IPv6 addresses.
    Wide(Vec<u128>, Vec<u32>),
}

/// Number of intervals from which on a field of 16 bits is looked up directly: 256 KB for the last six steps of a search.
const DIRECT: usize = 64;

impl Dimension {
    /// Returns the first block of the vector of a header's value.
    #[inline(always)]
    pub(super) fn row(&self, header: &Header) -> u32 {
        match &self.lookup {
            // As many entries as a power of two: the mask is for values that their field does not have.
            Lookup::Direct(rows) => rows[self.field.value(header) as usize & (rows.len() - 1)],
            Lookup::Narrow(firsts, rows) => rows[interval(firsts, self.field.value(header))],
            Lookup::Wide(firsts, rows) => rows[interval(firsts, self.field.wide_value(header))],
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match &self.lookup {
            Lookup::Direct(rows) => size_of_val(rows.as_slice()),
            Lookup::Narrow(firsts, rows) => size_of_val(firsts.as_slice()) + size_of_val(rows.as_slice()),
            Lookup::Wide(firsts, rows) => size_of_val(firsts.as_slice()) + size_of_val(rows.as_slice()),
        }
    }
}

/// Returns the last interval that begins at `value` or before. The first begins at 0.
#[inline(always)]
fn interval<V: Copy + Ord>(firsts: &[V], value: V) -> usize {
    firsts.partition_point(|first| *first <= value).saturating_sub(1)
}

/// Plan of a dimension.
pub(super) struct Plan {
    field: Field,
    edges: Edges,
    /// Positions of patterns that begin with the lowest value.
    first: Vec<Position>,
}

/// Edges of the patterns' spans, ascending: first values, except the lowest, and the values after last values.
enum Edges {
    Narrow(Vec<(u32, Position)>),
    Wide(Vec<(u128, Position)>),
}

/// Hashes of vectors, with the row of each vector once it is made.
pub(super) type Known = HashMap<u64, Option<u32>>;

/// Bytes of an entry of [`Known`], with its tag and what the map keeps free: 7/16 to 7/8 of it are full, and while it
/// grows there is half of another.
const KNOWN_BYTES: usize = 17 * 16 / 7 * 3 / 2 + 7;

/// A value that has edges.
trait Value: Copy + Ord {
    const ZERO: Self;
}

impl Value for u32 {
    const ZERO: u32 = 0;
}

impl Value for u128 {
    const ZERO: u128 = 0;
}

impl Plan {
    /// Plans the dimension of a field; `None` where no pattern asks for anything.
    pub(super) fn new(
        field: Field,
        patterns: &[Pattern],
        budget: &mut Budget,
    ) -> Result<Option<Plan>, TooLarge> {
        if !patterns.iter().any(|pattern| field.is_asked(pattern)) {
            return Ok(None);
        }
        // The list grows to twice of what it has to hold, beside what it was.
        let room = 3 * field.most_spans(patterns) * size_of::<Span>();
        budget.take(room)?;
        let spans = &mut Vec::new();
        let (mut firsts, mut count) = (0, 0);
        for pattern in patterns {
            field.spans(pattern, spans);
            count += spans.iter().map(|span| ends(field, *span).count()).sum::<usize>();
            firsts += usize::from(spans.first().is_some_and(|span| span.first == 0));
        }
        budget.take(firsts * size_of::<Position>())?;
        let mut first = Vec::with_capacity(firsts);
        let wide = field.bits() > 32;
        budget
            .take(count * if wide { size_of::<(u128, Position)>() } else { size_of::<(u32, Position)>() })?;
        let mut narrow_edges = Vec::with_capacity(if wide { 0 } else { count });
        let mut wide_edges = Vec::with_capacity(if wide { count } else { 0 });
        for (position, pattern) in (0..).zip(patterns) {
            field.spans(pattern, spans);
            if spans.first().is_some_and(|span| span.first == 0) {
                first.push(position);
            }
            let edges = spans.iter().flat_map(|span| ends(field, *span));
            if wide {
                wide_edges.extend(edges.map(|at| (at, position)));
            } else {
                narrow_edges.extend(edges.map(|at| (at as u32, position)));
            }
        }
        narrow_edges.sort_unstable();
        wide_edges.sort_unstable();
        budget.give_back(room);
        let edges = if wide { Edges::Wide(wide_edges) } else { Edges::Narrow(narrow_edges) };
        Ok(Some(Plan { field, edges, first }))
    }

    /// Notes the vectors that it will have.
    pub(super) fn count(&self, known: &mut Known, budget: &mut Budget) -> Result<(), TooLarge> {
        match &self.edges {
            Edges::Narrow(edges) => count(&self.first, edges, known, budget),
            Edges::Wide(edges) => count(&self.first, edges, known, budget),
        }
    }

    /// Makes it, with the vectors that no dimension has made yet.
    pub(super) fn make(
        self,
        shape: Shape,
        known: &mut Known,
        blocks: &mut Vec<Block>,
        budget: &mut Budget,
    ) -> Result<Dimension, TooLarge> {
        let lookup = match self.edges {
            Edges::Narrow(edges) => {
                let (firsts, rows) = make(&self.first, &edges, shape, known, blocks, budget)?;
                let direct = 1 << self.field.bits().min(16);
                if self.field.bits() <= 8 || (self.field.bits() == 16 && firsts.len() >= DIRECT) {
                    budget.take(direct * size_of::<u32>())?;
                    Lookup::Direct((0..direct as u32).map(|value| rows[interval(&firsts, value)]).collect())
                } else {
                    Lookup::Narrow(firsts, rows)
                }
            }
            Edges::Wide(edges) => {
                let (firsts, rows) = make(&self.first, &edges, shape, known, blocks, budget)?;
                Lookup::Wide(firsts, rows)
            }
        };
        Ok(Dimension { field: self.field, lookup })
    }
}

/// Returns the edges of a span: its first value, unless the lowest of the field, and the value after its last, unless the
/// last is the highest of the field.
fn ends(field: Field, span: Span) -> impl Iterator<Item = u128> {
    let begin = Some(span.first).filter(|first| *first > 0);
    let end = Some(span.last).filter(|last| *last < field.highest()).map(|last| last + 1);
    begin.into_iter().chain(end)
}

/// The hash of a vector with this bit alone; that of another is theirs, combined by exclusive or (Zobrist, A New Hashing
/// Method with Application for Game Playing, 1970). The mixing is that of SplitMix64.
fn hash_of(position: Position) -> u64 {
    let mut bits = (u64::from(position) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn count<V: Value>(
    first: &[Position],
    edges: &[(V, Position)],
    known: &mut Known,
    budget: &mut Budget,
) -> Result<(), TooLarge> {
    let mut note = |hash| {
        if let Entry::Vacant(place) = known.entry(hash) {
            budget.take(KNOWN_BYTES)?;
            place.insert(None);
        }
        Ok(())
    };
    let mut hash = first.iter().fold(0, |hash, position| hash ^ hash_of(*position));
    note(hash)?;
    for group in edges.chunk_by(|one, next| one.0 == next.0) {
        hash = group.iter().fold(hash, |hash, (_, position)| hash ^ hash_of(*position));
        note(hash)?;
    }
    Ok(())
}

/// Builds the intervals: their first values, and the rows of their vectors.
fn make<V: Value>(
    first: &[Position],
    edges: &[(V, Position)],
    shape: Shape,
    known: &mut Known,
    blocks: &mut Vec<Block>,
    budget: &mut Budget,
) -> Result<(Vec<V>, Vec<u32>), TooLarge> {
    let groups = || edges.chunk_by(|one, next| one.0 == next.0);
    let intervals = 1 + groups().count();
    budget.take(intervals * (size_of::<V>() + size_of::<u32>()))?;
    let (mut firsts, mut rows) = (Vec::with_capacity(intervals), Vec::with_capacity(intervals));
    let mut vector = Vector::new(shape);
    first.iter().for_each(|position| vector.turn(*position));
    firsts.push(V::ZERO);
    rows.push(vector.keep(known, blocks, budget)?);
    for group in groups() {
        group.iter().for_each(|(_, position)| vector.turn(*position));
        let row = vector.keep(known, blocks, budget)?;
        // A pattern that ends where a like one begins makes no difference.
        if rows.last() != Some(&row) {
            firsts.push(group[0].0);
            rows.push(row);
        }
    }
    Ok((firsts, rows))
}

/// A vector that is being made.
struct Vector {
    hash: u64,
    /// Summaries first.
    blocks: Vec<Block>,
    summaries: usize,
}

impl Vector {
    fn new(shape: Shape) -> Vector {
        Vector { hash: 0, blocks: vec![Block::ZERO; shape.row()], summaries: shape.summaries }
    }

    /// Turns a bit.
    fn turn(&mut self, position: Position) {
        self.hash ^= hash_of(position);
        let bit = position as usize;
        let word = &mut self.blocks[self.summaries + bit / BLOCK_BITS].0[bit % BLOCK_BITS / 64];
        *word ^= 1 << (bit % 64);
        let left = *word != 0;
        if self.summaries > 0 {
            let bit = bit / 64;
            let summary = &mut self.blocks[bit / BLOCK_BITS].0[bit % BLOCK_BITS / 64];
            *summary = *summary & !(1 << (bit % 64)) | u64::from(left) << (bit % 64);
        }
    }

    /// Returns the row of this vector among `blocks`, appending the vector if it is new.
    fn keep(&self, known: &mut Known, blocks: &mut Vec<Block>, budget: &mut Budget) -> Result<u32, TooLarge> {
        let place = known.get(&self.hash).copied().flatten();
        if let Some(row) = place.filter(|row| blocks[*row as usize..][..self.blocks.len()] == self.blocks) {
            return Ok(row);
        }
        let row = blocks.len() as u32;
        if blocks.capacity() - blocks.len() < self.blocks.len() {
            // Two vectors of one hash: nobody has counted this one.
            budget.take((blocks.len() + self.blocks.len()) * size_of::<Block>())?;
            blocks.reserve_exact(self.blocks.len());
        }
        blocks.extend_from_slice(&self.blocks);
        if place.is_none() {
            known.insert(self.hash, Some(row));
        }
        Ok(row)
    }
}
