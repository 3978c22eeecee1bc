//! Places of a pattern in hash tables: prefixes that cover its conditions.
//!
//! A range of addresses is split into prefixes, and so is a set; where these were too many, they are shortened until a few
//! cover all, and the pattern itself has the last word.

use super::super::field::{Field, Span};
use super::super::prefix::{Go, Prefix, each_piece};
use super::super::{Header, Pattern};

/// The most places that a pattern is looked for at, of one family.
pub(super) const MOST: usize = 64;

/// Bits by which a table's keys are made, and those that a place has at the most: prefix lengths of each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) source: u8,
    pub(super) destination: u8,
    pub(super) sport: u8,
    pub(super) dport: u8,
    /// 8 or none.
    pub(super) protocol: u8,
}

impl Lengths {
    /// True if a table of these lengths takes a place of `other`.
    pub(super) fn admit(self, other: Lengths) -> bool {
        self.source <= other.source
            && self.destination <= other.destination
            && self.sport <= other.sport
            && self.dport <= other.dport
            && self.protocol <= other.protocol
    }

    /// Returns the selectivity of a key of these lengths, as a weighted sum of bits.
    pub(super) fn bits(self) -> u32 {
        // Of ports, few are in use: a bit of them tells less.
        2 * (u32::from(self.source) + u32::from(self.destination) + u32::from(self.protocol))
            + u32::from(self.sport)
            + u32::from(self.dport)
    }
}

/// Exactness of a place, compared with its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Every packet in the place matches the pattern.
    Whole,
    /// The pattern must be asked.
    Part,
}

/// All that a pattern asks for of one family's packets.
pub(super) struct Cover {
    pub(super) sources: Vec<Prefix>,
    pub(super) destinations: Vec<Prefix>,
    pub(super) sport: PortCover,
    pub(super) dport: PortCover,
    pub(super) protocol: Option<u8>,
    pub(super) matched: Match,
}

/// Ports from first to last, and the length of the prefix that they have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortCover {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) length: u8,
}

impl Cover {
    /// Returns the places of a pattern for packets whose source and destination are these fields'; `None` where none of
    /// them can match.
    pub(super) fn new(source: Field, destination: Field, pattern: &Pattern) -> Option<Cover> {
        let mut spans = Vec::new();
        let mut matched = Match::Whole;
        let mut hull = |field: Field, spans: &mut Vec<Span>| {
            field.spans(pattern, spans);
            if spans.len() > 1 {
                matched = Match::Part;
            }
            Some(Span { first: spans.first()?.first, last: spans.last()?.last })
        };
        let sport = hull(Field::Sport, &mut spans)?.into();
        let dport = hull(Field::Dport, &mut spans)?.into();
        let protocol = hull(Field::Protocol, &mut spans)?;
        let protocol = (protocol.first == protocol.last).then_some(protocol.first as u8);
        let is_beside =
            [Field::Ingress, Field::Egress, Field::SourceMac].iter().any(|field| field.is_asked(pattern));
        if pattern.protocols.len() > 1 || is_beside || pattern.sets_mask != 0 {
            matched = Match::Part;
        }
        if pattern.tcp_value & !pattern.tcp_mask != 0 || pattern.sets_value & !pattern.sets_mask != 0 {
            return None;
        }
        let mut destinations = Vec::new();
        source.spans(pattern, &mut spans);
        destination.spans(pattern, &mut destinations);
        let width = source.bits();
        let most = |others: usize| (MOST / others).max(8);
        let pieces = |spans: &[Span]| pieces(spans, width, width, MOST).map_or(MOST, |pieces| pieces.max(1));
        let sources = cover(&spans, width, most(pieces(&destinations)));
        let destinations = cover(&destinations, width, MOST / sources.prefixes.len().max(1));
        if sources.matched == Match::Part || destinations.matched == Match::Part {
            matched = Match::Part;
        }
        if sources.prefixes.is_empty() || destinations.prefixes.is_empty() {
            return None;
        }
        Some(Cover {
            sources: sources.prefixes,
            destinations: destinations.prefixes,
            sport,
            dport,
            protocol,
            matched,
        })
    }
}

