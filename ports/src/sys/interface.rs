//! What Linux says of an interface: its index, MTU, flags, driver and queues.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Plain, check, socket};

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

    /// How many queues receive: 1 where the driver does not say.
    pub(crate) fn queues(&self, name: &str) -> u32 {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        match self.ethtool(name, &mut channels) {
            Ok(()) => (channels.receiving + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// Whether there is no hardware behind it: its driver names no bus, or is that of TAP devices, which name
    /// themselves.
    pub(crate) fn is_virtual(&self, name: &str) -> bool {
        let mut driver = Driver { command: ETHTOOL_GDRVINFO, text: [0; 192] };
        match self.ethtool(name, &mut driver) {
            Ok(()) => driver.text[BUS] == 0 || driver.text.starts_with(b"tun\0"),
            Err(_) => true,
        }
    }

    fn ethtool<T: Plain>(&self, name: &str, data: &mut T) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = (&raw mut *data).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut request)
    }
}

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receiving: u32,
    sending: u32,
    other: u32,
    combined: u32,
}

// SAFETY: integers without padding.
unsafe impl Plain for Channels {}

/// `struct ethtool_drvinfo`: the driver's name first, its bus from `BUS` on.
#[derive(Clone, Copy)]
#[repr(C)]
struct Driver {
    command: u32,
    text: [u8; 192],
}

const BUS: usize = 96;

// SAFETY: integers without padding.
unsafe impl Plain for Driver {}
