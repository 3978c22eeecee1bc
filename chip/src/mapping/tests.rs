use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use tally::Region;

use super::{
    Exit, Extent, Lines, Mapping, Place, PoolPlace, Program, Who, Work, check_fit, parse, read, set,
};
use crate::description::{self, Chip};

const ROW: &str = include_str!("../../../chips/mappings/tetra-row.toml");
const CORE: &str = include_str!("../../../chips/mappings/ixp2400-firewall-core.toml");
const SPLIT: &str = include_str!("../../../chips/mappings/ixp1200-split.toml");

fn tetra() -> Chip {
    description::parse(include_str!("../../../chips/tetra.toml"), "tetra.toml").chip.unwrap()
}

fn ixp2400() -> Chip {
    description::parse(include_str!("../../../chips/ixp2400.toml"), "ixp2400.toml").chip.unwrap()
}

fn mapping(text: &str, chip: &Chip) -> Mapping {
    let checked = parse(text, "mapping.toml", chip);
    assert_eq!(checked.diagnostics, []);
    checked.mapping.unwrap()
}

#[test]
fn a_mapping_is_what_its_text_says() {
    let mapping = mapping(CORE, &ixp2400());
    let names: Vec<&str> = mapping.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["receive", "transmit", "pre-routing", "routing", "core", "firewall", "post-routing"]);
    assert_eq!(mapping.pools[0].tasks[0].work, Work::Receive(0..0));
    assert_eq!(mapping.pools[2].tasks[0].work, Work::Stages(0..7));
    let ring = |name| mapping.rings.iter().position(|ring| ring.name == name).unwrap();
    let exits = [Exit { who: Who::New, ring: ring("new") }, Exit { who: Who::Known, ring: ring("routed") }];
    assert_eq!(mapping.pools[3].tasks[0].to, exits);
    assert_eq!(mapping.pools[4].place, PoolPlace::Engines { kind: 1, numbers: vec![0], threads: 1 });
    assert_eq!(mapping.pools[5].place, PoolPlace::Engines { kind: 0, numbers: vec![5, 6, 7], threads: 6 });
    assert_eq!(mapping.pools[5].tasks[0].from, Some(ring("routed")));
    assert_eq!(mapping.rings[0].entries, 128);
    let place =
        |region| mapping.placements.iter().find(|placement| placement.region == region).unwrap().place;
    assert_eq!((place(Region::Frame), place(Region::Meta)), (Place::Shared(2), Place::Shared(1)));
}

#[test]
fn all_rings_in_order_are_of_one_unit() {
    let text = include_str!("../../../chips/nfp-4000.toml");
    let (head, rest) = text.split_once("[receive]").unwrap();
    let (_, unit) = head.split_once("[unit.reorder]").unwrap();
    let chip = description::parse(&format!("{head}[unit.second]{unit}[receive]{rest}"), "nfp-4000.toml");
    let chip = chip.chip.unwrap();
    let text = include_str!("../../../chips/mappings/nfp-4000-pool.toml");
    let place = |name| chip.units.iter().position(|unit| unit.name == name);
    let orders = mapping(text, &chip).rings.iter().map(|ring| ring.order).collect::<Vec<_>>();
    assert_eq!(orders, [None, place("reorder")]);
    let two = format!(
        "{}[pool.second]\nunit = \"transmit-dma\"\nwork = \"transmit\"\nfrom = \"control\"\n",
        text.replace("to = \"sent\"", "to = { exception = \"control\", rest = \"sent\" }").replace(
            "[pool.receive]",
            "control = { kind = \"work-queue\", order = \"second\" }\n[pool.receive]"
        )
    );
    let codes = |text: &str| {
        let found = parse(text, "mapping.toml", &chip).diagnostics;
        found.iter().map(|found| found.code.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&two), ["misplaced-order"]);
    assert!(codes(&two.replace("\"second\"", "\"reorder\"")).is_empty());
}

#[test]
fn receivers_have_ports_and_go_on_with_stages() {
    let chip = description::parse(include_str!("../../../chips/ixp1200.toml"), "ixp1200.toml").chip.unwrap();
    let mapping = mapping(include_str!("../../../chips/mappings/ixp1200-diffserv.toml"), &chip);
    let place = |name| super::stages().iter().position(|stage| *stage == name).unwrap();
    let tasks: Vec<&super::Task> = mapping.pools.iter().map(|pool| &pool.tasks[0]).collect();
    assert_eq!(tasks[0].work, Work::Receive(0..place("rewrite")));
    assert_eq!(tasks[2].work, Work::Stages(place("rewrite")..place("queue") + 1));
    let ports = |task: &super::Task| (task.ports.numbers.clone(), task.ports.bound);
    assert_eq!(ports(tasks[0]), ((0..8).collect(), true));
    assert_eq!(ports(tasks[1]), (vec![8], true));
    assert_eq!(tasks[0].ports.of(9).len() + tasks[3].ports.of(9).len(), 8 + 9);
}

