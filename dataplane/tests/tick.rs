//! The effect that RENA-CHIP's authors measured (section 3.2 of their paper): a shaper that is driven by a timer of 1/2048 s, and sends a
//! packet of 242 bytes at each tick, reaches 3.96 Mbit/s and no more; one that is driven by the moments of packets has no such limit.

use dataplane::Replay;
use dataplane::egress::Next;
use dataplane::replay::Way;
use wire::{Nanos, PortId};

use crate::queues::{Packet, SECOND, START, tables};

const BYTES: usize = 242;

/// Moments of departure within a second: the host offers an opportunity to send at the moments that `next_opportunity` gives, from the
/// present one and the moment that the shaper asks for.
fn departures(rate: u64, next_opportunity: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let queues = format!(
        "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"{rate} bit/s\"\noverhead = \"ip\"\nlimit = 16000\n[limit]\nqueue = 16384\n"
    );
    let mut replay = Replay::new(tables(&queues), Nanos(START), Way::Run).expect("memory");
    for number in 0..14_000 {
        replay.receive(PortId(0), Nanos(START), number, &Packet::of(0, 46, BYTES).frame(), &mut ());
    }
    replay.pass(&mut ());
    let (mut now, mut all) = (0, Vec::new());
    while now < SECOND {
        let asked = match replay.shard.next(PortId(1), Nanos(START + now)) {
            Next::Frame(_, at) => {
                // It goes when the host hands it over, however early it was due.
                assert!(at.0 - START <= now);
                all.push(now);
                now
            }
            Next::Wait(at) => at.0 - START,
            Next::Dropped(..) | Next::Empty => panic!("14,000 packets are more than a second's"),
        };
        now = next_opportunity(now, asked);
    }
    all
}

/// Moment of a tick.
fn tick(number: u64) -> u64 {
    number * SECOND / 2_048
}

#[test]
fn a_timer_of_2048_hz_shapes_up_to_3_96_mbit() {
    let exact_limit = (BYTES * 8 * 2_048) as u64;
    assert_eq!(exact_limit, 3_964_928);
    println!("rate asked    by ticks of 1/2048 s    by moments   (Mbit/s; packets of {BYTES} bytes)");
    for rate in [1_000_000, 3_000_000, exact_limit, 6_000_000, 12_000_000, 25_000_000] {
        // One packet at each tick, at most: whatever is due waits for the next.
        let by_ticks = departures(rate, |now, _| {
            let mut number = now * 2_048 / SECOND;
            while tick(number) <= now {
                number += 1;
            }
            tick(number)
        });
        let by_moments = departures(rate, |_, asked| asked);
        let mbit = |all: &[u64]| (all.len() * BYTES * 8) as f64 / 1e6;
        println!("{:>10.3} {:>22.3} {:>14.3}", rate as f64 / 1e6, mbit(&by_ticks), mbit(&by_moments));
        // One packet more or less, and the rounding of that.
        let packet = 1.01 * (BYTES * 8) as f64 / 1e6;
        let due = rate as f64 / 1e6;
        assert!((mbit(&by_moments) - due).abs() <= packet, "{rate}");
        assert!((mbit(&by_ticks) - due.min(exact_limit as f64 / 1e6)).abs() <= packet, "{rate}");
        // To the nanosecond.
        for (number, at) in (0_u64..).zip(&by_moments) {
            let due = u128::from(number) * (BYTES as u128 * 8 * 1_000_000_000) / u128::from(rate);
            assert!(u128::from(*at).abs_diff(due) <= 1, "{rate}: {number} at {at}");
        }
    }
}
