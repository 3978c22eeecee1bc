use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn expectation(number: u16, kind: Kind, until: u64) -> Expectation {
    let to = ([198, 51, 100, 7].into(), number);
    let key = key_to(Protocol::TCP, [192, 0, 2, 1].into(), to, 3).unwrap();
    Expectation {
        kind,
        call: 0,
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
    fn the_table_is_a_map_in_order_of_time(
        acts in proptest::collection::vec((any::<[bool; 2]>(), 0..20u16, 0..9u64), 0..200),
    ) {
        let mut table = Expectations::of(8);
        let mut plain: BTreeMap<u16, u64> = BTreeMap::new();
        for (now, ([is_added, is_registered], number, later)) in (0..).zip(acts) {
            let (kind, until) = if is_registered { (Kind::Signalling, now + later * 5) } else { (Kind::Media, now) };
            let wanted = expectation(number, kind, until);
            let there = table.find(&wanted.key, wanted.hash);
            prop_assert_eq!(there.is_some(), plain.contains_key(&number));
            let of_master: Vec<_> = table.of_master(FlowId(number.into())).map(|(id, _)| id).collect();
            prop_assert_eq!(of_master, there.into_iter().collect::<Vec<_>>());
            match there {
                Some(id) if is_added && is_registered && table.get(id).unwrap().kind == Kind::Signalling => {
                    table.hold_until(id, Nanos(until));
                    plain.insert(number, until);
                }
                Some(id) => {
                    prop_assert_eq!(table.remove(id).map(|of| of.port), Some(number));
                    prop_assert!(table.remove(id).is_none());
                    plain.remove(&number);
                }
                None if is_added => {
                    let made = table.insert(wanted).is_some();
                    prop_assert_eq!(made, plain.len() < 8, "{} are there", plain.len());
                    if made {
                        plain.insert(number, until);
                    }
                }
                None => {}
            }
            let oldest = plain.values().min().copied();
            prop_assert_eq!(table.is_empty(), plain.is_empty());
            let (mut all, mut next) = (BTreeMap::new(), table.first());
            while let Some(id) = next {
                let of = table.get(id).unwrap();
                all.insert(of.port, of.until.0);
                next = table.next(id);
            }
            prop_assert_eq!(&all, &plain);
            if let Some(oldest) = oldest {
                prop_assert!(table.is_due(Nanos(oldest)) && (oldest == 0 || !table.is_due(Nanos(oldest - 1))));
                let overdue = table.overdue(Nanos(oldest)).and_then(|id| Some(table.get(id)?.until.0));
                prop_assert_eq!(overdue, Some(oldest));
                prop_assert!(oldest == 0 || table.overdue(Nanos(oldest - 1)).is_none());
            } else {
                prop_assert!(!table.is_due(Nanos(u64::MAX - 1)) && table.overdue(Nanos(u64::MAX)).is_none());
            }
        }
    }
}
