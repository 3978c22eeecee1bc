//! Held to trying every kind of header there is: each field has one value of each stretch that no rule tells apart.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use dataplane::tables::{DNAT, LOCAL, NO_MAC, PatternRule, SELF, SetUses, SourceMacs, Tables};
use lookup::classify::Header;
use policy::Policy;
use policy::model::{
    AddressItem, Addresses, Conditions, DnatStatus, DynamicSet, Excess, Interface, LinkKind, Mac, MacRange,
    Macs, Mode, PortRange, Protocol, Rate, Rule, Scope, SourceCheck, TcpFlagsMatch, ZoneDefault,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use wire::{Family, Nanos};

use super::*;

const V4: [&str; 4] = ["10.0.0.0", "10.1.0.0", "10.1.0.9", "11.0.0.0"];

fn range(first: &str, last: &str) -> AddressItem {
    AddressItem::Range(AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() })
}

fn addresses() -> impl Strategy<Value = Addresses> {
    let some = vec![
        range("10.0.0.0", "10.255.255.255"),
        range("10.1.0.0", "10.1.255.255"),
        range("10.1.0.0", "10.1.0.9"),
        range("10.1.0.9", "10.1.0.9"),
        range("0.0.0.0", "255.255.255.255"),
        range("2001:db8::", "2001:db8::ffff"),
        range("2001:db8::7", "2001:db8::7"),
    ];
    // Seldom any, so that most policies are tried with few headers.
    let set = |name: &str| AddressItem::Set(name.to_owned());
    let sets = vec![set("a"), set("b"), range("10.1.0.0", "10.1.255.255")];
    let except = || proptest::bool::weighted(0.1);
    prop_oneof![
        8 => Just(Addresses::default()),
        12 => (subsequence(some, 1..3), except()).prop_map(|(items, except)| Addresses { items, except }),
        1 => (subsequence(sets, 1..=3), except()).prop_map(|(items, except)| Addresses { items, except }),
    ]
}

/// Seldom any, so that most policies are tried with few headers.
fn macs() -> impl Strategy<Value = Macs> {
    let mac = |last| Mac([2, 0, 0, 0, 0, last]);
    let some = vec![
        MacRange::single(mac(1)),
        MacRange { first: mac(1), last: mac(4) },
        MacRange { first: Mac::ZERO, last: Mac::BROADCAST },
    ];
    let except = proptest::bool::weighted(0.3);
    prop_oneof![
        6 => Just(Macs::default()),
        1 => (subsequence(some, 1..3), except).prop_map(|(items, except)| Macs { items, except }),
    ]
}

/// Meaning of numbers in headers.
#[derive(Clone, Copy)]
struct By<'a> {
    macs: Option<&'a SourceMacs>,
    sets: &'a SetUses,
}

fn zones(names: &[&str]) -> impl Strategy<Value = Vec<String>> + use<> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    prop_oneof![2 => Just(Vec::new()), 1 => subsequence(names, 1..=1)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let ports = prop_oneof![
        2 => Just(Vec::new()),
        3 => select(vec![vec![(80, 80)], vec![(1, 100)], vec![(50, 443)], vec![(80, 80), (443, 443)]]),
    ]
    .prop_map(|ports| ports.into_iter().map(|(first, last)| PortRange { first, last }).collect::<Vec<_>>());
    let protocols =
        select(vec![vec![], vec![Protocol::TCP], vec![Protocol::TCP, Protocol::UDP], vec![Protocol::ICMP]]);
    let action = prop_oneof![3 => Just(Action::Accept), 3 => Just(Action::Drop), 1 => Just(Action::Reject(Default::default()))];
    let log = prop_oneof![6 => Just(Logging::Off), 1 => Just(Logging::On)];
    let flags = prop_oneof![5 => Just(None), 1 => Just(Some(TcpFlagsMatch { mask: 0x12, value: 0x02 }))];
    let rate = Rate { count: 1, per: Nanos::from_secs(1), burst: 1, scope: Scope::Rule };
    let rate = prop_oneof![9 => Just(None), 1 => Just(Some(rate))];
    let rate = (rate, select(&[Excess::Drop, Excess::Next][..]));
    let dnat = select(&[None, None, None, Some(DnatStatus::Translated), Some(DnatStatus::Untranslated)][..]);
    (
        (addresses(), addresses(), ports, protocols, flags, macs(), dnat),
        (zones(&["lan", "wan"]), zones(&["lan", "wan", "self"]), action, log, rate),
    )
        .prop_map(
            |(
                (source, destination, dports, protocols, flags, source_macs, dnat),
                (from, to, action, log, (rate, excess)),
            )| {
                let ported = protocols.first().is_some_and(|one| one.has_ports());
                let tcp = protocols == [Protocol::TCP];
                Rule {
                    conditions: Conditions {
                        source_macs,
                        source,
                        destination,
                        dports: if ported { dports } else { Vec::new() },
                        tcp_flags: flags.filter(|_| tcp),
                        protocols,
                        from,
                        to,
                        ..Conditions::default()
                    },
                    dnat,
                    rate,
                    excess: if action == Action::Accept && rate.is_some() { excess } else { Excess::Drop },
                    action,
                    log,
                    ..Rule::default()
                }
            },
        )
}

