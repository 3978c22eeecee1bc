//! A worker: one thread that takes frames from its queue of each port through the pipeline, and out again.
//!
//! A worker alone accesses its [`Shard`]; other threads send it a [`Command`], which it reads between two turns.
//! Guarantees: no lock, no system call except those of the ports, no allocation on the packet path; every frame that
//! a port received is sent, delivered to Linux, handed off to another worker, or counted as dropped. An idle worker sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use dataplane::client::Clients;
use dataplane::flow::{Member, SteeringTable};
use dataplane::handoff::receiver;
use dataplane::hop::{Delivery, Wanted};
use dataplane::shard::{Setup, ShardError};
use dataplane::stage::Cx;
use dataplane::tables::{LOCAL, NO_NUMBER, OTHER, Tables, is_linux};
use dataplane::verdict::Verdict;
use dataplane::{Pipeline, Shard};
use tally::NoTally;
use wire::{BATCH, Batch, Frame, Nanos, Pool, PortId};

use crate::clock::Clock;
use crate::log::Feed;

mod capture;
mod command;
mod core;
pub(crate) mod handoff;
mod link;
mod log;
mod report;
mod sleep;
mod state;
#[cfg(test)]
mod tests;
mod update;

pub use command::{
    Command, CommandSender, Found, FoundFlows, Known, Reply, Retired, Swap, WakeUp, WorkerEvent,
    command_channel,
};
pub use link::{Attachment, LinkCounts, LinkReport};
pub use report::Report;
pub(crate) use state::owner_of;
pub use state::{Exported, Imported};

use capture::Captures;
use handoff::Exchange;
use link::Link;
use log::LogFeed;
use sleep::Sleep;
use update::carry;

/// Interval of timer work on flows and pending frames while no frames arrive: 20 ms.
const TEND: Nanos = Nanos::from_millis(20);

/// Maximum number of batches taken from other workers before the ports have their turn.
const MOST_BATCHES: u32 = 16;

/// Interval between reads of frames that Linux sends, while ports keep the worker busy: 50 µs. Each read is a system
/// call, and a turn under load takes about as long.
const ORIGINATED: Nanos = Nanos(50_000);

/// Bounds of the pause after a repeated panic, which doubles each time, so that a fault that comes with every packet takes
/// neither the core nor the log; no longer than others wait for an answer.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Time without a panic after which the pause is reset.
const CALM: Nanos = Nanos::from_secs(10);

/// State of one worker.
pub struct Worker {
    number: usize,
    tables: Arc<Tables>,
    setup: Setup,
    shard: Shard,
    pipeline: Pipeline,
    pool: Pool,
    /// Attachments and counters of each interface, in the order of the tables.
    links: Vec<Link>,
    batch: Batch,
    ended: Vec<Frame>,
    commands: Receiver<Command>,
    events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    captures: Captures,
    sleep: Sleep,
    /// Handoff channels to and from other workers; none with a single worker.
    exchange: Option<Exchange>,
    /// Destination of log records; none are sent where absent.
    log: Option<LogFeed>,
    clock: Clock,
    /// Latest time passed to the shard, whose time does not go backwards from one port to the next.
    latest: Nanos,
    tended: Nanos,
    /// Time of the last read of frames that Linux sends.
    asked: Nanos,
    /// Time spent on turns that found something to do.
    busy: Nanos,
    turns: u64,
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
    pub commands: Receiver<Command>,
    /// Wake-up of the worker.
    pub wake_up: WakeUp,
    /// Callback for events; returns `false` once the receiver has gone.
    pub events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    /// State shared with other workers; none with a single worker.
    pub shared: Option<Shared>,
    /// Destination of log records; none are made where absent.
    pub log: Option<Feed>,
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

/// Continuation of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Continue,
    Stop,
}

impl Worker {
    /// Creates a worker without ports.
    pub fn new(parts: Parts) -> Result<Worker, ShardError> {
        let Parts { number, tables, setup, pool, clock, commands, wake_up, events, shared, log } = parts;
        let mut shard = Shard::new(&tables, setup)?;
        if log.is_some() {
            shard.log.keep(log::ROOM, &tables);
        }
        let workers = setup.share.workers().into();
        let exchange = shared.map(|Shared { steering, clients, exchange }| {
            shard.clients = clients;
            shard.join(Member { steering, worker: setup.share.worker() });
            exchange
        });
        let mut links: Vec<Link> =
            tables.interfaces.iter().map(|interface| Link::new(&interface.name)).collect();
        carry(&mut links, &tables);
        Ok(Worker {
            number,
            log: log.map(|feed| LogFeed::new(feed, workers, &tables)),
            shard,
            links,
            tables,
            setup,
            pipeline: Pipeline::default(),
            ended: Vec::with_capacity(pool.capacity()),
            pool,
            batch: Batch::new(),
            commands,
            events,
            captures: Captures::default(),
            sleep: Sleep::new(wake_up),
            exchange,
            clock,
            latest: Clock::BEGIN,
            tended: clock.now(),
            asked: Nanos(0),
            busy: Nanos(0),
            turns: 0,
        })
    }

