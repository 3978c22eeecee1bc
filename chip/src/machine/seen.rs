//! Counts and times of a machine at work, and the window of time that a report covers.

use hdrhistogram::Histogram;

use super::Machine;
use super::cache::{CachePlace, CacheSeen};
use super::memory::{Seen, SharedMemory};
use crate::kernel::Ticks;
use crate::load::{Arrival, Length};

/// Counts since the beginning of a run.
#[derive(Clone, Debug)]
pub(super) struct Tallies {
    pub(super) engines: Vec<EngineSeen>,
    pub(super) rings: Vec<RingSeen>,
    pub(super) units: Vec<Ticks>,
    pub(super) buses: Vec<Ticks>,
    pub(super) lines: Vec<Ticks>,
    pub(super) offered: Count,
    pub(super) delivered: Count,
    pub(super) further: u64,
    pub(super) ended: Count,
    pub(super) lost: u64,
    pub(super) lost_by_port: Vec<u64>,
    /// Frames of which a MAC held more than it has room for.
    pub(super) overruns: u64,
    /// Frames that left after a later one of their flow.
    pub(super) reordered: u64,
    pub(super) latency: Histogram<u64>,
    pub(super) under_way: usize,
    pub(super) expected: Arrival,
    pub(super) is_closed: bool,
    pub(super) all_arrived: bool,
    pub(super) warm: u64,
    /// End of the run, where timers go on behind it.
    pub(super) until: Option<Ticks>,
    begin: Option<Box<Shot>>,
    end: Option<Box<Shot>>,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// Time of an engine by use; the rest is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineSeen {
    pub(crate) instructions: u64,
    pub(crate) executing: Ticks,
    pub(crate) aborted: Ticks,
    pub(crate) stalled: Ticks,
    /// Looks of idle threads that poll; their instructions are not among those counted.
    pub(crate) polling: Ticks,
}

/// Counts of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingSeen {
    pub(crate) puts: u64,
    /// Entries taken after each put, summed.
    pub(crate) filled: u64,
    pub(crate) most: u64,
    /// Number of times that a put blocked.
    pub(crate) blocked: u64,
}

/// Snapshot of the counts at one moment.
#[derive(Clone, Debug)]
struct Shot {
    at: Ticks,
    engines: Vec<EngineSeen>,
    rings: Vec<RingSeen>,
    units: Vec<Ticks>,
    buses: Vec<Ticks>,
    lines: Vec<Ticks>,
    offered: Count,
    delivered: Count,
    further: u64,
    ended: Count,
    lost: u64,
    lost_by_port: Vec<u64>,
    overruns: u64,
    reordered: u64,
    memories: Vec<Seen>,
    caches: Vec<(CachePlace, CacheSeen)>,
}

/// Counts between two moments.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) span: Ticks,
    pub(crate) engines: Vec<EngineSeen>,
    pub(crate) rings: Vec<RingSeen>,
    pub(crate) units: Vec<Ticks>,
    pub(crate) buses: Vec<Ticks>,
    pub(crate) lines: Vec<Ticks>,
    pub(crate) offered: Count,
    pub(crate) delivered: Count,
    /// Frames among those delivered that left along with another one: fragments, and packets that the gateway sends itself.
    pub(crate) further: u64,
    pub(crate) ended: Count,
    pub(crate) lost: u64,
    pub(crate) lost_by_port: Vec<u64>,
    pub(crate) overruns: u64,
    pub(crate) reordered: u64,
    pub(crate) memories: Vec<Seen>,
    /// Caches of engines, and then of memories.
    pub(crate) caches: Vec<(CachePlace, CacheSeen)>,
    /// Latency of frames that left, in ticks.
    pub(crate) latency: Histogram<u64>,
    /// Instructions of the whole run.
    pub(crate) instructions: u64,
}

