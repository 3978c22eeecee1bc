//! Schedule of dumps: the parts of Linux's state that are in doubt, and the time at which each is listed again.
//!
//! A dump that events of its own part overlapped may have missed objects and is repeated, with a growing pause, until events of that part
//! pause. Events of other parts do not count: on a busy gateway neighbours change all the time, and routes that Linux removed without an
//! event do not wait for them.

use std::time::{Duration, Instant};

/// Shortest and longest pause before another dump.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// Time without an event after which a dump is unlikely to be interrupted.
const QUIET: Duration = Duration::from_millis(200);

/// Pause after a failed request to Linux.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

/// Part of the state that is listed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All objects.
    All,
    /// Next-hop objects, routes and multicast routes.
    Routes,
    /// Neighbours.
    Neighbours,
}

/// Set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    bits: u8,
}

impl Parts {
    pub(super) fn has(self, part: Part) -> bool {
        self.bits & 1 << part as u8 != 0
    }

    pub(super) fn insert(&mut self, part: Part) {
        self.bits |= 1 << part as u8;
    }

    pub(super) fn is_empty(self) -> bool {
        self.bits == 0
    }

    fn iter(self) -> impl Iterator<Item = Part> {
        [Part::All, Part::Routes, Part::Neighbours].into_iter().filter(move |part| self.has(*part))
    }
}

impl From<Part> for Parts {
    fn from(part: Part) -> Parts {
        Parts { bits: 1 << part as u8 }
    }
}

/// Times of a part.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    /// Time at which doubt arose; `None` without doubt.
    doubted_at: Option<Instant>,
    /// End of the last dump of this part, or attempt.
    listed_at: Option<Instant>,
    /// Time of the last event of this part.
    last_event: Option<Instant>,
    /// Number of dumps in a row that events of this part overlapped.
    overlaps: u32,
}

/// Times of dumps.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    timings: [Timing; 3],
    /// End of the last dump, or attempt.
    listed_at: Option<Instant>,
    /// Least pause from that time to the next dump.
    pause: Duration,
    /// Parts of the last dump, while events are read that may be older, and the parts of those that came so far.
    overlap: Option<(Parts, Parts)>,
}

impl Schedule {
    /// Returns a schedule by which all parts are listed at once.
    pub(super) fn new(now: Instant) -> Schedule {
        let mut schedule = Schedule {
            timings: [Timing::default(); 3],
            listed_at: None,
            pause: Duration::ZERO,
            overlap: None,
        };
        schedule.doubt(Part::All, now);
        schedule
    }

    /// Notes that a part may be stale.
    pub(super) fn doubt(&mut self, part: Part, now: Instant) {
        self.timings[part as usize].doubted_at.get_or_insert(now);
    }

    /// Returns true if a part is known to be stale.
    pub(super) fn is_doubted(&self, part: Part) -> bool {
        self.timings[part as usize].doubted_at.is_some()
    }

    /// Notes events of these parts.
    pub(super) fn saw(&mut self, parts: Parts, now: Instant) {
        for part in parts.iter() {
            self.timings[part as usize].last_event = Some(now);
            if let Some((_, seen)) = &mut self.overlap {
                seen.insert(part);
            }
        }
    }

    /// Notes that later events are newer than the last dump. Parts that earlier ones overlapped are in doubt again: Linux resumes a dump
    /// by counting entries, so the dump may have missed some.
    pub(super) fn all_read(&mut self, now: Instant) {
        let Some((listed, seen)) = self.overlap.take() else { return };
        for part in listed.iter() {
            let overlaps = if seen.has(part) { self.timings[part as usize].overlaps + 1 } else { 0 };
            self.timings[part as usize].overlaps = overlaps.min(16);
            // What of all objects is missing is missing from its own part; interfaces and addresses are listed whole.
            if seen.has(part) && part != Part::All {
                self.doubt(part, now);
            }
        }
    }

