//! Applications of the office's users and machines, and replies of internet servers to datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::build::{self, Icmp};
use wire::ethernet::Mac;
use wire::header::Ports;
use wire::unit::{Dscp, Nanos};
use wire::{arp, icmpv4, icmpv6, ipv4, ipv6, udp};

use super::network::{Activity, ActivityKind, Arrived, Network, Route, Task};
use super::tcp::{Exchange, Key};
use super::{Family, Host, Side};

const DNS: u16 = 53;
const NTP: u16 = 123;
const QUIC: u16 = 443;
const RTP: u16 = 5004;
const LARGE: u16 = 9000;
const TRACE: u16 = 33434;
/// Number of routers between the gateway and every server.
const ROUTERS: u8 = 4;
/// The code point of voice.
const VOICE: Option<Dscp> = Dscp::new(46);
const A: u16 = 1;
const AAAA: u16 = 28;

/// First packets of every machine: ARP for its own address, ARP and neighbour solicitation for the gateway's.
pub(super) fn greet(network: &mut Network, start: Nanos) {
    for (n, host) in network.settings.hosts.clone().into_iter().enumerate() {
        let at = start + Nanos(n as u64 * 300_000);
        ask_for_v4(network, at, &host, host.v4);
        ask_for_v4(network, at + Nanos(50_000), &host, network.settings.lan.v4);
        if let (Some(own), Some(gateway)) = (host.v6, network.settings.lan.v6) {
            solicit(network, at + Nanos(100_000), Side::Lan, host.mac, own, gateway);
        }
    }
    let wan = network.settings.wan;
    let router = nobody_in_particular(wan.v4);
    let query = request(wan.neighbour, router, wan.v4);
    network.send(
        start + Nanos::from_millis(5),
        Side::Wan,
        &build::ethernet(wan.neighbour, Mac::BROADCAST).arp(query),
    );
    if let Some(own) = wan.v6 {
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        solicit(network, start + Nanos::from_millis(6), Side::Wan, wan.neighbour, router, own);
    }
}

/// Starts a random activity of a random machine.
pub(super) fn begin(network: &mut Network, at: Nanos) {
    let Some(host) = network.random.pick(&network.settings.hosts).copied() else { return };
    let lport = network.random.between(32768, 60999) as u16;
    match network.random.below(100) {
        0..55 => browse(network, at, &host, lport),
        55..62 => upload(network, at, &host, lport),
        62..72 => many(network, at, &host, lport, ActivityKind::Quic, (4, 30)),
        72..78 => many(network, at, &host, lport, ActivityKind::Ping, (1, 5)),
        78..82 => ask_time(network, at, &host, lport),
        82..85 => many(network, at, &host, lport, ActivityKind::Trace, (8, 8)),
        85..87 => many(network, at, &host, lport, ActivityKind::Call, (150, 500)),
        87..92 => {
            let Some(route) = outward(network, &host, Family::V4) else { return };
            let len = network.random.between(1600, 6000) as usize;
            let data = network.data(&[], len);
            network.send_in_fragments(at, route, (lport, LARGE), &data);
        }
        _ => visit(network, at, &host, lport),
    }
}

/// Sends an activity's next packet.
pub(super) fn go_on(network: &mut Network, at: Nanos, activity: Activity) {
    let Activity { kind, route, lport, sent, total } = activity;
    let [high, low] = sent.to_be_bytes();
    let wait = match kind {
        ActivityKind::Quic => {
            let want = network.random.between(1, 12) as u8;
            let len = if sent == 0 { 1200 } else { network.random.between(40, 400) as usize };
            let data = network.data(&[0x40, want], len);
            let packet = network.packet(route).udp(lport, QUIC).payload(&data);
            network.send(at, route.side, &packet);
            Nanos::from_millis(network.random.between(20, 250))
        }
        ActivityKind::Call => {
            let data = network.data(&[0x80, 0, high, low], 172);
            let mut packet = network.packet(route).udp(lport, RTP).payload(&data);
            if let Some(voice) = VOICE {
                packet = packet.dscp(voice);
            }
            network.send(at, route.side, &packet);
            Nanos::from_millis(20)
        }
        ActivityKind::Ping => {
            let data = network.data(&[], 56);
            let packet = network.packet(route).echo_request(lport, sent + 1).payload(&data);
            network.send(at, route.side, &packet);
            Nanos::from_secs(1)
        }
        ActivityKind::Trace => {
            let data = network.data(&[], 32);
            let hops = low.saturating_add(1);
            let packet = network.packet(route).ttl(hops).udp(lport, TRACE + sent).payload(&data);
            network.send(at, route.side, &packet);
            Nanos::from_millis(60)
        }
    };
    if sent + 1 < total {
        network.schedule(at + wait, Task::Continue(Activity { sent: sent + 1, ..activity }));
    }
}

