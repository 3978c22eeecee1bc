//! Multicast routes against a plain model: a list of routes, gone through in order.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use wire::build;
use wire::ethernet::{self, Mac};
use wire::{PortId, ipv4};

use crate::scene::{Arrival, Gateway, START};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A route: last byte and prefix length of its group, source, interface, thresholds of the other interfaces (0: not an exit).
#[derive(Clone, Debug)]
struct Route {
    last: u8,
    length: u8,
    source: Option<u8>,
    from: usize,
    thresholds: [u8; 4],
}

fn route() -> impl Strategy<Value = Route> {
    let threshold = prop_oneof![Just(0_u8), Just(1), 1..6_u8];
    (
        0..4_u8,
        29..=32_u8,
        option::of(0..3_u8),
        0..4_usize,
        [threshold.clone(), threshold.clone(), threshold.clone(), threshold],
    )
        .prop_map(|(last, length, source, from, thresholds)| Route {
            // The first address of its prefix.
            last: last & (0xff_u8.checked_shl(u32::from(32 - length)).unwrap_or(0)),
            length,
            source,
            from,
            thresholds,
        })
}

fn source(from: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, from as u8, 10 + host)
}

impl Route {
    fn exits(&self) -> impl Iterator<Item = (usize, u8)> {
        let from = self.from;
        self.thresholds.into_iter().enumerate().filter(move |(to, threshold)| *threshold > 0 && *to != from)
    }

    fn fits(&self, group: u8, source: u8) -> bool {
        let mask = 0xff_u8.checked_shl(u32::from(32 - self.length)).unwrap_or(0);
        group & mask == self.last && self.source.is_none_or(|own| own == source)
    }
}

