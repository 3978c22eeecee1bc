//! Memory shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::Plain;

/// A stretch of a file or socket mapped into memory, to read and write; unmapped when dropped. The kernel shares the
/// memory, so that it is never lent as a slice, only copied.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses the place, so that nothing that exists is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast()).map(|base| Mapping { base, len }).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// True if `bytes` bytes from `at` on lie within.
    fn holds(&self, at: usize, bytes: usize) -> bool {
        at.checked_add(bytes).is_some_and(|end| end <= self.len)
    }

    /// A word shared with the kernel; `None` past the end or if misaligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU32> {
        if !self.holds(at, 4) || at % 4 != 0 {
            return None;
        }
        // SAFETY: within the mapping, which is page-aligned, so aligned too; accesses are atomic on both sides.
        Some(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// A long word shared with the kernel; `None` past the end or if misaligned.
    #[inline]
    fn long(&self, at: usize) -> Option<&AtomicU64> {
        if !self.holds(at, 8) || at % 8 != 0 {
            return None;
        }
        // SAFETY: as in `word`; nobody reads or writes parts of it.
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// Pointer to `count` values from `at` on; `None` past the end or if misaligned. Valid while the mapping is.
    pub(crate) fn slice<T: Plain>(&self, at: usize, count: usize) -> Option<NonNull<T>> {
        if !self.holds(at, count.checked_mul(size_of::<T>())?) || at % align_of::<T>() != 0 {
            return None;
        }
        // SAFETY: within the mapping.
        Some(unsafe { self.base.add(at) }.cast())
    }

    /// A copy of the value at `at`; `None` past the end.
    #[inline]
    pub(crate) fn read<T: Plain>(&self, at: usize) -> Option<T> {
        if !self.holds(at, size_of::<T>()) {
            return None;
        }
        // SAFETY: within the mapping, and any pattern of bits is a value.
        Some(unsafe { self.base.as_ptr().add(at).cast::<T>().read_unaligned() })
    }

    /// Copies the bytes from `at` on to `to`; `false`, and nothing done, past the end.
    #[inline]
    #[must_use]
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) -> bool {
        if !self.holds(at, to.len()) {
            return false;
        }
        // SAFETY: the source lies within the mapping, which no Rust reference covers; the target is a unique slice.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
        true
    }
}

#[cfg(test)]
impl Mapping {
    /// The same memory mapped twice: our view, and that of the test in the kernel's role.
    pub(crate) fn twice(len: usize) -> [Mapping; 2] {
        use std::os::fd::{AsFd, FromRawFd, OwnedFd};
        // SAFETY: a name that ends with a zero; takes and returns numbers.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just opened, and nobody else has it.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len as u64).unwrap();
        [(); 2].map(|()| Mapping::new(file.as_fd(), len, 0).unwrap())
    }

    /// Writes a value.
    pub(crate) fn write<T: Plain>(&self, at: usize, value: T) {
        assert!(self.holds(at, size_of::<T>()));
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(at).cast::<T>().write_unaligned(value) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the only owner of the mapping; what is reached through `&self` is atomic or copied.
unsafe impl Send for Mapping {}

/// Memory shared with the kernel and among threads: words only, each access atomic.
pub(crate) struct Words(Mapping);

impl Words {
    /// Maps `len` bytes of `file`, from its beginning.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Words> {
        Mapping::new(file, len, 0).map(Words)
    }

    /// A word of 32 bits.
    ///
    /// # Panics
    /// Past the end, or misaligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        self.0.word(at).expect("offsets come from the layout that the memory was made for")
    }

    /// A word of 64 bits.
    ///
    /// # Panics
    /// Past the end, or misaligned.
    #[inline]
    pub(crate) fn long(&self, at: usize) -> &AtomicU64 {
        self.0.long(at).expect("offsets come from the layout that the memory was made for")
    }
}

// SAFETY: all that is reached through `&self` is atomic.
unsafe impl Sync for Words {}

#[cfg(test)]
impl Words {
    /// Memory without a kernel behind it.
    pub(crate) fn detached(len: usize) -> Words {
        let [map, _] = Mapping::twice(len);
        Words(map)
    }
}
