//! The supervisor: one thread that starts the workers, hangs ports on them, and tells them what has changed.
//!
//! It holds what is asked for (the policy) and what is there (Linux's state). Whenever either changes, tables are
//! made anew off the packet path, and the workers go on with those at the end of a batch. Everything comes to it as
//! an [`Event`], one after the other, so that nothing here is shared or locked.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::reload::PlanError;
use dataplane::tables::{Address, Neighbour};
use policy::model::{Listener, OnExit};
use policy::{Checked, LoadError, Policy};
use tracing::{debug, error, info, warn};

use crate::api;
use crate::clock::Clock;
use crate::effective::effective;
use crate::guard::Guards;
use crate::guard::alone::{self, Terms};
use crate::history::History;
use crate::linux::state::Reachability;
use crate::linux::{self, Desired, NeighbourKey, News, Probe, State};
use crate::log;
use crate::privilege::{self, Confinement, Held, Places, Restriction};
use crate::reload::{Asked, Built, Keep, Reload, Trial};
use crate::request::{Refusal, Request};
use crate::server::{Public, Server};
use crate::worker::{Found, Known, WorkerEvent};
use crate::{service, signal};

mod announce;
mod answer;
mod beside;
pub(crate) mod memory;
mod pool;
mod port;
mod start_error;
mod worker;

pub use port::{Carrier, PortState, Presence};
pub use start_error::StartError;

use port::Ports;
use start_error::system;
use worker::{Start, Workers};

/// How often neighbours are looked after that nobody has asked for of late.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Neighbours that are looked after.
const MOST_PROBED: usize = 65_536;

/// What a gateway is started with.
#[derive(Debug)]
pub struct Options {
    /// What to carry out.
    pub policy: Policy,
    /// The file it is from.
    pub file: PathBuf,
    /// Where commands are taken.
    pub socket: PathBuf,
    /// Where flows are kept over a restart; not at all where absent.
    pub state: Option<PathBuf>,
    /// Where policies that were put in force are kept over a restart; not at all where absent.
    pub history: Option<PathBuf>,
    /// Where guards of interfaces are pinned: a directory of a BPF file system.
    pub pins: PathBuf,
    /// How far the process restricts itself.
    pub restriction: Restriction,
}

/// What comes to the supervisor.
pub enum Event {
    /// Linux has changed, or tells of a neighbour.
    Linux(News),
    /// Sockets of the machine listen on these endpoints.
    Listeners(Vec<Listener>),
    /// A worker tells something.
    Worker(WorkerEvent),
    /// Somebody wants something.
    Request(Request),
    /// Tables have been made.
    Built(Box<Built>),
    /// The process is asked to end.
    Stop,
    /// The process was asked to read its policy file again, and this is what it has found.
    Reread(Box<Result<Checked, LoadError>>),
}

/// See the module.
pub struct Supervisor {
    options: Options,
    clock: Clock,
    started: Instant,
    events: Receiver<Event>,
    linux: Arc<State>,
    /// Follows Linux as long as it lives.
    _watch: linux::Watch,
    writer: linux::Writer,
    /// Neighbours as Linux has them now; those in `linux` are as old as it is.
    arp: linux::cow::Map<NeighbourKey, linux::Neighbour>,
    probe: Probe,
    /// When neighbours are next looked after, unless a worker asks for one before.
    probe_at: Instant,
    reload: Reload,
    workers: Workers,
    ports: Ports,
    neighbours: BTreeMap<(String, Address), Found>,
    /// Addresses that neighbours have been told of.
    announced: announce::Announced,
    panics: u64,
    watchdog: Option<Watchdog>,
    /// Notes on Linux that have been logged.
    noted: Vec<String>,
    /// Policies that were put in force.
    history: Option<History>,
    /// Writes what workers log.
    log: log::Writer,
    /// Files that the process keeps, as it was restricted to them.
    places: Places,
    /// What the process may do.
    confinement: Confinement,
    _held: Held,
    _server: Server,
}

/// When systemd is next told that the gateway lives.
struct Watchdog {
    interval: Duration,
    next: Instant,
}

