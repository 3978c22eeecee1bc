//! Neighbours: next hops are made anew by a reload, with the neighbours that the policy names and those that the host updates.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::hop::{Hops, TooMany, Wanted};
use crate::shard::{NEIGHBOURS, Shard, ShardError, most_released};
use crate::tables::{Neighbour, Tables};
use crate::verdict::Verdict;

/// Next hops, and the frames pending for neighbours.
pub(super) struct Neighbours;

impl Part for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let hops = Hops::new(reload.new, reload.setup.resolve, NEIGHBOURS).map_err(ShardError::Memory)?;
        Ok(Box::new(hops))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.hops.memory_bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::HopTable, shard.hops.region_bytes())]
    }
}

impl Plan for Hops {
    /// Frames pending for neighbours are released, as their route may be another.
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        shard.resume_all();
        std::mem::swap(&mut shard.hops, self);
        shard.sas.forget_ways();
        // What is about to go through comes from interfaces that may have other places now, or none.
        let room = most_released(reload.tables);
        shard.released.reserve(room.saturating_sub(shard.released.len()));
        for frame in &mut shard.released {
            if let Err(reason) = reload.renumbering.carry(&mut frame.meta) {
                frame.meta.fate = Verdict::Dropped(reason).to_fate();
            }
        }
    }

    fn update_neighbour(&mut self, tables: &Tables, neighbour: &Neighbour) -> Result<(), TooMany> {
        let Neighbour { interface, address, mac } = *neighbour;
        self.update(tables, Wanted { interface, address }, mac)
    }
}