fn interface(name: &str, zone: &str) -> Interface {
    Interface { source_check: SourceCheck::Off, ..Interface::new(name, zone) }
}

fn policy() -> impl Strategy<Value = Policy> {
    let default =
        |from: &str, to: &str| ZoneDefault { from: from.into(), to: to.into(), action: Action::Accept };
    let defaults = subsequence(vec![default("lan", "wan"), default("any", "self")], 0..=2);
    // An interface that moves between zones, and one that there is or not.
    let third = prop_oneof![Just("lan"), Just("wan")];
    let links = select(&[LinkKind::Ethernet, LinkKind::Ethernet, LinkKind::Ip][..]);
    let beside = (any::<bool>(), links);
    (vec(rule(), 0..6), defaults, third, beside).prop_map(|(mut rules, defaults, third, (fourth, link))| {
        for (place, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("r{place}");
        }
        let mut interfaces = vec![
            interface("eth0", "lan"),
            interface("eth1", "wan"),
            Interface { link, ..interface("eth2", third) },
        ];
        if fourth {
            interfaces.insert(0, interface("eth3", "lan"));
        }
        let dynamic_sets = vec![DynamicSet::new("a"), DynamicSet::new("b")];
        Policy { mode: Mode::Stateless, interfaces, dynamic_sets, rules, defaults, ..Policy::default() }
    })
}

/// A policy, and one that has been changed a little.
fn pair() -> impl Strategy<Value = (Policy, Policy)> {
    let change = (0..5u8, any::<proptest::sample::Index>(), rule(), any::<bool>());
    (policy(), vec(change, 0..3), policy(), proptest::bool::weighted(0.2)).prop_map(
        |(old, changes, other, unlike)| {
            if unlike {
                return (old, other);
            }
            let mut new = old.clone();
            for (kind, index, rule, flag) in changes {
                let many = new.rules.len();
                match kind {
                    0 if many > 0 => drop(new.rules.remove(index.index(many))),
                    1 if many > 1 => new.rules.swap(0, index.index(many)),
                    2 if many > 0 => new.rules[index.index(many)] = rule,
                    3 if flag => new.defaults.clear(),
                    3 => new.interfaces.retain(|one| one.name != "eth3"),
                    _ => new.rules.insert(index.index(many + 1), rule),
                }
            }
            (old, new)
        },
    )
}

/// One header of each kind that rules with these values can tell apart, between interfaces of these names, which are as
/// `policy` has them.
fn kinds(names: &[String], numbering: By<'_>, policy: &Policy) -> Vec<Header> {
    let classes = |ingress: usize| match (numbering.macs, policy.interface(&names[ingress]).unwrap().link) {
        (Some(macs), LinkKind::Ethernet) => 1..=macs.highest(),
        _ => NO_MAC..=NO_MAC,
    };
    let bits = |text: &str| match text.parse().unwrap() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let v4: Vec<u128> =
        V4.iter().map(|text| bits(text)).chain([bits("10.1.0.10"), bits("9.0.0.0")]).collect();
    let v6: Vec<u128> = ["2001:db8::7", "2001:db8::8", "2001:db9::"].iter().map(|text| bits(text)).collect();
    let shapes = [(6, 0x02), (6, 0x10), (17, 0), (1, 0), (47, 0)];
    let mut headers = Vec::new();
    for (family, addresses) in [(Family::V4, &v4), (Family::V6, &v6)] {
        for source in addresses {
            for destination in addresses {
                for (protocol, tcp_flags) in shapes {
                    // A message of ICMP has a type where ports are; the other version's ICMP has nothing.
                    let ports: &[u16] = match (protocol, family) {
                        (6 | 17, _) => &[1, 60, 80, 300, 443, 444],
                        (1, Family::V4) => &[0x0800],
                        _ => &[0],
                    };
                    for dport in ports {
                        for ingress in 0..names.len() as u16 {
                            for egress in (0..names.len() as u16).chain([LOCAL.0]) {
                                headers.extend(classes(ingress.into()).map(|source_mac| Header {
                                    source: *source,
                                    destination: *destination,
                                    dport: *dport,
                                    protocol,
                                    tcp_flags,
                                    family,
                                    ingress,
                                    egress,
                                    source_mac,
                                    ..Header::default()
                                }));
                            }
                        }
                    }
                }
            }
        }
    }
    with_sets(headers, numbering)
}

