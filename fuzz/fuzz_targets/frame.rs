//! Any bytes as a frame: through every view of `wire`, down to the packet that an ICMP error quotes.
//!
//! Beyond not crashing: what a view returns lies within what it was given, walks end, and a rewrite leaves a right
//! checksum right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::header::{Ports, Protocol, RawOptions};
use wire::{arp, esp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

/// Largest depth of quotes in quotes (an ICMP error may quote another).
const DEEPEST: u8 = 4;

fuzz_target!(|data: &[u8]| {
    if let Ok(layer) = ethernet::parse(data) {
        assert_eq!(layer.payload_at + layer.payload.len(), data.len());
        match layer.ethertype {
            EtherType::ARP => {
                if let Ok(packet) = arp::parse(layer.payload) {
                    assert_eq!(packet.fields().to_bytes(), layer.payload[..arp::LEN]);
                }
            }
            // What is no IP by its type is tried as IP too: bytes are not wasted on the type.
            _ => network(layer.payload),
        }
    }
    // Without a link layer, as from raw captures; the first byte is the protocol that is tried on the rest.
    network(data);
    if let Some((protocol, rest)) = data.split_first() {
        transport(Protocol(*protocol), rest, Sum::ZERO, 0);
        clamp(rest);
    }
});

fn network(bytes: &[u8]) {
    if let Ok(packet) = ipv4::parse(bytes) {
        assert!(packet.checksum_is_right());
        transport(packet.header.protocol(), packet.payload, packet.pseudo_header(), 0);
    }
    // A random checksum is seldom right, so it is put right, and must then stay so.
    let mut copy = bytes.to_vec();
    if ipv4::parse_prefix(&copy).is_ok() {
        ipv4::fill_checksum(&mut copy);
        if let Some(mut header) = ipv4::HeaderMut::of(&mut copy) {
            if header.view().ttl() > 0 {
                header.decrement_ttl();
            }
        }
        let packet = ipv4::parse_prefix(&copy).expect("only TTL and checksum were changed");
        assert!(packet.checksum_is_right());
        assert_eq!(20 + packet.options.len(), packet.header.header_len());
        assert!(packet.options().count() <= 40);
        if let Some(fragment) = packet.header.fragment() {
            assert_eq!(fragment.offset % 8, 0);
        }
    }
    quoted(bytes, 0);
    if let Ok(packet) = ipv6::parse(bytes) {
        assert_eq!(packet.payload_at() - 40 + packet.payload.len(), usize::from(packet.header.payload_len()));
        assert!(usize::from(packet.extensions.count) <= ipv6::MAX_EXTENSIONS);
        transport(packet.protocol(), packet.payload, packet.pseudo_header(), 0);
    }
}

/// The beginning of a packet of either family.
fn quoted(bytes: &[u8], depth: u8) {
    if depth > DEEPEST {
        return;
    }
    if let Ok(packet) = ipv4::parse_prefix(bytes) {
        transport(packet.header.protocol(), packet.payload, packet.pseudo_header(), depth);
    }
    if let Ok(packet) = ipv6::parse_prefix(bytes) {
        assert!(packet.payload_at() + packet.payload.len() <= bytes.len());
        transport(packet.protocol(), packet.payload, packet.pseudo_header(), depth);
    }
}

fn transport(protocol: Protocol, payload: &[u8], pseudo: Sum, depth: u8) {
    assert_eq!(Ports::of(payload).is_some(), payload.len() >= 4);
    match protocol {
        Protocol::TCP => {
            if let Ok(segment) = tcp::parse(payload) {
                assert_eq!(20 + segment.options.len() + segment.payload.len(), payload.len());
                assert!(segment.options().count() <= 40);
                let _ = segment.sequence_len();
            }
        }
        Protocol::UDP => {
            if let Ok(datagram) = udp::parse(payload) {
                assert_eq!(datagram.payload().len() + 8, usize::from(datagram.header.length()));
                let _ = datagram.check(pseudo);
            }
        }
        Protocol::ICMP => {
            let _ = icmpv4::parse_verified(payload);
            if let Some(quote) = icmpv4::parse(payload).ok().and_then(|message| message.quoted()) {
                quoted(quote, depth + 1);
            }
        }
        Protocol::ICMPV6 => {
            let _ = icmpv6::parse_verified(payload, pseudo);
            if let Ok(message) = icmpv6::parse(payload) {
                discovery(&message);
                if let Some(quote) = message.quoted() {
                    quoted(quote, depth + 1);
                }
            }
        }
        Protocol::ESP => assert_eq!(esp::Header::of(payload).is_some(), payload.len() >= 8),
        _ => assert!(RawOptions::new(payload).count() <= payload.len()),
    }
}

fn discovery(message: &icmpv6::Message<'_>) {
    use icmpv6::Discovery;
    let Some(Ok(found)) = message.discovery() else { return };
    let options = match found {
        Discovery::RouterSolicitation { options }
        | Discovery::RouterAdvertisement { options, .. }
        | Discovery::NeighborSolicitation { options, .. }
        | Discovery::NeighborAdvertisement { options, .. }
        | Discovery::Redirect { options, .. } => options,
    };
    let _ = (options.source_link_layer(), options.target_link_layer());
    assert!(options.count() <= message.body.len() + 1);
}

/// Lowering the MSS leaves a right checksum right, wherever the option lies.
fn clamp(bytes: &[u8]) {
    let mut segment = bytes.to_vec();
    let Some(mut header) = tcp::HeaderMut::of(&mut segment) else { return };
    header.set_checksum(0);
    let checksum = Sum::of(&segment).checksum();
    if let Some(mut header) = tcp::HeaderMut::of(&mut segment) {
        header.set_checksum(checksum);
    }
    assert!(Sum::of(&segment).verifies());
    tcp::clamp_mss(&mut segment, 1220);
    assert!(Sum::of(&segment).verifies());
}
