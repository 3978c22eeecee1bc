//! Follower of Linux's state: a thread that lists all objects, then applies every event and reports changes.
//!
//! Changes of interfaces, addresses and routes are reported as one whole [`State`]: the first at once, later ones
//! coalesced, at most one per [`Options::gap`], and never more than one pending, however fast routes change. Changes of
//! neighbours are reported one by one, in order and at once.
//!
//! Objects that Linux removes without an event (IPv4 routes with their interface, and the like) are listed again. After
//! a receive overrun, all objects are, and differences are reported like events. A dump interrupted by changes is
//! repeated once events of its part pause.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use wire::BitRate;

use super::interface::{Condition, Link, LinkIndex};
use super::list;
use super::message::{Body, parse};
use super::socket::{Error, Operation, Received, Socket, wait};
use super::state::{Changed, Doubt, Event, NeighbourChange, State};
use schedule::{Part, Parts, Schedule};

mod schedule;

/// Options for following Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Least interval between two reports of a state.
    pub gap: Duration,
    /// Receive buffer for events in bytes; Linux grants less without CAP_NET_ADMIN.
    pub buffer: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { gap: Duration::from_millis(75), buffer: 64 << 20 }
    }
}

/// Report of the follower.
#[derive(Debug)]
pub enum News {
    /// Interfaces, addresses or routes changed; the first report is the initial state. The state includes all
    /// neighbours reported before, and perhaps newer ones.
    State(Newest),
    /// Neighbour changed, on an interface reported before.
    Neighbour(NeighbourChange),
    /// Netlink receive buffer overrun, or malformed message: resynchronising.
    Lost,
    /// Failed request to Linux, to be retried.
    Trouble(Error),
}

/// Latest state, as of the fetch and not of the report.
#[derive(Debug)]
pub struct Newest {
    slot: Arc<Mutex<Option<Arc<State>>>>,
    told: Arc<State>,
}

impl Newest {
    /// Fetches the state. Later states are reported anew.
    pub fn take(self) -> Arc<State> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(self.told)
    }
}

/// Handle of the follower, which ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// Begins to follow Linux in the network namespace of the calling thread. Reports go to `to`; the follower also ends
/// when the receiver is gone.
///
/// # Errors
///
/// No netlink socket.
pub fn watch(options: Options, to: Sender<News>) -> Result<Watch, Error> {
    let failed = |source| Error::new(Operation::Open, source);
    let events = events(options)?;
    let asking = Socket::open()?;
    let end = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let end_heard = end.try_clone().map_err(failed)?;
    let watcher = Watcher {
        options,
        events,
        asking,
        end: end_heard,
        to,
        slot: Arc::new(Mutex::new(None)),
        state: State::default(),
        untold: Untold::Nothing,
        told_at: None,
        told_links: Arc::default(),
        schedule: Schedule::new(Instant::now()),
    };
    let thread =
        std::thread::Builder::new().name("linux".to_owned()).spawn(move || watcher.run()).map_err(failed)?;
    Ok(Watch { end, thread: Some(thread) })
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A write of 8 bytes to an eventfd that nobody else writes to does not fail.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Groups (`RTNLGRP_*`): links, neighbours, addresses, multicast routes, routes and sysctls of both versions, next-hop objects.
const GROUPS: [u32; 11] = [1, 3, 5, 6, 7, 9, 10, 11, 24, 25, 32];

/// Datagrams read in one go, at most.
const AT_ONCE: usize = 256;

struct Watcher {
    options: Options,
    events: Socket,
    asking: Socket,
    end: OwnedFd,
    to: Sender<News>,
    slot: Arc<Mutex<Option<Arc<State>>>>,
    state: State,
    untold: Untold,
    told_at: Option<Instant>,
    /// Interfaces of the state reported last.
    told_links: Arc<BTreeMap<LinkIndex, Link>>,
    schedule: Schedule,
}

/// State of pending reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Untold {
    Nothing,
    State,
}

/// Error: the watch has ended.
struct Ended;

fn events(options: Options) -> Result<Socket, Error> {
    let mut events = Socket::open()?;
    events.subscribe(&GROUPS, options.buffer)?;
    Ok(events)
}

impl Watcher {
    fn run(mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> Result<(), Ended> {
        self.clear_up()?;
        self.tell()?;
        if let Err(source) = wait(&[self.events.as_fd(), self.end.as_fd()], self.patience()) {
            self.trouble(Error::new(Operation::Receive, source))?;
        }
        // Nothing is left to wait for once the end has been told: the descriptor stays readable.
        if is_readable(&self.end) {
            return Err(Ended);
        }
        self.read()
    }

    /// Returns the time to wait for events; `None`, for ever, if no other work is pending.
    fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let untold = self.told_at.filter(|_| self.untold == Untold::State).map(|at| at + self.options.gap);
        untold.into_iter().chain(self.schedule.next()).min().map(|until| until.saturating_duration_since(now))
    }

