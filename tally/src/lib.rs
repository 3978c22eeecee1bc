//! The contract between packet code and a chip model: code reports its cost as it executes.
//!
//! A stage calls `tally.instructions(n)`, `tally.read(Region::FlowTable, at, bytes)` and so on. With [`NoTally`] every
//! call compiles to nothing; with [`Count`] the calls are summed, for `wirerate explain`; a chip model plays them out
//! in modelled time.
//!
//! The unit of [`Tally::instructions`] is one instruction of a single-issue 32-bit RISC engine. Beside a count written
//! by hand, a comment says how it was counted.

/// Account of the cost of a step. An implementation may ask for the place in the code of each call
/// ([`Location::caller`](std::panic::Location::caller)).
pub trait Tally {
    /// Executes `count` instructions of kind `op`.
    #[track_caller]
    fn execute(&mut self, op: Op, count: u32);

    /// Reads `bytes` bytes of `region` at byte offset `at`.
    #[track_caller]
    fn read(&mut self, region: Region, at: usize, bytes: u32);

    /// Writes `bytes` bytes of `region` at byte offset `at`.
    #[track_caller]
    fn write(&mut self, region: Region, at: usize, bytes: u32);

    /// Reads, modifies and writes `bytes` bytes of `region` at byte offset `at`, indivisibly.
    #[track_caller]
    fn atomic(&mut self, region: Region, at: usize, bytes: u32);

    /// Hashes a key of `bytes` bytes (in a hash unit, where the chip has one).
    #[track_caller]
    fn hash(&mut self, bytes: u32);

    /// Begins work that a chip may have a unit for: all of it up to [`Tally::end_offload`]. It contains no other such work.
    #[inline(always)]
    fn begin_offload(&mut self, _work: Offload) {}

    /// Ends that work.
    #[inline(always)]
    fn end_offload(&mut self) {}

    /// Issues a reference without waiting for it, as asynchronous memories are used. The instruction that issues is
    /// part of the reference, and is not reported by [`Tally::execute`].
    ///
    /// By default the reference is a [`Tally::read`] or [`Tally::write`], done at once.
    #[inline(always)]
    #[track_caller]
    fn issue(&mut self, reference: Reference) -> Ticket {
        let Reference { region, at, bytes, .. } = reference;
        match reference.access {
            Access::Read => self.read(region, at, bytes),
            Access::Write => self.write(region, at, bytes),
        }
        Ticket::DONE
    }

    /// Waits until the reference of `ticket` is done. A caller waits for each ticket at most once, and never for
    /// [`Ticket::DONE`].
    #[inline(always)]
    fn wait(&mut self, _: Ticket) {}

    /// Executes one branch instruction.
    #[inline(always)]
    #[track_caller]
    fn branch(&mut self, _: Branch) {
        self.execute(Op::Branch, 1);
    }

    /// True if the account is kept. Otherwise a costlier way of counting can be left out.
    #[inline(always)]
    fn is_kept(&self) -> bool {
        true
    }

    /// Executes `count` instructions of no particular kind.
    #[inline(always)]
    #[track_caller]
    fn instructions(&mut self, count: u32) {
        self.execute(Op::Alu, count);
    }
}

/// The account that is not kept: zero-sized, and every call compiles to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTally;

impl Tally for NoTally {
    #[inline(always)]
    fn execute(&mut self, _: Op, _: u32) {}
    #[inline(always)]
    fn read(&mut self, _: Region, _: usize, _: u32) {}
    #[inline(always)]
    fn write(&mut self, _: Region, _: usize, _: u32) {}
    #[inline(always)]
    fn atomic(&mut self, _: Region, _: usize, _: u32) {}
    #[inline(always)]
    fn hash(&mut self, _: u32) {}
    #[inline(always)]
    fn is_kept(&self) -> bool {
        false
    }
}

