//! Look-ups per second of each classifier, side by side, in one run.
//!
//! All are built from the same rules, held to the linear scan, and then measured by turns on the same headers, 64 at a
//! time, as the pipeline hands them over: other load on the machine in a round affects all of them. The worth of a
//! measurement depends on the headers; they come from a file or from the seed, and repeat.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lookup::classify::{Algorithm, Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};
use tally::{Count, Region};

pub(crate) mod peer;
pub(crate) mod subject;
pub(crate) mod trace;
pub(crate) mod update;

/// Parameters of a measurement.
pub(crate) struct Plan<'a> {
    /// The rules.
    pub(crate) patterns: &'a [Pattern],
    /// Headers to look up.
    pub(crate) headers: &'a [Header],
    /// Memory limit of each classifier.
    pub(crate) bounds: Bounds,
    /// Duration of the measurement of each classifier, all rounds together.
    pub(crate) time: Duration,
}

/// An algorithm with its classifier, or the reason that there is none.
pub(crate) struct Contender {
    /// The algorithm.
    pub(crate) algorithm: &'static Algorithm,
    /// The classifier, or the error with the memory that it needs.
    pub(crate) search: Result<Box<dyn Classifier>, TooLarge>,
    /// Duration of building, or of the attempt.
    pub(crate) build: Duration,
    /// Millions of look-ups a second, one of each round.
    pub(crate) rounds: Vec<f64>,
    /// Place in the trace of the next round's first header, from 0.
    at: usize,
}

/// Summary of all answers on a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Headers that some rule matches.
    pub(crate) matches: u64,
    /// FNV-1a over the positions, by 32 bits.
    pub(crate) checksum: u64,
}

/// Worst-case cost of a look-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    /// Nanoseconds a look-up in the slowest batch of the trace, the best of [`PASSES`].
    pub(crate) nanos: f64,
    /// The most instructions tallied for one header.
    pub(crate) instructions: u64,
    /// The most memory references tallied for one header.
    pub(crate) references: u64,
}

/// Two searches answer differently: a fault of this program.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) struct Disagreement {
    /// Name of the classifier.
    pub(crate) name: String,
    /// Number of the header in the trace, from 1; `None` where only the checksums tell.
    pub(crate) header: Option<usize>,
    /// Position found.
    pub(crate) found: Option<Position>,
    /// Position expected.
    pub(crate) wanted: Option<Position>,
}

/// Headers handed over at once.
const BATCH: usize = 64;

/// Rounds, of which the median counts.
pub(crate) const ROUNDS: u32 = 5;

/// Number of measurements of each batch for the worst case.
const PASSES: usize = 3;

/// Limit on the comparisons of a header with a pattern in the scan that all are held to.
const SCANNED: usize = 20_000_000;

/// Headers that are tallied for the worst.
const TALLIED: usize = 4_096;

/// Duration of the search for the slowest batch.
const WORST_TIME: Duration = Duration::from_millis(100);

impl Contender {
    /// Builds the classifier of an algorithm.
    pub(crate) fn new(algorithm: &'static Algorithm, plan: &Plan<'_>) -> Contender {
        let begin = Instant::now();
        let search = (algorithm.build)(plan.patterns, plan.bounds);
        Contender { algorithm, search, build: begin.elapsed(), rounds: Vec::new(), at: 0 }
    }

    /// Measures a round.
    pub(crate) fn round(&mut self, plan: &Plan<'_>) {
        let Ok(search) = &self.search else { return };
        let mut positions = [0; BATCH];
        let time = plan.time / ROUNDS;
        let (mut done, mut group) = (0, 1);
        let begin = Instant::now();
        loop {
            for _ in 0..group {
                let end = (self.at + BATCH).min(plan.headers.len());
                let batch = &plan.headers[self.at..end];
                search.classify_bulk(black_box(batch), &mut positions[..batch.len()]);
                black_box(&positions);
                done += batch.len();
                self.at = if end == plan.headers.len() { 0 } else { end };
            }
            let spent = begin.elapsed();
            if spent >= time {
                self.rounds.push(done as f64 / spent.as_secs_f64() / 1e6);
                return;
            }
            // The clock is looked at about every tenth of a millisecond: often enough for the slow, too seldom to
            // slow down the fast.
            group = if spent < Duration::from_micros(100) { group * 2 } else { group };
        }
    }

    /// Millions of look-ups a second: the median of the rounds.
    pub(crate) fn rate(&self) -> Option<f64> {
        median(&self.rounds)
    }

