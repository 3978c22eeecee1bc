//! A mapping: which engines run which stages, the rings between them, and which memories hold what.
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

use crate::description::Chip;
use crate::diagnostic::Diagnostic;
use crate::setting::{self, SetError};

mod fit;
mod flow;
mod place;
mod pool;
mod read;

pub use fit::{Extent, Program, check_fit};

/// A mapping, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The mapping; `None` if anything is wrong. Warnings do not make it wrong.
    pub mapping: Option<Mapping>,
    /// What is wrong, and what is unwise, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Where things stand, for [`check_fit`].
    pub lines: Lines,
}

/// Where the parts of a mapping stand in its text. A mapping that came from no text has no lines.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    source: Option<Arc<Source>>,
    pools: Vec<Entry>,
    /// Of each pool, its tasks.
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

/// The text of a mapping with what is at `path` ("pool.firewall.threads", "region.rule-table") set to `value`. The
/// rest of the text stays as it is; whether the value is one that can stand there, [`parse`] says.
pub fn set(text: &str, path: &str, value: &str) -> Result<String, SetError> {
    setting::set(text, path, value, read::keys)
}

/// The names of the pipeline's stages, in its order.
pub(crate) fn stages() -> Vec<&'static str> {
    pipeline::names().to_vec()
}

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
    Stages(Range<usize>),
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
    /// Number of frames that it holds.
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
    /// In a unit that keeps it, by its place in the chip's list: references are handed to it.
    Unit(usize),
}

#[cfg(test)]
mod tests;
