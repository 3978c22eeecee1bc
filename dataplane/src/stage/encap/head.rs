//! Outer headers of tunnels' packets. In transport mode the outer header is the packet's own.

use esp::format::{self, Outer};
use tally::{Op, Tally};
use wire::checksum::Sum;
use wire::esp::{Front, Udp, Unfit};
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::{Family, Frame, Part, ipv4, ipv6, udp};

use crate::flag;
use crate::sa::{Outbound, Peer};
use crate::stage::header;
use crate::tables::{Address, Tunnel};
use crate::tunnel;
use crate::verdict::Reason;

pub(super) use esp::format::DontFragment;

/// Headers of a frame's packet that stay in front of ESP, in transport mode.
///
/// # Errors
/// The packet does not go from one end to the other, or is a fragment.
#[inline(never)]
pub(super) fn kept<T: Tally>(frame: &Frame, tunnel: &Tunnel, tally: &mut T) -> Result<Front, Reason> {
    // Both ends, 8; where the headers end, 9; moved, a load and a store of each word, 10 at least.
    tally.instructions(27);
    tally.execute(Op::Branch, 6);
    let (source, destination) = header::addresses(frame);
    if (source, Some(destination)) != (tunnel.local, tunnel.remote) {
        return Err(Reason::TunnelSelector);
    }
    let packet = frame.bytes().get(usize::from(frame.meta.network)..usize::from(frame.meta.end));
    Front::of(packet.unwrap_or_default()).map_err(|unfit| match unfit {
        Unfit::Fragment => Reason::TunnelFragment,
        Unfit::Malformed => Reason::TunnelSelector,
    })
}

/// Fields of an outer header that differ between the packets under one security association.
pub(super) struct Varying {
    pub(super) ds_field: u8,
    pub(super) df: DontFragment,
    pub(super) id: u16,
    /// Bytes of ESP.
    pub(super) payload_len: u16,
    /// Headers of the packet's own that stay, in transport mode.
    pub(super) kept: Option<Front>,
}

/// Bytes of headers, from that of an untagged link on.
pub(super) const LINK: usize = ethernet::HEADER_LEN;
const V4: usize = LINK + ipv4::MIN_HEADER_LEN;
const V6: usize = LINK + ipv6::HEADER_LEN;

/// Headers in front of ESP, the same for all packets under one security association but for what [varies](Varying): that of the link, IP,
/// and UDP where the tunnel has it.
pub(super) struct Head {
    /// Header of an untagged link, and of IP.
    bytes: [u8; V6],
    /// Sum of the header of IPv4, with zero for each field that varies.
    sum: Sum,
    family: Family,
    local: Address,
    peer: Peer,
    udp: Udp,
    /// UDP port that packets leave by.
    sport: u16,
}

