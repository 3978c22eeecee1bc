//! A machine from its description.

use std::collections::{HashMap, VecDeque};

use super::cache::Cache;
use super::edge::{Buffer, Bus, Credits, Element, Line, UNBOUNDED, Way};
use super::list::Linked;
use super::memory::{Service, SharedMemory};
use super::order::Order;
use super::pending::{Outbox, Pending};
use super::reorder::Reorder;
use super::rotation::Rotation;
use super::script::{Remembered, View};
use super::seen::Tallies;
use super::watch::{Track, Watch};
use super::{Cluster, Crew, Engine, Machine, Ring, Thread, Unit, Waits, program};
use dataplane::stage::Stage as _;
use dataplane::stage::reassemble::Reassemble;

use crate::agenda::Agenda;
use crate::description::{Carries, Chip, EngineKind, PortKind};
use crate::kernel::{Ticks, Timebase};
use crate::mapping::{Mapping, PoolPlace, Priority, Task, Work, stages};

/// Commands that a unit's references may have under way.
const UNIT_COMMANDS: usize = 64;

/// Resource made infinitely fast, to measure how far it limits the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ideal {
    /// No resource.
    #[default]
    Nothing,
    /// The engines of a pool, by its place in the mapping: instructions take no time.
    Pool(usize),
    /// A memory, by its place in the chip: references take no time.
    Memory(usize),
    /// A ring, by its place in the mapping: it is never full.
    Ring(usize),
    /// A unit, by its place in the chip.
    Unit(usize),
    /// A bus, by its place in the chip.
    Bus(usize),
    /// The receive buffer: it is never full.
    Receive,
    /// The transmit buffer: it is never full.
    Transmit,
    /// The ports' lines.
    Ports,
}

/// Failure to make a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The clocks have no common measure that time could be counted in.
    #[error("the chip's clocks have no common measure; round them to whole MHz")]
    Clocks,
    /// The mapping names something that the chip does not have.
    #[error("the mapping names {0} that the chip does not have")]
    Unmapped(&'static str),
}

