//! VRFs: two of them with the same addresses do what two gateways do that share nothing; customers with one network reach one WAN across a
//! route leak, and one another not at all; and each VRF's look-up is that of a scan through its routes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use dataplane::replay::Way;
use dataplane::tables::{Address, LOCAL, Target, VrfId};
use dataplane::{Delivery, Reason, Verdict};
use tally::NoTally;
use wire::build::{self, Icmp, Tcp};
use wire::ethernet::Mac;
use wire::header::Fragment;
use wire::random::Random;
use wire::tcp::Flags;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START, tables};

/// Interfaces of a gateway: its network of hosts, and its way out.
const PORTS: u16 = 2;

/// A gateway's policy, or its part of a policy of several VRFs. `suffix` is behind all names.
fn part(suffix: &str, vrf: &str, more: &str) -> String {
    let vrf_key = if vrf.is_empty() { String::new() } else { format!("vrf = \"{vrf}\"") };
    format!(
        r#"
        [interface.lan{suffix}]
        zone = "lan{suffix}"
        {vrf_key}
        mac = "02:00:00:00:00:01"
        addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
        source-check = "strict"
        [interface.out{suffix}]
        zone = "out{suffix}"
        {vrf_key}
        mac = "02:00:00:00:00:02"
        mtu = 1300
        addresses = ["10.0.0.1/24", "2001:db8:2::1/64"]
        [[route]]
        to = "0.0.0.0/0"
        {vrf_key}
        via = ["10.0.0.2", "10.0.0.3"]
        [[route]]
        to = "::/0"
        {vrf_key}
        via = "2001:db8:2::2"
        [[route]]
        to = "172.16.0.0/16"
        {vrf_key}
        kind = "unreachable"
        {more}
        "#
    )
}

/// The rest of a policy with parts of these suffixes.
fn rest(suffixes: &[&str], mode: &str, check: &str) -> String {
    let mut text = String::new();
    for suffix in suffixes {
        text += &format!(
            r#"
            [[rule]]
            name = "few{suffix}"
            from = "lan{suffix}"
            to = "out{suffix}"
            protocol = "udp"
            dport = 1001
            rate = "3/second burst 3 per source"
            connections = "2 per source"
            action = "accept"
            [[rule]]
            name = "in{suffix}"
            from = "out{suffix}"
            to = "lan{suffix}"
            protocol = ["tcp", "icmp", "icmpv6"]
            action = "accept"
            [[rule]]
            name = "no{suffix}"
            from = "lan{suffix}"
            to = "out{suffix}"
            protocol = "tcp"
            dport = 1001
            action = "reject"
            "#
        );
    }
    text += "[default]\n";
    for suffix in suffixes {
        text += &format!("\"lan{suffix} > out{suffix}\" = \"accept\"\n\"lan{suffix} > self\" = \"accept\"\n");
    }
    if mode == "stateless" {
        text = text.replace("connections = \"2 per source\"", "");
    }
    text = text.replace("source-check = \"strict\"", &format!("source-check = \"{check}\""));
    text + "[limit]\nerrors-per-second = 1000000\nerrors-in-all = 1000000\n"
}

/// A policy of VRFs of these names, or of one gateway where there is one without a name.
fn policy(vrfs: &[&str], mode: &str, check: &str, more: &str) -> String {
    let parts: String = vrfs.iter().map(|vrf| part(&format!("-{vrf}"), vrf, more)).collect();
    let parts = parts.replace("source-check = \"strict\"", &format!("source-check = \"{check}\""));
    let suffixes: Vec<String> = vrfs.iter().map(|vrf| format!("-{vrf}")).collect();
    let suffixes: Vec<&str> = suffixes.iter().map(String::as_str).collect();
    format!("mode = \"{mode}\"\n") + &parts + &rest(&suffixes, mode, check)
}

