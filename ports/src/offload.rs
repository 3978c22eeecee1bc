//! Software offloads: completes checksums and segments packets that Linux left to a card.
//!
//! A header in front of the frame describes the remaining work ([`VnetHeader`], that of virtio): a checksum field with
//! only the pseudo header's sum, or many segments under one header. The results are frames as on a wire. Unknown forms
//! (a tunnel's inner segments, say) are refused, never guessed.

use wire::checksum::Sum;
use wire::header::Protocol;
use wire::tcp::Flags;
use wire::{Frame, ethernet, ipv4, ipv6, tcp, udp};

use crate::sys::packet::VnetHeader;

/// Offload work left to do on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// The checksum, from `start` to the end of the frame, goes into `start + offset`.
    Checksum {
        /// Offset of the first byte summed, in bytes from the frame's start.
        start: usize,
        /// Offset of the checksum field, in bytes from `start`.
        offset: usize,
    },
    /// The packet must be segmented.
    Segments,
}

impl Left {
    /// Returns the work that the header describes.
    pub(crate) fn of(header: &VnetHeader) -> Left {
        if header.gso_type != GSO_NONE {
            Left::Segments
        } else if header.flags & NEEDS_CHECKSUM != 0 {
            Left::Checksum { start: header.csum_start.into(), offset: header.csum_offset.into() }
        } else {
            Left::Nothing
        }
    }
}

