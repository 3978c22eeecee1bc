//! Packets that wait in a tree: a slab, in which each queue is a list.

use lookup::memory::{MemoryError, Slab};
use wire::{Frame, Nanos};

/// No packet.
pub(super) const NONE: u32 = u32::MAX;

/// Packets of one tree.
#[derive(Debug)]
pub(super) struct Packets {
    entries: Slab<Entry>,
    /// First free entry: the one that was left last, whose line is near.
    free: u32,
    waiting: u32,
}

/// Packet that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The frame.
    pub(super) frame: Frame,
    /// Bytes of the IP packet.
    pub(super) length: u32,
    /// Time of arrival in the queue.
    pub(super) since: Nanos,
}

/// Half a cache line.
#[derive(Debug)]
#[repr(align(32))]
struct Entry {
    frame: Option<Frame>,
    since: Nanos,
    length: u32,
    /// Entry behind, of one that is not the last of its list.
    next: u32,
}

/// First-in-first-out list of packets; without padding, as a node has it in its cache line.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(super) struct List {
    /// First and last entry, where there are packets.
    head: u32,
    tail: u32,
    /// Number of packets.
    pub(super) packets: u32,
    /// Bytes of the IP packets.
    pub(super) bytes: u64,
}

impl List {
    /// No packets.
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE, packets: 0, bytes: 0 };

    /// First entry; of an empty list the same as of all others, without a branch that would be mispredicted.
    #[inline(always)]
    fn head_or_any(&self) -> u32 {
        if self.packets == 0 { 0 } else { self.head }
    }
}

impl Packets {
    /// Creates a slab with room for that many packets.
    ///
    /// # Errors
    /// The system has not the memory for it.
    pub(super) fn new(capacity: u32) -> Result<Packets, MemoryError> {
        let next = |place: u32| if place + 1 < capacity { place + 1 } else { NONE };
        let entry = |place| Entry { frame: None, since: Nanos(0), length: 0, next: next(place) };
        let entries = Slab::of((0..capacity).map(entry).collect())?;
        Ok(Packets { entries, free: if capacity == 0 { NONE } else { 0 }, waiting: 0 })
    }

    /// Number of packets.
    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.waiting
    }

    /// True if there is no room for another.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Asks for the frame of the first packet of a list, whose entry is near, for a departure to come.
    #[inline(always)]
    pub(super) fn prefetch(&self, list: &List) {
        if let Some(frame) =
            self.entries.get(list.head_or_any() as usize).and_then(|entry| entry.frame.as_ref())
        {
            wire::prefetch::read(&frame.meta);
        }
    }

    /// Asks for the entry of the first packet of a list, for [`Packets::prefetch`] to come.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, list: &List) {
        if let Some(entry) = self.entries.get(list.head_or_any() as usize) {
            wire::prefetch::read(entry);
        }
    }

    /// Asks for the entry of the second packet of a list, if there is one: the first's entry is near.
    #[inline(always)]
    pub(super) fn prefetch_behind(&self, list: &List) {
        let first = self.entries.get(list.head_or_any() as usize);
        if let Some(entry) = first.and_then(|first| self.entries.get(first.next as usize)) {
            wire::prefetch::read(entry);
        }
    }

    /// Puts a packet at the end of a list.
    ///
    /// # Errors
    /// There is no room; the packet comes back.
    #[inline(always)]
    pub(super) fn push(&mut self, list: &mut List, packet: Waiting) -> Result<(), Waiting> {
        let place = self.free;
        let Some(entry) = self.entries.get_mut(place as usize) else { return Err(packet) };
        self.free = entry.next;
        let Waiting { frame, length, since } = packet;
        *entry = Entry { frame: Some(frame), since, length, next: NONE };
        // Packets come to empty lists and others at random: no branch. An empty list's first is its last, too.
        let is_empty = list.packets == 0;
        let last = if is_empty { place } else { list.tail };
        list.head = if is_empty { place } else { list.head };
        if let Some(last) = self.entries.get_mut(last as usize) {
            last.next = place;
        }
        list.tail = place;
        list.packets += 1;
        list.bytes += u64::from(length);
        self.waiting += 1;
        Ok(())
    }

    /// Takes the first packet of a list.
    #[inline(always)]
    pub(super) fn pop(&mut self, list: &mut List) -> Option<Waiting> {
        if list.packets == 0 {
            return None;
        }
        let place = list.head;
        let entry = self.entries.get_mut(place as usize)?;
        let frame = entry.frame.take()?;
        let (length, since) = (entry.length, entry.since);
        list.head = std::mem::replace(&mut entry.next, self.free);
        self.free = place;
        list.packets -= 1;
        list.bytes -= u64::from(length);
        self.waiting -= 1;
        Some(Waiting { frame, length, since })
    }

    /// Moment since which the first packet of a list waits.
    pub(super) fn first(&self, list: &List) -> Option<Nanos> {
        if list.packets == 0 {
            return None;
        }
        self.entries.get(list.head as usize).map(|entry| entry.since)
    }

    /// Frames of all packets, each with the moment since which it waits.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Frame, &mut Nanos)> {
        self.entries.iter_mut().filter_map(|entry| Some((entry.frame.as_mut()?, &mut entry.since)))
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.bytes()
    }
}
