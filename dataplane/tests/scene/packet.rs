//! Packets made of bytes, aimed at corners: few hosts and ports, so that flows collide; answers to what left, errors
//! about it, fragments in any order, broken headers, and time that jumps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use esp::Packet;
use esp::format::{layout, trailer};
use wire::build::{self, Icmp, Tcp};
use wire::esp::{Direction, HeaderMut, NAT_PORT, Secret, Tfc};
use wire::ethernet::{EtherType, Mac};
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::vlan::{Priority, Tag};
use wire::{Nanos, PortId, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

use dataplane::tables::{LOCAL, OTHER};

use super::policy::{Association, LAN, PEERS, SPIS, Scene, WAN, WAN2};
use super::{Arrival, Out, START};

/// Bytes that a packet is made of.
pub const BYTES: usize = 18;

/// Number of passed frames to remember.
const REMEMBERED: usize = 24;

const INSIDE: [[u8; 4]; 8] = [
    [192, 168, 1, 5],
    [192, 168, 1, 6],
    [192, 168, 1, 7],
    [192, 168, 20, 5],
    [192, 168, 20, 6],
    [192, 168, 1, 5],
    [10, 1, 1, 1],
    [127, 0, 0, 1],
];
const OUTSIDE: [[u8; 4]; 16] = [
    [8, 8, 8, 8],
    [8, 8, 4, 4],
    [203, 0, 113, 1],
    [203, 0, 113, 9],
    [8, 8, 8, 8],
    [8, 8, 4, 4],
    [203, 0, 113, 2],
    [203, 0, 113, 10],
    [203, 0, 113, 69],
    [192, 168, 1, 1],
    [10, 9, 0, 1],
    [10, 8, 0, 1],
    [255, 255, 255, 255],
    [192, 168, 1, 255],
    [224, 0, 0, 1],
    [169, 254, 1, 1],
];
const INSIDE6: [&str; 4] = ["2001:db8:1::5", "2001:db8:1::6", "fe80::5", "::"];
const OUTSIDE6: [&str; 8] = [
    "2001:db8:beef::1",
    "2001:db8:beef::2",
    "2001:db8:ffff::1",
    "2001:db8:ffff::2",
    "2001:db8:ffff::45",
    "2001:db8:1::5",
    "ff02::1",
    "fe80::1",
];
/// Addresses of the gateway itself, and one that it sends for.
const OWN: [[u8; 4]; 4] = [[203, 0, 113, 2], [192, 168, 1, 1], [198, 51, 100, 2], [172, 17, 0, 2]];
const OWN6: [&str; 4] = ["2001:db8:ffff::2", "2001:db8:1::1", "fe80::a", "2001:db8:ffff::2"];
const PORTS: [u16; 8] = [80, 443, 25, 53, 8080, 4000, 50_000, 0];
const SPANS: [Nanos; 12] = [
    Nanos(0),
    Nanos(1),
    Nanos(1_000),
    Nanos::from_millis(1),
    Nanos::from_millis(400),
    Nanos::from_secs(1),
    Nanos::from_secs(3),
    Nanos::from_secs(11),
    Nanos::from_secs(61),
    Nanos::from_secs(301),
    Nanos::from_secs(8_000),
    Nanos::from_secs(100_000_000),
];

/// Generator of packets, with the output so far as input.
#[derive(Default)]
pub struct Packets {
    now: Nanos,
    number: u32,
    received: Vec<(PortId, Vec<u8>)>,
    sent: Vec<(PortId, Vec<u8>)>,
    /// Last sequence number of the tunnel's peer.
    sealed: u32,
    /// The peer's security association.
    peer: Association,
    /// The gateway's end and the peer's, in transport mode.
    ends: Option<[IpAddr; 2]>,
    /// Some packets are sent to multicast groups.
    has_groups: bool,
    /// Second fragment of a packet of the peer's.
    rest: Option<(PortId, Vec<u8>)>,
}

impl Packets {
    pub fn new() -> Packets {
        Packets { now: START, ..Packets::default() }
    }

    /// Packets of a scene, whose tunnel's peer seals as this expects it.
    pub fn of(scene: &Scene) -> Packets {
        let ends = scene.transport.map(|ends| ends.map(|end| end.parse().unwrap()));
        Packets { peer: scene.inward, ends, has_groups: scene.has_groups, ..Packets::new() }
    }

    /// The packet that these bytes stand for.
    pub fn next(&mut self, bytes: &[u8; BYTES]) -> Arrival {
        let span = usize::from(bytes[12] >> 2);
        self.now = match SPANS.get(span) {
            Some(span) => self.now + *span,
            // Clocks are set back, too.
            None if span == 63 => Nanos(self.now.0 - 2_000_000_000),
            None => self.now + Nanos(1_000),
        };
        let (port, mut frame) = match bytes[0] % 16 {
            12 | 13 => self.sealed(bytes),
            3 | 4 if self.ends.is_some() => fresh(bytes, self.ends.map(|ends| (LOCAL, ends))),
            _ => self.made(bytes),
        };
        if self.has_groups && bytes[6] & 3 == 3 && port.0 < LOCAL.0 - 1 {
            to_group(&mut frame, bytes[7]);
        }
        spoil(&mut frame, bytes);
        remember(&mut self.received, port, &frame);
        self.number += 1;
        Arrival { port, at: self.now, number: self.number, bytes: frame }
    }

    /// Time of the last packet.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Remembers the output.
    pub fn learn(&mut self, out: &Out) {
        for sent in &out.sent {
            remember(&mut self.sent, PortId(sent.port), &sent.bytes);
        }
        for local in &out.local {
            remember(&mut self.sent, LOCAL, &local.bytes);
        }
    }

    /// A packet of the tunnel's peer: sealed, with the next number or one that has been.
    fn sealed(&mut self, bytes: &[u8; BYTES]) -> (PortId, Vec<u8>) {
        if let Some(rest) = self.rest.take() {
            return rest;
        }
        let mut inwards = *bytes;
        inwards[1] |= 3;
        let back = self.ends.map(|[own, peer]| (PortId(WAN), [peer, own]));
        let (port, frame) = if bytes[0] & 16 == 0 { fresh(&inwards, back) } else { self.made(bytes) };
        let at = ethernet::parse(&frame).map_or(0, |layer| layer.payload_at);
        let number = match bytes[13] % 8 {
            0 => self.sealed.saturating_sub(u32::from(bytes[13] >> 3)),
            step => {
                self.sealed += u32::from(step / 7 * (bytes[13] >> 3)) + 1;
                self.sealed
            }
        };
        let sealed = seal(&frame[at..], number, bytes, &self.peer, self.ends);
        if bytes[14] >> 3 == 2 {
            // Once more: ESP within ESP.
            self.sealed += 1;
            return (port, seal(&sealed[14..], self.sealed, &[0; BYTES], &self.peer, self.ends));
        }
        if bytes[13] >> 5 == 7 {
            if let Some([first, rest]) = halves(&sealed, number as u16) {
                self.rest = Some((port, rest));
                return (port, first);
            }
        }
        (port, sealed)
    }

    fn made(&self, bytes: &[u8; BYTES]) -> (PortId, Vec<u8>) {
        let pick = |list: &'_ [(PortId, Vec<u8>)]| {
            let place = list.len().checked_sub(1 + usize::from(bytes[2]) % REMEMBERED);
            place.and_then(|place| list.get(place).cloned())
        };
        match bytes[0] % 16 {
            5..=7 => pick(&self.sent).and_then(|(port, frame)| Some((port, answer(&frame, bytes)?))),
            8 | 9 => pick(&self.sent).and_then(|(port, frame)| Some((port, complain(&frame, bytes)?))),
            10 => pick(&self.received).and_then(|(port, frame)| Some((port, go_on(&frame, bytes)?))),
            11 => pick(&self.received),
            14 if bytes[4] < 32 => {
                Some((PortId(u16::from(bytes[2] % 5)), bytes.repeat(usize::from(bytes[3] % 8))))
            }
            15 if bytes[4] < 64 => Some((PortId(WAN), odd_link(bytes))),
            _ => None,
        }
        .unwrap_or_else(|| fresh(bytes, None))
    }
}

