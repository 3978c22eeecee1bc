//! State of the gateway's own packets: IPv4 identification, and token debt under the bounds on answers.

use tally::Region;
use wire::Nanos;

use super::{Applying, Item, OwnRecord, Part, Plan, Reload};
use crate::import::Refused;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// The part of a shard for the gateway's own packets.
pub(super) struct Own;

/// Reload: nothing of it depends on tables.
struct Unchanged;

impl Part for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn prepare(&self, _: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(Unchanged))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        size_of_val(&shard.next_id)
    }

    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }

    fn places(&self, _: &Shard, _: &Tables) -> u32 {
        1
    }

    fn export(&self, shard: &Shard, _: &Tables, _: u32, now: Nanos) -> Option<Item> {
        Some(Item::Own(OwnRecord { next_id: shard.next_id, errors: shard.limiter.errors_owed(now) }))
    }

    fn import(&self, shard: &mut Shard, _: &Tables, item: &Item, now: Nanos) -> Option<Result<(), Refused>> {
        let Item::Own(own) = item else { return None };
        shard.next_id = own.next_id;
        shard.limiter.add_error_debt(own.errors, now);
        Some(Ok(()))
    }
}

impl Plan for Unchanged {
    fn apply(&mut self, _: &mut Shard, _: &mut Applying<'_>) {}
}
