//! A worker: one thread that takes frames from its queue of each port through the pipeline, and out again.
//!
//! A worker alone accesses its [`Shard`]; other threads send it a [`Command`], which it reads between two turns.
//! Guarantees: no lock, no system call except those of the ports, no allocation on the packet path; every frame that
//! a port received is sent, delivered to Linux, handed off to another worker, or counted as dropped. An idle worker sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use dataplane::Shard;
use dataplane::client::Clients;
use dataplane::flow::{FlowId, SteeringTable};
use dataplane::handoff::receiver;
use dataplane::hop::Wanted;
use dataplane::import::Refused;
use dataplane::peer::is_handed_over;
use dataplane::shard::{Setup, ShardError};
use dataplane::state::Item;
use dataplane::tables::Tables;
use ports::FastPath;
use wire::{BATCH, Frame, LinkKind, Nanos, Pool};

use crate::clock::Clock;
use crate::ipfix::RecordFeed;
use crate::log::Feed;

mod answer;
mod capture;
mod command;
mod core;
mod export;
mod fast_path;
pub(crate) mod handoff;
mod link;
mod log;
mod panic;
mod peer;
mod port_mapping;
mod processing;
mod report;
mod set;
mod sleep;
mod state;
#[cfg(test)]
mod tests;
mod timer;
mod update;

pub use command::{
    Command, CommandReceiver, CommandSender, Found, FoundFlows, FoundSubscribers, Known, Reply, Retired,
    Swap, WakeUp, WorkerEvent, command_channel,
};
pub use handoff::Exchange;
pub use link::Attachment;
pub use port_mapping::{AskedMappings, PortMappingsChanged, TookInPortMappings};
pub use report::{LinkCounts, LinkReport, Report};
pub use set::{SetsChanged, SetsSwept, TookInSets};
pub(crate) use state::owner_of;
pub use state::{Changed, Exported, Imported, Pending, TookIn};

use export::RecordExport;
use fast_path::{FastPorts, Kernel};
use link::{Device, Group, Links, Origin};
use log::LogFeed;
use panic::{Backoff, message_of};
use peer::PeerEnd;
use processing::Processing;
use report::Account;
use sleep::Sleep;
use timer::Timers;

/// State of one worker.
pub struct Worker {
    number: usize,
    clock: Clock,
    commands: CommandReceiver,
    events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    processing: Processing,
    links: Links,
    /// Handoff channels to and from other workers; none with a single worker.
    exchange: Option<Exchange>,
    /// Link to the second gateway, by which frames are handed over; none where nothing is.
    peer: Option<PeerEnd>,
    /// Replies to [`Command::Drain`], dropped once the ports are drained.
    drains: Vec<Sender<()>>,
    /// Destination of log records; none are sent where absent.
    log: Option<LogFeed>,
    /// Destination of flow records and NAT events; none are made where absent.
    export: Option<RecordExport>,
    /// Fast path, with the interfaces that it serves; none where the kernel carries no flows.
    fast_path: Option<(Arc<FastPath>, FastPorts)>,
    timers: Timers,
    account: Account,
    sleep: Sleep,
}

/// Maximum number of batches taken from other workers before the ports have their turn.
const MOST_BATCHES: u32 = 16;

/// Maximum number of batches of one port, cut from packets of many segments, before what they queue is sent.
const MOST_WAITING: usize = 4;

/// Continuation of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Continue,
    Stop,
}

/// Numbers of frames moved in a turn.
#[derive(Clone, Copy, Debug)]
struct Moved {
    /// Frames that came: from ports, Linux and other workers.
    received: usize,
    /// Frames sent.
    sent: usize,
}

impl Worker {
    /// Runs turns until the stop command.
    fn turns(&mut self) {
        while self.run_commands() == Then::Continue {
            let now = self.clock.now();
            let Moved { received, sent } = self.turn(now);
            self.ask_for_neighbours();
            self.tell_of_tunnels();
            self.tell_of_sessions();
            self.tell_of_sets();
            self.tell_of_port_mappings();
            let is_tending_due = self.timers.is_tending_due(now);
            if is_tending_due {
                self.tend(now);
            }
            self.account.turns += 1;
            if received + sent > 0 {
                self.account.busy += self.clock.now().since(now);
            }
            if received > 0 {
                self.sleep.worked(now);
            } else if !is_tending_due && self.sleep.is_due(now) {
                self.sleep(now);
            }
        }
    }

