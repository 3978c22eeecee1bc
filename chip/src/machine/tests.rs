//! Machines small enough to be reckoned by hand.

use tally::{Address, Region};
use wire::{BitRate, Bytes};

use super::{Ideal, Machine, Window};
use crate::clock::{Cycles, Hertz};
use crate::description::{
    Buffer, Cam, Chip, DataPins, EngineKind, FrameAccess, LocalMemory, Memory, PortKind, Ports, Reach,
    RingKind, Role, ServiceOrder, Unit, UnitWork,
};
use crate::kernel::{Ticks, Timebase};
use crate::load::{Arrival, Job, Length, Load, Output, Standing};
use crate::mapping::{
    Exit, Extra, Mapping, Place, Placement, Pool, PoolPlace, Priority, Ring, ServedPorts, Task, Who, Work,
};
use crate::trace::{Access, Act, Referral, Wait};

mod cell;
mod controller;
mod list;
mod order;
mod polling;
mod priority;
mod stage;
mod timer;

/// Four engines of 100 MHz; a tick is a cycle, 10 ns.
pub(super) fn chip() -> Chip {
    Chip {
        name: "toy".into(),
        about: String::new(),
        clock: Hertz(100_000_000),
        engines: vec![EngineKind {
            name: "me".into(),
            role: Role::Packet,
            count: 4,
            cluster: 4,
            clock: Hertz(100_000_000),
            threads: 4,
            store: None,
            registers: None,
            local: Some(LocalMemory { bytes: Bytes(1024), latency: Cycles(3) }),
            cpi: 1000,
            wait: Cycles(0),
            switch: Cycles(0),
            branch: Cycles(2),
            hash: 5,
            commands: 64,
            cam: None,
            cache: None,
        }],
        memories: vec![Memory {
            name: "sram".into(),
            bytes: Bytes(1 << 20),
            channels: 1,
            interleave: Bytes(4),
            banks: 1,
            clock: Hertz(100_000_000),
            width: Bytes(4),
            pins: DataPins::Shared,
            latency: Cycles(50),
            write_latency: Cycles(50),
            burst: Bytes(64),
            overhead: Cycles(1),
            recovery: Cycles(0),
            atomic: Some(Cycles(1)),
            queue: 16,
            order: ServiceOrder::Arrival,
            priority: None,
            cache: None,
        }],
        rings: vec![RingKind {
            name: "next".into(),
            count: 16,
            entries: 128,
            priorities: 1,
            memory: None,
            lists: None,
            entry: Bytes(4),
            latency: Cycles(0),
            reach: Reach::Any,
        }],
        units: Vec::new(),
        buses: Vec::new(),
        receive: Buffer { elements: 16, element: Bytes(64) },
        transmit: Buffer { elements: 16, element: Bytes(64) },
        ports: Ports(vec![PortKind {
            name: None,
            count: 1,
            rate: BitRate(1_000_000_000),
            gap: Bytes(20),
            fifo: None,
        }]),
        power: None,
        package: None,
        sources: Vec::new(),
    }
}

/// One pool of `threads` threads on each of `engines` engines, that draws its work.
pub(super) fn drawing(engines: u32, threads: u32, place: Place) -> Mapping {
    Mapping {
        chip: "toy".into(),
        about: String::new(),
        pools: vec![pool("all", (0..engines).collect(), threads, task(Work::Stages(0..1), None, Vec::new()))],
        rings: Vec::new(),
        placements: Region::ALL
            .into_iter()
            .map(|region| Placement { region, first: 0, end: u64::MAX, place })
            .collect(),
        timers: Vec::new(),
        classifier: None,
    }
}

fn task(work: Work, from: Option<usize>, to: Vec<Exit>) -> Task {
    Task {
        work,
        from,
        to,
        ports: ServedPorts::default(),
        extra: Extra::default(),
        priority: Priority::Normal,
    }
}

fn pool(name: &str, numbers: Vec<u32>, threads: u32, task: Task) -> Pool {
    Pool {
        name: name.into(),
        place: PoolPlace::Engines { kind: 0, numbers, threads },
        tasks: vec![task],
        poll: None,
    }
}

/// Frames that all cost the same.
pub(super) struct Same {
    pub(super) left: u32,
    pub(super) acts: Vec<Act>,
    pub(super) at: u64,
    pub(super) every: u64,
}

