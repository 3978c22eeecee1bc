use super::pattern::Admit;
use super::*;

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
    assert_eq!(count.references(tally::Region::RuleTable).reads, 3);
    assert_eq!(Linear::new(&[narrow]).classify(&headers[1]), None);
}

mod every_algorithm {
    //! Answers as the linear scan does, and says the same with and without an account.

    use proptest::prelude::*;
    use tally::Count;

    use super::super::{ALGORITHMS, AddressSpan, Header, NO_MATCH, Pattern, PortSpan, TypeMatch};
    use wire::Family;

    /// Few values, so that patterns meet headers.
    fn address() -> impl Strategy<Value = u128> {
        prop_oneof![0..8u128, 0x0a00_0000..0x0a00_0008u128]
    }

    fn spans() -> impl Strategy<Value = Option<Vec<AddressSpan>>> {
        let span = (any::<bool>(), address(), 0..5u128).prop_map(|(v6, first, more)| AddressSpan {
            v6,
            first,
            last: first + more,
        });
        proptest::option::of(span.prop_map(|span| vec![span]))
    }

    fn ports() -> impl Strategy<Value = Vec<PortSpan>> {
        let span = (0..6u16, 0..3u16).prop_map(|(first, more)| PortSpan { first, last: first + more });
        proptest::collection::vec(span, 0..2)
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let protocols = proptest::collection::vec(0..3u8, 0..3);
        let rare = (0..4u64, any::<bool>(), 0..3u8);
        (spans(), spans(), ports(), ports(), protocols, rare).prop_map(
            |(source, destination, sports, dports, protocols, (zones, icmp, flags))| Pattern {
                from: if zones == 0 { u64::MAX } else { zones },
                source,
                destination,
                sports,
                dports,
                protocols,
                icmp: if icmp { vec![TypeMatch { kind: 0, code: Some(3) }] } else { Vec::new() },
                tcp_mask: flags,
                tcp_value: flags,
                ..Pattern::default()
            },
        )
    }

    fn header() -> impl Strategy<Value = Header> {
        (address(), address(), 0..8u16, 0..8u16, 0..3u8, (0..2u8, any::<bool>(), 0..3u8)).prop_map(
            |(source, destination, sport, dport, protocol, (from, v6, tcp_flags))| Header {
                source,
                destination,
                sport,
                dport,
                protocol,
                from,
                tcp_flags,
                family: if v6 { Family::V6 } else { Family::V4 },
                ..Header::default()
            },
        )
    }

    proptest! {
        #[test]
        fn equals_the_linear_scan(
            patterns in proptest::collection::vec(pattern(), 0..12),
            headers in proptest::collection::vec(header(), 1..8),
        ) {
            for algorithm in ALGORITHMS {
                let search = (algorithm.build)(&patterns);
                let mut bulk = vec![0; headers.len()];
                search.classify_bulk(&headers, &mut bulk);
                for (header, bulk) in headers.iter().zip(bulk) {
                    let wanted = patterns.iter().position(|pattern| pattern.matches(header)).map(|at| at as u32);
                    prop_assert_eq!(search.classify(header), wanted, "{}", algorithm.name);
                    let mut count = Count::default();
                    prop_assert_eq!(search.classify_tallied(header, &mut count), wanted, "{}", algorithm.name);
                    prop_assert_eq!(bulk, wanted.unwrap_or(NO_MATCH), "{}", algorithm.name);
                }
            }
        }
    }
}
