//! Reasons why a port could not be opened, or not by the fastest driver: sentences for operators.

use std::fmt;
use std::io;

use crate::spec::Driver;

/// Error of opening a port: no allowed driver works on the interface.
#[derive(Debug, thiserror::Error)]
pub struct OpenError {
    /// The interface.
    pub interface: String,
    /// Drivers that were tried, with the reasons why they do not work; at least one.
    pub refused: Vec<Refusal>,
}

impl OpenError {
    /// Error for a TAP device that could not be created.
    pub(crate) fn of_tap(interface: &str, cause: Cause) -> OpenError {
        OpenError::of(Driver::Tap, interface, cause)
    }

    pub(crate) fn of(driver: Driver, interface: &str, cause: Cause) -> OpenError {
        OpenError { interface: interface.to_owned(), refused: vec![Refusal { driver, cause }] }
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

/// A driver that did not work, and the reason.
#[derive(Debug)]
pub struct Refusal {
    /// The driver.
    pub driver: Driver,
    /// Reason.
    pub cause: Cause,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.driver, self.cause)
    }
}

/// Reason why a driver does not work on an interface.
#[derive(Debug)]
pub enum Cause {
    /// System call that the kernel refused.
    Kernel {
        /// Operation that failed, as in "could not {operation}".
        operation: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
    /// Packets of the interface begin neither with an Ethernet nor with an IP header; Linux's hardware type of it
    /// (`ARPHRD_...`).
    UnknownLink(u16),
    /// Packets of the interface have no Ethernet header.
    WithoutEthernet,
    /// Fewer queues than workers: each worker needs one.
    TooFewQueues {
        /// Number of receive queues.
        queues: u32,
        /// Number of workers.
        workers: usize,
    },
    /// The interface has no hardware, and Linux keeps VLAN tags of such interfaces beside the frames, unseen by XDP.
    TagsApart,
    /// The card takes VLAN tags out of frames, and this offload cannot be switched off.
    TagsTaken,
    /// The interface has no hardware: AF_PACKET was measured to be faster on such interfaces.
    SlowerHere,
    /// An interface of that name exists already.
    NameTaken,
    /// The longest frames of the interface do not fit the pool's slots.
    TooLong {
        /// Bytes of the longest frame.
        frame: usize,
        /// Bytes of a slot available for a frame.
        room: usize,
    },
}

impl Cause {
    /// Cause for a failed operation: "could not {operation}".
    pub(crate) fn step(operation: &'static str) -> impl FnOnce(io::Error) -> Cause {
        move |error| Cause::Kernel { operation, error }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Kernel { operation, error } => {
                write!(f, "could not {operation}: {error}")?;
                match hint(operation, error) {
                    Some(hint) => write!(f, " ({hint})"),
                    None => Ok(()),
                }
            }
            Cause::SlowerHere => {
                f.write_str("on an interface without hardware AF_PACKET is faster; `driver = \"xdp\"` has it all the same")
            }
            Cause::UnknownLink(kind) => {
                write!(f, "it carries neither Ethernet nor bare IP packets (Linux's hardware type {kind})")
            }
            Cause::WithoutEthernet => {
                f.write_str("its packets have no Ethernet header, and come and go by AF_PACKET alone")
            }
            Cause::TooFewQueues { queues, workers } => write!(
                f,
                "it has {queues} queues for {workers} workers: give it as many (ethtool -L), or take fewer workers"
            ),
            Cause::TagsApart => f.write_str(
                "it has no hardware, and Linux keeps VLAN tags beside the frames of such interfaces, \
                 where XDP does not see them",
            ),
            Cause::TagsTaken => f.write_str(
                "its card takes VLAN tags out of frames, and cannot be told not to (ethtool -K rxvlan off)",
            ),
            Cause::NameTaken => f.write_str("there is an interface of that name already"),
            Cause::TooLong { frame, room } => write!(
                f,
                "its frames have up to {frame} bytes, and slots have room for {room}: \
                 lower its MTU, or choose larger slots"
            ),
        }
    }
}

/// Operations by which errors are told apart.
pub(crate) const ATTACH_XDP: &str = "attach the XDP program to its driver";

/// Hint for operators: the usual meaning of an error of the kernel.
fn hint(operation: &str, error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EPERM | libc::EACCES => "needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
        libc::EOPNOTSUPP if operation == ATTACH_XDP => "its driver has no XDP",
        libc::EBUSY if operation == ATTACH_XDP => "another program is there already",
        libc::ERANGE if operation == ATTACH_XDP => "its MTU, or that of its peer, is too large for XDP",
        libc::EBUSY => "another process has it",
        _ => return None,
    })
}
