//! Following Linux: a thread that lists everything, then keeps up with every change, and tells of it.
//!
//! Changes of interfaces, addresses and routes are told as one whole [`State`]: the first at once, those after it
//! together, at most one a [`Options::gap`], and never more than one waits to be fetched, however fast routes come. Changes
//! of neighbours are told one by one, in order and at once.
//!
//! What Linux says nothing of (IPv4 routes that end with an interface, and the like) is asked for again. Where events were
//! lost, everything is, and what has changed is told as if it had been heard of. A list that changed while it was made is
//! made again once things are quiet.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use super::list;
use super::message::{Body, Event, parse};
use super::socket::{Error, Operation, Received, Socket, wait};
use super::state::{Changed, Doubt, Link, LinkIndex, NeighbourChange, State};

/// How Linux is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The least time from one state told to the next.
    pub gap: Duration,
    /// Bytes of events that may wait while this thread is busy; Linux grants less without CAP_NET_ADMIN.
    pub buffer: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { gap: Duration::from_millis(75), buffer: 64 << 20 }
    }
}

/// What is told.
#[derive(Debug)]
pub enum News {
    /// Interfaces, addresses or routes have changed; the first is everything there is. It has all neighbours that were
    /// told of before it, and perhaps newer ones.
    State(Newest),
    /// A neighbour has changed, on an interface that was told of before.
    Neighbour(NeighbourChange),
    /// Netlink receive buffer overrun, or a message that was not understood: resynchronising.
    Lost,
    /// Linux could not be asked; it is tried again.
    Trouble(Error),
}

/// A state to be fetched: as of now, not as of when it was told.
#[derive(Debug)]
pub struct Newest {
    slot: Arc<Mutex<Option<Arc<State>>>>,
    told: Arc<State>,
}

impl Newest {
    /// Fetches it. States that come later are told anew.
    pub fn take(self) -> Arc<State> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(self.told)
    }
}

/// Linux being followed; until this is dropped.
#[derive(Debug)]
pub struct Watch {
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// Begins to follow Linux, in the network namespace of the calling thread. News go to `to`; nobody being there to hear
/// them ends it, too.
///
/// # Errors
///
/// Where no netlink socket can be had.
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
        doubts: Doubts { all: true, ..Doubts::default() },
        doubted: Instant::now(),
        last_event: Instant::now(),
        listed_at: None,
        pause: Duration::ZERO,
        overlap: None,
        overlaps: 0,
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

/// `RTNLGRP_*`: links, neighbours, addresses, routes and settings of both versions, next-hop objects.
const GROUPS: [u32; 9] = [1, 3, 5, 7, 9, 11, 24, 25, 32];

/// Datagrams read before anything else is looked at.
const AT_ONCE: usize = 256;

/// The shortest and longest pause before a list is asked for again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// After so long without an event, a list will not change while it is made.
const QUIET: Duration = Duration::from_millis(200);

/// The pause where Linux could not be asked.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

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
    /// The interfaces of the state that was told last.
    told_links: Arc<BTreeMap<LinkIndex, Link>>,
    doubts: Doubts,
    /// When doubt arose.
    doubted: Instant,
    /// When the last event came.
    last_event: Instant,
    /// When something was listed, or could not be.
    listed_at: Option<Instant>,
    /// How long to wait after that before something is listed again, at least.
    pause: Duration,
    /// Set while events are read that may have come while the last list was made: what they were about.
    overlap: Option<Doubts>,
    /// How many lists in a row changed while they were made.
    overlaps: u32,
}

/// State of what is still to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Untold {
    Nothing,
    State,
}

/// What has to be asked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Doubts {
    /// Everything.
    all: bool,
    /// Next-hop objects and routes.
    routes: bool,
    neighbours: bool,
}

impl Doubts {
    fn any(self) -> bool {
        self.all || self.routes || self.neighbours
    }
}

