use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use wire::{BitRate, Bytes};

use super::{Cache, Chip, LocalMemory, PortKind, Reach, Role, Standing, parse, schema, set};
use crate::clock::{Cycles, Hertz};
use crate::setting::SetError;

const TETRA: &str = include_str!("../../../chips/tetra.toml");
const IXP2400: &str = include_str!("../../../chips/ixp2400.toml");
const IXP1200: &str = include_str!("../../../chips/ixp1200.toml");

fn chip(text: &str) -> Chip {
    let checked = parse(text, "chip.toml");
    assert_eq!(checked.diagnostics, []);
    checked.chip.unwrap()
}

#[test]
fn a_chip_is_what_its_text_says() {
    let chip = chip(IXP2400);
    let me = &chip.engines[0];
    assert_eq!((me.name.as_str(), me.role, me.count, me.cluster, me.threads), ("me", Role::Packet, 8, 4, 8));
    assert_eq!(
        (me.store, me.wait, me.clock),
        (Some(4_096), Cycles(9), Hertz(600_000_000)),
        "the chip's clock"
    );
    assert_eq!(me.local, Some(LocalMemory { bytes: Bytes(2_560), latency: Cycles(3) }));
    let xscale = &chip.engines[1];
    assert_eq!((xscale.role, xscale.cluster, xscale.store, xscale.cpi), (Role::Control, 1, None, 1_200));
    let cache = Cache { bytes: Bytes(32 << 10), line: Bytes(32), ways: 32, latency: Cycles(3) };
    assert_eq!((xscale.cache, chip.memories[1].cache), (Some(cache), None));
    let names: Vec<&str> = chip.memories.iter().map(|memory| memory.name.as_str()).collect();
    assert_eq!(names, ["scratch", "sram", "dram"], "in the order of the text");
    assert_eq!((chip.memories[1].bytes, chip.memories[1].latency), (Bytes(8 << 20), Cycles(90)));
    assert_eq!((chip.memories[1].atomic, chip.memories[2].atomic), (Some(Cycles(2)), None));
    assert_eq!(chip.rings[0].memory.as_deref(), Some("scratch"));
    assert_eq!((chip.rings[2].reach, chip.rings[2].latency), (Reach::Neighbour, Cycles(3)));
    assert_eq!(chip.units[0].per_word, 4_000);
    let ports = PortKind {
        name: None,
        count: 3,
        rate: BitRate(1_000_000_000),
        gap: Bytes(24),
        fifo: Some(Bytes(256)),
    };
    assert_eq!((chip.ports.count(), &chip.ports.0), (3, &vec![ports]));
}

#[test]
fn ports_are_numbered_in_the_order_of_their_kinds() {
    let ports = chip(IXP1200).ports;
    let rates: Vec<u64> = ports.each().map(|port| port.rate.0 / 1_000_000).collect();
    assert_eq!((ports.count(), rates), (9, vec![100, 100, 100, 100, 100, 100, 100, 100, 1_000]));
    let name = |port| ports.kind_of(port).unwrap().name.as_deref().unwrap();
    assert_eq!([0, 7, 8, 9, 17].map(name), ["fast", "fast", "gigabit", "fast", "gigabit"]);
    assert_eq!(super::Ports(Vec::new()).kind_of(0), None);
}

#[test]
fn the_nearest_source_counts() {
    let chip = chip(IXP2400);
    assert_eq!(chip.source_of("engine.me.threads").unwrap().path, "engine.me");
    assert_eq!(chip.source_of("engine.me.branch").unwrap().standing, Standing::Assumed);
    assert_eq!(chip.source_of("engine.mex"), None);
    assert!(chip.assumed().all(|source| source.standing == Standing::Assumed));
    assert!(chip.assumed().any(|source| source.path == "memory.dram.latency"));
}

