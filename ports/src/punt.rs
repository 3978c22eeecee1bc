//! The punt: the path between wirerate and Linux's own stack behind a real interface.
//!
//! The punt is a TAP device used by wirerate alone, named `wr` and the interface's index; a TUN device if the interface
//! has no Ethernet, as Linux redirects packets only between devices that both have a link-layer header or both none. A
//! program at the device's ingress redirects packets that wirerate writes to the interface, as if received there. The
//! interface's [guard](crate::Guard) redirects packets that Linux sends to the device, where wirerate reads them.
//! Frames that wirerate sends do not pass the punt.

use std::os::fd::OwnedFd;

use crate::link_kind::link_kind;
use crate::program;
use crate::refusal::{Cause, OpenError};
use crate::spec::Offload;
use crate::sys::bpf::{self, Hook};
use crate::sys::interface::{self, Asker};
use crate::sys::link::{Change, Stack};
use crate::tap::{Tap, TapLine};

/// An open punt, until it or all of its lines are dropped. Linux sends by it once the interface's guard is
/// [open](crate::Guard::open) to it.
#[derive(Debug)]
pub struct Punt {
    /// One queue for each worker: received frames are those that Linux sends; sent frames are delivered to Linux.
    pub lines: Vec<TapLine>,
    /// Index of the device in Linux.
    pub ifindex: u32,
    /// Holds the program. Keep it as long as the lines.
    pub held: PuntHeld,
}

/// Holds a punt's program to its place.
#[derive(Debug)]
pub struct PuntHeld {
    _link: OwnedFd,
}

impl Punt {
    /// Opens the punt of `interface` with a queue for each of `workers`. Packets delivered to Linux bear `mark` on
    /// their way through the interface.
    ///
    /// # Errors
    /// There is no such interface, another process has its punt, or the kernel lacks a needed feature (Linux 6.6).
    pub fn open(interface: &str, mark: u32, workers: usize) -> Result<Punt, OpenError> {
        Punt::make(interface, mark, workers).map_err(|cause| OpenError::of_tap(interface, cause))
    }

    fn make(interface: &str, mark: u32, workers: usize) -> Result<Punt, Cause> {
        let ifindex = interface::index(interface).map_err(Cause::step("find the interface"))?;
        let asker = Asker::new().map_err(Cause::step("ask about interfaces"))?;
        let mtu = asker.mtu(interface).map_err(Cause::step("ask for its MTU"))?;
        let kind = link_kind(interface, &asker)?;
        let name = format!("wr{ifindex}");
        let Tap { ifindex: tap, lines, .. } = Tap::make(
            &name,
            Change { mtu, mac: None, kind, stack: Stack::Bypassed },
            workers,
            Offload::Whole,
        )?;
        let deliver = bpf::attach(Hook::TcxIngress, tap, &program::deliver(mark, ifindex))
            .map_err(Cause::step("attach the program that delivers to Linux"))?;
        Ok(Punt { lines, ifindex: tap, held: PuntHeld { _link: deliver } })
    }
}
