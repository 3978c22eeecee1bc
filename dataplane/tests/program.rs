//! Each stage says how much of an engine's store its program takes. That is written by hand, so it is held here to what
//! the stage's code tells: to all the places from which it was told, neither a small part of that nor many times as much.

use std::collections::BTreeMap;
use std::panic::Location;

use dataplane::egress::Next;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::pipeline::{self, Watch};
use dataplane::replay::SEED;
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::{Pipeline, Shard, Tables, Verdict};
use tally::{Op, Region, Tally};
use traffic::{Host, Office, Settings, Side};
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{Batch, Frame, Nanos, Pool, PortId};

use crate::queues::Packet;
use crate::scene::packet::Packets;
use crate::scene::{Arrival, Out, START, Sent, packet, policy};

const HOME: &str = include_str!("../../policies/home-office.toml");

/// A tunnel by selectors: without one no code looks for them.
const TUNNEL: &str = "
[interface.hq]
zone = \"vpn\"
[interface.hq.esp]
local = \"203.0.113.2\"
remote = \"198.51.100.1\"
local-net = \"192.168.1.0/24\"
remote-net = \"10.0.0.0/8\"
[[interface.hq.esp.sa]]
direction = \"out\"
spi = 0x1000
algorithm = \"aes128-gcm\"
key = \"000102030405060708090a0b0c0d0e0f10111213\"
[[interface.hq.esp.sa]]
direction = \"in\"
spi = 0x2000
algorithm = \"aes128-gcm\"
key = \"202122232425262728292a2b2c2d2e2f30313233\"
";

/// NAT64, likewise.
const NAT64: &str = "
[[nat]]
name = \"six-to-four\"
kind = \"nat64\"
from = \"lan\"
";

/// Source location of a tally: file, line and column.
type Place = (&'static str, u32, u32);

/// The smallest count that was told from each place, for each stage: what is told in proportion to a length is a loop,
/// whose program is no longer for going round more often.
#[derive(Default)]
struct Places {
    stage: &'static str,
    told: BTreeMap<&'static str, BTreeMap<Place, u32>>,
}

impl Places {
    fn tell(&mut self, at: &'static Location<'static>, count: u32) {
        // A search among rules states its own program.
        if count == 0 || at.file().contains("classify/") {
            return;
        }
        // Departures come between stages, by the engine that queues the next frame.
        let stage = if at.file().contains("/egress") { "queue" } else { self.stage };
        let told = self.told.entry(stage).or_default();
        let least = told.entry((at.file(), at.line(), at.column())).or_insert(count);
        *least = count.min(*least);
    }
}

impl Tally for Places {
    #[track_caller]
    fn execute(&mut self, _: Op, count: u32) {
        self.tell(Location::caller(), count);
    }
    #[track_caller]
    fn read(&mut self, _: Region, _: usize, _: u32) {
        self.tell(Location::caller(), 1);
    }
    #[track_caller]
    fn write(&mut self, _: Region, _: usize, _: u32) {
        self.tell(Location::caller(), 1);
    }
    #[track_caller]
    fn atomic(&mut self, _: Region, _: usize, _: u32) {
        self.tell(Location::caller(), 1);
    }
    #[track_caller]
    fn hash(&mut self, _: u32) {
        self.tell(Location::caller(), 1);
    }
}

/// Notes which stage is at work.
struct Stages;

impl Watch<Places> for Stages {
    fn before(&mut self, stage: &'static str, _: &Frame, cx: &mut Cx<'_, Places>) {
        cx.tally.stage = stage;
    }
    fn after(&mut self, _: &'static str, _: &Frame, cx: &mut Cx<'_, Places>) {
        cx.tally.stage = "";
    }
}

/// A gateway whose every call of the tally is noted.
struct Gateway {
    tables: Tables,
    shard: Shard,
    pool: Pool,
    pipeline: Pipeline,
    batch: Batch,
    ended: Vec<Frame>,
}

impl Gateway {
    fn new(text: &str) -> Gateway {
        let tables = crate::scene::tables(text);
        let shard = Shard::new(
            &tables,
            Setup { seed: SEED, now: START, resolve: Resolve::Assume, share: Share::WHOLE },
        )
        .unwrap();
        let pool = Pool::new(512, 2_048).unwrap();
        Gateway { tables, shard, pool, pipeline: Pipeline::default(), batch: Batch::new(), ended: Vec::new() }
    }

    fn receive(&mut self, arrival: &Arrival, places: &mut Places) -> Vec<Sent> {
        let Some(frame) = self.batch.extend_from(&mut self.pool) else { return Vec::new() };
        if !frame.fill(&arrival.bytes) {
            self.batch.drain().for_each(|frame| self.pool.put(frame));
            return Vec::new();
        }
        (frame.meta.ingress, frame.meta.received) = (arrival.port, arrival.at);
        frame.meta.number = arrival.number;
        let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: places };
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, &mut Stages);
        self.ended.drain(..).for_each(|frame| self.pool.put(frame));
        let mut sent = Vec::new();
        for port in 0..self.shard.egress.ports() as u16 {
            while let Next::Frame(frame, _) = self.shard.next_tallied(PortId(port), arrival.at, places) {
                sent.push(Sent {
                    port,
                    number: frame.meta.number,
                    verdict: Verdict::of_fate(frame.meta.fate),
                    bytes: frame.bytes().to_vec(),
                });
                self.pool.put(frame);
            }
        }
        sent
    }
}

