//! Lists that are hard on a search: long, full of duplicates, empty, with a rule for everything first; and its bound on
//! memory, while it is built, too.

use wire::Family;
use wire::random::Random;

use super::super::{ALGORITHMS, AddressSpan, Admit, Algorithm, Bounds, Header, NO_MATCH, Pattern, PortSpan};

/// Algorithms whose memory is measured as they build.
const BOUNDED: &[&str] = &["range_match", "tuple"];

fn address(random: &mut Random, v6: bool) -> u128 {
    // Few networks, so that rules meet one another.
    let net = random.below(200) * 0x0101;
    let host = random.below(1 << 16);
    if v6 {
        (0x2001_0db8 << 96) | (u128::from(net) << 64) | u128::from(host)
    } else {
        u128::from(net << 16 | host)
    }
}

fn span(random: &mut Random, v6: bool) -> Option<Vec<AddressSpan>> {
    let bits = if v6 { 128 } else { 32 };
    let length = match random.below(8) {
        0 => return None,
        1 => bits - 16,
        2 => bits - 8,
        3 => bits - random.below(32) as u32,
        _ => bits,
    };
    let host = if length == 0 { u128::MAX } else { (1 << (bits - length)) - 1 };
    let address = address(random, v6);
    Some(vec![AddressSpan { v6, first: address & !host, last: address | host }])
}

fn ports(random: &mut Random) -> Vec<PortSpan> {
    let port = random.below(100) as u16;
    match random.below(4) {
        0 => Vec::new(),
        1 => vec![PortSpan { first: 1024, last: u16::MAX }],
        2 => vec![PortSpan { first: port, last: port + random.below(100) as u16 }],
        _ => vec![PortSpan { first: port, last: port }],
    }
}

/// Rules as of access lists, one in sixteen of IPv6.
pub(in super::super) fn patterns(count: usize, seed: u64) -> Vec<Pattern> {
    let mut random = Random::new(seed);
    let mut one = || {
        let v6 = random.below(16) == 0;
        Pattern {
            source: span(&mut random, v6),
            destination: span(&mut random, v6),
            sports: if random.below(4) == 0 { ports(&mut random) } else { Vec::new() },
            dports: ports(&mut random),
            protocols: if random.below(8) == 0 {
                Vec::new()
            } else {
                vec![[6, 17][random.below(2) as usize]]
            },
            v4: if v6 { Admit::No } else { Admit::Yes },
            v6: if v6 { Admit::Yes } else { Admit::No },
            ..Pattern::default()
        }
    };
    (0..count).map(|_| one()).collect()
}

/// Headers that match one of the patterns at least, as often as not.
pub(in super::super) fn headers(patterns: &[Pattern], count: usize, seed: u64) -> Vec<Header> {
    let mut random = Random::new(seed);
    let mut one = || {
        let pattern = &patterns[random.below(patterns.len() as u64) as usize];
        let v6 = pattern.v6 == Admit::Yes;
        let mut within = |spans: &Option<Vec<AddressSpan>>| match spans {
            Some(spans) => {
                let AddressSpan { first, last, .. } = spans[0];
                first + u128::from(random.next_u64()) % (last - first + 1)
            }
            None => address(&mut random, v6),
        };
        let (source, destination) = (within(&pattern.source), within(&pattern.destination));
        let mut port = |spans: &[PortSpan]| match spans {
            [span, ..] => span.first + random.below(u64::from(span.last - span.first) + 1) as u16,
            [] => random.next_u64() as u16,
        };
        Header {
            source,
            destination,
            sport: port(&pattern.sports),
            dport: port(&pattern.dports),
            protocol: pattern.protocols.first().copied().unwrap_or(6),
            family: if v6 { Family::V6 } else { Family::V4 },
            ..Header::default()
        }
    };
    (0..count).map(|_| one()).collect()
}

/// The algorithms that search, one by one.
fn searching() -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().filter(|algorithm| !["linear", "coded"].contains(&algorithm.name))
}

fn scan(patterns: &[Pattern], header: &Header) -> Option<u32> {
    patterns.iter().position(|pattern| pattern.matches(header)).map(|at| at as u32)
}

