//! Tests of the order in which frames of a flow leave, and of the unit that restores it.

use proptest::prelude::*;

use super::{chip, line, pool, run, task};
use crate::clock::Cycles;
use crate::description::{Chip, FrameAccess, Tickets, Unit, UnitWork};
use crate::kernel::Ticks;
use crate::load::{Arrival, Handling, Job, Length, Load, Output};
use crate::machine::{Ideal, Machine, Window};
use crate::mapping::{Exit, Mapping, PoolPlace, Ring, Who, Work};

/// Frame of uneven work.
#[derive(Clone, Debug)]
struct Uneven {
    /// Time since the one before.
    after: u64,
    flow: u32,
    bytes: u32,
    instructions: u32,
    handling: Handling,
    /// Sizes of the frames that leave because of it.
    outputs: Vec<u32>,
}

/// Frames of even flows come and leave by the first port, those of odd flows by the second.
struct Coming<'a> {
    frames: std::slice::Iter<'a, Uneven>,
    at: u64,
    current: Option<&'a Uneven>,
    /// Frames taken in, and those among them that nothing leaves for.
    taken: u64,
    ended: u64,
    due: u64,
}

impl<'a> Coming<'a> {
    fn new(frames: &'a [Uneven]) -> Coming<'a> {
        Coming { frames: frames.iter(), at: 0, current: None, taken: 0, ended: 0, due: 0 }
    }
}

impl Load for Coming<'_> {
    fn next(&mut self) -> Option<Arrival> {
        let frame = self.frames.next()?;
        self.current = Some(frame);
        self.at += frame.after;
        Some(Arrival { at: Ticks(self.at), port: (frame.flow % 2) as u16, length: Length::of(frame.bytes) })
    }

    fn accept(&mut self, job: &mut Job) {
        let Some(Uneven { flow, instructions, handling, outputs, .. }) = self.current else { return };
        job.acts.push(run(*instructions));
        job.marks.extend([0, 1]);
        let output =
            |bytes: &u32| Output { port: (flow % 2) as u16, length: Length::of(*bytes), flow: *flow };
        job.outputs.extend(outputs.iter().map(output));
        (job.flow, job.handling) = (*flow, *handling);
        self.taken += 1;
        self.ended += u64::from(outputs.is_empty());
        self.due += outputs.len() as u64;
    }
}

/// Frames by turns of much work and of little, of two flows, one frame in `ending` of which ends within.
fn alternating(ending: u32) -> Vec<Uneven> {
    let frame = |number: u32| Uneven {
        after: 150,
        flow: number / 2 % 2,
        bytes: 64,
        instructions: [400, 20][number as usize % 2],
        handling: Handling::Plain,
        outputs: if number % ending == ending - 1 { Vec::new() } else { vec![64] },
    };
    (0..400).map(frame).collect()
}

/// The toy chip with two ports and a reorder buffer.
fn ordering(entries: u32, contexts: u32) -> Chip {
    let mut chip = chip();
    chip.ports.0[0].count = 2;
    chip.units = vec![Unit {
        name: "order".into(),
        work: UnitWork::Order,
        count: 1,
        interval: Cycles(2),
        per_word: 0,
        latency: Cycles(10),
        frames: FrameAccess::Memory,
        lists: None,
        tickets: Some(Tickets { entries, contexts }),
    }];
    chip
}

/// Stages on two engines with so many threads, before a ring that is in order or not.
fn mapping(threads: u32, order: Option<usize>) -> Mapping {
    let mut mapping = line(threads, 64);
    mapping.pools[1].place = PoolPlace::Engines { kind: 0, numbers: vec![1, 3], threads };
    mapping.rings[1].order = order;
    mapping
}

