//! Dynamic sets: elements stay with the name of their set. Those from files and URLs are not exported: who fills the set has them.
//!
//! Tables with the same sets, of the same sizes, keep the memory as it is. Otherwise the elements are moved to other memory, one by
//! one, while the worker stands still: about 0.2 s for a million. Those past a smaller size are dropped, and counted.

use lookup::memory::Paging;
use policy::model::SetSource;
use tally::Region;
use wire::Nanos;

use super::{Applying, ElementRecord, Item, Part, Plan, Prefix, Reload};
use crate::import::Refused;
use crate::set::{Changes, Element, SetChange, SetOutcome, Sets, Stamps};
use crate::shard::{Shard, ShardError};
use crate::tables::{SetSpec, Tables};

/// Elements of dynamic sets.
pub(super) struct Elements;

/// Reload of dynamic sets.
struct SetsPlan {
    /// Other memory; `None` where the sets are the same.
    fresh: Option<Sets>,
    /// Places in the new tables, by place in the old ones.
    become_: Vec<Option<u16>>,
    /// Memory for stamps.
    places: Vec<u64>,
}

impl Part for Elements {
    fn name(&self) -> &'static str {
        "sets"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, setup, .. } = reload;
        let is_same = old.sets.len() == new.sets.len()
            && old.sets.iter().zip(&new.sets).all(|(old, new)| is_same_memory(old, new))
            && old.set_questions.has_additions == new.set_questions.has_additions;
        let mut fresh = if is_same {
            None
        } else {
            Some(Sets::new(new, setup.seed, Paging::Prefault).map_err(ShardError::Memory)?)
        };
        if let Some(fresh) = fresh.as_mut().filter(|_| setup.share.worker() == 0) {
            fresh.keep_changes(Changes::new(new));
        }
        let place = |set: &SetSpec| {
            let place = new.sets.iter().position(|other| other.name == set.name)?;
            u16::try_from(place).ok()
        };
        let become_ = old.sets.iter().map(place).collect();
        Ok(Box::new(SetsPlan { fresh, become_, places: Stamps::places(new) }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.sets.memory_bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::SetTable, shard.sets.region_bytes())]
    }

    /// Of several workers, which all have the same, the first one's.
    fn places(&self, shard: &Shard, _: &Tables) -> u32 {
        let is_first = shard.flows.member().is_none_or(|member| member.worker == 0);
        if is_first { shard.sets.places() } else { 0 }
    }

    fn export(&self, shard: &Shard, tables: &Tables, place: u32, now: Nanos) -> Option<Item> {
        let Element { set, prefix, until } = shard.sets.element_at(place, now)?;
        let spec = tables.sets.get(usize::from(set))?;
        let prefix = Prefix { first: prefix.addr(), bits: prefix.prefix_len() };
        let left = until.map(|until| until.since(now));
        (spec.source == SetSource::Rules).then_some(Item::Element(ElementRecord {
            set: Some(set),
            prefix,
            left,
        }))
    }

    fn import(
        &self,
        shard: &mut Shard,
        tables: &Tables,
        item: &Item,
        now: Nanos,
    ) -> Option<Result<(), Refused>> {
        let Item::Element(record) = item else { return None };
        Some(take_in(shard, tables, record, now))
    }
}

/// True if the elements of both lie in memory alike.
fn is_same_memory(old: &SetSpec, new: &SetSpec) -> bool {
    let is_kept = |set: &SetSpec| set.source == SetSource::Rules;
    old.name == new.name && old.size == new.size && is_kept(old) == is_kept(new)
}

/// Takes in an element, unless it is over.
fn take_in(shard: &mut Shard, tables: &Tables, record: &ElementRecord, now: Nanos) -> Result<(), Refused> {
    let Some(element) = element_of(tables, record, now)? else { return Ok(()) };
    match shard.change_set(tables, &SetChange::Add(element), now) {
        SetOutcome::Full => Err(Refused::TableFull),
        SetOutcome::Absent => Err(Refused::NameGone),
        SetOutcome::Added | SetOutcome::Refreshed | SetOutcome::Removed => Ok(()),
    }
}

/// Element of a record, of a set that rules and requests fill; none where it is over.
pub(crate) fn element_of(
    tables: &Tables,
    record: &ElementRecord,
    now: Nanos,
) -> Result<Option<Element>, Refused> {
    let set = record.set.ok_or(Refused::NameGone)?;
    let spec = tables.sets.get(usize::from(set)).ok_or(Refused::NameGone)?;
    if spec.source != SetSource::Rules {
        return Err(Refused::NameGone);
    }
    let prefix = ipnet::IpNet::new(record.prefix.first, record.prefix.bits);
    let prefix = prefix.map_err(|_| Refused::Malformed)?.trunc();
    let until = record.left.map(|left| Nanos(now.0.saturating_add(left.0)));
    Ok((record.left != Some(Nanos(0))).then_some(Element { set, prefix, until }))
}

impl Plan for SetsPlan {
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        if let Some(fresh) = &mut self.fresh {
            fresh.take_over(&mut shard.sets, &self.become_, reload.now);
        }
        shard.sets.stamps.ask(reload.tables, &mut self.places);
    }
}
