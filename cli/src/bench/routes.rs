//! Route look-ups per second of one core, in tables that look like the Internet's.
//!
//! The tables and the destinations are made from a seed: the same counts give the same tables everywhere. Destinations are
//! random addresses inside random prefixes, handed over 64 at a time as the pipeline does. [`dump`] writes both to files,
//! so that a peer is measured on the very same input; [`Outcome::sum`] is equal if the peer found the same routes.

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lookup::fib::generate::{bgp_like4, bgp_like6, destinations4, destinations6};
use lookup::fib::{Fib4, Fib6, NO_ROUTE, Route4, Route6};

use super::in_memory::BenchError;
use crate::failure::{Failure, OutputError};

/// Result of the measurement of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// 4 or 6.
    pub(crate) family: u8,
    /// Prefixes in the table.
    pub(crate) prefixes: usize,
    /// Duration of building the table.
    pub(crate) build: Duration,
    /// Millions of look-ups a second, the median of the rounds.
    pub(crate) lookups: f64,
    /// Bytes that the table takes.
    pub(crate) memory: usize,
    /// The next hops of all destinations added up, none counting as zero.
    pub(crate) sum: u64,
}

/// Measures an IPv4 table of that many prefixes.
pub(crate) fn measure4(prefixes: usize) -> Result<Outcome, BenchError> {
    let routes = bgp_like4(prefixes, TABLE_SEED);
    let destinations = destinations4(&routes, DESTINATIONS, DESTINATION_SEED);
    let begin = Instant::now();
    let fib = Fib4::new(&routes).map_err(BenchError::Fib)?;
    let build = begin.elapsed();
    let (lookups, sum) = rate(&destinations, |batch, hops| fib.lookup_bulk(batch, hops));
    Ok(Outcome { family: 4, prefixes: routes.len(), build, lookups, memory: fib.memory_bytes(), sum })
}

/// Measures an IPv6 table of that many prefixes.
pub(crate) fn measure6(prefixes: usize) -> Result<Outcome, BenchError> {
    let routes = bgp_like6(prefixes, TABLE_SEED);
    let destinations = destinations6(&routes, DESTINATIONS, DESTINATION_SEED);
    let begin = Instant::now();
    let fib = Fib6::new(&routes).map_err(BenchError::Fib)?;
    let build = begin.elapsed();
    let (lookups, sum) = rate(&destinations, |batch, hops| fib.lookup_bulk(batch, hops));
    Ok(Outcome { family: 6, prefixes: routes.len(), build, lookups, memory: fib.memory_bytes(), sum })
}

/// Writes tables and destinations, as [`measure4`] and [`measure6`] use them, into files of `directory`. They
/// have no header; integers are little-endian.
///
/// | file | record |
/// |---|---|
/// | `v4-prefixes.bin` | address as a number (4 bytes), length (4), next hop (4) |
/// | `v4-destinations.bin` | address as a number (4) |
/// | `v6-prefixes.bin` | address in the order of the wire (16), length (4), next hop (4) |
/// | `v6-destinations.bin` | address in the order of the wire (16) |
pub(crate) fn dump(directory: &Path, prefixes4: usize, prefixes6: usize) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let routes = bgp_like4(prefixes4, TABLE_SEED);
    let destinations = destinations4(&routes, DESTINATIONS, DESTINATION_SEED);
    write(directory, "v4-prefixes.bin", routes.iter().flat_map(record4))?;
    write(directory, "v4-destinations.bin", destinations.iter().flat_map(|address| address.to_le_bytes()))?;
    let routes = bgp_like6(prefixes6, TABLE_SEED);
    let destinations = destinations6(&routes, DESTINATIONS, DESTINATION_SEED);
    write(directory, "v6-prefixes.bin", routes.iter().flat_map(record6))?;
    write(directory, "v6-destinations.bin", destinations.iter().flat_map(|address| address.to_be_bytes()))
}

/// The seed of the tables.
const TABLE_SEED: u64 = 1;

