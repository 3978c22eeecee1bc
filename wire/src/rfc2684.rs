//! Multiprotocol encapsulation over AAL5 (RFC 2684, before it RFC 1483): IP packets and Ethernet frames in PDUs.
//!
//! An LLC and SNAP header in front of each PDU says what is in it, or the virtual channel does, and there is none (VC multiplexing).
//! Packets are routed, from their IP header on, or bridged, from their Ethernet header on: of a channel with VC multiplexing both ends
//! know which; on one with LLC both ends still must agree, since a host cannot answer in the other form.

use std::fmt;

use crc::{CRC_32_ISO_HDLC, Crc, Table};

use crate::aal5::{self, TRAILER_LEN};
use crate::atm::Vc;
use crate::ethernet;
use crate::ethertype::EtherType;
use crate::link_kind::{self, LinkKind, STAND_IN};
use crate::unit::Bytes;
use crate::vlan::TAG_LEN;

/// Encapsulation of the packets of a virtual channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// LLC and SNAP in front of each packet (section 5).
    #[default]
    Llc,
    /// VC multiplexing: the channel carries packets of one kind alone (section 6).
    VcMux,
}

/// Virtual channel of a link, and the encapsulation of its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The channel.
    pub vc: Vc,
    /// Encapsulation of its packets.
    pub encapsulation: Encapsulation,
}

impl Channel {
    /// Longest payload of a PDU, in bytes: of an IP packet of `mtu` bytes, on a bridged link in a frame with two VLAN tags and a check
    /// sequence.
    pub fn longest(self, kind: LinkKind, mtu: u16) -> usize {
        let frame = match kind {
            LinkKind::Ip => 0,
            LinkKind::Ethernet => ethernet::HEADER_LEN + 2 * TAG_LEN + FCS_LEN,
        };
        MOST_HEAD + frame + usize::from(mtu)
    }

    /// Returns what the PDU that carries a frame begins with, and the packet in it: on a bridged link the frame itself, else what is behind its
    /// stand-in. `None` for a frame that a link without Ethernet cannot carry.
    pub fn pdu(self, kind: LinkKind, frame: &[u8]) -> Option<(Head, &[u8])> {
        let bare = link_kind::routed(frame);
        let packet = match kind {
            LinkKind::Ethernet => frame,
            LinkKind::Ip => bare?.packet,
        };
        let ethertype = bare.map_or(EtherType::default(), |bare| bare.ethertype);
        Some((Head::new(self.encapsulation, kind, ethertype), packet))
    }

    /// Number of cells of the PDU that carries a frame of `bytes` bytes with that type, on a link of bare packets with the
    /// [stand-in](STAND_IN) among them.
    pub fn cells(self, kind: LinkKind, ethertype: EtherType, bytes: usize) -> usize {
        let stand_in = if kind == LinkKind::Ip { STAND_IN } else { 0 };
        let head = Head::new(self.encapsulation, kind, ethertype);
        aal5::cells(bytes.saturating_sub(stand_in) + head.bytes().len())
    }

    /// Bytes that each packet (on a bridged link, frame) takes in its cells beside its own: encapsulation and AAL5 trailer.
    pub fn overhead(self, kind: LinkKind) -> Bytes {
        Bytes((Head::new(self.encapsulation, kind, EtherType::IPV4).bytes().len() + TRAILER_LEN) as u64)
    }

    /// The same of each PPP packet from its protocol field on (RFC 2364).
    pub fn ppp_overhead(self) -> Bytes {
        let head = Head::new(self.encapsulation, LinkKind::Ip, EtherType::PPP);
        Bytes((head.bytes().len() + TRAILER_LEN) as u64)
    }
}

/// Most bytes in front of a packet: LLC, SNAP, and the padding of a bridged frame.
pub const MOST_HEAD: usize = 10;

/// Bytes of the check sequence behind a bridged frame that kept its own.
pub const FCS_LEN: usize = 4;

/// Packet in a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Routed: an IP packet of that version; or a PPP packet from its protocol field on.
    Ip(EtherType, &'a [u8]),
    /// Bridged: an Ethernet frame without its check sequence.
    Ethernet(&'a [u8]),
}

/// Failure to find a packet in a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// Neither IP nor an Ethernet frame behind an LLC and SNAP header, or behind none; or the PDU ends within its header.
    #[error("the PDU carries neither IP nor Ethernet as RFC 2684 has them")]
    Encapsulation,
    /// The bridged frame has its check sequence, and that is wrong.
    #[error("the check sequence of the bridged frame is wrong")]
    Fcs,
}

