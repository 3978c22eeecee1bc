//! Other rules take the place of those that there are; what counts goes on.
//!
//! The work is bounded by rules. Tables of sources are kept as they are, so that flows go on counting where they do; they
//! are taken beforehand where none was needed so far.

use super::{Bucket, Limiter, NONE, Sets, counts_as_whole, counts_sources, rates_sources};
use crate::tables::Tables;

/// Limits of rules that will take the place of others.
pub(crate) struct LimiterPlan {
    /// Of each rule, the place of the rule whose bucket it goes on with.
    meters: Vec<Option<u32>>,
    /// Of each rule that counts as a whole, whose count it goes on with.
    counts: Vec<Whole>,
    rates: Vec<Bucket>,
    places: Vec<u32>,
    rates_by_source: Sets<Bucket>,
    counts_by_source: Sets<u32>,
}

/// How a rule counts connections as a whole.
enum Whole {
    /// Not at all.
    None,
    /// From now on.
    New,
    /// As the rule that was at this place, if that did.
    As(u32),
}

impl LimiterPlan {
    /// `was` says of each rule of `new` at which place of `old` the rule of that name was.
    pub(crate) fn prepare(old: &Tables, new: &Tables, was: &[Option<u32>]) -> LimiterPlan {
        let rules = || new.filter.rules.iter().zip(was);
        let same_meter = |(rule, was): (&super::FilterRule, &Option<u32>)| {
            was.filter(|was| old.filter.rules.get(*was as usize).is_some_and(|old| old.meter == rule.meter))
        };
        let whole = |(rule, was): (&super::FilterRule, &Option<u32>)| match was {
            _ if !counts_as_whole(rule) => Whole::None,
            Some(was) => Whole::As(*was),
            None => Whole::New,
        };
        let sources = new.limits.flows as usize;
        let newly = |needed: fn(&Tables) -> bool| if needed(new) && !needed(old) { sources } else { 0 };
        LimiterPlan {
            meters: rules().map(same_meter).collect(),
            counts: rules().map(whole).collect(),
            rates: vec![Bucket::default(); new.filter.rules.len()],
            places: vec![NONE; new.filter.rules.len()],
            rates_by_source: Sets::new(newly(rates_sources)),
            counts_by_source: Sets::new(newly(counts_sources)),
        }
    }
}

impl Limiter {
    /// Puts the limits in place, and gives those of before to whoever has time to give up their memory.
    pub(crate) fn apply(&mut self, plan: LimiterPlan) -> LimiterPlan {
        let LimiterPlan { meters, counts, mut rates, mut places, rates_by_source, counts_by_source } = plan;
        for (bucket, was) in rates.iter_mut().zip(&meters) {
            if let Some(before) = was.and_then(|was| self.rates.get(was as usize)) {
                *bucket = *before;
            }
        }
        let mut kept = vec![false; self.counts.len()];
        for (place, whole) in places.iter_mut().zip(&counts) {
            let Whole::As(was) = whole else { continue };
            let before = self.places.get(*was as usize).copied().unwrap_or(NONE);
            if let Some(kept) = kept.get_mut(before as usize) {
                (*place, *kept) = (before, true);
            }
        }
        // Counts of rules that are gone go on while something counts.
        let mut vacant: Vec<u32> = (0..).zip(&kept).filter(|(_, kept)| !**kept).map(|(at, _)| at).collect();
        vacant.retain(|at| self.counts[*at as usize] == 0);
        for (place, whole) in places.iter_mut().zip(&counts) {
            if matches!(whole, Whole::None) || *place != NONE {
                continue;
            }
            *place = vacant.pop().unwrap_or_else(|| {
                self.counts.push(0);
                self.counts.len() as u32 - 1
            });
        }
        let rates = std::mem::replace(&mut self.rates, rates);
        let places = std::mem::replace(&mut self.places, places);
        let mut spent = LimiterPlan { meters, counts, rates, places, rates_by_source, counts_by_source };
        if self.rates_by_source.is_none() {
            std::mem::swap(&mut self.rates_by_source, &mut spent.rates_by_source);
        }
        if self.counts_by_source.is_none() {
            std::mem::swap(&mut self.counts_by_source, &mut spent.counts_by_source);
        }
        spent
    }
}
