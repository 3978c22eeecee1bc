//! Any bytes as netlink messages from Linux.
//!
//! Beyond not crashing: there are no more messages than headers, and what was told can be told again without changing
//! anything about interfaces, addresses, next-hop objects and neighbours. Whatever it came to, the effective policy is one
//! that compiles.
#![no_main]

use std::sync::LazyLock;

use dataplane::tables::Tables;
use gateway::effective::effective;
use gateway::linux::State;
use gateway::linux::desired::Desired;
use gateway::linux::message::{Body, parse};
use libfuzzer_sys::fuzz_target;
use policy::Policy;

/// Policy of the interfaces that the recorded messages name.
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n\
                [[route]]\nto = \"10.1.0.0/16\"\nvia = \"192.0.2.9\"\n";
    policy::parse(text, "fuzz.toml").policy.expect("it is right")
});

fuzz_target!(|data: &[u8]| {
    let mut state = State::default();
    let mut count = 0;
    for message in parse(data) {
        count += 1;
        if let Body::Event(event) = message.body {
            state.apply(event.clone());
            let before = state.clone();
            state.apply(event);
            assert_eq!(state.links, before.links);
            assert_eq!(state.addresses, before.addresses);
            assert_eq!(state.objects, before.objects);
            assert_eq!(state.neighbours, before.neighbours);
        }
    }
    assert!(count <= data.len() / 16 + 1);
    assert_eq!(state.routes.iter().count(), state.routes.len());
    assert!(state.routes.iter().all(|(_, routes)| !routes.is_empty()));
    let effective = effective(&POLICY, &state, &Default::default());
    assert_eq!(effective.places.len(), POLICY.interfaces.len());
    // Building tables for each input would take most of the time.
    if data.len() % 16 == 0 {
        assert!(Tables::compile(&effective.policy, 1).is_ok());
    }
    let _ = Desired::of(&POLICY, &effective.policy.wans).plan(&state);
});
