//! The workers, as the session sees them: changes are asked of them, and the peer's given to their owners.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use dataplane::flow::{FlowId, SteeringTable};
use dataplane::import::Refused;
use dataplane::port_mapping::{NotTaken, PortMappingRemoval, PortMappingUpdate};
use dataplane::sa::Fingerprint;
use dataplane::set::{SetOutcome, TakenElements};
use dataplane::state::{ElementRecord, FlowRecord, Item, Names, Places, RemovalRecord};
use dataplane::sync::{CopySweep, EndedFlow, Synced, Taken};
use dataplane::tables::{Address, Tables};
use tokio::sync::oneshot;
use wire::esp::Direction;

use super::session::SessionError;
use super::status::Account;
use crate::peer::PeerLink;
use crate::worker::{
    AskedMappings, Changed, Command, CommandSender, PortMappingsChanged, Reply, SetsChanged, TookIn,
    TookInPortMappings, TookInSets, owner_of,
};

/// Flows that a worker takes in, or gives, between two turns: well under a millisecond's work.
pub(super) const AT_ONCE: usize = 256;

/// Places of the flow table that a worker visits between two turns.
const PLACES_AT_ONCE: u32 = 1024;

/// Elements of dynamic sets that a worker gives between two turns, or places that it visits for them.
pub(super) const ELEMENTS_AT_ONCE: usize = 2048;

/// Port mappings that a worker takes in, or gives, between two turns: each is compared with all that are there.
pub(super) const PORT_MAPPINGS_AT_ONCE: usize = 32;

/// Workers' ends, and the tables that they work by.
pub(super) struct Shards {
    workers: Vec<CommandSender>,
    pub(super) steering: Option<Arc<SteeringTable>>,
    tables: Arc<Tables>,
}

/// Flows that the peer has told of, on their way to the workers.
pub(super) struct Intake<'a> {
    shards: &'a Shards,
    tables: Arc<Tables>,
    names: Names,
    places: Places,
}

/// Port mappings of the peer's that are not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// Some were refused.
    Some,
    /// None.
    None,
}

impl Shards {
    pub(super) fn new(
        workers: Vec<CommandSender>,
        steering: Option<Arc<SteeringTable>>,
        tables: Arc<Tables>,
    ) -> Shards {
        Shards { workers, steering, tables }
    }

    /// Number of workers.
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    async fn ask<T>(
        &self,
        worker: usize,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        let sender = self.workers.get(worker).ok_or(SessionError::Ending)?;
        sender.send(command(reply));
        answer.await.map_err(|_| SessionError::Ending)
    }

    /// Has all workers hand frames over by another link. The one before is not used any more then.
    pub(super) async fn follow_peer(&self, link: &PeerLink) -> Result<(), SessionError> {
        for worker in 0..self.len() {
            self.ask(worker, |reply| Command::Peer { link: Some(link.clone()), reply }).await?;
        }
        Ok(())
    }

    /// Takes changes of a worker; `into` is memory for them.
    pub(super) async fn changes(&self, worker: usize, into: Taken) -> Result<Changed, SessionError> {
        self.ask(worker, |reply| Command::Changes { all: None, most: AT_ONCE as u32, into, reply }).await
    }

    /// Takes all flows of a worker, from a place on.
    pub(super) async fn all(
        &self,
        worker: usize,
        first: FlowId,
        into: Taken,
    ) -> Result<Changed, SessionError> {
        self.ask(worker, |reply| Command::Changes { all: Some(first), most: AT_ONCE as u32, into, reply })
            .await
    }

    /// Takes the copies for this gateway's own, as the peer has begun anew, without them.
    pub(super) async fn adopt(&self) -> Result<(), SessionError> {
        self.sweep(CopySweep::Adopt).await?;
        self.sweep_elements(CopySweep::Adopt).await?;
        self.sweep_port_mappings(CopySweep::Adopt).await
    }

    /// Sweeps the copies of all workers.
    pub(super) async fn sweep(&self, sweep: CopySweep) -> Result<(), SessionError> {
        for worker in 0..self.len() {
            let mut next = Some(FlowId(0));
            while let Some(first) = next {
                let most = PLACES_AT_ONCE;
                next = self.ask(worker, |reply| Command::SweepCopies { sweep, first, most, reply }).await?;
            }
        }
        Ok(())
    }

