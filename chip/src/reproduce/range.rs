//! Ranges of predictions over the parameters that are assumed, and the assumptions that move predictions most.
//!
//! Each assumption is set to both ends of its spread, the others left alone (one at a time); and all are set at once, to samples of a Latin
//! hypercube (McKay, Beckman and Conover, 1979), of a fixed seed. Runs are shorter than those of predictions: what counts is how a short run
//! differs from the short run of the shipped chip.

use std::sync::Arc;

use rayon::prelude::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use wire::random::Random;

use super::assumption::Assumption;
use super::crypto::Recorded;
use super::{Claim, Model, Outcome, ReproduceError, RunLength, Setting, Value};

/// Samples of the hypercube.
const SAMPLES: usize = 12;

/// Seed of the samples.
const SEED: u64 = 2006;

/// Part of the frames of a prediction's run.
const LENGTH: RunLength = RunLength::OneIn(30);

/// Weight of an assumption: the prediction that it moves most.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The assumption.
    pub assumption: Assumption,
    /// Identifier of the claim that it moves most.
    pub id: &'static str,
    /// Its statement.
    pub statement: String,
    /// Relative changes of that prediction, with the assumption at its lower and at its upper end.
    pub changes: [f64; 2],
}

impl Weight {
    /// The larger change, without its sign.
    pub fn size(&self) -> f64 {
        size(&self.changes)
    }
}

/// The larger of the changes at both ends, without its sign.
fn size(changes: &[f64; 2]) -> f64 {
    changes[0].abs().max(changes[1].abs())
}

/// Runs to the ranges of predictions.
pub struct Plan {
    /// The shipped chips, for short.
    short: Variant,
    /// The samples, whose runs are the longest, then each assumption at its lower end and at its upper one.
    variants: Vec<Variant>,
    assumptions: Vec<Assumption>,
    recorded: Arc<Recorded>,
}

/// Chips with other values, and the claims that rest on them.
struct Variant {
    settings: Vec<Setting>,
    claims: Vec<Claim>,
}

impl Plan {
    /// Plans the ranges of the numbers that claims have predicted on the model.
    pub fn new(model: &Model, claims: &[Claim], outcomes: &[Outcome]) -> Plan {
        let is_number = |outcome: &Outcome| matches!(outcome.predicted, Value::Number(_));
        let claims: Vec<Claim> = claims
            .iter()
            .filter(|claim| !claim.chips.is_empty())
            .filter(|claim| outcomes.iter().any(|outcome| outcome.id == claim.id && is_number(outcome)))
            .copied()
            .collect();
        let mut chips: Vec<&'static str> = claims.iter().flat_map(|claim| claim.chips).copied().collect();
        chips.sort_unstable();
        chips.dedup();
        let assumptions: Vec<Assumption> = chips.into_iter().flat_map(Assumption::of).collect();
        let resting_on = |chip: &str| -> Vec<Claim> {
            claims.iter().filter(|claim| claim.chips.contains(&chip)).copied().collect()
        };
        let shares = hypercube(assumptions.len());
        let mut variants: Vec<Variant> = shares
            .into_iter()
            .map(|shares| Variant {
                settings: assumptions
                    .iter()
                    .zip(shares)
                    .map(|(assumption, share)| assumption.at(share))
                    .collect(),
                claims: claims.clone(),
            })
            .collect();
        for assumption in &assumptions {
            for end in [0.0, 1.0] {
                variants.push(Variant {
                    settings: vec![assumption.at(end)],
                    claims: resting_on(assumption.chip),
                });
            }
        }
        Plan {
            short: Variant { settings: Vec::new(), claims },
            variants,
            assumptions,
            recorded: model.recorded(),
        }
    }

    /// Number of runs, which is the number of calls of `done` in [`Plan::run`].
    pub fn runs(&self) -> usize {
        self.variants.len() + 1
    }