impl Supervisor {
    /// Starts everything: Linux is asked, tables are made, workers begin, ports are opened.
    ///
    /// # Errors
    /// What a gateway cannot do without is missing: [`StartError`]. Ports that cannot be opened are no error: they may
    /// come later.
    pub fn start(mut options: Options) -> Result<Supervisor, StartError> {
        if !privilege::can_open_interfaces().map_err(|error| system("ask for privileges", error))? {
            return Err(StartError::Privilege);
        }
        let (path, state, directory) =
            (&options.socket, options.state.as_deref(), options.history.as_deref());
        let mut places = Places::make(&options.file, path, state, directory, &options.pins);
        // While it can: the key of metrics need not be its user's.
        let public = Public::open(&options.policy.gateway);
        let mut history = None;
        if let Some(directory) = &options.history {
            let (kept, policy) = History::begin(directory, &options.file, options.policy);
            (history, options.policy) = (Some(kept), policy);
        }
        places.log(&options.policy.gateway);
        let (confinement, held) =
            privilege::confine(&places, &options.restriction).map_err(StartError::Privileges)?;
        let policy = Arc::new(options.policy.clone());
        // Before anything else that takes time, or may fail.
        let guards =
            Guards::start(&options.pins, terms(&policy, &State::default())).map_err(StartError::Linux)?;
        let clock = Clock::start();
        let (sender, events) = channel();
        let (news, heard) = channel();
        let watch = linux::watch(linux::Options::default(), news).map_err(StartError::Linux)?;
        let linux = first_state(&heard)?;
        forward(heard, sender.clone(), Event::Linux).map_err(|error| system("start a thread", error))?;
        let first = Arc::new(effective(&policy, &linux));
        let tables = Arc::new(Tables::compile(&first.policy, 1).map_err(StartError::Compile)?);
        say_search(&tables);
        let log = log::Writer::start(&policy.gateway.log, clock)
            .map_err(|error| system("start a thread", error))?;
        // Not before there are guards: a gateway that cannot begin leaves its interfaces closed.
        let server = public
            .and_then(|public| Server::start(&options.socket, public, sender.clone()))
            .map_err(StartError::Server)?;
        let started = Instant::now();
        let writer = linux::Writer::open().map_err(StartError::Linux)?;
        let probe_at = Instant::now() + PROBE_PAUSE;
        let watchdog = service::watchdog().map(|interval| Watchdog { interval, next: Instant::now() });
        list_listeners(sender.clone()).map_err(|error| system("start a thread", error))?;
        signal::forward(sender.clone(), options.file.clone())
            .map_err(|error| system("hear signals", error))?;
        let workers = Workers::spawn(&Start {
            count: usize::from(policy.gateway.workers.unwrap_or(1).max(1)),
            tables: &tables,
            state: options.state.as_deref(),
            log: &log,
            clock,
            events: &sender,
        })?;
        let mut supervisor = Supervisor {
            clock,
            started,
            events,
            arp: linux.neighbours.clone(),
            linux,
            _watch: watch,
            writer,
            probe: Probe::new(MOST_PROBED),
            probe_at,
            reload: Reload::new(policy, first, tables, sender.clone()),
            workers,
            ports: Ports::new(guards),
            neighbours: BTreeMap::new(),
            announced: announce::Announced::new(),
            panics: 0,
            watchdog,
            noted: Vec::new(),
            history,
            log,
            places,
            confinement,
            _held: held,
            _server: server,
            options,
        };
        supervisor.neighbours_of_state();
        supervisor.ports.guards.name(terms(&supervisor.reload.policy, &supervisor.linux));
        supervisor.ports.attach_all(&supervisor.reload, &supervisor.linux, &supervisor.workers);
        // What could not be opened may be later, where Linux has it not yet, or another port of it works. Where all fail there is
        // nothing to be a gateway of, and another one may have them all.
        if let Some(names) = supervisor.ports.all_failed(&supervisor.reload) {
            let taken = supervisor.ports.guards.is_taken();
            supervisor.stop();
            return Err(StartError::NoPort { names, taken });
        }
        supervisor.ensure();
        supervisor.notes_beside();
        if let Some(history) = &mut supervisor.history {
            history.begun();
        }
        supervisor.announce();
        Ok(supervisor)
    }

