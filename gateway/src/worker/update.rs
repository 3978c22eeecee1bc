//! Updates of a worker between two turns: table swaps, neighbour updates, announcements, and the restart after a panic.

use dataplane::flow::Member;
use dataplane::shard::ShardError;
use dataplane::stage::proxy::announcement;
use dataplane::tables::{Address, Tables};
use dataplane::{Pipeline, Shard};
use wire::Nanos;

use super::command::{Found, Known, Retired, Swap, WorkerEvent};
use super::link::{Attachment, Link};
use super::{Worker, log};

impl Worker {
    /// Swaps the tables; returns the retired state, for a thread that has time to free it.
    pub(super) fn swap(&mut self, swap: Swap) -> Retired {
        let now = self.clock.now();
        let Swap { tables, plan, steering } = swap;
        self.tell_left_out_at_once();
        let applied = self.shard.apply(plan, &tables, now, &mut self.ended);
        if applied.is_err() {
            self.tell(WorkerEvent::Panicked {
                worker: self.number,
                message: "tables out of turn".to_owned(),
            });
            return Retired { _tables: tables, _applied: None };
        }
        // What has ended by it is known to the tables of before.
        self.send_records();
        let old = std::mem::replace(&mut self.tables, tables);
        self.follow_log();
        if let Some(steering) = steering {
            self.shard.join(Member { steering, worker: self.setup.share.worker() });
        }
        let mut links = std::mem::take(&mut self.links);
        self.links = self
            .tables
            .interfaces
            .iter()
            .map(|interface| {
                let place = links.iter().position(|link| link.name == interface.name);
                place.map_or_else(|| Link::new(&interface.name), |place| links.swap_remove(place))
            })
            .collect();
        carry(&mut self.links, &self.tables);
        for link in &mut links {
            link.attach(Attachment::default(), &mut self.pool);
        }
        self.settle();
        self.tended = Nanos(0);
        Retired { _tables: old, _applied: applied.ok() }
    }

    /// Applies a neighbour update.
    pub(super) fn update_neighbour(&mut self, known: &Known) {
        let Some(interface) = self.tables.interface_named(&known.interface) else { return };
        let (tables, address) = (&self.tables, known.address);
        match known.found {
            // One more than there is room for stays unknown: packets to it are answered so.
            Found::At(mac) => {
                let _ = self.shard.update_neighbour(tables, interface, address, mac);
            }
            Found::Forgotten => self.shard.remove_neighbour(tables, interface, address),
            Found::Nowhere => self.shard.neighbour_unreachable(tables, interface, address),
        }
        // What has waited goes on at once.
        self.tended = Nanos(0);
    }

    /// Announces addresses of the gateway on the link of an interface, as long as the pool has frames.
    pub(super) fn announce(&mut self, interface: &str, addresses: &[Address]) {
        let found = self.tables.interface_named(interface).and_then(|id| self.tables.interface(id));
        let Some(interface) = found else { return };
        let root = usize::from(interface.root.0);
        for address in addresses {
            let Some(mut frame) = self.pool.take() else { return };
            if frame.fill(&announcement(*address, interface.mac)) {
                self.links[root].send_as_is(frame, &interface.tags, &mut self.pool);
            } else {
                self.pool.put(frame);
            }
        }
    }

    /// Restarts with an empty shard; the ports stay.
    pub(super) fn begin_anew(&mut self) -> Result<(), ShardError> {
        self.setup.now = self.clock.now();
        while let Some(frame) = self.batch.pop() {
            self.pool.put(frame);
        }
        self.ended.drain(..).for_each(drop);
        let (member, clients) = (self.shard.flows.member().cloned(), self.shard.clients.clone());
        self.shard = Shard::new(&self.tables, self.setup)?;
        self.shard.clients = clients;
        if self.log.is_some() {
            self.shard.log.keep(log::ROOM, &self.tables);
        }
        if let Some(member) = member {
            self.shard.join(member);
        }
        self.pipeline = Pipeline::default();
        Ok(())
    }
}

/// Updates the VLANs of each port.
pub(super) fn carry(links: &mut [Link], tables: &Tables) {
    for (place, link) in links.iter_mut().enumerate() {
        link.carry(tables, place);
    }
}