impl Load for Same {
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        let at = Ticks(self.at);
        self.at += self.every;
        Some(Arrival { at, port: 0, length: Length::of(64) })
    }

    fn accept(&mut self, job: &mut Job) {
        job.acts.extend_from_slice(&self.acts);
        job.marks.extend([0, job.acts.len() as u32]);
        job.outputs.push(Output { port: 0, length: Length::of(64), flow: 0 });
        job.standing = Standing::Known;
    }
}

pub(super) fn run(instructions: u32) -> Act {
    Act::Execute { instructions, taken: 0 }
}

fn read(wait: Wait) -> Act {
    Act::Refer(Referral {
        region: Region::RuleTable,
        access: Access::Read,
        at: 0,
        bytes: 4,
        address: Address::Computed,
        wait,
    })
}

fn drawn(mapping: &Mapping, acts: Vec<Act>) -> Window {
    let chip = chip();
    let mut machine = Machine::new(&chip, mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Same { left: 1_000, acts, at: 0, every: 0 }, 0).unwrap()
}

#[test]
fn instructions_alone_take_a_cycle_each() {
    let seen = drawn(&drawing(1, 1, Place::Registers), vec![run(100)]);
    assert_eq!(seen.span, Ticks(100_000));
    assert_eq!(seen.engines[0].executing, Ticks(100_000));
    assert_eq!(seen.instructions, 100_000);
    assert_eq!(seen.ended.frames, 1_000);
    // Engines divide the work; threads of one engine do not.
    assert_eq!(drawn(&drawing(4, 1, Place::Registers), vec![run(100)]).span, Ticks(25_000));
    assert_eq!(drawn(&drawing(1, 4, Place::Registers), vec![run(100)]).span, Ticks(100_000));
}

#[test]
fn branches_taken_abort_what_was_fetched() {
    let branch = Act::Execute { instructions: 10, taken: 3 };
    let seen = drawn(&drawing(1, 1, Place::Registers), vec![branch]);
    assert_eq!((seen.engines[0].executing, seen.engines[0].aborted), (Ticks(10_000), Ticks(6_000)));
}

#[test]
fn one_thread_waits_for_memory_and_others_use_the_time() {
    // 9 instructions, 1 that refers, 50 cycles until the data is there.
    let acts = vec![run(9), read(Wait::Now)];
    assert_eq!(drawn(&drawing(1, 1, Place::Shared(0)), acts.clone()).span, Ticks(60_000));
    let two = drawn(&drawing(1, 2, Place::Shared(0)), acts.clone());
    // Two threads share the time of one, but for the first start.
    assert_eq!(two.span, Ticks(30_010));
    // Memory is taken for two cycles a reference.
    assert_eq!(two.memories[0].busy, [Ticks(2_000)]);
    // In local memory: the instruction that gives the address, and three cycles nobody can use.
    assert_eq!(drawn(&drawing(1, 4, Place::Local), acts).span, Ticks(13_000));
}

#[test]
fn to_wait_for_a_shared_memory_costs_the_engine() {
    let mut chip = chip();
    chip.engines[0].wait = Cycles(5);
    let span = |threads, place, acts: Vec<Act>| {
        let mapping = drawing(1, threads, place);
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: 1_000, acts, at: 0, every: 0 }, 0).unwrap().span
    };
    let now = vec![run(9), read(Wait::Now)];
    assert_eq!(span(1, Place::Shared(0), now.clone()), Ticks((9 + 1 + 5 + 50) * 1_000));
    // With threads enough the engine is busy all the time.
    let busy = span(4, Place::Shared(0), now.clone()).0;
    assert!((15_000..16_400).contains(&busy), "{busy}");
    // One wait, of two references: the second is done a cycle and one of the memory's behind the first.
    let early = vec![read(Wait::Later(1)), read(Wait::Later(2)), Act::Await(2)];
    assert_eq!(span(1, Place::Shared(0), early), Ticks((2 + 51) * 1_000));
    // Nobody waits for what lies in the engine.
    assert_eq!(span(1, Place::Local, now), Ticks(13_000));
    assert_eq!(span(1, Place::Registers, vec![read(Wait::Later(1)), Act::Await(1)]), Ticks(0));
}

