//! A worker: one thread that takes frames from its queue of each port through the pipeline, and out again.
//!
//! It alone touches its [`Shard`]; whoever wants something of it sends [`Command`], which it reads between two turns.
//! It promises: no lock, no system call but those of the ports, no allocation on the packet path; every frame that
//! a port gave it is sent, given to Linux or to another worker, or counted as gone. While nothing comes it sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use dataplane::client::Clients;
use dataplane::flow::{Member, SteeringTable};
use dataplane::handoff::receiver;
use dataplane::hop::Wanted;
use dataplane::shard::{Setup, ShardError};
use dataplane::stage::Cx;
use dataplane::tables::{LOCAL, NO_NUMBER, OTHER, Tables, is_linux};
use dataplane::verdict::{Delivery, Verdict};
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
    Command, CommandSender, Found, FoundFlows, Known, Retired, Swap, WakeUp, WorkerEvent, command_channel,
};
pub use link::{Attachment, LinkCounts, LinkReport};
pub use report::Report;
pub use state::{Exported, Imported};

use capture::Captures;
use handoff::Exchange;
use link::Link;
use log::LogFeed;
use sleep::Sleep;
use update::carry;

/// How often flows and waiting frames are looked after while no frame comes.
const TEND: Nanos = Nanos::from_millis(20);

/// Batches of what others have given that are taken before the ports have their turn.
const MOST_BATCHES: u32 = 16;

/// How often Linux is asked for what it sends, while ports keep the worker busy: each question is a system call, and a
/// turn under load takes about as long.
const ORIGINATED: Nanos = Nanos(50_000);

/// How long a worker that fails again goes without: longer each time, so that a fault that comes with every packet takes
/// neither the core nor the log; no longer than others wait for an answer.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Time without a failure after which the next is the first again.
const CALM: Nanos = Nanos::from_secs(10);

/// The state of one worker.
pub struct Worker {
    number: usize,
    tables: Arc<Tables>,
    setup: Setup,
    shard: Shard,
    pipeline: Pipeline,
    pool: Pool,
    /// What hangs on each interface, in the order of the tables.
    links: Vec<Link>,
    batch: Batch,
    ended: Vec<Frame>,
    commands: Receiver<Command>,
    events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    captures: Captures,
    sleep: Sleep,
    /// The way to and from other workers; none where there are none.
    exchange: Option<Exchange>,
    /// Where log records go; nowhere where absent.
    log: Option<LogFeed>,
    clock: Clock,
    /// The last moment that the shard knows of: for it, time does not go backwards from one port to the next.
    latest: Nanos,
    tended: Nanos,
    /// When Linux was last asked for what it sends.
    asked: Nanos,
    /// Time spent on turns that found something to do.
    busy: Nanos,
    turns: u64,
}

/// What a worker is made of.
pub struct Parts {
    /// Its number, from 0.
    pub number: usize,
    /// What the policy compiled to.
    pub tables: Arc<Tables>,
    /// Seeds and the share of ports.
    pub setup: Setup,
    /// Its frames; lines that share memory with the kernel know it.
    pub pool: Pool,
    /// The time.
    pub clock: Clock,
    /// What is asked of it.
    pub commands: Receiver<Command>,
    /// What wakes it.
    pub wake_up: WakeUp,
    /// Takes what it has to tell; `false` if nobody hears it any more.
    pub events: Box<dyn Fn(WorkerEvent) -> bool + Send>,
    /// What it shares with other workers; nothing where there are none.
    pub shared: Option<Shared>,
    /// Where its log records go; it makes none where absent.
    pub log: Option<Feed>,
}

/// What workers share.
pub struct Shared {
    /// Which worker has which flow.
    pub steering: Arc<SteeringTable>,
    /// DHCP clients on the gateway itself.
    pub clients: Arc<Clients>,
    /// This worker's ways to and from the others.
    pub exchange: Exchange,
}

/// What a worker that has ended remembers.
pub struct Memory {
    /// What it went by.
    pub tables: Arc<Tables>,
    /// All that it remembered.
    pub shard: Shard,
    /// When it ended.
    pub now: Nanos,
}

/// Continuation of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Continue,
    Stop,
}

impl Worker {
    /// A worker without ports.
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

    /// Works until it is told to stop, and gives what it remembers. A panic ends what the shard remembers, not the
    /// worker: it says so, and goes on with an empty shard.
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

    /// Turn after turn.
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

    /// One look at what other workers have given, at every port, and at what Linux sends. Says how many frames moved.
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

    /// Sleeps, unless another worker has given something meanwhile.
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

    /// Takes in what other workers have handed off. Says how many frames that were.
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

    /// Takes in what a port has received.
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

    /// Takes in what Linux sends by an interface.
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

    /// Takes the batch through the pipeline.
    fn process(&mut self) {
        if !self.captures.is_empty() {
            return self.process_watched();
        }
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx);
    }

    /// The same, frame by frame, before the eyes of those who capture.
    #[cold]
    fn process_watched(&mut self) {
        self.captures.begin(&self.tables, &self.shard.egress);
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        let mut watch = self.captures.watch(&self.tables);
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, &mut watch);
        self.captures.finish(&self.ended, &self.shard, &self.tables);
    }

    /// Gives what ended to Linux, to the worker whose it is, or back to the pool. What Linux sent and concerns a link alone
    /// goes out as it is by the interface by which Linux sent it.
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

    /// Offers each port opportunities to send. Says how many frames went.
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

    /// Looks after what time alone changes, and frames that neighbour updates release.
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

    /// Tells of neighbours that packets have begun to wait for.
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

/// Takes the mark off a frame that Linux sends, by which it says that Linux forwards it and has not made it: the group bit of its
/// link-layer source, which no address of a card has (IEEE 802, 8.2.2). Says whether the mark was there.
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
