use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use wire::build::{self, Icmp};
use wire::checksum::{self, Sum};
use wire::header::Fragment;

use super::*;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A kind of packet; the number is an ICMP type or a raw protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tcp,
    Udp,
    UdpWithout,
    Icmp(u8),
    Raw(u8),
}

#[derive(Clone, Debug)]
struct Sample {
    family: Family,
    addresses: [u128; 2],
    ports: [u16; 2],
    kind: Kind,
    options: usize,
    payload: Vec<u8>,
}

impl Sample {
    fn build(&self) -> (Vec<u8>, Transport) {
        let [source, destination] = self.addresses;
        let zeros = [0; 40];
        let v4 = self.family == Family::V4;
        let (packet, offset) = if v4 {
            let ends = [source, destination].map(|bits| Ipv4Addr::from_bits(bits as u32));
            // Options of no operation: 1 each.
            (build::ipv4(ends[0], ends[1]).ip_options(&[1; 40][..self.options]), 20 + self.options)
        } else {
            let packet = build::ipv6(Ipv6Addr::from_bits(source), Ipv6Addr::from_bits(destination));
            match self.options {
                0 => (packet, 40),
                _ => (packet.extension(Protocol::DESTINATION_OPTIONS, &zeros[..6]), 48),
            }
        };
        let [sport, dport] = self.ports;
        let packet = match self.kind {
            Kind::Tcp => packet.tcp(build::Tcp { sport, dport, ..Default::default() }),
            Kind::Udp => packet.udp(sport, dport),
            Kind::UdpWithout => packet.udp_without_checksum(sport, dport),
            Kind::Icmp(kind) if v4 => packet.icmpv4(Icmp::echo(kind, sport, dport)),
            Kind::Icmp(kind) => packet.icmpv6(Icmp::echo(kind, sport, dport)),
            Kind::Raw(protocol) => packet.protocol(Protocol(protocol)),
        };
        let mut bytes = vec![0; 2048];
        let len = packet.payload(&self.payload).write(&mut bytes).unwrap();
        bytes.truncate(len);
        let protocol = match self.kind {
            Kind::Tcp => TCP,
            Kind::Udp | Kind::UdpWithout => UDP,
            Kind::Icmp(_) => {
                if v4 {
                    1
                } else {
                    58
                }
            }
            Kind::Raw(protocol) => protocol,
        };
        (bytes, Transport { offset, protocol, part: Part::Whole })
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let v4 =
        (any::<[u32; 2]>().prop_map(|a| a.map(u128::from)), prop_oneof![Just(0usize), Just(8), Just(40)]);
    let v6 = (any::<[u128; 2]>(), prop_oneof![Just(0usize), Just(8)]);
    let kinds = |request, reply, error| {
        prop::sample::select(vec![
            Kind::Tcp,
            Kind::Udp,
            Kind::UdpWithout,
            Kind::Icmp(request),
            Kind::Icmp(reply),
            Kind::Icmp(error),
            Kind::Raw(47),
            Kind::Raw(50),
            Kind::Raw(132),
        ])
    };
    let rest =
        || (any::<[u16; 2]>(), prop_oneof![Just(vec![0; 9]), prop::collection::vec(any::<u8>(), 0..100)]);
    let make = |family| {
        move |((addresses, options), kind, (ports, payload))| Sample {
            family,
            addresses,
            ports,
            kind,
            options,
            payload,
        }
    };
    prop_oneof![
        (v4, kinds(8, 0, 3), rest()).prop_map(make(Family::V4)),
        (v6, kinds(128, 129, 1), rest()).prop_map(make(Family::V6)),
    ]
}

/// True if all checksums of a whole packet verify, by computing them anew.
fn verifies(packet: &[u8], transport: Transport) -> bool {
    let pseudo = if packet[0] >> 4 == 4 {
        // Checks the header's checksum.
        let Ok(parsed) = ipv4::parse(packet) else { return false };
        parsed.pseudo_header()
    } else {
        ipv6::parse(packet).unwrap().pseudo_header()
    };
    let payload = &packet[transport.offset..];
    match transport.protocol {
        TCP | 58 => pseudo.and(payload).verifies(),
        UDP => payload[6..8] == [0, 0] || pseudo.and(payload).verifies(),
        1 => checksum::verifies(payload),
        _ => true,
    }
}

fn end(family: Family, address: u128, port: u16) -> Endpoint {
    let address = if family == Family::V4 { address & 0xffff_ffff } else { address };
    Endpoint { address, port, protocol: 0, family, ..Endpoint::default() }
}

/// The ends that a packet has, as the rewriter names them.
fn ends_of(sample: &Sample) -> Rewrite {
    let [sport, dport] = match sample.kind {
        Kind::Icmp(_) => [sample.ports[0]; 2],
        _ => sample.ports,
    };
    Rewrite {
        source: Some(end(sample.family, sample.addresses[0], sport)),
        destination: Some(end(sample.family, sample.addresses[1], dport)),
    }
}

fn rewrite_for(sample: &Sample, bits: [u128; 2], ports: [u16; 2], which: u8) -> Rewrite {
    Rewrite {
        source: (which & 1 != 0).then(|| end(sample.family, bits[0], ports[0])),
        destination: (which & 2 != 0).then(|| end(sample.family, bits[1], ports[1])),
    }
}

/// The sample as it would have been built with the new ends.
fn translated(sample: &Sample, rewrite: &Rewrite) -> Sample {
    let mut new = sample.clone();
    let (source, destination) = (rewrite.source, rewrite.destination);
    new.addresses[0] = source.map_or(new.addresses[0], |end| end.address);
    new.addresses[1] = destination.map_or(new.addresses[1], |end| end.address);
    match sample.kind {
        Kind::Icmp(8 | 128) => {
            new.ports[0] = source.or(destination).map_or(new.ports[0], |end| end.port);
        }
        Kind::Icmp(0 | 129) => {
            new.ports[0] = destination.or(source).map_or(new.ports[0], |end| end.port);
        }
        Kind::Icmp(_) => {}
        _ => {
            new.ports[0] = source.map_or(new.ports[0], |end| end.port);
            new.ports[1] = destination.map_or(new.ports[1], |end| end.port);
        }
    }
    new
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    /// The oracle builds the translated packet from nothing, checksums computed in full.
    #[test]
    fn a_translated_packet_is_as_if_built_so_and_the_inverse_restores_it(
        sample in sample(), bits in any::<[u128; 2]>(), ports in any::<[u16; 2]>(), which in 0u8..4,
    ) {
        let (before, transport) = sample.build();
        prop_assert!(verifies(&before, transport));
        let rewrite = rewrite_for(&sample, bits, ports, which);
        let mut packet = before.clone();
        apply(&mut packet, transport, &rewrite);
        prop_assert!(verifies(&packet, transport));
        prop_assert_eq!(&packet, &translated(&sample, &rewrite).build().0);
        let own = ends_of(&sample);
        let inverse = Rewrite {
            source: rewrite.source.and(own.source),
            destination: rewrite.destination.and(own.destination),
        };
        apply(&mut packet, transport, &inverse);
        prop_assert_eq!(packet, before);
    }

    #[test]
    fn fragments_behind_the_first_change_addresses_and_no_payload(
        addresses in any::<[u32; 4]>(), payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let [a, b, c, d] = addresses;
        let built = |a: u32, b: u32| {
            let mut bytes = [0; 128];
            let fragment = Fragment { id: 7, offset: 64, more: false };
            let packet = build::ipv4(Ipv4Addr::from_bits(a), Ipv4Addr::from_bits(b));
            let len = packet.fragment(fragment).protocol(Protocol::TCP).payload(&payload)
                .write(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        let mut packet = built(a, b);
        let transport = Transport { offset: 20, protocol: TCP, part: Part::Later };
        let ends = EndsV4 { source: c, destination: d, ports: Ports { sport: 1, dport: 2 } };
        apply_v4(&mut packet, transport, &ends);
        prop_assert_eq!(packet, built(c, d));
    }

    /// The oracle builds the error anew, around the quote of a packet built anew.
    #[test]
    fn errors_are_translated_outside_and_in(
        quoted in sample(), outer in any::<[u128; 2]>(), bits in any::<[u128; 4]>(),
        ports in any::<[u16; 2]>(), which in 0u8..16, kept in 20usize..200,
    ) {
        let offset = quoted.build().1.offset;
        // Not cut within ports, identifier or checksum: half of one is left as it is.
        let kept = match kept.saturating_sub(offset) {
            0..=3 => offset,
            5..=7 => offset + 4,
            17 => offset + 16,
            _ => kept,
        };
        let kept = if matches!(quoted.kind, Kind::Icmp(_)) && kept < offset + 8 { offset } else { kept };
        let error = |quote: &Sample, addresses: [u128; 2]| {
            let (mut bytes, _) = quote.build();
            bytes.truncate(kept);
            Sample {
                family: quote.family,
                addresses,
                ports: [0, 0],
                kind: Kind::Icmp(if quote.family == Family::V4 { 3 } else { 1 }),
                options: 0,
                payload: bytes,
            }
        };
        let mask = |bits: u128| end(quoted.family, bits, 0).address;
        let first = error(&quoted, outer.map(mask));
        let inner_rewrite = rewrite_for(&quoted, [bits[0], bits[1]], ports, which & 3);
        let outer_rewrite = rewrite_for(&first, [bits[2], bits[3]], [9, 9], which >> 2);
        let (before, transport) = first.build();
        let mut packet = before.clone();
        let done = apply_to_error(&mut packet, transport, &outer_rewrite, &inner_rewrite);
        prop_assert_eq!(done, Quote::Rewritten);
        prop_assert!(verifies(&packet, transport));
        // A message of ICMP that is cut short may differ in which zero its checksum is; none other does.
        let expected = error(&translated(&quoted, &inner_rewrite), translated(&first, &outer_rewrite).addresses);
        if !matches!(quoted.kind, Kind::Icmp(0)) {
            prop_assert_eq!(&packet, &expected.build().0);
        }
    }

    #[test]
    fn any_bytes_are_met_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in prop::sample::select(vec![4u8, 6, 9]),
        offset in 0usize..140, protocol in any::<u8>(), later in any::<bool>(),
        bits in any::<[u128; 2]>(), family in prop::sample::select(vec![Family::V4, Family::V6, Family::Other]),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | (*first & 15);
        }
        let part = if later { Part::Later } else { Part::Whole };
        let rewrite = Rewrite {
            source: Some(end(family, bits[0], 5)), destination: Some(end(family, bits[1], 6)),
        };
        for protocol in [protocol, 1, 6, 17, 33, 58, 136] {
            let transport = Transport { offset, protocol, part };
            apply(&mut bytes, transport, &rewrite);
            apply_v4(&mut bytes, transport, &EndsV4::default());
            apply_v6(&mut bytes, transport, &EndsV6::default());
            apply_to_error(&mut bytes, transport, &rewrite, &rewrite);
        }
    }
}

#[test]
fn an_unreadable_quote_leaves_the_error_as_it_is() {
    let quote = Sample {
        family: Family::V4,
        addresses: [1 << 24, 2 << 24],
        ports: [1, 2],
        kind: Kind::Udp,
        options: 0,
        payload: vec![1; 4],
    };
    let short = quote.build().0[..19].to_vec();
    let error = Sample { kind: Kind::Icmp(3), payload: short, ..quote };
    let (before, transport) = error.build();
    let mut packet = before.clone();
    let all = Rewrite { source: Some(Endpoint::v4(9, 9, 0)), destination: Some(Endpoint::v4(8, 8, 0)) };
    assert_eq!(apply_to_error(&mut packet, transport, &all, &all), Quote::Unreadable);
    assert_eq!(packet, before);
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let sample = Sample {
        family: Family::V4,
        addresses: [1 << 24, 2 << 24],
        ports: [1, 2],
        kind: Kind::Tcp,
        options: 0,
        payload: vec![1; 4],
    };
    let (mut packet, transport) = sample.build();
    packet[transport.offset + 16] ^= 1;
    apply(&mut packet, transport, &rewrite_for(&sample, [7, 8], [9, 10], 3));
    assert!(ipv4::parse(&packet).is_ok());
    assert!(!verifies(&packet, transport));
}

#[test]
fn dccp_and_udplite_checksums_follow_addresses_and_ports() {
    for protocol in [33u8, 136] {
        let built = |addresses: [u32; 2], ports: [u16; 2]| {
            let [source, destination] = addresses.map(Ipv4Addr::from_bits);
            // Covered in full; the other bytes of the header are of no account here.
            let mut payload = [5u8; 24];
            payload[..2].copy_from_slice(&ports[0].to_be_bytes());
            payload[2..4].copy_from_slice(&ports[1].to_be_bytes());
            payload[6..8].fill(0);
            let sum = Sum::pseudo_v4(source, destination, Protocol(protocol), 24).and(&payload).checksum();
            payload[6..8].copy_from_slice(&sum.to_be_bytes());
            let mut bytes = [0; 64];
            let packet = build::ipv4(source, destination).protocol(Protocol(protocol)).payload(&payload);
            let len = packet.write(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        let mut packet = built([1, 2], [3, 4]);
        let transport = Transport { offset: 20, protocol, part: Part::Whole };
        let rewrite = Rewrite { source: Some(Endpoint::v4(77, 88, protocol)), destination: None };
        apply(&mut packet, transport, &rewrite);
        assert_eq!(packet, built([77, 2], [88, 4]));
    }
}
