//! TAP and TUN devices: `/dev/net/tun`.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::c_int;

use wire::LinkKind;

use super::check;
use super::interface::request;

/// Opens a queue of the device `name`, TAP for Ethernet and TUN for bare IP packets: the first one creates the device,
/// and fails with `EBUSY` if it exists. Frames have an offload header in front.
pub(crate) fn open(name: &str, kind: LinkKind, many: bool, first: bool) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let fd = OwnedFd::from(file);
    let device = match kind {
        LinkKind::Ethernet => libc::IFF_TAP,
        LinkKind::Ip => libc::IFF_TUN,
    };
    let mut flags = device | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if many {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if first {
        flags |= libc::IFF_TUN_EXCL;
    }
    let mut wanted = request(name)?;
    wanted.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the kernel reads and writes one `ifreq`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut wanted) })?;
    Ok(fd)
}

/// Enables offloads for frames that are read: checksums, and segmentation of TCP and UDP. `false` if this kernel does
/// not know the last.
pub(crate) fn offload(fd: BorrowedFd<'_>) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let set = |flags: libc::c_uint| {
        // SAFETY: takes a number.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
    };
    set(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6).or_else(|_| set(tcp)).map(drop)
}

/// Reads one frame, offload header first, into the parts, one after the other; returns the number of bytes.
pub(crate) fn read(fd: BorrowedFd<'_>, parts: [&mut [u8]; 3]) -> io::Result<usize> {
    let parts = parts.map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    // SAFETY: the kernel writes to the parts only, which are live and of these lengths.
    let length = unsafe { libc::readv(fd.as_raw_fd(), parts.as_ptr(), parts.len() as c_int) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Writes one frame, its offload header first.
pub(crate) fn write(fd: BorrowedFd<'_>, parts: [&[u8]; 2]) -> io::Result<usize> {
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the kernel only reads the parts, which are live and of these lengths.
    let length = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), parts.len() as c_int) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}
