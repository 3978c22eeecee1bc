//! Nanoseconds that a packet takes to be sealed and opened, by suite, library and length: what the choice of libraries stands on.
//!
//! `libraries [SUITE [AUTH]]` measures packets that lie within the first cache, 16, 8, 4 and 2 together and one alone, and prints the least
//! of many rounds. Without a suite, those that gateways use.
#![allow(missing_docs, clippy::unwrap_used)] // A failure here is the programmer's.

use std::env;
use std::hint::black_box;
use std::time::Instant;

use esp::{Forged, Keys, Packet, SPARE, Transform, expand_by_each};
use wire::esp::{Direction, Esn, HEADER_LEN, Secret, Suite};

/// Bytes of text: what IP packets of 40, 50, 64, 86, 134, 242, 498, 1,000 and 1,406 bytes become.
const LENGTHS: [usize; 9] = [48, 52, 68, 88, 136, 244, 500, 1_004, 1_408];

/// Packets that are worked on together, at most.
const TOGETHER: usize = 16;

/// Packets that are worked on together.
const COUNTS: [usize; 5] = [TOGETHER, 8, 4, 2, 1];

/// Rounds of so many turns.
const ROUNDS: usize = 30;
const TURNS: usize = 200;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let named = |name: &str, auth: Option<&str>| Suite::named(name, auth).expect("no such suite");
    let suites = match arguments.as_slice() {
        [] => vec![
            named("aes128-gcm", None),
            named("aes256-gcm", None),
            named("chacha20-poly1305", None),
            named("aes128-cbc", Some("hmac-sha1-96")),
            named("aes128-cbc", Some("hmac-sha256-128")),
            named("aes256-cbc", Some("hmac-sha512-256")),
            named("aes128-gmac", None),
        ],
        [name] => vec![named(name, None)],
        [name, auth, ..] => vec![named(name, Some(auth))],
    };
    println!("suite, library, bytes of text: ns to seal one of 16, 8, 4, 2 together, alone; to open it");
    for suite in suites {
        let key = |len: u8| Secret::new((0..len).map(|at| at.wrapping_mul(37)).collect());
        let keys = Keys { cipher: key(suite.key + suite.salt), auth: key(suite.auth_key) };
        let seals = expand_by_each(suite, &keys, Direction::Out).unwrap();
        let opens = expand_by_each(suite, &keys, Direction::In).unwrap();
        for (seal, open) in seals.iter().zip(&opens) {
            for len in LENGTHS {
                let len = len.next_multiple_of(suite.align.into());
                let sealed = COUNTS.map(|count| sealing(&**seal, len, count));
                let opened = COUNTS.map(|count| opening(&**seal, &**open, len, count));
                let row = |all: [f64; COUNTS.len()]| all.map(|ns| format!("{ns:.0}")).join(", ");
                let (sealed, opened) = (row(sealed), row(opened));
                println!("{}, {}, {len}: {sealed}; {opened}", suite.name(), seal.library(len));
            }
        }
    }
}

fn packets(suite: &Suite, text: usize) -> Vec<Vec<u8>> {
    let len = SPARE + HEADER_LEN + usize::from(suite.iv) + text + usize::from(suite.icv);
    vec![vec![0x5a; len]; TOGETHER]
}

/// Nanoseconds of a packet to be sealed, `count` together.
fn sealing(seal: &dyn Transform, len: usize, count: usize) -> f64 {
    let mut bytes = packets(seal.suite(), len);
    least(|| {
        let started = Instant::now();
        for turn in 0..TURNS {
            for group in bytes.chunks_mut(count) {
                seal_group(seal, group, turn as u64);
            }
        }
        started.elapsed().as_nanos() as f64 / (TURNS * TOGETHER) as f64
    })
}

fn seal_group(seal: &dyn Transform, group: &mut [Vec<u8>], number: u64) {
    let mut packets: [Packet<'_>; TOGETHER] = std::array::from_fn(|_| Packet::default());
    let count = group.len();
    for (packet, bytes) in packets.iter_mut().zip(group) {
        *packet = Packet { bytes, number, esn: Esn::Off };
    }
    seal.seal_many(black_box(&mut packets[..count]));
}

/// Nanoseconds of a packet to be opened, `count` together, with a copy of it before.
fn opening(seal: &dyn Transform, open: &dyn Transform, len: usize, count: usize) -> f64 {
    let mut sealed = packets(seal.suite(), len);
    seal_group(seal, &mut sealed, 1);
    let mut bytes = sealed.clone();
    let copying = least(|| {
        let started = Instant::now();
        for _ in 0..TURNS {
            copy(black_box(&mut bytes), &sealed);
        }
        started.elapsed().as_nanos() as f64 / (TURNS * TOGETHER) as f64
    });
    let with_copying = least(|| {
        let started = Instant::now();
        for _ in 0..TURNS {
            copy(black_box(&mut bytes), &sealed);
            for group in bytes.chunks_mut(count) {
                open_group(open, group);
            }
        }
        started.elapsed().as_nanos() as f64 / (TURNS * TOGETHER) as f64
    });
    with_copying - copying
}

fn copy(to: &mut [Vec<u8>], from: &[Vec<u8>]) {
    to.iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from));
}

fn open_group(open: &dyn Transform, group: &mut [Vec<u8>]) {
    let mut packets: [Packet<'_>; TOGETHER] = std::array::from_fn(|_| Packet::default());
    let count = group.len();
    for (packet, bytes) in packets.iter_mut().zip(group) {
        *packet = Packet { bytes, number: 1, esn: Esn::Off };
    }
    let mut outcomes = [Err(Forged); TOGETHER];
    open.open_many(black_box(&mut packets[..count]), &mut outcomes[..count]);
    assert!(outcomes[..count].iter().all(Result::is_ok));
}

fn least(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}
