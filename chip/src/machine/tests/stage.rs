//! Tests of what stages cost: what a thread has in its registers, what crosses a ring, and what a unit does.

use tally::{Address, Offload, Region};
use wire::Bytes;

use super::{Same, chip, line, pool, run, stage, task, write};
use crate::clock::Cycles;
use crate::description::{Chip, FrameAccess, Unit, UnitWork};
use crate::load::{Arrival, Handling, Job, Load};
use crate::machine::{Ideal, Machine};
use crate::mapping::{Exit, Mapping, Place, Ring, Who, Work};
use crate::trace::{Access, Act, Referral, Wait};

#[test]
fn a_thread_waits_for_its_writes_once_before_it_passes_the_frame_on() {
    let latency = |acts| stage(acts, Place::Shared(0)).latency.max();
    let (rules, work) = (write(Region::RuleTable, 4), run(200));
    // Under way while the thread works: nothing but the instruction that issues it.
    assert_eq!(latency(vec![rules, work]), latency(vec![work]) + 1);
    // At the end the thread waits for all at once, 50 cycles behind the last: of three that one begins four cycles behind the first, as
    // each takes the memory for two, and two behind what issued it.
    assert_eq!(latency(vec![work, rules]), latency(vec![work]) + 1 + 50);
    assert_eq!(latency(vec![work, rules, rules, rules]), latency(vec![work]) + 3 + 50 + 2);
}

#[test]
fn metadata_of_a_packet_are_in_registers_between_rings() {
    let read = Act::Refer(Referral {
        region: Region::Meta,
        access: Access::Read,
        at: 0,
        bytes: 32,
        address: Address::Computed,
        wait: Wait::Now,
    });
    let acts = vec![read, write(Region::Meta, 32), run(10), read];
    assert_eq!(stage(acts, Place::Shared(0)).memories[0].regions[Region::Meta as usize].references, 0);
}

#[test]
fn metadata_cross_a_ring_in_its_entry_and_by_memory_beside_it() {
    /// Frames of whose metadata so many bytes cross, before the stage and behind it.
    struct Crossing(Same, [u32; 2]);
    impl Load for Crossing {
        fn next(&mut self) -> Option<Arrival> {
            self.0.next()
        }
        fn accept(&mut self, job: &mut Job) {
            self.0.accept(job);
            job.crossing.extend(self.1);
        }
    }
    let crossed = |entry, crossing| {
        let (mut chip, mut mapping) = (chip(), line(1, 8));
        chip.rings[0].entry = Bytes(entry);
        let places = mapping.placements.iter_mut().filter(|placement| placement.region == Region::Meta);
        places.for_each(|placement| placement.place = Place::Shared(0));
        let same = Same { left: 100, acts: vec![run(10)], at: 0, every: 2_000 };
        let mut load = Crossing(same, crossing);
        let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
        let meta = seen.memories[0].regions[Region::Meta as usize];
        (meta.references / 100, meta.bytes / 100)
    };
    // Who puts the frame into the ring writes, and who takes it reads, in words, what the entry has no room for beside its descriptor word.
    assert_eq!(crossed(4, [0, 0]), (0, 0));
    assert_eq!(crossed(4, [6, 0]), (2, 2 * 8));
    assert_eq!(crossed(4, [6, 17]), (4, 2 * 8 + 2 * 20));
    assert_eq!(crossed(8, [4, 5]), (2, 2 * 4));
    assert_eq!(crossed(64, [32, 32]), (0, 0));
}

#[test]
fn an_entry_that_a_packet_has_read_is_in_registers_until_the_memory_changes_it() {
    let refer = |access, at, bytes| {
        Act::Refer(Referral {
            region: Region::RuleTable,
            access,
            at,
            bytes,
            address: Address::Computed,
            wait: Wait::Now,
        })
    };
    let read = |at, bytes| refer(Access::Read, at, bytes);
    let references = |acts: Vec<Act>| {
        let seen = stage(acts, Place::Shared(0));
        seen.memories[0].regions[Region::RuleTable as usize].references / 100
    };
    assert_eq!(references(vec![read(0, 8), read(0, 8), read(8, 8), read(0, 16), read(0, 8)]), 3);
    // A thread knows what it has written over a part of it.
    assert_eq!(references(vec![read(0, 8), write(Region::RuleTable, 4), read(0, 8)]), 2);
    assert_eq!(references(vec![read(0, 8), write(Region::RuleTable, 12), read(0, 12)]), 2);
    assert_eq!(references(vec![write(Region::RuleTable, 4), read(0, 8)]), 2);
    assert_eq!(references(vec![read(0, 8), refer(Access::Atomic, 0, 4), read(0, 8)]), 3);
    assert_eq!(references(vec![read(0, 8), write(Region::Meta, 4), read(0, 8)]), 1);
    // Eight at most.
    let all = |others: u64| (0..=others).chain([0]).map(|entry| read(entry * 8, 8)).collect();
    assert_eq!([references(all(7)), references(all(8))], [8, 10]);
}