/// Frames through [`line`] whose stage does `acts`; `place` is that of metadata and rules.
#[test]
fn extra_work_takes_its_instructions_and_waits_for_its_references() {
    let work = |extra| {
        let mut mapping = drawing(1, 1, Place::Shared(0));
        mapping.pools[0].tasks[0].extra = extra;
        drawn(&mapping, vec![run(100)])
    };
    let none = work(Extra::default());
    let operations = work(Extra { instructions: 50, ..Extra::default() });
    assert_eq!(operations.span.0 * 100, none.span.0 * 150, "half as many again");
    let state = work(Extra { instructions: 50, references: 3, bytes: 8, ..Extra::default() });
    let seen = &state.memories[0];
    assert_eq!((seen.extra.references, seen.extra.bytes), (3_000, 24_000));
    assert!(state.span > operations.span);
    assert_eq!(none.memories[0].extra.references, 0);
}

fn stage(acts: Vec<Act>, place: Place) -> Window {
    let mut mapping = line(1, 8);
    for placement in &mut mapping.placements {
        if matches!(placement.region, Region::Meta | Region::RuleTable) {
            placement.place = place;
        }
    }
    let chip = chip();
    let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Same { left: 100, acts, at: 0, every: 2_000 }, 0).unwrap()
}

fn write(region: Region, bytes: u32) -> Act {
    Act::Refer(Referral {
        region,
        access: Access::Write,
        at: 0,
        bytes,
        address: Address::Computed,
        wait: Wait::Now,
    })
}

#[test]
fn what_is_asked_for_early_is_there_when_it_is_needed() {
    let late = vec![read(Wait::Now), read(Wait::Now), run(8)];
    assert_eq!(drawn(&drawing(1, 1, Place::Shared(0)), late).span, Ticks(110_000));
    // Both at once: the second is done 50 cycles after it was issued, one cycle after the first, and a cycle of
    // the memory's later; meanwhile 8 instructions are done.
    let early = vec![read(Wait::Later(1)), read(Wait::Later(2)), run(8), Act::Await(1), Act::Await(2)];
    assert_eq!(drawn(&drawing(1, 1, Place::Shared(0)), early).span, Ticks(53_000));
    // What lies in the engine is there at once, and nobody waits for it.
    let local = vec![read(Wait::Later(1)), Act::Await(1)];
    assert_eq!(drawn(&drawing(1, 1, Place::Registers), local).span, Ticks(0));
}

#[test]
fn hashing_without_a_hash_unit_takes_instructions() {
    assert_eq!(drawn(&drawing(1, 1, Place::Registers), vec![Act::Hash(13)]).span, Ticks(20_000));
}

#[test]
fn memory_bounds_what_many_engines_can_do() {
    // Each frame refers to memory once, which takes 2 cycles of its channel: 4 engines of 4 threads cannot do better.
    let seen = drawn(&drawing(4, 4, Place::Shared(0)), vec![run(1), read(Wait::Now)]);
    let cycles = seen.span.0;
    // 16 threads, one reference each under way, of 50 cycles: 3.125 cycles a frame, and 4 engines idle most of it.
    assert!((3_100..3_300).contains(&cycles), "{cycles}");
}

/// Receive on engine 0, the stage on engine 1, transmit on engine 2.
fn line(threads: u32, entries: u32) -> Mapping {
    let to = |ring| vec![Exit { who: Who::All, ring }];
    let ring = |name: &str| Ring { name: name.into(), kind: 0, entries, order: None };
    Mapping {
        pools: vec![
            pool("receive", vec![0], 4, task(Work::Receive(0..0), None, to(0))),
            pool("work", vec![1], threads, task(Work::Stages(0..1), Some(0), to(1))),
            pool("transmit", vec![2], 4, task(Work::Transmit, Some(1), Vec::new())),
        ],
        rings: vec![ring("in"), ring("out")],
        ..drawing(1, 1, Place::Registers)
    }
}

fn through(mapping: &Mapping, ideal: Ideal, cost: u32, every: u64, warm: u64) -> Window {
    let chip = chip();
    let mut machine = Machine::new(&chip, mapping, ideal).unwrap();
    machine.run(&mut Same { left: 2_000, acts: vec![run(cost)], at: 0, every }, warm).unwrap()
}

