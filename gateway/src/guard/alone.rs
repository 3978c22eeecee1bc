//! Translation of rules to `self` for a guard while no gateway runs.
//!
//! A guard has no connection tracking, DiffServ or MAC matching, and a rate is a bucket of depth one. Where a rule
//! cannot be translated exactly, the guard never accepts more than the policy: an accept rule is left out, and a drop
//! rule is applied without the conditions that a guard cannot match.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use policy::Policy;
use policy::model::{
    self, Action, AddressItem, AddressRange, Addresses, DnatStatus, FamilyMatch, Interface, Mode, Rule,
    SELF_ZONE, State,
};
use ports::{Alone, Fate, GuardSet, Pace, Scope, SelfRule, Version};

use crate::linux;

/// Rules of a guard without a gateway, and rules of the policy that a guard cannot apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Rules of the guard.
    pub alone: Alone,
    /// Names of accept rules left out, as they match on fields that a guard cannot match.
    pub left_out: Vec<String>,
}

/// Compiles the rules of an interface. `linux` adds addresses, and tells which VLANs have an interface of their own.
pub fn terms(policy: &Policy, interface: &Interface, linux: &linux::State) -> Terms {
    let mut own: BTreeSet<IpAddr> = linux.addresses.keys().map(|key| key.net.addr()).collect();
    own.extend(policy.interfaces.iter().flat_map(|other| &other.addresses).map(|net| net.addr()));
    own.retain(|address| !address.is_loopback() && !address.is_unspecified());
    let on_it = |other: &&Interface| other.parent.as_ref() == Some(&interface.name) && other.vlans.len() == 1;
    let vlans = policy.interfaces.iter().filter(on_it);
    let vlans = vlans.filter(|other| linux.link_named(&other.name).is_some()).map(|other| other.vlans[0]);
    let alone = Alone { own: own.into_iter().collect(), rules: Vec::new(), vlans: vlans.collect() };
    let mut terms = Terms { alone, left_out: Vec::new() };
    for rule in &policy.rules {
        if decides(policy, interface, rule) {
            match rendered(policy, rule) {
                Rendering::Rule(rule) => terms.alone.rules.push(rule),
                Rendering::Nothing => {}
                Rendering::TooMuch => terms.left_out.push(rule.name.clone()),
            }
        }
    }
    if policy.default_action(&interface.zone, SELF_ZONE) == Action::Accept {
        terms.alone.rules.push(SelfRule { fate: Fate::Accept, ..SelfRule::default() });
    }
    if !GuardSet::fits(&terms.alone) {
        terms.alone.rules.clear();
        terms.left_out = vec!["all: they are too many".to_owned()];
    }
    terms
}

/// True if a rule can decide about new connections from an interface to the machine itself.
fn decides(policy: &Policy, interface: &Interface, rule: &Rule) -> bool {
    let names = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
    names(&rule.conditions.from, &interface.zone)
        && names(&rule.conditions.to, SELF_ZONE)
        && names(&rule.conditions.in_interfaces, &interface.name)
        && rule.conditions.out_interfaces.is_empty()
        && (policy.mode == Mode::Stateless || rule.states.is_empty() || rule.states.contains(&State::New))
}

/// Translation of a rule.
enum Rendering {
    Rule(SelfRule),
    /// No packet that reaches a guard's rules can match.
    Nothing,
    /// Accept rule on fields that a guard cannot match.
    TooMuch,
}