/// Office traffic through a home's policy, and scenes aimed at corners.
fn places() -> Places {
    let mut places = Places::default();
    office(&mut places);
    cells(&mut places);
    sessions(&mut places);
    let mut random = Random::new(11);
    for _ in 0..SCENES {
        let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        // None that answers SYNs: cookies are made in a loop, whose every round is told.
        seed[10] &= !4;
        // Nor one that asks for MAC addresses: classes are looked up in a loop.
        seed[6] &= !0x80;
        let scene = policy::of(&seed);
        let (mut gateway, mut world) = (Gateway::new(&scene.text), Packets::of(&scene));
        for _ in 0..100 {
            let bytes: [u8; packet::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
            let sent = gateway.receive(&world.next(&bytes), &mut places);
            world.learn(&Out { sent, ..Out::default() });
        }
    }
    places
}

/// Scenes: enough that a few more find no further place.
const SCENES: u32 = 400;

/// Packets in ATM cells.
fn cells(places: &mut Places) {
    let (text, arrivals) = crate::atm::corners();
    let mut gateway = Gateway::new(&text);
    for arrival in &arrivals {
        gateway.receive(arrival, places);
    }
}

/// Packets in a PPP session.
fn sessions(places: &mut Places) {
    let (text, arrivals) = crate::ppp::corners();
    let mut gateway = Gateway::new(&text);
    gateway.shard = Shard::new(&gateway.tables, crate::scene::setup(START)).unwrap();
    for arrival in &arrivals {
        gateway.receive(arrival, places);
    }
}

fn office(places: &mut Places) {
    let mut settings = Settings { duration: Nanos::from_secs(20), start: START, ..Settings::default() };
    settings.lan.mac = Mac([2, 0, 0x5e, 0x10, 0, 1]);
    settings.wan.mac = Mac([2, 0, 0x5e, 0x10, 0, 2]);
    settings.wan.v4 = [203, 0, 113, 2].into();
    settings.hosts = Host::successive(12, [192, 168, 1, 20].into(), Some("2001:db8:1::20".parse().unwrap()));
    let mut office = Office::new(settings);
    let mut gateway = Gateway::new(HOME);
    let wan = gateway.tables.interface_named("wan").unwrap();
    let lan = gateway.tables.interface_named("lan").unwrap();
    let mut number = 0;
    while let Some(packet) = office.next() {
        number += 1;
        let port = if packet.side == Side::Lan { lan } else { wan };
        let arrival = Arrival { port, at: packet.at, number, bytes: packet.bytes };
        for sent in gateway.receive(&arrival, places) {
            let side = if PortId(sent.port) == wan { Side::Wan } else { Side::Lan };
            office.arrived(side, packet.at, &sent.bytes);
        }
    }
}

/// The stage whose program has what was told from a file: routines that several call are with one of them, as they are in
/// an engine's store but once.
fn owner(file: &str) -> Option<&'static str> {
    let owners = [
        ("/stage/parse.rs", "parse"),
        ("/fib/", "route"),
        ("/tables.rs", "route"),
        ("/flow/", "track"),
        ("/fragment/", "track"),
        ("/nat/", "snat"),
        ("/fragmentation.rs", "fragment"),
        ("/fragmentation/own.rs", "fragment"),
        ("/underlay.rs", "encap"),
        ("/protect.rs", "route"),
        ("/tables/selector.rs", "route"),
    ];
    owners.iter().find(|(part, _)| file.contains(part)).map(|(_, stage)| *stage)
}

/// Largest ratio of a program to its tallied instructions: room for paths that no tally tells apart.
const MOST: u32 = 4;

/// Largest ratio of tallied instructions to a program, which has loops over words and routines for 64 bits once.
const LOOPS: u32 = 3;

