//! Forwarding, byte for byte: expected packets are built without the pipeline, with the next hop's link header and one hop
//! less. Packets that may go no further are answered, and flows are spread over next hops by all fields of their keys.

use std::collections::BTreeSet;
use std::net::IpAddr;

use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use wire::build::{self, Packet, Tcp};
use wire::ethernet::Mac;
use wire::random::Random;
use wire::tcp::Flags;
use wire::vlan::Tag;
use wire::{Dscp, Nanos, PortId};

use crate::scene::{Arrival, Gateway, START};

const POLICY: &str = r#"
    [interface.lan]
    zone = "lan"
    addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
    mac = "02:00:00:00:00:0a"
    [interface.wan]
    zone = "wan"
    addresses = ["203.0.113.2/24", "2001:db8:ff::2/64"]
    mac = "02:00:00:00:00:0b"
    [default]
    "lan > wan" = "accept"
    [[route]]
    to = "0.0.0.0/0"
    via = ["203.0.113.1", "203.0.113.3"]
    [[route]]
    to = "::/0"
    via = "2001:db8:ff::1"
    [[neighbour]]
    interface = "wan"
    address = "203.0.113.1"
    mac = "02:00:00:00:01:01"
    [[neighbour]]
    interface = "wan"
    address = "203.0.113.3"
    mac = "02:00:00:00:01:03"
    [[neighbour]]
    interface = "wan"
    address = "2001:db8:ff::1"
    mac = "02:00:00:00:01:01"
"#;

const LAN: Mac = Mac([2, 0, 0, 0, 0, 10]);
const WAN: Mac = Mac([2, 0, 0, 0, 0, 11]);
const HOST: Mac = Mac([2, 0, 0, 0, 0, 99]);
const ROUTERS: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 1, 3])];

/// Gateways of both modes, which go both ways.
fn gateways() -> Vec<(String, Gateway)> {
    let modes = ["", "mode = \"stateless\"\n"];
    let all = modes.into_iter().flat_map(|mode| [Way::Run, Way::Step].map(|way| (mode, way)));
    all.map(|(mode, way)| (format!("{mode:?} {way:?}"), Gateway::new(&format!("{mode}{POLICY}"), way)))
        .collect()
}

/// A packet from inside, but for its link header.
#[derive(Clone, Debug)]
struct Shape {
    ends: (IpAddr, IpAddr),
    ports: (u16, u16),
    is_tcp: bool,
    dscp: u8,
    id: u16,
    payload: Vec<u8>,
}

impl Shape {
    fn of(random: &mut Random) -> Shape {
        let ends: [(&str, &str); 2] = [("192.168.1.7", "198.51.100.9"), ("2001:db8:1::7", "2001:db8:9::9")];
        let (from, to) = ends[random.below(2) as usize];
        Shape {
            ends: (from.parse().unwrap(), to.parse().unwrap()),
            ports: (random.between(1024, 65_535) as u16, random.between(1, 1_023) as u16),
            is_tcp: random.chance(50),
            dscp: random.below(64) as u8,
            id: random.next_u64() as u16,
            payload: (0..random.below(1_200)).map(|_| random.next_u64() as u8).collect(),
        }
    }

    /// The frame with that link header and hop count.
    fn frame(&self, link: Packet<'_>, hops: u8) -> Vec<u8> {
        let (sport, dport) = self.ports;
        let packet = match self.ends {
            (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from, to).id(self.id),
            (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from, to),
            _ => unreachable!(),
        };
        let packet = packet.ttl(hops).dscp(Dscp::of_field(self.dscp << 2));
        let syn = Tcp { sport, dport, seq: 7, flags: Flags::SYN, ..Tcp::default() };
        let packet = if self.is_tcp { packet.tcp(syn) } else { packet.udp(sport, dport) };
        packet.payload(&self.payload).to_vec()
    }
}

fn arrival(number: u32, bytes: Vec<u8>) -> Arrival {
    Arrival { port: PortId(0), at: START + Nanos::from_millis(u64::from(number)), number, bytes }
}

#[test]
fn what_is_forwarded_has_another_link_header_and_one_hop_less() {
    for (name, mut gateway) in gateways() {
        let mut random = Random::new(3);
        for number in 0..2_000 {
            let (shape, hops) = (Shape::of(&mut random), random.between(2, 255) as u8);
            gateway.receive(&[arrival(number, shape.frame(build::ethernet(HOST, LAN), hops))]);
            let out = gateway.out(usize::MAX);
            let [sent] = &out.sent[..] else { panic!("{name}: {out:?}") };
            let must: Vec<_> =
                ROUTERS.iter().map(|router| shape.frame(build::ethernet(WAN, *router), hops - 1)).collect();
            assert_eq!((sent.port, sent.verdict), (1, Some(Verdict::Forwarded)), "{name}");
            assert!(must.contains(&sent.bytes), "{name}: {:02x?}\nis none of {must:02x?}", sent.bytes);
        }
    }
}

