//! One packet in memory: the unique owner of a slot in a [`Pool`](crate::Pool), with the pipeline's metadata.
#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::meta::Meta;
use crate::pool::{HEADROOM, Shared};

/// One packet in memory, with headroom in front and tailroom behind it, and its metadata: `frame.meta`.
///
/// Two words, so that a move is cheap. The slot and its head, a cache line, lie in the pool and never move.
pub struct Frame {
    head: NonNull<Head>,
    place: Place,
}

/// Place of a packet, in one word that is moved as such: from its lowest bit on, offset of the packet in the slot, 16 bits; number of the slot,
/// 31 bits; size of the slot, 1 bit; length of the packet, 16 bits. Offset and length, in bytes, are together at most the slot's size; they are at
/// the ends of the word, where one instruction finds each.
#[derive(Clone, Copy)]
struct Place(u64);

/// Size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Room for a frame as on a wire.
    Small = 0,
    /// Room for a packet of many segments.
    Big = 1,
}

impl Place {
    #[inline(always)]
    fn new(size: Size, slot: u32, start: u16, len: u16) -> Place {
        Place(u64::from(len) << 48 | (size as u64) << 47 | u64::from(slot) << 16 | u64::from(start))
    }

    #[inline(always)]
    fn slot(self) -> u32 {
        (self.0 >> 16) as u32 & (u32::MAX >> 1)
    }

    #[inline(always)]
    fn is_big(self) -> bool {
        self.0 >> 47 & 1 != 0
    }

    /// The same slot with another packet.
    #[inline(always)]
    fn with(self, start: u16, len: u16) -> Place {
        Place(u64::from(len) << 48 | self.0 & 0xffff_ffff_0000 | u64::from(start))
    }

    #[inline(always)]
    fn start(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    fn len(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// Bytes of the longest packet that a frame is made for: with all of the headroom in front, its length has 16 bits.
pub const LONGEST: usize = u16::MAX as usize - HEADROOM;

/// Head of a slot, which a pool keeps outside of the slot: one cache line beside the heads of the other slots. The
/// slots themselves all begin in the same few sets of a cache.
#[repr(C, align(64))]
pub(crate) struct Head {
    notes: Notes,
    /// Address of the slot's first byte; constant.
    base: NonNull<u8>,
}

/// Notes that travel with a frame beside the packet.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Metadata: the pipeline's findings and decisions on this frame.
    pub meta: Meta,
}

impl Head {
    pub(crate) fn new(base: NonNull<u8>) -> Head {
        Head { notes: Notes::default(), base }
    }
}

/// Colour of a slot: bytes by which its packets begin later than in other slots, none to three cache lines. Slots
/// lie at least 2 KiB apart: packets at one offset in all slots would fall into two of the 64 sets of a first-level
/// cache, which have room for 16 to 24.
#[inline(always)]
fn colour(slot: u32) -> usize {
    // Of a page's two slots of 2 KiB one is odd, and lies in other sets anyway.
    (slot as usize >> 1) % 4 * 64
}

/// Offset at which a packet of `len` bytes is put in a slot with room for so many, `None` if it does not fit behind the headroom.
#[inline(always)]
pub(crate) fn start(slot: u32, len: usize, room: usize) -> Option<u16> {
    if len > (room - HEADROOM).min(LONGEST) {
        return None;
    }
    let start = HEADROOM + colour(slot);
    Some((if start + len <= room { start } else { HEADROOM }) as u16)
}

impl Deref for Frame {
    type Target = Notes;
    #[inline(always)]
    fn deref(&self) -> &Notes {
        // SAFETY: the head stays valid while its slot is out (see `Pool::drop`), and this frame is its unique owner.
        unsafe { &(*self.head.as_ptr()).notes }
    }
}

impl DerefMut for Frame {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Notes {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { &mut (*self.head.as_ptr()).notes }
    }
}

impl Frame {
    /// The packet, from its link-layer header on.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len` is at most the slot's size, the slot is all initialised (the mapping is zeroed),
        // and this frame is its unique owner.
        unsafe { std::slice::from_raw_parts(self.first(), self.len()) }
    }

    /// The packet beside its metadata, for a stage that reads the packet and writes the metadata.
    #[inline(always)]
    pub fn view(&mut self) -> (&[u8], &mut Meta) {
        // SAFETY: as in `bytes` and `deref_mut`; slot and head do not overlap.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.first(), self.len());
            (bytes, &mut (*self.head.as_ptr()).notes.meta)
        }
    }

