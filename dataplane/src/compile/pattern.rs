//! Compilation of rules' conditions to [`Pattern`]s.

use lookup::classify::{AddressSpan, Admit, Pattern, PortSpan, TypeMatch};
use policy::model::{
    AddressItem, Addresses, Conditions, DnatStatus, FamilyMatch, Mode, Policy, PortRange, Rule, State,
};

use super::names::Names;
use crate::tables::set::named;
use crate::tables::{Address, AddressMatch, CompileError, DNAT, SetUses, Side, SourceMacs};

/// Rules that can meet a packet: in a stateful policy those that list `new`, or no state at all. Each with its place
/// among the policy's rules.
pub fn met(policy: &Policy) -> impl Iterator<Item = (u32, &Rule)> {
    let is_met = |rule: &Rule| {
        policy.mode == Mode::Stateless || rule.states.is_empty() || rule.states.contains(&State::New)
    };
    (0..).zip(&policy.rules).filter(move |(_, rule)| is_met(rule))
}

/// A pattern, and the rule that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePattern {
    /// Place of the rule among the policy's rules.
    pub rule: u32,
    /// The pattern. A rule that asks for one of several dynamic sets, or for one beside addresses, has a pattern for each.
    pub pattern: Pattern,
}

/// Numbers in patterns, and the names and addresses that they stand for.
pub(super) struct About<'a> {
    pub(super) names: &'a Names,
    pub(super) macs: Option<&'a SourceMacs>,
    pub(super) sets: &'a SetUses,
}

/// Returns the patterns of the rules that can match a packet, in rule order: the input of a classifier.
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns(policy: &Policy) -> Result<Vec<Pattern>, CompileError> {
    let all = patterns_by(policy, SourceMacs::of([policy])?.as_ref(), &SetUses::of([policy])?)?;
    Ok(all.into_iter().map(|of| of.pattern).collect())
}

/// [`patterns`] with their rules, with classes of source MAC addresses ([`SourceMacs::of`]) and bits of dynamic sets ([`SetUses::of`])
/// that may be those of several policies.
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns_by(
    policy: &Policy,
    macs: Option<&SourceMacs>,
    sets: &SetUses,
) -> Result<Vec<RulePattern>, CompileError> {
    patterns_of(policy, &About { names: &Names::new(policy)?, macs, sets })
}

/// [`patterns_by`], with the names of the policy looked up.
pub(super) fn patterns_of(policy: &Policy, about: &About<'_>) -> Result<Vec<RulePattern>, CompileError> {
    let mut all = Vec::new();
    for (rule, item) in met(policy) {
        for mut pattern in of_conditions(&item.conditions, policy, about)? {
            if let Some(dnat) = item.dnat {
                pattern.sets_mask |= DNAT;
                pattern.sets_value |= if dnat == DnatStatus::Translated { DNAT } else { 0 };
            }
            // The search goes on behind a rule that has let its packet go on.
            pattern.sets_mask |= about.sets.rate_bit(item);
            all.push(RulePattern { rule, pattern });
        }
    }
    Ok(all)
}

/// The patterns of conditions, of which any may match: one, unless the conditions ask for dynamic sets.
pub(super) fn of_conditions(
    conditions: &Conditions,
    policy: &Policy,
    about: &About<'_>,
) -> Result<Vec<Pattern>, CompileError> {
    let About { names, macs, sets } = *about;
    let pattern = Pattern {
        from: names.origin_mask(&conditions.from)?,
        to: names.zone_mask(&conditions.to)?,
        ingress: names.interfaces(&conditions.in_interfaces)?,
        egress: names.interfaces(&conditions.out_interfaces)?,
        source_macs: macs.and_then(|macs| macs.spans(&conditions.source_macs)),
        source: None,
        destination: None,
        v4: if conditions.family == FamilyMatch::V6 { Admit::No } else { Admit::Yes },
        v6: if conditions.family == FamilyMatch::V4 { Admit::No } else { Admit::Yes },
        protocols: conditions.protocols.iter().map(|protocol| protocol.0).collect(),
        sports: ports(&conditions.sports),
        dports: ports(&conditions.dports),
        icmp: conditions.icmp.iter().map(|item| TypeMatch { kind: item.kind, code: item.code }).collect(),
        tcp_mask: conditions.tcp_flags.map_or(0, |flags| flags.mask),
        tcp_value: conditions.tcp_flags.map_or(0, |flags| flags.value),
        dscp: if conditions.dscp.is_empty() {
            u64::MAX
        } else {
            conditions.dscp.iter().fold(0, |mask, dscp| mask | 1 << dscp.value())
        },
        sets_mask: 0,
        sets_value: 0,
    };
    let sources = alternatives(&conditions.source, Side::Source, policy, sets)?;
    let destinations = alternatives(&conditions.destination, Side::Destination, policy, sets)?;
    Ok(between(&pattern, &sources, &destinations))
}