    /// Polls the handoff channels, every port, and the frames that Linux sends.
    fn turn(&mut self, now: Nanos) -> Moved {
        let mut received = self.take_handed_off(now);
        received += self.take_handed_over(now);
        for place in self.links.places() {
            received += self.take_received(place, now);
        }
        // Before a departure there is no time for system calls.
        let is_idle = received == 0 && !self.sleep.is_departure_near(now);
        if is_idle || self.timers.is_asking_due(now) {
            self.timers.asked(now);
            for place in self.links.places() {
                received += self.take_originated(place, now);
            }
        }
        let sent = self.send(now);
        if self.fast_path.is_some() {
            self.processing.publish();
            self.settle_fast_path();
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.wake();
        }
        if !self.drains.is_empty() && self.links.are_drained() {
            self.drains.clear();
        }
        Moved { received, sent }
    }

    /// Processes frames handed off by other workers. Returns their number.
    fn take_handed_off(&mut self, now: Nanos) -> usize {
        let mut found = 0;
        for _ in 0..MOST_BATCHES {
            let Some(exchange) = &mut self.exchange else { break };
            let more = self.processing.take_handed_off(exchange, now);
            found += more;
            if !self.processing.batch.is_empty() {
                self.processing.run_handed_off(now);
                self.settle();
            }
            if more < BATCH {
                break;
            }
        }
        found
    }

    /// Processes all frames that other workers have handed off so far.
    fn take_all_handed_off(&mut self) {
        let now = self.clock.now();
        let mut left = self.exchange.as_ref().map_or(0, Exchange::capacity);
        while left > 0 {
            let found = self.take_handed_off(now);
            // Before more is taken: a queue has no room for all.
            self.send(now);
            // Fewer than are taken at most: the channels were empty.
            left = if found < MOST_BATCHES as usize * BATCH { 0 } else { left.saturating_sub(found) };
        }
    }

    /// Processes frames received by a port. Returns their number.
    fn take_received(&mut self, place: usize, now: Nanos) -> usize {
        if self.links.has_waiting(place, Origin::Port) {
            return self.take_waiting(place, Origin::Port, now);
        }
        let Processing { batch, pool, .. } = &mut self.processing;
        let received = self.links.receive(place, batch, pool);
        if let Some((interface, error)) = self.links.failure(place) {
            self.tell(WorkerEvent::PortFailed { interface, error });
        }
        self.take_batch(place, Origin::Port, now);
        received
    }

    /// Processes frames that Linux sends by an interface. Returns their number.
    fn take_originated(&mut self, place: usize, now: Nanos) -> usize {
        if self.links.has_waiting(place, Origin::Linux) {
            return self.take_waiting(place, Origin::Linux, now);
        }
        let Processing { batch, pool, .. } = &mut self.processing;
        let received = self.links.receive_punted(place, batch, pool);
        self.take_batch(place, Origin::Linux, now);
        received
    }

    /// Processes a batch that came by an interface; packets of many segments in it one by one.
    #[inline(always)]
    fn take_batch(&mut self, place: usize, origin: Origin, now: Nanos) {
        if self.processing.batch.iter().any(Frame::is_big) {
            self.links.keep(place, origin, &mut self.processing.batch);
            self.take_waiting(place, origin, now);
        } else if !self.processing.batch.is_empty() {
            self.processing.run_from(place, origin, now, self.clock);
            self.settle();
        }
    }

    /// Processes frames that were received before, or among which are packets of many segments: whole, where the pipeline takes them so,
    /// else cut. Returns the number of batches, and one for what is left.
    #[cold]
    fn take_waiting(&mut self, place: usize, origin: Origin, now: Nanos) -> usize {
        let mut batches = 0;
        while batches < MOST_WAITING {
            let Processing { batch, pool, .. } = &mut self.processing;
            match self.links.next_waiting(place, origin, batch, pool) {
                Group::Frames => self.processing.run_from(place, origin, now, self.clock),
                Group::Whole(frame) => {
                    if let Err(frame) = self.processing.run_whole(frame, place, origin, now, self.clock) {
                        self.links.cut(place, origin, frame, &mut self.processing.pool);
                        continue;
                    }
                }
                Group::Nothing => break,
            }
            batches += 1;
            self.settle();
        }
        batches + usize::from(self.links.has_waiting(place, origin))
    }

