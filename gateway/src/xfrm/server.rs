//! Server of XFRM messages on a Unix socket (SOCK_SEQPACKET: one message or several to a datagram, as on a netlink socket).
//!
//! One thread, away from packets, has the databases. Only the owner of the socket and root may connect. A client that does not read
//! costs itself its events, and is told so, as on a netlink socket; while answers wait for it, nothing more of it is read.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_ACK;
use policy::model::Binding;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, recv, send};
use tracing::{info, warn};
use zeroize::{Zeroize, Zeroizing};

use super::carried::Name;
use super::message::{Header, Request, SaId, Selector, kind};
use super::parse::{Refusal, parse};
use super::state::{Answer, Carrier, Database, Event, Limits, List, Moment};
use super::thread::{Inbox, Thread};
use super::write::{self, Datagram};
use crate::server::ServerError;
use crate::server::socket::{Purpose, SocketFile, listen};

/// Connections at a time; further ones are closed at once.
const CLIENTS: usize = 32;

/// Messages that wait for one client, at which its events are dropped.
const WAITING: usize = 1024;

/// Largest datagram taken. A longer one is refused as a whole.
const LARGEST: usize = 64 << 10;

/// Pause while descriptors are short.
const SHORT: Duration = Duration::from_millis(50);

/// Interval at which bounds are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Running server, which stops when dropped and takes its socket out of the file system.
pub struct Server {
    // Ends before its file goes.
    thread: Thread,
    _file: SocketFile,
}

/// News of the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A packet for a tunnel needs an association.
    Needed {
        /// Sign of the tunnel.
        tunnel: Binding,
        /// The packet.
        packet: Selector,
        /// Processor that needs one of its own beside the one that all have.
        cpu: Option<u16>,
    },
    /// The peer of an inbound association sends from another end.
    Moved {
        /// The association.
        name: Name,
        /// Address that it sends from.
        source: IpAddr,
        /// UDP port that it sends from.
        port: u16,
    },
    /// The operator ends an association.
    End(Name),
    /// Tunnels may have come or gone with a policy.
    Reloaded,
}

impl Server {
    /// Starts to listen, on a thread of its own.
    ///
    /// # Errors
    /// [`ServerError`] names the fault of the socket.
    pub fn start(
        path: &Path,
        limits: Limits,
        carrier: Box<dyn Carrier + Send>,
    ) -> Result<Server, ServerError> {
        let listener = listen(path, SocketType::SEQPACKET, Purpose::Xfrm)?;
        let file = SocketFile::at(path, Purpose::Xfrm)?;
        let started = Instant::now();
        let serve = move |inbox| {
            let mut desk = Desk {
                listener,
                inbox,
                clients: Vec::new(),
                database: Database::new(limits),
                carrier,
                started,
                refusals: Refusals::default(),
                buffer: Zeroizing::new(vec![0; LARGEST]),
            };
            desk.serve();
        };
        let thread = Thread::start(serve).map_err(|error| ServerError::Thread { error })?;
        info!("SAs of IKE daemons are taken at {}", path.display());
        Ok(Server { thread, _file: file })
    }

    /// Tells the thread what daemons wait for. Returns at once.
    pub fn tell(&self, news: News) {
        self.thread.tell(news);
    }
}

/// State of the server's thread.
struct Desk {
    listener: UnixListener,
    inbox: Inbox,
    clients: Vec<Client>,
    database: Database,
    carrier: Box<dyn Carrier + Send>,
    started: Instant,
    refusals: Refusals,
    /// Datagram that was received last: cleared, as it may hold keys.
    buffer: Zeroizing<Vec<u8>>,
}

/// Refusals in the log, which a flood of requests must not fill: one a second, and the number of the others.
#[derive(Default)]
struct Refusals {
    /// Time of the last one in the log.
    logged: Option<Instant>,
    /// Refusals since then, which are not in the log.
    left_out: u64,
}

