use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::flow::SteeringTable;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use dataplane::tables::Address;
use ports::{Line, Statistics};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::build;
use wire::ethernet::Mac;
use wire::{Port, PortError, PortId, Received};

use super::*;
use crate::clock::Clock;
use crate::worker::{
    Attachment, Command, CommandSender, Memory, Parts, Report, Shared, Worker, WorkerEvent, command_channel,
};

const NOW: Nanos = Nanos::from_secs(5);

/// The policy, with the interfaces in this order.
fn tables(interfaces: [&str; 2]) -> Tables {
    tables_with(interfaces, "")
}

fn tables_with(interfaces: [&str; 2], queues: &str) -> Tables {
    let interface = |name: &str| {
        let net = if name == "wan" { "203.0.113.2/24" } else { "192.168.1.1/24" };
        format!("[interface.{name}]\nzone = \"{name}\"\naddresses = [\"{net}\"]\n")
    };
    let text = format!(
        "{}{}[default]\n\"lan > wan\" = \"accept\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n{queues}",
        interface(interfaces[0]),
        interface(interfaces[1])
    );
    Tables::compile(&policy::check(&text, "hand.toml").policy.unwrap(), 1).unwrap()
}

fn pool() -> Pool {
    Pool::new(3_000, 2048).unwrap()
}

fn pair() -> [Exchange; 2] {
    let wake_ups = [WakeUp::new().unwrap(), WakeUp::new().unwrap()];
    let both: [Exchange; 2] = Exchange::between(&wake_ups).try_into().ok().unwrap();
    both
}

/// The shard of one of two workers.
fn shard(tables: &Tables, worker: u16) -> Shard {
    let share = Share::new(worker, 2).unwrap();
    Shard::new(tables, Setup { seed: [1, 2], now: NOW, resolve: Resolve::Assume, share }).unwrap()
}

fn take(
    taker: &mut Exchange,
    batch: &mut Batch,
    pool: &mut Pool,
    tables: &Tables,
    shard: &mut Shard,
) -> usize {
    taker.take(Intake { batch, pool, tables, shard, marks: &mut Vec::new(), now: NOW })
}

fn frame(pool: &mut Pool, number: u32) -> Frame {
    let mut frame = pool.take().unwrap();
    assert!(frame.fill(&number.to_be_bytes()));
    (frame.meta.number, frame.meta.ingress, frame.meta.sport) = (number, PortId(1), 77);
    frame
}

#[test]
fn frames_come_in_order_into_frames_of_the_receiver_and_go_home() {
    let (mut here, mut there) = (pool(), pool());
    let [mut giver, mut taker] = pair();
    let (old, new) = (tables(["lan", "wan"]), tables(["wan", "lan"]).after(&tables(["lan", "wan"])));
    let mut shard = shard(&new, 1);
    for number in 0..100 {
        assert!(giver.give(frame(&mut here, number), 1, &old).is_ok());
    }
    assert!(giver.give(frame(&mut here, 0), 7, &old).is_err(), "there is no such worker");
    let mut batch = Batch::new();
    let mut numbers = Vec::new();
    for many in [64, 36, 0] {
        assert_eq!(take(&mut taker, &mut batch, &mut there, &new, &mut shard), many);
        for frame in batch.drain() {
            assert_eq!(frame.bytes(), frame.meta.number.to_be_bytes());
            // "wan" is the first interface there.
            assert_eq!((frame.meta.ingress, frame.meta.received, frame.meta.sport), (PortId(0), NOW, 77));
            numbers.push(frame.meta.number);
            there.put(frame);
        }
    }
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert_eq!(there.available(), there.capacity());
    giver.collect(&mut here);
    // The one that was refused went home as an orphan, which is collected when it is needed.
    assert_eq!(here.available(), here.capacity() - 1);
}