    /// Returns the time of the next dump; `None` without doubt.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pending().iter().filter_map(|part| self.due(part)).min()
    }

    /// Returns the parts to be listed now.
    pub(super) fn ready(&self, now: Instant) -> Parts {
        let mut ready = Parts::default();
        for part in self.pending().iter().filter(|part| self.due(*part).is_some_and(|due| due <= now)) {
            ready.insert(part);
        }
        ready
    }

    /// Notes a dump of these parts.
    pub(super) fn listed(&mut self, parts: Parts, begun: Instant, now: Instant) {
        let mut listed = parts;
        if parts.has(Part::All) {
            listed.insert(Part::Routes);
            listed.insert(Part::Neighbours);
        }
        for part in listed.iter() {
            self.timings[part as usize].doubted_at = None;
            self.timings[part as usize].listed_at = Some(now);
        }
        self.listed_at = Some(now);
        self.pause = now.duration_since(begun) * 4;
        self.overlap = Some((listed, Parts::default()));
    }

    /// Notes a failed dump: a dump that was broken off still occupies its socket, so everything is listed anew.
    pub(super) fn failed(&mut self, now: Instant) {
        self.doubt(Part::All, now);
        self.timings[Part::All as usize].listed_at = Some(now);
        self.listed_at = Some(now);
        self.pause = AFTER_TROUBLE;
    }

    /// Returns the parts in doubt; where all are, the others are listed with them.
    fn pending(&self) -> Parts {
        if self.is_doubted(Part::All) {
            return Part::All.into();
        }
        let mut parts = Parts::default();
        for part in [Part::Routes, Part::Neighbours].into_iter().filter(|part| self.is_doubted(*part)) {
            parts.insert(part);
        }
        parts
    }

    /// Returns the time of the next dump of a part: at once, but for a fifth of the time at most; with a growing pause while dumps
    /// overlap with events of the part, until these pause.
    fn due(&self, part: Part) -> Option<Instant> {
        let timing = &self.timings[part as usize];
        let doubted_at = timing.doubted_at?;
        let Some(listed_at) = self.listed_at else { return Some(doubted_at) };
        let soonest = (doubted_at + PAUSES.0).max(listed_at + self.pause);
        let busy = (self.pause.max(PAUSES.0) * (1 << timing.overlaps)).min(PAUSES.1);
        let patient = soonest.max(timing.listed_at.unwrap_or(listed_at) + busy);
        Some(timing.last_event.map_or(soonest, |last| patient.min(soonest.max(last + QUIET))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Part, Parts, Schedule};

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A schedule whose first dump of everything took `took` milliseconds, and its end.
    fn listed(took: u32) -> (Schedule, Instant) {
        let begun = Instant::now();
        let mut schedule = Schedule::new(begun);
        assert_eq!(schedule.ready(begun), Part::All.into());
        let end = begun + took * MILLISECOND;
        schedule.listed(Part::All.into(), begun, end);
        schedule.all_read(end);
        assert_eq!(schedule.next(), None);
        (schedule, end)
    }

    /// Time of the next dump where events of `part` come every 10 ms.
    fn under_events(schedule: &mut Schedule, part: Part, mut now: Instant) -> Instant {
        while schedule.next().unwrap() > now {
            schedule.saw(part.into(), now);
            now += 10 * MILLISECOND;
        }
        now
    }

    #[test]
    fn routes_in_doubt_do_not_wait_for_neighbours_that_change_all_the_time() {
        let (mut schedule, mut now) = listed(5);
        // Each dump of neighbours is overlapped, so that the pause before the next one grows.
        for _ in 0..12 {
            schedule.doubt(Part::Neighbours, now);
            now = under_events(&mut schedule, Part::Neighbours, now);
            schedule.listed(Part::Neighbours.into(), now, now + MILLISECOND);
            now += MILLISECOND;
            schedule.saw(Part::Neighbours.into(), now);
            schedule.all_read(now);
            assert!(schedule.is_doubted(Part::Neighbours));
        }
        let later = under_events(&mut schedule.clone(), Part::Neighbours, now);
        assert!(later > now + Duration::from_secs(5), "{:?}", later - now);
        schedule.doubt(Part::Routes, now);
        let next = schedule.next().unwrap();
        assert!(next <= now + 60 * MILLISECOND, "{:?}", next - now);
        assert_eq!(schedule.ready(next), Part::Routes.into());
        // The dump of routes says nothing of neighbours, and their events say nothing of it.
        schedule.listed(Part::Routes.into(), next, next + MILLISECOND);
        schedule.saw(Part::Neighbours.into(), next + MILLISECOND);
        schedule.all_read(next + MILLISECOND);
        assert!(!schedule.is_doubted(Part::Routes));
        assert!(schedule.is_doubted(Part::Neighbours));
    }

    #[test]
    fn a_dump_that_events_of_its_part_overlapped_is_repeated_later_and_later_until_they_pause() {
        let (mut schedule, mut now) = listed(5);
        schedule.doubt(Part::Routes, now);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let next = under_events(&mut schedule, Part::Routes, now);
            pauses.push(next - now);
            now = next;
            schedule.listed(Part::Routes.into(), now, now + MILLISECOND);
            now += MILLISECOND;
            schedule.saw(Part::Routes.into(), now);
            schedule.all_read(now);
        }
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
        assert!(pauses[9] >= Duration::from_secs(5) && pauses[9] <= Duration::from_secs(11), "{pauses:?}");
        // No event any more.
        assert!(schedule.next().unwrap() <= now + 200 * MILLISECOND);
    }

    #[test]
    fn dumps_take_a_fifth_of_the_time_at_most() {
        let (mut schedule, end) = listed(1_000);
        schedule.doubt(Part::Routes, end);
        assert_eq!(schedule.next(), Some(end + Duration::from_secs(4)));
        schedule.doubt(Part::Neighbours, end);
        assert_eq!(schedule.next(), Some(end + Duration::from_secs(4)));
        let mut both = Parts::from(Part::Routes);
        both.insert(Part::Neighbours);
        assert_eq!(schedule.ready(end + Duration::from_secs(4)), both);
    }

    #[test]
    fn everything_is_listed_anew_after_an_overrun_or_a_failure() {
        let (mut schedule, end) = listed(5);
        schedule.doubt(Part::Neighbours, end);
        schedule.doubt(Part::All, end);
        let next = schedule.next().unwrap();
        assert_eq!(schedule.ready(next), Part::All.into());
        schedule.failed(next);
        assert_eq!(schedule.next(), Some(next + Duration::from_secs(1)));
        schedule.listed(Part::All.into(), next, next);
        assert_eq!(schedule.next(), None);
    }
}