    /// Takes changes of dynamic sets; the first worker knows them all.
    pub(super) async fn set_changes(&self) -> Result<SetsChanged, SessionError> {
        self.ask_sets(None).await
    }

    /// Takes all elements of dynamic sets, from a place on.
    pub(super) async fn all_elements(&self, first: u32) -> Result<SetsChanged, SessionError> {
        self.ask_sets(Some(first)).await
    }

    async fn ask_sets(&self, all: Option<u32>) -> Result<SetsChanged, SessionError> {
        let (most, into) = (ELEMENTS_AT_ONCE as u32, TakenElements::default());
        self.ask(0, |reply| Command::SetChanges { all, most, into, reply }).await
    }

    /// Sweeps the copies of the peer's elements: the first worker's, and from the others what goes there.
    pub(super) async fn sweep_elements(&self, sweep: CopySweep) -> Result<(), SessionError> {
        let mut next = Some(0);
        while let Some(first) = next {
            let most = ELEMENTS_AT_ONCE as u32;
            let swept = self.ask(0, |reply| Command::SweepSetCopies { sweep, first, most, reply }).await?;
            next = swept.swept.next;
            let removed: Arc<[RemovalRecord]> = swept.swept.removed.into();
            for worker in (1..self.len()).filter(|_| !removed.is_empty()) {
                self.remove_as_first(worker, &swept.tables, &removed).await?;
            }
        }
        Ok(())
    }

    /// Removes elements from a worker's sets as the first worker has from its own.
    async fn remove_as_first(
        &self,
        worker: usize,
        tables: &Arc<Tables>,
        removed: &Arc<[RemovalRecord]>,
    ) -> Result<(), SessionError> {
        let (mut tables, mut removed) = (tables.clone(), removed.clone());
        loop {
            let command = |reply| Command::TakeInSets {
                tables: tables.clone(),
                removed: removed.clone(),
                elements: Arc::default(),
                round: 0,
                reply,
            };
            let TookInSets::Outdated(newer) = self.ask(worker, command).await? else { return Ok(()) };
            let places = Names::of(&tables).places_in(&newer);
            removed = removed.iter().map(|removal| moved(&places, removal)).collect();
            tables = newer;
        }
    }

    /// Takes changes of a worker's port mappings.
    pub(super) async fn port_mapping_changes(
        &self,
        worker: usize,
        asked: AskedMappings,
    ) -> Result<PortMappingsChanged, SessionError> {
        let most = PORT_MAPPINGS_AT_ONCE as u32;
        self.ask(worker, |reply| Command::PortMappingChanges { asked, most, reply }).await
    }

    /// Sweeps the copies of the peer's port mappings at all workers.
    pub(super) async fn sweep_port_mappings(&self, sweep: CopySweep) -> Result<(), SessionError> {
        let most = PORT_MAPPINGS_AT_ONCE as u32;
        for worker in 0..self.len() {
            let command = |reply| Command::SweepPortMappingCopies { sweep, most, reply };
            while self.ask(worker, command).await? == most {}
        }
        Ok(())
    }

    /// The worker that has the port mappings of a host.
    fn owner_of_host(&self, host: IpAddr) -> usize {
        let host = Address::from(host).bits;
        self.steering.as_ref().map_or(0, |steering| usize::from(steering.home_of_source(host)))
    }

    /// Begins to take in what a peer tells; it has to say its names first.
    pub(super) fn intake(&self) -> Intake<'_> {
        let places = Names::default().places_in(&self.tables);
        Intake { shards: self, tables: self.tables.clone(), names: Names::default(), places }
    }

    /// The worker whose flow it was.
    fn owner_of_ended(&self, ended: &EndedFlow, tables: &Tables) -> usize {
        if ended.port != 0 {
            // The outside end: of a source translation where answers go to, else where the first packet went.
            let ends = [ended.reply.destination, ended.original.destination];
            let outside = ends.into_iter().find(|address| tables.nat.is_outside((*address).into()));
            let outside = outside.unwrap_or(ends[0]);
            return usize::from(tables.nat.owner_of_port(outside, ended.port, self.len() as u16));
        }
        self.owner_of_host(ended.original.source)
    }
}