/// Background traffic of any office, which never leaves it.
pub(super) fn chatter(network: &mut Network, at: Nanos) {
    let Some(host) = network.random.pick(&network.settings.hosts).copied() else { return };
    let Some(other) = network.random.pick(&network.settings.hosts).copied() else { return };
    match network.random.below(6) {
        0 => ask_for_v4(network, at, &host, network.settings.lan.v4),
        1 => ask_for_v4(network, at, &host, other.v4),
        2 => {
            let name = b"\x05_http\x04_tcp\x05local\0";
            let query = dns_query(0, name, 12);
            let group = Ipv4Addr::new(224, 0, 0, 251);
            let packet = build::ethernet(host.mac, Mac([0x01, 0, 0x5e, 0, 0, 251]))
                .ipv4(host.v4, group)
                .ttl(255)
                .udp(5353, 5353)
                .payload(&query);
            network.send(at, Side::Lan, &packet);
        }
        3 => {
            let Some(v6) = host.v6 else { return };
            let query = dns_query(0, b"\x04_ipp\x04_tcp\x05local\0", 12);
            let packet = build::ethernet(host.mac, Mac([0x33, 0x33, 0, 0, 0, 0xfb]))
                .ipv6(v6, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb))
                .ttl(255)
                .udp(5353, 5353)
                .payload(&query);
            network.send(at, Side::Lan, &packet);
        }
        4 => {
            let search = b"M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: ssdp:all\r\n\r\n";
            let group = Ipv4Addr::new(239, 255, 255, 250);
            let packet = build::ethernet(host.mac, Mac([0x01, 0, 0x5e, 0x7f, 255, 250]))
                .ipv4(host.v4, group)
                .ttl(4)
                .udp(50000, 1900)
                .payload(search);
            network.send(at, Side::Lan, &packet);
        }
        _ => {
            let data = network.data(b"office-sync", 120);
            let packet = build::ethernet(host.mac, Mac::BROADCAST)
                .ipv4(host.v4, Ipv4Addr::BROADCAST)
                .udp(17500, 17500)
                .payload(&data);
            network.send(at, Side::Lan, &packet);
        }
    }
}

/// Reply of a server, or of a router on the path, to a datagram from the office.
pub(super) fn answer_udp(
    network: &mut Network,
    at: Nanos,
    ip: &Arrived<'_>,
    transport: &[u8],
    fragment: bool,
) {
    let route = ip.route;
    if route.side == Side::Lan || !network.settings.is_server(route.src) {
        return;
    }
    let Some(Ports { sport, dport }) = Ports::of(transport) else { return };
    if fragment {
        let len = network.random.between(1600, 4000) as usize;
        let data = network.data(&[], len);
        network.send_in_fragments(at, route, (dport, sport), &data);
        return;
    }
    let Ok(datagram) = udp::parse(transport) else { return };
    let request = datagram.payload();
    match dport {
        DNS => {
            let Some(reply) = dns_reply(network, request) else { return };
            let packet = network.packet(route).udp(dport, sport).payload(&reply);
            network.send(at, route.side, &packet);
        }
        NTP => {
            let reply = ntp_reply(at, request);
            let packet = network.packet(route).udp(dport, sport).payload(&reply);
            network.send(at, route.side, &packet);
        }
        QUIC => {
            for n in 0..u64::from(request.get(1).copied().unwrap_or(1).min(20)) {
                let len = network.random.between(1200, 1350) as usize;
                let data = network.data(&[0x40], len);
                let packet = network.packet(route).udp(dport, sport).payload(&data);
                network.send(at + Nanos(n * 60_000), route.side, &packet);
            }
        }
        RTP => {
            let head = request.get(..4).unwrap_or_default();
            let data = network.data(head, 172);
            let mut packet = network.packet(route).udp(dport, sport).payload(&data);
            if let Some(voice) = VOICE {
                packet = packet.dscp(voice);
            }
            network.send(at, route.side, &packet);
        }
        TRACE..=33534 => answer_trace(network, at, ip),
        _ => {}
    }
}

