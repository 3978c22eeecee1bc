//! Slots of a pool in the hands of a driver: the kernel, or a card, that reads and writes the pool's memory by itself.
//!
//! A slot is lent empty, to be filled, or with a frame in it, to be sent; it comes back by its address. The driver's
//! word is checked: an address that is not lent, or a length past the slot's end, gives no frame. Slots still lent when
//! a [`Loan`] is dropped stay lent, because the driver may still use them; [`Loan::end`] is for callers who know that
//! it does not.
#![allow(unsafe_code)]

use crate::frame::Frame;
use crate::pool::{Pool, PoolMemory};

/// Slots of a pool that a driver has.
#[derive(Debug)]
pub struct Loan {
    memory: PoolMemory,
    /// One bit a slot, set while it is lent.
    lent: Box<[u64]>,
    count: usize,
}

/// Address and length of a frame in the pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the memory's first byte to the packet's.
    pub address: u64,
    /// Length of the packet in bytes.
    pub len: u32,
}

impl Loan {
    /// No slot of this memory's pool yet.
    pub fn new(memory: PoolMemory) -> Loan {
        let lent = vec![0; (memory.slots() as usize).div_ceil(64)].into();
        Loan { memory, lent, count: 0 }
    }

    /// Number of slots that are lent.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The memory that the slots lie in.
    pub fn memory(&self) -> &PoolMemory {
        &self.memory
    }

    /// Lends an empty slot: its address. `None` when every slot is in use, or the pool is another one.
    #[inline]
    pub fn lend_empty(&mut self, pool: &mut Pool) -> Option<u64> {
        if !self.memory.is_of(pool) {
            return None;
        }
        let slot = pool.take_slot()?;
        self.set(slot);
        Some(u64::from(slot) * self.memory.slot_bytes() as u64)
    }

    /// Lends a frame and returns the place of its packet. A frame of another pool is given back.
    #[inline]
    pub fn lend(&mut self, frame: Frame) -> Result<Place, Frame> {
        if !self.memory.is_home_of(&frame) {
            return Err(frame);
        }
        let (start, len) = (frame.headroom(), frame.len());
        let slot = frame.into_slot();
        self.set(slot);
        let address = u64::from(slot) * self.memory.slot_bytes() as u64 + start as u64;
        Ok(Place { address, len: len as u32 })
    }

    /// Takes back the slot at `place`, with the frame that the driver put there. `None`, and nothing changed, if the
    /// slot is not lent or the frame reaches past its end.
    ///
    /// # Safety
    /// The driver must no longer read or write the slot.
    #[inline]
    pub unsafe fn fetch(&mut self, place: Place) -> Option<Frame> {
        let slot_bytes = self.memory.slot_bytes();
        let start = (place.address % slot_bytes as u64) as usize;
        let len = place.len as usize;
        if len > slot_bytes - start {
            return None;
        }
        let slot = self.clear(place.address)?;
        // SAFETY: the slot was lent, so no frame owns it, and the driver is done with it, as the caller promises; the
        // packet lies within, as was just seen.
        Some(unsafe { self.memory.frame(slot, start as u16, len as u16) })
    }

    /// Gives the slot of `address` back to `pool`. `false`, and nothing changed, if the slot is not lent or the pool is
    /// another one.
    ///
    /// # Safety
    /// The driver must no longer read or write the slot.
    #[inline]
    pub unsafe fn give_back(&mut self, address: u64, pool: &mut Pool) -> bool {
        if !self.memory.is_of(pool) {
            return false;
        }
        let Some(slot) = self.clear(address) else { return false };
        // SAFETY: the slot was lent, so neither a frame nor the free list has it; nor has the driver, as the caller
        // promises.
        unsafe { pool.put_slot(slot) };
        true
    }

    /// Gives all slots back, on any thread: the pool collects them when it runs dry.
    ///
    /// # Safety
    /// The driver must no longer read or write any of them.
    pub unsafe fn end(&mut self) {
        for (word, lent) in self.lent.iter_mut().enumerate() {
            while *lent != 0 {
                // SAFETY: the slot was lent, so nobody else has it; nor has the driver, as the caller promises.
                unsafe { self.memory.orphan(word as u32 * 64 + lent.trailing_zeros()) };
                *lent &= *lent - 1;
            }
        }
        self.count = 0;
    }