impl Intake<'_> {
    /// Takes the names that items refer to from here on.
    pub(super) fn name(&mut self, names: Names) {
        self.places = names.places_in(&self.tables);
        self.names = names;
    }

    /// Number of the peer's keys under which this gateway sends, or has sent, too.
    pub(super) fn shared_keys(&self, keys: &[[u8; Fingerprint::LEN]]) -> usize {
        let own = self.tables.tunnels.sequences().all().into_iter();
        let own = own.filter(|known| known.direction == Direction::Out);
        let own: HashSet<_> = own.map(|known| known.fingerprint.to_bytes()).collect();
        keys.iter().filter(|key| own.contains(*key)).count()
    }

    /// Gives flows to their owners.
    pub(super) async fn take_in(
        &mut self,
        items: &[Item],
        round: u8,
        account: &Account,
    ) -> Result<(), SessionError> {
        let (workers, steering) = (self.shards.len(), self.shards.steering.clone());
        for worker in 0..workers {
            let tables = self.tables.clone();
            let is_own = |item: &&Item| owner_of(item, &tables, workers, steering.as_deref()) == Some(worker);
            let own = items.iter().filter(is_own);
            let own: Vec<&FlowRecord> = own.filter_map(flow).collect();
            for some in own.chunks(AT_ONCE) {
                let (outcomes, _) = self.offer(worker, some, &[], round).await?;
                account.received(&outcomes, 0);
            }
        }
        Ok(())
    }

    /// Tells the owners of flows that have ended.
    pub(super) async fn end(&mut self, ended: &[EndedFlow], account: &Account) -> Result<(), SessionError> {
        for worker in 0..self.shards.len() {
            let own = ended.iter().filter(|ended| self.shards.owner_of_ended(ended, &self.tables) == worker);
            let own: Vec<EndedFlow> = own.copied().collect();
            for some in own.chunks(AT_ONCE) {
                let (_, ended) = self.offer(worker, &[], some, 0).await?;
                account.received(&[], ended);
            }
        }
        Ok(())
    }

    /// Gives elements of dynamic sets to all workers.
    pub(super) async fn take_in_elements(
        &mut self,
        elements: &[ElementRecord],
        round: u8,
        account: &Account,
    ) -> Result<(), SessionError> {
        for worker in 0..self.shards.len() {
            let (outcomes, _) = self.offer_sets(worker, &[], elements, round).await?;
            if worker == 0 {
                let named = |element: &ElementRecord| {
                    self.names.sets.get(usize::from(element.set?)).map(String::as_str)
                };
                account.received_elements(elements.iter().map(named).zip(outcomes));
            }
        }
        Ok(())
    }

    /// Removes elements of dynamic sets from all workers'.
    pub(super) async fn remove_elements(
        &mut self,
        removed: &[RemovalRecord],
        account: &Account,
    ) -> Result<(), SessionError> {
        for worker in 0..self.shards.len() {
            let (_, gone) = self.offer_sets(worker, removed, &[], 0).await?;
            if worker == 0 {
                account.removed_elements(gone);
            }
        }
        Ok(())
    }

    /// Gives port mappings to their owners.
    pub(super) async fn take_in_port_mappings(
        &mut self,
        updates: &[PortMappingUpdate],
        round: u8,
        account: &Account,
    ) -> Result<Lacking, SessionError> {
        let mut lacking = Lacking::None;
        for worker in 0..self.shards.len() {
            let is_own = |update: &&PortMappingUpdate| {
                self.shards.owner_of_host(update.record.mapping.inside.ip()) == worker
            };
            let own: Vec<PortMappingUpdate> = updates.iter().filter(is_own).copied().collect();
            for some in own.chunks(PORT_MAPPINGS_AT_ONCE) {
                let (outcomes, _) = self.offer_port_mappings(worker, &[], some, round).await?;
                if outcomes.iter().any(Result::is_err) {
                    lacking = Lacking::Some;
                }
                let named = |update: &PortMappingUpdate| {
                    let nat = usize::from(update.record.mapping.nat?);
                    self.names.sources.get(nat).map(String::as_str)
                };
                account.received_port_mappings(some.iter().map(named).zip(outcomes));
            }
        }
        Ok(lacking)
    }

    /// Ends port mappings that have ended there.
    pub(super) async fn unmap(
        &mut self,
        removed: &[PortMappingRemoval],
        account: &Account,
    ) -> Result<(), SessionError> {
        for worker in 0..self.shards.len() {
            let own = removed.iter().filter(|own| self.shards.owner_of_host(own.inside.ip()) == worker);
            let own: Vec<PortMappingRemoval> = own.copied().collect();
            for some in own.chunks(PORT_MAPPINGS_AT_ONCE) {
                let (_, ended) = self.offer_port_mappings(worker, some, &[], 0).await?;
                account.unmapped(ended);
            }
        }
        Ok(())
    }

    /// Offers port mappings to a worker; again, if it has other tables by now. Returns the outcomes, and the number of mappings ended.
    async fn offer_port_mappings(
        &mut self,
        worker: usize,
        removed: &[PortMappingRemoval],
        updates: &[PortMappingUpdate],
        round: u8,
    ) -> Result<(Vec<Result<Synced, NotTaken>>, u64), SessionError> {
        loop {
            let there =
                |update: &PortMappingUpdate| match self.places.moved(&Item::PortMapping(update.record)) {
                    Item::PortMapping(record) => Some(PortMappingUpdate { record, ..*update }),
                    _ => None,
                };
            let command = |reply| Command::TakeInPortMappings {
                tables: self.tables.clone(),
                removed: removed.to_vec(),
                mappings: updates.iter().filter_map(there).collect(),
                round,
                reply,
            };
            match self.shards.ask(worker, command).await? {
                TookInPortMappings::Done { outcomes, ended } => return Ok((outcomes, ended)),
                TookInPortMappings::Outdated(tables) => self.move_to(tables),
            }
        }
    }

    /// Offers elements to a worker; again, if it has other tables by now. Returns the outcomes, and the number of removals.
    async fn offer_sets(
        &mut self,
        worker: usize,
        removed: &[RemovalRecord],
        elements: &[ElementRecord],
        round: u8,
    ) -> Result<(Vec<Result<SetOutcome, Refused>>, u64), SessionError> {
        loop {
            let there = |element: &ElementRecord| ElementRecord {
                set: self.places.moved_set(element.set),
                ..*element
            };
            let command = |reply| Command::TakeInSets {
                tables: self.tables.clone(),
                removed: removed.iter().map(|removal| moved(&self.places, removal)).collect(),
                elements: elements.iter().map(there).collect(),
                round,
                reply,
            };
            match self.shards.ask(worker, command).await? {
                TookInSets::Done { outcomes, removed } => return Ok((outcomes, removed)),
                TookInSets::Outdated(tables) => self.move_to(tables),
            }
        }
    }

    /// Goes over to tables that a worker has by now.
    fn move_to(&mut self, tables: Arc<Tables>) {
        self.places = self.names.places_in(&tables);
        self.tables = tables;
    }

    /// Offers flows to a worker; again, if it has other tables by now. Returns the outcomes, and the number of flows ended.
    async fn offer(
        &mut self,
        worker: usize,
        flows: &[&FlowRecord],
        ended: &[EndedFlow],
        round: u8,
    ) -> Result<(Vec<Result<Synced, Refused>>, u64), SessionError> {
        loop {
            let moved = flows.iter().map(|flow| self.places.moved(&Item::Flow(**flow)));
            let moved: Vec<FlowRecord> = moved.filter_map(|item| flow(&item).copied()).collect();
            let (tables, ended) = (self.tables.clone(), ended.to_vec());
            let command = |reply| Command::TakeIn { tables, flows: moved, ended, round, reply };
            match self.shards.ask(worker, command).await? {
                TookIn::Done { outcomes, ended } => return Ok((outcomes, ended)),
                TookIn::Outdated(tables) => self.move_to(tables),
            }
        }
    }
}

/// The same removal for other tables.
fn moved(places: &Places, removal: &RemovalRecord) -> RemovalRecord {
    RemovalRecord { set: places.moved_set(removal.set), ..*removal }
}

fn flow(item: &Item) -> Option<&FlowRecord> {
    match item {
        Item::Flow(flow) => Some(flow),
        _ => None,
    }
}
