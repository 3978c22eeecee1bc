//! Locks that the kernel takes back when the process ends, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::check;

/// Locks a file or directory for as long as what this returns is open; `WouldBlock` where another has locked it.
pub(crate) fn exclusive(path: &Path) -> io::Result<OwnedFd> {
    let file = OwnedFd::from(File::open(path)?);
    // SAFETY: the descriptor is open; no memory is handed over.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })?;
    Ok(file)
}