/// Work of a stage that a chip may have a unit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Search for a key in a table: of what the key is made, the hash, and all comparisons.
    Search {
        /// Region that the table is kept in.
        region: Region,
        /// Bytes of the key.
        bytes: u32,
    },
    /// Cyclic redundancy check of 32 bits, over data that goes by.
    Crc {
        /// Bytes of the data.
        bytes: u32,
    },
    /// Change of header fields that does not depend on a flow: time to live and its checksum, link-layer header.
    Modify {
        /// Bytes of the header.
        bytes: u32,
    },
}

/// One reference to memory, for [`Tally::issue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Region that is read or written.
    pub region: Region,
    /// Byte offset in the region.
    pub at: usize,
    /// Bytes moved.
    pub bytes: u32,
    /// Direction of the move.
    pub access: Access,
    /// Origin of the offset.
    pub address: Address,
}

/// Direction in which a reference moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From memory.
    Read,
    /// To memory.
    Write,
}

/// Origin of a reference's offset. A memory inside an engine may take a known offset as an operand, and need an
/// instruction to set a computed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// Fixed when the code was written, or the offset after the last.
    Known,
    /// Computed from data.
    Computed,
}

/// Handle of an issued reference, to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u32);

impl Ticket {
    /// Ticket of a reference that needs no waiting for.
    pub const DONE: Ticket = Ticket(0);
}

/// Outcome of a branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// Conditional, and taken.
    Taken,
    /// Conditional, and not taken: the next instruction follows.
    NotTaken,
    /// Unconditional.
    Always,
}

/// A named data structure whose memory references are tallied. A chip's mapping assigns each region to a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Region {
    /// The bytes of frames.
    Frame,
    /// The metadata that travels with a frame.
    Meta,
    /// Hash buckets, from a key to a flow.
    FlowIndex,
    /// The flows.
    FlowTable,
    /// The timer wheel.
    Timer,
    /// NAT mappings and their ports.
    NatTable,
    /// Rules and the classifiers built of them.
    RuleTable,
    /// Longest-prefix-match structures.
    RouteTable,
    /// Next hops and neighbours.
    HopTable,
    /// Fragments that wait, and the state kept of first fragments.
    FragmentTable,
    /// Counters.
    Counter,
    /// Meters and rate limiters.
    Meter,
    /// Queues of frames on their way out.
    Queue,
    /// Tables of ciphers and of cyclic redundancy checks, looked up by data.
    CipherTable,
    /// Expanded keys of ciphers, read in order.
    CipherKey,
    /// Elements of dynamic sets, by their prefixes.
    SetTable,
}

impl Region {
    /// Every region, in the order of the enum.
    pub const ALL: [Region; 16] = [
        Region::Frame,
        Region::Meta,
        Region::FlowIndex,
        Region::FlowTable,
        Region::Timer,
        Region::NatTable,
        Region::RuleTable,
        Region::RouteTable,
        Region::HopTable,
        Region::FragmentTable,
        Region::Counter,
        Region::Meter,
        Region::Queue,
        Region::CipherTable,
        Region::CipherKey,
        Region::SetTable,
    ];

    /// The name that mappings and reports use, in kebab case.
    pub const fn name(self) -> &'static str {
        match self {
            Region::Frame => "frame",
            Region::Meta => "meta",
            Region::FlowIndex => "flow-index",
            Region::FlowTable => "flow-table",
            Region::Timer => "timer",
            Region::NatTable => "nat-table",
            Region::RuleTable => "rule-table",
            Region::RouteTable => "route-table",
            Region::HopTable => "hop-table",
            Region::FragmentTable => "fragment-table",
            Region::Counter => "counter",
            Region::Meter => "meter",
            Region::Queue => "queue",
            Region::CipherTable => "cipher-table",
            Region::CipherKey => "cipher-key",
            Region::SetTable => "set-table",
        }
    }
}

/// A kind of instruction, for the instruction mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Arithmetic and logic, and instructions of no particular kind.
    Alu,
    /// Shift and rotate.
    Shift,
    /// Multiply, one step.
    Multiply,
    /// Load a constant.
    Immediate,
    /// Branch, taken or not.
    Branch,
}

