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
    let mut seen = Seen::default();
    let (text, arrivals) = crate::ppp::corners();
    play_arrivals(&crate::scene::tables(&text), &arrivals, &mut seen);
    let all = written.entry("terminate").or_default();
    *all = all.and(seen.written["terminate"]);
    let mut seen = Seen::default();
    let (text, arrivals) = crate::multicast::corners();
    play_arrivals(&crate::scene::tables(&text), &arrivals, &mut seen);
    let all = written.entry("replicate").or_default();
    *all = all.and(seen.written["replicate"]);
    for entry in pipeline::stages() {
        let About { name, writes, .. } = entry.about;
        let written = written[name];
        let more: Vec<_> = written.without(writes).names().collect();
        assert!(more.is_empty(), "{name} writes {more:?}, and does not say so");
        // A handshake that the gateway makes for a server needs a client that answers; fragments behind their first one, order; a handoff
        // by `decap` or `terminate`, other workers; a host that has no address yet, neighbours that have to be asked for.
        let unseen = match name {
            "decap" | "terminate" => Fields::HOP,
            "track" | "replicate" => Fields::PACKET.and(Fields::HEADERS),
            "rewrite" => Fields::FLAGS.and(Fields::PARTS).and(Fields::HOP),
            _ => Fields::NONE,
        };
        let less: Vec<_> = writes.without(written).without(unseen).names().collect();
        assert!(less.is_empty(), "{name} says that it writes {less:?}: no packet here shows it");
    }
}

/// Fields of the metadata.
const FIELDS: [Fields; 15] = [
    Fields::RECEIVED,
    Fields::NUMBER,
    Fields::INGRESS,
    Fields::EGRESS,
    Fields::HEADERS,
    Fields::FLOW,
    Fields::HOP,
    Fields::RULE,
    Fields::NAT,
    Fields::CLASS,
    Fields::FLAGS,
    Fields::PARTS,
    Fields::OPENING,
    Fields::COLOUR,
    Fields::TUNNEL,
];

/// Metadata with another value in one field.
fn scrambled(meta: &Meta, field: Fields, random: &mut Random) -> Meta {
    // Values that no stage writes, so that what it writes is seen.
    let (mut other, odd) = (meta.clone(), random.next_u64());
    let (many, few) = (0x7000_0000 | odd as u32 >> 8, 0x7000 | odd as u16 >> 8);
    match field {
        Fields::RECEIVED => other.received = wire::Nanos(odd >> 1),
        Fields::NUMBER => other.number = many,
        Fields::INGRESS => other.ingress = wire::PortId(few),
        Fields::EGRESS => other.egress = wire::PortId(few),
        Fields::HEADERS => {
            (other.network, other.transport, other.end) = (few, few + 1, few + 2);
            (other.sport, other.dport, other.protocol) = (few, few + 1, !meta.protocol);
            (other.ds_field, other.tcp_flags) = (!meta.ds_field, !meta.tcp_flags);
        }
        Fields::FLOW => other.flow = many,
        Fields::HOP => other.hop = many,
        Fields::RULE => other.rule = many,
        Fields::NAT => other.nat = few,
        Fields::CLASS => other.class = few,
        Fields::FLAGS => other.flags = odd as u16,
        Fields::PARTS => other.parts = 0x70,
        Fields::OPENING => other.opening = Meta::NO_OPENING - 1,
        Fields::COLOUR => other.colour = 0x70,
        _ => (other.tunnel, other.outer_tree) = (!meta.tunnel, !meta.outer_tree),
    }
    other
}

/// `meta`, with the fields that differ between `before` and `after`.
fn written_over(meta: &Meta, before: &Meta, after: &Meta) -> Meta {
    let mut over = Meta { fate: after.fate, ..meta.clone() };
    macro_rules! take {
        ($($field:ident)*) => { $(if after.$field != before.$field { over.$field = after.$field; })* };
    }
    take!(received number ingress egress network transport end family protocol part ds_field tcp_flags sport dport);
    take!(flow hop rule nat class colour flags opening tunnel outer_tree parts);
    over
}

