use tally::{Count, Region};

use super::super::{AddressSpan, PortSpan};
use super::*;

fn host(address: u32) -> Option<Vec<AddressSpan>> {
    Some(vec![AddressSpan { v6: false, first: address.into(), last: address.into() }])
}

fn header(source: u32) -> Header {
    Header { source: source.into(), family: Family::V4, dport: 7, ..Header::default() }
}

/// Patterns of the studies' kind: each for a host.
fn hosts(count: u32) -> Vec<Pattern> {
    let dports = vec![PortSpan { first: 7, last: 7 }];
    (0..count)
        .map(|at| Pattern { source: host(2 * at), dports: dports.clone(), ..Pattern::default() })
        .collect()
}

#[test]
fn fields_that_nobody_asks_for_are_left_out() {
    let search = RangeMatch::new(&hosts(10), Bounds::default()).unwrap();
    let fields: Vec<Field> = search.dimensions.iter().map(|dimension| dimension.field).collect();
    assert_eq!(fields, [Field::Source4, Field::Dport, Field::Source6]);
    let fields = |family| search.dimensions_of(family).iter().map(|dimension| dimension.field);
    assert!(fields(Family::V4).eq([Field::Source4, Field::Dport]));
    assert!(fields(Family::V6).eq([Field::Dport, Field::Source6]));
}

#[test]
fn equal_vectors_are_kept_once() {
    let search = RangeMatch::new(&hosts(10), Bounds::default()).unwrap();
    // One for each host; none at all, which every field has; all.
    assert_eq!(search.blocks.len(), 10 + 1 + 1);
}

#[test]
fn long_vectors_have_summaries() {
    for (count, summaries) in [(1, 0), (2_048, 0), (2_049, 1), (40_000, 2)] {
        assert_eq!(Shape::new(count).summaries, summaries, "{count}");
    }
    let search = RangeMatch::new(&hosts(4_000), Bounds::default()).unwrap();
    for source in [0, 2, 1_022, 4_098, 7_998, 8_000, 5] {
        let wanted = (source % 2 == 0 && source < 8_000).then_some(source / 2);
        assert_eq!(search.classify(&header(source)), wanted);
    }
}

/// 64 rules of one vector's piece, as the study on the IXP1200 had them: the search through 128 intervals, the port's
/// table of 3 intervals, and 32 bytes of each vector.
#[test]
fn an_account_is_of_interval_tables_and_vectors() {
    let search = RangeMatch::new(&hosts(64), Bounds::default()).unwrap();
    let mut count = Count::default();
    assert_eq!(search.classify_tallied(&header(126), &mut count), Some(63));
    let reads = count.references(Region::RuleTable);
    assert_eq!(reads.reads, 7 + 2 + 2);
    assert_eq!(search.region_bytes(), (128 + 3) * 8 + 20 + 66 * 64);
}

#[test]
fn what_an_account_reads_is_within_the_region() {
    struct Within(u64, u32);
    impl Tally for Within {
        fn execute(&mut self, _: tally::Op, _: u32) {}
        fn read(&mut self, _: Region, at: usize, bytes: u32) {
            assert!(at as u64 + u64::from(bytes) <= self.0);
            self.1 += 1;
        }
        fn write(&mut self, _: Region, _: usize, _: u32) {}
        fn atomic(&mut self, _: Region, _: usize, _: u32) {}
        fn hash(&mut self, _: u32) {}
    }
    for count in [1, 64, 700, 3_000] {
        let search = RangeMatch::new(&hosts(count), Bounds::default()).unwrap();
        let mut within = Within(search.region_bytes(), 0);
        for source in 0..2 * count {
            assert_eq!(
                search.classify_tallied(&header(source), &mut within),
                search.classify(&header(source))
            );
        }
        assert!(within.1 > 0);
    }
}
