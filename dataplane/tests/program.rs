//! Each stage says how much of an engine's store its program takes. That is written by hand, so it is held here to what
//! the stage's code tells: no less than all the places from which it was told, and not many times as much.

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

use crate::scene::packet::Packets;
use crate::scene::{Arrival, Out, START, Sent, packet, policy};

const HOME: &str = include_str!("../../policies/home-office.toml");

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
        let told = self.told.entry(self.stage).or_default();
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
            while let Next::Frame(frame, _) = self.shard.next(PortId(port), arrival.at) {
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
    let mut random = Random::new(11);
    for _ in 0..SCENES {
        let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        // None that answers SYNs: cookies are made in a loop, whose every round is told.
        seed[10] &= !4;
        // Nor one that asks for MAC addresses: classes are looked up in a loop.
        seed[6] &= !0x80;
        let mut gateway = Gateway::new(&policy::of(&seed).text);
        let mut world = Packets::new();
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
        ("/fib/", "route"),
        ("/tables.rs", "route"),
        ("/flow/", "track"),
        ("/fragment/", "track"),
        ("/nat/", "snat"),
    ];
    owners.iter().find(|(part, _)| file.contains(part)).map(|(_, stage)| *stage)
}

/// Largest ratio of a program to its tallied instructions: room for paths that no tally tells apart.
const MOST: u32 = 4;

#[test]
fn programs_are_as_large_as_what_they_tell() {
    let places = places();
    let tables = crate::scene::tables(HOME);
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
        if program < sum || program > MOST * sum {
            let places: Vec<String> =
                told.iter().map(|((file, line, _), count)| format!("  {count} at {file}:{line}")).collect();
            wrong.push(format!("{stage} says {program}, and tells {sum}:\n{}", places.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
