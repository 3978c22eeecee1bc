//! Netlink sockets: requests out, answers and events in; and their errors.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as Raw, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec};
use zeroize::Zeroize;

use super::message::{Body, HEADER, Message, parse};
use super::state::Event;

/// Failed or refused request to Linux.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// Operation that failed.
    pub operation: Operation,
    /// Interface, address or route of the operation.
    pub subject: Option<String>,
    /// Error of the system.
    pub error: io::Error,
    /// Linux's extended acknowledgement; empty if none.
    pub explanation: String,
}

/// Operation on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening a socket.
    Open,
    /// Subscribing to events.
    Subscribe,
    /// Listing interfaces.
    ListLinks,
    /// Listing addresses.
    ListAddresses,
    /// Listing next-hop objects.
    ListObjects,
    /// Listing sysctls of interfaces.
    ListSettings,
    /// Listing routes.
    ListRoutes,
    /// Listing neighbours.
    ListNeighbours,
    /// Listing sockets that listen.
    ListSockets,
    /// Listing security associations and policies of XFRM.
    ListXfrm,
    /// Waiting for events.
    Receive,
    /// Resolving a neighbour.
    Resolve,
    /// Adding an address.
    AddAddress,
    /// Removing an address.
    RemoveAddress,
    /// Adding a route.
    AddRoute,
    /// Removing a route.
    RemoveRoute,
    /// Switching an interface on.
    SwitchOn,
    /// Setting an interface's MTU.
    SetMtu,
    /// Setting an interface's MAC address.
    SetMac,
    /// Keeping Linux from giving an interface a link-local address.
    ForbidLinkLocal,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "opening a netlink socket",
            Operation::Subscribe => "asking Linux to be told of changes",
            Operation::ListLinks => "listing interfaces",
            Operation::ListAddresses => "listing addresses",
            Operation::ListObjects => "listing next-hop objects",
            Operation::ListSettings => "listing settings of interfaces",
            Operation::ListRoutes => "listing routes",
            Operation::ListNeighbours => "listing neighbours",
            Operation::ListSockets => "listing sockets",
            Operation::ListXfrm => "listing security associations and policies of XFRM",
            Operation::Receive => "receiving from Linux",
            Operation::Resolve => "asking for a neighbour",
            Operation::AddAddress => "adding an address",
            Operation::RemoveAddress => "removing an address",
            Operation::AddRoute => "adding a route",
            Operation::RemoveRoute => "removing a route",
            Operation::SwitchOn => "switching an interface on",
            Operation::SetMtu => "setting an MTU",
            Operation::SetMac => "setting a MAC address",
            Operation::ForbidLinkLocal => "turning link-local addresses off",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{} ({subject}): {}", self.operation, self.error)?,
            None => write!(f, "{}: {}", self.operation, self.error)?,
        }
        if self.explanation.is_empty() { Ok(()) } else { write!(f, ": {}", self.explanation) }
    }
}

impl Error {
    pub(crate) fn new(operation: Operation, error: io::Error) -> Error {
        Error { operation, subject: None, error, explanation: String::new() }
    }
}

/// Time limit for Linux's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest datagram expected, in bytes: dumps come in 32 KiB at most, an event in less.
const LARGEST: usize = 256 << 10;

/// Attempts at a dump that is interrupted by changes.
const TRIES: usize = 10;

/// Netlink socket, of the kernel's routing family but where another is named.
#[derive(Debug)]
pub(crate) struct Socket {
    raw: Raw,
    buffer: Vec<u8>,
    sequence: u32,
}

/// Result of a receive.
pub(crate) enum Received<'a> {
    /// Datagram.
    Datagram(&'a [u8]),
    /// No datagram available.
    Nothing,
    /// Datagrams lost: the receive buffer was full.
    Lost,
}

/// Request for a dump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) operation: Operation,
    /// Message type (`RTM_*`).
    pub(super) kind: u16,
    /// Fixed part and attributes.
    pub(super) body: &'a [u8],
}

impl Socket {
    pub(super) fn open() -> Result<Socket, Error> {
        Socket::of(NETLINK_ROUTE)
    }

    /// Socket of a family (`NETLINK_*`).
    pub(crate) fn of(family: isize) -> Result<Socket, Error> {
        let failed = |source| Error::new(Operation::Open, source);
        let mut raw = Raw::new(family).map_err(failed)?;
        raw.bind_auto().map_err(failed)?;
        raw.set_non_blocking(true).map_err(failed)?;
        // Lists are filtered by Linux, and a refusal says why, without the request that it was about.
        raw.set_netlink_get_strict_chk(true).map_err(failed)?;
        raw.set_ext_ack(true).map_err(failed)?;
        raw.set_cap_ack(true).map_err(failed)?;
        Ok(Socket { raw, buffer: Vec::with_capacity(LARGEST), sequence: 0 })
    }

