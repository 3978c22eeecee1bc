//! Link types, and the Ethernet header for packets captured without one.
//!
//! Numbers and layouts are those of the tcpdump group's registry (draft-ietf-opsawg-pcaplinktype). Nothing here fails:
//! a packet too short for its link-layer header becomes an empty frame, which the parser reports as too short.

use std::fmt;
use std::net::IpAddr;

use self::atm::Content;
use super::Record;
use crate::atm::{CELL_LEN, FRAME_LEN, PAYLOAD_LEN};
use crate::ethernet::{EtherType, HEADER_LEN, Mac};
use crate::{ipv4, ipv6};

pub(crate) mod atm;

/// Source address of packets captured without one: locally administered, assigned to nobody.
pub const NOBODY: Mac = Mac([0x02, 0, 0, 0, 0, 0x01]);

const IPV4: u16 = EtherType::IPV4.0;
const IPV6: u16 = EtherType::IPV6.0;
/// Reserved Ethernet type for payloads that have none, so that no protocol is mistaken for another.
const NO_TYPE: u16 = 0xffff;

/// Link-layer header type of packets, by its number in capture files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: an address family in the byte order of the machine that captured.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// Raw IP, as most BSDs number it.
    pub const RAW_BSD: LinkType = LinkType(12);
    /// Raw IP, as OpenBSD numbers it.
    pub const RAW_OPENBSD: LinkType = LinkType(14);
    /// PDU of AAL5, from its LLC header on.
    pub const ATM_RFC1483: LinkType = LinkType(100);
    /// Raw IP: an IPv4 or IPv6 header comes first.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: an address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked, version 1: captured on "any", or where there is no useful header.
    pub const COOKED: LinkType = LinkType(113);
    /// PDU of AAL5 behind a header with its virtual channel.
    pub const SUNATM: LinkType = LinkType(123);
    /// Record of an Endace card: Ethernet frames and ATM cells are read.
    pub const ERF: LinkType = LinkType(197);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked, version 2.
    pub const COOKED_V2: LinkType = LinkType(276);

    /// True if [`to_ethernet`] can convert packets of this type.
    pub fn is_supported(self) -> bool {
        matches!(
            self,
            LinkType::NULL
                | LinkType::ETHERNET
                | LinkType::RAW_BSD
                | LinkType::RAW_OPENBSD
                | LinkType::ATM_RFC1483
                | LinkType::SUNATM
                | LinkType::ERF
                | LinkType::RAW
                | LinkType::LOOP
                | LinkType::COOKED
                | LinkType::IPV4
                | LinkType::IPV6
                | LinkType::COOKED_V2
        )
    }

    /// Name of the link type, for the common ones.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "link type {} ({name})", self.0),
            None => write!(f, "link type {}", self.0),
        }
    }
}

