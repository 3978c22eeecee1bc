//! Outside addresses of translations that are on a link: the gateway answers for them by ARP (RFC 826) and neighbour
//! discovery (RFC 4861), as no host there has them and Linux does not know them. Linux answers for its own.
//!
//! `parse` asks whether a frame is such a question, `answer` turns it into the answer, in its slot. The gateway does not stand
//! in for another node (RFC 4861, section 7.2.8): the address is its own, so that it overrides what neighbours knew before
//! and defends the address against a host that probes for it (RFC 5227, RFC 4862). Linux handles packets that announce
//! and ask nothing (announcements, advertisements).

use arrayvec::ArrayVec;
use tally::Tally;
use wire::arp;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Mac};
use wire::header::Protocol;
use wire::icmpv6::{self, AdvertisementFlags, Discovery};
use wire::{Frame, ipv6};

use super::Cx;
use super::own::MOST_LINK;
use crate::flag;
use crate::tables::{Address, Interface, Tables};

/// Bytes of an advertisement with its option, and of the IPv6 header before it.
const ADVERTISEMENT: usize = 32;
const IPV6: usize = ipv6::HEADER_LEN;

/// All nodes on a link (RFC 4291, section 2.7.1), and their Ethernet group (RFC 2464, section 7).
const ALL_NODES: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0001;
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

/// Query for the link-layer address of an IP address (ARP request, neighbour solicitation).
struct Question {
    target: Address,
    /// IP address of the sender; 0 if the sender has no address yet.
    asker: Address,
    mac: Mac,
}

/// True if a frame, whose link-layer header has been read, asks for an address that the gateway answers for.
pub(super) fn is_asked(frame: &Frame, tables: &Tables) -> bool {
    tables.interface(frame.meta.ingress).is_some_and(|interface| question(frame, interface).is_some())
}

fn question(frame: &Frame, interface: &Interface) -> Option<Question> {
    if interface.answered.is_empty() {
        return None;
    }
    let layer = wire::ethernet::parse(frame.bytes()).ok()?;
    if frame.meta.flags & flag::GROUP == 0 && layer.header.dst() != interface.mac {
        return None;
    }
    let packet = frame.bytes().get(usize::from(frame.meta.network)..)?;
    let asked = match layer.ethertype {
        EtherType::ARP => by_arp(packet)?,
        EtherType::IPV6 => by_discovery(packet, layer.header.src())?,
        _ => return None,
    };
    // Who has it itself says so, and asks nothing (RFC 5227, section 2.3).
    let is_genuine = asked.asker != asked.target && !asked.mac.is_multicast() && asked.mac != interface.mac;
    (is_genuine && interface.answers_for(asked.target)).then_some(asked)
}

fn by_arp(packet: &[u8]) -> Option<Question> {
    let packet = arp::parse(packet).ok()?;
    (packet.operation() == arp::Operation::REQUEST).then(|| Question {
        target: Address::v4(packet.target_ip().to_bits()),
        asker: Address::v4(packet.sender_ip().to_bits()),
        mac: packet.sender_mac(),
    })
}

/// RFC 4861, section 7.1.1. `parse` has seen to the hop limit.
fn by_discovery(packet: &[u8], from: Mac) -> Option<Question> {
    let packet = ipv6::parse(packet).ok()?;
    if packet.protocol() != Protocol::ICMPV6
        || packet.extensions.fragment.is_some()
        || packet.header.hop_limit() != 255
    {
        return None;
    }
    let (source, destination) = (packet.header.src(), packet.header.dst());
    let pseudo = Sum::pseudo_v6(source, destination, Protocol::ICMPV6, packet.payload.len() as u32);
    let message = icmpv6::parse_verified(packet.payload, pseudo).ok()?;
    let Some(Ok(Discovery::NeighborSolicitation { target, options })) = message.discovery() else {
        return None;
    };
    let named = options.source_link_layer().ok()?;
    if message.header.code() != 0
        || (source.is_unspecified() && (named.is_some() || !destination.is_multicast()))
    {
        return None;
    }
    Some(Question {
        target: Address::v6(target.to_bits()),
        asker: Address::v6(source.to_bits()),
        mac: named.unwrap_or(from),
    })
}

