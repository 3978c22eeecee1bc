//! Match sets of rules and translations, in comparable form.

use std::sync::Arc;

#[cfg(test)]
use super::space::Spaces;
use super::space::{Family, Space};
#[cfg(test)]
use crate::model::{Addresses, FamilyMatch, Rule};
use crate::model::{IcmpMatch, PortRange, Protocol, TcpFlagsMatch};

/// Match set: the product of all dimensions.
#[derive(Clone, Debug)]
pub(super) struct Shape<'a> {
    pub(super) from: &'a [String],
    pub(super) to: &'a [String],
    pub(super) in_interfaces: &'a [String],
    pub(super) out_interfaces: &'a [String],
    pub(super) source: Arc<Space>,
    pub(super) destination: Arc<Space>,
    pub(super) protocols: &'a [Protocol],
    /// Port ranges, ascending and not touching; an empty list means all.
    pub(super) sports: Vec<PortRange>,
    pub(super) dports: Vec<PortRange>,
    pub(super) icmp: &'a [IcmpMatch],
    pub(super) tcp_flags: Option<TcpFlagsMatch>,
    /// Bit set of DiffServ code points.
    pub(super) dscp: u64,
    /// Extent of the addresses.
    pub(super) extent: Extent,
}

/// Extent of the addresses of a match set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// These match.
    Exact,
    /// At most these match: those that are in a dynamic set, or are not.
    AtMost,
}

impl<'a> Shape<'a> {
    /// Match set of a rule: the conditions of a translation, and more.
    #[cfg(test)]
    pub(super) fn of(rule: &'a Rule, spaces: &Spaces<'_>) -> Shape<'a> {
        let space = |addresses: &Addresses| {
            let space = spaces.of_addresses(addresses);
            if rule.conditions.family == FamilyMatch::Both {
                return space;
            }
            Arc::new(Space::clone(&space).only(rule.conditions.family))
        };
        let dscp = rule.conditions.dscp.iter().fold(0, |bits, dscp| bits | 1 << dscp.value());
        Shape {
            from: &rule.conditions.from,
            to: &rule.conditions.to,
            in_interfaces: &rule.conditions.in_interfaces,
            out_interfaces: &rule.conditions.out_interfaces,
            source: space(&rule.conditions.source),
            destination: space(&rule.conditions.destination),
            protocols: &rule.conditions.protocols,
            sports: merged(&rule.conditions.sports),
            dports: merged(&rule.conditions.dports),
            icmp: &rule.conditions.icmp,
            tcp_flags: rule.conditions.tcp_flags,
            dscp: if dscp == 0 { u64::MAX } else { dscp },
            extent: Extent::Exact,
        }
    }

    /// Families with packets that match.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::BOTH.into_iter().filter(|family| self.source.has(*family) && self.destination.has(*family))
    }

    /// True if every packet that matches `other` matches here, too. May be false where that is so.
    pub(super) fn covers(&self, other: &Shape<'_>) -> bool {
        self.extent == Extent::Exact
            && all_of(self.from, other.from)
            && all_of(self.to, other.to)
            && all_of(self.in_interfaces, other.in_interfaces)
            && all_of(self.out_interfaces, other.out_interfaces)
            && all_of(self.protocols, other.protocols)
            && ports(&self.sports, &other.sports)
            && ports(&self.dports, &other.dports)
            && icmp(self.icmp, other.icmp)
            && flags(self.tcp_flags, other.tcp_flags)
            && other.dscp & !self.dscp == 0
            && other.families().all(|family| {
                space(&self.source, &other.source, family)
                    && space(&self.destination, &other.destination, family)
            })
    }
}

/// Returns port ranges in order, joined where they touch.
pub(super) fn merged(ranges: &[PortRange]) -> Vec<PortRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<PortRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if u32::from(range.first) <= u32::from(last.last) + 1 => {
                last.last = last.last.max(range.last)
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// True if a list contains all of another; an empty list means all.
fn all_of<T: PartialEq>(mine: &[T], theirs: &[T]) -> bool {
    mine.is_empty() || (!theirs.is_empty() && theirs.iter().all(|item| mine.contains(item)))
}

fn ports(mine: &[PortRange], theirs: &[PortRange]) -> bool {
    let within =
        |range: &PortRange| mine.iter().any(|all| all.first <= range.first && range.last <= all.last);
    mine.is_empty() || (!theirs.is_empty() && theirs.iter().all(within))
}

fn icmp(mine: &[IcmpMatch], theirs: &[IcmpMatch]) -> bool {
    let within = |one: &IcmpMatch| {
        mine.iter().any(|all| all.kind == one.kind && (all.code.is_none() || all.code == one.code))
    };
    mine.is_empty() || (!theirs.is_empty() && theirs.iter().all(within))
}

fn flags(mine: Option<TcpFlagsMatch>, theirs: Option<TcpFlagsMatch>) -> bool {
    let Some(mine) = mine else { return true };
    theirs
        .is_some_and(|theirs| theirs.mask & mine.mask == mine.mask && theirs.value & mine.mask == mine.value)
}

fn space(mine: &Arc<Space>, theirs: &Arc<Space>, family: Family) -> bool {
    Arc::ptr_eq(mine, theirs) || mine.covers(theirs, family)
}
