//! Netlink socket of Linux's XFRM: lists, events and requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_sys::protocols::NETLINK_XFRM;
use rustix::io::Errno;

use crate::linux::message::HEADER;
use crate::linux::socket::{Received, Socket, wait};
use crate::linux::{Error, Operation};
use crate::xfrm::message::{Ae, Group, Header, Request, Sa, SaId, kind};
use crate::xfrm::parse::told::{Told, told};
use crate::xfrm::write::{self, Datagram};

/// Groups of events: what changes the databases.
const GROUPS: [u32; 3] = [Group::Expire as u32, Group::Sa as u32, Group::Policy as u32];

/// Receive buffer for events, in bytes.
const BUFFER: usize = 4 << 20;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Attempts at a list that changes interrupt.
const TRIES: usize = 10;

/// Linux's end of a netlink socket.
pub trait Transport {
    /// Subscribes anew: what has not been read is forgotten, and events from now on are not.
    ///
    /// # Errors
    /// No socket, or no permission.
    fn renew(&mut self) -> io::Result<()>;

    /// Passes the next datagram of events to `take`, without waiting.
    ///
    /// # Errors
    /// ENOBUFS if events were lost, EAGAIN if there is none.
    fn event(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()>;

    /// Sends a request of this type, with flags beside `NLM_F_REQUEST`, and passes each datagram to `take` until that returns true.
    ///
    /// # Errors
    /// No answer in time, or a loss.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        take: &mut dyn FnMut(u32, &[u8]) -> bool,
    ) -> io::Result<()>;

    /// Descriptor that is readable when there are events.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Sockets of Linux.
pub struct Netlink {
    events: Socket,
    asking: Socket,
}

impl Netlink {
    /// Opens and subscribes, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// A Linux without XFRM, or no permission.
    pub fn open() -> Result<Netlink, Error> {
        Ok(Netlink { events: events()?, asking: Socket::of(NETLINK_XFRM)? })
    }
}

fn events() -> Result<Socket, Error> {
    let mut events = Socket::of(NETLINK_XFRM)?;
    events.subscribe(&GROUPS, BUFFER)?;
    Ok(events)
}

impl Transport for Netlink {
    fn renew(&mut self) -> io::Result<()> {
        self.events = events().map_err(|error| error.error)?;
        self.asking = Socket::of(NETLINK_XFRM).map_err(|error| error.error)?;
        Ok(())
    }

