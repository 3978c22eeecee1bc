use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

use super::{Reach, interface_of};
use crate::parse::parse;

const TWO: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "192.168.1.128/25"
via = "203.0.113.7"
[[route]]
to = "10.0.0.0/8"
kind = "blackhole"
"#;

#[test]
fn the_longest_prefix_decides() {
    let policy = parse(TWO, "p").policy.unwrap();
    let reach = Reach::of(&policy);
    let at = |zone: &str, address: &str| reach.destinations(zone).contains(address.parse().unwrap());
    assert!(at("lan", "192.168.1.7") && !at("wan", "192.168.1.7"));
    assert!(at("wan", "192.168.1.200") && !at("lan", "192.168.1.200"));
    assert!(at("wan", "8.8.8.8") && at("wan", "255.255.255.255"));
    assert!(!at("wan", "10.1.1.1") && !at("lan", "10.1.1.1"), "swallowed");
    assert!(!at("wan", "2001:db8::1"), "no route");
    assert!(at("self", "203.0.113.2") && !at("self", "203.0.113.3"));
    assert_eq!(interface_of(&policy, None, "203.0.113.9".parse().unwrap()), Some(1));
}

#[test]
fn each_vrf_has_routes_of_its_own() {
    let text = r#"
[interface.red]
zone = "red"
vrf = "red"
addresses = ["192.168.1.1/24"]
[interface.blue]
zone = "blue"
vrf = "blue"
addresses = ["192.168.1.7/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "10.0.0.0/8"
vrf = "red"
via = "192.168.1.9"
[[route]]
to = "0.0.0.0/0"
vrf = "red"
next-vrf = "default"
via = "203.0.113.1"
"#;
    let policy = parse(text, "p").policy.unwrap();
    let reach = Reach::of(&policy);
    let to = |zone: &str, address: &str| reach.destinations(zone).contains(address.parse().unwrap());
    let from = |zone: &str, address: &str| reach.sources(zone).contains(address.parse().unwrap());
    // The address of the gateway in one VRF is a host's in the other.
    assert!(to("red", "192.168.1.7") && !to("red", "192.168.1.1"));
    assert!(to("blue", "192.168.1.1") && !to("blue", "192.168.1.7"));
    assert!(from("red", "10.1.1.1") && !from("blue", "10.1.1.1"));
    // The leak leads there, and nobody from there.
    assert!(to("wan", "8.8.8.8") && !from("wan", "8.8.8.8"));
    let leads = |vrf, address: &str| reach.leads_to(vrf, address.parse().unwrap());
    assert!(leads(Some("red"), "8.8.8.8") && !leads(None, "8.8.8.8") && !leads(Some("blue"), "10.1.1.1"));
    let link = |vrf| interface_of(&policy, vrf, "192.168.1.20".parse().unwrap());
    assert_eq!([link(None), link(Some("red")), link(Some("blue"))], [None, Some(0), Some(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn reach_equals_a_look_up_route_by_route(
        nets in vec((0..64_u32, 26..=32_u8, 0..3_usize), 1..12),
        probe in any::<[u8; 4]>(),
    ) {
        let mut policy = parse(TWO, "p").policy.unwrap();
        policy.routes.clear();
        let mut seen = std::collections::HashSet::new();
        for (bits, length, to) in nets {
            let net = IpNet::V4(Ipv4Net::new(Ipv4Addr::from(bits << 2 & 63), length).unwrap().trunc());
            if !seen.insert(net) {
                continue;
            }
            let interface = ["lan", "wan"].get(to).map(|name| (*name).to_owned());
            let target = match interface {
                Some(name) => crate::model::RouteTarget::Via(vec![crate::model::NextHop {
                    via: None,
                    interface: Some(name),
                    weight: 1,
                }]),
                None => crate::model::RouteTarget::Blackhole,
            };
            policy.routes.push(crate::model::Route { destination: net, vrf: None, next_vrf: None, target });
        }
        let reach = Reach::of(&policy);
        let naive = |address: IpAddr| {
            let best = policy.routes.iter().filter(|route| route.destination.contains(&address));
            let best = best.max_by_key(|route| route.destination.prefix_len())?;
            match &best.target {
                crate::model::RouteTarget::Via(hops) => hops[0].interface.clone(),
                _ => None,
            }
        };
        let probes = (0..70).chain([u32::from_be_bytes(probe)]).map(|bits| IpAddr::V4(Ipv4Addr::from(bits)));
        for address in probes {
            if address.to_string().starts_with("192.168.1.") || address.to_string().starts_with("203.0.113.") {
                continue;
            }
            let expected = naive(address);
            for zone in ["lan", "wan"] {
                let found = reach.destinations(zone).contains(address);
                // Groups are routed by routes of their own.
                let leads = address.is_multicast() || expected.as_deref() == Some(zone);
                prop_assert_eq!(found, leads, "{} {}", address, zone);
            }
        }
    }
}