    /// Hands ended frames off to their owners, delivers them to Linux, or returns them to the pool.
    fn settle(&mut self) {
        self.send_records();
        let Processing { ended, tables, shard, pool, .. } = &mut self.processing;
        for mut frame in ended.drain(..) {
            if let Some(worker) = receiver(&frame.meta) {
                let refused = match &mut self.exchange {
                    Some(exchange) => exchange.give(frame, worker, tables),
                    None => Err(frame),
                };
                let Err(back) = refused else { continue };
                frame = back;
                shard.count_not_carried(&mut frame);
            } else if is_handed_over(&frame.meta) {
                let sent = self.peer.as_ref().map(|peer| peer.link.send(&mut frame, tables));
                if !matches!(sent, Some(Ok(()))) {
                    shard.count_not_handed_over(&mut frame);
                }
            }
            self.links.deliver(frame, tables, pool);
        }
        self.hand_off();
    }

    /// Hands packets off to the workers that serve their queues. Returns the number of those that could not be handed off yet.
    #[inline(always)]
    fn hand_off(&mut self) -> usize {
        self.exchange.as_mut().map_or(0, |exchange| self.processing.hand_off(exchange))
    }

    /// Tells the fast path which frames received so far have been sent on, by this worker and by those that some were handed off to: the next packets
    /// of their flows may go by.
    #[inline(always)]
    fn settle_fast_path(&mut self) {
        if self.links.has_unsent() {
            return;
        }
        let Some(exchange) = &mut self.exchange else {
            self.links.mark();
            return self.links.settled();
        };
        exchange.sent_on();
        // What was handed off up to the last mark is sent on by now, or else waits still; so it goes with what is handed off until now.
        if exchange.is_underway() {
            return;
        }
        self.links.settled();
        self.links.mark();
        exchange.mark();
        if !exchange.is_underway() {
            self.links.settled();
        }
    }

    /// Offers each port opportunities to send. Returns the number of frames sent.
    fn send(&mut self, now: Nanos) -> usize {
        // What has become due since the turn began departs now, not behind another turn.
        let now = if self.sleep.has_departure() { self.clock.now() } else { now };
        let Processing { shard, pool, captures, tables, .. } = &mut self.processing;
        let offered = self.links.send(shard, now, pool, captures);
        if !captures.is_empty() {
            captures.finish_departed(tables);
        }
        // What has passed a tree here may have another worker's before it.
        let until = if self.hand_off() > 0 { Some(now) } else { offered.until };
        self.sleep.departs_at(until);
        if offered.device == Device::Full {
            self.sleep.retries();
            if offered.sent > 0 {
                self.sleep.worked(now);
            }
        }
        offered.sent
    }

    /// Runs timers, and processes frames that neighbour updates release.
    fn tend(&mut self, now: Nanos) {
        self.timers.tended(now);
        if self.fast_path.is_some() {
            self.processing.sweep_published(now);
        }
        if let Some(log) = &mut self.log {
            log.tell_left_out(&mut self.processing.shard.log, &self.processing.tables, now);
        }
        self.processing.tend(now);
        self.processing.shard.expire_port_mappings(now);
        self.processing.list_refreshes(now);
        if let Some(export) = &mut self.export {
            export.tend(&mut self.processing.shard, &self.processing.tables, now);
        }
        self.settle();
    }

    /// Sleeps, unless another worker has handed off frames meanwhile.
    fn sleep(&mut self, now: Nanos) {
        if let Some(exchange) = &mut self.exchange {
            // Frames released since the last turn may be others'.
            exchange.wake();
            exchange.falls_asleep();
        }
        if self.take_handed_off(now) == 0 {
            let peer = self.peer.as_ref().filter(|peer| peer.receives()).map(|peer| peer.link.fd());
            self.sleep.until_something(&self.links, peer, self.commands.wake_up(), self.clock);
        } else {
            // Before more is taken: a queue has no room for all.
            self.send(now);
            self.sleep.worked(now);
        }
        if let Some(exchange) = &self.exchange {
            exchange.is_awake();
        }
    }

