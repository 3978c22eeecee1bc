//! PPP sessions in the pipeline: they open, carry packets both ways and end, alike in both modes of execution, over several workers, and
//! across reloads. The other end is a small peer of these tests' own.

use std::sync::Arc;

use dataplane::flow::{Member, SteeringTable};
use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use proptest::prelude::*;
use wire::ethernet::Mac;
use wire::link_kind::{FAR, NEAR};
use wire::ppp::{Options, Protocol, code, header, option, packet};
use wire::vlan::Tag;
use wire::{Dscp, Family, Nanos, PortId, build, pppoe};

use crate::scene::{Arrival, Gateway, START, Sent, check};

/// Interfaces, in their order.
const LAN: u16 = 0;
const WAN: u16 = 1;

const GATEWAY: Mac = Mac([2, 0, 0x5e, 0x10, 0, 2]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const SESSION: u16 = 0x1234;
const INSIDE: [u8; 4] = [192, 168, 1, 10];
const OUTSIDE: [u8; 4] = [198, 51, 100, 7];

/// A client on a VLAN, by an Ethernet interface.
fn policy(more: &str) -> String {
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\", \"2001:db8:1::1/64\"]\n\
         [interface.wan]\nzone = \"line\"\nmac = \"{GATEWAY}\"\n\
         [interface.dsl]\nzone = \"wan\"\nparent = \"vlan\"\naddresses = [\"203.0.113.2/32\", \"2001:db8:2::2/128\"]\n\
         [interface.vlan]\nzone = \"line\"\nparent = \"wan\"\nvlan = 7\npcp = \"dscp\"\n\
         [interface.dsl.ppp]\nauthentication = \"none\"\n{more}\
         [default]\n\"any > any\" = \"accept\"\n\
         [[route]]\nto = \"0.0.0.0/0\"\ninterface = \"dsl\"\n[[route]]\nto = \"::/0\"\ninterface = \"dsl\"\n"
    )
}

/// A frame of the peer on the VLAN.
fn of_peer(to: Mac, ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    let [high, low] = ethertype.to_be_bytes();
    [&to.0[..], &PEER.0, &[0x81, 0, 0, 7, high, low], &parts.concat()].concat()
}

fn discovery(code: u8, session: u16, tags: &[u8]) -> Vec<u8> {
    of_peer(GATEWAY, 0x8863, &[&pppoe::header(code, session, tags.len()), tags])
}

/// A packet of the session.
fn in_session(protocol: Protocol, bytes: &[u8]) -> Vec<u8> {
    let head = pppoe::header(0, SESSION, bytes.len() + 2);
    of_peer(GATEWAY, 0x8864, &[&head, &protocol.0.to_be_bytes(), bytes])
}

fn control(protocol: Protocol, code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    in_session(protocol, &[&header(code, id, data.len()), data].concat())
}

/// The peer's answers to a frame of the gateway.
fn answers(frame: &[u8]) -> Vec<Vec<u8>> {
    let layer = wire::ethernet::parse(frame).unwrap();
    assert_eq!(layer.tags.outer().map(Tag::id), Some(7));
    let found = pppoe::packet(layer.payload).unwrap();
    if layer.ethertype.0 == 0x8863 {
        // A client's tags come back, with a cookie.
        let tags = [found.payload, &[1, 2, 0, 1, b'x', 1, 4, 0, 1, b'c'][..]].concat();
        return match found.code {
            pppoe::code::PADI => vec![discovery(pppoe::code::PADO, 0, &tags)],
            pppoe::code::PADR => vec![discovery(pppoe::code::PADS, SESSION, found.payload)],
            _ => Vec::new(),
        };
    }
    let protocol = Protocol(u16::from_be_bytes([found.payload[0], found.payload[1]]));
    if matches!(protocol, Protocol::IPV4 | Protocol::IPV6) {
        return Vec::new();
    }
    let asked = packet(&found.payload[2..]).unwrap();
    let own: &[u8] = match protocol {
        Protocol::LCP => &[],
        Protocol::IPCP => &[option::IP_ADDRESS, 6, 203, 0, 113, 1],
        _ => &[option::INTERFACE_IDENTIFIER, 10, 0, 0, 0, 0, 0, 0, 0, 1],
    };
    match asked.code {
        code::CONFIGURE_REQUEST => {
            assert!(Options::of(asked.data).all(|option| option.is_ok()));
            vec![
                control(protocol, code::CONFIGURE_ACK, asked.id, asked.data),
                control(protocol, code::CONFIGURE_REQUEST, 1, own),
            ]
        }
        code::TERMINATE_REQUEST => vec![control(protocol, code::TERMINATE_ACK, asked.id, &[])],
        _ => Vec::new(),
    }
}

fn out_v4() -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    link.ipv4(INSIDE.into(), OUTSIDE.into())
        .dscp(Dscp::new(46).unwrap())
        .udp(5_000, 53)
        .payload(&[1; 20])
        .to_vec()
}

fn out_v6() -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let (from, to) = ("2001:db8:1::10".parse().unwrap(), "2001:db8:9::7".parse().unwrap());
    link.ipv6(from, to).udp(5_000, 53).payload(&[1; 20]).to_vec()
}