    /// Does what comes, until it is asked to stop.
    pub fn run(mut self) {
        service::ready();
        loop {
            let event = match self.next_deadline() {
                Some(wait) => match self.events.recv_timeout(wait) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => break,
                },
                None => match self.events.recv() {
                    Ok(event) => Some(event),
                    Err(_) => break,
                },
            };
            match event {
                Some(Event::Stop) => break,
                Some(event) => self.take(event),
                None => {}
            }
            self.end_trial();
            self.show_life();
            if self.probe_at <= Instant::now() {
                self.ports.attach_failed(&self.reload, &self.linux, &self.workers);
                self.probe();
            }
        }
        service::stopping();
        self.stop();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Linux(event) => self.linux_says(event),
            Event::Listeners(listeners) => self.reload.sockets_listen(listeners, &self.linux),
            Event::Worker(event) => self.worker_event(event),
            Event::Request(request) => self.answer(request),
            Event::Built(built) => self.built(*built),
            Event::Reread(found) => {
                self.reread(*found);
                service::ready();
            }
            Event::Stop => {}
        }
    }

    fn linux_says(&mut self, news: News) {
        match news {
            News::State(newest) => {
                let before = std::mem::replace(&mut self.linux, newest.take());
                if before.addresses != self.linux.addresses || before.links != self.linux.links {
                    self.ports.guards.name(terms(&self.reload.policy, &self.linux));
                }
                self.ports.attach_all(&self.reload, &self.linux, &self.workers);
                self.ensure();
                self.announce();
                self.reload.linux_changed(&self.linux);
            }
            News::Neighbour(change) => {
                match change.now {
                    Some(now) => self.arp.insert(change.key, now),
                    None => self.arp.remove(&change.key),
                };
                let Some(link) = self.linux.links.get(&change.key.link) else { return };
                let found = match change.now {
                    Some(now) => match now.usable() {
                        Some(mac) => Found::At(mac),
                        None if now.reachability == Reachability::Failed => Found::Nowhere,
                        None => return,
                    },
                    None => Found::Forgotten,
                };
                let known = Known { interface: link.name.clone(), address: change.key.address.into(), found };
                self.update_neighbour(known);
            }
            News::Lost => info!("netlink receive buffer overrun; resynchronising"),
            News::Trouble(error) => warn!("{error}"),
        }
    }

    /// Asks Linux for neighbours that it is time to ask for.
    fn probe(&mut self) {
        for key in self.probe.due(&self.arp, self.clock.now()) {
            if let Err(error) = self.writer.resolve(key) {
                debug!("{error}");
            }
        }
        self.probe_at = Instant::now() + PROBE_PAUSE;
    }

    /// Notes what is known of a neighbour, and tells the workers.
    fn update_neighbour(&mut self, known: Known) {
        let key = (known.interface.clone(), known.address);
        match known.found {
            Found::At(_) => self.neighbours.insert(key, known.found),
            Found::Nowhere | Found::Forgotten => self.neighbours.remove(&key),
        };
        self.workers.update_neighbour(&known);
    }

    /// Takes over the neighbours that Linux knew before the gateway began.
    fn neighbours_of_state(&mut self) {
        let linux = self.linux.clone();
        for (key, neighbour) in linux.neighbours.iter() {
            let link = linux.links.get(&key.link);
            if let (Some(link), Some(mac)) = (link, neighbour.usable()) {
                self.update_neighbour(Known {
                    interface: link.name.clone(),
                    address: key.address.into(),
                    found: Found::At(mac),
                });
            }
        }
    }

    /// All neighbours that are known.
    fn known(&self) -> Arc<[Known]> {
        let all = self.neighbours.iter();
        all.map(|((interface, address), found)| Known {
            interface: interface.clone(),
            address: *address,
            found: *found,
        })
        .collect()
    }

    fn worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Wanted { interface, address } => {
                if let Some((link, _)) = self.linux.link_named(&interface) {
                    let key = NeighbourKey { link, address: address.to_ip() };
                    self.probe.want(key, self.clock.now());
                    self.probe();
                }
            }
            WorkerEvent::PortFailed { interface, error } => {
                warn!(interface, "port failed and is opened again: {error}");
                self.ports.detach(&interface, &self.workers);
                self.ports.attach_all(&self.reload, &self.linux, &self.workers);
            }
            WorkerEvent::NotAlone { worker } => {
                warn!(
                    worker,
                    "more workers than cores: several share a core, and none reaches its full rate"
                );
            }
            WorkerEvent::Panicked { worker, message } => {
                self.panics += 1;
                error!(
                    worker,
                    "worker panicked; its flows are lost, and it starts with an empty flow table: {message}"
                );
                self.workers.restore_neighbours(worker, self.known());
            }
        }
    }

    /// Tables have been made: the workers go on with them.
    fn built(&mut self, built: Built) {
        let Built { asked, effective, tables } = built;
        match tables {
            Ok(None) => {}
            Ok(Some(tables)) => match self.swap(&tables) {
                Ok(()) => {
                    self.reload.tables = tables;
                    self.reload.effective = effective;
                    if let Some(asked) = asked {
                        self.ports.guards.name(terms(&asked.policy, &self.linux));
                        self.in_force(asked);
                    }
                    self.ports.attach_all(&self.reload, &self.linux, &self.workers);
                    self.ensure();
                    self.announce();
                }
                Err(error) => {
                    error!("reload failed, the policy in force stays: {error}");
                    if let Some(reply) = asked.and_then(|asked| asked.reply) {
                        let _ = reply.send(Err(Refusal::Compile(error.to_string())));
                    }
                }
            },
            Err(error) => {
                error!("compiling the policy failed, the policy in force stays: {error}");
                if let Some(reply) = asked.and_then(|asked| asked.reply) {
                    let _ = reply.send(Err(Refusal::Compile(error.to_string())));
                }
            }
        }
        self.reload.finished(&self.linux);
    }

    fn swap(&mut self, tables: &Arc<Tables>) -> Result<(), PlanError> {
        let known = self.neighbours_in(tables);
        self.workers.swap(&self.reload.tables, tables, &known)
    }

    /// Neighbours that are known, on the interfaces of tables.
    fn neighbours_in(&self, tables: &Tables) -> Vec<Neighbour> {
        let all = self.neighbours.iter();
        all.filter_map(|((interface, address), found)| match found {
            Found::At(mac) => {
                let interface = tables.interface_named(interface)?;
                Some(Neighbour { interface, address: *address, mac: *mac })
            }
            Found::Nowhere | Found::Forgotten => None,
        })
        .collect()
    }

    /// A policy that was asked for is in force.
    fn in_force(&mut self, asked: Asked) {
        let Asked { policy, confirm, keep, reply } = asked;
        let before = std::mem::replace(&mut self.reload.policy, policy);
        self.log.change(&self.reload.policy.gateway.log);
        self.reload.trial = match confirm {
            Some(time) => Some(Trial { before, until: Instant::now() + time, keep }),
            None => {
                self.keep(keep);
                None
            }
        };
        info!(epoch = self.reload.tables.epoch, "policy applied");
        say_search(&self.reload.tables);
        if let Some(reply) = reply {
            // Who asked may have gone.
            let _ = reply.send(Ok(crate::request::Applied { epoch: self.reload.tables.epoch }));
        }
    }

    /// Keeps the policy in force over a restart, where that is asked for.
    fn keep(&mut self, keep: Keep) {
        let Some(history) = &mut self.history else { return };
        match keep {
            Keep::No => {}
            Keep::Reread => history.keep_reread(&self.reload.policy),
            Keep::Applied(by) => history.keep_applied(&self.reload.policy, by),
        }
    }

    /// Sees to it that Linux has the policy's addresses and routes. What Linux refuses now it may take when more of them are
    /// there, or their interface is up: it is tried again whenever Linux changes.
    fn ensure(&mut self) {
        let desired = Desired::of(&self.reload.policy);
        for error in self.writer.ensure(&desired, &self.linux) {
            debug!("{error}");
        }
    }

    /// Time until something is to be done unasked.
    fn next_deadline(&self) -> Option<Duration> {
        let trial = self.reload.trial.as_ref().map(|trial| trial.until);
        let life = self.watchdog.as_ref().map(|watchdog| watchdog.next);
        let next = trial.into_iter().chain(life).fold(self.probe_at, Instant::min);
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Tells systemd that the gateway lives, when it is time and all workers do.
    fn show_life(&mut self) {
        let now = Instant::now();
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.next <= now) else { return };
        watchdog.next = now + watchdog.interval;
        if self.workers.all_respond() {
            service::alive();
        } else {
            error!("a worker does not respond; the watchdog is not fed");
        }
    }

    /// Goes back to the policy before the one on trial, if its time is over.
    fn end_trial(&mut self) {
        if self.reload.trial.as_ref().is_some_and(|trial| trial.until <= Instant::now()) {
            warn!("policy not confirmed in time; rolling back to the one before");
            self.roll_back();
        }
    }

    fn roll_back(&mut self) {
        if let Some(trial) = self.reload.trial.take() {
            let asked = Asked { policy: trial.before, confirm: None, keep: Keep::No, reply: None };
            self.reload.ask(asked, &self.linux);
        }
    }

    /// Goes on with what the policy file has now.
    fn reread(&mut self, found: Result<Checked, LoadError>) {
        service::reloading();
        self.log.reopen();
        let file = &self.options.file;
        let checked = match found {
            Ok(checked) => checked,
            Err(error) => return error!("{error}; the policy in force stays"),
        };
        let wrong = match &checked.policy {
            None => api::in_short(&checked),
            Some(policy) if answer::is_empty(policy) => "has no interface".to_owned(),
            Some(policy) => match self.needs_restart(policy) {
                None => String::new(),
                Some(what) => format!("changes {what}, which takes a restart"),
            },
        };
        match checked.policy {
            Some(policy) if wrong.is_empty() => {
                let asked =
                    Asked { policy: Arc::new(policy), confirm: None, keep: Keep::Reread, reply: None };
                self.reload.ask(asked, &self.linux);
            }
            _ => error!("{} {wrong}; the policy in force stays", file.display()),
        }
    }

    /// Ends the workers, and with them the ports; keeps what they remembered.
    fn stop(mut self) {
        let memories = self.workers.stop();
        self.ports.close_all();
        self.log.finish();
        if self.reload.policy.gateway.on_exit == OnExit::Open {
            info!("on-exit is open: guards removed, Linux forwards unfiltered");
            self.ports.guards.end_open();
        }
        if let Some(path) = &self.options.state {
            memory::keep(path, &memories);
        }
        info!("stopped");
    }
}

