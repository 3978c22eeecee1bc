//! Source MAC addresses that rules and traffic classes ask for, as a few numbers.
//!
//! The ends of all ranges that rules name cut the addresses into intervals, within which no rule tells one from another. A
//! header has the number of its interval, so that the search through the rules compares 16 bits instead of 48.

use lookup::classify::ClassSpan;
use policy::Policy;
use policy::model::{MacRange, Macs};
use wire::ethernet::Mac;

use super::CompileError;

/// Class of packets without a source MAC address: no Ethernet header, or sent by Linux.
pub const NO_MAC: u16 = 0;

/// One more than the highest address.
const END: u64 = 1 << 48;

/// Classes of source addresses, from 1 on in the order of the addresses; [`NO_MAC`] is that of a packet without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceMacs {
    /// The first address of each class but that of the lowest addresses, ascending.
    cuts: Vec<u64>,
}

impl SourceMacs {
    /// The classes that the rules of these policies tell apart; `None` where none asks for an address.
    ///
    /// # Errors
    /// They are more than 65,535.
    pub fn of<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
    ) -> Result<Option<SourceMacs>, CompileError> {
        let conditions = policies.into_iter().flat_map(|policy| {
            let rules = policy.rules.iter().map(|rule| &rule.conditions);
            rules.chain(policy.classes.iter().map(|class| &class.conditions))
        });
        let mut ranges = conditions.flat_map(|conditions| &conditions.source_macs.items).peekable();
        if ranges.peek().is_none() {
            return Ok(None);
        }
        let ends = ranges.flat_map(|range| [range.first.to_bits(), range.last.to_bits() + 1]);
        let mut cuts: Vec<u64> = ends.filter(|cut| *cut != 0 && *cut != END).collect();
        cuts.sort_unstable();
        cuts.dedup();
        if cuts.len() >= usize::from(u16::MAX) {
            return Err(CompileError::TooManyMacs(cuts.len() + 1));
        }
        Ok(Some(SourceMacs { cuts }))
    }

    /// The class of an address, as a number of 48 bits.
    #[inline]
    pub fn class(&self, mac: u64) -> u16 {
        self.cuts.partition_point(|cut| *cut <= mac) as u16 + 1
    }

    /// The highest class that there is.
    pub fn highest(&self) -> u16 {
        self.cuts.len() as u16 + 1
    }

    /// Number of comparisons that tell the class of an address.
    pub(crate) fn steps(&self) -> u32 {
        usize::BITS - self.cuts.len().leading_zeros()
    }

    /// The classes of addresses that match: disjoint, ascending; `None` where all do, and packets without one.
    pub(crate) fn spans(&self, macs: &Macs) -> Option<Vec<ClassSpan>> {
        if macs.items.is_empty() {
            return None;
        }
        let span = |range: &MacRange| {
            let [first, last] = [range.first, range.last].map(|mac| self.class(mac.to_bits()));
            (first, last)
        };
        let mut asked: Vec<(u16, u16)> = macs.items.iter().map(span).collect();
        asked.sort_unstable();
        let mut spans: Vec<ClassSpan> = Vec::with_capacity(asked.len() + 1);
        let mut next = 1u32;
        for (first, last) in asked {
            if macs.except {
                if u32::from(first) > next {
                    spans.push(ClassSpan { first: next as u16, last: first - 1 });
                }
            } else {
                match spans.last_mut() {
                    Some(before) if u32::from(first) <= next => before.last = before.last.max(last),
                    _ => spans.push(ClassSpan { first, last }),
                }
            }
            next = next.max(u32::from(last) + 1);
        }
        if macs.except && next <= self.highest().into() {
            spans.push(ClassSpan { first: next as u16, last: self.highest() });
        }
        Some(spans)
    }

    /// The addresses of a class; `None` for [`NO_MAC`], and a class that there is not.
    pub fn range(&self, class: u16) -> Option<MacRange> {
        let place = usize::from(class).checked_sub(1)?;
        let first = if place == 0 { 0 } else { *self.cuts.get(place - 1)? };
        let last = self.cuts.get(place).copied().unwrap_or(END) - 1;
        Some(MacRange { first: Mac::from_bits(first), last: Mac::from_bits(last) })
    }

    /// An address of a class that a frame can have as its source; `None` where there is none.
    pub fn example(&self, class: u16) -> Option<Mac> {
        let MacRange { first, last } = self.range(class)?;
        if first.is_unicast() {
            return Some(first);
        }
        // The lowest bit of the first octet is that of groups: past all that begin like this one.
        let bits = first.to_bits();
        let next = if bits == 0 { 1 } else { ((bits >> 41) + 1) << 41 };
        (next <= last.to_bits()).then(|| Mac::from_bits(next))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use policy::model::{Conditions, Rule};

    use super::*;

    fn policy(rules: &[Macs]) -> Policy {
        let rule = |macs: &Macs| Rule {
            conditions: Conditions { source_macs: macs.clone(), ..Conditions::default() },
            ..Rule::default()
        };
        Policy { rules: rules.iter().map(rule).collect(), ..Policy::default() }
    }

    /// Addresses that lie close together, and at both ends.
    fn address() -> impl Strategy<Value = u64> {
        prop_oneof![0..12u64, (END - 12)..END, (1u64 << 40)..(1 << 40) + 4, 0..END]
    }

    fn macs() -> impl Strategy<Value = Macs> {
        let range = (address(), address(), any::<bool>()).prop_map(|(one, other, single)| {
            let other = if single { one } else { other };
            MacRange { first: Mac::from_bits(one.min(other)), last: Mac::from_bits(one.max(other)) }
        });
        (vec(range, 0..5), any::<bool>()).prop_map(|(items, except)| Macs { items, except })
    }

    proptest! {
        #[test]
        fn a_class_is_asked_for_as_its_addresses_are(rules in vec(macs(), 0..5), seen in vec(address(), 40)) {
            let policy = policy(&rules);
            let asks = rules.iter().any(|macs| !macs.items.is_empty());
            let classes = SourceMacs::of([&policy]).unwrap();
            prop_assert_eq!(classes.is_some(), asks);
            let Some(classes) = classes else { return Ok(()) };
            for macs in &rules {
                let spans = classes.spans(macs);
                let holds = |class: u16| {
                    spans.as_ref().is_none_or(|spans| {
                        spans.iter().any(|span| span.first <= class && class <= span.last)
                    })
                };
                prop_assert_eq!(holds(NO_MAC), macs.items.is_empty());
                for bits in &seen {
                    let within = |range: &MacRange| range.first <= Mac::from_bits(*bits) && Mac::from_bits(*bits) <= range.last;
                    let wanted = macs.items.is_empty() || macs.items.iter().any(within) != macs.except;
                    prop_assert_eq!(holds(classes.class(*bits)), wanted, "{:?} {:#x}", macs, bits);
                }
                let mut last = None;
                for span in spans.into_iter().flatten() {
                    prop_assert!(span.first <= span.last && last.is_none_or(|last| last < span.first));
                    last = Some(span.last);
                }
            }
            for bits in seen {
                let class = classes.class(bits);
                let range = classes.range(class).unwrap();
                prop_assert!(range.first <= Mac::from_bits(bits) && Mac::from_bits(bits) <= range.last);
                prop_assert!(classes.highest() >= class);
                match classes.example(class) {
                    Some(example) => {
                        prop_assert!(example.is_unicast());
                        prop_assert_eq!(classes.class(example.to_bits()), class);
                    }
                    None => prop_assert!(!Mac::from_bits(bits).is_unicast()),
                }
            }
        }
    }

    #[test]
    fn more_classes_than_there_are_numbers_are_refused() {
        let items = |many: u64| (0..many).map(|one| MacRange::single(Mac::from_bits(2 * one + 1))).collect();
        let of = |many| SourceMacs::of([&policy(&[Macs { items: items(many), except: false }])]);
        assert_eq!(of(32_767).unwrap().unwrap().highest(), 65_535);
        assert_eq!(of(32_768).unwrap_err(), CompileError::TooManyMacs(65_537));
    }
}
