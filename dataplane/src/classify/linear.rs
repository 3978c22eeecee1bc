//! One pattern after the other: the reference, and what netfilter does.

use tally::{Region, Tally};

use super::{Classifier, Header, Pattern, Position};

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Linear {
    patterns: Vec<Pattern>,
}

/// Bytes that a network processor reads for one pattern: two addresses with masks, two port ranges,
/// protocol, flags and zones, as S3's rules in SRAM.
const PATTERN_BYTES: u32 = 32;

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
            // Two addresses: and, compare, branch each (6); two port ranges: two compares and branches each
            // (8); protocol, flags, zones: compare and branch each (6); advance and loop (3).
            tally.instructions(23);
            if pattern.matches(header) {
                return u32::try_from(index).ok();
            }
        }
        None
    }

    fn memory_bytes(&self) -> usize {
        let spans: usize = self
            .patterns
            .iter()
            .flat_map(|pattern| [&pattern.source, &pattern.destination])
            .flatten()
            .map(|spans| size_of_val(spans.as_slice()))
            .sum();
        size_of_val(self.patterns.as_slice()) + spans
    }
}
