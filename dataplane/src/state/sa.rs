//! Security associations: those that stay keep their numbers and windows over a reload.
//!
//! Their numbers are exported, by the fingerprints of their keys, and raise those of whoever has the same keys: a number is not sent twice, nor
//! one taken twice. Keys are never exported.

use tally::Region;
use wire::Nanos;

use super::{Applying, Item, Part, Plan, Reload};
use crate::import::Refused;
use crate::sa::SasPlan;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// Security associations of a shard.
pub(super) struct Associations;

impl Part for Associations {
    fn name(&self) -> &'static str {
        "sas"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(SasPlan::prepare(reload.old, reload.new, reload.setup.share)))
    }

    /// Security associations, in the order of [`Sas::iter`](crate::sa::Sas::iter).
    fn places(&self, shard: &Shard, _: &Tables) -> u32 {
        shard.sas.records().count() as u32
    }

    fn export(&self, shard: &Shard, _: &Tables, place: u32, _: Nanos) -> Option<Item> {
        shard.sas.records().nth(place as usize).map(Item::Sa)
    }

    fn import(&self, shard: &mut Shard, _: &Tables, item: &Item, _: Nanos) -> Option<Result<(), Refused>> {
        let Item::Sa(record) = item else { return None };
        Some(if shard.sas.raise(record) { Ok(()) } else { Err(Refused::NameGone) })
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.sas.memory_bytes()
    }

    fn regions(&self, shard: &Shard, tables: &Tables) -> Vec<(Region, usize)> {
        if tables.tunnels.is_empty() {
            Vec::new()
        } else {
            vec![(Region::CipherKey, shard.sas.region_bytes())]
        }
    }
}

impl Plan for SasPlan {
    fn apply(&mut self, shard: &mut Shard, applying: &mut Applying<'_>) {
        SasPlan::apply(self, &mut shard.sas, applying.now);
    }
}
