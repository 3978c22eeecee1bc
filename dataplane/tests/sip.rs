//! Calls through a helper for SIP: what is let in, for how long, and what messages become.

use dataplane::flow::Handshake;
use dataplane::replay::Way;
use dataplane::state::{Cursor, Item};
use dataplane::{Reason, Verdict};
use wire::build::Packet;
use wire::checksum::Sum;
use wire::random::Random;
use wire::{PortId, ipv4, ipv6, udp};

use crate::scene::pair::{Pair, v4, v6};
use crate::scene::{Arrival, Gateway, Out};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const PHONE: [u8; 4] = [192, 168, 1, 10];
const OTHER: [u8; 4] = [192, 168, 1, 11];
const PBX: [u8; 4] = [192, 168, 1, 20];
const OUTSIDE: [u8; 4] = [203, 0, 113, 2];
const REGISTRAR: [u8; 4] = [198, 51, 100, 7];
const STRANGER: [u8; 4] = [198, 51, 100, 66];

fn policy(helper: &str) -> String {
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
name = "office"
kind = "masquerade"
from = "lan"
to = "wan"
source = "192.168.1.0/24"
[[nat]]
name = "pbx"
kind = "forward"
outside = "203.0.113.2"
protocol = "udp"
port = 5080
target = "192.168.1.20:5080"
[[rule]]
name = "web"
from = "lan"
to = "wan"
protocol = "udp"
dport = 9
action = "accept"
[[rule]]
name = "sip"
from = "lan"
to = "wan"
protocol = "udp"
dport = 5060
{helper}
action = "accept"
[[rule]]
name = "pbx"
from = "wan"
to = "lan"
destination = "192.168.1.20"
protocol = "udp"
dport = 5080
{helper}
action = "accept"
"#
    )
}

const HELPED: &str = "helper = \"sip\"";

/// Text of the packet that leaves, with its ports; nothing if none does.
fn text(out: &Out) -> Option<(String, [u16; 2])> {
    let [sent] = out.sent.as_slice() else { return None };
    let packet = &sent.bytes[14..];
    let payload = match packet[0] >> 4 {
        4 => ipv4::parse(packet).unwrap().payload,
        _ => ipv6::parse(packet).unwrap().payload,
    };
    let datagram = udp::parse(payload).unwrap();
    let ports = [datagram.header.sport(), datagram.header.dport()];
    Some((String::from_utf8_lossy(datagram.payload()).into_owned(), ports))
}

fn says(pair: &mut Pair, port: PortId, packet: Packet<'_>, message: &str) -> Option<(String, [u16; 2])> {
    let out = pair.receive(port, &packet.payload(message.as_bytes()));
    text(&out)
}

/// A datagram that is none of signalling; where it goes.
fn media(pair: &mut Pair, port: PortId, packet: Packet<'_>) -> Option<[u16; 2]> {
    says(pair, port, packet, "RTP").map(|(_, ports)| ports)
}

fn verdict(pair: &mut Pair, port: PortId, packet: Packet<'_>) -> Verdict {
    pair.fate(port, &packet.payload(b"RTP"))
}

const DROPPED: Verdict = Verdict::Dropped(Reason::DefaultDrop);

fn sdp(address: &str, port: u16) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
    )
}

