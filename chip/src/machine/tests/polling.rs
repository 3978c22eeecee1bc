//! Tests of receivers that poll.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Same, chip, drawing, line, pool, read, run, task};
use crate::kernel::Ticks;
use crate::machine::{Ideal, Machine, Window};
use crate::mapping::{Exit, Mapping, Place, Ring, Who, Work};
use crate::trace::{Act, Wait};

/// A thread that draws its work, behind idle receivers on its engine, each of which polls by so many instructions.
fn beside(pollers: &[u32]) -> Mapping {
    let mut mapping = drawing(1, 1, Place::Shared(0));
    let drawn = mapping.pools.pop();
    for poll in pollers {
        let exit = vec![Exit { who: Who::All, ring: 0 }];
        let mut receive = pool("receive", vec![0], 1, task(Work::Receive(0..0), None, exit));
        receive.poll = Some(*poll);
        mapping.pools.push(receive);
    }
    mapping.pools.extend(drawn);
    mapping.rings = vec![Ring { name: "in".into(), kind: 0, entries: 4, order: None }];
    mapping
}

fn drawn(mapping: &Mapping, frames: u32, acts: &[Act]) -> Window {
    let chip = chip();
    let mut machine = Machine::new(&chip, mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Same { left: frames, acts: acts.to_vec(), at: 0, every: 0 }, 0).unwrap()
}

#[test]
fn who_is_ready_waits_for_the_look_under_way_and_those_before_its_turn() {
    let acts = [run(9), read(Wait::Now)];
    assert_eq!(drawn(&beside(&[]), 1_000, &acts).span, Ticks(60_000));
    let window = drawn(&beside(&[7, 7, 7]), 1_000, &acts);
    // While a reference takes 50 cycles there are seven looks, and an eighth is under way, the second thread's; the third one's is before
    // the turn of who waits. The first turn of all is behind three looks.
    assert_eq!(window.span, Ticks(21 + 1_000 * (10 + 63)));
    let engine = window.engines[0];
    assert_eq!((engine.executing, engine.polling), (Ticks(10_000), Ticks(21 + 63_000)));
    assert_eq!(window.instructions, 10_000, "looks are no work");
}

#[test]
fn a_receiver_finds_a_frame_within_a_look() {
    let window = |poll, threads| {
        let mut mapping = line(1, 8);
        mapping.pools[0].poll = poll;
        mapping.pools[0].place =
            pool("receive", vec![0], threads, task(Work::Transmit, None, Vec::new())).place;
        let chip = chip();
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: 2_000, acts: vec![run(100)], at: 0, every: 201 }, 0).unwrap()
    };
    let waiting = window(None, 1);
    assert_eq!(waiting.latency.min(), waiting.latency.max());
    assert_eq!(waiting.engines[0].polling, Ticks(0));
    let polling = window(Some(10), 1);
    let later = |latency: u64| latency - waiting.latency.min();
    assert!(later(polling.latency.max()) > 0 && later(polling.latency.max()) < 10);
    // Of four, one works at a time, and the others take all the time that it leaves, but for the last look.
    let engine = window(Some(10), 4).engines[0];
    let span = window(Some(10), 4).span;
    let spent = engine.executing + engine.aborted + engine.stalled + engine.polling;
    assert!(spent >= span && spent.since(span) < Ticks(10), "{spent:?} of {span:?}");
    assert_eq!(window(Some(10), 4).engines[1].polling, Ticks(0), "no receiver is there");
}

#[test]
fn looks_that_take_no_time_are_none() {
    let mut mapping = line(1, 8);
    mapping.pools[0].poll = Some(10);
    let chip = chip();
    let mut machine = Machine::new(&chip, &mapping, Ideal::Pool(0)).unwrap();
    let window = machine.run(&mut Same { left: 100, acts: vec![run(100)], at: 0, every: 200 }, 0).unwrap();
    assert_eq!((window.delivered.frames, window.engines[0].polling), (100, Ticks(0)));
}

/// The end of a thread's work, turn by turn: it runs for `bursts`, each of which ends with a wait of 50 cycles.
fn turn_by_turn(pollers: &[u32], bursts: &[u32], frames: u32) -> u64 {
    let (mut clock, mut place, mut ready) = (0_u64, pollers.len(), 0_u64);
    // It goes on with the next frame in its turn, so that what is behind the last wait of a frame belongs to the next one's first burst.
    for burst in std::iter::repeat_n(bursts, frames as usize).flatten() {
        loop {
            place = (place + 1) % (pollers.len() + 1);
            if let Some(look) = pollers.get(place) {
                clock += u64::from(*look);
            } else if ready <= clock {
                break;
            } else if pollers.is_empty() {
                clock = ready;
                break;
            }
        }
        clock += u64::from(*burst);
        ready = clock + 50;
    }
    // The last wait is over in its turn.
    loop {
        place = (place + 1) % (pollers.len() + 1);
        match pollers.get(place) {
            Some(look) => clock += u64::from(*look),
            None if ready <= clock || pollers.is_empty() => return clock.max(ready),
            None => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever looks take, reckoned all at once they are what they are turn by turn.
    #[test]
    fn looks_are_reckoned_as_they_are_taken(
        pollers in vec(1_u32..40, 0..6),
        bursts in vec(1_u32..80, 1..8),
        frames in 1_u32..20,
    ) {
        let acts: Vec<Act> = bursts.iter().flat_map(|burst| [run(burst - 1), read(Wait::Now)]).collect();
        let window = drawn(&beside(&pollers), frames, &acts);
        prop_assert_eq!(window.span.0, turn_by_turn(&pollers, &bursts, frames));
        let work = u64::from(frames) * bursts.iter().map(|burst| u64::from(*burst)).sum::<u64>();
        prop_assert_eq!(window.engines[0].executing.0, work);
        if !pollers.is_empty() {
            prop_assert_eq!(window.engines[0].polling.0, window.span.0 - work);
        }
    }
}
