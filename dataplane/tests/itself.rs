//! Packets of the gateway itself: no rule filters them, answers are delivered, and no packet for the gateway leaves.

use dataplane::hop::Wanted;
use dataplane::tables::{Address, LOCAL};
use dataplane::{Delivery, Reason, Verdict};
use wire::build::{self, Icmp};
use wire::ethernet::{EtherType, Mac};
use wire::tcp::Flags;
use wire::vlan::Tag;
use wire::{PortId, icmpv4, icmpv6, ipv4};

use crate::scene::check::Seen;
use crate::scene::pair::{Pair, link, tcp, v4, v6};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(crate::scene::policy::WAN);

/// Nothing may pass but what the gateway itself sends, and what inside hosts do.
const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.dmz]
zone = "dmz"
addresses = ["10.0.0.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
mtu = 1280
mss = "mtu"
[default]
"lan > wan" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ffff::1"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
ports = "4000"
[[nat]]
name = "web"
kind = "forward"
outside = "198.51.100.9"
protocol = "udp"
port = 80
target = "192.168.1.5"
[limit]
errors-per-second = 0
flows-per-source = 1
"#;

/// The same, and everybody may come in to the gateway itself.
fn open() -> String {
    let text = POLICY.replace("flows-per-source = 1", "");
    text.replace("[default]", "[default]\n\"wan > self\" = \"accept\"")
}

const OWN: [u8; 4] = [203, 0, 113, 2];
const FAR: [u8; 4] = [8, 8, 8, 8];

#[test]
fn its_connections_pass_and_their_answers_are_delivered() {
    let mut pair = Pair::assumed(POLICY);
    let syn = pair.forwarded(LOCAL, &tcp(v4(OWN, FAR).ttl(1), [50_000, 443], 7, 0, Flags::SYN));
    assert_eq!(Seen::of(&syn).unwrap().ttl, 1, "nobody has lowered it");
    assert_eq!(pair.fate(WAN, &tcp(v4(FAR, OWN), [443, 50_000], 9, 8, Flags::SYN_ACK)), Verdict::Delivered);
    pair.forwarded(LOCAL, &tcp(v4(OWN, FAR), [50_000, 443], 8, 10, Flags::ACK));
    // More than one flow of one source; and from outside nobody else comes in.
    pair.forwarded(LOCAL, &v4(OWN, FAR).udp(50_001, 53));
    assert_eq!(pair.fate(WAN, &v4(FAR, OWN).udp(53, 50_001)), Verdict::Delivered);
    let other = pair.fate(WAN, &v4(FAR, OWN).udp(54, 50_001));
    assert_eq!(other, Verdict::Dropped(Reason::DefaultDrop));
    // An error about it comes back, too.
    let quote = v4(OWN, FAR).udp(50_001, 53).to_vec();
    let error = Icmp { kind: icmpv4::Type::TIME_EXCEEDED.0, code: 0, rest: [0; 4] };
    let error = v4([203, 0, 113, 1], OWN).icmpv4(error).payload(&quote[14..]);
    assert_eq!(pair.fate(WAN, &error), Verdict::Delivered);
}

/// Of connections that began unseen its own TCP knows more than the gateway.
#[test]
fn its_connections_go_on_after_they_have_been_forgotten() {
    let mut pair = Pair::assumed(POLICY);
    pair.forwarded(LOCAL, &tcp(v4(OWN, FAR), [50_000, 443], 7, 9, Flags::ACK).payload(b"data"));
    assert_eq!(pair.fate(WAN, &tcp(v4(FAR, OWN), [443, 50_000], 9, 11, Flags::ACK)), Verdict::Delivered);
    let reset = pair.fate(LOCAL, &tcp(v4(OWN, FAR), [50_001, 443], 7, 9, Flags::RST));
    assert_eq!(reset, Verdict::Dropped(Reason::FlowNotOpen));
}

#[test]
fn it_answers_whom_the_rules_let_in() {
    let mut pair = Pair::assumed(&open());
    assert_eq!(pair.fate(WAN, &v4(FAR, OWN).echo_request(1, 1)), Verdict::Delivered);
    pair.forwarded(LOCAL, &v4(OWN, FAR).echo_reply(1, 1));
    assert_eq!(pair.fate(WAN, &v4(FAR, OWN).udp(53, 33_434)), Verdict::Delivered);
    let quote = v4(FAR, OWN).udp(53, 33_434).to_vec();
    let error = Icmp { kind: icmpv4::Type::DESTINATION_UNREACHABLE.0, code: 3, rest: [0; 4] };
    pair.forwarded(LOCAL, &v4(OWN, FAR).icmpv4(error).payload(&quote[14..]));
    // Even about what is not known.
    let quote = v4(FAR, OWN).udp(53, 33_435).to_vec();
    pair.forwarded(LOCAL, &v4(OWN, FAR).icmpv4(error).payload(&quote[14..]));
    let flows = pair.run().shard.flows.len();
    assert_eq!(flows, 2, "errors open none");
}

/// Nor are its packets translated, where answers tell whose they are: those of inside hosts are, to the one port that there is.
#[test]
fn its_packets_are_not_translated() {
    let mut pair = Pair::assumed(POLICY);
    let sent = pair.forwarded(LOCAL, &v4([192, 168, 1, 1], FAR).udp(4_000, 53));
    assert_eq!(Seen::of(&sent).unwrap().source, 0xc0a8_0101);
    pair.forwarded(LOCAL, &v4(OWN, [198, 51, 100, 9]).udp(4_000, 80));
    let sent = pair.forwarded(LAN, &v4([192, 168, 1, 5], FAR).udp(1_000, 53));
    assert_eq!(Seen::of(&sent).unwrap().source, 0xcb00_7102);
    // What could not be told from that one's answers goes out by another port.
    let sent = pair.forwarded(LOCAL, &v4(OWN, FAR).udp(4_000, 53));
    assert_eq!(Seen::of(&sent).unwrap().source, 0xcb00_7102);
    assert_ne!(sent[34..36], 4_000_u16.to_be_bytes(), "the source port");
    assert!(pair.run().shard.flows.len() == 4);
}

#[test]
fn what_concerns_a_link_stays_on_it() {
    let mut pair = Pair::assumed(POLICY);
    let groups = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([1, 0, 0x5e, 0, 0, 5]));
    let everybody = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac::BROADCAST);
    let solicitation = Icmp { kind: icmpv6::Type::NEIGHBOR_SOLICITATION.0, code: 0, rest: [0; 4] };
    let of_link = [
        link().ethertype(EtherType::ARP).payload(&[0; 28]),
        link().ethertype(EtherType(0x88cc)).payload(&[0; 28]),
        everybody.clone().ipv4([0; 4].into(), [255; 4].into()).udp(68, 67),
        everybody.clone().ipv4(OWN.into(), [203, 0, 113, 255].into()).udp(1, 2),
        link().ipv4(OWN.into(), [203, 0, 113, 255].into()).udp(1, 2),
        groups.clone().ipv4(OWN.into(), [224, 0, 0, 5].into()),
        groups.ipv4(OWN.into(), [239, 1, 1, 1].into()).udp(1, 2),
        everybody.vlan(Tag::customer(7)).ipv4(OWN.into(), [255; 4].into()).udp(1, 2),
        v6("2001:db8:ffff::2", "2001:db8:ffff::9").ttl(255).icmpv6(solicitation).payload(&[0; 16]),
        v4(OWN, [169, 254, 1, 1]).udp(1, 2),
    ];
    for packet in of_link {
        let out = pair.receive(LOCAL, &packet);
        let [local] = out.local.as_slice() else { panic!("{packet:?}: {out:?}") };
        assert_eq!((local.verdict, local.delivery), (Verdict::Delivered, Delivery::Link), "{packet:?}");
        assert_eq!(local.bytes, packet.to_vec());
    }
    assert_eq!(pair.run().shard.flows.len(), 1, "of these, that of one host");
}

