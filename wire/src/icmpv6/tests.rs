use super::*;
use crate::build::{self, Icmp};
use crate::ipv6;

const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2);
const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn with(kind: Type, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    build::ipv6(A, B).ttl(255).icmpv6(Icmp { kind: kind.0, code: 0, rest }).payload(body).to_vec()
}

fn message(bytes: &[u8]) -> Message<'_> {
    let packet = ipv6::parse(bytes).unwrap();
    parse_verified(packet.payload, packet.pseudo_header()).unwrap()
}

#[test]
fn classes() {
    assert_eq!(Type::PACKET_TOO_BIG.class(), Class::Error);
    assert_eq!(Type(127).class(), Class::Error);
    assert_eq!(Type::ECHO_REQUEST.class(), Class::Request);
    assert_eq!(Type::ECHO_REPLY.class(), Class::Reply);
    assert_eq!(Type::NEIGHBOR_SOLICITATION.class(), Class::Other);
    assert!(Type(133).is_neighbor_discovery() && !Type(132).is_neighbor_discovery());
    assert!(Type(137).is_neighbor_discovery() && !Type(138).is_neighbor_discovery());
}

#[test]
fn neighbor_solicitation_and_advertisement() {
    let mut body = TARGET.octets().to_vec();
    body.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    let bytes = with(Type::NEIGHBOR_SOLICITATION, [0; 4], &body);
    let Some(Ok(Discovery::NeighborSolicitation { target, options })) = message(&bytes).discovery() else {
        panic!("not a solicitation");
    };
    assert_eq!((target, options.source_link_layer()), (TARGET, Ok(Some(MAC))));
    assert_eq!(options.target_link_layer(), Ok(None));

    body[16] = 2;
    let bytes = with(Type::NEIGHBOR_ADVERTISEMENT, [0x60, 0, 0, 0], &body);
    let Some(Ok(Discovery::NeighborAdvertisement { target, flags, options })) = message(&bytes).discovery()
    else {
        panic!("not an advertisement");
    };
    assert_eq!((target, options.target_link_layer()), (TARGET, Ok(Some(MAC))));
    assert_eq!(flags, AdvertisementFlags::SOLICITED.and(AdvertisementFlags::OVERRIDE));
    assert!(!flags.contains(AdvertisementFlags::ROUTER));
}

#[test]
fn routers_and_redirects() {
    let bytes = with(Type::ROUTER_SOLICITATION, [0; 4], &[1, 1, 2, 0, 0, 0, 0, 9]);
    let Some(Ok(Discovery::RouterSolicitation { options })) = message(&bytes).discovery() else {
        panic!("not a solicitation");
    };
    assert_eq!(options.source_link_layer(), Ok(Some(MAC)));

    let mut body = vec![0; 8];
    body.extend([5, 1, 0, 0, 0, 0, 0x05, 0xdc, 14, 1, 1, 2, 3, 4, 5, 6]);
    let bytes = with(Type::ROUTER_ADVERTISEMENT, [64, 0, 0x07, 0x08], &body);
    let Some(Ok(Discovery::RouterAdvertisement { lifetime, options })) = message(&bytes).discovery() else {
        panic!("not an advertisement");
    };
    assert_eq!(lifetime, 1800);
    let options: Vec<_> = options.map(Result::unwrap).collect();
    let nonce = DiscoveryOption::Other { kind: 14, data: &[1, 2, 3, 4, 5, 6] };
    assert_eq!(options, [DiscoveryOption::Mtu(1500), nonce]);

    let body = [TARGET.octets(), A.octets()].concat();
    let bytes = with(Type::REDIRECT, [0; 4], &body);
    let Some(Ok(Discovery::Redirect { target, destination, mut options })) = message(&bytes).discovery()
    else {
        panic!("not a redirect");
    };
    assert_eq!((target, destination, options.next()), (TARGET, A, None));
}

#[test]
fn short_messages_and_bad_options_are_told() {
    for (kind, needed) in [
        (Type::NEIGHBOR_SOLICITATION, 16),
        (Type::NEIGHBOR_ADVERTISEMENT, 16),
        (Type::REDIRECT, 32),
        (Type::ROUTER_ADVERTISEMENT, 8),
    ] {
        let bytes = with(kind, [0; 4], &vec![0; needed - 1]);
        assert!(matches!(message(&bytes).discovery(), Some(Err(Malformed::TooShort))), "{kind:?}");
    }
    assert!(message(&with(Type::ECHO_REQUEST, [0; 4], &[])).discovery().is_none());
    for bad in [&[1][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0, 0, 0, 9]]
    {
        let bytes = with(Type::ROUTER_SOLICITATION, [0; 4], bad);
        let Some(Ok(Discovery::RouterSolicitation { options })) = message(&bytes).discovery() else {
            panic!("not a solicitation");
        };
        assert_eq!(options.source_link_layer(), Err(Malformed::Option), "{bad:?}");
    }
}

#[test]
fn an_error_quotes_its_packet() {
    let cause = build::ipv6(A, TARGET).echo_request(7, 8).to_vec();
    let bytes = with(Type::PACKET_TOO_BIG, 1280u32.to_be_bytes(), &cause);
    let error = message(&bytes);
    assert_eq!(error.header.mtu(), 1280);
    let quoted = ipv6::parse_prefix(error.quoted().unwrap()).unwrap();
    assert_eq!(parse(quoted.payload).unwrap().header.id(), 7);
}

#[test]
fn the_checksum_covers_the_addresses() {
    let mut bytes = with(Type::ECHO_REQUEST, [0; 4], b"ping");
    let old = TARGET.to_bits();
    HeaderMut::of(&mut bytes[40..]).unwrap().adjust_checksum(Delta::NONE.change128(B.to_bits(), old));
    ipv6::HeaderMut::of(&mut bytes).unwrap().set_dst(TARGET);
    message(&bytes);
    bytes[39] ^= 1;
    let packet = ipv6::parse(&bytes).unwrap();
    assert_eq!(parse_verified(packet.payload, packet.pseudo_header()).unwrap_err(), Malformed::Checksum);
}
