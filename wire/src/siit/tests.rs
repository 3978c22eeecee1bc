use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::build::{self, Icmp, Tcp};
use crate::checksum;
use crate::pool::Pool;
use crate::tcp::Flags;

const MTUS: Mtus = Mtus { v4: 1_500, v6: 1_500 };

fn client() -> Ipv6Addr {
    "2001:db8:1::10".parse().unwrap()
}

fn server() -> Ipv4Addr {
    "198.51.100.7".parse().unwrap()
}

fn pool_address() -> Ipv4Addr {
    "203.0.113.5".parse().unwrap()
}

fn v4() -> EndsV4 {
    EndsV4 { source: pool_address(), destination: server() }
}

fn v6() -> EndsV6 {
    EndsV6 { source: client(), destination: Prefix::WELL_KNOWN.embed(server()) }
}

/// Ends of what comes back.
fn back_v4() -> EndsV4 {
    EndsV4 { source: server(), destination: pool_address() }
}

fn back_v6() -> EndsV6 {
    EndsV6 { source: Prefix::WELL_KNOWN.embed(server()), destination: client() }
}

/// A frame with a link-layer header in front and padding behind, its headers noted as `parse` does.
fn frame(pool: &mut Pool, packet: &[u8]) -> Frame {
    let mut bytes = vec![0xee; 14];
    bytes.extend_from_slice(packet);
    bytes.extend_from_slice(&[0; 6]);
    let mut frame = pool.take().unwrap();
    assert!(frame.fill(&bytes));
    let (family, protocol, transport, part) = match packet[0] >> 4 {
        4 => {
            let packet = ipv4::parse_prefix(packet).unwrap();
            let part = part_of(packet.header.fragment());
            (Family::V4, packet.header.protocol(), packet.header.header_len(), part)
        }
        _ => {
            let packet = ipv6::parse_prefix(packet).unwrap();
            let part = part_of(packet.extensions.fragment.map(|header| header.fragment));
            (Family::V6, packet.protocol(), packet.payload_at(), part)
        }
    };
    frame.meta.family = family;
    frame.meta.protocol = protocol.0;
    frame.meta.network = 14;
    frame.meta.transport = 14 + transport as u16;
    frame.meta.end = 14 + packet.len() as u16;
    frame.meta.part = part;
    frame
}

fn pool() -> Pool {
    Pool::new(4, 4_096).unwrap()
}

/// Translates a packet to IPv4 from the client, and back where it is an answer.
fn into_v4(packet: &[u8], ends: &EndsV4, quote: Option<&EndsV4>) -> Result<Vec<u8>, Untranslatable> {
    let mut pool = pool();
    let mut frame = frame(&mut pool, packet);
    let before = frame.bytes().to_vec();
    match to_v4(&mut frame, ends, quote, 77, MTUS) {
        Ok(()) => {
            let total = ipv4::parse(frame.bytes()).expect("a whole IPv4 packet").header.total_len();
            assert_eq!((usize::from(total), frame.meta.end, frame.meta.network), (frame.len(), total, 0));
            assert_eq!((frame.meta.family, frame.meta.transport), (Family::V4, 20));
            Ok(frame.bytes().to_vec())
        }
        Err(error) => {
            assert_eq!(frame.bytes(), before, "unchanged");
            Err(error)
        }
    }
}

fn into_v6(packet: &[u8], ends: &EndsV6, quote: Option<&EndsV6>) -> Result<Vec<u8>, Untranslatable> {
    let mut pool = pool();
    let mut frame = frame(&mut pool, packet);
    let before = frame.bytes().to_vec();
    match to_v6(&mut frame, ends, quote, MTUS) {
        Ok(()) => {
            let parsed = ipv6::parse(frame.bytes()).expect("a whole IPv6 packet");
            assert_eq!(parsed.payload_at() + parsed.payload.len(), frame.len());
            assert_eq!(usize::from(frame.meta.transport), parsed.payload_at());
            assert_eq!((frame.meta.family, usize::from(frame.meta.end)), (Family::V6, frame.len()));
            Ok(frame.bytes().to_vec())
        }
        Err(error) => {
            assert_eq!(frame.bytes(), before, "unchanged");
            Err(error)
        }
    }
}

/// Both packets of an exchange, written by a builder that computes checksums from the start.
#[derive(Clone, Debug)]
enum Payload {
    Tcp { sport: u16, dport: u16, seq: u32 },
    Udp { sport: u16, dport: u16 },
    Request { id: u16, seq: u16 },
    Reply { id: u16, seq: u16 },
    Raw(u8),
}

