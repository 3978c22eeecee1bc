//! Which algorithm searches these patterns.

use super::{ALGORITHMS, Algorithm, Bounds, Classifier, Linear, Pattern, TooLarge};

/// A search, and how it came to be chosen.
pub struct Choice {
    /// The search.
    pub classifier: Box<dyn Classifier>,
    /// What it is.
    pub algorithm: &'static Algorithm,
    /// Which were to be it and gave way, in the order of trial.
    pub gave_way: Vec<(&'static Algorithm, TooLarge)>,
}

/// Algorithms to be tried in turn for many patterns.
const ORDER: &[&str] = &["tree", "tuple"];

/// Up to how many patterns the linear scan is as fast as anything: it compares six in the time of one search in a tree, and
/// most packets meet one of the first.
const FEW: usize = 8;

/// Bytes of memory that each pattern is worth, and that a search may take in any case and at most, where nobody says
/// otherwise.
const EACH: usize = 5 << 10;
const ANYWAY: usize = 64 << 20;
const MOST: usize = 1 << 30;

impl Bounds {
    /// What a search of so many patterns may take where nobody says otherwise.
    pub fn of(patterns: usize) -> Bounds {
        Bounds { memory: patterns.saturating_mul(EACH).clamp(ANYWAY, MOST) }
    }
}

/// Builds a search of `patterns`: by the algorithm that is `wanted`, else by the fastest. What cannot keep within
/// `bounds` gives way to the next; the linear scan, the last, needs no more than the patterns themselves.
pub fn choose(wanted: Option<&'static Algorithm>, patterns: &[Pattern], bounds: Bounds) -> Choice {
    let order = ORDER.iter().filter(|_| patterns.len() > FEW).filter_map(|name| Algorithm::named(name));
    let mut gave_way: Vec<(&'static Algorithm, TooLarge)> = Vec::new();
    for algorithm in wanted.into_iter().chain(order) {
        if gave_way.iter().any(|(tried, _)| tried.name == algorithm.name) {
            continue;
        }
        match (algorithm.build)(patterns, bounds) {
            Ok(classifier) => return Choice { classifier, algorithm, gave_way },
            Err(too_large) => gave_way.push((algorithm, too_large)),
        }
    }
    Choice { classifier: Box::new(Linear::new(patterns)), algorithm: &ALGORITHMS[0], gave_way }
}