fn window(chip: &Chip, mapping: &Mapping, frames: &[Uneven]) -> Window {
    let mut load = Coming::new(frames);
    let seen = Machine::new(chip, mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    assert_eq!((seen.offered.frames, seen.ended.frames), (frames.len() as u64, load.ended));
    assert_eq!((seen.delivered.frames, load.taken + seen.lost), (load.due, frames.len() as u64));
    seen
}

#[test]
fn engines_that_work_side_by_side_reorder_what_is_uneven() {
    let chip = ordering(64, 1);
    let seen = window(&chip, &mapping(1, None), &alternating(u32::MAX));
    assert_eq!((seen.lost, seen.delivered.frames), (0, 400));
    assert!(seen.reordered > 50, "{}", seen.reordered);
    // Those of equal work leave as they came.
    let mut even = alternating(u32::MAX);
    even.iter_mut().for_each(|frame| frame.instructions = 200);
    assert_eq!(window(&chip, &mapping(1, None), &even).reordered, 0);
}

#[test]
fn frames_of_flows_of_their_own_are_not_reordered() {
    let mut frames = alternating(u32::MAX);
    frames.iter_mut().zip(0..).for_each(|(frame, number)| frame.flow = number);
    assert_eq!(window(&ordering(64, 1), &mapping(1, None), &frames).reordered, 0);
}

#[test]
fn a_reorder_buffer_restores_the_order_and_costs_the_wait_for_it() {
    let frames = alternating(u32::MAX);
    let free = window(&ordering(64, 1), &mapping(1, None), &frames);
    let ordered = window(&ordering(64, 1), &mapping(1, Some(0)), &frames);
    assert_eq!((ordered.reordered, ordered.lost, ordered.delivered.frames), (0, 0, 400));
    // Each ticket takes the unit for two cycles, and the last frame waits for the one before it.
    assert_eq!(ordered.units, [Ticks(400 * 2)]);
    let longer = ordered.span.0 - free.span.0;
    assert!(longer < 1_000, "{longer}");
    assert!(ordered.latency.value_at_quantile(0.5) > free.latency.value_at_quantile(0.5));
}

#[test]
fn tickets_of_frames_that_go_no_further_come_back() {
    for ending in [2, 3, 7, 1] {
        // No more places than threads: a ticket that is kept stops all.
        let seen = window(&ordering(2, 1), &mapping(1, Some(0)), &alternating(ending));
        assert_eq!(seen.reordered, 0);
    }
}

#[test]
fn without_a_place_frames_wait_in_their_macs_and_are_lost_there() {
    let mut frames = alternating(u32::MAX);
    frames.iter_mut().for_each(|frame| frame.after = 250);
    assert_eq!(window(&ordering(64, 1), &mapping(1, Some(0)), &frames).lost, 0);
    // One place: a frame after the other, from its first element to its release.
    let seen = window(&ordering(1, 1), &mapping(1, Some(0)), &frames);
    assert!(seen.lost > 50 && seen.reordered == 0, "{} lost", seen.lost);
    // Never full, were the unit infinitely fast.
    let ideal = Machine::new(&ordering(1, 1), &mapping(1, Some(0)), Ideal::Unit(0))
        .unwrap()
        .run(&mut Coming::new(&frames), 0)
        .unwrap();
    assert_eq!((ideal.lost, ideal.reordered), (0, 0));
}

#[test]
fn contexts_do_not_wait_for_one_another() {
    // Flow 0 takes long, flow 1 does not, and each keeps its order.
    let mut frames = alternating(u32::MAX);
    frames.iter_mut().zip(0_u32..).for_each(|(frame, number)| {
        (frame.flow, frame.instructions) = (number % 2, [250, 20][number as usize % 2]);
    });
    let median = |contexts| {
        let seen = window(&ordering(64, contexts), &mapping(1, Some(0)), &frames);
        assert_eq!((seen.lost, seen.reordered), (0, 0));
        seen.latency.value_at_quantile(0.25)
    };
    assert!(median(2) + 50 < median(1), "{} {}", median(2), median(1));
}

/// Exceptions by a control engine, which puts them into the ring in order.
fn parted(threads: u32) -> Mapping {
    let mut mapping = mapping(threads, Some(0));
    mapping.pools[1].tasks[0].to =
        vec![Exit { who: Who::Exception, ring: 2 }, Exit { who: Who::Rest, ring: 1 }];
    let handle = task(Work::Stages(1..2), Some(2), vec![Exit { who: Who::All, ring: 1 }]);
    mapping.pools.push(pool("control", vec![0], 0, handle));
    mapping.pools[3].place = PoolPlace::Engines { kind: 0, numbers: vec![3], threads: 1 };
    mapping.rings.push(Ring { name: "exceptions".into(), kind: 0, entries: 4, order: None });
    mapping
}

#[test]
fn frames_that_take_another_path_return_their_tickets() {
    let mut frames = alternating(5);
    for frame in frames.iter_mut().step_by(3) {
        frame.handling = Handling::Exception;
    }
    assert_eq!(window(&ordering(4, 1), &parted(1), &frames).reordered, 0);
    // By a ring and a pool that are in no order with the others.
    let mut mapping = parted(1);
    mapping.pools[3].tasks[0].to[0].ring = 3;
    mapping.pools.push(pool("slow", vec![2], 1, task(Work::Transmit, Some(3), Vec::new())));
    mapping.rings.push(Ring { name: "handled".into(), kind: 0, entries: 4, order: None });
    assert!(window(&ordering(4, 1), &mapping, &frames).delivered.frames > 300);
}

#[test]
fn what_waits_in_a_reorder_buffer_is_told_of_a_deadlock() {
    // Exceptions pass a pool that does both halves of its work over rings of one entry: its threads come to wait for themselves.
    let mut mapping = parted(4);
    let first = task(Work::Stages(0..1), Some(2), vec![Exit { who: Who::All, ring: 3 }]);
    let second = task(Work::Stages(1..1), Some(3), vec![Exit { who: Who::All, ring: 1 }]);
    mapping.pools[1].tasks[0].work = Work::Stages(0..0);
    mapping.pools[3].place = PoolPlace::Engines { kind: 0, numbers: vec![3], threads: 2 };
    mapping.pools[3].tasks = vec![second, first];
    mapping.rings.push(Ring { name: "between".into(), kind: 0, entries: 1, order: None });
    let mut frames = alternating(u32::MAX);
    frames.iter_mut().for_each(|frame| (frame.after, frame.instructions) = (70, 1));
    for frame in frames.iter_mut().take(6) {
        (frame.handling, frame.instructions) = (Handling::Exception, 500);
    }
    let chip = ordering(64, 1);
    let run = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut Coming::new(&frames), 0);
    let text = run.map(|seen| seen.delivered).unwrap_err().to_string();
    assert!(text.contains("for room in the ring `between`"), "{text}");
    assert!(text.contains("frames in the unit `order` wait for one received before"), "{text}");
}

