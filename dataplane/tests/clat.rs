//! Packets of IPv4 hosts by way of an IPv6 network: what is translated there and back is what was sent, whatever it is. Expected bytes are
//! written down here by hand, by RFC 6052 and RFC 7915.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::{collection, prop_assert, prop_assert_eq};
use wire::build::{Packet, Tcp};
use wire::checksum::{Sum, verifies};
use wire::header::Protocol;
use wire::tcp::Flags;
use wire::{PortId, ipv4, ipv6};

use crate::scene::pair::{Pair, link};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 2);

/// Kind of a packet.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Tcp,
    Udp,
    Echo,
}

fn policy(prefix: &str) -> String {
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"2001:db8:ff::2/64\"]\n\
         [default]\n\"lan > wan\" = \"accept\"\n\
         [[route]]\nto = \"::/0\"\nvia = \"2001:db8:ff::1\"\n\
         [[nat]]\nname = \"four\"\nkind = \"clat\"\nprefix = \"{prefix}\"\n"
    )
}

/// A prefix, and the server's address under it as RFC 6052, section 2.2 has it, by hand.
fn prefix() -> impl Strategy<Value = (&'static str, Ipv6Addr)> {
    prop_oneof![
        Just(("64:ff9b::/96", "64:ff9b::c633:6407".parse().unwrap())),
        Just(("2001:dbf::/32", "2001:dbf:c633:6407::".parse().unwrap())),
        Just(("2001:dbf:100::/40", "2001:dbf:1c6:3364:7::".parse().unwrap())),
        Just(("2001:dbf:122::/48", "2001:dbf:122:c633:64:700::".parse().unwrap())),
        Just(("2001:dbf:122:300::/56", "2001:dbf:122:3c6:33:6407::".parse().unwrap())),
        Just(("2001:dbf:122:344::/64", "2001:dbf:122:344:c6:3364:700::".parse().unwrap())),
    ]
}

fn transport<'a>(
    packet: Packet<'a>,
    kind: Kind,
    [sport, dport]: [u16; 2],
    payload: &'a [u8],
    answers: bool,
) -> Packet<'a> {
    let packet = match kind {
        Kind::Tcp => packet.tcp(Tcp {
            sport,
            dport,
            seq: 77,
            flags: if answers { Flags::SYN_ACK } else { Flags::SYN },
            ack: 78,
            ..Tcp::default()
        }),
        Kind::Udp => packet.udp(sport, dport),
        Kind::Echo if answers => packet.echo_reply(dport, 9),
        Kind::Echo => packet.echo_request(sport, 9),
    };
    packet.payload(payload)
}

/// Returns the ports of a packet; of an echo, its identifier twice.
fn ports(kind: Kind, payload: &[u8]) -> [u16; 2] {
    let at = |place: usize| u16::from_be_bytes([payload[place], payload[place + 1]]);
    match kind {
        Kind::Echo => [at(4); 2],
        _ => [at(0), at(2)],
    }
}

proptest! {
    #[test]
    fn there_and_back(
        (prefix, server) in prefix(),
        kind in prop_oneof![Just(Kind::Tcp), Just(Kind::Udp), Just(Kind::Echo)],
        ends in any::<[u16; 2]>(),
        payload in collection::vec(any::<u8>(), 0..1_400),
        field in any::<u8>(),
        hops in 2..=u8::MAX,
    ) {
        let ends = ends.map(|port| port.max(1));
        let mut pair = Pair::assumed(&policy(prefix));
        let sent = link().ipv4(CLIENT, SERVER).ds_field(field).ttl(hops).dont_fragment();
        let out = pair.forwarded(LAN, &transport(sent, kind, ends, &payload, false));
        let packet = ipv6::parse(&out[14..]).unwrap();
        prop_assert_eq!((packet.header.src(), packet.header.dst()), (GATEWAY, server));
        prop_assert_eq!((packet.header.hop_limit(), packet.header.ds_field()), (hops - 1, field));
        let protocol = match kind {
            Kind::Tcp => Protocol::TCP,
            Kind::Udp => Protocol::UDP,
            Kind::Echo => Protocol::ICMPV6,
        };
        prop_assert_eq!(packet.protocol(), protocol);
        let pseudo = Sum::pseudo_v6(GATEWAY, server, protocol, packet.payload.len() as u32);
        prop_assert!(pseudo.and(packet.payload).verifies());
        prop_assert!(packet.payload.ends_with(&payload));
        let [outside, asked] = ports(kind, packet.payload);
        match kind {
            // Echo request and reply of ICMPv6 (RFC 4443, section 4).
            Kind::Echo => prop_assert_eq!(packet.payload[0], 128),
            _ => prop_assert_eq!(asked, ends[1]),
        }
        // The answer, whose source and destination are those turned.
        let answer = link().ipv6(server, GATEWAY).ds_field(field).ttl(hops);
        let out = pair.forwarded(WAN, &transport(answer, kind, [asked, outside], &payload, true));
        let packet = ipv4::parse(&out[14..]).unwrap();
        prop_assert!(packet.checksum_is_right());
        prop_assert_eq!((packet.header.src(), packet.header.dst()), (SERVER, CLIENT));
        prop_assert_eq!((packet.header.ttl(), packet.header.ds_field()), (hops - 1, field));
        prop_assert_eq!(packet.header.dont_fragment(), packet.header.total_len() > 1_260);
        match kind {
            Kind::Echo => prop_assert!(verifies(packet.payload) && packet.payload[0] == 0),
            _ => prop_assert!(packet.pseudo_header().and(packet.payload).verifies()),
        }
        prop_assert!(packet.payload.ends_with(&payload));
        match kind {
            Kind::Echo => prop_assert_eq!(ports(kind, packet.payload), [ends[0]; 2]),
            _ => prop_assert_eq!(ports(kind, packet.payload), [ends[1], ends[0]]),
        }
    }
}
