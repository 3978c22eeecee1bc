//! Routes with several routers (ECMP) and many flows: weights hold, and a router that goes moves its own flows and no other's, by run
//! and by step alike.

use dataplane::replay::Way;
use wire::Nanos;

use crate::scene::{Gateway, START};
use crate::wan::{FLOWS, ask, count};

/// A policy whose default route has these routers, each on the link of its number.
fn policy(mode: &str, routers: &[(u16, u8)]) -> String {
    let mut text =
        format!("mode = \"{mode}\"\n[interface.lan]\nzone = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n");
    for number in 1..=4 {
        text += &format!("[interface.wan{number}]\nzone = \"wan\"\naddresses = [\"10.0.{number}.2/24\"]\n");
    }
    let hop = |(number, weight): &(u16, u8)| format!("{{ via = \"10.0.{number}.1\", weight = {weight} }}");
    let hops = routers.iter().map(hop).collect::<Vec<_>>().join(", ");
    text + &format!("[[route]]\nto = \"0.0.0.0/0\"\nvia = [{hops}]\n[default]\n\"lan > wan\" = \"accept\"\n")
}

#[test]
fn weights_hold_over_many_flows() {
    for mode in ["stateful", "stateless"] {
        let text = policy(mode, &[(1, 5), (2, 3), (3, 2)]);
        let [run, step] = [Way::Run, Way::Step].map(|way| ask(&mut Gateway::new(&text, way), START));
        assert_eq!(run, step);
        for (port, weight) in [(1, 0.5), (2, 0.3), (3, 0.2)] {
            let (wanted, count) = (f64::from(FLOWS) * weight, count(&run, port));
            assert!((count - wanted).abs() < 0.15 * wanted, "{mode}, {port}: {count}");
        }
    }
}

/// Wherever it stands in the list, and in whatever order the others are told of afterwards, as a routing daemon does.
#[test]
fn a_router_that_goes_moves_its_own_flows_and_no_other() {
    let all = [(1, 5), (2, 3), (3, 2), (4, 1)];
    for mode in ["stateful", "stateless"] {
        for gone in 1..=4 {
            let mut gateway = Gateway::new(&policy(mode, &all), Way::Run);
            let before = ask(&mut gateway, START);
            let mut rest: Vec<(u16, u8)> = all.into_iter().filter(|(number, _)| *number != gone).collect();
            rest.reverse();
            let at = START + Nanos::from_secs(1);
            gateway.reload(&policy(mode, &rest), at);
            let after = ask(&mut gateway, at);
            for (flow, was) in &before {
                let stays = *was != gone;
                assert_eq!(after[flow] == *was, stays, "{mode}: flow {flow} by {was}, and {gone} is gone");
            }
            let at = START + Nanos::from_secs(2);
            gateway.reload(&policy(mode, &all), at);
            assert_eq!(ask(&mut gateway, at), before, "{mode}: {gone} is back");
        }
    }
}

/// A router that is named twice has both shares, as one of that weight.
#[test]
fn a_router_named_twice_has_both_shares() {
    let by = |routers: &[(u16, u8)]| ask(&mut Gateway::new(&policy("stateful", routers), Way::Run), START);
    assert_eq!(by(&[(1, 2), (2, 1), (1, 1)]), by(&[(1, 3), (2, 1)]));
}