impl Refusals {
    /// Counts a refusal; true if it is to be logged.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.logged.is_none_or(|at| now.duration_since(at) >= TICK);
        if is_due {
            self.logged = Some(now);
        } else {
            self.left_out += 1;
        }
        is_due
    }

    /// Takes the number of refusals that were not logged, once a second has passed since one was; 0 before.
    fn take_left_out(&mut self, now: Instant) -> u64 {
        let is_over = self.logged.is_none_or(|at| now.duration_since(at) >= TICK);
        if is_over { std::mem::take(&mut self.left_out) } else { 0 }
    }

    /// Logs the number of refusals that were not logged by themselves.
    fn tell_left_out(&mut self) {
        let left_out = self.take_left_out(Instant::now());
        if left_out > 0 {
            warn!(
                refused = left_out,
                "further requests of IKE daemons refused; only one a second is logged by itself"
            );
        }
    }
}

/// Connection.
struct Client {
    socket: OwnedFd,
    /// Groups that it asked for, as bits.
    groups: u32,
    /// Messages that it has not taken yet.
    waiting: VecDeque<Datagram>,
    /// List that it asked for.
    list: Option<List>,
    /// Events were dropped that it is to be told of.
    missed: bool,
}

/// Fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Open,
    Closed,
}

impl Desk {
    fn serve(&mut self) {
        let mut ticked = Instant::now();
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    warn!("waiting for IKE daemons failed, no SA is taken any more: {error}");
                    return;
                }
            };
            if self.hear() == Connection::Closed {
                return;
            }
            for number in ready.readable {
                self.receive(number);
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                let mut events = Vec::new();
                self.database.expire(self.now(), &mut *self.carrier, &mut events);
                self.tell(&events);
                self.refusals.tell_left_out();
            }
            let now = self.now();
            let (database, carrier) = (&self.database, &mut *self.carrier);
            self.clients.retain_mut(|client| client.send(database, now, carrier) == Connection::Open);
            // Last, when those that have ended have made room.
            if ready.listener {
                self.accept();
            }
        }
    }

    /// Takes what the data plane tells. Closed when the server is to end.
    fn hear(&mut self) -> Connection {
        self.inbox.clear();
        loop {
            let (now, mut events) = (self.now(), Vec::new());
            match self.inbox.next() {
                Ok(News::Needed { tunnel, packet, cpu }) => {
                    self.database.needed(&tunnel, &packet, cpu, now, &mut events);
                }
                Ok(News::Moved { name, source, port }) => {
                    self.database.moved(&SaId::from(name), source.into(), port, &mut events);
                }
                Ok(News::End(name)) => {
                    self.database.end(&SaId::from(name), now, &mut *self.carrier, &mut events);
                }
                // The supervisor keeps what tunnels may come for.
                Ok(News::Reloaded) => {}
                Err(TryRecvError::Empty) => return Connection::Open,
                Err(TryRecvError::Disconnected) => return Connection::Closed,
            }
            self.tell(&events);
        }
    }

    fn now(&self) -> Moment {
        Moment::now(self.started)
    }

    /// Waits until there is something to do, or a second has passed.
    fn wait(&self) -> io::Result<Ready> {
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.inbox.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        polled.extend(self.clients.iter().map(|client| {
            let wanted = if client.is_owed() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(client.socket.as_fd(), wanted)
        }));
        let timeout = Timespec::try_from(TICK).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut fired = polled.iter().skip(1).map(|polled| !polled.revents().is_empty());
        let listener = fired.next() == Some(true);
        let readable = (0..self.clients.len()).zip(fired).filter(|(_, fired)| *fired);
        Ok(Ready { listener, readable: readable.map(|(number, _)| number).collect() })
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(socket) if self.clients.len() < CLIENTS => self.clients.push(Client::new(socket)),
            Ok(_) => {
                warn!("{CLIENTS} IKE daemons and tools are connected already, another one is turned away")
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // Descriptors are short: the client waits, and so does this thread, which would be asked again at once.
            Err(_) => thread::sleep(SHORT),
        }
    }

    /// Takes one datagram of a client.
    fn receive(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number).filter(|client| !client.is_owed()) else { return };
        let length = match recv(&client.socket, &mut self.buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC)
        {
            Ok((_, length)) if length > 0 => length,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The end of the connection, by its next sending.
            _ => return client.close(),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let datagram = buffer.get(..length).unwrap_or(&[]);
        for (header, request) in parse(datagram) {
            self.answer(number, &header, request);
        }
        if length > LARGEST {
            warn!(
                "a message of {length} bytes to the XFRM socket is ignored: there are none above {LARGEST}"
            );
        }
        buffer.get_mut(..length.min(LARGEST)).into_iter().for_each(|used| used.zeroize());
        self.buffer = buffer;
    }

    fn answer(&mut self, number: usize, header: &Header, request: Result<Request, Refusal>) {
        let (mut events, now) = (Vec::new(), self.now());
        let is_listing = self.clients.get(number).is_some_and(|client| client.list.is_some());
        let answer = request.and_then(|request| match request {
            Request::ListSas(_) | Request::ListPolicies if is_listing => {
                Err(Refusal::new(Errno::BUSY, "another list is being sent"))
            }
            request => {
                let carrier = &mut *self.carrier;
                self.database.handle(header, request, now, carrier, &mut events)
            }
        });
        self.tell(&events);
        let Some(client) = self.clients.get_mut(number) else { return };
        match answer {
            Ok(Answer::One(message)) => client.waiting.push_back(message),
            Ok(Answer::List(list)) => client.list = Some(list),
            Ok(Answer::Subscribed(groups)) => client.groups |= groups,
            Ok(Answer::Done) if header.flags & NLM_F_ACK != 0 => {
                client.waiting.push_back(write::acknowledgement(header, None));
            }
            Ok(Answer::Done) => {}
            Err(refusal) => {
                let is_grave =
                    matches!(header.kind, kind::NEWSA | kind::UPDSA | kind::ALLOCSPI | kind::NEWPOLICY);
                if is_grave {
                    self.refusals.tell_left_out();
                }
                if is_grave && self.refusals.is_due(Instant::now()) {
                    warn!("refused what an IKE daemon asked for: {refusal}");
                }
                client.waiting.push_back(write::acknowledgement(header, Some(&refusal)));
            }
        }
    }

    /// Passes events on to the clients that asked for their groups.
    fn tell(&mut self, events: &[Event]) {
        for event in events {
            for client in self.clients.iter_mut().filter(|client| client.groups & event.group.bit() != 0) {
                if client.waiting.len() < WAITING {
                    client.waiting.push_back(event.message.clone());
                } else {
                    client.missed = true;
                }
            }
        }
    }
}