/// A message with headers of a call, and a body if there is one.
fn message(start: &str, via: &str, contact: &str, cseq: &str, call: &str, body: &str) -> String {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!(
        "{start}\r\nVia: SIP/2.0/UDP {via};branch=z9hG4bK1\r\nFrom: <sip:a@example.com>;tag=1\r\nTo: <sip:b@example.com>\r\n\
         Call-ID: {call}\r\nCSeq: {cseq}\r\nContact: <sip:a@{contact}>\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const REGISTER: &str = "REGISTER sip:example.com SIP/2.0";

/// The phone registers, for so long.
fn register(pair: &mut Pair, seconds: u32) {
    let said = |end: &str| message(REGISTER, end, end, "1 REGISTER", "r", "");
    let told = says(pair, LAN, v4(PHONE, REGISTRAR).udp(5060, 5060), &said("192.168.1.10:5060"));
    assert_eq!(told, Some((said("203.0.113.2:5060"), [5060, 5060])));
    let granted = |end: &str| {
        let contact = format!("{end}>;expires={seconds};x=<");
        message("SIP/2.0 200 OK", end, &contact, "1 REGISTER", "r", "")
    };
    let answer = says(pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5060, 5060), &granted("203.0.113.2:5060"));
    assert_eq!(answer, Some((granted("192.168.1.10:5060"), [5060, 5060])));
}

/// The phone calls somebody, and offers to receive at a port; the outside port that the registrar is told.
fn invite(pair: &mut Pair, call: &str, port: u16) -> Option<u16> {
    let body = sdp("192.168.1.10", port);
    let start = "INVITE sip:b@example.com SIP/2.0";
    let said = message(start, "192.168.1.10:5060", "192.168.1.10:5060", "2 INVITE", call, &body);
    let (told, _) = says(pair, LAN, v4(PHONE, REGISTRAR).udp(5060, 5060), &said)?;
    let known = told.split_once("m=audio ")?.1.split_once(' ')?.0.parse().ok()?;
    let end = "203.0.113.2:5060";
    assert_eq!(told, message(start, end, end, "2 INVITE", call, &sdp("203.0.113.2", known)));
    Some(known)
}

#[test]
fn a_call_out_has_its_media() {
    let mut pair = Pair::assumed(&policy(HELPED));
    assert_eq!(invite(&mut pair, "1", 4000), Some(4000));
    // Of the registrar alone, to both ports, once.
    assert_eq!(verdict(&mut pair, WAN, v4(STRANGER, OUTSIDE).udp(7000, 4000)), DROPPED);
    assert_eq!(verdict(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, 4002)), DROPPED);
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, 4000)), Some([7000, 4000]));
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7001, 4001)), Some([7001, 4001]));
    assert_eq!(media(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(4000, 7000)), Some([4000, 7000]));
    assert_eq!(verdict(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7002, 4000)), DROPPED);
    // What the other side announces the phone may call, though no rule lets it.
    assert_eq!(verdict(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(4000, 6000)), DROPPED);
    let answer = |end: &str| {
        message("SIP/2.0 200 OK", end, "198.51.100.7:5060", "2 INVITE", "1", &sdp("198.51.100.7", 6000))
    };
    let told = says(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5060, 5060), &answer("203.0.113.2:5060"));
    assert_eq!(told, Some((answer("192.168.1.10:5060"), [5060, 5060])));
    assert_eq!(media(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(4000, 6000)), Some([4000, 6000]));
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(6000, 4000)), Some([6000, 4000]));
}

#[test]
fn a_registration_lets_calls_in_for_its_time() {
    let mut pair = Pair::assumed(&policy(HELPED));
    register(&mut pair, 600);
    // From another port than the registrar was asked at.
    let call = |from: &str, to: &str, contact: &str, body: &str| {
        message(&format!("INVITE sip:a@{to} SIP/2.0"), from, contact, "7 INVITE", "2", body)
    };
    let body = sdp("198.51.100.7", 6000);
    let said = |to: &str| call("198.51.100.7:5070", to, "198.51.100.7:5070", &body);
    let packet = || v4(REGISTRAR, OUTSIDE).udp(5070, 5060);
    let told = says(&mut pair, WAN, packet(), &said("203.0.113.2:5060"));
    assert_eq!(told, Some((said("192.168.1.10:5060"), [5070, 5060])));
    // The answer goes back by the same flow, translated, and has its media expected.
    let said = |end: &str, port| {
        message(
            "SIP/2.0 200 OK",
            "198.51.100.7:5070",
            &format!("{end}:5060"),
            "7 INVITE",
            "2",
            &sdp(end, port),
        )
    };
    let told = says(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(5060, 5070), &said("192.168.1.10", 4000));
    assert_eq!(told, Some((said("203.0.113.2", 4000), [5060, 5070])));
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(6000, 4000)), Some([6000, 4000]));
    assert_eq!(media(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(4002, 6001)), Some([4002, 6001]));
    // Nobody else; and from yet another port as long as the registration holds.
    assert_eq!(verdict(&mut pair, WAN, v4(STRANGER, OUTSIDE).udp(5070, 5060)), DROPPED);
    pair.tend(590_000);
    assert!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5071, 5060)).is_some());
    pair.tend(11_000);
    assert_eq!(verdict(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5072, 5060)), DROPPED);
    // The connection itself has an hour.
    register(&mut pair, 3_000);
    pair.tend(2_990_000);
    assert!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5060, 5060)).is_some());
    register(&mut pair, 0);
    assert_eq!(verdict(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5073, 5060)), DROPPED);
}