/// Takes packets through the stages twice: as they are, and each stage with another value in a field that it does not say it reads. Notes
/// the stages that then do something else.
fn compare(text: &str, random: &mut Random, found: &mut BTreeMap<&'static str, Fields>) {
    // Each has tables of its own: the numbers of a tunnel's packets are shared by those who have the same.
    let [tables, other_tables] = [(); 2].map(|()| crate::scene::tables(text));
    let setup = Setup { seed: [7, 11], now: START, resolve: Resolve::Assume, share: Share::WHOLE };
    let [mut shard, mut other_shard] =
        [&tables, &other_tables].map(|tables| Shard::new(tables, setup).unwrap());
    let [mut pool, mut other_pool] = [(); 2].map(|()| Pool::new(512, 4_096).unwrap());
    let mut world = World::new();
    // A frame that ends here may keep its opening, of which there are as many as a batch has frames.
    for _ in 0..60 {
        let bytes: [u8; packet::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        let arrival = world.next(&bytes);
        let (Some(mut frame), Some(mut other)) =
            (filled(&arrival, &mut pool), filled(&arrival, &mut other_pool))
        else {
            continue;
        };
        let mut is_encrypted = false;
        for entry in pipeline::stages().filter(|entry| (entry.packets)(&tables) != Packets::None) {
            let mut cx = Cx { tables: &tables, shard: &mut shard, pool: &mut pool, tally: &mut NoTally };
            (entry.take)(&mut frame, &mut cx);
            let (tables, shard, pool) = (&other_tables, &mut other_shard, &mut other_pool);
            let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
            let before = other.meta.clone();
            let About { reads, writes, .. } = entry.about;
            // Nobody opens a flow twice, and before the first stage the host alone has written anything.
            let is_open = |field: &Fields| match entry.about.name {
                "parse" => field.within(Fields::HOST) != Fields::NONE,
                _ => *field != Fields::OPENING || writes.within(*field) == Fields::NONE,
            };
            let silent: Vec<Fields> = FIELDS
                .into_iter()
                .filter(|field| field.without(reads) != Fields::NONE && is_open(field))
                .collect();
            let field = silent[random.next_u64() as usize % silent.len()];
            let odd = scrambled(&before, field, random);
            other.meta = odd.clone();
            (entry.take)(&mut other, &mut cx);
            other.meta = written_over(&before, &odd, &other.meta);
            // Of what two gateways encrypt, each its own way, only the length is the same.
            is_encrypted |= entry.about.name == "encap";
            let is_same = match is_encrypted {
                true => other.bytes().len() == frame.bytes().len(),
                false => other.bytes() == frame.bytes(),
            };
            let is_alike = other.meta.changed(&frame.meta) == Fields::NONE
                && other.meta.fate == frame.meta.fate
                && is_same;
            if !is_alike {
                *found.entry(entry.about.name).or_default() =
                    found.get(entry.about.name).copied().unwrap_or_default().and(field);
                return;
            }
        }
        pool.put(frame);
        other_pool.put(other);
    }
}

/// A frame with the bytes of an arrival; `None` where they are too many.
fn filled(arrival: &crate::scene::Arrival, pool: &mut Pool) -> Option<Frame> {
    let mut batch = Batch::new();
    let frame = batch.extend_from(pool)?;
    let fits = frame.fill(&arrival.bytes);
    (frame.meta.ingress, frame.meta.received) = (arrival.port, arrival.at);
    for frame in batch.drain() {
        if fits {
            return Some(frame);
        }
        pool.put(frame);
    }
    None
}

#[test]
fn stages_read_no_more_than_they_say() {
    let (mut random, mut found) = (Random::new(9), BTreeMap::new());
    for _ in 0..600 {
        let seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        compare(&policy::of(&seed).text, &mut random, &mut found);
    }
    let found: Vec<_> =
        found.iter().map(|(name, fields)| (name, fields.names().collect::<Vec<_>>())).collect();
    assert!(found.is_empty(), "stages read more than they say: {found:?}");
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
        // None has a tunnel, cells, a PPP session, or a multicast route.
        let others = ["reassemble", "terminate", "decap", "replicate", "encap"];
        let all = pipeline::names().into_iter().filter(|name| !others.contains(name));
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
    assert!(self::needed(&crate::ppp::corners().0).contains(&"terminate"));
    let groups = "[[multicast-route]]\ngroup = \"239.1.1.1\"\nfrom = \"wan\"\nto = \"lan\"\n";
    assert!(self::needed(&format!("{INTERFACES}{groups}")).contains(&"replicate"));
    // And it forwards.
    let tables = crate::scene::tables(&format!("mode = \"stateless\"\n{INTERFACES}"));
    assert!(Replay::new(tables, START, Way::Run).is_ok());
}
