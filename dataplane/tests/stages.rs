//! Declarations of stages verified: the fields that stages write and read, and the packets that they are for.

use std::collections::{BTreeMap, BTreeSet};

use dataplane::flag;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::opening::Opening;
use dataplane::pipeline::{self, Watch};
use dataplane::replay::{Replay, Way};
use dataplane::shard::Setup;
use dataplane::stage::{About, Cx, Packets};
use dataplane::{Pipeline, Shard, Tables};
use tally::NoTally;
use wire::meta::Fields;
use wire::random::Random;
use wire::{Batch, Frame, Meta, Pool};

use crate::scene::packet::Packets as World;
use crate::scene::{START, packet, policy};

/// Notes which fields each stage changes, and which stages take a packet of a flow that has been decided.
#[derive(Default)]
struct Seen {
    meta: Meta,
    packet: Vec<u8>,
    opening: Option<Opening>,
    written: BTreeMap<&'static str, Fields>,
    took_decided: BTreeSet<&'static str>,
}

impl Watch<NoTally> for Seen {
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, NoTally>) {
        self.meta = frame.meta.clone();
        self.packet = frame.bytes().to_vec();
        self.opening = cx.shard.openings.of(&frame.meta).copied();
        if frame.meta.flags & flag::HIT != 0 {
            self.took_decided.insert(stage);
        }
    }

    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, NoTally>) {
        let mut fields = frame.meta.changed(&self.meta);
        if frame.bytes() != self.packet {
            fields = fields.and(Fields::PACKET);
        }
        if cx.shard.openings.of(&frame.meta) != self.opening.as_ref() {
            fields = fields.and(Fields::OPENING);
        }
        let written = self.written.entry(stage).or_default();
        *written = written.and(fields);
    }
}

/// Plays packets aimed at corners, one by one, before the eyes of `seen`.
fn play(tables: &Tables, random: &mut Random, seen: &mut Seen) {
    let setup = Setup { seed: [7, 11], now: START, resolve: Resolve::Assume, share: Share::WHOLE };
    let mut shard = Shard::new(tables, setup).unwrap();
    let mut pool = Pool::new(512, 4_096).unwrap();
    let (mut pipeline, mut batch, mut ended) = (Pipeline::default(), Batch::new(), Vec::new());
    let mut world = World::new();
    for _ in 0..120 {
        let bytes: [u8; packet::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        let arrival = world.next(&bytes);
        let frame = batch.extend_from(&mut pool).unwrap();
        if !frame.fill(&arrival.bytes) {
            batch.drain().for_each(|frame| pool.put(frame));
            continue;
        }
        (frame.meta.ingress, frame.meta.received) = (arrival.port, arrival.at);
        let mut cx = Cx { tables, shard: &mut shard, pool: &mut pool, tally: &mut NoTally };
        pipeline.step_watched(&mut batch, &mut ended, &mut cx, seen);
        ended.drain(..).for_each(|frame| pool.put(frame));
        let mut sent = Vec::new();
        for port in (0..shard.egress.ports() as u16).map(wire::PortId) {
            while let dataplane::egress::Next::Frame(frame, _) = shard.next(port, wire::Nanos::MAX) {
                sent.push(crate::scene::Sent {
                    port: port.0,
                    number: frame.meta.number,
                    verdict: dataplane::Verdict::of_fate(frame.meta.fate),
                    bytes: frame.bytes().to_vec(),
                });
                pool.put(frame);
            }
        }
        world.learn(&crate::scene::Out { sent, ..crate::scene::Out::default() });
    }
    drop(ended);
}

/// Plays frames one by one, before the eyes of `seen`.
fn play_arrivals(tables: &Tables, arrivals: &[crate::scene::Arrival], seen: &mut Seen) {
    let setup = Setup { seed: [7, 11], now: START, resolve: Resolve::Assume, share: Share::WHOLE };
    let mut shard = Shard::new(tables, setup).unwrap();
    let mut pool = Pool::new(512, 4_096).unwrap();
    let (mut pipeline, mut batch, mut ended) = (Pipeline::default(), Batch::new(), Vec::new());
    for arrival in arrivals {
        let frame = batch.extend_from(&mut pool).unwrap();
        assert!(frame.fill(&arrival.bytes));
        (frame.meta.ingress, frame.meta.received) = (arrival.port, arrival.at);
        let mut cx = Cx { tables, shard: &mut shard, pool: &mut pool, tally: &mut NoTally };
        pipeline.step_watched(&mut batch, &mut ended, &mut cx, seen);
        ended.drain(..).for_each(|frame| pool.put(frame));
    }
    drop(shard);
}

#[test]
fn stages_write_what_they_say_and_take_what_they_are_there_for() {
    let mut random = Random::new(5);
    let mut written: BTreeMap<&str, Fields> = BTreeMap::new();
    for _ in 0..300 {
        let seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        let text = policy::of(&seed).text;
        let tables = crate::scene::tables(&text);
        let mut seen = Seen::default();
        play(&tables, &mut random, &mut seen);
        for entry in pipeline::stages() {
            let (name, packets) = (entry.about.name, (entry.packets)(&tables));
            let fields = seen.written.get(name).copied();
            assert!(
                packets != Packets::None || fields.is_none(),
                "{name} is not needed, and took a frame:\n{text}"
            );
            let took = seen.took_decided.contains(name);
            assert!(packets != Packets::First || !took, "{name} took a packet of a decided flow:\n{text}");
            let all = written.entry(name).or_default();
            *all = all.and(fields.unwrap_or_default());
        }
    }
    let mut seen = Seen::default();
    let (text, arrivals) = crate::atm::corners();
    play_arrivals(&crate::scene::tables(&text), &arrivals, &mut seen);
    let all = written.entry("reassemble").or_default();
    *all = all.and(seen.written["reassemble"]);
    for entry in pipeline::stages() {
        let About { name, writes, .. } = entry.about;
        let written = written[name];
        let more: Vec<_> = written.without(writes).names().collect();
        assert!(more.is_empty(), "{name} writes {more:?}, and does not say so");
        // A handshake that the gateway makes for a server needs a client that answers; fragments behind their first one, order; a handoff
        // by `decap`, other workers.
        let unseen = match name {
            "decap" => Fields::HOP,
            "track" => Fields::PACKET.and(Fields::HEADERS),
            "rewrite" => Fields::FLAGS.and(Fields::PARTS),
            _ => Fields::NONE,
        };
        let less: Vec<_> = writes.without(written).without(unseen).names().collect();
        assert!(less.is_empty(), "{name} says that it writes {less:?}: no packet here shows it");
    }
}

#[test]
fn stages_read_what_is_there() {
    let mut there = Fields::HOST;
    for entry in pipeline::stages() {
        let About { name, reads, writes, .. } = entry.about;
        // A stage sees what it has written itself, for an earlier frame or by an earlier step.
        let missing: Vec<_> = reads.without(there).without(writes).names().collect();
        assert!(missing.is_empty(), "{name} reads {missing:?}, which only a later stage writes");
        there = there.and(writes);
    }
}

#[test]
fn names_are_verbs_apart() {
    let names: BTreeSet<_> = pipeline::names().into_iter().collect();
    assert_eq!(names.len(), pipeline::STAGES);
    assert_eq!(pipeline::names().first(), Some(&"parse"));
}

/// Stages of a policy's pipeline, by name.
fn needed(text: &str) -> Vec<&'static str> {
    let tables = crate::scene::tables(text);
    let needed = pipeline::stages().filter(|entry| (entry.packets)(&tables) != Packets::None);
    needed.map(|entry| entry.about.name).collect()
}

