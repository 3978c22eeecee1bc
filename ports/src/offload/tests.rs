use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_assume, proptest};
use proptest::{option, prop_oneof};
use wire::build::{self, Packet, Tcp};
use wire::ethernet::{EtherType, Mac};
use wire::tcp::Flags;
use wire::vlan::Tag;
use wire::{Pool, tcp, udp};

use super::*;

/// A packet for segmentation, as a stack sends it, by its fields.
#[derive(Clone, Debug)]
struct Sent {
    v6: bool,
    /// TCP with these options and flags, or UDP.
    tcp: Option<(Vec<u8>, u8)>,
    tags: Vec<u16>,
    /// IPv4 options or an IPv6 extension header.
    extra: bool,
    seq: u32,
    id: u16,
    payload: Vec<u8>,
    size: u16,
}

fn sent(payload: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Sent> {
    let tcp = (vec(Just(1), 0..=10).prop_map(|nops| nops.repeat(4)), any::<u8>());
    (
        any::<bool>(),
        option::of(tcp),
        vec(0..4095u16, 0..=2),
        any::<bool>(),
        prop_oneof![any::<u32>(), Just(u32::MAX - 500)],
        prop_oneof![any::<u16>(), Just(u16::MAX)],
        payload,
        1..1400u16,
    )
        .prop_map(|(v6, tcp, tags, extra, seq, id, payload, size)| Sent {
            v6,
            tcp,
            tags,
            extra,
            seq,
            id,
            payload,
            size,
        })
}

impl Sent {
    /// The packet as a frame whose checksums are right.
    fn frame(&self) -> Vec<u8> {
        let mut packet = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for (number, id) in self.tags.iter().enumerate() {
            let outer = number + 1 < self.tags.len();
            packet = packet.vlan(if outer { Tag::service(*id) } else { Tag::customer(*id) });
        }
        packet = match self.v6 {
            true => packet.ipv6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST),
            false => packet.ipv4(Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(198, 51, 100, 7)).id(self.id),
        };
        if self.extra {
            packet = match self.v6 {
                true => packet.extension(Protocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]),
                false => packet.ip_options(&[148, 4, 0, 0]),
            };
        }
        self.transport(packet).payload(&self.payload).to_vec()
    }

    fn transport<'a>(&'a self, packet: Packet<'a>) -> Packet<'a> {
        match &self.tcp {
            Some((options, flags)) => packet.tcp(Tcp {
                sport: 4000,
                dport: 5000,
                seq: self.seq,
                ack: 7,
                flags: Flags(*flags),
                window: 500,
                options,
            }),
            None => packet.udp(4000, 5000),
        }
    }

    fn checksum_at(&self) -> usize {
        self.transport_at() + if self.tcp.is_some() { 16 } else { 6 }
    }

    fn transport_at(&self) -> usize {
        let network = if self.v6 { 40 } else { 20 };
        let extra = if !self.extra {
            0
        } else if self.v6 {
            8
        } else {
            4
        };
        14 + 4 * self.tags.len() + network + extra
    }

    fn headers(&self) -> usize {
        self.transport_at() + self.tcp.as_ref().map_or(8, |(options, _)| 20 + options.len())
    }

    /// Offload header that describes the segmentation.
    fn header(&self) -> VnetHeader {
        VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: match (&self.tcp, self.v6) {
                (Some(_), false) => GSO_TCP4 | GSO_ECN,
                (Some(_), true) => GSO_TCP6,
                (None, _) => GSO_UDP,
            },
            hdr_len: self.headers() as u16,
            gso_size: self.size,
            csum_start: self.transport_at() as u16,
            csum_offset: if self.tcp.is_some() { 16 } else { 6 },
        }
    }
}

/// The sum of 16-bit words by the book, carries and all: RFC 1071, section 4.1.
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

/// Pseudo header and transport of a frame, as they are summed.
fn summed(frame: &[u8], of: &Sent) -> Vec<u8> {
    let network = 14 + 4 * of.tags.len();
    let transport = &frame[of.transport_at()..];
    let protocol = if of.tcp.is_some() { 6 } else { 17 };
    let addresses = if of.v6 { network + 8..network + 40 } else { network + 12..network + 20 };
    let mut all = frame[addresses].to_vec();
    all.extend((transport.len() as u32).to_be_bytes());
    all.extend([0, 0, 0, protocol]);
    all.extend(transport);
    all
}

/// The sum of the pseudo header alone, which Linux puts into the field for a card to continue.
fn bare(frame: &[u8], of: &Sent) -> [u8; 2] {
    let all = summed(frame, of);
    let pseudo = all.len() - (frame.len() - of.transport_at());
    plain_sum(&all[..pseudo]).to_be_bytes()
}

