//! Two gateways that divide flows: when they hand packets over, and when not.

use std::net::{IpAddr, Ipv4Addr};

use dataplane::peer::Handover;

use super::super::owner::Ends;
use super::super::session::Met;
use super::*;

fn policy(side: &str, owner: &str) -> String {
    POLICY
        .replace("listen:", &format!("{side}:"))
        .replace("sync-ca = \"ca\"", &format!("sync-ca = \"ca\"\n{owner}"))
}

const HASH: &str = "sync-owner = \"hash\"";

/// Ends of a connection on loopback, where each test has addresses of its own.
fn ends(test: u8) -> [Ends; 2] {
    let [own, peer] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 59, test, last)));
    [Ends { own, peer }, Ends { own: peer, peer: own }]
}

/// The session of one with the other over a connection with these ends, until `act` has come to its end.
async fn talk_over(pair: &mut [Gateway; 2], ends: [Ends; 2], act: impl Future<Output = ()>) {
    let (a, b) = duplex(1 << 16);
    let [one, two] = pair;
    let met = ends.map(|ends| Met { address: "peer", ends: Some(ends) });
    tokio::select! {
        ended = conduct(a, met[0], &one.shards, &one.shared, &mut one.memory, QUICK) => panic!("{ended}"),
        ended = conduct(b, met[1], &two.shards, &two.shared, &mut two.memory, QUICK) => panic!("{ended}"),
        () = act => {}
    }
}

fn handed_over(gateway: &Gateway) -> HandedOver {
    gateway.status().owner.expect("flows are divided").handed_over
}

#[test]
fn both_hand_over_once_each_has_all_flows_and_nothing_without_a_session() {
    let mut pair = [("listen", [1, 1]), ("connect", [2, 2])]
        .map(|(side, instance)| Gateway::of(&policy(side, HASH), 2, instance));
    pair[0].begin((0..700).map(flow));
    assert_eq!(pair.each_ref().map(handed_over), [HandedOver::None; 2]);
    let divisions = pair.each_ref().map(|gateway| gateway.shared.division.status().unwrap());
    assert!(divisions.iter().all(|status| status.trouble.is_none()));
    for _ in 0..2 {
        run(async {
            let watched = pair.each_ref().map(|gateway| gateway.shared.division.standing());
            let hand_over = || watched.iter().all(|standing| standing.handover() == Handover::Owned);
            talk_over(&mut pair, ends(1), until("both hand over", hand_over)).await;
        });
        assert_eq!(pair.each_ref().map(handed_over), [HandedOver::None; 2], "the session is over");
    }
    assert!(!pair[0].status().both_active);
}

#[test]
fn a_gateway_without_a_half_is_told_of_in_words_on_both() {
    let mut pair = [("listen", HASH, [1, 1]), ("connect", "", [2, 2])]
        .map(|(side, owner, instance)| Gateway::of(&policy(side, owner), 1, instance));
    run(async { talk_over(&mut pair, ends(2), sleep(Duration::from_millis(300))).await });
    let [one, two] = pair.each_ref().map(|gateway| gateway.status().owner.unwrap());
    assert!(one.trouble.is_some_and(|words| words.contains("the peer has no `sync-owner`")));
    assert!(two.trouble.is_some_and(|words| words.contains("this gateway does not")));
    assert_eq!([one.handed_over, two.handed_over], [HandedOver::None; 2]);
    // Both policies say the same side.
    let mut pair = [[1, 1], [2, 2]].map(|instance| Gateway::of(&policy("listen", HASH), 1, instance));
    run(async { talk_over(&mut pair, ends(3), sleep(Duration::from_millis(300))).await });
    assert!(pair[0].status().owner.unwrap().trouble.unwrap().contains("the same half"));
    // Another program has the port.
    let [own, _] = ends(4);
    let _taken = std::net::UdpSocket::bind((own.own, wire::vxlan::PORT)).unwrap();
    let mut pair = [("listen", [1, 1]), ("connect", [2, 2])]
        .map(|(side, instance)| Gateway::of(&policy(side, HASH), 1, instance));
    run(async { talk_over(&mut pair, ends(4), sleep(Duration::from_millis(300))).await });
    assert!(pair[0].status().owner.unwrap().trouble.unwrap().contains("cannot be opened"));
    // None divides anything: nothing is said.
    let mut pair = [[1, 1], [2, 2]].map(|instance| Gateway::new(1, instance));
    run(async { talk_over(&mut pair, ends(5), sleep(Duration::from_millis(300))).await });
    assert!(pair.iter().all(|gateway| gateway.status().owner.is_none()));
}

#[test]
fn nothing_is_handed_over_to_a_peer_that_is_silent() {
    let division = Division::new(Some(Half::Listens));
    division.link_for_test();
    let handover = || division.standing().handover();
    assert_eq!(handover(), Handover::None);
    division.peer_completed();
    assert_eq!(handover(), Handover::All, "this one has not all flows yet");
    division.completed();
    assert_eq!(handover(), Handover::Owned);
    assert!(division.is_to_be_told() && !division.is_to_be_told(), "once");
    division.silent();
    assert_eq!(handover(), Handover::None);
    division.heard();
    assert_eq!(handover(), Handover::Owned);
}