/// Descriptors that are ready.
#[derive(Default)]
struct Ready {
    listener: bool,
    readable: Vec<usize>,
}

impl Client {
    fn new(socket: OwnedFd) -> Client {
        Client { socket, groups: 0, waiting: VecDeque::new(), list: None, missed: false }
    }

    /// True if something waits to be sent.
    fn is_owed(&self) -> bool {
        !self.waiting.is_empty() || self.list.is_some() || self.missed
    }

    /// Ends the connection: the next sending finds it so.
    fn close(&mut self) {
        // Of a connection that is gone already, it fails.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.waiting.push_back(write::overrun());
    }

    /// Sends what waits, as far as the client takes it.
    fn send(&mut self, database: &Database, now: Moment, carrier: &mut dyn Carrier) -> Connection {
        loop {
            if self.waiting.is_empty() && std::mem::take(&mut self.missed) {
                self.waiting.push_back(write::overrun());
            }
            if self.waiting.is_empty() {
                let next = self.list.as_mut().and_then(|list| database.next(list, now, carrier));
                match next {
                    Some(datagram) => self.waiting.push_back(datagram),
                    None => {
                        self.list = None;
                        return Connection::Open;
                    }
                }
            }
            let Some(message) = self.waiting.front() else { return Connection::Open };
            match send(&self.socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(_) => drop(self.waiting.pop_front()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Connection::Open,
                Err(_) => return Connection::Closed,
            }
        }
    }
}

#[cfg(test)]
mod tests;
