//! Packets made of arbitrary bytes through one of many policies.
//!
//! Beyond not crashing: frames are conserved, no slot is lost, no mapping outlives its flows or is handed out twice,
//! what leaves has right checksums where it came with right ones, and stage by stage the same comes out as frame by
//! frame. It shares its scenes with the tests of the dataplane.
#![no_main]

#[path = "../../dataplane/tests/scene/mod.rs"]
mod scene;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use dataplane::Tables;
use dataplane::hop::{MOST_WAITING, Resolve};
use dataplane::replay::Way;
use libfuzzer_sys::fuzz_target;
use scene::link::Link;
use scene::packet::{self, Packets};
use scene::{Gateway, check, policy};
use wire::random::Random;

fuzz_target!(|data: &[u8]| {
    let [choice, size, rest @ ..] = data else { return };
    let (scene, tables) = prepared(*choice);
    let slots = 160 + tables.limits.fragments.held;
    // Neighbours are assumed, or told now and then.
    let resolve = if size & 64 == 0 { Resolve::Assume } else { Resolve::ByHost };
    // Sequence numbers of a tunnel belong to its tables: gateways that shared them would each have every other one.
    let own = || if scene.has_tunnel { Rc::new(scene::tables(&scene.text)) } else { tables.clone() };
    let mut gateways =
        [Way::Run, Way::Step].map(|way| Gateway::with(own(), way, slots + MOST_WAITING, resolve));
    let mut link = Link::default();
    let mut world = Packets::new();
    let mut arrived = HashMap::new();
    let packets: Vec<[u8; packet::BYTES]> =
        rest.chunks_exact(packet::BYTES).filter_map(|chunk| chunk.try_into().ok()).take(200).collect();
    for now in packets.chunks(usize::from(size % 64) + 1) {
        let arrivals: Vec<_> = now.iter().map(|bytes| world.next(bytes)).collect();
        let [run, step] = &mut gateways;
        run.receive(&arrivals);
        step.receive(&arrivals);
        arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
        let most = if scene.has_room { usize::MAX } else { now.len().div_ceil(2) };
        let (out, also) = (run.out(most), step.out(most));
        assert_eq!(out, also);
        assert_eq!(run.shard.counters, step.shard.counters);
        check::gateway(run);
        check::gateway(step);
        for sent in &out.sent {
            check::sent(&scene, &arrived, sent);
        }
        check::ended(&arrived, &out);
        world.learn(&out);
        if resolve == Resolve::ByHost {
            link.happen(&[now[0][16], now[0][17]], world.now(), &mut gateways);
        }
    }
    let [mut run, _] = gateways;
    run.shard.clear_flows();
    assert!(run.shard.flows.is_empty() && run.shard.mappings.is_empty());
});

/// A policy and its tables.
type Prepared = (Rc<policy::Scene>, Rc<Tables>);

thread_local! {
    /// Compiling takes longer than all else, so each policy is compiled but once.
    static PREPARED: RefCell<HashMap<u8, Prepared>> = RefCell::default();
}

/// A policy of which there are as many as a byte has values, and its tables.
fn prepared(choice: u8) -> Prepared {
    PREPARED.with_borrow_mut(|prepared| {
        let make = || {
            let mut random = Random::new(choice.into());
            let scene = policy::of(&std::array::from_fn(|_| random.next_u64() as u8));
            let tables = scene::tables(&scene.text);
            (Rc::new(scene), Rc::new(tables))
        };
        prepared.entry(choice).or_insert_with(make).clone()
    })
}
