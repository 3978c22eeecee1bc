//! Segmentation: frames as on a wire out of a TCP or UDP packet that stands for many segments.
//!
//! Linux and cards merge the segments of a connection into one packet on receipt (GRO), and leave what they send in one piece as long as
//! they can (GSO). A [`Plan`] makes of such a packet the segments that a card would: lengths, sequence numbers, identification, flags and
//! checksums of each. What contradicts itself is refused, never guessed. A frame says its size of segments by [`Frame::segment_size`].

use std::ops::Range;

use crate::checksum::Sum;
use crate::frame::Frame;
use crate::header::Protocol;
use crate::tcp::Flags;
use crate::{ethernet, ipv4, ipv6, tcp, udp};

/// Plan for segmenting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    transport: Transport,
    is_v6: bool,
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
    is_unsummed: bool,
}

/// Transport protocol of a packet of many segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP: each segment is a datagram.
    Udp,
}

/// Frames that a frame stands for, as they are on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Number of frames.
    pub count: u64,
    /// Bytes of all of them, from the link-layer header on.
    pub bytes: u64,
}

impl Segments {
    /// The segments of a packet of many, or the frame itself.
    #[inline]
    pub fn of(frame: &Frame) -> Segments {
        let itself = Segments { count: 1, bytes: frame.len() as u64 };
        if !frame.is_big() {
            return itself;
        }
        Plan::of(frame).map_or(itself, |plan| plan.segments())
    }
}

impl Plan {
    /// Plans the segmentation of `packet`, a whole frame, into segments of `size` bytes of payload; `None` if it is no whole TCP or UDP
    /// packet with payload.
    pub fn new(packet: &[u8], size: u16) -> Option<Plan> {
        let layer = ethernet::parse(packet).ok()?;
        let network = layer.payload_at;
        let (is_v6, protocol, transport_at, end) = if layer.ethertype == ethernet::EtherType::IPV4 {
            let ip = ipv4::parse(layer.payload).ok()?;
            if ip.header.is_fragment() {
                return None;
            }
            let total = usize::from(ip.header.total_len());
            (false, ip.header.protocol(), network + ip.header.header_len(), network + total)
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
            (true, ip.protocol(), network + ip.payload_at(), network + total)
        } else {
            return None;
        };
        let rest = packet.get(transport_at..end)?;
        let (transport, payload, is_unsummed) = match protocol {
            Protocol::TCP => {
                (Transport::Tcp, transport_at + tcp::parse(rest).ok()?.header.header_len(), false)
            }
            Protocol::UDP => {
                (Transport::Udp, transport_at + 8, *rest.get(6..)?.first_chunk::<2>()? == [0, 0])
            }
            _ => return None,
        };
        let size = usize::from(size);
        if size == 0 || payload >= end {
            return None;
        }
        Some(Plan { transport, is_v6, network, transport_at, payload, end, size, is_unsummed })
    }

    /// Plans the segmentation of a frame that stands for many segments ([`Frame::segment_size`]).
    pub fn of(frame: &Frame) -> Option<Plan> {
        Plan::new(frame.bytes(), frame.segment_size()?)
    }

    /// The plan for segments with checksums, whatever the packet's own field says: only its pseudo header may have been summed, and to
    /// nothing.
    pub fn summed(self) -> Plan {
        Plan { is_unsummed: false, ..self }
    }

    /// True for UDP without checksums.
    pub fn is_unsummed(&self) -> bool {
        self.is_unsummed
    }

    /// Transport protocol.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// True for IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Number of segments.
    #[inline]
    pub fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size)
    }

    /// Frames that the packet is cut into, and their bytes.
    pub fn segments(&self) -> Segments {
        let bytes = self.count() * self.payload + (self.end - self.payload);
        Segments { count: self.count() as u64, bytes: bytes as u64 }
    }

    /// Bytes of the IP packet of each segment, in order.
    pub fn packet_lengths(&self) -> impl Iterator<Item = u64> + use<> {
        let Plan { network, payload, end, size, .. } = *self;
        (payload..end).step_by(size).map(move |from| (payload - network + size.min(end - from)) as u64)
    }

    /// Payload bytes of each segment but the last.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of link-layer, IP and transport headers, which each segment has.
    pub fn headers(&self) -> usize {
        self.payload
    }

    /// Offset of the IP header, in bytes from the frame's start.
    pub fn network(&self) -> usize {
        self.network
    }

    /// Place of the TCP or UDP header with its payload, in bytes from the frame's start.
    pub fn transport_range(&self) -> Range<usize> {
        self.transport_at..self.end
    }

    /// Makes `frame` segment `index` of `packet`. `false` if it does not fit.
    #[must_use]
    pub fn cut(&self, packet: &[u8], index: usize, frame: &mut Frame) -> bool {
        let Some([headers, payload]) = self.parts(packet, index) else { return false };
        let Some(room) = frame.prepare(headers.len() + payload.len()) else { return false };
        let (front, back) = room.split_at_mut(headers.len());
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        self.number(room, index);
        true
    }

    /// Returns segment `index` of `packet`, if there is one.
    pub fn segment(&self, packet: &[u8], index: usize) -> Option<Vec<u8>> {
        let mut segment = self.parts(packet, index)?.concat();
        self.number(&mut segment, index);
        Some(segment)
    }

    /// Headers of `packet`, and payload of its segment `index`.
    fn parts<'a>(&self, packet: &'a [u8], index: usize) -> Option<[&'a [u8]; 2]> {
        let from = self.payload + index * self.size;
        let to = self.end.min(from + self.size);
        Some([packet.get(..self.payload)?, packet.get(from..to).filter(|payload| !payload.is_empty())?])
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
        let pseudo = match self.is_v6 {
            false => ipv4::HeaderMut::of(packet).map(|mut header| {
                header.set_total_len(bytes);
                // Numbered on, as Linux does it: who puts segments together again looks for that.
                let id = header.view().id().wrapping_add(index as u16);
                header.set_id(id);
                Sum::pseudo_v4(header.view().src(), header.view().dst(), protocol, length)
            }),
            true => ipv6::HeaderMut::of(packet).map(|mut header| {
                header.set_payload_len(bytes - ipv6::HEADER_LEN as u16);
                Sum::pseudo_v6(header.view().src(), header.view().dst(), protocol, length.into())
            }),
        };
        let Some(pseudo) = pseudo else { return };
        if !self.is_v6 {
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
        if self.is_unsummed {
            return;
        }
        let checksum = pseudo.and(segment).udp_checksum();
        if let Some(mut header) = udp::HeaderMut::of(segment) {
            header.set_checksum(checksum);
        }
    }
}