    fn event(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        match self.events.receive()? {
            Received::Datagram(bytes) => take(bytes),
            Received::Nothing => return Err(io::ErrorKind::WouldBlock.into()),
            Received::Lost => return Err(Errno::NOBUFS.into()),
        }
        self.events.clear();
        Ok(())
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        take: &mut dyn FnMut(u32, &[u8]) -> bool,
    ) -> io::Result<()> {
        let sequence = self.asking.send(kind, flags, body)?;
        loop {
            wait(&[self.asking.as_fd()], Some(PATIENCE))?;
            let is_enough = match self.asking.receive()? {
                Received::Nothing => return Err(io::ErrorKind::TimedOut.into()),
                Received::Lost => return Err(Errno::NOBUFS.into()),
                Received::Datagram(bytes) => take(sequence, bytes),
            };
            self.asking.clear();
            if is_enough {
                return Ok(());
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Events up to now.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Changes, in order.
    Changes(Vec<Request>),
    /// Some were lost.
    Lost,
}

/// Datagrams read in one go, at most.
const AT_ONCE: usize = 256;

/// Changes since the last call.
///
/// # Errors
/// A socket that fails.
pub fn changes(kernel: &mut dyn Transport) -> io::Result<Heard> {
    let mut changes = Vec::new();
    for _ in 0..AT_ONCE {
        let mut lost = false;
        let read = kernel.event(&mut |bytes| {
            for (_, message) in told(bytes) {
                match message {
                    Told::Change(change) => changes.push(change),
                    Told::Lost => lost = true,
                    Told::Answer(_) | Told::Other => {}
                }
            }
        });
        match read {
            Ok(()) if lost => return Ok(Heard::Lost),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => return Ok(Heard::Lost),
            Err(error) => return Err(error),
        }
    }
    Ok(Heard::Changes(changes))
}

/// Carries out a request, and returns what answers it.
///
/// # Errors
/// Refusal of Linux, or a socket that fails.
pub fn ask(
    kernel: &mut dyn Transport,
    kind: u16,
    flags: u16,
    message: &Datagram,
) -> io::Result<Vec<Request>> {
    let (mut answers, mut outcome, mut is_interrupted) = (Vec::new(), 0, false);
    let is_list = flags & NLM_F_DUMP == NLM_F_DUMP;
    kernel.ask(kind, flags, message.get(HEADER..).unwrap_or(&[]), &mut |sequence, bytes| {
        let mut is_enough = false;
        // An answer to an earlier request, of which there was enough, is none to this one.
        for (_, message) in told(bytes).filter(|(number, _)| *number == sequence) {
            match message {
                Told::Change(object) => {
                    answers.push(object);
                    is_enough |= !is_list && flags & NLM_F_ACK == 0;
                }
                Told::Answer(error) => {
                    outcome = error;
                    is_enough = true;
                }
                // Of a list: it ends here, and is to be begun again.
                Told::Lost => {
                    is_interrupted = true;
                    is_enough = true;
                }
                Told::Other => {}
            }
        }
        is_enough
    })?;
    match outcome {
        0 if is_interrupted => Err(Errno::INTR.into()),
        0 => Ok(answers),
        error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
    }
}

/// All associations and policies, each as the request to add it.
///
/// # Errors
/// A socket that fails, or changes that interrupt each attempt.
pub fn list(kernel: &mut dyn Transport) -> Result<Vec<Request>, Error> {
    let failed = |error| Error::new(Operation::ListXfrm, error);
    let mut all = Vec::new();
    for kind in [kind::GETPOLICY, kind::GETSA] {
        let mut attempt = || ask(kernel, kind, NLM_F_DUMP, &Datagram::default());
        let is_interrupted = |outcome: &io::Result<Vec<Request>>| matches!(outcome, Err(error) if error.kind() == io::ErrorKind::Interrupted);
        let mut outcome = attempt();
        for _ in 1..TRIES {
            if is_interrupted(&outcome) {
                outcome = attempt();
            }
        }
        all.extend(outcome.map_err(failed)?);
    }
    Ok(all)
}

/// The association of a name, with its keys, numbers and use of now.
///
/// # Errors
/// ESRCH if it has gone.
pub fn sa(kernel: &mut dyn Transport, id: SaId, like: &Sa) -> io::Result<Sa> {
    let message = write::sa_request(&Header::default(), &id, like.mark);
    match ask(kernel, kind::GETSA, 0, &message)?.pop() {
        Some(Request::NewSa(sa)) => Ok(*sa),
        _ => Err(Errno::SRCH.into()),
    }
}

/// Sets numbers or use of an association.
///
/// # Errors
/// ESRCH if it has gone.
pub fn set(kernel: &mut dyn Transport, ae: &Ae) -> io::Result<()> {
    let message = write::ae(&Header::default(), ae);
    ask(kernel, kind::NEWAE, NLM_F_REPLACE | NLM_F_ACK, &message).map(drop)
}

/// Has Linux tell its daemons an event.
///
/// # Errors
/// ESRCH if it is of an association that has gone.
pub fn tell(kernel: &mut dyn Transport, message: &Datagram) -> io::Result<()> {
    let Some([low, high]) = message.get(4..6) else { return Ok(()) };
    ask(kernel, u16::from_ne_bytes([*low, *high]), NLM_F_ACK, message).map(drop)
}