#[test]
fn programs_are_as_large_as_what_they_tell() {
    let places = places();
    let tables = crate::scene::tables(&format!("{HOME}{TUNNEL}{NAT64}"));
    let mut wrong = Vec::new();
    for entry in pipeline::stages() {
        let stage = entry.about.name;
        let search: u32 = match stage {
            "filter" => tables.filter.search.classifier.program(),
            "classify" => tables.classes.program(),
            "dnat" => tables.nat.destination_search.program(),
            "snat" => tables.nat.source_search.program(),
            _ => 0,
        };
        let program = (entry.program)(&tables) - search;
        let told = places.told.get(stage).unwrap_or_else(|| panic!("{stage} told nothing"));
        let told: BTreeMap<_, _> = told
            .iter()
            .filter(|((file, line, column), _)| match owner(file) {
                Some(owner) if owner != stage => {
                    !places.told.get(owner).is_some_and(|told| told.contains_key(&(*file, *line, *column)))
                }
                _ => true,
            })
            .collect();
        let sum: u32 = told.values().copied().sum();
        eprintln!("{stage}: {program} beside its search, {sum} told from {} places", told.len());
        if LOOPS * program < sum || program > MOST * sum {
            let places: Vec<String> =
                told.iter().map(|((file, line, _), count)| format!("  {count} at {file}:{line}")).collect();
            wrong.push(format!("{stage} says {program}, and tells {sum}:\n{}", places.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Schedulers, shapers and droppers take room where a policy has them: each tree is as large as what it tells.
#[test]
fn programs_of_trees_are_as_large_as_what_they_tell() {
    let inside = |text: &str| format!("on = \"wan\"\n[[queue]]\nname = \"in\"\nin = \"root\"\n{text}");
    let two = |text: &str, each: &str| {
        let leaf =
            |name: &str, phb: &str| format!("[[queue]]\nname = \"{name}\"\nin = \"root\"\n{phb}{each}");
        format!("on = \"wan\"\n{text}{}{}", leaf("one", "phb = \"ef\"\n"), leaf("two", ""))
    };
    let trees = [
        ("first in, first out", "on = \"wan\"\n".to_owned()),
        ("a shaper", "on = \"wan\"\nrate = \"1 Mbit/s\"\n".to_owned()),
        ("from", "from = \"lan\"\nrate = \"1 Mbit/s\"\n".to_owned()),
        ("guarantees", two("rate = \"1 Mbit/s\"\n", "guarantee = \"100 kbit/s\"\n")),
        ("round robin", two("", "")),
        ("start tags", two("rate = \"1 Mbit/s\"\nscheduler = \"wfq\"\n", "")),
        ("a dropper", inside("drop = \"codel\"\n")),
        ("DualPI2", inside("drop = \"dualpi2\"\n")),
        ("flows", inside("rate = \"1 Mbit/s\"\nscheduler = \"fq\"\nflows = 1\nlimit = 3\n")),
        ("subscribers", inside("rate = \"1 Mbit/s\"\nper = \"source\"\n")),
        (
            "all",
            two(
                "rate = \"1 Mbit/s\"\nscheduler = \"wfq\"\nper = \"source\"\n",
                "scheduler = \"fq\"\nflows = 1\nlimit = 3\ndrop = \"codel\"\n",
            ),
        ),
    ];
    let stage = pipeline::stages().find(|entry| entry.about.name == "queue").unwrap();
    let mut wrong = Vec::new();
    for (what, tree) in trees {
        let mut places = Places::default();
        let text = format!(
            "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
             [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
             [default]\n\"lan > wan\" = \"accept\"\n[[queue]]\nname = \"root\"\n{tree}"
        );
        let mut gateway = Gateway::new(&text);
        for number in 0..200_u32 {
            // Six at a time, more than the rate carries, and then a pause.
            let at = Nanos(START.0 + u64::from(number / 6) * 30_000_000);
            let field = if number % 2 == 0 { 184 } else { 0 };
            let packet = Packet { at: 0, host: 10 + (number % 3) as u8, sport: 1_000, field, bytes: 1_000 };
            let arrival = Arrival { port: PortId(0), at, number, bytes: packet.frame() };
            gateway.receive(&arrival, &mut places);
        }
        let program = (stage.program)(&gateway.tables);
        let told = &places.told["queue"];
        let sum: u32 = told.values().copied().sum();
        eprintln!("{what}: {program}, {sum} told from {} places", told.len());
        if LOOPS * program < sum || 2 * program > 3 * sum {
            let places: Vec<String> =
                told.iter().map(|((file, line, _), count)| format!("  {count} at {file}:{line}")).collect();
            wrong.push(format!("{what} says {program}, and tells {sum}:\n{}", places.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
