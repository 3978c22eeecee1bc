use tally::{Count, Region};
use wire::Family;
use wire::random::Random;

use super::kernel::Plain;
use super::*;
use crate::classify::generate::{Like, Locality, rules, trace};
use crate::classify::{AddressSpan, Admit, Linear, NO_MATCH, PortSpan};

fn made(like: Like, count: usize) -> (Vec<Pattern>, Vec<Header>) {
    let patterns: Vec<Pattern> = rules(like, count, 7).iter().map(|rule| rule.pattern()).collect();
    let headers = trace(&patterns, 3000, Locality::new(0.1), 7).iter().map(|aimed| aimed.header).collect();
    (patterns, headers)
}

/// Every way to search finds what the scan does.
fn agrees(patterns: &[Pattern], headers: &[Header], bounds: Bounds) -> Result<Tree, TooLarge> {
    let tree = Tree::new(patterns, bounds)?;
    assert!(tree.memory_bytes() <= bounds.memory, "{} of {}", tree.memory_bytes(), bounds.memory);
    let linear = Linear::new(patterns);
    let wanted: Vec<Position> =
        headers.iter().map(|header| linear.classify(header).unwrap_or(NO_MATCH)).collect();
    let mut found = vec![0; headers.len()];
    tree.classify_bulk(headers, &mut found);
    assert_eq!(found, wanted, "in bulk");
    tree.families().find_all(Plain, headers, &mut found);
    assert_eq!(found, wanted, "in bulk, without vectors");
    for (header, wanted) in headers.iter().zip(wanted) {
        assert_eq!(tree.classify(header).unwrap_or(NO_MATCH), wanted);
    }
    Ok(tree)
}

fn ports(first: u16, last: u16) -> Pattern {
    Pattern { dports: vec![PortSpan { first, last }], v6: Admit::No, ..Pattern::default() }
}

#[test]
fn thousands_of_rules_are_searched_exactly() {
    for like in [Like::Acl, Like::Fw, Like::Ipc] {
        let (patterns, headers) = made(like, 1200);
        agrees(&patterns, &headers, Bounds::default()).unwrap();
    }
}

/// Families beside one another in a batch, and what is neither.
#[test]
fn families_are_told_apart() {
    let (mut patterns, mut headers) = made(Like::Acl, 300);
    let first = 0x2001_0db8 << 96;
    for low in 0..100 {
        let spans = vec![AddressSpan { v6: true, first: first + low, last: first + 3 * low }];
        patterns.insert(low as usize, Pattern { source: Some(spans), ..Pattern::default() });
    }
    patterns.push(Pattern { v4: Admit::No, ..Pattern::default() });
    for (place, header) in headers.iter_mut().enumerate() {
        match place % 3 {
            0 => *header = Header { family: Family::V6, source: first + place as u128 / 9, ..*header },
            1 if place % 7 == 0 => header.family = Family::Other,
            _ => {}
        }
    }
    agrees(&patterns, &headers, Bounds::default()).unwrap();
}

/// Nothing but their order tells these apart, or nothing that a bit could.
#[test]
fn rules_that_no_bit_tells_apart_are_listed() {
    let header = |dport| Header { dport, protocol: 6, family: Family::V4, ..Header::default() };
    let headers: Vec<Header> = (0..3000).map(|number| header(number * 21)).collect();
    let alike: Vec<Pattern> = (0..5000).map(|_| ports(80, 90)).collect();
    let overlapping: Vec<Pattern> = (0..2000).map(|low| ports(low * 30, low * 30 + 5000)).collect();
    let mut hidden = vec![Pattern::default()];
    hidden.extend(overlapping.clone());
    let stairs: Vec<Pattern> = (0..2000).map(|low| ports(30_000 - low, 30_000 + low)).collect();
    for patterns in [alike, overlapping, hidden, stairs, Vec::new()] {
        agrees(&patterns, &headers, Bounds::default()).unwrap();
    }
}

/// A rule for everything ends every list.
#[test]
fn a_rule_for_everything_first_makes_a_tree_of_one_block() {
    let mut patterns = vec![Pattern::default()];
    patterns.extend(made(Like::Fw, 2000).0);
    let tree = Tree::new(&patterns, Bounds::default()).unwrap();
    assert!(tree.memory_bytes() < 4096, "{}", tree.memory_bytes());
}

#[test]
fn bounds_are_kept() {
    let (patterns, headers) = made(Like::Fw, 1200);
    let mut refused = 0;
    for kibibytes in [1, 100, 200, 400, 1000, 2000, 16_000] {
        refused += u32::from(agrees(&patterns, &headers, Bounds { memory: kibibytes << 10 }).is_err());
    }
    assert!((1..6).contains(&refused), "{refused}");
}

/// Rules that ask for some fields and leave others open, as they come: each tree would have most of them in most branches.
#[test]
fn rules_that_are_copied_over_and_over_take_bounded_work() {
    let mut random = Random::new(3);
    let mut one = || {
        let mut range = |wild: u64| {
            let ends = [random.below(1 << 16) as u16, random.below(1 << 16) as u16];
            let span = PortSpan { first: ends[0].min(ends[1]), last: ends[0].max(ends[1]) };
            if random.below(4) < wild { Vec::new() } else { vec![span] }
        };
        let (sports, dports) = (range(1), range(1));
        let mut net = || {
            let host = (1 << (8 * random.below(4))) - 1;
            let first = u128::from(random.below(1 << 32)) & !host;
            let spans = vec![AddressSpan { v6: false, first, last: first | host }];
            if random.below(4) > 0 { None } else { Some(spans) }
        };
        let (source, destination) = (net(), net());
        let protocols = if random.below(2) == 0 { Vec::new() } else { vec![6] };
        Pattern { source, destination, sports, dports, protocols, v6: Admit::No, ..Pattern::default() }
    };
    // What asks for little would hide the rest.
    let asks = |pattern: &Pattern| !pattern.sports.is_empty() && !pattern.dports.is_empty();
    let patterns: Vec<Pattern> = (0..3000).map(|_| one()).filter(asks).collect();
    let headers: Vec<Header> =
        trace(&patterns, 3000, Locality::NONE, 7).iter().map(|aimed| aimed.header).collect();
    let tree = agrees(&patterns, &headers, Bounds::default()).unwrap();
    assert!(tree.memory_bytes() < 16 << 20, "{}", tree.memory_bytes());

    let entries = entries::<V4>(patterns.iter(), Bounds::default()).unwrap();
    let mut scratch = Scratch::default();
    let work = work(entries.len());
    for open in [2, 6, 12] {
        let growth = Growth { open, trees: TREES, work, lean: usize::MAX, covered: Covered::Hidden };
        let _ = build::grow(&entries, growth, Bounds::default(), &mut scratch);
        // The last lists are divided after it has become too much.
        assert!(scratch.work < 8 * work, "{open}: {} of {work}", scratch.work);
    }
}

#[test]
fn an_account_lies_within_its_region() {
    let (patterns, headers) = made(Like::Ipc, 1000);
    let tree = Tree::new(&patterns, Bounds::default()).unwrap();
    let mut instructions = 0;
    for header in headers.iter().take(500) {
        let mut count = Count::default();
        assert_eq!(tree.classify_tallied(header, &mut count), tree.classify(header));
        instructions += count.executed_total();
        let references = count.references(Region::RuleTable);
        assert!(references.reads > 2, "{references:?}");
    }
    // The scan takes 35 for each of a thousand rules.
    assert!((50..400).contains(&(instructions / 500)), "{}", instructions / 500);
    assert!(tree.program() > 0 && tree.region_bytes() > 0);
}
