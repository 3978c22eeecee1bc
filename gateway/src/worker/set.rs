//! Dynamic sets of a worker: changes that it is told of, and elements that rules have added, of which it tells.

use std::sync::Arc;

use dataplane::Tables;
use dataplane::import::Refused;
use dataplane::set::{Element, SetChange, SetOutcome, SweptElements, TakenElements};
use dataplane::state::{ElementRecord, RemovalRecord};
use dataplane::sync::CopySweep;
use wire::Nanos;

use super::Worker;
use super::command::{Command, CommandSender, WorkerEvent};
use super::processing::Processing;
use crate::set::{ElementView, Elements, SetChanged};

/// Elements that are given to another worker in one command.
const AT_ONCE: u32 = 2048;

/// Changes of dynamic sets, for a second gateway.
pub struct SetsChanged {
    /// Tables that the indices in the changes refer to.
    pub tables: Arc<Tables>,
    /// Removals, and elements that have changed.
    pub taken: TakenElements,
    /// Place to go on from; none at the end, and where no place was asked for.
    pub next: Option<u32>,
}

/// Result of taking in what a second gateway tells of dynamic sets.
pub enum TookInSets {
    /// All was looked at.
    Done {
        /// Results by element.
        outcomes: Vec<Result<SetOutcome, Refused>>,
        /// Number of removals that have removed anything.
        removed: u64,
    },
    /// Nothing was taken in: the indices are of other tables than these, which the worker has now.
    Outdated(Arc<Tables>),
}

/// Outcome of a sweep over some copies of a second gateway's elements.
pub struct SetsSwept {
    /// Tables that the indices in the removals refer to.
    pub tables: Arc<Tables>,
    /// Outcome.
    pub swept: SweptElements,
}

impl Worker {
    /// Takes changes of sets for a second gateway.
    pub(super) fn set_changes(
        &mut self,
        all: Option<u32>,
        most: u32,
        mut into: TakenElements,
    ) -> SetsChanged {
        let now = self.clock.now();
        let Processing { shard, tables, .. } = &mut self.processing;
        let next = match all {
            Some(first) => shard.take_all_elements(tables, now, first, most, &mut into),
            None => {
                shard.take_set_changes(tables, now, most as usize, &mut into);
                None
            }
        };
        SetsChanged { tables: tables.clone(), taken: into, next }
    }

    /// Takes in what a second gateway tells of sets, whose indices are of `tables`.
    pub(super) fn take_in_sets(
        &mut self,
        tables: &Arc<Tables>,
        removed: &[RemovalRecord],
        elements: &[ElementRecord],
        round: u8,
    ) -> TookInSets {
        let now = self.clock.now();
        let Processing { shard, tables: own, .. } = &mut self.processing;
        if !Arc::ptr_eq(tables, own) {
            return TookInSets::Outdated(own.clone());
        }
        let removals = removed.iter().map(|removal| shard.remove_synced(tables, removal, now));
        let removed = removals.filter(|outcome| *outcome == SetOutcome::Removed).count() as u64;
        let taken = elements.iter().map(|element| shard.take_in_element(tables, element, now, round));
        TookInSets::Done { outcomes: taken.collect(), removed }
    }

    /// Sweeps the copies of a second gateway's elements.
    pub(super) fn sweep_set_copies(&mut self, sweep: CopySweep, first: u32, most: u32) -> SetsSwept {
        let now = self.clock.now();
        let Processing { shard, tables, .. } = &mut self.processing;
        SetsSwept {
            tables: tables.clone(),
            swept: shard.sweep_element_copies(tables, sweep, now, first, most),
        }
    }

    /// Makes changes of sets.
    pub(super) fn change_sets(&mut self, changes: &[SetChange]) -> SetChanged {
        let now = self.clock.now();
        let Processing { shard, tables, .. } = &mut self.processing;
        let mut changed = SetChanged::default();
        for change in changes {
            let count = match shard.change_set(tables, change, now) {
                SetOutcome::Added => &mut changed.added,
                SetOutcome::Refreshed => &mut changed.refreshed,
                SetOutcome::Removed => &mut changed.removed,
                SetOutcome::Absent => &mut changed.absent,
                SetOutcome::Full => &mut changed.refused,
            };
            *count += 1;
        }
        changed
    }

    /// Gives all elements to a worker that has begun anew.
    pub(super) fn copy_sets(&self, to: &CommandSender) {
        let Processing { shard, tables, .. } = &self.processing;
        let now = self.clock.now();
        for set in 0..tables.sets.len() as u16 {
            let mut next = Some(0);
            while let Some(first) = next {
                let mut changes = Vec::new();
                next = shard.set_elements(tables, set, first, AT_ONCE, now, |element| {
                    changes.push(SetChange::Add(element));
                });
                if !changes.is_empty() {
                    to.send(Command::ChangeSets { changes: changes.into(), reply: None });
                }
            }
        }
    }

    /// Lists elements of a set.
    pub(super) fn set_elements(&self, name: &str, first: u32, most: u32) -> Option<Elements> {
        let Processing { shard, tables, .. } = &self.processing;
        let place = tables.sets.iter().position(|set| set.name == name)?;
        let (now, mut elements) = (self.clock.now(), Vec::new());
        let next = shard.set_elements(tables, place as u16, first, most, now, |element| {
            elements.push(view(&element, now));
        });
        Some(Elements { elements, next })
    }

    /// Reports elements that rules have added.
    #[inline(always)]
    pub(super) fn tell_of_sets(&mut self) {
        if self.processing.shard.has_set_additions() {
            let Processing { shard, tables, .. } = &mut self.processing;
            let mut lists = vec![Vec::new(); tables.sets.len()];
            shard.take_set_additions(|element| lists[usize::from(element.set)].push(element));
            // One worker has nobody to tell.
            if self.exchange.is_some() {
                let lists = tables.sets.iter().zip(lists).filter(|(_, list)| !list.is_empty());
                let elements = lists.map(|(set, list)| (set.name.clone(), list)).collect();
                self.tell(WorkerEvent::SetAdditions { worker: self.number, elements });
            }
        }
    }
}

fn view(element: &Element, now: Nanos) -> ElementView {
    let prefix = element.prefix;
    let is_host = prefix.prefix_len() == prefix.max_prefix_len();
    ElementView {
        element: if is_host { prefix.addr().to_string() } else { prefix.to_string() },
        expires_seconds: element.until.map(|until| until.since(now).as_secs_f64()),
    }
}
