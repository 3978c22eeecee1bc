use super::pattern::Admit;
use super::*;

mod every_algorithm;
pub(super) mod many;

pub(super) use every_algorithm::agrees;

fn header() -> Header {
    Header {
        source: 0xc0a8_0102,
        destination: 0xc633_6407,
        sport: 50_000,
        dport: 443,
        protocol: 6,
        tcp_flags: 0x02,
        dscp: 0,
        family: Family::V4,
        from: 1,
        to: 2,
        ingress: 0,
        egress: 1,
        source_mac: 3,
        sets: 0b101,
    }
}

#[test]
fn an_empty_pattern_matches_everything() {
    assert!(Pattern::default().matches(&header()));
    assert!(Pattern::default().matches(&Header { family: Family::V6, ..header() }));
}

#[test]
fn each_condition_alone_can_refuse() {
    let v4 = |first, last| Some(vec![AddressSpan { v6: false, first, last }]);
    let refusing = [
        Pattern { from: !(1 << 1), ..Pattern::default() },
        Pattern { to: 1 << 1, ..Pattern::default() },
        Pattern { ingress: vec![7], ..Pattern::default() },
        Pattern { egress: vec![0], ..Pattern::default() },
        Pattern { source: v4(0xc0a8_0103, u128::from(u32::MAX)), ..Pattern::default() },
        Pattern { source: Some(Vec::new()), ..Pattern::default() },
        Pattern { destination: v4(0, 0xc633_6406), ..Pattern::default() },
        Pattern { v4: Admit::No, ..Pattern::default() },
        Pattern { protocols: vec![17, 1], ..Pattern::default() },
        Pattern { sports: vec![PortSpan { first: 0, last: 49_999 }], ..Pattern::default() },
        Pattern { dports: vec![PortSpan { first: 444, last: 500 }], ..Pattern::default() },
        Pattern { icmp: vec![TypeMatch { kind: 8, code: None }], ..Pattern::default() },
        Pattern { tcp_mask: 0x12, tcp_value: 0x12, ..Pattern::default() },
        Pattern { dscp: 1 << 46, ..Pattern::default() },
        Pattern { sets_mask: 0b10, sets_value: 0b10, ..Pattern::default() },
        Pattern { sets_mask: 0b100, ..Pattern::default() },
    ];
    for pattern in refusing {
        assert!(!pattern.matches(&header()), "{pattern:?}");
    }
}

#[test]
fn spans_are_searched_within_the_family() {
    let spans = vec![
        AddressSpan { v6: false, first: 10, last: 20 },
        AddressSpan { v6: false, first: 30, last: 30 },
        AddressSpan { v6: true, first: 0, last: 15 },
    ];
    let pattern = Pattern { source: Some(spans), ..Pattern::default() };
    let matches = |source, family| pattern.matches(&Header { source, family, ..header() });
    for inside in [10, 15, 20, 30] {
        assert!(matches(inside, Family::V4), "{inside}");
    }
    for outside in [0, 9, 21, 29, 31] {
        assert!(!matches(outside, Family::V4), "{outside}");
    }
    assert!(matches(9, Family::V6));
    assert!(!matches(16, Family::V6));
}

#[test]
fn the_first_match_wins_and_bulk_agrees() {
    let narrow = Pattern { dports: vec![PortSpan { first: 443, last: 443 }], ..Pattern::default() };
    let linear = Linear::new(&[
        Pattern { protocols: vec![17], ..Pattern::default() },
        narrow.clone(),
        Pattern::default(),
    ]);
    let headers = [header(), Header { dport: 80, ..header() }, Header { protocol: 17, ..header() }];
    let mut positions = [0; 3];
    linear.classify_bulk(&headers, &mut positions);
    assert_eq!(positions, [1, 2, 0]);
    let mut count = tally::Count::default();
    assert_eq!(linear.classify_tallied(&headers[1], &mut count), Some(2));
    assert_eq!(count.references(Region::RuleTable).reads, 3);
    assert_eq!(Linear::new(&[narrow]).classify(&headers[1]), None);
}
