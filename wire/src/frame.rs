//! One packet in memory: the unique owner of a slot in a [`Pool`](crate::Pool), and what the pipeline has
//! found out about it so far.
#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::ptr::NonNull;

use crate::meta::Meta;
use crate::pool::{HEADROOM, Shared};

/// One packet in memory, with headroom in front and room behind it, and its metadata.
pub struct Frame {
    base: NonNull<u8>,
    shared: NonNull<Shared>,
    slot: u32,
    /// Bytes of the slot.
    room: u16,
    /// Where the packet begins in the slot; `start + len <= room` always.
    start: u16,
    len: u16,
    /// What the pipeline knows of this frame.
    pub meta: Meta,
}

impl Frame {
    /// The packet, from its link-layer header on.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len <= room`, the slot is `room` bytes, all initialised (the mapping is
        // zeroed), and this frame is its unique owner.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.start as usize), self.len as usize) }
    }

    /// The packet, to be changed.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the borrow unique.
        unsafe {
            std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.start as usize), self.len as usize)
        }
    }

    /// Length of the packet in bytes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes free in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start as usize
    }

    /// Bytes free behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.room - self.start - self.len) as usize
    }

    /// Replaces the packet by a copy of `packet`, with full headroom. `false`, and unchanged, if it does
    /// not fit.
    #[inline]
    #[must_use]
    pub fn fill(&mut self, packet: &[u8]) -> bool {
        if packet.len() > self.room as usize - HEADROOM {
            return false;
        }
        self.start = HEADROOM as u16;
        self.len = packet.len() as u16;
        self.bytes_mut().copy_from_slice(packet);
        true
    }

    /// Makes the packet `bytes` longer in front and returns the new bytes, whatever they hold; `None`,
    /// and unchanged, if the headroom is smaller.
    #[inline]
    pub fn push_front(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.headroom() {
            return None;
        }
        self.start -= bytes as u16;
        self.len += bytes as u16;
        self.bytes_mut().get_mut(..bytes)
    }

    /// Cuts `bytes` bytes off the front, all of them if there are fewer.
    #[inline]
    pub fn pull_front(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len()) as u16;
        self.start += bytes;
        self.len -= bytes;
    }

    /// Makes the packet `bytes` longer behind and returns the new bytes, whatever they hold; `None`, and
    /// unchanged, if there is no room.
    #[inline]
    pub fn push_back(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.tailroom() {
            return None;
        }
        let old = self.len();
        self.len += bytes as u16;
        self.bytes_mut().get_mut(old..)
    }

    /// Cuts the packet to `len` bytes; no effect if it is shorter.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.len = len as u16;
        }
    }

    /// # Safety
    /// `base` must point at a slot of `room` initialised bytes that nobody else reads or writes while this
    /// frame lives, and `shared` at a `Shared` with a bit for `slot`; both must stay valid as long.
    pub(crate) unsafe fn over(base: NonNull<u8>, shared: NonNull<Shared>, slot: u32, room: u16) -> Frame {
        Frame { base, shared, slot, room, start: HEADROOM as u16, len: 0, meta: Meta::default() }
    }

    pub(crate) fn shared(&self) -> NonNull<Shared> {
        self.shared
    }

    /// Gives up ownership without marking an orphan.
    pub(crate) fn into_slot(self) -> u32 {
        let slot = self.slot;
        mem::forget(self);
        slot
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: `shared` stays valid while a slot is out (see `Pool::drop`).
        unsafe { Shared::orphan(self.shared, self.slot) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("slot", &self.slot)
            .field("len", &self.len)
            .field("meta", &self.meta)
            .finish()
    }
}

// SAFETY: a frame is the only way to its slot, and `Shared` is made of atomics.
unsafe impl Send for Frame {}

#[cfg(test)]
mod tests {
    use crate::Pool;

    #[test]
    fn a_frame_with_its_metadata_is_two_cache_lines_at_most() {
        assert!(size_of::<super::Frame>() <= 128);
    }

    #[test]
    fn grows_and_shrinks_at_both_ends_within_its_slot() {
        let mut pool = Pool::new(1, 2048).unwrap();
        let mut frame = pool.take().unwrap();
        assert!(frame.fill(b"packet"));
        assert_eq!((frame.headroom(), frame.tailroom()), (256, 2048 - 256 - 6));
        frame.push_front(2).unwrap().copy_from_slice(b"a ");
        frame.push_back(1).unwrap().copy_from_slice(b"!");
        assert_eq!(frame.bytes(), b"a packet!");
        frame.pull_front(2);
        frame.truncate(3);
        assert_eq!(frame.bytes(), b"pac");
        frame.pull_front(99);
        assert_eq!(frame.bytes(), b"");
        assert!(frame.push_front(2048).is_none());
        assert!(frame.push_back(2048).is_none());
        assert!(!frame.fill(&[0; 2048 - 255]));
        assert!(frame.fill(&[0; 2048 - 256]));
        assert_eq!(frame.tailroom(), 0);
        pool.put(frame);
    }
}