/// RFC 1812, section 5.3.1: a router does not forward what it would send with a time to live of 0.
#[test]
fn the_last_hop_is_not_passed_on() {
    for (name, mut gateway) in gateways() {
        let mut random = Random::new(4);
        for number in 0..200 {
            let (shape, hops) = (Shape::of(&mut random), random.below(2) as u8);
            // Answers are limited for each receiver a second.
            let mut arrival = arrival(number, shape.frame(build::ethernet(HOST, LAN), hops));
            arrival.at = START + Nanos::from_secs(u64::from(number));
            gateway.receive(&[arrival]);
            let out = gateway.out(usize::MAX);
            let [sent] = &out.sent[..] else { panic!("{name}: {out:?}") };
            assert_eq!((sent.port, sent.verdict), (0, Some(Verdict::Answered(Reason::TtlExpired))), "{name}");
        }
    }
}

/// Flows that only a port tells apart take both next hops (RFC 2992), and each flow one.
#[test]
fn flows_are_spread_by_their_ports() {
    for (name, mut gateway) in gateways() {
        let mut random = Random::new(5);
        for by in ["source port", "destination port"] {
            let mut hops = BTreeSet::new();
            for flow in 0..64 {
                let mut shape = Shape::of(&mut random);
                shape.ends = ("192.168.1.7".parse().unwrap(), "198.51.100.9".parse().unwrap());
                shape.is_tcp = false;
                shape.ports = if by == "source port" { (2_000 + flow, 53) } else { (2_000, 2_000 + flow) };
                let mut of_flow = BTreeSet::new();
                for number in 0..3 {
                    gateway.receive(&[arrival(number, shape.frame(build::ethernet(HOST, LAN), 64))]);
                    of_flow.extend(
                        gateway.out(usize::MAX).sent.into_iter().map(|sent| sent.bytes[..6].to_vec()),
                    );
                }
                assert_eq!(of_flow.len(), 1, "{name}: a flow takes {of_flow:?}");
                hops.extend(of_flow);
            }
            assert_eq!(hops.len(), 2, "{name}: by {by} alone flows take {hops:?}");
        }
    }
}

/// IEEE 802.1Q, 9.6: priority, drop eligibility and VLAN in sixteen bits, by rules that are written out here once more.
#[test]
fn tags_have_the_priority_that_class_map_and_colour_say() {
    const VLANS: &str = r#"
        [interface.guest]
        zone = "wan"
        parent = "lan"
        vlan = 20
        addresses = ["192.0.2.1/24"]
        pcp = "dscp"
        dei = true
        [interface.customer]
        zone = "wan"
        parent = "lan"
        vlan = [100, 30]
        addresses = ["198.18.0.1/24"]
        pcp = { ef = 5, af41 = 4 }
        [[neighbour]]
        interface = "guest"
        address = "192.0.2.7"
        mac = "02:00:00:00:01:01"
        [[neighbour]]
        interface = "customer"
        address = "198.18.0.7"
        mac = "02:00:00:00:01:01"
        [[class]]
        name = "sevens"
        pcp = 7
        dei = false
        [[class]]
        name = "marked"
        pcp = [3, 4]
        protocol = "tcp"
        mark-pcp = 1
    "#;
    let modes = ["", "mode = \"stateless\"\n"];
    for (mode, way) in modes.into_iter().flat_map(|mode| [Way::Run, Way::Step].map(|way| (mode, way))) {
        let mut gateway = Gateway::new(&format!("{mode}{POLICY}{VLANS}"), way);
        let mut random = Random::new(5);
        for number in 0..2_000 {
            let is_guest = random.chance(50);
            let to = if is_guest { "192.0.2.7" } else { "198.18.0.7" };
            let ends = ("192.168.1.7".parse().unwrap(), to.parse().unwrap());
            let shape = Shape { ends, ..Shape::of(&mut random) };
            // A tag of VLAN 0, or none, whose priority is 0.
            let came = random.below(17) as u16;
            let link = build::ethernet(HOST, LAN);
            let link = if came == 16 { link } else { link.vlan(Tag { tci: came << 12, ..Tag::customer(0) }) };
            gateway.receive(&[arrival(number, shape.frame(link, 9))]);
            let out = gateway.out(usize::MAX);
            let [sent] = &out.sent[..] else { panic!("{mode} {way:?}: {out:?}") };
            let is_marked = shape.is_tcp && matches!(came >> 1, 3 | 4);
            let af = |class: u8, drop: u8| class << 3 | drop << 1;
            let pcp = match shape.dscp {
                _ if is_marked => 1,
                dscp if is_guest => u16::from(dscp >> 3),
                46 => 5,
                34 => 4,
                _ => 0,
            };
            let is_worse = (1..=4).any(|class| [af(class, 2), af(class, 3)].contains(&shape.dscp));
            let tci = pcp << 13 | u16::from(is_guest && is_worse) << 12;
            let link = build::ethernet(LAN, ROUTERS[0]);
            let link = if is_guest {
                link.vlan(Tag { tci: tci | 20, ..Tag::customer(0) })
            } else {
                link.vlan(Tag { tci: tci | 100, ..Tag::service(0) })
                    .vlan(Tag { tci: tci | 30, ..Tag::customer(0) })
            };
            assert_eq!(sent.bytes, shape.frame(link, 8), "{mode} {way:?}: {shape:?} with {came}");
        }
    }
}
