//! Limits: token debts and counts of connections, which stay with the name of their rule.
//!
//! The work of a reload is bounded by rules. Tables of sources are kept as they are, so that flows go on counting where they do; they
//! are taken beforehand where none was needed so far.

use lookup::memory::{MemoryError, Paging};
use policy::model::Scope;
use tally::{NoTally, Region};
use wire::{Family, Nanos};

use super::{Applying, DebtRecord, Item, Part, Plan, Reload};
use crate::flow::Key;
use crate::import::Refused;
use crate::limiter::{Bucket, Limiter, NONE, Sets, counts_as_whole, counts_sources, rates_sources, subject};
use crate::shard::{Shard, ShardError};
use crate::tables::{Address, FilterRule, Tables};

/// Limits on rates and on numbers of connections.
pub(super) struct Limits;

/// Reload of limits.
struct LimiterPlan {
    /// Place of the old rule whose buckets are continued, by rule.
    meters: Vec<Option<u32>>,
    /// Count of connections to continue, by rule.
    counts: Vec<Whole>,
    rates: Vec<Bucket>,
    places: Vec<u32>,
    rates_by_source: Sets<Bucket>,
    counts_by_source: Sets<u32>,
}

/// Count of all connections of a rule, after a reload.
enum Whole {
    /// None: the rule does not count all connections.
    None,
    /// A new count.
    New,
    /// The count of the rule at this place in the old tables, if that has one.
    As(u32),
}

impl Part for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(LimiterPlan::prepare(reload).map_err(ShardError::Memory)?))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.limiter.memory_bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        // With traffic meters, which lie in the same memory.
        vec![(Region::Meter, shard.limiter.memory_bytes() + shard.meters.region_bytes())]
    }

    /// Rules, then sources.
    fn places(&self, shard: &Shard, tables: &Tables) -> u32 {
        tables.filter.rules.len() as u32 + shard.limiter.source_places()
    }

    fn export(&self, shard: &Shard, tables: &Tables, place: u32, now: Nanos) -> Option<Item> {
        let rules = tables.filter.rules.len() as u32;
        let debt = match place.checked_sub(rules) {
            None => shard.limiter.debt_of_rule(place, now),
            Some(source) => shard.limiter.debt_of_source(tables, source, now),
        };
        debt.map(Item::Debt)
    }

    fn import(
        &self,
        shard: &mut Shard,
        tables: &Tables,
        item: &Item,
        now: Nanos,
    ) -> Option<Result<(), Refused>> {
        let Item::Debt(record) = item else { return None };
        let Some(rule) = tables.filter.rules.get(record.rule as usize) else {
            return Some(Err(Refused::NameGone));
        };
        let Shard { limiter, flows, .. } = shard;
        Some(limiter.owe(rule, record, now, |key| flows.hash(key, &mut NoTally)))
    }
}

impl LimiterPlan {
    fn prepare(reload: &Reload<'_>) -> Result<LimiterPlan, MemoryError> {
        let Reload { old, new, renumbering, .. } = reload;
        let rules = || new.filter.rules.iter().zip(&renumbering.rules_were);
        let same_meter = |(rule, was): (&FilterRule, &Option<u32>)| {
            was.filter(|was| old.filter.rules.get(*was as usize).is_some_and(|old| old.meter == rule.meter))
        };
        let whole = |(rule, was): (&FilterRule, &Option<u32>)| match was {
            _ if !counts_as_whole(rule) => Whole::None,
            Some(was) => Whole::As(*was),
            None => Whole::New,
        };
        let sources = new.limits.flows as usize;
        let newly = |needed: fn(&Tables) -> bool| if needed(new) && !needed(old) { sources } else { 0 };
        Ok(LimiterPlan {
            meters: rules().map(same_meter).collect(),
            counts: rules().map(whole).collect(),
            rates: vec![Bucket::default(); new.filter.rules.len()],
            places: vec![NONE; new.filter.rules.len()],
            rates_by_source: Sets::new(newly(rates_sources), Paging::Prefault)?,
            counts_by_source: Sets::new(newly(counts_sources), Paging::Prefault)?,
        })
    }
}

