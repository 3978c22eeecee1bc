//! Software offloads: completes checksums and segments packets that Linux left to a card.
//!
//! A header in front of the frame describes the remaining work ([`VnetHeader`], that of virtio): a checksum field with
//! only the pseudo header's sum, or many segments under one header. The results are frames as on a wire, or a packet of many segments
//! that stays whole ([`wire::segment`]). Unknown forms (a tunnel's inner segments, say) are refused, never guessed.

use wire::checksum::Sum;
use wire::header::Protocol;
use wire::segment::{Plan, Transport};
use wire::{ethernet, ipv4, ipv6};

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

/// Plans the segmentation of `packet`, a whole frame, by `header`; `None` if the two contradict each other.
pub(crate) fn plan(packet: &[u8], header: &VnetHeader) -> Option<Plan> {
    let plan = Plan::new(packet, header.gso_size)?;
    let needs_checksum = header.flags & NEEDS_CHECKSUM != 0;
    if needs_checksum && usize::from(header.csum_start) != plan.transport_range().start {
        // Segments of a tunnel's inner packet, or the like.
        return None;
    }
    let is_said = header.gso_type & !GSO_ECN == gso_type(&plan);
    is_said.then(|| if needs_checksum { plan.summed() } else { plan })
}

/// Form of the segments, as the header says it.
fn gso_type(plan: &Plan) -> u8 {
    match (plan.transport(), plan.is_v6()) {
        (Transport::Tcp, false) => GSO_TCP4,
        (Transport::Tcp, true) => GSO_TCP6,
        (Transport::Udp, _) => GSO_UDP,
    }
}

/// Prepares a packet of many segments for a device that cuts it: leaves in the field of its checksum the sum of the pseudo header, and
/// returns the header that tells the device of its work. Whatever the field held is of no use to the segments.
pub(crate) fn describe(packet: &mut [u8], plan: &Plan) -> Option<VnetHeader> {
    let range = plan.transport_range();
    let (protocol, offset) = match plan.transport() {
        Transport::Tcp => (Protocol::TCP, 16),
        Transport::Udp => (Protocol::UDP, 6),
    };
    let network = packet.get(plan.network()..)?;
    let pseudo = if plan.is_v6() {
        let ip = ipv6::Header::of(network)?;
        Sum::pseudo_v6(ip.src(), ip.dst(), protocol, range.len() as u32)
    } else {
        let ip = ipv4::Header::of(network)?;
        Sum::pseudo_v4(ip.src(), ip.dst(), protocol, range.len() as u16)
    };
    let field = range.start + offset;
    packet.get_mut(field..field + 2)?.copy_from_slice(&pseudo.fold().to_be_bytes());
    Some(VnetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: gso_type(plan),
        hdr_len: plan.headers() as u16,
        gso_size: plan.size() as u16,
        csum_start: range.start as u16,
        csum_offset: offset as u16,
    })
}

#[cfg(test)]
mod tests;
