//! A classifier of one's own beside those of the crate, on a filter set like ClassBench's: the rules it finds are compared with a linear
//! scan's, then each search is timed. `cargo run --release -p wirerate-lookup --example beside`.

use std::collections::HashMap;
use std::time::Instant;

use lookup::classify::generate::{Like, Locality, rules, trace};
use lookup::classify::{ALGORITHMS, Bounds, Classifier, Header, Pattern, Position, TooLarge};
use tally::{NoTally, Region, Tally};

/// Patterns in buckets by the one destination port that they admit; those that admit several are in all buckets.
///
/// Each bucket is in the order of the patterns, so the first match in it is the first of all.
struct ByPort {
    buckets: HashMap<u16, Vec<(Position, Pattern)>>,
    /// Patterns for ports without a bucket.
    others: Vec<(Position, Pattern)>,
}

impl ByPort {
    fn new(patterns: &[Pattern]) -> ByPort {
        let port = |pattern: &Pattern| match pattern.dports.as_slice() {
            [span] if span.first == span.last => Some(span.first),
            _ => None,
        };
        let placed = || (0..).zip(patterns);
        let take = |wanted: Option<u16>| -> Vec<(Position, Pattern)> {
            let is_here = |pattern: &Pattern| port(pattern).is_none() || port(pattern) == wanted;
            placed()
                .filter(|(_, pattern)| is_here(pattern))
                .map(|(at, pattern)| (at, pattern.clone()))
                .collect()
        };
        let ports = patterns.iter().filter_map(port);
        ByPort { buckets: ports.map(|port| (port, take(Some(port)))).collect(), others: take(None) }
    }

    fn bucket(&self, header: &Header) -> &[(Position, Pattern)] {
        self.buckets.get(&header.dport).unwrap_or(&self.others)
    }

    fn lists(&self) -> impl Iterator<Item = &Vec<(Position, Pattern)>> {
        self.buckets.values().chain([&self.others])
    }
}

impl Classifier for ByPort {
    fn classify(&self, header: &Header) -> Option<Position> {
        self.classify_tallied(header, &mut NoTally)
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        // A hash of the port and the bucket's place, 12; for each pattern five fields, each with two bounds, 20.
        tally.hash(2);
        tally.instructions(12);
        self.bucket(header).iter().find_map(|(at, pattern)| {
            tally.instructions(20);
            tally.read(Region::RuleTable, *at as usize * 32, 32);
            pattern.matches(header).then_some(*at)
        })
    }

    fn memory_bytes(&self) -> usize {
        self.lists().flatten().map(|(_, pattern)| size_of::<Position>() + pattern.bytes()).sum()
    }

    fn region_bytes(&self) -> u64 {
        // 32 bytes a pattern on a chip, as often as it is there.
        self.lists().map(|list| list.len() as u64 * 32).sum()
    }

    fn program(&self) -> u32 {
        40
    }
}

fn main() -> Result<(), TooLarge> {
    let patterns: Vec<Pattern> = rules(Like::Acl, 300, 1).iter().map(|rule| rule.pattern()).collect();
    let headers: Vec<Header> =
        trace(&patterns, 2_000, Locality::LOW, 2).iter().map(|aimed| aimed.header).collect();

    let mut beside: Vec<(&str, Box<dyn Classifier>)> = vec![("by port", Box::new(ByPort::new(&patterns)))];
    for algorithm in ALGORITHMS {
        beside.push((algorithm.name, (algorithm.build)(&patterns, Bounds::of(patterns.len()))?));
    }
    let scan =
        |header: &Header| (0..).zip(&patterns).find(|(_, pattern)| pattern.matches(header)).map(|(at, _)| at);
    let expected: Vec<Option<Position>> = headers.iter().map(scan).collect();

    println!("{} rules, {} headers", patterns.len(), headers.len());
    println!("{:<12} {:>12} {:>14}", "classifier", "ns a search", "bytes");
    for (name, classifier) in &beside {
        let begun = Instant::now();
        let found: Vec<Option<Position>> = headers.iter().map(|header| classifier.classify(header)).collect();
        let nanos = begun.elapsed().as_nanos() / headers.len() as u128;
        assert_eq!(found, expected, "{name} finds other rules than a linear scan");
        println!("{name:<12} {nanos:>12} {:>14}", classifier.memory_bytes());
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("memory for 300 rules");
}
