//! Tests of linked lists of segments: references for a frame, reckoned by hand, and their conservation.

use tally::Region;
use wire::Bytes;

use super::{chip, line, run};
use crate::clock::Cycles;
use crate::description::{Chip, DataPins, FrameAccess, Lists, Memory, Unit, UnitWork};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load, Output, Standing};
use crate::machine::{Ideal, Machine, Window};
use crate::mapping::{Mapping, Place, PoolPlace};

/// Frames of 300 bytes that leave with 200, or do not leave at all.
struct Shorter {
    left: u32,
    every: u64,
    at: u64,
    flows: u32,
    outputs: usize,
    /// Instructions of the stage.
    cost: u32,
}

impl Load for Shorter {
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        self.at += self.every;
        Some(Arrival { at: Ticks(self.at), port: 0, length: Length::of(300) })
    }

    fn accept(&mut self, job: &mut Job) {
        job.acts.push(run(self.cost));
        job.marks.extend([0, 1]);
        job.outputs
            .extend(std::iter::repeat_n(Output { port: 0, length: Length::of(200), flow: 0 }, self.outputs));
        job.standing = Standing::Known;
        job.flow = self.left % self.flows;
    }
}

/// The toy chip with a manager of segments of 64 bytes, of which each takes it `interval` cycles. Frames lie in the second memory.
fn managed(interval: u64) -> (Chip, Mapping) {
    let (mut chip, mut mapping) = (chip(), line(2, 16));
    let dram =
        Memory { name: "dram".into(), pins: DataPins::Shared, width: Bytes(8), ..chip.memories[0].clone() };
    chip.memories.push(dram);
    let lists =
        Lists { segment: Bytes(64), segments: 4_096, queues: 1_024, pointers: chip.memories[0].name.clone() };
    let unit = |name: &str, work, lists| Unit {
        name: name.into(),
        work,
        count: 1,
        interval: Cycles(interval),
        per_word: 0,
        latency: Cycles(0),
        frames: FrameAccess::Memory,
        lists,
        tickets: None,
    };
    chip.units = vec![unit("manager", UnitWork::List, Some(lists)), unit("module", UnitWork::Stage, None)];
    chip.rings[0].lists = Some("manager".into());
    let frames = mapping.placements.iter_mut().filter(|placement| placement.region == Region::Frame);
    frames.for_each(|placement| placement.place = Place::Shared(1));
    (chip, mapping)
}

/// References and bytes of pointers and of frames, for each frame, and the window; nothing is left in any queue.
fn played((chip, mapping): &(Chip, Mapping), mut load: Shorter) -> ([u64; 4], Window) {
    let frames = u64::from(load.left);
    let mut machine = Machine::new(chip, mapping, Ideal::Nothing).unwrap();
    let seen = machine.run(&mut load, 0).unwrap();
    assert_eq!(seen.lost, 0);
    assert!(
        !machine.queued.is_empty() && machine.queued.values().all(|held| *held == 0),
        "{:?}",
        machine.queued
    );
    let (lists, data) = (seen.memories[0].lists, seen.memories[1].regions[Region::Frame as usize]);
    assert_eq!(seen.memories[1].lists.references + seen.memories[0].rings.references, 0);
    let all = [lists.references, lists.bytes, data.references, data.bytes];
    (all.map(|sum| if sum % frames == 0 { sum / frames } else { panic!("{sum} of {frames} frames") }), seen)
}

fn one_by_one(outputs: usize) -> Shorter {
    Shorter { left: 100, every: 10_000, at: 0, flows: 100, outputs, cost: 10 }
}

#[test]
fn each_segment_costs_its_pointers_once_in_and_once_out() {
    let managed = managed(2);
    let ([references, bytes, data, moved], seen) = played(&managed, one_by_one(1));
    // 300 bytes are five segments, each with the ends of its queue read and written and a pointer of the free list read, and four of them
    // linked behind another; and as many out of the queue. Then four segments of 200 bytes.
    assert_eq!(references, 2 * (5 * 3 + 4) + 2 * (4 * 3 + 3));
    assert_eq!(bytes, 2 * (5 * (8 + 8 + 4) + 4 * 4) + 2 * (4 * (8 + 8 + 4) + 3 * 4));
    // Who receives writes the frame, and who sends reads it: by elements of 64 bytes.
    assert_eq!((data, moved), (5 + 4, 300 + 200));
    assert_eq!(seen.units[0], Ticks(100 * 2 * (2 * 5 + 2 * 4)), "the manager has each segment twice");
}

#[test]
fn frames_move_where_they_pass_through_a_module() {
    let mut managed = managed(2);
    managed.1.pools[1].place = PoolPlace::Unit(1);
    let in_memory = played(&managed, one_by_one(1)).0;
    managed.0.units[1].frames = FrameAccess::Inline;
    let through = played(&managed, one_by_one(1)).0;
    assert_eq!(through[..2], in_memory[..2], "pointers are the same");
    assert_eq!(through[2..], [2 * (5 + 4), 2 * (300 + 200)]);
}

#[test]
fn a_frame_that_is_dropped_is_in_no_queue() {
    let ([references, _, data, _], seen) = played(&managed(2), one_by_one(0));
    assert_eq!((references, data), (2 * (5 * 3 + 4), 5));
    assert_eq!(seen.ended.frames, 100);
}

#[test]
fn frames_of_one_flow_are_linked_to_one_another() {
    // Ten frames come at once, and wait in the queue of one flow, or in one of each.
    let load = |flows| Shorter { left: 10, every: 10, at: 0, flows, outputs: 1, cost: 5_000 };
    let slow = managed(2);
    let references = |flows| {
        let mut machine = Machine::new(&slow.0, &slow.1, Ideal::Receive).unwrap();
        let seen = machine.run(&mut load(flows), 0).unwrap();
        assert!(seen.rings[0].most > 1);
        assert!(machine.queued.values().all(|held| *held == 0));
        seen.memories[0].lists.references
    };
    let apart = references(10);
    assert_eq!(apart, 10 * (2 * (5 * 3 + 4) + 2 * (4 * 3 + 3)));
    let together = references(1);
    // A link that is written is read again: there are more of them in pairs.
    assert!(together > apart && (together - apart) % 2 == 0, "{together}, and {apart} apart");
}

#[test]
fn a_slow_manager_is_what_limits() {
    let rate = |interval| {
        let managed = managed(interval);
        let load = Shorter { left: 500, every: 400, at: 0, flows: 64, outputs: 1, cost: 10 };
        let mut machine = Machine::new(&managed.0, &managed.1, Ideal::Nothing).unwrap();
        let mut load = load;
        machine.run(&mut load, 100).unwrap()
    };
    assert_eq!(rate(2).lost, 0);
    let slow = rate(100);
    let each = slow.span.0 as f64 / slow.delivered.frames as f64;
    assert!(
        slow.lost > 0 && (1_750.0..1_900.0).contains(&each),
        "18 segments of 100 cycles: {each} ticks a frame"
    );
}
