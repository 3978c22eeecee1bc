//! No view panics, whatever the bytes: random ones, and valid packets with a few bytes changed and the end
//! cut off, which get deeper.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::strategy::Strategy;
use wire::build::{self, Tcp};
use wire::checksum::{self, Delta, Sum};
use wire::ethernet::{self, EtherType, Mac};
use wire::header::{Fragment, Ports, Protocol, RawOptions};
use wire::tcp::Flags;
use wire::vlan::Tag;
use wire::{arp, esp, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

/// Looks at all there is; `Debug` keeps the results from being optimised away.
fn look_at_all(bytes: &[u8]) -> usize {
    let mut seen = String::new();
    let mut see = |value: &dyn std::fmt::Debug| seen.push_str(&format!("{value:?}"));
    see(&arp::parse(bytes).map(arp::Packet::fields));
    see(&esp::Header::of(bytes).map(|header| (header.spi(), header.sequence())));
    see(&Ports::of(bytes));
    see(&RawOptions::new(bytes).collect::<Vec<_>>());
    see(&tcp::Options::new(bytes).collect::<Vec<_>>());
    see(&Sum::of(bytes));
    see(&ipv6::walk(Protocol(bytes.first().copied().unwrap_or(0)), bytes));
    if let Ok(layer) = ethernet::parse(bytes) {
        see(&(layer.tags, layer.header.src(), layer.header.dst(), layer.ethertype));
        assert_eq!(layer.payload.len() + layer.payload_at, bytes.len());
    }
    for packet in [ipv4::parse(bytes), ipv4::parse_prefix(bytes)].into_iter().flatten() {
        let header = packet.header;
        see(&(packet.pseudo_header().fold(), packet.checksum_is_right(), packet.options().count()));
        see(&(header.fragment(), header.src(), header.dst(), header.protocol(), header.dscp()));
        assert!(packet.payload.len() + header.header_len() <= bytes.len());
    }
    for packet in [ipv6::parse(bytes), ipv6::parse_prefix(bytes)].into_iter().flatten() {
        see(&(packet.pseudo_header().fold(), packet.header.src(), packet.header.dst(), packet.extensions));
        assert!(packet.payload.len() + packet.payload_at() <= bytes.len());
        assert!(packet.payload_at() <= ipv6::HEADER_LEN + ipv6::MAX_EXTENSION_BYTES);
    }
    if let Ok(segment) = tcp::parse(bytes) {
        see(&(segment.header.ports(), segment.sequence_len(), segment.options().collect::<Vec<_>>()));
    }
    if let Ok(datagram) = udp::parse(bytes) {
        see(&(datagram.payload(), datagram.check(Sum::ZERO)));
    }
    if let Ok(message) = icmpv4::parse(bytes) {
        see(&(message.quoted(), message.header.kind(), message.header.mtu(), message.header.pointer()));
    }
    if let Ok(message) = icmpv6::parse(bytes) {
        see(&(message.quoted(), message.header.mtu()));
        if let Some(Ok(discovery)) = message.discovery() {
            see(&discovery);
            match discovery {
                icmpv6::Discovery::RouterSolicitation { options }
                | icmpv6::Discovery::RouterAdvertisement { options, .. }
                | icmpv6::Discovery::NeighborSolicitation { options, .. }
                | icmpv6::Discovery::NeighborAdvertisement { options, .. }
                | icmpv6::Discovery::Redirect { options, .. } => see(&options.collect::<Vec<_>>()),
            }
        }
    }
    seen.len()
}

/// Changes all that can be changed.
fn change_all(bytes: &mut [u8]) {
    let delta = Delta::NONE.change16(1, 2);
    tcp::clamp_mss(bytes, 536);
    icmpv4::rewrite_id(bytes, 7);
    icmpv4::adjust_checksum(bytes, delta);
    ipv4::fill_checksum(bytes);
    if let Some(mut header) = ipv4::HeaderMut::of(bytes) {
        header.decrement_ttl();
        header.adjust_checksum(delta);
    }
    if let Some(mut header) = ipv6::HeaderMut::of(bytes) {
        header.decrement_hop_limit();
    }
    if let Some(mut header) = udp::HeaderMut::of(bytes) {
        header.adjust_checksum(delta);
    }
    if let Some(mut header) = icmpv6::HeaderMut::of(bytes) {
        header.adjust_checksum(delta);
    }
    checksum::of(bytes);
}

fn valid() -> Vec<Vec<u8>> {
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let [a, b] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let [c, d] = [Ipv6Addr::LOCALHOST, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)];
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let syn = Tcp { sport: 1, dport: 2, flags: Flags::SYN, options: &options, ..Tcp::default() };
    let later = Fragment { id: 1, offset: 8, more: true };
    let solicitation = build::Icmp { kind: 135, code: 0, rest: [0; 4] };
    let mut target = d.octets().to_vec();
    target.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    vec![
        build::ethernet(mac, mac).vlan(Tag::service(1)).vlan(Tag::customer(2)).ipv4(a, b).tcp(syn).to_vec(),
        build::ipv4(a, b).ip_options(&[148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0]).tcp(syn).to_vec(),
        build::ipv4(a, b).udp(1, 2).payload(b"abc").to_vec()[20..].to_vec(),
        build::ipv4(a, b).tcp(syn).to_vec()[20..].to_vec(),
        build::ipv6(c, d)
            .extension(Protocol::HOP_BY_HOP, &[1, 4])
            .extension(Protocol::ROUTING, &[4, 1, 0, 0])
            .extension(Protocol::AH, &[0; 14])
            .fragment(later)
            .protocol(Protocol::UDP)
            .payload(&[0; 16])
            .to_vec(),
        build::ipv6(c, d).icmpv6(solicitation).payload(&target).to_vec()[40..].to_vec(),
        build::ethernet(mac, mac).ethertype(EtherType(46)).payload(&[0x42, 0x42, 3]).to_vec(),
    ]
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<u16>(), any::<u8>()), 0..4);
    (proptest::sample::select(valid()), changes, any::<u16>()).prop_map(|(mut bytes, changes, cut)| {
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        // Half of them whole, the others cut anywhere.
        let cut = usize::from(cut) % (2 * bytes.len());
        bytes.truncate(cut);
        bytes
    })
}

proptest! {
    #[test]
    fn of_any_bytes(mut bytes in vec(any::<u8>(), 0..120)) {
        look_at_all(&bytes);
        change_all(&mut bytes);
    }

    #[test]
    fn of_damaged_packets(mut bytes in damaged()) {
        look_at_all(&bytes);
        change_all(&mut bytes);
    }
}

/// Every length of every valid packet, which random cuts may miss.
#[test]
fn of_every_prefix() {
    for bytes in valid() {
        for len in 0..=bytes.len() {
            assert!(look_at_all(&bytes[..len]) > 0);
            change_all(&mut bytes[..len].to_vec());
        }
    }
}
