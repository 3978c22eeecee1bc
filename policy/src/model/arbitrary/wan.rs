//! Random WANs and policy routes.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;

use super::check::{check_url, pace, status};
use super::{conditions, name, unique};
use crate::model::{Conditions, Macs, OnFailure, PolicyRoute, Wan, WanCheck, WanState, WhenDown};

/// WANs, and policy routes to any.
pub(super) fn wans() -> impl Strategy<Value = (Vec<Wan>, Vec<PolicyRoute>)> {
    let wans = vec(wan(), 0..3).prop_map(|all| unique(all, |wan| &wan.name));
    (wans, vec(policy_route(), 0..3))
}

fn wan() -> impl Strategy<Value = Wan> {
    let state = select(&[WanState::Up, WanState::Down][..]);
    let on_failure = select(&[OnFailure::Kill, OnFailure::Keep][..]);
    let most = || 1..=u8::MAX;
    let check = (vec(any::<IpAddr>(), 0..3), vec(check_url(), 0..3), status(), pace())
        .prop_map(|(ping, urls, status, pace)| WanCheck { ping, urls, status, pace });
    let used = (most(), most(), on_failure, option::of(check), state);
    (name(), name(), vec(any::<IpAddr>(), 0..3), used).prop_map(
        |(name, interface, gateways, (weight, tier, on_failure, check, state))| Wan {
            name,
            interface,
            gateways,
            weight,
            tier,
            on_failure,
            check,
            state,
        },
    )
}

fn policy_route() -> impl Strategy<Value = PolicyRoute> {
    let when_down = select(&[WhenDown::FallBack, WhenDown::Drop][..]);
    (name(), conditions(), name(), when_down).prop_map(|(name, conditions, via, when_down)| PolicyRoute {
        name,
        // The others are no keys of a policy route.
        conditions: Conditions {
            to: Vec::new(),
            out_interfaces: Vec::new(),
            source_macs: Macs::default(),
            icmp: Vec::new(),
            tcp_flags: None,
            ..conditions
        },
        via,
        when_down,
    })
}
