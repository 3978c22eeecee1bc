//! A chip: the parts of a network processor, as `chips/*.toml` describe them.
//!
//! [`parse`] and [`load`] make a [`Chip`] of such a text, or say all that is wrong with it; [`set`] changes one
//! parameter of the text first.
//!
//! Numbers and names only; how the parts behave is said in [`crate::machine`]. All latencies are in cycles of the
//! chip's clock, unless a field says otherwise.

use std::path::Path;

use config::LoadError;
use wire::{BitRate, Bytes};

use crate::clock::{Cycles, Hertz};
use crate::diagnostic::Diagnostic;
use crate::setting::{self, SetError};

pub mod bound;
mod read;
mod schema;

/// A chip, and the diagnostics of its text.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The chip; `None` if anything is wrong. Warnings do not make it wrong.
    pub chip: Option<Chip>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The path of each parameter that the text gives, in its order: "memory.sram.latency".
    pub parameters: Vec<String>,
}

/// Reads the description of a chip; `file` is its name in diagnostics.
pub fn parse(text: &str, file: &str) -> Checked {
    read::read(text, file)
}

/// Reads the description in the file at `path`.
pub fn load(path: &Path) -> Result<Checked, LoadError> {
    Ok(match config::file::text(path, "chip")? {
        Ok(text) => parse(&text, &path.display().to_string()),
        Err(wrong) => Checked { chip: None, diagnostics: vec![wrong], parameters: Vec::new() },
    })
}

/// The text of a chip with the parameter at `path` ("memory.sram.latency") set to `value` ("45", "600 MHz"). The
/// rest of the text stays as it is; whether the value is one that the parameter can have, [`parse`] says.
pub fn set(text: &str, path: &str, value: &str) -> Result<String, SetError> {
    setting::set(text, path, value, schema::keys)
}

/// A network processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// Its name.
    pub name: String,
    /// Description, in a sentence.
    pub about: String,
    /// The clock that cycles are counted in, unless said otherwise.
    pub clock: Hertz,
    /// Kinds of engines; the first is the one that mappings mean by default.
    pub engines: Vec<EngineKind>,
    /// Memories that all engines share.
    pub memories: Vec<Memory>,
    /// Kinds of rings.
    pub rings: Vec<RingKind>,
    /// Units that engines hand work to, and fixed-function units that take the place of engines.
    pub units: Vec<Unit>,
    /// Buses between ports and buffers.
    pub buses: Vec<Bus>,
    /// Receive buffer, between ports and engines.
    pub receive: Buffer,
    /// Transmit buffer, between engines and ports.
    pub transmit: Buffer,
    /// The interfaces, numbered from 0 in the order of their kinds.
    pub ports: Ports,
    /// Power consumption.
    pub power: Option<Power>,
    /// Package.
    pub package: Option<Package>,
    /// Sources of the parameters: the path of a parameter or of a table of them, and the document.
    pub sources: Vec<Source>,
}

impl Chip {
    /// Sources of the parameters that are assumed, not read in a document.
    pub fn assumed(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.standing == Standing::Assumed)
    }

    /// The source of the parameter at `path`: its own, or that of the nearest table around it.
    pub fn source_of(&self, path: &str) -> Option<&Source> {
        let about = self.sources.iter().filter(|source| source.is_about(path));
        about.max_by_key(|source| source.path.len())
    }

    /// Bytes that a MAC keeps, each way, where its port does not say: two elements of the larger buffer, so that one can come or
    /// leave while the other is moved.
    pub fn mac_bytes(&self) -> Bytes {
        Bytes(self.receive.element.0.max(self.transmit.element.0).saturating_mul(2))
    }

    /// The least common multiple of all clocks, in Hz, which time can be counted in without rounding; `None` where
    /// it is more than [`bound::TICKS_PER_SECOND`].
    pub fn ticks_per_second(&self) -> Option<u64> {
        let mut clocks = (self.engines.iter().map(|engines| engines.clock))
            .chain(self.memories.iter().map(|memory| memory.clock))
            .chain(self.buses.iter().map(|bus| bus.clock));
        clocks.try_fold(self.clock.0, |ticks, clock| common_multiple(ticks, clock.0))
    }
}