/// A chip with one more unit, each of whose operations takes ten cycles.
fn with_unit(work: UnitWork) -> Chip {
    let unit = Unit {
        name: "unit".into(),
        work,
        count: 1,
        interval: Cycles(10),
        per_word: 0,
        latency: Cycles(0),
        frames: FrameAccess::Memory,
        lists: None,
        tickets: None,
    };
    Chip { units: vec![unit], ..chip() }
}

/// Cycles that the stage's engine executes and that a frame stays in the machine.
fn stay(chip: &Chip, mapping: &Mapping, acts: Vec<Act>) -> (u64, u64) {
    let mut load = Same { left: 1, acts, at: 0, every: 0 };
    let seen = Machine::new(chip, mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    (seen.engines[1].instructions, seen.latency.max())
}

#[test]
fn a_search_is_a_units_where_it_keeps_the_table() {
    let search = Offload::Search { region: Region::FlowIndex, bytes: 13 };
    let acts = vec![Act::Offload { work: search, acts: 2 }, run(90), Act::Hash(13), run(7)];
    let (chip, mut mapping) = (with_unit(UnitWork::Search), line(1, 8));
    let (by_engine, slow) = stay(&chip, &mapping, acts.clone());
    let places = mapping.placements.iter_mut().filter(|placement| placement.region == Region::FlowIndex);
    places.for_each(|placement| placement.place = Place::Unit(0));
    // One instruction hands it over; 90, and 20 for the hash of four words, are the unit's ten cycles.
    let (by_unit, quick) = stay(&chip, &mapping, acts);
    assert_eq!((by_engine - by_unit, slow - quick), (110 - 1, 110 - 11));
}

#[test]
fn nobody_waits_for_the_unit_that_changes_headers() {
    let acts = vec![Act::Offload { work: Offload::Modify { bytes: 32 }, acts: 1 }, run(40), run(7)];
    let mapping = line(1, 8);
    let (by_engine, slow) = stay(&chip(), &mapping, acts.clone());
    let (by_unit, quick) = stay(&with_unit(UnitWork::Modify), &mapping, acts);
    assert_eq!((by_engine - by_unit, slow - quick), (40 - 1, 40 - 1));
}

#[test]
fn exceptions_go_to_who_handles_them() {
    /// Every second frame is an exception, and of these every second one ends with the stage that finds it out.
    struct Odd(Same, u32);
    impl Load for Odd {
        fn next(&mut self) -> Option<Arrival> {
            self.0.next()
        }
        fn accept(&mut self, job: &mut Job) {
            self.0.accept(job);
            job.marks.push(job.acts.len() as u32);
            self.1 += 1;
            job.ends_at = 1;
            if self.1 % 2 == 0 {
                job.handling = Handling::Exception;
            }
            if self.1 % 4 == 0 {
                job.outputs.clear();
                job.ends_at = 0;
            }
        }
    }
    let (chip, mut mapping) = (chip(), line(1, 8));
    let exit = |who, ring| Exit { who, ring };
    mapping.pools[1].tasks[0].to = vec![exit(Who::Exception, 2), exit(Who::Rest, 1)];
    let control = task(Work::Stages(1..2), Some(2), vec![exit(Who::All, 1)]);
    mapping.pools.push(pool("control", vec![3], 1, control));
    mapping.rings.push(Ring { name: "exception".into(), kind: 0, entries: 8, order: None });
    let mut load = Odd(Same { left: 100, acts: vec![run(10)], at: 0, every: 2_000 }, 0);
    let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    assert_eq!((seen.delivered.frames, seen.ended.frames), (75, 25));
    // All frames but exceptions take the one ring; exceptions the other, and half of them both.
    assert_eq!((seen.rings[2].puts, seen.rings[1].puts), (50, 75));
}
