use std::collections::HashMap;

use proptest::prelude::*;
use wire::random::Random;

use super::*;

/// As the hash of keys is: 32 bits, twice.
fn hash(bits: u32) -> u64 {
    u64::from(bits) << 32 | u64::from(bits)
}

#[test]
fn what_is_published_is_found_by_others_until_it_is_withdrawn() {
    let steering = SteeringTable::new(3, 10).unwrap();
    steering.publish(hash(77), 1);
    assert_eq!(steering.find(hash(77), 0), Some(1));
    assert_eq!(steering.find(hash(77), 1), None);
    steering.publish(hash(77), 2);
    assert_eq!(steering.find(hash(77), 1), Some(2));
    steering.publish(hash(77), 1);
    steering.withdraw(hash(77), 1);
    assert_eq!(steering.find(hash(77), 2), Some(1), "it was published twice");
    steering.withdraw(hash(77), 1);
    assert_eq!(steering.find(hash(77), 2), None);
    steering.withdraw(hash(77), 0);
    assert_eq!(steering.find(hash(77), 0), Some(2));
}

#[test]
fn one_too_many_is_left_out_and_counted() {
    let steering = SteeringTable::new(1024, 1).unwrap();
    for worker in 0..40 {
        steering.publish(hash(5), worker);
    }
    assert_eq!(steering.left_out(), 8);
    assert_eq!(steering.find(hash(5), 0), Some(1));
    assert_eq!(SteeringTable::new(0, 1).unwrap_err(), SteeringError::Workers(0));
    assert_eq!(SteeringTable::new(1025, 1).unwrap_err(), SteeringError::Workers(1025));
}

#[test]
fn a_full_directory_leaves_next_to_nothing_out_and_is_seldom_wrong() {
    let (workers, flows) = (4, 20_000);
    let steering = SteeringTable::new(workers, flows).unwrap();
    let mut random = Random::new(3);
    for entry in 0..2 * u32::from(workers) * flows {
        steering.publish(hash(random.next_u64() as u32), (entry % u32::from(workers)) as u16);
    }
    assert_eq!(steering.left_out(), 0);
    // 160,000 of 2^32 hashes are there.
    let wrong = (0..100_000).filter(|_| steering.find(hash(random.next_u64() as u32), 0).is_some()).count();
    assert!(wrong < 40, "{wrong}");
}

#[test]
fn homes_are_spread() {
    for workers in [1, 2, 3, 7, 16] {
        let steering = SteeringTable::new(workers, 1).unwrap();
        let mut counts = [vec![0u32; usize::from(workers)], vec![0; usize::from(workers)]];
        for n in 0..4096u32 {
            let (v4, v6) = (u128::from(0x0a00_0000 + n), 0x2001_0db8 << 96 | u128::from(n) << 64);
            for source in [v4, v6] {
                counts[0][usize::from(steering.home_of_source(source))] += 1;
                let home = steering.home_of_datagram(1, source, 7, 17);
                counts[1][usize::from(home)] += 1;
            }
        }
        let fair = 8192 / u32::from(workers);
        let is_fair = |count: &u32| (fair * 3 / 4..=fair * 5 / 4).contains(count);
        assert!(counts.iter().flatten().all(is_fair), "{counts:?}");
    }
}

proptest! {
    /// Against a plain list, in a steering table so small that all is in a few buckets, and never full.
    #[test]
    fn it_is_a_multiset(steps in prop::collection::vec((1u32..7, 0u16..3, any::<bool>()), 0..200)) {
        let steering = SteeringTable::new(3, 6).unwrap();
        let mut model: HashMap<(u32, u16), u32> = HashMap::new();
        for (bits, worker, comes) in steps {
            let bits = bits * 0x2a00_0001;
            let count = model.entry((bits, worker)).or_default();
            if comes && *count < 2 {
                *count += 1;
                steering.publish(hash(bits), worker);
            } else if !comes {
                *count = count.saturating_sub(1);
                steering.withdraw(hash(bits), worker);
            }
            for (but, bits) in (0..3).flat_map(|but| (1..7).map(move |n| (but, n * 0x2a00_0001))) {
                let there = |worker: u16| model.get(&(bits, worker)).is_some_and(|count| *count > 0);
                let found = steering.find(hash(bits), but);
                let any = (0..3).any(|worker| worker != but && there(worker));
                prop_assert_eq!(found.is_some(), any);
                prop_assert!(found.is_none_or(|worker| worker != but && there(worker)));
            }
        }
        prop_assert_eq!(steering.left_out(), 0);
    }
}

/// Two threads come and go in the same buckets: what one has published stays findable whatever the other does, and in
/// the end nothing is left.
#[test]
fn threads_do_not_lose_one_another_s_entries() {
    let steering = SteeringTable::new(2, 64).unwrap();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let work = |worker: u16| {
        let mut random = Random::new(u64::from(worker) + 1);
        let mut mine: Vec<u32> = Vec::new();
        for _ in 0..rounds {
            let bits = (random.next_u64() % 48) as u32 * 0x0101_0001;
            match mine.iter().position(|own| *own == bits) {
                Some(place) => {
                    assert_eq!(steering.find(hash(bits), 1 - worker), Some(worker));
                    steering.withdraw(hash(bits), worker);
                    mine.swap_remove(place);
                }
                None => {
                    steering.publish(hash(bits), worker);
                    mine.push(bits);
                }
            }
        }
        mine.iter().for_each(|bits| steering.withdraw(hash(*bits), worker));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1));
    });
    assert_eq!(steering.left_out(), 0);
    assert!(steering.is_empty());
}