// linux/virtio_net.h
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Completes a checksum whose field has the sum of the pseudo header, or zero for SCTP. `false`, and nothing done, if
/// the field does not lie in the frame.
#[must_use]
pub(crate) fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(summed) = frame.get_mut(start..) else { return false };
    let bytes = if offset == SCTP_FIELD { 4 } else { 2 };
    if summed.get(offset..).is_none_or(|field| field.len() < bytes) {
        return false;
    }
    if offset == SCTP_FIELD {
        summed[offset..offset + 4].copy_from_slice(&[0; 4]);
        // CRC-32C (RFC 9260, appendix A); its polynomial is reflected, so the lowest byte goes first.
        let checksum = crc32c::crc32c(summed);
        summed[offset..offset + 4].copy_from_slice(&checksum.to_le_bytes());
        return true;
    }
    // As Linux does it: a zero, which to UDP would mean that there is none, is written as its other form; to all others
    // the two are the same.
    let checksum = Sum::of(summed).udp_checksum();
    summed[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Offset of the checksum in an SCTP header, in bytes; unique among the protocols whose checksums Linux leaves to a
/// card.
const SCTP_FIELD: usize = 8;

/// Completes the checksum of a TCP or UDP packet whose field has the bare sum of the pseudo header, or of an SCTP
/// packet whose field is zero, as Linux leaves them to a card. True if the checksum was completed.
///
/// Other packets take no harm. Let p be the bare sum, and c the right checksum: if c happens to equal p, completing
/// computes c again, because it sums the bytes that c was computed from. One wrong checksum in 65536 equals p, and
/// becomes right; on interfaces without a wire, the only ones that use this, nothing makes checksums wrong.
pub(crate) fn complete_bare(frame: &mut [u8]) -> bool {
    let Some(bare) = Bare::of(frame) else { return false };
    complete(&mut frame[..bare.end], bare.start, bare.offset)
}

/// Place of a checksum that was left to be completed.
struct Bare {
    start: usize,
    offset: usize,
    end: usize,
}

impl Bare {
    #[inline]
    fn of(frame: &[u8]) -> Option<Bare> {
        let layer = ethernet::parse(frame).ok()?;
        let (protocol, pseudo, at, payload) = if layer.ethertype == ethernet::EtherType::IPV4 {
            // The header's own checksum is another's to look at.
            let ip = ipv4::parse_prefix(layer.payload).ok()?;
            if ip.header.is_fragment() || usize::from(ip.header.total_len()) > layer.payload.len() {
                return None;
            }
            (ip.header.protocol(), ip.pseudo_header(), ip.header.header_len(), ip.payload)
        } else if layer.ethertype == ethernet::EtherType::IPV6 {
            let ip = ipv6::parse(layer.payload).ok()?;
            if ip.extensions.fragment.is_some() {
                return None;
            }
            (ip.protocol(), ip.pseudo_header(), ip.payload_at(), ip.payload)
        } else {
            return None;
        };
        let offset = match protocol {
            Protocol::TCP => 16,
            Protocol::UDP => 6,
            Protocol::SCTP => SCTP_FIELD,
            _ => return None,
        };
        let start = layer.payload_at + at;
        let field = payload.get(offset..)?;
        let bare = if protocol == Protocol::SCTP {
            field.first_chunk()? == &[0; 4]
        } else {
            u16::from_be_bytes(*field.first_chunk()?) == pseudo.fold()
        };
        bare.then_some(Bare { start, offset, end: start + payload.len() })
    }
}

/// Plan for segmenting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    transport: Transport,
    /// Offset of the IP header, in bytes from the frame's start.
    network: usize,
    /// Offset of the TCP or UDP header, in bytes from the frame's start.
    transport_at: usize,
    /// Offset of the payload, in bytes from the frame's start.
    payload: usize,
    /// End of the payload, in bytes from the frame's start.
    end: usize,
    /// Payload bytes of each segment but the last.
    size: usize,
    /// UDP without checksums.
    unsummed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl Plan {
    /// Plans the segmentation of `packet`, a whole frame, by `header`; `None` if the two contradict each other.
    pub(crate) fn new(packet: &[u8], header: &VnetHeader) -> Option<Plan> {
        let layer = ethernet::parse(packet).ok()?;
        let network = layer.payload_at;
        let (family, protocol, transport_at, end) = if layer.ethertype == ethernet::EtherType::IPV4 {
            let ip = ipv4::parse(layer.payload).ok()?;
            if ip.header.is_fragment() {
                return None;
            }
            let total = usize::from(ip.header.total_len());
            (GSO_TCP4, ip.header.protocol(), network + ip.header.header_len(), network + total)
        } else if layer.ethertype == ethernet::EtherType::IPV6 {
            let ip = ipv6::parse(layer.payload).ok()?;
            let extensions = ip.extensions;
            // With nodes still to visit the destination that is summed is another one.
            if extensions.fragment.is_some()
                || extensions.routing.is_some_and(|routing| routing.segments_left > 0)
            {
                return None;
            }
            let total = ipv6::HEADER_LEN + usize::from(ip.header.payload_len());
            (GSO_TCP6, ip.protocol(), network + ip.payload_at(), network + total)
        } else {
            return None;
        };
        let needs_checksum = header.flags & NEEDS_CHECKSUM != 0;
        if needs_checksum && usize::from(header.csum_start) != transport_at {
            // Segments of a tunnel's inner packet, or the like.
            return None;
        }
        let rest = packet.get(transport_at..end)?;
        let kind = header.gso_type & !GSO_ECN;
        let (transport, payload, unsummed) = match protocol {
            Protocol::TCP if kind == family => {
                (Transport::Tcp, transport_at + tcp::parse(rest).ok()?.header.header_len(), false)
            }
            Protocol::UDP if kind == GSO_UDP => {
                let field = *rest.get(6..)?.first_chunk::<2>()?;
                (Transport::Udp, transport_at + 8, field == [0, 0] && !needs_checksum)
            }
            _ => return None,
        };
        let size = usize::from(header.gso_size);
        if size == 0 || payload >= end {
            return None;
        }
        Some(Plan { transport, network, transport_at, payload, end, size, unsummed })
    }

    /// Number of segments.
    pub(crate) fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size)
    }

    /// Makes `frame` segment `index` of `packet`. `false` if it does not fit.
    #[must_use]
    pub(crate) fn cut(&self, packet: &[u8], index: usize, frame: &mut Frame) -> bool {
        let from = self.payload + index * self.size;
        let to = self.end.min(from + self.size);
        let (Some(headers), Some(payload)) = (packet.get(..self.payload), packet.get(from..to)) else {
            return false;
        };
        let Some(room) = frame.prepare(headers.len() + payload.len()) else { return false };
        let (front, back) = room.split_at_mut(headers.len());
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        self.number(room, index);
        true
    }

    /// Sets the fields that differ from segment to segment: lengths, sequence numbers, identification, flags,
    /// checksums.
    fn number(&self, frame: &mut [u8], index: usize) {
        let (head, segment) = frame.split_at_mut(self.transport_at);
        let packet = &mut head[self.network..];
        let length = segment.len() as u16;
        let bytes = packet.len() as u16 + length;
        let protocol = match self.transport {
            Transport::Tcp => Protocol::TCP,
            Transport::Udp => Protocol::UDP,
        };
        let pseudo = match packet.first().map(|first| first >> 4) {
            Some(4) => ipv4::HeaderMut::of(packet).map(|mut header| {
                header.set_total_len(bytes);
                // Numbered on, as Linux does it: who puts segments together again looks for that.
                let id = header.view().id().wrapping_add(index as u16);
                header.set_id(id);
                Sum::pseudo_v4(header.view().src(), header.view().dst(), protocol, length)
            }),
            _ => ipv6::HeaderMut::of(packet).map(|mut header| {
                header.set_payload_len(bytes - ipv6::HEADER_LEN as u16);
                Sum::pseudo_v6(header.view().src(), header.view().dst(), protocol, length.into())
            }),
        };
        let Some(pseudo) = pseudo else { return };
        if packet[0] >> 4 == 4 {
            ipv4::fill_checksum(packet);
        }
        match self.transport {
            Transport::Tcp => self.number_tcp(segment, pseudo, index),
            Transport::Udp => self.number_udp(segment, pseudo, length),
        }
    }

    fn number_tcp(&self, segment: &mut [u8], pseudo: Sum, index: usize) {
        let Some(mut header) = tcp::HeaderMut::of(segment) else { return };
        header.set_seq(header.view().seq().wrapping_add((index * self.size) as u32));
        let mut flags = header.view().flags();
        if index > 0 {
            // Said once (RFC 3168, section 6.1.2).
            flags = flags.without(Flags::CWR);
        }
        if index + 1 < self.count() {
            flags = flags.without(Flags::FIN.and(Flags::PSH));
        }
        header.set_flags(flags);
        header.set_checksum(0);
        let checksum = pseudo.and(segment).checksum();
        if let Some(mut header) = tcp::HeaderMut::of(segment) {
            header.set_checksum(checksum);
        }
    }

    fn number_udp(&self, segment: &mut [u8], pseudo: Sum, length: u16) {
        let Some(mut header) = udp::HeaderMut::of(segment) else { return };
        header.set_length(length);
        header.set_checksum(0);
        if self.unsummed {
            return;
        }
        let checksum = pseudo.and(segment).udp_checksum();
        if let Some(mut header) = udp::HeaderMut::of(segment) {
            header.set_checksum(checksum);
        }
    }
}

#[cfg(test)]
mod tests;
