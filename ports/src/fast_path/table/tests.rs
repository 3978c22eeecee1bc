#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use wire::DscpSet;

use super::*;

/// A table with 8 homes, which is as small as it gets.
fn table(seed: u64) -> Table {
    let layout = Layout::new(1, 2);
    Table::new(Words::detached(layout.bytes()), layout, Hasher::new([seed, 2]))
}

/// Flow of a number, with either IP version.
fn flow(number: u16) -> [Entry; 2] {
    let address = |four: &str, six: &str| {
        if number % 2 == 0 { IpAddr::V4(four.parse().unwrap()) } else { IpAddr::V6(six.parse().unwrap()) }
    };
    let inside = Tuple {
        source: address("10.0.0.2", "fd00::2"),
        destination: address("192.0.2.9", "2001:db8::9"),
        sport: number,
        dport: 443,
    };
    let outside = Tuple { source: address("198.51.100.1", "2001:db8:1::1"), ..inside };
    let turned = |tuple: Tuple| Tuple {
        source: tuple.destination,
        destination: tuple.source,
        sport: tuple.dport,
        dport: tuple.sport,
    };
    let entry = |from, to, ifindex, out| Entry {
        from,
        protocol: Protocol::TCP,
        ifindex,
        to,
        link: [3; 12],
        mtu: 1500,
        out,
        dscp: DscpSet::ALL,
        mark: None,
        window: Some(Window { end: number.into(), max_window: 8, grants: 9, scale: 2 }),
    };
    [entry(inside, outside, 2, 3), entry(turned(outside), turned(inside), 3, 2)]
}

/// The look-up as the filter has it.
fn find(table: &Table, entry: &Entry) -> Option<Place> {
    let key = Key::of(entry).unwrap();
    let generation = table.generation();
    let home = table.home(&key);
    for index in home..home + PROBES as u32 {
        let words: Vec<u32> = table
            .fields(index, slot::SOURCE)
            .take(key.0.len())
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let version = table.slot_word(index, slot::VERSION).load(Ordering::Relaxed);
        if words == key.0
            && table.slot_word(index, slot::GENERATION).load(Ordering::Relaxed) == generation
            && version & 1 == 1
        {
            return Some(Place { index, version });
        }
        if table.slot_word(index, slot::OVERFLOW).load(Ordering::Relaxed) == 0 {
            return None;
        }
    }
    None
}

fn overflows(table: &Table) -> u32 {
    let slots = 0..table.layout().slots() as u32;
    slots.map(|index| table.slot_word(index, slot::OVERFLOW).load(Ordering::Relaxed)).sum()
}

fn is_free(table: &Table, index: u32) -> bool {
    table.slot_word(index, slot::VERSION).load(Ordering::Relaxed) & STATE == 0
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u16),
    Retract(usize),
    Free(usize),
    Advance,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..12_u16).prop_map(Step::Publish),
        4 => any::<usize>().prop_map(Step::Retract),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn a_key_is_found_where_a_map_has_it(seed in any::<u64>(), steps in vec(step(), 1..200)) {
        let table = table(seed);
        let mut live: HashMap<u16, [Place; 2]> = HashMap::new();
        let (mut published, mut retracted): (Vec<[Place; 2]>, Vec<[Place; 2]>) = Default::default();
        for step in steps {
            match step {
                Step::Publish(number) => {
                    let free: Vec<usize> = flow(number)
                        .iter()
                        .map(|entry| table.home(&Key::of(entry).unwrap()))
                        .map(|home| (home..home + 8).filter(|index| is_free(&table, *index)).count())
                        .collect();
                    match table.publish(&flow(number)) {
                        Some(places) => {
                            prop_assert!(!live.contains_key(&number) && !free.contains(&0));
                            live.insert(number, places);
                            published.push(places);
                        }
                        // The second direction's only free slot may be the one that the first has claimed.
                        None => prop_assert!(live.contains_key(&number) || free[0] == 0 || free[1] <= 1),
                    }
                }
                Step::Retract(which) if !published.is_empty() => {
                    let places = published.swap_remove(which % published.len());
                    places.iter().for_each(|place| table.retract(*place));
                    live.retain(|_, own| *own != places);
                    retracted.push(places);
                }
                Step::Free(which) if !retracted.is_empty() => {
                    let places = retracted.swap_remove(which % retracted.len());
                    places.iter().for_each(|place| table.free(*place));
                    // A second time, and retracting what is free, does nothing.
                    places.iter().for_each(|place| table.free(*place));
                    places.iter().for_each(|place| table.retract(*place));
                    prop_assert!(places.iter().all(|place| table.window(*place).is_none()));
                }
                Step::Advance => {
                    let generation = table.generation();
                    prop_assert_eq!(table.advance_generation(), generation + 1);
                    live.clear();
                }
                Step::Retract(_) | Step::Free(_) => {}
            }
            prop_assert_eq!(table.in_use() as usize, 2 * (published.len() + retracted.len()));
            for number in 0..12 {
                let own = live.get(&number);
                for (side, entry) in flow(number).iter().enumerate() {
                    let place = own.map(|places| places[side]);
                    prop_assert_eq!(find(&table, entry), place);
                    if let Some(place) = place {
                        prop_assert!(table.is_live(place));
                        prop_assert_eq!(table.window(place).unwrap().end, u32::from(number));
                    }
                }
            }
        }
        // Freeing what is published does nothing either.
        published.iter().flatten().for_each(|place| table.free(*place));
        prop_assert_eq!(table.in_use() as usize, 2 * (published.len() + retracted.len()));
        published.iter().flatten().for_each(|place| table.retract(*place));
        published.iter().chain(&retracted).flatten().for_each(|place| table.free(*place));
        prop_assert_eq!((table.in_use(), overflows(&table)), (0, 0));
    }
}