#[test]
fn what_cannot_be_carried_or_taken_is_dropped_and_counted() {
    let (mut here, mut there) = (pool(), pool());
    let [mut giver, mut taker] = pair();
    let tables = tables(["lan", "wan"]);
    let mut shard = shard(&tables, 1);
    let carried = depth(2) as u32;
    for number in 0..carried {
        assert!(giver.give(frame(&mut here, number), 1, &tables).is_ok());
    }
    let mut refused = giver.give(frame(&mut here, carried), 1, &tables).unwrap_err();
    shard.counters.given = 1;
    shard.count_not_carried(&mut refused);
    assert_eq!((shard.counters.given, shard.counters.dropped_for(Reason::HandoffFull)), (0, 1));
    here.put(refused);
    let taken: Vec<Frame> = std::iter::from_fn(|| there.take()).collect();
    let mut batch = Batch::new();
    // Nothing to put them into: they are gone at once, and the channel is empty again.
    assert_eq!(take(&mut taker, &mut batch, &mut there, &tables, &mut shard), carried as usize);
    assert!(batch.is_empty());
    assert_eq!(shard.counters.dropped_for(Reason::HandoffFull), u64::from(carried) + 1);
    assert_eq!(shard.counters.taken, u64::from(carried));
    taken.into_iter().for_each(|frame| there.put(frame));
    giver.collect(&mut here);
    assert_eq!(here.available(), here.capacity());

    // From an interface that the other's tables do not have yet.
    let mut unknown = tables;
    unknown.interfaces[1].number = 99;
    assert!(giver.give(frame(&mut here, 0), 1, &unknown).is_ok());
    assert_eq!(take(&mut taker, &mut batch, &mut there, &self::tables(["lan", "wan"]), &mut shard), 1);
    assert_eq!(shard.counters.dropped_for(Reason::InterfaceGone), 1);
}

#[test]
fn only_who_sleeps_is_woken_and_only_once() {
    let wake_ups = [WakeUp::new().unwrap(), WakeUp::new().unwrap()];
    let rings = |wake_up: &WakeUp| {
        let mut fds = [PollFd::new(wake_up, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() > 0
    };
    let [mut giver, taker]: [Exchange; 2] = Exchange::between(&wake_ups).try_into().ok().unwrap();
    let (mut pool, tables) = (pool(), tables(["lan", "wan"]));
    let mut give = |giver: &mut Exchange| {
        assert!(giver.give(frame(&mut pool, 0), 1, &tables).is_ok());
        giver.wake();
    };
    give(&mut giver);
    assert!(!rings(&wake_ups[1]), "it is awake");
    taker.falls_asleep();
    giver.wake();
    assert!(!rings(&wake_ups[1]), "nothing is new");
    give(&mut giver);
    assert!(rings(&wake_ups[1]));
    wake_ups[1].clear();
    give(&mut giver);
    assert!(!rings(&wake_ups[1]), "it has been woken");
    taker.falls_asleep();
    taker.is_awake();
    give(&mut giver);
    assert!(!rings(&wake_ups[1]));
}

/// A line whose other end is a test.
struct Fake {
    wakes: WakeUp,
    coming: Receiver<Option<Vec<u8>>>,
    gone: Sender<Vec<u8>>,
}

impl Port for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        self.wakes.clear();
        let before = batch.len();
        while let Ok(bytes) = self.coming.try_recv() {
            let Some(bytes) = bytes else { panic!("as the test wants it") };
            let frame = batch.extend_from(pool).expect("room");
            assert!(frame.fill(&bytes));
            frame.meta.received = ports::now();
        }
        Ok(match batch.len() - before {
            0 => Received::Nothing,
            frames => Received::Frames(frames),
        })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        for frame in batch.drain() {
            let _ = self.gone.send(frame.bytes().to_vec());
            pool.put(frame);
        }
        Ok(())
    }
}

impl Line for Fake {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

/// The test's end of a worker: where its frames come in on the LAN, and itself.
struct Held {
    commands: CommandSender,
    wakes: WakeUp,
    comes: Sender<Option<Vec<u8>>>,
}

impl Held {
    fn receive(&self, frame: Option<Vec<u8>>) {
        self.comes.send(frame).unwrap();
        self.wakes.wake();
    }