#[test]
fn below_its_capacity_a_machine_loses_nothing() {
    let seen = through(&line(1, 8), Ideal::Nothing, 100, 200, 0);
    assert_eq!((seen.offered.frames, seen.delivered.frames, seen.lost), (2_000, 2_000, 0));
    // 75 instructions to receive and pass, 112 for the stage, 60 to send, 68 ticks on the line.
    let latency = seen.latency.value_at_quantile(0.5);
    assert!((250..400).contains(&latency), "{latency}");
    assert_eq!(seen.latency.min(), seen.latency.max(), "nobody is in anybody's way");
}

#[test]
fn past_its_capacity_it_delivers_what_it_can_and_loses_the_rest() {
    // The stage takes 100 instructions, and 12 and 2 cycles about it; frames come every 68 ticks.
    let seen = through(&line(1, 8), Ideal::Nothing, 200, 0, 500);
    let each = seen.span.0 as f64 / seen.delivered.frames as f64;
    assert!((210.0..220.0).contains(&each), "{each} ticks a frame");
    assert!(seen.lost > 500, "{}", seen.lost);
    assert_eq!(seen.offered.frames, 1_500);
    assert!(seen.rings[0].blocked > 0, "the ring before the stage is full");
    // With the stage's engine infinitely fast, reception is next: some 80 cycles a frame.
    let seen = through(&line(1, 8), Ideal::Pool(1), 200, 0, 500);
    let each = seen.span.0 as f64 / seen.delivered.frames as f64;
    assert!((75.0..90.0).contains(&each), "{each} ticks a frame");
}

#[test]
fn the_same_load_gives_the_same_run() {
    let one = through(&line(2, 8), Ideal::Nothing, 200, 0, 100);
    let other = through(&line(2, 8), Ideal::Nothing, 200, 0, 100);
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

#[test]
fn a_pool_that_waits_for_itself_is_explained() {
    // One pool does both halves of the work over rings of one entry: its threads can all come to hold a frame of the
    // first half, with no room behind it and nobody to make any.
    let to = |ring| vec![Exit { who: Who::All, ring }];
    let ring = |name: &str| Ring { name: name.into(), kind: 0, entries: 1, order: None };
    let mut work = pool("both", vec![1], 2, task(Work::Stages(0..1), Some(0), to(1)));
    work.tasks.insert(0, task(Work::Stages(0..0), Some(1), to(2)));
    let mapping = Mapping {
        pools: vec![
            pool("receive", vec![0], 4, task(Work::Receive(0..0), None, to(0))),
            work,
            pool("transmit", vec![2], 4, task(Work::Transmit, Some(2), Vec::new())),
        ],
        rings: vec![ring("first"), ring("second"), ring("out")],
        ..drawing(1, 1, Place::Registers)
    };
    let chip = chip();
    let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
    let deadlock =
        machine.run(&mut Same { left: 100, acts: vec![run(100)], at: 0, every: 0 }, 0).unwrap_err();
    let text = deadlock.to_string();
    assert!(
        text.contains("2 threads of `both` wait for room in the ring `second`, which `both` should empty"),
        "{text}"
    );
}

#[test]
fn time_is_in_whole_cycles_of_every_clock() {
    let mut chip = chip();
    chip.memories[0].clock = Hertz(66_000_000);
    let ticks = chip.ticks_per_second().unwrap();
    assert_eq!(ticks, 3_300_000_000);
    let time = Timebase::new(ticks);
    assert_eq!((time.cycle(Hertz(100_000_000)), time.cycle(Hertz(66_000_000))), (Ticks(33), Ticks(50)));
}

#[test]
fn units_take_what_is_handed_to_them() {
    let unit = |name: &str, work| Unit {
        name: name.into(),
        work,
        count: 1,
        interval: Cycles(10),
        per_word: 500,
        latency: Cycles(40),
        frames: FrameAccess::Memory,
        lists: None,
        tickets: None,
    };
    let mut chip = chip();
    chip.units =
        vec![unit("keeper", UnitWork::Queue), unit("crypto", UnitWork::Crypto), unit("hash", UnitWork::Hash)];
    let span = |threads, act: Act| {
        let mapping = drawing(1, threads, Place::Unit(0));
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: 100, acts: vec![act], at: 0, every: 0 }, 0).unwrap().span
    };
    // One instruction hands over; 10 cycles, and half a one for each word; 40 until the result is there.
    assert_eq!(span(1, Act::Encipher(64)), Ticks(100 * (1 + 18 + 40)));
    assert_eq!(span(1, Act::Hash(12)), Ticks(100 * (1 + 11 + 40)));
    assert_eq!(
        span(1, read(Wait::Now)),
        Ticks(100 * (1 + 10 + 40)),
        "half a cycle for a word is rounded down"
    );
    // Four threads keep the unit busy: one after the other, and the last one's latency.
    let four = span(4, Act::Encipher(64)).0;
    assert!((100 * 18..100 * 18 + 80).contains(&four), "{four}");
}