impl Default for Tallies {
    fn default() -> Tallies {
        Tallies {
            engines: Vec::new(),
            rings: Vec::new(),
            units: Vec::new(),
            buses: Vec::new(),
            lines: Vec::new(),
            offered: Count::default(),
            delivered: Count::default(),
            further: 0,
            ended: Count::default(),
            lost: 0,
            lost_by_port: Vec::new(),
            overruns: 0,
            reordered: 0,
            latency: histogram(),
            under_way: 0,
            expected: Arrival { at: Ticks::ZERO, port: 0, length: Length::of(0) },
            is_closed: false,
            all_arrived: false,
            warm: 0,
            until: None,
            begin: None,
            end: None,
        }
    }
}

impl Count {
    fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }

    fn since(self, earlier: Count) -> Count {
        Count { frames: self.frames - earlier.frames, bytes: self.bytes - earlier.bytes }
    }
}

impl Tallies {
    pub(super) fn make_room(
        &mut self,
        engines: usize,
        rings: usize,
        units: usize,
        buses: usize,
        lines: usize,
    ) {
        self.engines = vec![EngineSeen::default(); engines];
        self.rings = vec![RingSeen::default(); rings];
        self.units = vec![Ticks::ZERO; units];
        self.buses = vec![Ticks::ZERO; buses];
        self.lines = vec![Ticks::ZERO; lines];
        self.lost_by_port = vec![0; lines];
    }

    pub(super) fn offer(&mut self, bytes: u32) {
        self.offered.add(bytes);
    }

    pub(super) fn lose(&mut self, line: usize) {
        self.lost += 1;
        self.lost_by_port[line] += 1;
    }

    pub(super) fn line(&mut self, line: usize, span: Ticks) {
        self.lines[line] += span;
    }

    /// A frame has left, that long after it came in.
    pub(super) fn depart(&mut self, bytes: u32, latency: Ticks) {
        self.delivered.add(bytes);
        if self.begin.is_some() && self.end.is_none() {
            // It grows, so that every value has its place.
            let _ = self.latency.record(latency.0);
        }
    }

    /// A frame has ended within.
    pub(super) fn end(&mut self, bytes: u32, latency: Ticks) {
        self.ended.add(bytes);
        if self.is_closed && self.begin.is_some() && self.end.is_none() {
            // It grows, so that every value has its place.
            let _ = self.latency.record(latency.0);
        }
    }
}

