//! The shapers of `policies/pro3-shaper.toml` on PRO3: flows of ATM leave at their peak rate in cells, groups of IP flows at theirs, and all at the
//! times that the replay host has for the same frames.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description;
use chip::host::{Entry, Onlooker, Wiring};
use chip::machine::Ideal;
use chip::mapping;
use chip::run::{Setup, Source};
use chip::traffic::{Generator, Lines, Merge, Stream};
use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Tables, Verdict};
use wire::{Frame, Nanos, PortId};

const START: Nanos = Nanos::from_secs(1);

/// Departures: interface, moment, bytes of the IP packet, and the second byte of its source address, or its source port where it leaves by the
/// channel.
#[derive(Default)]
struct Departures(Vec<(PortId, Nanos, u64, u16)>);

impl Witness for Departures {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        assert_eq!(verdict, Some(Verdict::Forwarded));
        let byte = |at: usize| u16::from(frame.bytes()[at]);
        let whose = if port == CHANNEL { byte(34) << 8 | byte(35) } else { byte(27) };
        self.0.push((port, at, u64::from(byte(16) << 8 | byte(17)), whose));
    }

    fn ended(&mut self, _: &Frame, verdict: Verdict) {
        assert_eq!(verdict, Verdict::Dropped(Reason::QueueFull));
    }
}

/// Departures on the chip, and the frames that came.
#[derive(Default)]
struct Seen(Departures, Vec<(Entry, Vec<u8>)>);

impl Witness for Seen {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.0.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.0.ended(frame, verdict);
    }
}

impl Onlooker for Seen {
    fn came(&mut self, _: u32, entry: &Entry, bytes: &[u8]) {
        self.1.push((*entry, bytes.to_vec()));
    }

    fn lost(&mut self, number: u32) {
        panic!("{number} was lost");
    }
}

const WAN: PortId = PortId(1);
const CHANNEL: PortId = PortId(2);

/// Twice what each group may have, and twice what each of eight flows of ATM may have.
const STREAMS: [&str; 4] = [
    "lan>wan,source=10.1.0.0/16,size=400,rate=800mbit,frames=8000",
    "lan>wan,source=10.2.0.0/16,size=300,rate=200mbit,frames=2700",
    "lan>wan,source=10.3.0.0/16,size=600,rate=100mbit,frames=670",
    "lan>channel,source=10.4.0.1/32,size=218,rate=160mbit,flows=8,frames=3000",
];

/// Bits a second that leave between 8 and 28 ms behind the start, as `counted` counts packets, by who they are of.
fn rates(departures: &Departures, port: PortId, counted: fn(u64) -> u64) -> BTreeMap<u16, f64> {
    let mut sums = BTreeMap::new();
    let window = START + Nanos::from_millis(8)..START + Nanos::from_millis(28);
    for (_, _, bytes, whose) in departures.0.iter().filter(|(of, at, ..)| *of == port && window.contains(at))
    {
        *sums.entry(*whose).or_insert(0.0) += (counted(*bytes) * 8) as f64 / 0.02;
    }
    sums
}

#[test]
fn flows_and_groups_leave_at_their_rates() {
    let chip = description::parse(named(CHIPS, "pro3").unwrap(), "pro3").chip.unwrap();
    let mapping =
        mapping::parse(named(MAPPINGS, "pro3-shaped").unwrap(), "pro3-shaped", &chip).mapping.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/pro3-shaper.toml");
    let policy = policy::check::load(&path).unwrap().policy.unwrap();
    let source = || {
        let tables = Tables::compile(&policy, 1)?;
        let wiring = Wiring::new(&tables, &[]);
        let lines = Lines { ports: &chip.ports, wiring: &wiring };
        let mut traffic: Vec<Box<dyn chip::host::Traffic>> = Vec::new();
        for (seed, text) in (1..).zip(STREAMS) {
            let stream: Stream = text.parse().unwrap();
            traffic.push(Box::new(Generator::new(&stream, &tables, lines, START, seed)?));
        }
        let replay = Replay::new(tables, Nanos(0), Way::Step)?;
        Ok(Source { replay, traffic: Box::new(Merge::new(traffic)), start: START, wiring })
    };
    let setup = Setup { chip: &chip, mapping: &mapping, source: &source, warm: 0 };
    let mut seen = Seen::default();
    let report = setup.run(Ideal::Nothing, &mut seen).unwrap();
    let Seen(departures, frames) = seen;
    assert_eq!(report.lost, 0);

    // Ethernet counts 38 bytes beside each packet.
    let groups = rates(&departures, WAN, |bytes| bytes + 38);
    assert_eq!(groups.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    for (group, rate) in [(1, 400e6), (2, 100e6)] {
        assert!((groups[&group] / rate - 1.0).abs() < 0.005, "{groups:?}");
    }
    assert!(groups[&3] > 100e6, "others are not shaped: {groups:?}");
    // 16 bytes of header and trailer beside each packet, in cells.
    let flows = rates(&departures, CHANNEL, |bytes| (bytes + 16).div_ceil(48) * 53);
    assert_eq!(flows.len(), 8);
    assert!(flows.values().all(|rate| (rate / 10e6 - 1.0).abs() < 0.02), "{flows:?}");

    // The scheduler's unit makes its references to the memory of its state.
    let control = report.memories.iter().find(|memory| memory.name == "control").unwrap();
    let queue = control.regions.iter().find(|region| region.name == "queue").unwrap();
    assert!(queue.references > frames.len() as u64, "{queue:?}");
    assert!(report.engines.iter().any(|unit| unit.pools == ["shape"] && unit.executing > 0.01));

    let mut replay = Replay::new(Tables::compile(&policy, 1).unwrap(), Nanos(0), Way::Run).unwrap();
    let mut due = Departures::default();
    for (number, (entry, bytes)) in (0..).zip(&frames) {
        replay.advance(entry.at, &mut due);
        replay.receive(entry.ingress, entry.at, number, bytes, &mut due);
    }
    replay.finish(&mut due);
    assert_eq!(departures.0, due.0);
}
