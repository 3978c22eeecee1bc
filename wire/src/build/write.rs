//! Lengths first, then the bytes from the outermost header inwards, then the checksums.

use super::{Extension, Icmp, Link, Network, Packet, Tcp, Udp, UdpChecksum, Unbuildable, Upper};
use crate::checksum::Sum;
use crate::ethernet::{self, EtherType};
use crate::header::{Fragment, Protocol};
use crate::{arp, icmpv4, ipv4, ipv6, tcp, udp, vlan};

impl Packet<'_> {
    /// Bytes of the whole packet, padding of the link included.
    pub fn wire_len(&self) -> usize {
        (self.link_len() + self.network_len() + self.upper_len()).max(self.min_len)
    }

    /// Writes the packet to the start of `buffer` and returns its length.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, Unbuildable> {
        self.check_lengths()?;
        let needed = self.wire_len();
        let Some(bytes) = buffer.get_mut(..needed) else { return Err(Unbuildable::NoRoom { needed }) };
        bytes.fill(0);
        let (link, rest) = bytes.split_at_mut(self.link_len());
        if let Some(header) = &self.link {
            write_link(link, header, self.carried());
        }
        let (network, rest) = rest.split_at_mut(self.network_len());
        self.write_network(network);
        self.write_upper(&mut rest[..self.upper_len()]);
        Ok(needed)
    }

    /// The packet's bytes, for where an allocation is no matter.
    ///
    /// # Panics
    ///
    /// If a part is too long for its length field, which [`Packet::write`] would tell as
    /// [`Unbuildable::TooLong`].
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.wire_len()];
        if let Err(why) = self.write(&mut bytes) {
            panic!("packet to build is {why}");
        }
        bytes
    }

    fn check_lengths(&self) -> Result<(), Unbuildable> {
        let options = match &self.upper {
            Upper::Tcp(header) => header.options.len(),
            _ => 0,
        };
        let extensions_fit = self.extensions.iter().all(|extension| extension.body.len() <= 2046);
        let ip_len = match self.network {
            Network::V4 { .. } => self.network_len() + self.upper_len(),
            Network::V6 { .. } => self.network_len() - ipv6::HEADER_LEN + self.upper_len(),
            Network::Raw(_) | Network::Arp(_) => 0,
        };
        if options > 40 || self.options.len() > 40 || !extensions_fit || ip_len > 65535 {
            return Err(Unbuildable::TooLong);
        }
        Ok(())
    }

    fn link_len(&self) -> usize {
        match &self.link {
            Some(link) => ethernet::HEADER_LEN + link.tags.as_slice().len() * vlan::TAG_LEN,
            None => 0,
        }
    }

    fn network_len(&self) -> usize {
        match self.network {
            Network::Raw(_) => 0,
            Network::Arp(_) => arp::LEN,
            Network::V4 { .. } => ipv4::MIN_HEADER_LEN + self.options.len().next_multiple_of(4),
            Network::V6 { .. } => {
                let extensions: usize = self.extensions.iter().map(Extension::len).sum();
                let fragment = self.fragment.map_or(0, |_| ipv6::FRAGMENT_HEADER_LEN);
                ipv6::HEADER_LEN + extensions + fragment
            }
        }
    }

    /// Transport header and payload; without IP the payload alone.
    fn upper_len(&self) -> usize {
        let header = match (self.network, &self.upper) {
            (Network::Raw(_) | Network::Arp(_), _) | (_, Upper::Raw(_)) => 0,
            (_, Upper::Tcp(header)) => header.len(),
            (_, Upper::Udp(_)) => udp::HEADER_LEN,
            (_, Upper::Icmp { .. }) => icmpv4::HEADER_LEN,
        };
        header + self.payload.len()
    }

    fn carried(&self) -> EtherType {
        match self.network {
            Network::Raw(ethertype) => ethertype,
            Network::Arp(_) => EtherType::ARP,
            Network::V4 { .. } => EtherType::IPV4,
            Network::V6 { .. } => EtherType::IPV6,
        }
    }

    fn upper_protocol(&self) -> Protocol {
        match self.upper {
            Upper::Raw(protocol) | Upper::Icmp { protocol, .. } => protocol,
            Upper::Tcp(_) => Protocol::TCP,
            Upper::Udp(_) => Protocol::UDP,
        }
    }

    fn write_network(&self, bytes: &mut [u8]) {
        let upper_len = self.upper_len();
        match self.network {
            Network::Raw(_) => {}
            Network::Arp(fields) => bytes.copy_from_slice(&fields.to_bytes()),
            Network::V4 { src, dst } => {
                let len = bytes.len();
                bytes[ipv4::MIN_HEADER_LEN..][..self.options.len()].copy_from_slice(self.options);
                let Some(mut header) = ipv4::HeaderMut::of(bytes) else { return };
                header.set_header_len(len);
                header.set_ds_field(self.ds_field);
                header.set_total_len((len + upper_len) as u16); // checked to fit
                let mut field = if self.dont_fragment { 0x4000 } else { 0 };
                let mut id = self.id;
                if let Some(fragment) = self.fragment {
                    id = fragment.id as u16; // IPv4's are 16 bits
                    field |= fragment.offset >> 3;
                    field |= if fragment.more { 0x2000 } else { 0 };
                }
                header.set_id(id);
                header.set_flags_and_offset(field);
                header.set_ttl(self.hops);
                header.set_protocol(self.upper_protocol());
                header.set_src(src);
                header.set_dst(dst);
                ipv4::fill_checksum(bytes);
            }
            Network::V6 { src, dst } => {
                let payload_len = bytes.len() - ipv6::HEADER_LEN + upper_len;
                let (fixed, extensions) = bytes.split_at_mut(ipv6::HEADER_LEN);
                let Some(mut header) = ipv6::HeaderMut::of(fixed) else { return };
                header.set_first_word(self.ds_field, self.flow_label);
                header.set_payload_len(payload_len as u16); // checked to fit
                header.set_hop_limit(self.hops);
                header.set_src(src);
                header.set_dst(dst);
                header.set_next_header(self.write_extensions(extensions));
            }
        }
    }

    /// Writes the extension headers and returns the number of the first, or that of the transport.
    fn write_extensions(&self, bytes: &mut [u8]) -> Protocol {
        let after_all = self.upper_protocol();
        let after_listed = self.fragment.map_or(after_all, |_| Protocol::FRAGMENT);
        let mut rest = bytes;
        for (index, extension) in self.extensions.iter().enumerate() {
            let next = self.extensions.get(index + 1).map_or(after_listed, |next| next.protocol);
            let (this, tail) = rest.split_at_mut(extension.len());
            this[0] = next.0;
            this[1] = match extension.protocol {
                Protocol::AH => extension.len() / 4 - 2,
                _ => extension.len() / 8 - 1,
            } as u8; // at most 2048 bytes
            this[2..][..extension.body.len()].copy_from_slice(extension.body);
            rest = tail;
        }
        if let Some(Fragment { id, offset, more }) = self.fragment {
            rest[0] = after_all.0;
            rest[2..4].copy_from_slice(&((offset & 0xfff8) | u16::from(more)).to_be_bytes());
            rest[4..8].copy_from_slice(&id.to_be_bytes());
        }
        self.extensions.first().map_or(after_listed, |first| first.protocol)
    }

    fn write_upper(&self, bytes: &mut [u8]) {
        let header_len = bytes.len() - self.payload.len();
        bytes[header_len..].copy_from_slice(self.payload);
        if header_len == 0 {
            return;
        }
        let length = bytes.len();
        let pseudo = match self.network {
            Network::V4 { src, dst } => Sum::pseudo_v4(src, dst, self.upper_protocol(), length as u16),
            Network::V6 { src, dst } => Sum::pseudo_v6(src, dst, self.upper_protocol(), length as u32),
            Network::Raw(_) | Network::Arp(_) => Sum::ZERO,
        };
        match &self.upper {
            Upper::Raw(_) => {}
            Upper::Tcp(header) => write_tcp(bytes, header, header_len, pseudo),
            Upper::Udp(header) => write_udp(bytes, *header, pseudo),
            Upper::Icmp { protocol, message } => {
                // Only ICMPv6 covers a pseudo header.
                let sum = if *protocol == Protocol::ICMP { Sum::ZERO } else { pseudo };
                write_icmp(bytes, *message, sum);
            }
        }
    }
}

