//! The way between us and Linux's own stack behind a real interface.
//!
//! It is a TAP device that nobody but us uses, `wr` and the interface's index; a TUN device where the interface has no
//! Ethernet, as Linux redirects packets only between devices that both have a link-layer header or both none. What we write into it, a program on its
//! ingress passes on to the interface, as if it had been received there. What Linux sends by the interface, its
//! [guard](crate::Guard) passes on to the device, where we read it. Our own sending does not come by there.

use std::os::fd::OwnedFd;

use crate::open::{Offload, link_kind};
use crate::program;
use crate::refusal::{Cause, OpenError};
use crate::sys::bpf::{self, Hook};
use crate::sys::interface::{self, Asker};
use crate::sys::link::{Change, Stack};
use crate::tap::{Tap, TapLine};

/// An open punt: it ends when this or all of its lines are dropped. Linux sends by it once the interface's guard is
/// [open](crate::Guard::open) to it.
#[derive(Debug)]
pub struct Punt {
    /// A queue for each worker: what is received is what Linux sends, what is sent is delivered to Linux.
    pub lines: Vec<TapLine>,
    /// Its device in Linux.
    pub ifindex: u32,
    /// Holds the program. Keep it for as long as the lines.
    pub held: PuntHeld,
}

/// Holds a punt's program to its place.
#[derive(Debug)]
pub struct PuntHeld {
    _link: OwnedFd,
}

impl Punt {
    /// Makes the punt of `interface` with a queue for each of `workers`. What is delivered to Linux bears `mark` on its
    /// way through the interface.
    ///
    /// # Errors
    /// Where there is no such interface, or another process has its punt, or the kernel lacks what is needed (Linux 6.6).
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
            Offload::Segment,
        )?;
        let deliver = bpf::attach(Hook::TcxIngress, tap, &program::deliver(mark, ifindex))
            .map_err(Cause::step("attach the program that delivers to Linux"))?;
        Ok(Punt { lines, ifindex: tap, held: PuntHeld { _link: deliver } })
    }
}
