//! Opens ports: the fastest driver that works, and why the faster ones did not.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use wire::ethernet::{self, Mac};
use wire::vlan::TAG_LEN;
use wire::{HEADROOM, PoolMemory};

use crate::line::Line;
use crate::packet::{OpenStep, PacketLine};
use crate::program;
use crate::sys::bpf::{self, Hook};
use crate::sys::interface::{self, Asker};
use crate::sys::link::{Change, Stack};
use crate::tap::Tap;
use crate::xdp::Xdp;

/// How frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// AF_XDP: the card's queue, past Linux.
    Xdp,
    /// AF_PACKET: any Ethernet interface.
    Packet,
    /// A TAP device that is made here.
    Tap,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Driver::Xdp => "AF_XDP",
            Driver::Packet => "AF_PACKET",
            Driver::Tap => "TAP",
        })
    }
}

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// The fastest that works on this interface: AF_XDP, else AF_PACKET.
    #[default]
    Auto,
    /// AF_XDP or nothing.
    Xdp,
    /// AF_PACKET.
    Packet,
    /// A TAP device of that name, to be made.
    Tap,
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The interface's name in Linux.
    pub name: String,
    /// Its MTU, in bytes of an IP packet.
    pub mtu: u16,
    /// The driver.
    pub wish: Wish,
    /// What is delivered to Linux bears this mark on its way through the interface (`skb->mark`): not 0, and the same
    /// as for the interface's punt.
    pub mark: u32,
    /// The address of a TAP device; without it Linux draws one. Other interfaces have theirs.
    pub mac: Option<Mac>,
}

/// An open port.
pub struct Opened {
    /// The driver that was taken.
    pub driver: Driver,
    /// Whether frames are copied between card and pool.
    pub copying: Copying,
    /// The interface's index in Linux.
    pub ifindex: u32,
    /// A queue for each worker, in the order of the memories that were given.
    pub lines: Vec<Box<dyn Line>>,
    /// Drivers that would be faster, and why they did not work.
    pub refused: Vec<Refusal>,
    /// What keeps Linux from taking the frames. Keep it for as long as the lines; they work without it, but what comes
    /// in then goes to Linux.
    pub guard: Guard,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("driver", &self.driver)
            .field("copying", &self.copying)
            .field("ifindex", &self.ifindex)
            .field("lines", &self.lines.len())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

/// Whether the card writes frames to the pool itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copying {
    /// It does.
    ZeroCopy,
    /// The kernel copies them.
    Copy,
}

/// Holds programs to their interface, which they leave when this is dropped, or the process ends.
#[derive(Debug, Default)]
pub struct Guard {
    _links: Vec<OwnedFd>,
}

/// A driver that did not work, and why.
#[derive(Debug)]
pub struct Refusal {
    /// The driver.
    pub driver: Driver,
    /// Why.
    pub cause: Cause,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.driver, self.cause)
    }
}

/// Why a driver does not work on an interface.
#[derive(Debug)]
pub enum Cause {
    /// The kernel refused something.
    Kernel {
        /// What, as in "could not {operation}".
        operation: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The interface is not Ethernet but what Linux has this number for (`ARPHRD_...`).
    NotEthernet(u16),
    /// It has fewer queues than there are workers, and each worker needs one.
    TooFewQueues {
        /// Queues that receive.
        queues: u32,
        /// Workers.
        workers: usize,
    },
    /// Slots of this many bytes are larger than a page, which is all that AF_XDP takes.
    LargeSlots {
        /// Bytes of a slot.
        slot: usize,
    },
    /// Its frames, of this many bytes at most, do not fit the pool's slots.
    TooLong {
        /// Bytes of the longest frame.
        frame: usize,
        /// Bytes of a slot that are there for it.
        room: usize,
    },
}

impl Cause {
    pub(crate) fn step(operation: &'static str) -> impl FnOnce(io::Error) -> Cause {
        move |error| Cause::Kernel { operation, error }
    }
}

impl From<OpenStep> for Cause {
    fn from(OpenStep { operation, error }: OpenStep) -> Cause {
        Cause::Kernel { operation, error }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Kernel { operation, error } => {
                write!(f, "could not {operation}: {error}")?;
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => {
                        f.write_str(" (needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF)")
                    }
                    _ => Ok(()),
                }
            }
            Cause::NotEthernet(kind) => {
                write!(f, "it is no Ethernet interface (Linux's hardware type {kind})")
            }
            Cause::TooFewQueues { queues, workers } => write!(
                f,
                "it has {queues} queues for {workers} workers: give it as many (ethtool -L), or take fewer workers"
            ),
            Cause::LargeSlots { slot } => {
                write!(f, "slots of {slot} bytes are too large for it: choose 2048 or 4096")
            }
            Cause::TooLong { frame, room } => {
                write!(
                    f,
                    "its frames have up to {frame} bytes, and slots have room for {room}: lower its MTU, or choose larger slots"
                )
            }
        }
    }
}

