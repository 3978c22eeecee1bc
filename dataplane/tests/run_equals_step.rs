//! However frames go through the stages, together or one by one, the same comes of them; and what must hold of every
//! gateway holds. Policies and packets follow from random bytes, aimed at corners.

mod scene;

use std::collections::HashMap;

use dataplane::replay::Way;
use proptest::prelude::*;
use scene::packet::Packets;
use scene::{Gateway, check, packet, policy};

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
        assert_eq!(format!("{:?}", run.shard.counters), format!("{:?}", step.shard.counters));
        check::gateway(&run);
        check::gateway(&step);
        for sent in &out.sent {
            check::sent(&scene, &arrived, sent);
        }
        world.learn(&out.sent);
    }
    run.shard.clear_flows();
    assert!(run.shard.flows.is_empty() && run.shard.mappings.is_empty(), "flows leave mappings behind");
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