impl Tcp<'_> {
    fn len(&self) -> usize {
        tcp::MIN_HEADER_LEN + self.options.len().next_multiple_of(4)
    }
}

fn write_link(bytes: &mut [u8], link: &Link, carried: EtherType) {
    let Some(mut header) = ethernet::HeaderMut::of(bytes) else { return };
    header.set_src(link.src);
    header.set_dst(link.dst);
    header.set_ethertype(link.tags.outer().map_or(carried, |tag| tag.tpid));
    let tags = link.tags.as_slice();
    for (index, place) in bytes[ethernet::HEADER_LEN..].chunks_exact_mut(vlan::TAG_LEN).enumerate() {
        let next = tags.get(index + 1).map_or(carried, |tag| tag.tpid);
        place[..2].copy_from_slice(&tags[index].tci.to_be_bytes());
        place[2..].copy_from_slice(&next.0.to_be_bytes());
    }
}

fn write_tcp(bytes: &mut [u8], fields: &Tcp<'_>, header_len: usize, pseudo: Sum) {
    bytes[tcp::MIN_HEADER_LEN..][..fields.options.len()].copy_from_slice(fields.options);
    if let Some(mut header) = tcp::HeaderMut::of(bytes) {
        header.set_sport(fields.sport);
        header.set_dport(fields.dport);
        header.set_seq(fields.seq);
        header.set_ack(fields.ack);
        header.set_header_len(header_len);
        header.set_flags(fields.flags);
        header.set_window(fields.window);
    }
    let checksum = pseudo.and(bytes).checksum();
    if let Some(mut header) = tcp::HeaderMut::of(bytes) {
        header.set_checksum(checksum);
    }
}

fn write_udp(bytes: &mut [u8], fields: Udp, pseudo: Sum) {
    let length = bytes.len() as u16; // checked to fit
    if let Some(mut header) = udp::HeaderMut::of(bytes) {
        header.set_sport(fields.sport);
        header.set_dport(fields.dport);
        header.set_length(length);
    }
    let checksum = match fields.checksum {
        UdpChecksum::Computed => pseudo.and(bytes).udp_checksum(),
        UdpChecksum::Zero => 0,
    };
    if let Some(mut header) = udp::HeaderMut::of(bytes) {
        header.set_checksum(checksum);
    }
}

fn write_icmp(bytes: &mut [u8], message: Icmp, sum: Sum) {
    bytes[0] = message.kind;
    bytes[1] = message.code;
    bytes[4..8].copy_from_slice(&message.rest);
    let checksum = sum.and(bytes).checksum();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
}
