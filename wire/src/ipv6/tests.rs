use proptest::prelude::{any, prop_assert_eq, proptest};

use super::*;
use crate::build;

const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

#[test]
fn fields_of_a_plain_packet() {
    let mut bytes =
        build::ipv6(A, B).ttl(7).ds_field(0xb9).flow_label(0xf_1234).udp(1, 2).payload(b"abc").to_vec();
    bytes.push(0xee);
    assert_eq!(bytes[..8], [0x6b, 0x9f, 0x12, 0x34, 0, 11, 17, 7]);
    let packet = parse(&bytes).unwrap();
    let header = packet.header;
    assert_eq!((header.version(), header.ds_field(), header.dscp().value()), (6, 0xb9, 46));
    assert_eq!((header.flow_label(), header.payload_len(), header.hop_limit()), (0xf_1234, 11, 7));
    assert_eq!((header.src(), header.dst()), (A, B));
    assert_eq!((packet.protocol(), packet.payload_at(), packet.payload.len()), (Protocol::UDP, 40, 11));
    assert_eq!(packet.extensions, Extensions::none(Protocol::UDP));
}

#[test]
fn walks_all_kinds_of_extensions() {
    let fragment = Fragment { id: 0xdead_beef, offset: 0, more: true };
    let bytes = build::ipv6(A, B)
        .extension(Protocol::HOP_BY_HOP, &[1, 4])
        .extension(Protocol::DESTINATION_OPTIONS, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .extension(Protocol::ROUTING, &[4, 3, 0, 0])
        .extension(Protocol::AH, &[0; 14])
        .fragment(fragment)
        .udp(1, 2)
        .to_vec();
    let packet = parse(&bytes).unwrap();
    assert_eq!(packet.protocol(), Protocol::UDP);
    assert_eq!(packet.extensions.count, 5);
    assert_eq!(packet.payload_at(), 40 + 8 + 16 + 8 + 16 + 8);
    assert_eq!(packet.extensions.routing, Some(Routing { kind: 4, segments_left: 3, at: 24 }));
    assert_eq!(packet.extensions.fragment, Some(FragmentHeader { fragment, at: 48 }));
    assert_eq!(packet.payload.len(), 8);
}

#[test]
fn stops_at_a_later_fragment_and_passes_an_atomic_one() {
    let later = Fragment { id: 1, offset: 1280, more: false };
    // What follows looks like a chain of headers but is the middle of a payload.
    let bytes = build::ipv6(A, B).fragment(later).protocol(Protocol::HOP_BY_HOP).payload(&[0; 8]).to_vec();
    let packet = parse(&bytes).unwrap();
    assert_eq!((packet.protocol(), packet.payload.len()), (Protocol::HOP_BY_HOP, 8));
    assert_eq!(packet.extensions.fragment.unwrap().fragment, later);

    let atomic = Fragment { id: 1, offset: 0, more: false };
    let bytes = build::ipv6(A, B).fragment(atomic).tcp(build::Tcp::default()).to_vec();
    let packet = parse(&bytes).unwrap();
    assert!(packet.extensions.fragment.unwrap().fragment.is_atomic());
    assert_eq!(packet.protocol(), Protocol::TCP);
}

#[test]
fn each_fault_has_its_name() {
    let whole = build::ipv6(A, B).extension(Protocol::DESTINATION_OPTIONS, &[0; 6]).udp(1, 2).to_vec();
    let fault = |bytes: &[u8]| parse(bytes).unwrap_err();
    assert_eq!(fault(&whole[..39]), Malformed::TooShort);
    assert_eq!(fault(&[0x45; 40]), Malformed::Version);
    assert_eq!(fault(&whole[..55]), Malformed::PayloadPastEnd);
    assert!(parse_prefix(&whole[..48]).is_ok());
    assert_eq!(parse_prefix(&whole[..47]).unwrap_err(), Malformed::ExtensionPastEnd);
    let mut long = whole.clone();
    long[41] = 2;
    assert_eq!(fault(&long), Malformed::ExtensionPastEnd);
    let misplaced = build::ipv6(A, B)
        .extension(Protocol::ROUTING, &[0; 6])
        .extension(Protocol::HOP_BY_HOP, &[0; 6])
        .to_vec();
    assert_eq!(fault(&misplaced), Malformed::MisplacedHopByHop);
    let first = [0, 0, 0, 1, 0, 0];
    let twice = build::ipv6(A, B)
        .extension(Protocol::FRAGMENT, &first)
        .fragment(Fragment { id: 2, offset: 0, more: true })
        .udp(1, 2)
        .to_vec();
    assert_eq!(fault(&twice), Malformed::SecondFragmentHeader);
}

#[test]
fn chains_are_bounded_in_headers_and_bytes() {
    let chain = |count: usize, body: &'static [u8]| {
        let packet = (0..count)
            .fold(build::ipv6(A, B), |packet, _| packet.extension(Protocol::DESTINATION_OPTIONS, body))
            .udp(1, 2);
        parse(&packet.to_vec()).map(|packet| packet.extensions.len)
    };
    assert_eq!(chain(8, &[0; 6]), Ok(64));
    assert_eq!(chain(9, &[0; 6]), Err(Malformed::TooManyExtensions));
    assert_eq!(chain(8, &[0; 62]), Ok(512));
    assert_eq!(chain(1, &[0; 510]), Ok(512));
    assert_eq!(chain(1, &[0; 518]), Err(Malformed::ExtensionsTooLong));
    assert_eq!(chain(8, &[0; 70]), Err(Malformed::ExtensionsTooLong));
}

#[test]
fn stops_before_esp_and_no_next_header() {
    for protocol in [Protocol::ESP, Protocol::NO_NEXT, Protocol(253)] {
        let bytes = build::ipv6(A, B).protocol(protocol).payload(&[0; 9]).to_vec();
        let packet = parse(&bytes).unwrap();
        assert_eq!((packet.protocol(), packet.payload.len()), (protocol, 9));
    }
}

proptest! {
    #[test]
    fn setters_set_what_getters_get(mut bytes in any::<[u8; 40]>(), ds in any::<u8>(), label in 0u32..1 << 20,
                                    len in any::<u16>(), next in any::<u8>(), hops in any::<u8>(),
                                    addresses in any::<(u128, u128)>(), dscp in 0u8..64) {
        let mut header = HeaderMut::of(&mut bytes).unwrap();
        header.set_first_word(ds, label);
        header.set_payload_len(len);
        header.set_next_header(Protocol(next));
        header.set_hop_limit(hops);
        header.set_src(addresses.0.into());
        header.set_dst(addresses.1.into());
        header.decrement_hop_limit();
        let view = header.view();
        prop_assert_eq!((view.version(), view.ds_field(), view.flow_label()), (6, ds, label));
        prop_assert_eq!((view.payload_len(), view.next_header().0), (len, next));
        prop_assert_eq!(view.hop_limit(), hops.saturating_sub(1));
        prop_assert_eq!((view.src_bits(), view.dst_bits()), addresses);
        prop_assert_eq!((view.src(), view.dst()), (addresses.0.into(), addresses.1.into()));
        header.mark(Dscp::new(dscp).unwrap());
        let view = header.view();
        prop_assert_eq!((view.version(), view.ds_field(), view.flow_label()), (6, dscp << 2 | ds & 3, label));
    }
}
