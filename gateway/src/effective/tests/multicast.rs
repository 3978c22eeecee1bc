use std::path::PathBuf;
use std::sync::Arc;

use dataplane::Tables;
use policy::model::{MulticastExit, MulticastMiss, MulticastRoute};

use super::*;
use crate::linux::interface::Settings;
use crate::linux::multicast::{self, MulticastEntry, MulticastKey, MulticastRouter};
use crate::reload::{Outcome, Reload};

fn entry(group: &str, source: &str, from: LinkIndex, to: &[(LinkIndex, u8)]) -> Event {
    let ip = |text: &str| text.parse().expect("an address");
    let exit =
        |(link, threshold): &(LinkIndex, u8)| multicast::MulticastExit { link: *link, threshold: *threshold };
    Event::Multicast(
        MulticastKey { group: ip(group), source: ip(source) },
        MulticastEntry { from, to: to.iter().map(exit).collect() },
    )
}

fn route(group: &str, source: Option<&str>, from: &str, to: &[(&str, u8)]) -> MulticastRoute {
    let exit = |(interface, threshold): &(&str, u8)| MulticastExit {
        interface: (*interface).to_owned(),
        threshold: *threshold,
    };
    MulticastRoute {
        group: net(group),
        source: source.map(|source| source.parse().expect("an address")),
        from: from.to_owned(),
        to: to.iter().map(exit).collect(),
    }
}

fn router(link: LinkIndex, multicast: MulticastRouter) -> Event {
    let settings = Settings { linkdown: None, multicast: Some(multicast) };
    Event::Settings(LinkdownKey { link, v6: false }, settings)
}

#[test]
fn entries_of_the_forwarding_cache_are_multicast_routes() {
    let mut scene = Scene::new();
    scene.tell(entry("239.1.1.1", "198.51.100.9", WAN, &[(LAN, 1), (WAN, 1), (MGMT, 1)]));
    scene.tell(entry("239.1.1.2", "0.0.0.0", LAN, &[(WAN, 16)]));
    scene.tell(entry("0.0.0.0", "0.0.0.0", LAN, &[]));
    scene.tell(entry("239.1.1.3", "0.0.0.0", MGMT, &[(LAN, 1)]));
    scene.tell(entry("ff3e::1", "2001:db8:9::9", WAN, &[(LAN, 0)]));
    let effective = scene.effective();
    let expected = [
        route("224.0.0.0/4", None, "lan", &[]),
        route("239.1.1.1/32", Some("198.51.100.9"), "wan", &[("lan", 1)]),
        route("239.1.1.2/32", None, "lan", &[("wan", 16)]),
        route("ff3e::1/128", Some("2001:db8:9::9"), "wan", &[("lan", 1)]),
    ];
    assert_eq!(effective.policy.multicast_routes, expected);
    let said: Vec<String> = effective.notes.iter().map(ToString::to_string).collect();
    let left_out =
        "2 routes of Linux left out out of \"mgmt\", which the policy does not name, such as 239.1.1.1/32";
    assert!(said.iter().any(|note| note == left_out), "{said:?}");
    scene.tell(Event::MulticastGone(MulticastKey {
        group: "239.1.1.2".parse().unwrap(),
        source: "0.0.0.0".parse().unwrap(),
    }));
    assert_eq!(scene.effective().policy.multicast_routes.len(), 3);
}

#[test]
fn a_route_of_the_policy_is_preferred() {
    let mut scene = Scene::new();
    scene.tell(entry("239.1.1.1", "0.0.0.0", WAN, &[(LAN, 1)]));
    let mut own = policy();
    own.multicast_routes = vec![route("239.1.1.1/32", None, "lan", &[("wan", 1)])];
    let effective = effective(&own, &scene.0, &Failed::default());
    assert_eq!(effective.policy.multicast_routes, own.multicast_routes);
}

#[test]
fn packets_without_a_route_are_linuxs_where_a_daemon_listens() {
    let mut scene = Scene::new();
    let misses = |scene: &Scene| {
        let interfaces = scene.effective().policy.interfaces;
        interfaces.iter().map(|interface| interface.multicast_miss).collect::<Vec<_>>()
    };
    assert_eq!(misses(&scene), [MulticastMiss::Drop; 4]);
    scene.tell(router(WAN, MulticastRouter::On));
    assert_eq!(
        misses(&scene),
        [MulticastMiss::Drop, MulticastMiss::Punt, MulticastMiss::Drop, MulticastMiss::Drop]
    );
    scene.tell(router(WAN, MulticastRouter::Off));
    assert_eq!(misses(&scene), [MulticastMiss::Drop; 4]);
    scene.tell(router(WAN, MulticastRouter::On));
    scene.tell(Event::LinkGone(WAN));
    assert_eq!(misses(&scene), [MulticastMiss::Drop; 4]);
}

/// Of a thousand hosts that join and leave, none has tables compiled or flows validated again. What the routes have counted stays.
#[test]
fn a_change_of_the_forwarding_cache_compiles_no_tables() {
    let mut scene = Scene::new();
    scene.tell(router(WAN, MulticastRouter::On));
    let begun = scene.effective();
    let tables = Arc::new(Tables::compile(&begun.policy, 1).expect("tables"));
    let mut reload = Reload::new(Arc::new(policy()), Arc::new(begun), tables, None, PathBuf::new());
    let mut next = |scene: &Scene| {
        reload.linux_changed();
        let built = reload.next(&Arc::new(scene.0.clone())).expect("a change").run();
        reload.finished();
        reload.effective = built.effective;
        let outcome = built.outcome.expect("tables");
        match &outcome {
            Outcome::Same => {}
            Outcome::Multicast(routes) => reload.multicast = Some(routes.clone()),
            Outcome::Tables(tables) => (reload.tables, reload.multicast) = (tables.clone(), None),
        }
        outcome
    };
    let group = |number: u32| format!("239.1.{}.{}", number / 250, number % 250);
    for number in 0..1_000 {
        scene.tell(entry(&group(number), "198.51.100.9", WAN, &[(LAN, 1)]));
        match next(&scene) {
            Outcome::Multicast(routes) => assert_eq!(routes.list.len() as u32, number + 1),
            _ => panic!("{number} joins have compiled tables"),
        }
    }
    assert!(matches!(next(&scene), Outcome::Same));
    scene.tell(Event::MulticastGone(MulticastKey {
        group: group(7).parse().unwrap(),
        source: "198.51.100.9".parse().unwrap(),
    }));
    let Outcome::Multicast(routes) = next(&scene) else { panic!("a host that leaves has compiled tables") };
    assert!(
        routes.list.len() == 999
            && routes.list.iter().all(|route| route.group.addr().to_string() != group(7))
    );
    // Tables that come for another reason have the routes, and go on with their counts.
    let counted = routes.list[0].count.clone();
    scene.tell(router(LAN, MulticastRouter::On));
    let Outcome::Tables(tables) = next(&scene) else { panic!("an interface has changed") };
    assert!(tables.multicast.list.len() == 999 && Arc::ptr_eq(&tables.multicast.list[0].count, &counted));
    // The first routes of all take tables, as there is a stage for them then.
    scene.tell(router(WAN, MulticastRouter::Off));
    scene.tell(router(LAN, MulticastRouter::Off));
    scene.0.multicast = Arc::default();
    assert!(matches!(next(&scene), Outcome::Tables(tables) if tables.multicast.list.is_empty()));
    scene.tell(entry("239.1.1.1", "198.51.100.9", WAN, &[(LAN, 1)]));
    assert!(matches!(next(&scene), Outcome::Tables(_)));
}