    /// Subscribes to events, with a receive buffer of that many bytes or as many as Linux grants.
    pub(crate) fn subscribe(&mut self, groups: &[u32], buffer: usize) -> Result<(), Error> {
        let failed = |source| Error::new(Operation::Subscribe, source);
        // By force takes CAP_NET_ADMIN; without it, sysctl net.core.rmem_max bounds it.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.raw, buffer).is_err() {
            let bytes = i32::try_from(buffer).unwrap_or(i32::MAX);
            self.raw.set_rx_buf_sz(bytes).map_err(failed)?;
        }
        for group in groups {
            self.raw.add_membership(*group).map_err(failed)?;
        }
        Ok(())
    }

    /// Clears what was received last, as it may have had keys.
    pub(crate) fn clear(&mut self) {
        self.buffer.zeroize();
    }

    /// Returns the next datagram without blocking.
    pub(crate) fn receive(&mut self) -> io::Result<Received<'_>> {
        loop {
            self.buffer.clear();
            match self.raw.recv_from(&mut self.buffer, MSG_TRUNC) {
                // Anybody may send to a netlink socket; only the kernel counts.
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok((length, _)) if length > self.buffer.len() => return Ok(Received::Lost),
                Ok(_) => return Ok(Received::Datagram(&self.buffer)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_lost(&error) => return Ok(Received::Lost),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message and returns its sequence number. `flags` are in addition to `NLM_F_REQUEST`.
    pub(crate) fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        let length = (HEADER + body.len()) as u32;
        bytes.extend(length.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(body);
        self.raw.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(self.sequence)
    }

    /// Waits for the answer to the request of that sequence number, and passes each of its messages to `take` until
    /// `take` has enough.
    pub(super) fn answers(
        &mut self,
        sequence: u32,
        mut take: impl FnMut(Message) -> Enough,
    ) -> io::Result<()> {
        loop {
            wait(&[self.raw.as_fd()], Some(PATIENCE))?;
            match self.receive()? {
                Received::Nothing => return Err(io::ErrorKind::TimedOut.into()),
                Received::Lost => return Err(rustix::io::Errno::NOBUFS.into()),
                Received::Datagram(bytes) => {
                    for message in parse(bytes) {
                        // An answer to an earlier request, of which there was enough.
                        if message.sequence == sequence && take(message) == Enough::Yes {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Requests a dump and collects it into a `T`; starts over while changes interrupt the dump.
    pub(super) fn list<T: Default>(
        &mut self,
        request: Request<'_>,
        mut add: impl FnMut(&mut T, Event),
    ) -> Result<T, Error> {
        let failed = |source| Error::new(request.operation, source);
        let mut last = T::default();
        for _ in 0..TRIES {
            let mut list = T::default();
            let mut interrupted = false;
            let mut outcome = 0;
            let sequence = self.send(request.kind, NLM_F_DUMP, request.body).map_err(failed)?;
            self.answers(sequence, |message| {
                interrupted |= message.interrupted;
                match message.body {
                    Body::Event(event) => add(&mut list, event),
                    Body::Done(error) | Body::Answer(error, _) => {
                        outcome = error;
                        return Enough::Yes;
                    }
                    Body::Overrun => interrupted = true,
                    Body::Other | Body::Malformed => {}
                }
                Enough::No
            })
            .map_err(failed)?;
            match outcome {
                // There is no table of routes before the first route.
                0 | NO_ENTRY => {}
                error => return Err(failed(io::Error::from_raw_os_error(-error))),
            }
            if !interrupted {
                return Ok(list);
            }
            last = list;
        }
        // It changes faster than it can be listed; what changed since has been told as events.
        Ok(last)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// Decision of a receiver of answers to go on or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enough {
    No,
    Yes,
}

/// Flag of `recv` for returning the full length of a truncated datagram.
const MSG_TRUNC: i32 = 0x20;

/// ENOENT, negative as in netlink.
const NO_ENTRY: i32 = -2;

fn is_lost(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOBUFS)
}

/// Waits until one of the descriptors is readable; without `timeout`, for ever.
pub(crate) fn wait(descriptors: &[std::os::fd::BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
