//! Locks that the kernel releases when the process ends, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::check;

/// Locks a file or directory until the returned descriptor is closed; `WouldBlock` if another process has the lock.
pub(crate) fn exclusive(path: &Path) -> io::Result<OwnedFd> {
    let file = OwnedFd::from(File::open(path)?);
    // SAFETY: the descriptor is open; no memory is handed over.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })?;
    Ok(file)
}