/// ICMP error of the router at which the packet's hops end, or of the server.
fn answer_trace(network: &mut Network, at: Nanos, ip: &Arrived<'_>) {
    let expired = ip.hops <= ROUTERS;
    let family = if ip.route.src.is_ipv4() { Family::V4 } else { Family::V6 };
    let router = network.settings.server(family, 40 + u32::from(ip.hops));
    let route = Route { src: if expired { router } else { ip.route.src }, ..ip.route };
    let (len, message) = match family {
        Family::V4 => {
            let Some(header) = ipv4::Header::of(ip.packet) else { return };
            let (kind, code) = if expired {
                (icmpv4::Type::TIME_EXCEEDED.0, 0)
            } else {
                (icmpv4::Type::DESTINATION_UNREACHABLE.0, icmpv4::unreachable::PORT)
            };
            (usize::from(header.total_len()), Icmp { kind, code, rest: [0; 4] })
        }
        Family::V6 => {
            let Some(header) = ipv6::Header::of(ip.packet) else { return };
            let (kind, code) = if expired {
                (icmpv6::Type::TIME_EXCEEDED.0, 0)
            } else {
                (icmpv6::Type::DESTINATION_UNREACHABLE.0, icmpv6::unreachable::PORT)
            };
            (ipv6::HEADER_LEN + usize::from(header.payload_len()), Icmp { kind, code, rest: [0; 4] })
        }
    };
    let quoted = ip.packet.get(..len.min(548)).unwrap_or(ip.packet);
    let packet = network.packet(route);
    let packet = match family {
        Family::V4 => packet.icmpv4(message),
        Family::V6 => packet.icmpv6(message),
    };
    network.send(at, route.side, &packet.payload(quoted));
}

/// Looks up a name, and then fetches one to three pages.
fn browse(network: &mut Network, at: Nanos, host: &Host, lport: u16) {
    let family = network.family(40);
    let Some(route) = outward(network, host, family) else { return };
    look_up(network, at, host, lport, route.dst);
    let rport = if network.random.chance(85) { 443 } else { 80 };
    let exchanges = (0..network.random.between(1, 3))
        .map(|_| Exchange { send: network.random.between(200, 1200) as u32, want: page(network) })
        .collect();
    let key = Key { side: route.side, local: route.src, lport, remote: route.dst, rport };
    network.schedule(at + Nanos::from_millis(50), Task::Connect(key, exchanges));
}

/// Size of a page in bytes, 500 to 3,000,000: mostly small, now and then large.
fn page(network: &mut Network) -> u32 {
    let (low, high) = match network.random.below(100) {
        0..60 => (500, 15_000),
        60..96 => (15_000, 150_000),
        _ => (500_000, 3_000_000),
    };
    network.random.between(low, high) as u32
}

fn upload(network: &mut Network, at: Nanos, host: &Host, lport: u16) {
    let family = network.family(30);
    let Some(route) = outward(network, host, family) else { return };
    let exchanges = vec![
        Exchange { send: 120, want: 80 },
        Exchange { send: network.random.between(10_000, 250_000) as u32, want: 250 },
        Exchange { send: 90, want: 600 },
    ];
    let key = Key { side: route.side, local: route.src, lport, remote: route.dst, rport: 993 };
    network.schedule(at, Task::Connect(key, exchanges));
}

/// A visit from the internet to a published service; without one, somebody in the office browses.
fn visit(network: &mut Network, at: Nanos, host: &Host, lport: u16) {
    let Some(rport) = network.random.pick(&network.settings.published).copied() else {
        return browse(network, at, host, lport);
    };
    let n = network.random.next_u64() as u32;
    let (local, remote) = (network.settings.server(Family::V4, n), network.settings.wan.v4.into());
    let exchanges = vec![Exchange { send: network.random.between(100, 900) as u32, want: page(network) }];
    network.schedule(at, Task::Connect(Key { side: Side::Wan, local, lport, remote, rport }, exchanges));
}

fn many(network: &mut Network, at: Nanos, host: &Host, lport: u16, kind: ActivityKind, packets: (u64, u64)) {
    let family = network.family(30);
    let Some(route) = outward(network, host, family) else { return };
    let total = network.random.between(packets.0, packets.1) as u16;
    go_on(network, at, Activity { kind, route, lport, sent: 0, total });
}

fn ask_time(network: &mut Network, at: Nanos, host: &Host, lport: u16) {
    let family = network.family(30);
    let Some(route) = outward(network, host, family) else { return };
    let mut request = [0; 48];
    request[0] = 0x23;
    request[40..].copy_from_slice(&ntp_time(at));
    let packet = network.packet(route).udp(lport, NTP).payload(&request);
    network.send(at, route.side, &packet);
}

