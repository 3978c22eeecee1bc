//! A mapping: the assignment of stages to engines, the rings between them, and the memories of the regions.
//!
//! [`parse`] and [`load`] make a [`Mapping`] of a text as `chips/mappings/*.toml` have it, for a chip, or say all
//! that is wrong with it; [`set`] changes one value of the text first. Whether programs and tables fit is known
//! only with a policy: [`check_fit`] says it then.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use config::Entry;
use config::LoadError;
use config::Source;
use dataplane::pipeline;
use tally::Region;
use wire::Nanos;

use crate::description::{Chip, Unit};
use crate::diagnostic::Diagnostic;
use crate::load::{Handling, Standing};
use crate::setting::{self, SetError};
use crate::trace::Access;

mod fit;
mod flow;
mod place;
mod pool;
mod read;
mod task;
mod timer;

pub use fit::{Extent, Program, bytes_placed, check_fit};

/// A mapping, and the diagnostics of its text.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The mapping; `None` if anything is wrong. Warnings do not make it wrong.
    pub mapping: Option<Mapping>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Positions in the text, for [`check_fit`].
    pub lines: Lines,
}

/// Positions of a mapping's parts in its text; empty for a mapping that came from no text.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    source: Option<Arc<Source>>,
    pools: Vec<Entry>,
    /// Tasks of each pool.
    tasks: Vec<Vec<Entry>>,
    rings: Vec<Entry>,
    placements: Vec<Range<usize>>,
    /// The section of regions, where there is one.
    regions: Range<usize>,
}

/// Reads a mapping for `chip`; `file` is its name in diagnostics.
pub fn parse(text: &str, file: &str, chip: &Chip) -> Checked {
    read::read(text, file, chip)
}

/// Reads the mapping in the file at `path`, for `chip`.
pub fn load(path: &Path, chip: &Chip) -> Result<Checked, LoadError> {
    Ok(match config::file::text(path, "mapping")? {
        Ok(text) => parse(&text, &path.display().to_string(), chip),
        Err(wrong) => Checked { mapping: None, diagnostics: vec![wrong], lines: Lines::default() },
    })
}

/// The name of the chip that the text of a mapping is for, as far as it can be read.
pub fn chip_of(text: &str) -> Option<String> {
    let table: toml::Table = text.parse().ok()?;
    table.get("chip")?.as_str().map(str::to_owned)
}

/// Returns the text of a mapping with the value at `path` ("pool.firewall.threads", "region.rule-table") replaced by
/// `value`, and the rest unchanged. [`parse`] checks the value.
pub fn set(text: &str, path: &str, value: &str) -> Result<String, SetError> {
    setting::set(text, path, value, read::keys)
}

/// The names of the pipeline's stages, in its order.
pub(crate) fn stages() -> Vec<&'static str> {
    pipeline::names().to_vec()
}

/// Assignment of stages to engines and of regions to memories.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The chip that it is for.
    pub chip: String,
    /// Description, in a sentence.
    pub about: String,
    /// Pools of threads, with their tasks.
    pub pools: Vec<Pool>,
    /// Rings between them.
    pub rings: Vec<Ring>,
    /// Places of the regions.
    pub placements: Vec<Placement>,
    /// Work at intervals, whatever frames come.
    pub timers: Vec<Timer>,
    /// Name of the classifier; the outcome is the same, the program and its cost are not. `None`: the policy's.
    pub classifier: Option<String>,
}

/// Threads that run the same tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Engines or unit that its threads run on.
    pub place: PoolPlace,
    /// Tasks of each thread. A free thread serves the last task that has a frame waiting, so that frames furthest along
    /// the pipeline go first.
    pub tasks: Vec<Task>,
    /// Instructions by which an idle thread looks for something to receive, again and again in its turn; absent where it waits, and takes no
    /// time of its engine.
    pub poll: Option<u32>,
}

/// Work that an engine does at intervals, beside its threads: the timer of a control processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: String,
    /// Kind of its engine, by its place in the chip's list.
    pub engine: usize,
    /// Number of the engine, from 0.
    pub number: u32,
    /// Interval.
    pub every: Nanos,
    /// Work each time. It has no effect but its time.
    pub work: Extra,
}

/// Engines or unit that the threads of a pool run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// On engines.
    Engines {
        /// The kind, by its place in the chip's list.
        kind: usize,
        /// Numbers of the engines, from 0.
        numbers: Vec<u32>,
        /// Number of threads of each engine. Pools may share an engine, not a thread.
        threads: u32,
    },
    /// In a unit of the kind [`crate::description::UnitWork::Stage`], by its place in the chip's list.
    Unit(usize),
}

