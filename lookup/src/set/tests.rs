use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tally::{Count, NoTally};
use wire::Family;

use super::{Full, HashKeys, Holders, Prefix, SetTable};

const KEYS: HashKeys = HashKeys([
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0x2545_f491_4f6c_dd1d,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
]);

/// Prefixes that lie in one another as often as not.
fn prefix() -> impl Strategy<Value = Prefix> {
    let address = prop_oneof![0..8u128, 0..1u128 << 8, any::<u128>()];
    (any::<bool>(), address, prop_oneof![Just(128u8), Just(32), Just(24), Just(0), 0..=128u8]).prop_map(
        |(v6, address, length)| {
            let (family, net) = if v6 { (Family::V6, 0x2001_0db8 << 96) } else { (Family::V4, 0x0a00_0000) };
            let address = if address < 256 { net | address } else { address };
            let address = if v6 { address } else { address & 0xffff_ffff };
            Prefix::new(family, address, length)
        },
    )
}

/// The sets of an address, by comparison with all prefixes.
fn naive(all: &HashMap<Prefix, u32>, family: Family, address: u128) -> u32 {
    let containing = all.iter().filter(|(prefix, _)| prefix.family == family && prefix.has(address));
    containing.fold(0, |sets, (_, more)| sets | more)
}

proptest! {
    #[test]
    fn equals_a_list(changes in vec((prefix(), prop_oneof![2 => Just(0u32), 3 => any::<u32>()]), 1..200), most in 1..40u32) {
        let mut table = SetTable::new(most, KEYS).unwrap();
        let mut list: HashMap<Prefix, u32> = HashMap::new();
        for (number, (prefix, sets)) in (0..).zip(&changes) {
            let outcome = table.put(*prefix, Holders { sets: *sets, tag: number });
            let is_new = !list.contains_key(prefix);
            if *sets == 0 {
                prop_assert_eq!(outcome, Ok(()));
                list.remove(prefix);
            } else if is_new && list.len() as u32 == most {
                prop_assert_eq!(outcome, Err(Full));
            } else {
                prop_assert_eq!(outcome, Ok(()));
                list.insert(*prefix, *sets);
                prop_assert_eq!(table.get(*prefix), Holders { sets: *sets, tag: number });
            }
            prop_assert_eq!(table.len() as usize, list.len());
        }
        let mut asked: Vec<(Family, u128)> = Vec::new();
        for (prefix, _) in &changes {
            let last = prefix.bits | !super::prefix_mask(prefix.family, prefix.length);
            let last = if prefix.family == Family::V4 { last & 0xffff_ffff } else { last };
            asked.extend([prefix.bits, last, prefix.bits ^ 1].map(|address| (prefix.family, address)));
        }
        for (family, address) in &asked {
            let wanted = naive(&list, *family, *address);
            prop_assert_eq!(table.lookup(*family, *address, &mut NoTally), wanted);
            prop_assert_eq!(table.lookup(*family, *address, &mut Count::default()), wanted);
        }
        for family in [Family::V4, Family::V6] {
            let own: Vec<u128> = asked.iter().filter(|(of, _)| *of == family).map(|(_, address)| *address).collect();
            let mut sets = vec![7; own.len()];
            table.lookup_bulk(family, &own, &mut sets);
            for (address, sets) in own.iter().zip(sets) {
                prop_assert_eq!(sets, naive(&list, family, *address));
            }
        }
    }
}

#[test]
fn a_full_table_changes_and_removes_what_it_has() {
    let mut table = SetTable::new(1_000, KEYS).unwrap();
    let host = |number: u32| Prefix::host(Family::V4, number.into());
    for number in 0..1_000 {
        assert_eq!(table.put(host(number), Holders { sets: 1, tag: 0 }), Ok(()));
    }
    assert_eq!(table.put(host(1_000), Holders { sets: 1, tag: 0 }), Err(Full));
    assert_eq!(table.put(host(999), Holders { sets: 2, tag: 0 }), Ok(()));
    assert_eq!(table.lookup(Family::V4, 999, &mut NoTally), 2);
    assert_eq!(table.put(host(0), Holders::default()), Ok(()));
    assert_eq!(table.put(host(1_000), Holders { sets: 1, tag: 0 }), Ok(()));
    for number in 0..1_001 {
        assert_eq!(table.put(host(number), Holders::default()), Ok(()));
    }
    assert!(table.is_empty());
    assert_eq!(table.v4.used, [0; 3], "no length is in use");
}

#[test]
fn nothing_is_allocated_after_the_table_is_made() {
    let mut table = SetTable::new(100, KEYS).unwrap();
    let info = allocation_counter::measure(|| {
        for round in 0..50_u32 {
            for number in 0..100 {
                let _ =
                    table.put(Prefix::host(Family::V6, number), Holders { sets: 1 << (round % 32), tag: 0 });
            }
            for number in (0..100).step_by(2) {
                let _ = table.put(Prefix::host(Family::V6, number), Holders::default());
            }
        }
        assert_eq!(table.lookup(Family::V6, 1, &mut NoTally), 1 << (49 % 32));
    });
    assert_eq!(info.count_total, 0);
}
