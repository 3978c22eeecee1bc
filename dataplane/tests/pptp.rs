//! Calls through a helper for PPTP: what is let in, for how long, what messages become, and which call IDs packets leave with.

use std::collections::BTreeSet;

use dataplane::flow::Handshake;
use dataplane::replay::Way;
use dataplane::state::{Cursor, Item};
use dataplane::{Reason, Verdict};
use wire::build::{Icmp, Packet, Tcp};
use wire::header::{Fragment, Protocol};
use wire::tcp::{self, Flags};
use wire::{PortId, gre, icmpv4, ipv4};

use crate::scene::Gateway;
use crate::scene::pair::{Pair, v4, v6};

mod random;

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const CLIENT: [u8; 4] = [192, 168, 1, 10];
const OTHER: [u8; 4] = [192, 168, 1, 11];
const HOME: [u8; 4] = [192, 168, 1, 20];
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];
const SERVER: [u8; 4] = [198, 51, 100, 7];
const STRANGER: [u8; 4] = [198, 51, 100, 66];
/// Initial sequence numbers: soon past the end of them all.
const ISN: u32 = u32::MAX - 100;

const HELPED: &str = "helper = \"pptp\"";
const MASQUERADE: &str = "[[nat]]\nname = \"office\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n";

fn policy(helper: &str, more: &str) -> String {
    format!(
        r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:ff::2/64"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ff::1"
[[nat]]
name = "home"
kind = "forward"
outside = "203.0.113.2"
protocol = "tcp"
port = 1723
target = "192.168.1.20:1723"
[[rule]]
name = "pptp-out"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 1723
{helper}
action = "accept"
[[rule]]
name = "pptp-in"
from = "wan"
to = "lan"
destination = "192.168.1.20"
protocol = "tcp"
dport = 1723
{helper}
action = "accept"
{more}"#
    )
}

fn masqueraded() -> String {
    policy(HELPED, MASQUERADE)
}

/// A control connection: addresses as each end knows them, the client's port, and how much each has said.
struct Control {
    client: [u8; 4],
    /// The client as the server knows it.
    shown: [u8; 4],
    /// The server as the client knows it.
    called: [u8; 4],
    server: [u8; 4],
    ports: [u16; 2],
    /// Ports that the client's packets arrive by, and the server's.
    sides: [PortId; 2],
    said: [u32; 2],
}

impl Control {
    /// A client inside, and a server outside.
    fn outward(client: [u8; 4], shown: [u8; 4], port: u16) -> Control {
        Control {
            client,
            shown,
            called: SERVER,
            server: SERVER,
            ports: [port; 2],
            sides: [LAN, WAN],
            said: [0; 2],
        }
    }

    /// A client outside, and the server inside.
    fn inward(client: [u8; 4]) -> Control {
        Control {
            client,
            shown: client,
            called: OUTSIDE,
            server: HOME,
            ports: [50_000; 2],
            sides: [WAN, LAN],
            said: [0; 2],
        }
    }

    fn segment(&self, by: usize, at: u32, flags: Flags) -> (PortId, Packet<'static>) {
        let [own, other] = [ISN.wrapping_add(at), ISN.wrapping_add(1 + self.said[1 - by])];
        let (from, to, sport, dport) = match by {
            0 => (self.client, self.called, self.ports[0], 1723),
            _ => (self.server, self.shown, 1723, self.ports[1]),
        };
        let ack = if flags.contains(Flags::ACK) { other } else { 0 };
        (self.sides[by], v4(from, to).tcp(Tcp { sport, dport, seq: own, ack, flags, ..Tcp::default() }))
    }

    fn open(&mut self, pair: &mut Pair) {
        let (port, syn) = self.segment(0, 0, Flags::SYN);
        let sent = pair.forwarded(port, &syn);
        self.ports[1] = tcp::parse(ipv4::parse(&sent[14..]).unwrap().payload).unwrap().header.sport();
        for (by, at, flags) in [(1, 0, Flags::SYN_ACK), (0, 1, Flags::ACK)] {
            let (port, packet) = self.segment(by, at, flags);
            pair.forwarded(port, &packet);
        }
    }

