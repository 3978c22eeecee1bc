//! Outer packets of ESP, and what is in them.

use std::net::IpAddr;

use wire::esp::{Front, NAT_PORT};
use wire::header::Protocol;
use wire::{ipv4, ipv6, udp};

use super::Fault;

/// Outer packet of ESP.
pub(super) struct Outer<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// ESP, from its header to the ICV.
    pub(super) esp: &'a [u8],
    /// The IP packet from its header on.
    packet: &'a [u8],
    /// Bytes of its headers, without that of UDP.
    headers: u16,
}

impl Outer<'_> {
    /// The ESP of a packet, in UDP or not.
    pub(super) fn of(packet: &[u8]) -> Option<Outer<'_>> {
        let (source, destination, protocol, payload): (IpAddr, IpAddr, _, _) =
            if packet.first().is_some_and(|first| first >> 4 == 4) {
                let parsed = ipv4::parse_prefix(packet).ok()?;
                let header = parsed.header;
                (header.src().into(), header.dst().into(), header.protocol(), parsed.payload)
            } else {
                let parsed = ipv6::parse_prefix(packet).ok()?;
                (parsed.header.src().into(), parsed.header.dst().into(), parsed.protocol(), parsed.payload)
            };
        let headers = (payload.as_ptr().addr() - packet.as_ptr().addr()) as u16;
        let esp = match protocol {
            Protocol::ESP => payload,
            Protocol::UDP => {
                let header = udp::Header::of(payload)?;
                // The port of the end that is not behind the NAT.
                if header.sport() != NAT_PORT && header.dport() != NAT_PORT {
                    return None;
                }
                payload.get(udp::HEADER_LEN..usize::from(header.length()).min(payload.len()))?
            }
            _ => return None,
        };
        Some(Outer { source, destination, esp, packet, headers })
    }

    /// Inner packet of a text; none of a dummy packet. Of transport mode: the packet as it would be without ESP.
    pub(super) fn inner(&self, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let trailer = esp::format::untrail(text).map_err(|_| Fault::Form)?;
        let payload = text.get(..trailer.before).ok_or(Fault::Form)?;
        // Behind the packet there may be padding against traffic analysis.
        let whole = |len: usize| payload.get(..len).map(<[u8]>::to_vec).ok_or(Fault::Form);
        Ok(Some(match trailer.next {
            Protocol::NO_NEXT => return Ok(None),
            Protocol::IPV4 => {
                let header = ipv4::Header::of(payload).ok_or(Fault::Form)?;
                whole(usize::from(header.total_len()))?
            }
            Protocol::IPV6 => {
                let header = ipv6::Header::of(payload).ok_or(Fault::Form)?;
                whole(ipv6::HEADER_LEN + usize::from(header.payload_len()))?
            }
            next => self.without_esp(next, payload)?,
        }))
    }

    fn without_esp(&self, next: Protocol, payload: &[u8]) -> Result<Vec<u8>, Fault> {
        let front = Front::ending_at(self.packet, self.headers).ok_or(Fault::Form)?;
        let headers = self.packet.get(..usize::from(self.headers)).ok_or(Fault::Form)?;
        let mut packet = [headers, payload].concat();
        front.lead_to(&mut packet, next);
        Ok(packet)
    }
}
