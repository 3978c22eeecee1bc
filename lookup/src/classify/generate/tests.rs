use std::collections::HashSet;

use wire::Family;

use super::super::{ALGORITHMS, Admit, Bounds, NO_MATCH, Pattern, PortSpan, TypeMatch};
use super::super::{AddressSpan, tests::agrees};
use super::{Aimed, Filter, Like, Locality, Prefix, rules, trace};

const ALL: [Like; 3] = [Like::Acl, Like::Fw, Like::Ipc];

fn patterns(filters: &[Filter]) -> Vec<Pattern> {
    filters.iter().map(Filter::pattern).collect()
}

/// Percent of the filters of which it is so.
fn percent(filters: &[Filter], is_so: impl Fn(&Filter) -> bool) -> f64 {
    100.0 * filters.iter().filter(|filter| is_so(filter)).count() as f64 / filters.len() as f64
}

#[test]
fn the_seed_decides_and_no_two_rules_are_alike() {
    for like in ALL {
        for count in [1, 2, 100, 20_000] {
            let filters = rules(like, count, 7);
            assert_eq!(filters.len(), count, "{like:?}");
            assert_eq!(filters.iter().collect::<HashSet<_>>().len(), count, "{like:?}");
            assert_eq!(filters, rules(like, count, 7), "{like:?}");
        }
        assert_ne!(rules(like, 100, 1), rules(like, 100, 2), "{like:?}");
    }
}

#[test]
fn no_rule_hides_a_later_one() {
    let covers = |one: &Filter, other: &Filter| {
        let prefix = |one: Prefix, other: Prefix| {
            one.length <= other.length && Prefix::of(other.address, one.length) == one
        };
        let ports = |one: PortSpan, other: PortSpan| one.first <= other.first && other.last <= one.last;
        prefix(one.source, other.source)
            && prefix(one.destination, other.destination)
            && ports(one.sport, other.sport)
            && ports(one.dport, other.dport)
            && (one.protocol.is_none() || one.protocol == other.protocol)
            && one.flags_mask & other.flags_mask == one.flags_mask
            && other.flags & one.flags_mask == one.flags & one.flags_mask
    };
    for like in ALL {
        let filters = rules(like, 1_500, 3);
        let mut nested = 0;
        for (place, later) in filters.iter().enumerate() {
            for earlier in &filters[..place] {
                assert!(!covers(earlier, later), "{like:?}: {earlier} hides {later}");
                nested += u32::from(covers(later, earlier));
            }
        }
        assert!(nested > 100, "{like:?}: {nested} rules are exceptions of others");
    }
}

