use tally::{Count, Region};
use wire::Family;

use super::super::{AddressSpan, Classifier, Header, Pattern, PortSpan};
use super::Linear;
use super::account::compare;

/// An IPv4 header of zone 0, TCP, to port 80.
fn header() -> Header {
    Header {
        source: 0x0a00_0001,
        destination: 0xc633_6401,
        protocol: 6,
        tcp_flags: 0,
        dscp: 0,
        family: Family::V4,
        sport: 1024,
        dport: 80,
        from: 0,
        to: 0,
        ingress: 0,
        egress: 0,
        source_mac: 0,
        sets: 0,
    }
}

fn span(v6: bool, first: u128, last: u128) -> Option<Vec<AddressSpan>> {
    Some(vec![AddressSpan { v6, first, last }])
}

/// Instructions, branches among them, and patterns read that a search tallies.
fn counted(patterns: &[Pattern], header: &Header) -> (u64, u64) {
    let mut count = Count::default();
    Linear::new(patterns).classify_tallied(header, &mut count);
    (count.executed_total(), count.references(Region::RuleTable).reads)
}

#[test]
fn a_pattern_is_left_at_the_first_condition_that_does_not_hold() {
    let of = |pattern: &Pattern| {
        let work = compare(pattern, &header());
        (work.instructions, work.branches, work.matches)
    };
    let all = Pattern::default();
    // Three bits, 9; flags, 4; protocol, 3; two ranges, 10; two addresses, 6; family and what else it may ask for, 4.
    assert_eq!(of(&all), (36, 14, true));
    assert_eq!(of(&Pattern { from: 2, ..all.clone() }), (3, 0, false));
    assert_eq!(of(&Pattern { to: 2, ..all.clone() }), (6, 1, false));
    assert_eq!(of(&Pattern { protocols: vec![17], ..all.clone() }), (16, 5, false));
    assert_eq!(of(&Pattern { protocols: vec![17, 6], ..all.clone() }), (39, 16, true));
    let port = |port| vec![PortSpan { first: port, last: port }];
    assert_eq!(of(&Pattern { dports: port(443), ..all.clone() }), (21, 7, false));
    assert_eq!(of(&Pattern { sports: port(443), ..all.clone() }), (26, 9, false));
    assert_eq!(of(&Pattern { destination: span(false, 0, 1), ..all.clone() }), (29, 10, false));
    assert_eq!(of(&Pattern { source: span(false, 0, 1), ..all }), (32, 11, false));
}

#[test]
fn words_of_an_ipv6_address_are_compared_until_one_decides() {
    let address = 0x2001_0db8_000a_0000_0000_0000_0000_0001_u128;
    let header = Header { family: Family::V6, source: 7, destination: address, ..header() };
    let of = |first, last| {
        let work = compare(&Pattern { destination: span(true, first, last), ..Pattern::default() }, &header);
        (work.instructions, work.branches, work.wide, work.matches)
    };
    // Before the addresses, 26 and 10; behind them, that any source will do, the family and what else it may ask for, 5 and 3.
    let prefix = |bits: u32, of: u128| (of >> (128 - bits) << (128 - bits), of | (u128::MAX >> bits));
    let (first, last) = prefix(32, address);
    assert_eq!(of(first, last), (26 + 6 + 5, 10 + 2 + 3, true, true), "the second word is any");
    assert_eq!(of(address, address), (26 + 12 + 5, 10 + 4 + 3, true, true));
    let (first, last) = prefix(48, address ^ 1 << 90);
    assert_eq!(of(first, last), (26 + 6, 10 + 1, true, false));
    let (first, last) = prefix(48, address ^ 1 << 120);
    assert_eq!(of(first, last), (26 + 3, 10, true, false));
    // A pattern of the other family is left at its first address, and without a look at words that it has not.
    let other = Pattern { destination: span(false, 0, 1), ..Pattern::default() };
    let work = compare(&other, &header);
    assert_eq!((work.instructions, work.branches, work.wide, work.matches), (29, 10, false, false));
}

#[test]
fn a_search_tallies_what_each_pattern_takes() {
    let first = Pattern { from: 2, ..Pattern::default() };
    let patterns = [first.clone(), first, Pattern::default()];
    // Two are left at once: 3, the next one's place, 4, and two branches; the third is compared whole.
    assert_eq!(counted(&patterns, &header()), (2 * (3 + 4 + 2) + 36 + 14, 3));
}