#[test]
fn stages_can_run_in_a_unit_of_fixed_function() {
    let mut chip = chip();
    chip.units = vec![Unit {
        name: "fex".into(),
        work: UnitWork::Stage,
        count: 1,
        interval: Cycles(100),
        per_word: 0,
        latency: Cycles(300),
        frames: FrameAccess::Memory,
        lists: None,
        tickets: None,
    }];
    let mut mapping = line(1, 8);
    mapping.pools[1].place = PoolPlace::Unit(0);
    let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
    let load = &mut Same { left: 2_000, acts: vec![run(5_000)], at: 0, every: 0 };
    let seen = machine.run(load, 500).unwrap();
    // A frame every 100 cycles, whatever its stage would cost an engine, and several under way at a time.
    let each = seen.span.0 as f64 / seen.delivered.frames as f64;
    assert!((99.0..103.0).contains(&each), "{each} ticks a frame");
    assert!(seen.latency.min() > 400, "{}", seen.latency.min());
}

/// Units receive and send by elements, too: of 300 bytes five, one in 20 cycles.
#[test]
fn units_of_fixed_function_can_receive_and_send() {
    let mut chip = slower(4);
    let unit = |name: &str| Unit {
        name: name.into(),
        work: UnitWork::Stage,
        count: 1,
        interval: Cycles(20),
        per_word: 0,
        latency: Cycles(50),
        frames: FrameAccess::Memory,
        lists: None,
        tickets: None,
    };
    chip.units = vec![unit("in"), unit("out")];
    let mut mapping = line(1, 8);
    (mapping.pools[0].place, mapping.pools[2].place) = (PoolPlace::Unit(0), PoolPlace::Unit(1));
    let (seen, _) = of_size(300, 100, on_line(300), &chip, &mapping);
    assert_eq!((seen.lost, seen.delivered.frames, seen.lines[0]), (0, 100, Ticks(100 * on_line(300))));
    let busy = |engine: usize| seen.engines[engine].executing;
    assert_eq!((busy(4), busy(5)), (Ticks(100 * 5 * 20), Ticks(100 * 5 * 20)), "each element once");
}

#[test]
fn the_cam_keeps_the_lines_that_were_used_last() {
    let mut chip = chip();
    chip.engines[0].cam = Some(Cam { entries: 2, latency: Cycles(1) });
    let at = |at: u64| {
        Act::Refer(Referral {
            region: Region::RuleTable,
            access: Access::Read,
            at,
            bytes: 8,
            address: Address::Computed,
            wait: Wait::Now,
        })
    };
    let span = |acts: Vec<Act>| {
        let mapping = drawing(1, 1, Place::Cached { memory: 0, line: 64 });
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: 100, acts, at: 0, every: 0 }, 0).unwrap().span.0
    };
    // A hit: look up (1 + 1), local memory (1 + 3). A miss: look up, and 16 words from memory (1 + 50 + 15).
    let (hit, miss) = (6, 68);
    assert_eq!(span(vec![at(0), at(8)]), miss + 199 * hit);
    assert_eq!(span(vec![at(0), at(64), at(0)]), 2 * miss + 298 * hit);
    assert_eq!(
        span(vec![at(0), at(64), at(128)]),
        300 * miss,
        "one line too many: each is gone when its turn comes"
    );
    let straddling = span(vec![at(60)]);
    assert_eq!(straddling, 2 * miss + 198 * hit, "a reference that two lines hold");
}