/// The headers with all memberships in sets that are asked for, past all rates that are conditions or not, and with a translated destination
/// or without.
fn with_sets(headers: Vec<Header>, numbering: By<'_>) -> Vec<Header> {
    let many = numbering.sets.list.len() + numbering.sets.rates.len();
    let each = |header: &Header| {
        let header = *header;
        (0..1 << many).flat_map(move |sets| [0, DNAT].map(|dnat| Header { sets: sets | dnat, ..header }))
    };
    headers.iter().flat_map(each).collect()
}

/// The header as a policy's tables have it: zones, and interfaces and MAC addresses by its own numbers.
fn seen(header: &Header, names: &[String], numbering: By<'_>, tables: &Tables) -> Header {
    let range = numbering.macs.and_then(|macs| macs.range(header.source_mac));
    let class = |range: MacRange| Some(tables.source_macs.as_ref()?.class(range.first.to_bits()));
    let source_mac = range.and_then(class).unwrap_or(NO_MAC);
    let mut sets = header.sets & DNAT;
    for (number, one) in (0..).zip(&numbering.sets.list).filter(|(number, _)| header.sets >> number & 1 != 0)
    {
        let _: u32 = number;
        sets |= tables
            .sets
            .iter()
            .position(|set| set.name == one.set)
            .map_or(0, |set| tables.set_questions.bit(set as u16, one.side));
    }
    for rule in tables.filter.rules.iter().filter(|rule| rule.rate_bit != 0) {
        let place = numbering.sets.rates.iter().position(|name| *name == rule.name);
        let place = place.map(|place| numbering.sets.list.len() + place);
        if place.is_some_and(|place| header.sets >> place & 1 != 0) {
            sets |= rule.rate_bit;
        }
    }
    let own = |number: u16| {
        names.get(usize::from(number)).and_then(|name| tables.interface_named(name)).unwrap_or(LOCAL)
    };
    let (ingress, egress) = (own(header.ingress), own(header.egress));
    let zone = |id| tables.interface(id).map_or(SELF, |interface| interface.zone);
    Header {
        ingress: ingress.0,
        egress: egress.0,
        from: zone(ingress),
        to: zone(egress),
        source_mac,
        sets,
        ..*header
    }
}

/// Returns the decision of the tables on a header.
fn judged(header: &Header, names: &[String], numbering: By<'_>, tables: &Tables) -> Judgement {
    let header = seen(header, names, numbering, tables);
    match tables.filter.find(&header, &mut tally::NoTally).map(PatternRule::place) {
        Some(place) => {
            let rule = &tables.filter.rules[place as usize];
            let fate = Fate {
                action: rule.action,
                log: rule.log,
                rate: rule.rate,
                connections: rule.connections,
                timeout: rule.timeout,
                syn: rule.syn,
                helper: rule.helper,
                adds: None,
            };
            Judgement { by: Decider::Rule(place), fate }
        }
        None => {
            let action = tables.filter.default_action(header.from, header.to);
            Judgement { by: Decider::Default, fate: Fate::by_default(action) }
        }
    }
}

/// An address that every Ethernet interface may hear.
fn places(names: &[String], numbering: By<'_>, policy: &Policy) -> Places {
    let sender = |name: &String| match (numbering.macs, policy.interface(name).unwrap().link) {
        (Some(macs), LinkKind::Ethernet) => macs.class(Mac([2, 0, 0, 0, 0, 9]).to_bits()),
        _ => NO_MAC,
    };
    Places { senders: names.iter().map(sender).collect(), ..Places::default() }
}

fn names_of(policy: &Policy) -> Vec<String> {
    policy.interfaces.iter().map(|interface| interface.name.clone()).collect()
}