#[test]
fn a_contact_of_another_port_is_mapped() {
    let mut pair = Pair::assumed(&policy(HELPED));
    // Somebody else is known by the port.
    media(&mut pair, LAN, v4(OTHER, REGISTRAR).udp(5064, 9)).unwrap();
    let said = |end: &str, contact: &str| message(REGISTER, end, contact, "1 REGISTER", "r", "");
    let packet = || v4(PHONE, REGISTRAR).udp(5062, 5060);
    let (told, _) = says(&mut pair, LAN, packet(), &said("192.168.1.10:5062", "192.168.1.10:5064")).unwrap();
    let known = told.split_once("a@203.0.113.2:").unwrap().1.split_once('>').unwrap().0;
    assert_ne!(known, "5064");
    let contact = format!("203.0.113.2:{known}");
    assert_eq!(told, said("203.0.113.2:5062", &contact));
    // It is the same one in all messages, and is let in.
    let ringing = |end: &str| message("SIP/2.0 180 Ringing", "198.51.100.7", end, "7 INVITE", "2", "");
    let (told, _) = says(&mut pair, LAN, packet(), &ringing("192.168.1.10:5064")).unwrap();
    assert_eq!(told, ringing(&contact));
    let call = |to: &str| {
        message(&format!("INVITE sip:a@{to} SIP/2.0"), "198.51.100.7", "198.51.100.7", "7 INVITE", "2", "")
    };
    let port = known.parse().unwrap();
    let told = says(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5060, port), &call(&contact));
    assert_eq!(told, Some((call("192.168.1.10:5064"), [5060, 5064])));
}

#[test]
fn what_a_call_expects_ends_with_it() {
    let mut pair = Pair::assumed(&policy(HELPED));
    let end = "192.168.1.10:5060";
    let over = [
        ("BYE sip:b@example.com SIP/2.0", "3 BYE"),
        ("CANCEL sip:b@example.com SIP/2.0", "2 CANCEL"),
        ("SIP/2.0 486 Busy Here", "2 INVITE"),
    ];
    for (start, cseq) in over {
        assert_eq!(invite(&mut pair, "1", 4000), Some(4000));
        assert_eq!(invite(&mut pair, "2", 4010), Some(4010));
        assert_eq!(pair.shard().mappings.len(), 5);
        let (port, packet) = match start.starts_with("SIP") {
            true => (WAN, v4(REGISTRAR, OUTSIDE).udp(5060, 5060)),
            false => (LAN, v4(PHONE, REGISTRAR).udp(5060, 5060)),
        };
        assert!(says(&mut pair, port, packet, &message(start, end, end, cseq, "2", "")).is_some());
        assert_eq!(pair.shard().mappings.len(), 3, "{start}");
    }
    // Or with nobody coming, or with its control connection.
    pair.tend(301_000);
    assert_eq!(pair.shard().mappings.len(), 1);
    invite(&mut pair, "1", 4000).unwrap();
    register(&mut pair, 600);
    pair.do_both(|gateway| gateway.shard.clear_flows());
    assert_eq!((pair.shard().mappings.len(), pair.shard().flows.len()), (0, 0));
}

