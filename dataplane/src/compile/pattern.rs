//! Compilation of rules' conditions to [`Pattern`]s.

use lookup::classify::{AddressSpan, Admit, Pattern, PortSpan, TypeMatch};
use policy::model::{AddressItem, Addresses, Conditions, FamilyMatch, Mode, Policy, PortRange, Rule, State};

use super::names::Names;
use crate::tables::{Address, CompileError, SourceMacs};

/// Rules that can meet a packet: in a stateful policy those that list `new`, or no state at all. Each with its place
/// among the policy's rules.
pub fn met(policy: &Policy) -> impl Iterator<Item = (u32, &Rule)> {
    let is_met = |rule: &Rule| {
        policy.mode == Mode::Stateless || rule.states.is_empty() || rule.states.contains(&State::New)
    };
    (0..).zip(&policy.rules).filter(move |(_, rule)| is_met(rule))
}

/// Returns the patterns of the rules that can match a packet, in rule order: the input of a classifier.
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns(policy: &Policy) -> Result<Vec<Pattern>, CompileError> {
    patterns_by(policy, SourceMacs::of([policy])?.as_ref())
}

/// [`patterns`], with classes of source MAC addresses that may be those of several policies ([`SourceMacs::of`]).
///
/// # Errors
/// A rule names what does not exist, or there is too much of something.
pub fn patterns_by(policy: &Policy, macs: Option<&SourceMacs>) -> Result<Vec<Pattern>, CompileError> {
    patterns_of(policy, &Names::new(policy)?, macs)
}

/// [`patterns_by`], with the names of the policy looked up.
pub(super) fn patterns_of(
    policy: &Policy,
    names: &Names,
    macs: Option<&SourceMacs>,
) -> Result<Vec<Pattern>, CompileError> {
    met(policy).map(|(_, rule)| of_conditions(&rule.conditions, policy, names, macs)).collect()
}

/// The pattern of conditions; `macs` are classes that have been made for them, where they ask for a source MAC address.
pub(super) fn of_conditions(
    conditions: &Conditions,
    policy: &Policy,
    names: &Names,
    macs: Option<&SourceMacs>,
) -> Result<Pattern, CompileError> {
    Ok(Pattern {
        from: names.origin_mask(&conditions.from)?,
        to: names.zone_mask(&conditions.to)?,
        ingress: names.interfaces(&conditions.in_interfaces)?,
        egress: names.interfaces(&conditions.out_interfaces)?,
        source_macs: macs.and_then(|macs| macs.spans(&conditions.source_macs)),
        source: spans(&conditions.source, policy)?,
        destination: spans(&conditions.destination, policy)?,
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
    })
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
    Ok(Some(if addresses.except { complement(&spans) } else { spans }))
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

/// All other addresses of the families that `spans` (merged) name.
fn complement(spans: &[AddressSpan]) -> Vec<AddressSpan> {
    let mut others = Vec::new();
    for (v6, highest) in [(false, u128::from(u32::MAX)), (true, u128::MAX)] {
        let mut next = Some(0);
        let mut named = false;
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
    fn except_is_all_else_of_the_families_named() {
        let highest = u128::from(u32::MAX);
        assert_eq!(complement(&[v4(5, 9), v4(20, highest)]), [v4(0, 4), v4(10, 19)]);
        assert_eq!(complement(&[v4(0, highest)]), []);
        let both = complement(&[v4(0, 9), AddressSpan { v6: true, first: 7, last: u128::MAX }]);
        assert_eq!(both, [v4(10, highest), AddressSpan { v6: true, first: 0, last: 6 }]);
    }
}