/// Sends an untagged packet to a multicast group in the place of its destination. The transport's checksum is left as it was.
fn to_group(frame: &mut [u8], which: u8) {
    let group: IpAddr = match frame.get(12..14) {
        Some([8, 0]) => {
            [[239, 1, 1, 1], [239, 1, 2, 1], [239, 1, 3, 1], [239, 2, 1, 1]][usize::from(which % 4)].into()
        }
        Some([0x86, 0xdd]) => {
            ["ff3e::1:2", "ff0e::1"][usize::from(which % 2)].parse::<Ipv6Addr>().unwrap().into()
        }
        _ => return,
    };
    let (header, packet) = frame.split_at_mut(14);
    match group {
        IpAddr::V4(group) if packet.len() >= 20 => {
            packet[16..20].copy_from_slice(&group.octets());
            ipv4::fill_checksum(&mut packet[..20]);
        }
        IpAddr::V6(group) if packet.len() >= 40 => packet[24..40].copy_from_slice(&group.octets()),
        _ => return,
    }
    header[..6].copy_from_slice(&Mac::of_group(group).0);
}

fn remember(list: &mut Vec<(PortId, Vec<u8>)>, port: PortId, frame: &[u8]) {
    if list.len() == REMEMBERED {
        list.remove(0);
    }
    list.push((port, frame.to_vec()));
}

