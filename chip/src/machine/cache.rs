//! Tagged caches: of an engine, before the memories that all share, and of a memory, before its channels.
//!
//! Only tags are kept: what a line holds is what its region holds. Reads and writes allocate, the line of a set that was used least
//! recently makes room, and a changed line is written to the memory then. An engine waits for the lines that it lacks, and for no
//! line that is written back. Caches are coherent: a write takes the line from the caches of all other engines, and what engines
//! without a cache and DMA units refer to is written back first.
//!
//! Simplifications: a line counts as there from the moment at which it is asked for; instructions are fetched for nothing, which is in
//! an engine's cycles per instruction; and rings are no part of what is cached.

use super::memory::Purpose;
use super::pending::{UNKNOWN, Whose};
use super::script::Command;
use super::{Engine, Machine, Spends};
use crate::description::Cache as Described;
use crate::kernel::Ticks;
use crate::trace::Access;

/// Tags of a cache.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// All ways of the first set, then of the next.
    ways: Vec<Way>,
    associativity: usize,
    sets: u64,
    /// Bytes of a line, as a power of two.
    shift: u32,
    pub(super) latency: Ticks,
    /// Number of look-ups, by which the line used least recently is known.
    clock: u64,
    pub(super) seen: CacheSeen,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    line: Line,
    used: u64,
    state: State,
}

/// State of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    Clean,
    Dirty,
}

/// A line: the memory that it is of, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    memory: u16,
    number: u64,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The line was there.
    Hit,
    /// Line that was not there, and has taken the place of another; that one, if it has to be written to its memory.
    Miss(Option<Line>),
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheSeen {
    /// Lines looked up.
    pub(crate) lookups: u64,
    /// Lines that were not there.
    pub(crate) misses: u64,
    /// Lines written to their memory.
    pub(crate) written: u64,
}

/// Place of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePlace {
    /// Before an engine, by its place among all.
    Engine(usize),
    /// Before a memory, by its place in the chip.
    Memory(usize),
}

impl CacheSeen {
    pub(super) fn since(self, earlier: &CacheSeen) -> CacheSeen {
        CacheSeen {
            lookups: self.lookups - earlier.lookups,
            misses: self.misses - earlier.misses,
            written: self.written - earlier.written,
        }
    }
}

/// Bits of a line's number above which the number of its region in the memory is: regions lie 2^40 bytes apart.
const REGION: u32 = 40;

/// Sets between the beginnings of two regions, as a share of all: what all tables have first shall not lie in one set.
const COLOURS: u64 = 16;

impl Cache {
    /// An empty cache with that time from a hit to its data.
    pub(super) fn new(described: &Described, latency: Ticks) -> Cache {
        let line = described.line.0.max(1);
        let lines = (described.bytes.0 / line).max(1);
        let associativity = u64::from(described.ways).clamp(1, lines);
        let empty = Way { line: Line { memory: 0, number: 0 }, used: 0, state: State::Empty };
        Cache {
            ways: vec![empty; lines as usize],
            associativity: associativity as usize,
            sets: lines / associativity,
            shift: line.trailing_zeros(),
            latency,
            clock: 0,
            seen: CacheSeen::default(),
        }
    }

    /// The lines that a reference of so many bytes touches.
    pub(super) fn lines(&self, memory: u16, address: u64, bytes: u32) -> impl Iterator<Item = Line> + use<> {
        let last = (address + u64::from(bytes.max(1)) - 1) >> self.shift;
        (address >> self.shift..=last).map(move |number| Line { memory, number })
    }

    /// Address and bytes of a line.
    pub(super) fn extent(&self, line: Line) -> (u64, u32) {
        (line.number << self.shift, 1 << self.shift)
    }

    fn set(&mut self, line: Line) -> &mut [Way] {
        let region = line.number >> (REGION - self.shift.min(REGION));
        let set = (line.number + region * (self.sets / COLOURS)) % self.sets;
        let first = set as usize * self.associativity;
        &mut self.ways[first..first + self.associativity]
    }

