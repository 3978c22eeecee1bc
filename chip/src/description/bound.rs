//! Upper bounds of a chip's numbers. A number above its bound is a typing error.

/// Cycles of a latency.
pub const CYCLES: u64 = 1_000_000;
/// A clock, in Hz.
pub const HERTZ: u64 = 100_000_000_000;
/// A size.
pub const BYTES: u64 = 1 << 48;
/// Engines, threads, channels, banks, ports, units, pins, rings.
pub const COUNT: u32 = 4_096;
/// General registers of an engine.
pub const REGISTERS: u32 = 65_536;
/// Queues of a ring: one for each class selector (RFC 2474, section 4.2.2).
pub const PRIORITIES: u32 = 8;
/// Entries of a ring, elements of a buffer, commands of a queue.
pub const ENTRIES: u32 = 1 << 20;
/// Segments and queues of linked lists.
pub const SEGMENTS: u32 = 1 << 30;
/// Lines of a cache.
pub const LINES: u64 = 1 << 20;
/// Instructions of a store, or of hashing a word.
pub const INSTRUCTIONS: u32 = 1 << 24;
/// References that a task makes for a frame beyond those of its stages.
pub const REFERENCES: u32 = 4_096;
/// Bytes of such a reference.
pub const REFERENCE: u32 = 4_096;
/// Interval of a timer, in nanoseconds: an hour.
pub const INTERVAL: u64 = 3_600_000_000_000;
/// Cycles for an instruction, and cycles for 4 bytes, in thousandths.
pub const THOUSANDTHS: u32 = 1_000_000;
/// The least common multiple of all clocks, in Hz: a picosecond's tenth is the shortest tick.
pub const TICKS_PER_SECOND: u64 = 10_000_000_000_000;
/// Watts, and millimetres.
pub const PHYSICAL: f64 = 10_000.0;