    /// Runs until the stop command, and returns the state of the worker. A panic loses the shard, not the worker, which
    /// reports the panic and goes on with an empty shard.
    pub fn work(mut self) -> Memory {
        if self.exchange.is_some() && !core::keep_to(self.number) {
            self.tell(WorkerEvent::NotAlone { worker: self.number });
        }
        let (mut failed, mut pause) = (None, Duration::ZERO);
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turns())) {
                Ok(()) => return self.memory(),
                Err(panic) => {
                    let event = WorkerEvent::Panicked { worker: self.number, message: message_of(&*panic) };
                    if !(self.events)(event) || self.begin_anew().is_err() {
                        return self.memory();
                    }
                    let again = failed.is_some_and(|before| self.clock.now().since(before) < CALM);
                    pause = if again { (2 * pause).clamp(PAUSE[0], PAUSE[1]) } else { Duration::ZERO };
                    thread::sleep(pause);
                    failed = Some(self.clock.now());
                }
            }
        }
    }

    /// Runs turns until the stop command.
    fn turns(&mut self) {
        loop {
            if self.run_commands() == Then::Stop {
                return;
            }
            let now = self.clock.now();
            let done = self.turn(now);
            self.ask_for_neighbours();
            if now.since(self.tended) >= TEND {
                self.tend(now);
            }
            self.turns += 1;
            if done > 0 {
                self.busy += self.clock.now().since(now);
                self.sleep.worked(now);
            } else if self.sleep.is_due(now) {
                self.sleep(now);
            }
        }
    }

    /// Polls the handoff channels, every port, and the frames that Linux sends. Returns the number of frames moved.
    fn turn(&mut self, now: Nanos) -> usize {
        let mut moved = self.take_handed(now);
        for place in 0..self.links.len() {
            moved += self.take_received(place, now);
        }
        if moved == 0 || now.since(self.asked) >= ORIGINATED {
            self.asked = now;
            for place in 0..self.links.len() {
                moved += self.take_originated(place, now);
            }
        }
        moved += self.send(now);
        if let Some(exchange) = &mut self.exchange {
            exchange.wake();
        }
        moved
    }

    /// Sleeps, unless another worker has handed off frames meanwhile.
    fn sleep(&mut self, now: Nanos) {
        if let Some(exchange) = &mut self.exchange {
            // Frames released since the last turn may be others'.
            exchange.wake();
            exchange.falls_asleep();
        }
        if self.take_handed(now) == 0 {
            self.sleep.until_something(&self.links);
        } else {
            self.sleep.worked(now);
        }
        if let Some(exchange) = &self.exchange {
            exchange.is_awake();
        }
    }

    /// Processes frames handed off by other workers. Returns their number.
    fn take_handed(&mut self, now: Nanos) -> usize {
        let mut found = 0;
        for _ in 0..MOST_BATCHES {
            let Worker { exchange, batch, pool, tables, shard, captures, .. } = self;
            let Some(exchange) = exchange else { break };
            exchange.collect(pool);
            let more = exchange.take(batch, pool, tables, now, &mut shard.counters);
            found += more;
            if !batch.is_empty() {
                self.latest = now;
                captures.begin(tables, &shard.egress);
                let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
                self.pipeline.run_taken(batch, &mut self.ended, &mut cx);
                captures.finish(&self.ended, shard, tables);
                self.settle();
            }
            if more < BATCH {
                break;
            }
        }
        found
    }

    /// Processes frames received by a port. Returns their number.
    fn take_received(&mut self, place: usize, now: Nanos) -> usize {
        let link = &mut self.links[place];
        let received = link.receive(&mut self.batch, &mut self.pool);
        if let Some(error) = link.failure() {
            self.tell(WorkerEvent::PortFailed { interface: self.links[place].name.clone(), error });
        }
        if received == 0 {
            return 0;
        }
        for frame in self.batch.iter_mut() {
            frame.meta.ingress = PortId(place as u16);
            self.latest = self.clock.of_port(frame.meta.received).min(now).max(self.latest);
            frame.meta.received = self.latest;
        }
        self.process();
        self.settle();
        received
    }

    /// Processes frames that Linux sends by an interface. Returns their number.
    fn take_originated(&mut self, place: usize, now: Nanos) -> usize {
        let received = self.links[place].receive_punted(&mut self.batch, &mut self.pool);
        if received == 0 {
            return 0;
        }
        let number = self.tables.interfaces.get(place).map_or(NO_NUMBER, |interface| interface.number);
        for frame in self.batch.iter_mut() {
            frame.meta.ingress = if unmark(frame) { OTHER } else { LOCAL };
            // By which it is found again, after other frames, in other tables, by other workers.
            frame.meta.number = number;
            frame.meta.received = now;
        }
        self.latest = now;
        self.process();
        self.settle();
        received
    }

    /// Runs the batch through the pipeline.
    fn process(&mut self) {
        if !self.captures.is_empty() {
            return self.process_watched();
        }
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx);
    }

    /// Runs the batch through the pipeline frame by frame, for captures.
    #[cold]
    fn process_watched(&mut self) {
        self.captures.begin(&self.tables, &self.shard.egress);
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        let mut watch = self.captures.watch(&self.tables);
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, &mut watch);
        self.captures.finish(&self.ended, &self.shard, &self.tables);
    }

    /// Delivers ended frames to Linux, hands them off to their owner, or returns them to the pool. Frames of Linux that concern
    /// a link alone are sent unchanged by the interface by which Linux sent them.
    fn settle(&mut self) {
        self.send_records();
        for mut frame in self.ended.drain(..) {
            if let Some(worker) = receiver(&frame.meta) {
                let refused = match &mut self.exchange {
                    Some(exchange) => exchange.give(frame, worker, &self.tables),
                    None => Err(frame),
                };
                let Err(back) = refused else { continue };
                frame = back;
                self.shard.counters.count_not_carried(&mut frame);
            }
            let is_for_linux = match Verdict::of_fate(frame.meta.fate) {
                Some(Verdict::Delivered) => true,
                // The answer to what Linux itself has sent.
                Some(Verdict::Answered(_)) => frame.meta.egress == LOCAL,
                _ => false,
            };
            let ingress = usize::from(frame.meta.ingress.0);
            let place = if is_linux(frame.meta.ingress) {
                self.tables.interface_numbered(frame.meta.number).map(|id| usize::from(id.0))
            } else {
                Some(ingress)
            };
            let interface = place.and_then(|place| self.tables.interfaces.get(place));
            let (Some(place), Some(interface), true) = (place, interface, is_for_linux) else {
                self.pool.put(frame);
                continue;
            };
            match Delivery::of(&frame.meta) {
                Delivery::Itself => self.links[place].punt(frame, &interface.tags, &mut self.pool),
                Delivery::Link => {
                    let root = usize::from(interface.root.0);
                    self.links[root].send_as_is(frame, &interface.tags, &mut self.pool);
                }
            }
        }
    }

    /// Offers each port opportunities to send. Returns the number of frames sent.
    fn send(&mut self, now: Nanos) -> usize {
        let Worker { links, shard, pool, captures, tables, .. } = self;
        let mut sent = 0;
        let mut next: Option<Nanos> = None;
        // A VLAN's frames wait before its parent's port.
        for (port, link) in (0..).map(PortId).zip(&mut *links) {
            let offered = link.send(shard, port, now, pool, captures);
            sent += offered.sent;
            next = next.into_iter().chain(offered.until).min();
        }
        for link in links {
            sent += link.flush(pool);
        }
        if !captures.is_empty() {
            captures.finish_departed(tables);
        }
        self.sleep.no_longer_than(next.map(|next| next.since(now)));
        sent
    }

    /// Runs timers, and processes frames that neighbour updates release.
    fn tend(&mut self, now: Nanos) {
        self.tended = now;
        self.latest = now;
        self.tell_left_out(now);
        self.captures.begin(&self.tables, &self.shard.egress);
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.tend(now, &mut self.ended, &mut cx);
        self.captures.finish(&self.ended, &self.shard, &self.tables);
        self.settle();
    }

    /// Reports neighbours that packets newly wait for.
    fn ask_for_neighbours(&mut self) {
        while let Some(Wanted { interface, address }) = self.shard.hops.wanted() {
            if let Some(interface) = self.tables.interface(interface) {
                self.tell(WorkerEvent::Wanted { interface: interface.name.clone(), address });
            }
        }
    }

    fn tell(&self, event: WorkerEvent) {
        // Who would hear it is gone when the process ends.
        let _ = (self.events)(event);
    }
}

/// Clears the mark of a frame that Linux forwards rather than originates: the group bit of the link-layer source, which no
/// address of a card has (IEEE 802, 8.2.2). Returns true if the mark was set.
fn unmark(frame: &mut Frame) -> bool {
    let Some(byte) = frame.bytes_mut().get_mut(6) else { return false };
    let is_marked = *byte & 1 != 0;
    *byte &= !1;
    is_marked
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
