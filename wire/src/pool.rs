//! Frame pool: one mapping, divided into slots of one size, allocated at start.
//!
//! [`Pool::take`] hands out a [`Frame`], the unique owner of a slot; [`Pool::put`] takes it back at the
//! cost of a push. A frame that is dropped elsewhere (an early return, another thread) is not lost: it
//! marks its slot as an orphan, and the pool collects orphans when its free list runs dry.
//!
//! Metadata of frames lies apart from the slots, in an array with one head for each slot.
//!
//! The mapping is page-aligned and never moves, so that a driver can register the mapping with the kernel. Pages of slots that
//! were never used need not be resident: [`Pool::prefault`] makes all of them resident.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::frame::{self, Frame, Head, LONGEST, Size};

/// Bytes kept free in front of a received frame, for headers that are pushed later.
pub const HEADROOM: usize = 256;

const PAGE: usize = 4096;

/// Bytes of a slot for packets of many segments: whole pages that hold the longest packet wherever it begins, and the record behind.
const BIG_BYTES: usize = (HEADROOM + 3 * 64 + LONGEST + RECORD).next_multiple_of(PAGE);

/// Bytes of the record at the end of such a slot, which has the size of segments.
const RECORD: usize = 64;

/// Slots of one mapping and the list of those that are free.
pub struct Pool {
    /// Shared state, in one allocation with the heads and in front of them.
    shared: NonNull<Shared>,
    free: Vec<u32>,
    slots: u32,
    slot_bytes: usize,
    size: Size,
    /// Slots for packets of many segments, if there are any.
    big: Option<Box<Pool>>,
}

/// State of a pool that its frames refer to: as large as a head, in front of the heads.
#[repr(C, align(64))]
pub(crate) struct Shared {
    /// Bytes of each slot.
    pub(crate) slot_bytes: usize,
    /// Bytes of each slot that packets may use.
    pub(crate) room: usize,
    /// One bit for each slot, set when the slot's owner was dropped without returning the slot.
    orphans: Box<[AtomicU64]>,
    /// The first slot's first byte, at the beginning of a page.
    memory: NonNull<u8>,
    /// Start of the allocation; the first slot begins less than a page after it.
    allocated: NonNull<u8>,
    slots: u32,
    /// Number of holders: the pool, and each [`PoolMemory`]. The last holder frees everything.
    holders: AtomicU32,
}

impl Shared {
    /// Returns the layout of a `Shared` with the heads of `slots` slots.
    fn layout(slots: u32) -> Option<Layout> {
        const { assert!(size_of::<Shared>() == size_of::<Head>() && align_of::<Shared>() == align_of::<Head>()) };
        Layout::array::<Head>(slots as usize + 1).ok()
    }

    /// Returns the layout of a mapping with room for `slots` slots from the beginning of a page on. The layout itself is not
    /// aligned to a page: the allocator zeroes aligned memory by writing, which makes every page resident.
    fn memory_layout(slots: u32, slot_bytes: usize) -> Option<Layout> {
        (slots as usize)
            .checked_mul(slot_bytes)
            .filter(|bytes| *bytes > 0)
            .and_then(|bytes| Layout::from_size_align(bytes.checked_add(PAGE)?, 1).ok())
    }

    /// Releases one holder's reference; the last release frees everything.
    ///
    /// # Safety
    /// The caller must have a hold, and never use `shared` again.
    unsafe fn release(shared: NonNull<Shared>) {
        // SAFETY: valid while the caller's hold lasts. Release and acquire: what others did before they gave up theirs
        // comes before the memory goes.
        let (slots, slot_bytes, allocated) = unsafe {
            let shared = shared.as_ref();
            if shared.holders.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            (shared.slots, shared.slot_bytes, shared.allocated)
        };
        let (Some(layout), Some(heads_layout)) =
            (Shared::memory_layout(slots, slot_bytes), Shared::layout(slots))
        else {
            return;
        };
        // SAFETY: nobody holds it any more, and the pool gave up its hold only when every slot was home, so no frame
        // points here; both were allocated in `Pool::new` with these layouts. Heads need no drop.
        unsafe {
            dealloc(allocated.as_ptr(), layout);
            shared.drop_in_place();
            dealloc(shared.as_ptr().cast(), heads_layout);
        }
    }