impl Source {
    /// True if the source covers the parameter at `path`.
    pub fn is_about(&self, path: &str) -> bool {
        path.strip_prefix(self.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let multiple = u128::from(a) * u128::from(b) / u128::from(divisor.max(1));
    u64::try_from(multiple).ok().filter(|multiple| *multiple <= bound::TICKS_PER_SECOND)
}

/// Engines of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineKind {
    /// Their name: "me".
    pub name: String,
    /// Role: packet processing or control.
    pub role: Role,
    /// Number of them, from 1.
    pub count: u32,
    /// Number of engines that share a cluster and its command bus.
    pub cluster: u32,
    /// Their clock.
    pub clock: Hertz,
    /// Hardware threads of each, from 1.
    pub threads: u32,
    /// Instructions that the store of each holds; unlimited where absent.
    pub store: Option<u32>,
    /// General registers of each, which its threads share in equal parts; as many as code needs where absent. Transfer registers are
    /// none of them.
    pub registers: Option<u32>,
    /// Memory of each engine's own.
    pub local: Option<LocalMemory>,
    /// Cycles of its own clock for an instruction, in thousandths: 1000 on a single-issue engine that never waits.
    pub cpi: u32,
    /// Cycles of its own clock that waiting for a reference costs beyond the instruction that issues it: swapping the thread out, and
    /// resuming it.
    pub wait: Cycles,
    /// Cycles of its own clock lost when another thread is switched to.
    pub switch: Cycles,
    /// Cycles of its own clock lost by a branch that is taken: instructions fetched in vain.
    pub branch: Cycles,
    /// Instructions that hashing 4 bytes takes where the chip has no hash unit.
    pub hash: u32,
    /// Commands (memory references, ring operations) that a cluster may have under way before its engines stall.
    pub commands: u32,
    /// Content-addressable memory of each engine.
    pub cam: Option<Cam>,
    /// Data cache of each engine before the shared memories; its latency in cycles of the engine's clock, beyond the instruction.
    pub cache: Option<Cache>,
}

/// Role of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Packet processing.
    Packet,
    /// Management of the chip, and the rare packets of the slow path.
    Control,
}

/// Memory of an engine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    /// Its size.
    pub bytes: Bytes,
    /// Cycles of the engine's clock from giving an address to using the first word; each further word of the same
    /// reference is an operand, and costs nothing beyond the instruction that uses it.
    pub latency: Cycles,
}

/// Content-addressable memory, with which software caches lines of a shared memory in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cam {
    /// Entries, replaced least recently used first.
    pub entries: u32,
    /// Cycles of the engine's clock for a look-up.
    pub latency: Cycles,
}

/// Cache of lines in sets, the line used least recently replaced first. Writes stay in it until their line is replaced
/// (write-back), and fetch their line like reads (write-allocate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its size: a multiple of a line in each way.
    pub bytes: Bytes,
    /// Bytes of a line, a power of two.
    pub line: Bytes,
    /// Lines of a set, from 1; as many as there are lines where any line can lie anywhere.
    pub ways: u32,
    /// Cycles from a read that hits to its data.
    pub latency: Cycles,
}

/// A shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its name: "sram".
    pub name: String,
    /// Its size, all channels together.
    pub bytes: Bytes,
    /// Channels that work side by side, from 1.
    pub channels: u32,
    /// Interleaving: consecutive bytes that lie in one channel before the next one's turn.
    pub interleave: Bytes,
    /// Banks of a channel, from 1, interleaved likewise.
    pub banks: u32,
    /// The clock of its channels.
    pub clock: Hertz,
    /// Bytes that a channel moves in a cycle of that clock, each way where the ways have pins of their own.
    pub width: Bytes,
    /// Data pins of a channel.
    pub pins: DataPins,
    /// Unloaded latency: cycles of the chip's clock from a read's command to its data in the engine.
    pub latency: Cycles,
    /// Unloaded latency of a write, until its completion is known.
    pub write_latency: Cycles,
    /// The most bytes that one command moves; a longer reference is several commands.
    pub burst: Bytes,
    /// Cycles of its own clock that a command takes on its channel beyond the data.
    pub overhead: Cycles,
    /// Cycles of its own clock that a bank is busy after an access, beyond the data.
    pub recovery: Cycles,
    /// Cycles of its own clock that an atomic operation takes beyond a read; where absent, it is a read and a write.
    pub atomic: Option<Cycles>,
    /// Commands that a channel queues before further ones stall their issuer; those of high priority apart, where they have a queue.
    pub queue: u32,
    /// Order in which a channel serves the commands that it queues.
    pub order: ServiceOrder,
    /// Commands of high priority that a channel queues beside the others, before which they are served; absent where there is no such
    /// queue. Behind a cache all are served in the order of arrival.
    pub priority: Option<u32>,
    /// Cache that all engines share in front of the channels; its latency is instead of the memory's, in the same cycles.
    pub cache: Option<Cache>,
}