    /// Looks a line up, and puts it in the place of another if it is not there.
    pub(super) fn look(&mut self, line: Line, access: Access) -> Look {
        self.clock += 1;
        self.seen.lookups += 1;
        let used = self.clock;
        let set = self.set(line);
        let mut oldest = 0;
        for place in 0..set.len() {
            let way = &mut set[place];
            if way.line == line && way.state != State::Empty {
                way.used = used;
                if access != Access::Read {
                    way.state = State::Dirty;
                }
                return Look::Hit;
            }
            if set[place].used < set[oldest].used {
                oldest = place;
            }
        }
        let state = if access == Access::Read { State::Clean } else { State::Dirty };
        let before = std::mem::replace(&mut set[oldest], Way { line, used, state });
        self.seen.misses += 1;
        let victim = (before.state == State::Dirty).then_some(before.line);
        self.seen.written += u64::from(victim.is_some());
        Look::Miss(victim)
    }

    /// Somebody else refers to the line: who writes it has the only copy from then on. True if it has to be written to its memory first.
    pub(super) fn snoop(&mut self, line: Line, access: Access) -> bool {
        let Some(way) = self.set(line).iter_mut().find(|way| way.line == line && way.state != State::Empty)
        else {
            return false;
        };
        let is_dirty = way.state == State::Dirty;
        if access == Access::Read {
            way.state = State::Clean;
        } else {
            // The next to be replaced.
            (way.state, way.used) = (State::Empty, 0);
        }
        self.seen.written += u64::from(is_dirty);
        is_dirty
    }
}

/// A reference that an engine has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Issued {
    /// All of it was in the engine's cache: the engine has it after that time.
    Hit(Ticks),
    /// The memory has it, or has lines of it to bring: the engine may go on at `goes`, and all is there at `done`.
    Sent { goes: Ticks, done: Ticks },
}

impl Machine<'_> {
    /// Issues a reference of an engine's thread, which has it by that ticket.
    pub(super) fn refer(&mut self, engine: usize, thread: usize, command: Command, ticket: u32) -> Issued {
        let whose = Whose::Thread { thread, ticket };
        if !self.cached.is_empty() {
            self.snoop(engine, command);
        }
        // What a timer shares with other engines is not cached.
        let is_cached = |_: &&Cache| command.purpose != Purpose::Timer;
        let Some(cache) = self.engines[engine].cache.as_ref().filter(is_cached) else {
            let (goes, done) = self.command(engine, command, whose);
            return Issued::Sent { goes, done };
        };
        let latency = if command.access == Access::Read { cache.latency } else { Ticks::ZERO };
        let lines = cache.lines(command.memory, command.address, command.bytes);
        let mut sent: Option<(Ticks, Ticks)> = None;
        let mut known = Ticks::ZERO;
        for line in lines {
            let Some(cache) = &mut self.engines[engine].cache else { break };
            let Look::Miss(victim) = cache.look(line, command.access) else { continue };
            let fill = cache.command(line, Access::Read, command);
            let back = victim.map(|victim| cache.command(victim, Access::Write, command));
            let (goes, done) = self.command(engine, fill, whose);
            let (first, last) = sent.unwrap_or((goes, done));
            known = if done == UNKNOWN { known } else { known.max(done) };
            let mut moved = (first.max(goes), last.max(done));
            // Nobody waits for what is written back, but for room to say so.
            if let Some(back) = back {
                moved.0 = moved.0.max(self.command(engine, back, Whose::Nobody).0);
            }
            sent = Some(moved);
        }
        match sent {
            Some((goes, done)) => {
                // Of lines that are there at times that are known and of others the thread waits for all.
                if done == UNKNOWN {
                    self.hold_ticket(thread, ticket, known);
                }
                Issued::Sent { goes, done }
            }
            None => {
                self.go_past(engine);
                self.seen.engines[engine].executing += latency;
                if let Some(thread) = self.engines[engine].current {
                    self.tell(|watch, now| watch.spends(thread, Spends::Executing, now, latency));
                }
                Issued::Hit(latency)
            }
        }
    }

    /// Keeps the caches of other engines coherent with a reference.
    fn snoop(&mut self, engine: usize, command: Command) {
        let has_own = self.engines[engine].cache.is_some();
        // Of two caches both may have what is only read.
        if has_own && command.access == Access::Read {
            return;
        }
        for place in 0..self.cached.len() {
            let other = self.cached[place];
            let Engine { cache: Some(cache), .. } = &self.engines[other] else { continue };
            if other == engine {
                continue;
            }
            for line in cache.lines(command.memory, command.address, command.bytes) {
                let Some(cache) = &mut self.engines[other].cache else { break };
                if cache.snoop(line, command.access) {
                    let back = cache.command(line, Access::Write, command);
                    self.command(engine, back, Whose::Nobody);
                }
            }
        }
    }
}