#[test]
fn a_region_lies_in_parts() {
    let mapping = mapping(ROW, &tetra());
    let rules: Vec<(u64, u64, Place)> = mapping
        .placements
        .iter()
        .filter(|placement| placement.region == Region::RuleTable)
        .map(|placement| (placement.first, placement.end, placement.place))
        .collect();
    assert_eq!(rules, [(0, 3_072, Place::Local), (3_072, u64::MAX, Place::Shared(0))]);
    for region in Region::ALL {
        assert!(mapping.placements.iter().any(|placement| placement.region == region), "{region:?}");
    }
}

#[test]
fn a_pool_has_several_tasks() {
    let chip = description::parse(include_str!("../../../chips/ixp1200.toml"), "ixp1200.toml").chip.unwrap();
    let mapping = mapping(SPLIT, &chip);
    let works: Vec<&Work> = mapping.pools[0].tasks.iter().map(|task| &task.work).collect();
    let place = |name: &str| crate::mapping::stages().iter().position(|stage| *stage == name).unwrap();
    let last = Work::Stages(place("rewrite")..place("queue") + 1);
    assert_eq!(works, [&Work::Receive(0..0), &last, &Work::Transmit]);
}

#[test]
fn a_value_is_set_by_its_path() {
    let chip = tetra();
    let changed = set(ROW, "pool.filter.threads", "2").unwrap();
    assert!(matches!(mapping(&changed, &chip).pools[2].place, PoolPlace::Engines { threads: 2, .. }));
    let changed = set(ROW, "region.rule-table", "registers").unwrap();
    assert!(mapping(&changed, &chip).placements.iter().any(|placement| placement.place == Place::Registers));
    let changed = set(ROW, "region.route-table", "local").unwrap();
    assert_eq!(
        mapping(&changed, &chip)
            .placements
            .iter()
            .filter(|placement| placement.place == Place::Local)
            .count(),
        2
    );
    let changed = set(ROW, "ring.sent.entries", "8").unwrap();
    assert_eq!(mapping(&changed, &chip).rings[2].entries, 8);
    assert!(set(ROW, "pool.filtr.threads", "2").unwrap_err().to_string().contains("pool.filter.threads"));
    for path in [&["pool", "x"][..], &["ring", "x"], &["region", "x"], &["pool", "x", "to"]] {
        assert!(!read::keys(path).is_empty(), "{path:?}");
    }
}

#[test]
fn what_fits_exactly_fits() {
    let chip = tetra();
    let checked = parse(ROW, "row.toml", &chip);
    let mapping = checked.mapping.unwrap();
    let fits = |lines: &Lines, bytes: u64, instructions: u32| {
        let extents = [Extent { region: Region::RouteTable, bytes }];
        let programs =
            [Program { name: "filter", instructions }, Program { name: "queue", instructions: 96 }];
        check_fit(&chip, &mapping, lines, &extents, &programs)
    };
    assert_eq!(fits(&checked.lines, 8 << 20, 4_000), []);
    assert_eq!(fits(&checked.lines, (8 << 20) + 1, 4_001).len(), 2);
    // A mapping that came from no text is weighed all the same.
    let found = fits(&Lines::default(), (8 << 20) + 1, 4_001);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|diagnostic| diagnostic.place.is_none()));
}

#[test]
fn what_is_too_long_for_a_store_is_told_how_to_be_spread() {
    let chip = tetra();
    let checked = parse(ROW, "row.toml", &chip);
    let mapping = checked.mapping.unwrap();
    let hint = |lengths: [u32; 3]| {
        let programs = ["parse", "track", "route"].into_iter().zip(lengths);
        let programs: Vec<Program<'_>> =
            programs.map(|(name, instructions)| Program { name, instructions }).collect();
        let found = check_fit(&chip, &mapping, &checked.lines, &[], &programs);
        found.first().and_then(|found| found.hint.clone()).unwrap_or_default()
    };
    assert_eq!(hint([2_000, 2_000, 96]), "");
    let spread = hint([2_000, 2_000, 97]);
    assert!(spread.ends_with("parse to dnat 4000, route 97"), "{spread}");
    assert!(hint([2_000, 2_097, 4_000]).ends_with("parse to decap 2000, track to dnat 2097, route 4000"));
    assert!(hint([1, 4_097, 1]).starts_with("track alone has 4097"));
}

#[test]
fn rings_take_room_in_their_memory() {
    let chip = ixp2400();
    let mut text = CORE.to_owned();
    for ring in ["received", "tracked", "routed", "sent", "new"] {
        text = set(&text, &format!("ring.{ring}.entries"), "512").unwrap();
    }
    let checked = parse(&text, "core.toml", &chip);
    let found = check_fit(&chip, &checked.mapping.unwrap(), &checked.lines, &[], &[]);
    assert!(found[0].message.contains("21504 B are to lie there"), "{}", found[0].message);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is done to a text, it is met with a mapping or with errors.
    #[test]
    fn a_damaged_mapping_can_be_checked(
        at in any::<prop::sample::Index>(),
        length in 0..12_usize,
        with in "[\\[\\]{}\"'=.,0-9a-z\n -]{0,6}",
    ) {
        let from = at.index(CORE.len());
        let to = (from + length).min(CORE.len());
        let checked = parse(&format!("{}{with}{}", &CORE[..from], &CORE[to..]), "p.toml", &ixp2400());
        prop_assert_eq!(checked.mapping.is_none(), checked.diagnostics.iter().any(config::Diagnostic::is_error));
    }
}