    /// Has one end say something in one segment; what the other gets.
    fn says(&mut self, pair: &mut Pair, by: usize, text: &[u8]) -> Vec<u8> {
        let (port, packet) = self.segment(by, 1 + self.said[by], Flags::ACK);
        let sent = pair.forwarded(port, &packet.payload(text));
        self.said[by] += text.len() as u32;
        tcp::parse(ipv4::parse(&sent[14..]).unwrap().payload).unwrap().payload.to_vec()
    }

    /// Has the client call, by this call ID, and the server accept, by that one; the client's call ID as the server knows it.
    fn call(&mut self, pair: &mut Pair, [own, peer]: [u16; 2]) -> u16 {
        let told = self.says(pair, 0, &request(own));
        let known = id_at(&told, 12);
        assert_eq!(told, request(known));
        assert_eq!(self.says(pair, 1, &reply(peer, known, 1)), reply(peer, own, 1));
        known
    }
}

fn id_at(message: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([message[at], message[at + 1]])
}

/// A control message of a type and length, with these numbers from the first call ID on.
fn message(kind: u8, len: u16, numbers: &[u16]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
    bytes[..2].copy_from_slice(&len.to_be_bytes());
    bytes[2..12].copy_from_slice(&[0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0]);
    for (at, number) in (12..).step_by(2).zip(numbers) {
        bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn request(call: u16) -> Vec<u8> {
    message(7, 168, &[call])
}

fn reply(call: u16, peer: u16, result: u8) -> Vec<u8> {
    message(8, 32, &[call, peer, u16::from(result) << 8])
}

fn clear(call: u16) -> Vec<u8> {
    message(12, 16, &[call])
}

fn disconnected(call: u16) -> Vec<u8> {
    message(13, 148, &[call, 0x0100])
}

/// Enhanced GRE for a call.
fn gre_of(call: u16) -> Vec<u8> {
    let [high, low] = call.to_be_bytes();
    vec![0x30, 0x01, 0x88, 0x0b, 0, 4, high, low, 0, 0, 0, 1, 0xff, 3, 0xc0, 0x21]
}

/// Addresses and call ID with which GRE leaves; nothing if it does not.
fn gre_leaves(
    pair: &mut Pair,
    port: PortId,
    [from, to]: [[u8; 4]; 2],
    call: u16,
) -> Option<([[u8; 4]; 2], u16)> {
    let payload = gre_of(call);
    let out = pair.receive(port, &v4(from, to).protocol(Protocol::GRE).payload(&payload));
    let [sent] = out.sent.as_slice() else {
        assert_eq!(out.ended.len(), 1, "{out:?}");
        return None;
    };
    let packet = ipv4::parse(&sent.bytes[14..]).unwrap();
    let leaves = gre::call_id(packet.payload).unwrap();
    assert_eq!(packet.payload, gre_of(leaves));
    Some(([packet.header.src().octets(), packet.header.dst().octets()], leaves))
}

/// GRE of both directions of a call of a masqueraded client: call IDs of the client inside and outside, and of the server.
fn is_up(pair: &mut Pair, client: [u8; 4], [own, known, peer]: [u16; 3]) -> bool {
    let out = gre_leaves(pair, LAN, [client, SERVER], peer);
    let back = gre_leaves(pair, WAN, [SERVER, OUTSIDE], known);
    assert_eq!(out.is_some(), back.is_some());
    assert!(out.is_none_or(|out| out == ([OUTSIDE, SERVER], peer)), "{out:?}");
    assert!(back.is_none_or(|back| back == ([SERVER, client], own)), "{back:?}");
    out.is_some()
}

#[test]
fn clients_behind_one_address_have_call_ids_of_their_own() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut known = BTreeSet::new();
    let mut calls = Vec::new();
    for (client, port, peer) in
        [(CLIENT, 50_000, 700), (OTHER, 50_000, 701), ([192, 168, 1, 12], 50_001, 702)]
    {
        let mut control = Control::outward(client, OUTSIDE, port);
        control.open(&mut pair);
        let shown = control.call(&mut pair, [4_000, peer]);
        assert!(known.insert(shown), "{shown} twice");
        calls.push((control, client, [4_000, shown, peer]));
    }
    assert!(known.contains(&4_000), "the first has its own");
    for (_, client, ids) in &calls {
        assert!(is_up(&mut pair, *client, *ids));
    }
    assert_eq!(pair.shard().flows.len(), 6, "one for each call");
    for (mut control, client, [own, known, peer]) in calls {
        // What is said of calls in the meantime, several messages in a segment.
        let both = [message(15, 24, &[peer]), message(5, 16, &[9, 9]), clear(own)].concat();
        let told = control.says(&mut pair, 0, &both);
        assert_eq!(told, [message(15, 24, &[peer]), message(5, 16, &[9, 9]), clear(known)].concat());
        let both = [message(14, 40, &[known]), message(6, 20, &[9, 9, 0x0100])].concat();
        let told = control.says(&mut pair, 1, &both);
        assert_eq!(told, [message(14, 40, &[own]), message(6, 20, &[9, 9, 0x0100])].concat());
        assert!(is_up(&mut pair, client, [own, known, peer]), "asked for the end, it has not ended");
        assert_eq!(control.says(&mut pair, 1, &disconnected(peer)), disconnected(peer));
        assert!(!is_up(&mut pair, client, [own, known, peer]), "it has ended");
    }
    assert_eq!((pair.shard().flows.len(), pair.shard().mappings.len()), (3, 3), "control connections");
}

#[test]
fn what_nobody_has_announced_is_not_let_in() {
    for (masquerade, shown) in [(MASQUERADE, OUTSIDE), ("", CLIENT)] {
        let mut pair = Pair::assumed(&policy(HELPED, masquerade));
        let mut control = Control::outward(CLIENT, shown, 50_000);
        control.open(&mut pair);
        let dropped = |pair: &mut Pair| {
            assert_eq!(gre_leaves(pair, LAN, [CLIENT, SERVER], 700), None);
            assert_eq!(gre_leaves(pair, WAN, [SERVER, shown], 4_000), None);
        };
        dropped(&mut pair);
        control.says(&mut pair, 0, &request(4_000));
        dropped(&mut pair);
        // Refused, and asked for anew.
        control.says(&mut pair, 1, &reply(0, 4_000, 4));
        dropped(&mut pair);
        assert_eq!(control.call(&mut pair, [4_000, 700]), 4_000);
        assert_eq!(gre_leaves(&mut pair, WAN, [STRANGER, shown], 4_000), None);
        assert_eq!(gre_leaves(&mut pair, WAN, [SERVER, shown], 4_001), None);
        assert_eq!(gre_leaves(&mut pair, LAN, [CLIENT, SERVER], 4_000), None);
        assert_eq!(gre_leaves(&mut pair, LAN, [OTHER, SERVER], 700), None);
        assert_eq!(gre_leaves(&mut pair, LAN, [CLIENT, SERVER], 700), Some(([shown, SERVER], 700)));
        assert_eq!(gre_leaves(&mut pair, WAN, [SERVER, shown], 4_000), Some(([SERVER, CLIENT], 4_000)));
        assert_eq!(pair.shard().flows.len(), 2);
        // GRE of other kinds is none of a call.
        let mut plain = gre_of(700);
        plain[1] = 0;
        let packet = v4(CLIENT, SERVER).protocol(Protocol::GRE).payload(&plain);
        assert_eq!(pair.fate(LAN, &packet), Verdict::Dropped(Reason::DefaultDrop));
    }
}

#[test]
fn calls_go_both_ways_over_ipv6() {
    let mut pair = Pair::assumed(&masqueraded());
    let ends = ["2001:db8:1::10", "2001:db8:9::7"];
    let segment = |by: usize, seq, ack, flags| {
        let (sport, dport) = if by == 0 { (50_000, 1723) } else { (1723, 50_000) };
        v6(ends[by], ends[1 - by]).tcp(Tcp { sport, dport, seq, ack, flags, ..Tcp::default() })
    };
    pair.forwarded(LAN, &segment(0, 9, 0, Flags::SYN));
    pair.forwarded(WAN, &segment(1, 99, 10, Flags::SYN_ACK));
    pair.forwarded(LAN, &segment(0, 10, 100, Flags::ACK).payload(&request(4_000)));
    pair.forwarded(WAN, &segment(1, 100, 178, Flags::ACK).payload(&reply(700, 4_000, 1)));
    for (port, by, call) in [(WAN, 1, 4_000), (LAN, 0, 700), (LAN, 0, 700)] {
        let packet = v6(ends[by], ends[1 - by]).protocol(Protocol::GRE);
        pair.forwarded(port, &packet.payload(&gre_of(call)));
    }
    let packet = v6(ends[0], ends[1]).protocol(Protocol::GRE);
    let fate = pair.fate(LAN, &packet.payload(&gre_of(701)));
    assert_eq!(fate, Verdict::Dropped(Reason::DefaultDrop));
    assert_eq!(pair.shard().flows.len(), 2);
}

#[test]
fn a_server_behind_a_forward_is_called() {
    for more in ["", MASQUERADE] {
        let mut pair = Pair::assumed(&policy(HELPED, more));
        // Two that have chosen the same; whose packets come first.
        for (client, peer, is_first) in [(SERVER, 700, true), (STRANGER, 701, false)] {
            let mut control = Control::inward(client);
            control.open(&mut pair);
            assert_eq!(control.call(&mut pair, [4_000, peer]), 4_000);
            for turn in 0..3 {
                if is_first || turn > 0 {
                    let leaves = gre_leaves(&mut pair, WAN, [client, OUTSIDE], peer);
                    assert_eq!(leaves, Some(([client, HOME], peer)));
                }
                let leaves = gre_leaves(&mut pair, LAN, [HOME, client], 4_000);
                assert_eq!(leaves, Some(([OUTSIDE, client], 4_000)));
            }
        }
        assert_eq!(pair.shard().flows.len(), 4);
    }
}

/// The server calls (RFC 2637, section 2.9).
#[test]
fn incoming_calls_have_call_ids_of_both_sides() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut other = Control::outward(OTHER, OUTSIDE, 50_001);
    other.open(&mut pair);
    other.call(&mut pair, [4_000, 700]);
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    assert_eq!(control.says(&mut pair, 1, &message(9, 220, &[701])), message(9, 220, &[701]));
    let answer = |own| message(10, 24, &[own, 701, 0x0100]);
    let told = control.says(&mut pair, 0, &answer(4_000));
    let known = id_at(&told, 12);
    assert_ne!(known, 4_000, "that is the other's");
    assert_eq!(told, answer(known));
    assert_eq!(control.says(&mut pair, 1, &message(11, 28, &[known])), message(11, 28, &[4_000]));
    assert!(is_up(&mut pair, CLIENT, [4_000, known, 701]));
    // Asked for by the server, which tells its own call ID.
    control.says(&mut pair, 1, &disconnected(701));
    assert!(!is_up(&mut pair, CLIENT, [4_000, known, 701]));
    assert!(is_up(&mut pair, OTHER, [4_000, 4_000, 700]));
}

