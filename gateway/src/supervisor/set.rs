//! Changes of dynamic sets, passed on to the workers: from lists, on request, and by rules of one worker for the others.

use std::collections::BTreeMap;
use std::time::Duration;

use dataplane::set::{Element, SetChange};
use ipnet::IpNet;
use policy::model::SetSource;
use tracing::warn;
use wire::Nanos;

use super::Supervisor;
use crate::request::SetTrouble;
use crate::set::{Base, Difference, SetChanged, SetDifference, SetNews};
use crate::worker::Reply;

/// Change of a set that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAsked {
    /// Add elements, or give them another time to expire.
    Add(Vec<SetAddition>),
    /// Remove elements.
    Remove(Vec<IpNet>),
    /// Remove all elements.
    Flush,
}

/// Element to be added to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAddition {
    /// Address or network.
    pub prefix: IpNet,
    /// Time after which it expires; else that of the set.
    pub timeout: Option<Duration>,
}

impl Supervisor {
    /// Follows the lists of the sets of the policy in force, and changes the sets as far as that is known at once.
    pub(super) fn follow_sets(&mut self) {
        let differences = self.sets.follow(&self.reload.policy, &self.sender);
        for difference in differences {
            self.change_by_list(&difference);
        }
    }

    /// Takes the outcome of reading a list.
    pub(super) fn set_read(&mut self, news: SetNews) {
        if let Some(difference) = self.sets.heard(news) {
            self.change_by_list(&difference);
        }
    }

    /// Changes a set as its list has changed. New elements come before others go, so that what both lists cover stays covered
    /// throughout; unless the set has no room for both.
    fn change_by_list(&self, SetDifference { set, from, difference, length }: &SetDifference) {
        let tables = &self.reload.tables;
        let Some((spec, set)) = tables.sets.iter().zip(0..).find(|(known, _)| known.name == *set) else {
            return;
        };
        if *from == Base::Nothing {
            self.workers.change_sets(&[SetChange::Flush { set }]);
        }
        let Difference { added, removed } = difference;
        let has_room = length + removed.len() <= spec.size as usize;
        let added = added.iter().map(|prefix| SetChange::Add(Element { set, prefix: *prefix, until: None }));
        let removed = removed.iter().map(|prefix| SetChange::Remove { set, prefix: *prefix });
        let changes: Vec<SetChange> =
            if has_room { added.chain(removed).collect() } else { removed.chain(added).collect() };
        self.workers.change_sets(&changes);
    }

    /// Changes a set on request; the first worker answers.
    pub(super) fn change_set(
        &mut self,
        set: &str,
        asked: SetAsked,
        reply: Reply<Result<SetChanged, SetTrouble>>,
    ) {
        let found = self.reload.policy.dynamic_sets.iter().find(|known| known.name == *set);
        let place = self.reload.tables.sets.iter().position(|known| known.name == *set);
        let Some((known, place)) = found.zip(place) else {
            let _ = reply.send(Err(SetTrouble::Unknown));
            return;
        };
        if known.source != SetSource::Rules {
            let _ = reply.send(Err(SetTrouble::Listed));
            return;
        }
        let number = place as u16;
        let changes: Vec<SetChange> = match asked {
            SetAsked::Add(additions) => {
                let (now, usual) = (self.workers.now(), self.reload.tables.sets[place].timeout);
                let change = |SetAddition { prefix, timeout }| {
                    let timeout = timeout.map(Nanos::from).or(usual);
                    let until = timeout.map(|timeout| now + timeout);
                    SetChange::Add(Element { set: number, prefix, until })
                };
                additions.into_iter().map(change).collect()
            }
            SetAsked::Remove(prefixes) => {
                prefixes.into_iter().map(|prefix| SetChange::Remove { set: number, prefix }).collect()
            }
            SetAsked::Flush => vec![SetChange::Flush { set: number }],
        };
        self.workers.change_sets_and_reply(changes.into(), reply);
    }

    /// Tells the other workers what rules have added at one, by the names of the sets: their places may be others since a reload.
    pub(super) fn rules_added(&self, worker: usize, elements: &BTreeMap<String, Vec<Element>>) {
        let sets = self.reload.tables.sets.iter().zip(0..);
        let added = sets.filter_map(|(set, place)| Some((place, elements.get(&set.name)?)));
        let changes: Vec<SetChange> = added
            .flat_map(|(set, list)| {
                list.iter().map(move |element| SetChange::Add(Element { set, ..*element }))
            })
            .collect();
        self.workers.change_sets_of_others(worker, &changes);
    }

    /// Gives a worker that has begun anew the elements that another has; without another, those of lists.
    pub(super) fn restore_sets(&self, worker: usize) {
        let tables = &self.reload.tables;
        if tables.sets.is_empty() || self.workers.copy_sets(worker) {
            return;
        }
        for (name, list) in self.sets.lists() {
            let Some(place) = tables.sets.iter().position(|set| set.name == name) else { continue };
            let element = |prefix: &IpNet| Element { set: place as u16, prefix: *prefix, until: None };
            let changes: Vec<SetChange> = list.iter().map(element).map(SetChange::Add).collect();
            self.workers.change_sets(&changes);
        }
        if self.reload.policy.dynamic_sets.iter().any(|set| set.source == SetSource::Rules) {
            warn!(
                worker,
                "elements of dynamic sets that rules and requests had added are lost; those of lists are there again"
            );
        }
    }
}
