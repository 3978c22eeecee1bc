//! Workers, as the supervisor controls them: start, commands, table swaps, reports and end.
//!
//! Commands are sent without waiting, except for table swaps, the detaching of a port, changes of security associations, and reports. For these
//! the supervisor waits [`PATIENCE`] at most, so that a stuck worker does not keep the supervisor from its other events.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::client::Clients;
use dataplane::fast_path::Pause;
use dataplane::flow::{SteeringError, SteeringTable, owner_of_sa};
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::reload::{PlanError, ReloadPlan};
use dataplane::sa::{SaAddition, SaChange, SaId, SaRefused};
use dataplane::set::SetChange;
use dataplane::shard::Setup;
use dataplane::tables::{Address, MulticastRoutes, Neighbour};
use ports::FastPath;
use tracing::{error, warn};
use wire::esp::Direction;
use wire::{Nanos, Pool, PoolMemory};

use super::memory;
use super::pool::{BIG_SLOTS, slot_bytes, slots};
use super::start_error::{StartError, system};
use crate::clock::Clock;
use crate::event::Event;
use crate::ipfix::Exporter;
use crate::log;
use crate::request::SetTrouble;
use crate::set::{AT_ONCE, SetChanged};
use crate::worker::handoff::Exchange;
use crate::worker::{
    Attachment, Command, CommandSender, Known, Memory, Parts, Reply, Report, Shared, Swap, WakeUp, Worker,
    command_channel,
};

/// Time limit for a worker to carry out a command, before the worker counts as stuck: 2 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time limit for the workers to drain their ports, 100 ms: a daemon waits for it. A worker that shares its core with others is some milliseconds late.
const DRAIN_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 20_000 } else { 100 });

/// All workers, in the order of their numbers.
pub(super) struct Workers {
    handles: Vec<WorkerHandle>,
    /// Flow steering table; none with a single worker.
    steering: Option<Arc<SteeringTable>>,
    clock: Clock,
    /// Fast path, which the workers share; none where the kernel carries no flows.
    fast_path: Option<Arc<FastPath>>,
    /// Number of worker panics, each followed by a restart of the worker.
    panics: u64,
}

/// Supervisor's handle of a worker.
struct WorkerHandle {
    commands: CommandSender,
    memory: PoolMemory,
    setup: Setup,
    thread: JoinHandle<Memory>,
}

/// Start parameters of all workers.
pub(super) struct Start<'a> {
    /// Number of workers, 1 at least.
    pub(super) count: usize,
    /// Tables to start with.
    pub(super) tables: &'a Arc<Tables>,
    /// State file to restore flows from; none are restored where absent.
    pub(super) state: Option<&'a Path>,
    /// Writer of their log records.
    pub(super) log: &'a log::Writer,
    /// Exporter of their flow records and NAT events.
    pub(super) ipfix: &'a Exporter,
    /// Clock of the gateway.
    pub(super) clock: Clock,
    /// Event channel to the supervisor.
    pub(super) events: &'a Sender<Event>,
    /// Fast path; none where the kernel carries no flows.
    pub(super) fast_path: Option<&'a Arc<FastPath>>,
}