impl Plan for LimiterPlan {
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        let limiter = &mut shard.limiter;
        for (bucket, was) in self.rates.iter_mut().zip(&self.meters) {
            if let Some(before) = was.and_then(|was| limiter.rates.get(was as usize)) {
                *bucket = *before;
            }
        }
        let mut kept = vec![false; limiter.counts.len()];
        for (place, whole) in self.places.iter_mut().zip(&self.counts) {
            let Whole::As(was) = whole else { continue };
            let before = limiter.places.get(*was as usize).copied().unwrap_or(NONE);
            if let Some(kept) = kept.get_mut(before as usize) {
                (*place, *kept) = (before, true);
            }
        }
        // Counts of rules that are gone go on while something counts.
        let mut vacant: Vec<u32> = (0..).zip(&kept).filter(|(_, kept)| !**kept).map(|(at, _)| at).collect();
        vacant.retain(|at| limiter.counts[*at as usize] == 0);
        for (place, whole) in self.places.iter_mut().zip(&self.counts) {
            if matches!(whole, Whole::None) || *place != NONE {
                continue;
            }
            *place = vacant.pop().unwrap_or_else(|| {
                limiter.counts.push(0);
                limiter.counts.len() as u32 - 1
            });
        }
        std::mem::swap(&mut limiter.rates, &mut self.rates);
        std::mem::swap(&mut limiter.places, &mut self.places);
        if limiter.rates_by_source.is_none() {
            std::mem::swap(&mut limiter.rates_by_source, &mut self.rates_by_source);
        }
        if limiter.counts_by_source.is_none() {
            std::mem::swap(&mut limiter.counts_by_source, &mut self.counts_by_source);
        }
    }
}

impl Limiter {
    /// The token debt under the rate of a rule as a whole.
    pub(crate) fn debt_of_rule(&self, rule: u32, now: Nanos) -> Option<DebtRecord> {
        let debt = self.rates.get(rule as usize)?.full_at.since(now);
        (debt > Nanos(0)).then_some(DebtRecord { rule, source: None, debt })
    }

    /// Number of places for sources under a rate.
    pub(crate) fn source_places(&self) -> u32 {
        self.rates_by_source.keys.len() as u32
    }

    /// The token debt of the source in a place.
    pub(crate) fn debt_of_source(&self, tables: &Tables, place: u32, now: Nanos) -> Option<DebtRecord> {
        let key = self.rates_by_source.keys.get(place as usize)?;
        let debt = self.rates_by_source.values.get(place as usize)?.full_at.since(now);
        if key.family() == Family::Other || debt == Nanos(0) {
            return None;
        }
        let rule = tables.rule_of_meter(number(key))?;
        Some(DebtRecord { rule, source: Some(key.source()), debt })
    }

    /// The token debt for errors and resets in all: of their kinds the most. Receivers begin anew elsewhere.
    pub(crate) fn errors_owed(&self, now: Nanos) -> Nanos {
        self.errors.iter().map(|bucket| bucket.full_at.since(now)).max().unwrap_or(Nanos(0))
    }

    /// Adds a token debt for errors and resets, of each kind.
    pub(crate) fn add_error_debt(&mut self, debt: Nanos, now: Nanos) {
        for bucket in &mut self.errors {
            bucket.full_at = later(now, debt);
        }
    }

    /// Notes the token debt under the rate of a rule, which is the one that the record names.
    pub(crate) fn owe(
        &mut self,
        rule: &FilterRule,
        record: &DebtRecord,
        now: Nanos,
        hash: impl Fn(&Key) -> u64,
    ) -> Result<(), Refused> {
        let DebtRecord { rule: place, source, debt } = *record;
        let source = source.map(Address::from);
        let scope = rule.rate.map(|rate| rate.scope).ok_or(Refused::NameGone)?;
        let bucket = match (scope, source) {
            (Scope::Rule, None) => self.rates.get_mut(place as usize),
            (Scope::Source, Some(source)) => {
                let subject = subject(source, rule.meter);
                let sets = &mut self.rates_by_source;
                let place = sets
                    .find_or_take(&subject, hash(&subject), Bucket::default(), |bucket| bucket.is_full(now));
                place.and_then(|place| sets.value(place))
            }
            _ => return Err(Refused::NameGone),
        };
        let bucket = bucket.ok_or(Refused::TableFull)?;
        // What has been used meanwhile counts, too.
        bucket.full_at = bucket.full_at.max(later(now, debt));
        Ok(())
    }
}

/// The number that a [`subject`] is of.
fn number(subject: &Key) -> u32 {
    u32::from(subject.sport()) << 16 | u32::from(subject.dport())
}

fn later(now: Nanos, debt: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(debt.0))
}