impl Payload {
    fn onto<'a>(&self, packet: build::Packet<'a>) -> build::Packet<'a> {
        match *self {
            Payload::Tcp { sport, dport, seq } => {
                packet.tcp(Tcp { sport, dport, seq, flags: Flags::ACK, ..Tcp::default() })
            }
            Payload::Udp { sport, dport } => packet.udp(sport, dport),
            Payload::Request { id, seq } => packet.echo_request(id, seq),
            Payload::Reply { id, seq } => packet.echo_reply(id, seq),
            Payload::Raw(protocol) => packet.protocol(Protocol(protocol)),
        }
    }
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        (any::<u16>(), any::<u16>(), any::<u32>()).prop_map(|(sport, dport, seq)| Payload::Tcp {
            sport,
            dport,
            seq
        }),
        (any::<u16>(), any::<u16>()).prop_map(|(sport, dport)| Payload::Udp { sport, dport }),
        (any::<u16>(), any::<u16>()).prop_map(|(id, seq)| Payload::Request { id, seq }),
        (any::<u16>(), any::<u16>()).prop_map(|(id, seq)| Payload::Reply { id, seq }),
        // Encapsulations, ESP, SCTP.
        prop_oneof![4_u8..=5, 41..=41_u8, 47_u8..=47, 50_u8..=50, 132_u8..=132].prop_map(Payload::Raw),
    ]
}

proptest! {
    /// Translated packets are those that a host of the other family would have sent, byte by byte.
    #[test]
    fn translated_packets_are_those_that_a_builder_writes(
        payload in payload(),
        (ds_field, hops, source, destination) in (any::<u8>(), any::<u8>(), any::<u32>(), any::<u32>()),
        (long_source, long_destination) in (any::<u128>(), any::<u128>()),
        data in vec(any::<u8>(), 0..1_400),
    ) {
        let short = EndsV4 { source: source.into(), destination: destination.into() };
        let long = EndsV6 { source: long_source.into(), destination: long_destination.into() };
        let of_v6 = build::ipv6(long.source, long.destination).ttl(hops).ds_field(ds_field);
        let of_v6 = payload.onto(of_v6).payload(&data).to_vec();
        let of_v4 = build::ipv4(short.source, short.destination).ttl(hops).ds_field(ds_field).id(77);
        let of_v4 = payload.onto(of_v4).payload(&data);
        let of_v4 = if of_v4.wire_len() > 1_260 { of_v4.dont_fragment() } else { of_v4 }.to_vec();
        prop_assert_eq!(into_v4(&of_v6, &short, None), Ok(of_v4.clone()));
        prop_assert_eq!(into_v6(&of_v4, &long, None), Ok(of_v6));
    }

    /// No bytes make a translation panic, and a refusal changes nothing.
    #[test]
    fn any_bytes_are_translated_or_refused(
        mut bytes in vec(any::<u8>(), 40..200),
        family in prop_oneof![0x45..=0x4f_u8, 0x60..=0x60_u8],
        protocol in prop_oneof![any::<u8>(), 1..=1_u8, 58..=58_u8, 44..=44_u8, 51..=51_u8],
        kind in prop_oneof![any::<u8>(), 1..=5_u8, 11..=12_u8, 128..=129_u8],
    ) {
        bytes[0] = family;
        let length = bytes.len() as u16;
        if family == 0x60 {
            bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
            bytes[6] = protocol;
            if let Some(first) = bytes.get_mut(40) { *first = kind; }
            if ipv6::parse(&bytes).is_ok() {
                into_v4(&bytes, &v4(), Some(&back_v4())).ok();
            }
        } else {
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[9] = protocol;
            let payload_at = usize::from(family & 0xf) * 4;
            if let Some(first) = bytes.get_mut(payload_at) { *first = kind; }
            if ipv4::parse_prefix(&bytes).is_ok() {
                into_v6(&bytes, &v6(), Some(&back_v6())).ok();
            }
        }
    }

    #[test]
    fn addresses_come_out_of_prefixes_as_they_went_in(
        address in any::<u32>(),
        prefix in any::<u128>(),
        length in prop_oneof![32..=32_u8, 40..=40_u8, 48..=48_u8, 56..=56_u8, 64..=64_u8, 96..=96_u8],
    ) {
        let bits = prefix & !(u128::MAX >> length) & !(0xff << 56);
        let prefix = Prefix::new(bits.into(), length).unwrap();
        let embedded = prefix.embed(address.into());
        prop_assert!(prefix.contains(embedded));
        prop_assert_eq!(embedded.octets()[8], 0);
        prop_assert_eq!(prefix.extract(embedded), Some(address.into()));
        prop_assert_eq!(prefix.extract((embedded.to_bits() ^ 1 << 127).into()), None);
    }
}