fn fates(policy: &Policy, numbering: By<'_>, headers: &[Header]) -> Vec<Fate> {
    let names = names_of(policy);
    let tables = Tables::compile(policy, 1).unwrap();
    headers.iter().map(|header| judged(header, &names, numbering, &tables).fate).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A header's fate differs exactly where one region says so, and no other.
    #[test]
    fn what_differs_is_in_one_region((old, new) in pair()) {
        let comparison = compare(&old, &new, Effort::QUICK).unwrap();
        prop_assert_eq!(comparison.outcome, Outcome::Complete);
        let names = &comparison.interfaces;
        let (before, after) = (Tables::compile(&old, 1).unwrap(), Tables::compile(&new, 1).unwrap());
        let numbering = By { macs: comparison.macs.as_ref(), sets: &comparison.sets };
        for header in kinds(names, numbering, &new) {
            let (was, is) = (judged(&header, names, numbering, &before), judged(&header, names, numbering, &after));
            let holding: Vec<&Difference> =
                comparison.differences.iter().filter(|one| one.region.contains(&header)).collect();
            if was.fate == is.fate {
                prop_assert!(holding.is_empty(), "{header:?} is as it was, and in {holding:?}");
            } else {
                prop_assert_eq!(holding.len(), 1, "{:?} was {:?}, is {:?}", header, was, is);
                prop_assert_eq!((holding[0].old, holding[0].new), (was, is));
            }
        }
        let places = places(names, numbering, &new);
        for difference in &comparison.differences {
            let examples = difference.region.examples(&places);
            prop_assert!(!examples.is_empty(), "{difference:?}");
            for header in examples {
                prop_assert!(difference.region.contains(&header), "{header:?} of {difference:?}");
                prop_assert_eq!(judged(&header, names, numbering, &before), difference.old);
                prop_assert_eq!(judged(&header, names, numbering, &after), difference.new);
            }
        }
    }

    #[test]
    fn rules_without_effect_are_those_that_no_header_misses(policy in policy()) {
        let found = findings(&policy, Look::EffectAndOverlaps, Effort::QUICK).unwrap();
        prop_assert!(found.open.is_empty(), "{:?}", found.open);
        let names = names_of(&policy);
        let numbering = By { macs: found.macs.as_ref(), sets: &found.sets };
        let headers = kinds(&names, numbering, &policy);
        let tables = Tables::compile(&policy, 1).unwrap();
        let deciding: BTreeSet<Decider> = headers.iter().map(|header| judged(header, &names, numbering, &tables).by).collect();
        let hidden: Vec<u32> =
            (0..policy.rules.len() as u32).filter(|rule| !deciding.contains(&Decider::Rule(*rule))).collect();
        let told: Vec<u32> = found
            .list
            .iter()
            .filter(|one| matches!(one, Finding::Hidden { .. } | Finding::Impossible { .. }))
            .map(Finding::rule)
            .collect();
        prop_assert_eq!(&told, &hidden);

        // From the last one up: what can go without any header noticing.
        let mut rest = policy.clone();
        rest.rules.retain(|rule| !hidden.iter().any(|place| policy.rules[*place as usize].name == rule.name));
        let wanted = fates(&rest, numbering, &headers);
        let mut redundant = Vec::new();
        for place in (0..rest.rules.len()).rev() {
            let mut without = rest.clone();
            let rule = without.rules.remove(place);
            if fates(&without, numbering, &headers) == wanted {
                redundant.push(policy.rules.iter().position(|one| one.name == rule.name).unwrap() as u32);
                rest = without;
            }
        }
        redundant.sort_unstable();
        let told: Vec<u32> = found
            .list
            .iter()
            .filter(|one| matches!(one, Finding::Redundant { .. }))
            .map(Finding::rule)
            .collect();
        prop_assert_eq!(&told, &redundant);

        let places = places(&names, numbering, &policy);
        for finding in &found.list {
            match finding {
                Finding::Hidden { rule, by, packets } => {
                    let alone = |places: &[u32]| {
                        let rules = places.iter().map(|place| policy.rules[*place as usize].clone()).collect();
                        Tables::compile(&Policy { rules, ..policy.clone() }, 1).unwrap()
                    };
                    let (one, others) = (alone(&[*rule]), alone(by));
                    for header in &headers {
                        let asked = judged(header, &names, numbering, &one).by != Decider::Default;
                        prop_assert!(!asked || judged(header, &names, numbering, &others).by != Decider::Default);
                    }
                    for header in packets.examples(&places) {
                        prop_assert!(judged(&header, &names, numbering, &one).by != Decider::Default);
                    }
                }
                Finding::Redundant { rule, packets, .. } => {
                    for header in packets.examples(&places) {
                        prop_assert_eq!(judged(&header, &names, numbering, &tables).by, Decider::Rule(*rule));
                    }
                }
                Finding::Overlap { first, second, packets } => {
                    let examples = packets.examples(&places);
                    prop_assert!(!examples.is_empty());
                    for header in examples {
                        prop_assert_eq!(judged(&header, &names, numbering, &tables).by, Decider::Rule(*first));
                        let mut swapped = policy.clone();
                        swapped.rules.truncate(*second as usize + 1);
                        swapped.rules.drain(..*second as usize);
                        let tables = Tables::compile(&swapped, 1).unwrap();
                        prop_assert_eq!(judged(&header, &names, numbering, &tables).by, Decider::Rule(0));
                    }
                }
                Finding::Impossible { .. } => {}
            }
        }
    }

    /// Whatever there is to find, the work ends, and what is told is so.
    #[test]
    fn a_little_effort_finds_some_of_it(policy in policy(), effort in 0..3000u64) {
        let all = findings(&policy, Look::EffectAndOverlaps, Effort::QUICK).unwrap();
        let some = findings(&policy, Look::EffectAndOverlaps, Effort::of(effort)).unwrap();
        let hidden = |findings: &Findings| -> BTreeSet<u32> {
            let is_hidden = |one: &&Finding| matches!(one, Finding::Hidden { .. });
            findings.list.iter().filter(is_hidden).map(Finding::rule).collect()
        };
        prop_assert!(hidden(&some).is_subset(&hidden(&all)));
        let missing = hidden(&all).difference(&hidden(&some)).all(|rule| some.open.contains(rule));
        prop_assert!(missing, "{some:?}");
    }

    /// Differences found with little effort are true, and the outcome says that there may be more.
    #[test]
    fn a_little_effort_finds_some_differences((old, new) in pair(), effort in 0..30_000u64) {
        let all = compare(&old, &new, Effort::QUICK).unwrap();
        let some = compare(&old, &new, Effort::of(effort)).unwrap();
        let places = places(&all.interfaces, By { macs: all.macs.as_ref(), sets: &all.sets }, &new);
        for difference in &some.differences {
            for header in difference.region.examples(&places) {
                let holding = all.differences.iter().find(|one| one.region.contains(&header));
                let holding = holding.map(|one| (one.old, one.new));
                prop_assert_eq!(holding, Some((difference.old, difference.new)));
            }
        }
        if some.outcome == Outcome::Complete {
            prop_assert_eq!(&some.differences, &all.differences);
        }
    }
}