    /// The packet, writable.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len()) }
    }

    /// The packet's first byte.
    #[inline(always)]
    fn first(&self) -> *mut u8 {
        // SAFETY: the head is valid as in `deref`; `start` lies within the slot.
        unsafe { (*self.head.as_ptr()).base.as_ptr().add(self.headroom()) }
    }

    /// Bytes of the slot for packet, headroom and tailroom.
    #[inline(always)]
    fn room(&self) -> usize {
        // SAFETY: `Shared` is valid while a slot is out (see `Pool::drop`), and its size of slots never changes.
        unsafe { (*self.shared().as_ptr()).room }
    }

    /// True if the slot is one for packets of many segments ([`Pool::take_big`](crate::Pool::take_big)).
    #[inline(always)]
    pub fn is_big(&self) -> bool {
        self.place.is_big()
    }

    /// Bytes of payload in each segment but the last of a packet of many segments; `None` for a frame as on a wire.
    #[inline]
    pub fn segment_size(&self) -> Option<u16> {
        if !self.is_big() {
            return None;
        }
        // SAFETY: a big slot has `RECORD` initialised bytes behind its room, at a multiple of 64, and this frame is its unique
        // owner.
        Some(unsafe { (*self.head.as_ptr()).base.add(self.room()).cast::<u16>().read() })
    }

    /// Sets [`Frame::segment_size`]; no effect on a frame as on a wire.
    pub fn set_segment_size(&mut self, bytes: u16) {
        if self.is_big() {
            // SAFETY: as in `segment_size`, and `&mut self` makes the access unique.
            unsafe { (*self.head.as_ptr()).base.add(self.room()).cast::<u16>().write(bytes) }
        }
    }

    /// Length of the packet in bytes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.place.len() as usize
    }

    /// Number of the slot in its pool, unique to this frame while the frame lives.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.place.slot()
    }

    /// Bytes free in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.place.start() as usize
    }

    /// Bytes free behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.room() - (self.headroom() + self.len())
    }

    /// Replaces the packet by a copy of `packet`, with at least [`HEADROOM`] in front. `false`, and unchanged, if the
    /// packet does not fit.
    #[inline]
    #[must_use]
    pub fn fill(&mut self, packet: &[u8]) -> bool {
        let Some(bytes) = self.prepare(packet.len()) else { return false };
        bytes.copy_from_slice(packet);
        true
    }

    /// Replaces the packet by one of `len` bytes of any content, for the caller to write, with at least [`HEADROOM`] in
    /// front. `None`, and unchanged, if `len` bytes do not fit.
    #[inline]
    pub fn prepare(&mut self, len: usize) -> Option<&mut [u8]> {
        self.put(start(self.slot(), len, self.room())?, len as u16);
        Some(self.bytes_mut())
    }

    /// Makes the packet `bytes` longer in front and returns the new bytes, whatever they hold; `None`,
    /// and unchanged, if the headroom is smaller.
    #[inline]
    pub fn push_front(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.headroom() {
            return None;
        }
        self.put(self.place.start() - bytes as u16, self.place.len() + bytes as u16);
        self.bytes_mut().get_mut(..bytes)
    }

    /// Cuts `bytes` bytes off the front, all of them if there are fewer.
    #[inline]
    pub fn pull_front(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len()) as u16;
        self.put(self.place.start() + bytes, self.place.len() - bytes);
    }

    /// Makes the packet `bytes` longer behind and returns the new bytes, whatever they hold; `None`, and
    /// unchanged, if there is no room.
    #[inline]
    pub fn push_back(&mut self, bytes: usize) -> Option<&mut [u8]> {
        // The length has 16 bits, and a big slot room for more.
        if bytes > self.tailroom().min(usize::from(u16::MAX) - self.len()) {
            return None;
        }
        let old = self.len();
        self.put(self.place.start(), self.place.len() + bytes as u16);
        self.bytes_mut().get_mut(old..)
    }

    /// Cuts the packet to `len` bytes; no effect if it is shorter.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.put(self.place.start(), len as u16);
        }
    }

    /// Sets offset and length of the packet.
    #[inline(always)]
    fn put(&mut self, start: u16, len: u16) {
        self.place = self.place.with(start, len);
    }

    /// # Safety
    /// `head` must be the head of `slot` in its pool's heads, right behind their `Shared` and all in one allocation;
    /// its base must point at a slot of that size, of at least `start + len` initialised bytes. Nobody else may read or write head
    /// and slot while this frame lives; slot, heads and `Shared` must stay valid as long.
    #[inline(always)]
    pub(crate) unsafe fn over(head: NonNull<Head>, size: Size, slot: u32, start: u16, len: u16) -> Frame {
        let mut frame = Frame { head, place: Place::new(size, slot, start, len) };
        frame.meta = Meta::default();
        frame
    }

    /// Data shared by all frames of the pool.
    #[inline(always)]
    pub(crate) fn shared(&self) -> NonNull<Shared> {
        // SAFETY: it lies in front of the first head, as `over` was promised.
        unsafe { self.head.sub(self.slot() as usize + 1).cast() }
    }

    /// Gives up ownership without marking an orphan.
    #[inline(always)]
    pub(crate) fn into_slot(self) -> u32 {
        let slot = self.slot();
        mem::forget(self);
        slot
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: `shared` stays valid while a slot is out (see `Pool::drop`).
        unsafe { Shared::orphan(self.shared(), self.slot()) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("slot", &self.slot())
            .field("len", &self.len())
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
    fn a_frame_is_two_words_and_its_head_a_cache_line() {
        assert_eq!((size_of::<super::Frame>(), size_of::<super::Head>()), (16, 64));
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

    #[test]
    fn packets_of_neighbouring_slots_begin_in_different_sets_of_a_cache() {
        let mut pool = Pool::new(64, 2048).unwrap();
        let mut frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let mut lines = [0; 64];
        for frame in &mut frames {
            assert!(frame.fill(&[1; 1514]));
            assert!((256..=448).contains(&frame.headroom()));
            lines[frame.bytes().as_ptr() as usize / 64 % 64] += 1;
        }
        assert!(lines.iter().all(|frames| *frames <= 8), "{lines:?}");
        // What fits behind the least headroom is taken in, whatever the slot.
        for frame in &mut frames {
            assert!(frame.fill(&[2; 2048 - 256]));
            assert_eq!((frame.headroom(), frame.tailroom()), (256, 0));
            assert!(!frame.fill(&[2; 2048 - 255]));
        }
        frames.into_iter().for_each(|frame| pool.put(frame));
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn metadata_goes_with_its_frame() {
        let mut pool = Pool::new(2, 2048).unwrap();
        let (mut one, mut two) = (pool.take().unwrap(), pool.take().unwrap());
        (one.meta.number, two.meta.number) = (1, 2);
        assert!(one.fill(b"one") && two.fill(b"two"));
        std::mem::swap(&mut one, &mut two);
        assert_eq!(
            (one.meta.number, one.bytes(), two.meta.number, two.bytes()),
            (2, &b"two"[..], 1, &b"one"[..])
        );
        // Only what is known changes places here, not what is owned.
        std::mem::swap(&mut *one, &mut *two);
        assert_eq!((one.meta.number, one.bytes()), (1, &b"two"[..]));
        let (bytes, meta) = one.view();
        meta.end = bytes.len() as u16;
        assert_eq!(one.meta.end, 3);
        pool.put(one);
        assert_eq!(pool.take().unwrap().meta.number, 0, "a frame fresh from its pool knows nothing");
        pool.put(two);
    }
}
