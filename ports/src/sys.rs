//! The edge to the kernel, and the only module of this crate with `unsafe`: system calls, memory shared with the
//! kernel, kernel structures missing from `libc`. Everything exported from here is safe to call.
#![allow(unsafe_code)]

use std::io;

use libc::c_int;

pub(crate) mod bpf;
pub(crate) mod clock;
mod feature;
pub(crate) mod interface;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod mapping;
pub(crate) mod netdev;
pub(crate) mod packet;
mod ring;
pub(crate) mod socket;
pub(crate) mod tun;
pub(crate) mod xsk;

/// Plain bytes: any pattern of bits is a value, and there are no pointers in it.
///
/// # Safety
/// Both must be true, and all bytes must be initialised (no padding, or padding that is zeroed).
pub(crate) unsafe trait Plain: Copy + 'static {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: any pattern of bits is a value, as the trait promises.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: integers, and structures of integers.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
#[cfg(test)]
unsafe impl Plain for u8 {}

/// The result of a system call that returns -1 for an error.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