impl Workers {
    /// Spawns the workers, without ports.
    ///
    /// # Errors
    /// The system refuses memory, a thread or a file descriptor.
    pub(super) fn spawn(start: &Start<'_>) -> Result<Workers, StartError> {
        let Start { count, tables, state, log, ipfix, clock, events, fast_path } = *start;
        let seed = seed();
        let channels: Vec<_> = (0..count)
            .map(|_| command_channel().map_err(|error| system("make a file descriptor for a worker", error)))
            .collect::<Result<_, _>>()?;
        let wake_ups: Vec<WakeUp> = channels.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
        let steering = steering(count, tables).map_err(StartError::Steering)?;
        let mut workers = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(count);
        let clients = Arc::<Clients>::default();
        for ((number, (sender, commands)), exchange) in
            channels.into_iter().enumerate().zip(Exchange::between(&wake_ups))
        {
            let pool = Pool::new(slots(tables, count), slot_bytes(tables));
            let mut pool = pool.and_then(|pool| pool.with_big(BIG_SLOTS)).map_err(StartError::Pool)?;
            pool.prefault();
            let memory = pool.memory();
            let events = events.clone();
            let share = Share::new(number as u16, count as u16).unwrap_or(Share::WHOLE);
            let share = share.of_half(tables.pair.as_ref().map(|pair| pair.half));
            let setup = Setup { seed, now: clock.now(), resolve: Resolve::ByHost, share };
            let worker = Worker::new(Parts {
                number,
                tables: tables.clone(),
                setup,
                pool,
                clock,
                commands,
                events: Box::new(move |event| events.send(Event::Worker(event)).is_ok()),
                shared: steering.clone().map(|steering| Shared {
                    steering,
                    clients: clients.clone(),
                    exchange,
                }),
                log: Some(log.feed()),
                export: Some(ipfix.feed()),
                fast_path: fast_path.cloned(),
            })
            .map_err(StartError::Shard)?;
            workers.push(worker);
            ends.push((sender, memory, setup));
        }
        if let Some(path) = state {
            memory::recall(path, tables, &mut workers, steering.as_deref());
        }
        let mut handles = Vec::with_capacity(count);
        for (worker, (commands, memory, setup)) in workers.into_iter().zip(ends) {
            let thread = thread::Builder::new()
                .name(format!("worker {}", handles.len()))
                .spawn(move || worker.work())
                .map_err(|error| system("start a worker", error))?;
            handles.push(WorkerHandle { commands, memory, setup, thread });
        }
        Ok(Workers { handles, steering, clock, fast_path: fast_path.cloned(), panics: 0 })
    }

    /// The fast path, if there is one.
    pub(super) fn fast_path(&self) -> Option<Arc<FastPath>> {
        self.fast_path.clone()
    }

    /// The frame pools, for drivers that share memory with the kernel.
    pub(super) fn memories(&self) -> Vec<PoolMemory> {
        self.handles.iter().map(|handle| handle.memory.clone()).collect()
    }

    /// The command channels.
    pub(super) fn commands(&self) -> Vec<CommandSender> {
        self.handles.iter().map(|handle| handle.commands.clone()).collect()
    }

    /// Returns the flow steering table; none with a single worker.
    pub(super) fn steering(&self) -> Option<Arc<SteeringTable>> {
        self.steering.clone()
    }

    /// Returns the number of worker panics, each followed by a restart of the worker.
    pub(super) fn panics(&self) -> u64 {
        self.panics
    }

    /// Sends the change of a security association to the workers that have it: to the owner of one that packets come in by, to all of
    /// another. Returns the outcome at each that answers in time; what has retired is freed here.
    pub(super) fn send_sa(&self, id: &SaId, change: impl Fn() -> SaChange) -> Vec<Result<(), SaRefused>> {
        match id.direction {
            Direction::In => self.send_sa_to(self.handles.get(self.owner_of_sa(id.spi)).into_iter(), change),
            Direction::Out => self.send_sa_to_all(change),
        }
    }

    /// Drains the ports of all workers: what had arrived when this was called has been processed, or handed off to its owner. Where a worker takes
    /// longer than [`DRAIN_PATIENCE`], its ports may not be drained yet.
    pub(super) fn drain(&self) {
        let (done, drained) = channel();
        for handle in &self.handles {
            handle.commands.send(Command::Drain(done.clone()));
        }
        drop(done);
        // Nothing is ever sent.
        let _ = drained.recv_timeout(DRAIN_PATIENCE);
    }

    /// Sends the change of a security association to all workers.
    pub(super) fn send_sa_to_all(&self, change: impl Fn() -> SaChange) -> Vec<Result<(), SaRefused>> {
        self.send_sa_to(self.handles.iter(), change)
    }

    /// Gives a worker that has begun anew a security association that was added, if the worker is to have it.
    pub(super) fn restore_sa(&self, worker: usize, sa: &SaAddition) {
        let has = sa.id.direction == Direction::Out || self.owner_of_sa(sa.id.spi) == worker;
        if has {
            self.send_sa_to_one(worker, || sa.prepare());
        }
    }

    /// Sends the change of a security association to one worker.
    pub(super) fn send_sa_to_one(&self, worker: usize, change: impl Fn() -> SaChange) {
        self.send_sa_to(self.handles.get(worker).into_iter(), change);
    }

    /// Sends the change of a security association to all workers but one.
    pub(super) fn send_sa_to_others(&self, worker: usize, change: impl Fn() -> SaChange) {
        let others = self.handles.iter().zip(0..).filter(|(_, number)| *number != worker);
        self.send_sa_to(others.map(|(handle, _)| handle), change);
    }