#[test]
fn calls_end_with_their_control_connection() {
    // Reset, expired or ended by hand.
    for kind in 0..3 {
        let mut pair = Pair::assumed(&masqueraded());
        let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
        control.open(&mut pair);
        for peer in [700, 701] {
            let known = control.call(&mut pair, [peer + 3_000, peer]);
            assert!(is_up(&mut pair, CLIENT, [peer + 3_000, known, peer]));
        }
        assert_eq!(pair.shard().flows.len(), 3);
        match kind {
            0 => {
                let (port, packet) = control.segment(1, 1 + control.said[1], Flags::RST);
                pair.forwarded(port, &packet);
                pair.tend(60_000);
            }
            1 => drop(pair.tend(1_000_000_000)),
            _ => drop(pair.do_both(|gateway| gateway.shard.clear_flows())),
        }
        assert_eq!((pair.shard().flows.len(), pair.shard().mappings.len()), (0, 0));
        assert!(!is_up(&mut pair, CLIENT, [3_700, 3_700, 700]));
    }
}

/// Silent for longer than its flow is kept, a call goes on, with the same call IDs.
#[test]
fn a_silent_call_goes_on() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut first = Control::outward(OTHER, OUTSIDE, 50_001);
    first.open(&mut pair);
    first.call(&mut pair, [4_000, 9]);
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    let known = control.call(&mut pair, [4_000, 700]);
    assert_ne!(known, 4_000);
    assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
    for _ in 0..3 {
        pair.tend(700_000);
        assert_eq!(pair.shard().flows.len(), 2);
        assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
        control.says(&mut pair, 0, &message(5, 16, &[1, 2]));
    }
    // The same call ID again is another call.
    let again = control.call(&mut pair, [4_000, 701]);
    assert!(!is_up(&mut pair, CLIENT, [4_000, 1, 700]));
    assert!(is_up(&mut pair, CLIENT, [4_000, again, 701]));
}

