use super::check::server_check;
use super::class::{class, meter};
use super::dynamic_set::dynamic_set;
use super::gateway::gateway;
use super::interface::{cross_connect, interface};
use super::limit::{fragments, limits, timeouts};
use super::nat::{keys_of, kinds};
use super::policy::search;
use super::port_mapping::port_mapping;
use super::queue::queue;
use super::route::{
    NEW_NEIGHBOUR, multicast_route, neighbour, new_multicast_route, new_route, next_hop, route,
};
use super::rule::rule;
use super::shape::shape;
use super::tunnel::{new_sa, new_tunnel, sa, tunnel};
use super::wan::{check, policy_route, wan};
use super::{names, policy};
use crate::lines::Lines;
use crate::model::{
    Class, CrossConnect, DynamicSet, FragmentLimits, Gateway, Interface, Limits, Meter, NextHop, Policy,
    PolicyRoute, PortMapping, Queue, Rule, Search, ServerCheck, Shape, Timeouts, Wan, WanCheck,
};
use crate::parse::tests::WHOLE;
use crate::word;

/// The keys of each table, as they are read and printed.
fn all() -> Vec<&'static str> {
    let mut all = names(|keys| policy(keys, &mut Policy::default(), &mut Lines::default()));
    all.extend(names(|keys| search(keys, &mut Search::default())));
    all.extend(names(|keys| interface(keys, &mut Interface::new("", ""))));
    all.extend(names(|keys| dynamic_set(keys, &mut DynamicSet::new(""))));
    all.extend(["url", "refresh"]);
    all.extend(names(|keys| tunnel(keys, &mut new_tunnel())));
    all.extend(names(|keys| {
        sa(keys, &mut new_sa());
    }));
    all.extend(names(|keys| {
        route(keys, &mut new_route());
    }));
    all.extend(names(|keys| next_hop(keys, &mut NextHop { via: None, interface: None, weight: 1 })));
    all.extend(names(|keys| {
        wan(keys, &mut Wan::new("", ""));
    }));
    all.extend(names(|keys| check(keys, &mut WanCheck::default())));
    all.extend(names(|keys| server_check(keys, &mut ServerCheck::default())));
    all.extend(names(|keys| {
        policy_route(keys, &mut PolicyRoute::default());
    }));
    all.extend(names(|keys| {
        multicast_route(keys, &mut new_multicast_route());
    }));
    all.extend(names(|keys| {
        neighbour(keys, &mut NEW_NEIGHBOUR.clone());
    }));
    all.extend(names(|keys| {
        cross_connect(keys, &mut CrossConnect::default());
    }));
    all.extend(names(|keys| port_mapping(keys, &mut PortMapping::default())));
    all.extend(kinds().into_iter().flat_map(|(_, kind)| keys_of(kind)));
    all.extend(names(|keys| {
        rule(keys, &mut Rule::default());
    }));
    all.extend(names(|keys| {
        class(keys, &mut Class::default());
    }));
    all.extend(names(|keys| {
        meter(keys, &mut Meter::new(""));
    }));
    all.extend(names(|keys| {
        queue(keys, &mut Queue::new(""));
    }));
    all.extend(names(|keys| shape(keys, &mut Shape::new(""))));
    all.extend(names(|keys| limits(keys, &mut Limits::default())));
    all.extend(names(|keys| fragments(keys, &mut FragmentLimits::default())));
    all.extend(names(|keys| timeouts(keys, &mut Timeouts::default())));
    all.extend(names(|keys| gateway(keys, &mut Gateway::default())));
    all
}

/// The keys that `text` does not have in any of the forms that `forms` gives for one.
fn missing<const N: usize>(text: &str, forms: impl Fn(&str) -> [String; N]) -> Vec<&'static str> {
    all().into_iter().filter(|key| !forms(key).iter().any(|form| text.contains(form))).collect()
}

#[test]
fn the_whole_policy_has_every_key() {
    let forms =
        |key: &str| [format!("\n{key} = "), format!(" {key} = "), format!("[{key}"), format!(".{key}]")];
    assert_eq!(missing(&format!("\n{WHOLE}"), forms), [""; 0]);
}

#[test]
fn the_manual_has_every_key_and_word() {
    let page = include_str!("../../../docs/policy.md");
    let forms = |key: &str| [format!("`{key}`"), format!("{key} = "), format!("[{key}"), format!(".{key}]")];
    assert_eq!(missing(page, forms), [""; 0]);
    let words = [
        words(word::MODE),
        words(word::SEARCH_ALGORITHM),
        words(word::LINK),
        words(word::DIRECTION),
        words(word::UDP),
        words(word::FRAGMENT_WHEN),
        words(word::PPP_ROLE),
        words(word::AUTHENTICATION),
        words(word::SOURCE_CHECK),
        words(word::NOWHERE),
        words(word::FAMILY),
        words(word::STATE),
        words(word::ACTION),
        words(word::SYN),
        words(word::WHEN_FULL),
        words(word::ON_FAILURE),
        words(word::WAN_STATE),
        words(word::WHEN_DOWN),
        words(word::TCP_WINDOW),
        words(word::PICKUP),
        words(word::CHECKSUM),
        words(word::METER_KIND),
        words(word::COLOUR_MODE),
        words(word::NO_INSTANCE),
        words(word::TEMPLATE),
        words(word::SCHEDULER),
        words(word::ISOLATION),
        words(word::DROPPER),
        words(word::FAIRNESS),
    ];
    for word in words.concat() {
        assert!(page.contains(&format!("`{word}`")) || page.contains(&format!("\"{word}\"")), "{word}");
    }
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    assert_eq!(crate::check(example, "docs/policy.md").diagnostics, []);
    for section in ["[[queue]]", "[shape."] {
        // Queues name the classes of the example before.
        let text = [example, example_of(page, "[[class]]"), example_of(page, section)].concat();
        assert_eq!(crate::check(&text, section).diagnostics, []);
    }
}

/// The example of a page that begins with `start`.
fn example_of<'a>(page: &'a str, start: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("```toml\n{start}")).unwrap();
    let length = from.find("```").unwrap();
    let end = page.len() - from.len() + length;
    &page[page.len() - from.len() - start.len()..end]
}

fn words<T>(words: word::Words<T>) -> Vec<&'static str> {
    words.iter().map(|(word, _)| *word).collect()
}
