//! Properties of Linux interfaces: index, MTU, flags, driver and queues.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use wire::BitRate;
use wire::ethernet::Mac;

use super::{Plain, check, socket};
use crate::spec::Offload;

/// Index of the interface called `name`, in this thread's network namespace.
///
/// # Errors
/// There is no such interface.
pub fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a string that ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// True if an interface of that index exists in this thread's network namespace.
pub(crate) fn exists(index: u32) -> bool {
    name(index).is_some()
}

/// The name of the interface of that index, in this thread's network namespace.
pub fn name(index: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: writes a name of at most `IF_NAMESIZE` bytes, its zero included.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    let length = name.iter().position(|byte| *byte == 0)?;
    (!found.is_null()).then(|| String::from_utf8_lossy(&name[..length]).into_owned())
}

/// Rate of the hardware behind an interface, in this thread's network namespace; `None` without hardware, or where its driver
/// does not know.
pub fn rate(name: &str) -> Option<BitRate> {
    let speed = Asker::new().ok()?.speed(name)?;
    Some(BitRate(u64::from(speed) * 1_000_000))
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

/// Socket for queries about interfaces.
pub(crate) struct Asker(OwnedFd);

impl Asker {
    /// Opens a socket in this thread's network namespace.
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

    /// Hardware type: `ARPHRD_ETHER` for Ethernet.
    pub(crate) fn hardware(&self, name: &str) -> io::Result<u16> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: this operation fills in the address.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
    }

    /// Link-layer address of an Ethernet interface.
    pub(crate) fn mac(&self, name: &str) -> io::Result<Mac> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: this operation fills in the address.
        let [a, b, c, d, e, f, ..] = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data.map(|byte| byte as u8);
        Ok(Mac([a, b, c, d, e, f]))
    }

    /// Number of receive queues: 1 if the driver does not report it.
    pub(crate) fn queues(&self, name: &str) -> u32 {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        match self.ethtool(name, &mut channels) {
            Ok(()) => (channels.receiving + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// True if no hardware is behind the interface: its driver reports no bus, or is that of TAP devices, which report
    /// themselves.
    pub(crate) fn is_virtual(&self, name: &str) -> bool {
        let mut driver = Driver { command: ETHTOOL_GDRVINFO, text: [0; 192] };
        match self.ethtool(name, &mut driver) {
            Ok(()) => driver.text[BUS] == 0 || driver.text.starts_with(b"tun\0"),
            Err(_) => true,
        }
    }

    /// Rate at which the hardware behind the interface sends, in Mbit/s; `None` without hardware, or where its driver does not know.
    pub(crate) fn speed(&self, name: &str) -> Option<u32> {
        if self.is_virtual(name) {
            return None;
        }
        let mut settings = Settings { command: ETHTOOL_GSET, ..Settings::default() };
        self.ethtool(name, &mut settings).ok()?;
        settings.speed()
    }

    /// Offloads that are on, as flags of [`offload`].
    pub(crate) fn offloads(&self, name: &str) -> io::Result<u32> {
        let mut flags = Flags { command: ETHTOOL_GFLAGS, flags: 0 };
        self.ethtool(name, &mut flags)?;
        Ok(flags.flags)
    }

    fn set_offloads(&self, name: &str, flags: u32) -> io::Result<()> {
        self.ethtool(name, &mut Flags { command: ETHTOOL_SFLAGS, flags })
    }

    pub(super) fn ethtool<T: Plain>(&self, name: &str, data: &mut T) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = (&raw mut *data).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut request)
    }
}

/// Offloads of a card, by their flags in linux/ethtool.h.
pub(crate) mod offload {
    /// VLAN tags are taken out of received frames.
    pub(crate) const VLAN_RECEIVE: u32 = 1 << 8;
    /// Received packets are merged, and their boundaries lost.
    pub(crate) const LRO: u32 = 1 << 15;
}

/// Offloads that were switched off, and are switched on again on drop.
#[derive(Debug)]
pub(crate) struct Offloads {
    name: String,
    off: u32,
    /// True if generic receive offload was on.
    gro: bool,
}

impl Offloads {
    /// Switches off the offloads of `unwanted` that are on and changeable; if `large` frames are refused, generic
    /// receive offload as well. `None` if nothing needs to be switched on again.
    pub(crate) fn off(asker: &Asker, name: &str, unwanted: u32, large: Offload) -> Option<Offloads> {
        let mut gro = Flags { command: ETHTOOL_GGRO, flags: 0 };
        let gro = large == Offload::Refuse
            && asker.ethtool(name, &mut gro).is_ok_and(|()| gro.flags != 0)
            && asker.ethtool(name, &mut Flags { command: ETHTOOL_SGRO, flags: 0 }).is_ok();
        let before = asker.offloads(name).ok()?;
        // Each by itself: one that cannot be must not keep the other from it.
        for flag in [offload::VLAN_RECEIVE, offload::LRO] {
            if before & unwanted & flag != 0 {
                let now = asker.offloads(name).ok()?;
                let _ = asker.set_offloads(name, now & !flag);
            }
        }
        let off = before & !asker.offloads(name).ok()?;
        (off != 0 || gro).then(|| Offloads { name: name.to_owned(), off, gro })
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        // Nobody is there to be told; the interface may be gone, too.
        let _ = Asker::new().and_then(|asker| {
            let now = asker.offloads(&self.name)?;
            if self.gro {
                asker.ethtool(&self.name, &mut Flags { command: ETHTOOL_SGRO, flags: 1 })?;
            }
            asker.set_offloads(&self.name, now | self.off)
        });
    }
}

// linux/ethtool.h
const ETHTOOL_GSET: u32 = 0x1;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_cmd`: its speed is in two halves.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed: u16,
    bytes: [u8; 6],
    most: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

impl Settings {
    /// Mbit/s; `None` if unknown (`SPEED_UNKNOWN`).
    fn speed(&self) -> Option<u32> {
        let speed = u32::from(self.speed_high) << 16 | u32::from(self.speed);
        // Drivers say -1 in either width, and 0 while there is no link.
        (![0, u32::from(u16::MAX), u32::MAX].contains(&speed)).then_some(speed)
    }
}

// SAFETY: integers without padding.
unsafe impl Plain for Settings {}

const _: () = assert!(size_of::<Settings>() == 44 && std::mem::offset_of!(Settings, speed_high) == 28);

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

/// `struct ethtool_value`
#[derive(Clone, Copy)]
#[repr(C)]
struct Flags {
    command: u32,
    flags: u32,
}

// SAFETY: integers without padding.
unsafe impl Plain for Flags {}

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