    /// Reports neighbours that packets newly wait for.
    fn ask_for_neighbours(&mut self) {
        while let Some(Wanted { interface, address }) = self.processing.shard.hops.wanted() {
            // Nobody can be asked on a link without Ethernet.
            let asked = self.processing.tables.interface(interface);
            if let Some(interface) = asked.filter(|interface| interface.link == LinkKind::Ethernet) {
                self.tell(WorkerEvent::Wanted { interface: interface.name.clone(), address });
            }
        }
    }

    /// Reports news of tunnels.
    #[inline(always)]
    fn tell_of_tunnels(&mut self) {
        if self.processing.shard.sas.has_events() {
            let Processing { shard, tables, .. } = &mut self.processing;
            for event in shard.sas.take_events() {
                if let Some(tunnel) = tables.tunnels.list.get(usize::from(event.tunnel)) {
                    let (worker, interface) = (self.number, tables.number_of(tunnel.interface));
                    // Who would hear it is gone when the process ends.
                    let _ = (self.events)(WorkerEvent::Tunnel { worker, interface, event });
                }
            }
        }
    }

    /// Reports news of PPP sessions.
    #[inline(always)]
    fn tell_of_sessions(&mut self) {
        if self.processing.shard.sessions.has_news() {
            let Processing { shard, tables, .. } = &mut self.processing;
            let events = &self.events;
            shard.sessions.take_news(|interface, news| {
                if let Some(interface) = tables.interface(interface) {
                    // Who would hear it is gone when the process ends.
                    let _ = events(WorkerEvent::Session { interface: interface.name.clone(), news });
                }
            });
        }
    }

    /// Sends pending log records to the writer thread.
    #[inline(always)]
    fn send_records(&mut self) {
        let Processing { shard, tables, .. } = &mut self.processing;
        if shard.accounting.is_half_full() {
            if let Some(export) = &mut self.export {
                export.send(shard, tables);
            }
        }
        if shard.log.is_empty() {
            return;
        }
        if let Some(log) = &mut self.log {
            log.send(&mut shard.log, tables);
        }
    }

    /// Sends pending flow records and NAT events to the exporter.
    fn send_accounts(&mut self) {
        if let Some(export) = &mut self.export {
            export.send(&mut self.processing.shard, &self.processing.tables);
        }
    }

    fn tell(&self, event: WorkerEvent) {
        // Who would hear it is gone when the process ends.
        let _ = (self.events)(event);
    }
}

/// Parameters of a new worker.
pub struct Parts {
    /// Worker number, from 0.
    pub number: usize,
    /// Tables compiled from the policy.
    pub tables: Arc<Tables>,
    /// Seeds and the share of NAT ports.
    pub setup: Setup,
    /// Frame pool; known to lines that share memory with the kernel.
    pub pool: Pool,
    /// Clock of the gateway.
    pub clock: Clock,
    /// Receiving end of the command channel.
    pub commands: CommandReceiver,
    /// Callback for events; returns `false` once the receiver has gone.
    pub events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    /// State shared with other workers; none with a single worker.
    pub shared: Option<Shared>,
    /// Destination of log records; none are made where absent.
    pub log: Option<Feed>,
    /// Destination of flow records and NAT events; none are made where absent.
    pub export: Option<RecordFeed>,
    /// Fast path; none where the kernel carries no flows.
    pub fast_path: Option<Arc<FastPath>>,
}

/// State shared by workers.
pub struct Shared {
    /// Flow steering table: owners of flows.
    pub steering: Arc<SteeringTable>,
    /// DHCP clients on the gateway itself.
    pub clients: Arc<Clients>,
    /// Handoff channels of this worker to and from the others.
    pub exchange: Exchange,
}

/// State of a worker that has ended.
pub struct Memory {
    /// Tables of the worker at its end.
    pub tables: Arc<Tables>,
    /// Shard of the worker.
    pub shard: Shard,
    /// Time of the end.
    pub now: Nanos,
}