fn look_up(network: &mut Network, at: Nanos, host: &Host, lport: u16, answer: IpAddr) {
    let (family, kind) = if answer.is_ipv4() { (Family::V4, A) } else { (Family::V6, AAAA) };
    let number = match answer {
        IpAddr::V4(v4) => v4.to_bits().wrapping_sub(network.settings.servers_v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() as u32).wrapping_sub(network.settings.servers_v6.to_bits() as u32),
    };
    let name = format!("\x06www{:03}\x07example\0", number % 1000);
    let query = dns_query(network.random.next_u64() as u16, name.as_bytes(), kind);
    let Some(mut route) = outward(network, host, family) else { return };
    // The first server is everybody's resolver.
    route.dst = network.settings.server(family, 0);
    let packet = network.packet(route).udp(lport, DNS).payload(&query);
    network.send(at, route.side, &packet);
}

/// Route from `host` to some server; `None` if the host has no address of that version.
fn outward(network: &mut Network, host: &Host, family: Family) -> Option<Route> {
    let n = network.random.next_u64() as u32;
    let dst = network.settings.server(family, n);
    let src = match family {
        Family::V4 => host.v4.into(),
        Family::V6 => host.v6?.into(),
    };
    Some(Route { side: Side::Lan, mac: host.mac, src, dst })
}

fn dns_query(id: u16, name: &[u8], kind: u16) -> Vec<u8> {
    let head = [id, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes);
    [head.as_flattened(), name, &kind.to_be_bytes(), &[0, 1]].concat()
}

/// Reply to a query for `wwwNNN.example`: the address of the server NNN.
fn dns_reply(network: &Network, query: &[u8]) -> Option<Vec<u8>> {
    let id = query.first_chunk::<2>()?;
    let question = query.get(12..)?;
    let digits = question.get(4..7)?;
    let number = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0')));
    let kind = u16::from_be_bytes(*question.last_chunk::<4>()?.first_chunk::<2>()?);
    let address = match kind {
        AAAA => network.settings.server(Family::V6, number),
        _ => network.settings.server(Family::V4, number),
    };
    let address = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let head = [0x8180, 1, 1, 0, 0].map(u16::to_be_bytes);
    let record = [0xc00c, kind, 1, 0, 300, address.len() as u16].map(u16::to_be_bytes);
    Some([&id[..], head.as_flattened(), question, record.as_flattened(), &address].concat())
}

/// The time as NTP has it: seconds since 1900, and a fraction.
fn ntp_time(at: Nanos) -> [u8; 8] {
    let seconds = at.0 / 1_000_000_000 + 2_208_988_800;
    let fraction = ((at.0 % 1_000_000_000) << 32) / 1_000_000_000;
    ((seconds << 32) | fraction).to_be_bytes()
}

fn ntp_reply(at: Nanos, request: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; 48];
    reply[..4].copy_from_slice(&[0x24, 2, 6, 0xec]);
    reply[24..32].copy_from_slice(request.get(40..48).unwrap_or(&[0; 8]));
    for place in [16, 32, 40] {
        reply[place..place + 8].copy_from_slice(&ntp_time(at));
    }
    reply
}

fn ask_for_v4(network: &mut Network, at: Nanos, host: &Host, target: Ipv4Addr) {
    let query = request(host.mac, host.v4, target);
    network.send(at, Side::Lan, &build::ethernet(host.mac, Mac::BROADCAST).arp(query));
}

fn request(sender_mac: Mac, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> arp::Fields {
    let operation = arp::Operation::REQUEST;
    arp::Fields { operation, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip }
}

/// An address beside `v4`, for a router whose own does not matter.
fn nobody_in_particular(v4: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(v4.to_bits() ^ 1)
}

fn solicit(network: &mut Network, at: Nanos, side: Side, mac: Mac, own: Ipv6Addr, target: Ipv6Addr) {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let solicitation = Icmp { kind: icmpv6::Type::NEIGHBOR_SOLICITATION.0, ..Icmp::default() };
    let body = [&target.octets()[..], &[1, 1], &mac.0].concat();
    let packet = build::ethernet(mac, Mac([0x33, 0x33, 0xff, a, b, c]))
        .ipv6(own, group)
        .ttl(255)
        .icmpv6(solicitation)
        .payload(&body);
    network.send(at, side, &packet);
}