/// Fragments an IPv4 packet in two, at 64 bytes.
fn halves(frame: &[u8], id: u16) -> Option<[Vec<u8>; 2]> {
    let (head, payload) = frame.split_at_checked(34)?;
    if head[14] != 0x45 || payload.len() <= 64 {
        return None;
    }
    let (first, rest) = payload.split_at(64);
    Some([(first, 0x2000), (rest, 64 / 8)].map(|(payload, field)| {
        let mut fragment = [head, payload].concat();
        let mut header = ipv4::HeaderMut::of(&mut fragment[14..]).unwrap();
        header.set_total_len(20 + payload.len() as u16);
        header.set_flags_and_offset(field);
        header.set_id(id);
        ipv4::fill_checksum(&mut fragment[14..34]);
        fragment
    }))
}

/// Header of an IP packet in front of what transport mode seals, and the protocol of that.
fn header_of(packet: &[u8]) -> Option<(usize, Protocol)> {
    match packet.first()? >> 4 {
        4 => Some((usize::from(packet[0] & 15) * 4, Protocol(*packet.get(9)?))),
        6 => Some((40, Protocol(*packet.get(6)?))),
        _ => None,
    }
}

/// Seals an IP packet as the tunnel's peer would; `ends` are those of transport mode.
fn seal(
    inner: &[u8],
    number: u32,
    bytes: &[u8; BYTES],
    sa: &Association,
    ends: Option<[IpAddr; 2]>,
) -> Vec<u8> {
    let (spi, suite) = (SPIS[1], sa.suite);
    let header = ends.and_then(|_| header_of(inner)).filter(|(len, _)| *len <= inner.len());
    let inner = header.map_or(inner, |(len, _)| &inner[len..]);
    let [cipher, auth] = sa.keys(spi).map(|key| Secret::new(key.into()));
    let transform = esp::expand(suite, &esp::Keys { cipher, auth }, Direction::Out).unwrap();
    let tfc = if bytes[14] & 7 == 0 { Tfc::Multiple(64) } else { Tfc::Off };
    let layout = layout(inner.len(), suite, tfc, 1_400).unwrap();
    // Four bytes in front are the sealer's.
    let mut packet = vec![0; 4 + usize::from(layout.total)];
    let at = 12 + usize::from(suite.iv);
    packet[at..at + inner.len()].copy_from_slice(inner);
    let next = match inner.first().map(|byte| byte >> 4) {
        _ if header.is_some() && bytes[14] >> 3 > 1 => header.unwrap().1,
        Some(6) => Protocol::IPV6,
        _ if bytes[14] >> 3 == 1 => Protocol::NO_NEXT,
        _ if bytes[14] >> 3 == 3 => Protocol::UDP,
        _ => Protocol::IPV4,
    };
    trailer(&mut packet[at..at + usize::from(layout.text)], &layout, next);
    let mut header = HeaderMut::of(&mut packet[4..]).unwrap();
    header.set_spi(spi + u32::from(bytes[14] == 0xff));
    header.set_sequence(number);
    transform.seal(Packet { bytes: &mut packet, number: number.into(), esn: sa.esn });
    let link = link(bytes[10] & 0x3f);
    let [_, peer] =
        ends.unwrap_or_else(|| [OUTSIDE[6].into(), PEERS[usize::from(bytes[2] >> 6)].parse().unwrap()]);
    let outer = match peer {
        // Behind the tunnel itself.
        IpAddr::V4(_) if bytes[15] >= 0xe0 => link.ipv4(OUTSIDE[0].into(), OUTSIDE[6].into()),
        IpAddr::V4(peer) => link.ipv4(peer, Ipv4Addr::from(OUTSIDE[6])),
        IpAddr::V6(peer) => link.ipv6(peer, OUTSIDE6[3].parse().unwrap()),
    };
    let outer = outer.ds_field(bytes[15] & 3);
    match bytes[15] >> 2 & 1 {
        0 if bytes[15] & 0x38 == 0x38 => outer.udp(NAT_PORT, NAT_PORT).payload(&[0xff]).to_vec(),
        0 => outer.udp(NAT_PORT + u16::from(bytes[15] >> 6), NAT_PORT).payload(&packet[4..]).to_vec(),
        _ => outer.protocol(Protocol::ESP).payload(&packet[4..]).to_vec(),
    }
}

