//! Frames of all sizes on the shipped chips: none is lost at a load of one in a hundred, whatever its size.

#![allow(clippy::unwrap_used)]

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description::{self, Bus, Carries, Chip};
use chip::host::{Entry, Traffic, Wiring};
use chip::machine::Ideal;
use chip::mapping::{self, Mapping};
use chip::report::Report;
use chip::run::{Setup, Source};
use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

/// Every shipped chip, with the mapping that it has by default, and one whose receivers have a port each.
fn chips() -> Vec<(Chip, Mapping)> {
    let mut found = Vec::new();
    let pools = CHIPS.iter().map(|chip| (chip.name, format!("{}-pool", chip.name)));
    for (name, of) in pools.chain([("ixp1200", "ixp1200-diffserv".to_owned())]) {
        let shipped = CHIPS.iter().find(|chip| chip.name == name).unwrap();
        let chip = description::parse(shipped.text, shipped.name).chip.unwrap();
        let text = named(MAPPINGS, &of).unwrap();
        let mapping = mapping::parse(text, shipped.name, &chip).mapping.unwrap();
        found.push((chip, mapping));
    }
    found
}

const POLICY: &str = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n\
    [interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/24\"]\nmtu = 9000\nmac = \"02:00:00:00:00:01\"\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.1/24\"]\nmtu = 9000\n";

/// Frames of these sizes, each so many times its own time on the line behind the one before.
struct Sizes {
    sizes: Vec<usize>,
    next: usize,
    /// Picoseconds, and those for a byte.
    at: u64,
    byte: u64,
    times: u64,
}

impl Traffic for Sizes {
    fn peek(&mut self) -> Option<Nanos> {
        (self.next < self.sizes.len()).then_some(Nanos(self.at.div_ceil(1_000)))
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let size = *self.sizes.get(self.next)?;
        let frame = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([10, 0, 0, 2].into(), [203, 0, 113, 2].into())
            .udp(1_024, 9);
        bytes.extend(frame.payload(&vec![0; size - 42]).to_vec());
        let at = Nanos(self.at.div_ceil(1_000));
        (self.next, self.at) = (self.next + 1, self.at + (size as u64 + 24) * self.byte * self.times);
        Some(Entry::new(at, PortId(0), size))
    }
}

/// Runs frames of these sizes through a chip, each `times` its own time on the line behind the one before.
fn run(chip: &Chip, mapping: &Mapping, sizes: &[usize], times: u64) -> Report {
    let policy = policy::check(POLICY, "size.toml").policy.unwrap();
    let rate = chip.ports.kind_of(0).unwrap().rate.0;
    let source = || {
        let tables = Tables::compile(&policy, 1)?;
        let wiring = Wiring::new(&tables, &[]);
        let replay = Replay::new(tables, Nanos(0), Way::Step)?;
        let traffic = Sizes { sizes: sizes.to_vec(), next: 0, at: 0, byte: 8_000_000_000_000 / rate, times };
        Ok(Source { replay, traffic: Box::new(traffic), start: Nanos(0), wiring })
    };
    Setup { chip, mapping, source: &source, warm: 0 }.run(Ideal::Nothing, &mut ()).unwrap()
}

#[test]
fn frames_of_every_size_pass_every_chip() {
    // Those around multiples of elements, and others between.
    let around = (1..=140).flat_map(|elements| [elements * 64 - 1, elements * 64, elements * 64 + 1]);
    let mut sizes: Vec<usize> = around.chain((64..9_000).step_by(37)).chain([1_514, 1_518, 9_000]).collect();
    sizes.retain(|size| (64..=9_000).contains(size));
    for (chip, mapping) in chips() {
        let report = run(&chip, &mapping, &sizes, 100);
        assert_eq!((report.lost, report.overruns), (0, 0), "{}", chip.name);
        let left = (report.delivered_mpps * report.seconds * 1e6).round() as usize;
        assert_eq!(left, sizes.len(), "{}: {report:?}", chip.name);
    }
}

/// The times of its own on the line after which another frame can follow: those that the chip's slowest bus takes for what comes and what leaves.
fn pace(chip: &Chip) -> u64 {
    let element = chip.receive.element.0;
    let on_line = element as f64 * 8.0 / chip.ports.kind_of(0).unwrap().rate.0 as f64;
    let bus = |bus: &Bus| {
        let crossings = if bus.carries == Carries::Both { 2.0 } else { 1.0 };
        let cycles = element.div_ceil(bus.width.0) + bus.overhead.0;
        crossings * cycles as f64 / bus.clock.0 as f64 / on_line
    };
    chip.buses.iter().map(bus).fold(1.0, f64::max).ceil() as u64
}

#[test]
fn long_frames_that_follow_one_another_pass_every_chip() {
    for (chip, mapping) in chips() {
        for size in [1_518, 9_000] {
            let report = run(&chip, &mapping, &[size; 200], pace(&chip));
            assert_eq!((report.lost, report.overruns), (0, 0), "{}, {size} bytes", chip.name);
        }
    }
}
