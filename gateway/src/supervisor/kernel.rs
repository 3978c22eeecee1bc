//! Linux, as the supervisor follows and changes it: its state, the addresses and routes that it is to have, and notes on
//! settings of it that have no effect on the gateway's packets.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use dataplane::Tables;
use policy::Policy;
use policy::model::Wan;
use tracing::{debug, warn};

use super::start_error::{StartError, system};
use crate::event::Event;
use crate::linux::egress::EgressCounter;
use crate::linux::{self, Desired, NeighbourKey, News, State};

/// Linux: its newest state, and the way to change it.
pub(super) struct Kernel {
    /// The newest state.
    pub(super) state: Arc<State>,
    /// Netlink watch of Linux, until dropped.
    _watch: linux::Watch,
    writer: linux::Writer,
    /// Notes that are in the log already.
    pub(super) logged: Vec<String>,
    /// Packets dropped at egress.
    pub(super) egress: EgressCounter,
}

impl Kernel {
    /// Waits for the first state of Linux; later states arrive as events.
    ///
    /// # Errors
    /// State of Linux unavailable, or no thread.
    pub(super) fn follow(events: Sender<Event>) -> Result<Kernel, StartError> {
        let (news, heard) = channel();
        let watch = linux::watch(linux::Options::default(), news).map_err(StartError::Linux)?;
        let state = first_state(&heard)?;
        forward(heard, events).map_err(|error| system("start a thread", error))?;
        let writer = linux::Writer::open().map_err(StartError::Linux)?;
        let (logged, egress) = (Vec::new(), EgressCounter::default());
        let mut kernel = Kernel { state, _watch: watch, writer, logged, egress };
        kernel.count_drops();
        Ok(kernel)
    }

    /// Counts packets dropped at egress since the last time.
    pub(super) fn count_drops(&mut self) {
        if let Err(error) = self.egress.read() {
            debug!("packets dropped at egress cannot be counted: {error}");
        }
    }

    /// Configures the policy's addresses and routes in Linux, with default routes by `wans`, which are the policy's as they are now. Those that Linux refuses, since others are missing or their
    /// interface is down, are retried on every change of Linux.
    pub(super) fn ensure(&mut self, policy: &Policy, wans: &[Wan]) {
        let desired = Desired::of(policy, wans);
        for error in self.writer.ensure(&desired, &self.state) {
            debug!("{error}");
        }
    }

    /// Gives the interfaces of tunnels the largest packet that their tunnels take.
    pub(super) fn size(&mut self, tables: &Tables) {
        for interface in tables.interfaces.iter().filter(|interface| interface.tunnel.is_some()) {
            let known = self.state.link_named(&interface.name).map(|(_, link)| link.mtu);
            if known.is_some_and(|mtu| mtu != u32::from(interface.mtu)) {
                if let Err(error) = self.writer.set_mtu(&interface.name, interface.mtu) {
                    debug!("{error}");
                }
            }
        }
    }

    /// Has Linux resolve a neighbour, or probe its reachability.
    pub(super) fn resolve(&mut self, key: NeighbourKey) {
        if let Err(error) = self.writer.resolve(key) {
            debug!("{error}");
        }
    }
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

/// Forwards reports of Linux as events, on a thread of its own.
fn forward(from: Receiver<News>, to: Sender<Event>) -> io::Result<()> {
    let send = move || {
        while let Ok(one) = from.recv() {
            if to.send(Event::Linux(one)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("news".to_owned()).spawn(send).map(|_| ())
}

/// Reports the endpoints that sockets of the machine listen on, from time to time, on a thread of its own.
pub(super) fn list_listeners(to: Sender<Event>) -> io::Result<()> {
    let list = move || {
        let mut listeners = linux::listener::Listeners::default();
        let mut is_logged = false;
        loop {
            match listeners.list() {
                Ok(listeners) => {
                    // The supervisor has gone: so has the need.
                    if to.send(Event::Listeners(listeners)).is_err() {
                        return;
                    }
                }
                Err(error) if !is_logged => {
                    warn!("{error}; ports of services are known by the policy's rules alone");
                    is_logged = true;
                }
                Err(_) => {}
            }
            thread::sleep(linux::listener::PAUSE);
        }
    };
    thread::Builder::new().name("sockets".to_owned()).spawn(list).map(|_| ())
}