impl From<Span> for PortCover {
    fn from(span: Span) -> PortCover {
        let (first, last) = (span.first as u16, span.last as u16);
        PortCover { first, last, length: (first ^ last).leading_zeros() as u8 }
    }
}

/// Prefixes that cover spans.
struct Covered {
    prefixes: Vec<Prefix>,
    matched: Match,
}

/// Covers spans with at most so many prefixes, one at least.
fn cover(spans: &[Span], width: u32, most: usize) -> Covered {
    // The longest that are few enough; a prefix of no length covers all.
    let (mut fits, mut too_long) = (0, width + 1);
    while too_long - fits > 1 {
        // All of them as they are, first of all.
        let length = if too_long > width { width } else { fits.midpoint(too_long) };
        if pieces(spans, width, length, most).is_some() {
            fits = length;
        } else {
            too_long = length;
        }
    }
    let mut prefixes = Vec::new();
    each_piece(spans, width, fits, |prefix| {
        prefixes.push(prefix);
        Go::On
    });
    Covered { prefixes, matched: if fits == width { Match::Whole } else { Match::Part } }
}

/// Returns the number of prefixes of at most `length` bits that cover spans; `None` where it is more than `most`.
fn pieces(spans: &[Span], width: u32, length: u32, most: usize) -> Option<usize> {
    let mut count = 0;
    each_piece(spans, width, length, |_| {
        count += 1;
        if count > most { Go::Back } else { Go::On }
    });
    (count <= most).then_some(count)
}

/// A header's ports in one word, source first.
#[inline(always)]
pub(super) fn ports(header: &Header) -> u32 {
    u32::from(header.sport) << 16 | u32::from(header.dport)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(spans: &[(u128, u128)], width: u32, most: usize) -> Vec<(u128, u8)> {
        let spans: Vec<Span> =
            spans.iter().map(|(first, last)| Span { first: *first, last: *last }).collect();
        cover(&spans, width, most).prefixes.iter().map(|prefix| (prefix.value, prefix.length)).collect()
    }

    #[test]
    fn a_range_is_split_into_prefixes() {
        assert_eq!(prefixes(&[(0, u32::MAX.into())], 32, 64), [(0, 0)]);
        assert_eq!(prefixes(&[(0, u128::MAX)], 128, 64), [(0, 0)]);
        assert_eq!(prefixes(&[(u128::MAX, u128::MAX)], 128, 64), [(u128::MAX, 128)]);
        assert_eq!(prefixes(&[(1, 6)], 32, 64), [(1, 32), (2, 31), (4, 31), (6, 32)]);
        assert_eq!(
            prefixes(&[(0x0a00_0000, 0x0aff_ffff), (0x0b00_0000, 0x0b00_0000)], 32, 64),
            [(0x0a00_0000, 8), (0x0b00_0000, 32)]
        );
        assert_eq!(prefixes(&[], 32, 64), []);
    }

    #[test]
    fn too_many_are_covered_by_shorter_ones() {
        assert_eq!(prefixes(&[(1, 6)], 32, 3), [(0, 29)]);
        let hosts: Vec<(u128, u128)> = (0..1000).map(|at| (at * 3, at * 3)).collect();
        let covering = prefixes(&hosts, 32, 8);
        assert!(covering.len() <= 8, "{covering:?}");
        for (host, _) in hosts {
            let covers = |prefix: &&(u128, u8)| host >> (32 - prefix.1) == prefix.0 >> (32 - prefix.1);
            assert_eq!(covering.iter().filter(covers).count(), 1, "{host}");
        }
    }

    #[test]
    fn ports_have_a_prefix_in_common() {
        let length = |first, last| PortCover::from(Span { first, last }).length;
        assert_eq!(
            [length(0, 65_535), length(80, 80), length(1_024, 65_535), length(1_024, 2_047)],
            [0, 16, 0, 6]
        );
    }
}