const ADDRESSES: [&str; 14] = [
    "192.168.1.1",
    "192.168.1.10",
    "192.168.1.11",
    "192.168.1.255",
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.9",
    "172.16.0.5",
    "198.51.100.7",
    "255.255.255.255",
    "2001:db8:1::1",
    "2001:db8:1::10",
    "2001:db8:2::9",
    "2001:db8:aaaa::7",
];

/// A packet between two of a few addresses, of few connections, so that many of them meet.
fn packet(random: &mut Random, sent: &[Vec<u8>]) -> Vec<u8> {
    let any = |random: &mut Random| -> IpAddr { random.pick(&ADDRESSES).unwrap().parse().unwrap() };
    let (mut from, mut to) = (any(random), any(random));
    // Mostly what makes connections.
    if random.chance(70) {
        let v4 = random.chance(70);
        let ends = if v4 { ["192.168.1.10", "198.51.100.7"] } else { ["2001:db8:1::10", "2001:db8:aaaa::7"] };
        let [a, b]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
        (from, to) = if random.chance(60) { (a, b) } else { (b, a) };
    }
    let made = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::ZERO);
    let made = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => made.ipv4(from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => made.ipv6(from, to),
        _ => return packet(random, sent),
    };
    let made = made.ttl(if random.chance(8) { 1 } else { 64 });
    let made = if random.chance(20) && from.is_ipv4() { made.dont_fragment() } else { made };
    let ports = [53, 1000, 1001, 40_000];
    let (sport, dport) = (*random.pick(&ports).unwrap(), *random.pick(&ports).unwrap());
    let long = [0_u8; 1_350];
    let payload = if random.chance(10) { &long[..] } else { &b"some bytes"[..] };
    match random.below(10) {
        0..=2 => made.udp(sport, dport).payload(payload).to_vec(),
        3..=5 => {
            let kinds = [Flags::SYN, Flags::SYN_ACK, Flags::ACK, Flags::FIN.and(Flags::ACK), Flags::RST];
            let flags = *random.pick(&kinds).unwrap();
            let (seq, ack) = (random.below(3) as u32, random.below(3) as u32);
            made.tcp(Tcp { sport, dport, seq, ack, flags, ..Tcp::default() }).payload(payload).to_vec()
        }
        6 | 7 if from.is_ipv4() => made.icmpv4(Icmp::echo(8 * u8::from(random.chance(60)), 7, 1)).to_vec(),
        6 | 7 => made.icmpv6(Icmp::echo(128 + u8::from(random.chance(40)), 7, 1)).to_vec(),
        8 if from.is_ipv4() => {
            let more = random.chance(60);
            let offset = if random.chance(50) { 0 } else { 16 };
            made.fragment(Fragment { id: random.below(3) as u32, offset, more })
                .udp(sport, dport)
                .payload(&[7; 24])
                .to_vec()
        }
        // An error about a packet that has left.
        _ => match sent.get(random.below(sent.len().max(1) as u64) as usize) {
            Some(about) if from.is_ipv4() && about.get(12..14) == Some(&[8, 0][..]) => {
                let quoted = &about[14..about.len().min(14 + 48)];
                let source: [u8; 4] = quoted[12..16].try_into().unwrap();
                let made = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac::ZERO);
                let IpAddr::V4(from) = from else { unreachable!() };
                let message = Icmp { kind: 3, code: 1, rest: [0; 4] };
                made.ipv4(from, Ipv4Addr::from(source)).icmpv4(message).payload(quoted).to_vec()
            }
            _ => made.udp(sport, dport).payload(payload).to_vec(),
        },
    }
}

/// Gives a frame the link-layer address of the interface that it comes by, in the place of none.
fn addressed(mut frame: Vec<u8>, port: u16) -> Vec<u8> {
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1 + port as u8]);
    frame
}

/// Outcome of a frame.
type Fates = BTreeMap<u32, Vec<(Option<u16>, Option<Verdict>, Vec<u8>)>>;

