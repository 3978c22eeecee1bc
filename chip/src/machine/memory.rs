//! A shared memory: channels that serve commands in order, banks that need time to recover, a queue before each
//! channel.
//!
//! A command waits for room in its channel's queue, then for those before it and for its bank, then takes the
//! channel's data pins for its overhead and its data. What it waits beyond its unloaded latency is contention. Where reads and writes
//! have pins of their own, each way has a queue. The order of service is that of arrival: controllers that reorder for open banks or
//! by priority do better at times. A cache in front of the channels answers any number of commands at once.

use std::collections::VecDeque;

use tally::Region;

use super::cache::{Cache, CacheSeen, Line, Look};
use crate::description::{DataPins, Memory};
use crate::kernel::{Ticks, Timebase};
use crate::trace::Access;

/// A memory at work.
#[derive(Clone, Debug)]
pub(super) struct SharedMemory {
    channels: Vec<Channel>,
    interleave: u64,
    cycle: Ticks,
    width: u64,
    read: Ticks,
    write: Ticks,
    burst: u32,
    overhead: Ticks,
    recovery: Ticks,
    atomic: Option<Ticks>,
    queue: usize,
    /// Place of the memory in the chip.
    number: u16,
    cache: Option<Cache>,
    ideal: bool,
    /// Counts, except for the channels' busy time, which each channel keeps.
    seen: Seen,
}

#[derive(Clone, Debug)]
struct Channel {
    /// Pins of both ways, or of reads and then of writes.
    pins: Vec<Pins>,
    /// Time from which each bank is free.
    banks: Vec<Ticks>,
}

/// Data pins of a channel, with the queue before them.
#[derive(Clone, Debug)]
struct Pins {
    /// Time from which they are free for the next command.
    free: Ticks,
    /// Total time that they were busy.
    busy: Ticks,
    /// Start of service of the latest commands, as many as the queue holds.
    starts: VecDeque<Ticks>,
}

/// A command to a channel.
#[derive(Clone, Copy, Debug)]
struct Command {
    address: u64,
    bytes: u32,
    access: Access,
    latency: Ticks,
    /// Time beyond that of a read, for an atomic operation.
    extra: Ticks,
}

/// Counts of a memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Time that each channel was busy; of reads and of writes, where they have pins of their own.
    pub(crate) busy: Vec<Ticks>,
    /// Time that commands waited for service, summed.
    pub(crate) waited: u128,
    /// Traffic by region.
    pub(crate) regions: [Traffic; Region::ALL.len()],
    /// Traffic of rings.
    pub(crate) rings: Traffic,
    /// Traffic of the pointers of linked lists.
    pub(crate) lists: Traffic,
    /// Traffic of work beyond the stages.
    pub(crate) extra: Traffic,
}

/// References to a memory, summed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) references: u64,
    pub(crate) bytes: u64,
    /// Time from issue to completion, summed.
    pub(crate) latency: u128,
    pub(crate) worst: Ticks,
}

/// Purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A reference to a region.
    Region(Region),
    /// Bytes of a region that a DMA unit moves, past all caches.
    Transfer(Region),
    /// A put to a ring, or a get from one.
    Ring,
    /// A pointer of a linked list of segments.
    List,
    /// A reference of work beyond the stages.
    Extra,
}

/// A reference under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Underway {
    /// Time at which its last command is in the queue: the issuing thread may go on.
    pub(super) admitted: Ticks,
    /// Time of completion.
    pub(super) done: Ticks,
}

impl Seen {
    /// Returns zero counts of a memory of `channels` channels.
    pub(super) fn of(channels: usize) -> Seen {
        Seen { busy: vec![Ticks::ZERO; channels], ..Seen::default() }
    }

