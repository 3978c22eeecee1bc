use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::build::{self, Icmp};
use crate::ipv4;

#[test]
fn classes() {
    for kind in 0..=255 {
        let class = Type(kind).class();
        let expected = match kind {
            3 | 4 | 5 | 11 | 12 => Class::Error,
            8 | 13 | 15 | 17 => Class::Request,
            0 | 14 | 16 | 18 => Class::Reply,
            _ => Class::Other,
        };
        assert_eq!(class, expected, "type {kind}");
    }
}

#[test]
fn an_error_quotes_its_packet() {
    let [a, b] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let cause = build::ipv4(a, b).dont_fragment().udp(1000, 2000).payload(&[7; 1000]).to_vec();
    let kind = Type::DESTINATION_UNREACHABLE.0;
    let error = Icmp { kind, code: unreachable::FRAGMENTATION_NEEDED, rest: [0, 0, 0x05, 0x78] };
    let bytes = build::ipv4(b, a).icmpv4(error).payload(&cause[..28]).to_vec();
    let packet = ipv4::parse(&bytes).unwrap();
    let message = parse_verified(packet.payload).unwrap();
    assert_eq!(message.header.mtu(), 1400);
    let quoted = ipv4::parse_prefix(message.quoted().unwrap()).unwrap();
    assert_eq!((quoted.header.src(), quoted.payload.len()), (a, 8));
}

#[test]
fn a_query_quotes_nothing() {
    let [a, b] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let mut bytes = build::ipv4(a, b).echo_request(0x1234, 0x5678).payload(b"ping").to_vec();
    let message = parse_verified(&bytes[20..]).unwrap();
    assert_eq!(
        (message.header.kind(), message.header.id(), message.header.seq()),
        (Type::ECHO_REQUEST, 0x1234, 0x5678)
    );
    assert!(message.quoted().is_none());
    bytes[30] ^= 1;
    assert_eq!(parse_verified(&bytes[20..]).unwrap_err(), Malformed::Checksum);
    assert_eq!(parse(&[0; 7]).unwrap_err(), Malformed::TooShort);
}

#[test]
fn a_message_of_all_zeros_keeps_a_right_checksum() {
    let mut message = [0; 16];
    HeaderMut::of(&mut message).unwrap().set_id(5);
    let checksum = checksum::of(&message);
    HeaderMut::of(&mut message).unwrap().set_checksum(checksum);
    rewrite_id(&mut message, 0);
    assert_eq!(Header::of(&message).unwrap().checksum(), 0xffff);
    assert!(checksum::verifies(&message));
    rewrite_id(&mut message, 9);
    assert!(checksum::verifies(&message));
}

proptest! {
    #[test]
    fn rewriting_the_identifier_is_computing_anew(mut message in vec(any::<u8>(), 8..30), id in any::<u16>()) {
        let fill = |message: &mut [u8]| {
            HeaderMut::of(message).unwrap().set_checksum(0);
            let checksum = checksum::of(message);
            HeaderMut::of(message).unwrap().set_checksum(checksum);
        };
        fill(&mut message);
        rewrite_id(&mut message, id);
        prop_assert!(checksum::verifies(&message));
        let adjusted = message.clone();
        fill(&mut message);
        prop_assert_eq!(adjusted, message);
    }
}