fn rendered(policy: &Policy, rule: &Rule) -> Rendering {
    let fate = if rule.action == Action::Accept { Fate::Accept } else { Fate::Drop };
    let conditions = [&rule.conditions.source, &rule.conditions.destination];
    if fate == Fate::Accept && conditions.into_iter().any(|addresses| is_dynamic(policy, addresses)) {
        return Rendering::TooMuch;
    }
    // A guard translates nothing; what it would let in as untranslated may be what is translated else.
    if rule.dnat == Some(DnatStatus::Translated) {
        return Rendering::Nothing;
    }
    let mut exact = rule.dnat.is_none()
        && rule.conditions.dscp.is_empty()
        && rule.conditions.source_macs.items.is_empty()
        && rule.connections.is_none();
    if let Some(flags) = rule.conditions.tcp_flags {
        // Of TCP a guard's rules see SYNs alone: FIN, RST and ACK are clear in them.
        let known = flags.mask & LOOKED_AT;
        if flags.value & known != SYN & known {
            return Rendering::Nothing;
        }
        exact &= flags.mask == known;
    }
    let version = match rule.conditions.family {
        FamilyMatch::Both => None,
        FamilyMatch::V4 => Some(Version::V4),
        FamilyMatch::V6 => Some(Version::V6),
    };
    let (Some(sources), Some(destinations)) =
        (ranges(policy, &rule.conditions.source), ranges(policy, &rule.conditions.destination))
    else {
        return Rendering::Nothing;
    };
    if fate == Fate::Accept && !exact {
        return Rendering::TooMuch;
    }
    let ports = |list: &[model::PortRange]| list.iter().map(|range| (range.first, range.last)).collect();
    Rendering::Rule(SelfRule {
        fate,
        version,
        sources,
        destinations,
        protocols: match rule.conditions.tcp_flags {
            Some(_) => vec![TCP],
            None => rule.conditions.protocols.iter().map(|protocol| protocol.0).collect(),
        },
        sports: ports(&rule.conditions.sports),
        dports: ports(&rule.conditions.dports),
        icmp: rule.conditions.icmp.iter().map(|one| (one.kind, one.code)).collect(),
        pace: rule.rate.map(|rate| Pace {
            interval: rate.per.0 / u64::from(rate.count.max(1)),
            scope: match rate.scope {
                model::Scope::Rule => Scope::Rule,
                model::Scope::Source => Scope::Source,
            },
        }),
    })
}

const TCP: u8 = 6;
const SYN: u8 = 0x02;
/// FIN, SYN, RST and ACK.
const LOOKED_AT: u8 = 0x17;

/// True if a dynamic set is listed, whose elements no guard knows.
fn is_dynamic(policy: &Policy, addresses: &Addresses) -> bool {
    addresses.items.iter().any(|item| match item {
        AddressItem::Set(name) => policy.dynamic_set(name).is_some(),
        AddressItem::Range(_) => false,
    })
}

/// Ranges of addresses: an empty list matches every address, `None` matches no address. A dynamic set is taken for an empty one.
fn ranges(policy: &Policy, addresses: &Addresses) -> Option<Vec<(IpAddr, IpAddr)>> {
    if addresses.items.is_empty() {
        return Some(Vec::new());
    }
    let listed = addresses.items.iter().flat_map(|item| match item {
        AddressItem::Range(range) => std::slice::from_ref(range),
        AddressItem::Set(name) => policy.set(name).map_or(&[][..], |set| &set.items),
    });
    let mut listed: Vec<AddressRange> = listed.copied().collect();
    if addresses.except {
        if is_dynamic(policy, addresses) && listed.is_empty() {
            return Some(Vec::new());
        }
        let is_listed = |v4| listed.iter().any(|range| range.first.is_ipv4() == v4);
        let whole = [
            (true, AddressRange { first: Ipv4Addr::UNSPECIFIED.into(), last: Ipv4Addr::BROADCAST.into() }),
            (
                false,
                AddressRange { first: Ipv6Addr::UNSPECIFIED.into(), last: Ipv6Addr::from(u128::MAX).into() },
            ),
        ];
        let others = whole.into_iter().filter(|(v4, _)| is_dynamic(policy, addresses) && !is_listed(*v4));
        let others: Vec<AddressRange> = others.map(|(_, range)| range).collect();
        listed = all_but(listed);
        listed.extend(others);
    }
    let pairs: Vec<_> = listed.iter().map(|range| (range.first, range.last)).collect();
    Some(pairs).filter(|pairs| !pairs.is_empty())
}

/// Complement of the ranges, within their address families.
fn all_but(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    ranges.sort_unstable();
    let mut others = Vec::new();
    for v4 in [true, false] {
        let of_family: Vec<_> = ranges.iter().filter(|range| range.first.is_ipv4() == v4).collect();
        if of_family.is_empty() {
            continue;
        }
        let address = |bits: u128| -> IpAddr {
            if v4 { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) }
        };
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => address.into(),
        };
        let highest = if v4 { u128::from(u32::MAX) } else { u128::MAX };
        let mut next = Some(0);
        for range in of_family {
            let Some(from) = next else { break };
            if bits(range.first) > from {
                others.push(AddressRange { first: address(from), last: address(bits(range.first) - 1) });
            }
            let beyond = bits(range.last).checked_add(1).filter(|beyond| *beyond <= highest);
            next = beyond.map(|beyond| beyond.max(from));
        }
        if let Some(from) = next {
            others.push(AddressRange { first: address(from), last: address(highest) });
        }
    }
    others
}

#[cfg(test)]
mod tests;
