//! Choice of the algorithm for a list of patterns.

use std::sync::Arc;

use super::update::revised;
use super::{ALGORITHMS, Algorithm, Bounds, Classifier, Linear, Pattern, TooLarge};

/// A classifier, with the record of its selection.
pub struct Choice {
    /// The classifier.
    pub classifier: Box<dyn Classifier>,
    /// Its algorithm.
    pub algorithm: &'static Algorithm,
    /// Algorithms that did not fit the bounds, in the order of trial, each with its error.
    pub gave_way: Vec<(&'static Algorithm, TooLarge)>,
    /// How it was made.
    pub made: Made,
    /// Request that it answers.
    pub task: Task,
}

/// How a classifier was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Of all patterns.
    Built,
    /// From the one before it, by taking patterns in and out.
    Revised,
}

/// Request for a classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The patterns, in order.
    pub patterns: Vec<Pattern>,
    /// Algorithm required; `None` for the fastest.
    pub wanted: Option<&'static Algorithm>,
    /// Limits on its resources.
    pub bounds: Bounds,
}

/// Algorithms to be tried in turn for many patterns.
const ORDER: &[&str] = &["tree", "tuple"];

/// Number of patterns up to which the linear scan is as fast as anything: it compares six in the time of one search in a
/// tree, and most packets meet one of the first.
const FEW: usize = 8;

/// Bytes of memory that each pattern is worth, and that a search may take in any case and at most, where nobody says
/// otherwise.
const EACH: usize = 5 << 10;
const ANYWAY: usize = 64 << 20;
const MOST: usize = 1 << 30;

impl Bounds {
    /// Returns the default limits for a number of patterns.
    pub fn of(patterns: usize) -> Bounds {
        Bounds { memory: patterns.saturating_mul(EACH).clamp(ANYWAY, MOST) }
    }
}

impl Choice {
    /// Builds a search: by the algorithm that is wanted, else by the fastest. What cannot keep within the bounds gives way
    /// to the next; the linear scan, the last, needs no more than the patterns themselves.
    pub fn new(task: Task) -> Choice {
        let Task { patterns, bounds, .. } = &task;
        let mut gave_way: Vec<(&'static Algorithm, TooLarge)> = Vec::new();
        for algorithm in task.order() {
            if gave_way.iter().any(|(tried, _)| *tried == algorithm) {
                continue;
            }
            match (algorithm.build)(patterns, *bounds) {
                Ok(classifier) => return Choice { classifier, algorithm, gave_way, made: Made::Built, task },
                Err(too_large) => gave_way.push((algorithm, too_large)),
            }
        }
        let classifier = Box::new(Linear::new(patterns));
        Choice { classifier, algorithm: &ALGORITHMS[0], gave_way, made: Made::Built, task }
    }

    /// The search that takes the place of `before`: the same one, if nothing else is asked of it; made from it, where few
    /// patterns come or go and the algorithm can do so; else a new one.
    pub fn after(before: &Arc<Choice>, task: Task) -> Arc<Choice> {
        if before.task == task {
            return before.clone();
        }
        let algorithm = before.algorithm;
        let revised = (task.first_tried() == Some(algorithm))
            .then(|| revised(&*before.classifier, &before.task.patterns, &task.patterns, task.bounds))
            .flatten();
        Arc::new(match revised {
            Some(classifier) => {
                Choice { classifier, algorithm, gave_way: Vec::new(), made: Made::Revised, task }
            }
            None => Choice::new(task),
        })
    }
}

impl Task {
    /// Algorithms in the order of trial.
    fn order(&self) -> impl Iterator<Item = &'static Algorithm> + use<> {
        let order = if self.patterns.len() > FEW { ORDER } else { &[] };
        self.wanted.into_iter().chain(order.iter().filter_map(|name| Algorithm::named(name)))
    }

    /// The algorithm that is tried first; `None` where it is the scan at once.
    fn first_tried(&self) -> Option<&'static Algorithm> {
        self.order().next()
    }
}