const NAMES: [(u16, &str); 55] = [
    (0, "BSD loopback"),
    (1, "Ethernet"),
    (3, "AX.25"),
    (6, "IEEE 802.5 token ring"),
    (7, "ARCNET, BSD"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (12, "raw IP"),
    (14, "raw IP"),
    (50, "PPP in HDLC-like framing"),
    (51, "PPPoE"),
    (99, "Symantec firewall"),
    (100, "RFC 1483 ATM"),
    (101, "raw IP"),
    (104, "Cisco HDLC"),
    (105, "IEEE 802.11"),
    (107, "frame relay"),
    (108, "OpenBSD loopback"),
    (113, "Linux cooked"),
    (114, "LocalTalk"),
    (117, "OpenBSD pflog"),
    (119, "IEEE 802.11 with Prism header"),
    (122, "IP over Fibre Channel"),
    (123, "SunATM"),
    (127, "IEEE 802.11 with radiotap header"),
    (129, "Linux ARCNET"),
    (138, "IP over IEEE 1394"),
    (140, "MTP2"),
    (141, "MTP3"),
    (142, "SCCP"),
    (143, "DOCSIS"),
    (144, "Linux IrDA"),
    (147, "private use 0"),
    (163, "IEEE 802.11 with AVS header"),
    (166, "PPP of pppd"),
    (177, "Linux LAPD"),
    (187, "Bluetooth HCI H4"),
    (189, "Linux USB"),
    (192, "PPI"),
    (195, "IEEE 802.15.4"),
    (197, "Endace ERF"),
    (201, "Bluetooth HCI H4 with direction"),
    (204, "PPP with direction"),
    (220, "Linux USB, memory-mapped"),
    (227, "SocketCAN"),
    (228, "raw IPv4"),
    (229, "raw IPv6"),
    (230, "IEEE 802.15.4 without FCS"),
    (239, "Linux netfilter log"),
    (249, "USBPcap"),
    (251, "Bluetooth low energy"),
    (252, "Wireshark upper PDU"),
    (253, "Linux netlink"),
    (276, "Linux cooked, version 2"),
];

/// Returns the packet as the interface with hardware address `receiver` would have received it over Ethernet. `scratch`
/// holds the bytes of a rewritten packet.
///
/// Ethernet passes untouched. Other packets get `receiver` as destination (or the broadcast or multicast address, if a
/// cooked header says so), [`NOBODY`] as source unless a cooked header has the address, and an Ethernet type from the
/// cooked header, the address family or the IP version. Frames bridged over ATM have headers of their own, and cells a
/// [stand-in](crate::atm::stand_in). [`Record::original_len`] changes with the header.
pub fn to_ethernet<'a>(record: Record<'a>, receiver: Mac, scratch: &'a mut Vec<u8>) -> Record<'a> {
    let bytes = record.bytes;
    let parts = match record.link {
        LinkType::NULL => family(bytes, FamilyOrder::Either),
        LinkType::LOOP => family(bytes, FamilyOrder::Network),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => {
            Some(Parts::of(by_version(bytes), bytes))
        }
        LinkType::IPV4 => Some(Parts::of(IPV4, bytes)),
        LinkType::IPV6 => Some(Parts::of(IPV6, bytes)),
        LinkType::COOKED => cooked(bytes),
        LinkType::COOKED_V2 => cooked_v2(bytes),
        LinkType::ATM_RFC1483 | LinkType::SUNATM | LinkType::ERF => {
            let content = match record.link {
                LinkType::ATM_RFC1483 => atm::rfc1483(bytes),
                LinkType::SUNATM => atm::sunatm(bytes),
                _ => atm::erf(bytes),
            };
            match content {
                Content::Packet(parts) => parts,
                Content::Frame(frame) => return frame_of(record, frame),
                Content::Cell(header, payload) => return cell_of(record, header, payload, scratch),
            }
        }
        _ => return record,
    };
    scratch.clear();
    let Some(parts) = parts else {
        return Record { link: LinkType::ETHERNET, bytes: scratch, ..record };
    };
    let destination = match parts.cast {
        Cast::Unicast => receiver,
        Cast::Broadcast => Mac::BROADCAST,
        Cast::Multicast => multicast(parts.protocol, parts.payload),
    };
    let old_header = bytes.len() - parts.payload.len();
    let original_len = (record.original_len as usize).saturating_sub(old_header).saturating_add(HEADER_LEN);
    // Numbers below 0x600 are Linux's own for frames with a length in this place.
    let kind = match parts.protocol {
        0..0x600 => parts.payload.len().min(1500) as u16,
        kind => kind,
    };
    scratch.extend_from_slice(&destination.0);
    scratch.extend_from_slice(&parts.source.unwrap_or(NOBODY).0);
    scratch.extend_from_slice(&kind.to_be_bytes());
    scratch.extend_from_slice(parts.payload);
    Record {
        link: LinkType::ETHERNET,
        bytes: scratch,
        original_len: u32::try_from(original_len).unwrap_or(u32::MAX),
        ..record
    }
}

/// The record of an Ethernet frame within another record's bytes.
fn frame_of<'a>(record: Record<'a>, frame: &'a [u8]) -> Record<'a> {
    let before = (record.bytes.len() - frame.len()) as u32;
    let original_len = record.original_len.saturating_sub(before);
    Record { link: LinkType::ETHERNET, bytes: frame, original_len, ..record }
}

/// The record of a cell, behind its stand-in.
fn cell_of<'a>(
    record: Record<'a>,
    header: [u8; crate::atm::HEADER_LEN],
    payload: &[u8],
    scratch: &'a mut Vec<u8>,
) -> Record<'a> {
    let mut cell = [0; CELL_LEN];
    let (place, behind) = cell.split_at_mut(header.len());
    place.copy_from_slice(&header);
    behind.iter_mut().zip(payload).for_each(|(place, byte)| *place = *byte);
    scratch.clear();
    scratch.extend_from_slice(&crate::atm::stand_in(&cell));
    // A cell that a snap length has cut is short.
    scratch.truncate(FRAME_LEN - PAYLOAD_LEN + payload.len());
    Record { link: LinkType::ETHERNET, bytes: scratch, original_len: FRAME_LEN as u32, ..record }
}