fn uneven() -> impl Strategy<Value = Vec<Uneven>> {
    let size = prop_oneof![Just(64_u32), 1_u32..300, Just(1_518)];
    let handling = prop_oneof![4 => Just(Handling::Plain), 1 => Just(Handling::Exception)];
    let outputs = prop::collection::vec(size.clone(), 0..3);
    let frame = (0_u64..600, 0_u32..5, size, 1_u32..900, handling, outputs).prop_map(
        |(after, flow, bytes, instructions, handling, outputs)| Uneven {
            after,
            flow,
            bytes,
            instructions,
            handling,
            outputs,
        },
    );
    prop::collection::vec(frame, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes, in whatever buffers: frames of a flow leave in their order, all that is taken in leaves or ends, and every ticket
    /// comes back.
    #[test]
    fn flows_keep_their_order_through_a_reorder_buffer(
        frames in uneven(),
        places in (1_u32..9, 1_u32..5),
        elements in (1_u32..6, 1_u32..6),
        threads in 1_u32..4,
        entries in 1_u32..6,
        is_parted in any::<bool>(),
    ) {
        let mut chip = ordering(places.0, places.1);
        (chip.receive.elements, chip.transmit.elements) = elements;
        let mut mapping = if is_parted { parted(threads) } else { mapping(threads, Some(0)) };
        mapping.rings.iter_mut().for_each(|ring| ring.entries = entries);
        let mut load = Coming::new(&frames);
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        let seen = machine.run(&mut load, 0).unwrap();
        prop_assert_eq!(seen.reordered, 0);
        prop_assert_eq!((seen.delivered.frames, seen.ended.frames), (load.due, load.ended));
        prop_assert_eq!(load.taken + seen.lost, frames.len() as u64);
        prop_assert!(machine.is_in_order_at_rest());
    }
}