impl Cache {
    /// The command that moves a line, for the purpose of another.
    fn command(&self, line: Line, access: Access, of: Command) -> Command {
        let (address, bytes) = self.extent(line);
        Command { memory: line.memory, access, address, bytes, ..of }
    }
}

#[cfg(test)]
mod tests {
    use tally::{Address, Region};
    use wire::Bytes;

    use super::super::tests::{Same, chip, drawing, run};
    use super::super::{Ideal, Machine, Window};
    use super::{Cache, CachePlace, CacheSeen, Described, Line, Look};
    use crate::clock::Cycles;
    use crate::description::Chip;
    use crate::kernel::Ticks;
    use crate::mapping::Place;
    use crate::trace::{Access, Act, Referral, Wait};

    /// Eight lines of 16 bytes.
    fn described(ways: u32) -> Described {
        Described { bytes: Bytes(128), line: Bytes(16), ways, latency: Cycles(2) }
    }

    fn line(number: u64) -> Line {
        Line { memory: 0, number }
    }

    #[test]
    fn the_line_of_a_set_used_least_recently_makes_room() {
        let mut cache = Cache::new(&described(2), Ticks(2));
        // Four sets: lines 1, 5, 9 and 13 share one.
        assert_eq!(cache.look(line(1), Access::Read), Look::Miss(None));
        assert_eq!(cache.look(line(5), Access::Write), Look::Miss(None));
        assert_eq!(cache.look(line(1), Access::Read), Look::Hit);
        assert_eq!(cache.look(line(9), Access::Read), Look::Miss(Some(line(5))), "changed, so written back");
        assert_eq!(cache.look(line(13), Access::Read), Look::Miss(None), "1 was only read");
        assert_eq!(cache.look(line(2), Access::Read), Look::Miss(None), "another set");
        assert_eq!(cache.look(line(9), Access::Read), Look::Hit);
        assert_eq!(cache.seen, CacheSeen { lookups: 7, misses: 5, written: 1 });
        // The same lines of another memory are others.
        assert_eq!(cache.look(Line { memory: 1, number: 9 }, Access::Read), Look::Miss(None));
    }

    #[test]
    fn a_fully_associative_cache_keeps_the_last_lines_whatever_their_numbers() {
        let mut cache = Cache::new(&described(8), Ticks(2));
        for number in (0..8).map(|number| number * 64) {
            assert_eq!(cache.look(line(number), Access::Read), Look::Miss(None));
        }
        assert!((0..8).all(|number| cache.look(line(number * 64), Access::Read) == Look::Hit));
        cache.look(line(1), Access::Read);
        assert_eq!(cache.look(line(0), Access::Read), Look::Miss(None), "the oldest has gone");
    }

    /// Against a list of lines for each set, the last used at the end.
    #[test]
    fn every_look_is_as_in_a_list() {
        let mut random = wire::random::Random::new(7);
        for (ways, sets) in [(1, 8), (2, 4), (4, 2), (8, 1)] {
            let mut cache = Cache::new(&described(ways), Ticks(2));
            let mut lists: Vec<Vec<(u64, bool)>> = vec![Vec::new(); sets];
            for _ in 0..5_000 {
                let number = random.below(24);
                let access = if random.chance(30) { Access::Write } else { Access::Read };
                let list = &mut lists[number as usize % sets];
                let held = list.iter().position(|(held, _)| *held == number).map(|place| list.remove(place));
                let changed = held.is_some_and(|(_, changed)| changed) || access == Access::Write;
                let expected = match held {
                    Some(_) => Look::Hit,
                    None if list.len() < ways as usize => Look::Miss(None),
                    None => {
                        let (victim, changed) = list.remove(0);
                        Look::Miss(changed.then_some(line(victim)))
                    }
                };
                list.push((number, changed));
                assert_eq!(cache.look(line(number), access), expected);
            }
        }
    }

