//! Reload: new tables replace those that a shard works with, while it works.
//!
//! Another thread [prepares](ReloadPlan::prepare) a reload plan: it renumbers what both tables name, and allocates the memory that
//! the new ones need. The worker [applies](Shard::apply) it between two batches, once what came out of the last one has been taken
//! away. That takes as long as rules, translations, interfaces, outside addresses and fragments are many, not flows: the
//! flows of before are of an earlier epoch from then on, and each is revalidated at its next packet (`stage/revalidate.rs`).
//!
//! State that survives a reload, by name:
//! - counters of rules and translations; those of names that are gone go into sums ([`Gone`](crate::counter::Gone));
//! - pools of a translation (of a masquerade: for each interface) with their hosts and mappings, whatever else about them
//!   has changed, and outside addresses by their value; a pool with blocks only as it is, as blocks are owned by
//!   arithmetic;
//! - token debts under a rate, if name and rate are the same; counts of connections with the name;
//! - queues and links of ports. Frames that wait for one that is gone are dropped ([`Reason::InterfaceGone`](crate::Reason::InterfaceGone));
//! - datagrams under way, where the interfaces that they may come by are still the same.
//!
//! Next hops are made anew, with the neighbours that the policy names; a host that knows others updates the plan
//! ([`ReloadPlan::update_neighbours`]), or the shard afterwards ([`Shard::replace_neighbours`]). Frames pending for neighbours are released, as their route may be
//! another: they go through at the next batch or [`Pipeline::tend`](crate::Pipeline::tend).
//!
//! Limits hold at once, but for these:
//! - another number of `flows`, or another `mode`, means other memory: all flows are taken over one by one, while the worker
//!   stands still, for about a second where there are a million (and twice the memory is in use until then). What does
//!   not fit any more is refused as when state is [imported](crate::state), and counted there;
//! - a shorter `timeout` ends flows that are over by it at their next packet, and gives their memory back within 512
//!   seconds;
//! - `queue`: a shorter queue keeps what waits in it;
//! - `flows-per-source` and `connections` are for those that come: flows that exist are counted, not ended.

use std::sync::Arc;

use wire::{Frame, Nanos};

use crate::hop::TooMany;
use crate::import::Imports;
use crate::shard::{Setup, Shard, ShardError};
use crate::state::{Applying, PARTS, Plan, Reload};
use crate::tables::{MulticastRoutes, Neighbour, Renumbering, Tables};

/// Reload plan for one shard: the renumbering, and the prepared parts.
pub struct ReloadPlan {
    from: u16,
    to: u16,
    renumbering: Renumbering,
    parts: Vec<Box<dyn Plan>>,
}

/// Result of a reload.
pub struct Applied {
    /// Flows that were taken over into other memory, and those that could not be; none where that was not needed.
    pub carried: Imports,
    /// Retired state of the shard: freeing its memory may take longer than all else.
    _retired: Vec<Box<dyn Plan>>,
    _multicast: Option<Arc<MulticastRoutes>>,
}

/// Reason for refusing to prepare a reload.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The new tables were not made as those after the old ones ([`Tables::after`]).
    #[error("the new tables do not follow the old ones")]
    NotNext,
    /// Memory or pools that it would take.
    #[error(transparent)]
    Shard(#[from] ShardError),
}

/// The plan is for a shard that works with other tables, or leads to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reload plan is not from the tables that the shard works with to those given")]
pub struct OutOfTurn;

impl ReloadPlan {
    /// Prepares the reload from `old`, the tables that a shard works with, to `new`, made by [`Tables::after`]. `setup` is
    /// the shard's, with the current time.
    ///
    /// # Errors
    /// The tables are not those, or the system has not enough memory.
    pub fn prepare(old: &Tables, new: &Tables, setup: Setup) -> Result<ReloadPlan, PlanError> {
        if !new.follows(old) {
            return Err(PlanError::NotNext);
        }
        let renumbering = Renumbering::new(old, new);
        let reload = Reload { old, new, renumbering: &renumbering, setup };
        let parts = PARTS.iter().map(|part| part.prepare(&reload)).collect::<Result<_, _>>()?;
        Ok(ReloadPlan { from: old.epoch, to: new.epoch, parts, renumbering })
    }

    /// Updates neighbours, while there is time. `tables` are the new ones.
    ///
    /// # Errors
    /// Some stay unknown: there are more than there is room for.
    pub fn update_neighbours(&mut self, tables: &Tables, neighbours: &[Neighbour]) -> Result<(), TooMany> {
        let mut updates = neighbours.iter();
        updates.try_for_each(|neighbour| {
            self.parts.iter_mut().try_for_each(|part| part.update_neighbour(tables, neighbour))
        })
    }
}

impl Shard {
    /// Works with `tables` from now on, as `plan` has prepared. Frames that end by it are put behind `ended`, as
    /// [`Pipeline::run`](crate::Pipeline::run) does; those of them that were held end with the next batch, or when the shard
    /// is next tended.
    ///
    /// # Errors
    /// [`OutOfTurn`]: it is not for this; nothing is changed.
    pub fn apply(
        &mut self,
        mut plan: ReloadPlan,
        tables: &Tables,
        now: Nanos,
        ended: &mut Vec<Frame>,
    ) -> Result<Applied, OutOfTurn> {
        if plan.from != self.flows.epoch() || plan.to != tables.epoch {
            return Err(OutOfTurn);
        }
        self.sweep_all_published(now);
        self.fast_path.take_all_back();
        let renumbering = &plan.renumbering;
        let mut reload = Applying { tables, renumbering, now, ended, carried: Imports::default() };
        for part in &mut plan.parts {
            part.apply(self, &mut reload);
        }
        for part in &mut plan.parts {
            part.finish(self, &mut reload);
        }
        let (carried, multicast) = (reload.carried, self.multicast.take());
        Ok(Applied { carried, _retired: plan.parts, _multicast: multicast })
    }
}
