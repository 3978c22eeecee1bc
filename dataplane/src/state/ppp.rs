//! PPP sessions: one goes on where its interface keeps its carrier, addresses and keys; all others end, and begin anew.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::ppp::Sessions;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// PPP sessions.
pub(super) struct Links;

impl Part for Links {
    fn name(&self) -> &'static str {
        "ppp"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(Sessions::new(reload.new, &reload.setup)))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.sessions.memory_bytes()
    }

    /// Control packets go their own way, which no chip is asked about.
    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }
}

impl Plan for Sessions {
    /// Behind neighbours, whose hops are closed anew: they follow at the next batch.
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        self.continue_from(&mut shard.sessions);
        std::mem::swap(&mut shard.sessions, self);
        shard.follow_sessions(reload.tables);
    }
}
