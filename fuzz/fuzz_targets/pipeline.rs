//! Packets made of arbitrary bytes through a policy made of arbitrary bytes.
//!
//! Beyond not crashing: frames are conserved, no slot is lost, no mapping outlives its flows or is handed out twice,
//! what leaves has right checksums where it came with right ones, and stage by stage the same comes out as frame by
//! frame. It shares its scenes with the tests of the dataplane.
#![no_main]

#[path = "../../dataplane/tests/scene/mod.rs"]
mod scene;

use std::collections::HashMap;

use dataplane::replay::Way;
use libfuzzer_sys::fuzz_target;
use scene::packet::{self, Packets};
use scene::{Gateway, check, policy};

fuzz_target!(|data: &[u8]| {
    let Some((seed, rest)) = data.split_first_chunk::<{ policy::BYTES }>() else { return };
    let Some((size, rest)) = rest.split_first() else { return };
    let scene = policy::of(seed);
    let mut run = Gateway::new(&scene.text, Way::Run);
    let mut step = Gateway::new(&scene.text, Way::Step);
    let mut world = Packets::new();
    let mut arrived = HashMap::new();
    let packets: Vec<[u8; packet::BYTES]> =
        rest.chunks_exact(packet::BYTES).filter_map(|chunk| chunk.try_into().ok()).take(200).collect();
    for now in packets.chunks(usize::from(size % 64) + 1) {
        let arrivals: Vec<_> = now.iter().map(|bytes| world.next(bytes)).collect();
        run.receive(&arrivals);
        step.receive(&arrivals);
        arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
        let most = if scene.has_room { usize::MAX } else { now.len().div_ceil(2) };
        let (out, also) = (run.out(most), step.out(most));
        assert_eq!(out, also);
        assert_eq!(run.shard.counters, step.shard.counters);
        check::gateway(&run);
        check::gateway(&step);
        for sent in &out.sent {
            check::sent(&scene, &arrived, sent);
        }
        world.learn(&out.sent);
    }
    run.shard.clear_flows();
    assert!(run.shard.flows.is_empty() && run.shard.mappings.is_empty());
});
