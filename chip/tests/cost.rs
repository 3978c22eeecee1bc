//! Costs of configurations, against sums by hand.

#![allow(clippy::unwrap_used)]

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::cost::Cost;
use chip::description::{self, Chip};
use chip::mapping::{self, Extent, Mapping};
use tally::Region;
use wire::Bytes;

fn shipped(chip: &str, mapping: &str, settings: &[(&str, &str)]) -> (Chip, Mapping) {
    let mut texts = [named(CHIPS, chip).unwrap().to_owned(), named(MAPPINGS, mapping).unwrap().to_owned()];
    for (path, value) in settings {
        match description::set(&texts[0], path, value) {
            Ok(set) => texts[0] = set,
            Err(_) => texts[1] = mapping::set(&texts[1], path, value).unwrap(),
        }
    }
    let chip = description::parse(&texts[0], "chip").chip.unwrap();
    let mapping = mapping::parse(&texts[1], "mapping", &chip).mapping.unwrap();
    (chip, mapping)
}

fn cost(chip: &str, mapping: &str, settings: &[(&str, &str)]) -> Cost {
    let (chip, mapping) = shipped(chip, mapping, settings);
    let extents = [
        Extent { region: Region::RuleTable, bytes: 1_000 },
        Extent { region: Region::FlowTable, bytes: 50_000 },
    ];
    Cost::of(&chip, &mapping, &extents)
}

/// Four rings of 128 entries of 8 bytes, and the tables.
const SHARED: u64 = 4 * 128 * 8 + 50_000 + 1_000;

#[test]
fn tables_are_counted_where_they_are() {
    let of = |mapping: &str, settings: &[(&str, &str)]| cost("ixp2400", mapping, settings);
    // Three engines of the firewall, one each before it, and two that move frames; eight threads on each.
    assert_eq!(of("ixp2400-firewall", &[]), Cost { engines: 7, threads: 56, memory: Bytes(SHARED) });
    // Five of them have stages.
    assert_eq!(of("ixp2400-firewall-local", &[]).memory, Bytes(SHARED + 4 * 1_000));
    let one = of("ixp2400-firewall-local", &[("pool.firewall.at", "5"), ("pool.firewall.threads", "4")]);
    assert_eq!(one, Cost { engines: 5, threads: 36, memory: Bytes(SHARED + 2 * 1_000) });
    // The first 400 bytes in local memory, and the others in SRAM.
    let parts = "[{ memory = \"local\", end = \"400 B\" }, \"sram\"]";
    let parts = of("ixp2400-firewall", &[("region.rule-table", parts)]);
    assert_eq!(parts.memory, Bytes(SHARED + 4 * 400));
    // Cached lines of 64 bytes, sixteen in each engine's local memory, beside the table itself.
    let cached = "{ memory = \"sram\", cache = \"64 B\" }";
    let cached = of("ixp2400-firewall", &[("region.rule-table", cached)]);
    assert_eq!(cached.memory, Bytes(SHARED + 5 * 16 * 64));
}

#[test]
fn caches_are_counted_of_engines_in_use() {
    let of = |settings: &[(&str, &str)]| cost("cn3120", "cn3120-pool", settings);
    let both = of(&[]);
    let one = of(&[("pool.process.at", "0")]);
    assert_eq!((both.engines, one.engines), (2, 1));
    assert_eq!(both.memory.0 - one.memory.0, 8 << 10);
    // An engine with a timer alone is in use, too; units are no engines.
    let (chip, mapping) = shipped("ixp1200", "ixp1200-diffserv", &[]);
    let router = Cost::of(&chip, &mapping, &[]);
    assert_eq!((router.engines, router.threads), (7, 4 * 4 + 2 + 6));
    let (chip, mapping) = shipped("rena", "rena-pool", &[]);
    assert_eq!(Cost::of(&chip, &mapping, &[]).engines, 1);
}
