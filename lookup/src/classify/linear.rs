//! One pattern after the other: the reference, and what netfilter does.

use tally::{Branch, Op, Region, Tally};

use super::{Classifier, Header, Pattern, Position};

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Linear {
    patterns: Vec<Pattern>,
}

/// Bytes that a network processor reads for one pattern: two addresses with masks, two port ranges,
/// protocol, flags and zones, as S3's rules in SRAM.
const PATTERN_BYTES: u32 = 32;

/// Instructions that compare a pattern, without branches. All conditions, as of a pattern that differs in the last of them.
/// Zones and code point: a bit of a mask each, 3; two addresses: mask and compare, 4; protocol: compare, any, 2; two port
/// ranges: both ends taken out of their word and compared, 8; TCP flags: mask and compare, 2; the next pattern's place,
/// compared with the end, 2.
const COMPARE: u32 = 21;

/// Branches of a pattern that does not match, all but the last of them: one for each of these conditions, two for each range
/// and the protocol. The last is back to the beginning, and taken.
const BRANCHES: u32 = 12;

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
        for (index, pattern) in self.patterns.iter().enumerate() {
            tally.read(Region::RuleTable, index * PATTERN_BYTES as usize, PATTERN_BYTES);
            tally.instructions(COMPARE);
            tally.execute(Op::Branch, BRANCHES);
            tally.branch(Branch::Taken);
            if pattern.matches(header) {
                return u32::try_from(index).ok();
            }
        }
        None
    }

    fn memory_bytes(&self) -> usize {
        self.patterns.iter().map(Pattern::bytes).sum()
    }

    fn region_bytes(&self) -> u64 {
        self.patterns.len() as u64 * u64::from(PATTERN_BYTES)
    }

    fn program(&self) -> u32 {
        // And the reference, and the branch back.
        COMPARE + BRANCHES + 2
    }
}