fn merge(fates: &mut Fates, more: Fates) {
    for (number, list) in more {
        let known = fates.entry(number).or_default();
        known.extend(list);
        known.sort();
    }
}

/// Outcomes of what a gateway has received, by number; of ports, their places in a single gateway by the VRFs of the frames. The
/// identification of answers is counted by a gateway, and is left out.
fn fates(gateway: &mut Gateway, vrfs: &[u16]) -> Fates {
    let out = gateway.out(usize::MAX);
    let mut fates = Fates::new();
    for mut sent in out.sent {
        if matches!(sent.verdict, Some(Verdict::Answered(_))) && sent.bytes[12..14] == [8, 0] {
            sent.bytes[18..20].fill(0);
            sent.bytes[24..26].fill(0);
        }
        fates.entry(sent.number).or_default().push((
            Some(sent.port.wrapping_sub(vrfs[sent.number as usize] * PORTS)),
            sent.verdict,
            sent.bytes,
        ));
    }
    for local in out.local {
        let bytes = if local.delivery == Delivery::Itself { local.bytes } else { Vec::new() };
        fates.entry(local.number).or_default().push((None, Some(local.verdict), bytes));
    }
    for (number, verdict) in out.ended {
        fates.entry(number).or_default().push((None, Some(verdict), Vec::new()));
    }
    fates.values_mut().for_each(|list| list.sort());
    fates
}

/// Plays random frames through two VRFs and through two gateways, of which each has the frames of one VRF, and compares what becomes of
/// each frame. Returns how many went each way. A frame that waits ends when a later one comes, of whatever VRF.
fn compare(seed: u64, mode: &str, check: &str, way: Way) -> BTreeMap<String, usize> {
    let mut random = Random::new(seed);
    let names = ["red", "blue"];
    let mut both = Gateway::new(&policy(&names, mode, check, ""), way);
    let mut alone = [0, 1].map(|_| Gateway::new(&policy(&[""], mode, check, ""), way));
    let mut sent: [Vec<Vec<u8>>; 2] = Default::default();
    // By frame: what became of it, and what should have.
    let (mut found, mut expected) = (Fates::new(), Fates::new());
    let mut of_vrf = Vec::new();
    let mut at = START;
    for number in 0..3_000 {
        at += Nanos::from_millis(random.below(200));
        let vrf = random.below(2) as u16;
        if number % 700 == 699 {
            // Other tables: every flow is revalidated, in its VRF. Of one the way out is gone, and comes back.
            let gone = "[[route]]\nto = \"198.51.100.0/24\"\nVRF\nkind = \"unreachable\"\n";
            let gone = if number % 1_400 == 699 { gone } else { "" };
            let text = policy(&names, mode, check, "") + &gone.replace("VRF", "vrf = \"red\"");
            both.reload(&text, at);
            for (gateway, gone) in alone.iter_mut().zip([gone, ""]) {
                gateway.reload(&(policy(&[""], mode, check, "") + &gone.replace("VRF", "")), at);
            }
        }
        let is_own = random.chance(6);
        let port = random.below(u64::from(PORTS)) as u16;
        let bytes = addressed(packet(&mut random, &sent[usize::from(vrf)]), port);
        let single = &mut alone[usize::from(vrf)];
        both.own_port = PortId(vrf * PORTS + port);
        single.own_port = PortId(port);
        let id = |port| if is_own { LOCAL } else { PortId(port) };
        both.receive(&[Arrival { port: id(vrf * PORTS + port), at, number, bytes: bytes.clone() }]);
        single.receive(&[Arrival { port: id(port), at, number, bytes }]);
        of_vrf.push(vrf);
        let now = fates(&mut both, &of_vrf);
        for (_, _, bytes) in now.get(&number).into_iter().flatten().filter(|(port, ..)| port.is_some()) {
            sent[usize::from(vrf)].push(bytes.clone());
        }
        let then = fates(single, &vec![0; of_vrf.len()]);
        merge(&mut found, now);
        merge(&mut expected, then);
        assert_eq!(
            found.get(&number),
            expected.get(&number),
            "seed {seed}, {mode}, {check}, frame {number} in VRF {vrf}"
        );
    }
    both.tend(at + Nanos::from_secs(60));
    merge(&mut found, fates(&mut both, &of_vrf));
    for gateway in &mut alone {
        gateway.tend(at + Nanos::from_secs(60));
        merge(&mut expected, fates(gateway, &vec![0; of_vrf.len()]));
    }
    assert_eq!(found, expected, "seed {seed}, {mode}, {check}");
    let mut kinds = BTreeMap::new();
    for (_, verdict, _) in found.into_values().flatten() {
        *kinds.entry(format!("{verdict:?}")).or_default() += 1;
    }
    kinds
}