/// Answers to a DHCP client's requests are let in, to whatever address, for a while; and nothing else.
#[test]
fn answers_to_its_dhcp_clients_are_delivered() {
    const SERVER: [u8; 4] = [203, 0, 113, 1];
    const OFFERED: [u8; 4] = [203, 0, 113, 50];
    let mut pair = Pair::assumed(POLICY);
    let wan = pair.run().tables.interfaces[usize::from(WAN.0)].number;
    let everybody = || build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac::BROADCAST);
    let answers = [
        v4(SERVER, OFFERED).udp(67, 68),
        everybody().ipv4(SERVER.into(), [255; 4].into()).udp(67, 68),
        v4(FAR, OWN).udp(67, 68),
        everybody().ipv4(SERVER.into(), [255; 4].into()).udp(67, 68).payload(&[7; 600]),
    ];
    let others = [
        v4(SERVER, OFFERED).udp(66, 68),
        v4(SERVER, OFFERED).udp(67, 69),
        v4(SERVER, OFFERED).udp(68, 67),
        tcp(v4(SERVER, OFFERED), [67, 68], 7, 0, Flags::SYN),
        v6("fe80::b", "fe80::a").udp(547, 546),
        v6("fe80::b", "fe80::a").udp(67, 68),
    ];
    let refused = Verdict::Dropped(Reason::DefaultDrop);
    for packet in answers.iter().chain(&others) {
        assert_eq!(pair.fate(WAN, packet), refused, "nobody has asked: {packet:?}");
    }
    let requests = [
        everybody().ipv4([0; 4].into(), [255; 4].into()).udp(68, 67),
        everybody().ipv4(OWN.into(), [255; 4].into()).udp(68, 67),
        v4(OWN, FAR).udp(68, 67),
    ];
    for request in requests {
        pair.originate(wan, &request);
        for packet in &answers {
            let out = pair.receive(WAN, packet);
            let [local] = out.local.as_slice() else { panic!("{packet:?}: {out:?}") };
            assert_eq!((local.verdict, local.delivery), (Verdict::Delivered, Delivery::Itself), "{packet:?}");
            assert_eq!(local.bytes, packet.to_vec());
        }
        for packet in &others {
            assert_eq!(pair.fate(WAN, packet), refused, "{packet:?}");
        }
        let elsewhere = everybody().ipv4([192, 168, 1, 9].into(), [255; 4].into()).udp(67, 68);
        assert_eq!(pair.fate(LAN, &elsewhere), refused, "asked by another interface");
        pair.now += 31_000;
        // The request to one server has begun a flow, which lives longer.
        for packet in answers.iter().filter(|packet| packet.to_vec() != answers[2].to_vec()) {
            assert_eq!(pair.fate(WAN, packet), refused, "asked long ago: {packet:?}");
        }
    }
    assert!(pair.run().shard.flows.len() <= 1, "answers open none");
}

