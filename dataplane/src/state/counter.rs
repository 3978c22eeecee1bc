//! Counters of rules, translations and traffic classes: they stay with the name.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::counter::{ClassTraffic, Traffic};
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// Bytes of a counter of frames and bytes on a network processor.
const ENTRY: usize = 16;

/// Counters.
pub(super) struct Counts;

/// Reload of counters: zeroed counters for the new tables, and the renumbering of the old ones.
struct CountersPlan {
    rules: Vec<Traffic>,
    nats: Vec<Traffic>,
    nat_refused: Vec<u64>,
    classes: Vec<ClassTraffic>,
    /// Places in the new tables, by place in the old ones.
    rules_become: Vec<Option<u32>>,
    pairs_become: Vec<u16>,
    sources_become: Vec<Option<u16>>,
    classes_become: Vec<Option<u16>>,
}

impl Part for Counts {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, renumbering, .. } = reload;
        Ok(Box::new(CountersPlan {
            rules: vec![Traffic::default(); new.filter.rules.len()],
            nats: vec![Traffic::default(); new.nat.pairs()],
            nat_refused: vec![0; new.nat.sources.len()],
            rules_become: renumbering.rules_become.clone(),
            pairs_become: (0..old.nat.pairs()).map(|pair| renumbering.pair(pair as u16)).collect(),
            classes: vec![ClassTraffic::default(); new.classes.list.len()],
            sources_become: renumbering.sources_become.clone(),
            classes_become: renumbering.classes_become.clone(),
        }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        let counters = &shard.counters;
        size_of_val(counters)
            + size_of_val(counters.rules.as_slice())
            + size_of_val(counters.nats.as_slice())
            + size_of_val(counters.nat_refused.as_slice())
            + size_of_val(counters.classes.as_slice())
    }

    fn regions(&self, _: &Shard, tables: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::Counter, (tables.filter.rules.len() + 2 * tables.classes.list.len()) * ENTRY)]
    }
}

impl Plan for CountersPlan {
    /// Adds the counts of names that are gone to the sums.
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        let counters = &mut shard.counters;
        for (count, place) in counters.rules.iter().zip(&self.rules_become) {
            let place = place.and_then(|place| self.rules.get_mut(place as usize));
            place.unwrap_or(&mut counters.gone.rules).add(count);
        }
        for (count, pair) in counters.nats.iter().zip(&self.pairs_become) {
            // What one of two translations is left of counts for that one.
            let place = if *pair == 0 { None } else { self.nats.get_mut(usize::from(*pair)) };
            place.unwrap_or(&mut counters.gone.nats).add(count);
        }
        for (count, place) in counters.nat_refused.iter().zip(&self.sources_become) {
            let place = place.and_then(|place| self.nat_refused.get_mut(usize::from(place)));
            *place.unwrap_or(&mut counters.gone.nat_refused) += count;
        }
        for (count, place) in counters.classes.iter().zip(&self.classes_become) {
            let place = place.and_then(|place| self.classes.get_mut(usize::from(place)));
            place.unwrap_or(&mut counters.gone.classes).add(count);
        }
        std::mem::swap(&mut counters.classes, &mut self.classes);
        std::mem::swap(&mut counters.rules, &mut self.rules);
        std::mem::swap(&mut counters.nats, &mut self.nats);
        std::mem::swap(&mut counters.nat_refused, &mut self.nat_refused);
    }
}