/// A packet that has nothing to do with those before it. `between`: by that port, from the first to the second of these ends.
fn fresh(bytes: &[u8; BYTES], between: Option<(PortId, [IpAddr; 2])>) -> (PortId, Vec<u8>) {
    let [_, how, from, to, ports, flags, seq, ack, size, part, hops, kind, ..] = *bytes;
    let goes_in = how & 3 == 3;
    let v6 = between.map_or(how & 4 != 0, |(_, [source, _])| source.is_ipv6());
    // The odd addresses stand behind the others, and are seldom chosen.
    let odd = how >> 5 == 7;
    let inside = INSIDE[usize::from(from % if odd { 8 } else { 5 })];
    let outside = OUTSIDE[usize::from(to % if odd { 16 } else { 12 }) % if goes_in && !odd { 5 } else { 16 }];
    let inside6: Ipv6Addr = INSIDE6[usize::from(from % if odd { 4 } else { 2 })].parse().unwrap();
    let outside6: Ipv6Addr = OUTSIDE6
        [usize::from(to % if odd { 8 } else { 5 }) % if goes_in && !odd { 3 } else { 8 }]
    .parse()
    .unwrap();
    let data = data(size);
    let link = link(hops);
    let is_own = how & 3 == 2 && from & 0xc0 == 0xc0;
    let port = if is_own {
        if hops & 64 == 0 { LOCAL.0 } else { OTHER.0 }
    } else if !goes_in {
        LAN
    } else if from & 128 != 0 {
        WAN2
    } else {
        WAN
    };
    let is_guest = between.is_none() && !goes_in && !is_own && inside[2] == 20 && !v6;
    let priority = Priority::all().nth(usize::from(size % 16)).unwrap_or_default();
    let link = if is_guest { link.vlan(Tag::customer(20).with_priority(priority)) } else { link };
    let (mut a, b) = (Ipv4Addr::from(inside), Ipv4Addr::from(outside));
    let mut inside6 = inside6;
    if is_own {
        // The source, and the host that it is for.
        (a, inside6) = (OWN[usize::from(from % 4)].into(), OWN6[usize::from(from % 4)].parse().unwrap());
    }
    let port = between.map_or(port, |(port, _)| port.0);
    let mut packet = match (v6, goes_in) {
        _ if between.is_some() => match between.unwrap().1 {
            [IpAddr::V4(from), IpAddr::V4(to)] => link.ipv4(from, to),
            [IpAddr::V6(from), IpAddr::V6(to)] => link.ipv6(from, to),
            _ => unreachable!("ends of two IP versions"),
        },
        (false, false) => link.ipv4(a, b),
        (false, true) => link.ipv4(b, if to & 64 == 0 { a } else { Ipv4Addr::new(203, 0, 113, 2) }),
        (true, false) => link.ipv6(inside6, outside6),
        (true, true) => link.ipv6(outside6, inside6),
    };
    packet = packet.ttl([64, 64, 64, 255, 2, 128, 1, 0][usize::from(hops >> 2 & 7)]).ds_field(hops);
    if hops & 1 != 0 {
        packet = packet.dont_fragment();
    }
    let (sport, dport) = (PORTS[usize::from(ports % 8)], PORTS[usize::from(ports >> 3 & 7)]);
    let flags = [0x02, 0x02, 0x12, 0x10, 0x18, 0x11, 0x04, flags][usize::from(flags >> 5)];
    let options: &[u8] = match ports >> 6 {
        0 => &[2, 4, 5, 0xb4, 3, 3, 7, 0],
        1 => &[2, 4, 2],
        _ => &[],
    };
    let header = Tcp {
        sport,
        dport,
        seq: u32::from(seq) * 1_000,
        ack: u32::from(ack) * 1_000,
        flags: Flags(flags),
        options,
        ..Tcp::default()
    };
    static CHAIN: [u8; 14] = [0; 14];
    if v6 {
        for _ in 0..(part >> 5) * 2 * u8::from(how & 0x18 == 0x18) {
            packet = packet.extension(Protocol::DESTINATION_OPTIONS, &CHAIN[..6]);
        }
        if part & 0xe7 == 1 {
            packet = packet.extension(Protocol::ROUTING, &CHAIN[..6]);
        }
    } else if part & 0xe7 == 0xa0 {
        packet = packet.ip_options(&[0x83, 7, 4, 1, 2, 3, 4, 0]);
    } else if part & 0xe3 == 0xc0 {
        packet = packet.ip_options(&[7, 7, 4, 0, 0, 0, 0, 1]);
    }
    packet = match kind % 16 {
        0..=4 => packet.tcp(header),
        5..=8 => packet.udp(sport, dport),
        9 => packet.udp_without_checksum(sport, dport),
        10 | 11 => packet.echo_request(u16::from(seq % 4), u16::from(ack)),
        12 => packet.echo_reply(u16::from(seq % 4), u16::from(ack)),
        13 if v6 => packet.icmpv6(Icmp { kind: seq, code: ack, rest: [0, 0, 5, 0] }),
        13 => packet.icmpv4(Icmp { kind: seq, code: ack, rest: [0, 0, 5, 0] }),
        14 => packet.protocol(Protocol::GRE),
        _ => packet.protocol(Protocol(seq)),
    };
    let whole = packet.clone().payload(data);
    if part & 0x18 == 0x18 {
        return (PortId(port), cut_out(&whole, bytes));
    }
    (PortId(port), if size & 1 == 0 { whole.pad_to(60) } else { whole }.to_vec())
}