#[test]
fn two_vrfs_with_the_same_addresses_are_two_gateways() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (seed, mode, check, way) in [
        (1, "stateful", "strict", Way::Step),
        (2, "stateful", "strict", Way::Run),
        (3, "stateful", "loose", Way::Run),
        (4, "stateful", "off", Way::Run),
        (5, "stateless", "strict", Way::Run),
        (6, "stateless", "off", Way::Step),
    ] {
        for (kind, count) in compare(seed, mode, check, way) {
            *kinds.entry(kind).or_default() += count;
        }
    }
    for wanted in [
        format!("{:?}", Some(Verdict::Forwarded)),
        format!("{:?}", Some(Verdict::Delivered)),
        format!("{:?}", Some(Verdict::Answered(Reason::RouteUnreachable))),
        format!("{:?}", Some(Verdict::Answered(Reason::RuleReject))),
        format!("{:?}", Some(Verdict::Answered(Reason::TtlExpired))),
        format!("{:?}", Some(Verdict::Answered(Reason::PacketTooBig))),
        format!("{:?}", Some(Verdict::Dropped(Reason::ConnectionLimit))),
        format!("{:?}", Some(Verdict::Dropped(Reason::SourceSpoofed))),
        format!("{:?}", Some(Verdict::Dropped(Reason::SourceMartian))),
        format!("{:?}", Some(Verdict::Dropped(Reason::TcpWindow))),
    ] {
        assert!(kinds.contains_key(&wanted), "{wanted} among {kinds:?}");
    }
}

/// Two customers with one network, and one WAN.
const SHARED: &str = r#"
[interface.red0]
zone = "red"
vrf = "red"
addresses = ["192.168.1.1/24"]
[interface.blue0]
zone = "blue"
vrf = "blue"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
vrf = "red"
next-vrf = "default"
via = "203.0.113.1"
[[route]]
to = "0.0.0.0/0"
vrf = "blue"
next-vrf = "default"
via = "203.0.113.1"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[default]
"any > any" = "accept"
[[nat]]
name = "all"
kind = "masquerade"
to = "wan"
[[nat]]
name = "web"
kind = "forward"
from = "wan"
protocol = "tcp"
port = 80
target = "192.168.1.10"
vrf = "blue"
[limit]
flows = 4096
"#;

const RED: u16 = 0;
const BLUE: u16 = 1;
const WAN: u16 = 2;

/// Sends a UDP datagram, and returns where it left with which ends: port, and both ends as text. `None` if it did not.
fn udp(gateway: &mut Gateway, at: Nanos, port: u16, ends: [(&str, u16); 2]) -> Option<(u16, String)> {
    let made = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, port as u8]));
    let [from, to] = ends.map(|(address, _)| address.parse::<Ipv4Addr>().unwrap());
    let bytes = made.ipv4(from, to).udp(ends[0].1, ends[1].1).payload(b"hello").to_vec();
    gateway.receive(&[Arrival { port: PortId(port), at, number: 1, bytes }]);
    let sent = gateway.out(usize::MAX).sent.into_iter().next()?;
    assert_eq!(sent.verdict, Some(Verdict::Forwarded));
    let ip = wire::ipv4::Header::of(&sent.bytes[14..]).unwrap();
    let ports = wire::header::Ports::of(&sent.bytes[34..]).unwrap();
    Some((sent.port, format!("{}:{} > {}:{}", ip.src(), ports.sport, ip.dst(), ports.dport)))
}

