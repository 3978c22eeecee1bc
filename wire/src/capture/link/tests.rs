//! One packet of each link type, with headers as real captures have them.

use super::*;
use crate::unit::Nanos;

const RECEIVER: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn converted(link: LinkType, bytes: &[u8]) -> (Vec<u8>, u32) {
    let mut scratch = Vec::new();
    let record = Record { link, original_len: 1000, ..Record::new(Nanos(7), bytes) };
    let frame = to_ethernet(record, RECEIVER, &mut scratch);
    assert_eq!((frame.link, frame.at), (LinkType::ETHERNET, Nanos(7)));
    (frame.bytes.to_vec(), frame.original_len)
}

fn frame(destination: Mac, source: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination.0[..], &source.0, &kind.to_be_bytes(), payload].concat()
}

#[test]
fn ethernet_passes_untouched() {
    assert_eq!(converted(LinkType::ETHERNET, b"any bytes"), (b"any bytes".to_vec(), 1000));
}

#[test]
fn raw_ip_by_its_version_or_its_link_type() {
    for link in [LinkType::RAW, LinkType::RAW_BSD, LinkType::RAW_OPENBSD] {
        for (first, kind) in [(0x45, 0x0800), (0x60, 0x86dd), (0x10, 0xffff)] {
            let expected = (frame(RECEIVER, NOBODY, kind, &[first, 1]), 1014);
            assert_eq!(converted(link, &[first, 1]), expected);
        }
        assert_eq!(converted(link, &[]).0, frame(RECEIVER, NOBODY, 0xffff, &[]));
    }
    assert_eq!(converted(LinkType::IPV4, &[0x60]).0, frame(RECEIVER, NOBODY, 0x0800, &[0x60]));
    assert_eq!(converted(LinkType::IPV6, &[0x45]).0, frame(RECEIVER, NOBODY, 0x86dd, &[0x45]));
}

#[test]
fn loopback_families_in_both_byte_orders() {
    let families =
        [(2, 0x0800), (10, 0x86dd), (23, 0x86dd), (24, 0x86dd), (28, 0x86dd), (30, 0x86dd), (7, 0xffff)];
    for (family, kind) in families {
        let expected = (frame(RECEIVER, NOBODY, kind, b"ip"), 1010);
        assert_eq!(converted(LinkType::NULL, &[family, 0, 0, 0, b'i', b'p']), expected);
        assert_eq!(converted(LinkType::NULL, &[0, 0, 0, family, b'i', b'p']), expected);
        assert_eq!(converted(LinkType::LOOP, &[0, 0, 0, family, b'i', b'p']), expected);
    }
    assert_eq!(converted(LinkType::LOOP, &[2, 0, 0, 0]).0, frame(RECEIVER, NOBODY, 0xffff, &[]));
}

const SENDER: Mac = Mac([0x00, 0x1b, 0x21, 3, 4, 5]);

fn cooked_packet(kind: u8, length: u8, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let [p0, p1] = protocol.to_be_bytes();
    let [a, b, c, d, e, f] = SENDER.0;
    [&[0, kind, 0, 1, 0, length, a, b, c, d, e, f, 0, 0, p0, p1], payload].concat()
}

fn cooked_v2_packet(kind: u8, length: u8, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let [p0, p1] = protocol.to_be_bytes();
    let [a, b, c, d, e, f] = SENDER.0;
    [&[p0, p1, 0, 0, 0, 0, 0, 3, 0, 1, kind, length, a, b, c, d, e, f, 0, 0], payload].concat()
}

#[test]
fn cooked_of_both_versions() {
    type Build = fn(u8, u8, u16, &[u8]) -> Vec<u8>;
    let versions: [(LinkType, Build, u32); 2] =
        [(LinkType::COOKED, cooked_packet, 998), (LinkType::COOKED_V2, cooked_v2_packet, 994)];
    let mut v4 = [0x45; 20];
    v4[16..].copy_from_slice(&[239, 255, 1, 2]);
    let mut v6 = [0x60; 40];
    v6[36..].copy_from_slice(&[0, 1, 0, 2]);
    for (link, build, original_len) in versions {
        let of = |kind, length, protocol, payload: &[u8]| {
            converted(link, &build(kind, length, protocol, payload)).0
        };
        let expected = (frame(RECEIVER, SENDER, 0x0800, &v4), original_len);
        assert_eq!(converted(link, &build(0, 6, 0x0800, &v4)), expected);
        assert_eq!(of(4, 0, 0x86dd, &v6), frame(RECEIVER, NOBODY, 0x86dd, &v6), "no address");
        assert_eq!(of(0, 8, 0x86dd, &v6), frame(RECEIVER, NOBODY, 0x86dd, &v6), "a longer address");
        assert_eq!(of(1, 6, 0x0806, b"arp"), frame(Mac::BROADCAST, SENDER, 0x0806, b"arp"));
        assert_eq!(of(2, 6, 0x0800, &v4), frame(Mac([1, 0, 0x5e, 0x7f, 1, 2]), SENDER, 0x0800, &v4));
        assert_eq!(of(2, 6, 0x86dd, &v6), frame(Mac([0x33, 0x33, 0, 1, 0, 2]), SENDER, 0x86dd, &v6));
        assert_eq!(of(0, 6, 0x88cc, b"lldp"), frame(RECEIVER, SENDER, 0x88cc, b"lldp"));
        assert_eq!(of(0, 6, 0x0004, b"llc"), frame(RECEIVER, SENDER, 3, b"llc"), "802.2: a length");
    }
}