    /// Checks the classifier against the scan's answers, and against `answers` of the others on the whole trace, which
    /// it sets where nobody has. A classifier too slow for the whole trace answers the scanned headers.
    pub(crate) fn check(
        &self,
        plan: &Plan<'_>,
        scanned: &[Scanned],
        answers: &mut Option<Answers>,
    ) -> Result<(), Disagreement> {
        let Ok(search) = &self.search else { return Ok(()) };
        let name = self.algorithm.name;
        let begin = Instant::now();
        for (place, wanted) in scanned {
            let found = search.classify(&plan.headers[*place]);
            if found != *wanted {
                return Err(Disagreement {
                    name: name.to_owned(),
                    header: Some(place + 1),
                    found,
                    wanted: *wanted,
                });
            }
        }
        let each = begin.elapsed() / scanned.len().max(1) as u32;
        if each * plan.headers.len() as u32 > CHECK_TIME {
            return Ok(());
        }
        let mut positions = vec![0; plan.headers.len()];
        search.classify_bulk(plan.headers, &mut positions);
        for (place, wanted) in scanned {
            let found = Some(positions[*place]).filter(|position| *position != NO_MATCH);
            if found != *wanted {
                let header = Some(place + 1);
                return Err(Disagreement { name: name.to_owned(), header, found, wanted: *wanted });
            }
        }
        let own = Answers::of(&positions);
        if *answers.get_or_insert(own) == own {
            Ok(())
        } else {
            Err(Disagreement { name: name.to_owned(), header: None, found: None, wanted: None })
        }
    }

    /// Measures the worst-case cost of a look-up.
    pub(crate) fn worst(&self, plan: &Plan<'_>) -> Option<Worst> {
        let Ok(search) = &self.search else { return None };
        let mut worst = Worst::default();
        let mut positions = [0; BATCH];
        let begin = Instant::now();
        for batch in plan.headers.chunks(BATCH) {
            let pass = |_| {
                let begin = Instant::now();
                search.classify_bulk(black_box(batch), &mut positions[..batch.len()]);
                black_box(&positions);
                begin.elapsed().as_nanos() as f64 / batch.len() as f64
            };
            worst.nanos = worst.nanos.max((0..PASSES).map(pass).fold(f64::INFINITY, f64::min));
            if begin.elapsed() > WORST_TIME {
                break;
            }
        }
        let begin = Instant::now();
        for header in plan.headers.iter().step_by(plan.headers.len().div_ceil(TALLIED)) {
            let mut count = Count::default();
            search.classify_tallied(header, &mut count);
            let references = count.references(Region::RuleTable);
            worst.instructions = worst.instructions.max(count.executed_total());
            worst.references = worst.references.max(references.reads + references.writes);
            if begin.elapsed() > WORST_TIME {
                break;
            }
        }
        Some(worst)
    }
}

/// A header's place in the trace, and the position that the scan finds for it.
pub(crate) type Scanned = (usize, Option<Position>);

/// Limit on the duration of checking a classifier's answers to the whole trace.
const CHECK_TIME: Duration = Duration::from_millis(300);

/// Scans the patterns one after the other: for the whole trace, or for headers all over it where the whole would be too
/// many comparisons.
pub(crate) fn scan(plan: &Plan<'_>) -> Vec<Scanned> {
    let affordable = (SCANNED / plan.patterns.len().max(1)).max(64);
    let step = plan.headers.len().div_ceil(affordable).max(1);
    let of = |header: &Header| plan.patterns.iter().position(|pattern| pattern.matches(header));
    let places = (0..plan.headers.len()).step_by(step);
    places.map(|place| (place, of(&plan.headers[place]).map(|at| at as Position))).collect()
}

/// The middle one; `None` of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Answers {
    /// Summarises positions.
    pub(crate) fn of(positions: &[Position]) -> Answers {
        let matches = positions.iter().filter(|position| **position != NO_MATCH).count() as u64;
        let step =
            |hash: u64, position: &Position| (hash ^ u64::from(*position)).wrapping_mul(0x100_0000_01b3);
        Answers { matches, checksum: positions.iter().fold(0xcbf2_9ce4_8422_2325, step) }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = |position: Option<Position>| match position {
            Some(position) => format!("rule {}", u64::from(position) + 1),
            None => "no rule".to_owned(),
        };
        match self.header {
            Some(header) => write!(
                f,
                "{} finds {} for header {header} of the trace, and the linear scan {}",
                self.name,
                rule(self.found),
                rule(self.wanted)
            ),
            None => write!(f, "{} finds other rules in the trace than the others do", self.name),
        }
    }
}