    fn read(&mut self) -> Result<(), Ended> {
        let mut seen = Parts::default();
        for _ in 0..AT_ONCE {
            let mut missed = false;
            match self.events.receive() {
                Ok(Received::Nothing) => {
                    let now = Instant::now();
                    self.schedule.saw(seen, now);
                    self.schedule.all_read(now);
                    return Ok(());
                }
                Ok(Received::Lost) => missed = true,
                Ok(Received::Datagram(bytes)) => {
                    let mut changes = Vec::new();
                    for message in parse(bytes) {
                        let event = match message.body {
                            Body::Event(event) => event,
                            Body::Overrun | Body::Malformed => {
                                missed = true;
                                continue;
                            }
                            Body::Done(_) | Body::Answer(..) | Body::Other => continue,
                        };
                        seen.insert(Part::All);
                        if event.is_of_routes() {
                            seen.insert(Part::Routes);
                        } else if matches!(event, Event::Neighbour(_)) {
                            seen.insert(Part::Neighbours);
                        }
                        let effect = self.state.apply(event);
                        if effect.doubt == Doubt::Routes {
                            self.schedule.doubt(Part::Routes, Instant::now());
                        }
                        match effect.changed {
                            Changed::Nothing => {}
                            Changed::Tables => self.untold = Untold::State,
                            Changed::Neighbour(change) => changes.push(change),
                        }
                    }
                    self.tell_neighbours(&changes)?;
                }
                Err(source) => {
                    self.schedule.doubt(Part::All, Instant::now());
                    return self.trouble(Error::new(Operation::Receive, source));
                }
            }
            if missed {
                seen.insert(Part::All);
                let (now, known) = (Instant::now(), self.schedule.is_doubted(Part::All));
                self.schedule.saw(seen, now);
                self.schedule.doubt(Part::All, now);
                return if known { Ok(()) } else { self.to.send(News::Lost).map_err(|_| Ended) };
            }
        }
        self.schedule.saw(seen, Instant::now());
        Ok(())
    }

    /// Lists the doubtful parts of the state again, once due.
    fn clear_up(&mut self) -> Result<(), Ended> {
        let begun = Instant::now();
        let parts = self.schedule.ready(begun);
        if parts.is_empty() {
            return Ok(());
        }
        let state = match self.list(parts) {
            Ok(state) => state,
            Err(error) => {
                self.schedule.failed(Instant::now());
                return self.trouble(error);
            }
        };
        let told = self.told_at.is_some();
        let differences =
            if told { state.neighbours.differences(&self.state.neighbours) } else { Vec::new() };
        let changes: Vec<NeighbourChange> = differences
            .iter()
            .map(|difference| NeighbourChange { key: *difference.key, now: difference.is.copied() })
            .collect();
        let same = state.links == self.state.links
            && state.addresses == self.state.addresses
            && state.objects == self.state.objects
            && state.linkdown == self.state.linkdown
            && state.multicast == self.state.multicast
            && state.multicast_routers == self.state.multicast_routers
            && state.routes == self.state.routes
            && state.vrf_routes == self.state.vrf_routes;
        if !same || !told {
            self.untold = Untold::State;
        }
        self.state = state;
        self.schedule.listed(parts, begun, Instant::now());
        self.tell_neighbours(&changes)
    }

    /// Returns the state with these parts listed anew.
    fn list(&mut self, parts: Parts) -> Result<State, Error> {
        if parts.has(Part::All) {
            return self.list_all();
        }
        let mut state = self.state.clone();
        if parts.has(Part::Routes) {
            state.objects = Arc::new(list::objects(&mut self.asking)?);
            list::all_routes(&mut self.asking, &mut state)?;
            state.multicast = Arc::new(list::multicast(&mut self.asking)?);
        }
        if parts.has(Part::Neighbours) {
            state.neighbours = list::neighbours(&mut self.asking)?;
        }
        Ok(state)
    }

    fn list_all(&mut self) -> Result<State, Error> {
        // What is still unread is older than what was lost: a new socket has none of it.
        self.events = events(self.options)?;
        self.asking = Socket::open()?;
        list::state(&mut self.asking)
    }

    /// Reports the state, if changed and due.
    fn tell(&mut self) -> Result<(), Ended> {
        let due = self.told_at.is_none_or(|at| at.elapsed() >= self.options.gap);
        if self.untold == Untold::State && due { self.tell_now() } else { Ok(()) }
    }

    fn tell_now(&mut self) -> Result<(), Ended> {
        // Linux reports no change of a rate alone, but the carrier goes and comes with it.
        if !Arc::ptr_eq(&self.told_links, &self.state.links) {
            self.state.rates = Arc::new(rates(&self.state.links));
        }
        let state = Arc::new(self.state.clone());
        let waiting =
            self.slot.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&state)).is_some();
        self.told_links = Arc::clone(&state.links);
        if !waiting {
            let newest = Newest { slot: Arc::clone(&self.slot), told: state };
            self.to.send(News::State(newest)).map_err(|_| Ended)?;
        }
        self.told_at = Some(Instant::now());
        self.untold = Untold::Nothing;
        Ok(())
    }

    fn tell_neighbours(&mut self, changes: &[NeighbourChange]) -> Result<(), Ended> {
        for change in changes {
            // Who hears of a neighbour is to know the interface that it is on.
            let link = &change.key.link;
            if !self.told_links.contains_key(link) && self.state.links.contains_key(link) {
                self.tell_now()?;
            }
            self.to.send(News::Neighbour(*change)).map_err(|_| Ended)?;
        }
        Ok(())
    }

    fn trouble(&mut self, error: Error) -> Result<(), Ended> {
        self.to.send(News::Trouble(error)).map_err(|_| Ended)
    }
}

/// Rates of the hardware behind links that have a carrier.
fn rates(links: &BTreeMap<LinkIndex, Link>) -> BTreeMap<LinkIndex, BitRate> {
    let hardware = |link: &Link| link.kind.is_empty() && link.condition == Condition::Running;
    let links = links.iter().filter(|(_, link)| hardware(link));
    links.filter_map(|(index, link)| Some((*index, ports::interface_rate(&link.name)?))).collect()
}

fn is_readable(descriptor: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready: io::Result<usize> = rustix::event::poll(&mut polled, Some(&at_once)).map_err(io::Error::from);
    ready.is_ok_and(|ready| ready > 0)
}