#[test]
fn customers_with_one_network_reach_one_wan_and_answers_find_the_right_one() {
    for way in [Way::Run, Way::Step] {
        let mut gateway = Gateway::new(SHARED, way);
        let (host, server) = (("192.168.1.10", 5000), ("198.51.100.7", 53));
        let mut shown = Vec::new();
        for port in [RED, BLUE] {
            let (left, ends) = udp(&mut gateway, START, port, [host, server]).unwrap();
            assert_eq!(left, WAN);
            let outside: u16 = ends.split([':', ' ']).nth(1).unwrap().parse().unwrap();
            assert!(ends.starts_with("203.0.113.2:") && ends.ends_with("> 198.51.100.7:53"), "{ends}");
            shown.push(outside);
        }
        assert_ne!(shown[0], shown[1], "two hosts with one address are two");
        // Answers go to whoever asked, before other tables and after.
        for (round, at) in (0..).zip([START, START + Nanos::from_secs(1), START + Nanos::from_secs(2)]) {
            for (port, outside) in [(RED, shown[0]), (BLUE, shown[1])] {
                let (left, ends) = udp(&mut gateway, at, WAN, [server, ("203.0.113.2", outside)])
                    .unwrap_or_else(|| panic!("{round}"));
                assert_eq!((left, ends.as_str()), (port, "198.51.100.7:53 > 192.168.1.10:5000"), "{round}");
            }
            // What comes to the endpoint from elsewhere opens a flow to the same host.
            for (port, outside) in [(BLUE, shown[1]), (RED, shown[0])] {
                let (left, ends) =
                    udp(&mut gateway, at, WAN, [("198.51.100.8", 53), ("203.0.113.2", outside)]).unwrap();
                assert_eq!((left, ends.as_str()), (port, "198.51.100.8:53 > 192.168.1.10:5000"));
            }
            match round {
                0 => gateway.reload(&SHARED.replace("flows = 4096", ""), at),
                // Other memory: flows and mappings are moved.
                _ => gateway.reload(&SHARED.replace("4096", "2048"), at),
            };
        }
        // By the same port again, as the mapping is kept.
        for (port, outside) in [(RED, shown[0]), (BLUE, shown[1])] {
            let to = ("198.51.100.9", 99);
            let (_, ends) = udp(&mut gateway, START + Nanos::from_secs(3), port, [host, to]).unwrap();
            assert_eq!(ends, format!("203.0.113.2:{outside} > 198.51.100.9:99"));
        }
        assert_eq!(gateway.shard.mappings.len(), 2);
        // To one another there is no way: each finds its own host, or nobody.
        let (left, ends) =
            udp(&mut gateway, START + Nanos::from_secs(4), RED, [host, ("192.168.1.77", 9)]).unwrap();
        assert_eq!((left, ends.as_str()), (RED, "192.168.1.10:5000 > 192.168.1.77:9"));
        // The WAN knows neither network: its route leads out.
        let (left, _) =
            udp(&mut gateway, START + Nanos::from_secs(4), WAN, [("198.51.100.7", 1), ("192.168.1.10", 9)])
                .unwrap();
        assert_eq!(left, WAN);
    }
}