/// A pattern between each source and each destination.
pub(super) fn between(
    pattern: &Pattern,
    sources: &[AddressMatch],
    destinations: &[AddressMatch],
) -> Vec<Pattern> {
    let mut patterns = Vec::with_capacity(sources.len() * destinations.len());
    for source in sources {
        for destination in destinations {
            patterns.push(Pattern {
                source: source.spans.clone(),
                destination: destination.spans.clone(),
                sets_mask: source.mask | destination.mask,
                sets_value: source.value | destination.value,
                ..pattern.clone()
            });
        }
    }
    patterns
}

/// The alternatives of a list of addresses: one with the addresses of the policy itself, and one for each dynamic set. Exceptions are one.
pub(super) fn alternatives(
    addresses: &Addresses,
    side: Side,
    policy: &Policy,
    uses: &SetUses,
) -> Result<Vec<AddressMatch>, CompileError> {
    let mut bits = Vec::new();
    for set in named(addresses, policy) {
        let bit = uses.bit(&set.name, side).ok_or_else(|| CompileError::UnknownSet(set.name.clone()))?;
        if !bits.contains(&bit) {
            bits.push(bit);
        }
    }
    if bits.is_empty() {
        return Ok(vec![AddressMatch { spans: spans(addresses, policy)?, mask: 0, value: 0 }]);
    }
    let fixed = spans(&Addresses { except: false, ..fixed(addresses, policy) }, policy)?;
    if addresses.except {
        // A dynamic set may have addresses of both families: all others of both match.
        let spans = fixed.map(|fixed| complement(&fixed, Named::Both));
        return Ok(vec![AddressMatch { spans, mask: bits.iter().fold(0, |all, bit| all | bit), value: 0 }]);
    }
    let fixed = fixed.map(|spans| AddressMatch { spans: Some(spans), mask: 0, value: 0 });
    let dynamic = bits.into_iter().map(|bit| AddressMatch { spans: None, mask: bit, value: bit });
    Ok(fixed.into_iter().chain(dynamic).collect())
}

/// A list of addresses without the dynamic sets in it.
pub(super) fn fixed(addresses: &Addresses, policy: &Policy) -> Addresses {
    let is_fixed =
        |item: &&AddressItem| !matches!(item, AddressItem::Set(name) if policy.dynamic_set(name).is_some());
    let items = addresses.items.iter().filter(is_fixed).cloned().collect();
    Addresses { items, except: addresses.except }
}

/// Addresses that are known beforehand, of a list that matches those and others; none of a list that is open, of exceptions among them where
/// dynamic sets are excepted.
pub(super) fn known(addresses: &Addresses, policy: &Policy) -> Result<Vec<AddressSpan>, CompileError> {
    let fixed = fixed(addresses, policy);
    let is_open = addresses.except && fixed.items.len() < addresses.items.len();
    Ok(if is_open { Vec::new() } else { spans(&fixed, policy)?.unwrap_or_default() })
}

/// Alternatives of addresses, cut to those that are among `spans` (merged).
pub(super) fn within(alternatives: &[AddressMatch], spans: &[AddressSpan]) -> Vec<AddressMatch> {
    let cut = alternatives.iter().map(|one| AddressMatch {
        spans: Some(one.spans.as_ref().map_or_else(|| spans.to_vec(), |own| intersection(own, spans))),
        ..*one
    });
    cut.filter(|one| one.spans.as_ref().is_some_and(|spans| !spans.is_empty())).collect()
}

/// Addresses that are in both (merged).
fn intersection(one: &[AddressSpan], other: &[AddressSpan]) -> Vec<AddressSpan> {
    let mut both = Vec::new();
    let (mut mine, mut theirs) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
        if a.v6 == b.v6 && a.first <= b.last && b.first <= a.last {
            both.push(AddressSpan { v6: a.v6, first: a.first.max(b.first), last: a.last.min(b.last) });
        }
        // The one that ends first meets no further one.
        if (a.v6, a.last) <= (b.v6, b.last) {
            mine.next()
        } else {
            theirs.next()
        };
    }
    both
}