/// The watch is at its end.
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

    /// How long to wait for events; for ever, if nothing else is to be done.
    fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let untold = self.told_at.filter(|_| self.untold == Untold::State).map(|at| at + self.options.gap);
        let doubt = Some(self.clears_up()).filter(|_| self.doubts.any());
        untold.into_iter().chain(doubt).min().map(|until| until.saturating_duration_since(now))
    }

    /// When doubt is to be cleared up: at once, but for a fifth of the time at most; and less and less often while lists
    /// change as they are made, until things are quiet.
    fn clears_up(&self) -> Instant {
        let Some(listed_at) = self.listed_at else { return self.doubted };
        let soonest = (self.doubted + PAUSES.0).max(listed_at + self.pause);
        let busy = (self.pause.max(PAUSES.0) * (1 << self.overlaps)).min(PAUSES.1);
        soonest.max(listed_at + busy).min(soonest.max(self.last_event + QUIET))
    }

    fn read(&mut self) -> Result<(), Ended> {
        for number in 0..AT_ONCE {
            let mut missed = false;
            match self.events.receive() {
                Ok(Received::Nothing) => {
                    if number > 0 {
                        self.last_event = Instant::now();
                    }
                    self.all_read();
                    return Ok(());
                }
                Ok(Received::Lost) => missed = true,
                Ok(Received::Datagram(bytes)) => {
                    let mut doubts = Doubts::default();
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
                        if let Some(overlap) = &mut self.overlap {
                            overlap.routes |= event.is_of_routes();
                            overlap.neighbours |= matches!(event, Event::Neighbour(_));
                        }
                        let effect = self.state.apply(event);
                        doubts.routes |= effect.doubt == Doubt::Routes;
                        match effect.changed {
                            Changed::Nothing => {}
                            Changed::Tables => self.untold = Untold::State,
                            Changed::Neighbour(change) => changes.push(change),
                        }
                    }
                    self.doubt(doubts);
                    self.tell_neighbours(&changes)?;
                }
                Err(source) => {
                    self.doubt(Doubts { all: true, ..Doubts::default() });
                    return self.trouble(Error::new(Operation::Receive, source));
                }
            }
            if missed {
                self.last_event = Instant::now();
                let known = self.doubts.all;
                self.doubt(Doubts { all: true, ..Doubts::default() });
                return if known { Ok(()) } else { self.to.send(News::Lost).map_err(|_| Ended) };
            }
        }
        self.last_event = Instant::now();
        Ok(())
    }

    /// Events that come from now on came after what was listed last. Where those before came while it was made, the list may
    /// have missed others: Linux finds its place again by counting.
    fn all_read(&mut self) {
        let Some(overlap) = self.overlap.take() else { return };
        if overlap.any() {
            self.overlaps = (self.overlaps + 1).min(16);
            self.doubt(overlap);
        } else {
            self.overlaps = 0;
        }
    }

    fn doubt(&mut self, doubts: Doubts) {
        if doubts.any() && !self.doubts.any() {
            self.doubted = Instant::now();
        }
        self.doubts.all |= doubts.all;
        self.doubts.routes |= doubts.routes;
        self.doubts.neighbours |= doubts.neighbours;
    }

    /// Asks again for what is in doubt, once its time has come.
    fn clear_up(&mut self) -> Result<(), Ended> {
        if !self.doubts.any() || Instant::now() < self.clears_up() {
            return Ok(());
        }
        let begun = Instant::now();
        let state = match self.list() {
            Ok(state) => state,
            Err(error) => {
                // A list that was broken off still occupies its socket: everything anew.
                self.doubts.all = true;
                self.listed_at = Some(Instant::now());
                self.pause = AFTER_TROUBLE;
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
            && state.routes == self.state.routes;
        if !same || !told {
            self.untold = Untold::State;
        }
        self.state = state;
        self.doubts = Doubts::default();
        self.listed_at = Some(Instant::now());
        self.pause = begun.elapsed() * 4;
        self.overlap = Some(Doubts::default());
        self.tell_neighbours(&changes)
    }

    /// The state with what is in doubt listed anew.
    fn list(&mut self) -> Result<State, Error> {
        if self.doubts.all {
            return self.list_all();
        }
        let mut state = self.state.clone();
        if self.doubts.routes {
            state.objects = Arc::new(list::objects(&mut self.asking)?);
            for v6 in [false, true] {
                let routes = list::routes(&mut self.asking, v6)?;
                state.routes.replace_version(v6, &routes);
            }
        }
        if self.doubts.neighbours {
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

    /// Tells the state, if there is news and its time has come.
    fn tell(&mut self) -> Result<(), Ended> {
        let due = self.told_at.is_none_or(|at| at.elapsed() >= self.options.gap);
        if self.untold == Untold::State && due { self.tell_now() } else { Ok(()) }
    }

    fn tell_now(&mut self) -> Result<(), Ended> {
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

fn is_readable(descriptor: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready: io::Result<usize> = rustix::event::poll(&mut polled, Some(&at_once)).map_err(io::Error::from);
    ready.is_ok_and(|ready| ready > 0)
}
