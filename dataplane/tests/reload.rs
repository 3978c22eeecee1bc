//! Tables are swapped while packets pass: run still equals step, frames are conserved, nothing is handed out twice and
//! nothing is lost, whatever policies follow one another; and what is judged again is judged as a first packet would be.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod scene;

use std::collections::{BTreeMap, HashMap};

use dataplane::replay::Way;
use proptest::prelude::*;
use scene::packet::Packets;
use scene::policy::{Scene, Translation};
use scene::{Arrival, Gateway, Out, check, packet, policy};
use wire::PortId;
use wire::random::Random;

/// A policy that follows: some of its bytes are others.
#[derive(Clone, Debug)]
struct Turn {
    /// Which bytes of the policy become what.
    changes: Vec<(u8, u8)>,
    /// Names, order and addresses.
    shape: u8,
    /// The packets that come before it.
    packets: Vec<[u8; packet::BYTES]>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let changes = prop::collection::vec(any::<(u8, u8)>(), 0..3);
    let packets = prop::collection::vec(any::<[u8; packet::BYTES]>().prop_map(quick), 0..40);
    let shape = prop_oneof![3 => Just(0), 2 => any::<u8>()];
    (changes, shape, packets).prop_map(|(changes, shape, packets)| Turn { changes, shape, packets })
}

/// Packets of which most have to do with those before, and few come so late that all flows are over.
fn quick(mut bytes: [u8; packet::BYTES]) -> [u8; packet::BYTES] {
    if bytes[12] & 3 != 0 {
        bytes[12] = bytes[12] & 3 | 0x40;
    }
    if bytes[16] & 1 != 0 {
        bytes[0] = [5, 10, 11, 11][usize::from(bytes[16] >> 1 & 3)];
    }
    bytes
}

/// The interfaces of scenes, in their order there.
const INTERFACES: [&str; 4] = ["lan", "guest", "wan", "wan2"];

/// A scene with other names, interfaces in another order or fewer, or another outer address.
fn shaped(scene: &Scene, shape: u8) -> String {
    let text = &scene.text;
    let starts: Vec<usize> =
        INTERFACES.iter().map(|name| text.find(&format!("[interface.{name}]")).unwrap()).collect();
    let end = text.find("[default]").unwrap();
    let blocks = starts.iter().zip(starts[1..].iter().chain([&end])).map(|(from, to)| &text[*from..*to]);
    let mut blocks: Vec<&str> = blocks.collect();
    let needs_second = text.contains("198.51.100.1\"");
    if shape & 1 != 0 && !needs_second {
        blocks.pop();
    }
    let turn = usize::from(shape >> 1 & 3) % blocks.len();
    blocks.rotate_left(turn);
    let mut text = [&text[..starts[0]], &blocks.concat(), &text[end..]].concat();
    for (bit, from, to) in [
        (3, "name = \"out\"", "name = \"away\""),
        (4, "name = \"web-out\"", "name = \"surfing\""),
        (5, "[interface.guest]", "[interface.visitor]"),
        (6, "[\"203.0.113.2/24\"", "[\"203.0.113.3/24\""),
        (7, "name = \"one\"", "name = \"same\""),
    ] {
        if shape >> bit & 1 != 0 {
            text = text.replace(from, to);
        }
    }
    text
}

/// The port of a scene's interface in the present tables.
fn port(gateway: &Gateway, port: PortId) -> Option<PortId> {
    let Some(name) = INTERFACES.get(usize::from(port.0)) else { return Some(port) };
    gateway.tables.interface_named(name)
}

/// What came out, by the ports of scenes.
fn by_scene(gateway: &Gateway, mut out: Out) -> Out {
    let interfaces = &gateway.tables.interfaces;
    for sent in &mut out.sent {
        let name = &interfaces[usize::from(sent.port)].name;
        sent.port = INTERFACES.iter().position(|known| known == name).unwrap_or(1) as u16;
    }
    out
}

/// Who translates what may change between packets, so that no check can tell who knows an inside address.
fn open(scene: &Scene) -> Scene {
    Scene { translation: Translation::None, ..scene.clone() }
}