    /// Measures on all cores, and gives each predicted number its range. Returns the assumptions, the one that moves a prediction most
    /// first; those that move none are left out.
    ///
    /// # Errors
    /// A run of the shipped chips fails. A variant that cannot run, as its tables fit no memory, moves no range.
    pub fn run(
        &self,
        outcomes: &mut [Outcome],
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<Weight>, ReproduceError> {
        let short = self.short.run(&self.recorded)?;
        done();
        let run = |variant: &Variant| {
            let found = variant.run(&self.recorded);
            done();
            found.ok()
        };
        let found: Vec<Option<Vec<Outcome>>> = self.variants.par_iter().with_max_len(1).map(run).collect();
        let mut changes: Vec<Vec<(usize, f64)>> = Vec::new();
        for found in &found {
            changes
                .push(found.iter().flatten().filter_map(|other| changed(other, &short, outcomes)).collect());
        }
        outcomes.iter_mut().for_each(|outcome| outcome.widen(0.0));
        for (place, change) in changes.iter().flatten() {
            outcomes[*place].widen(*change);
        }
        let mut weights: Vec<Weight> = Vec::new();
        for (assumption, ends) in self.assumptions.iter().zip(changes[SAMPLES..].chunks(2)) {
            let of = |end: usize, place: usize| {
                let found = ends.get(end).into_iter().flatten().find(|(other, _)| *other == place);
                found.map_or(0.0, |(_, change)| *change)
            };
            let moved = (0..outcomes.len())
                .filter(|place| outcomes[*place].blind)
                .map(|place| (place, [of(0, place), of(1, place)]));
            let most = moved.max_by(|one, other| size(&one.1).total_cmp(&size(&other.1)));
            if let Some((place, changes)) = most.filter(|(_, changes)| size(changes) >= LEAST) {
                let Outcome { id, statement, .. } = &outcomes[place];
                let (assumption, statement) = (assumption.clone(), statement.clone());
                weights.push(Weight { assumption, id, statement, changes });
            }
        }
        weights.sort_by(|one, other| other.size().total_cmp(&one.size()));
        Ok(weights)
    }
}

impl Variant {
    fn run(&self, recorded: &Arc<Recorded>) -> Result<Vec<Outcome>, ReproduceError> {
        let model = Model::new(self.settings.clone(), LENGTH, Arc::clone(recorded));
        let outcomes = self.claims.par_iter().map(|claim| (claim.test)(&model));
        Ok(outcomes.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// Place of a prediction among `outcomes`, and its relative change from the short run of the shipped chip.
fn changed(other: &Outcome, short: &[Outcome], outcomes: &[Outcome]) -> Option<(usize, f64)> {
    let is_it = |outcome: &Outcome| (outcome.id, &outcome.statement) == (other.id, &other.statement);
    let Value::Number(now) = other.predicted else { return None };
    let Value::Number(before) = short.iter().find(|outcome| is_it(outcome))?.predicted else { return None };
    let change = now / before - 1.0;
    change.is_finite().then_some((outcomes.iter().position(is_it)?, change))
}

/// Samples of a Latin hypercube of so many dimensions, each from 0 to 1: in each dimension one lies in each of as many strata.
fn hypercube(dimensions: usize) -> Vec<Vec<f64>> {
    let mut random = Random::new(SEED);
    let mut samples = vec![Vec::new(); SAMPLES];
    for _ in 0..dimensions {
        let mut strata: Vec<usize> = (0..SAMPLES).collect();
        for last in (1..SAMPLES).rev() {
            strata.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (sample, stratum) in samples.iter_mut().zip(strata) {
            let within = random.below(1 << 20) as f64 / f64::from(1 << 20);
            sample.push((stratum as f64 + within) / SAMPLES as f64);
        }
    }
    samples
}

/// Least relative change that counts as one.
const LEAST: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stratum_of_each_dimension_has_one_sample() {
        let samples = hypercube(40);
        assert_eq!(samples.len(), SAMPLES);
        for dimension in 0..40 {
            let mut strata: Vec<usize> =
                samples.iter().map(|sample| (sample[dimension] * SAMPLES as f64) as usize).collect();
            strata.sort_unstable();
            assert_eq!(strata, (0..SAMPLES).collect::<Vec<_>>());
        }
        assert_ne!(samples[0][0], samples[0][1]);
        assert_eq!(samples, hypercube(40));
    }

    #[test]
    fn ranges_hold_the_prediction_and_the_changes_of_assumptions() {
        let claims: Vec<Claim> = super::super::claims()
            .into_iter()
            .filter(|claim| ["C7", "C9", "R9"].contains(&claim.id))
            .collect();
        let model = Model::default();
        let mut outcomes = super::super::reproduce(&model, &claims, &|_| ()).unwrap();
        let plan = Plan::new(&model, &claims, &outcomes);
        let weights = plan.run(&mut outcomes, &|| ()).unwrap();
        for outcome in &outcomes {
            match (&outcome.predicted, outcome.range) {
                (Value::Number(value), Some([low, high])) => {
                    assert!(low <= *value && *value <= high, "{outcome:?}")
                }
                (Value::Words(_), None) => {}
                _ => panic!("{outcome:?}"),
            }
        }
        let md5 = outcomes.iter().find(|outcome| outcome.id == "C7").unwrap();
        let [low, high] = md5.range.unwrap();
        // Assumed latencies of DRAM and the like move what a thread does alone; none halves or doubles it.
        assert!(low < high && low > 0.5 * high, "{md5:?}");
        assert!(!weights.is_empty() && weights.is_sorted_by(|one, other| one.size() >= other.size()));
        assert!(weights.iter().all(|weight| weight.assumption.chip == "ixp2800" && weight.id == "C7"));
        // Arithmetic rests on no assumption about a chip.
        let arithmetic = outcomes.iter().filter(|outcome| outcome.id == "R9");
        assert!(
            arithmetic.clone().count() > 0
                && arithmetic.clone().all(|outcome| outcome.range.is_some_and(|[low, high]| low == high))
        );
    }
}
