//! Measures memberships on one core: millions of look-ups a second, one by one and in bulk, alone and beside 100,000
//! changes a second, and what a change takes.
//!
//! Prefixes are hosts, with a tenth of networks of 24 bits (IPv6: 48). Half of the addresses are in one. The best of several
//! rounds counts: what disturbs a round is not the table's.

use std::hint::black_box;
use std::time::Instant;

use lookup::set::{HashKeys, Holders, Prefix, SetTable};
use tally::NoTally;
use wire::Family;
use wire::random::Random;

const ADDRESSES: usize = 1 << 20;
const ROUNDS: usize = 8;
const BATCH: usize = 64;
/// Changes a second beside look-ups.
const CHANGES: f64 = 100_000.0;

fn main() {
    println!("family   prefixes   one M/s  bulk M/s  changing M/s  ns a change         bytes");
    for family in [Family::V4, Family::V6] {
        for count in [1_000, 100_000, 1_000_000] {
            measure(family, count);
        }
    }
}

fn measure(family: Family, count: u32) {
    let mut random = Random::new(1);
    let keys = HashKeys(std::array::from_fn(|_| random.next_u64()));
    let mut table = SetTable::new(count + count / 8, keys).expect("memory");
    let address = |random: &mut Random| match family {
        Family::V6 => 0x2001 << 112 | u128::from(random.next_u64()) << 40,
        _ => u128::from(random.next_u64() as u32),
    };
    let short = if family == Family::V6 { 48 } else { 24 };
    let prefixes: Vec<Prefix> = (0..count)
        .map(|number| match number % 10 {
            0 => Prefix::new(family, address(&mut random), short),
            _ => Prefix::host(family, address(&mut random)),
        })
        .collect();
    for prefix in &prefixes {
        let _ = table.put(*prefix, Holders { sets: 1, tag: 0 });
    }
    let addresses: Vec<u128> = (0..ADDRESSES)
        .map(|number| match number % 2 {
            0 => prefixes[random.next_u64() as usize % prefixes.len()].bits,
            _ => address(&mut random),
        })
        .collect();
    let one = best(|| {
        let found = addresses.iter().map(|address| table.lookup(family, *address, &mut NoTally));
        black_box(found.fold(0, |all, sets| all ^ sets));
    });
    let mut sets = [0; BATCH];
    let bulk = best(|| {
        for batch in addresses.chunks(BATCH) {
            table.lookup_bulk(family, batch, &mut sets[..batch.len()]);
            black_box(&sets);
        }
    });
    let mut next = 0;
    let mut change = |table: &mut SetTable| {
        // Out, and in again.
        let prefix = prefixes[next % prefixes.len()];
        let sets = table.get(prefix).sets;
        let _ = table.put(prefix, Holders { sets: sets ^ 1, tag: 0 });
        next += 7_919;
    };
    let every = (one * 1e6 / CHANGES).max(1.0) as usize;
    let changing = best(|| {
        for run in addresses.chunks(every) {
            change(&mut table);
            let found = run.iter().map(|address| table.lookup(family, *address, &mut NoTally));
            black_box(found.fold(0, |all, sets| all ^ sets));
        }
    });
    let took = best(|| (0..ADDRESSES).for_each(|_| change(&mut table)));
    println!(
        "{:<6} {count:>10} {one:>9.1} {bulk:>9.1} {changing:>13.1} {:>12.0} {:>13}",
        if family == Family::V4 { "IPv4" } else { "IPv6" },
        1e3 / took,
        table.memory_bytes()
    );
}

/// Millions of steps a second in the best round.
fn best(mut round: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        round();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    ADDRESSES as f64 / best / 1e6
}
