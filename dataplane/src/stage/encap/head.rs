//! Outer headers of tunnels' packets. In transport mode the outer header is the packet's own.

use esp::format::{self, DontFragment, Outer};
use tally::{Op, Tally};
use wire::checksum::Sum;
use wire::esp::{Front, Mode, NAT_PORT, Udp, Unfit};
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::{Frame, Part, ipv4, ipv6, udp};

use crate::flag;
use crate::sa::{Outbound, Peer};
use crate::stage::header;
use crate::tables::{Address, Tunnel};
use crate::tunnel;
use crate::verdict::Reason;

/// Outer header of a tunnel's packets: IP, and UDP where the tunnel has it.
pub(super) struct Head {
    local: Address,
    peer: Peer,
    udp: Udp,
    /// Headers of the packet's own that stay, in transport mode.
    kept: Option<Front>,
}

/// Headers of a frame's packet that stay in front of ESP, in transport mode.
///
/// # Errors
/// The packet does not go from one end to the other, or is a fragment.
#[inline(never)]
pub(super) fn kept<T: Tally>(frame: &Frame, tunnel: &Tunnel, tally: &mut T) -> Result<Option<Front>, Reason> {
    if tunnel.mode == Mode::Tunnel {
        return Ok(None);
    }
    // Both ends, 8; where the headers end, 9; moved, a load and a store of each word, 10 at least.
    tally.instructions(27);
    tally.execute(Op::Branch, 6);
    if header::addresses(frame) != (tunnel.local, tunnel.remote) {
        return Err(Reason::TunnelSelector);
    }
    let packet = frame.bytes().get(usize::from(frame.meta.network)..usize::from(frame.meta.end));
    Front::of(packet.unwrap_or_default()).map(Some).map_err(|unfit| match unfit {
        Unfit::Fragment => Reason::TunnelFragment,
        Unfit::Malformed => Reason::TunnelSelector,
    })
}

/// Fields of an outer header that differ between the packets of a tunnel.
pub(super) struct Varying {
    pub(super) ds_field: u8,
    pub(super) df: DontFragment,
    pub(super) id: u16,
    /// Bytes of ESP.
    pub(super) payload_len: u16,
}

impl Head {
    pub(super) fn of(tunnel: &Tunnel, sa: &Outbound, kept: Option<Front>) -> Head {
        Head { local: tunnel.local, peer: sa.peer, udp: sa.udp, kept }
    }

    /// Bytes of the IP header, with extension headers that stay.
    fn ip_len(&self) -> usize {
        if let Some(front) = self.kept {
            front.len.into()
        } else if self.local.v6 {
            ipv6::HEADER_LEN
        } else {
            ipv4::MIN_HEADER_LEN
        }
    }

    /// Bytes of all headers before that of ESP.
    pub(super) fn len(&self) -> usize {
        match self.udp {
            Udp::No => self.ip_len(),
            Udp::Yes => self.ip_len() + udp::HEADER_LEN,
        }
    }

    /// Writes the header in front of a packet of ESP, and the type of what follows into the header of the link in front of that.
    pub(super) fn write(&self, frame: &mut [u8], fields: &Varying) {
        let Varying { ds_field, df, id, payload_len } = *fields;
        let (protocol, payload_len) = match self.udp {
            Udp::No => (Protocol::ESP, payload_len),
            Udp::Yes => (Protocol::UDP, payload_len + udp::HEADER_LEN as u16),
        };
        let Some((link, packet)) = frame.split_first_chunk_mut::<{ ethernet::HEADER_LEN }>() else { return };
        let (local, remote) = (self.local.bits, self.peer.address.bits);
        let pseudo_v6 = || Sum::pseudo_v6(local.into(), remote.into(), protocol, payload_len.into());
        let EtherType(kind) = if let Some(front) = self.kept {
            front.lead_to(packet, protocol);
            let payload = packet.get_mut(usize::from(front.len)..).unwrap_or_default();
            self.write_udp(payload, pseudo_v6);
            if self.local.v6 { EtherType::IPV6 } else { EtherType::IPV4 }
        } else if self.local.v6 {
            if let Some((header, payload)) = packet.split_first_chunk_mut() {
                let (local, remote) = (local.into(), remote.into());
                format::outer_v6(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
                self.write_udp(payload, pseudo_v6);
            }
            EtherType::IPV6
        } else {
            if let Some((header, payload)) = packet.split_first_chunk_mut() {
                let (local, remote) = ((local as u32).into(), (remote as u32).into());
                format::outer_v4(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
                self.write_udp(payload, || Sum::ZERO);
            }
            EtherType::IPV4
        };
        link[12..].copy_from_slice(&kind.to_be_bytes());
    }

    /// Writes the UDP header, if there is one, at the start of what it covers.
    fn write_udp(&self, datagram: &mut [u8], pseudo: impl FnOnce() -> Sum) {
        let length = datagram.len() as u16;
        let Some(mut header) = udp::HeaderMut::of(datagram).filter(|_| self.udp == Udp::Yes) else { return };
        header.set_sport(NAT_PORT);
        header.set_dport(self.peer.port);
        header.set_length(length);
        header.set_checksum(0);
        if self.local.v6 {
            let checksum = pseudo().and(datagram).udp_checksum();
            if let Some(mut header) = udp::HeaderMut::of(datagram) {
                header.set_checksum(checksum);
            }
        }
    }

    /// Describes the outer packet as `parse` would. Flow, class and colour stay those of the inner packet.
    pub(super) fn describe(&self, frame: &mut Frame, ds_field: u8) {
        let end = frame.len() as u16;
        let meta = &mut frame.meta;
        meta.network = ethernet::HEADER_LEN as u16;
        meta.transport = (ethernet::HEADER_LEN + self.ip_len()) as u16;
        meta.end = end;
        meta.family = self.local.family();
        (meta.protocol, meta.sport, meta.dport) = match self.udp {
            Udp::No => (Protocol::ESP.0, 0, 0),
            Udp::Yes => (Protocol::UDP.0, NAT_PORT, self.peer.port),
        };
        meta.part = Part::Whole;
        (meta.tcp_flags, meta.ds_field) = (0, ds_field);
        meta.flags &= !flag::CUT;
        meta.tunnel = meta.tunnel & tunnel::IN | tunnel::OUTER;
    }
}
