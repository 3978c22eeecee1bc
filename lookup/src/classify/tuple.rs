//! Tuple-space search: hash tables by the lengths of prefixes, merged so that few of them are asked.
//!
//! After Srinivasan et al. (Packet Classification Using Tuple Space Search, SIGCOMM 1999) and Daly et al. (TupleMerge: Fast
//! Software Packet Processing for Online Packet Classification, IEEE/ACM Transactions on Networking 2019). A pattern is
//! looked for where its prefixes lead: by the hash of source, destination and ports, cut to a table's lengths. A table
//! takes patterns of longer prefixes than its own, too, until too many have one hash; those go to a table of their own
//! lengths. Tables are asked in the order of their best patterns, until none can be better.
//!
//! Exact for every pattern: ranges and sets are looked for at each of their prefixes, and patterns without such a form
//! are asked themselves. The classifier can be changed pattern by pattern.

use std::sync::Arc;

use tally::Tally;
use wire::Family;

use self::cover::Cover;
use self::space::{GROUP, Rules, Space};
use self::table::NONE;
use super::budget::Budget;
use super::field::Field;
use super::update::Updatable;
use super::{Bounds, Classifier, Header, NO_MATCH, Pattern, Position, TooLarge};

mod account;
mod cover;
mod sieve;
mod space;
mod table;

/// Patterns in hash tables.
#[derive(Clone)]
pub struct Tuple {
    v4: Space<u32>,
    v6: Space<u128>,
    list: List,
    budget: Budget,
}

/// The patterns in their order. A rule keeps its number as others come and go.
#[derive(Clone)]
struct List {
    /// Numbers by position.
    order: Vec<u32>,
    /// Positions by number.
    positions: Vec<Position>,
    /// Rules, by number.
    rules: Vec<Rule>,
    /// The first number that is free; [`Rule::v4`] leads to more.
    free: u32,
}

/// A pattern, and the last of its entries in each family.
#[derive(Clone)]
struct Rule {
    /// The pattern; `None` where the number is free.
    pattern: Option<Arc<Pattern>>,
    v4: u32,
    v6: u32,
}

impl Rules for List {
    #[inline(always)]
    fn position(&self, rule: u32) -> Position {
        self.positions[rule as usize]
    }

    #[inline(always)]
    fn matches(&self, rule: u32, header: &Header) -> bool {
        self.rules[rule as usize].pattern.as_ref().is_some_and(|pattern| pattern.matches(header))
    }
}

impl Tuple {
    /// Puts the patterns into tables.
    ///
    /// # Errors
    /// The tables would take more memory than `bounds` admits.
    pub fn new(patterns: &[Pattern], bounds: Bounds) -> Result<Tuple, TooLarge> {
        let list = List { order: Vec::new(), positions: Vec::new(), rules: Vec::new(), free: NONE };
        let mut tuple = Tuple { v4: Space::new(), v6: Space::new(), list, budget: Budget::new(bounds) };
        for (position, pattern) in (0..).zip(patterns) {
            tuple.insert(position, pattern)?;
        }
        tuple.v4.put_in_order(&tuple.list, &mut tuple.budget);
        tuple.v6.put_in_order(&tuple.list, &mut tuple.budget);
        Ok(tuple)
    }

    /// Bytes of all its lists, with the room in them.
    fn bytes(&self) -> usize {
        let List { order, positions, rules, .. } = &self.list;
        let patterns = rules.iter().filter_map(|rule| rule.pattern.as_deref()).map(bytes).sum::<usize>();
        self.v4.bytes()
            + self.v6.bytes()
            + order.capacity() * size_of::<u32>()
            + positions.capacity() * size_of::<Position>()
            + rules.capacity() * size_of::<Rule>()
            + patterns
    }
}

impl List {
    /// Gives a pattern a number, and a place in the list.
    fn insert(
        &mut self,
        position: Position,
        pattern: &Pattern,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        budget.grow(&mut self.order)?;
        if self.free == NONE {
            budget.grow(&mut self.positions)?;
            budget.grow(&mut self.rules)?;
        }
        budget.take(bytes(pattern))?;
        let rule = Rule { pattern: Some(Arc::new(pattern.clone())), v4: NONE, v6: NONE };
        let number = if self.free == NONE {
            self.rules.push(rule);
            self.positions.push(Position::MAX);
            self.rules.len() as u32 - 1
        } else {
            let number = self.free;
            self.free = std::mem::replace(&mut self.rules[number as usize], rule).v4;
            number
        };
        let place = (position as usize).min(self.order.len());
        if place < self.order.len() {
            for later in &mut self.positions {
                *later += Position::from(*later >= position && *later != Position::MAX);
            }
        }
        self.order.insert(place, number);
        self.positions[number as usize] = place as Position;
        Ok(number)
    }

