//! The workers, as the session sees them: changes are asked of them, and the peer's given to their owners.

use std::sync::Arc;

use dataplane::flow::{FlowId, SteeringTable};
use dataplane::import::Refused;
use dataplane::nat::Share;
use dataplane::state::{FlowRecord, Item, Names, Places};
use dataplane::sync::{CopySweep, EndedFlow, Synced, Taken};
use dataplane::tables::{Address, Tables};
use tokio::sync::oneshot;

use super::session::SessionError;
use super::status::Account;
use crate::worker::{Changed, Command, CommandSender, Reply, TookIn, owner_of};

/// Flows that a worker takes in, or gives, between two turns: well under a millisecond's work.
pub(super) const AT_ONCE: usize = 256;

/// Places of the flow table that a worker visits between two turns.
const PLACES_AT_ONCE: u32 = 1024;

/// Workers' ends, and the tables that they work by.
pub(super) struct Shards {
    workers: Vec<CommandSender>,
    steering: Option<Arc<SteeringTable>>,
    tables: Arc<Tables>,
}

/// Flows that the peer has told of, on their way to the workers.
pub(super) struct Intake<'a> {
    shards: &'a Shards,
    tables: Arc<Tables>,
    names: Names,
    places: Places,
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

    /// Begins to take in what a peer tells; it has to say its names first.
    pub(super) fn intake(&self) -> Intake<'_> {
        let places = Names::default().places_in(&self.tables);
        Intake { shards: self, tables: self.tables.clone(), names: Names::default(), places }
    }

    /// The worker whose flow it was.
    fn owner_of_ended(&self, ended: &EndedFlow) -> usize {
        if ended.port != 0 {
            return usize::from(Share::owner(ended.port, self.len() as u16));
        }
        let source = Address::from(ended.original.source).bits;
        self.steering.as_ref().map_or(0, |steering| usize::from(steering.home_of_source(source)))
    }
}

impl Intake<'_> {
    /// Takes the names that items refer to from here on.
    pub(super) fn name(&mut self, names: Names) {
        self.places = names.places_in(&self.tables);
        self.names = names;
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
            let own =
                items.iter().filter(|item| owner_of(item, workers, steering.as_deref()) == Some(worker));
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
            let own = ended.iter().filter(|ended| self.shards.owner_of_ended(ended) == worker);
            let own: Vec<EndedFlow> = own.copied().collect();
            for some in own.chunks(AT_ONCE) {
                let (_, ended) = self.offer(worker, &[], some, 0).await?;
                account.received(&[], ended);
            }
        }
        Ok(())
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
                TookIn::Outdated(tables) => {
                    self.places = self.names.places_in(&tables);
                    self.tables = tables;
                }
            }
        }
    }
}

fn flow(item: &Item) -> Option<&FlowRecord> {
    match item {
        Item::Flow(flow) => Some(flow),
        _ => None,
    }
}
