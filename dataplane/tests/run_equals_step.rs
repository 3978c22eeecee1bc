//! However frames go through the stages, together or one by one, the same comes of them; and what must hold of every
//! gateway holds. Policies and packets follow from random bytes, aimed at corners.

mod scene;

use std::collections::{BTreeMap, HashMap};

use dataplane::Reason;
use dataplane::replay::Way;
use proptest::prelude::*;
use scene::packet::Packets;
use scene::{Arrival, Gateway, Out, check, packet, policy, tables};
use wire::random::Random;

/// Plays packets into two gateways, in batches of these sizes, and compares after each.
fn play(seed: &[u8; policy::BYTES], packets: &[[u8; packet::BYTES]], sizes: &[u8]) {
    let scene = policy::of(seed);
    let mut run = Gateway::new(&scene.text, Way::Run);
    let mut step = Gateway::new(&scene.text, Way::Step);
    let mut world = Packets::new();
    let mut arrived = HashMap::new();
    let mut sizes = sizes.iter().cycle();
    let mut rest = packets;
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |size| usize::from(*size) % 64 + 1).min(rest.len());
        let (now, later) = rest.split_at(size);
        rest = later;
        let arrivals: Vec<_> = now.iter().map(|bytes| world.next(bytes)).collect();
        run.receive(&arrivals);
        step.receive(&arrivals);
        arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
        // Queues that are not emptied fill.
        let most = if scene.has_room { usize::MAX } else { size.div_ceil(2) };
        let (out, also) = (run.out(most), step.out(most));
        assert_eq!(out, also, "run and step differ under\n{}", scene.text);
        assert_eq!(run.shard.counters, step.shard.counters);
        check::gateway(&run);
        check::gateway(&step);
        for sent in &out.sent {
            check::sent(&scene, &arrived, sent);
        }
        world.learn(&out.sent);
    }
    if scene.has_room {
        batches_do_not_matter(&scene, &arrived);
    }
    run.shard.clear_flows();
    assert!(run.shard.flows.is_empty() && run.shard.mappings.is_empty(), "flows leave mappings behind");
}

/// Where no queue fills and no slot is wanting, it does not matter how many frames travel together.
fn batches_do_not_matter(scene: &policy::Scene, arrived: &HashMap<u32, Arrival>) {
    let mut arrivals: Vec<&Arrival> = arrived.values().collect();
    arrivals.sort_by_key(|arrival| arrival.number);
    let outs = [1, 64].map(|size| {
        let mut gateway = Gateway::with_slots(tables(&scene.text), Way::Run, 2_000);
        let mut out = Out::default();
        for batch in arrivals.chunks(size) {
            let batch: Vec<Arrival> = batch.iter().map(|arrival| (*arrival).clone()).collect();
            gateway.receive(&batch);
            let mut now = gateway.out(usize::MAX);
            out.sent.append(&mut now.sent);
            out.ended.append(&mut now.ended);
        }
        // Ports are independent of one another.
        out.sent.sort_by_key(|sent| sent.port);
        (out, gateway.shard.counters)
    });
    assert_eq!(outs[0], outs[1], "batches of 1 and of 64 differ under\n{}", scene.text);
}

/// The bytes lead to what they are meant to try: else these tests would hold nothing.
#[test]
fn scenes_reach_the_corners() {
    let mut random = Random::new(5);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..1_000 {
        let mut bytes = || random.next_u64().to_le_bytes();
        let mut seed = [0; policy::BYTES];
        seed[..8].copy_from_slice(&bytes());
        seed[8..].copy_from_slice(&bytes()[..4]);
        let scene = policy::of(&seed);
        let (mut gateway, mut world) = (Gateway::new(&scene.text, Way::Run), Packets::new());
        for _ in 0..20 {
            let arrivals: Vec<_> = (0..8)
                .map(|_| {
                    let mut packet = [0; packet::BYTES];
                    packet[..8].copy_from_slice(&bytes());
                    packet[8..16].copy_from_slice(&bytes());
                    packet[16..].copy_from_slice(&bytes()[..2]);
                    world.next(&packet)
                })
                .collect();
            gateway.receive(&arrivals);
            let out = gateway.out(if scene.has_room { usize::MAX } else { 4 });
            for verdict in
                out.sent.iter().map(|sent| sent.verdict).chain(out.ended.iter().map(|end| Some(end.1)))
            {
                *met.entry(verdict.map_or("part".to_owned(), |verdict| verdict.to_string())).or_default() +=
                    1;
            }
            world.learn(&out.sent);
        }
        *met.entry("evicted".to_owned()).or_default() += gateway.shard.counters.evicted;
        *met.entry("held".to_owned()).or_default() += gateway.shard.counters.held;
    }
    // Neighbours are assumed, slots are enough, nothing waits for ever, and in small tables flows are full first.
    let unmet = [Reason::NeighbourUnknown, Reason::SlotTooSmall, Reason::FragmentWaits, Reason::NatTableFull];
    let missing: Vec<&str> = Reason::ALL
        .iter()
        .filter(|entry| !unmet.contains(&entry.reason))
        .map(|entry| entry.name)
        .filter(|name| !met.keys().any(|key| key.contains(&format!("({name})"))))
        .collect();
    assert_eq!(missing, [""; 0], "{met:#?}");
    for what in ["forwarded", "delivered", "part", "evicted", "held"] {
        assert!(met.get(what).is_some_and(|count| *count > 20), "{what}: {met:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn run_equals_step(
        seed in any::<[u8; policy::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; packet::BYTES]>(), 1..120),
        sizes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        play(&seed, &packets, &sizes);
    }
}