/// A host without an address yet answers no ARP request: what a server on the gateway sends it leaves as Linux made it. Nothing else does.
#[test]
fn answers_of_its_dhcp_server_wait_for_no_neighbour() {
    const GATEWAY: [u8; 4] = [192, 168, 1, 1];
    const LEASED: [u8; 4] = [192, 168, 1, 50];
    let text = POLICY.replace("flows-per-source = 1", "");
    let mut pair = Pair::resolved_by_host(&text);
    let offer = v4(GATEWAY, LEASED).udp(67, 68).payload(&[7; 300]);
    for _ in 0..2 {
        let out = pair.receive(LOCAL, &offer);
        let [local] = out.local.as_slice() else { panic!("{out:?}") };
        assert_eq!((local.verdict, local.delivery), (Verdict::Delivered, Delivery::Link));
        assert_eq!(local.bytes, offer.to_vec());
    }
    let others = [
        v4(GATEWAY, LEASED).udp(67, 67),
        v4(GATEWAY, LEASED).udp(68, 68),
        tcp(v4(GATEWAY, LEASED), [67, 68], 7, 0, Flags::SYN),
        // To a relay's network, by a router whose address can be asked for.
        v4(OWN, FAR).udp(67, 68),
    ];
    for packet in &others {
        pair.waits(LOCAL, packet);
    }
    // A neighbour that was known, and is not any more, is no other.
    let leased = Wanted { interface: LAN, address: Address::v4(u32::from_be_bytes(LEASED)) };
    pair.learn(leased, Mac([2, 0, 0, 0, 5, 5]));
    pair.forwarded(LOCAL, &offer);
    pair.do_both(|gateway| gateway.forget(leased));
    assert_eq!(pair.receive(LOCAL, &offer).local[0].delivery, Delivery::Link);
    // The rules filter what others send.
    assert_eq!(pair.fate(WAN, &v4(FAR, LEASED).udp(67, 68)), Verdict::Dropped(Reason::DefaultDrop));
}

#[test]
fn answers_to_its_dhcp6_clients_are_delivered() {
    let mut pair = Pair::assumed(POLICY);
    let wan = pair.run().tables.interfaces[usize::from(WAN.0)].number;
    let group = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([0x33, 0x33, 0, 1, 0, 2]));
    let solicit = group.ipv6("fe80::a".parse().unwrap(), "ff02::1:2".parse().unwrap()).udp(546, 547);
    let advertise = v6("fe80::b", "fe80::a").udp(547, 546);
    let refused = Verdict::Dropped(Reason::DefaultDrop);
    assert_eq!(pair.fate(WAN, &advertise), refused);
    pair.originate(wan, &solicit);
    assert_eq!(pair.fate(WAN, &advertise), Verdict::Delivered);
    let global = v6("2001:db8:ffff::1", "2001:db8:ffff::2").udp(547, 546);
    assert_eq!(pair.fate(WAN, &global), Verdict::Delivered);
    assert_eq!(pair.fate(LAN, &advertise), refused);
    assert_eq!(pair.fate(WAN, &v4([203, 0, 113, 1], OWN).udp(67, 68)), refused, "of the other family");
    pair.now += 31_000;
    assert_eq!(pair.fate(WAN, &advertise), refused);
}