#[test]
fn a_long_frame_on_one_port_holds_up_nobody_on_another() {
    struct Two(u32);
    impl Load for Two {
        fn next(&mut self) -> Option<Arrival> {
            self.0 += 1;
            let (at, port, bytes) = match self.0 {
                1 => (0, 0, 500),
                2 => (100, 1, 64),
                3 => (300, 1, 64),
                _ => return None,
            };
            Some(Arrival { at: Ticks(at), port, length: Length::of(bytes) })
        }

        fn accept(&mut self, job: &mut Job) {
            Same { left: 0, acts: vec![run(10)], at: 0, every: 0 }.accept(job);
            job.outputs[0].port = u16::from(self.0 == 1);
        }
    }
    let mut chip = chip();
    chip.ports.0[0] = PortKind { count: 2, rate: BitRate(200_000_000), ..chip.ports.0[0].clone() };
    let mapping = line(1, 8);
    let played =
        |load: &mut dyn Load| Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(load, 0).unwrap();
    let seen = played(&mut Two(0));
    assert_eq!(seen.delivered.frames, 3);
    // The two short ones take as long as one alone does, and wait at most for an element of the long one, which the receiving engine
    // has at the time: 57 cycles.
    let alone = played(&mut Same { left: 1, acts: vec![run(10)], at: 0, every: 0 }).latency.min();
    let longest = seen.latency.max();
    assert!((alone..=alone + 57).contains(&longest), "{longest} {alone}");
}

/// Arrivals by two ports, each frame with its port's own number of bytes.
struct Ways {
    /// Time in ticks, port and bytes of each arrival.
    coming: Vec<(u64, u16, u32)>,
    next: usize,
    /// Time and port of each frame taken in.
    taken: Vec<(Ticks, u16)>,
}

impl Load for Ways {
    fn next(&mut self) -> Option<Arrival> {
        let (at, port, bytes) = *self.coming.get(self.next)?;
        self.next += 1;
        Some(Arrival { at: Ticks(at), port, length: Length::of(bytes) })
    }

    fn accept(&mut self, job: &mut Job) {
        let port = self.coming[self.next - 1].1;
        self.taken.push((job.arrived, port));
        Same { left: 0, acts: vec![run(1)], at: 0, every: 0 }.accept(job);
        job.outputs[0] = Output { port, length: Length::of(60), flow: 0 };
    }
}

/// A gigabit first, then 100 Mbit/s.
fn unlike(elements: u32) -> Chip {
    let mut chip = chip();
    let slow = PortKind { name: Some("slow".into()), rate: BitRate(100_000_000), ..chip.ports.0[0].clone() };
    chip.ports.0.push(slow);
    chip.receive.elements = elements;
    chip
}

#[test]
fn frames_take_their_ports_time_both_ways() {
    let (chip, mapping) = (unlike(16), line(1, 8));
    // 80 bytes on the line: 640 ns or 64 ticks by the fast one, 640 by the slow one.
    let mut load = Ways { coming: vec![(0, 0, 60), (5_000, 1, 60)], next: 0, taken: Vec::new() };
    let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    assert_eq!(load.taken, [(Ticks(64), 0), (Ticks(5_640), 1)]);
    assert_eq!(seen.lines, [Ticks(64), Ticks(640)]);
    assert_eq!(seen.latency.max() - seen.latency.min(), 640 - 64, "from the last bit in to the last bit out");
}

/// Frames that wait behind another port's are there at once when that one is, but no two of them at once.
#[test]
fn a_port_that_is_late_makes_no_other_exceed_its_rate() {
    let (chip, mapping) = (unlike(16), line(1, 8));
    // The slow port has two at once, the second of which is there when the first is; 20 by the fast one are due between.
    let mut coming = vec![(0, 1, 300), (1, 1, 60)];
    coming.extend((0..20).map(|number| (2 + number * 64, 0, 60)));
    let mut load = Ways { coming, next: 0, taken: Vec::new() };
    let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    assert_eq!((seen.lost_by_port.as_slice(), seen.delivered.frames), (&[0, 0][..], 22));
    let fast: Vec<u64> = load.taken.iter().filter(|(_, port)| *port == 0).map(|(at, _)| at.0).collect();
    assert_eq!(fast.len(), 20);
    assert!(fast.windows(2).all(|pair| pair[1] - pair[0] >= 64), "{fast:?}");
}