/// A packet of IPv4 that comes by the session.
fn in_v4() -> Vec<u8> {
    let link = build::ethernet(FAR, NEAR);
    let plain = link.ipv4(OUTSIDE.into(), INSIDE.into()).dont_fragment();
    let frame = plain.udp(53, 5_000).payload(&[2; 20]).to_vec();
    in_session(Protocol::IPV4, &frame[14..])
}

fn arrival(port: u16, at: Nanos, number: usize, bytes: Vec<u8>) -> Arrival {
    Arrival { port: PortId(port), at, number: number as u32, bytes }
}

/// Opens a session, and returns the frames that have done it.
fn open(gateway: &mut Gateway) -> Vec<Arrival> {
    let mut played = Vec::new();
    let mut next = vec![(LAN, out_v4())];
    while let Some((port, bytes)) = next.pop() {
        let one = arrival(port, START, played.len(), bytes);
        gateway.receive(std::slice::from_ref(&one));
        played.push(one);
        let sent = gateway.out(usize::MAX).sent;
        next.extend(sent.iter().rev().flat_map(|sent| {
            answers(&sent.bytes).into_iter().rev().map(|bytes| (WAN, bytes)).collect::<Vec<_>>()
        }));
        assert!(played.len() < 40);
    }
    assert!(gateway.shard.sessions.views().all(|view| view.link.is_some_and(|link| link.v4 && link.v6)));
    played
}

/// A session that opens, packets both ways, and corners: for a shard with the seed of [`scene::setup`](crate::scene::setup).
pub(crate) fn corners() -> (String, Vec<Arrival>) {
    let text = policy("");
    let mut gateway = Gateway::new(&text, Way::Step);
    let mut all = open(&mut gateway);
    let group = of_peer(Mac::BROADCAST, 0x8864, &[&pppoe::header(0, SESSION, 2), &[0, 0x21]]);
    let frames = [
        (LAN, out_v4()),
        (LAN, out_v6()),
        (WAN, in_v4()),
        (WAN, group),
        (WAN, control(Protocol::LCP, code::ECHO_REQUEST, 1, &[0; 8])),
        (WAN, control(Protocol(0x80fd), code::CONFIGURE_REQUEST, 1, &[])),
        (WAN, discovery(pppoe::code::PADT, SESSION, &[])),
        (WAN, in_v4()),
        (LAN, out_v4()),
    ];
    let from = all.len();
    let numbered = frames.into_iter().enumerate();
    all.extend(numbered.map(|(number, (port, bytes))| arrival(port, START, from + number, bytes)));
    (text, all)
}

/// The IP packet in a frame of the session, with its family.
fn packet_in(sent: &Sent) -> (Family, Vec<u8>, u8) {
    let layer = wire::ethernet::parse(&sent.bytes).unwrap();
    assert_eq!((layer.header.dst(), layer.header.src(), layer.ethertype.0), (PEER, GATEWAY, 0x8864));
    let found = pppoe::packet(layer.payload).unwrap();
    assert_eq!((found.code, found.session), (0, SESSION));
    let (field, packet) = found.payload.split_first_chunk::<2>().unwrap();
    let family = if *field == [0, 0x21] { Family::V4 } else { Family::V6 };
    (family, packet.to_vec(), layer.tags.outer().unwrap().priority().bits())
}

#[test]
fn packets_go_both_ways_on_a_vlan_with_its_priority() {
    for way in [Way::Run, Way::Step] {
        let mut gateway = Gateway::new(&policy(""), way);
        open(&mut gateway);
        let frames = [(LAN, out_v4()), (LAN, out_v6()), (WAN, in_v4())];
        let arrivals: Vec<_> =
            frames.into_iter().zip(0..).map(|((port, bytes), n)| arrival(port, START, n, bytes)).collect();
        gateway.receive(&arrivals);
        let out = gateway.out(usize::MAX);
        let [inward, v4, v6] = &out.sent[..] else { panic!("{out:?}") };
        assert_eq!(inward.port, LAN);
        let (family, packet, priority) = packet_in(v4);
        // Expedited forwarding is priority 5.
        assert_eq!((family, packet.len(), priority >> 1), (Family::V4, 48, 5));
        assert_eq!((packet_in(v6).0, packet_in(v6).1.len()), (Family::V6, 68));
        check::gateway(&gateway);
        assert!(gateway.shard.counters.are_conserved());
    }
}

#[test]
fn corners_have_their_reasons() {
    let (text, arrivals) = corners();
    let mut gateway = Gateway::new(&text, Way::Run);
    gateway.receive(&arrivals);
    let out = gateway.out(usize::MAX);
    let of = |behind: usize| {
        let number = (arrivals.len() - behind) as u32;
        out.ended.iter().find(|(ended, _)| *ended == number).map(|(_, verdict)| *verdict)
    };
    assert_eq!(of(6), Some(Verdict::Dropped(Reason::PppSessionUnknown)));
    assert_eq!(of(3), Some(Verdict::Dropped(Reason::PppControl)));
    assert_eq!(of(2), Some(Verdict::Dropped(Reason::PppSessionUnknown)));
    assert_eq!(of(1), Some(Verdict::Dropped(Reason::PppNotOpen)));
    let answered = |sent: &&Sent| sent.verdict == Some(Verdict::Answered(Reason::PppControl));
    assert!(out.sent.iter().filter(answered).count() >= 4);
    check::gateway(&gateway);
    assert!(gateway.shard.counters.are_conserved());
}

