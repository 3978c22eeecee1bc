//! Tests of memories that choose among the commands that wait.

use std::collections::{BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use tally::{Address, Region};
use wire::Bytes;

use super::{Same, chip, drawing, pool, read, run, task};
use crate::clock::{Cycles, Hertz};
use crate::description::{Cache, Chip, DataPins, Memory, ServiceOrder};
use crate::kernel::{Ticks, Timebase};
use crate::machine::memory::{Service, SharedMemory};
use crate::machine::{Ideal, Machine, Reference, Spends, Watch, Window};
use crate::mapping::{Mapping, Place, Priority, Task, Work};
use crate::trace::{Access, Act, Referral, Wait};

/// A command that comes to a memory.
#[derive(Clone, Copy, Debug)]
struct Comes {
    at: u64,
    address: u64,
    bytes: u32,
    access: Access,
    priority: Priority,
}

/// A memory whose cycle is three ticks.
fn memory(order: ServiceOrder, priority: Option<u32>) -> Memory {
    Memory {
        name: "dram".into(),
        bytes: Bytes(1 << 20),
        channels: 2,
        interleave: Bytes(64),
        banks: 4,
        clock: Hertz(200_000_000),
        width: Bytes(8),
        pins: DataPins::Shared,
        latency: Cycles(90),
        write_latency: Cycles(60),
        burst: Bytes(64),
        overhead: Cycles(1),
        recovery: Cycles(7),
        atomic: Some(Cycles(2)),
        queue: 1 << 10,
        order,
        priority,
        cache: None,
    }
}

/// The start and the end of each command, by the model.
fn by_model(memory: &Memory, stream: &[Comes]) -> Vec<(u64, u64)> {
    let mut model =
        SharedMemory::new(0, memory, Ticks(1), Timebase::new(600_000_000), Service::TwoPriorities);
    assert!(model.chooses());
    let mut found = vec![(0, 0); stream.len()];
    let mut wakes = BTreeSet::new();
    let mut coming: VecDeque<(u32, &Comes)> = (0..).zip(stream).collect();
    loop {
        let arrival = coming.front().map(|(_, comes)| comes.at);
        let wake: Option<(u64, usize)> = wakes.first().copied();
        let (now, lane) = match (arrival, wake) {
            (None, None) => return found,
            (arrival, Some((at, lane))) if arrival.is_none_or(|arrival| at <= arrival) => {
                wakes.pop_first();
                (at, lane)
            }
            (_, _) => {
                let Some((number, comes)) = coming.pop_front() else { return found };
                let (lane, bytes) = model.lane(comes.address, comes.bytes, comes.access);
                assert_eq!(bytes, comes.bytes);
                let command = (comes.address, comes.bytes, comes.access);
                model.enter(number, command, comes.priority, Ticks(comes.at));
                (comes.at, lane)
            }
        };
        model.controller().unwrap().reach(lane, Ticks(now));
        while let Some(started) = model.start(lane, Ticks(now)) {
            found[started.reference as usize] = (now, started.done.0);
        }
        wakes.extend(model.expect(lane).map(|at| (at.0, lane)));
    }
}

/// Pins of the slow reference, and the commands before them in the order of arrival.
#[derive(Clone, Default)]
struct Slow {
    /// Ticks for which the pins are still taken.
    pins: u64,
    waiting: Vec<usize>,
}

/// The same, tick by tick: counters that run down, and lists that are looked through from their beginning.
fn by_the_clock(memory: &Memory, stream: &[Comes]) -> Vec<(u64, u64)> {
    const CYCLE: u64 = 3;
    let ways = if memory.pins == DataPins::Separate { 2 } else { 1 };
    let queues = match memory.order {
        ServiceOrder::Arrival => 1,
        ServiceOrder::Bank { queues } => u64::from(queues),
    };
    let (channels, banks) = (u64::from(memory.channels), u64::from(memory.banks));
    let place = |comes: &Comes| {
        let line = comes.address / memory.interleave.0;
        let way = if ways == 2 && comes.access == Access::Write { 1 } else { 0 };
        ((line % channels) as usize, line / channels % banks, way)
    };
    let mut lanes = vec![Slow::default(); (channels * ways) as usize];
    let mut busy = vec![vec![0_u64; banks as usize]; channels as usize];
    let mut found = vec![(0, 0); stream.len()];
    let mut left = stream.len();
    let mut now = 0;
    let mut come = 0;
    while left > 0 {
        // Once before what comes now, and after each of it.
        loop {
            for lane in 0..lanes.len() {
                let (channel, way) = (lane / ways as usize, lane % ways as usize);
                if lanes[lane].pins > 0 {
                    continue;
                }
                let is_high = |place: &&usize| stream[**place].priority == Priority::High;
                let is_free = |command: usize| busy[channel][place(&stream[command]).1 as usize] == 0;
                let chosen = match lanes[lane].waiting.iter().find(is_high) {
                    Some(first) => is_free(*first).then_some(*first),
                    None => {
                        let mut passed = BTreeSet::new();
                        lanes[lane].waiting.iter().copied().find(|command| {
                            passed.insert(place(&stream[*command]).1 % queues) && is_free(*command)
                        })
                    }
                };
                let Some(command) = chosen else { continue };
                lanes[lane].waiting.retain(|other| *other != command);
                left -= 1;
                let Comes { bytes, access, .. } = stream[command];
                let data = u64::from(bytes).div_ceil(memory.width.0) * CYCLE;
                let changes = if access == Access::Atomic { 2 * CYCLE } else { 0 };
                let apart = ways == 2 && access == Access::Atomic;
                let taken = CYCLE + data + if apart { 0 } else { changes };
                lanes[lane].pins = taken;
                if apart {
                    lanes[lane + 1].pins = lanes[lane + 1].pins.max(taken) + data;
                }
                busy[channel][place(&stream[command]).1 as usize] = taken + memory.recovery.0 * CYCLE;
                let latency = if access == Access::Write { 60 } else { 90 };
                found[command] = (now, now + latency + changes + data - CYCLE);
                assert_eq!(place(&stream[command]).2, way);
            }
            match stream.get(come).filter(|comes| comes.at == now) {
                Some(comes) => {
                    let (channel, _, way) = place(comes);
                    lanes[channel * ways as usize + way].waiting.push(come);
                    come += 1;
                }
                None => break,
            }
        }
        now += 1;
        lanes.iter_mut().for_each(|lane| lane.pins = lane.pins.saturating_sub(1));
        busy.iter_mut().flatten().for_each(|bank| *bank = bank.saturating_sub(1));
    }
    found
}

fn streams() -> impl Strategy<Value = Vec<Comes>> {
    let access = prop_oneof![3 => Just(Access::Read), 2 => Just(Access::Write), 1 => Just(Access::Atomic)];
    let priority = prop_oneof![3 => Just(Priority::Normal), 1 => Just(Priority::High)];
    let one = (prop_oneof![2 => 0_u64..8, 1 => 0_u64..120], 0_u64..32, 1_u32..=8, access, priority);
    vec(one, 1..120).prop_map(|all| {
        let mut at = 0;
        let comes = |(after, line, words, access, priority)| {
            at += after;
            Comes { at, address: line * 64, bytes: words * 8, access, priority }
        };
        all.into_iter().map(comes).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever comes, in either order of service, it is served as the queues say, tick by tick.
    #[test]
    fn commands_are_served_as_by_queues_that_are_looked_at_each_cycle(
        stream in streams(),
        queues in 1_u32..=4,
        by_bank in any::<bool>(),
        is_separate in any::<bool>(),
    ) {
        let order = if by_bank { ServiceOrder::Bank { queues } } else { ServiceOrder::Arrival };
        let pins = if is_separate { DataPins::Separate } else { DataPins::Shared };
        let memory = Memory { pins, ..memory(order, Some(1 << 10)) };
        prop_assert_eq!(by_model(&memory, &stream), by_the_clock(&memory, &stream));
    }

    /// Commands of one priority are served alike, whichever it is: the memory that chooses serves as the one that need not, whatever
    /// the depths of queues. (Of several engines one or the other would be first where both can go on at one moment.)
    #[test]
    fn commands_of_one_priority_are_served_in_the_order_of_arrival(
        acts in vec(acts(), 1..12),
        threads in 1_u32..=4,
        (queue, commands) in (1_u32..=4, 1_u32..=4),
        (banks, interleave) in (1_u32..=4, prop_oneof![Just(8_u64), Just(64)]),
        (cached, every) in (any::<bool>(), 0_u64..200),
    ) {
        let mut chip = chip();
        chip.engines[0].commands = commands;
        chip.engines[0].cache = cached.then_some(Cache { bytes: Bytes(128), line: Bytes(16), ways: 2, latency: Cycles(1) });
        chip.memories[0] = Memory {
            queue,
            banks,
            interleave: Bytes(interleave),
            burst: Bytes(16),
            recovery: Cycles(5),
            ..chip.memories[0].clone()
        };
        let arrival = worked(&chip, &drawing(1, threads, Place::Shared(0)), &acts, every);
        chip.memories[0].priority = Some(queue);
        let mut mapping = drawing(1, threads, Place::Shared(0));
        mapping.pools[0].tasks[0].priority = Priority::High;
        prop_assert_eq!(worked(&chip, &mapping, &acts, every), arrival);
    }
}

fn acts() -> impl Strategy<Value = Act> {
    let access = prop_oneof![3 => Just(Access::Read), 2 => Just(Access::Write), 1 => Just(Access::Atomic)];
    let refer = (access, 0_u64..64, prop_oneof![Just(4_u32), Just(16), Just(40)], any::<bool>());
    prop_oneof![
        1 => (1_u32..30).prop_map(run),
        3 => refer.prop_map(|(access, at, bytes, is_awaited)| {
            let wait = if is_awaited { Wait::Now } else { Wait::Later(1) };
            Act::Refer(Referral {
                region: Region::RuleTable,
                access,
                at: at * 4,
                bytes,
                address: Address::Computed,
                wait,
            })
        }),
        1 => Just(Act::Await(1)),
    ]
}

/// Frames and their latest, and times of engines and the memory.
fn worked(
    chip: &Chip,
    mapping: &Mapping,
    acts: &[Act],
    every: u64,
) -> impl PartialEq + std::fmt::Debug + use<> {
    let window = ran(chip, mapping, acts, every);
    let memory = &window.memories[0];
    let traffic = memory.regions[Region::RuleTable as usize];
    (
        (window.ended, window.latency.max()),
        window.engines.clone(),
        memory.busy.clone(),
        memory.waited,
        (traffic.references, traffic.bytes, traffic.latency, traffic.worst),
    )
}

fn ran(chip: &Chip, mapping: &Mapping, acts: &[Act], every: u64) -> Window {
    let mut machine = Machine::new(chip, mapping, Ideal::Nothing).unwrap();
    machine.run(&mut Same { left: 40, acts: acts.to_vec(), at: 0, every }, 0).unwrap()
}

/// Reads of rules by all threads of two engines, and by one of a third, all of the same line of their region.
fn two_pools(priority: Priority) -> Mapping {
    let mut mapping = drawing(2, 4, Place::Shared(0));
    let urgent = Task { priority, ..task(Work::Stages(0..1), None, Vec::new()) };
    mapping.pools.push(pool("urgent", vec![2], 1, urgent));
    mapping
}

#[test]
fn commands_of_a_pool_of_high_priority_pass_those_that_wait() {
    let mut chip = chip();
    (chip.memories[0].queue, chip.memories[0].priority, chip.memories[0].overhead) = (16, Some(2), Cycles(9));
    // Ten cycles of the memory each: what nine threads ask for is more than there is.
    let acts = vec![run(1), read(Wait::Now)];
    let latencies = |priority| {
        let mut lasts = Lasts::default();
        let mapping = two_pools(priority);
        let mut load = Same { left: 4_000, acts: acts.clone(), at: 0, every: 0 };
        let mut machine = Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().watched(&mut lasts);
        let window = machine.run(&mut load, 0).unwrap();
        assert_eq!(window.memories[0].busy, [Ticks(40_000)], "each takes the pins once, whatever the order");
        lasts.0
    };
    let [others, own] = latencies(Priority::Normal);
    assert!(own.mean() > 80.0, "{own:?}");
    let [slower, first] = latencies(Priority::High);
    // Alone 50 cycles, and the one that is being served.
    assert!(first.worst <= 60, "{first:?}");
    assert!(slower.worst >= others.worst, "{own:?} {first:?} {slower:?} {others:?}");
}

/// Latencies of references: by the threads of the first eight, and by the one after them.
#[derive(Default)]
struct Lasts([Spread; 2]);

#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: u64,
    sum: u64,
    worst: u64,
}

impl Spread {
    fn mean(self) -> f64 {
        self.sum as f64 / self.count as f64
    }
}

impl Watch for Lasts {
    fn comes(&mut self, _: Ticks, _: Option<u32>) {}
    fn begins(&mut self, _: Ticks, _: usize, _: usize, _: u32) {}
    fn finishes(&mut self, _: Ticks, _: usize) {}
    fn spends(&mut self, _: usize, _: Spends, _: Ticks, _: Ticks) {}
    fn polls(&mut self, _: usize, _: Ticks, _: Ticks) {}
    fn refers(&mut self, _: Ticks, reference: &Reference) {
        let of = &mut self.0[usize::from(reference.thread == 8)];
        let latency = reference.done.since(reference.at).0;
        (of.count, of.sum, of.worst) = (of.count + 1, of.sum + latency, of.worst.max(latency));
    }
    fn fills(&mut self, _: Ticks, _: usize, _: usize) {}
    fn sends(&mut self, _: Ticks, _: usize, _: u32) {}
    fn leaves(&mut self, _: Ticks, _: u32) {}
    fn has_enough(&self) -> bool {
        false
    }
}

/// A read of a word at that address of rules.
fn read_at(at: u64, access: Access, wait: Wait) -> Act {
    Act::Refer(Referral { region: Region::RuleTable, access, at, bytes: 4, address: Address::Computed, wait })
}

#[test]
fn a_command_passes_those_that_wait_for_another_bank() {
    let mut chip = chip();
    (chip.memories[0].banks, chip.memories[0].recovery) = (2, Cycles(40));
    let ends = |chip: &Chip, acts: &[Act]| {
        let mapping = drawing(1, 1, Place::Shared(0));
        let mut machine = Machine::new(chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: 1, acts: acts.to_vec(), at: 0, every: 0 }, 0).unwrap().latency.max()
    };
    // Three of bank 0, and then one of bank 1, which alone is waited for.
    let read = |at, ticket| read_at(at, Access::Read, Wait::Later(ticket));
    let acts = [read(0, 1), read(8, 2), read(16, 3), read(4, 4), Act::Await(4)];
    // Each is issued by an instruction. The third starts when the bank has recovered twice, and the fourth behind it.
    assert_eq!(ends(&chip, &acts), 1 + 2 * 42 + 2 + 50);
    chip.memories[0].order = ServiceOrder::Bank { queues: 2 };
    assert_eq!(ends(&chip, &acts), 4 + 50, "its bank is free");
    // In one queue they stay in order.
    chip.memories[0].order = ServiceOrder::Bank { queues: 1 };
    assert_eq!(ends(&chip, &acts), 1 + 2 * 42 + 2 + 50);
}

#[test]
fn what_is_read_and_written_back_takes_both_ways() {
    let mut chip = chip();
    (chip.memories[0].banks, chip.memories[0].recovery, chip.memories[0].atomic) = (2, Cycles(9), None);
    chip.memories[0].write_latency = Cycles(30);
    let acts = [run(3), read_at(4, Access::Atomic, Wait::Now), read_at(0, Access::Write, Wait::Now)];
    let arrival = worked(&chip, &drawing(1, 1, Place::Shared(0)), &acts, 0);
    chip.memories[0].order = ServiceOrder::Bank { queues: 2 };
    assert_eq!(worked(&chip, &drawing(1, 1, Place::Shared(0)), &acts, 0), arrival);
    let window = ran(&chip, &drawing(1, 1, Place::Shared(0)), &acts, 0);
    assert_eq!(window.span, Ticks(40 * (3 + 1 + 50 + 30 + 1 + 30)));
}

#[test]
fn engines_that_a_full_queue_holds_up_go_on_in_turn() {
    let mut chip = chip();
    (chip.engines[0].cluster, chip.engines[0].commands) = (1, 2);
    (chip.memories[0].banks, chip.memories[0].recovery, chip.memories[0].queue) = (2, Cycles(20), 1);
    chip.memories[0].order = ServiceOrder::Bank { queues: 2 };
    // All to one bank, of which a command takes 22 cycles.
    let acts = [
        read_at(0, Access::Write, Wait::Later(1)),
        read_at(8, Access::Write, Wait::Later(2)),
        Act::Await(1),
        Act::Await(2),
    ];
    let window = ran(&chip, &drawing(4, 2, Place::Shared(0)), &acts, 0);
    assert_eq!(window.ended.frames, 40);
    assert_eq!(window.memories[0].busy, [Ticks(2 * 80)]);
    assert!((22 * 79..22 * 79 + 60).contains(&window.span.0), "{:?}", window.span);
    assert!(window.engines.iter().all(|engine| engine.stalled > Ticks(500)), "{:?}", window.engines);
}