/// LLC of SNAP, and the organisation of EtherTypes (section 5.1).
const ROUTED: [u8; 6] = [0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00];
/// LLC of SNAP, the organisation IEEE 802.1, and the protocol identifier of Ethernet with its check sequence (section 5.2).
const BRIDGED_FCS: [u8; 8] = [0xaa, 0xaa, 0x03, 0x00, 0x80, 0xc2, 0x00, 0x01];
/// The same without it.
const BRIDGED: [u8; 8] = [0xaa, 0xaa, 0x03, 0x00, 0x80, 0xc2, 0x00, 0x07];
/// LLC of PPP: the network layer protocol identifier 0xcf (RFC 2364, section 6).
const PPP: [u8; 4] = [0xfe, 0xfe, 0x03, 0xcf];
/// Bytes that align a bridged frame; their value is ignored.
pub const PAD_LEN: usize = 2;

static FCS: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// Bytes in front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; MOST_HEAD],
    len: u8,
}

impl Head {
    /// Header of packets from a link of a kind: a packet of EtherType `ethertype` on a link of IP, else a bridged frame without its check
    /// sequence. Empty for routed packets with VC multiplexing.
    pub fn new(encapsulation: Encapsulation, kind: LinkKind, ethertype: EtherType) -> Head {
        match (encapsulation, kind) {
            (Encapsulation::Llc, LinkKind::Ip) if ethertype == EtherType::PPP => Head::of(&[&PPP]),
            (Encapsulation::Llc, LinkKind::Ip) => Head::of(&[&ROUTED, &ethertype.0.to_be_bytes()]),
            (Encapsulation::Llc, LinkKind::Ethernet) => Head::of(&[&BRIDGED, &[0; PAD_LEN]]),
            (Encapsulation::VcMux, LinkKind::Ip) => Head::of(&[]),
            (Encapsulation::VcMux, LinkKind::Ethernet) => Head::of(&[&[0; PAD_LEN]]),
        }
    }

    fn of(parts: &[&[u8]]) -> Head {
        let mut bytes = [0; MOST_HEAD];
        let flat = parts.iter().flat_map(|part| part.iter());
        let len = bytes.iter_mut().zip(flat).map(|(place, byte)| *place = *byte).count();
        Head { bytes, len: len as u8 }
    }

    /// The header's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Finds the packet in a PDU of a virtual channel.
///
/// # Errors
/// The PDU is of another encapsulation, or of none that is known; or the check sequence of a bridged frame is wrong.
pub fn payload(pdu: &[u8], encapsulation: Encapsulation, kind: LinkKind) -> Result<Payload<'_>, Fault> {
    match (encapsulation, kind) {
        (Encapsulation::VcMux, LinkKind::Ip) => by_version(pdu),
        (Encapsulation::VcMux, LinkKind::Ethernet) => {
            unpadded(pdu).map(Payload::Ethernet).ok_or(Fault::Encapsulation)
        }
        (Encapsulation::Llc, kind) => match (llc(pdu).ok_or(Fault::Encapsulation)?, kind) {
            (Llc::Routed(kind @ (EtherType::IPV4 | EtherType::IPV6), packet), LinkKind::Ip) => {
                Ok(Payload::Ip(kind, packet))
            }
            (Llc::Bridged(frame), LinkKind::Ethernet) => Ok(Payload::Ethernet(frame)),
            (Llc::BridgedFcs(frame), LinkKind::Ethernet) => without_fcs(frame).map(Payload::Ethernet),
            _ => Err(Fault::Encapsulation),
        },
    }
}

/// Finds the PPP packet, from its protocol field on, in a PDU of a virtual channel that carries PPP (RFC 2364, section 5 and 6).
///
/// # Errors
/// The PDU is of another encapsulation.
pub fn ppp(pdu: &[u8], encapsulation: Encapsulation) -> Result<&[u8], Fault> {
    match encapsulation {
        Encapsulation::VcMux => Ok(pdu),
        Encapsulation::Llc => pdu.strip_prefix(&PPP).ok_or(Fault::Encapsulation),
    }
}

