//! The four steps of optimisation, as parameters of one code.
//!
//! Yin, Tan et al., "Adding Security to Network via Network Processors", 4.3, optimise in steps: rules for any
//! processor, then memory (placement and movement of data), then overlap of references with work. Here a step is an
//! [`Optimisation`] and its [`Plan`] has the parameters; no algorithm is written twice.

/// Step of optimisation. Each step includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Optimisation {
    /// As written: loops are loops, constants are loaded where they are used, memory is read word by word, and each
    /// reference is waited for at once.
    Raw,
    /// The rules for any processor: loops unrolled, constants loaded beforehand, multiplications no wider than
    /// their operands.
    Generic,
    /// Memory: tables as near as they fit, an entry a word, text and keys in bursts.
    Memory,
    /// Latency hidden: references are waited for where their value is used, and the next block is read before the
    /// current one is worked on.
    Overlap,
}

impl Optimisation {
    /// Every step, in order.
    pub const ALL: [Optimisation; 4] =
        [Optimisation::Raw, Optimisation::Generic, Optimisation::Memory, Optimisation::Overlap];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Optimisation::Raw => "raw",
            Optimisation::Generic => "generic",
            Optimisation::Memory => "memory",
            Optimisation::Overlap => "overlap",
        }
    }

    /// Plan of the step.
    pub const fn plan(self) -> Plan {
        let raw = Plan {
            rounds: Rounds::Rolled,
            constants: Constants::AtUse,
            products: Products::Full,
            entries: Entries::Packed,
            moves: Moves::Words,
            waits: Waits::AtIssue,
        };
        let generic = Plan {
            rounds: Rounds::Unrolled,
            constants: Constants::Preloaded,
            products: Products::Narrow,
            ..raw
        };
        let memory = Plan { entries: Entries::Aligned, moves: Moves::Bursts, ..generic };
        match self {
            Optimisation::Raw => raw,
            Optimisation::Generic => generic,
            Optimisation::Memory => memory,
            Optimisation::Overlap => Plan { waits: Waits::AtUse, ..memory },
        }
    }
}

/// Parameters set by the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Loops over rounds.
    pub rounds: Rounds,
    /// Constants that no instruction can hold.
    pub constants: Constants,
    /// Multiplications of 16-bit words.
    pub products: Products,
    /// Entries of tables that are narrower than a word.
    pub entries: Entries,
    /// Neighbouring words of text and keys.
    pub moves: Moves,
    /// Time of waiting for references.
    pub waits: Waits,
}

/// Loops over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// A counter is decremented and a branch taken each time, words that change places are moved, and addresses indexed
    /// by the counter are computed.
    Rolled,
    /// None of these costs; the code is as long as all rounds.
    Unrolled,
}

/// Constants that no instruction can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constants {
    /// Loaded wherever they are used.
    AtUse,
    /// Loaded once beforehand, into registers or, if there are too few, local memory, both of which are operands of any
    /// instruction.
    Preloaded,
}

/// Multiplications of 16-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// As wide as multiplications of 32-bit words.
    Full,
    /// With the fewest steps.
    Narrow,
}

/// Entries of tables that are narrower than a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Several to a word: shifted out after reading, and written by reading the word first.
    Packed,
    /// One to a word: the table is larger.
    Aligned,
}

/// Neighbouring words of text and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// One reference each.
    Words,
    /// One reference for as many as fit: 64 bytes of text (RDRAM), 32 of keys (SRAM, scratch).
    Bursts,
}

/// Time of waiting for references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Right after issue.
    AtIssue,
    /// Before their value is first used.
    AtUse,
}