#[test]
fn a_reload_keeps_a_session_whose_keys_stay_and_ends_one_whose_keys_change() {
    let mut gateway = Gateway::new(&policy(""), Way::Run);
    open(&mut gateway);
    let later = START + Nanos::from_secs(1);
    let other = format!("{}[limit]\nflows = 100\n", policy(""));
    gateway.reload(&other, later);
    gateway.receive(&[arrival(LAN, later, 1, out_v4()), arrival(WAN, later, 2, in_v4())]);
    let out = gateway.out(usize::MAX);
    assert_eq!(out.sent.len(), 2, "{out:?}");
    gateway.reload(&policy("peer = \"203.0.113.9\"\n"), later);
    gateway.receive(&[arrival(LAN, later, 1, out_v4()), arrival(WAN, later, 2, in_v4())]);
    let out = gateway.out(usize::MAX);
    let reasons: Vec<_> = out.ended.iter().map(|(_, verdict)| *verdict).collect();
    let expected = [Reason::PppNotOpen, Reason::PppSessionUnknown].map(Verdict::Dropped);
    assert_eq!(reasons, expected);
}

/// The first worker has the session: another one hands control packets off to it, and carries packets by itself.
#[test]
fn workers_share_a_session() {
    let text = policy("");
    let steering = Arc::new(SteeringTable::new(2, 1_024).unwrap());
    let tables = std::rc::Rc::new(crate::scene::tables(&text));
    let member = |worker| Member { steering: Arc::clone(&steering), worker };
    let [mut first, mut second] = [0, 1].map(|worker| Gateway::member_of(tables.clone(), member(worker)));
    let mut next = vec![(LAN, out_v4())];
    let mut many = 0;
    while let Some((port, bytes)) = next.pop() {
        many += 1;
        let one = arrival(port, START, many, bytes);
        if port == LAN {
            first.receive(&[one]);
        } else {
            second.receive(&[one]);
            for (worker, meta, bytes) in second.given(|| false) {
                assert_eq!(worker, 0);
                first.take(&meta, &bytes);
            }
        }
        assert!(second.out(usize::MAX).sent.is_empty());
        let sent = first.out(usize::MAX).sent;
        next.extend(sent.iter().rev().flat_map(|sent| {
            answers(&sent.bytes).into_iter().rev().map(|bytes| (WAN, bytes)).collect::<Vec<_>>()
        }));
        assert!(many < 60);
    }
    for gateway in [&mut first, &mut second] {
        gateway.receive(&[arrival(WAN, START, 1, in_v4()), arrival(LAN, START, 2, out_v4())]);
    }
    let mut sent = [0; 2];
    for _ in 0..4 {
        for (worker, meta, bytes) in second.given(|| false) {
            assert_eq!(worker, 0);
            first.take(&meta, &bytes);
        }
        for (worker, meta, bytes) in first.given(|| false) {
            assert_eq!(worker, 1);
            second.take(&meta, &bytes);
        }
        for gateway in [&mut first, &mut second] {
            gateway.out(usize::MAX).sent.iter().for_each(|frame| sent[usize::from(frame.port)] += 1);
        }
    }
    assert_eq!(sent, [2, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever becomes of the peer's frames, both modes of execution do the same, and nothing is lost without a verdict.
    #[test]
    fn both_modes_do_the_same(
        changes in prop::collection::vec((0..40_usize, 0..4_u8, 0..80_usize, any::<u8>()), 0..6),
        batch in 1..64_usize,
        pause in 0..5_u64,
    ) {
        let (text, mut arrivals) = corners();
        for (place, kind, at, byte) in changes {
            let place = place % arrivals.len();
            match kind {
                0 => {
                    arrivals.remove(place);
                }
                1 => {
                    let again = arrivals[place].clone();
                    arrivals.insert(place, again);
                }
                2 => arrivals.swap(place, 0),
                _ => {
                    let bytes = &mut arrivals[place].bytes;
                    let at = at % bytes.len();
                    bytes[at] = byte;
                }
            }
        }
        for (number, arrival) in arrivals.iter_mut().enumerate() {
            arrival.number = number as u32;
            arrival.at = START + Nanos::from_secs(number as u64 * pause);
        }
        let [run, step] = [Way::Run, Way::Step].map(|way| {
            let mut gateway = Gateway::new(&text, way);
            let mut outs = Vec::new();
            for batch in arrivals.chunks(batch) {
                gateway.receive(batch);
                outs.push(gateway.out(usize::MAX));
            }
            check::gateway(&gateway);
            assert!(gateway.shard.counters.are_conserved());
            outs
        });
        prop_assert_eq!(run, step);
    }
}