#[test]
fn a_full_table_publishes_nothing_and_again_after_one_is_freed() {
    let table = table(1);
    let flows: Vec<_> = (0..100).filter_map(|number| table.publish(&flow(number))).collect();
    assert!(flows.len() >= 3 && flows.len() <= 7, "{}", flows.len());
    let many = (0..8).filter_map(|number| table.publish(&flow(1000 + number)));
    assert_eq!(many.count(), 0);
    flows.iter().flatten().for_each(|place| table.retract(*place));
    assert_eq!(table.publish(&flow(1000)), None);
    flows.iter().flatten().for_each(|place| table.free(*place));
    assert!(table.publish(&flow(1000)).is_some());
}

#[test]
fn entries_that_make_no_flow_are_not_published() {
    let table = table(1);
    let [four, six] = [flow(0), flow(1)];
    let mixed = Entry { to: six[0].to, ..four[0] };
    assert_eq!(table.publish(&[mixed, four[1]]), None);
    assert_eq!(table.publish(&[four[0], four[0]]), None);
    let other = Entry { protocol: Protocol::GRE, ..four[0] };
    assert_eq!(table.publish(&[other, four[1]]), None);
    assert_eq!(table.in_use(), 0);
    assert!(table.publish(&[four[0], six[1]]).is_some());
}

#[test]
fn threads_never_share_a_slot() {
    let table = table(9);
    let taken = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        for own in 0..2_u16 {
            let (table, taken) = (&table, &taken);
            scope.spawn(move || {
                let mut published: Vec<[Place; 2]> = Vec::new();
                let mut random = wire::random::Random::new(own.into());
                for turn in 0..40_000 {
                    if turn % 2 == 0 {
                        let number = 2 * random.below(500) as u16 + own;
                        let Some(places) = table.publish(&flow(number)) else { continue };
                        let mut taken = taken.lock().unwrap();
                        assert!(places.iter().all(|place| taken.insert(place.index)));
                        published.push(places);
                    } else if !published.is_empty() {
                        let places = published.swap_remove(random.below(published.len() as u64) as usize);
                        assert!(places.iter().all(|place| table.is_live(*place)));
                        places.iter().for_each(|place| table.retract(*place));
                        let mut taken = taken.lock().unwrap();
                        assert!(places.iter().all(|place| taken.remove(&place.index)));
                        places.iter().for_each(|place| table.free(*place));
                    }
                }
                for place in published.iter().flatten() {
                    table.retract(*place);
                    table.free(*place);
                }
            });
        }
    });
    assert_eq!((table.in_use(), overflows(&table)), (0, 0));
}

/// The hash is the formula of its module, in 128 bits; keys that are alike spread over the homes.
#[test]
fn the_hash_is_the_formula_and_spreads_regular_keys() {
    let hasher = Hasher::new([5, 6]);
    let words = [[1, u32::MAX], [7, 8], [0, 9], [u32::MAX, u32::MAX], [3, 4]];
    let mut sum = u128::from(hasher.start);
    for (k, w) in hasher.pairs.iter().zip(words) {
        let [a, b] = [0, 1].map(|at| (u128::from(k[at]) + u128::from(w[at])) % (1 << 64));
        sum = (sum + a * b % (1 << 64)) % (1 << 64);
    }
    let high = (sum >> 32) as u32;
    let mixed = (high ^ high >> 16).wrapping_mul(0x7feb_352d);
    assert_eq!(hasher.hash(&words), mixed ^ mixed >> 15);
    assert_ne!(Hasher::new([6, 5]).hash(&words), hasher.hash(&words));

    let mut load = HashMap::new();
    for port in 0..65_536 {
        *load.entry(hasher.hash(&[[port, 2], [10 << 24, 9]]) & 8191).or_insert(0) += 1;
    }
    // Poisson of mean 8: 30 or more in one of 8,192 homes happens once in 10^5 trials.
    assert!(load.values().all(|keys| *keys < 30));
}