/// Frames that come in faster than a slow port can send fill the buffers, and are lost at the port that they come in by.
#[test]
fn what_a_slow_port_cannot_send_is_lost_at_the_fast_one() {
    let (chip, mapping) = (unlike(16), line(1, 8));
    struct Over(Ways);
    impl Load for Over {
        fn next(&mut self) -> Option<Arrival> {
            self.0.next()
        }
        fn accept(&mut self, job: &mut Job) {
            self.0.accept(job);
            job.outputs[0].port = 1;
        }
    }
    let coming = (0..2_000).map(|number| (number * 64, 0, 60)).collect();
    let mut load = Over(Ways { coming, next: 0, taken: Vec::new() });
    let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    let lost = seen.lost_by_port[0];
    assert_eq!((seen.lost_by_port[1], seen.delivered.frames + lost), (0, 2_000));
    // 2,000 come in the time that 200 leave in, and the buffers and threads hold a few dozen.
    assert!((1_700..1_800).contains(&lost), "{lost}");
}

/// [`unlike`], with a port of 200 Mbit/s in the place of the gigabit: engines of 100 MHz have time for its elements.
fn slower(elements: u32) -> Chip {
    let mut chip = unlike(elements);
    chip.ports.0[0].rate = BitRate(200_000_000);
    chip
}

/// Ticks that a frame takes on the line of that port: 40 ns a byte.
fn on_line(bytes: u32) -> u64 {
    (u64::from(bytes) + 20) * 4
}

