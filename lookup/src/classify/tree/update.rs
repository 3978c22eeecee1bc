//! Trees whose rules come and go, changed where they lie.
//!
//! Leaves have numbers of rules, which stay as others come and go; a map leads from numbers to positions. A rule that comes
//! is put into the leaves that its headers come to, in the tree that growing would leave it to, and a leaf that becomes long is divided
//! by a node. A rule that goes loses its position, and searches pass it over; once in a while all leaves are swept. What makes
//! a search much slower than it was when the trees were grown, has them grown anew (docs/decisions/0061).

use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tally::Tally;

use self::editable::Editable;
use self::order::Positions;
use self::rules::{Removed, Rules};
use self::version::State;
use super::entry::{Entry, of_pattern};
use super::families::{Families, Processor};
use super::hiding::Hiding;
use super::layout::{NUMBER, Shape, V4, V6};
use super::search::Order;
use super::{Cuboids, Openness, Pair, Tree, account, bytes_of, weigh, worth};
use crate::classify::budget::Budget;
use crate::classify::update::Edit;
use crate::classify::{Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge, Updatable, linear};

mod editable;
mod insert;
mod journal;
mod leaf;
mod order;
mod renew;
mod rules;
mod target;
mod version;

/// Trees over patterns that come and go.
pub(super) struct UpdatableTree {
    /// `None` where there is no memory for trees: patterns are compared one by one.
    trees: Option<Trees>,
    rules: Rules,
    /// Changes since the time of a search was estimated.
    changes: usize,
    /// Changes since the trees were grown.
    age: usize,
    /// Number of rules for which the openness of the trees was chosen, and the openness.
    chosen: Chosen,
    /// Bytes that trees may take until they are grown anew.
    enough: usize,
    budget: Budget,
    processor: Processor,
    state: State,
    /// State since which all that was written is known; `None` where something is not.
    base: Option<State>,
}

/// Openness that was the best of several for a number of rules.
#[derive(Clone, Copy)]
struct Chosen {
    rules: usize,
    openness: Openness,
}

struct Trees {
    v4: Editable<V4>,
    v6: Editable<V6>,
    /// Rules that some leaves lack, and the rules that make these needless there.
    hiding: Hiding,
}

/// How much longer a search may take than when the trees were grown, as a factor and in nanoseconds of the estimate, before
/// they are grown anew: in place, which nobody asked for, and where a list is revised, which else is built anew.
const WORN: (f32, f32) = (1.5, 10.5);
const REVISED: (f32, f32) = (1.2, 1.0);
/// Factor by which trees may become larger than when they were grown.
const MUCH: usize = 6;
/// Changes between two estimates, at least: half as many as there are rules, or this.
const CHANGES: usize = 1024;
/// Patterns that an estimate looks at.
const SAMPLES: usize = 1024;
/// Removed rules that leaves may have, and changes before trees are grown anew for room: a quarter of all rules, within these limits, or a
/// sixteenth of many.
const REMOVED: RangeInclusive<usize> = 64..=256;
/// Times that all rules may be compared with rules that hid others, before none is hidden any more.
const COMPARED: usize = 32;

impl UpdatableTree {
    /// Trees that can be changed, from those that have been grown of these patterns. `None` where they do not keep within the bounds,
    /// or the system has no memory for them.
    pub(super) fn new(tree: &Tree, patterns: &[Pattern]) -> Option<UpdatableTree> {
        if patterns.len() != tree.count {
            return None;
        }
        let rules = Rules::new(patterns.iter().cloned().map(Arc::new));
        let pair = Pair { v4: tree.pair.v4.copy().ok()?, v6: tree.pair.v6.copy().ok()? };
        let chosen = Chosen { rules: tree.count, openness: pair.openness() };
        let trees = Some(Trees::new(pair, &rules));
        let (budget, processor) = (Budget::new(tree.bounds), tree.processor);
        let state = State::new();
        let mut made = UpdatableTree {
            trees,
            rules,
            changes: 0,
            age: 0,
            chosen,
            enough: 0,
            budget,
            processor,
            state,
            base: Some(state),
        };
        let bytes = made.bytes();
        made.budget = made.budget.with(bytes);
        made.enough = made.more_than_enough();
        tree.bounds.admit(bytes).ok()?;
        Some(made)
    }

    /// Bytes of all of it, with the room in its lists.
    fn bytes(&self) -> usize {
        self.rules.bytes() + self.trees.as_ref().map_or(0, Trees::bytes)
    }

    #[cold]
    fn matches(&self, header: &Header, number: u32) -> bool {
        self.rules.pattern(number).is_some_and(|pattern| pattern.matches(header))
    }

