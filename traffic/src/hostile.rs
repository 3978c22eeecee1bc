//! Hostile traffic from the internet to any address: scans, spoofed sources, broken headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::build::{self, Tcp};
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::unit::Nanos;

use super::network::{Network, Route, Task};
use super::{Intent, Side, nth_v4};

const SPOOFED: [Ipv4Addr; 7] = [
    Ipv4Addr::new(10, 1, 2, 3),
    Ipv4Addr::new(192, 168, 77, 5),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(224, 0, 0, 5),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(240, 0, 0, 1),
];

const ODD_FLAGS: [Flags; 5] = [
    Flags::FIN.and(Flags::PSH).and(Flags::URG),
    Flags::NONE,
    Flags::SYN.and(Flags::FIN),
    Flags::SYN.and(Flags::RST),
    Flags(0xff),
];

const SCANNED: [u16; 12] = [21, 22, 23, 25, 80, 135, 139, 445, 1433, 3306, 3389, 8080];

/// One attack on the outside address.
pub(super) fn attack(network: &mut Network, at: Nanos) {
    let wan = network.settings.wan;
    let attacker = nth_v4(network.settings.attackers_v4, network.random.below(256) as u32);
    let random = network.random.next_u64();
    let (sport, dport) = (1024 | random as u16, (random >> 16) as u16);
    let syn = Tcp { sport, dport, seq: (random >> 32) as u32, flags: Flags::SYN, ..Tcp::default() };
    let from = |src: Ipv4Addr| build::ethernet(wan.neighbour, wan.mac).ipv4(src, wan.v4);
    match network.random.below(14) {
        0..3 => {
            for (n, dport) in SCANNED.into_iter().enumerate() {
                let packet = from(attacker).ttl(52).tcp(Tcp { dport, ..syn });
                hostile(network, at + Nanos(n as u64 * 150_000), packet.pad_to(60).to_vec());
            }
        }
        3 => {
            let inside = network.random.pick(&network.settings.hosts).map(|host| host.v4);
            let spoofed = network.random.pick(&SPOOFED).copied();
            let src = if network.random.chance(30) { inside } else { spoofed };
            hostile(
                network,
                at,
                from(src.unwrap_or(attacker)).udp(sport, dport).payload(b"spoofed").to_vec(),
            );
        }
        // A wrong checksum: of IP, of TCP, of UDP.
        4 => damage(network, at, from(attacker).tcp(syn).to_vec(), 24, 0x55),
        5 => damage(network, at, from(attacker).tcp(syn).to_vec(), 50, 0x55),
        6 => damage(network, at, from(attacker).udp(sport, dport).payload(b"damaged").to_vec(), 40, 0x55),
        7 => hostile(network, at, from(wan.v4).tcp(Tcp { sport: 80, dport: 80, ..syn }).to_vec()),
        8 => {
            let flags = network.random.pick(&ODD_FLAGS).copied().unwrap_or(Flags::NONE);
            hostile(network, at, from(attacker).tcp(Tcp { flags, ..syn }).to_vec());
        }
        9 => {
            let inside = network.random.pick(&network.settings.hosts).map_or(wan.v4, |host| host.v4);
            let dst = if network.random.chance(50) { inside } else { wan.v4 };
            let hops = network.random.below(2) as u8;
            let packet = build::ethernet(wan.neighbour, wan.mac).ipv4(attacker, dst).ttl(hops).tcp(syn);
            hostile(network, at, packet.to_vec());
        }
        10 => cut(network, at, from(attacker).tcp(syn).to_vec()),
        11 => {
            let packet = from(attacker).echo_request(sport, 1).payload(b"anybody there?");
            network.send(at, Side::Wan, &packet);
            if let Some(outside) = wan.v6 {
                let src = network.settings.server(super::Family::V6, random as u32);
                let route = Route { side: Side::Wan, mac: wan.neighbour, src, dst: outside.into() };
                let packet = network.packet(route).echo_request(sport, 1).payload(b"anybody there?");
                network.send(at + Nanos(9_000), Side::Wan, &packet);
            }
        }
        12 => break_in_v6(network, at, syn),
        _ => tiny_fragments(network, at, from(attacker), &syn),
    }
}

fn hostile(network: &mut Network, at: Nanos, frame: Vec<u8>) {
    network.schedule(at, Task::Send(Side::Wan, Intent::Hostile, frame));
}

/// Changes one byte.
fn damage(network: &mut Network, at: Nanos, mut frame: Vec<u8>, place: usize, by: u8) {
    if let Some(byte) = frame.get_mut(place) {
        *byte ^= by;
    }
    hostile(network, at, frame);
}

/// Lengths that lie, and headers that are not there.
fn cut(network: &mut Network, at: Nanos, mut frame: Vec<u8>) {
    match network.random.below(6) {
        // The IP header's version and length; its total length.
        0 => return damage(network, at, frame, 14, 0x10),
        1 => return damage(network, at, frame, 14, 0x06),
        2 => return damage(network, at, frame, 16, 0x05),
        3 => frame.truncate(40),
        4 => frame.truncate(20),
        _ => frame.truncate(14),
    }
    hostile(network, at, frame);
}

/// A packet straight to a machine inside, which without NAT only the firewall protects; or from an impossible source.
fn break_in_v6(network: &mut Network, at: Nanos, syn: Tcp<'_>) {
    let wan = network.settings.wan;
    let Some(dst) = network.random.pick(&network.settings.hosts).and_then(|host| host.v6) else { return };
    let n = network.random.next_u64() as u32;
    let src = match network.random.below(4) {
        0 => Ipv6Addr::LOCALHOST,
        1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        _ => match network.settings.server(super::Family::V6, n) {
            IpAddr::V6(server) => server,
            IpAddr::V4(_) => return,
        },
    };
    let packet = build::ethernet(wan.neighbour, wan.mac).ipv6(src, dst).tcp(syn);
    hostile(network, at, packet.to_vec());
}

/// A TCP header in two fragments, the second at offset 8, where it would overwrite the flags (RFC 1858,
/// section 3); another time a datagram that is never completed.
fn tiny_fragments(network: &mut Network, at: Nanos, packet: build::Packet<'_>, syn: &Tcp<'_>) {
    let id = network.random.next_u64() as u16;
    let whole = build::ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED).tcp(*syn).to_vec();
    let segment = whole.get(20..).unwrap_or_default();
    let part = |offset: u16, more: bool| Fragment { id: u32::from(id), offset, more };
    if network.random.chance(50) {
        let (head, tail) = segment.split_at(8.min(segment.len()));
        let first = packet.clone().fragment(part(0, true)).protocol(Protocol::TCP).payload(head).to_vec();
        let second = packet.fragment(part(8, false)).protocol(Protocol::TCP).payload(tail).to_vec();
        hostile(network, at, first);
        hostile(network, at + Nanos(20_000), second);
    } else {
        let lonely = packet.fragment(part(1480, true)).protocol(Protocol::UDP).payload(segment).to_vec();
        hostile(network, at, lonely);
    }
}