/// Disjoint ascending spans of a list of addresses; `None` for every address.
pub(super) fn spans(
    addresses: &Addresses,
    policy: &Policy,
) -> Result<Option<Vec<AddressSpan>>, CompileError> {
    if addresses.items.is_empty() {
        return Ok(None);
    }
    let mut spans = Vec::new();
    for item in &addresses.items {
        match item {
            AddressItem::Range(range) => spans.push(span(range.first.into(), range.last.into())),
            AddressItem::Set(name) => {
                let set = policy.set(name).ok_or_else(|| CompileError::UnknownSet(name.clone()))?;
                spans.extend(set.items.iter().map(|range| span(range.first.into(), range.last.into())));
            }
        }
    }
    let spans = merge(spans);
    Ok(Some(if addresses.except { complement(&spans, Named::Listed) } else { spans }))
}

/// The span of two addresses of one family.
pub(super) fn span(first: Address, last: Address) -> AddressSpan {
    AddressSpan { v6: first.v6, first: first.bits, last: last.bits }
}

/// Spans of ports, as the patterns have them.
pub(super) fn ports(ranges: &[PortRange]) -> Vec<PortSpan> {
    ranges.iter().map(|range| PortSpan { first: range.first, last: range.last }).collect()
}

/// Sorts, and joins what overlaps or touches.
pub(super) fn merge(mut spans: Vec<AddressSpan>) -> Vec<AddressSpan> {
    spans.sort_unstable();
    let mut merged: Vec<AddressSpan> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.v6 == span.v6 && span.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(span.last);
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Families of exceptions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// Families of the addresses listed.
    Listed,
    /// Both.
    Both,
}

/// All other addresses than `spans` (merged), of the families named.
fn complement(spans: &[AddressSpan], families: Named) -> Vec<AddressSpan> {
    let mut others = Vec::new();
    for (v6, highest) in [(false, u128::from(u32::MAX)), (true, u128::MAX)] {
        let mut next = Some(0);
        let mut named = families == Named::Both;
        for span in spans.iter().filter(|span| span.v6 == v6) {
            named = true;
            if let Some(first) = next.filter(|first| *first < span.first) {
                others.push(AddressSpan { v6, first, last: span.first - 1 });
            }
            next = span.last.checked_add(1).filter(|first| *first <= highest);
        }
        if let Some(first) = next.filter(|_| named) {
            others.push(AddressSpan { v6, first, last: highest });
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(first: u128, last: u128) -> AddressSpan {
        AddressSpan { v6: false, first, last }
    }

    #[test]
    fn what_touches_is_joined() {
        let merged = merge(vec![v4(5, 9), v4(0, 4), v4(20, 30), v4(22, 25), v4(32, 40)]);
        assert_eq!(merged, [v4(0, 9), v4(20, 30), v4(32, 40)]);
    }

    #[test]
    fn an_intersection_is_what_both_have() {
        let v6 = |first, last| AddressSpan { v6: true, first, last };
        let one = [v4(5, 9), v4(20, 30), v6(0, 9)];
        let other = [v4(0, 5), v4(8, 21), v4(25, 26), v4(40, 50), v6(9, 20)];
        let both = [v4(5, 5), v4(8, 9), v4(20, 21), v4(25, 26), v6(9, 9)];
        assert_eq!((intersection(&one, &other), intersection(&other, &one)), (both.to_vec(), both.to_vec()));
        assert_eq!((intersection(&one, &[]), intersection(&[v4(0, 4)], &one)), (vec![], vec![]));
    }

    #[test]
    fn except_is_all_else_of_the_families_named() {
        let highest = u128::from(u32::MAX);
        assert_eq!(complement(&[v4(5, 9), v4(20, highest)], Named::Listed), [v4(0, 4), v4(10, 19)]);
        assert_eq!(complement(&[v4(0, highest)], Named::Listed), []);
        let both =
            complement(&[v4(0, 9), AddressSpan { v6: true, first: 7, last: u128::MAX }], Named::Listed);
        assert_eq!(both, [v4(10, highest), AddressSpan { v6: true, first: 0, last: 6 }]);
        let all = AddressSpan { v6: true, first: 0, last: u128::MAX };
        assert_eq!(complement(&[v4(0, 9)], Named::Both), [v4(10, highest), all]);
    }
}
