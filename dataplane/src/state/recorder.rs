//! Packets that the drop recorder remembers: they stay over a reload, and never leave the process with the state.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::recorder::RecorderPlan;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// Recorded packets.
pub(super) struct Records;

impl Part for Records {
    fn name(&self) -> &'static str {
        "drop record"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(RecorderPlan::new(reload.old, reload.new, reload.renumbering)))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.recorder.memory_bytes()
    }

    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }
}

impl Plan for RecorderPlan {
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        RecorderPlan::apply(self, shard, reload.renumbering);
    }
}
