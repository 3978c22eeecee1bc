//! An ATM line on a shipped chip: packets come and go in cells, and none is lost below the rate of the line.

#![allow(clippy::unwrap_used)]

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description;
use chip::host::{Traffic, Wiring};
use chip::machine::Ideal;
use chip::mapping;
use chip::report::Report;
use chip::run::{Setup, Source};
use chip::traffic::{Generator, Lines, Merge, Stream, in_cells};
use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use wire::Nanos;

const POLICY: &str = r#"
    mode = "stateless"
    [default]
    "any > any" = "accept"
    [interface.lan]
    zone = "lan"
    addresses = ["10.0.0.1/24"]
    [interface.dsl]
    zone = "wan"
    addresses = ["203.0.113.2/24"]
    link = "ip"
    atm = { vc = "8/35" }
"#;

/// Runs streams on the chip, with OC-3 in the place of its second port.
fn run(streams: &[&str]) -> Report {
    let text = named(CHIPS, "ixp2400").unwrap();
    let mut chip = description::parse(text, "ixp2400").chip.unwrap();
    let line = description::PortKind {
        count: 1,
        rate: wire::BitRate(149_760_000),
        gap: wire::Bytes(0),
        name: Some("oc3".into()),
        ..chip.ports.0[0].clone()
    };
    chip.ports.0[0].count = 1;
    chip.ports.0.insert(1, line);
    let text = named(MAPPINGS, "ixp2400-pool").unwrap();
    let mapping = mapping::parse(text, "ixp2400", &chip).mapping.unwrap();
    let policy = policy::check(POLICY, "cells.toml").policy.unwrap();
    let source = || {
        let tables = Tables::compile(&policy, 1)?;
        let wiring = Wiring::new(&tables, &[]);
        let lines = Lines { ports: &chip.ports, wiring: &wiring };
        let mut traffic = Vec::new();
        for (seed, text) in (1..).zip(streams) {
            let stream: Stream = text.parse().unwrap();
            let generator = Generator::new(&stream, &tables, lines, Nanos(0), seed)?;
            traffic.push(Box::new(generator) as Box<dyn Traffic>);
        }
        let traffic = in_cells(Box::new(Merge::new(traffic)), &tables, lines);
        let replay = Replay::new(tables, Nanos(0), Way::Step)?;
        Ok(Source { replay, traffic, start: Nanos(0), wiring })
    };
    Setup { chip: &chip, mapping: &mapping, source: &source, warm: 0 }.run(Ideal::Nothing, &mut ()).unwrap()
}

/// Frames that left.
fn left(report: &Report) -> u64 {
    (report.delivered_mpps * report.seconds * 1e6).round() as u64
}

#[test]
fn packets_come_out_of_cells() {
    // 300 bytes are seven cells, of which the first six have their verdict, too.
    let report = run(&["dsl>lan,size=300,frames=500"]);
    assert_eq!((report.lost, left(&report)), (0, 500));
    let cells = report.offered_mpps * report.seconds * 1e6;
    assert_eq!(cells.round() as u64, 3_500);
}

#[test]
fn packets_leave_in_cells_at_the_rate_of_the_line() {
    // A frame of 64 bytes is a packet of 46, and with LLC and trailer two cells: 353 thousand of them have 75 Mbit/s of such frames.
    let carried = run(&["lan>dsl,size=64,frames=3000,rate=170kpps"]);
    assert_eq!((carried.lost, left(&carried)), (0, 3_000));
    let busy = carried.others.iter().find(|share| share.name.contains("port 1")).unwrap().share;
    assert!((busy - 170e3 * 2.0 * 53.0 * 8.0 / 149.76e6).abs() < 0.02, "{busy}");
    let beyond = run(&["lan>dsl,size=64,frames=20000,rate=250kpps"]);
    assert!(beyond.lost > 0, "there are cells for 176 thousand");
}