#[test]
fn one_control_connection_expects_no_more_than_so_many() {
    let mut pair = Pair::assumed(&policy(HELPED));
    for call in 0..20_u16 {
        assert_eq!(invite(&mut pair, &call.to_string(), 4000 + 2 * call), Some(4000 + 2 * call));
        let calls = u32::from(call + 1).min(8);
        assert_eq!(pair.shard().mappings.len(), 1 + 2 * calls);
    }
    // The oldest have made room; the same once more makes none.
    assert_eq!(verdict(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, 4022)), DROPPED);
    invite(&mut pair, "19", 4038).unwrap();
    assert!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, 4024)).is_some());
}

#[test]
fn two_ports_follow_one_another() {
    let mut pair = Pair::assumed(&policy(HELPED));
    // Another host is known by the port of RTCP.
    assert_eq!(media(&mut pair, LAN, v4(OTHER, REGISTRAR).udp(4001, 9)), Some([4001, 9]));
    let known = invite(&mut pair, "1", 4000).unwrap();
    assert!(known != 4000 && known % 2 == 0, "{known}");
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, known)), Some([7000, 4000]));
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7001, known + 1)), Some([7001, 4001]));
    // Where the first is known already, the second is said to be elsewhere.
    assert_eq!(media(&mut pair, LAN, v4(OTHER, REGISTRAR).udp(4101, 9)), Some([4101, 9]));
    assert_eq!(media(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(4100, 9)), Some([4100, 9]));
    let body = sdp("192.168.1.10", 4100);
    let end = "192.168.1.10:5060";
    let said = message("INVITE sip:b@example.com SIP/2.0", end, end, "2 INVITE", "2", &body);
    let (told, _) = says(&mut pair, LAN, v4(PHONE, REGISTRAR).udp(5060, 5060), &said).unwrap();
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    let rtcp = body.split_once("m=audio 4100 RTP/AVP 0\r\na=rtcp:").unwrap().1.trim_end();
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
    let rtcp = rtcp.parse().unwrap();
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7001, rtcp)), Some([7001, 4101]));
}

/// Two phones of one office, whose calls go by a registrar outside.
#[test]
fn media_of_two_phones_stay_inside() {
    let mut pair = Pair::assumed(&policy(HELPED));
    register(&mut pair, 600);
    let end = "192.168.1.11:5060";
    let said = message(REGISTER, end, end, "1 REGISTER", "o", "");
    let (told, [known, _]) = says(&mut pair, LAN, v4(OTHER, REGISTRAR).udp(5060, 5060), &said).unwrap();
    assert!(told.contains(&format!("<sip:a@203.0.113.2:{known}>")) && known != 5060);
    assert_eq!(invite(&mut pair, "1", 4000), Some(4000));
    // The registrar passes the offer on, and then the answer back.
    let pass = |start: &str, cseq: &str, address: &str, port| {
        message(start, "198.51.100.7:5060", "198.51.100.7:5060", cseq, "1", &sdp(address, port))
    };
    let start = "INVITE sip:a@192.168.1.11:5060 SIP/2.0";
    let asked = start.replace("192.168.1.11:5060", &format!("203.0.113.2:{known}"));
    let packet = v4(REGISTRAR, OUTSIDE).udp(5060, known);
    let (told, _) = says(&mut pair, WAN, packet, &pass(&asked, "7 INVITE", "203.0.113.2", 4000)).unwrap();
    assert_eq!(
        told,
        pass(start, "7 INVITE", "192.168.1.10", 4000)
            .replace("1 1 IN IP4 192.168.1.10", "1 1 IN IP4 192.168.1.11")
    );
    let answer = pass("SIP/2.0 200 OK", "7 INVITE", "192.168.1.11", 4500);
    let (told, _) = says(&mut pair, LAN, v4(OTHER, REGISTRAR).udp(5060, 5060), &answer).unwrap();
    assert_eq!(told, pass("SIP/2.0 200 OK", "7 INVITE", "203.0.113.2", 4500));
    let packet = v4(REGISTRAR, OUTSIDE).udp(5060, 5060);
    // Whose contact stays that by which the registrar knows the phone.
    let contact = format!("a@203.0.113.2:{known}");
    let answer = told.replace("7 INVITE", "2 INVITE").replace("a@198.51.100.7:5060", &contact);
    let (told, _) = says(&mut pair, WAN, packet, &answer).unwrap();
    assert!(told.contains(&contact), "{told}");
    assert!(told.contains("c=IN IP4 192.168.1.11\r\n") && told.contains("m=audio 4500 "), "{told}");
}