#[test]
fn prefixes_of_rfc_6052_section_2_4() {
    let address: Ipv4Addr = "192.0.2.33".parse().unwrap();
    for (prefix, length, embedded) in [
        ("2001:db8::", 32, "2001:db8:c000:221::"),
        ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
        ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
    ] {
        let prefix = Prefix::new(prefix.parse().unwrap(), length).unwrap();
        let embedded: Ipv6Addr = embedded.parse().unwrap();
        assert_eq!((prefix.embed(address), prefix.extract(embedded)), (embedded, Some(address)));
    }
    let refused = |prefix: &str, length| Prefix::new(prefix.parse().unwrap(), length);
    assert_eq!(refused("2001:db8::", 33), Err(BadPrefix::Length));
    assert_eq!(refused("2001:db8::1", 96), Err(BadPrefix::HostBits));
    assert_eq!(refused("2001:db8:0:0:100::", 96), Err(BadPrefix::ReservedBits));
    assert_eq!(Prefix::WELL_KNOWN.to_string(), "64:ff9b::/96");
}

/// Counterparts of the ICMP errors of IPv4, as RFC 7915, section 4.2 lists them: type, code and second word of both, with a quote of 1,480 bytes.
#[test]
fn errors_of_ipv4() {
    let quoted =
        build::ipv4(pool_address(), server()).dont_fragment().udp(1_000, 53).payload(&[7; 1_452]).to_vec();
    let quoted_v6 = build::ipv6(client(), Prefix::WELL_KNOWN.embed(server()))
        .udp(1_000, 53)
        .payload(&[7; 1_452])
        .to_vec();
    let unreachable = |code, to| ((3, code, 0), Some((1, to, 0)));
    let mut cases = vec![
        ((3, 2, 0), Some((4, 1, 6))),
        ((3, 4, 1_400), Some((2, 0, 1_420))),
        ((3, 4, 576), Some((2, 0, 1_280))),
        ((3, 4, 9_000), Some((2, 0, 1_500))),
        // The plateau below 1480.
        ((3, 4, 0), Some((2, 0, 1_280))),
        ((3, 14, 0), None),
        ((3, 16, 0), None),
        ((4, 0, 0), None),
        ((5, 1, 0), None),
        ((11, 0, 0), Some((3, 0, 0))),
        ((11, 1, 0), Some((3, 1, 0))),
        ((12, 1, 0), None),
    ];
    cases.extend([0, 1, 5, 6, 7, 8, 11, 12].map(|code| unreachable(code, 0)));
    cases.extend([9, 10, 13, 15].map(|code| unreachable(code, 1)));
    cases.push(unreachable(3, 4));
    let pointers = [
        Some(0),
        Some(1),
        Some(4),
        Some(4),
        None,
        None,
        None,
        None,
        Some(7),
        Some(6),
        None,
        None,
        Some(8),
        Some(8),
        Some(8),
        Some(8),
        Some(24),
        Some(24),
        Some(24),
        Some(24),
        None,
    ];
    for (pointer, to) in (0_u32..).zip(pointers) {
        for code in [0, 2] {
            cases.push(((12, code, pointer << 24), to.map(|to| (4, 0, to))));
        }
    }
    for ((kind, code, word), expected) in cases {
        // From a router, whose address the client sees under the prefix too.
        let packet = build::ipv4("192.0.2.1".parse().unwrap(), pool_address())
            .icmpv4(icmp_v4(kind, code, word))
            .payload(&quoted[..28])
            .to_vec();
        let router = EndsV6 { source: Prefix::WELL_KNOWN.embed("192.0.2.1".parse().unwrap()), ..back_v6() };
        let translated = into_v6(&packet, &router, Some(&v6()));
        match expected {
            None => assert_eq!(translated, Err(Untranslatable::Message), "type {kind} code {code}"),
            Some((kind, code, word)) => {
                let expected = build::ipv6(router.source, router.destination)
                    .icmpv6(icmp_v6(kind, code, word))
                    .payload(&quoted_v6[..48])
                    .to_vec();
                assert_eq!(translated, Ok(expected), "to type {kind} code {code}");
            }
        }
    }
}