proptest! {
    #[test]
    fn a_checksum_is_completed_to_what_it_would_have_been(sent in sent(vec(any::<u8>(), 0..1500))) {
        let right = sent.frame();
        let mut left = right.clone();
        let field = sent.checksum_at();
        left[field..field + 2].copy_from_slice(&bare(&right, &sent));
        let mut by_header = left.clone();
        prop_assert!(complete(&mut by_header, sent.transport_at(), field - sent.transport_at()));
        prop_assert_eq!(plain_sum(&summed(&by_header, &sent)), 0xffff);
        prop_assert_eq!(&by_header, &right);
        // Padding of the link is not in it.
        left.extend([0xee; 3]);
        prop_assert!(complete_bare(&mut left));
        prop_assert_eq!(&left[..right.len()], &right[..]);
        prop_assert_eq!(&left[right.len()..], &[0xee; 3]);
    }

    #[test]
    fn a_right_checksum_stays(sent in sent(vec(any::<u8>(), 0..64))) {
        let right = sent.frame();
        let mut frame = right.clone();
        complete_bare(&mut frame);
        prop_assert_eq!(frame, right);
    }

    #[test]
    fn a_right_checksum_that_looks_like_one_left_undone_stays(mut sent in sent(vec(any::<u8>(), 2..64))) {
        // The last word of the payload is chosen so that the right checksum is the bare sum of the pseudo header.
        let even = sent.payload.len() / 2 * 2;
        sent.payload.truncate(even);
        sent.payload[even - 2..].copy_from_slice(&[0, 0]);
        let field = sent.checksum_at();
        let wanted = bare(&sent.frame(), &sent);
        let mut frame = sent.frame();
        frame[field..field + 2].copy_from_slice(&wanted);
        let rest = !plain_sum(&summed(&frame, &sent));
        let end = frame.len();
        frame[end - 2..].copy_from_slice(&rest.to_be_bytes());
        prop_assert_eq!(plain_sum(&summed(&frame, &sent)), 0xffff);
        let right = frame.clone();
        prop_assert!(complete_bare(&mut frame));
        prop_assert_eq!(frame, right);
    }

    #[test]
    fn segments_are_what_a_card_would_send(sent in sent(vec(any::<u8>(), 1..20000))) {
        let whole = sent.frame();
        let mut packet = whole.clone();
        let field = sent.checksum_at();
        packet[field..field + 2].copy_from_slice(&bare(&whole, &sent));
        let cut = plan(&packet, &sent.header()).unwrap();
        let (headers, size) = (sent.headers(), usize::from(sent.size));
        prop_assert_eq!(cut.count(), sent.payload.len().div_ceil(size));

        let mut pool = Pool::new(1, 2048).unwrap();
        let mut frame = pool.take().unwrap();
        let mut payload = Vec::new();
        for index in 0..cut.count() {
            prop_assert!(cut.cut(&packet, index, &mut frame));
            let bytes = frame.bytes();
            prop_assert!(bytes.len() <= headers + size);
            prop_assert_eq!(plain_sum(&summed(bytes, &sent)), 0xffff);
            let layer = ethernet::parse(bytes).unwrap();
            prop_assert_eq!(layer.tags, ethernet::parse(&whole).unwrap().tags);
            let transport = if sent.v6 {
                let ip = ipv6::parse(layer.payload).unwrap();
                prop_assert_eq!(usize::from(ip.header.payload_len()), layer.payload.len() - 40);
                ip.payload
            } else {
                let ip = ipv4::parse(layer.payload).unwrap();
                prop_assert_eq!(plain_sum(&layer.payload[..ip.header.header_len()]), 0xffff);
                prop_assert_eq!(usize::from(ip.header.total_len()), layer.payload.len());
                prop_assert_eq!(ip.header.id(), sent.id.wrapping_add(index as u16));
                ip.payload
            };
            if let Some((_, flags)) = &sent.tcp {
                let header = tcp::Header::of(transport).unwrap();
                let (first, last) = (index == 0, index + 1 == cut.count());
                let allowed = 0x76 | if first { 0x80 } else { 0 } | if last { 0x09 } else { 0 };
                prop_assert_eq!(header.flags().0, flags & allowed);
                prop_assert_eq!(header.seq(), sent.seq.wrapping_add(payload.len() as u32));
            } else {
                prop_assert_eq!(usize::from(udp::Header::of(transport).unwrap().length()), transport.len());
            }
            // What nothing is said of above is as it was: addresses, ports, options, the rest of the headers.
            let mut expected = whole[..headers].to_vec();
            let network = layer.payload_at;
            let at = sent.transport_at();
            let changed: Vec<usize> = match (sent.v6, sent.tcp.is_some()) {
                (true, true) => (network + 4..network + 6).chain(at + 4..at + 8).chain([at + 13, at + 16, at + 17]).collect(),
                (true, false) => (network + 4..network + 6).chain(at + 4..at + 8).collect(),
                (false, true) => (network + 2..network + 6).chain(network + 10..network + 12)
                    .chain(at + 4..at + 8).chain([at + 13, at + 16, at + 17]).collect(),
                (false, false) => (network + 2..network + 6).chain(network + 10..network + 12)
                    .chain(at + 4..at + 8).collect(),
            };
            for byte in changed {
                expected[byte] = bytes[byte];
            }
            prop_assert_eq!(&bytes[..headers], &expected[..]);
            payload.extend_from_slice(&bytes[headers..]);
        }
        prop_assert_eq!(payload, sent.payload);
        pool.put(frame);
    }

    #[test]
    fn no_bytes_and_no_header_panic(
        sent in sent(vec(any::<u8>(), 1..3000)),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<proptest::sample::Index>(),
        header in any::<[u8; 10]>(),
        likely in any::<bool>(),
    ) {
        let mut packet = sent.frame();
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        packet.truncate(cut.index(packet.len()) + 1);
        let header = if likely { sent.header() } else { VnetHeader::from_bytes(header) };
        let mut pool = Pool::new(1, 2048).unwrap();
        let mut frame = pool.take().unwrap();
        if let Some(plan) = plan(&packet, &header) {
            let mut bytes = 0;
            for index in 0..plan.count().min(50) {
                let fits = plan.cut(&packet, index, &mut frame);
                prop_assume!(fits);
                bytes += frame.len();
            }
            prop_assert!(bytes > 0);
        }
        if let Left::Checksum { start, offset } = Left::of(&header) {
            let _ = complete(&mut packet, start, offset);
        }
        complete_bare(&mut packet);
        pool.put(frame);
    }
}

