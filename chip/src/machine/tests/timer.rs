//! Tests of timers.

use wire::Nanos;

use super::{Same, chip, drawing, line, read, run};
use crate::kernel::Ticks;
use crate::machine::{Ideal, Machine, Window};
use crate::mapping::{Extra, Mapping, Place, Timer};
use crate::trace::{Access, Wait};

/// A timer of an engine, that wakes every so many ticks: they take 10 ns.
fn timer(number: u32, every: u64, instructions: u32, references: u32) -> Timer {
    let work = Extra { instructions, references, access: Access::Write, bytes: 4, memory: 0 };
    Timer { name: "clock".into(), engine: 0, number, every: Nanos(every * 10), work }
}

fn ran(mapping: &Mapping, frames: u32, every: u64) -> Window {
    let chip = chip();
    let mut machine = Machine::new(&chip, mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Same { left: frames, acts: vec![run(100)], at: 0, every }, 0).unwrap()
}

#[test]
fn a_timer_wakes_at_its_interval_until_all_frames_have_left() {
    let mut mapping = line(1, 8);
    let without = ran(&mapping, 500, 200);
    mapping.timers = vec![timer(3, 1_000, 30, 2)];
    let with = ran(&mapping, 500, 200);
    assert_eq!(with.delivered, without.delivered);
    assert_eq!((with.latency.min(), with.latency.max()), (without.latency.min(), without.latency.max()));
    assert!(with.span <= without.span, "{:?} {:?}", with.span, without.span);
    let times = with.span.0 / 1_000;
    let traffic = with.memories[0].timers;
    assert_eq!((traffic.references, traffic.bytes), (2 * times, 8 * times));
    // Each reference is issued by an instruction.
    assert_eq!(with.engines[3].instructions, 32 * times);
    assert_eq!(without.memories[0].timers.references, 0);
}

#[test]
fn a_timer_takes_turns_with_the_threads_of_its_engine_and_contends_for_memory() {
    let spans = |timers: Vec<Timer>| {
        let mut mapping = drawing(1, 1, Place::Shared(0));
        mapping.timers = timers;
        let chip = chip();
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        let acts = vec![run(9), read(Wait::Now)];
        machine.run(&mut Same { left: 1_000, acts, at: 0, every: 0 }, 0).unwrap().span
    };
    assert_eq!(spans(Vec::new()), Ticks(60_000));
    // It wakes first as the thread is ready, which it holds up once. From then on it has the engine while the thread waits.
    assert_eq!(spans(vec![timer(0, 60, 40, 0)]), Ticks(60_040));
    assert!(spans(vec![timer(0, 60, 55, 0)]) > Ticks(64_000));
    // On another engine, its references are in the way of the thread's.
    assert!(spans(vec![timer(1, 71, 0, 2)]) > Ticks(60_000));
}

#[test]
fn a_time_that_comes_while_a_timer_is_at_work_is_left_out() {
    let mut mapping = line(1, 8);
    mapping.timers = vec![timer(3, 10, 25, 0)];
    let window = ran(&mapping, 100, 200);
    // It wakes at the third time each.
    let times = window.span.0 / 30;
    assert!(window.engines[3].instructions.abs_diff(25 * times) <= 25, "{:?}", window.engines[3]);
}

#[test]
fn a_deadlock_is_found_whatever_timers_do() {
    let mut mapping = line(1, 1);
    // Who takes frames puts them back into the ring that they came from.
    mapping.pools[1].tasks[0].to[0].ring = 0;
    mapping.timers = vec![timer(3, 50, 10, 1)];
    let chip = chip();
    let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
    let load = &mut Same { left: 50, acts: vec![run(1)], at: 0, every: 1 };
    assert!(machine.run(load, 0).is_err());
}