/// As [`errors_of_ipv4`], of section 5.2.
#[test]
fn errors_of_ipv6() {
    let mut cases = vec![
        ((1, 0, 0), Some((3, 1, 0))),
        ((1, 1, 0), Some((3, 10, 0))),
        ((1, 2, 0), Some((3, 1, 0))),
        ((1, 3, 0), Some((3, 1, 0))),
        ((1, 4, 0), Some((3, 3, 0))),
        ((1, 7, 0), None),
        ((2, 0, 1_420), Some((3, 4, 1_400))),
        ((2, 0, 9_000), Some((3, 4, 1_480))),
        ((2, 0, 70_000), Some((3, 4, 1_480))),
        ((3, 0, 0), Some((11, 0, 0))),
        ((3, 1, 0), Some((11, 1, 0))),
        ((4, 1, 40), Some((3, 2, 0))),
        ((4, 2, 40), None),
        ((100, 0, 0), None),
    ];
    let to = |pointer: u32| match pointer {
        0 | 1 => Some(pointer),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    };
    for pointer in (0..42).chain([0x100_0000]) {
        cases.push(((4, 0, pointer), to(pointer).map(|to| (12, 0, to << 24))));
    }
    let quoted = build::ipv6(back_v6().source, client()).udp(53, 1_000).payload(&[7; 100]).to_vec();
    let quoted_v4 = build::ipv4(server(), pool_address()).udp(53, 1_000).payload(&[7; 100]).to_vec();
    for ((kind, code, word), expected) in cases {
        let packet = build::ipv6(client(), v6().destination)
            .icmpv6(icmp_v6(kind, code, word))
            .payload(&quoted)
            .to_vec();
        let translated = into_v4(&packet, &v4(), Some(&back_v4()));
        match expected {
            None => assert_eq!(translated, Err(Untranslatable::Message), "type {kind} code {code} {word}"),
            Some((kind, code, word)) => {
                let expected = build::ipv4(pool_address(), server())
                    .id(77)
                    .icmpv4(icmp_v4(kind, code, word))
                    .payload(&quoted_v4)
                    .to_vec();
                assert_eq!(translated, Ok(expected), "to type {kind} code {code}");
            }
        }
    }
}

fn icmp_v4(kind: u8, code: u8, word: u32) -> Icmp {
    Icmp { kind, code, rest: word.to_be_bytes() }
}

fn icmp_v6(kind: u8, code: u8, word: u32) -> Icmp {
    Icmp { kind, code, rest: word.to_be_bytes() }
}

#[test]
fn errors_are_cut_to_what_may_be_sent() {
    let long = build::ipv6(back_v6().source, client()).udp(53, 1_000).payload(&[7; 1_180]).to_vec();
    let packet = build::ipv6(client(), v6().destination).icmpv6(icmp_v6(1, 4, 0)).payload(&long).to_vec();
    let translated = into_v4(&packet, &v4(), Some(&back_v4())).unwrap();
    assert_eq!(translated.len(), 576);
    assert!(checksum::verifies(&translated[20..]));
    let long = build::ipv4(pool_address(), server()).udp(1_000, 53).payload(&[7; 1_472]).to_vec();
    let packet = build::ipv4(server(), pool_address()).icmpv4(icmp_v4(3, 3, 0)).payload(&long).to_vec();
    let translated = into_v6(&packet, &back_v6(), Some(&v6())).unwrap();
    assert_eq!(translated.len(), 1_280);
    let parsed = ipv6::parse(&translated).unwrap();
    assert!(parsed.pseudo_header().and(parsed.payload).verifies());
}