#[test]
fn a_port_forward_leads_into_its_vrf() {
    let mut gateway = Gateway::new(SHARED, Way::Run);
    let tcp = |from: &str, sport, to: &str, dport, flags, (seq, ack), port: u16| {
        build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, port as u8]))
            .ipv4(from.parse().unwrap(), to.parse().unwrap())
            .tcp(Tcp { sport, dport, seq, ack, flags, ..Tcp::default() })
            .to_vec()
    };
    let mut play = |port, bytes| {
        gateway.receive(&[Arrival { port: PortId(port), at: START, number: 1, bytes }]);
        let sent = gateway.out(usize::MAX).sent.remove(0);
        let ip = wire::ipv4::Header::of(&sent.bytes[14..]).unwrap();
        (sent.port, ip.src().to_string(), ip.dst().to_string())
    };
    let out = play(WAN, tcp("198.51.100.7", 4000, "203.0.113.2", 80, Flags::SYN, (7, 0), WAN));
    assert_eq!(out, (BLUE, "198.51.100.7".into(), "192.168.1.10".into()));
    let back = play(BLUE, tcp("192.168.1.10", 80, "198.51.100.7", 4000, Flags::SYN_ACK, (9, 8), BLUE));
    assert_eq!(back, (WAN, "203.0.113.2".into(), "198.51.100.7".into()));
    // The host of that address in the other VRF is not the target: its connections have a port of their own.
    let other = play(RED, tcp("192.168.1.10", 80, "198.51.100.7", 4001, Flags::SYN, (9, 0), RED));
    assert_eq!(other, (WAN, "203.0.113.2".into(), "198.51.100.7".into()));
    // Nor does a customer reach the other one by the outside address.
    let away = play(RED, tcp("192.168.1.10", 5000, "203.0.113.2", 80, Flags::SYN, (9, 0), RED));
    assert_eq!((away.0, away.2.as_str()), (WAN, "203.0.113.2"), "as the routes of its VRF lead");
}

#[test]
fn each_vrf_looks_up_in_routes_of_its_own() {
    let mut random = Random::new(9);
    for _ in 0..20 {
        let mut text = String::new();
        let vrfs = ["", "a", "b", "c"];
        let key = |vrf: &str| if vrf.is_empty() { String::new() } else { format!("vrf = \"{vrf}\"\n") };
        for (place, vrf) in vrfs.iter().enumerate() {
            for port in 0..2 {
                text += &format!(
                    "[interface.i{place}-{port}]\nzone = \"z{place}\"\n{}addresses = [\"10.0.{port}.1/24\"]\n",
                    key(vrf)
                );
            }
        }
        let mut routes: BTreeMap<(usize, u32, u8), usize> = BTreeMap::new();
        for _ in 0..40 {
            let (vrf, length) = (random.below(4) as usize, 8 + random.below(20) as u8);
            let net = (0x1400_0000 | random.below(1 << 12) as u32) << 4 & (u32::MAX << (32 - length));
            let port = random.below(2) as usize;
            if routes.contains_key(&(vrf, net, length)) {
                continue;
            }
            routes.insert((vrf, net, length), port);
            let (to, key) = (Ipv4Addr::from(net), key(vrfs[vrf]));
            text += &format!("[[route]]\nto = \"{to}/{length}\"\n{key}via = \"10.0.{port}.9\"\n");
        }
        let tables = tables(&text);
        assert_eq!(tables.vrfs.list.len(), 3);
        for _ in 0..2_000 {
            let (vrf, address) = (random.below(4) as usize, 0x4000_0000 | random.below(1 << 16) as u32);
            let all = routes.iter().filter(|((of, net, length), _)| {
                *of == vrf && (address ^ net) >> (32 - u32::from(*length)) == 0
            });
            let best = all.max_by_key(|((_, _, length), _)| *length).map(|(_, port)| vrf * 2 + port);
            let found = tables.route(VrfId(vrf as u8), Address::v4(address), &mut NoTally);
            let found = found.map(|target| match *target {
                Target::Gateways { first, count: 1 } => {
                    let way = tables.way(first, 1, 0, &mut NoTally).unwrap();
                    usize::from(tables.gateways[way as usize].interface.0)
                }
                ref other => panic!("{other:?}"),
            });
            assert_eq!(found, best, "{} in VRF {vrf}\n{text}", Ipv4Addr::from(address));
        }
    }
}
