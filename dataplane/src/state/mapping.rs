//! Translations: mappings go on where their pool does (`nat/mapping/reload.rs`), and outlive the process with their flows.

use tally::{NoTally, Region};

use super::{Applying, MappingRecord, Part, Plan, Reload};
use crate::import::Refused;
use crate::nat::{
    BlockChange, BlockEvent, Endpoint, MappingId, Mappings, PoolId, PoolsPlan, Restore, RetiredPools,
};
use crate::shard::{NOTHING, Shard, ShardError, most_mappings};
use crate::tables::{Tables, VrfNumber};

/// Mappings of source translations.
pub(super) struct Translations;

/// Reload of mappings.
struct MappingsPlan {
    /// Memory for mappings, where none was needed so far.
    fresh: Option<Box<Mappings>>,
    /// The new pools, until they are applied.
    pools: Option<PoolsPlan>,
    /// Memory that is no longer needed, once they are.
    retired: RetiredPools,
}

impl Part for Translations {
    fn name(&self) -> &'static str {
        "translations"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, renumbering, setup } = reload;
        let (before, after, share) = (&old.nat.pools, &new.nat.pools, setup.share);
        let fresh = if before.is_empty() && !after.is_empty() {
            let mappings = Mappings::new(most_mappings(new), &[], setup.seed, share);
            Some(Box::new(mappings.map_err(ShardError::Nat)?))
        } else {
            None
        };
        let pools = PoolsPlan::prepare(before, after, renumbering.pools_were.clone(), share);
        let pools = Some(pools.map_err(ShardError::Nat)?);
        Ok(Box::new(MappingsPlan { fresh, pools, retired: RetiredPools::default() }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.mappings.memory_bytes()
    }

    fn regions(&self, shard: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        vec![(Region::NatTable, shard.mappings.memory_bytes())]
    }
}

impl Plan for MappingsPlan {
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        if let Some(fresh) = self.fresh.as_deref_mut() {
            if shard.mappings.is_empty() && shard.mappings.capacity() < fresh.capacity() {
                std::mem::swap(&mut shard.mappings, fresh);
            }
        }
        let Some(pools) = self.pools.take() else { return };
        if !shard.mappings.has_places_for(&pools) {
            shard.clear_flows();
        }
        self.retired = shard.mappings.apply(pools);
        for block in &self.retired.ended {
            shard.note_block(BlockEvent { change: BlockChange::Freed, block: *block });
        }
    }
}

/// The items of mappings are in those of their flows.
impl Shard {
    pub(super) fn mapping_record(&self, tables: &Tables, id: u32) -> Option<MappingRecord> {
        if id == NOTHING {
            return None;
        }
        let mapping = self.mappings.get(MappingId(id))?;
        let owner = mapping.pool.and_then(|pool| tables.nat.owners.get(usize::from(pool.0)));
        let nat = owner.map(|owner| owner.source);
        Some(MappingRecord { nat, inside: mapping.inside, outside: mapping.outside })
    }

    /// The number of a mapping of a host in a VRF made again, which it holds.
    pub(super) fn import_mapping(
        &mut self,
        tables: &Tables,
        vrf: VrfNumber,
        record: Option<MappingRecord>,
    ) -> Result<u32, Refused> {
        let Some(record) = record else { return Ok(NOTHING) };
        let nat = record.nat.ok_or(Refused::NameGone)?;
        let outside = record.outside.ip();
        let pools = tables.nat.pools.iter().zip(&tables.nat.owners).zip(0..);
        let mut own = pools.filter(|((pool, owner), _)| owner.source == nat && pool.has(outside));
        let pool =
            own.next().map(|(_, place)| PoolId(place)).ok_or(Refused::Mapping(Restore::AddressGone))?;
        let inside = Endpoint { vrf, ..record.inside };
        let mapping = self.mappings.restore(pool, inside, record.outside).map_err(Refused::Mapping)?;
        Ok(mapping.0)
    }

    /// The VRF of the host of a mapping by which a flow is let in from outside: that of the mapping which the host has by now. Only where
    /// there is one VRF the host need have none.
    ///
    /// # Errors
    /// The host has no such mapping.
    pub(super) fn vrf_of_inward(
        &self,
        tables: &Tables,
        record: Option<MappingRecord>,
    ) -> Result<VrfNumber, Refused> {
        let Some(record) = record.filter(|_| !tables.vrfs.is_empty()) else { return Ok(VrfNumber::DEFAULT) };
        let known = self.mappings.inside_of(&record.outside, &mut NoTally);
        known.map(|(_, inside)| inside.vrf).ok_or(Refused::NameGone)
    }

    /// Gives back a mapping that was imported.
    pub(super) fn release(&mut self, mapping: u32) {
        if mapping != NOTHING {
            self.mappings.release(MappingId(mapping), &mut NoTally);
            // Nobody has been told that the block was taken, either.
            while self.mappings.take_block_event().is_some() {}
        }
    }
}
