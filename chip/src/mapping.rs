//! A mapping: which engines run which stages, the rings between them, and which memories hold what.

use tally::Region;

/// What runs and lies where.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The chip that it is for.
    pub chip: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Pools of threads, and what they do.
    pub pools: Vec<Pool>,
    /// Rings between them.
    pub rings: Vec<Ring>,
    /// Where regions lie.
    pub placements: Vec<Placement>,
    /// How rules are searched; the outcome is the same, the program and its cost are not. `None`: as the policy does.
    pub classifier: Option<String>,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Where its threads are.
    pub place: PoolPlace,
    /// What they do. A thread that is free takes from the last of them that has something to take, so that frames
    /// far on their way go first.
    pub tasks: Vec<Task>,
}

/// Where the threads of a pool are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// On engines.
    Engines {
        /// The kind, by its place in the chip's list.
        kind: usize,
        /// Which, from 0.
        numbers: Vec<u32>,
        /// How many threads of each. Pools may share an engine, not a thread.
        threads: u32,
    },
    /// In a unit of the kind [`crate::description::UnitWork::Stage`], by its place in the chip's list.
    Unit(usize),
}

/// One thing that threads do with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What.
    pub work: Work,
    /// The ring that frames are taken from, by its place in [`Mapping::rings`]; none for [`Work::Receive`].
    pub from: Option<usize>,
    /// Where frames go that go on; empty for [`Work::Transmit`].
    pub to: Vec<Exit>,
}

/// What is done with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// It is moved from the receive buffer to memory.
    Receive,
    /// These stages of the pipeline, by their places in its order, which follow one another.
    Stages(std::ops::Range<usize>),
    /// It is moved from memory to the transmit buffer.
    Transmit,
}

/// A way on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Who takes it.
    pub who: Who,
    /// The ring that it leads to, by its place in [`Mapping::rings`].
    pub ring: usize,
}

/// Which frames take an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All.
    All,
    /// Those that open a flow, or are tracked for themselves.
    New,
    /// Those of a flow that has been decided.
    Known,
}

/// A ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its name.
    pub name: String,
    /// Its kind, by its place in the chip's list.
    pub kind: usize,
    /// How many frames it holds.
    pub entries: u32,
}

/// Where a region, or a part of it, lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The region.
    pub region: Region,
    /// Bytes of it that this is about: from `first` to before `end`. A region may lie in several places by parts; the
    /// first placement that holds an offset counts.
    pub first: u64,
    /// See `first`; `u64::MAX` for all the rest.
    pub end: u64,
    /// Where.
    pub place: Place,
}

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a shared memory, by its place in the chip's list.
    Shared(usize),
    /// In a shared memory, with lines of it cached in local memory by the engine's CAM.
    Cached {
        /// The memory.
        memory: usize,
        /// Bytes of a line.
        line: u32,
    },
    /// In the local memory of each engine that uses it.
    Local,
    /// In registers or in the program itself: references cost nothing beyond their instructions.
    Registers,
}
