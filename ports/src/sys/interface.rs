//! What Linux says of an interface: its index, MTU, flags, driver and queues.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{check, socket};

/// The index of the interface called `name`.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a string that ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// An `ifreq` for the interface called `name`, all else zero.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: integers and arrays, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= request.ifr_name.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

/// Asks questions about interfaces.
pub(crate) struct Asker(OwnedFd);

impl Asker {
    /// Of this thread's network namespace.
    pub(crate) fn new() -> io::Result<Asker> {
        socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).map(Asker)
    }

    fn ask(&self, operation: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the kernel reads and writes one `ifreq`, and what its pointer is for, if the operation has one, lives.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), operation as _, &raw mut *request) }).map(drop)
    }

    /// The MTU, in bytes of an IP packet.
    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: this operation fills in the MTU.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// What kind of hardware it is: `ARPHRD_ETHER` for Ethernet.
    pub(crate) fn hardware(&self, name: &str) -> io::Result<u16> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: this operation fills in the address.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
    }
}