/// The bounds of each share are the values of real sets of about 1,000 and 10,000 rules, or near them.
#[test]
fn shares_are_those_of_real_sets() {
    type Share = (&'static str, fn(&Filter) -> bool, f64, f64);
    const ANY: PortSpan = PortSpan { first: 0, last: u16::MAX };
    let acl: [Share; 8] = [
        ("TCP", |f| f.protocol == Some(6), 85.0, 91.0),
        ("any protocol", |f| f.protocol.is_none(), 6.0, 10.0),
        ("source is a host", |f| f.source.length == 32, 49.0, 57.0),
        ("destination is a host", |f| f.destination.length == 32, 46.0, 55.0),
        ("both are", |f| f.source.length == 32 && f.destination.length == 32, 26.0, 34.0),
        ("destination is /21 to /24", |f| (21..=24).contains(&f.destination.length), 13.0, 19.0),
        ("one destination port", |f| f.dport.first == f.dport.last, 57.0, 64.0),
        ("any source port", |f| f.sport == ANY, 100.0, 100.0),
    ];
    let fw: [Share; 8] = [
        ("TCP", |f| f.protocol == Some(6), 52.0, 62.0),
        ("UDP", |f| f.protocol == Some(17), 29.0, 36.0),
        ("any source", |f| f.source.length == 0, 36.0, 46.0),
        ("any destination", |f| f.destination.length == 0, 15.0, 25.0),
        ("destination is a host", |f| f.destination.length == 32, 28.0, 38.0),
        ("any to host", |f| f.source.length == 0 && f.destination.length == 32, 11.0, 20.0),
        ("one source port", |f| f.sport.first == f.sport.last, 12.0, 19.0),
        ("SYN without ACK", |f| (f.flags, f.flags_mask) == (0x0200, 0x1200), 49.0, 59.0),
    ];
    let ipc: [Share; 7] = [
        ("any protocol", |f| f.protocol.is_none(), 30.0, 36.0),
        ("UDP", |f| f.protocol == Some(17), 34.0, 42.0),
        ("source is a host", |f| f.source.length == 32, 14.0, 24.0),
        ("source is /22 to /26", |f| (22..=26).contains(&f.source.length), 38.0, 50.0),
        ("destination is a host", |f| f.destination.length == 32, 20.0, 30.0),
        ("any source", |f| f.source.length == 0, 5.0, 10.0),
        ("no ports", |f| f.sport == ANY && f.dport == ANY, 33.0, 41.0),
    ];
    for (like, shares) in [(Like::Acl, &acl[..]), (Like::Fw, &fw), (Like::Ipc, &ipc)] {
        for count in [2_000, 20_000] {
            let filters = rules(like, count, 5);
            for (what, is_so, low, high) in shares {
                let share = percent(&filters, is_so);
                assert!((*low..=*high).contains(&share), "{like:?}, {count} rules, {what}: {share:.1}%");
            }
        }
    }
}

/// Real sets of 1,000 to 10,000 rules have 7 to 41 sources and 7 to 71 destinations for a hundred rules, and up to 6
/// prefixes one in the other.
#[test]
fn addresses_are_shared_and_nest() {
    for like in ALL {
        let filters = rules(like, 5_000, 11);
        for side in [|filter: &Filter| filter.source, |filter: &Filter| filter.destination] {
            let known: HashSet<Prefix> = filters.iter().map(side).collect();
            let share = 100 * known.len() / filters.len();
            assert!((7..=71).contains(&share), "{like:?}: {share}% of all addresses differ");
            let depth = |prefix: &Prefix| {
                (0..prefix.length)
                    .filter(|shorter| known.contains(&Prefix::of(prefix.address, *shorter)))
                    .count()
            };
            let nested = known.iter().filter(|prefix| depth(prefix) > 0).count();
            let deepest = known.iter().map(depth).max().unwrap_or(0);
            assert!(100 * nested / known.len() > 60 && deepest <= 8, "{like:?}: {nested}, {deepest}");
        }
    }
}

#[test]
fn a_line_is_as_classbench_writes_it() {
    let filter = Filter {
        source: Prefix { address: 0xc0a8_0100, length: 24 },
        destination: Prefix { address: 0, length: 0 },
        sport: PortSpan { first: 0, last: 65535 },
        dport: PortSpan { first: 80, last: 80 },
        protocol: Some(6),
        flags: 0x0200,
        flags_mask: 0x1200,
    };
    assert_eq!(
        filter.to_string(),
        "@192.168.1.0/24\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0200/0x1200"
    );
}

#[test]
fn every_algorithm_agrees_on_them() {
    for like in ALL {
        let patterns = patterns(&rules(like, 400, 2));
        let aimed = trace(&patterns, 2_000, Locality::NONE, 2);
        let headers: Vec<_> = aimed.iter().map(|aimed| aimed.header).collect();
        for algorithm in ALGORITHMS {
            if let Ok(search) = (algorithm.build)(&patterns, Bounds::default()) {
                agrees(algorithm.name, &*search, &patterns, &headers).unwrap();
            }
        }
    }
}

#[test]
fn headers_match_what_they_were_made_for() {
    for like in ALL {
        let patterns = patterns(&rules(like, 500, 4));
        let aimed = trace(&patterns, 5_000, Locality::NONE, 4);
        assert_eq!(aimed, trace(&patterns, 5_000, Locality::NONE, 4));
        let mut met = HashSet::new();
        for Aimed { header, position } in &aimed {
            assert!(patterns[*position as usize].matches(header), "{header:?}");
            met.insert(patterns.iter().position(|pattern| pattern.matches(header)));
        }
        assert!(met.len() > 350, "{like:?}: {} rules are met first", met.len());
    }
}

#[test]
fn any_pattern_gets_headers() {
    let v6 = |first, last| Some(vec![AddressSpan { v6: true, first, last }]);
    let of_both = vec![
        AddressSpan { v6: false, first: 5, last: 9 },
        AddressSpan { v6: true, first: 1 << 64, last: u128::MAX },
    ];
    let patterns = [
        Pattern { source: v6(7, 7), from: 1 << 3, ..Pattern::default() },
        Pattern { destination: Some(of_both), ingress: vec![4], dscp: 1 << 46, ..Pattern::default() },
        Pattern { to: 0b1100, egress: vec![u16::MAX, 2], v4: Admit::No, ..Pattern::default() },
        Pattern {
            icmp: vec![TypeMatch { kind: 8, code: None }, TypeMatch { kind: 3, code: Some(4) }],
            protocols: vec![1],
            ..Pattern::default()
        },
        Pattern { tcp_mask: 0x12, tcp_value: 0x02, ..Pattern::default() },
        // Nothing matches these.
        Pattern { source: Some(Vec::new()), ..Pattern::default() },
        Pattern { source: v6(1, 2), v6: Admit::No, ..Pattern::default() },
    ];
    let mut made = [0; 7];
    let mut families = HashSet::new();
    for Aimed { header, position } in trace(&patterns, 2_000, Locality::LOW, 9) {
        let pattern = &patterns[position as usize];
        assert!(pattern.matches(&header), "{pattern:?} {header:?}");
        made[position as usize] += 1;
        families.insert(header.family == Family::V6);
    }
    assert!(made[..5].iter().all(|count| *count > 200) && made[5..] == [0, 0], "{made:?}");
    assert_eq!(families.len(), 2);
    let without = trace(&patterns[5..], 10, Locality::NONE, 1);
    assert!(without.len() == 10 && without.iter().all(|aimed| aimed.position == NO_MATCH));
    assert_eq!(trace(&[], 3, Locality::HIGH, 1).len(), 3);
}

#[test]
fn bursts_follow_the_distribution() {
    let patterns = patterns(&rules(Like::Acl, 1_000, 1));
    let changes = |locality| {
        let aimed = trace(&patterns, 100_000, locality, 8);
        aimed.windows(2).filter(|pair| pair[0] != pair[1]).count()
    };
    // Where a = 1, a burst of 100,000 headers or fewer has a mean of about b × (1 + ln(100,000 / b)), 1 at least.
    let (none, low, high) = (changes(Locality::NONE), changes(Locality::LOW), changes(Locality::HIGH));
    assert!(none > 99_000, "{none}");
    assert!(low > 97_000 && low < none, "{low}");
    assert!((5_000..20_000).contains(&high), "{high}");
    assert_eq!(Locality::new(-1.0), Locality::NONE);
    assert_eq!(Locality::new(f64::NAN), Locality::NONE);
}