/// Routes that tell each other apart: of two alike the first. A source is one of the interface that the route is from.
fn distinct(routes: Vec<Route>) -> Vec<Route> {
    let mut seen = Vec::new();
    let mut kept = routes;
    kept.retain(|route| {
        let key = (route.last, route.length, route.source.map(|source| (route.from, source)));
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
    kept
}

fn policy(routes: &[Route], mode: &str) -> String {
    let mut text = format!("mode = \"{mode}\"\n");
    for (place, name) in NAMES.iter().enumerate() {
        let _ = write!(text, "[interface.{name}]\nzone = \"{name}\"\naddresses = [\"10.0.{place}.1/24\"]\n");
    }
    text.push_str("[default]\n\"any > any\" = \"accept\"\n");
    for route in routes {
        let _ = write!(
            text,
            "[[multicast-route]]\ngroup = \"239.1.1.{}/{}\"\nfrom = \"{}\"\n",
            route.last, route.length, NAMES[route.from]
        );
        if let Some(host) = route.source {
            let _ = writeln!(text, "source = \"{}\"", source(route.from, host));
        }
        let exits: Vec<String> =
            route.exits().map(|(to, threshold)| format!("\"{} threshold {threshold}\"", NAMES[to])).collect();
        if !exits.is_empty() {
            let _ = writeln!(text, "to = [{}]", exits.join(", "));
        }
    }
    text
}

/// Ports that get a copy, with its time to live; or the reason for none.
fn expected(routes: &[Route], from: usize, host: u8, group: u8, ttl: u8) -> Result<Vec<(u16, u8)>, Reason> {
    let fits = |route: &&Route| match route.source {
        Some(_) => route.from == from && route.fits(group, host),
        None => route.fits(group, host),
    };
    let best = routes.iter().filter(fits).max_by_key(|route| (route.length, route.source.is_some()));
    let route = best.ok_or(Reason::MulticastUnrouted)?;
    if route.from != from {
        return Err(Reason::MulticastInterface);
    }
    if route.exits().next().is_none() {
        return Err(Reason::MulticastUnrouted);
    }
    let copies: Vec<(u16, u8)> =
        route.exits().filter(|(_, threshold)| ttl > *threshold).map(|(to, _)| (to as u16, ttl - 1)).collect();
    if copies.is_empty() { Err(Reason::MulticastTtl) } else { Ok(copies) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn copies_are_those_of_the_list_of_routes(
        routes in vec(route(), 0..8),
        packets in vec((0..4_usize, 0..4_u8, 0..8_u8, 1..8_u8), 1..40),
        is_stateful: bool,
    ) {
        let routes = distinct(routes);
        let text = policy(&routes, if is_stateful { "stateful" } else { "stateless" });
        for way in [Way::Run, Way::Step] {
            let mut gateway = Gateway::new(&text, way);
            let arrivals: Vec<Arrival> = (0..).zip(&packets).map(|(number, &(from, host, group, ttl))| {
                let to = Ipv4Addr::new(239, 1, 1, group);
                let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::of_group(IpAddr::V4(to)))
                    .ipv4(source(from, host), to)
                    .ttl(ttl)
                    .udp(5004, 5004)
                    .payload(b"channel")
                    .to_vec();
                Arrival { port: PortId(from as u16), at: START, number, bytes }
            }).collect();
            gateway.receive(&arrivals);
            let out = gateway.out(usize::MAX);
            let mut copies: BTreeMap<u32, Vec<(u16, u8)>> = BTreeMap::new();
            for sent in &out.sent {
                let layer = ethernet::parse(&sent.bytes).unwrap();
                let packet = ipv4::parse_prefix(layer.payload).unwrap();
                prop_assert_eq!(layer.header.dst(), Mac::of_group(packet.header.dst().into()));
                prop_assert!(packet.checksum_is_right());
                copies.entry(sent.number).or_default().push((sent.port, packet.header.ttl()));
            }
            let mut made = 0;
            for (number, &(from, host, group, ttl)) in (0..).zip(&packets) {
                let found = copies.remove(&number);
                match expected(&routes, from, host, group, ttl) {
                    Ok(mut wanted) => {
                        made += wanted.len() as u64 - 1;
                        let mut found = found.unwrap_or_default();
                        wanted.sort_unstable();
                        found.sort_unstable();
                        prop_assert_eq!(found, wanted, "packet {} under\n{}", number, text);
                    }
                    Err(reason) => {
                        prop_assert_eq!(found, None);
                        prop_assert!(out.ended.contains(&(number, Verdict::Dropped(reason))), "{} under\n{}", reason, text);
                    }
                }
            }
            prop_assert_eq!(gateway.shard.counters.copied, made);
            prop_assert!(gateway.shard.counters.are_conserved());
            prop_assert_eq!(gateway.shard.flows.len(), 0, "a flow of a group");
        }
    }
}

/// A live host says by which interfaces a daemon is to be asked: one header of a source and a group each second, and nothing else, is Linux's.
#[test]
fn linux_is_given_headers_of_packets_without_a_route() {
    let text = policy(&[], "stateful");
    let mut policy = ::policy::check(&text, "multicast.toml").policy.expect("a sound policy");
    policy.interfaces[0].multicast_miss = ::policy::model::MulticastMiss::Punt;
    for way in [Way::Run, Way::Step] {
        let tables = dataplane::Tables::compile(&policy, 1).unwrap();
        let mut gateway = Gateway::with_slots(tables, way, 256);
        let mut number = 0;
        let mut send = |from: usize, host: u8, group: u8, at: u64| {
            let to = Ipv4Addr::new(239, 1, 1, group);
            let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::of_group(IpAddr::V4(to)))
                .ipv4(source(from, host), to)
                .ttl(9)
                .udp(5004, 5004)
                .payload(&[7; 600])
                .to_vec();
            number += 1;
            let at = START + wire::Nanos::from_millis(at);
            gateway.receive(&[Arrival { port: PortId(from as u16), at, number, bytes }]);
            let out = gateway.out(usize::MAX);
            assert!(out.sent.is_empty());
            let [(_, verdict)] = out.ended[..] else { panic!("{out:?}") };
            if verdict == Verdict::Delivered {
                let packet = &out.local[0].bytes[14..];
                let header = ipv4::parse(packet).expect("a sound header");
                assert_eq!((packet.len(), header.header.dst()), (20, to));
            }
            verdict
        };
        let unrouted = Verdict::Dropped(Reason::MulticastUnrouted);
        assert_eq!(send(0, 0, 1, 0), Verdict::Delivered);
        assert_eq!(send(0, 0, 1, 1), unrouted);
        assert_eq!(send(0, 0, 1, 999), unrouted);
        assert_eq!(send(0, 0, 1, 1_000), Verdict::Delivered);
        assert_eq!(send(0, 1, 1, 1_001), Verdict::Delivered, "another source");
        assert_eq!(send(0, 0, 2, 1_002), Verdict::Delivered, "another group");
        assert_eq!(send(1, 0, 3, 1_003), unrouted, "an interface without a daemon");
        // However many sources and groups there are.
        let given = (0..2_000_u32).filter(|turn| {
            let (host, group) = ((turn % 200) as u8, (turn / 200) as u8 + 10);
            send(0, host, group, 1_500) == Verdict::Delivered
        });
        assert!(given.count() <= dataplane::multicast::PLACES);
    }
}

/// A policy with a route, and a packet that is copied.
pub(crate) fn corners() -> (String, Vec<Arrival>) {
    let routes = [Route { last: 0, length: 29, source: None, from: 0, thresholds: [0, 1, 1, 1] }];
    let to = Ipv4Addr::new(239, 1, 1, 1);
    let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::of_group(IpAddr::V4(to)))
        .ipv4(source(0, 0), to)
        .ttl(9)
        .udp(5004, 5004)
        .to_vec();
    (policy(&routes, "stateful"), vec![Arrival { port: PortId(0), at: START, number: 1, bytes }])
}

#[test]
fn a_copy_without_a_slot_is_counted() {
    let routes = [Route { last: 0, length: 29, source: None, from: 0, thresholds: [0, 1, 1, 1] }];
    for mode in ["stateful", "stateless"] {
        let tables = crate::scene::tables(&policy(&routes, mode));
        let mut gateway = Gateway::with_slots(tables, Way::Run, 2);
        let to = Ipv4Addr::new(239, 1, 1, 1);
        let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::of_group(IpAddr::V4(to)))
            .ipv4(source(0, 0), to)
            .ttl(9)
            .udp(5004, 5004)
            .to_vec();
        gateway.receive(&[Arrival { port: PortId(0), at: START, number: 1, bytes }]);
        let out = gateway.out(usize::MAX);
        assert_eq!(out.sent.len(), 2);
        let counters = &gateway.shard.counters;
        assert_eq!((counters.copied, counters.dropped_for(Reason::MulticastCopy)), (2, 1));
        assert!(counters.are_conserved());
        assert_eq!(gateway.pool.available(), 2);
    }
}
