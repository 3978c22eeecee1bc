//! Layout of the memory that the fast path shares with its programs: offsets in bytes, sizes, and no code that reads or
//! writes it.
//!
//! A header (the generation), two cache lines for each line of a port, two for each CPU, then the index, then the slots. What different
//! CPUs write lies in different cache lines. The programs take all offsets from here.
//!
//! Slots in use lie close together, whatever their keys: the kernel maps the memory by pages of 4 KiB, and of a table that is found by its
//! keys' hashes directly each flow would have a page of its own, whose translation costs more than all else that is done about its packet.

/// Cache lines of 64 bytes.
const CACHE_LINE: usize = 64;

/// Number of lines of ports.
pub(crate) const LINES: usize = 256;
/// Entries of a bucket of the index: a key has its entry in the bucket that its hash tells, or none.
pub(crate) const BUCKET: usize = 8;
/// Bytes of an entry.
pub(crate) const ENTRY: usize = 4;
/// Bits of an entry that are the slot's index. Those above are the tag, a part of the key's hash. An entry that is zero is free: slot 0 has no key.
pub(crate) const INDEX_BITS: u32 = 22;
/// Bytes of a slot.
pub(crate) const SLOT: usize = 256;
/// Bytes to which the verifier follows an offset (`BPF_MAX_VAR_OFF`): that of an address from the start of the memory, and that of a
/// register from such an address.
const REACH: usize = 1 << 29;
/// Most flows: nearly a gibibyte, which two addresses reach.
const MOST_FLOWS: usize = 1 << 20;
/// Slots for each flow. Two are in use; a third is there as slots that were taken back at once are freed later than their flows are published again.
const SLOTS_A_FLOW: usize = 3;

/// The generation, a word.
pub(crate) const GENERATION: usize = 0;

const FIRST_LINE: usize = CACHE_LINE;
const LINE: usize = 1 << LINE_SHIFT;
/// Binary logarithm of the bytes of a line's part.
pub(crate) const LINE_SHIFT: u32 = 7;
/// Offset of [`taken`] from [`passed`].
pub(crate) const TAKEN: i16 = CACHE_LINE as i16;

/// Number of packets that the filter has kept for a line, a long word that the filters add to.
pub(crate) const fn passed(line: usize) -> usize {
    FIRST_LINE + line * LINE
}

/// Number of those that the worker has sent on, a long word that the worker writes.
pub(crate) const fn taken(line: usize) -> usize {
    passed(line) + CACHE_LINE
}

const FIRST_CPU: usize = (FIRST_LINE + LINES * LINE).next_multiple_of(LINE);
/// Binary logarithm of the bytes of a CPU's part.
pub(crate) const CPU_SHIFT: u32 = 7;

/// Decision on the packet that the CPU is about to pass on, in the CPU's first cache line.
pub(crate) mod decision {
    /// A long word: index of the slot, and above it the slot's version; zero where there is no decision.
    pub(crate) const PLACE: i16 = 0;
    /// Length of the frame, a word.
    pub(crate) const LENGTH: i16 = 8;
    /// Bytes of the packet to be counted, from the IP header on, as if cut: a word.
    pub(crate) const BYTES: i16 = 12;
    /// Bytes of the frame to be counted, as if cut: a word.
    pub(crate) const FRAME_BYTES: i16 = 16;
    /// Packets to be counted: a word.
    pub(crate) const PACKETS: i16 = 20;
}

/// Frames that the program at XDP has redirected, behind the decision: long words that this CPU alone writes.
pub(crate) mod frame {
    /// Frames on their way to the device that they leave by.
    pub(crate) const PENDING: i16 = 24;
    /// Frames that did not get there.
    pub(crate) const UNSENT: i16 = 32;
    /// Number of them that the device refused, for whatever reason but that it had no room.
    pub(crate) const REFUSED: i16 = 40;
}

/// Counter of a reason to fall through, in the CPU's second cache line: a long word that this CPU alone writes.
pub(crate) const fn fall(reason: Fall) -> i16 {
    CACHE_LINE as i16 + 8 * reason as i16
}

/// Reason why a packet does not go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fall {
    Unplain,
    Unknown,
    TooBig,
    Window,
    Order,
    Stale,
    Overload,
}

/// Fields of a slot. Four cache lines: key, action, counters, and conditions, which the filter alone writes; mark and tag are among them for want of room.
pub(crate) mod slot {
    /// Address in network order, IPv4 in the first four bytes and the rest zero.
    pub(crate) const SOURCE: i16 = 0;
    pub(crate) const DESTINATION: i16 = 16;
    /// Both ports, in network order.
    pub(crate) const PORTS: i16 = 32;
    pub(crate) const IFINDEX: i16 = 36;
    /// A byte each; with the VLAN behind them, one word.
    pub(crate) const PROTOCOL: i16 = 40;
    pub(crate) const FAMILY: i16 = 41;
    /// VLAN that packets come in by, 0 for none: 16 bits.
    pub(crate) const VLAN: i16 = 42;
    /// Modulo 4: 0 free, 2 claimed (in the making or retracted), 3 published.
    pub(crate) const VERSION: i16 = 44;
    /// Number of the key's entry in the index, for whoever frees the slot; of a free slot the index of the next free one.
    pub(crate) const ENTRY: i16 = 48;
    pub(crate) const GENERATION: i16 = 52;
    /// Index of this slot, and of the slot of the other direction.
    pub(crate) const INDEX: i16 = 56;
    pub(crate) const PEER: i16 = 60;

