//! Operations on sets, with a limit on their cost.

use std::sync::atomic::{AtomicBool, Ordering};

use biodivine_lib_bdd::{Bdd, BddVariableSet, op_function};
use lookup::classify::bdd::field::Version;

/// Limit on the work of an analysis: nodes that operations look at or make. Ten million take about a quarter of a second.
#[derive(Clone, Copy, Debug)]
pub struct Effort<'a> {
    nodes: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Effort<'a> {
    /// For an answer that somebody waits for: a second or two.
    pub const QUICK: Effort<'static> = Effort::of(40_000_000);

    /// For an answer that is worth minutes.
    pub const THOROUGH: Effort<'static> = Effort::of(8_000_000_000);

    /// Effort of this number of nodes.
    pub const fn of(nodes: u64) -> Effort<'static> {
        Effort { nodes, stop: None }
    }

    /// The same effort, spent as soon as `stop` is set.
    #[must_use]
    pub fn until(self, stop: &'a AtomicBool) -> Effort<'a> {
        Effort { stop: Some(stop), ..self }
    }

    /// Number of nodes.
    pub(super) fn nodes(self) -> u64 {
        self.nodes
    }

    /// One of so many equal parts.
    pub(super) fn share(self, parts: usize) -> Effort<'a> {
        Effort { nodes: self.nodes / parts.max(1) as u64, ..self }
    }
}

/// Error: the effort is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// The most nodes of one set: 10 MB.
const LARGEST: usize = 1 << 20;

/// Pairs of rules are compared so many times as fast as nodes are made.
pub(super) const PAIRS_PER_NODE: u64 = 8;

/// Cost of an operation besides its nodes.
const OPERATION: u64 = 20;

/// Sets of headers, and the effort that is left.
pub(super) struct Algebra<'a> {
    left: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Algebra<'a> {
    pub(super) fn new(effort: Effort<'a>) -> Algebra<'a> {
        Algebra { left: effort.nodes, stop: effort.stop }
    }

    /// Sets all but a part of the effort aside, until [`Algebra::take_back`]: how much that is.
    pub(super) fn set_aside(&mut self, part: u64) -> u64 {
        let aside = self.left.saturating_sub(part);
        self.left -= aside;
        aside
    }

    /// True if there is no effort left.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0 || self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(super) fn take_back(&mut self, aside: u64) {
        self.left += aside;
    }

    pub(super) fn nothing(version: Version) -> Bdd {
        BddVariableSet::new_anonymous(version.bits()).mk_false()
    }

    /// Takes what work costs.
    pub(super) fn spend(&mut self, cost: u64) -> Result<(), Spent> {
        let left = self.left.checked_sub(cost).filter(|_| !self.is_stopped());
        self.left = left.ok_or_else(|| {
            self.left = 0;
            Spent
        })?;
        Ok(())
    }

    pub(super) fn both(&mut self, one: &Bdd, other: &Bdd) -> Result<Bdd, Spent> {
        self.apply(one, other, op_function::and)
    }

    pub(super) fn either(&mut self, one: &Bdd, other: &Bdd) -> Result<Bdd, Spent> {
        self.apply(one, other, op_function::or)
    }

    pub(super) fn without(&mut self, one: &Bdd, other: &Bdd) -> Result<Bdd, Spent> {
        self.apply(one, other, op_function::and_not)
    }

    /// True if there is a header in both.
    pub(super) fn meet(&mut self, one: &Bdd, other: &Bdd) -> Result<bool, Spent> {
        let checked = Bdd::check_binary_op(LARGEST, one, other, op_function::and);
        let (meet, steps) = checked.ok_or(Spent)?;
        self.spend(OPERATION + steps as u64)?;
        Ok(meet)
    }

    fn apply(
        &mut self,
        one: &Bdd,
        other: &Bdd,
        operation: impl Fn(Option<bool>, Option<bool>) -> Option<bool>,
    ) -> Result<Bdd, Spent> {
        let result = Bdd::binary_op_with_limit(LARGEST, one, other, operation).ok_or(Spent)?;
        self.spend(OPERATION + (one.size() + other.size() + result.size()) as u64)?;
        Ok(result)
    }
}
