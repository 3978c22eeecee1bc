#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use wire::DscpSet;
use wire::vlan::Tag;

use super::*;

/// Flows that a table of the tests is made for.
const FLOWS: u32 = 4;

/// A table with four buckets and 12 slots for keys.
fn table(seed: u64) -> Table {
    let layout = Layout::new(FLOWS, 2);
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
        vlan: 0,
        to,
        link: [3; 12],
        tag: None,
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
    let hash = table.hasher.hash(&key.pairs()[..key.len()]);
    for entry in bucket(table, entry) {
        let index = entry ^ hash << INDEX_BITS;
        if index as usize >= table.layout().slots() {
            continue;
        }
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
    }
    None
}

/// Entries of a key's bucket.
fn bucket(table: &Table, entry: &Entry) -> Vec<u32> {
    let key = Key::of(entry).unwrap();
    let first = table.layout.bucket(table.hasher.hash(&key.pairs()[..key.len()])) * BUCKET as u32;
    (first..first + BUCKET as u32).map(|number| table.entry(number).load(Ordering::Relaxed)).collect()
}

/// Entries of a key's bucket that another key may take.
fn room(table: &Table, entry: &Entry) -> usize {
    let is_outdated = |entry: &u32| *entry == 0 || table.is_outdated(*entry, table.generation());
    bucket(table, entry).iter().filter(|entry| is_outdated(entry)).count()
}

/// Entries of all buckets that are in use.
fn entries(table: &Table) -> usize {
    let numbers = 0..table.layout.buckets() * BUCKET as u32;
    numbers.filter(|number| table.entry(*number).load(Ordering::Relaxed) != 0).count()
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
                    let room = flow(number).map(|entry| room(&table, &entry));
                    let has_slots = table.in_use() + 2 <= 3 * FLOWS;
                    match table.publish(&flow(number)) {
                        Some(places) => {
                            prop_assert!(!live.contains_key(&number) && has_slots && !room.contains(&0));
                            live.insert(number, places);
                            published.push(places);
                        }
                        // The second direction's only free entry may be the one that the first has claimed.
                        None => prop_assert!(live.contains_key(&number) || !has_slots || room[0] == 0 || room[1] <= 1),
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
        prop_assert_eq!((table.in_use(), entries(&table)), (0, 0));
    }
}

#[test]
fn a_full_table_publishes_nothing_and_again_after_one_is_freed() {
    let table = table(1);
    let flows: Vec<_> = (0..100).filter_map(|number| table.publish(&flow(number))).collect();
    assert!(flows.len() >= 4 && flows.len() <= 6, "{}", flows.len());
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
    let stacked = Entry { tag: Some(Tag::service(20)), ..four[0] };
    assert_eq!(table.publish(&[stacked, four[1]]), None);
    let beyond = Entry { vlan: 0x1000, ..four[0] };
    assert_eq!(table.publish(&[beyond, four[1]]), None);
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
    assert_eq!((table.in_use(), entries(&table)), (0, 0));
}

/// Slots of flows that are taken back at once and freed later do not keep the same flows from being published again, nor do their entries in
/// the index, and what is freed late frees nothing that is in use by then.
#[test]
fn all_flows_of_a_full_table_are_published_again_by_the_next_generation() {
    let layout = Layout::new(1_000, 2);
    let table = Table::new(Words::detached(layout.bytes()), layout, Hasher::new([5, 2]));
    let publish = || (0..500).map(|number| table.publish(&flow(number)).unwrap()).collect::<Vec<_>>();
    let old = publish();
    table.advance_generation();
    let new = publish();
    for place in old.iter().flatten() {
        table.retract(*place);
        table.free(*place);
    }
    for (number, places) in (0..).zip(new) {
        assert_eq!(flow(number).map(|entry| find(&table, &entry)), places.map(Some));
    }
    assert_eq!((table.in_use(), entries(&table)), (1_000, 1_000));
}

/// Slots in use lie close together, whatever the keys: those that were freed last are used first.
#[test]
fn slots_in_use_lie_close_together() {
    let layout = Layout::new(10_000, 2);
    let table = Table::new(Words::detached(layout.bytes()), layout, Hasher::new([5, 2]));
    for turn in 0..20 {
        let flows: Vec<_> =
            (0..100).map(|number| table.publish(&flow(100 * turn + number)).unwrap()).collect();
        for place in flows.iter().flatten() {
            assert!((1..=200).contains(&place.index));
            table.retract(*place);
            table.free(*place);
        }
    }
}

/// A table of as many flows as it is made for has room for nearly each of them.
#[test]
fn a_table_takes_nearly_as_many_flows_as_it_is_made_for() {
    let layout = Layout::new(20_000, 2);
    let table = Table::new(Words::detached(layout.bytes()), layout, Hasher::new([5, 2]));
    let published = (0..20_000).filter(|number| table.publish(&flow(*number)).is_some()).count();
    // Nine keys or more in a bucket, with two on average: two in 10,000 buckets.
    assert!(published >= 19_980, "{published}");
}

/// The hash is the formula of its module, in 128 bits; keys that are alike spread over the buckets.
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
    // Poisson of mean 8: 30 or more in one of 8,192 buckets happens once in 10^5 trials.
    assert!(load.values().all(|keys| *keys < 30));
}