    pub(super) fn since(&self, earlier: &Seen) -> Seen {
        let mut regions = self.regions;
        for (region, earlier) in regions.iter_mut().zip(&earlier.regions) {
            *region = region.since(earlier);
        }
        Seen {
            busy: self.busy.iter().zip(&earlier.busy).map(|(now, then)| now.since(*then)).collect(),
            waited: self.waited - earlier.waited,
            regions,
            rings: self.rings.since(&earlier.rings),
            lists: self.lists.since(&earlier.lists),
            extra: self.extra.since(&earlier.extra),
        }
    }
}

impl Traffic {
    fn since(self, earlier: &Traffic) -> Traffic {
        Traffic {
            references: self.references - earlier.references,
            bytes: self.bytes - earlier.bytes,
            latency: self.latency - earlier.latency,
            worst: self.worst,
        }
    }
}

impl SharedMemory {
    /// The chip's memory of that number, at rest.
    pub(super) fn new(
        (number, memory): (usize, &Memory),
        chip_cycle: Ticks,
        time: Timebase,
        ideal: bool,
    ) -> SharedMemory {
        let cycles = |count: u64| Ticks(time.cycle(memory.clock).0.saturating_mul(count));
        let chip_cycles = |count: u64| Ticks(chip_cycle.0.saturating_mul(count));
        let pins = Pins {
            free: Ticks::ZERO,
            busy: Ticks::ZERO,
            starts: VecDeque::with_capacity(memory.queue.max(1) as usize),
        };
        let ways = if memory.pins == DataPins::Separate { 2 } else { 1 };
        let banks = vec![Ticks::ZERO; memory.banks.max(1) as usize];
        let channel = Channel { pins: vec![pins; ways], banks };
        SharedMemory {
            channels: vec![channel; memory.channels.max(1) as usize],
            interleave: memory.interleave.0.max(1),
            cycle: cycles(1),
            width: memory.width.0.max(1),
            read: chip_cycles(memory.latency.0),
            write: chip_cycles(memory.write_latency.0),
            burst: u32::try_from(memory.burst.0).unwrap_or(u32::MAX).max(1),
            overhead: cycles(memory.overhead.0),
            recovery: cycles(memory.recovery.0),
            atomic: memory.atomic.map(|extra| cycles(extra.0)),
            queue: memory.queue.max(1) as usize,
            number: number as u16,
            cache: memory.cache.map(|cache| Cache::new(&cache, chip_cycles(cache.latency.0))),
            ideal,
            seen: Seen::default(),
        }
    }

    /// Returns the counts so far.
    pub(super) fn seen(&self) -> Seen {
        let pins = self.channels.iter().flat_map(|channel| &channel.pins);
        Seen { busy: pins.map(|pins| pins.busy).collect(), ..self.seen.clone() }
    }

    /// Issues a reference at `at` and says how it goes on.
    pub(super) fn refer(
        &mut self,
        at: Ticks,
        address: u64,
        bytes: u32,
        access: Access,
        purpose: Purpose,
    ) -> Underway {
        let underway = match purpose {
            _ if self.ideal => Underway { admitted: at, done: at },
            Purpose::Region(_) | Purpose::Extra if self.cache.is_some() => {
                self.by_cache(at, address, bytes, access)
            }
            Purpose::Transfer(_) if self.cache.is_some() => self.past_cache(at, address, bytes, access),
            _ => self.serve(at, address, bytes, access),
        };
        let latency = underway.done.since(at);
        let sum = match purpose {
            Purpose::Region(region) | Purpose::Transfer(region) => &mut self.seen.regions[region as usize],
            Purpose::Ring => &mut self.seen.rings,
            Purpose::List => &mut self.seen.lists,
            Purpose::Extra => &mut self.seen.extra,
        };
        sum.references += 1;
        sum.bytes += u64::from(bytes);
        sum.latency += u128::from(latency.0);
        sum.worst = sum.worst.max(latency);
        underway
    }

    /// Returns the counts of the cache, if there is one.
    pub(super) fn cache_seen(&self) -> Option<CacheSeen> {
        self.cache.as_ref().map(|cache| cache.seen)
    }