/// No driver that was wanted works on an interface.
#[derive(Debug)]
pub struct OpenError {
    /// The interface.
    pub interface: String,
    /// The drivers that were tried, if it came to that, and why they do not work; at least one.
    pub refused: Vec<Refusal>,
}

impl OpenError {
    /// A TAP device that could not be made.
    pub(crate) fn of(interface: &str, cause: Cause) -> OpenError {
        OpenError { interface: interface.to_owned(), refused: vec![Refusal { driver: Driver::Tap, cause }] }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot be opened", self.interface)?;
        for (number, refusal) in self.refused.iter().enumerate() {
            write!(f, "{} {refusal}", if number == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for OpenError {}

/// Opens a port with a line for each of `memories`, which are those of the workers' pools. Call it on any thread of the
/// network namespace that the interface is in.
///
/// # Errors
/// Where no driver that the wish allows works, with each one's reason.
pub fn open(spec: &Spec, memories: &[PoolMemory]) -> Result<Opened, OpenError> {
    let drivers: &[Driver] = match spec.wish {
        Wish::Auto => &[Driver::Xdp, Driver::Packet],
        Wish::Xdp => &[Driver::Xdp],
        Wish::Packet => &[Driver::Packet],
        Wish::Tap => &[Driver::Tap],
    };
    let mut refused = Vec::new();
    for driver in drivers {
        match open_as(*driver, spec, memories) {
            Ok(opened) => return Ok(Opened { refused, ..opened }),
            Err(cause) => refused.push(Refusal { driver: *driver, cause }),
        }
    }
    Err(OpenError { interface: spec.name.clone(), refused })
}

fn open_as(driver: Driver, spec: &Spec, memories: &[PoolMemory]) -> Result<Opened, Cause> {
    let frame = usize::from(spec.mtu) + ethernet::HEADER_LEN + 2 * TAG_LEN;
    for memory in memories {
        let room = memory.slot_bytes() - HEADROOM;
        if frame > room {
            return Err(Cause::TooLong { frame, room });
        }
    }
    let mut copying = Copying::Copy;
    let (ifindex, lines, links) = match driver {
        Driver::Tap => {
            let change = Change { mtu: spec.mtu.into(), mac: spec.mac, stack: Stack::Used };
            let Tap { ifindex, lines } = Tap::make(&spec.name, change, memories.len())?;
            (ifindex, boxed(lines), Vec::new())
        }
        Driver::Packet => {
            let ifindex = ethernet_index(&spec.name)?;
            let lines = PacketLine::open(&spec.name, ifindex, frame, spec.mark, memories.len())?;
            let link = bpf::attach(Hook::TcxIngress, ifindex, &program::only_marked(spec.mark))
                .map_err(Cause::step("attach the program that keeps frames from Linux"))?;
            (ifindex, boxed(lines), vec![link])
        }
        Driver::Xdp => {
            let ifindex = ethernet_index(&spec.name)?;
            let Xdp { lines, links, zero_copy } = Xdp::open(&spec.name, ifindex, frame, memories)?;
            if zero_copy {
                copying = Copying::ZeroCopy;
            }
            (ifindex, boxed(lines), links)
        }
    };
    Ok(Opened { driver, copying, ifindex, lines, refused: Vec::new(), guard: Guard { _links: links } })
}

fn boxed<L: Line + 'static>(lines: Vec<L>) -> Vec<Box<dyn Line>> {
    lines.into_iter().map(|line| Box::new(line) as Box<dyn Line>).collect()
}

/// The index of an interface that must be Ethernet.
fn ethernet_index(name: &str) -> Result<u32, Cause> {
    let ifindex = interface::index(name).map_err(Cause::step("find the interface"))?;
    let asker = Asker::new().map_err(Cause::step("ask about interfaces"))?;
    let hardware = asker.hardware(name).map_err(Cause::step("ask what kind of interface it is"))?;
    if hardware != libc::ARPHRD_ETHER {
        return Err(Cause::NotEthernet(hardware));
    }
    Ok(ifindex)
}
