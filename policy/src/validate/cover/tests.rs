use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, proptest};
use proptest::sample::{select, subsequence};

use super::{Shadow, shadows};
use crate::model::{AddressItem, Addresses, Conditions, PortRange, Protocol, Rule};
use crate::validate::shape::Shape;
use crate::validate::space::Spaces;
use crate::value::address;

/// Rules of few values, so that many cover one another.
fn rule() -> impl Strategy<Value = Rule> {
    let addresses = || {
        let some = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.0/24",
            "10.1.2.3",
            "2001:db8::/32",
            "2001:db8::1-2001:db8::5",
        ];
        subsequence(some.to_vec(), 0..3).prop_map(|some| Addresses {
            items: some.into_iter().map(|text| AddressItem::Range(address::range(text).unwrap())).collect(),
            except: false,
        })
    };
    let zones = || subsequence(vec!["lan".to_owned(), "wan".to_owned()], 0..=1);
    let ports = select(vec![vec![], vec![(80, 80)], vec![(1, 100)], vec![(1, 50), (51, 100)]]);
    let protocols = select(vec![vec![], vec![Protocol::TCP], vec![Protocol::TCP, Protocol::UDP]]);
    (addresses(), addresses(), zones(), ports, protocols).prop_map(
        |(source, destination, from, ports, protocols)| {
            let dports = ports.into_iter().map(|(first, last)| PortRange { first, last }).collect();
            Rule {
                conditions: Conditions {
                    source,
                    destination,
                    from,
                    dports,
                    protocols,
                    ..Conditions::default()
                },
                ..Rule::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_index_finds_what_comparing_all_pairs_finds(rules in vec(rule(), 0..24)) {
        let spaces = Spaces::of(&[], &[]);
        let shapes: Vec<Option<Shape<'_>>> = rules.iter().map(|rule| Some(Shape::of(rule, &spaces))).collect();
        let matches = |index: usize| shapes[index].as_ref().unwrap().families().next().is_some();
        let covers = |by: usize, hidden: usize| {
            shapes[by].as_ref().unwrap().covers(shapes[hidden].as_ref().unwrap())
        };
        let naive: Vec<Shadow> = (0..rules.len())
            .filter(|hidden| matches(*hidden))
            .filter_map(|hidden| {
                (0..hidden).find(|by| matches(*by) && covers(*by, hidden)).map(|by| Shadow { hidden, by })
            })
            .collect();
        prop_assert_eq!(shadows(&shapes), naive);
    }
}

/// A packet, with the fields that the rules above match.
#[derive(Clone, Copy, Debug)]
struct Probe {
    source: IpAddr,
    destination: IpAddr,
    from: &'static str,
    protocol: Protocol,
    dport: u16,
}

/// True if the rule matches, by a literal reading.
fn matches(rule: &Rule, probe: &Probe) -> bool {
    let address = |addresses: &Addresses, address: IpAddr| {
        addresses.items.is_empty()
            || addresses.items.iter().any(|item| match item {
                AddressItem::Range(range) => range.contains(address),
                AddressItem::Set(_) => false,
            })
    };
    address(&rule.conditions.source, probe.source)
        && address(&rule.conditions.destination, probe.destination)
        && (rule.conditions.from.is_empty() || rule.conditions.from.iter().any(|zone| zone == probe.from))
        && (rule.conditions.protocols.is_empty() || rule.conditions.protocols.contains(&probe.protocol))
        && (rule.conditions.dports.is_empty()
            || rule.conditions.dports.iter().any(|range| range.contains(probe.dport)))
}

fn probes() -> Vec<Probe> {
    let addresses =
        ["10.1.2.3", "10.1.2.4", "10.1.3.1", "10.2.0.0", "11.0.0.0", "2001:db8::1", "2001:db8::6", "::1"];
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let mut probes = Vec::new();
    for source in &addresses {
        for destination in addresses.iter().filter(|destination| destination.is_ipv4() == source.is_ipv4()) {
            for from in ["lan", "wan"] {
                for protocol in [Protocol::TCP, Protocol::UDP, Protocol::ICMP] {
                    for dport in [1, 50, 51, 80, 100, 101] {
                        let (source, destination) = (*source, *destination);
                        probes.push(Probe { source, destination, from, protocol, dport });
                    }
                }
            }
        }
    }
    probes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_packet_tells_a_hidden_rule_from_the_one_that_hides_it(rules in vec(rule(), 0..24)) {
        let spaces = Spaces::of(&[], &[]);
        let shapes: Vec<Option<Shape<'_>>> = rules.iter().map(|rule| Some(Shape::of(rule, &spaces))).collect();
        let probes = probes();
        for Shadow { hidden, by } in shadows(&shapes) {
            prop_assert!(by < hidden);
            for probe in &probes {
                prop_assert!(
                    !matches(&rules[hidden], probe) || matches(&rules[by], probe),
                    "{:?} tells {:?} from {:?}", probe, rules[hidden], rules[by]
                );
            }
        }
    }
}
