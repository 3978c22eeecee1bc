//! Hostile traffic from the internet to any address: scans, spoofed sources, broken headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::build::{self, Tcp};
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::unit::Nanos;

use super::office::{Office, Route, Task};
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
pub(super) fn attack(office: &mut Office, at: Nanos) {
    let wan = office.settings.wan;
    let attacker = nth_v4(office.settings.attackers_v4, office.random.below(256) as u32);
    let random = office.random.next_u64();
    let (sport, dport) = (1024 | random as u16, (random >> 16) as u16);
    let syn = Tcp { sport, dport, seq: (random >> 32) as u32, flags: Flags::SYN, ..Tcp::default() };
    let from = |src: Ipv4Addr| build::ethernet(wan.neighbour, wan.mac).ipv4(src, wan.v4);
    match office.random.below(14) {
        0..3 => {
            for (n, dport) in SCANNED.into_iter().enumerate() {
                let packet = from(attacker).ttl(52).tcp(Tcp { dport, ..syn });
                hostile(office, at + Nanos(n as u64 * 150_000), packet.pad_to(60).to_vec());
            }
        }
        3 => {
            let inside = office.random.pick(&office.settings.hosts).map(|host| host.v4);
            let spoofed = office.random.pick(&SPOOFED).copied();
            let src = if office.random.chance(30) { inside } else { spoofed };
            hostile(office, at, from(src.unwrap_or(attacker)).udp(sport, dport).payload(b"spoofed").to_vec());
        }
        // A wrong checksum: of IP, of TCP, of UDP.
        4 => damage(office, at, from(attacker).tcp(syn).to_vec(), 24, 0x55),
        5 => damage(office, at, from(attacker).tcp(syn).to_vec(), 50, 0x55),
        6 => damage(office, at, from(attacker).udp(sport, dport).payload(b"damaged").to_vec(), 40, 0x55),
        7 => hostile(office, at, from(wan.v4).tcp(Tcp { sport: 80, dport: 80, ..syn }).to_vec()),
        8 => {
            let flags = office.random.pick(&ODD_FLAGS).copied().unwrap_or(Flags::NONE);
            hostile(office, at, from(attacker).tcp(Tcp { flags, ..syn }).to_vec());
        }
        9 => {
            let inside = office.random.pick(&office.settings.hosts).map_or(wan.v4, |host| host.v4);
            let dst = if office.random.chance(50) { inside } else { wan.v4 };
            let hops = office.random.below(2) as u8;
            let packet = build::ethernet(wan.neighbour, wan.mac).ipv4(attacker, dst).ttl(hops).tcp(syn);
            hostile(office, at, packet.to_vec());
        }
        10 => cut(office, at, from(attacker).tcp(syn).to_vec()),
        11 => {
            let packet = from(attacker).echo_request(sport, 1).payload(b"anybody there?");
            office.send(at, Side::Wan, &packet);
            if let Some(outside) = wan.v6 {
                let src = office.settings.server(super::Family::V6, random as u32);
                let route = Route { side: Side::Wan, mac: wan.neighbour, src, dst: outside.into() };
                let packet = office.packet(route).echo_request(sport, 1).payload(b"anybody there?");
                office.send(at + Nanos(9_000), Side::Wan, &packet);
            }
        }
        12 => break_in_v6(office, at, syn),
        _ => tiny_fragments(office, at, from(attacker), &syn),
    }
}

fn hostile(office: &mut Office, at: Nanos, frame: Vec<u8>) {
    office.schedule(at, Task::Send(Side::Wan, Intent::Hostile, frame));
}

/// Changes one byte.
fn damage(office: &mut Office, at: Nanos, mut frame: Vec<u8>, place: usize, by: u8) {
    if let Some(byte) = frame.get_mut(place) {
        *byte ^= by;
    }
    hostile(office, at, frame);
}

/// Lengths that lie, and headers that are not there.
fn cut(office: &mut Office, at: Nanos, mut frame: Vec<u8>) {
    match office.random.below(6) {
        // The IP header's version and length; its total length.
        0 => return damage(office, at, frame, 14, 0x10),
        1 => return damage(office, at, frame, 14, 0x06),
        2 => return damage(office, at, frame, 16, 0x05),
        3 => frame.truncate(40),
        4 => frame.truncate(20),
        _ => frame.truncate(14),
    }
    hostile(office, at, frame);
}

/// A packet straight to a machine inside, which without NAT only the firewall protects; or from an impossible source.
fn break_in_v6(office: &mut Office, at: Nanos, syn: Tcp<'_>) {
    let wan = office.settings.wan;
    let Some(dst) = office.random.pick(&office.settings.hosts).and_then(|host| host.v6) else { return };
    let n = office.random.next_u64() as u32;
    let src = match office.random.below(4) {
        0 => Ipv6Addr::LOCALHOST,
        1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        _ => match office.settings.server(super::Family::V6, n) {
            IpAddr::V6(server) => server,
            IpAddr::V4(_) => return,
        },
    };
    let packet = build::ethernet(wan.neighbour, wan.mac).ipv6(src, dst).tcp(syn);
    hostile(office, at, packet.to_vec());
}

/// A TCP header in two fragments, the second at offset 8, where it would overwrite the flags (RFC 1858,
/// section 3); another time a datagram that is never completed.
fn tiny_fragments(office: &mut Office, at: Nanos, packet: build::Packet<'_>, syn: &Tcp<'_>) {
    let id = office.random.next_u64() as u16;
    let whole = build::ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED).tcp(*syn).to_vec();
    let segment = whole.get(20..).unwrap_or_default();
    let part = |offset: u16, more: bool| Fragment { id: u32::from(id), offset, more };
    if office.random.chance(50) {
        let (head, tail) = segment.split_at(8.min(segment.len()));
        let first = packet.clone().fragment(part(0, true)).protocol(Protocol::TCP).payload(head).to_vec();
        let second = packet.fragment(part(8, false)).protocol(Protocol::TCP).payload(tail).to_vec();
        hostile(office, at, first);
        hostile(office, at + Nanos(20_000), second);
    } else {
        let lonely = packet.fragment(part(1480, true)).protocol(Protocol::UDP).payload(segment).to_vec();
        hostile(office, at, lonely);
    }
}