/// Plays packets and policies into two gateways, and compares after each batch and each change.
fn play(seed: &[u8; policy::BYTES], turns: &[Turn], sizes: &[u8], mut see: impl FnMut(&Gateway, &Out)) {
    let mut seed = *seed;
    let mut scene = policy::of(&seed);
    let tables = || scene::tables(&scene.text);
    // As many slots as any of the policies needs.
    let [mut run, mut step] = [Way::Run, Way::Step].map(|way| Gateway::with_slots(tables(), way, 400));
    let mut world = Packets::new();
    let mut arrived = HashMap::new();
    let mut sizes = sizes.iter().cycle();
    for turn in turns {
        let mut rest = &turn.packets[..];
        while !rest.is_empty() {
            let size = sizes.next().map_or(1, |size| usize::from(*size) % 64 + 1).min(rest.len());
            let (now, later) = rest.split_at(size);
            rest = later;
            let arrivals = now.iter().map(|bytes| world.next(bytes));
            let here = |arrival: Arrival| Some(Arrival { port: port(&run, arrival.port)?, ..arrival });
            let arrivals: Vec<_> = arrivals.filter_map(here).collect();
            run.receive(&arrivals);
            step.receive(&arrivals);
            arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
            let most = if scene.has_room { usize::MAX } else { size.div_ceil(2) };
            let (out, also) = (run.out(most), step.out(most));
            assert_eq!(out, also, "run and step differ under\n{}", scene.text);
            compare(&run, &step);
            let out = by_scene(&run, out);
            for sent in &out.sent {
                check::sent(&open(&scene), &arrived, sent);
            }
            see(&run, &out);
            world.learn(&out);
        }
        for (place, value) in &turn.changes {
            seed[usize::from(*place) % policy::BYTES] = *value;
        }
        scene = policy::of(&seed);
        let text = shaped(&scene, turn.shape);
        run.reload(&text, world.now());
        step.reload(&text, world.now());
        let (out, also) = (run.out(0), step.out(0));
        assert_eq!(out, also, "the change differs under\n{text}");
        compare(&run, &step);
        see(&run, &out);
    }
    for gateway in [&mut run, &mut step] {
        gateway.shard.clear_flows();
        assert!(gateway.shard.flows.is_empty() && gateway.shard.mappings.is_empty(), "mappings are left");
        assert_eq!(gateway.shard.limiter.counted(), 0, "counts are left");
    }
}

fn compare(run: &Gateway, step: &Gateway) {
    assert_eq!(run.shard.counters, step.shard.counters);
    for gateway in [run, step] {
        check::gateway(gateway);
        assert_eq!(gateway.shard.flows.epoch(), gateway.tables.epoch);
        assert_eq!(gateway.shard.queues.len(), gateway.tables.interfaces.len());
        assert_eq!(gateway.shard.counters.rules.len(), gateway.tables.filter.rules.len());
    }
}

/// The bytes lead to what they are meant to try: else the property would hold nothing.
#[test]
fn swaps_reach_the_corners() {
    let mut random = Random::new(6);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..400 {
        let seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        let mut kept = 0;
        let turns: Vec<Turn> = (0..6)
            .map(|_| {
                let mut byte = || random.next_u64() as u8;
                // Rules, translations and routes, mostly.
                let changes = (0..1 + byte() % 2).map(|_| ([6, 6, 1, 8, byte()][usize::from(byte() % 5)], byte()));
                let changes = changes.collect();
                let shape = if byte() % 2 == 0 { 0 } else { byte() };
                let packets = (0..24).map(|_| quick(std::array::from_fn(|_| byte()))).collect();
                Turn { changes, shape, packets }
            })
            .collect();
        play(&seed, &turns, &[8], |gateway, out| {
            for verdict in
                out.sent.iter().map(|sent| sent.verdict).chain(out.ended.iter().map(|end| Some(end.1)))
            {
                *met.entry(verdict.map_or("part".to_owned(), |verdict| verdict.to_string())).or_default() +=
                    1;
            }
            let (old, flows) = (gateway.tables.epoch.saturating_sub(1), &gateway.shard.flows);
            let again = flows.iter().filter(|(id, flow)| {
                let cold = flows.cold(*id).unwrap();
                old > 0 && !flows.is_stale(flow) && cold.created < flow.seen
            });
            kept += again.count() as u64;
        });
        *met.entry("kept".to_owned()).or_default() += kept;
    }
    for what in ["(flow-revoked)", "(flow-translation)", "(interface-gone)", "kept"] {
        let count: u64 = met.iter().filter(|(key, _)| key.contains(what)).map(|(_, count)| *count).sum();
        assert!(count > 20, "{what}: {met:#?}");
    }
    assert!(met.contains_key("answered (flow-revoked)"), "{met:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(600),
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn run_equals_step_while_tables_are_swapped(
        seed in any::<[u8; policy::BYTES]>(),
        turns in prop::collection::vec(turn(), 1..8),
        sizes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        play(&seed, &turns, &sizes, |_, _| ());
    }
}