/// Frames of the same size that leave by the port that they come by, one every `every` ticks.
fn of_size(bytes: u32, frames: u64, every: u64, chip: &Chip, mapping: &Mapping) -> (Window, Ways) {
    struct Long(Ways);
    impl Load for Long {
        fn next(&mut self) -> Option<Arrival> {
            self.0.next()
        }
        fn accept(&mut self, job: &mut Job) {
            let (_, _, bytes) = self.0.coming[self.0.next - 1];
            self.0.accept(job);
            job.outputs[0].length.bytes = bytes;
        }
    }
    let coming = (0..frames).map(|number| (number * every, 0, bytes)).collect();
    let mut load = Long(Ways { coming, next: 0, taken: Vec::new() });
    let seen = Machine::new(chip, mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
    (seen, load.0)
}

/// A frame is worked on while it comes, and leaves while it is worked on: it needs a small part of the buffers.
#[test]
fn long_frames_come_and_go_by_elements() {
    let (chip, mapping) = (slower(4), line(1, 8));
    for bytes in [65, 1_518, 9_000, 65_535] {
        let on_line = on_line(bytes);
        let (seen, _) = of_size(bytes, 50, on_line, &chip, &mapping);
        assert_eq!((seen.lost, seen.overruns, seen.delivered.frames), (0, 0, 50), "{bytes}");
        // From the last bit in to the last bit out: the last element is received, the stage does its work, the first element is on its
        // way to the line, which then takes its time.
        let latency = seen.latency.max();
        assert!((on_line..on_line + 500).contains(&latency), "{bytes}: {latency}, {on_line} on the line");
    }
}

/// Elements that find no room wait in the MAC, and the frame behind is lost that finds it full.
#[test]
fn a_full_mac_loses_the_next_frame() {
    let mut chip = slower(2);
    chip.ports.0[0].fifo = Some(Bytes(256));
    let mut mapping = line(1, 1);
    mapping.pools[0].place = PoolPlace::Engines { kind: 0, numbers: vec![0], threads: 1 };
    let (seen, _) = of_size(640, 200, on_line(640), &chip, &mapping);
    assert_eq!((seen.lost, seen.overruns), (0, 0), "one thread copies ten elements in their time");
    // A receiver that takes longer for an element than the line does.
    chip.memories[0].write_latency = Cycles(400);
    let shared = Placement { region: Region::Frame, first: 0, end: u64::MAX, place: Place::Shared(0) };
    mapping.placements.retain(|placement| placement.region != Region::Frame);
    mapping.placements.push(shared);
    let (seen, load) = of_size(640, 200, on_line(640), &chip, &mapping);
    assert!(seen.lost > 50 && seen.lost + seen.delivered.frames == 200, "{} of 200 lost", seen.lost);
    assert_eq!(load.taken.len() as u64, seen.delivered.frames, "what is lost was not run");
    assert!(seen.overruns > 0, "what hardware would have lost halfway is counted");
}

/// Frames for a line leave in the order in which they begin to, one whole after the other, by however many threads and engines.
#[test]
fn elements_of_frames_do_not_mix_on_a_line() {
    for elements in [1, 2, 16] {
        let mut chip = slower(16);
        chip.transmit.elements = elements;
        let mut mapping = line(4, 64);
        mapping.pools[2].place = PoolPlace::Engines { kind: 0, numbers: vec![2, 3], threads: 4 };
        let (seen, _) = of_size(700, 400, on_line(700), &chip, &mapping);
        assert_eq!((seen.delivered.frames, seen.lost), (400, 0), "{elements} elements");
        assert_eq!(
            seen.lines[0],
            Ticks(400 * on_line(700)),
            "the line is taken for no longer than the frames are"
        );
    }
}

mod conservation {
    use proptest::prelude::*;

    use super::*;

    /// Frame: time since the one before, port, bytes, and the frames that leave because of it.
    type Coming = (u64, u16, u32, Vec<(u16, u32)>);

    struct Random {
        coming: Vec<Coming>,
        next: usize,
        due: u64,
        at: u64,
    }

    impl Load for Random {
        fn next(&mut self) -> Option<Arrival> {
            let (after, port, bytes, _) = self.coming.get(self.next)?;
            self.next += 1;
            self.at += after;
            Some(Arrival { at: Ticks(self.at), port: *port, length: Length::of(*bytes) })
        }

        fn accept(&mut self, job: &mut Job) {
            let (_, _, _, outputs) = &self.coming[self.next - 1];
            job.acts.push(run(20));
            job.marks.extend([0, 1]);
            job.ends_at = 1;
            job.outputs.extend(outputs.iter().map(|(port, bytes)| Output {
                port: *port,
                length: Length::of(*bytes),
                flow: 0,
            }));
            self.due += outputs.len() as u64;
        }
    }

    fn size() -> impl Strategy<Value = u32> {
        prop_oneof![1_u32..200, Just(64), Just(1_518), 1_u32..20_000]
    }

    fn coming() -> impl Strategy<Value = Vec<Coming>> {
        let outputs = prop::collection::vec((0_u16..4, size()), 1..4);
        prop::collection::vec((0_u64..5_000, 0_u16..4, size(), outputs), 1..80)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever comes and leaves, and by buffers of whatever size: what is taken in leaves, and every line is taken for as long as
        /// its frames are.
        #[test]
        fn all_that_is_taken_in_leaves(
            coming in coming(),
            elements in (1_u32..6, 1_u32..6),
            fifo in prop::sample::select(vec![64_u64, 100, 128, 4_096]),
            threads in (1_u32..5, 1_u32..5),
            senders in prop::sample::select(vec![vec![2], vec![2, 3]]),
        ) {
            let mut chip = slower(elements.0);
            chip.transmit.elements = elements.1;
            chip.ports.0[0].count = 3;
            chip.ports.0.iter_mut().for_each(|port| port.fifo = Some(Bytes(fifo)));
            let mut mapping = line(threads.0, 4);
            mapping.pools[2].place = PoolPlace::Engines { kind: 0, numbers: senders, threads: threads.1 };
            let frames = coming.len() as u64;
            let mut sent = vec![0; 4];
            let mut load = Random { coming: coming.clone(), next: 0, due: 0, at: 0 };
            let seen = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut load, 0).unwrap();
            prop_assert_eq!(seen.offered.frames, frames);
            prop_assert_eq!(seen.delivered.frames, load.due);
            prop_assert_eq!(seen.lost_by_port.iter().sum::<u64>(), seen.lost);
            if seen.lost == 0 {
                for (port, bytes) in coming.iter().flat_map(|(_, _, _, outputs)| outputs) {
                    let byte = if *port < 3 { 4 } else { 8 };
                    sent[usize::from(*port)] += (u64::from(*bytes) + 20) * byte;
                }
                prop_assert_eq!(seen.lines, sent.into_iter().map(Ticks).collect::<Vec<_>>());
            }
        }
    }
}