#[test]
fn an_exchange_behind_a_forward() {
    let mut pair = Pair::assumed(&policy(HELPED));
    let start = "INVITE sip:1@203.0.113.2:5080 SIP/2.0";
    let said = |start: &str| {
        message(start, "198.51.100.7:5060", "198.51.100.7:5060", "2 INVITE", "1", &sdp("198.51.100.7", 6000))
    };
    let told = says(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(5060, 5080), &said(start));
    assert_eq!(told, Some((said(&start.replace("203.0.113.2", "192.168.1.20")), [5060, 5080])));
    let said = |end: &str| {
        message(
            "SIP/2.0 200 OK",
            "198.51.100.7:5060",
            &format!("{end}:5080"),
            "2 INVITE",
            "1",
            &sdp(end, 12_000),
        )
    };
    let told = says(&mut pair, LAN, v4(PBX, REGISTRAR).udp(5080, 5060), &said("192.168.1.20"));
    assert_eq!(told, Some((said("203.0.113.2"), [5080, 5060])));
    assert_eq!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(6000, 12_000)), Some([6000, 12_000]));
    assert_eq!(media(&mut pair, LAN, v4(PBX, REGISTRAR).udp(12_000, 6000)), Some([12_000, 6000]));
}

#[test]
fn without_a_translation_media_are_expected_all_the_same() {
    let mut pair = Pair::assumed(&policy(HELPED));
    let (phone, registrar) = ("2001:db8:1::10", "2001:db8:aaaa::7");
    let body = sdp(phone, 4000).replace("IP4", "IP6");
    let end = "[2001:db8:1::10]:5060";
    let said = message("INVITE sip:b@example.com SIP/2.0", end, end, "2 INVITE", "1", &body);
    let told = says(&mut pair, LAN, v6(phone, registrar).udp(5060, 5060), &said);
    assert_eq!(told, Some((said, [5060, 5060])));
    assert_eq!(verdict(&mut pair, WAN, v6(registrar, phone).udp(6000, 4002)), DROPPED);
    assert_eq!(media(&mut pair, WAN, v6(registrar, phone).udp(6000, 4001)), Some([6000, 4001]));
    // Another host's media, and those at ports of services, are announced in vain.
    for (address, port) in [("2001:db8:1::11", 4000), (phone, 1000)] {
        let body = sdp(address, port).replace("IP4", "IP6");
        let said = message("INVITE sip:b@example.com SIP/2.0", end, end, "2 INVITE", "1", &body);
        says(&mut pair, LAN, v6(phone, registrar).udp(5060, 5060), &said).unwrap();
        assert_eq!(verdict(&mut pair, WAN, v6(registrar, address).udp(6001, port)), DROPPED);
    }
}

