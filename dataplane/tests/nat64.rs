//! Packets between IPv6 and IPv4 hosts: what is translated there and back is what was sent, whatever it is.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::{any, proptest};
use proptest::{collection, prop_assert, prop_assert_eq};
use wire::checksum::{Sum, verifies};
use wire::header::Protocol;
use wire::{PortId, ipv4, ipv6};

use crate::across::{Kind, SERVER, kind, ports, prefix, transport};
use crate::scene::pair::{Pair, link};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x10);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

fn policy(prefix: &str) -> String {
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"2001:db8:1::1/64\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
         [default]\n\"lan > wan\" = \"accept\"\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
         [[nat]]\nname = \"six\"\nkind = \"nat64\"\nprefix = \"{prefix}\"\n"
    )
}

proptest! {
    #[test]
    fn there_and_back(
        (prefix, server) in prefix(),
        kind in kind(),
        ends in any::<[u16; 2]>(),
        payload in collection::vec(any::<u8>(), 0..1_400),
        field in any::<u8>(),
        hops in 2..=u8::MAX,
    ) {
        let ends = ends.map(|port| port.max(1));
        let mut pair = Pair::assumed(&policy(prefix));
        let sent = link().ipv6(CLIENT, server).ds_field(field).ttl(hops);
        let out = pair.forwarded(LAN, &transport(sent, kind, ends, &payload, false));
        let packet = ipv4::parse(&out[14..]).unwrap();
        prop_assert!(packet.checksum_is_right());
        prop_assert_eq!((packet.header.src(), packet.header.dst()), (GATEWAY, SERVER));
        prop_assert_eq!((packet.header.ttl(), packet.header.ds_field()), (hops - 1, field));
        prop_assert_eq!(packet.header.dont_fragment(), packet.header.total_len() > 1_260);
        match kind {
            Kind::Echo => prop_assert!(verifies(packet.payload)),
            _ => prop_assert!(packet.pseudo_header().and(packet.payload).verifies()),
        }
        prop_assert!(packet.payload.ends_with(&payload));
        let [outside, asked] = ports(kind, packet.payload);
        if !matches!(kind, Kind::Echo) {
            prop_assert_eq!(asked, ends[1]);
        }
        // The answer, whose source and destination are those turned.
        let answer = link().ipv4(SERVER, GATEWAY).ds_field(field).ttl(hops).dont_fragment();
        let out = pair.forwarded(WAN, &transport(answer, kind, [asked, outside], &payload, true));
        let packet = ipv6::parse(&out[14..]).unwrap();
        prop_assert_eq!((packet.header.src(), packet.header.dst()), (server, CLIENT));
        prop_assert_eq!((packet.header.hop_limit(), packet.header.ds_field()), (hops - 1, field));
        let protocol = match kind {
            Kind::Tcp => Protocol::TCP,
            Kind::Udp => Protocol::UDP,
            Kind::Echo => Protocol::ICMPV6,
        };
        prop_assert_eq!(packet.protocol(), protocol);
        let pseudo = Sum::pseudo_v6(server, CLIENT, protocol, packet.payload.len() as u32);
        prop_assert!(pseudo.and(packet.payload).verifies());
        prop_assert!(packet.payload.ends_with(&payload));
        match kind {
            Kind::Echo => prop_assert_eq!(ports(kind, packet.payload), [ends[0]; 2]),
            _ => prop_assert_eq!(ports(kind, packet.payload), [ends[1], ends[0]]),
        }
    }
}
