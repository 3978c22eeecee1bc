use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};

use super::*;
use crate::build;

/// A UDP packet's header as captured, checksum 0xb861, padded to its total length of 115.
fn sample() -> Vec<u8> {
    let mut bytes = vec![
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];
    bytes.resize(115, 0);
    bytes
}

#[test]
fn fields_of_a_captured_header() {
    let bytes = sample();
    let packet = parse(&bytes).unwrap();
    let header = packet.header;
    assert_eq!((header.version(), header.header_len(), header.total_len()), (4, 20, 115));
    assert_eq!((header.ttl(), header.protocol(), header.checksum()), (64, Protocol::UDP, 0xb861));
    assert_eq!(header.src(), Ipv4Addr::new(192, 168, 0, 1));
    assert_eq!(header.dst_bits(), 0xc0a8_00c7);
    assert!(header.dont_fragment() && !header.is_fragment());
    assert_eq!(header.fragment(), None);
    assert_eq!(packet.payload.len(), 95);
}

#[test]
fn padding_of_the_link_is_no_payload() {
    let mut bytes = sample();
    bytes.extend([0xee; 9]);
    assert_eq!(parse(&bytes).unwrap().payload.len(), 95);
}

#[test]
fn each_fault_has_its_name() {
    let with = |at: usize, value: u8| {
        let mut bytes = sample();
        bytes[at] = value;
        bytes
    };
    let fault = |bytes: &[u8]| parse(bytes).unwrap_err();
    assert_eq!(fault(&sample()[..19]), Malformed::TooShort);
    assert_eq!(fault(&[]), Malformed::TooShort);
    assert_eq!(fault(&with(0, 0x65)), Malformed::Version);
    assert_eq!(fault(&with(0, 0x44)), Malformed::HeaderLength);
    assert_eq!(fault(&with(0, 0x46)[..22]), Malformed::HeaderPastEnd);
    assert_eq!(fault(&with(3, 19)), Malformed::TotalLengthBelowHeader);
    assert_eq!(fault(&with(3, 116)), Malformed::TotalLengthPastEnd);
    assert_eq!(fault(&with(8, 63)), Malformed::Checksum);
}

#[test]
fn a_prefix_may_be_cut_and_have_a_stale_checksum() {
    let mut bytes = sample();
    bytes[8] = 1;
    let packet = parse_prefix(&bytes[..28]).unwrap();
    assert_eq!(packet.payload.len(), 8);
    assert!(!packet.checksum_is_right());
    assert_eq!(parse_prefix(&bytes).unwrap().payload.len(), 95);
    assert_eq!(parse_prefix(&bytes[..19]).unwrap_err(), Malformed::TooShort);
    bytes[0] = 0x4f;
    assert_eq!(parse_prefix(&bytes[..59]).unwrap_err(), Malformed::HeaderPastEnd);
}

#[test]
fn fragments() {
    for (field, offset, more) in
        [(0x2000, 0, true), (0x0001, 8, false), (0x3fff, 65528, true), (0x1fff, 65528, false)]
    {
        let mut bytes = sample();
        let mut header = HeaderMut::of(&mut bytes).unwrap();
        header.set_id(0xbeef);
        header.set_flags_and_offset(field);
        let expected = Fragment { id: 0xbeef, offset, more };
        assert_eq!(header.view().fragment(), Some(expected));
        assert!(header.view().is_fragment());
        assert_eq!(expected.is_first(), offset == 0);
    }
}

#[test]
fn options_are_covered_by_the_checksum() {
    let [a, b] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let alert = [option::ROUTER_ALERT, 4, 0, 0, 1];
    let mut bytes = build::ipv4(a, b).ip_options(&alert).udp(1, 2).to_vec();
    let packet = parse(&bytes).unwrap();
    assert_eq!((packet.header.header_len(), packet.options.len()), (28, 8));
    let options: Vec<_> = packet.options().collect::<Result<_, _>>().unwrap();
    assert_eq!(options.len(), 1);
    assert_eq!((options[0].kind, options[0].data), (option::ROUTER_ALERT, &[0, 0][..]));
    bytes[23] ^= 1;
    assert_eq!(parse(&bytes).unwrap_err(), Malformed::Checksum);
    fill_checksum(&mut bytes);
    assert!(parse(&bytes).is_ok());
}

proptest! {
    #[test]
    fn setters_set_what_getters_get(bytes in any::<[u8; 20]>(), len in 5usize..16, ds in any::<u8>(), total in any::<u16>(),
                                    id in any::<u16>(), field in any::<u16>(), ttl in any::<u8>(), protocol in any::<u8>(),
                                    addresses in any::<(u32, u32)>()) {
        let mut bytes = bytes;
        let mut header = HeaderMut::of(&mut bytes).unwrap();
        header.set_header_len(len * 4);
        header.set_ds_field(ds);
        header.set_total_len(total);
        header.set_id(id);
        header.set_flags_and_offset(field);
        header.set_ttl(ttl);
        header.set_protocol(Protocol(protocol));
        header.set_checksum(id ^ total);
        header.set_src(addresses.0.into());
        header.set_dst(addresses.1.into());
        let view = header.view();
        prop_assert_eq!((view.version(), view.header_len()), (4, len * 4));
        prop_assert_eq!((view.ds_field(), view.dscp().value(), view.total_len()), (ds, ds >> 2, total));
        prop_assert_eq!((view.id(), view.flags_and_offset()), (id, field));
        prop_assert_eq!((view.ttl(), view.protocol().0, view.checksum()), (ttl, protocol, id ^ total));
        prop_assert_eq!((view.src_bits(), view.dst_bits()), addresses);
        prop_assert_eq!((view.src(), view.dst()), (addresses.0.into(), addresses.1.into()));
    }

    #[test]
    fn verbs_keep_the_checksum_right(mut bytes in any::<[u8; 20]>(), dscp in 0u8..64) {
        bytes[0] = 0x45;
        fill_checksum(&mut bytes);
        let before = bytes;
        let mut header = HeaderMut::of(&mut bytes).unwrap();
        header.decrement_ttl();
        header.mark(Dscp::new(dscp).unwrap());
        prop_assert_eq!(header.view().ttl(), before[8].saturating_sub(1));
        prop_assert_eq!(header.view().ds_field(), dscp << 2 | before[1] & 3);
        let adjusted = header.view().checksum();
        fill_checksum(&mut bytes);
        prop_assert_eq!(adjusted, Header::of(&bytes).unwrap().checksum());
    }

    #[test]
    fn any_wrong_byte_is_noticed(at in 0usize..20, flip in 1u8..) {
        let mut bytes = sample();
        bytes[at] ^= flip;
        // A word turned from one zero to the other is the same in one's complement.
        let word = |bytes: &[u8]| be16(&[bytes[at & !1], bytes[at | 1]], 0);
        prop_assume!(word(&bytes) % 0xffff != word(&sample()) % 0xffff);
        prop_assert!(parse(&bytes).is_err());
    }
}
