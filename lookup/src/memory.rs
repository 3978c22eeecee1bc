//! Large tables in memory of their own, on huge pages where the system gives them.
//!
//! A table of a million flows spans tens of thousands of small pages, more than a processor's TLB holds, so
//! that a random look-up would miss twice. All memory is asked for, and touched, when the table is made:
//! nothing is allocated and no page fault is taken later. A slab never grows.
//!
//! Whoever uses a table for some milliseconds has its pages [on demand](Paging::OnDemand): clearing all of them would take longer than
//! the use.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;

/// The small page of every system that we run on is this size or a multiple of it.
const PAGE: usize = 4096;

/// The moment at which the system gives a table its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// When the table is made: no page fault is taken later.
    Prefault,
    /// On first use of each page, which is then a small one (demand paging): for tables most of which is never used.
    OnDemand,
}

/// A fixed number of `T` in memory of their own.
pub struct Slab<T> {
    /// Mapping that `first` points into; its address does not change when the slab is moved.
    _map: Mapping,
    first: NonNull<T>,
    count: usize,
}

// SAFETY: a slab owns its memory, and gives it out by the rules of borrowing alone.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: as above; a shared slab can only be read.
unsafe impl<T: Sync> Sync for Slab<T> {}

/// Bytes to ask for where so many are needed. Systems begin a mapping at a huge page only where it is whole ones long; a
/// table of many has all but its ends on huge pages anyway.
fn room(bytes: usize) -> usize {
    const HUGE: usize = 1 << 21;
    if (HUGE / 2..16 * HUGE).contains(&bytes) { bytes.next_multiple_of(HUGE) } else { bytes }
}

impl<T: Pod> Slab<T> {
    /// Takes zeroed memory for `count` entries, one at least.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub fn new(count: usize) -> Result<Slab<T>, MemoryError> {
        Slab::paged(count, Paging::Prefault)
    }

    /// [`Slab::new`], with pages at the moment that `paging` says.
    ///
    /// # Errors
    /// As of [`Slab::new`]. Of pages on demand, the system may promise more than it has.
    pub fn paged(count: usize, paging: Paging) -> Result<Slab<T>, MemoryError> {
        let count = count.max(1);
        let (map, first) = memory(count, paging)?;
        Ok(Slab { _map: map, first, count })
    }

    /// Takes memory for a copy of `entries`, which may be none.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub fn copy_of(entries: &[T]) -> Result<Slab<T>, MemoryError> {
        let mut slab = Slab::new(entries.len())?;
        slab.count = entries.len();
        slab.entries_mut().copy_from_slice(entries);
        Ok(slab)
    }
}

impl<T> Slab<T> {
    /// Takes memory for `entries`, which may be none, and moves them there.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub fn of(entries: Vec<T>) -> Result<Slab<T>, MemoryError> {
        let (map, first) = memory::<T>(entries.len().max(1), Paging::Prefault)?;
        let count = entries.len();
        for (place, entry) in entries.into_iter().enumerate() {
            // SAFETY: there is room for so many, and nobody else has the memory.
            unsafe { first.add(place).write(entry) };
        }
        Ok(Slab { _map: map, first, count })
    }

    /// The entries.
    #[inline(always)]
    pub fn entries(&self) -> &[T] {
        // SAFETY: `first` is of `memory`, which checked alignment and length; `count` entries have been written, or are zeroed where
        // every bit pattern is a `T` (`Pod`); the mapping lives as long as `self`. Casting anew at each look-up would check all of
        // that again: it took a fourteenth of the whole pipeline's instructions.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// The entries, to be changed.
    #[inline(always)]
    pub fn entries_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `entries`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }

    /// Bytes that the entries take.
    pub fn bytes(&self) -> usize {
        self.count * size_of::<T>()
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.entries()
    }
}

impl<T> DerefMut for Slab<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        self.entries_mut()
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        // SAFETY: the entries are there, as in `entries`, and are not used any more.
        unsafe { std::ptr::drop_in_place(std::ptr::from_mut(self.entries_mut())) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries().fmt(f)
    }
}

/// Takes zeroed memory for `count` entries.
fn memory<T>(count: usize, paging: Paging) -> Result<(Mapping, NonNull<T>), MemoryError> {
    const { assert!(align_of::<T>() <= PAGE && size_of::<T>() > 0) };
    let refused = |source| MemoryError { bytes: count.saturating_mul(size_of::<T>()), source };
    let bytes =
        count.checked_mul(size_of::<T>()).ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
    let mut map = mapping(bytes, paging).map_err(refused)?;
    if paging == Paging::Prefault {
        for page in map[..bytes].chunks_mut(PAGE) {
            page[0] = 0;
        }
    }
    let first = NonNull::from(&mut map[..]).cast();
    Ok((map, first))
}

