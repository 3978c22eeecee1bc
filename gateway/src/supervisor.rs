//! Supervisor: the thread that starts the workers, attaches ports to them, and sends them commands and updates.
//!
//! Holds the policy and the state of Linux. A change of either has tables compiled off the packet path, and the
//! workers switch to the new tables at the end of a batch. All input arrives as an [`Event`], one after the other, so
//! that nothing here is shared or locked.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::ppp::News as SessionNews;
use policy::model::OnExit;
use tracing::{error, info, warn};

use crate::balance::{self, ServerChecks, ServerNews};
use crate::effective::Effective;
use crate::event::Event;
use crate::health::Checker;
use crate::linux::News;
use crate::reload::{Asked, Built, Outcome, Reload};
use crate::request::Refusal;
use crate::sa::key_log::KeyLog;
use crate::sa::reserve::{self, Reserve};
use crate::sa::total::Totals;
use crate::service;
use crate::set::Sources;
use crate::wan::{self, CheckNews, Checks};
use crate::worker::WorkerEvent;
use crate::xfrm::server::News as XfrmNews;

mod announce;
mod answer;
mod beside;
mod ike;
mod kernel;
mod memory;
mod neighbour;
mod pool;
mod port;
mod port_mapping;
mod process;
mod sa;
mod set;
mod start;
mod start_error;
mod worker;

pub use sa::{SaAsked, SaTrouble};
pub use set::{SetAddition, SetAsked};
pub use start::Options;
pub use start_error::StartError;

use announce::Announcements;
use ike::Daemons;
use kernel::Kernel;
use neighbour::Neighbours;
use port::Ports;
use port_mapping::PortMappings;
use process::Process;
use sa::Associations;
use worker::Workers;

/// See the module.
pub struct Supervisor {
    events: Receiver<Event>,
    /// For events of the supervisor's own threads.
    sender: Sender<Event>,
    kernel: Kernel,
    neighbours: Neighbours,
    announcements: Announcements,
    reload: Reload,
    workers: Workers,
    ports: Ports,
    process: Process,
    /// Checks of WANs.
    checks: Checks,
    /// Checks of servers.
    servers: ServerChecks,
    /// Thread of checks.
    checker: Checker,
    /// Lists of dynamic sets.
    sets: Sources,
    /// Server of PCP and NAT-PMP.
    port_mappings: PortMappings,
    /// Sequence numbers of tunnels.
    reserve: Reserve,
    /// Security associations added at run time.
    added: Associations,
    /// Security associations of IKE daemons.
    daemons: Daemons,
    /// Counters of all security associations since the start.
    totals: Totals,
    /// File that keys are written to.
    key_log: Option<KeyLog>,
}