#[test]
fn a_packet_cut_in_its_link_header_becomes_an_empty_frame() {
    for (link, header) in [(LinkType::COOKED, 16), (LinkType::COOKED_V2, 20), (LinkType::NULL, 4)] {
        assert_eq!(converted(link, &vec![0; header - 1]).0, b"");
        assert_eq!(converted(link, &vec![0; header]).0.len(), 14);
    }
}

#[test]
fn names() {
    assert_eq!(LinkType(127).to_string(), "link type 127 (IEEE 802.11 with radiotap header)");
    assert_eq!(LinkType(999).to_string(), "link type 999");
    assert!(NAMES.is_sorted_by(|(a, _), (b, _)| a < b));
    assert!((0..300).map(LinkType).filter(|link| link.is_supported()).all(|link| link.name().is_some()));
}

const ROUTED: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
const BRIDGED: [u8; 10] = [0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0];
const BRIDGED_FCS: [u8; 10] = [0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 1, 0, 0];

#[test]
fn pdus_of_atm_routed_and_bridged() {
    let ip = [0x45; 20];
    let bridged = frame(Mac([2; 6]), SENDER, 0x0800, &ip);
    let pdu = |head: &[u8], packet: &[u8]| [head, packet].concat();
    let sunatm = |kind: u8, pdu: Vec<u8>| [&[kind, 8, 0, 35][..], &pdu].concat();
    for (kind, head) in [(2, 4), (0x82, 4), (0, 0)] {
        let of = |bytes: Vec<u8>| {
            if head == 0 {
                converted(LinkType::ATM_RFC1483, &bytes)
            } else {
                converted(LinkType::SUNATM, &sunatm(kind, bytes))
            }
        };
        assert_eq!(of(pdu(&ROUTED, &ip)), (frame(RECEIVER, NOBODY, 0x0800, &ip), 1006 - head));
        assert_eq!(of(pdu(&BRIDGED, &bridged)), (bridged.clone(), 990 - head));
        // The check sequence stays.
        let fcs = pdu(&bridged, &[1, 2, 3, 4]);
        assert_eq!(of(pdu(&BRIDGED_FCS, &fcs)), (fcs, 990 - head));
        // PPP (RFC 2364), from its protocol field on.
        let ppp = [0, 0x21, 0x45];
        let ppp_of = pdu(&[0xfe, 0xfe, 3, 0xcf], &ppp);
        assert_eq!(of(ppp_of).0, frame(RECEIVER, NOBODY, 0x880b, &ppp));
        for odd in [&[0xfe, 0xfe, 3, 0xce, 0, 0x21][..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 6, 0, 0x13], &[0xaa]] {
            assert_eq!(of(odd.to_vec()).0, frame(RECEIVER, NOBODY, 0xffff, odd));
        }
    }
    // Virtual channels with VC multiplexing.
    assert_eq!(
        converted(LinkType::SUNATM, &sunatm(0, ip.to_vec())),
        (frame(RECEIVER, NOBODY, 0x0800, &ip), 1010)
    );
    assert_eq!(converted(LinkType::SUNATM, &sunatm(0x80, pdu(&[0, 0], &bridged))), (bridged, 994));
    for (raw, ethertype) in [([0, 0x21, 0x45], 0x880b), ([0, 0x13, 0x45], 0xffff)] {
        let of = converted(LinkType::SUNATM, &sunatm(0, raw.to_vec())).0;
        assert_eq!(of, frame(RECEIVER, NOBODY, ethertype, &raw));
    }
    // LAN emulation is not read.
    assert_eq!(converted(LinkType::SUNATM, &sunatm(1, ip.to_vec())).0, frame(RECEIVER, NOBODY, 0xffff, &ip));
    assert_eq!(converted(LinkType::SUNATM, &[0; 3]).0, b"");
}

#[test]
fn cells_of_erf() {
    let cell =
        crate::aal5::Segmentation::new("8/35".parse().unwrap(), &[], &[7; 40]).unwrap().next().unwrap();
    let record = |kind: u8, further: &[u8], content: &[u8]| {
        [&[1, 2, 3, 4, 5, 6, 7, 8, kind, 4, 0, 68, 0, 0, 0, 52][..], further, content].concat()
    };
    let bare = [&cell[..4], &cell[5..]].concat();
    let expected = crate::atm::stand_in(&cell).to_vec();
    assert_eq!(converted(LinkType::ERF, &record(3, &[], &bare)), (expected.clone(), 67));
    // Extension headers, of which all but the last say that another follows.
    let further = [0x83, 0, 0, 0, 0, 0, 0, 0, 0x03, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(converted(LinkType::ERF, &record(0x83, &further, &bare)).0, expected);
    assert_eq!(converted(LinkType::ERF, &record(0x83, &further[..9], &[])).0, b"");
    // Cut short.
    assert_eq!(converted(LinkType::ERF, &record(3, &[], &bare[..30])).0, expected[..45]);
    assert_eq!(converted(LinkType::ERF, &record(3, &[], &bare[..3])).0, b"");
    assert_eq!(converted(LinkType::ERF, &[0; 8]).0, b"");
    // Ethernet, behind an offset and padding; and what is not read.
    let ethernet = frame(RECEIVER, SENDER, 0x0800, b"ip");
    assert_eq!(converted(LinkType::ERF, &record(2, &[], &[&[0, 0], &ethernet[..]].concat())).0, ethernet);
    assert_eq!(
        converted(LinkType::ERF, &record(1, &[], &[0x45])).0,
        frame(RECEIVER, NOBODY, 0xffff, &[0x45])
    );
}
