//! A shared memory: channels that serve commands in order, banks that need time to recover, a queue before each
//! channel.
//!
//! A command waits for room in its channel's queue, then for those before it and for its bank, then takes the
//! channel's data pins for its overhead and its data. What it waits beyond its unloaded latency is contention. Where reads and writes
//! have pins of their own, each way has a queue. The order of service is that of arrival, and so all of it is known at once; where a memory
//! has another order or a queue of high priority, its [`Controller`] chooses when pins and banks are free. A cache in front of the channels
//! answers any number of commands at once.

use std::collections::VecDeque;

use tally::Region;

use super::cache::{Cache, CacheSeen, Line, Look};
use super::controller::{Controller, Waiting};
use crate::description::{DataPins, Memory, ServiceOrder};
use crate::kernel::{Ticks, Timebase};
use crate::mapping::Priority;
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
    controller: Option<Controller>,
    service: Service,
    /// Counts, except for the channels' busy time, which each channel keeps.
    seen: Seen,
}

/// Service that a memory gives to commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// A command takes no time at all: the memory is infinitely fast.
    Instant,
    /// Time as described, for commands that are all of one priority.
    OnePriority,
    /// Time as described, for commands of which some are of high priority.
    TwoPriorities,
}

#[derive(Clone, Debug)]
struct Channel {
    /// Pins of both ways, or of reads and then of writes.
    pins: Vec<Pins>,
    /// Time from which each bank is free. Static memory recovers at once: there the pins alone are taken.
    banks: Vec<Ticks>,
}

/// Times of a command from its start on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Time for which it takes its pins.
    busy: Ticks,
    /// Time for which the pins for writing are taken afterwards, for what an atomic operation has changed.
    back: Ticks,
    /// Time until it is done.
    done: Ticks,
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
}