    #[inline]
    fn set(&mut self, slot: u32) {
        if let Some(word) = self.lent.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
            self.count += 1;
        }
    }

    /// The slot that `address` lies in, no longer lent; `None` if it was not.
    #[inline]
    fn clear(&mut self, address: u64) -> Option<u32> {
        let slot = address / self.memory.slot_bytes() as u64;
        let word = self.lent.get_mut(usize::try_from(slot / 64).ok()?)?;
        let bit = 1 << (slot % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        // There is a bit for it, so its number is no more than that of slots, which has 32 bits.
        Some(slot as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> (Pool, Loan) {
        let pool = Pool::new(70, 2048).unwrap();
        let loan = Loan::new(pool.memory());
        (pool, loan)
    }

    /// Writes to a slot as a driver does.
    fn write(loan: &Loan, place: Place, byte: u8) {
        // SAFETY: the test has lent the slot, and the place lies within it.
        unsafe {
            loan.memory().base().add(place.address as usize).write_bytes(byte, place.len as usize);
        }
    }

    #[test]
    fn what_a_driver_writes_is_a_frame() {
        let (mut pool, mut loan) = pool();
        let slots: Vec<u64> = std::iter::from_fn(|| loan.lend_empty(&mut pool)).collect();
        assert_eq!((slots.len(), loan.count(), pool.available()), (70, 70, 0));
        for (number, slot) in slots.iter().enumerate() {
            let place = Place { address: slot + 256, len: 100 + number as u32 };
            write(&loan, place, number as u8);
            // SAFETY: `write` has returned.
            let frame = unsafe { loan.fetch(place) }.unwrap();
            assert_eq!(frame.bytes(), vec![number as u8; 100 + number]);
            assert_eq!((frame.headroom(), frame.tailroom()), (256, 2048 - 256 - 100 - number));
            pool.put(frame);
        }
        assert_eq!((loan.count(), pool.available()), (0, 70));
    }

    #[test]
    fn a_driver_reads_a_frame_where_it_lies_and_its_slot_comes_back() {
        let (mut pool, mut loan) = pool();
        let mut frame = pool.take().unwrap();
        assert!(frame.fill(b"outbound"));
        let place = loan.lend(frame).unwrap();
        // SAFETY: the place is that of eight bytes in the pool, which `loan` holds.
        let read = unsafe {
            std::slice::from_raw_parts(loan.memory().base().add(place.address as usize).as_ptr(), 8)
        };
        assert_eq!(read, b"outbound");
        assert_eq!(pool.available(), 69);
        // SAFETY: nobody else has the slot.
        assert!(unsafe { loan.give_back(place.address, &mut pool) });
        assert_eq!(pool.available(), 70);
    }

    #[test]
    fn a_driver_s_word_is_checked() {
        let (mut pool, mut loan) = pool();
        let slot = loan.lend_empty(&mut pool).unwrap();
        // SAFETY: nothing reads or writes the slot.
        unsafe {
            for address in [slot + 2048, 70 * 2048, 128 * 2048, u64::MAX] {
                assert!(loan.fetch(Place { address, len: 1 }).is_none());
                assert!(!loan.give_back(address, &mut pool));
            }
            for (start, len) in [(0, 2049), (256, 2048), (2047, 2), (0, u32::MAX)] {
                assert!(loan.fetch(Place { address: slot + start, len }).is_none());
            }
            let frame = loan.fetch(Place { address: slot + 2047, len: 1 }).unwrap();
            assert!(loan.fetch(Place { address: slot, len: 1 }).is_none(), "a slot comes back once");
            pool.put(frame);
        }
        assert_eq!((loan.count(), pool.available()), (0, 70));
    }

    #[test]
    fn another_pool_s_slots_are_not_lent() {
        let (mut pool, mut loan) = pool();
        let mut other = Pool::new(1, 2048).unwrap();
        assert!(loan.lend_empty(&mut other).is_none());
        let frame = loan.lend(other.take().unwrap()).unwrap_err();
        other.put(frame);
        let slot = loan.lend_empty(&mut pool).unwrap();
        // SAFETY: nothing reads or writes the slot.
        unsafe {
            assert!(!loan.give_back(slot, &mut other));
            assert!(loan.give_back(slot, &mut pool));
        }
        assert_eq!((other.available(), pool.available()), (1, 70));
    }

    #[test]
    fn all_come_home_at_the_end_from_another_thread_too() {
        let (mut pool, mut loan) = pool();
        while loan.lend_empty(&mut pool).is_some() {}
        assert!(pool.take().is_none());
        // SAFETY: nothing reads or writes the slots.
        std::thread::spawn(move || unsafe { loan.end() }).join().unwrap();
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(frames.len(), 70);
        frames.into_iter().for_each(|frame| pool.put(frame));
    }

    #[test]
    fn what_is_lent_when_the_loan_is_dropped_outlives_the_pool() {
        let (mut pool, mut loan) = pool();
        let memory = pool.memory();
        let address = loan.lend_empty(&mut pool).unwrap();
        drop((loan, pool));
        // SAFETY: within the memory, which `memory` holds, and the pool left to the driver.
        unsafe { memory.base().add(address as usize).write(1) };
        // The pool left its memory to the driver: Miri runs with leaks allowed for this one.
    }
}