#[test]
fn ticks_fit_every_clock() {
    assert_eq!(chip(IXP2400).ticks_per_second(), Some(7_800_000_000), "600, 300, 200, 150 and 104 MHz");
    assert_eq!(chip(IXP1200).ticks_per_second(), Some(6_600_000_000), "200, 100 and 66 MHz");
    let text = set(TETRA, "bus.line.clock", "66.666667 MHz").unwrap();
    assert!(parse(&text, "p.toml").chip.is_none());
}

#[test]
fn a_parameter_is_set_by_its_path() {
    let changed = set(IXP2400, "memory.sram.latency", "45").unwrap();
    assert_eq!(chip(&changed).memories[1].latency, Cycles(45));
    assert_eq!(changed.lines().count(), IXP2400.lines().count());
    let changed = set(IXP2400, "engine.me.local.latency", "1").unwrap();
    assert_eq!(chip(&changed).engines[0].local.unwrap().latency, Cycles(1));
    // A key that is not written, and so has no source yet.
    let changed = set(IXP2400, "engine.xscale.store", "1000").unwrap();
    assert_eq!(parse(&changed, "p.toml").chip.unwrap().engines[1].store, Some(1_000));
    let Err(SetError::UnknownPath { nearest, .. }) = set(IXP2400, "memory.sram.latncy", "45") else {
        panic!()
    };
    assert_eq!(nearest.as_deref(), Some("memory.sram.latency"));
}

/// The keys that can be set are those that are read: the hint for an unknown key lists them.
#[test]
fn the_keys_that_can_be_set_are_those_that_are_read() {
    let tables: &[(&str, &[&str])] = &[
        ("[engine.me]", &["engine", "me"]),
        ("[memory.sram]", &["memory", "sram"]),
        ("[ring.scratch]", &["ring", "scratch"]),
        ("[unit.hash]", &["unit", "hash"]),
        ("[bus.receive]", &["bus", "receive"]),
        ("[receive]", &["receive"]),
        ("[ports]", &["ports"]),
        ("[package]", &["package"]),
        ("[port.fast]", &["port", "fast"]),
        ("local = {", &["engine", "me", "local"]),
        ("cam = {", &["engine", "me", "cam"]),
        ("cache = {", &["engine", "xscale", "cache"]),
        ("cache = { line = \"64 B\",", &["memory", "sram", "cache"]),
    ];
    let with = "cache = { line = \"64 B\", size = \"1 MB\", ways = 8, latency = 9 }\n";
    let text = IXP2400.replacen("\n[source]", "\n[package]\npins = 1\nside = 1\n[source]", 1);
    let text = text.replacen("[memory.sram]\n", &format!("[memory.sram]\n{with}"), 1);
    let unlike = IXP1200;
    for (header, path) in tables {
        let text = if path[0] == "port" { unlike } else { &text };
        let with =
            if header.starts_with('[') { "\nqqqqqqqqqqqqqqqq = 1\n" } else { " qqqqqqqqqqqqqqqq = 1, " };
        let checked = parse(&text.replacen(header, &format!("{header}{with}"), 1), "p.toml");
        let hints: Vec<&str> = checked.diagnostics.iter().filter_map(|found| found.hint.as_deref()).collect();
        let hint = hints.iter().find_map(|hint| hint.strip_prefix("its keys are: "));
        let mut read: Vec<&str> = hint.unwrap_or_else(|| panic!("{header}: {hints:?}")).split(", ").collect();
        let mut known = schema::keys(path);
        read.sort_unstable();
        known.sort_unstable();
        assert_eq!(read, known, "{header}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is done to a text, it is met with a chip or with errors.
    #[test]
    fn a_damaged_chip_can_be_checked(
        at in any::<prop::sample::Index>(),
        length in 0..12_usize,
        with in "[\\[\\]{}\"'=.,0-9a-zMHzB\n -]{0,6}",
    ) {
        let from = at.index(TETRA.len());
        let to = (from + length).min(TETRA.len());
        let checked = parse(&format!("{}{with}{}", &TETRA[..from], &TETRA[to..]), "p.toml");
        prop_assert_eq!(checked.chip.is_none(), checked.diagnostics.iter().any(config::Diagnostic::is_error));
    }
}