#[cfg(unix)]
type Mapping = memmap2::MmapMut;

/// Maps zeroed memory.
#[cfg(unix)]
fn mapping(bytes: usize, paging: Paging) -> io::Result<Mapping> {
    let map = Mapping::map_anon(room(bytes))?;
    // Advice only: where there are no huge pages the table works as well, slower.
    #[cfg(target_os = "linux")]
    let _ = map.advise(match paging {
        Paging::Prefault => memmap2::Advice::HugePage,
        Paging::OnDemand => memmap2::Advice::NoHugePage,
    });
    Ok(map)
}

/// Memory of the heap, where none can be mapped.
#[cfg(not(unix))]
struct Mapping(Vec<Page>);

#[cfg(not(unix))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

#[cfg(not(unix))]
impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(not(unix))]
impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

#[cfg(not(unix))]
fn mapping(bytes: usize, _: Paging) -> io::Result<Mapping> {
    let mut pages = Vec::new();
    let count = room(bytes).div_ceil(PAGE);
    pages.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
    pages.resize(count, Page([0; PAGE]));
    Ok(Mapping(pages))
}

/// Makes a list of `count` entries, all alike.
///
/// # Errors
/// The system has not that much memory to give.
pub fn list_of<T: Clone>(entry: T, count: usize) -> Result<Vec<T>, MemoryError> {
    let mut list = room_for(count)?;
    list.resize(count, entry);
    Ok(list)
}

/// Makes an empty list with room for `count` entries.
///
/// # Errors
/// The system has not that much memory to give.
pub fn room_for<T>(count: usize) -> Result<Vec<T>, MemoryError> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| MemoryError {
        bytes: count.saturating_mul(size_of::<T>()),
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    Ok(list)
}

/// The system did not give the memory that a table needs.
#[derive(Debug, thiserror::Error)]
#[error("no memory for a table of {bytes} bytes")]
pub struct MemoryError {
    /// Bytes asked for.
    pub bytes: usize,
    /// Error of the system call.
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Paging, Slab, list_of, room_for};

    #[test]
    fn a_slab_is_zeroed_and_keeps_what_is_written() {
        let mut slab: Slab<u64> = Slab::new(10_000).unwrap();
        assert!(slab.entries().iter().all(|entry| *entry == 0));
        assert_eq!((slab.entries().len(), slab.bytes()), (10_000, 80_000));
        slab.entries_mut()[9_999] = 7;
        assert_eq!(slab.entries()[9_999], 7);
    }

    #[test]
    fn pages_on_demand_are_zeroed_too() {
        let mut slab: Slab<u64> = Slab::paged(1 << 20, Paging::OnDemand).unwrap();
        slab.entries_mut()[1 << 19] = 7;
        assert_eq!(slab.entries().iter().sum::<u64>(), 7);
        assert_eq!((slab[1 << 19], slab.bytes()), (7, 8 << 20));
    }

    #[test]
    fn a_copy_has_as_many_entries_as_there_were() {
        assert_eq!(Slab::copy_of(&[1_u64, 2, 3]).unwrap().entries(), [1, 2, 3]);
        let none: Slab<u64> = Slab::copy_of(&[]).unwrap();
        assert_eq!((none.entries(), none.bytes()), (&[][..], 0));
    }

    #[test]
    fn entries_that_own_something_are_moved_in_and_dropped_once() {
        let owned = Rc::new(());
        let slab = Slab::of(vec![Some(Rc::clone(&owned)), None, Some(Rc::clone(&owned))]).unwrap();
        assert_eq!((slab.len(), slab[1].is_none(), Rc::strong_count(&owned)), (3, true, 3));
        drop(slab);
        assert_eq!(Rc::strong_count(&owned), 1);
        assert_eq!(Slab::<Rc<()>>::of(Vec::new()).unwrap().len(), 0);
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(Slab::<u64>::new(usize::MAX / 8).is_err());
        assert!(Slab::<u64>::new(usize::MAX).is_err());
        assert!(list_of(0_u64, usize::MAX / 8).is_err());
        assert_eq!(room_for::<u64>(usize::MAX).unwrap_err().bytes, usize::MAX);
        assert_eq!(list_of(7, 3).unwrap(), [7, 7, 7]);
    }
}