#[test]
fn what_is_not_understood_passes_and_is_counted() {
    let mut pair = Pair::assumed(&policy(HELPED));
    let packet = || v4(PHONE, REGISTRAR).udp(5060, 5060);
    for (said, unread) in
        [("\r\n\r\n", 0), ("jaK", 0), ("HELO 192.168.1.10:5060", 1), ("SIP/2.0 200 OK\r\n\r\n", 2)]
    {
        assert_eq!(says(&mut pair, LAN, packet(), said).unwrap().0, said);
        assert_eq!(pair.shard().counters.helper_unread, unread, "{said}");
    }
    // In fragments.
    let end = "192.168.1.10:5060";
    let said = message("OPTIONS sip:x SIP/2.0", end, end, "1 OPTIONS", "1", "");
    let whole = packet().payload(said.as_bytes()).to_vec();
    let mut seen = 0;
    for (number, range) in (1000..).zip([0..160, 160..whole.len() - 34]) {
        let more = u16::from(range.start == 0) << 13;
        let mut bytes = whole[..34].to_vec();
        bytes.extend(&whole[34..][range.clone()]);
        let mut header = ipv4::HeaderMut::of(&mut bytes[14..]).unwrap();
        header.set_total_len(20 + range.len() as u16);
        header.set_flags_and_offset(more | (range.start / 8) as u16);
        header.set_checksum(0);
        let checksum = Sum::of(&bytes[14..34]).checksum();
        ipv4::HeaderMut::of(&mut bytes[14..]).unwrap().set_checksum(checksum);
        let arrival = Arrival { port: LAN, at: pair.at(), number, bytes };
        seen += pair.do_both(|gateway| gateway.receive(std::slice::from_ref(&arrival))).sent.len();
    }
    assert_eq!((seen, pair.shard().counters.helper_unread), (2, 3));
    // A rule that names no helper any more.
    let at = pair.at();
    pair.do_both(|gateway| {
        gateway.reload(&policy(""), at);
    });
    assert_eq!(says(&mut pair, LAN, packet(), &said).unwrap().0, said);
    assert_eq!(pair.shard().counters.helper_unread, 3);
}

/// A message that becomes longer than the link carries is fragmented, of IPv4; of IPv6 it passes as it is.
#[test]
fn a_message_that_becomes_too_long() {
    // Known by a longer address than it has.
    let text = policy(HELPED).replace("192.168.1.", "10.0.0.").replace("203.0.113.2", "203.0.113.222");
    let mut pair = Pair::assumed(&text);
    let end = "10.0.0.10:5060";
    let long = |end: &str, fill: usize| {
        let start = format!("OPTIONS sip:x SIP/2.0\r\nX-Fill: {}", "x".repeat(fill));
        message(&start, end, end, "1 OPTIONS", "1", "")
    };
    let fill = 1472 - long(end, 0).len();
    for df in [false, true] {
        let packet = v4([10, 0, 0, 10], REGISTRAR).udp(5060, 5060);
        let packet = if df { packet.dont_fragment() } else { packet };
        let said = long(end, fill);
        let out = pair.receive(LAN, &packet.payload(said.as_bytes()));
        assert_eq!(out.sent.len(), 2, "{df}");
        let mut whole = Vec::new();
        for sent in &out.sent {
            let packet = ipv4::parse_prefix(&sent.bytes[14..]).unwrap();
            assert_eq!(packet.header.flags_and_offset() & 0x4000, 0);
            let at = usize::from(packet.header.flags_and_offset() & 0x1fff) * 8;
            whole.resize(whole.len().max(at + packet.payload.len()), 0);
            whole[at..][..packet.payload.len()].copy_from_slice(packet.payload);
        }
        let told = udp::parse(&whole).unwrap();
        assert_eq!(String::from_utf8_lossy(told.payload()), long("203.0.113.222:5060", fill));
    }
    assert_eq!(pair.shard().counters.helper_unread, 0);
}

