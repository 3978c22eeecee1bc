//! Updates of processing between two turns: other tables, neighbour updates, and the restart after a panic.

use std::mem::replace;
use std::sync::Arc;

use dataplane::flow::{Member, SteeringTable};
use dataplane::reload::{Applied, OutOfTurn, ReloadPlan};
use dataplane::shard::ShardError;
use dataplane::tables::{Address, Tables};
use dataplane::{Pipeline, Shard};
use wire::{Nanos, PortId};

use super::command::Found;
use super::processing::Processing;

impl Processing {
    /// Applies the plan of a reload to the shard. Frames and log records that end by it are of the tables of before.
    ///
    /// # Errors
    /// Plan from other tables than those in force.
    pub(super) fn apply(
        &mut self,
        plan: ReloadPlan,
        tables: &Tables,
        now: Nanos,
    ) -> Result<Applied, OutOfTurn> {
        self.shard.apply(plan, tables, now, &mut self.ended)
    }

    /// Switches to the tables of a plan that was applied. Returns those of before.
    pub(super) fn follow(&mut self, tables: Arc<Tables>) -> Arc<Tables> {
        self.shard.log.follow(&tables);
        self.shard.accounting.follow(&tables);
        replace(&mut self.tables, tables)
    }

    /// Joins the workers that share a flow steering table.
    pub(super) fn join(&mut self, steering: Arc<SteeringTable>) {
        self.shard.join(Member { steering, worker: self.setup.share.worker() });
    }

    /// Applies a neighbour update.
    pub(super) fn update_neighbour(&mut self, interface: PortId, address: Address, found: Found) {
        let tables = &self.tables;
        match found {
            // One more than there is room for stays unknown: packets to it are answered so.
            Found::At(mac) => {
                let _ = self.shard.update_neighbour(tables, interface, address, mac);
            }
            Found::Forgotten => self.shard.remove_neighbour(tables, interface, address),
            Found::Nowhere => self.shard.neighbour_unreachable(tables, interface, address),
        }
    }

    /// Restarts with an empty shard, which records nothing.
    ///
    /// # Errors
    /// No memory for the shard.
    pub(super) fn restart(&mut self, now: Nanos) -> Result<(), ShardError> {
        self.setup.now = now;
        while let Some(frame) = self.batch.pop() {
            self.pool.put(frame);
        }
        self.ended.drain(..).for_each(drop);
        let (member, clients) = (self.shard.flows.member().cloned(), self.shard.clients.clone());
        self.shard = Shard::new(&self.tables, self.setup)?;
        self.shard.clients = clients;
        if let Some(member) = member {
            self.shard.join(member);
        }
        self.pipeline = Pipeline::default();
        Ok(())
    }
}