/// Fields of a link-layer header.
struct Parts<'a> {
    protocol: u16,
    source: Option<Mac>,
    cast: Cast,
    payload: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(protocol: u16, payload: &'a [u8]) -> Parts<'a> {
        Parts { protocol, source: None, cast: Cast::Unicast, payload }
    }
}

enum Cast {
    Unicast,
    Broadcast,
    Multicast,
}

impl Cast {
    /// Linux's `sll_pkttype`.
    fn of(kind: u16) -> Cast {
        match kind {
            1 => Cast::Broadcast,
            2 => Cast::Multicast,
            _ => Cast::Unicast,
        }
    }
}

/// Ethernet type by the version field of an IP header.
fn by_version(packet: &[u8]) -> u16 {
    match packet.first().map(|first| first >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => NO_TYPE,
    }
}

enum FamilyOrder {
    /// The byte order that gives the smaller number: address families are small.
    Either,
    Network,
}

/// The loopback header: four bytes of address family. IPv6 has another number on nearly every system.
fn family(bytes: &[u8], order: FamilyOrder) -> Option<Parts<'_>> {
    let (header, payload) = bytes.split_first_chunk::<4>()?;
    let family = match order {
        FamilyOrder::Network => u32::from_be_bytes(*header),
        FamilyOrder::Either => u32::from_be_bytes(*header).min(u32::from_le_bytes(*header)),
    };
    let protocol = match family {
        2 => IPV4,
        // Linux, Windows, NetBSD and OpenBSD, FreeBSD, Darwin.
        10 | 23 | 24 | 28 | 30 => IPV6,
        _ => NO_TYPE,
    };
    Some(Parts::of(protocol, payload))
}

/// Type of packet, type of hardware, length of address, address in eight bytes, protocol: all two bytes.
fn cooked(bytes: &[u8]) -> Option<Parts<'_>> {
    let (header, payload) = bytes.split_first_chunk::<16>()?;
    let [k0, k1, _, _, l0, l1, address @ .., p0, p1] = header;
    Some(Parts {
        protocol: u16::from_be_bytes([*p0, *p1]),
        source: hardware(u16::from_be_bytes([*l0, *l1]), address),
        cast: Cast::of(u16::from_be_bytes([*k0, *k1])),
        payload,
    })
}

/// Protocol (2), reserved (2), interface (4), type of hardware (2), type of packet (1), length of address
/// (1), address (8).
fn cooked_v2(bytes: &[u8]) -> Option<Parts<'_>> {
    let (header, payload) = bytes.split_first_chunk::<20>()?;
    let [p0, p1, _, _, _, _, _, _, _, _, kind, length, address @ ..] = header;
    Some(Parts {
        protocol: u16::from_be_bytes([*p0, *p1]),
        source: hardware(u16::from(*length), address),
        cast: Cast::of(u16::from(*kind)),
        payload,
    })
}

/// The sender's address, if it is one of Ethernet's length and not all zero, as on a loopback interface.
fn hardware(length: u16, address: &[u8; 8]) -> Option<Mac> {
    let address = *address.first_chunk::<6>()?;
    (length == 6 && address != [0; 6]).then_some(Mac(address))
}

/// The Ethernet address of the group that an IP packet is for; a group of no protocol if the packet does not say.
fn multicast(protocol: u16, packet: &[u8]) -> Mac {
    let group: Option<IpAddr> = match protocol {
        IPV4 => ipv4::Header::of(packet).map(|header| header.dst().into()),
        IPV6 => ipv6::Header::of(packet).map(|header| header.dst().into()),
        _ => None,
    };
    group.map_or(Mac([0x01, 0, 0, 0, 0, 0]), Mac::of_group)
}

#[cfg(test)]
mod tests;