/// Data pins of a memory's channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPins {
    /// Reads and writes take the same.
    #[default]
    Shared,
    /// Reads have some, and writes have others, as those of quad data rate (QDR) SRAM: neither holds up the other.
    Separate,
}

/// Order in which a memory's channel serves the commands that it queues, each way where the ways have pins of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceOrder {
    /// That of arrival: who waits for a bank holds up all behind.
    #[default]
    Arrival,
    /// That of arrival in each of so many queues, from 1 to as many as there are banks, over which banks are dealt out: a command whose bank is
    /// free passes those of other queues that wait for theirs.
    Bank {
        /// Number of queues.
        queues: u32,
    },
}

/// Rings of one kind: queues between engines.
#[derive(Clone, Debug, PartialEq)]
pub struct RingKind {
    /// Their name: "scratch".
    pub name: String,
    /// Number of rings of the chip; for next-neighbour rings, one between each pair of neighbours.
    pub count: u32,
    /// The most entries of one, in frames.
    pub entries: u32,
    /// Queues of strict priority in each, from 1 to [`bound::PRIORITIES`]: the class selector of the code point that a frame leaves with says
    /// which one.
    pub priorities: u32,
    /// The memory that each put and get is a command to; absent where it costs only `latency`.
    pub memory: Option<String>,
    /// The unit whose linked lists keep the frames in such a ring; absent where a ring has entries alone.
    pub lists: Option<String>,
    /// Bytes that a put or get moves.
    pub entry: Bytes,
    /// Cycles of the engine's clock for a put or get that is no command to a memory.
    pub latency: Cycles,
    /// Engines that a ring can connect.
    pub reach: Reach,
}

/// Engines that a ring can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All engines.
    Any,
    /// An engine and the one numbered next, in this cluster or as the first of the next one.
    Neighbour,
}

/// A unit of fixed function.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its name: "hash".
    pub name: String,
    /// Function.
    pub work: UnitWork,
    /// Number of them, from 1.
    pub count: u32,
    /// Cycles between the beginnings of two operations.
    pub interval: Cycles,
    /// Cycles more for each 4 bytes of an operation, in thousandths.
    pub per_word: u32,
    /// Cycles from an operation's beginning to its result, beyond the interval.
    pub latency: Cycles,
    /// Access of a unit in the place of an engine to the frames that it has.
    pub frames: FrameAccess,
    /// Linked lists of a unit of [`UnitWork::List`]; absent of others.
    pub lists: Option<Lists>,
    /// Tickets of a unit of [`UnitWork::Order`]; absent of others.
    pub tickets: Option<Tickets>,
}

/// Tickets of a reorder buffer, of which each frame gets one as it is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tickets {
    /// Places of frames, from 1: as many as have been received and neither released to transmission nor ended may be under way.
    pub entries: u32,
    /// Ordering contexts, from 1, over which flows are spread by a hash. Frames of one are released in the order in which they were received; with
    /// one context, all are.
    pub contexts: u32,
}

/// Linked lists of segments of memory: a queue of each flow, and the free list, whose head the unit keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Bytes of a segment; a frame takes as many segments as it needs.
    pub segment: Bytes,
    /// Number of segments, from 1.
    pub segments: u32,
    /// Number of queues, from 1. Flows are spread over them by a hash.
    pub queues: u32,
    /// The memory of the pointers. Segments are where the mapping places the region `frame`.
    pub pointers: String,
}

impl Lists {
    /// Bytes of a segment's pointer to the next one.
    pub const NEXT: u32 = 4;
    /// Bytes of a queue's pointers to its first and its last segment.
    pub const ENDS: u32 = 8;
    /// Bytes of the longest frame that segments are reckoned for.
    pub const FRAME: u32 = 2_048;

    /// Bytes of all pointers.
    pub fn pointer_bytes(&self) -> u64 {
        u64::from(self.segments) * u64::from(Lists::NEXT) + u64::from(self.queues) * u64::from(Lists::ENDS)
    }

    /// Number of segments that so many frames take at most, each up to [`Lists::FRAME`] bytes long.
    pub fn segments_of(&self, frames: u64) -> u64 {
        frames.saturating_mul(u64::from(Lists::FRAME).div_ceil(self.segment.0.max(1)))
    }
}

/// Access of a unit to the bytes of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameAccess {
    /// Frames lie in memory, where the unit reads and writes them, as an accelerator does.
    #[default]
    Memory,
    /// Frames pass through the unit on their way.
    Inline,
}

