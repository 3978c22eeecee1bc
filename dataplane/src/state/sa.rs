//! Security associations: those that stay keep their numbers and windows over a reload.
//!
//! Nothing is exported: keys and numbers of a policy's own security associations end with the process, which no live gateway has.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
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
        Ok(Box::new(SasPlan::prepare(reload.old, reload.new)))
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
