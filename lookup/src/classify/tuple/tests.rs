use wire::random::Random;

use super::super::tests::many::{headers, patterns};
use super::super::{AddressSpan, PortSpan};
use super::*;

fn agrees(search: &Tuple, list: &[Pattern], headers: &[Header]) {
    for header in headers {
        let wanted = list.iter().position(|pattern| pattern.matches(header)).map(|at| at as u32);
        assert_eq!(search.classify(header), wanted, "{header:?}");
    }
}

#[test]
fn thousands_come_and_go() {
    let pool = patterns(6_000, 20);
    let headers = headers(&pool, 300, 21);
    let mut list: Vec<Pattern> = pool[..2_000].to_vec();
    let mut search = Tuple::new(&list, Bounds::default()).unwrap();
    let mut random = Random::new(22);
    for (round, pattern) in pool[2_000..].iter().enumerate() {
        let place = random.below(list.len() as u64 + 1) as usize;
        list.insert(place, pattern.clone());
        search.insert(place as u32, pattern).unwrap();
        if round % 3 != 0 {
            let place = random.below(list.len() as u64) as usize;
            list.remove(place);
            search.remove(place as u32);
        }
        if round % 500 == 0 {
            agrees(&search, &list, &headers);
            assert_eq!(search.budget.taken(), search.bytes());
        }
    }
    agrees(&search, &list, &headers);
    while !list.is_empty() {
        let place = random.below(list.len() as u64) as usize;
        list.remove(place);
        search.remove(place as u32);
        if list.len() % 1_000 == 7 {
            agrees(&search, &list, &headers);
        }
    }
    assert_eq!(search.count(), 0);
    assert!(search.v4.tables.iter().all(|table| table.entries == 0 && table.best == Position::MAX));
    // What has gone leaves room for as many.
    let bytes = search.bytes();
    for (position, pattern) in (0..).zip(&pool[..1_000]) {
        search.insert(position, pattern).unwrap();
    }
    assert!(search.bytes() < 2 * bytes);
    agrees(&search, &pool[..1_000], &headers);
}

#[test]
fn what_finds_no_memory_changes_nothing() {
    let pool = patterns(1_000, 23);
    let headers = headers(&pool, 200, 24);
    let (mut list, mut refused) = (Vec::new(), 0);
    let mut search = Tuple::new(&[], Bounds { memory: 200_000 }).unwrap();
    for pattern in &pool {
        let place = list.len() / 2;
        match search.insert(place as u32, pattern) {
            Ok(()) => list.insert(place, pattern.clone()),
            Err(too_large) => {
                refused += 1;
                assert!(too_large.needed > 200_000);
            }
        }
        assert_eq!(search.budget.taken(), search.bytes());
        assert!(search.bytes() <= 200_000);
    }
    assert!(refused > 100 && list.len() > 100, "{refused} refused");
    assert_eq!(search.count(), list.len());
    agrees(&search, &list, &headers);
    search.remove(0);
    list.remove(0);
    agrees(&search, &list, &headers);
}

#[test]
fn a_set_is_looked_for_at_a_bounded_number_of_places() {
    let hosts = |count: u128| {
        let host = |at| AddressSpan { v6: false, first: at * 5, last: at * 5 + at % 2 };
        Some((0..count).map(host).collect::<Vec<_>>())
    };
    let set = Pattern { source: hosts(1_000), destination: hosts(3), ..Pattern::default() };
    let search = Tuple::new(&[set.clone(), Pattern::default()], Bounds::default()).unwrap();
    assert!(search.v4.entries.len() <= cover::MOST + 1, "{}", search.v4.entries.len());
    let at = |source, destination| Header { source, destination, family: Family::V4, ..Header::default() };
    for source in 0..5_010 {
        for destination in 0..12 {
            let header = at(source, destination);
            assert_eq!(search.classify(&header), Some(u32::from(!set.matches(&header))), "{header:?}");
        }
    }
}

