//! Cost of setting up, finding and removing flows: `cargo bench -p wirerate-dataplane --bench flow`.
//!
//! Keys are drawn at random, uniformly over all flows and both directions, in batches of 64 as a worker has them:
//! hash and ask for the bucket, ask for the flow, look up and note that it was seen. One core, full table.

use std::hint::black_box;
use std::time::Instant;

use dataplane::flow::{FlowTable, Key, Tick, Timeouts};
use tally::NoTally;
use wire::{BATCH, Nanos};

fn main() {
    println!(
        "{:>9} {:>14} {:>16} {:>16} {:>13}",
        "flows", "set up, M/s", "look-ups, M/s", "one by one, M/s", "removed, M/s"
    );
    for flows in [1_000u32, 100_000, 1_000_000] {
        let timeouts = Timeouts::new(|_| Nanos::from_secs(300));
        let Ok(mut table) = FlowTable::new(flows, [1, 2], timeouts, Nanos(0)) else {
            eprintln!("no memory for {flows} flows");
            continue;
        };
        // Twice, so that small tables are measured for longer and no measurement is the first to touch memory.
        let (mut set_up, mut removed) = (0.0, 0.0);
        for _ in 0..(2_000_000 / flows).max(2) {
            table.clear();
            let start = Instant::now();
            fill(&mut table, flows);
            set_up += start.elapsed().as_secs_f64();
            let start = Instant::now();
            let ids: Vec<_> = table.iter().map(|(id, _)| id).collect();
            for id in ids {
                table.remove(id, &mut NoTally);
            }
            removed += start.elapsed().as_secs_f64();
        }
        fill(&mut table, flows);
        let all = f64::from((2_000_000 / flows).max(2)) * f64::from(flows) / 1e6;
        let batches = 400_000;
        let start = Instant::now();
        let found = look_up_in_batches(&mut table, flows, batches);
        let in_batches = (batches * BATCH) as f64 / 1e6 / start.elapsed().as_secs_f64();
        assert_eq!(found, batches * BATCH);
        let start = Instant::now();
        let found = look_up_one_by_one(&mut table, flows, batches / 4 * BATCH);
        let one_by_one = found as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!(
            "{flows:>9} {:>14.1} {in_batches:>16.1} {one_by_one:>16.1} {:>13.1}",
            all / set_up,
            all / removed
        );
    }
}

fn key(number: u32) -> Key {
    Key::v4(0x0a00_0000 | number, 0xc633_6407, (number >> 3) as u16, 443, 17)
}

/// As after NAPT: the answers come to one address, told apart by port and host.
fn reply(number: u32) -> Key {
    Key::v4(0xc633_6400 | number >> 16, 0xcb00_7101, 443, number as u16, 17)
}

fn fill(table: &mut FlowTable, flows: u32) {
    for first in (0..flows).step_by(BATCH) {
        let numbers = first..flows.min(first + BATCH as u32);
        let mut hashes = [0; BATCH];
        for (hash, number) in hashes.iter_mut().zip(numbers.clone()) {
            *hash = table.hash(&key(number), &mut NoTally);
            table.prefetch_bucket(*hash);
            table.prefetch_bucket(table.hash(&reply(number), &mut NoTally));
        }
        for (hash, number) in hashes.iter().zip(numbers) {
            let id = table.insert(&key(number), *hash, Tick(0), &mut NoTally);
            let _ = black_box(id.map(|id| {
                let reply = reply(number);
                table.set_reply(id, &reply, table.hash(&reply, &mut NoTally), &mut NoTally)
            }));
        }
    }
}

fn look_up_in_batches(table: &mut FlowTable, flows: u32, batches: usize) -> usize {
    let mut random = Random(88_172_645_463_325_252);
    let mut found = 0;
    for tick in 0..batches as u32 {
        let mut keys = [Key::default(); BATCH];
        let mut hashes = [0; BATCH];
        for (key, hash) in keys.iter_mut().zip(&mut hashes) {
            *key = random.key(flows);
            *hash = table.hash(key, &mut NoTally);
            table.prefetch_bucket(*hash);
        }
        let mut guesses = [None; BATCH];
        for (hash, guess) in hashes.iter().zip(&mut guesses) {
            *guess = table.candidate_hit(*hash);
            if let Some(hit) = guess {
                table.prefetch_flow(hit.id);
            }
        }
        for ((key, hash), guess) in keys.iter().zip(&hashes).zip(&guesses) {
            if let Some(hit) = table.find_from(*guess, key, *hash, &mut NoTally) {
                if let Some(flow) = table.flow_mut(hit.id) {
                    flow.seen = tick;
                    found += 1;
                }
            }
        }
    }
    found
}

fn look_up_one_by_one(table: &mut FlowTable, flows: u32, count: usize) -> usize {
    let mut random = Random(88_172_645_463_325_252);
    let mut found = 0;
    for tick in 0..count as u32 {
        let key = random.key(flows);
        let hash = table.hash(&key, &mut NoTally);
        if let Some(hit) = table.find(&key, hash, &mut NoTally) {
            if let Some(flow) = table.flow_mut(hit.id) {
                flow.seen = tick;
                found += 1;
            }
        }
    }
    found
}

/// Marsaglia's xorshift: cheap next to what is measured.
struct Random(u64);

impl Random {
    fn key(&mut self, flows: u32) -> Key {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = ((self.0 >> 32) * u64::from(flows)) >> 32;
        if self.0 & 1 == 0 { key(number as u32) } else { reply(number as u32) }
    }
}