    /// The first head.
    ///
    /// # Safety
    /// `shared` must come from an allocation of [`Shared::layout`].
    unsafe fn heads(shared: NonNull<Shared>) -> NonNull<Head> {
        // SAFETY: it is within the allocation, as the caller promises.
        unsafe { shared.add(1).cast() }
    }

    /// Marks `slot` as left behind. Release, so that the collector sees the last writes to the slot.
    ///
    /// # Safety
    /// `shared` must be valid until the bit is set. From then on the pool may free it, which is why this
    /// takes no reference that would have to outlive that.
    pub(crate) unsafe fn orphan(shared: NonNull<Shared>, slot: u32) {
        // SAFETY: valid until the store, as the caller promises; an atomic may be freed by whoever sees it.
        unsafe {
            let word: *const AtomicU64 = &raw const (&(*shared.as_ptr()).orphans)[slot as usize / 64];
            (*word).fetch_or(1 << (slot % 64), Ordering::Release);
        }
    }
}

/// Failure to create a frame pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Slots must be 2, 4, 8 or 16 KiB.
    #[error("a frame slot of {0} bytes: choose 2048, 4096, 8192 or 16384")]
    SlotSize(usize),
    /// At least one slot, and no more than memory can be addressed for.
    #[error("a frame pool of {0} slots cannot be addressed")]
    SlotCount(u32),
    /// The system refused this many bytes.
    #[error("no memory for a frame pool of {0} bytes")]
    NoMemory(usize),
}

impl Pool {
    /// A pool of `slots` slots of `slot_bytes` bytes each (2, 4, 8 or 16 KiB), all free.
    pub fn new(slots: u32, slot_bytes: usize) -> Result<Pool, PoolError> {
        if !matches!(slot_bytes, 2048 | 4096 | 8192 | 16384) {
            return Err(PoolError::SlotSize(slot_bytes));
        }
        Pool::of(Size::Small, slots, slot_bytes)
    }

    /// The pool, with `slots` more slots for packets of many segments ([`Pool::take_big`]), of 68 KiB each.
    ///
    /// # Errors
    /// No slots, or no memory for them.
    pub fn with_big(mut self, slots: u32) -> Result<Pool, PoolError> {
        self.big = Some(Box::new(Pool::of(Size::Big, slots, BIG_BYTES)?));
        Ok(self)
    }

    fn of(size: Size, slots: u32, slot_bytes: usize) -> Result<Pool, PoolError> {
        // A frame has 31 bits for its slot.
        let slots_fit = slots <= u32::MAX >> 1;
        let layout = Shared::memory_layout(slots, slot_bytes).filter(|_| slots_fit);
        let layout = layout.ok_or(PoolError::SlotCount(slots))?;
        let heads_layout = Shared::layout(slots).ok_or(PoolError::SlotCount(slots))?;
        // SAFETY: neither layout's size is zero (checked above; there is one more than the heads).
        let allocated =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(PoolError::NoMemory(layout.size()))?;
        // SAFETY: the allocation has room for a page more than the slots.
        let memory = unsafe { allocated.add(allocated.align_offset(PAGE)) };
        // SAFETY: as above.
        let Some(shared) = NonNull::new(unsafe { alloc(heads_layout) }).map(NonNull::cast) else {
            // SAFETY: just allocated, with this layout.
            unsafe { dealloc(allocated.as_ptr(), layout) };
            return Err(PoolError::NoMemory(heads_layout.size()));
        };
        let words = (slots as usize).div_ceil(64);
        // SAFETY: the allocation has room for a `Shared` and `slots` heads, each of which is written before anybody
        // reads it; slot bases lie in the mapping.
        unsafe {
            let orphans = (0..words).map(|_| AtomicU64::new(0)).collect();
            shared.write(Shared {
                slot_bytes,
                room: if size == Size::Big { slot_bytes - RECORD } else { slot_bytes },
                orphans,
                memory,
                allocated,
                slots,
                holders: AtomicU32::new(1),
            });
            for slot in 0..slots as usize {
                Shared::heads(shared).add(slot).write(Head::new(memory.add(slot * slot_bytes)));
            }
        }
        Ok(Pool {
            shared,
            // The lowest slot is handed out first: few slots in flight stay few cache lines.
            free: (0..slots).rev().collect(),
            slots,
            slot_bytes,
            size,
            big: None,
        })
    }