impl Machine<'_> {
    /// Opens the window, when enough has arrived.
    pub(super) fn open(&mut self) {
        if self.seen.begin.is_none() && self.seen.offered.frames >= self.seen.warm {
            self.seen.begin = Some(Box::new(self.shot()));
        }
    }

    /// Closes the window: there is nothing more to come. Without a beginning to leave out, the end is not left out
    /// either.
    pub(super) fn seal(&mut self) {
        if self.seen.warm > 0 && self.seen.begin.is_some() {
            self.seen.end = Some(Box::new(self.shot()));
        }
    }

    /// Time up to which the run has come: with timers, that at which all frames were done.
    pub(super) fn reached(&self) -> Ticks {
        self.seen.until.unwrap_or_else(|| self.now())
    }

    fn shot(&self) -> Shot {
        let seen = &self.seen;
        let at = self.reached();
        let looked = |(place, of): (usize, &EngineSeen)| EngineSeen {
            polling: of.polling + self.looked(place, at),
            ..*of
        };
        Shot {
            at,
            engines: seen.engines.iter().enumerate().map(looked).collect(),
            rings: seen.rings.clone(),
            units: seen.units.clone(),
            buses: seen.buses.clone(),
            lines: seen.lines.clone(),
            offered: seen.offered,
            delivered: seen.delivered,
            further: seen.further,
            ended: seen.ended,
            lost: seen.lost,
            lost_by_port: seen.lost_by_port.clone(),
            overruns: seen.overruns,
            reordered: seen.reordered,
            memories: self.memories.iter().map(SharedMemory::seen).collect(),
            caches: self.caches().collect(),
        }
    }

    fn caches(&self) -> impl Iterator<Item = (CachePlace, CacheSeen)> {
        let engines = self.engines.iter().enumerate();
        let engines =
            engines.filter_map(|(place, of)| Some((CachePlace::Engine(place), of.cache.as_ref()?.seen)));
        let memories = self.memories.iter().enumerate();
        engines.chain(memories.filter_map(|(place, of)| Some((CachePlace::Memory(place), of.cache_seen()?))))
    }

    /// Returns the counts of the window.
    pub(super) fn window(&mut self) -> Window {
        let last = Box::new(self.shot());
        let end = self.seen.end.take().unwrap_or(last);
        let begin = self.seen.begin.take().unwrap_or_else(|| {
            let mut begin = Shot::clone(&end);
            // Where no more frames came than are to be left out, nothing is left to count.
            if self.seen.warm == 0 {
                begin.clear();
            }
            Box::new(begin)
        });
        let difference = |later: &[Ticks], earlier: &[Ticks]| -> Vec<Ticks> {
            later.iter().zip(earlier).map(|(later, earlier)| later.since(*earlier)).collect()
        };
        Window {
            span: end.at.since(begin.at),
            engines: end.engines.iter().zip(&begin.engines).map(|(end, begin)| end.since(begin)).collect(),
            rings: end.rings.iter().zip(&begin.rings).map(|(end, begin)| end.since(begin)).collect(),
            units: difference(&end.units, &begin.units),
            buses: difference(&end.buses, &begin.buses),
            lines: difference(&end.lines, &begin.lines),
            offered: end.offered.since(begin.offered),
            delivered: end.delivered.since(begin.delivered),
            further: end.further - begin.further,
            ended: end.ended.since(begin.ended),
            lost: end.lost - begin.lost,
            lost_by_port: end
                .lost_by_port
                .iter()
                .zip(&begin.lost_by_port)
                .map(|(end, begin)| end - begin)
                .collect(),
            overruns: end.overruns - begin.overruns,
            reordered: end.reordered - begin.reordered,
            memories: end.memories.iter().zip(&begin.memories).map(|(end, begin)| end.since(begin)).collect(),
            caches: (end.caches.iter().zip(&begin.caches))
                .map(|((place, end), (_, begin))| (*place, end.since(begin)))
                .collect(),
            latency: std::mem::replace(&mut self.seen.latency, histogram()),
            instructions: self.seen.engines.iter().map(|engine| engine.instructions).sum(),
        }
    }
}

/// A histogram of three significant digits. It grows to the largest value that comes: to less than a megabyte, whatever
/// that is.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are within what there can be"))
}

impl EngineSeen {
    fn since(self, earlier: &EngineSeen) -> EngineSeen {
        EngineSeen {
            instructions: self.instructions - earlier.instructions,
            executing: self.executing.since(earlier.executing),
            aborted: self.aborted.since(earlier.aborted),
            stalled: self.stalled.since(earlier.stalled),
            polling: self.polling.since(earlier.polling),
        }
    }
}

impl RingSeen {
    fn since(self, earlier: &RingSeen) -> RingSeen {
        RingSeen {
            puts: self.puts - earlier.puts,
            filled: self.filled - earlier.filled,
            most: self.most,
            blocked: self.blocked - earlier.blocked,
        }
    }
}

impl Shot {
    /// Resets all counts to the beginning of time.
    fn clear(&mut self) {
        self.at = Ticks::ZERO;
        self.engines.fill(EngineSeen::default());
        self.rings.fill(RingSeen::default());
        for times in [&mut self.units, &mut self.buses, &mut self.lines] {
            times.fill(Ticks::ZERO);
        }
        (self.offered, self.delivered, self.ended, self.lost) = Default::default();
        self.lost_by_port.fill(0);
        (self.further, self.overruns, self.reordered) = (0, 0, 0);
        self.caches.iter_mut().for_each(|(_, seen)| *seen = CacheSeen::default());
        self.memories.iter_mut().for_each(|memory| *memory = Seen::of(memory.busy.len()));
    }
}
