//! Fragments: datagrams under way go on under other limits and conntrack zones (`fragment/reload.rs`).

use tally::Region;
use wire::Frame;

use super::{Applying, Part, Plan, Reload};
use crate::fragment::{FragmentsPlan, Moved};
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;
use crate::verdict::Verdict;

/// Datagrams of which fragments are under way, and the fragments that wait.
pub(super) struct Datagrams;

impl Part for Datagrams {
    fn name(&self) -> &'static str {
        "fragments"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, renumbering, setup } = reload;
        let moved = if renumbering.ct_zones.is_empty() { Moved::None } else { Moved::Some };
        let plan = FragmentsPlan::prepare(old, new, setup.seed, moved).map_err(ShardError::Memory)?;
        Ok(Box::new(plan))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.fragments.bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::FragmentTable, shard.fragments.bytes())]
    }
}

impl Plan for FragmentsPlan {
    /// Frames that cannot go on are released, to be dropped.
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        let Shard { fragments, released, .. } = shard;
        let renumbering = reload.renumbering;
        let give = |mut frame: Frame, reason| {
            frame.meta.fate = Verdict::Dropped(reason).to_fate();
            released.push_back(frame);
        };
        let keep = |frame: &mut Frame| renumbering.carry(&mut frame.meta);
        fragments.apply(self, keep, |ct_zone| renumbering.ct_zone(ct_zone), give);
    }
}