impl Head {
    /// `link`: the addresses of the link, if they are the whole of its header before the type; others write it themselves.
    pub(super) fn new(link: Option<&[u8; 12]>, tunnel: &Tunnel, sa: &Outbound) -> Head {
        let (local, peer, udp, sport) = (tunnel.local, sa.peer, sa.udp, sa.sport);
        let protocol = if udp == Udp::Yes { Protocol::UDP } else { Protocol::ESP };
        let family = local.family();
        let mut bytes = [0; V6];
        let (front, packet) = bytes.split_at_mut(LINK);
        front[..12].copy_from_slice(link.unwrap_or(&[0; 12]));
        let kind = if family == Family::V6 { EtherType::IPV6 } else { EtherType::IPV4 };
        front[12..].copy_from_slice(&kind.0.to_be_bytes());
        let (ds_field, df, id, payload_len) = (0, DontFragment::Clear, 0, 0);
        let mut sum = Sum::ZERO;
        if family == Family::V6 {
            let (local, remote) = (local.bits.into(), peer.address.bits.into());
            if let Some(header) = packet.first_chunk_mut() {
                format::outer_v6(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
            }
        } else if let Some(header) = packet.first_chunk_mut() {
            let (local, remote) = ((local.bits as u32).into(), (peer.address.bits as u32).into());
            format::outer_v4(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
            if let Some(mut header) = ipv4::HeaderMut::of(header) {
                header.set_total_len(0);
                header.set_checksum(0);
            }
            sum = Sum::of(header);
        }
        Head { bytes, sum, family, local, peer, udp, sport }
    }

    /// Bytes of the IP header, with extension headers that stay.
    fn ip_len(&self, kept: Option<Front>) -> usize {
        match (kept, self.family) {
            (Some(front), _) => front.len.into(),
            (None, Family::V6) => ipv6::HEADER_LEN,
            (None, _) => ipv4::MIN_HEADER_LEN,
        }
    }

    /// Bytes of all headers before that of ESP.
    #[inline(always)]
    pub(super) fn len(&self, kept: Option<Front>) -> usize {
        match self.udp {
            Udp::No => LINK + self.ip_len(kept),
            Udp::Yes => LINK + self.ip_len(kept) + udp::HEADER_LEN,
        }
    }

    /// True if there is a checksum over the packet: across IPv6 there must be one of UDP (RFC 8200, section 8.1).
    #[inline(always)]
    pub(super) fn has_sum(&self) -> bool {
        self.udp == Udp::Yes && self.family == Family::V6
    }

    /// Writes the headers in front of a packet of ESP.
    #[inline(always)]
    pub(super) fn write(&self, frame: &mut [u8], fields: &Varying) {
        let payload_len = match self.udp {
            Udp::No => fields.payload_len,
            Udp::Yes => fields.payload_len + udp::HEADER_LEN as u16,
        };
        if let Some(front) = fields.kept {
            self.lead_to(frame, front);
        } else if self.family == Family::V6 {
            let Some(head) = frame.first_chunk_mut::<V6>() else { return };
            *head = self.bytes;
            if let Some(mut header) = ipv6::HeaderMut::of(&mut head[LINK..]) {
                header.set_first_word(fields.ds_field, 0);
                header.set_payload_len(payload_len);
            }
        } else {
            let Some(head) = frame.first_chunk_mut::<V4>() else { return };
            head.copy_from_slice(&self.bytes[..V4]);
            if let Some(mut header) = ipv4::HeaderMut::of(&mut head[LINK..]) {
                let total_len = payload_len + ipv4::MIN_HEADER_LEN as u16;
                let flags = fields.df.flags_and_offset();
                let sum = self.sum.and_word(fields.ds_field.into()).and_word(total_len);
                header.set_ds_field(fields.ds_field);
                header.set_total_len(total_len);
                header.set_id(fields.id);
                header.set_flags_and_offset(flags);
                header.set_checksum(sum.and_word(fields.id).and_word(flags).checksum());
            }
        }
        if self.udp == Udp::Yes {
            let at = LINK + self.ip_len(fields.kept);
            self.write_udp(frame.get_mut(at..).unwrap_or_default());
        }
    }

    /// Has a packet's own header, behind that of the link, lead to ESP.
    #[cold]
    fn lead_to(&self, frame: &mut [u8], front: Front) {
        let Some((link, packet)) = frame.split_first_chunk_mut::<LINK>() else { return };
        link.copy_from_slice(&self.bytes[..LINK]);
        front.lead_to(packet, if self.udp == Udp::Yes { Protocol::UDP } else { Protocol::ESP });
    }

    /// Writes the UDP header at the start of what it covers.
    fn write_udp(&self, datagram: &mut [u8]) {
        let length = datagram.len() as u16;
        let Some(mut header) = udp::HeaderMut::of(datagram) else { return };
        header.set_sport(self.sport);
        header.set_dport(self.peer.port);
        header.set_length(length);
        header.set_checksum(0);
        if self.has_sum() {
            let (local, remote) = (self.local.bits.into(), self.peer.address.bits.into());
            let sum = Sum::pseudo_v6(local, remote, Protocol::UDP, length.into());
            let checksum = sum.and(datagram).udp_checksum();
            if let Some(mut header) = udp::HeaderMut::of(datagram) {
                header.set_checksum(checksum);
            }
        }
    }

    /// Describes the outer packet as `parse` would. Flow, class and colour stay those of the inner packet.
    #[inline(always)]
    pub(super) fn describe(&self, frame: &mut Frame, fields: &Varying) {
        let end = frame.len() as u16;
        let meta = &mut frame.meta;
        meta.network = LINK as u16;
        meta.transport = (LINK + self.ip_len(fields.kept)) as u16;
        meta.end = end;
        meta.family = self.family;
        (meta.protocol, meta.sport, meta.dport) = match self.udp {
            Udp::No => (Protocol::ESP.0, 0, 0),
            Udp::Yes => (Protocol::UDP.0, self.sport, self.peer.port),
        };
        meta.part = Part::Whole;
        (meta.tcp_flags, meta.ds_field) = (0, fields.ds_field);
        meta.flags &= !flag::CUT;
        meta.tunnel = meta.tunnel & tunnel::IN | tunnel::OUTER;
    }
}
