//! The rules of trees that are changed: patterns by number, and the order of the list.

use std::sync::Arc;

use super::order::Numbers;
use crate::classify::budget::Budget;
use crate::classify::tree::layout::NUMBER;
use crate::classify::{Pattern, Position, TooLarge};

/// Patterns, by number.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) numbers: Numbers,
    /// The pattern of each number; `None` of one that no rule has.
    patterns: Vec<Option<Arc<Pattern>>>,
    /// Numbers to be given again.
    free: Vec<u32>,
    /// Numbers of removed rules that leaves may have still.
    removed: Vec<u32>,
    /// Bytes of the patterns.
    pattern_bytes: usize,
    /// Events since the version before, in their order.
    events: Vec<Event>,
}

/// A rule that was removed.
pub(super) struct Removed {
    /// Its number, which leaves may have until they are [swept](Rules::swept).
    pub(super) number: u32,
    pub(super) pattern: Arc<Pattern>,
}

/// Change of the rules.
#[derive(Clone)]
enum Event {
    Insert { position: Position, pattern: Arc<Pattern> },
    Remove { position: Position },
    Swept,
}

impl Rules {
    /// Rules whose numbers are their positions.
    pub(super) fn new(patterns: impl Iterator<Item = Arc<Pattern>>) -> Rules {
        let patterns: Vec<Option<Arc<Pattern>>> = patterns.map(Some).collect();
        let count = patterns.len();
        Rules {
            numbers: Numbers::new(count),
            pattern_bytes: patterns.iter().flatten().map(|pattern| bytes(pattern)).sum(),
            patterns,
            // Removing is to need no memory.
            free: Vec::with_capacity(count),
            removed: Vec::with_capacity(count),
            events: Vec::new(),
        }
    }

    /// The same rules with numbers that are their positions.
    pub(super) fn renumbered(&self) -> Rules {
        Rules::new(self.numbers.iter().filter_map(|number| self.patterns[number as usize].clone()))
    }

    pub(super) fn pattern(&self, number: u32) -> Option<&Pattern> {
        self.patterns.get(number as usize)?.as_deref()
    }

    /// Becomes what `newer` has become of these rules.
    ///
    /// # Errors
    /// The budget has no memory for that; the rules are of no use any more.
    pub(super) fn follow(&mut self, newer: &Rules, budget: &mut Budget) -> Result<(), TooLarge> {
        for event in &newer.events {
            match event {
                Event::Insert { position, pattern } => {
                    self.insert(*position, pattern, budget)?;
                }
                Event::Remove { position } => {
                    self.remove(*position, budget);
                }
                Event::Swept => self.swept(),
            }
        }
        self.begin_version();
        Ok(())
    }

    /// Begins a version: nothing has happened since.
    pub(super) fn begin_version(&mut self) {
        self.events.clear();
    }

    /// Number of events since the version before.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Patterns in the order of the list.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Pattern> + Clone {
        self.numbers.iter().filter_map(|number| self.pattern(number))
    }

    /// Inserts before what is at `position`, or at the end. Returns the rule's number.
    ///
    /// # Errors
    /// The budget has no memory for it.
    pub(super) fn insert(
        &mut self,
        position: Position,
        pattern: &Arc<Pattern>,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        self.numbers.reserve(budget)?;
        // Removing is to need no memory.
        let numbers = self.patterns.len() + 1;
        let (free, removed) = (self.free.len(), self.removed.len());
        budget.make_room(&mut self.free, numbers - free)?;
        budget.make_room(&mut self.removed, numbers - removed)?;
        if self.free.is_empty() {
            if numbers > NUMBER as usize {
                return Err(TooLarge { needed: usize::MAX, bound: budget.bounds().memory });
            }
            budget.grow(&mut self.patterns)?;
        }
        budget.take(bytes(pattern))?;
        self.pattern_bytes += bytes(pattern);
        let number = self.free.pop().unwrap_or_else(|| {
            self.patterns.push(None);
            self.numbers.new_number()
        });
        self.patterns[number as usize] = Some(pattern.clone());
        self.numbers.insert(position, number);
        self.events.push(Event::Insert { position, pattern: pattern.clone() });
        Ok(number)
    }

    /// Removes what is at a position.
    pub(super) fn remove(&mut self, position: Position, budget: &mut Budget) -> Option<Removed> {
        let number = self.numbers.remove(position)?;
        let pattern = self.patterns[number as usize].take()?;
        self.pattern_bytes -= bytes(&pattern);
        budget.give_back(bytes(&pattern));
        self.removed.push(number);
        self.events.push(Event::Remove { position });
        Some(Removed { number, pattern })
    }

    /// Number of removed rules that leaves may have.
    pub(super) fn removed(&self) -> usize {
        self.removed.len()
    }

    /// No leaf has removed rules any more: their numbers are free.
    pub(super) fn swept(&mut self) {
        self.free.append(&mut self.removed);
        self.events.push(Event::Swept);
    }

    /// Bytes of all its lists, with the room in them.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes()
            + self.patterns.capacity() * size_of::<Option<Arc<Pattern>>>()
            + (self.free.capacity() + self.removed.capacity()) * size_of::<u32>()
            + self.pattern_bytes
    }
}

/// Bytes that a pattern takes, and the counts of who holds it.
fn bytes(pattern: &Pattern) -> usize {
    pattern.bytes() + 2 * size_of::<usize>()
}