/// Data, of lengths on both sides of every limit.
fn data(size: u8) -> &'static [u8] {
    static DATA: [u8; 3_600] = [0x5a; 3_600];
    let len = [0, 1, 7, 8, 100, 500, 552, 1_232, 1_252, 1_400, 1_472, 1_480, 2_000, 3_500, 64, 24]
        [usize::from(size >> 4)];
    &DATA[..len + usize::from(size & 7)]
}

fn link<'a>(hops: u8) -> build::Packet<'a> {
    let gateway = if hops & 0xe2 != 0xe2 { Mac([2, 0, 0, 0, 0, 0x0a]) } else { Mac([2, 0, 0, 0, 0, 0x0b]) };
    let to = if hops == 0xff { Mac::BROADCAST } else { gateway };
    // Of some hosts rules know the address.
    build::ethernet(Mac([2, 0, 0, 0, 0, if hops & 4 == 0 { 0x77 } else { 0x78 }]), to)
}

/// A fragment of a packet: any part of it, so that some overlap.
fn cut_out(whole: &build::Packet<'_>, bytes: &[u8; BYTES]) -> Vec<u8> {
    let frame = whole.to_vec();
    let Ok(layer) = ethernet::parse(&frame) else { return frame };
    let (id, offset) = (
        u32::from(bytes[12] % 4),
        [0, 0, 8, 16, 24, 56, 80, 504, 1_208, 65_528][usize::from(bytes[13] % 10)],
    );
    let more = bytes[13] & 16 == 0;
    let len = [8, 16, 24, 48, 512, 20, 0, 2_000][usize::from(bytes[13] >> 5)];
    let (source, upper, protocol) = match layer.ethertype {
        EtherType::IPV4 => {
            let Ok(packet) = ipv4::parse(layer.payload) else { return frame };
            (
                (packet.header.src().into(), packet.header.dst().into()),
                packet.payload,
                packet.header.protocol(),
            )
        }
        _ => {
            let Ok(packet) = ipv6::parse(layer.payload) else { return frame };
            ((packet.header.src().into(), packet.header.dst().into()), packet.payload, packet.protocol())
        }
    };
    let begin = usize::from(offset).min(upper.len());
    let part = &upper[begin..(begin + len).min(upper.len())];
    let fragment = Fragment { id, offset, more };
    let mut again = link(bytes[10]);
    for tag in layer.tags.as_slice() {
        again = again.vlan(*tag);
    }
    let again = match source {
        (IpAddr::V4(from), IpAddr::V4(to)) => again.ipv4(from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => again.ipv6(from, to),
        _ => return frame,
    };
    again.fragment(fragment).protocol(protocol).payload(part).to_vec()
}

/// Both ends of a frame's packet, and where its IP packet lies.
fn ends(frame: &[u8]) -> Option<(build::Packet<'static>, &[u8], Protocol, &[u8])> {
    let layer = ethernet::parse(frame).ok()?;
    let mut turned = link(0);
    for tag in layer.tags.as_slice() {
        turned = turned.vlan(*tag);
    }
    match layer.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::parse(layer.payload).ok()?;
            let turned = turned.ipv4(packet.header.dst(), packet.header.src());
            let whole = &layer.payload[..usize::from(packet.header.total_len())];
            Some((turned, whole, packet.header.protocol(), packet.payload))
        }
        EtherType::IPV6 => {
            let packet = ipv6::parse(layer.payload).ok()?;
            let turned = turned.ipv6(packet.header.dst(), packet.header.src());
            Some((turned, layer.payload, packet.protocol(), packet.payload))
        }
        _ => None,
    }
}