/// A tunnel's inner segments, and a header of another protocol, are refused.
#[test]
fn what_does_not_fit_is_refused() {
    let sent = Sent {
        v6: false,
        tcp: Some((Vec::new(), 0x10)),
        tags: Vec::new(),
        extra: false,
        seq: 1,
        id: 1,
        payload: vec![7; 3000],
        size: 1000,
    };
    let packet = sent.frame();
    let right = sent.header();
    assert_eq!(plan(&packet, &right).unwrap().count(), 3);
    let wrong = [
        VnetHeader { csum_start: right.csum_start + 40, ..right },
        VnetHeader { gso_type: GSO_TCP6, ..right },
        VnetHeader { gso_type: GSO_UDP, ..right },
        VnetHeader { gso_type: 3, ..right },
        VnetHeader { gso_size: 0, ..right },
    ];
    for header in wrong {
        assert_eq!(plan(&packet, &header), None, "{header:?}");
    }
    let mut fragment = packet.clone();
    fragment[14 + 6] = 0x20;
    ipv4::fill_checksum(&mut fragment[14..]);
    assert_eq!(plan(&fragment, &right), None);
    // A segment that is larger than the slot is not cut to fit.
    let large = plan(&packet, &VnetHeader { gso_size: 2000, ..right }).unwrap();
    let mut pool = Pool::new(1, 2048).unwrap();
    let mut frame = pool.take().unwrap();
    assert!(!large.cut(&packet, 0, &mut frame));
    pool.put(frame);
}

/// An SCTP INIT of one chunk; the checksum is one that Wireshark calls right.
#[test]
fn sctp_has_a_checksum_of_its_own() {
    let chunk = [
        0x80, 0x44, 0x80, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0x3b, 0xb9, 0x9c, 0x46, 0, 1, 0xa0, 0,
        0, 10, 0xff, 0xff, 0x2b, 0x2d, 0x7e, 0xb2,
    ];
    let left = build::ethernet(Mac([2; 6]), Mac([4; 6]))
        .ipv4(Ipv4Addr::new(192, 168, 170, 8), Ipv4Addr::new(192, 168, 170, 56))
        .protocol(Protocol::SCTP)
        .payload(&chunk)
        .to_vec();
    let mut frame = left.clone();
    assert!(complete_bare(&mut frame));
    assert_eq!(frame[34 + 8..34 + 12], [0xfd, 0x51, 0x30, 0xee]);
    let mut again = left.clone();
    assert!(complete(&mut again, 34, 8));
    assert_eq!(again, frame);
    assert!(!complete_bare(&mut frame), "a checksum that is there is left alone");
    assert!(!complete(&mut again[..34 + 11], 34, 8));
}

#[test]
fn other_packets_are_left_alone() {
    let ping = build::ethernet(Mac([2; 6]), Mac([4; 6]))
        .ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2))
        .echo_request(1, 1)
        .to_vec();
    let unsummed = build::ethernet(Mac([2; 6]), Mac([4; 6]))
        .ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2))
        .udp_without_checksum(1, 2)
        .to_vec();
    let arp = build::ethernet(Mac([2; 6]), Mac([4; 6])).ethertype(EtherType::ARP).payload(&[0; 28]).to_vec();
    for packet in [ping, unsummed, arp, vec![0; 14], Vec::new()] {
        let mut frame = packet.clone();
        assert!(!complete_bare(&mut frame));
        assert_eq!(frame, packet);
    }
}