    fn report(&self) -> Report {
        let (to, told) = channel();
        self.commands.send(Command::Report(to));
        told.recv().unwrap()
    }
}

/// A packet from a host; which worker is its home the host's number tells.
fn packet(host: u8, sport: u16) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    link.ipv4([192, 168, 1, host].into(), [8, 8, 8, 8].into()).udp(sport, 53).payload(b"?").to_vec()
}

/// Two workers, each a thread, and what happens to them.
struct Crew {
    steering: Arc<SteeringTable>,
    threads: Vec<thread::JoinHandle<Memory>>,
    held: Vec<Held>,
    /// Frames sent by each worker on the WAN.
    gone: Vec<Receiver<Vec<u8>>>,
    told: Receiver<WorkerEvent>,
}

/// Longest time that a test waits for a worker.
const PATIENCE: Duration = Duration::from_secs(10);

impl Crew {
    fn new(tables: Tables) -> Crew {
        let tables = Arc::new(tables);
        let steering = Arc::new(SteeringTable::new(2, tables.limits.flows).unwrap());
        let channels: Vec<_> = (0..2).map(|_| command_channel().unwrap()).collect();
        let wake_ups: Vec<WakeUp> = channels.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
        let (events, told) = channel();
        let (mut threads, mut held, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        // One for all, as in the process: packets that wait for a tree carry moments from one worker to another.
        let clock = Clock::start();
        for ((number, (sender, commands)), exchange) in
            channels.into_iter().enumerate().zip(Exchange::between(&wake_ups))
        {
            let share = Share::new(number as u16, 2).unwrap();
            let setup = Setup { seed: [1, 2], now: clock.now(), resolve: Resolve::Assume, share };
            let (events, tables) = (events.clone(), tables.clone());
            let shared = Some(Shared { steering: steering.clone(), clients: Arc::default(), exchange });
            let events = Box::new(move |event: WorkerEvent| events.send(event).is_ok());
            let parts = Parts {
                number,
                tables,
                setup,
                pool: pool(),
                clock,
                commands,
                events,
                shared,
                log: None,
                export: None,
                fast_path: None,
            };
            let worker = Worker::new(parts).unwrap();
            let (comes, coming) = channel();
            let (leaves, left) = channel();
            let wakes = WakeUp::new().unwrap();
            let lan = Fake { wakes: wakes.clone(), coming, gone: channel().0 };
            let wan = Fake { wakes: WakeUp::new().unwrap(), coming: channel().1, gone: leaves };
            for (name, line) in [("lan", lan), ("wan", wan)] {
                let ends = Attachment { line: Some(Box::new(line)), punt: None, fast: None };
                sender.send(Command::Attach { interface: name.to_owned(), ends, done: None });
            }
            threads.push(thread::spawn(move || worker.work()));
            held.push(Held { commands: sender, wakes, comes });
            gone.push(left);
        }
        Crew { steering, threads, held, gone, told }
    }

    /// A host whose flows are that worker's.
    fn host_of(&self, worker: usize) -> u8 {
        let home = |host: u8| {
            let source = std::net::IpAddr::from([192, 168, 1, host]);
            usize::from(self.steering.home_of_source(Address::from(source).bits))
        };
        (10..=99).find(|host| home(*host) == worker).unwrap()
    }

    /// Has a worker fail.
    fn fail(&self, which: usize) {
        self.held[which].receive(None);
        loop {
            match self.told.recv_timeout(PATIENCE).unwrap() {
                WorkerEvent::Panicked { worker, .. } => break assert_eq!(worker, which),
                WorkerEvent::NotAlone { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reports of both, once all frames are back, or time is up.
    fn reports(&self) -> [Report; 2] {
        let until = Instant::now() + PATIENCE;
        loop {
            let reports = [self.held[0].report(), self.held[1].report()];
            let free = |report: &Report| report.free_frames;
            if reports.iter().map(free).all(|free| free >= 2_900) || Instant::now() > until {
                return reports;
            }
        }
    }

    fn stop(self) {
        self.held.iter().for_each(|held| assert!(held.commands.send(Command::Stop)));
        self.threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        assert!(self.steering.is_empty(), "flows that are gone are still shown");
    }
}

/// Two threads: what comes to one and is the other's goes out by the other, also while that sleeps, also after it has
/// failed and begun anew; and every frame is counted once.
#[test]
fn workers_go_on_handing_over_after_one_has_failed() {
    let crew = Crew::new(tables(["lan", "wan"]));
    let (host, taker) = (crew.host_of(1), 1);
    for round in 0..3u16 {
        for n in 0..50 {
            crew.held[0].receive(Some(packet(host, 1_000 + round * 50 + n)));
        }
        for n in 0..50 {
            let frame = crew.gone[taker].recv_timeout(PATIENCE).unwrap();
            // In the order in which they came: its port says which.
            assert_eq!(frame[34..36], (1_000 + round * 50 + n).to_be_bytes());
        }
        // The next round finds it asleep, or begun anew.
        thread::sleep(Duration::from_millis(5));
        if round == 1 {
            crew.fail(taker);
        }
    }
    assert!(crew.gone[0].try_recv().is_err(), "what is another's went out");
    let reports = crew.reports();
    assert_eq!((reports[0].counters.received.frames, reports[0].counters.given), (150, 150));
    // What it has counted before it failed is gone with all that it knew.
    assert_eq!((reports[1].counters.taken, reports[1].counters.forwarded()), (50, 50));
    assert!(reports.iter().all(|report| report.counters.are_conserved()));
    assert_eq!((reports[0].flows, reports[1].flows), (0, 50));
    crew.stop();
}

/// A tree of queues is one worker's: both workers' packets go out by that one, at the rate of the tree, also after it has failed and
/// begun anew. Packets that it decides on itself, and packets that have been handed off twice, wait in the same queue.
#[test]
fn the_tree_of_a_port_has_the_packets_of_all_workers() {
    let queues = "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"10 Mbit/s\"\noverhead = \"ip\"\n";
    let crew = Crew::new(tables_with(["lan", "wan"], queues));
    let hosts = [crew.host_of(0), crew.host_of(1)];
    for round in 0..3u16 {
        let begun = Instant::now();
        for n in 0..50 {
            for (place, host) in hosts.into_iter().enumerate() {
                // Each at the owner of its flow, or at the other one.
                crew.held[(place + usize::from(round)) % 2]
                    .receive(Some(packet(host, 1_000 + round * 50 + n)));
            }
        }
        let mut next = [0; 2];
        for _ in 0..100 {
            let frame = crew.gone[0].recv_timeout(PATIENCE).unwrap();
            let place = hosts.iter().position(|host| *host == frame[29]).unwrap();
            assert_eq!(frame[34..36], (1_000 + round * 50 + next[place]).to_be_bytes());
            next[place] += 1;
        }
        // Packets of 29 bytes: 23.2 us each, the first at once.
        let took = begun.elapsed();
        assert!(took >= Duration::from_nanos(99 * 23_200), "round {round} took {took:?}");
        thread::sleep(Duration::from_millis(5));
        if round == 1 {
            crew.fail(0);
        }
    }
    assert!(crew.gone[1].try_recv().is_err(), "what is another's went out");
    let reports = crew.reports();
    assert_eq!((reports[0].counters.forwarded(), reports[1].counters.forwarded()), (100, 0));
    assert!(reports.iter().all(|report| report.counters.are_conserved() && report.counters.queued() == 0));
    assert_eq!((reports[0].trees.len(), reports[1].trees.len()), (1, 0));
    assert_eq!(reports.map(|report| report.counters.dropped()), [0, 0]);
    crew.stop();
}
