//! Chains that lead to one another.

use super::{import, why};
use crate::model::{AddressItem, FamilyMatch, Protocol, Rule};

/// A rule in short: its name, protocols, IP version where it is for one, and source.
fn said(rule: &Rule) -> String {
    let conditions = &rule.conditions;
    let protocols = conditions.protocols.iter().map(|protocol| match *protocol {
        Protocol::ICMP => " icmp".to_owned(),
        Protocol::ICMPV6 => " icmpv6".to_owned(),
        Protocol(other) => format!(" {other}"),
    });
    let family = match conditions.family {
        FamilyMatch::Both => "",
        FamilyMatch::V4 => " v4",
        FamilyMatch::V6 => " v6",
    };
    let source = conditions.source.items.iter().map(|item| match item {
        AddressItem::Range(range) => format!(" {}", range.first),
        AddressItem::Set(set) => format!(" @{set}"),
    });
    format!("{}{family}{}{}", rule.name, protocols.collect::<String>(), source.collect::<String>())
}

/// A chain of both versions that accepts the ICMP of one leads the other's packets on by its name alone: none of a host's are of it, and nothing
/// that they would come to is missing.
#[test]
fn icmp_of_one_version_leads_nowhere_in_the_other() {
    let import = import("nft", include_str!("../../../tests/import/icmp-chains.nft.json"));
    assert_eq!(why(&import), []);
    assert_eq!((import.count.rules, import.count.implied), (14, 0));
    let rules: Vec<String> = import.policy.rules.iter().map(said).collect();
    let expected = [
        "input-1 v4 icmp",
        "input-3 v4 icmp icmpv6",
        "input-4 v4 6",
        "input-1-2 icmpv6 2001:db8:1::",
        "input-2 v6 icmpv6",
        "input-4-2 v6 icmpv6",
        "input-policy v6 icmpv6",
        "input-1-3 icmp icmpv6 2001:db8:1::",
        "input-2-2 v6 icmp icmpv6",
        "input-4-3 v6 icmpv6",
        "input-policy-2 v6 icmp icmpv6",
        "input-1-4 6 2001:db8:1::",
        "input-2-3 v6 6",
        "input-3-2 v6 6",
        "input-policy-3",
        "echo-1 v4 icmp",
        "echo-2 icmp",
        "forward-2 v4 17",
        "forward-1 17 2001:db8:2::",
        "forward-policy v6 17",
        "forward-1-2 2001:db8:2::",
        "forward-2-2 v6 icmpv6",
    ];
    assert_eq!(rules, expected);
}
