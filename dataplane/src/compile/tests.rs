use lookup::classify::{Algorithm, Header};
use policy::model::SearchAlgorithm;
use wire::Family;

use super::*;

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

/// The same, to be searched by an algorithm that can be changed in place.
fn by_tuple(mut policy: Policy) -> Policy {
    policy.search.algorithm = SearchAlgorithm::Tuple;
    policy
}

#[test]
fn the_next_tables_search_the_rules_of_the_next_policy() {
    let old = Tables::compile(&by_tuple(of_ports(1..300)), 1).unwrap();
    let linear = Tables::compile(&of_ports(1..300), 1).unwrap();
    let few = by_tuple(of_ports((1..100).chain([7000, 50]).chain(120..300)));
    let many = by_tuple(of_ports(1000..2000));
    for (next, old) in [(&few, &old), (&many, &old), (&few, &linear)] {
        let tables = Tables::compile_after(next, old).unwrap();
        assert!(tables.follows(old));
        let anew = Tables::compile(next, 1).unwrap();
        for dport in (0..2100).chain([7000]) {
            let header = Header { dport, protocol: 6, family: Family::V4, ..Header::default() };
            let found = tables.filter.search.classifier.classify(&header);
            assert_eq!(found, anew.filter.search.classifier.classify(&header), "{dport}");
        }
        assert_eq!(tables.filter.search.algorithm.name, "tuple");
    }
    let next = Tables::compile_after(&few, &old).unwrap();
    assert!(next.filter.search.classifier.to_updatable().is_some(), "it can still be changed");
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