/// Returns the other end's answer to a frame.
fn answer(frame: &[u8], bytes: &[u8; BYTES]) -> Option<Vec<u8>> {
    let (turned, _, protocol, payload) = ends(frame)?;
    let data = data(bytes[8]);
    let turned = match protocol {
        Protocol::TCP => {
            let segment = tcp::parse(payload).ok()?;
            let header = segment.header;
            let flags = match bytes[5] % 8 {
                0..=3 if header.flags().contains(Flags::SYN) => Flags::SYN_ACK,
                0..=4 => Flags::ACK,
                5 => Flags::FIN.and(Flags::ACK),
                6 => Flags::RST,
                _ => Flags(bytes[5]),
            };
            turned.tcp(Tcp {
                sport: header.dport(),
                dport: header.sport(),
                seq: if header.flags().contains(Flags::ACK) {
                    header.ack()
                } else {
                    u32::from(bytes[6]) * 1_000
                },
                ack: header.seq().wrapping_add(segment.sequence_len()),
                flags,
                ..Tcp::default()
            })
        }
        Protocol::UDP => {
            let header = udp::Header::of(payload)?;
            turned.udp(header.dport(), header.sport())
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let header = icmpv4::Header::of(payload)?;
            turned.echo_reply(header.id(), 1)
        }
        other => turned.protocol(other),
    };
    Some(turned.payload(data).to_vec())
}