/// Whoever counts from 0 has that as a call ID. Outside it is another.
#[test]
fn zero_is_a_call_id() {
    for (masquerade, shown) in [(MASQUERADE, OUTSIDE), ("", CLIENT)] {
        let mut pair = Pair::assumed(&policy(HELPED, masquerade));
        let mut control = Control::outward(CLIENT, shown, 50_000);
        control.open(&mut pair);
        let known = control.call(&mut pair, [0, 0]);
        assert_eq!(known == 0, masquerade.is_empty());
        assert_eq!(gre_leaves(&mut pair, LAN, [CLIENT, SERVER], 0), Some(([shown, SERVER], 0)));
        assert_eq!(gre_leaves(&mut pair, WAN, [SERVER, shown], known), Some(([SERVER, CLIENT], 0)));
        assert_eq!(gre_leaves(&mut pair, LAN, [CLIENT, SERVER], 1), None);
    }
}

#[test]
fn one_control_connection_has_a_number_of_calls() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    for number in 0..40 {
        let ids = [4_000 + number, 700 + number];
        let known = control.call(&mut pair, ids);
        assert!(is_up(&mut pair, CLIENT, [ids[0], known, ids[1]]), "{number}");
        // Acknowledged, so that other call IDs can be told.
        let (port, packet) = control.segment(1, 1 + control.said[1], Flags::ACK);
        pair.forwarded(port, &packet);
    }
    assert_eq!(pair.shard().flows.len(), 1 + 16);
    assert_eq!(pair.shard().mappings.len(), 1 + 16);
    assert!(is_up(&mut pair, CLIENT, [4_039, 4_039, 739]));
    assert!(!is_up(&mut pair, CLIENT, [4_000, 4_000, 700]));
}

