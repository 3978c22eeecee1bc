//! What is asked of a worker, and what it tells of its own accord.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use dataplane::tables::{Address, Tables};
use rustix::event::{EventfdFlags, eventfd};
use wire::PortError;
use wire::ethernet::Mac;

use super::link::Attachment;
use super::report::Report;
use super::{Then, Worker};

/// What is asked of a worker. It answers between two turns, so answers are soon there.
pub enum Mail {
    /// Hangs a port, or another one, on an interface.
    Attach {
        /// The interface.
        interface: String,
        /// What to hang there. What hung there is dropped.
        ends: Attachment,
    },
    /// Goes on with other tables. The old ones go back to the sender, who frees them.
    Swap {
        /// What to go on with.
        tables: Arc<Tables>,
        /// Neighbours that are known.
        neighbours: Arc<[Known]>,
        /// Is told when it is done.
        done: Sender<Arc<Tables>>,
    },
    /// A neighbour's link-layer address, or that it is not known any more.
    Neighbour(Known),
    /// All neighbours that are known.
    Neighbours(Arc<[Known]>),
    /// Asks what was counted.
    Report(Sender<Report>),
    /// Ends the worker.
    Stop,
}

/// A neighbour, as Linux knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The interface it is on.
    pub interface: String,
    /// Its address.
    pub address: Address,
    /// Where it is found.
    pub found: Found,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At this link-layer address.
    At(Mac),
    /// Nowhere: it did not answer.
    Nowhere,
    /// Not known any more.
    Forgotten,
}

/// What a worker tells.
#[derive(Debug)]
pub enum Notice {
    /// Packets wait for a neighbour.
    Wanted {
        /// The interface it is on.
        interface: String,
        /// Its address.
        address: Address,
    },
    /// A port failed, and is not used any more.
    PortFailed {
        /// Its interface.
        interface: String,
        /// How.
        error: PortError,
    },
    /// The worker panicked, has lost its flows, and goes on.
    Panicked {
        /// Its number.
        worker: usize,
        /// What the panic said.
        message: String,
    },
}

/// Wakes a sleeping worker.
#[derive(Clone, Debug)]
pub struct Bell {
    event: Arc<OwnedFd>,
}

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// The system refuses one more file descriptor.
    pub fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { event: Arc::new(event) })
    }

    /// Rings.
    pub fn ring(&self) {
        // It can only fail where it rings already, 2^64 times.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }

    /// Ends the ringing.
    pub(super) fn silence(&self) {
        let mut count = [0; 8];
        // Where it does not ring there is nothing to read.
        let _ = rustix::io::read(&*self.event, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Where mail for one worker is given in.
#[derive(Clone)]
pub struct Post {
    sender: Sender<Mail>,
    bell: Bell,
}

impl Post {
    /// Sends, and wakes. `false` if the worker has ended.
    pub fn send(&self, mail: Mail) -> bool {
        let sent = self.sender.send(mail).is_ok();
        self.bell.ring();
        sent
    }
}

/// Both ends of a worker's mail.
///
/// # Errors
/// The system refuses one more file descriptor.
pub fn post() -> io::Result<(Post, Receiver<Mail>, Bell)> {
    let (sender, receiver) = channel();
    let bell = Bell::new()?;
    Ok((Post { sender, bell: bell.clone() }, receiver, bell))
}

impl Worker {
    /// Does what is asked.
    pub(super) fn read_mail(&mut self) -> Then {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                Mail::Attach { interface, ends } => {
                    if let Some(link) = self.links.iter_mut().find(|link| link.name == interface) {
                        link.ends = ends;
                    }
                }
                Mail::Swap { tables, neighbours, done } => {
                    let old = self.swap(tables);
                    neighbours.iter().for_each(|known| self.meet(known));
                    // Who asked may have gone; then the tables are freed here.
                    let _ = done.send(old);
                }
                Mail::Neighbour(known) => self.meet(&known),
                Mail::Neighbours(all) => all.iter().for_each(|known| self.meet(known)),
                Mail::Report(to) => {
                    let _ = to.send(self.report());
                }
                Mail::Stop => return Then::Stop,
            }
        }
        Then::Continue
    }
}