    #[test]
    fn references_touch_the_lines_that_they_reach_into() {
        let cache = Cache::new(&described(2), Ticks(2));
        let numbers =
            |address, bytes| -> Vec<u64> { cache.lines(0, address, bytes).map(|line| line.number).collect() };
        assert_eq!(numbers(0, 16), [0]);
        assert_eq!(numbers(15, 2), [0, 1]);
        assert_eq!(numbers(40, 0), [2], "the byte that it is at");
        assert_eq!(numbers(8, 40), [0, 1, 2]);
    }

    fn refer(access: Access, at: u64) -> Act {
        let (address, wait) = (Address::Computed, Wait::Now);
        Act::Refer(Referral { region: Region::FlowTable, access, at, bytes: 4, address, wait })
    }

    /// Engines of 100 MHz before a memory of 50 cycles, of which a line of 16 bytes has four words.
    fn cached() -> Chip {
        let mut chip = chip();
        chip.engines[0].cache = Some(described(2));
        chip
    }

    fn seen(chip: &Chip, engines: u32, acts: &[Act], frames: u32) -> Window {
        let mapping = drawing(engines, 1, Place::Shared(0));
        let mut machine = Machine::new(chip, &mapping, Ideal::Nothing).unwrap();
        machine.run(&mut Same { left: frames, acts: acts.to_vec(), at: 0, every: 0 }, 0).unwrap()
    }

    #[test]
    fn an_engine_waits_for_lines_that_it_lacks_and_for_no_others() {
        let acts = [run(9), refer(Access::Read, 0)];
        let window = seen(&cached(), 1, &acts, 1_000);
        // The first brings its line, 50 cycles and three more words; the others take two cycles.
        assert_eq!(window.span, Ticks(10 + 53 + 999 * (10 + 2)));
        assert_eq!(window.memories[0].busy, [Ticks(5)], "a command and four words");
        let found = CacheSeen { lookups: 1_000, misses: 1, written: 0 };
        assert_eq!(window.caches, [(CachePlace::Engine(0), found)]);
        // Writes wait for their line, but not for what is there.
        let window = seen(&cached(), 1, &[run(9), refer(Access::Write, 0)], 1_000);
        assert_eq!(window.span, Ticks(10 + 53 + 999 * 10));
    }

    #[test]
    fn lines_that_drive_each_other_out_are_written_back() {
        // 64 bytes apart: lines 0, 4 and 8 share a set of two.
        let acts = [0, 64, 128].map(|at| refer(Access::Write, at));
        let window = seen(&cached(), 1, &acts, 100);
        let found = CacheSeen { lookups: 300, misses: 300, written: 298 };
        assert_eq!(window.caches, [(CachePlace::Engine(0), found)]);
        assert_eq!(window.memories[0].busy, [Ticks(5 * (300 + 298))]);
    }

    #[test]
    fn a_write_takes_the_line_from_the_caches_of_others() {
        let reads = seen(&cached(), 2, &[run(9), refer(Access::Read, 0)], 1_000);
        let misses = |window: &Window| window.caches.iter().map(|(_, seen)| seen.misses).sum::<u64>();
        assert_eq!(misses(&reads), 2, "each has a copy");
        let writes = seen(&cached(), 2, &[run(9), refer(Access::Write, 0)], 1_000);
        assert!(misses(&writes) > 300, "{}", misses(&writes));
        let written: u64 = writes.caches.iter().map(|(_, seen)| seen.written).sum();
        assert!(written > 300, "{written}");
    }

    #[test]
    fn engines_share_the_cache_of_a_memory() {
        let mut chip = chip();
        chip.memories[0].cache = Some(Described { latency: Cycles(20), ..described(2) });
        let window = seen(&chip, 4, &[run(9), refer(Access::Read, 0)], 1_000);
        let found = CacheSeen { lookups: 1_000, misses: 1, written: 0 };
        assert_eq!(window.caches, [(CachePlace::Memory(0), found)]);
        // Each engine a quarter: 10 instructions and 20 cycles, and the first time up to 53.
        assert!((7_500..7_600).contains(&window.span.0), "{:?}", window.span);
    }
}