    fn owner_of_sa(&self, spi: u32) -> usize {
        usize::from(owner_of_sa(spi, self.handles.len() as u16))
    }

    fn send_sa_to<'a>(
        &self,
        handles: impl Iterator<Item = &'a WorkerHandle>,
        change: impl Fn() -> SaChange,
    ) -> Vec<Result<(), SaRefused>> {
        let (done, answers) = channel();
        for handle in handles {
            handle.commands.send(Command::Sa { change: change(), done: done.clone() });
        }
        drop(done);
        let until = Instant::now() + PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        std::iter::from_fn(|| answers.recv_timeout(left()).ok()).map(|outcome| outcome.map(drop)).collect()
    }

    /// Has all workers make changes of dynamic sets, in groups between which packets have their turn.
    pub(super) fn change_sets(&self, changes: &[SetChange]) {
        for group in changes.chunks(AT_ONCE).map(Arc::<[SetChange]>::from) {
            for handle in &self.handles {
                handle.commands.send(Command::ChangeSets { changes: group.clone(), reply: None });
            }
        }
    }

    /// Has all workers make changes of dynamic sets at once; the reply comes from the first of them.
    pub(super) fn change_sets_and_reply(
        &self,
        changes: Arc<[SetChange]>,
        reply: Reply<Result<SetChanged, SetTrouble>>,
    ) {
        let mut reply = Some(reply);
        for handle in &self.handles {
            let (changes, reply) = (changes.clone(), reply.take());
            handle.commands.send(Command::ChangeSets { changes, reply });
        }
    }

    /// Has all workers but one make changes of dynamic sets.
    pub(super) fn change_sets_of_others(&self, worker: usize, changes: &[SetChange]) {
        let changes: Arc<[SetChange]> = changes.into();
        for (handle, _) in self.handles.iter().zip(0..).filter(|(_, number)| *number != worker) {
            handle.commands.send(Command::ChangeSets { changes: changes.clone(), reply: None });
        }
    }

    /// Has another worker give one that has begun anew its elements of dynamic sets. Returns `false` if there is no other worker.
    pub(super) fn copy_sets(&self, worker: usize) -> bool {
        let other = self.handles.iter().zip(0..).find(|(_, number)| *number != worker);
        other
            .zip(self.handles.get(worker))
            .is_some_and(|((other, _), begun)| other.commands.send(Command::CopySets(begun.commands.clone())))
    }

    /// Time of the gateway's clock.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Sends all workers a neighbour update.
    pub(super) fn update_neighbour(&self, known: &Known) {
        for handle in &self.handles {
            handle.commands.send(Command::Neighbour(known.clone()));
        }
    }

    /// Gives multicast routes for the tables of an epoch to all workers, and waits until they have them.
    pub(super) fn route_multicast(&self, routes: &Arc<MulticastRoutes>, epoch: u16) {
        let (done, acknowledged) = channel();
        for handle in &self.handles {
            let (routes, done) = (routes.clone(), done.clone());
            handle.commands.send(Command::Multicast { routes, epoch, done });
        }
        drop(done);
        let until = Instant::now() + PATIENCE;
        for _ in &self.handles {
            if acknowledged.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                error!("a worker has not acknowledged multicast routes in time");
            }
        }
    }

    /// Counts the panic of a worker, and sends the worker all neighbours, which it has lost.
    pub(super) fn panicked(&mut self, worker: usize, known: Arc<[Known]>) {
        self.panics += 1;
        if let Some(handle) = self.handles.get(worker) {
            handle.commands.send(Command::Neighbours(known));
        }
    }

    /// Has one worker announce addresses on the link of an interface, since the link needs them once.
    pub(super) fn announce(&self, interface: &str, addresses: Vec<Address>) {
        if let Some(handle) = self.handles.first() {
            handle.commands.send(Command::Announce { interface: interface.to_owned(), addresses });
        }
    }

    /// Pauses the publication of established flows by all workers, or goes on with it.
    pub(super) fn pause_publication(&self, pause: Pause) {
        for handle in self.handles.iter().filter(|_| self.fast_path.is_some()) {
            handle.commands.send(Command::PausePublication(pause));
        }
    }

    /// Attaches a port to all workers.
    pub(super) fn attach(&self, interface: &str, ends: Vec<Attachment>) {
        for (handle, ends) in self.handles.iter().zip(ends) {
            handle.commands.send(Command::Attach { interface: interface.to_owned(), ends, done: None });
        }
    }

    /// Detaches a port from all workers, and waits until they have released it: only then can its devices be created again.
    pub(super) fn detach(&self, interface: &str) {
        let (done, closed) = channel();
        for handle in &self.handles {
            let (interface, ends, done) = (interface.to_owned(), Attachment::default(), Some(done.clone()));
            handle.commands.send(Command::Attach { interface, ends, done });
        }
        drop(done);
        // Nothing is ever sent.
        if closed.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            warn!(interface, "a worker has not released the port in time");
        }
    }

    /// Swaps the tables of all workers, and waits for their acknowledgements. If the memory for one of them is not
    /// available, none of them swaps.
    ///
    /// # Errors
    /// No memory for the state of a worker.
    pub(super) fn swap(
        &mut self,
        old: &Tables,
        tables: &Arc<Tables>,
        known: &[Neighbour],
    ) -> Result<(), PlanError> {
        let mut plans = Vec::with_capacity(self.handles.len());
        for handle in &self.handles {
            let setup = Setup { now: self.clock.now(), ..handle.setup };
            let mut plan = ReloadPlan::prepare(old, tables, setup)?;
            if plan.update_neighbours(tables, known).is_err() {
                warn!("neighbour table full; further neighbours stay unresolved");
            }
            plans.push(plan);
        }
        let larger = self.larger_steering(tables);
        let (done, acknowledged) = channel();
        for (handle, plan) in self.handles.iter().zip(plans) {
            let swap = Box::new(Swap { tables: tables.clone(), plan, steering: larger.clone() });
            handle.commands.send(Command::Swap { swap, done: done.clone() });
        }
        drop(done);
        let until = Instant::now() + PATIENCE;
        for _ in &self.handles {
            if acknowledged.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                error!("a worker has not acknowledged the reload in time");
            }
        }
        Ok(())
    }

    /// Returns a larger flow steering table, if the tables have more flows than the present one was made for.
    fn larger_steering(&mut self, tables: &Tables) -> Option<Arc<SteeringTable>> {
        let present = self.steering.as_ref().filter(|present| present.flows() < tables.limits.flows)?;
        match steering(usize::from(present.workers()), tables) {
            Ok(larger) => {
                self.steering = larger.clone();
                larger
            }
            Err(error) => {
                // It was made with room to spare.
                warn!("{error}; the flow steering table stays as large as it is");
                None
            }
        }
    }

    /// Collects the reports of the workers that answer in time, in the order of their numbers.
    pub(super) fn reports(&self) -> Vec<Report> {
        let (to, answers) = channel();
        for handle in &self.handles {
            handle.commands.send(Command::Report(to.clone()));
        }
        drop(to);
        let until = Instant::now() + PATIENCE;
        let mut reports = Vec::with_capacity(self.handles.len());
        while let Ok(report) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            reports.push(report);
        }
        reports.sort_by_key(|report| report.worker);
        reports
    }

    /// True if every worker answers in time.
    pub(super) fn all_respond(&self) -> bool {
        self.reports().len() == self.handles.len()
    }

    /// Stops the workers. Returns the state of each.
    pub(super) fn stop(self) -> Vec<Memory> {
        for handle in &self.handles {
            handle.commands.send(Command::Stop);
        }
        let mut memories = Vec::with_capacity(self.handles.len());
        for handle in self.handles {
            match handle.thread.join() {
                Ok(memory) => memories.push(memory),
                Err(_) => error!("a worker panicked while stopping; its state is not saved"),
            }
        }
        memories
    }
}

/// Two seeds that nobody can guess: the standard library's maps are keyed by the system's randomness.
pub(super) fn seed() -> [u64; 2] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    [RandomState::new().build_hasher().finish(), RandomState::new().build_hasher().finish()]
}

/// Creates the flow steering table for `workers` workers; none for a single one.
fn steering(workers: usize, tables: &Tables) -> Result<Option<Arc<SteeringTable>>, SteeringError> {
    if workers < 2 {
        return Ok(None);
    }
    let workers = u16::try_from(workers).unwrap_or(u16::MAX);
    Ok(Some(Arc::new(SteeringTable::new(workers, tables.limits.flows)?)))
}

#[cfg(test)]
mod tests;
