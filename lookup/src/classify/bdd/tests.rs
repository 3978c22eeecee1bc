use tally::Count;

use super::*;
use crate::classify::{AddressSpan, PortSpan};

fn port(first: u16, last: u16) -> Vec<PortSpan> {
    vec![PortSpan { first, last }]
}

/// Ranges that overlap in every which way: each combination of them is another node.
fn entangled(many: u32) -> Vec<Pattern> {
    let pattern = |number: u32| {
        let mixed = u128::from(number.wrapping_mul(0x9e37_79b9));
        let span = |first: u128| vec![AddressSpan { v6: false, first, last: first + 0x2000_0000 }];
        Pattern {
            source: Some(span(mixed % 0xd000_0000)),
            destination: Some(span(mixed * 7 % 0xd000_0000)),
            dports: port((number * 37 % 30_000) as u16, (number * 37 % 30_000 + 20_000) as u16),
            sports: port((number * 91 % 30_000) as u16, (number * 91 % 30_000 + 20_000) as u16),
            ..Pattern::default()
        }
    };
    (0..many).map(pattern).collect()
}

#[test]
fn each_bit_is_met_once_at_most() {
    let bdd = Bdd::new(&entangled(12), Bounds::default()).unwrap();
    for at in 0..1000u32 {
        let mixed = at.wrapping_mul(0x85eb_ca6b);
        let header = Header {
            source: mixed.into(),
            destination: mixed.rotate_left(13).into(),
            sport: (mixed >> 7) as u16,
            dport: (mixed >> 3) as u16,
            family: Family::V4,
            ..Header::default()
        };
        let mut count = Count::default();
        bdd.classify_tallied(&header, &mut count);
        let reads = count.references(Region::RuleTable).reads;
        assert!(reads <= 96, "{reads} nodes, and only 96 bits are asked for");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_taken() {
    let patterns = entangled(2000);
    let bounds = Bounds { memory: 4 << 20 };
    let TooLarge { needed, bound } = Bdd::new(&patterns, bounds).unwrap_err();
    assert!(bound == bounds.memory && needed > bound, "{needed} of {bound}");
    let allowed = allocation_counter::measure(|| drop(Bdd::new(&patterns, bounds)));
    // The products of two patterns, and what moves while it grows, are beside it.
    assert!(allowed.bytes_max < 8 << 20, "{} bytes at one time", allowed.bytes_max);
}

#[test]
fn what_is_hidden_takes_no_node() {
    let narrow = Pattern { dports: port(80, 80), ..Pattern::default() };
    let alone = Bdd::new(&[narrow.clone(), Pattern::default()], Bounds::default()).unwrap();
    let more = vec![
        narrow.clone(),
        narrow,
        Pattern::default(),
        Pattern { dports: port(1, 9), ..Pattern::default() },
    ];
    let hidden = Bdd::new(&more, Bounds::default()).unwrap();
    assert_eq!(hidden.memory_bytes(), alone.memory_bytes());
    let https = Header { dport: 443, family: Family::V6, ..Header::default() };
    assert_eq!((alone.classify(&https), hidden.classify(&https)), (Some(1), Some(2)));
}
