//! How many headers a second each search finds the rule of, side by side, in one run.
//!
//! All are built from the same rules, held to the linear scan, and then measured by turns on the same headers, 64 at a
//! time, as the pipeline hands them over: whatever else the machine does in a round meets all of them. What
//! a measurement is worth depends on the headers; they come from a file or from the seed, and repeat.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lookup::classify::{Algorithm, Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};
use tally::{Count, Region};

pub(crate) mod peer;
pub(crate) mod subject;
pub(crate) mod update;

/// What is measured, and how.
pub(crate) struct Plan<'a> {
    /// The rules.
    pub(crate) patterns: &'a [Pattern],
    /// What is looked up.
    pub(crate) headers: &'a [Header],
    /// The memory each may take.
    pub(crate) bounds: Bounds,
    /// How long each is measured, all rounds together.
    pub(crate) time: Duration,
}

/// An algorithm, built, or why not.
pub(crate) struct Contender {
    /// Which.
    pub(crate) algorithm: &'static Algorithm,
    /// The search, or what it would have taken.
    pub(crate) search: Result<Box<dyn Classifier>, TooLarge>,
    /// How long it took to build, or to give up.
    pub(crate) build: Duration,
    /// Millions of look-ups a second, one of each round.
    pub(crate) rounds: Vec<f64>,
    /// Where in the trace the next round begins.
    at: usize,
}

/// What all answers on a trace come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Headers that some rule matches.
    pub(crate) matches: u64,
    /// FNV-1a over the positions, by 32 bits.
    pub(crate) checksum: u64,
}

/// What a look-up costs at worst.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    /// Nanoseconds a look-up in the slowest batch of the trace, the best of [`PASSES`].
    pub(crate) nanos: f64,
    /// The most instructions that a header tallies.
    pub(crate) instructions: u64,
    /// The most references to memory likewise.
    pub(crate) references: u64,
}

/// Two searches answer differently: a fault of this program.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) struct Disagreement {
    /// The search.
    pub(crate) name: String,
    /// Where in the trace, from 1; `None` where only the checksums tell.
    pub(crate) header: Option<usize>,
    /// What it finds.
    pub(crate) found: Option<Position>,
    /// What it should.
    pub(crate) wanted: Option<Position>,
}

/// Headers handed over at once.
const BATCH: usize = 64;

/// Rounds, of which the median counts.
pub(crate) const ROUNDS: u32 = 5;

/// How often each batch is measured for the worst.
const PASSES: usize = 3;

/// Comparisons of a header with a pattern that the scan is given to be what all are held to.
const SCANNED: usize = 20_000_000;

/// Headers that are tallied for the worst.
const TALLIED: usize = 4_096;

/// How long the slowest batch is looked for.
const WORST_TIME: Duration = Duration::from_millis(100);

impl Contender {
    /// Builds it.
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

    /// Holds it to the scan's answers, and to what those of others come to on all of the trace, which it tells where nobody
    /// has. A search too slow for all of the trace answers what has been scanned.
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

    /// What a look-up costs at worst.
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

/// How long a search may take to answer the whole trace when it is checked.
const CHECK_TIME: Duration = Duration::from_millis(300);

/// What the patterns, one after the other, say of the trace: of all of it, or of headers all over it where that would be
/// too many comparisons.
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
    /// Of these positions.
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
