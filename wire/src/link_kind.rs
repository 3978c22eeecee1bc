//! Kinds of links: Ethernet, and those that carry bare IP packets (tun, PPP, WireGuard, IP tunnels).
//!
//! The pipeline takes only frames with an Ethernet header. A packet of a link without one gets a stand-in header on
//! receipt, which is removed on transmission; such a link neither receives nor sends packets other than IP.

use crate::capture::link::NOBODY;
use crate::ethernet::{self, EtherType, HEADER_LEN, Mac};

/// Header at the start of a link's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IP header.
    Ip,
}

/// Link-layer address of the gateway in a stand-in: locally administered, of nobody.
pub const NEAR: Mac = Mac([0x02, 0, 0, 0, 0, 0x02]);

/// Link-layer address of the other end in a stand-in.
pub const FAR: Mac = NOBODY;

/// Bytes of a stand-in.
pub const STAND_IN: usize = HEADER_LEN;

/// Stand-in of a received packet; `None` if it is no IP packet.
#[inline]
pub fn received(packet: &[u8]) -> Option<[u8; STAND_IN]> {
    stand_in(NEAR, FAR, packet)
}

/// Stand-in of a packet that the gateway itself sends; `None` if it is no IP packet.
pub fn originated(packet: &[u8]) -> Option<[u8; STAND_IN]> {
    stand_in(FAR, NEAR, packet)
}

#[inline(always)]
fn stand_in(destination: Mac, source: Mac, packet: &[u8]) -> Option<[u8; STAND_IN]> {
    let kind = match packet.first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    Some(header(destination, source, kind))
}

/// Stand-in of a received packet whose link says its protocol.
pub fn received_as(kind: EtherType) -> [u8; STAND_IN] {
    header(NEAR, FAR, kind)
}

#[inline(always)]
fn header(destination: Mac, source: Mac, EtherType(kind): EtherType) -> [u8; STAND_IN] {
    let mut header = [0; STAND_IN];
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    header[12..].copy_from_slice(&kind.to_be_bytes());
    header
}

/// An IP packet behind its stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bare<'a> {
    /// IP version, or PPP, as an Ethernet type.
    pub ethertype: EtherType,
    /// The packet, from the IP header on.
    pub packet: &'a [u8],
}

/// The packet behind a stand-in; `None` for a frame that a link without Ethernet cannot carry.
#[inline]
pub fn bare(frame: &[u8]) -> Option<Bare<'_>> {
    let (header, packet) = frame.split_first_chunk::<STAND_IN>()?;
    let ethertype = EtherType(u16::from_be_bytes([header[12], header[13]]));
    let is_ip = matches!(ethertype, EtherType::IPV4 | EtherType::IPV6) && !packet.is_empty();
    is_ip.then_some(Bare { ethertype, packet })
}

/// The packet behind a stand-in, which an ATM channel carries: of IP, or of PPP from its protocol field on; `None` for any other frame.
pub fn routed(frame: &[u8]) -> Option<Bare<'_>> {
    let (header, packet) = frame.split_first_chunk::<STAND_IN>()?;
    let is_ppp = header[12..] == EtherType::PPP.0.to_be_bytes() && !packet.is_empty();
    if is_ppp { Some(Bare { ethertype: EtherType::PPP, packet }) } else { bare(frame) }
}

/// Bytes in front of the IP packet of a frame, tags included, which a capture of bare packets omits.
pub fn header_len(frame: &[u8]) -> usize {
    ethernet::parse(frame).map_or(frame.len().min(STAND_IN), |layer| layer.payload_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_back_from_behind_its_stand_in() {
        for (first, ethertype) in [(0x45, EtherType::IPV4), (0x60, EtherType::IPV6)] {
            let packet = [first, 1, 2, 3];
            for header in [received(&packet), originated(&packet)] {
                let frame = [&header.unwrap()[..], &packet].concat();
                assert_eq!(bare(&frame), Some(Bare { ethertype, packet: &packet }));
                assert_eq!(header_len(&frame), STAND_IN);
            }
        }
    }

    #[test]
    fn the_stand_in_says_whom_the_packet_is_for() {
        let header = received(&[0x45]).unwrap();
        assert_eq!((&header[..6], &header[6..12]), (&NEAR.0[..], &FAR.0[..]));
        let header = originated(&[0x45]).unwrap();
        assert_eq!((&header[..6], &header[6..12]), (&FAR.0[..], &NEAR.0[..]));
    }

    #[test]
    fn what_is_no_ip_packet_neither_comes_nor_goes() {
        assert_eq!(received(&[]), None);
        assert_eq!(received(&[0x00, 0x45]), None);
        assert_eq!(received(&[0x55]), None);
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(bare(&frame), None);
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(bare(&frame), None);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        assert_eq!(bare(&frame[..14]), None);
        assert_eq!(bare(&frame[..13]), None);
    }

    #[test]
    fn tags_are_counted_with_the_header() {
        let mut frame = [0; 60];
        frame[12..18].copy_from_slice(&[0x81, 0x00, 0x00, 0x14, 0x08, 0x00]);
        assert_eq!(header_len(&frame), 18);
        assert_eq!(header_len(&frame[..9]), 9);
    }
}