/// Some of the effort is left for reporting, where all goes into the search.
#[test]
fn what_was_found_is_told_when_the_effort_ends() {
    let of_ports = |ports: std::ops::Range<u16>| {
        let rule = |port: u16| Rule {
            name: format!("r{port}"),
            conditions: Conditions {
                protocols: vec![Protocol::TCP],
                dports: vec![PortRange { first: port, last: port }],
                ..Conditions::default()
            },
            action: Action::Accept,
            ..Rule::default()
        };
        let interfaces = vec![interface("eth0", "lan"), interface("eth1", "wan")];
        Policy { mode: Mode::Stateless, interfaces, rules: ports.map(rule).collect(), ..Policy::default() }
    };
    let comparison = compare(&of_ports(1..400), &of_ports(1000..1400), Effort::of(200_000)).unwrap();
    assert_eq!(comparison.outcome, Outcome::Stopped);
    assert!(comparison.differences.len() > 10, "{} found", comparison.differences.len());
    // Once the stop is set, no effort is left.
    let (old, new) = (of_ports(1..400), of_ports(1000..1400));
    let stopped = compare(&old, &new, Effort::THOROUGH.until(&AtomicBool::new(true))).unwrap();
    assert_eq!((stopped.outcome, stopped.differences.len()), (Outcome::Stopped, 0));
    let stopped =
        findings(&old, Look::EffectAndOverlaps, Effort::QUICK.until(&AtomicBool::new(true))).unwrap();
    assert_eq!((stopped.list.len(), stopped.open.len()), (0, 399));
    let done = compare(&old, &new, Effort::QUICK.until(&AtomicBool::new(false))).unwrap();
    assert_eq!(done.outcome, Outcome::Complete);
}
