//! Sizes of a gateway's regions and programs: the load on an engine's memories and instruction stores.

use tally::{NoTally, Region};

use crate::pipeline::{self, Entry};
use crate::shard::Shard;
use crate::stage::Packets;
use crate::state::PARTS;
use crate::tables::{Tables, Target};

/// Bytes of each region, by the bounds that the tables state; those that depend on the host (frames and their metadata)
/// or on nothing here (ciphers) are left out.
pub fn regions(tables: &Tables, shard: &Shard) -> Vec<(Region, u64)> {
    let circuits: usize =
        tables.interfaces.iter().map(|interface| size_of_val(interface.circuits.as_slice())).sum();
    let targets = tables.targets.len() * size_of::<Target>();
    let wans = tables.wans.region_bytes() as usize;
    let fibs = tables.fib4.memory_bytes() + tables.fib6.memory_bytes() + tables.vrfs.memory_bytes();
    let routes = fibs + targets + tables.ways.region_bytes() + circuits + wans;
    let searches =
        [&tables.filter.search.classifier, &tables.nat.destination_search, &tables.nat.source_search];
    let rules: u64 = searches.into_iter().map(|search| search.region_bytes()).sum();
    let rules =
        rules + tables.classes.region_bytes() + tables.tunnels.spd.region_bytes() + tables.nat.server_bytes();
    let tables_own = [(Region::RuleTable, rules as usize), (Region::RouteTable, routes)];
    let state = PARTS.iter().flat_map(|part| part.regions(shard, tables));
    tables_own.into_iter().chain(state).map(|(region, bytes)| (region, bytes as u64)).collect()
}

/// Instructions that each stage's code takes in the store of an engine, in the pipeline's order; 0 for stages that the
/// policy does not need.
pub fn programs(tables: &Tables) -> Vec<(&'static str, u32)> {
    let size = |stage: &Entry<NoTally>| match (stage.packets)(tables) {
        Packets::None => 0,
        Packets::First | Packets::Answered | Packets::Every => (stage.program)(tables),
    };
    pipeline::stages().map(|stage| (stage.about.name, size(stage))).collect()
}