/// The seed of the destinations.
const DESTINATION_SEED: u64 = 2;

/// Number of destinations: 4 MiB of them, a million.
const DESTINATIONS: usize = 1 << 20;

/// Destinations handed over at once.
const BATCH: usize = 64;

/// Rounds, of which the median counts.
const ROUNDS: usize = 5;

/// Minimum duration of a round.
const ROUND: Duration = Duration::from_millis(100);

/// Millions of look-ups a second, and the sum of what was found.
fn rate<A>(destinations: &[A], lookup: impl Fn(&[A], &mut [u32])) -> (f64, u64) {
    let mut hops = [0; BATCH];
    let mut sum = 0;
    for batch in destinations.chunks_exact(BATCH) {
        lookup(batch, &mut hops);
        sum += hops.iter().filter(|hop| **hop != NO_ROUTE).map(|hop| u64::from(*hop)).sum::<u64>();
    }
    let mut round = || {
        let begin = Instant::now();
        let mut done = 0;
        while begin.elapsed() < ROUND {
            for batch in destinations.chunks_exact(BATCH) {
                lookup(black_box(batch), &mut hops);
                black_box(&hops);
            }
            done += destinations.len() / BATCH * BATCH;
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], sum)
}

fn failed(path: &Path, error: io::Error) -> OutputError {
    OutputError::Write { path: path.to_path_buf(), error }
}

fn record4(route: &Route4) -> Vec<u8> {
    [route.address, u32::from(route.length), route.value].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record6(route: &Route6) -> Vec<u8> {
    let mut record = route.address.to_be_bytes().to_vec();
    record.extend(u32::from(route.length).to_le_bytes());
    record.extend(route.value.to_le_bytes());
    record
}

fn write(directory: &Path, name: &str, bytes: impl Iterator<Item = u8>) -> Result<(), Failure> {
    let path = directory.join(name);
    Ok(fs::write(&path, bytes.collect::<Vec<u8>>()).map_err(|error| failed(&path, error))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dumped_is_what_is_measured() {
        let directory = std::env::temp_dir().join(format!("wirerate-dump-{}", std::process::id()));
        dump(&directory, 500, 300).unwrap();
        let read = |name: &str| fs::read(directory.join(name)).unwrap();
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let (prefixes, destinations) = (read("v4-prefixes.bin"), read("v4-destinations.bin"));
        assert_eq!(prefixes.len(), 500 * 12);
        assert_eq!(destinations.len(), DESTINATIONS * 4);
        // The longest prefix by a linear scan, over enough of the destinations to be quick.
        let scan = |address: u32| {
            let holds = |record: &&[u8]| {
                let (prefix, length) = (word(&record[..4]), word(&record[4..8]));
                (prefix ^ address).checked_shr(32 - length).unwrap_or(0) == 0
            };
            let best = prefixes.chunks(12).filter(holds).max_by_key(|record| word(&record[4..8]));
            best.map_or(0, |record| u64::from(word(&record[8..])))
        };
        let routes = bgp_like4(500, TABLE_SEED);
        let fib = Fib4::new(&routes).unwrap();
        for destination in destinations.chunks(4).take(2_000).map(word) {
            let mut hops = [0];
            fib.lookup_bulk(&[destination], &mut hops);
            assert_eq!(u64::from(hops[0]), scan(destination), "{destination:#x}");
        }
        let (prefixes, destinations) = (read("v6-prefixes.bin"), read("v6-destinations.bin"));
        assert_eq!(prefixes.len(), 300 * 24);
        assert_eq!(destinations.len(), DESTINATIONS * 16);
        // All of the Internet's IPv6 is in 2000::/3: the order of the bytes is the wire's.
        assert!(prefixes.chunks(24).all(|record| record[0] >> 5 == 1 && word(&record[16..20]) <= 128));
        assert!(destinations.chunks(16).all(|address| address[0] >> 5 == 1));
        fs::remove_dir_all(&directory).unwrap();
    }
}
