//! Place of ESP in a packet of transport mode (RFC 4303, section 3.1.1): behind the IP header, and in IPv6 behind the extension headers that
//! nodes on the way read. Destination options are on either side: those in front of a routing header stay in clear, for the nodes that it
//! names, and all others are encrypted.

use crate::header::Protocol;
use crate::{ipv4, ipv6};

/// Headers in front of ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// Their bytes.
    pub len: u16,
    /// Place of the byte that names the protocol behind them.
    next_at: u16,
}

/// Reason why a packet has no place for ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its headers are malformed.
    Malformed,
    /// It is a fragment: whole datagrams are protected, and no others (RFC 4303, section 3.3.4).
    Fragment,
}

/// The header of IPv6 alone, and its field of the next header.
const FIXED_V6: Front = Front { len: ipv6::HEADER_LEN as u16, next_at: 6 };

/// Place of the protocol in a header of IPv4.
const PROTOCOL_AT: u16 = 9;

impl Front {
    /// Headers of a packet that stay in front of ESP.
    ///
    /// # Errors
    /// [`Unfit`]
    pub fn of(packet: &[u8]) -> Result<Front, Unfit> {
        if is_v4(packet) {
            let header = ipv4::parse_prefix(packet).map_err(|_| Unfit::Malformed)?.header;
            let front = Front { len: header.header_len() as u16, next_at: PROTOCOL_AT };
            return if header.is_fragment() { Err(Unfit::Fragment) } else { Ok(front) };
        }
        let extensions = ipv6::parse_prefix(packet).map_err(|_| Unfit::Malformed)?.extensions;
        if extensions.fragment.is_some_and(|found| !found.fragment.is_atomic()) {
            return Err(Unfit::Fragment);
        }
        let stays =
            |of: Protocol| matches!(of, Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT);
        let kept = Chain::of(packet).filter(|(protocol, _)| stays(*protocol)).last();
        Ok(kept.map_or(FIXED_V6, |(_, front)| front))
    }

    /// Headers of a packet that are so many bytes; `None` if no header ends there.
    pub fn ending_at(packet: &[u8], len: u16) -> Option<Front> {
        let own = match is_v4(packet) {
            true => Front { len: ipv4::Header::of(packet)?.header_len() as u16, next_at: PROTOCOL_AT },
            false => FIXED_V6,
        };
        let behind = || Chain::of(packet).map(|(_, front)| front).find(|front| front.len == len);
        if own.len == len { Some(own) } else { behind().filter(|_| !is_v4(packet)) }
    }

    /// Protocol of what is behind the headers of this packet.
    pub fn protocol(self, packet: &[u8]) -> Option<Protocol> {
        packet.get(usize::from(self.next_at)).copied().map(Protocol)
    }

    /// Writes into the headers of a packet, which ends where `packet` does, that all behind them is of this protocol: its number, the
    /// lengths, and the checksum of IPv4.
    pub fn lead_to(self, packet: &mut [u8], protocol: Protocol) {
        let len = packet.len() as u16;
        if is_v4(packet) {
            if let Some(mut header) = ipv4::HeaderMut::of(packet) {
                header.set_protocol(protocol);
                header.set_total_len(len);
            }
            ipv4::fill_checksum(packet);
            return;
        }
        if let Some(next) = packet.get_mut(usize::from(self.next_at)) {
            *next = protocol.0;
        }
        if let Some(mut header) = ipv6::HeaderMut::of(packet) {
            header.set_payload_len(len.saturating_sub(ipv6::HEADER_LEN as u16));
        }
    }
}

fn is_v4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 4)
}

/// Extension headers of a packet that has been parsed: the number of each, and all headers up to its end.
struct Chain<'a> {
    packet: &'a [u8],
    front: Front,
    left: usize,
}

impl Chain<'_> {
    fn of(packet: &[u8]) -> Chain<'_> {
        Chain { packet, front: FIXED_V6, left: ipv6::MAX_EXTENSIONS }
    }
}

impl Iterator for Chain<'_> {
    type Item = (Protocol, Front);

    fn next(&mut self) -> Option<(Protocol, Front)> {
        self.left = self.left.checked_sub(1)?;
        let Front { len: at, next_at } = self.front;
        let protocol = Protocol(*self.packet.get(usize::from(next_at))?);
        if !ipv6::is_extension(protocol) {
            return None;
        }
        let said = u16::from(*self.packet.get(usize::from(at) + 1)?);
        let len = match protocol {
            Protocol::FRAGMENT => ipv6::FRAGMENT_HEADER_LEN as u16,
            Protocol::AH => (said + 2) * 4,
            _ => (said + 1) * 8,
        };
        self.front = Front { len: at.checked_add(len)?, next_at: at };
        Some((protocol, self.front))
    }
}

#[cfg(test)]
mod tests;