#[test]
fn flows_are_exported_and_imported() {
    let text = policy(HELPED);
    let mut pair = Pair::assumed(&text);
    register(&mut pair, 600);
    invite(&mut pair, "1", 4000).unwrap();
    assert!(media(&mut pair, WAN, v4(REGISTRAR, OUTSIDE).udp(7000, 4000)).is_some());
    let now = pair.at();
    let mut items = Vec::new();
    let Gateway { shard, tables, .. } = pair.run();
    shard.export(tables, now, Cursor::default(), u32::MAX, |item| items.push(item));
    let parties: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Flow(flow) => Some((flow.original.ports().unwrap().dport, flow.handshake, flow.rule)),
            _ => None,
        })
        .collect();
    assert!(matches!(parties[0], (5060, Handshake::Helped(_), Some(1))), "{parties:?}");
    assert_eq!(parties[1], (4000, Handshake::Related, Some(1)));
    let mut other = Pair::of([Way::Run, Way::Step].map(|way| Gateway::new(&text, way)));
    other.now = pair.now;
    other.do_both(|gateway| {
        let Gateway { shard, tables, .. } = gateway;
        for item in &items {
            shard.import(tables, item, now).unwrap();
        }
    });
    assert_eq!(media(&mut other, LAN, v4(PHONE, REGISTRAR).udp(4000, 7000)), Some([4000, 7000]));
    assert_eq!(invite(&mut other, "2", 4010), Some(4010));
    // Media have the time of their state, the control connection has an hour.
    other.tend(1_000_000);
    assert_eq!(other.shard().flows.len(), 1);
    register(&mut other, 600);
}

/// Whatever is said in whatever order, nothing is lost of frames, ports and references (`scene/check.rs`), in both ways the same.
#[test]
fn any_order_of_any_messages() {
    let mut random = Random::new(5);
    for _ in 0..if cfg!(debug_assertions) { 12 } else { 60 } {
        let limit = if random.next_u64() % 2 == 0 { "[limit]\nflows = 40\n" } else { "" };
        let mut pair = Pair::assumed(&(policy(HELPED) + limit));
        for _ in 0..150 {
            let mut pick = |many: u64| random.next_u64() % many;
            let (host, text) =
                [(PHONE, "192.168.1.10"), (OTHER, "192.168.1.11"), (PBX, "192.168.1.20")][pick(3) as usize];
            let (sport, port) = (5060 + pick(3) as u16, 4000 + pick(12) as u16);
            let address = if pick(6) == 0 { "203.0.113.2" } else { text };
            let body = if pick(2) == 0 { sdp(address, port) } else { String::new() };
            let start = [
                "REGISTER x SIP/2.0",
                "INVITE sip:203.0.113.2 SIP/2.0",
                "BYE x SIP/2.0",
                "SIP/2.0 200 OK",
                "SIP/2.0 404 No",
            ][pick(5) as usize];
            let cseq = ["1 REGISTER", "2 INVITE"][pick(2) as usize];
            let contact = format!("{address}:{}>;expires={};x=<", 5060 + pick(4), pick(2) * 100);
            let end = format!("{address}:{sport}");
            let mut said = message(start, &end, &contact, cseq, &pick(4).to_string(), &body).into_bytes();
            if pick(4) == 0 {
                let at = pick(said.len() as u64) as usize;
                said[at] = b"\r\n:<>,;@ 0"[pick(10) as usize];
            }
            let outside = OUTSIDE;
            let (from, packet) = match pick(5) {
                0 | 1 => (LAN, v4(host, REGISTRAR).udp(sport, [5060, 5080][pick(2) as usize])),
                2 => (WAN, v4(REGISTRAR, outside).udp(5060, [5060, 5061, 5080][pick(3) as usize])),
                3 => (WAN, v4(REGISTRAR, outside).udp(6000 + pick(3) as u16, port)),
                _ => (LAN, v4(host, REGISTRAR).udp(port, [6000, 9][pick(2) as usize])),
            };
            pair.receive(from, &packet.payload(&said));
            let at = pair.at();
            match pick(40) {
                0 => drop(pair.tend([30_000, 200_000, 400_000, 4_000_000][pick(4) as usize])),
                1 => drop(pair.do_both(|gateway| drop(gateway.reload(&(policy(HELPED) + limit), at)))),
                2 => drop(pair.do_both(|gateway| drop(gateway.reload(&policy(""), at)))),
                3 => {
                    // Into other memory.
                    let more = policy(HELPED) + "[limit]\nflows = 3000\n";
                    drop(pair.do_both(|gateway| drop(gateway.reload(&more, at))));
                }
                _ => {}
            }
        }
        pair.tend(100_000_000);
        assert_eq!((pair.shard().flows.len(), pair.shard().mappings.len()), (0, 0));
    }
}