    /// Serves a reference from the cache, which first brings the lines that it lacks.
    fn by_cache(&mut self, at: Ticks, address: u64, bytes: u32, access: Access) -> Underway {
        let mut underway = Underway { admitted: at, done: at };
        let Some(cache) = &self.cache else { return underway };
        let changes = if access == Access::Atomic { self.atomic.unwrap_or(Ticks::ZERO) } else { Ticks::ZERO };
        let hit = cache.latency + changes;
        for line in cache.lines(self.number, address, bytes) {
            match self.cache.as_mut().map(|cache| cache.look(line, access)) {
                Some(Look::Miss(victim)) => {
                    let fill = self.move_line(underway.admitted, line, Access::Read);
                    underway =
                        Underway { admitted: fill.admitted, done: underway.done.max(fill.done + changes) };
                    if let Some(victim) = victim {
                        underway.admitted = self.move_line(underway.admitted, victim, Access::Write).admitted;
                    }
                }
                _ => underway.done = underway.done.max(underway.admitted + hit),
            }
        }
        underway
    }

    /// Serves a reference that keeps out of the cache, after what the cache has changed of the same lines.
    fn past_cache(&mut self, at: Ticks, address: u64, bytes: u32, access: Access) -> Underway {
        let mut admitted = at;
        if let Some(cache) = &self.cache {
            for line in cache.lines(self.number, address, bytes) {
                if self.cache.as_mut().is_some_and(|cache| cache.snoop(line, access)) {
                    admitted = self.move_line(admitted, line, Access::Write).admitted;
                }
            }
        }
        self.serve(admitted, address, bytes, access)
    }

    fn move_line(&mut self, at: Ticks, line: Line, access: Access) -> Underway {
        let (address, bytes) = self.cache.as_ref().map_or((0, 0), |cache| cache.extent(line));
        self.serve(at, address, bytes, access)
    }

    fn serve(&mut self, at: Ticks, address: u64, bytes: u32, access: Access) -> Underway {
        let mut underway = Underway { admitted: at, done: at };
        let mut next = address;
        let mut left = bytes.max(1);
        while left > 0 {
            let some = left.min(self.burst);
            let latency = match access {
                Access::Read | Access::Atomic => self.read,
                Access::Write => self.write,
            };
            let extra =
                if access == Access::Atomic { self.atomic.unwrap_or(Ticks::ZERO) } else { Ticks::ZERO };
            let command = Command { address: next, bytes: some, access, latency, extra };
            let mut one = self.command(underway.admitted, command);
            if access == Access::Atomic && self.atomic.is_none() {
                // Without atomic operations it is read, changed in the engine, and written back.
                let access = Access::Write;
                let back = Command { access, latency: self.write, extra: Ticks::ZERO, ..command };
                one.done = self.command(one.done, back).done;
            }
            underway.admitted = one.admitted;
            underway.done = underway.done.max(one.done);
            next += u64::from(some);
            left -= some;
        }
        underway
    }

    fn command(&mut self, at: Ticks, command: Command) -> Underway {
        let Command { address, bytes, access, latency, extra } = command;
        let line = address / self.interleave;
        let count = self.channels.len() as u64;
        let Channel { pins, banks } = &mut self.channels[(line % count) as usize];
        let bank = ((line / count) % banks.len() as u64) as usize;
        let ways = pins.len();
        let way = if access == Access::Write { ways - 1 } else { 0 };
        let of = &mut pins[way];
        let admitted =
            if of.starts.len() < self.queue { at } else { at.max(of.starts.pop_front().unwrap_or(at)) };
        // Static memory recovers at once: there the pins alone are taken.
        let bank_free = if self.recovery == Ticks::ZERO { Ticks::ZERO } else { banks[bank] };
        let start = admitted.max(of.free).max(bank_free);
        of.starts.push_back(start);
        let words = u64::from(bytes).div_ceil(self.width);
        let data = Ticks(self.cycle.0 * words);
        let is_apart = ways > 1 && access == Access::Atomic;
        // The controller writes back what an atomic operation has changed, by the pins for writing where there are such.
        let busy = self.overhead + data + if is_apart { Ticks::ZERO } else { extra };
        of.free = start + busy;
        of.busy += busy;
        if is_apart {
            let back = &mut pins[1];
            back.free = back.free.max(start + busy) + data;
            back.busy += data;
        }
        banks[bank] = start + busy + self.recovery;
        self.seen.waited += u128::from(start.since(at).0);
        // The latency counts to the first word; the others follow it.
        Underway { admitted, done: start + latency + extra + (data - self.cycle) }
    }
}

