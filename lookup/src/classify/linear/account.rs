//! Cost of comparing a pattern with a header on an engine, which leaves the pattern at the first condition that does not hold.

use wire::Family;

use super::super::pattern::Admit;
use super::super::{AddressSpan, Header, Pattern, PortSpan};

/// Instructions from one pattern to the next, without branches: its place and position, compared with the end.
pub(super) const NEXT: u32 = 4;

/// Instructions and branches of all conditions of a pattern that asks for one value of each, of IPv4 ([`compare`]).
pub(super) const PROGRAM: u32 = 36 + 14;

/// Instructions of two IPv6 addresses: the loop over the words of each, with the reference.
pub(super) const WIDE_PROGRAM: u32 = 2 * (WORD + 3) + 1;

/// Instructions for a word of an address, without branches: both words taken and compared.
const WORD: u32 = 3;

/// Comparison of one pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Instructions, without branches.
    pub(super) instructions: u32,
    /// Branches that are not taken.
    pub(super) branches: u32,
    /// Addresses of IPv6 are compared.
    pub(super) wide: bool,
    /// All conditions hold.
    pub(super) matches: bool,
}

impl Work {
    /// Adds a condition; says whether it holds.
    fn add(&mut self, instructions: u32, branches: u32, holds: bool) -> bool {
        self.instructions += instructions;
        // The last branch of one that does not hold is taken.
        self.branches += branches - u32::from(!holds);
        holds
    }

    /// Adds a condition that one of several values meets, each of which costs so much. One that asks for nothing is compared with a value
    /// that all packets have.
    fn add_any(&mut self, [instructions, branches]: [u32; 2], holds: impl IntoIterator<Item = bool>) -> bool {
        let mut asked = 0;
        for holds in holds {
            asked += 1;
            self.add(instructions, branches, true);
            if holds {
                return true;
            }
        }
        if asked == 0 {
            return self.add(instructions, branches, true);
        }
        self.branches -= 1;
        false
    }

    /// Adds addresses: of several spans, by halving, as many as there are bits in their number.
    fn add_address(&mut self, spans: Option<&[AddressSpan]>, address: u128, family: Family) -> bool {
        let v6 = family == Family::V6;
        let Some(spans) = spans else {
            // No mask of IPv6 is read for that: a flag says so.
            return self.add(if v6 { 1 } else { WORD }, 1, true);
        };
        let after = spans.partition_point(|span| (span.v6, span.first) <= (v6, address));
        let span = after.checked_sub(1).and_then(|place| spans.get(place)).filter(|span| span.v6 == v6);
        let holds = span.is_some_and(|span| address <= span.last);
        // An address of the other family differs in its first word.
        let nearest = span.or_else(|| spans.get(after)).filter(|span| span.v6 == v6);
        let words = if v6 { nearest.map_or(1, |span| words(span, address)) } else { 1 };
        self.wide |= v6 && nearest.is_some();
        let probes = (usize::BITS - spans.len().leading_zeros()).max(1);
        self.add(WORD * words * probes, words * probes, holds)
    }
}

/// Words of an IPv6 address that are compared with a span, the first ones first, until one decides.
fn words(span: &AddressSpan, address: u128) -> u32 {
    let word = |bits: u128, number: u32| (bits >> (96 - 32 * number)) as u32;
    let decides = |number: &u32| {
        let (first, last) = (word(span.first, *number), word(span.last, *number));
        first != last || word(address, *number) != first
    };
    (0..4).find(decides).map_or(4, |number| number + 1)
}

/// True if the pattern has addresses of IPv6.
pub(super) fn has_wide(pattern: &Pattern) -> bool {
    [&pattern.source, &pattern.destination].into_iter().flatten().flatten().any(|span| span.v6)
}

/// Compares a pattern, in the order of [`Pattern::matches`]. Zones and code point: a bit of 64, whose word is chosen first, 3 each. TCP flags: mask
/// and value taken out of their word, mask and compare, 4. Protocol: taken out, compare, any, 3. A port range: both ends taken out of their
/// word and compared, 5. An address: 3 a word. Family: a bit, 2. Interfaces, ICMP type and code, class of the source MAC address, memberships
/// in sets: whether a pattern asks for any, 2; where it does, 2 for each.
pub(super) fn compare(pattern: &Pattern, header: &Header) -> Work {
    let mut work = Work::default();
    let has = |mask: u64, bit: u8| mask & (1 << bit) != 0;
    let port = |port: u16| move |span: &PortSpan| span.first <= port && port <= span.last;
    let [kind, code] = header.dport.to_be_bytes();
    let admits = match header.family {
        Family::V4 => pattern.v4,
        Family::V6 => pattern.v6,
        Family::Other => Admit::No,
    };
    work.matches = work.add(3, 1, has(pattern.from, header.from))
        && work.add(3, 1, has(pattern.to, header.to))
        && work.add(3, 1, has(pattern.dscp, header.dscp))
        && work.add(4, 1, header.tcp_flags & pattern.tcp_mask == pattern.tcp_value)
        && work.add_any([3, 2], pattern.protocols.iter().map(|protocol| *protocol == header.protocol))
        && work.add_any([5, 2], pattern.dports.iter().map(port(header.dport)))
        && work.add_any([5, 2], pattern.sports.iter().map(port(header.sport)))
        && work.add_address(pattern.destination.as_deref(), header.destination, header.family)
        && work.add_address(pattern.source.as_deref(), header.source, header.family)
        && work.add(2, 1, admits == Admit::Yes)
        && work.add(2, 1, true)
        && listed(&mut work, &pattern.icmp, |one| one.kind == kind && one.code.is_none_or(|of| of == code))
        && listed(&mut work, &pattern.ingress, |one| *one == header.ingress)
        && listed(&mut work, &pattern.egress, |one| *one == header.egress)
        && pattern.source_macs.as_ref().is_none_or(|spans| {
            let is = |class: u16| spans.iter().any(|span| span.first <= class && class <= span.last);
            work.add(2, 1, is(header.source_mac))
        })
        && (!asks_sets(pattern) || work.add(2, 1, header.sets & pattern.sets_mask == pattern.sets_value));
    work
}

/// True if the pattern asks for memberships in sets.
fn asks_sets(pattern: &Pattern) -> bool {
    pattern.sets_mask != 0 || pattern.sets_value != 0
}

/// Adds a condition that only some patterns have.
fn listed<T>(work: &mut Work, asked: &[T], is: impl Fn(&T) -> bool) -> bool {
    asked.is_empty() || work.add_any([2, 1], asked.iter().map(is))
}
