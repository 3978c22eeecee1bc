//! Port mappings: they go on where the policy still allows them and their outside address stays, and outlive the process.

use tally::Region;
use wire::Nanos;

use super::{Applying, Item, Part, Plan, PortMappingRecord, Reload};
use crate::import::Refused;
use crate::nat::{MappingId, Restore};
use crate::port_mapping::PortMappings;
use crate::shard::{Shard, ShardError};
use crate::tables::{Tables, VrfNumber};

/// Outside ports that hosts have asked for.
pub(super) struct Requested;

/// Reload of port mappings: memory for those of the new tables, and that of the old ones once applied.
struct RequestedPlan {
    memory: PortMappings,
}

impl Part for Requested {
    fn name(&self) -> &'static str {
        "port mappings"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        Ok(Box::new(RequestedPlan { memory: PortMappings::new(reload.new, reload.setup.seed[0]) }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        shard.port_mappings.memory_bytes()
    }

    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        // Looked at by first packets that a mapping leads to alone.
        Vec::new()
    }

    fn places(&self, shard: &Shard, _: &Tables) -> u32 {
        shard.port_mappings.len()
    }

    fn export(&self, shard: &Shard, tables: &Tables, place: u32, now: Nanos) -> Option<Item> {
        let (mapping, id) = shard.port_mappings.at(place, &shard.mappings)?;
        let left = mapping.until.map(|until| until.since(now));
        let record = shard.mapping_record(tables, id.0)?;
        let record = PortMappingRecord { mapping: record, left, holder: mapping.holder };
        (left != Some(Nanos(0))).then_some(Item::PortMapping(record))
    }

    fn import(
        &self,
        shard: &mut Shard,
        tables: &Tables,
        item: &Item,
        now: Nanos,
    ) -> Option<Result<(), Refused>> {
        let Item::PortMapping(record) = item else { return None };
        Some(take_in(shard, tables, record, now))
    }
}

/// Takes in a mapping, unless it is over.
fn take_in(
    shard: &mut Shard,
    tables: &Tables,
    record: &PortMappingRecord,
    now: Nanos,
) -> Result<(), Refused> {
    if record.left == Some(Nanos(0)) {
        return Ok(());
    }
    let nat = record.mapping.nat.ok_or(Refused::NameGone)?;
    let spec = tables.nat.port_mappings.iter().find(|spec| spec.source == nat).ok_or(Refused::NameGone)?;
    if !spec.allows(record.holder.by, record.mapping.outside.port) {
        return Err(Refused::NameGone);
    }
    if !shard.has_room_for_port_mapping(&record.mapping.inside) {
        return Err(Refused::TableFull);
    }
    let mapping = MappingId(shard.import_mapping(tables, VrfNumber::DEFAULT, Some(record.mapping))?);
    let until = record.left.map(|left| Nanos(now.0.saturating_add(left.0)));
    shard.restore_port_mapping(mapping, until, record.holder);
    Ok(())
}

impl Shard {
    /// The NAT mapping of a port mapping that a second gateway has told of, with a reference.
    ///
    /// # Errors
    /// [`Restore`]; nothing is changed.
    pub(crate) fn import_port_mapping(
        &mut self,
        tables: &Tables,
        record: &PortMappingRecord,
    ) -> Result<MappingId, Restore> {
        match self.import_mapping(tables, VrfNumber::DEFAULT, Some(record.mapping)) {
            Ok(mapping) => Ok(MappingId(mapping)),
            Err(Refused::Mapping(reason)) => Err(reason),
            // Without a translation there is no pool with the address.
            Err(_) => Err(Restore::AddressGone),
        }
    }
}

impl Plan for RequestedPlan {
    fn apply(&mut self, shard: &mut Shard, reload: &mut Applying<'_>) {
        self.memory.take_over(shard, reload.tables);
        std::mem::swap(&mut shard.port_mappings, &mut self.memory);
    }
}