/// An ICMP error, which quotes a packet.
fn error(from: [u8; 4], to: [u8; 4], quoted: &[u8]) -> Packet<'_> {
    let rest = [0, 0, (1_400_u16 >> 8) as u8, (1_400_u16 & 0xff) as u8];
    v4(from, to).icmpv4(Icmp { kind: 3, code: 4, rest }).payload(quoted)
}

#[test]
fn errors_about_calls_come_back() {
    for (masquerade, shown) in [(MASQUERADE, OUTSIDE), ("", CLIENT)] {
        for is_reloaded in [false, true] {
            let mut pair = Pair::assumed(&policy(HELPED, masquerade));
            let mut other = Control::outward(OTHER, if shown == OUTSIDE { OUTSIDE } else { OTHER }, 50_001);
            other.open(&mut pair);
            other.call(&mut pair, [4_000, 701]);
            let mut control = Control::outward(CLIENT, shown, 50_000);
            control.open(&mut pair);
            let known = control.call(&mut pair, [4_000, 700]);
            assert_eq!(known != 4_000, shown == OUTSIDE);
            let (there, back) = (gre_of(700), gre_of(known));
            let there = v4(CLIENT, SERVER).protocol(Protocol::GRE).payload(&there);
            let back = v4(SERVER, shown).protocol(Protocol::GRE).payload(&back);
            let sides = [(LAN, WAN, there, SERVER, shown), (WAN, LAN, back, CLIENT, SERVER)];
            let left: Vec<Vec<u8>> =
                sides.iter().map(|(port, .., packet, _, _)| pair.forwarded(*port, packet)).collect();
            if is_reloaded {
                let at = pair.at();
                let more = policy(HELPED, masquerade) + "[limit]\nflows = 3000\n";
                pair.do_both(|gateway| drop(gateway.reload(&more, at)));
                // Its next packet has the call validated again.
                pair.forwarded(sides[0].0, &sides[0].2);
            }
            for ((_, from, packet, router, sender), left) in sides.iter().zip(&left) {
                let told = pair.forwarded(*from, &error(*router, *sender, &left[14..]));
                let told = ipv4::parse(&told[14..]).unwrap();
                let sent = packet.to_vec();
                assert_eq!(
                    told.header.dst(),
                    ipv4::Header::of(&sent[14..]).unwrap().src(),
                    "to whom has sent it"
                );
                let quote = ipv4::parse_prefix(&told.payload[8..]).unwrap();
                let whole = ipv4::parse(&sent[14..]).unwrap();
                assert_eq!(quote.payload, whole.payload, "as it was sent");
                assert_eq!(
                    [quote.header.src(), quote.header.dst()],
                    [whole.header.src(), whole.header.dst()]
                );
                assert!(wire::checksum::verifies(told.payload));
                assert_eq!(icmpv4::Header::of(told.payload).unwrap().code(), 4);
                // Of no call, or to another.
                let mut strange = left[14..].to_vec();
                strange[27] ^= 1;
                for (to, quoted) in [(*sender, &strange[..]), ([203, 0, 113, 77], &left[14..])] {
                    let fate = pair.fate(*from, &error(*router, to, quoted));
                    assert_eq!(fate, Verdict::Dropped(Reason::IcmpUnrelated));
                }
            }
        }
    }
}