#[cfg(test)]
mod tests {
    use wire::Bytes;

    use super::*;
    use crate::clock::{Cycles, Hertz};
    use crate::description::Cache as Described;

    fn sram() -> Memory {
        Memory {
            name: "sram".into(),
            bytes: Bytes(1 << 20),
            channels: 2,
            interleave: Bytes(4),
            banks: 1,
            clock: Hertz(200_000_000),
            width: Bytes(4),
            pins: DataPins::Shared,
            latency: Cycles(90),
            write_latency: Cycles(60),
            burst: Bytes(64),
            overhead: Cycles(1),
            recovery: Cycles(0),
            atomic: Some(Cycles(2)),
            queue: 2,
            cache: None,
        }
    }

    fn made(memory: &Memory) -> SharedMemory {
        // A tick is a cycle of 600 MHz; a cycle of the memory is three.
        SharedMemory::new((0, memory), Ticks(1), Timebase::new(600_000_000), false)
    }

    const RULES: Purpose = Purpose::Region(Region::RuleTable);

    #[test]
    fn alone_a_reference_takes_the_latency_and_its_further_words() {
        let mut memory = made(&sram());
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Read, RULES).done, Ticks(90));
        assert_eq!(memory.refer(Ticks(1000), 0, 32, Access::Read, RULES).done, Ticks(1000 + 90 + 7 * 3));
        assert_eq!(memory.refer(Ticks(2000), 0, 4, Access::Write, RULES).done, Ticks(2060));
        assert_eq!(memory.refer(Ticks(3000), 0, 4, Access::Atomic, RULES).done, Ticks(3000 + 90 + 6));
        assert_eq!(memory.seen.regions[Region::RuleTable as usize].references, 4);
        assert_eq!(memory.seen.regions[Region::RuleTable as usize].worst, Ticks(111));
        assert_eq!(memory.seen.waited, 0);
    }

    #[test]
    fn one_channel_serves_in_order_and_two_side_by_side() {
        let mut memory = made(&sram());
        // Overhead and one word: six ticks each.
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Read, RULES).done, Ticks(90));
        assert_eq!(memory.refer(Ticks(0), 8, 4, Access::Read, RULES).done, Ticks(96));
        assert_eq!(memory.refer(Ticks(0), 4, 4, Access::Read, RULES).done, Ticks(90), "the other channel");
        assert_eq!(memory.seen().busy, [Ticks(12), Ticks(6)]);
    }

    #[test]
    fn reads_and_writes_of_qdr_do_not_hold_each_other_up() {
        let mut memory = made(&Memory { channels: 1, pins: DataPins::Separate, ..sram() });
        // Overhead and one word: six ticks each.
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Read, RULES).done, Ticks(90));
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Write, RULES).done, Ticks(60), "by pins of its own");
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Read, RULES).done, Ticks(96));
        // It is read after those two, and written back behind the write.
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Atomic, RULES).done, Ticks(12 + 90 + 6));
        assert_eq!(memory.seen().busy, [Ticks(18), Ticks(6 + 3)]);
        // The third and fourth write find two before them.
        let admitted =
            |memory: &mut SharedMemory| memory.refer(Ticks(18), 0, 4, Access::Write, RULES).admitted;
        assert_eq!([(); 4].map(|()| admitted(&mut memory).0), [18, 18, 21, 27]);
    }

    #[test]
    fn a_full_queue_holds_up_whoever_issues() {
        let mut memory = made(&sram());
        let admitted: Vec<u64> =
            (0..4).map(|_| memory.refer(Ticks(0), 0, 4, Access::Read, RULES).admitted.0).collect();
        // Two wait at most: the third gets in when the first is served, at 0; the fourth when the second is.
        assert_eq!(admitted, [0, 0, 0, 6]);
    }

    #[test]
    fn a_bank_needs_to_recover() {
        let mut memory = made(&Memory { channels: 1, banks: 2, recovery: Cycles(10), queue: 16, ..sram() });
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Read, RULES).done, Ticks(90));
        assert_eq!(memory.refer(Ticks(0), 4, 4, Access::Read, RULES).done, Ticks(96), "the other bank");
        assert_eq!(memory.refer(Ticks(0), 8, 4, Access::Read, RULES).done, Ticks(36 + 90), "the first again");
    }

    #[test]
    fn longer_than_a_burst_is_several_commands() {
        let mut memory = made(&Memory { channels: 1, burst: Bytes(8), ..sram() });
        // Three commands of 9 ticks, one after the other; the last has two words.
        assert_eq!(memory.refer(Ticks(0), 0, 24, Access::Read, RULES).done, Ticks(18 + 90 + 3));
        // Without atomic operations, both ways.
        let mut memory = made(&Memory { atomic: None, ..sram() });
        assert_eq!(memory.refer(Ticks(0), 0, 4, Access::Atomic, RULES).done, Ticks(150));
    }

    #[test]
    fn a_cache_brings_lines_keeps_them_and_writes_back_what_was_changed() {
        let cache = Described { bytes: Bytes(128), line: Bytes(32), ways: 2, latency: Cycles(12) };
        let mut memory = made(&Memory { channels: 1, queue: 16, cache: Some(cache), ..sram() });
        // A line is overhead and eight words of 3 ticks; its first word is there after 90.
        assert_eq!(memory.refer(Ticks(0), 4, 4, Access::Read, RULES).done, Ticks(90 + 21));
        assert_eq!(memory.refer(Ticks(1000), 28, 4, Access::Read, RULES).done, Ticks(1012), "the same line");
        assert_eq!(
            memory.refer(Ticks(2000), 0, 4, Access::Write, RULES).done,
            Ticks(2012),
            "kept, not written"
        );
        let busy = |memory: &SharedMemory| memory.seen().busy[0].0;
        assert_eq!(busy(&memory), 27, "one line");
        // Two sets: lines 0, 2 and 4 share one, and the third makes the first go.
        memory.refer(Ticks(3000), 64, 4, Access::Read, RULES);
        memory.refer(Ticks(4000), 128, 4, Access::Read, RULES);
        assert_eq!(busy(&memory), 3 * 27 + 27, "the first was written back");
        assert_eq!(memory.refer(Ticks(5000), 64, 4, Access::Read, RULES).done, Ticks(5012));
        let seen = memory.cache_seen().unwrap();
        assert_eq!((seen.lookups, seen.misses, seen.written), (6, 3, 1));
        // What a DMA unit writes past the cache has to be brought anew.
        memory.refer(Ticks(6000), 64, 32, Access::Write, Purpose::Transfer(Region::RuleTable));
        assert_eq!(memory.refer(Ticks(7000), 64, 4, Access::Read, RULES).done, Ticks(7000 + 90 + 21));
    }

    #[test]
    fn the_infinitely_fast_memory_takes_no_time() {
        let mut memory = SharedMemory::new((0, &sram()), Ticks(1), Timebase::new(600_000_000), true);
        let underway = memory.refer(Ticks(7), 0, 4096, Access::Read, RULES);
        assert_eq!(underway, Underway { admitted: Ticks(7), done: Ticks(7) });
    }
}
