//! Traffic meters: buckets stay with a meter that is the same under the same name. A process that begins again begins with full
//! ones: at most a burst passes that would not have.

use policy::model::Meter;
use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::meter::Meters;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// Buckets of meters.
pub(super) struct Buckets;

/// Reload of meters.
struct MetersPlan {
    meters: Meters,
    /// Places of the same meters in the old tables.
    were: Vec<Option<u16>>,
}

impl Part for Buckets {
    fn name(&self) -> &'static str {
        "meters"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, setup, .. } = reload;
        let was = |meter: &Meter| {
            let place = old.classes.meters.iter().position(|old| old == meter)?;
            u16::try_from(place).ok()
        };
        let were = new.classes.meters.iter().map(was).collect();
        Ok(Box::new(MetersPlan { meters: Meters::new(new, setup.share, setup.now), were }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        size_of::<Meters>() + shard.meters.memory_bytes()
    }

    /// Meters lie in one memory with limits, which have no places that a stage would tell.
    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }
}

impl Plan for MetersPlan {
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        self.meters.continue_from(&mut shard.meters, &self.were);
        std::mem::swap(&mut shard.meters, &mut self.meters);
    }
}
