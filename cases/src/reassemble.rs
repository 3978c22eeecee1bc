//! Puts the fragments that came out together again, and verifies the transport checksum of each whole datagram:
//! a translation that gets the first fragment's checksum wrong shows nowhere else.

use std::collections::BTreeMap;
use std::net::IpAddr;

use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::header::{Fragment, Protocol};
use wire::{ethernet, ipv4, ipv6, udp};

/// Datagrams of which some fragments came out.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    datagrams: BTreeMap<(IpAddr, IpAddr, u32, u8), Datagram>,
}

#[derive(Debug, Default)]
struct Datagram {
    /// Bytes of each fragment, by offset in bytes.
    pieces: BTreeMap<u16, Vec<u8>>,
    /// Length in bytes, once the last fragment has come.
    len: Option<usize>,
}

/// Fault of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Wrong transport checksum.
    Checksum,
}

impl Reassembly {
    /// Takes a frame that was sent; returns the fault of the datagram that it completes, if any.
    pub(crate) fn add(&mut self, frame: &[u8]) -> Option<Wrong> {
        let layer = ethernet::parse(frame).ok()?;
        let (ends, protocol, fragment, payload) = match layer.ethertype {
            EtherType::IPV4 => {
                let packet = ipv4::parse(layer.payload).ok()?;
                let ends = (IpAddr::V4(packet.header.src()), IpAddr::V4(packet.header.dst()));
                (ends, packet.header.protocol(), packet.header.fragment()?, packet.payload)
            }
            EtherType::IPV6 => {
                let packet = ipv6::parse(layer.payload).ok()?;
                let ends = (IpAddr::V6(packet.header.src()), IpAddr::V6(packet.header.dst()));
                (ends, packet.protocol(), packet.extensions.fragment?.fragment, packet.payload)
            }
            _ => return None,
        };
        let key = (ends.0, ends.1, fragment.id, protocol.0);
        let whole = self.datagrams.entry(key).or_default().with(fragment, payload)?;
        self.datagrams.remove(&key);
        let mut whole = whole;
        let udp = udp::Header::of(&whole).filter(|_| protocol == Protocol::UDP);
        let udp_without = udp.is_some_and(|header| header.checksum() == 0);
        // What follows a datagram that ends before its packet is not covered (RFC 768).
        let covered = udp.map_or(whole.len(), |header| usize::from(header.length()));
        whole.truncate(covered);
        let length = whole.len();
        let pseudo = match (ends, protocol) {
            ((IpAddr::V4(_), _), Protocol::ICMP) => Sum::ZERO,
            ((IpAddr::V4(from), IpAddr::V4(to)), Protocol::TCP | Protocol::UDP) => {
                Sum::pseudo_v4(from, to, protocol, length as u16)
            }
            ((IpAddr::V6(from), IpAddr::V6(to)), Protocol::TCP | Protocol::UDP | Protocol::ICMPV6) => {
                Sum::pseudo_v6(from, to, protocol, length as u32)
            }
            _ => return None,
        };
        (!udp_without && !pseudo.and(&whole).verifies()).then_some(Wrong::Checksum)
    }
}

impl Datagram {
    /// The whole payload, if this piece was the last that was missing.
    fn with(&mut self, fragment: Fragment, payload: &[u8]) -> Option<Vec<u8>> {
        if !fragment.more {
            self.len = Some(usize::from(fragment.offset) + payload.len());
        }
        self.pieces.insert(fragment.offset, payload.to_vec());
        let mut whole = Vec::new();
        for (offset, piece) in &self.pieces {
            if usize::from(*offset) != whole.len() {
                return None;
            }
            whole.extend(piece);
        }
        (self.len == Some(whole.len())).then_some(whole)
    }
}
