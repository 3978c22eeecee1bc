//! One pattern after the other: the reference, and what netfilter does.

use tally::{Branch, Op, Region, Tally};

use super::{Classifier, Header, Pattern, Position};

mod account;
#[cfg(test)]
mod tests;

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Linear {
    patterns: Vec<Pattern>,
}

/// Bytes that a network processor reads for one pattern: two IPv4 addresses with masks, two port ranges,
/// protocol, flags and zones, as S3's rules in SRAM.
const PATTERN_BYTES: u32 = 32;

/// Bytes of two IPv6 addresses with masks, which are read where they are compared. They lie behind all patterns.
const WIDE_BYTES: u32 = 64;

impl Linear {
    /// Keeps the patterns as they are.
    pub fn new(patterns: &[Pattern]) -> Linear {
        Linear { patterns: patterns.to_vec() }
    }
}

impl Classifier for Linear {
    fn classify(&self, header: &Header) -> Option<Position> {
        let found = self.patterns.iter().position(|pattern| pattern.matches(header))?;
        u32::try_from(found).ok()
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        classify_tallied(self.patterns.iter(), self.patterns.len(), header, tally)
    }

    fn memory_bytes(&self) -> usize {
        self.patterns.iter().map(Pattern::bytes).sum()
    }

    fn region_bytes(&self) -> u64 {
        region_bytes(self.patterns.iter())
    }

    fn program(&self) -> u32 {
        program(self.patterns.iter())
    }
}

/// The scan of `count` patterns, told to a tally.
pub(super) fn classify_tallied<'a>(
    patterns: impl Iterator<Item = &'a Pattern>,
    count: usize,
    header: &Header,
    tally: &mut dyn Tally,
) -> Option<Position> {
    for (index, pattern) in patterns.enumerate() {
        tally.read(Region::RuleTable, index * PATTERN_BYTES as usize, PATTERN_BYTES);
        let work = account::compare(pattern, header);
        if work.wide {
            let at = count * PATTERN_BYTES as usize + index * WIDE_BYTES as usize;
            tally.read(Region::RuleTable, at, WIDE_BYTES);
        }
        tally.instructions(work.instructions);
        tally.execute(Op::Branch, work.branches);
        if work.matches {
            return u32::try_from(index).ok();
        }
        // Out of the comparison, and back to its beginning.
        tally.instructions(account::NEXT);
        tally.branch(Branch::Taken);
        tally.branch(Branch::Taken);
    }
    None
}

/// Size of the region that patterns take.
pub(super) fn region_bytes<'a>(patterns: impl Iterator<Item = &'a Pattern> + Clone) -> u64 {
    let has_wide = patterns.clone().any(account::has_wide);
    patterns.count() as u64 * u64::from(PATTERN_BYTES + if has_wide { WIDE_BYTES } else { 0 })
}

/// Instructions of a scan of these patterns.
pub(super) fn program<'a>(mut patterns: impl Iterator<Item = &'a Pattern>) -> u32 {
    // And the references, and the branches back.
    let wide = if patterns.any(account::has_wide) { account::WIDE_PROGRAM } else { 0 };
    account::PROGRAM + account::NEXT + 3 + wide
}
