//! Versions of trees: one becomes what another one has become of it, by copying what was written there.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::{Trees, UpdatableTree};
use crate::classify::TooLarge;
use crate::memory::MemoryError;

/// Events of a version that are noted, at least: as many as there are rules, or this. Copying all then takes no longer.
pub(super) const EVENTS: usize = 1024;

/// Identity of a state of rules and trees; each change makes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    /// The identity of a state that nothing had before.
    pub(super) fn new() -> State {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        State(NEXT.fetch_add(1, Relaxed))
    }
}

impl UpdatableTree {
    /// Notes that this is another state.
    pub(super) fn note_change(&mut self) {
        self.state = State::new();
        if self.rules.events() > EVENTS.max(self.rules.numbers.count()) {
            self.base = None;
            self.rules.begin_version();
        }
    }

    /// An independent copy.
    pub(super) fn duplicate(&self) -> UpdatableTree {
        let mut copy = UpdatableTree {
            trees: self.trees.as_ref().and_then(Trees::copy),
            rules: self.rules.clone(),
            base: Some(self.state),
            ..*self
        };
        copy.rules.begin_version();
        // Its lists have no more room than they need.
        copy.budget = self.budget.with(copy.bytes());
        copy
    }

    /// Copies what was written in `newer` since it was what this one is; all, where that is not known.
    ///
    /// # Errors
    /// There is no memory for it; what this one is then is of no use.
    pub(super) fn catch_up(&mut self, newer: &UpdatableTree) -> Result<(), TooLarge> {
        let trees = match (&mut self.trees, &newer.trees) {
            (Some(trees), Some(newer_trees)) if newer.base == Some(self.state) => Some((trees, newer_trees)),
            _ => None,
        };
        let Some((trees, newer_trees)) = trees else {
            *self = newer.duplicate();
            return self.budget.bounds().admit(self.bytes());
        };
        self.budget = newer.budget.with(self.budget.taken());
        self.rules.follow(&newer.rules, &mut self.budget)?;
        trees
            .follow(newer_trees)
            .map_err(|error| TooLarge { needed: error.bytes, bound: self.budget.bounds().memory })?;
        (self.changes, self.age, self.enough, self.chosen) =
            (newer.changes, newer.age, newer.enough, newer.chosen);
        (self.state, self.base) = (newer.state, Some(newer.state));
        self.budget = self.budget.with(self.bytes());
        self.budget.bounds().admit(self.budget.taken())
    }
}

impl Trees {
    /// [`UpdatableTree::catch_up`].
    fn follow(&mut self, newer: &Trees) -> Result<(), MemoryError> {
        self.v4.follow(&newer.v4)?;
        self.v6.follow(&newer.v6)?;
        self.hiding.clone_from(&newer.hiding);
        Ok(())
    }
}
