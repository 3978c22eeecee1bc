use super::*;
use crate::build;
use crate::vlan::{DropEligible, Priority};

const A: Mac = Mac([0x02, 0, 0, 0, 0, 0x0a]);
const B: Mac = Mac([0x02, 0, 0, 0, 0, 0x0b]);

#[test]
fn untagged() {
    let frame = build::ethernet(A, B).ethertype(EtherType::IPV4).payload(b"data").to_vec();
    assert_eq!(frame[..14], [2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 0x08, 0x00]);
    let layer = parse(&frame).unwrap();
    assert_eq!((layer.header.src(), layer.header.dst()), (A, B));
    assert_eq!((layer.ethertype, layer.payload_at, layer.payload), (EtherType::IPV4, 14, &b"data"[..]));
    assert_eq!(layer.tags.as_slice(), []);
}

#[test]
fn tagged_once_and_twice() {
    let bytes = |tags: &str| {
        let mut frame = vec![0; 12];
        frame.extend(tags.split(' ').map(|octet| u8::from_str_radix(octet, 16).unwrap()));
        frame
    };
    let frame = bytes("81 00 b0 64 08 06");
    let layer = parse(&frame).unwrap();
    let tag = layer.tags.outer().unwrap();
    let priority = tag.priority();
    assert_eq!((tag.id(), priority.code_point().value(), priority.eligible()), (100, 5, DropEligible::Yes));
    assert_eq!((priority.bits(), Priority::of_frame(&frame)), (0xb, priority));
    assert_eq!(Tag::customer(100).with_priority(priority), tag);
    assert_eq!(Priority::new(priority.code_point(), priority.eligible()), priority);
    assert_eq!((layer.ethertype, layer.payload_at), (EtherType::ARP, 18));

    let frame = bytes("88 a8 00 05 81 00 0f ff 86 dd 60");
    let layer = parse(&frame).unwrap();
    assert_eq!(layer.tags.as_slice(), [Tag::service(5), Tag::customer(4095)]);
    // The outer tag says the priority; a frame without a tag, or that ends within it, has none.
    assert_eq!(Priority::of_frame(&bytes("88 a8 e0 05 81 00 20 01")).code_point().value(), 7);
    for untagged in ["08 00 ff", "81 00", "f1 00 f0 00", ""] {
        let frame: Vec<u8> = if untagged.is_empty() { Vec::new() } else { bytes(untagged) };
        assert_eq!(Priority::of_frame(&frame), Priority::DEFAULT, "{untagged}");
    }
    assert_eq!(layer.tags.inner(), Some(Tag::customer(4095)));
    assert_eq!((layer.ethertype, layer.payload_at, layer.payload), (EtherType::IPV6, 22, &[0x60][..]));

    // A third one is not walked.
    let layer_type = parse(&bytes("81 00 00 01 81 00 00 02 81 00 00 03 08 00")).unwrap().ethertype;
    assert_eq!(layer_type, EtherType::VLAN);
}

#[test]
fn tags_are_built_as_parsed() {
    let frame = build::ethernet(A, B)
        .vlan(Tag::service(7))
        .vlan(Tag::customer(8))
        .ethertype(EtherType::IPV6)
        .pad_to(60)
        .to_vec();
    assert_eq!(frame.len(), 60);
    let layer = parse(&frame).unwrap();
    assert_eq!(layer.tags.as_slice(), [Tag::service(7), Tag::customer(8)]);
    assert_eq!(layer.ethertype, EtherType::IPV6);
}

#[test]
fn short_frames_have_their_names() {
    assert_eq!(parse(&[0; 13]).unwrap_err(), Malformed::TooShort);
    let mut frame = [0; 21];
    frame[12..14].copy_from_slice(&[0x88, 0xa8]);
    assert_eq!(parse(&frame[..17]).unwrap_err(), Malformed::TagPastEnd);
    frame[16..18].copy_from_slice(&[0x81, 0x00]);
    assert_eq!(parse(&frame).unwrap_err(), Malformed::TagPastEnd);
    frame[12..14].copy_from_slice(&[0x00, 0x2e]);
    assert!(parse(&frame).unwrap().ethertype.is_length());
}

#[test]
fn addresses_print_and_read_back() {
    let mac: Mac = "02:00:5E:10:00:ff".parse().unwrap();
    assert_eq!(mac, Mac([2, 0, 0x5e, 0x10, 0, 0xff]));
    assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
    assert_eq!("02-00-5e-10-00-ff".parse(), Ok(mac));
    for wrong in [
        "",
        "02:00:5e:10:00",
        "02:00:5e:10:00:ff:01",
        "2:0:5e:10:0:ff",
        "02:00:5e:10:00:+f",
        "02-00:5e:10:00:ff",
    ] {
        assert_eq!(wrong.parse::<Mac>(), Err(BadMac), "{wrong}");
    }
}

#[test]
fn kinds_of_addresses() {
    assert!(Mac::BROADCAST.is_broadcast() && Mac::BROADCAST.is_multicast() && !Mac::BROADCAST.is_unicast());
    assert!(Mac([1, 0, 0x5e, 0, 0, 1]).is_multicast());
    assert!(A.is_unicast() && A.is_local());
    assert!(!Mac::ZERO.is_unicast() && !Mac::ZERO.is_multicast());
}

#[test]
fn setters_set_what_getters_get() {
    let mut frame = [0; 14];
    let mut header = HeaderMut::of(&mut frame).unwrap();
    header.set_dst(A);
    header.set_src(B);
    header.set_ethertype(EtherType::ARP);
    let view = header.view();
    assert_eq!((view.dst(), view.src(), view.ethertype()), (A, B, EtherType::ARP));
    assert!(HeaderMut::of(&mut frame[..13]).is_none());
}