    #[inline(always)]
    fn families<'a>(
        &'a self,
        trees: &'a Trees,
    ) -> Families<'a, Positions<'a>, impl Fn(&Header, u32) -> bool + Copy + 'a> {
        let matches = |header: &Header, number| self.matches(header, number);
        let order = self.rules.numbers.positions();
        Families { v4: &trees.v4.forest, v6: &trees.v6.forest, order, matches }
    }

    /// Compares one pattern after the other.
    #[cold]
    fn scan(&self, header: &Header) -> Option<Position> {
        let mut in_order = (0..).zip(self.rules.in_order());
        in_order.find(|(_, pattern)| pattern.matches(header)).map(|(position, _)| position)
    }

    /// A rule has come or gone: now and then the time of a search is estimated.
    fn changed(&mut self) {
        self.note_change();
        self.changes += 1;
        self.age += 1;
        let has_grown = self.trees.as_ref().is_some_and(|trees| trees.bytes() > self.enough);
        if has_grown || self.changes >= CHANGES.max(self.rules.numbers.count() / 2) {
            self.changes = 0;
            if has_grown || self.takes_longer(WORN) {
                // What there is goes on where there is no memory for others.
                if self.grow_anew().is_err() {
                    self.enough = self.more_than_enough();
                }
            }
        }
    }

    /// Returns the memory that would be too much for trees of these rules: several times what they take, if it is more than
    /// they are worth, and the bounds admit it.
    fn more_than_enough(&self) -> usize {
        let bytes = self.trees.as_ref().map_or(0, Trees::bytes);
        let much = (MUCH * bytes).min(self.budget.bounds().memory / 2).max(2 * bytes);
        much.max(worth(self.rules.numbers.count()))
    }

    /// True if a search takes longer than when the trees were grown, by this factor and so many nanoseconds of the estimate.
    fn takes_longer(&self, (factor, more): (f32, f32)) -> bool {
        let Some(Trees { v4, v6, .. }) = &self.trees else { return true };
        let order = self.rules.numbers.positions();
        let step = self.rules.numbers.count().div_ceil(SAMPLES).max(1);
        let (mut of_v4, mut of_v6) = (Vec::new(), Vec::new());
        for pattern in self.rules.in_order().step_by(step) {
            of_pattern(pattern, 0, &mut of_v4);
            of_pattern(pattern, 0, &mut of_v6);
        }
        let is_longer = |now: f32, then: f32| now > factor * then + more;
        is_longer(weigh::weigh(&v4.forest, order, &of_v4), v4.forest.time)
            || is_longer(weigh::weigh(&v6.forest, order, &of_v6), v6.forest.time)
    }

    /// Grows the trees anew, of the present patterns; with the openness that they have, unless it was chosen for many more rules, or many
    /// fewer: choosing takes several times as long. As where a list of rules is searched by another one, the bounds are of either: those
    /// that there are go when the others are grown.
    ///
    /// # Errors
    /// There is no memory for others; nothing has changed.
    fn grow_anew(&mut self) -> Result<(), TooLarge> {
        let bounds = Bounds { memory: self.budget.with(self.rules.bytes()).left() };
        let cuboids = Cuboids::of(self.rules.in_order(), bounds)?;
        // To each octet belongs a count of branches.
        let bounds = Bounds { memory: bounds.memory / 9 * 8 };
        let Chosen { rules, openness } = self.chosen;
        let count = self.rules.numbers.count();
        let pair = if (rules / 2..=2 * rules).contains(&count) {
            cuboids.grow(Some(openness), bounds)?
        } else {
            let pair = cuboids.grow(None, bounds)?;
            self.chosen = Chosen { rules: count, openness: pair.openness() };
            pair
        };
        self.rules = self.rules.renumbered();
        self.trees = Some(Trees::new(pair, &self.rules));
        self.base = None;
        self.budget = self.budget.with(self.bytes());
        (self.age, self.enough) = (0, self.more_than_enough());
        Ok(())
    }

    /// Grows the trees anew where they have no room for a rule. A build is worth a number of changes: trees that have just been grown stay.
    ///
    /// # Errors
    /// The trees stay, or there is no memory for others.
    fn make_room(&mut self, too_large: TooLarge) -> Result<(), TooLarge> {
        if self.age <= self.change_of_many() {
            return Err(too_large);
        }
        self.grow_anew().map_err(|_| too_large)
    }

    /// Grows the trees anew where leaves lack rules; where there is no memory for that, patterns are compared one by one.
    fn grow_or_scan(&mut self) {
        if self.grow_anew().is_err() {
            (self.trees, self.base) = (None, None);
            self.rules.swept();
            self.budget = self.budget.with(self.bytes());
        }
    }

    /// Number of changes that are worth a pass over all rules.
    fn change_of_many(&self) -> usize {
        let count = self.rules.numbers.count();
        (count / 4).clamp(*REMOVED.start(), *REMOVED.end()).max(count / 16)
    }

    /// Trees without the means to change them; `None` where the system has no memory for them.
    fn settled(&mut self) -> Option<Tree> {
        let trees = self.trees.as_mut()?;
        trees.sweep(&mut self.rules);
        let order = self.rules.numbers.positions();
        let (mut v4, v6) = (trees.v4.settled(order).ok()?, trees.v6.settled(order).ok()?);
        v4.hiding = trees.hiding.renumbered(|number| {
            let position = Order::position(order, number);
            (position != NO_MATCH).then_some(position)
        });
        let mut asked = trees.v4.asked(order);
        asked.extend(trees.v6.asked(order));
        asked.sort_unstable();
        asked.dedup();
        let in_order: Vec<&Pattern> = self.rules.in_order().collect();
        let asked: Vec<(Position, Pattern)> =
            asked.into_iter().map(|position| (position, in_order[position as usize].clone())).collect();
        Some(Tree {
            pair: Pair { v4, v6 },
            asked_bytes: bytes_of(&asked),
            asked,
            count: self.rules.numbers.count(),
            bounds: self.budget.bounds(),
            processor: self.processor,
        })
    }
}