    pub(crate) const NEW_SOURCE: i16 = 64;
    pub(crate) const NEW_DESTINATION: i16 = 80;
    pub(crate) const NEW_PORTS: i16 = 96;
    /// Difference of the IP header's one's complement sum, TTL or hop limit included and IPv4's checksum not; 16 bits in memory order.
    pub(crate) const HEADER_SUM: i16 = 100;
    /// MTU at the interface that the packet leaves by, 16 bits.
    pub(crate) const MTU: i16 = 102;
    /// Differences of the one's complement sum of the pseudo header, and of the ports, in memory order; never another zero than 0.
    pub(crate) const ADDRESS_SUM: i16 = 104;
    pub(crate) const PORT_SUM: i16 = 108;
    /// Link-layer addresses, 12 bytes.
    pub(crate) const LINK: i16 = 112;
    pub(crate) const OUT: i16 = 124;

    pub(crate) const PACKETS: i16 = 128;
    pub(crate) const BYTES: i16 = 136;
    pub(crate) const FRAME_BYTES: i16 = 144;
    /// Time of the last packet, by the coarse monotonic clock, in nanoseconds.
    pub(crate) const SEEN: i16 = 152;
    /// Number of the flow's last packet that was kept for the worker: see [`last`](super::last).
    pub(crate) const LAST: i16 = 160;
    /// Packets that had to wait for others of their flow while the worker was far behind.
    pub(crate) const WAITED: i16 = 172;

    /// Highest sequence number sent, plus 1.
    pub(crate) const END: i16 = 192;
    /// Largest window offered, scaled.
    pub(crate) const MAX_WINDOW: i16 = 196;
    /// Highest end of a window offered.
    pub(crate) const GRANTS: i16 = 200;
    pub(crate) const FLAGS: i16 = 204;
    /// VLAN tag that packets leave with, as [`HAS_TAG`] and the tag's control information; 0 for none.
    pub(crate) const TAG: i16 = 208;
    pub(crate) const SCALE: i16 = 212;
    /// Version of the slot of the other direction.
    pub(crate) const PEER_VERSION: i16 = 216;
    /// Code points of packets that go by, a bit each: a long word.
    pub(crate) const DSCP: i16 = 224;
    /// Code point that packets are given, as it lies in the first two bytes of an IP header: of IPv6 all bits of the first byte and the upper two of the
    /// second, of IPv4 the upper six of the second.
    pub(crate) const MARK: i16 = 232;

    /// Flag: packets are given a code point.
    pub(crate) const HAS_MARK: u32 = 1;
    /// Flag: TCP windows are checked.
    pub(crate) const HAS_WINDOW: u32 = 2;
    /// Bit above the control information of a tag.
    pub(crate) const HAS_TAG: u32 = 1 << 16;
}

/// Number of a packet that was kept, a long word: the number of the line, and above it the packet's among the line's.
pub(crate) mod last {
    /// Bits of the line's number.
    pub(crate) const SHIFT: u32 = super::LINES.ilog2();
    /// Later than any.
    pub(crate) const NEVER: u64 = u64::MAX;
}

/// IP version of a key.
pub(crate) const V4: u8 = 4;
pub(crate) const V6: u8 = 6;

/// Sizes of one fast path's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Buckets of the index, one for each flow: two of its eight entries are in use on average, where as many flows are published.
    buckets: usize,
    /// CPUs: a power of two, at least as many as the machine can have.
    cpus: usize,
}

impl Layout {
    /// Layout for so many flows, on a machine that can have so many CPUs.
    pub(crate) fn new(flows: u32, cpus: usize) -> Layout {
        Layout { buckets: (flows as usize).clamp(1, MOST_FLOWS), cpus: cpus.max(1).next_power_of_two() }
    }

    /// Bytes of the memory.
    pub(crate) fn bytes(&self) -> usize {
        self.first_slot() + self.slots() * SLOT
    }

    /// Slots: those for flows, and slot 0, which has no key.
    pub(crate) fn slots(&self) -> usize {
        SLOTS_A_FLOW * self.buckets + 1
    }

    /// Number of buckets of the index.
    pub(crate) fn buckets(&self) -> u32 {
        self.buckets as u32
    }

    /// Bucket of a hash: its share of the buckets, which need not be a power of two.
    #[inline]
    pub(crate) fn bucket(&self, hash: u32) -> u32 {
        ((u64::from(hash) * self.buckets as u64) >> 32) as u32
    }

    /// Offset of bucket 0.
    pub(crate) fn first_bucket(&self) -> usize {
        self.first_cpu() + (self.cpus << CPU_SHIFT)
    }

    /// Offset of an entry of the index, by its number: buckets follow one another.
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> usize {
        self.first_bucket() + number as usize * ENTRY
    }

    /// First slot that programs find by a second address, as the first one does not reach it.
    pub(crate) fn second_part(&self) -> u32 {
        (REACH.saturating_sub(self.first_slot()) / SLOT - 1) as u32
    }

    /// Offset of slot 0.
    pub(crate) fn first_slot(&self) -> usize {
        (self.first_bucket() + self.buckets * BUCKET * ENTRY).next_multiple_of(SLOT)
    }

    /// Offset of a slot's field.
    #[inline]
    pub(crate) fn field(&self, index: u32, field: i16) -> usize {
        self.first_slot() + index as usize * SLOT + field as usize
    }

    /// Offset of CPU 0's part.
    pub(crate) fn first_cpu(&self) -> usize {
        FIRST_CPU
    }

    /// Number of CPUs for which there is memory.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }

    /// Offset of a word of a CPU's part.
    pub(crate) fn cpu_word(&self, cpu: usize, at: i16) -> usize {
        FIRST_CPU + (cpu << CPU_SHIFT) + at as usize
    }
}
