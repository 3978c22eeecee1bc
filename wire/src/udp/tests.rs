use std::net::Ipv4Addr;

use super::*;
use crate::build;
use crate::ipv4;

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[test]
fn each_fault_has_its_name() {
    let bytes = [0, 1, 0, 2, 0, 9, 0, 0, 0xaa, 0xbb];
    let datagram = parse(&bytes).unwrap();
    assert_eq!((datagram.payload(), datagram.covered.len()), (&[0xaa][..], 9));
    assert_eq!(parse(&bytes[..8]).unwrap_err(), Malformed::LengthPastEnd);
    assert_eq!(parse(&bytes[..7]).unwrap_err(), Malformed::TooShort);
    let with_length = |length| [0, 1, 0, 2, 0, length, 0, 0];
    assert_eq!(parse(&with_length(7)).unwrap_err(), Malformed::LengthBelowHeader);
    assert_eq!(parse(&with_length(0)).unwrap_err(), Malformed::LengthBelowHeader);
    assert!(parse(&with_length(8)).unwrap().payload().is_empty());
}

#[test]
fn checks_the_checksum() {
    let check = |bytes: &[u8]| {
        let packet = ipv4::parse(bytes).unwrap();
        parse(packet.payload).unwrap().check(packet.pseudo_header())
    };
    let mut bytes = build::ipv4(A, B).udp(1, 2).payload(b"abc").to_vec();
    assert_eq!(check(&bytes), Check::Right);
    bytes[30] ^= 1;
    assert_eq!(check(&bytes), Check::Wrong);
    assert_eq!(check(&build::ipv4(A, B).udp_without_checksum(1, 2).payload(b"abc").to_vec()), Check::None);
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    // Find a payload whose checksum computes to zero, by the word that is the checksum of the rest.
    let rest = build::ipv4(A, B).udp(1, 2).payload(&[0, 0]).to_vec();
    let word = Header::of(&rest[20..]).unwrap().checksum();
    let bytes = build::ipv4(A, B).udp(1, 2).payload(&word.to_be_bytes()).to_vec();
    assert_eq!(Header::of(&bytes[20..]).unwrap().checksum(), 0xffff);
    let packet = ipv4::parse(&bytes).unwrap();
    assert_eq!(parse(packet.payload).unwrap().check(packet.pseudo_header()), Check::Right);
}

#[test]
fn a_translated_datagram_verifies_and_none_stays_none() {
    let new = Ipv4Addr::new(203, 0, 113, 5);
    let delta = Delta::NONE.change32(A.to_bits(), new.to_bits()).change16(1, 40000);
    for packet in [build::ipv4(A, B).udp(1, 2), build::ipv4(A, B).udp_without_checksum(1, 2)] {
        let mut bytes = packet.clone().payload(b"abc").to_vec();
        let mut header = HeaderMut::of(&mut bytes[20..]).unwrap();
        header.set_sport(40000);
        header.adjust_checksum(delta);
        let mut ip = ipv4::HeaderMut::of(&mut bytes).unwrap();
        ip.set_src(new);
        ip.adjust_checksum(Delta::NONE.change32(A.to_bits(), new.to_bits()));
        let mut fresh = packet.ipv4(new, B).payload(b"abc");
        fresh = match Header::of(&bytes[20..]).unwrap().checksum() {
            0 => fresh.udp_without_checksum(40000, 2),
            _ => fresh.udp(40000, 2),
        };
        assert_eq!(bytes, fresh.to_vec());
    }
}