/// Extensions (RFC 4884), such as the labels of RFC 4950, follow a quote that is longer or shorter than before.
#[test]
fn extensions_follow_the_quote() {
    let labels = [0x20, 0, 0xdf, 0xff, 0, 8, 1, 1, 0x12, 0x34, 0x51, 0xff];
    let quoted = build::ipv4(pool_address(), server()).udp(1_000, 53).payload(&[7; 101]).to_vec();
    assert_eq!(quoted.len(), 129);
    let mut body = quoted.clone();
    body.resize(132, 0);
    body.extend_from_slice(&labels);
    let packet =
        build::ipv4(server(), pool_address()).icmpv4(icmp_v4(11, 0, 33 << 16)).payload(&body).to_vec();
    let translated = into_v6(&packet, &back_v6(), Some(&v6())).unwrap();
    let mut body = build::ipv6(v6().source, v6().destination).udp(1_000, 53).payload(&[7; 101]).to_vec();
    assert_eq!(body.len(), 149);
    body.resize(152, 0);
    body.extend_from_slice(&labels);
    let there =
        build::ipv6(back_v6().source, client()).icmpv6(icmp_v6(3, 0, 19 << 24)).payload(&body).to_vec();
    assert_eq!(translated, there);
    // And the other way, where the quote needs 129 bytes again, and 132 are its multiple of 4.
    assert_eq!(
        into_v4(&there, &back_v4(), Some(&v4())).map(|packet| packet[20..].to_vec()),
        Ok(packet[20..].to_vec())
    );
}

#[test]
fn fragments_keep_their_place() {
    let fragment = Fragment { id: 0xabcd_1234, offset: 1_232, more: true };
    let of_v6 = build::ipv6(v6().source, v6().destination).fragment(fragment).protocol(Protocol::UDP);
    let of_v6 = of_v6.payload(&[9; 64]).to_vec();
    let short = Fragment { id: 0x1234, ..fragment };
    let of_v4 = build::ipv4(pool_address(), server()).fragment(short).protocol(Protocol::UDP);
    let of_v4 = of_v4.payload(&[9; 64]).to_vec();
    assert_eq!(into_v4(&of_v6, &v4(), None), Ok(of_v4.clone()));
    let of_v6 = build::ipv6(v6().source, v6().destination).fragment(short).protocol(Protocol::UDP);
    assert_eq!(into_v6(&of_v4, &v6(), None), Ok(of_v6.payload(&[9; 64]).to_vec()));
    // A first fragment has the checksum of the whole.
    let whole = build::ipv4(pool_address(), server()).udp(5, 6).payload(&[9; 64]).to_vec();
    let mut first = build::ipv4(pool_address(), server())
        .fragment(Fragment { id: 3, offset: 0, more: true })
        .protocol(Protocol::UDP)
        .payload(&whole[20..60])
        .to_vec();
    let of_v6 = build::ipv6(v6().source, v6().destination).udp(5, 6).payload(&[9; 64]).to_vec();
    let translated = into_v6(&first, &v6(), None).unwrap();
    assert_eq!(translated[48..], of_v6[40..80]);
    first[26..28].copy_from_slice(&[0, 0]);
    assert_eq!(into_v6(&first, &v6(), None), Err(Untranslatable::NoChecksum));
}

#[test]
fn udp_gets_a_checksum() {
    let packet =
        build::ipv4(server(), pool_address()).udp_without_checksum(53, 1_000).payload(&[1, 2, 3]).to_vec();
    let expected = build::ipv6(back_v6().source, client()).udp(53, 1_000).payload(&[1, 2, 3]).to_vec();
    assert_eq!(into_v6(&packet, &back_v6(), None), Ok(expected));
}

#[test]
fn options_and_extension_headers_are_left_out() {
    let packet = build::ipv4(server(), pool_address()).ip_options(&[148, 4, 0, 0]).udp(53, 1_000).to_vec();
    let expected = build::ipv6(back_v6().source, client()).udp(53, 1_000).to_vec();
    assert_eq!(into_v6(&packet, &back_v6(), None), Ok(expected));
    // A route with a hop left, and one that has been walked.
    for (pointer, is_refused) in [(4, true), (8, false)] {
        let route = [131, 7, pointer, 192, 0, 2, 9, 0];
        let packet = build::ipv4(server(), pool_address()).ip_options(&route).udp(53, 1_000).to_vec();
        let translated = into_v6(&packet, &back_v6(), None);
        assert_eq!(translated.err(), is_refused.then_some(Untranslatable::SourceRoute));
    }
    let expected = build::ipv4(pool_address(), server()).id(77).udp(1_000, 53).to_vec();
    let with = |protocol, body: &[u8]| {
        let packet = build::ipv6(v6().source, v6().destination);
        into_v4(&packet.extension(protocol, body).udp(1_000, 53).to_vec(), &v4(), None)
    };
    assert_eq!(with(Protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]), Ok(expected.clone()));
    assert_eq!(with(Protocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]), Ok(expected.clone()));
    assert_eq!(with(Protocol::ROUTING, &[0, 0, 0, 0, 0, 0]), Ok(expected));
    assert_eq!(with(Protocol::ROUTING, &[0, 1, 0, 0, 0, 0]), Err(Untranslatable::Routing { pointer: 43 }));
}