    /// Makes the pages of all slots, so that none is made on the packet path. All slots must be free.
    pub fn prefault(&mut self) {
        if let Some(big) = &mut self.big {
            big.prefault();
        }
        if self.free.len() != self.slots as usize {
            return;
        }
        // SAFETY: valid while the pool's hold lasts.
        let memory = unsafe { self.shared.as_ref() }.memory;
        for at in (0..self.slots as usize * self.slot_bytes).step_by(PAGE) {
            // SAFETY: it is within the mapping, and no frame owns a slot. Volatile, so that it is done.
            unsafe { memory.add(at).write_volatile(0) };
        }
    }

    /// An empty frame with [`HEADROOM`] bytes in front, or `None` when every slot is in use.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let slot = self.take_slot()?;
        // SAFETY: `slot` came off the free list, so it is below `slots` and no other frame owns it; the
        // mapping, the heads and `shared` outlive the frame, because `drop` frees them only when no slot is out.
        Some(unsafe {
            let head = Shared::heads(self.shared).add(slot as usize);
            Frame::over(head, self.size, slot, HEADROOM as u16, 0)
        })
    }

    /// A frame with a copy of `packet`, as [`Frame::fill`] makes one; `None` when every slot is in use, or the packet is longer than a slot has
    /// room for.
    #[inline(always)]
    pub fn take_filled(&mut self, packet: &[u8]) -> Option<Frame> {
        let slot = self.take_slot()?;
        // SAFETY: valid while the pool's hold lasts.
        let room = unsafe { self.shared.as_ref() }.room;
        let Some(start) = frame::start(slot, packet.len(), room) else {
            self.free.push(slot);
            return None;
        };
        // SAFETY: as in `take`; the packet fits behind `start`.
        let mut frame = unsafe {
            let head = Shared::heads(self.shared).add(slot as usize);
            Frame::over(head, self.size, slot, start, packet.len() as u16)
        };
        frame.bytes_mut().copy_from_slice(packet);
        Some(frame)
    }

    /// An empty frame for a packet of up to [`LONGEST`] bytes that stands for many segments, `size` bytes of payload in each but the
    /// last; `None` when every such slot is in use, or the pool has none.
    pub fn take_big(&mut self, size: u16) -> Option<Frame> {
        let mut frame = self.big.as_mut()?.take()?;
        frame.set_segment_size(size);
        Some(frame)
    }

    /// Takes back the slots of many frames, in fewer steps than [`Pool::put`] of each.
    #[inline(always)]
    pub fn put_all(&mut self, frames: impl Iterator<Item = Frame>) {
        let Pool { shared, free, big, .. } = self;
        let before = free.len();
        let mut places = free.spare_capacity_mut().iter_mut();
        let room = places.len();
        for frame in frames {
            if frame.shared() != *shared {
                Pool::put_other(big, frame);
            } else if let Some(place) = places.next() {
                place.write(frame.into_slot());
            }
        }
        let after = before + room - places.len();
        // SAFETY: the places up to there were written above. Should `frames` panic before, its slots are lost rather than handed out twice.
        unsafe { free.set_len(after) }
    }

    /// Takes a frame's slot back. A frame of another pool goes home to that pool.
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        if frame.shared() == self.shared {
            self.free.push(frame.into_slot());
        } else {
            Pool::put_other(&mut self.big, frame);
        }
    }

    /// Takes the slot of a frame of another pool, such as `big`, back to that pool.
    #[cold]
    fn put_other(big: &mut Option<Box<Pool>>, frame: Frame) {
        match big {
            Some(big) if frame.is_big() => big.put(frame),
            // Its pool finds it among the orphans.
            _ => drop(frame),
        }
    }

    /// A slot off the free list.
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => Some(slot),
            None => {
                self.collect();
                self.free.pop()
            }
        }
    }

    /// Returns a slot to the free list.
    ///
    /// # Safety
    /// The slot must be this pool's, and nobody else may have it: neither the free list nor a frame nor a driver.
    #[inline]
    pub(crate) unsafe fn put_slot(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Number of free slots, not counting orphans.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Number of slots, free or in use.
    pub fn capacity(&self) -> usize {
        self.slots as usize
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The mapping that the slots lie in, to be registered with the kernel.
    pub fn memory(&self) -> PoolMemory {
        // SAFETY: `shared` is valid while the pool has its hold, which it gives up only in `drop`.
        unsafe { self.shared.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        PoolMemory { shared: self.shared }
    }

    /// Moves the slots of dropped frames to the free list.
    #[cold]
    fn collect(&mut self) {
        // SAFETY: `shared` is freed only in `drop`.
        let shared = unsafe { self.shared.as_ref() };
        for (word, orphans) in shared.orphans.iter().enumerate() {
            let mut bits = orphans.swap(0, Ordering::Acquire);
            while bits != 0 {
                self.free.push(word as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.collect();
        if self.free.len() < self.slots as usize {
            // Frames are still out; they stay valid because the mapping is left to them.
            return;
        }
        // SAFETY: this is the hold that `new` began with.
        unsafe { Shared::release(self.shared) }
    }
}

/// Reference to the mapping of a [`Pool`], which keeps the mapping allocated: for a driver to register with the kernel, on any
/// thread.
pub struct PoolMemory {
    shared: NonNull<Shared>,
}

impl PoolMemory {
    fn shared(&self) -> &Shared {
        // SAFETY: valid while `self` has its hold.
        unsafe { self.shared.as_ref() }
    }

    /// Address of the first byte of the mapping, at the beginning of a page. Slots follow one another from there.
    pub fn base(&self) -> NonNull<u8> {
        self.shared().memory
    }

    /// Length of the mapping, in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.slots() as usize * self.slot_bytes()
    }

    /// Number of slots in the mapping.
    pub fn slots(&self) -> u32 {
        self.shared().slots
    }

    /// Bytes of each slot.
    pub fn slot_bytes(&self) -> usize {
        self.shared().slot_bytes
    }

    /// True if the slot of `frame` lies in the mapping.
    #[inline]
    pub(crate) fn is_home_of(&self, frame: &Frame) -> bool {
        frame.shared() == self.shared
    }

    /// A frame over what lies in a slot.
    ///
    /// # Safety
    /// `start + len` must be no more than a slot's bytes. The slot must be this pool's, and nobody else may have it.
    #[inline]
    pub(crate) unsafe fn frame(&self, slot: u32, start: u16, len: u16) -> Frame {
        // SAFETY: as the caller promises; the pool frees nothing while a slot is out.
        unsafe {
            // Only slots of one frame as on a wire are shared with a kernel.
            let head = Shared::heads(self.shared).add(slot as usize);
            Frame::over(head, Size::Small, slot, start, len)
        }
    }

    /// Marks a slot as an orphan, for the pool to collect.
    ///
    /// # Safety
    /// The slot must be this pool's, and nobody else may have it.
    pub(crate) unsafe fn orphan(&self, slot: u32) {
        // SAFETY: `self` holds it.
        unsafe { Shared::orphan(self.shared, slot) }
    }

    /// True if it is that of `pool`.
    pub fn is_of(&self, pool: &Pool) -> bool {
        self.shared == pool.shared
    }
}

impl Clone for PoolMemory {
    fn clone(&self) -> PoolMemory {
        self.shared().holders.fetch_add(1, Ordering::Relaxed);
        PoolMemory { shared: self.shared }
    }
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        // SAFETY: the hold is this value's own.
        unsafe { Shared::release(self.shared) }
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory")
            .field("slots", &self.slots())
            .field("slot_bytes", &self.slot_bytes())
            .finish()
    }
}

// SAFETY: it lends numbers that never change and an address; the count of holders is atomic.
unsafe impl Send for PoolMemory {}
// SAFETY: as above.
unsafe impl Sync for PoolMemory {}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("slots", &self.slots)
            .field("slot_bytes", &self.slot_bytes)
            .field("available", &self.available())
            .finish()
    }
}

// SAFETY: a pool owns its mapping and reaches the rest of its state only through `&mut self`; `Shared`
// is made of atomics.
unsafe impl Send for Pool {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_handed_out_once_and_come_back() {
        let mut pool = Pool::new(3, 2048).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(frames.len(), 3);
        assert_eq!(pool.available(), 0);
        for (index, frame) in frames.iter_mut().enumerate() {
            assert!(frame.fill(&[index as u8; 1500]));
        }
        for (index, frame) in frames.iter().enumerate() {
            assert!(frame.bytes().iter().all(|byte| *byte == index as u8));
        }
        for frame in frames {
            pool.put(frame);
        }
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn a_dropped_frame_is_collected() {
        let mut pool = Pool::new(1, 2048).unwrap();
        drop(pool.take());
        assert_eq!(pool.available(), 0);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_frame_outlives_its_pool_and_other_threads_may_drop_it() {
        let mut pool = Pool::new(2, 2048).unwrap();
        let mut frame = pool.take().unwrap();
        let other = pool.take().unwrap();
        std::thread::spawn(move || drop(other)).join().unwrap();
        assert!(pool.take().is_some());
        drop(pool);
        assert!(frame.fill(b"still here"));
        assert_eq!(frame.bytes(), b"still here");
        // The pool left its memory to the frame: Miri runs with leaks allowed for this one.
    }

    #[test]
    fn a_frame_of_another_pool_goes_home() {
        let mut here = Pool::new(1, 2048).unwrap();
        let mut there = Pool::new(1, 2048).unwrap();
        here.put(there.take().unwrap());
        assert_eq!(here.available(), 1);
        assert!(there.take().is_some());
    }

    #[test]
    fn many_frames_come_back_at_once_each_to_its_pool() {
        let mut here = Pool::new(4, 2048).unwrap().with_big(1).unwrap();
        let mut there = Pool::new(2, 2048).unwrap();
        let mut frames = vec![here.take().unwrap(), there.take().unwrap(), here.take_big(9).unwrap()];
        frames.extend([here.take().unwrap(), there.take().unwrap()]);
        let allocated = here.free.capacity();
        here.put_all(frames.into_iter());
        assert_eq!((here.available(), here.free.capacity()), (4, allocated));
        let frames: Vec<Frame> = std::iter::from_fn(|| here.take()).collect();
        let slots: std::collections::BTreeSet<u32> = frames.iter().map(Frame::slot).collect();
        assert_eq!(slots.len(), 4);
        assert!(here.take_big(1).is_some());
        assert!(there.take().is_some() && there.take().is_some());
    }

    #[test]
    fn a_pool_outlives_frames_that_end_in_a_panic() {
        let mut pool = Pool::new(4, 2048).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut left = 2;
            pool.put_all(
                frames.drain(..).inspect(|_| left = usize::checked_sub(left, 1).expect("two come back")),
            );
        }));
        assert!(ended.is_err());
        drop(frames);
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        let slots: std::collections::BTreeSet<u32> = frames.iter().map(Frame::slot).collect();
        assert_eq!(slots.len(), frames.len());
    }

    #[test]
    fn a_frame_is_taken_with_a_copy_as_one_that_is_filled() {
        for len in [0, 1, 64, 1_500, 2048 - HEADROOM - 192, 2048 - HEADROOM - 191, 2048 - HEADROOM] {
            let (mut one, mut other) = (Pool::new(9, 2048).unwrap(), Pool::new(9, 2048).unwrap());
            let packet: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let mut kept = Vec::new();
            for _ in 0..9 {
                let (taken, mut filled) = (one.take_filled(&packet).unwrap(), other.take().unwrap());
                assert!(filled.fill(&packet));
                assert_eq!(taken.bytes(), filled.bytes());
                assert_eq!((taken.headroom(), taken.slot()), (filled.headroom(), filled.slot()));
                kept.push((taken, filled));
            }
            assert!(one.take_filled(&packet).is_none());
        }
        let mut pool = Pool::new(1, 2048).unwrap();
        assert!(pool.take_filled(&[0; 2048 - HEADROOM + 1]).is_none());
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn packets_of_many_segments_have_slots_of_their_own() {
        let mut pool = Pool::new(2, 2048).unwrap().with_big(2).unwrap();
        let (mut one, mut two) = (pool.take_big(1448).unwrap(), pool.take_big(536).unwrap());
        assert!(pool.take_big(1).is_none());
        for frame in [&mut one, &mut two] {
            assert!(!frame.fill(&[1; LONGEST + 1]));
            assert!(frame.fill(&[7; LONGEST]));
            // All of the headroom, and as much behind as a length can say, leave the size of segments alone.
            let front = frame.headroom();
            frame.push_front(HEADROOM).unwrap().fill(7);
            assert!(frame.push_back(1).is_none());
            frame.pull_front(HEADROOM);
            frame.push_back(HEADROOM).unwrap().fill(7);
            assert_eq!((frame.len(), frame.headroom()), (LONGEST + HEADROOM, front));
            assert!(frame.is_big() && frame.bytes().iter().all(|byte| *byte == 7));
        }
        assert_eq!((one.segment_size(), two.segment_size()), (Some(1448), Some(536)));
        let slots = [one.slot(), two.slot()];
        pool.put(one);
        drop(two);
        let again = pool.take_big(9).unwrap();
        assert_eq!((again.slot(), again.segment_size(), again.len()), (slots[0], Some(9), 0));
        let orphan = pool.take_big(8).unwrap();
        assert_eq!((orphan.slot(), orphan.segment_size()), (slots[1], Some(8)));
        let small = pool.take().unwrap();
        assert_eq!((small.is_big(), small.segment_size(), pool.available()), (false, None, 1));
        // Another pool without such slots sends it home.
        let mut other = Pool::new(1, 2048).unwrap();
        other.put(again);
        assert!(other.take_big(1).is_none() && pool.take_big(1).is_some());
        pool.put(orphan);
        pool.put(small);
    }

    #[test]
    fn memory_outlives_its_pool() {
        let mut pool = Pool::new(4, 2048).unwrap();
        let memory = pool.memory();
        let frame = pool.take().unwrap();
        assert!(memory.is_of(&pool) && !memory.is_of(&Pool::new(4, 2048).unwrap()));
        assert_eq!((memory.slots(), memory.slot_bytes(), memory.len()), (4, 2048, 8192));
        assert_eq!(memory.base().as_ptr() as usize % PAGE, 0);
        pool.put(frame);
        drop(pool);
        let other = memory.clone();
        drop(memory);
        // SAFETY: the mapping is zeroed and `other` holds it.
        assert_eq!(unsafe { other.base().read() }, 0);
    }

    #[test]
    fn odd_sizes_are_refused() {
        assert_eq!(Pool::new(1, 1500).unwrap_err(), PoolError::SlotSize(1500));
        assert_eq!(Pool::new(0, 2048).unwrap_err(), PoolError::SlotCount(0));
    }
}