impl Worker {
    /// Creates a worker without ports.
    ///
    /// # Errors
    /// No memory for the shard.
    pub fn new(parts: Parts) -> Result<Worker, ShardError> {
        let Parts { number, tables, setup, pool, clock, commands, events, shared, log, export, fast_path } =
            parts;
        let workers = setup.share.workers().into();
        let links = Links::new(&tables);
        let log = log.map(|feed| LogFeed::new(feed, number, workers, clock, &tables));
        let export = export.map(|feed| RecordExport::new(feed, clock));
        let mut processing = Processing::new(tables, setup, pool)?;
        let exchange = shared.map(|Shared { steering, clients, exchange }| {
            processing.shard.clients = clients;
            processing.join(steering);
            exchange
        });
        let (timers, account, sleep) = (Timers::new(clock.now()), Account::default(), Sleep::new());
        let mut worker = Worker {
            number,
            clock,
            commands,
            events,
            processing,
            links,
            exchange,
            peer: None,
            drains: Vec::new(),
            log,
            export,
            fast_path: fast_path.map(|path| (path, FastPorts::new())),
            timers,
            account,
            sleep,
        };
        worker.keep_records()?;
        worker.publish_flows();
        Ok(worker)
    }

    /// Has the shard record drops, and keep log records, flow records and NAT events, if any are to be sent.
    fn keep_records(&mut self) -> Result<(), ShardError> {
        let Processing { shard, tables, .. } = &mut self.processing;
        shard.recorder.keep(tables);
        shard.keep_changes(tables).map_err(ShardError::Memory)?;
        if self.log.is_some() {
            self.processing.shard.log.keep(log::ROOM, &self.processing.tables);
        }
        if let Some(export) = &mut self.export {
            let Processing { shard, tables, .. } = &mut self.processing;
            shard.keep_accounts(tables).map_err(ShardError::Memory)?;
            export.begin(shard);
        }
        Ok(())
    }

    /// Imports an item of another worker's state, before the work begins.
    ///
    /// # Errors
    /// Item that cannot be imported here: [`Refused`].
    pub fn remember(&mut self, item: &Item) -> Result<(), Refused> {
        self.processing.remember(item, self.clock.now())
    }

    /// Runs until the stop command, and returns the state of the worker. A panic loses the shard, not the worker, which
    /// reports the panic and goes on with an empty shard.
    pub fn work(mut self) -> Memory {
        if self.exchange.is_some() && !core::keep_to(self.number) {
            self.tell(WorkerEvent::NotAlone { worker: self.number });
        }
        sleep::without_slack();
        let mut backoff = Backoff::default();
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turns())) {
            let event = WorkerEvent::Panicked { worker: self.number, message: message_of(&*panic) };
            if !(self.events)(event) || self.restart().is_err() {
                break;
            }
            thread::sleep(backoff.pause(self.clock.now()));
            backoff.resumed(self.clock.now());
        }
        self.memory()
    }

    /// Restarts with an empty shard; the ports stay.
    fn restart(&mut self) -> Result<(), ShardError> {
        let unreported = self.processing.shard.unreported(Some(FlowId(0)));
        self.processing.restart(self.clock.now())?;
        self.export.iter_mut().for_each(|export| export.restart(unreported));
        self.keep_records()?;
        self.publish_flows();
        Ok(())
    }

    /// Has the kernel carry established flows, where there is a fast path.
    fn publish_flows(&mut self) {
        if let Some((path, ports)) = &self.fast_path {
            let shard = &mut self.processing.shard;
            let most = shard.flows.capacity() as usize;
            let kernel = Kernel::new(path.clone(), ports.clone(), self.clock, most);
            shard.publish_by(Some(Box::new(kernel)));
            self.processing.pause_publication();
        }
    }

    /// Tells the fast path which interfaces it serves, in the order of the tables, after a change: flows are published anew.
    fn serve_fast_ports(&mut self) {
        if let Some((_, ports)) = &self.fast_path {
            let vlans = self.links.fast_vlans().map(|(lane, name)| (lane, name.to_owned()));
            ports.serve(self.links.fast(), vlans);
            self.processing.shard.fast_path.take_all_back();
        }
    }

    /// Releases the ports, and returns the state.
    fn memory(mut self) -> Memory {
        let Processing { mut shard, tables, .. } = self.processing;
        // With what the kernel has carried of them.
        shard.publish_by(None);
        if let Some(log) = &mut self.log {
            log.finish(&mut shard.log, &tables);
        }
        if let Some(export) = &mut self.export {
            export.finish(&mut shard, &tables);
        }
        Memory { tables, shard, now: self.clock.now() }
    }
}