#[test]
fn protocols_of_one_family_stay_there() {
    for protocol in [0, 2, 43, 44, 51, 58, 59, 60] {
        let packet =
            build::ipv4(server(), pool_address()).protocol(Protocol(protocol)).payload(&[0; 40]).to_vec();
        assert_eq!(into_v6(&packet, &back_v6(), None), Err(Untranslatable::Protocol(Protocol(protocol))));
    }
    for protocol in [1, 2, 59] {
        let packet =
            build::ipv6(client(), v6().destination).protocol(Protocol(protocol)).payload(&[0; 40]).to_vec();
        assert_eq!(into_v4(&packet, &v4(), None), Err(Untranslatable::Protocol(Protocol(protocol))));
    }
    let packet =
        build::ipv6(client(), v6().destination).protocol(Protocol::AH).payload(&[17, 4, 0, 0, 0, 0, 0, 1]);
    let mut packet = packet.to_vec();
    packet.resize(40 + 24 + 8, 0);
    packet[5] = 32;
    assert_eq!(into_v4(&packet, &v4(), None), Err(Untranslatable::Protocol(Protocol::AH)));
    // Group management, discovery, redirects and questions that the other family does not have.
    for kind in [9, 10, 13, 14, 15, 17, 30] {
        let packet = build::ipv4(server(), pool_address()).icmpv4(icmp_v4(kind, 0, 0)).to_vec();
        assert_eq!(into_v6(&packet, &back_v6(), None), Err(Untranslatable::Message));
    }
    for kind in [130, 133, 134, 135, 136, 137, 139, 143, 200] {
        let packet = build::ipv6(client(), v6().destination).icmpv6(icmp_v6(kind, 0, 0)).to_vec();
        assert_eq!(into_v4(&packet, &v4(), None), Err(Untranslatable::Message));
    }
    let echo = build::ipv4(server(), pool_address()).echo_request(1, 2).payload(&[0; 40]).to_vec();
    let fragment = build::ipv4(server(), pool_address())
        .fragment(Fragment { id: 1, offset: 0, more: true })
        .protocol(Protocol::ICMP)
        .payload(&echo[20..44])
        .to_vec();
    assert_eq!(into_v6(&fragment, &back_v6(), None), Err(Untranslatable::IcmpFragment));
}

#[test]
fn errors_with_wrong_checksums_end_here() {
    let quoted = build::ipv4(pool_address(), server()).udp(1_000, 53).to_vec();
    let mut packet = build::ipv4(server(), pool_address()).icmpv4(icmp_v4(3, 3, 0)).payload(&quoted).to_vec();
    packet[23] ^= 1;
    assert_eq!(into_v6(&packet, &back_v6(), Some(&v6())), Err(Untranslatable::Checksum));
    // And errors about errors.
    let inner = build::ipv4(pool_address(), server()).icmpv4(icmp_v4(3, 3, 0)).payload(&quoted).to_vec();
    let packet = build::ipv4(server(), pool_address()).icmpv4(icmp_v4(3, 3, 0)).payload(&inner).to_vec();
    assert_eq!(into_v6(&packet, &back_v6(), Some(&v6())), Err(Untranslatable::Message));
}

/// An echo that an error quotes is an echo of the other family, with the checksum that the host had sent.
#[test]
fn quoted_echo_is_translated() {
    let quoted = build::ipv4(pool_address(), server()).echo_request(5, 6).payload(&[3; 20]).to_vec();
    let packet = build::ipv4(server(), pool_address()).icmpv4(icmp_v4(11, 0, 0)).payload(&quoted).to_vec();
    let expected = build::ipv6(v6().source, v6().destination).echo_request(5, 6).payload(&[3; 20]).to_vec();
    let expected =
        build::ipv6(back_v6().source, client()).icmpv6(icmp_v6(3, 0, 0)).payload(&expected).to_vec();
    assert_eq!(into_v6(&packet, &back_v6(), Some(&v6())), Ok(expected.clone()));
    assert_eq!(quoted_v6(&frame(&mut pool(), &expected)), Some(v6()));
    assert_eq!(quoted_v4(&frame(&mut pool(), &packet)), Some(v4()));
    assert_eq!(quoted_v4(&frame(&mut pool(), &quoted)), None);
}
