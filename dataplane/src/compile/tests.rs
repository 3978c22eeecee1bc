use lookup::classify::{Algorithm, Header, Made};
use policy::model::SearchAlgorithm;
use tally::NoTally;
use wire::{Family, PortId};

use super::*;
use crate::tables::Target;

/// A policy whose rules are for these destination ports.
fn of_ports(ports: impl IntoIterator<Item = u16>) -> Policy {
    let mut text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/24\"]\n".to_owned();
    for (place, port) in ports.into_iter().enumerate() {
        text += &format!(
            "[[rule]]\nname = \"r{place}\"\nprotocol = \"tcp\"\ndport = {port}\naction = \"accept\"\n"
        );
    }
    let parsed = policy::parse(&text, "policy");
    parsed.policy.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

/// The same, to be searched by hash tables.
fn by_tuple(mut policy: Policy) -> Policy {
    policy.search.algorithm = SearchAlgorithm::Tuple;
    policy
}

/// Compiles the next tables, and makes sure that they find what tables find that are compiled anew.
fn finds_as_anew(policy: &Policy, old: &Tables) -> Tables {
    let tables = Tables::compile_after(policy, old).unwrap();
    assert!(tables.follows(old));
    let anew = Tables::compile(policy, 1).unwrap();
    for dport in (0..2100).chain([7000]) {
        let header = Header { dport, protocol: 6, family: Family::V4, ..Header::default() };
        let found = tables.filter.search.classifier.classify(&header);
        assert_eq!(found, anew.filter.search.classifier.classify(&header), "{dport}");
    }
    tables
}

#[test]
fn the_next_tables_search_the_rules_of_the_next_policy() {
    let same: fn(Policy) -> Policy = |policy| policy;
    for (by, algorithm) in [(by_tuple as fn(Policy) -> Policy, "tuple"), (same, "tree")] {
        let old = Tables::compile(&by(of_ports(1..300)), 1).unwrap();
        let linear = Tables::compile(&of_ports(1..5), 1).unwrap();
        let few = by(of_ports((1..100).chain([7000, 50]).chain(120..300)));
        let many = by(of_ports(1000..2000));
        for (next, old) in [(&few, &old), (&many, &old), (&few, &linear)] {
            assert_eq!(finds_as_anew(next, old).filter.search.algorithm.name, algorithm);
        }
        let next = Tables::compile_after(&few, &old).unwrap();
        let search = &next.filter.search;
        assert!(search.classifier.to_updatable(&search.task.patterns).is_some(), "it can still be changed");
    }
}

#[test]
fn a_reload_that_changes_few_rules_changes_the_search() {
    let old = Tables::compile(&of_ports(1..2000), 1).unwrap();
    let made = |tables: &Tables| (tables.filter.search.algorithm.name, tables.filter.search.made);
    assert_eq!(made(&old), ("tree", Made::Built));
    let mut next = finds_as_anew(&of_ports((1..500).chain([7000]).chain(501..2000)), &old);
    assert_eq!(made(&next), ("tree", Made::Revised));
    for round in 0..20 {
        next = finds_as_anew(&of_ports((1..500 + round).chain([7000]).chain(510 + round..2000)), &next);
        assert_eq!(made(&next), ("tree", Made::Revised));
    }
    let other = finds_as_anew(&of_ports(100..1500), &next);
    assert_eq!(made(&other), ("tree", Made::Built), "too many come and go");
    // Few rules are scanned, whatever there was.
    assert_eq!(made(&finds_as_anew(&of_ports(1..5), &other)), ("linear", Made::Built));
    let tuple = finds_as_anew(&by_tuple(of_ports(100..1501)), &other);
    assert_eq!(made(&tuple), ("tuple", Made::Built), "by another algorithm");
}

/// Routes come and go often; what rules there are does not change by that.
#[test]
fn rules_that_stay_are_searched_as_before() {
    let policy = of_ports(1..300);
    let old = Tables::compile(&policy, 1).unwrap();
    let is_shared = |next: &Policy| {
        let next = Tables::compile_after(next, &old).unwrap();
        Arc::ptr_eq(&next.filter.search, &old.filter.search)
    };
    let mut other_routes = policy.clone();
    other_routes.interfaces[0].addresses.push("10.1.0.1/24".parse().unwrap());
    assert!(is_shared(&other_routes));
    let mut narrower = policy.clone();
    narrower.search.memory = Some(Bytes(1 << 20));
    assert!(!is_shared(&narrower));
    assert!(!is_shared(&by_tuple(policy)));
    assert!(!is_shared(&of_ports(1..301)));
}

#[test]
fn the_fastest_is_chosen_and_what_takes_too_much_gives_way() {
    let of = |policy: Policy| Tables::compile(&policy, 1).unwrap().filter;
    assert_eq!(of(of_ports(1..5)).search.algorithm.name, "linear");
    assert_eq!(of(of_ports(1..300)).search.algorithm.name, "tree");
    let mut narrow = of_ports(1..20_000);
    narrow.search.memory = Some(Bytes(1 << 20));
    let narrow = of(narrow).search;
    let gave_way: Vec<&str> = narrow.gave_way.iter().map(|(algorithm, _)| algorithm.name).collect();
    assert_eq!((narrow.algorithm.name, gave_way), ("linear", vec!["tree", "tuple"]));
}

/// A policy can name each classification algorithm.
#[test]
fn every_algorithm_can_be_named() {
    for algorithm in lookup::classify::ALGORITHMS {
        let text = format!("[classifier]\nalgorithm = \"{}\"\n", algorithm.name);
        let parsed = policy::parse(&text, "policy");
        let named = parsed.policy.map(|policy| policy.search.algorithm.name());
        assert_eq!(named, Some(algorithm.name), "{:?}", parsed.diagnostics);
    }
    for (former, today) in lookup::classify::RENAMED {
        let parsed = policy::parse(&format!("[classifier]\nalgorithm = \"{former}\"\n"), "policy");
        assert_eq!(parsed.policy.map(|policy| policy.search.algorithm.name()), Some(*today));
        assert_eq!(Algorithm::named(former).map(|algorithm| algorithm.name), Some(*today));
    }
    let known = lookup::classify::ALGORITHMS.len();
    assert_eq!(SearchAlgorithm::ALL.len(), known + 1, "and `auto`");
}

/// Exits let a strict source check pass nothing that the routers behind them would not.
#[test]
fn an_exit_is_the_only_interface_that_a_target_leads_by() {
    let policy = policy::parse(
        r#"
        [interface.lan]
        zone = "lan"
        addresses = ["10.0.0.1/24", "2001:db8:1::1/64"]
        [interface.a]
        zone = "wan"
        addresses = ["203.0.113.2/24"]
        [interface.b]
        zone = "wan"
        addresses = ["198.51.100.2/24"]
        [[route]]
        to = "0.0.0.0/0"
        via = ["203.0.113.1", "198.51.100.1"]
        [[route]]
        to = "192.0.2.0/24"
        via = ["203.0.113.1", "203.0.113.9"]
        [[route]]
        to = "172.16.0.0/12"
        via = "10.0.0.2"
        [[route]]
        to = "100.64.0.0/10"
        kind = "blackhole"
        "#,
        "policy",
    );
    let tables =
        Tables::compile(&policy.policy.unwrap_or_else(|| panic!("{:?}", policy.diagnostics)), 1).unwrap();
    let interfaces = (0..tables.interfaces.len() as u16).map(PortId);
    let mut exits = 0;
    for (target, exit) in tables.targets.iter().zip(&tables.exits) {
        let leads: Vec<PortId> = interfaces.clone().filter(|own| tables.leads_by(target, *own)).collect();
        // To everybody on a link is nobody's source.
        let is_one = leads.len() == 1 && !matches!(target, Target::Broadcast(_));
        assert_eq!(*exit, is_one.then(|| leads[0]), "{target:?}");
        exits += usize::from(is_one);
    }
    // Three links, and the routers of two routes.
    assert_eq!((exits, tables.exits.len()), (5, tables.targets.len()));
    let only = |interface, address: &str| {
        let address = address.parse::<IpAddr>().unwrap().into();
        tables.leaves_only_by(PortId(interface), address, &mut NoTally)
    };
    assert!(
        only(0, "10.0.0.77") && only(0, "172.20.0.1") && only(0, "2001:db8:1::7") && only(1, "192.0.2.9")
    );
    // By another interface, by two, to the gateway itself, to everybody, and nowhere.
    for (interface, address) in
        [(1, "10.0.0.77"), (1, "8.8.8.8"), (0, "10.0.0.1"), (0, "10.0.0.255"), (0, "100.64.0.1")]
    {
        assert!(!only(interface, address), "{address}");
    }
}