#[test]
fn a_pipeline_has_what_its_policy_needs() {
    const INTERFACES: &str = r#"
        [interface.lan]
        zone = "lan"
        addresses = ["192.168.1.1/24"]
        [interface.wan]
        zone = "wan"
        addresses = ["203.0.113.2/24"]
        [default]
        "lan > wan" = "accept"
    "#;
    const MASQUERADE: &str = r#"
        [[nat]]
        name = "out"
        kind = "masquerade"
        to = "wan"
    "#;
    const CLASS: &str = r#"
        [[class]]
        name = "web"
        protocol = "tcp"
    "#;
    const METER: &str = r#"
        meter = "slow"
        [[meter]]
        name = "slow"
        rate = "1 Mbit/s"
        burst = 3000
    "#;
    let without = |names: &[&str]| {
        // None has a tunnel, or cells.
        let all =
            pipeline::names().into_iter().filter(|name| !["reassemble", "decap", "encap"].contains(name));
        all.filter(|name| !names.contains(name)).collect::<Vec<_>>()
    };
    let marked = format!("{INTERFACES}{MASQUERADE}{CLASS}mark = \"af11\"{METER}");
    assert_eq!(needed(&marked), without(&[]));
    assert_eq!(needed(&format!("{INTERFACES}{CLASS}{METER}")), without(&["dnat", "mark"]));
    assert_eq!(
        needed(&format!("{INTERFACES}{CLASS}{METER}yellow = \"pass\"\nred = \"le\"")),
        without(&["dnat"])
    );
    assert_eq!(needed(&format!("{INTERFACES}{CLASS}")), without(&["dnat", "police", "mark"]));
    let plain = ["classify", "police", "mark"];
    assert_eq!(needed(INTERFACES), without(&[&plain[..], &["dnat"]].concat()));
    let stateless = [&plain[..], &["track", "dnat", "snat"]].concat();
    assert_eq!(needed(&format!("mode = \"stateless\"\n{INTERFACES}")), without(&stateless));
    let open = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n";
    let interfaces = INTERFACES.split_once("[default]").unwrap().0;
    assert_eq!(needed(&format!("{open}{interfaces}")), without(&[&stateless[..], &["filter"]].concat()));
    let tunnel = include_str!("../../tests/cases/esp/site.toml");
    let needed = needed(tunnel);
    assert!(needed.contains(&"decap") && needed.contains(&"encap"), "{needed:?}");
    assert!(self::needed(&crate::atm::corners().0).contains(&"reassemble"));
    // And it forwards.
    let tables = crate::scene::tables(&format!("mode = \"stateless\"\n{INTERFACES}"));
    assert!(Replay::new(tables, START, Way::Run).is_ok());
}