impl Op {
    /// Every kind, in the order of the enum.
    pub const ALL: [Op; 5] = [Op::Alu, Op::Shift, Op::Multiply, Op::Immediate, Op::Branch];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Alu => "alu",
            Op::Shift => "shift",
            Op::Multiply => "multiply",
            Op::Immediate => "immediate",
            Op::Branch => "branch",
        }
    }
}

/// References to one region, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of atomic operations.
    pub atomics: u64,
    /// Bytes moved, reads, writes and atomics together.
    pub bytes: u64,
}

/// Sum of an account: instructions by kind, references by region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    ops: [u64; Op::ALL.len()],
    regions: [References; Region::ALL.len()],
    hashes: u64,
    offloaded: u64,
    is_offloaded: bool,
}

impl Count {
    /// Instructions of all kinds.
    pub fn executed_total(&self) -> u64 {
        self.ops.iter().sum()
    }

    /// Instructions of one kind.
    pub fn executed(&self, op: Op) -> u64 {
        self.ops[op as usize]
    }

    /// References to one region.
    pub fn references(&self, region: Region) -> References {
        self.regions[region as usize]
    }

    /// Instructions of work that a chip may have a unit for, which are among all instructions.
    pub fn offloaded(&self) -> u64 {
        self.offloaded
    }

    /// Keys hashed.
    pub fn hashes(&self) -> u64 {
        self.hashes
    }
}

impl Tally for Count {
    fn execute(&mut self, op: Op, count: u32) {
        self.ops[op as usize] += u64::from(count);
        self.offloaded += u64::from(if self.is_offloaded { count } else { 0 });
    }

    fn begin_offload(&mut self, _: Offload) {
        self.is_offloaded = true;
    }

    fn end_offload(&mut self) {
        self.is_offloaded = false;
    }

    fn read(&mut self, region: Region, _: usize, bytes: u32) {
        let sum = &mut self.regions[region as usize];
        sum.reads += 1;
        sum.bytes += u64::from(bytes);
    }

    fn write(&mut self, region: Region, _: usize, bytes: u32) {
        let sum = &mut self.regions[region as usize];
        sum.writes += 1;
        sum.bytes += u64::from(bytes);
    }

    fn atomic(&mut self, region: Region, _: usize, bytes: u32) {
        let sum = &mut self.regions[region as usize];
        sum.atomics += 1;
        sum.bytes += u64::from(bytes);
    }

    fn hash(&mut self, _: u32) {
        self.hashes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_follow_the_enums() {
        for (index, region) in Region::ALL.iter().enumerate() {
            assert_eq!(*region as usize, index, "{}", region.name());
        }
        for (index, op) in Op::ALL.iter().enumerate() {
            assert_eq!(*op as usize, index, "{}", op.name());
        }
    }

    #[test]
    fn count_sums_by_kind_and_region() {
        let mut count = Count::default();
        count.instructions(3);
        count.execute(Op::Branch, 2);
        count.read(Region::FlowTable, 64, 16);
        count.atomic(Region::FlowTable, 64, 4);
        count.hash(13);
        assert_eq!(count.executed_total(), 5);
        assert_eq!(count.executed(Op::Branch), 2);
        assert_eq!(
            count.references(Region::FlowTable),
            References { reads: 1, writes: 0, atomics: 1, bytes: 20 }
        );
        assert_eq!(count.references(Region::Frame), References::default());
        assert_eq!(count.hashes(), 1);
    }

    #[test]
    fn without_more_an_issued_reference_is_done_at_once() {
        let mut count = Count::default();
        let read = Reference {
            region: Region::CipherTable,
            at: 8,
            bytes: 4,
            access: Access::Read,
            address: Address::Computed,
        };
        assert_eq!(count.issue(read), Ticket::DONE);
        count.issue(Reference { bytes: 64, access: Access::Write, ..read });
        count.branch(Branch::Taken);
        assert_eq!(
            count.references(Region::CipherTable),
            References { reads: 1, writes: 1, atomics: 0, bytes: 68 }
        );
        assert_eq!(count.executed(Op::Branch), 1);
    }

    #[test]
    fn no_tally_is_nothing() {
        assert_eq!(size_of::<NoTally>(), 0);
    }
}