/// A link-local peer answers, and it does so by the link where the gateway itself would send.
#[test]
fn link_local_peers_are_answered() {
    let mut pair = Pair::assumed(POLICY);
    let ask = v6("fe80::a", "fe80::b").udp(50_000, 53);
    assert_eq!(pair.receive(LOCAL, &ask).local[0].delivery, Delivery::Link);
    let answer = v6("fe80::b", "fe80::a").udp(53, 50_000);
    assert_eq!(pair.receive(WAN, &answer).local[0].delivery, Delivery::Itself);
    assert_eq!(pair.receive(LOCAL, &ask).local[0].delivery, Delivery::Link);
    assert_eq!(pair.fate(LAN, &answer), Verdict::Dropped(Reason::DefaultDrop));
    let mut pair = Pair::assumed(&open());
    let syn = tcp(v6("fe80::b", "fe80::a"), [1_000, 22], 7, 0, Flags::SYN);
    assert_eq!(pair.receive(WAN, &syn).local[0].delivery, Delivery::Itself);
    let syn_ack = tcp(v6("fe80::a", "fe80::b"), [22, 1_000], 9, 8, Flags::SYN_ACK);
    assert_eq!(pair.receive(LOCAL, &syn_ack).local[0].delivery, Delivery::Link);
    let ack = tcp(v6("fe80::b", "fe80::a"), [1_000, 22], 8, 10, Flags::ACK);
    assert_eq!(pair.receive(WAN, &ack).local[0].delivery, Delivery::Itself);
}

#[test]
fn what_is_too_big_is_cut_or_answered_to_itself() {
    let mut pair = Pair::assumed(POLICY);
    let data = [7; 1_400];
    let out = pair.receive(LOCAL, &v4(OWN, FAR).udp(50_000, 53).payload(&data));
    assert_eq!(out.sent.len(), 2, "{out:?}");
    for (packet, mtu_at, tagged) in [
        (v4(OWN, FAR).dont_fragment().udp(50_001, 53).payload(&data), 14 + 20 + 6, 0),
        (v6("2001:db8:ffff::2", "2001:db8:beef::1").udp(50_000, 53).payload(&data), 14 + 40 + 6, 0),
        (
            link()
                .vlan(Tag::customer(5))
                .ipv4(OWN.into(), FAR.into())
                .dont_fragment()
                .udp(50_002, 53)
                .payload(&data),
            18 + 20 + 6,
            4,
        ),
    ] {
        let out = pair.receive(LOCAL, &packet);
        assert!(out.sent.is_empty(), "{out:?}");
        let answer = &out.local[0];
        assert_eq!(answer.verdict, Verdict::Answered(Reason::PacketTooBig), "however few errors may be sent");
        assert_eq!(answer.delivery, Delivery::Itself);
        let seen = Seen::of(&answer.bytes).unwrap();
        // From whoever was called: nobody takes in packets from itself.
        let asked = Seen::of(&packet.to_vec()).unwrap();
        assert_eq!((seen.source, seen.destination), (asked.destination, asked.source));
        assert!(seen.header_is_right && seen.transport_is_right == Some(true));
        assert_eq!(answer.bytes[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!(answer.bytes[12..12 + tagged], packet.to_vec()[12..12 + tagged]);
        assert_eq!(answer.bytes[mtu_at..mtu_at + 2], 1_280_u16.to_be_bytes());
        let header = ipv4::Header::of(&answer.bytes[14 + tagged..]);
        assert!(header.is_some());
    }
    assert_eq!(pair.run().shard.counters.answered(), 3);
}

#[test]
fn what_has_no_way_out_is_answered_to_itself() {
    let text = POLICY.replace("\"0.0.0.0/0\"", "\"8.0.0.0/8\"");
    for text in [text.clone(), format!("mode = \"stateless\"\n{}", text.split("[[nat]]").next().unwrap())] {
        let mut pair = Pair::assumed(&text);
        let out = pair.receive(LOCAL, &v4(OWN, [9, 9, 9, 9]).udp(1, 2));
        assert_eq!(out.local[0].verdict, Verdict::Answered(Reason::RouteMissing));
        assert!(out.sent.is_empty());
        pair.forwarded(LOCAL, &v4(OWN, FAR).ttl(0).udp(1, 2));
        // To another address of its own.
        let out = pair.receive(LOCAL, &v4(OWN, [192, 168, 1, 1]).udp(1, 2));
        assert_eq!((out.local[0].verdict, out.local[0].delivery), (Verdict::Delivered, Delivery::Itself));
        assert_eq!(pair.fate(PortId(77), &v4(OWN, FAR).udp(1, 2)), Verdict::Dropped(Reason::VlanUnknown));
    }
}