/// Removals may change which table has the better pattern.
#[test]
fn what_goes_brings_later_ones_forward() {
    let to = |first, last| Pattern {
        destination: Some(vec![AddressSpan { v6: false, first, last }]),
        ..Pattern::default()
    };
    let host = |at| to(at, at);
    // Two tables: of hosts, with the first pattern and the fifth, and of the network.
    let (mut list, net) = (vec![host(1), host(2), host(3)], to(0x0a00_0000, 0x0aff_ffff));
    list.extend([net, host(0x0a00_0001)]);
    let mut search = Tuple::new(&list, Bounds::default()).unwrap();
    let header = Header { destination: 0x0a00_0001, family: Family::V4, ..Header::default() };
    for _ in 0..2 {
        assert_eq!(search.v4.tables.len(), 2);
        search.remove(1);
        list.remove(1);
        agrees(&search, &list, &[header]);
    }
}

/// Patterns that hashing cannot tell apart: all of one network, of different ranges of ports.
#[test]
fn a_long_chain_is_searched_in_order() {
    let ports = |at: u16| PortSpan { first: at % 700, last: 40_000 + at };
    let list: Vec<Pattern> =
        (0..1_000).map(|at| Pattern { dports: vec![ports(at)], ..Pattern::default() }).collect();
    let search = Tuple::new(&list, Bounds::default()).unwrap();
    let at = |dport| Header { dport, family: Family::V4, ..Header::default() };
    let headers = [0, 699, 700, 40_000, 40_001, 40_500, 40_999, 41_000].map(at);
    agrees(&search, &list, &headers);
    // From its ends and from its middle, they go and come.
    let (mut search, mut list) = (search, list);
    for place in [999, 0, 0, 500, 996, 3, 994] {
        search.remove(place as u32);
        let gone = list.remove(place);
        agrees(&search, &list, &headers);
        for place in [list.len(), 0, 400] {
            search.insert(place as u32, &gone).unwrap();
            list.insert(place, gone.clone());
            agrees(&search, &list, &headers);
        }
    }
}

/// As many lengths as there can be of ports, and more patterns of each than a table takes of one hash.
#[test]
fn there_are_no_more_tables_than_a_set_has_bits_for() {
    let ports = |length: u32| PortSpan { first: 0, last: u16::MAX.checked_shr(length).unwrap_or(0) };
    let of = |at: u32| Pattern {
        sports: vec![ports(at % 17)],
        dports: vec![ports(at / 17 % 17)],
        tcp_mask: 0xff,
        tcp_value: (at / 289) as u8,
        ..Pattern::default()
    };
    let list: Vec<Pattern> = (0..289 * 60).rev().map(of).collect();
    let mut search = Tuple::new(&list, Bounds::default()).unwrap();
    assert_eq!(search.v4.tables.len(), sieve::MOST - 1);
    let at = |dport| Header { dport, sport: 9, tcp_flags: 7, family: Family::V4, ..Header::default() };
    agrees(&search, &list, &[0, 1, 9, 4_000, 65_535].map(at));
    // These need one more: nothing less than for everything takes them.
    let hosts = |at: u128| Some(vec![AddressSpan { v6: false, first: at, last: at }]);
    for first in 0..200 {
        search.insert(first as u32, &Pattern { destination: hosts(first), ..Pattern::default() }).unwrap();
    }
    for first in 0..200 {
        let header = Header { destination: first, family: Family::V4, ..Header::default() };
        assert_eq!(search.classify(&header), Some(first as u32));
    }
    assert!(search.v4.tables.len() <= sieve::MOST);
}

#[test]
fn what_an_account_reads_is_within_the_region() {
    struct Within(u64, u32);
    impl Tally for Within {
        fn execute(&mut self, _: tally::Op, _: u32) {}
        fn read(&mut self, _: tally::Region, at: usize, bytes: u32) {
            assert!(at as u64 + u64::from(bytes) <= self.0);
            self.1 += 1;
        }
        fn write(&mut self, _: tally::Region, _: usize, _: u32) {}
        fn atomic(&mut self, _: tally::Region, _: usize, _: u32) {}
        fn hash(&mut self, _: u32) {}
    }
    let list = patterns(1_000, 25);
    let search = Tuple::new(&list, Bounds::default()).unwrap();
    let mut within = Within(search.region_bytes(), 0);
    for header in headers(&list, 300, 26) {
        assert_eq!(search.classify_tallied(&header, &mut within), search.classify(&header));
    }
    assert!(within.1 > 300);
}
