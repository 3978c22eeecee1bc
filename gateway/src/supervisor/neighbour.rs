//! Neighbours: the neighbour table of Linux, the entries that workers have, and the resolutions that Linux is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::tables::{Address, Neighbour};
use wire::ethernet::Mac;

use super::kernel::Kernel;
use super::worker::Workers;
use crate::clock::Clock;
use crate::linux::state::Reachability;
use crate::linux::{self, NeighbourChange, NeighbourKey, Probe, State};
use crate::worker::{Found, Known};

/// Interval between neighbour probes while no worker requests a resolution: 1 s.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of neighbours probed.
const MOST_PROBED: usize = 65_536;

/// The neighbours of all interfaces.
pub(super) struct Neighbours {
    /// The neighbour table of Linux as it is now; that of a [`State`] is as old as the state is.
    kernel: linux::cow::Map<NeighbourKey, linux::Neighbour>,
    /// Link-layer addresses that the workers know, by interface and address.
    resolved: BTreeMap<(String, Address), Mac>,
    probe: Probe,
    /// Time of the next probe, unless a worker requests a resolution before.
    pub(super) probe_at: Instant,
    clock: Clock,
}

impl Neighbours {
    /// The neighbours that Linux has. Workers know none of them yet.
    pub(super) fn new(linux: &State, clock: Clock) -> Neighbours {
        Neighbours {
            kernel: linux.neighbours.clone(),
            resolved: BTreeMap::new(),
            probe: Probe::new(MOST_PROBED),
            probe_at: Instant::now() + PROBE_PAUSE,
            clock,
        }
    }

    /// Takes over the neighbours that Linux knew before the gateway began.
    pub(super) fn take_over(&mut self, linux: &State, workers: &Workers) {
        for (key, neighbour) in linux.neighbours.iter() {
            let link = linux.links.get(&key.link);
            if let (Some(link), Some(mac)) = (link, neighbour.usable()) {
                let (interface, address) = (link.name.clone(), key.address.into());
                self.update(&Known { interface, address, found: Found::At(mac) }, workers);
            }
        }
    }

    /// Applies a change of Linux's neighbour table.
    pub(super) fn changed(&mut self, change: &NeighbourChange, linux: &State, workers: &Workers) {
        match change.now {
            Some(now) => self.kernel.insert(change.key, now),
            None => self.kernel.remove(&change.key),
        };
        let Some(link) = linux.links.get(&change.key.link) else { return };
        let found = match change.now {
            Some(now) => match now.usable() {
                Some(mac) => Found::At(mac),
                None if now.reachability == Reachability::Failed => Found::Nowhere,
                None => return,
            },
            None => Found::Forgotten,
        };
        let (interface, address) = (link.name.clone(), change.key.address.into());
        self.update(&Known { interface, address, found }, workers);
    }

    /// Notes a neighbour update, and sends it to the workers.
    fn update(&mut self, known: &Known, workers: &Workers) {
        let key = (known.interface.clone(), known.address);
        match known.found {
            Found::At(mac) => self.resolved.insert(key, mac),
            Found::Nowhere | Found::Forgotten => self.resolved.remove(&key),
        };
        workers.update_neighbour(known);
    }

    /// Requests the resolution of a neighbour that packets of a worker wait for.
    pub(super) fn want(&mut self, interface: &str, address: Address, kernel: &mut Kernel) {
        if let Some((link, _)) = kernel.state.link_named(interface) {
            let key = NeighbourKey { link, address: address.to_ip() };
            self.probe.want(key, self.clock.now());
            self.probe(kernel);
        }
    }

    /// Has Linux resolve the neighbours that are due.
    pub(super) fn probe(&mut self, kernel: &mut Kernel) {
        for key in self.probe.due(&self.kernel, self.clock.now()) {
            kernel.resolve(key);
        }
        self.probe_at = Instant::now() + PROBE_PAUSE;
    }

    /// All neighbours that workers know.
    pub(super) fn all(&self) -> Arc<[Known]> {
        let all = self.resolved.iter();
        all.map(|((interface, address), mac)| Known {
            interface: interface.clone(),
            address: *address,
            found: Found::At(*mac),
        })
        .collect()
    }

    /// Returns the resolved neighbours on interfaces of these tables.
    pub(super) fn of(&self, tables: &Tables) -> Vec<Neighbour> {
        let all = self.resolved.iter();
        all.filter_map(|((interface, address), mac)| {
            let interface = tables.interface_named(interface)?;
            Some(Neighbour { interface, address: *address, mac: *mac })
        })
        .collect()
    }
}
