use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, proptest};
use proptest::prop_oneof;

use super::*;
use crate::checksum::{self, Sum};
use crate::{ethernet, ipv4, ipv6, tcp, udp};

/// Put together by hand from the figures of RFC 791 and RFC 9293; the checksums come from a few lines of
/// Python.
#[test]
fn a_syn_byte_for_byte() {
    let client = Ipv4Addr::new(192, 168, 1, 10);
    let server = Ipv4Addr::new(198, 51, 100, 7);
    let tcp = Tcp { sport: 50000, dport: 443, seq: 1, flags: Flags::SYN, window: 64240, ..Tcp::default() };
    let bytes = ipv4(client, server).id(0x1234).dont_fragment().tcp(tcp).to_vec();
    let expected = [
        0x45, 0x00, 0x00, 0x28, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0x3c, 0xaf, 192, 168, 1, 10, 198, 51,
        100, 7, 0xc3, 0x50, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xfa, 0xf0, 0x03, 0xf8, 0, 0,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn says_how_much_room_it_needs() {
    let packet = ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST).udp(1, 2).payload(&[0; 10]);
    assert_eq!(packet.write(&mut [0; 57]), Err(Unbuildable::NoRoom { needed: 58 }));
    let mut buffer = [0xee; 60];
    assert_eq!(packet.write(&mut buffer), Ok(58));
    assert_eq!(buffer[58..], [0xee; 2]);
}

#[test]
fn refuses_what_no_length_field_can_say() {
    let any = Ipv4Addr::UNSPECIFIED;
    let mut buffer = vec![0; 70000];
    let longest = vec![0; 65535 - 28];
    assert_eq!(ipv4(any, any).udp(1, 2).payload(&longest).write(&mut buffer), Ok(65535));
    let longer = vec![0; 65535 - 27];
    let too_long = Err(Unbuildable::TooLong);
    assert_eq!(ipv4(any, any).udp(1, 2).payload(&longer).write(&mut buffer), too_long);
    assert_eq!(ipv4(any, any).ip_options(&[1; 41]).write(&mut buffer), too_long);
    let tcp = Tcp { options: &[1; 41], ..Tcp::default() };
    assert_eq!(ipv4(any, any).tcp(tcp).write(&mut buffer), too_long);
    let extended = ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        .extension(Protocol::DESTINATION_OPTIONS, &longer[..2047]);
    assert_eq!(extended.write(&mut buffer), too_long);
}

#[test]
fn arp_in_ethernet() {
    let fields = arp::Fields {
        operation: arp::Operation::REQUEST,
        sender_mac: Mac([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: Mac::ZERO,
        target_ip: Ipv4Addr::new(192, 0, 2, 2),
    };
    let frame = ethernet(fields.sender_mac, Mac::BROADCAST).arp(fields).pad_to(60).to_vec();
    let layer = ethernet::parse(&frame).unwrap();
    assert_eq!((frame.len(), layer.ethertype), (60, EtherType::ARP));
    assert_eq!(arp::parse(layer.payload).unwrap().fields(), fields);
}

/// Transport header and its fields, owned, so that a property test can hold them.
#[derive(Clone, Debug)]
enum Above {
    Tcp { ports: (u16, u16), numbers: (u32, u32), flags: u8, options: Vec<u8> },
    Udp { ports: (u16, u16) },
    Echo { id: u16, seq: u16 },
    Raw { protocol: Protocol },
}

fn above() -> impl Strategy<Value = Above> {
    let options = prop_oneof![Just(vec![]), Just(vec![2, 4, 5, 180]), Just(vec![1, 1, 1, 3, 3, 7])];
    prop_oneof![
        (any::<(u16, u16)>(), any::<(u32, u32)>(), any::<u8>(), options)
            .prop_map(|(ports, numbers, flags, options)| Above::Tcp { ports, numbers, flags, options }),
        any::<(u16, u16)>().prop_map(|ports| Above::Udp { ports }),
        any::<(u16, u16)>().prop_map(|(id, seq)| Above::Echo { id, seq }),
        prop_oneof![Just(Protocol::GRE), Just(Protocol::ESP), Just(Protocol::SCTP)]
            .prop_map(|protocol| Above::Raw { protocol }),
    ]
}

impl Above {
    fn put<'a>(&'a self, packet: Packet<'a>) -> Packet<'a> {
        match self {
            Above::Tcp { ports, numbers, flags, options } => packet.tcp(Tcp {
                sport: ports.0,
                dport: ports.1,
                seq: numbers.0,
                ack: numbers.1,
                flags: Flags(*flags),
                options,
                ..Tcp::default()
            }),
            Above::Udp { ports } => packet.udp(ports.0, ports.1),
            Above::Echo { id, seq } => packet.echo_request(*id, *seq),
            Above::Raw { protocol } => packet.protocol(*protocol),
        }
    }

    /// Parses `bytes` and compares with the packet built.
    fn check(&self, protocol: Protocol, bytes: &[u8], pseudo: Sum, payload: &[u8]) {
        match self {
            Above::Tcp { ports, numbers, flags, options } => {
                assert_eq!(protocol, Protocol::TCP);
                let segment = tcp::parse(bytes).unwrap();
                assert_eq!((segment.header.sport(), segment.header.dport()), *ports);
                assert_eq!((segment.header.seq(), segment.header.ack()), *numbers);
                assert_eq!(segment.header.flags().0, *flags);
                assert_eq!(segment.options[..options.len()], options[..]);
                assert_eq!(segment.payload, payload);
                assert!(pseudo.and(bytes).verifies());
            }
            Above::Udp { ports } => {
                assert_eq!(protocol, Protocol::UDP);
                let datagram = udp::parse(bytes).unwrap();
                assert_eq!((datagram.header.sport(), datagram.header.dport()), *ports);
                assert_eq!(datagram.payload(), payload);
                assert_eq!(datagram.check(pseudo), udp::Check::Right);
            }
            Above::Echo { id, seq } => {
                let message = icmpv4::parse(bytes).unwrap();
                assert_eq!((message.header.id(), message.header.seq()), (*id, *seq));
                assert_eq!(message.body, payload);
                if protocol == Protocol::ICMP {
                    assert!(checksum::verifies(bytes));
                } else {
                    assert_eq!(protocol, Protocol::ICMPV6);
                    assert!(icmpv6::parse_verified(bytes, pseudo).is_ok());
                }
            }
            Above::Raw { protocol: built } => {
                assert_eq!(protocol, *built);
                assert_eq!(bytes, payload);
            }
        }
    }
}

proptest! {
    #[test]
    fn built_ipv4_parses_back(addresses in any::<(u32, u32)>(), above in above(), payload in vec(any::<u8>(), 0..70),
                              hops in any::<u8>(), ds in any::<u8>(), id in any::<u16>(), options in vec(1u8..2, 0..41),
                              tags in 0u16..3, min_len in 0usize..80) {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let link = (0..tags).fold(ethernet(mac, mac), |packet, id| packet.vlan(Tag::customer(id)));
        let packet = link.ipv4(addresses.0.into(), addresses.1.into()).ttl(hops).ds_field(ds).id(id).ip_options(&options);
        let bytes = above.put(packet).payload(&payload).pad_to(min_len).to_vec();
        let layer = ethernet::parse(&bytes).unwrap();
        prop_assert_eq!(layer.ethertype, EtherType::IPV4);
        prop_assert_eq!(layer.tags.as_slice().len(), usize::from(tags));
        let parsed = ipv4::parse(layer.payload).unwrap();
        let header = parsed.header;
        prop_assert_eq!((header.src_bits(), header.dst_bits()), addresses);
        prop_assert_eq!((header.ttl(), header.ds_field(), header.id()), (hops, ds, id));
        prop_assert_eq!(&parsed.options[..options.len()], &options[..]);
        above.check(header.protocol(), parsed.payload, parsed.pseudo_header(), &payload);
    }

    #[test]
    fn built_ipv6_parses_back(addresses in any::<(u128, u128)>(), above in above(), payload in vec(any::<u8>(), 0..70),
                              hops in any::<u8>(), ds in any::<u8>(), label in 0u32..1 << 20,
                              bodies in vec(vec(any::<u8>(), 0..30), 0..8)) {
        let packet = ipv6(addresses.0.into(), addresses.1.into()).ttl(hops).ds_field(ds).flow_label(label);
        let packet = bodies.iter().fold(packet, |packet, body| packet.extension(Protocol::DESTINATION_OPTIONS, body));
        let bytes = above.put(packet).payload(&payload).to_vec();
        let parsed = ipv6::parse(&bytes).unwrap();
        let header = parsed.header;
        prop_assert_eq!((header.src_bits(), header.dst_bits()), addresses);
        prop_assert_eq!((header.hop_limit(), header.ds_field(), header.flow_label()), (hops, ds, label));
        prop_assert_eq!(usize::from(parsed.extensions.count), bodies.len());
        above.check(parsed.protocol(), parsed.payload, parsed.pseudo_header(), &payload);
    }

    #[test]
    fn built_fragments_parse_back(units in 0u16..8192, more in any::<bool>(), id in any::<u32>(), payload in vec(any::<u8>(), 0..30)) {
        let v4 = Fragment { id: id & 0xffff, offset: units * 8, more };
        let any = Ipv4Addr::LOCALHOST;
        let bytes = ipv4(any, any).fragment(v4).protocol(Protocol::UDP).payload(&payload).to_vec();
        let parsed = ipv4::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.header.fragment(), if v4.is_atomic() { None } else { Some(v4) });
        prop_assert_eq!(parsed.payload, &payload[..]);

        let v6 = Fragment { id, ..v4 };
        let any = Ipv6Addr::LOCALHOST;
        let bytes = ipv6(any, any).fragment(v6).protocol(Protocol::UDP).payload(&payload).to_vec();
        let parsed = ipv6::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.extensions.fragment.map(|header| header.fragment), Some(v6));
        prop_assert_eq!((parsed.payload, parsed.protocol()), (&payload[..], Protocol::UDP));
    }
}