impl<'a> Machine<'a> {
    /// A machine at rest, at the beginning of time.
    pub fn new(chip: &'a Chip, mapping: &'a Mapping, ideal: Ideal) -> Result<Machine<'a>, MachineError> {
        let time = Timebase::new(chip.ticks_per_second().ok_or(MachineError::Clocks)?);
        let cycle = time.cycle(chip.clock);
        let has_priorities = program::tasks(mapping).any(|(_, task)| task.priority == Priority::High);
        let usual = if has_priorities { Service::TwoPriorities } else { Service::OnePriority };
        let memories = chip.memories.iter().enumerate();
        let memories = memories
            .map(|(number, memory)| {
                let service = if ideal == Ideal::Memory(number) { Service::Instant } else { usual };
                SharedMemory::new(number, memory, cycle, time, service)
            })
            .collect::<Vec<_>>();
        let mut rings = Vec::new();
        for (number, ring) in mapping.rings.iter().enumerate() {
            let kind = chip.rings.get(ring.kind).ok_or(MachineError::Unmapped("a kind of ring"))?;
            let memory = match &kind.memory {
                Some(name) => Some(
                    chip.memories
                        .iter()
                        .position(|memory| memory.name == *name)
                        .ok_or(MachineError::Unmapped("a memory"))?,
                ),
                None => None,
            };
            let linked = kind.lists.as_ref().map(|unit| {
                let leads_out =
                    |(_, task): (usize, &Task)| task.from == Some(number) && task.work == Work::Transmit;
                Linked::new(chip, unit, program::tasks(mapping).any(leads_out))
                    .ok_or(MachineError::Unmapped("a unit for linked lists"))
            });
            rings.push(Ring {
                most: if ideal == Ideal::Ring(number) { UNBOUNDED } else { ring.entries } as usize,
                priorities: kind.priorities,
                memory,
                linked: linked.transpose()?,
                entry: u32::try_from(kind.entry.0).unwrap_or(u32::MAX),
                latency: time.cycles(kind.latency, chip.clock),
                passed: program::passed(mapping, number),
                frames: VecDeque::new(),
                reserved: 0,
                blocked: VecDeque::new(),
                is_ordered: ring.order.is_some(),
                waiting: VecDeque::new(),
            });
        }
        let units = chip.units.iter().map(|unit| Unit {
            work: unit.work,
            frames: unit.frames,
            free: vec![Ticks::ZERO; unit.count.max(1) as usize],
            interval: time.cycles(unit.interval, chip.clock),
            per_word: cycle.0.saturating_mul(u64::from(unit.per_word)),
            latency: time.cycles(unit.latency, chip.clock),
        });
        let buses = chip.buses.iter().map(|bus| Bus {
            free: Ticks::ZERO,
            per_element: bus.overhead.0,
            cycle: time.cycle(bus.clock).0,
            width: bus.width.0.max(1),
            carries_in: if bus.carries == Carries::Transmit { Way::Off } else { Way::On },
            carries_out: if bus.carries == Carries::Receive { Way::Off } else { Way::On },
            lines: chip.ports.each().map(|kind| if bus.serves(kind) { Way::On } else { Way::Off }).collect(),
            latency: time.cycles(bus.latency, bus.clock),
            credits: bus.credits.map(Credits::new),
        });
        let fifo = |port: &PortKind| match (ideal, port.fifo) {
            (Ideal::Receive | Ideal::Transmit, _) => UNBOUNDED,
            (_, Some(bytes)) => u32::try_from(bytes.0).unwrap_or(UNBOUNDED),
            (_, None) => u32::try_from(chip.mac_bytes().0).unwrap_or(UNBOUNDED),
        };
        let mut machine = Machine {
            chip,
            mapping,
            time,
            ideal,
            agenda: Agenda::new(),
            views: Vec::new(),
            engines: Vec::new(),
            clusters: Vec::new(),
            threads: Vec::new(),
            clocks: Vec::new(),
            pools: vec![Crew::default(); mapping.pools.len()],
            queued: HashMap::new(),
            segments: rings.iter().find_map(|ring| ring.linked).map(|linked| linked.segments()),
            rings,
            chooses: memories.iter().any(SharedMemory::chooses),
            memories,
            pending: Pending::default(),
            cached: Vec::new(),
            units: units.collect(),
            reassembly: stages()
                .iter()
                .position(|name| *name == Reassemble::ABOUT.name)
                .unwrap_or(usize::MAX),
            buses: buses.collect(),
            lines: (0..)
                .zip(chip.ports.each())
                .map(|(line, port)| Line::new(port, fifo(port), bound(mapping, chip, line)))
                .collect(),
            receive: Buffer::new(&chip.receive, ideal == Ideal::Receive),
            transmit: Buffer::new(&chip.transmit, ideal == Ideal::Transmit),
            incoming: VecDeque::new(),
            received: VecDeque::new(),
            claimants: VecDeque::new(),
            departures: 0,
            order: Order::default(),
            reorder: Reorder::new(chip, mapping, ideal),
            jobs: Vec::new(),
            free: Vec::new(),
            seen: Tallies::default(),
            watch: None,
        };
        machine.make_engines()?;
        machine.make_timers()?;
        machine.seen.make_room(
            machine.engines.len(),
            machine.rings.len(),
            machine.units.len(),
            machine.buses.len(),
            machine.lines.len(),
        );
        Ok(machine)
    }

    /// Attaches the observer `watch`.
    #[must_use]
    pub(crate) fn watched(self, watch: &'a mut dyn Watch) -> Machine<'a> {
        Machine { watch: Some(watch), ..self }
    }

    /// Returns the engine and the pool of each thread.
    pub(crate) fn tracks(&self) -> Vec<Track> {
        self.threads.iter().map(|thread| Track { engine: thread.engine, pool: thread.pool }).collect()
    }

    /// The engine of that kind and number, by its place in the list of all.
    pub(crate) fn engine_of(chip: &Chip, kind: usize, number: u32) -> usize {
        chip.engines.iter().take(kind).map(|kind| kind.count as usize).sum::<usize>() + number as usize
    }

    /// Makes all engines of the chip, in its order, after them the units that stages run in, and then the threads.
    fn make_engines(&mut self) -> Result<(), MachineError> {
        let (chip, mapping) = (self.chip, self.mapping);
        for kind in &chip.engines {
            let first = self.clusters.len();
            let cluster = kind.cluster.max(1);
            for _ in 0..kind.count.div_ceil(cluster) {
                self.clusters.push(Cluster {
                    most: kind.commands.max(1) as usize,
                    departures: VecDeque::new(),
                    last: Ticks::ZERO,
                    outbox: Outbox::default(),
                });
            }
            self.views.push(View::new(chip, mapping, kind, self.time, false));
            let view = self.views.len() - 1;
            for number in 0..kind.count {
                let switch = self.time.cycles(kind.switch, kind.clock);
                self.engines.push(Engine::new(view, first + (number / cluster) as usize, switch));
            }
        }
        for (pool, of) in mapping.pools.iter().enumerate() {
            match &of.place {
                PoolPlace::Engines { kind, numbers, threads } => {
                    let described =
                        chip.engines.get(*kind).ok_or(MachineError::Unmapped("a kind of engine"))?;
                    for number in numbers {
                        if *number >= described.count {
                            return Err(MachineError::Unmapped("an engine"));
                        }
                    }
                    let view = self.view_of(pool, described);
                    // Thread by thread over all engines, so that frames spread before they gather.
                    for _ in 0..*threads {
                        for number in numbers {
                            let engine = Machine::engine_of(chip, *kind, *number);
                            if let Some(view) = view {
                                self.engines[engine].view = view;
                                self.engines[engine].switch = Ticks::ZERO;
                            }
                            self.add_cache(engine, described);
                            self.add_thread(engine, pool);
                            self.add_turn(engine, of.poll);
                        }
                    }
                }
                PoolPlace::Unit(_) => {
                    let unit =
                        program::unit_of(of, chip).ok_or(MachineError::Unmapped("a unit for stages"))?;
                    let unit_of = &self.units[unit];
                    let depth = unit_of.latency.0 / unit_of.interval.0.max(1) + 2;
                    let copies = unit_of.free.len();
                    for _ in 0..copies {
                        self.clusters.push(Cluster {
                            most: UNIT_COMMANDS,
                            departures: VecDeque::new(),
                            last: Ticks::ZERO,
                            outbox: Outbox::default(),
                        });
                        let cluster = self.clusters.len() - 1;
                        self.engines.push(Engine::new(0, cluster, Ticks::ZERO));
                        let engine = self.engines.len() - 1;
                        for _ in 0..depth.min(1 << 12) {
                            self.add_thread(engine, pool);
                        }
                    }
                }
            }
        }
        for engine in &mut self.engines {
            engine.rotation = engine.rotation.take().filter(Rotation::polls);
        }
        Ok(())
    }

    /// Gives the engine's last thread its place in the rotation.
    fn add_turn(&mut self, engine: usize, poll: Option<u32>) {
        let of = &mut self.engines[engine];
        let look = poll.map_or(Ticks::ZERO, |poll| self.views[of.view].look(poll) + of.switch);
        let thread = self.threads.len() - 1;
        of.rotation.get_or_insert_with(Rotation::new).add(thread, look);
    }

    /// Gives an engine that works its cache, once.
    fn add_cache(&mut self, engine: usize, kind: &EngineKind) {
        if let Some(cache) = kind.cache.filter(|_| !self.cached.contains(&engine)) {
            self.engines[engine].cache =
                Some(Cache::new(&cache, self.time.cycles(cache.latency, kind.clock)));
            self.cached.push(engine);
        }
    }

    /// A view in which instructions take no time, where the pool is to be infinitely fast.
    fn view_of(&mut self, pool: usize, kind: &EngineKind) -> Option<usize> {
        if self.ideal != Ideal::Pool(pool) {
            return None;
        }
        self.views.push(View::new(self.chip, self.mapping, kind, self.time, true));
        Some(self.views.len() - 1)
    }

    fn add_thread(&mut self, engine: usize, pool: usize) {
        let place = self.pools[pool].hungry.len();
        self.pools[pool].hungry.push_back(self.threads.len());
        self.threads.push(Thread {
            engine,
            pool,
            place,
            task: 0,
            element: Element::default(),
            script: Vec::new(),
            next: 0,
            tickets: Vec::new(),
            awaits: None,
            waits: Waits::Frames,
            priority: Priority::Normal,
        });
    }
}

/// The most elements of a port in the receive buffer: one for each thread, where all that receive from it are bound to it.
fn bound(mapping: &Mapping, chip: &Chip, port: u16) -> u32 {
    let count = u16::try_from(chip.ports.count()).unwrap_or(u16::MAX);
    let mut most = 0;
    for pool in &mapping.pools {
        for task in pool.tasks.iter().filter(|task| task.receives()) {
            let ports = task.ports.of(count);
            let Some(place) = ports.iter().position(|of| *of == port) else { continue };
            let PoolPlace::Engines { numbers, threads, .. } = &pool.place else { return UNBOUNDED };
            if !task.ports.bound {
                return UNBOUNDED;
            }
            let all = numbers.len() * *threads as usize;
            most += (place..all).step_by(ports.len()).count();
        }
    }
    u32::try_from(most).unwrap_or(UNBOUNDED)
}

impl Engine {
    fn new(view: usize, cluster: usize, switch: Ticks) -> Engine {
        Engine {
            view,
            cluster,
            switch,
            current: None,
            held: false,
            ready: VecDeque::new(),
            remembered: Remembered::default(),
            cache: None,
            rotation: None,
        }
    }
}