fn holds(algorithm: &Algorithm, patterns: &[Pattern], headers: &[Header]) {
    let search = (algorithm.build)(patterns, Bounds::default()).expect(algorithm.name);
    let mut bulk = vec![0; headers.len()];
    search.classify_bulk(headers, &mut bulk);
    for (header, bulk) in headers.iter().zip(bulk) {
        let wanted = scan(patterns, header);
        assert_eq!(search.classify(header), wanted, "{} {header:?}", algorithm.name);
        assert_eq!(bulk, wanted.unwrap_or(NO_MATCH), "{} {header:?}, in bulk", algorithm.name);
    }
}

#[test]
fn ten_thousand_rules_are_searched_as_by_the_scan() {
    let patterns = patterns(10_000, 1);
    let headers = headers(&patterns, 400, 2);
    assert!(headers.iter().filter(|header| scan(&patterns, header) > Some(1_000)).count() > 50);
    for algorithm in searching() {
        holds(algorithm, &patterns, &headers);
    }
}

#[test]
fn of_duplicates_the_first_is_found() {
    let mut patterns = patterns(300, 3);
    let again = patterns.clone();
    patterns.extend(again.iter().rev().cloned());
    patterns.extend(vec![again[7].clone(); 400]);
    let headers = headers(&patterns, 300, 4);
    for algorithm in searching() {
        holds(algorithm, &patterns, &headers);
        let one = vec![again[0].clone(); 1_000];
        holds(algorithm, &one, &headers[..20]);
    }
}

#[test]
fn behind_a_rule_for_everything_nothing_is_found() {
    let mut patterns = patterns(500, 5);
    let headers = headers(&patterns, 100, 6);
    patterns.insert(0, Pattern::default());
    for algorithm in searching() {
        holds(algorithm, &patterns, &headers);
        let search = (algorithm.build)(&patterns, Bounds::default()).unwrap();
        let other = Header { family: Family::Other, ..headers[0] };
        assert_eq!(search.classify(&headers[0]), Some(0), "{}", algorithm.name);
        assert_eq!(search.classify(&other), None, "{}", algorithm.name);
    }
}

#[test]
fn few_patterns_and_none_are_searched() {
    let some = patterns(3, 7);
    let headers = headers(&some, 20, 8);
    let nobody = Pattern { source: Some(Vec::new()), ..Pattern::default() };
    for algorithm in searching() {
        holds(algorithm, &[], &headers);
        holds(algorithm, &some[..1], &headers);
        holds(algorithm, &some, &headers);
        holds(algorithm, std::slice::from_ref(&nobody), &headers);
        holds(algorithm, &[nobody.clone(), Pattern::default()], &headers);
        holds(algorithm, &[Pattern::default()], &headers);
    }
}

#[test]
fn the_bound_on_memory_is_kept_while_building() {
    let patterns = patterns(3_000, 9);
    for algorithm in searching().filter(|algorithm| BOUNDED.contains(&algorithm.name)) {
        let build = |memory| (algorithm.build)(&patterns, Bounds { memory });
        let measured = |memory| {
            let mut built = false;
            let used = allocation_counter::measure(|| match build(memory) {
                Ok(search) => {
                    built = true;
                    drop(search);
                }
                Err(too_large) => {
                    assert!(too_large.needed > memory && too_large.bound == memory, "{too_large:?}");
                }
            });
            // A few lists of a few entries are not worth an account.
            let bound = memory as u64 + 4096;
            assert!(used.bytes_max <= bound, "{}: {} of {memory} bytes", algorithm.name, used.bytes_max);
            built
        };
        let (mut refused, mut enough) = (0, 1 << 30);
        assert!(measured(enough), "{}: a gigabyte will do", algorithm.name);
        // The least that is enough, to a thousandth: there every byte has to be accounted for.
        while enough - refused > enough / 1_000 {
            let memory = enough.midpoint(refused);
            if measured(memory) { enough = memory } else { refused = memory }
        }
        assert!(enough > 100_000, "{} takes no account", algorithm.name);
        let many = self::patterns(100_000, 10);
        let search = (algorithm.build)(&many, Bounds { memory: 16 << 20 });
        assert!(search.is_err(), "{}", algorithm.name);
    }
}