/// A command that a controller has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Started {
    /// The reference that it is a part of.
    pub(super) reference: u32,
    pub(super) priority: Priority,
    /// Time of its completion.
    pub(super) done: Ticks,
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
    /// Traffic of timers.
    pub(crate) timers: Traffic,
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
    /// A reference of a timer.
    Timer,
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
            timers: self.timers.since(&earlier.timers),
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
    /// The chip's memory of that number, at rest. Where all commands are of one priority, and served in the order of arrival, none is chosen.
    pub(super) fn new(
        number: usize,
        memory: &Memory,
        chip_cycle: Ticks,
        time: Timebase,
        service: Service,
    ) -> SharedMemory {
        let has_choice = match service {
            Service::Instant => false,
            Service::OnePriority => memory.order != ServiceOrder::Arrival,
            Service::TwoPriorities => memory.order != ServiceOrder::Arrival || memory.priority.is_some(),
        };
        let chooses = has_choice && memory.cache.is_none();
        let cycles = |count: u64| Ticks(time.cycle(memory.clock).0.saturating_mul(count));
        let chip_cycles = |count: u64| Ticks(chip_cycle.0.saturating_mul(count));
        let pins = Pins {
            free: Ticks::ZERO,
            busy: Ticks::ZERO,
            starts: VecDeque::with_capacity(memory.queue.max(1) as usize),
        };
        let ways = if memory.pins == DataPins::Separate { 2 } else { 1 };
        let channels = memory.channels.max(1) as usize;
        let queues = match memory.order {
            ServiceOrder::Arrival => 1,
            ServiceOrder::Bank { queues } => queues as usize,
        };
        let most = [memory.queue, memory.priority.unwrap_or(memory.queue)].map(|most| most.max(1) as usize);
        let controller = chooses.then(|| Controller::new(channels, ways, queues, most));
        let banks = vec![Ticks::ZERO; memory.banks.max(1) as usize];
        let channel = Channel { pins: vec![pins; ways], banks };
        SharedMemory {
            channels: vec![channel; channels],
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
            controller,
            service,
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
            _ if self.service == Service::Instant => Underway { admitted: at, done: at },
            Purpose::Region(_) | Purpose::Extra if self.cache.is_some() => {
                self.by_cache(at, address, bytes, access)
            }
            Purpose::Transfer(_) if self.cache.is_some() => self.past_cache(at, address, bytes, access),
            _ => self.serve(at, address, bytes, access),
        };
        self.count(purpose, bytes, underway.done.since(at));
        underway
    }

    /// Counts a reference that takes so long from its issue to its completion.
    pub(super) fn count(&mut self, purpose: Purpose, bytes: u32, latency: Ticks) {
        let sum = match purpose {
            Purpose::Region(region) | Purpose::Transfer(region) => &mut self.seen.regions[region as usize],
            Purpose::Ring => &mut self.seen.rings,
            Purpose::List => &mut self.seen.lists,
            Purpose::Extra => &mut self.seen.extra,
            Purpose::Timer => &mut self.seen.timers,
        };
        sum.references += 1;
        sum.bytes += u64::from(bytes);
        sum.latency += u128::from(latency.0);
        sum.worst = sum.worst.max(latency);
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
            let command = Command { address: next, bytes: some, access };
            let mut one = self.command(underway.admitted, command);
            if self.is_written_back(access) {
                one.done = self.command(one.done, Command { access: Access::Write, ..command }).done;
            }
            underway.admitted = one.admitted;
            underway.done = underway.done.max(one.done);
            next += u64::from(some);
            left -= some;
        }
        underway
    }

    /// True if a reference is read, changed in the engine, and written back: the memory has no atomic operations.
    pub(super) fn is_written_back(&self, access: Access) -> bool {
        access == Access::Atomic && self.atomic.is_none()
    }

    fn command(&mut self, at: Ticks, command: Command) -> Underway {
        let timing = self.timing(command);
        let (channel, bank, way) = self.locate(command);
        let of = &mut self.channels[channel];
        let pins = &mut of.pins[way];
        let admitted =
            if pins.starts.len() < self.queue { at } else { at.max(pins.starts.pop_front().unwrap_or(at)) };
        let start = admitted.max(pins.free).max(of.banks[bank]);
        pins.starts.push_back(start);
        of.start(start, (bank, way), timing, self.recovery);
        self.seen.waited += u128::from(start.since(at).0);
        Underway { admitted, done: start + timing.done }
    }

    /// The channel of a command, its bank there, and the pins that it takes.
    fn locate(&self, command: Command) -> (usize, usize, usize) {
        let line = command.address / self.interleave;
        let count = self.channels.len() as u64;
        let channel = (line % count) as usize;
        let Channel { pins, banks } = &self.channels[channel];
        let way = if command.access == Access::Write { pins.len() - 1 } else { 0 };
        (channel, ((line / count) % banks.len() as u64) as usize, way)
    }

    fn timing(&self, command: Command) -> Timing {
        let Command { bytes, access, .. } = command;
        let latency = match access {
            Access::Read | Access::Atomic => self.read,
            Access::Write => self.write,
        };
        let extra = if access == Access::Atomic { self.atomic.unwrap_or(Ticks::ZERO) } else { Ticks::ZERO };
        let data = Ticks(self.cycle.0 * u64::from(bytes).div_ceil(self.width));
        let is_apart = access == Access::Atomic && self.channels[0].pins.len() > 1;
        // The controller writes back what an atomic operation has changed, by the pins for writing where there are such.
        Timing {
            busy: self.overhead + data + if is_apart { Ticks::ZERO } else { extra },
            back: if is_apart { data } else { Ticks::ZERO },
            // The latency counts to the first word; the others follow it.
            done: latency + extra + (data - self.cycle),
        }
    }

    // ---- Commands that a controller chooses among -----------------------------------------------------------------

    /// True if a controller chooses among the commands that wait.
    pub(super) fn chooses(&self) -> bool {
        self.controller.is_some()
    }

    /// The lane of a reference's command that begins at `address`, and its bytes.
    pub(super) fn lane(&self, address: u64, left: u32, access: Access) -> (usize, u32) {
        let bytes = left.min(self.burst);
        let (channel, _, way) = self.locate(Command { address, bytes, access });
        (channel * self.channels[channel].pins.len() + way, bytes)
    }

    /// Serves a reference of one command from `now` on, if none waits before it and its pins and its bank are free: when it is done.
    pub(super) fn serve_at_once(
        &mut self,
        now: Ticks,
        (address, bytes, access): (u64, u32, Access),
        purpose: Purpose,
    ) -> Option<Ticks> {
        if bytes > self.burst || self.is_written_back(access) {
            return None;
        }
        let command = Command { address, bytes: bytes.max(1), access };
        let (channel, bank, way) = self.locate(command);
        let of = &self.channels[channel];
        let lane = channel * of.pins.len() + way;
        let is_free = of.pins[way].free <= now && of.banks[bank] <= now;
        if !is_free || !self.controller.as_ref()?.is_empty(lane) {
            return None;
        }
        let timing = self.timing(command);
        self.channels[channel].start(now, (bank, way), timing, self.recovery);
        self.count(purpose, bytes, timing.done);
        Some(now + timing.done)
    }

    /// True if the queue of a lane has room.
    pub(super) fn has_room(&self, lane: usize, priority: Priority) -> bool {
        self.controller.as_ref().is_none_or(|controller| controller.has_room(lane, priority))
    }

    /// Puts a command of a reference into the queue of its lane.
    pub(super) fn enter(
        &mut self,
        reference: u32,
        (address, bytes, access): (u64, u32, Access),
        priority: Priority,
        since: Ticks,
    ) {
        let command = Command { address, bytes, access };
        let (timing, (channel, bank, way)) = (self.timing(command), self.locate(command));
        let lane = channel * self.channels[channel].pins.len() + way;
        if let Some(controller) = &mut self.controller {
            controller.enter(lane, priority, Waiting { reference, bank, timing, since, number: 0 });
        }
    }

    /// Starts the command of a lane that is next at `now`.
    pub(super) fn start(&mut self, lane: usize, now: Ticks) -> Option<Started> {
        let ways = self.channels[0].pins.len();
        let of = &mut self.channels[lane / ways];
        let pins = of.pins[lane % ways].free;
        let (waiting, priority) = self.controller.as_mut()?.pick(lane, pins, &of.banks, now)?;
        let Waiting { reference, bank, timing, since, .. } = waiting;
        of.start(now, (bank, lane % ways), timing, self.recovery);
        self.seen.waited += u128::from(now.since(since).0);
        Some(Started { reference, priority, done: now + timing.done })
    }

    /// Notes the time at which a lane can start its next command, and returns it if nothing was noted before.
    pub(super) fn expect(&mut self, lane: usize) -> Option<Ticks> {
        let ways = self.channels[0].pins.len();
        let of = &self.channels[lane / ways];
        let controller = self.controller.as_mut()?;
        let at = controller.next(lane, of.pins[lane % ways].free, &of.banks)?;
        controller.expect(lane, at).then_some(at)
    }

    /// The controller, if there is one.
    pub(super) fn controller(&mut self) -> Option<&mut Controller> {
        self.controller.as_mut()
    }
}

impl Channel {
    /// Starts a command that pins and bank are free for.
    fn start(&mut self, start: Ticks, (bank, way): (usize, usize), timing: Timing, recovery: Ticks) {
        let pins = &mut self.pins[way];
        pins.free = start + timing.busy;
        pins.busy += timing.busy;
        if timing.back > Ticks::ZERO {
            let back = &mut self.pins[1];
            back.free = back.free.max(start + timing.busy) + timing.back;
            back.busy += timing.back;
        }
        if recovery > Ticks::ZERO {
            self.banks[bank] = start + timing.busy + recovery;
        }
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
            order: ServiceOrder::Arrival,
            priority: None,
            cache: None,
        }
    }

    fn made(memory: &Memory) -> SharedMemory {
        // A tick is a cycle of 600 MHz; a cycle of the memory is three.
        SharedMemory::new(0, memory, Ticks(1), Timebase::new(600_000_000), Service::OnePriority)
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
        let mut memory =
            SharedMemory::new(0, &sram(), Ticks(1), Timebase::new(600_000_000), Service::Instant);
        let underway = memory.refer(Ticks(7), 0, 4096, Access::Read, RULES);
        assert_eq!(underway, Underway { admitted: Ticks(7), done: Ticks(7) });
    }
}