impl Trees {
    fn new(mut pair: Pair, rules: &Rules) -> Trees {
        let mut hiding = std::mem::take(&mut pair.v4.hiding);
        hiding.add_all(&std::mem::take(&mut pair.v6.hiding));
        let order = rules.numbers.positions();
        Trees { v4: Editable::new(pair.v4, order), v6: Editable::new(pair.v6, order), hiding }
    }

    fn copy(&self) -> Option<Trees> {
        let (v4, v6) = (self.v4.copy().ok()?, self.v6.copy().ok()?);
        Some(Trees { v4, v6, hiding: self.hiding.clone() })
    }

    fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes() + self.hiding.bytes()
    }

    fn insert(&mut self, number: u32, rules: &Rules, budget: &mut Budget) -> Result<(), TooLarge> {
        let Some(pattern) = rules.pattern(number) else { return Ok(()) };
        let order = rules.numbers.positions();
        insert(&mut self.v4, number, pattern, order, budget)?;
        insert(&mut self.v6, number, pattern, order, budget)
    }

    /// Puts rules that are hidden somewhere into leaves, for the headers of a rule that has gone from `position`, and hid others. Where many
    /// rules hide many, comparing all with each would take longer than having them in all leaves.
    fn show_hidden(
        &mut self,
        hider: &Pattern,
        position: Position,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<(), TooLarge> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        of_pattern::<V4>(hider, NUMBER, &mut v4);
        of_pattern::<V6>(hider, NUMBER, &mut v6);
        let order = rules.numbers.positions();
        let hidden = self.hiding.compare();
        if self.hiding.compared() > COMPARED * rules.numbers.count() {
            let hiding = std::mem::take(&mut self.hiding);
            budget.give_back(hiding.bytes());
            return hidden.into_iter().try_for_each(|number| self.insert(number, rules, budget));
        }
        for number in hidden {
            let Some(pattern) = rules.pattern(number) else { continue };
            if Order::position(order, number) < position {
                continue;
            }
            let shown = [
                show(&mut self.v4, number, pattern, &v4, order, budget)?,
                show(&mut self.v6, number, pattern, &v6, order, budget)?,
            ];
            if shown == [Shown::Whole; 2] {
                self.hiding.show(number);
            }
        }
        Ok(())
    }

    fn sweep(&mut self, rules: &mut Rules) {
        let order = rules.numbers.positions();
        self.v4.sweep(order);
        self.v6.sweep(order);
        rules.swept();
    }
}

/// Puts the cuboids that a pattern has in one family into leaves.
fn insert<S: Shape>(
    trees: &mut Editable<S>,
    number: u32,
    pattern: &Pattern,
    order: Positions<'_>,
    budget: &mut Budget,
) -> Result<(), TooLarge> {
    let mut entries: Vec<Entry<S>> = std::mem::take(&mut trees.workshop.entries);
    entries.clear();
    of_pattern(pattern, number, &mut entries);
    let done = entries.iter().try_for_each(|entry| trees.insert(entry, entry, order, budget));
    trees.workshop.entries = entries;
    done
}

/// Extent to which a rule is in leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// In all leaves of its headers.
    Whole,
    /// Perhaps not in all.
    Partly,
}