/// What guards of a policy's interfaces let through while no gateway runs.
fn terms(policy: &Policy, linux: &State) -> BTreeMap<String, Terms> {
    let interfaces = policy.interfaces.iter();
    interfaces.map(|interface| (interface.name.clone(), alone::terms(policy, interface, linux))).collect()
}

/// What is to be sent on, on a thread of its own.
fn forward<T: Send + 'static>(
    from: Receiver<T>,
    to: Sender<Event>,
    as_event: impl Fn(T) -> Event + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name("news".to_owned()).spawn(move || {
        while let Ok(one) = from.recv() {
            if to.send(as_event(one)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Tells, from time to time, which endpoints sockets of the machine listen on.
fn list_listeners(to: Sender<Event>) -> io::Result<()> {
    let list = move || {
        let mut listeners = linux::listener::Listeners::default();
        let mut is_told = false;
        loop {
            match listeners.list() {
                Ok(listeners) => {
                    // The supervisor has gone: so has the need.
                    if to.send(Event::Listeners(listeners)).is_err() {
                        return;
                    }
                }
                Err(error) if !is_told => {
                    warn!("{error}; ports of services are known by the policy's rules alone");
                    is_told = true;
                }
                Err(_) => {}
            }
            thread::sleep(linux::listener::PAUSE);
        }
    };
    thread::Builder::new().name("sockets".to_owned()).spawn(list).map(|_| ())
}

/// Waits for the first state of Linux.
fn first_state(heard: &Receiver<News>) -> Result<Arc<State>, StartError> {
    loop {
        match heard.recv() {
            Ok(News::State(newest)) => return Ok(newest.take()),
            Ok(News::Neighbour(_) | News::Lost) => {}
            Ok(News::Trouble(error)) => return Err(StartError::Linux(error)),
            Err(_) => return Err(system("follow Linux", io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Says how the rules are searched, and what was to do it and takes too much memory.
fn say_search(tables: &Tables) {
    for (algorithm, why) in &tables.filter.search.gave_way {
        warn!("classifier {} not used: it {why}; falling back", algorithm.name);
    }
    let (algorithm, rules) = (tables.filter.search.algorithm.name, tables.filter.rules.len());
    info!(algorithm, rules, bytes = tables.filter.search.classifier.memory_bytes(), "classifier built");
}
