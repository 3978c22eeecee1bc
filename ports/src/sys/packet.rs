//! AF_PACKET: the structures of `linux/if_packet.h`, and its ring of received frames.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::{c_int, sockaddr_ll};

use super::mapping::Mapping;
use super::{Plain, socket};

// SAFETY: structures of integers without padding.
unsafe impl Plain for sockaddr_ll {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket2_hdr {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: as above.
unsafe impl Plain for VnetHeader {}

/// `struct virtio_net_hdr` in its legacy form, numbers in the machine's own order: offload work that the kernel left
/// undone in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct VnetHeader {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) hdr_len: u16,
    pub(crate) gso_size: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
}

impl VnetHeader {
    /// The header for the same packet with `bytes` more in front.
    pub(crate) fn behind(self, bytes: usize) -> VnetHeader {
        let further = |at: u16| at.saturating_add(bytes as u16);
        VnetHeader { hdr_len: further(self.hdr_len), csum_start: further(self.csum_start), ..self }
    }

    /// The header for the same packet with `bytes` fewer in front.
    pub(crate) fn without(self, bytes: usize) -> VnetHeader {
        let nearer = |at: u16| at.saturating_sub(bytes as u16);
        VnetHeader { hdr_len: nearer(self.hdr_len), csum_start: nearer(self.csum_start), ..self }
    }

    /// Bytes of the header in its exchange with the kernel.
    pub(crate) const LEN: usize = size_of::<VnetHeader>();

    /// The bytes that the kernel reads.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (to, word) in bytes[2..].chunks_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads the header from the bytes that the kernel wrote.
    pub(crate) fn from_bytes(bytes: [u8; Self::LEN]) -> VnetHeader {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }
}

/// A socket of AF_PACKET that receives nothing yet.
pub(crate) fn new() -> io::Result<std::os::fd::OwnedFd> {
    socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)
}

/// A socket of AF_PACKET for packets without a link-layer header, which receives nothing yet: the driver adds the
/// header of a link that has one.
pub(crate) fn new_bare() -> io::Result<std::os::fd::OwnedFd> {
    socket::new(libc::AF_PACKET, libc::SOCK_DGRAM, 0)
}

/// Destination address for packets of that protocol (an Ethernet type) on an interface without link-layer addresses.
pub(crate) fn address(ifindex: u32, protocol: u16) -> sockaddr_ll {
    let mut address = sockaddr_ll::zeroed();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as i32;
    address
}

/// Binds to an interface; `protocol` 0 is for sending only.
pub(crate) fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: c_int) -> io::Result<()> {
    socket::bind(fd, &address(ifindex, protocol as u16))
}

/// A ring of received frames, TPACKET_V2: slots of one size, each with a word that names its owner.
pub(crate) struct Ring {
    map: Mapping,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Offset of the slot in the ring, in bytes.
    at: usize,
    /// Header of the slot, as the kernel wrote it.
    pub(crate) header: libc::tpacket2_hdr,
}

impl Ring {
    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Makes the ring of `socket`: `slots` of `slot_bytes`, both powers of two.
    pub(crate) fn new(fd: BorrowedFd<'_>, slots: usize, slot_bytes: usize) -> io::Result<Ring> {
        let block = slot_bytes.max(BLOCK);
        let len = slots * slot_bytes;
        let wanted = libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: (len / block) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, wanted)?;
        Ok(Ring::over(Mapping::new(fd, len, 0)?, slots, slot_bytes))
    }

    pub(crate) fn over(map: Mapping, slots: usize, slot_bytes: usize) -> Ring {
        Ring { map, slot_bytes, slots, next: 0 }
    }

    /// The next frame, if there is one.
    #[inline]
    pub(crate) fn front(&self) -> Option<Slot> {
        let at = self.next * self.slot_bytes;
        // Acquire: what the kernel wrote before it gave the slot away is read after this.
        let status = self.map.word(at)?.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.map.read(at).map(|header| Slot { at, header })
    }

    /// Copies bytes of the slot, from `offset` on; `false`, and nothing done, if they would reach past its end.
    #[inline]
    #[must_use]
    pub(crate) fn copy_to(&self, slot: &Slot, offset: usize, to: &mut [u8]) -> bool {
        offset + to.len() <= self.slot_bytes && self.map.copy_to(slot.at + offset, to)
    }

    /// The offload header in front of the frame.
    #[inline]
    pub(crate) fn vnet_header(&self, slot: &Slot) -> Option<VnetHeader> {
        let offset = usize::from(slot.header.tp_mac).checked_sub(VnetHeader::LEN)?;
        if offset > self.slot_bytes { None } else { self.map.read(slot.at + offset) }
    }

    /// Gives the front slot back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(status) = self.map.word(self.next * self.slot_bytes) {
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = (self.next + 1) % self.slots;
    }
}

/// Bytes that the kernel allocates in one piece for a ring.
const BLOCK: usize = 1 << 16;
