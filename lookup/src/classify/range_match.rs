//! Multi-dimensional range matching: a bit vector for each interval of each field, and the first bit common to all.
//!
//! After Lakshman and Stiliadis (High-Speed Policy-based Packet Forwarding Using Efficient Multi-dimensional Range
//! Matching, SIGCOMM 1998), as Lin et al. had it in a DiffServ router (DiffServ over Network Processors: Implementation and
//! Evaluation). The patterns cut each field into intervals. In an interval, bit n of the vector is 1 if pattern n admits
//! the interval. Vectors of the intervals that a header's fields lie in are ANDed; the first bit left is the first match.
//! Of many patterns most words are zero: then a summary, with a bit for each word that is not, is ANDed first (Baboescu and
//! Varghese, Scalable Packet Classification, SIGCOMM 2001).
//!
//! Exact for every pattern: unions of ranges are just more intervals. Fields that nobody asks for are left out. Memory grows
//! with the square of the patterns where all of them differ; vectors are counted, and refused past the bounds, before any is
//! made.

use tally::Tally;
use wire::{Family, prefetch};

use self::interval::{Dimension, Known, Plan};
use super::budget::Budget;
use super::field::Field;
use super::simd_vector::{BLOCK_BITS, Block, First, first};
use super::{Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};

mod account;
mod interval;

/// Patterns as vectors.
#[derive(Clone)]
pub struct RangeMatch {
    /// Dimensions of IPv4, then of both families, then of IPv6.
    dimensions: Vec<Dimension>,
    /// Number of dimensions that concern IPv4.
    v4_until: usize,
    /// Index of the first dimension that concerns IPv6.
    v6_from: usize,
    /// Vectors, each [`Shape::row`] long.
    blocks: Vec<Block>,
    shape: Shape,
    patterns: usize,
    first: First,
}

/// Lengths of vectors, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Blocks of a summary; none for few patterns.
    summaries: usize,
    /// Blocks of bits, one for each pattern.
    lines: usize,
}

/// Number of blocks up to which reading all is faster than reading a summary first.
const SHORT: usize = 4;

/// Headers that are looked up side by side.
const GROUP: usize = 16;

/// The most fields that a header is compared by: two addresses, and fourteen that both families have.
const MOST: usize = 16;

impl Block {
    const ZERO: Block = Block([0; 8]);
}

impl Shape {
    fn new(patterns: usize) -> Shape {
        let lines = patterns.div_ceil(BLOCK_BITS).max(1);
        let summaries = if lines > SHORT { (lines * BLOCK_BITS / 64).div_ceil(BLOCK_BITS) } else { 0 };
        Shape { summaries, lines }
    }

    /// Blocks of a vector with its summary.
    fn row(self) -> usize {
        self.summaries + self.lines
    }
}

impl RangeMatch {
    /// Makes the vectors of `patterns`.
    ///
    /// # Errors
    /// The vectors would take more memory than `bounds` admits.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<RangeMatch, TooLarge> {
        let mut budget = Budget::new(bounds);
        let shape = Shape::new(patterns.len());
        let mut plans: Vec<Plan> = Vec::new();
        let mut known = Known::default();
        for field in Field::ALL {
            if let Some(plan) = Plan::new(field, patterns, &mut budget)? {
                plan.count(&mut known, &mut budget)?;
                plans.push(plan);
            }
        }
        // And the one that is being made.
        budget.take((known.len() + 1).saturating_mul(shape.row() * size_of::<Block>()))?;
        let mut blocks = Vec::with_capacity(known.len() * shape.row());
        let dimensions = plans
            .into_iter()
            .map(|plan| plan.make(shape, &mut known, &mut blocks, &mut budget))
            .collect::<Result<Vec<Dimension>, TooLarge>>()?;
        let only = |family| move |dimension: &&Dimension| dimension.field.only() == Some(family);
        Ok(RangeMatch {
            v4_until: dimensions.len() - dimensions.iter().filter(only(Family::V6)).count(),
            v6_from: dimensions.iter().filter(only(Family::V4)).count(),
            dimensions,
            blocks,
            shape,
            patterns: patterns.len(),
            first: first(shape.summaries),
        })
    }

    /// The dimensions by which a family's headers are compared.
    #[inline(always)]
    fn dimensions_of(&self, family: Family) -> &[Dimension] {
        match family {
            Family::V4 => &self.dimensions[..self.v4_until],
            Family::V6 => &self.dimensions[self.v6_from..],
            Family::Other => &[],
        }
    }

    /// The vectors of a header's intervals.
    #[inline(always)]
    fn rows(&self, header: &Header) -> Rows {
        let dimensions = self.dimensions_of(header.family);
        let mut rows = Rows { rows: [0; MOST], count: dimensions.len().min(MOST) };
        for (row, dimension) in rows.rows.iter_mut().zip(dimensions) {
            *row = dimension.row(header);
        }
        rows
    }

    /// Returns the first bit common to all vectors of a header.
    #[inline(always)]
    fn first(&self, header: &Header, rows: &Rows) -> Option<Position> {
        let rows = &rows.rows[..rows.count];
        if rows.is_empty() || header.family == Family::Other {
            // Nobody asks for anything.
            return (self.patterns > 0 && header.family != Family::Other).then_some(0);
        }
        (self.first)(&self.blocks, rows, self.shape.summaries, self.shape.lines)
    }
}

/// Offsets of the vectors of a header's intervals.
#[derive(Clone, Copy)]
struct Rows {
    rows: [u32; MOST],
    count: usize,
}

impl Classifier for RangeMatch {
    fn classify(&self, header: &Header) -> Option<Position> {
        self.first(header, &self.rows(header))
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        for (headers, positions) in headers.chunks(GROUP).zip(positions.chunks_mut(GROUP)) {
            let mut rows = [Rows { rows: [0; MOST], count: 0 }; GROUP];
            for (rows, header) in rows.iter_mut().zip(headers) {
                *rows = self.rows(header);
                for row in &rows.rows[..rows.count] {
                    prefetch::read(&self.blocks[*row as usize]);
                }
            }
            for ((header, rows), position) in headers.iter().zip(&rows).zip(positions) {
                *position = self.first(header, rows).unwrap_or(NO_MATCH);
            }
        }
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        account::classify(self, header, tally)
    }

    fn memory_bytes(&self) -> usize {
        let tables: usize = self.dimensions.iter().map(Dimension::memory_bytes).sum();
        tables + size_of_val(self.dimensions.as_slice()) + size_of_val(self.blocks.as_slice())
    }

    fn region_bytes(&self) -> u64 {
        account::region_bytes(self)
    }

    fn program(&self) -> u32 {
        account::program(self)
    }
}

#[cfg(test)]
mod tests;
