//! Diagnostics of chips and mappings: [`config::Diagnostic`]s with codes of their own.

use std::fmt;

use config::{Kind, Severity};

/// An error or a warning of a chip or a mapping.
pub type Diagnostic = config::Diagnostic<Code>;

/// Code of a diagnostic. Names are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A code of any TOML text, and of names and numbers in it.
    Common(config::Code),

    /// Clocks with no common measure that time could be counted in.
    ClockMismatch,
    /// Numbers that contradict one another.
    Contradiction,
    /// A cache that cannot have that size, line and number of ways.
    CacheShape,
    /// A bus that no frame crosses.
    IdleBus,
    /// Buffers that cannot hold what ports bring at one time.
    SmallBuffer,
    /// A chip without engines that carry packets.
    NoPacketEngine,
    /// A source for a parameter that the chip does not have.
    UnknownPath,
    /// A parameter without a source.
    NoSource,

    /// No such kind of engine or unit.
    UnknownEngine,
    /// No such memory.
    UnknownMemory,
    /// No such ring, or kind of ring.
    UnknownRing,
    /// No such kind of ports.
    UnknownPort,
    /// No such stage.
    UnknownStage,
    /// No such region.
    UnknownRegion,
    /// No such classifier.
    UnknownClassifier,

    /// A mapping for another chip.
    OtherChip,
    /// An engine of a number that the chip does not have.
    NoSuchEngine,
    /// More threads than an engine has.
    TooManyThreads,
    /// A stage that no task runs.
    UnmappedStage,
    /// Stages of a task that do not follow one another.
    StageOrder,
    /// Frames come to a stage before they have passed the preceding ones.
    SkippedStage,
    /// Frames come to a stage a second time.
    RepeatedStage,
    /// Commands of high priority, where no memory has a queue for them.
    NoPriority,
    /// No task receives, or no task transmits.
    NoEnd,
    /// Ports that no thread receives from.
    UnservedPort,
    /// New and known frames take different exits before the stage that tells them apart.
    EarlyParting,
    /// A ring that no task puts frames into.
    NoProducer,
    /// A ring that no task takes frames from: a path that never reaches `transmit`.
    NoConsumer,
    /// Rings that frames go round for ever.
    RingCycle,
    /// A ring between engines that it cannot connect.
    OutOfReach,
    /// A ring in the order of a unit that leads to no transmission, or of several units.
    MisplacedOrder,
    /// More rings of a kind than the chip has.
    TooManyRings,
    /// More entries than a ring can have.
    TooManyEntries,
    /// A region that lies nowhere.
    UnplacedRegion,
    /// A region that cannot lie there.
    BadPlace,

    /// Regions and rings in a memory that are larger than the memory.
    MemoryFull,
    /// Programs of an engine that are longer than its store.
    StoreFull,
}

impl Code {
    /// Codes that only chips and mappings have, with their names and severities.
    pub const ALL: &'static [(Code, &'static str, Severity)] = &[
        (Code::ClockMismatch, "clock-mismatch", Severity::Error),
        (Code::Contradiction, "contradiction", Severity::Error),
        (Code::CacheShape, "cache-shape", Severity::Error),
        (Code::IdleBus, "idle-bus", Severity::Error),
        (Code::SmallBuffer, "small-buffer", Severity::Warning),
        (Code::NoPacketEngine, "no-packet-engine", Severity::Error),
        (Code::UnknownPath, "unknown-path", Severity::Error),
        (Code::NoSource, "no-source", Severity::Warning),
        (Code::UnknownEngine, "unknown-engine", Severity::Error),
        (Code::UnknownMemory, "unknown-memory", Severity::Error),
        (Code::UnknownRing, "unknown-ring", Severity::Error),
        (Code::UnknownPort, "unknown-port", Severity::Error),
        (Code::UnknownStage, "unknown-stage", Severity::Error),
        (Code::UnknownRegion, "unknown-region", Severity::Error),
        (Code::UnknownClassifier, "unknown-classifier", Severity::Error),
        (Code::OtherChip, "other-chip", Severity::Error),
        (Code::NoSuchEngine, "no-such-engine", Severity::Error),
        (Code::TooManyThreads, "too-many-threads", Severity::Error),
        (Code::UnmappedStage, "unmapped-stage", Severity::Error),
        (Code::StageOrder, "stage-order", Severity::Error),
        (Code::SkippedStage, "skipped-stage", Severity::Error),
        (Code::RepeatedStage, "repeated-stage", Severity::Error),
        (Code::NoPriority, "no-priority", Severity::Error),
        (Code::NoEnd, "no-end", Severity::Error),
        (Code::UnservedPort, "unserved-port", Severity::Error),
        (Code::EarlyParting, "early-parting", Severity::Error),
        (Code::NoProducer, "no-producer", Severity::Error),
        (Code::NoConsumer, "no-consumer", Severity::Error),
        (Code::RingCycle, "ring-cycle", Severity::Error),
        (Code::OutOfReach, "out-of-reach", Severity::Error),
        (Code::MisplacedOrder, "misplaced-order", Severity::Error),
        (Code::TooManyRings, "too-many-rings", Severity::Error),
        (Code::TooManyEntries, "too-many-entries", Severity::Error),
        (Code::UnplacedRegion, "unplaced-region", Severity::Error),
        (Code::BadPlace, "bad-place", Severity::Error),
        (Code::MemoryFull, "memory-full", Severity::Error),
        (Code::StoreFull, "store-full", Severity::Error),
    ];
}

impl From<config::Code> for Code {
    fn from(code: config::Code) -> Code {
        Code::Common(code)
    }
}

impl Kind for Code {
    const OWN: &'static [(Code, &'static str, Severity)] = Code::ALL;

    fn common(self) -> Option<config::Code> {
        match self {
            Code::Common(code) => Some(code),
            _ => None,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