#[test]
fn fragments_of_a_call_follow_their_first() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut other = Control::outward(OTHER, OUTSIDE, 50_001);
    other.open(&mut pair);
    other.call(&mut pair, [4_000, 701]);
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    let known = control.call(&mut pair, [4_000, 700]);
    for is_reversed in [false, true] {
        let id = 77 + u32::from(is_reversed);
        let parts = [Fragment { id, offset: 0, more: true }, Fragment { id, offset: 16, more: false }];
        let payloads = [gre_of(known), vec![5; 24]];
        let mut packets: Vec<(PortId, Packet<'_>)> = parts
            .iter()
            .zip(&payloads)
            .map(|(part, payload)| {
                (WAN, v4(SERVER, OUTSIDE).protocol(Protocol::GRE).fragment(*part).payload(payload))
            })
            .collect();
        if is_reversed {
            packets.reverse();
        }
        let out = pair.receive_all(&packets);
        assert_eq!(out.sent.len(), 2, "{out:?}");
        for sent in &out.sent {
            let packet = ipv4::parse_prefix(&sent.bytes[14..]).unwrap();
            assert_eq!(packet.header.dst().octets(), CLIENT);
            if packet.header.fragment().unwrap().is_first() {
                assert_eq!(packet.payload, gre_of(4_000));
            } else {
                assert_eq!(packet.payload, [5; 24]);
            }
        }
    }
    assert_eq!(pair.shard().flows.len(), 3);
}