/// Puts the cuboids that a pattern has in one family into leaves, for the headers that `hider` has, too.
fn show<S: Shape>(
    trees: &mut Editable<S>,
    number: u32,
    pattern: &Pattern,
    hider: &[Entry<S>],
    order: Positions<'_>,
    budget: &mut Budget,
) -> Result<Shown, TooLarge> {
    let mut entries: Vec<Entry<S>> = std::mem::take(&mut trees.workshop.entries);
    entries.clear();
    of_pattern(pattern, number, &mut entries);
    let mut shown = Shown::Whole;
    let done = entries.iter().try_for_each(|entry| {
        let parts = hider.iter().filter_map(|hider| entry.common(hider));
        let mut whole = false;
        parts.into_iter().try_for_each(|part| {
            whole |= (part.low, part.span) == (entry.low, entry.span);
            trees.insert(entry, &part, order, budget)
        })?;
        if !whole {
            shown = Shown::Partly;
        }
        Ok(())
    });
    trees.workshop.entries = entries;
    done.map(|()| shown)
}

impl Classifier for UpdatableTree {
    fn classify(&self, header: &Header) -> Option<Position> {
        match &self.trees {
            Some(trees) => self.families(trees).classify(self.processor, header),
            None => self.scan(header),
        }
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        match &self.trees {
            Some(trees) => self.families(trees).classify_bulk(self.processor, headers, positions),
            None => {
                for (header, position) in headers.iter().zip(positions) {
                    *position = self.scan(header).unwrap_or(NO_MATCH);
                }
            }
        }
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        match &self.trees {
            Some(trees) => self.families(trees).classify_tallied(header, tally),
            None => linear::classify_tallied(self.rules.in_order(), self.count(), header, tally),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes()
    }

    fn region_bytes(&self) -> u64 {
        match &self.trees {
            Some(Trees { v4, v6, .. }) => {
                (v4.forest.bytes() + v6.forest.bytes() + self.rules.numbers.map_bytes()) as u64
            }
            None => linear::region_bytes(self.rules.in_order()),
        }
    }

    fn program(&self) -> u32 {
        match &self.trees {
            Some(Trees { v4, v6, .. }) => {
                account::program(&v4.forest) + account::program(&v6.forest) + account::MAP
            }
            None => linear::program(self.rules.in_order()),
        }
    }

    fn to_updatable(&self, _: &[Pattern]) -> Option<Box<dyn Updatable>> {
        Some(self.copy())
    }
}

impl Updatable for UpdatableTree {
    fn count(&self) -> usize {
        self.rules.numbers.count()
    }

    fn pattern(&self, position: Position) -> Option<&Pattern> {
        self.rules.pattern(self.rules.numbers.number(position)?)
    }

    fn keep_within(&mut self, bounds: Bounds) -> Result<(), TooLarge> {
        self.budget.keep_within(bounds)
    }

    fn insert(&mut self, position: Position, pattern: &Pattern) -> Result<(), TooLarge> {
        let pattern = Arc::new(pattern.clone());
        let number = match self.rules.insert(position, &pattern, &mut self.budget) {
            Ok(number) => number,
            Err(too_large) => {
                self.make_room(too_large)?;
                self.rules.insert(position, &pattern, &mut self.budget)?
            }
        };
        let position = Order::position(self.rules.numbers.positions(), number);
        if let Some(trees) = &mut self.trees {
            trees.v4.make_place(position);
            trees.v6.make_place(position);
            let done = trees.insert(number, &self.rules, &mut self.budget);
            if let Err(too_large) = done.or_else(|too_large| self.make_room(too_large)) {
                self.remove(position);
                return Err(too_large);
            }
        }
        self.changed();
        Ok(())
    }

    fn remove(&mut self, position: Position) {
        let Some(Removed { number, pattern }) = self.rules.remove(position, &mut self.budget) else { return };
        let many = self.change_of_many();
        match &mut self.trees {
            Some(trees) => {
                trees.v4.close_place(position);
                trees.v6.close_place(position);
                let hides = trees.hiding.hides(number);
                trees.hiding.forget(number);
                if hides && trees.show_hidden(&pattern, position, &self.rules, &mut self.budget).is_err() {
                    self.grow_or_scan();
                } else if self.rules.removed() > many {
                    trees.sweep(&mut self.rules);
                }
            }
            None => self.rules.swept(),
        }
        self.changed();
    }

    fn is_worn(&self) -> bool {
        self.takes_longer(REVISED)
    }

    fn copy(&self) -> Box<dyn Updatable> {
        Box::new(self.duplicate())
    }

    fn follow(&mut self, newer: &dyn Updatable, edits: &[Edit]) -> Result<(), TooLarge> {
        match newer.as_any().and_then(|newer| newer.downcast_ref::<UpdatableTree>()) {
            Some(newer) => self.catch_up(newer),
            None => edits.iter().try_for_each(|edit| edit.apply(self)),
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn into_classifier(mut self: Box<Self>) -> Box<dyn Classifier> {
        match self.settled() {
            Some(tree) => Box::new(tree),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests;