impl Supervisor {
    /// Handles events until the stop event.
    pub fn run(mut self) {
        service::ready();
        loop {
            match self.events.recv_timeout(self.time_to_deadline()) {
                Ok(Event::Linux(news)) => self.linux_changed(news),
                Ok(Event::Wan(news)) => self.wan_checked(&news),
                Ok(Event::Server(news)) => self.server_checked(news),
                Ok(Event::Set(news)) => self.set_read(*news),
                Ok(Event::Listeners(listeners)) => self.reload.sockets_listen(listeners),
                Ok(Event::Worker(event)) => self.worker_reports(event),
                Ok(Event::Request(request)) => self.answer(request),
                Ok(Event::Ike(change)) => self.change_ike(change),
                Ok(Event::TunnelFor(question)) => self.find_tunnel(question),
                Ok(Event::Built(built)) => self.built(*built),
                Ok(Event::Reread(found)) => {
                    self.reread(*found);
                    service::ready();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.reload.expire_trial();
            self.compile();
            self.process.show_life(&self.workers);
            self.reserve_numbers();
            if self.neighbours.probe_at <= Instant::now() {
                self.ports.attach_failed(&self.reload, &self.kernel.state, &self.workers);
                self.neighbours.probe(&mut self.kernel);
                self.kernel.count_drops();
            }
        }
        service::stopping();
        self.stop();
    }

    /// Reserves sequence numbers for tunnels, before workers have used up those that are.
    fn reserve_numbers(&mut self) {
        let known: Vec<_> = self.known().collect();
        match self.reserve.top_up(&self.reload.tables, &known) {
            Ok(()) => self.reserve.is_logged = false,
            Err(error) if !self.reserve.is_logged => {
                error!("{error}; tunnels send until the numbers reserved are used up");
                self.reserve.is_logged = true;
            }
            Err(_) => {}
        }
    }

    /// Time until the next timer: neighbour probes, the end of a trial, the watchdog, sequence numbers.
    fn time_to_deadline(&self) -> Duration {
        let trial = self.reload.end_of_trial();
        let life = self.process.watchdog.as_ref().map(|watchdog| watchdog.next);
        let next = trial.into_iter().chain(life).fold(self.neighbours.probe_at, Instant::min);
        let left = next.saturating_duration_since(Instant::now());
        if self.reload.tables.tunnels.is_empty() { left } else { left.min(reserve::PAUSE) }
    }

    fn linux_changed(&mut self, news: News) {
        match news {
            News::State(newest) => {
                let before = std::mem::replace(&mut self.kernel.state, newest.take());
                let now = &self.kernel.state;
                if before.addresses != now.addresses || before.links != now.links {
                    self.ports.name_guards(&self.reload.policy, now);
                }
                self.follow();
                self.reload.linux_changed();
            }
            News::Neighbour(change) => {
                self.neighbours.changed(&change, &self.kernel.state, &self.workers);
            }
            News::Lost => info!("netlink receive buffer overrun; resynchronising"),
            News::Trouble(error) => warn!("{error}"),
        }
    }

    /// Takes the verdict of a WAN's check: tables follow.
    fn wan_checked(&mut self, news: &CheckNews) {
        if self.checks.heard(news) {
            self.reload.wans_failed(&self.checks.failed());
        }
    }

    /// Checks the WANs of the policy in force as it is now.
    fn check_wans(&mut self) {
        self.checks.follow(&self.reload.effective.policy, &mut self.checker, &self.sender);
        self.reload.wans_failed(&self.checks.failed());
    }

    /// Takes the verdict of a server's check: tables follow.
    fn server_checked(&mut self, news: ServerNews) {
        if self.servers.heard(news) {
            self.reload.servers_failed(self.servers.failed());
        }
    }

    /// Checks the servers of the policy in force.
    fn check_servers(&mut self) {
        self.servers.follow(&self.reload.policy, &mut self.checker, &self.sender);
        self.reload.servers_failed(self.servers.failed());
    }

    fn worker_reports(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Wanted { interface, address } => {
                self.neighbours.want(&interface, address, &mut self.kernel);
            }
            WorkerEvent::Tunnel { worker, interface, event } => self.tunnel_tells(worker, interface, event),
            WorkerEvent::Session { interface, news } => session_tells(&interface, news),
            WorkerEvent::PortMappings(news) => self.port_mappings.heard(&news),
            WorkerEvent::SetAdditions { worker, elements } => self.rules_added(worker, &elements),
            WorkerEvent::PortFailed { interface, error } => {
                warn!(interface, "port failed and is opened again: {error}");
                self.ports.detach(&interface, &self.workers);
                self.ports.attach_all(&self.reload, &self.kernel.state, &self.workers);
            }
            WorkerEvent::NotAlone { worker } => {
                warn!(
                    worker,
                    "more workers than cores: several share a core, and none reaches its full rate"
                );
            }
            WorkerEvent::Panicked { worker, message } => {
                error!(
                    worker,
                    "worker panicked; its flows are lost, and it starts with an empty flow table: {message}"
                );
                self.workers.panicked(worker, self.neighbours.all());
                if let Some(routes) = &self.reload.multicast {
                    self.workers.route_multicast(routes, self.reload.tables.epoch);
                }
                self.process.sync.begin_anew(worker::seed());
                self.added.restore(worker, &self.workers);
                self.daemons.restore(worker, &self.workers);
                self.restore_sets(worker);
                self.port_mappings.begin_anew();
            }
        }
    }

    /// Compiles the next tables, if any are due, on a thread of its own.
    fn compile(&mut self) {
        if let Some(compilation) = self.reload.next(&self.kernel.state) {
            let sender = self.sender.clone();
            thread::spawn(move || {
                // The supervisor has gone: so has the need.
                let _ = sender.send(Event::Built(Box::new(compilation.run())));
            });
        }
    }

    /// Switches the workers to compiled tables.
    fn built(&mut self, built: Built) {
        let Built { asked, effective, outcome } = built;
        match outcome {
            Ok(Outcome::Same) if !effective.stands_as(&self.reload.effective) => {
                // Down for another reason than before.
                log_health(&self.reload.effective, &effective);
                self.reload.effective = effective;
            }
            Ok(Outcome::Same) => {}
            Ok(Outcome::Multicast(routes)) => {
                self.workers.route_multicast(&routes, self.reload.tables.epoch);
                log_health(&self.reload.effective, &effective);
                self.reload.effective = effective;
                self.reload.multicast = Some(routes);
            }
            Ok(Outcome::Tables(tables)) => {
                let known = self.neighbours.of(&tables);
                // Numbers first: workers seal as soon as they have the tables.
                let numbers: Vec<_> = self.known().collect();
                let is_rollback = asked.as_ref().is_some_and(Asked::is_rollback);
                let checked = if is_rollback { Ok(()) } else { self.added.check(&tables) };
                let reserved = checked
                    .map_err(|error| error.to_string())
                    .and_then(|()| self.reserve.top_up(&tables, &numbers).map_err(|error| error.to_string()));
                let swapped = reserved.and_then(|()| {
                    let swapped = self.workers.swap(&self.reload.tables, &tables, &known);
                    swapped.map_err(|error| error.to_string())
                });
                match swapped {
                    Ok(()) => {
                        self.reload.tables = tables;
                        self.reload.multicast = None;
                        self.added.follow(&self.reload.tables, &self.workers);
                        log_health(&self.reload.effective, &effective);
                        self.reload.effective = effective;
                        self.check_wans();
                        self.bind_anew();
                        self.tell_ike(XfrmNews::Reloaded);
                        self.log_keys();
                        if let Some(asked) = asked {
                            self.ports.name_guards(&asked.policy, &self.kernel.state);
                            self.process.log.change(&asked.policy.gateway.log);
                            self.process.ipfix.change(&asked.policy.gateway.ipfix);
                            self.reload.put_in_force(asked);
                        }
                        self.check_servers();
                        self.follow_sets();
                        self.follow();
                    }
                    Err(error) => {
                        error!("reload failed, the policy in force stays: {error}");
                        refuse(asked, &error);
                    }
                }
            }
            Err(error) => {
                error!("compiling the policy failed, the policy in force stays: {error}");
                refuse(asked, &error);
            }
        }
        self.reload.finished();
    }

    /// Opens and closes ports, changes Linux, and announces addresses as the policy in force and Linux's state have them now.
    fn follow(&mut self) {
        self.ports.attach_all(&self.reload, &self.kernel.state, &self.workers);
        self.kernel.ensure(&self.reload.policy, &self.reload.effective.policy.wans);
        self.kernel.size(&self.reload.tables);
        self.announcements.announce(&self.reload.tables, &self.ports, &self.workers);
        self.follow_port_mappings();
    }

    /// Stops the workers, closes the ports, and saves the flow state.
    fn stop(mut self) {
        let memories = self.workers.stop();
        if let Err(error) = self.reserve.finish(&self.reload.tables) {
            warn!("{error}; sequence numbers go on behind those reserved");
        }
        self.ports.close_all();
        self.process.log.finish();
        self.process.ipfix.finish();
        if self.reload.policy.gateway.on_exit == OnExit::Open {
            info!("on-exit is open: guards removed, Linux forwards unfiltered");
            self.ports.guards.end_open();
        }
        if let Some(path) = &self.process.state_file {
            memory::keep(path, &memories);
        }
        info!("stopped");
    }
}

/// Refuses the request for a policy, if any, whose tables could not be compiled.
fn refuse(asked: Option<Asked>, error: &impl Display) {
    if let Some(asked) = asked {
        asked.refuse(Refusal::Compile(error.to_string()));
    }
}

/// Logs news of a PPP session.
fn session_tells(interface: &str, news: SessionNews) {
    match news {
        SessionNews::Opened => info!(interface, "PPP session open"),
        SessionNews::Closed => info!(interface, "PPP session closed"),
        SessionNews::AuthenticationFailed => {
            warn!(
                interface,
                "authentication of the PPP session failed: compare user and password with the other end's"
            );
        }
        SessionNews::AddressRefused(Some(address)) => {
            let address = Ipv4Addr::from(address);
            warn!(
                interface,
                "the PPP session is not opened: the other end gives the address {address}; write \"{address}/32\" into `addresses`"
            );
        }
        SessionNews::AddressRefused(None) => {
            warn!(interface, "the PPP session is not opened: the other end refuses the interface's address");
        }
    }
}

/// Logs the WANs and servers whose standing has changed.
fn log_health(before: &Effective, now: &Effective) {
    wan::log_changes(before, now);
    balance::log_changes(before, now);
}
