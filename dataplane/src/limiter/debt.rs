//! Token debts under rates, given and taken in.

use wire::{Family, Nanos};

use super::{Limiter, subject};
use crate::flow::Key;
use crate::state::{DebtRecord, Refused};
use crate::tables::{Address, FilterRule, Tables};
use policy::model::Scope;

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
                let place = sets.find_or_take(&subject, hash(&subject), |bucket| bucket.is_full(now));
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