/// GRE that is of no call is accepted by its rule and tracked by its addresses, with a helper in the policy or without.
#[test]
fn other_gre_is_tracked_by_addresses() {
    let rule =
        "[[rule]]\nname = \"gre\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"gre\"\naction = \"accept\"\n";
    for helper in ["", HELPED] {
        let mut pair = Pair::assumed(&policy(helper, &(MASQUERADE.to_owned() + rule)));
        for call in [700, 701, 0] {
            let there = gre_leaves(&mut pair, LAN, [CLIENT, SERVER], call);
            assert_eq!(there, Some(([OUTSIDE, SERVER], call)), "{helper}");
            let back = gre_leaves(&mut pair, WAN, [SERVER, OUTSIDE], call + 1_000);
            assert_eq!(back, Some(([SERVER, CLIENT], call + 1_000)));
        }
        assert_eq!(pair.shard().flows.len(), 1, "{helper}");
        if helper.is_empty() {
            continue;
        }
        // A call beside it is by its rule, and ends.
        let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
        control.open(&mut pair);
        let known = control.call(&mut pair, [4_000, 700]);
        assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
        assert_eq!(pair.shard().flows.len(), 3);
        control.says(&mut pair, 1, &disconnected(700));
        assert_eq!(pair.shard().flows.len(), 2);
        assert!(is_up(&mut pair, CLIENT, [known, known, 700]), "by its addresses");
    }
}

#[test]
fn calls_are_exported_and_imported() {
    let text = masqueraded();
    let mut pair = Pair::assumed(&text);
    let mut other = Control::outward(OTHER, OUTSIDE, 50_001);
    other.open(&mut pair);
    other.call(&mut pair, [4_000, 701]);
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    let known = control.call(&mut pair, [4_000, 700]);
    assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
    // That came from outside first.
    let second = control.call(&mut pair, [4_001, 702]);
    assert!(gre_leaves(&mut pair, WAN, [SERVER, OUTSIDE], second).is_some());
    let now = pair.at();
    let mut items = Vec::new();
    let Gateway { shard, tables, .. } = pair.run();
    shard.export(tables, now, Cursor::default(), u32::MAX, |item| items.push(item));
    let calls: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Flow(flow) if flow.original.protocol == 47 => {
                Some((flow.original.dport, flow.reply.dport, flow.handshake, flow.rule))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        calls,
        [(700, known, Handshake::Related, Some(0)), (second, 702, Handshake::Related, Some(0))]
    );
    let mut there = Pair::of([Way::Run, Way::Step].map(|way| Gateway::new(&text, way)));
    there.now = pair.now;
    there.do_both(|gateway| {
        let Gateway { shard, tables, .. } = gateway;
        for item in &items {
            shard.import(tables, item, now).unwrap();
        }
    });
    assert!(is_up(&mut there, CLIENT, [4_000, known, 700]));
    assert!(is_up(&mut there, CLIENT, [4_001, second, 702]));
    assert_eq!(there.shard().flows.len(), 4);
    // The control connection goes on there, and ends them.
    assert_eq!(control.says(&mut there, 0, &clear(4_000)), clear(known));
    control.says(&mut there, 1, &disconnected(700));
    assert!(gre_leaves(&mut there, LAN, [CLIENT, SERVER], 700).is_none());
    assert!(is_up(&mut there, CLIENT, [4_001, second, 702]));
}

/// A reload keeps calls while a rule has the helper, also into other memory; else GRE is what it is without.
#[test]
fn calls_outlive_reloads() {
    let mut pair = Pair::assumed(&masqueraded());
    let mut other = Control::outward(OTHER, OUTSIDE, 50_001);
    other.open(&mut pair);
    other.call(&mut pair, [4_000, 701]);
    let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
    control.open(&mut pair);
    let known = control.call(&mut pair, [4_000, 700]);
    let reload = |pair: &mut Pair, text: &str| {
        let at = pair.at();
        pair.do_both(|gateway| drop(gateway.reload(text, at)));
    };
    // Not even used yet.
    reload(&mut pair, &masqueraded());
    assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
    for text in [masqueraded() + "[limit]\nflows = 3000\n", masqueraded()] {
        reload(&mut pair, &text);
        assert!(is_up(&mut pair, CLIENT, [4_000, known, 700]));
        assert_eq!(control.says(&mut pair, 0, &message(15, 24, &[700])), message(15, 24, &[700]));
    }
    reload(&mut pair, &policy("", MASQUERADE));
    assert!(!is_up(&mut pair, CLIENT, [4_000, known, 700]));
    assert_eq!(control.says(&mut pair, 0, &request(4_005)), request(4_005), "nobody reads it");
}
