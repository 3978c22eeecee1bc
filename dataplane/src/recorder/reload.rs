//! Reload of the recorder: packets keep the names that they were decided by.

use std::collections::HashMap;
use std::hash::Hash;

use super::{
    Arc, Gone, GoneNames, Head, Keeping, Meta, NOWHERE, Reason, Recorder, Renumbering, Shard, Tables,
    names_of,
};

/// Reload of the recorder: names that the new tables do not have, and memory for them.
#[derive(Default)]
pub(crate) struct RecorderPlan {
    rules: HashMap<u32, Arc<str>>,
    interfaces: HashMap<u16, Arc<str>>,
    classes: HashMap<u16, Arc<str>>,
    /// Memory for names of packets that are gone, and then the memory that was used before.
    gone: Vec<Gone>,
    /// Empty recorder of another size, where the policy wants another; then the recorder of before.
    resized: Option<Recorder>,
    /// False where all places stay as they are, as after a change of routes.
    is_needed: bool,
}

impl RecorderPlan {
    /// Prepares the reload from tables to others.
    pub(crate) fn new(old: &Tables, new: &Tables, renumbering: &Renumbering) -> RecorderPlan {
        let is_resized = old.drop_record != new.drop_record;
        if !is_resized && is_same(renumbering, new) {
            return RecorderPlan::default();
        }
        let rules = (0..).zip(old.filter.rules.iter().map(|rule| &rule.name));
        let interfaces = (0..).zip(old.interfaces.iter().map(|interface| &interface.name));
        let classes = (0..).zip(old.classes.list.iter().map(|class| &class.name));
        RecorderPlan {
            rules: gone(rules, &renumbering.rules_become),
            interfaces: gone(interfaces, &renumbering.interfaces_become),
            classes: gone(classes, &renumbering.classes_become),
            gone: Vec::with_capacity(old.drop_record as usize * Reason::COUNT),
            resized: is_resized.then(|| Recorder::sized(new.drop_record)),
            is_needed: true,
        }
    }

    /// Renumbers what has been recorded. The names that are gone go with the packets.
    pub(crate) fn apply(&mut self, shard: &mut Shard, renumbering: &Renumbering) {
        let recorder = &mut shard.recorder;
        if recorder.keeping == Keeping::Never || !self.is_needed {
            return;
        }
        if let Some(resized) = &mut self.resized {
            return std::mem::swap(recorder, resized);
        }
        for (place, slot) in (0..).zip(&mut recorder.slots).filter(|(_, slot)| slot.head.sequence > 0) {
            let sequence = slot.head.sequence;
            let mut names = names_of(&recorder.gone, place, sequence).cloned().unwrap_or_default();
            self.renumber(&mut slot.head, &mut names, renumbering);
            if names != GoneNames::default() {
                self.gone.push(Gone { slot: place, sequence, names });
            }
        }
        std::mem::swap(&mut recorder.gone, &mut self.gone);
    }

    fn renumber(&self, head: &mut Head, names: &mut GoneNames, renumbering: &Renumbering) {
        if head.rule != Meta::NO_RULE {
            let place = renumbering.rules_become.get(head.rule as usize).copied().flatten();
            names.rule = self.rules.get(&head.rule).or(names.rule.as_ref()).cloned();
            head.rule = place.unwrap_or(Meta::NO_RULE);
        }
        for (id, name) in [(&mut head.ingress, &mut names.ingress), (&mut head.egress, &mut names.egress)] {
            if *id != NOWHERE {
                *name = self.interfaces.get(&id.0).or(name.as_ref()).cloned();
                *id = renumbering.interface(*id).unwrap_or(NOWHERE);
            }
        }
        if let Some(place) = head.class.checked_sub(1) {
            let becomes = renumbering.classes_become.get(usize::from(place)).copied().flatten();
            names.class = self.classes.get(&place).or(names.class.as_ref()).cloned();
            head.class = becomes.map_or(0, |place| place + 1);
        }
        head.nat = renumbering.pair(head.nat);
    }
}

/// True if whatever has a place keeps it.
fn is_same(renumbering: &Renumbering, new: &Tables) -> bool {
    let pairs = new.nat.pairs() as u16;
    is_identity(&renumbering.rules_become, 0u32..)
        && is_identity(&renumbering.interfaces_become, 0u16..)
        && is_identity(&renumbering.classes_become, 0u16..)
        && (0..pairs).all(|pair| renumbering.pair(pair) == pair)
}

fn is_identity<P: Copy + Eq>(becoming: &[Option<P>], mut places: impl Iterator<Item = P>) -> bool {
    becoming.iter().all(|becomes| places.next() == *becomes)
}

/// Names, by place, that have no place any more.
fn gone<'a, P: Copy + Eq + Hash>(
    names: impl Iterator<Item = (P, &'a String)>,
    becoming: &[Option<P>],
) -> HashMap<P, Arc<str>> {
    let without = names.zip(becoming).filter(|(_, becomes)| becomes.is_none());
    without.map(|((place, name), _)| (place, Arc::from(name.as_str()))).collect()
}