impl PoolPlace {
    /// True if there are threads on the engine of that number, of the kind at that place in the chip's list.
    pub fn has(&self, kind: usize, number: u32) -> bool {
        match self {
            PoolPlace::Engines { kind: of, numbers, .. } => *of == kind && numbers.contains(&number),
            PoolPlace::Unit(_) => false,
        }
    }
}

/// A task of threads on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Work on the frame.
    pub work: Work,
    /// The ring that frames are taken from, by its place in [`Mapping::rings`]; none for [`Work::Receive`].
    pub from: Option<usize>,
    /// Exits for frames that go on; empty for [`Work::Transmit`].
    pub to: Vec<Exit>,
    /// Ports that frames are received from.
    pub ports: ServedPorts,
    /// Work on each frame beyond that of its stages.
    pub extra: Extra,
    /// Priority of its commands, in memories that have a queue for those of high priority.
    pub priority: Priority,
}

/// Priority of commands to memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Served in the memory's order.
    #[default]
    Normal,
    /// Served before all that are not of high priority.
    High,
}

/// Work of a service that is not written yet, on each frame that a task has run its stages on: to see how much is to spare. It has no
/// effect but its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Instructions.
    pub instructions: u32,
    /// References, one after the other; the thread waits for each.
    pub references: u32,
    /// Kind of reference.
    pub access: Access,
    /// Bytes of each.
    pub bytes: u32,
    /// The memory, by its place in the chip's list.
    pub memory: usize,
}

/// Ports that a task of [`Work::Receive`] receives from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedPorts {
    /// Numbers of the ports; empty for all of the chip.
    pub numbers: Vec<u16>,
    /// True if each thread of the pool has one port of its own, the n-th thread the n-th port, and from the last port on again the first.
    pub bound: bool,
}

impl ServedPorts {
    /// The numbers of the ports, of a chip that has `count`.
    pub fn of(&self, count: u16) -> Vec<u16> {
        if self.numbers.is_empty() { (0..count).collect() } else { self.numbers.clone() }
    }
}

impl Task {
    /// The stages that it runs, by their places in the pipeline's order; empty if it runs none.
    pub fn stages(&self) -> Range<usize> {
        match &self.work {
            Work::Receive(stages) | Work::Stages(stages) => stages.clone(),
            Work::Transmit => 0..0,
        }
    }

    /// True if it takes frames from the receive buffer.
    pub fn receives(&self) -> bool {
        matches!(self.work, Work::Receive(_))
    }
}

/// Work of a task on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Moves it from the receive buffer to memory; the thread with its last element then runs these stages, if any.
    Receive(Range<usize>),
    /// Runs consecutive stages of the pipeline, by their places in its order.
    Stages(Range<usize>),
    /// Moves it from memory to the transmit buffer.
    Transmit,
}

/// An exit of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Frames that take it.
    pub who: Who,
    /// The ring that it leads to, by its place in [`Mapping::rings`].
    pub ring: usize,
}

/// Frames that take an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All frames.
    All,
    /// Frames that open a flow, or are tracked for themselves.
    New,
    /// Frames of a flow that has been decided.
    Known,
    /// Frames that are answered, delivered to the gateway itself, or held: work for a control processor.
    Exception,
    /// Frames that are no exception.
    Rest,
}

impl Who {
    /// True if a frame of that kind takes the exit.
    pub(crate) fn takes(self, standing: Standing, handling: Handling) -> bool {
        match self {
            Who::All => true,
            Who::New => standing == Standing::New,
            Who::Known => standing == Standing::Known,
            Who::Exception => handling == Handling::Exception,
            Who::Rest => handling == Handling::Plain,
        }
    }
}

/// A ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its name.
    pub name: String,
    /// Its kind, by its place in the chip's list.
    pub kind: usize,
    /// Number of frames that it holds.
    pub entries: u32,
    /// The unit of [`crate::description::UnitWork::Order`], by its place in the chip's list, that gives frames to it in the order in which they were
    /// received; absent where they come as threads put them.
    pub order: Option<usize>,
}

impl Ring {
    /// True if the linked lists of that unit keep its frames.
    fn is_kept_by(&self, unit: &Unit, chip: &Chip) -> bool {
        chip.rings.get(self.kind).is_some_and(|kind| kind.lists.as_ref() == Some(&unit.name))
    }
}

/// Place of a region, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The region.
    pub region: Region,
    /// First byte of the part, which ends before `end`. A region may lie in several places by parts; the first placement
    /// that holds an offset counts.
    pub first: u64,
    /// End of the part, exclusive; `u64::MAX` for all the rest.
    pub end: u64,
    /// Place of the part.
    pub place: Place,
}

/// Place of a region.
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
    /// In a unit that keeps it, by its place in the chip's list: references are handed to it.
    Unit(usize),
}

#[cfg(test)]
mod tests;