/// Function of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitWork {
    /// Hashes keys for engines.
    Hash,
    /// Enciphers and digests for engines.
    Crypto,
    /// Keeps queues of frames for engines.
    Queue,
    /// Keeps frames in memory as linked lists of segments: rings may be queues of it. Each segment that comes or goes takes it for an interval.
    List,
    /// Keeps tables for engines: a search in one is handed to it whole, as to a lookup coprocessor or a CAM, and so is each reference to an entry.
    Search,
    /// Releases frames to transmission in the order in which they were received: rings of a mapping may be in its order. Each ticket takes it for an
    /// interval.
    Order,
    /// Changes header fields for engines, which do not wait for it: time to live, checksum, link-layer header.
    Modify,
    /// Checks cells for engines, which do not wait for it: the CRC-32 of AAL5, while their payload moves between memory and buffers.
    Crc,
    /// Takes frames as an engine does, a stage or more in its interval: pools of a mapping may name it.
    Stage,
    /// Moves frames and their descriptors between buffers and memory by itself (DMA): pools that receive or transmit may name it. An
    /// element takes it for an interval; as many are under way as fit its latency.
    Dma,
}

/// A bus between ports and buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Bus {
    /// Its name: "ix".
    pub name: String,
    /// Its clock.
    pub clock: Hertz,
    /// Bytes that it moves in a cycle of that clock.
    pub width: Bytes,
    /// Cycles of that clock lost with each element.
    pub overhead: Cycles,
    /// Direction of the frames that it carries.
    pub carries: Carries,
    /// The kinds of ports whose frames cross it; all where there are none.
    pub ports: Vec<String>,
    /// Cycles of that clock from an element's last byte to its arrival.
    pub latency: Cycles,
    /// The most elements that are sent before the first of them is acknowledged, which takes the latency there and back; unlimited where
    /// absent.
    pub credits: Option<u32>,
}

impl Bus {
    /// True if frames of ports of that kind cross the bus.
    pub fn serves(&self, kind: &PortKind) -> bool {
        self.ports.is_empty() || kind.name.as_ref().is_some_and(|name| self.ports.contains(name))
    }
}

/// Direction of the frames that a bus carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Received frames.
    Receive,
    /// Transmitted frames.
    Transmit,
    /// Both.
    Both,
}

/// A buffer of elements between ports and engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Number of elements.
    pub elements: u32,
    /// The size of one; a frame comes and goes by as many as it needs, one after another.
    pub element: Bytes,
}

/// The interfaces: their kinds, one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub Vec<PortKind>);

impl Ports {
    /// Number of them of all kinds, from 1.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|kind| kind.count).sum::<u32>().max(1)
    }

    /// Returns the kind of each port, in the order of their numbers.
    pub fn each(&self) -> impl Iterator<Item = &PortKind> {
        self.0.iter().flat_map(|kind| std::iter::repeat_n(kind, kind.count as usize))
    }

    /// The kind of the port of that number; past the last one they begin again with the first. `None` where there is
    /// none at all.
    pub fn kind_of(&self, port: u16) -> Option<&PortKind> {
        self.each().nth(usize::from(port) % self.count() as usize)
    }
}

/// Interfaces of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortKind {
    /// Their name: "gigabit"; absent where all ports are alike.
    pub name: Option<String>,
    /// Number of them, from 1.
    pub count: u32,
    /// The rate of each, each way.
    pub rate: BitRate,
    /// Bytes on the line beside each frame as captured: preamble, check sequence where it is not captured, gap.
    pub gap: Bytes,
    /// Bytes that the MAC keeps, each way; where absent, [`Chip::mac_bytes`].
    pub fifo: Option<Bytes>,
}

/// Power consumption of a chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// Watts, typically.
    pub typical: f64,
    /// Watts, at most.
    pub most: f64,
    /// Shares from which [`cost::watts`](crate::cost::watts) estimates that of a configuration; absent where nothing is known of them.
    pub shares: Option<PowerShares>,
}

/// Shares of a chip's power consumption.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerShares {
    /// Share of the maximum that the packet engines draw together when all of them are busy: above 0, at most 1.
    pub engines: f64,
    /// Share of a busy engine's power that an idle one draws while its clock runs: above 0, at most 1.
    pub idle: f64,
}

/// Package of a chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Package {
    /// Balls or pins.
    pub pins: u32,
    /// The length of a side in millimetres.
    pub side: f64,
}

/// Source of a parameter, or of a table of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path of a parameter, or of a table: then of all parameters in it without a source of their own.
    pub path: String,
    /// The document, and the place in it.
    pub text: String,
    /// Standing of the value: read there, or assumed.
    pub standing: Standing,
}

/// Standing of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Read in its source.
    Read,
    /// Assumed; the text gives the grounds.
    Assumed,
}

#[cfg(test)]
mod tests;
