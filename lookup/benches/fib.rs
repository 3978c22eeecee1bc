//! Measures longest-prefix match on one core: millions of look-ups a second in bulk and one by one, seconds
//! to build, bytes of memory.
//!
//! Destinations are random addresses inside random prefixes of the table, handed over 64 at a time as the
//! pipeline does. The best of several rounds counts: what disturbs a round is not the table's.

use std::hint::black_box;
use std::time::Instant;

use lookup::fib::generate::{bgp_like4, bgp_like6, destinations4, destinations6};
use lookup::fib::{Fib4, Fib6, NO_ROUTE};
use tally::NoTally;

const BATCH: usize = 64;
const DESTINATIONS: usize = 1 << 20;
const ROUNDS: usize = 12;

fn main() {
    println!("family   prefixes  bulk M/s   one M/s   build s        bytes");
    for count in [5, 1_000, 100_000, 900_000] {
        let routes = bgp_like4(count, 1);
        let destinations = destinations4(&routes, DESTINATIONS, 2);
        let begin = Instant::now();
        let fib = Fib4::new(&routes).expect("generated routes are within the limits");
        let build = begin.elapsed().as_secs_f64();
        let rate = best_rate(&destinations, |batch, hops| fib.lookup_bulk(batch, hops));
        let one = best_rate(&destinations, |batch, hops| {
            for (destination, hop) in batch.iter().zip(hops) {
                *hop = fib.lookup(*destination, &mut NoTally).unwrap_or(NO_ROUTE);
            }
        });
        println!("IPv4   {count:>10} {rate:>9.1} {one:>9.1} {build:>9.3} {:>12}", fib.memory_bytes());
    }
    for count in [5, 1_000, 200_000, 1_000_000] {
        let routes = bgp_like6(count, 1);
        let destinations = destinations6(&routes, DESTINATIONS, 2);
        let begin = Instant::now();
        let fib = Fib6::new(&routes).expect("generated routes are within the limits");
        let build = begin.elapsed().as_secs_f64();
        let rate = best_rate(&destinations, |batch, hops| fib.lookup_bulk(batch, hops));
        let one = best_rate(&destinations, |batch, hops| {
            for (destination, hop) in batch.iter().zip(hops) {
                *hop = fib.lookup(*destination, &mut NoTally).unwrap_or(NO_ROUTE);
            }
        });
        println!("IPv6   {count:>10} {rate:>9.1} {one:>9.1} {build:>9.3} {:>12}", fib.memory_bytes());
    }
}

/// Millions of look-ups a second in the best round.
fn best_rate<A>(destinations: &[A], lookup: impl Fn(&[A], &mut [u32])) -> f64 {
    let mut hops = [0; BATCH];
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for batch in destinations.chunks(BATCH) {
            lookup(black_box(batch), &mut hops);
            black_box(&hops);
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    destinations.len() as f64 / best / 1e6
}