/// Turns a question into its answer, which goes back by the interface that it came in by.
pub(super) fn answer<T: Tally>(frame: &mut Frame, cx: &Cx<'_, T>) -> Option<()> {
    let interface = cx.tables.interface(frame.meta.ingress)?;
    let asked = question(frame, interface)?;
    let mut link = ArrayVec::<u8, MOST_LINK>::new();
    link.try_extend_from_slice(frame.bytes().get(..usize::from(frame.meta.network))?).ok()?;
    let is_probe = asked.asker.bits == 0;
    let mut packet = ArrayVec::<u8, { IPV6 + ADVERTISEMENT }>::new();
    let to = if asked.target.v6 {
        let to = if is_probe { Address::v6(ALL_NODES) } else { asked.asker };
        let solicited = if is_probe { AdvertisementFlags(0) } else { AdvertisementFlags::SOLICITED };
        packet.try_extend_from_slice(&advertisement(asked.target, to, interface.mac, solicited)).ok()?;
        if is_probe { ALL_NODES_MAC } else { asked.mac }
    } else {
        let reply = arp::Fields {
            operation: arp::Operation::REPLY,
            sender_mac: interface.mac,
            sender_ip: (asked.target.bits as u32).into(),
            target_mac: asked.mac,
            target_ip: (asked.asker.bits as u32).into(),
        };
        packet.try_extend_from_slice(&reply.to_bytes()).ok()?;
        asked.mac
    };
    link.get_mut(..6)?.copy_from_slice(&to.0);
    link.get_mut(6..12)?.copy_from_slice(&interface.mac.0);
    frame.truncate(0);
    frame.push_front(packet.len())?.copy_from_slice(&packet);
    frame.push_front(link.len())?.copy_from_slice(&link);
    frame.meta.end = frame.len() as u16;
    frame.meta.egress = frame.meta.ingress;
    Some(())
}

/// An advertisement (RFC 4861, section 4.4), behind its IPv6 header.
fn advertisement(
    target: Address,
    to: Address,
    mac: Mac,
    solicited: AdvertisementFlags,
) -> [u8; IPV6 + ADVERTISEMENT] {
    let mut bytes = [0; IPV6 + ADVERTISEMENT];
    let (head, message) = bytes.split_at_mut(IPV6);
    if let Some(mut header) = ipv6::HeaderMut::of(head) {
        header.set_first_word(0, 0);
        header.set_payload_len(ADVERTISEMENT as u16);
        header.set_next_header(Protocol::ICMPV6);
        header.set_hop_limit(255);
        header.set_src(target.bits.into());
        header.set_dst(to.bits.into());
    }
    message[0] = icmpv6::Type::NEIGHBOR_ADVERTISEMENT.0;
    message[4] = solicited.and(AdvertisementFlags::OVERRIDE).0;
    message[8..24].copy_from_slice(&target.bits.to_be_bytes());
    // The target's link-layer address, in units of 8 bytes.
    message[24..26].copy_from_slice(&[2, 1]);
    message[26..].copy_from_slice(&mac.0);
    let pseudo = Sum::pseudo_v6(target.bits.into(), to.bits.into(), Protocol::ICMPV6, ADVERTISEMENT as u32);
    let checksum = pseudo.and(message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// A frame that tells everybody on a link that an address is the interface's: a gratuitous ARP request (RFC 5227, section 3),
/// or an unsolicited advertisement (RFC 4861, section 7.2.6). Without tags.
pub fn announcement(address: Address, mac: Mac) -> ArrayVec<u8, { 14 + IPV6 + ADVERTISEMENT }> {
    let mut frame = ArrayVec::new();
    let (to, ethertype) =
        if address.v6 { (ALL_NODES_MAC, EtherType::IPV6) } else { (Mac::BROADCAST, EtherType::ARP) };
    let kind = ethertype.0.to_be_bytes();
    let own = std::net::Ipv4Addr::from_bits(address.bits as u32);
    let claim = arp::Fields {
        operation: arp::Operation::REQUEST,
        sender_mac: mac,
        sender_ip: own,
        target_mac: Mac::ZERO,
        target_ip: own,
    };
    frame.extend(to.0.into_iter().chain(mac.0).chain(kind));
    if address.v6 {
        frame.extend(advertisement(address, Address::v6(ALL_NODES), mac, AdvertisementFlags(0)));
    } else {
        frame.extend(claim.to_bytes());
    }
    frame
}