/// An ICMP error about a frame, from its destination or a router on the way.
fn complain(frame: &[u8], bytes: &[u8; BYTES]) -> Option<Vec<u8>> {
    let (turned, whole, ..) = ends(frame)?;
    let layer = ethernet::parse(frame).ok()?;
    let mut start = link(0);
    for tag in layer.tags.as_slice() {
        start = start.vlan(*tag);
    }
    let quote = &whole[..whole.len().min([28, 48, 576, 60][usize::from(bytes[4] % 4)])];
    let rest = [0, 0, 4, bytes[6]];
    let message = if layer.ethertype == EtherType::IPV4 {
        let kind = [3, 11, 12, 5, 4][usize::from(bytes[5] % 5)];
        let by_router = bytes[5] & 128 != 0;
        let to = ipv4::parse(layer.payload).ok()?.header.src();
        let turned = if by_router { start.ipv4(Ipv4Addr::new(192, 168, 1, 6), to) } else { turned };
        turned.icmpv4(Icmp { kind, code: bytes[7] % 6, rest })
    } else {
        let kind = [icmpv6::Type::DESTINATION_UNREACHABLE.0, 2, 3, 4][usize::from(bytes[5] % 4)];
        turned.icmpv6(Icmp { kind, code: bytes[7] % 6, rest })
    };
    Some(message.payload(quote).to_vec())
}

/// Returns the next frame of the same sender.
fn go_on(frame: &[u8], bytes: &[u8; BYTES]) -> Option<Vec<u8>> {
    let (turned, whole, protocol, payload) = ends(frame)?;
    if protocol != Protocol::TCP {
        return Some(frame.to_vec());
    }
    let segment = tcp::parse(payload).ok()?;
    let header = segment.header;
    let same = match whole.first()? >> 4 {
        4 => {
            let header = ipv4::Header::of(whole)?;
            turned.ipv4(header.src(), header.dst())
        }
        _ => {
            let header = ipv6::Header::of(whole)?;
            turned.ipv6(header.src(), header.dst())
        }
    };
    let flags = [0x10, 0x10, 0x18, 0x11, 0x04, 0x02, 0x14, bytes[5]][usize::from(bytes[5] % 8)];
    let next = same.tcp(Tcp {
        sport: header.sport(),
        dport: header.dport(),
        seq: header.seq().wrapping_add(segment.sequence_len()),
        ack: u32::from(bytes[6]) * 1_000 + u32::from(bytes[7] % 3),
        flags: Flags(flags),
        ..Tcp::default()
    });
    Some(next.payload(data(bytes[8])).to_vec())
}

/// Frames that are none of the IP packets that one expects.
fn odd_link(bytes: &[u8; BYTES]) -> Vec<u8> {
    let link = link(bytes[10]);
    let link = match bytes[3] % 8 {
        0 => link.vlan(Tag::customer(99)),
        1 => link.vlan(Tag::service(20)).vlan(Tag::customer(20)),
        2 => link.ethertype(EtherType::ARP),
        3 => link.ethertype(EtherType(u16::from(bytes[4]))),
        4 => link.ethertype(EtherType::IPV4),
        5 => link.ethertype(EtherType::IPV6),
        6 => return link.to_vec()[..usize::from(bytes[4] % 15)].to_vec(),
        _ => link.ethertype(EtherType::VLAN),
    };
    link.payload(&bytes[5..5 + usize::from(bytes[2] % 12)]).to_vec()
}

/// Breaks a frame, one time in eight.
fn spoil(frame: &mut Vec<u8>, bytes: &[u8; BYTES]) {
    let [.., at, with, how] = *bytes;
    if frame.is_empty() {
        return;
    }
    let place = usize::from(at) % frame.len();
    match how {
        0..=7 => frame[place] ^= with,
        8..=27 => {
            frame[place] ^= with;
            let link = ethernet::parse(frame).map_or(14, |layer| layer.payload_at);
            if let Some(packet) = frame.get_mut(link..).filter(|packet| ipv4::parse_prefix(packet).is_ok()) {
                ipv4::fill_checksum(packet);
            }
        }
        28..=31 => frame.truncate(place),
        _ => {}
    }
}
