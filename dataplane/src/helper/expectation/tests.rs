use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn expectation(number: u16, until: u64) -> Expectation {
    let key = key_to([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), number, 3).unwrap();
    Expectation {
        key,
        // Few buckets, so that they are long.
        hash: u64::from(number % 3) << 32,
        master: FlowId(number.into()),
        rule: 1,
        destination: Address::v4(1),
        port: number,
        source: Address::v4(2),
        mapping: u32::MAX,
        until: Nanos(until),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_a_map_in_order_of_time(acts in proptest::collection::vec((any::<bool>(), 0..20u16), 0..200)) {
        let mut table = Expectations::of(8);
        let mut plain: BTreeMap<u16, u64> = BTreeMap::new();
        for (now, (is_added, number)) in (0..).zip(acts) {
            let wanted = expectation(number, now);
            let there = table.find(&wanted.key, wanted.hash);
            prop_assert_eq!(there.is_some(), plain.contains_key(&number));
            prop_assert_eq!(table.of_master(FlowId(number.into())), there);
            match there {
                Some(id) => {
                    prop_assert_eq!(table.remove(id).map(|of| of.port), Some(number));
                    prop_assert!(table.remove(id).is_none());
                    plain.remove(&number);
                }
                None if is_added => {
                    let made = table.insert(wanted).is_some();
                    prop_assert_eq!(made, plain.len() < 8, "{} are there", plain.len());
                    if made {
                        plain.insert(number, now);
                    }
                }
                None => {}
            }
            let oldest = plain.values().min().copied();
            prop_assert_eq!(table.oldest().and_then(|id| Some(table.get(id)?.until.0)), oldest);
            prop_assert_eq!(table.is_empty(), plain.is_empty());
            if let Some(oldest) = oldest {
                prop_assert!(table.is_due(Nanos(oldest)) && (oldest == 0 || !table.is_due(Nanos(oldest - 1))));
            } else {
                prop_assert!(!table.is_due(Nanos(u64::MAX - 1)));
            }
        }
    }
}
