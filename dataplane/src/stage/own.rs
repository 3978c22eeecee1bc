//! Headers of packets that the gateway itself sends.

use wire::checksum::Sum;
use wire::header::Protocol;
use wire::{Frame, ipv4, ipv6};

use crate::tables::Address;

/// Bytes of an Ethernet header with two VLAN tags: `parse` reads no more.
pub(super) const MOST_LINK: usize = 22;

/// Time to live of what the gateway itself sends.
const TTL: u8 = 64;

/// The IP header of what the gateway itself sends.
pub(super) struct IpHeader {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) protocol: Protocol,
    pub(super) payload_len: usize,
    pub(super) ds_field: u8,
    pub(super) id: u16,
}

impl IpHeader {
    /// Writes 20 or 40 bytes over zeroed ones.
    pub(super) fn write(&self, bytes: &mut [u8]) -> Option<()> {
        if self.from.v6 {
            let mut header = ipv6::HeaderMut::of(bytes)?;
            header.set_first_word(self.ds_field, 0);
            header.set_payload_len(self.payload_len as u16);
            header.set_next_header(self.protocol);
            header.set_hop_limit(TTL);
            header.set_src(self.from.bits.into());
            header.set_dst(self.to.bits.into());
        } else {
            let mut header = ipv4::HeaderMut::of(bytes)?;
            header.set_header_len(20);
            header.set_ds_field(self.ds_field);
            header.set_total_len(20 + self.payload_len as u16);
            header.set_id(self.id);
            header.set_ttl(TTL);
            header.set_protocol(self.protocol);
            header.set_src((self.from.bits as u32).into());
            header.set_dst((self.to.bits as u32).into());
            let checksum = Sum::of(bytes.get(..20)?).checksum();
            ipv4::HeaderMut::of(bytes)?.set_checksum(checksum);
        }
        Some(())
    }
}

/// Sum of the pseudo-header that the checksum of a transport protocol covers.
pub(super) fn pseudo(from: Address, to: Address, protocol: Protocol, len: usize) -> Sum {
    if from.v6 {
        Sum::pseudo_v6(from.bits.into(), to.bits.into(), protocol, len as u32)
    } else {
        Sum::pseudo_v4((from.bits as u32).into(), (to.bits as u32).into(), protocol, len as u16)
    }
}

/// The packet begins with the frame now.
pub(super) fn note(frame: &mut Frame, header_len: usize) {
    frame.meta.network = 0;
    frame.meta.transport = header_len as u16;
    frame.meta.end = frame.len() as u16;
}