    fn remove(&mut self, position: Position, budget: &mut Budget) {
        let number = self.order.remove(position as usize);
        self.positions[number as usize] = Position::MAX;
        for later in &mut self.positions {
            *later -= Position::from(*later > position && *later != Position::MAX);
        }
        let gone = Rule { pattern: None, v4: self.free, v6: NONE };
        self.free = number;
        let gone = std::mem::replace(&mut self.rules[number as usize], gone);
        budget.give_back(gone.pattern.as_deref().map_or(0, bytes));
    }
}

/// Bytes that a pattern takes, and the counts of who holds it.
fn bytes(pattern: &Pattern) -> usize {
    pattern.bytes() + 2 * size_of::<usize>()
}

impl Classifier for Tuple {
    fn classify(&self, header: &Header) -> Option<Position> {
        let found = match header.family {
            Family::V4 => self.v4.find(header, &self.list),
            Family::V6 => self.v6.find(header, &self.list),
            Family::Other => NO_MATCH,
        };
        (found != NO_MATCH).then_some(found)
    }

    fn classify_bulk(&self, headers: &[Header], positions: &mut [Position]) {
        for (headers, positions) in headers.chunks(GROUP).zip(positions.chunks_mut(GROUP)) {
            let of = |family| {
                headers.iter().rev().fold(0, |set, header| set << 1 | u32::from(header.family == family))
            };
            let (v4, v6) = (of(Family::V4), of(Family::V6));
            positions.fill(NO_MATCH);
            if v4 != 0 {
                self.v4.find_group(headers, v4, positions, &self.list);
            }
            if v6 != 0 {
                self.v6.find_group(headers, v6, positions, &self.list);
            }
        }
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        let found = match header.family {
            Family::V4 => account::find(&self.v4, header, &self.list, 0, tally),
            Family::V6 => account::find(&self.v6, header, &self.list, account::region_bytes(&self.v4), tally),
            Family::Other => NO_MATCH,
        };
        (found != NO_MATCH).then_some(found)
    }

    fn memory_bytes(&self) -> usize {
        self.bytes()
    }

    fn region_bytes(&self) -> u64 {
        (account::region_bytes(&self.v4) + account::region_bytes(&self.v6)) as u64
    }

    fn program(&self) -> u32 {
        account::PROGRAM
    }

    fn to_updatable(&self, _: &[Pattern]) -> Option<Box<dyn Updatable>> {
        Some(self.copy())
    }
}

impl Updatable for Tuple {
    fn count(&self) -> usize {
        self.list.order.len()
    }

    fn pattern(&self, position: Position) -> Option<&Pattern> {
        let number = *self.list.order.get(position as usize)?;
        self.list.rules[number as usize].pattern.as_deref()
    }

    fn keep_within(&mut self, bounds: Bounds) -> Result<(), TooLarge> {
        self.budget.keep_within(bounds)
    }

    fn insert(&mut self, position: Position, pattern: &Pattern) -> Result<(), TooLarge> {
        let Tuple { v4, v6, list, budget } = self;
        let number = list.insert(position, pattern, budget)?;
        let position = list.position(number);
        v4.make_place(position);
        v6.make_place(position);
        let mut put = || {
            if let Some(cover) = Cover::new(Field::Source4, Field::Destination4, pattern) {
                list.rules[number as usize].v4 = v4.insert(number, pattern, &cover, &*list, budget)?;
            }
            if let Some(cover) = Cover::new(Field::Source6, Field::Destination6, pattern) {
                list.rules[number as usize].v6 = v6.insert(number, pattern, &cover, &*list, budget)?;
            }
            Ok(())
        };
        let done = put();
        if done.is_err() {
            self.remove(position);
        }
        done
    }

    fn remove(&mut self, position: Position) {
        let Tuple { v4, v6, list, budget } = self;
        let Some(rule) = list.order.get(position as usize).map(|number| &list.rules[*number as usize]) else {
            return;
        };
        v4.remove(rule.v4, &*list, budget);
        v6.remove(rule.v6, &*list, budget);
        list.remove(position, budget);
        v4.close_place(position);
        v6.close_place(position);
    }

    fn copy(&self) -> Box<dyn Updatable> {
        let mut copy = self.clone();
        // Its lists have no more room than they need.
        copy.budget = self.budget.with(copy.bytes());
        Box::new(copy)
    }

    fn into_classifier(self: Box<Self>) -> Box<dyn Classifier> {
        self
    }
}

#[cfg(test)]
mod tests;