/// Content of a PDU with an LLC and SNAP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Llc<'a> {
    /// Routed packet of that EtherType; of PPP from its protocol field on (RFC 2364).
    Routed(EtherType, &'a [u8]),
    /// Bridged Ethernet frame without its check sequence.
    Bridged(&'a [u8]),
    /// Bridged Ethernet frame with its check sequence behind.
    BridgedFcs(&'a [u8]),
}

/// Returns what is behind an LLC and SNAP header; `None` for another header, or a frame shorter than its own.
pub fn llc(pdu: &[u8]) -> Option<Llc<'_>> {
    if let Some(routed) = pdu.strip_prefix(&ROUTED) {
        let (kind, packet) = routed.split_first_chunk::<2>()?;
        return Some(Llc::Routed(EtherType(u16::from_be_bytes(*kind)), packet));
    }
    if let Some(packet) = pdu.strip_prefix(&PPP) {
        return Some(Llc::Routed(EtherType::PPP, packet));
    }
    if let Some(padded) = pdu.strip_prefix(&BRIDGED) {
        return unpadded(padded).map(Llc::Bridged);
    }
    unpadded(pdu.strip_prefix(&BRIDGED_FCS)?).map(Llc::BridgedFcs)
}

/// A bridged frame without its check sequence, which has been verified.
fn without_fcs(frame: &[u8]) -> Result<&[u8], Fault> {
    let (frame, fcs) = frame.split_last_chunk::<FCS_LEN>().ok_or(Fault::Encapsulation)?;
    if frame.len() < ethernet::HEADER_LEN {
        return Err(Fault::Encapsulation);
    }
    if FCS.checksum(frame) == u32::from_le_bytes(*fcs) { Ok(frame) } else { Err(Fault::Fcs) }
}

/// An Ethernet frame behind its padding.
fn unpadded(padded: &[u8]) -> Option<&[u8]> {
    padded.get(PAD_LEN..).filter(|frame| frame.len() >= ethernet::HEADER_LEN)
}

/// An IP packet with nothing in front, by the version in its header.
fn by_version(pdu: &[u8]) -> Result<Payload<'_>, Fault> {
    match pdu.first().map(|first| first >> 4) {
        Some(4) => Ok(Payload::Ip(EtherType::IPV4, pdu)),
        Some(6) => Ok(Payload::Ip(EtherType::IPV6, pdu)),
        _ => Err(Fault::Encapsulation),
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Encapsulation::Llc => "llc",
            Encapsulation::VcMux => "vc-mux",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IP: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    const LLC: Encapsulation = Encapsulation::Llc;
    const MUX: Encapsulation = Encapsulation::VcMux;

    fn hex(text: &str) -> Vec<u8> {
        text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    #[test]
    fn headers_are_those_of_the_rfc() {
        let head = |encapsulation, kind| Head::new(encapsulation, kind, EtherType::IPV6).bytes().to_vec();
        // Section 5.1, "Payload Format for Routed non-ISO PDUs", and 5.2, "Payload Format for Bridged Ethernet/802.3 PDUs".
        assert_eq!(head(LLC, LinkKind::Ip), hex("aa aa 03 00 00 00 86 dd"));
        assert_eq!(head(LLC, LinkKind::Ethernet), hex("aa aa 03 00 80 c2 00 07 00 00"));
        // Section 6.1 and 6.2.
        assert_eq!(head(MUX, LinkKind::Ip), hex(""));
        assert_eq!(head(MUX, LinkKind::Ethernet), hex("00 00"));
    }

    #[test]
    fn a_check_sequence_is_verified_and_taken_off() {
        // An ARP request of 60 bytes and the check sequence that Linux's crc32 gives for it.
        let mut frame = hex(
            "ff ff ff ff ff ff 00 10 a4 7b ea 80 08 06 00 01 08 00 06 04 00 01 00 10 a4 7b ea 80 c0 a8 01 01 \
             00 00 00 00 00 00 c0 a8 01 02",
        );
        frame.resize(60, 0);
        let fcs = by_division(&frame).to_le_bytes();
        let mut pdu = [&hex("aa aa 03 00 80 c2 00 01 00 00")[..], &frame, &fcs].concat();
        assert_eq!(payload(&pdu, LLC, LinkKind::Ethernet), Ok(Payload::Ethernet(&frame)));
        pdu[20] ^= 1;
        assert_eq!(payload(&pdu, LLC, LinkKind::Ethernet), Err(Fault::Fcs));
        assert_eq!(payload(&pdu[..28], LLC, LinkKind::Ethernet), Err(Fault::Fcs));
        assert_eq!(payload(&pdu[..27], LLC, LinkKind::Ethernet), Err(Fault::Encapsulation));
        assert_eq!(payload(&pdu[..23], LLC, LinkKind::Ethernet), Err(Fault::Encapsulation));
    }

    /// The check sequence of IEEE 802.3, bit by bit, lowest first.
    fn by_division(bytes: &[u8]) -> u32 {
        let mut rest = u32::MAX;
        for bit in bytes.iter().flat_map(|byte| (0..8).map(move |place| u32::from(byte >> place & 1))) {
            let carry = rest & 1 ^ bit;
            rest = rest >> 1 ^ if carry == 1 { 0xedb8_8320 } else { 0 };
        }
        !rest
    }

    #[test]
    fn what_is_not_ip_or_ethernet_has_a_fault() {
        let faults = [
            "",
            "aa aa 03",
            "aa aa 03 00 00 00 08",
            // ARP of classical IP over ATM, PPP (RFC 2364), ISO, a bridge's own PDU, token ring.
            "aa aa 03 00 00 00 08 06 00 13",
            "fe fe 03 cf c0 21 01",
            "fe fe 03 81 00",
            "aa aa 03 00 80 c2 00 0e 00 00 00",
            "aa aa 03 00 80 c2 00 03 00 00 00",
            "aa aa 03 00 80 c2 00 07 00 00 01 02 03",
        ];
        for text in faults {
            for kind in [LinkKind::Ip, LinkKind::Ethernet] {
                assert_eq!(payload(&hex(text), LLC, kind), Err(Fault::Encapsulation), "{text}");
            }
        }
        assert_eq!(payload(&[0x00, 0x21], MUX, LinkKind::Ip), Err(Fault::Encapsulation));
        assert_eq!(payload(&[], MUX, LinkKind::Ip), Err(Fault::Encapsulation));
        assert_eq!(payload(&[0; 15], MUX, LinkKind::Ethernet), Err(Fault::Encapsulation));
    }

    #[test]
    fn a_routed_packet_on_a_bridged_channel_has_a_fault_and_the_other_way_round() {
        let routed = [&hex("aa aa 03 00 00 00 08 00")[..], &IP].concat();
        assert_eq!(payload(&routed, LLC, LinkKind::Ip), Ok(Payload::Ip(EtherType::IPV4, &IP)));
        assert_eq!(payload(&routed, LLC, LinkKind::Ethernet), Err(Fault::Encapsulation));
        let bridged = [&hex("aa aa 03 00 80 c2 00 07 00 00")[..], &[0; 14], &IP].concat();
        assert_eq!(payload(&bridged, LLC, LinkKind::Ip), Err(Fault::Encapsulation));
        assert_eq!(payload(&bridged, LLC, LinkKind::Ethernet), Ok(Payload::Ethernet(&bridged[10..])));
    }

    proptest! {
        #[test]
        fn what_is_encapsulated_comes_back(
            is_llc: bool,
            is_v6: bool,
            mut packet in prop::collection::vec(any::<u8>(), 14..200),
        ) {
            let encapsulation = if is_llc { LLC } else { MUX };
            let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            packet[0] = if is_v6 { 0x60 } else { 0x45 };
            for kind in [LinkKind::Ip, LinkKind::Ethernet] {
                let pdu = [Head::new(encapsulation, kind, ethertype).bytes(), &packet].concat();
                let expected = match kind {
                    LinkKind::Ip => Payload::Ip(ethertype, &packet[..]),
                    LinkKind::Ethernet => Payload::Ethernet(&packet[..]),
                };
                prop_assert_eq!(payload(&pdu, encapsulation, kind), Ok(expected));
            }
        }

        #[test]
        fn no_bytes_are_too_odd(pdu in prop::collection::vec(any::<u8>(), 0..64)) {
            for kind in [LinkKind::Ip, LinkKind::Ethernet] {
                let _ = payload(&pdu, LLC, kind);
                let _ = payload(&pdu, MUX, kind);
            }
        }
    }
}
