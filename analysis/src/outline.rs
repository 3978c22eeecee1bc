//! Outlines of rules, by which most pairs without a common packet are told apart.
//!
//! Of ten thousand rules each is asked about all others. Most pairs differ in an address or a port, which is seen from a few
//! words that lie side by side.

use lookup::classify::bdd::field::{Field, Version};
use lookup::classify::bdd::product::Product;

/// Lowest and highest value of some fields, by the first 32 bits of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    first: [u32; FIELDS.len()],
    last: [u32; FIELDS.len()],
}

const FIELDS: [Field; 8] = [
    Field::Source,
    Field::Destination,
    Field::Sport,
    Field::Dport,
    Field::Protocol,
    Field::Flags,
    Field::Ingress,
    Field::Egress,
];

impl Outline {
    /// Returns the outline of a product.
    pub(super) fn of(product: &Product, version: Version) -> Outline {
        let ends = FIELDS.map(|field| {
            let shift = field.bits(version).saturating_sub(u32::BITS as u16);
            let of = |value: u128| (value >> shift) as u32;
            match product.get(field).map(Vec::as_slice) {
                None => (0, u32::MAX),
                Some([]) => (u32::MAX, 0),
                Some([one]) => (of(one.first), of(one.last)),
                Some([first, .., last]) => (of(first.first), of(last.last)),
            }
        });
        Outline { first: ends.map(|(first, _)| first), last: ends.map(|(_, last)| last) }
    }

    /// True if products of these outlines may have a header in common.
    #[inline]
    pub(super) fn meets(&self, other: &Outline) -> bool {
        // Without a branch until the end: eight fields are compared at once.
        let apart = |at: usize| self.first[at] > other.last[at] || other.first[at] > self.last[at];
        !(0..FIELDS.len()).fold(false, |any, at| any | apart(at))
    }
}
