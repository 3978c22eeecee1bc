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
    Attachment, Command, CommandSender, Parts, Report, Shared, Worker, WorkerEvent, command_channel,
};

const NOW: Nanos = Nanos::from_secs(5);

/// The policy, with the interfaces in this order.
fn tables(interfaces: [&str; 2]) -> Tables {
    let interface = |name: &str| {
        let net = if name == "wan" { "203.0.113.2/24" } else { "192.168.1.1/24" };
        format!("[interface.{name}]\nzone = \"{name}\"\naddresses = [\"{net}\"]\n")
    };
    let text = format!(
        "{}{}[default]\n\"lan > wan\" = \"accept\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n",
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
    let mut counters = Counters::new(&new);
    for number in 0..100 {
        assert!(giver.give(frame(&mut here, number), 1, &old).is_ok());
    }
    assert!(giver.give(frame(&mut here, 0), 7, &old).is_err(), "there is no such worker");
    let mut batch = Batch::new();
    let mut numbers = Vec::new();
    for many in [64, 36, 0] {
        assert_eq!(taker.take(&mut batch, &mut there, &new, NOW, &mut counters), many);
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
    let mut counters = Counters::new(&tables);
    let carried = depth(2) as u32;
    for number in 0..carried {
        assert!(giver.give(frame(&mut here, number), 1, &tables).is_ok());
    }
    let mut refused = giver.give(frame(&mut here, carried), 1, &tables).unwrap_err();
    counters.given = 1;
    counters.count_not_carried(&mut refused);
    assert_eq!((counters.given, counters.dropped_for(Reason::HandoffFull)), (0, 1));
    here.put(refused);
    let taken: Vec<Frame> = std::iter::from_fn(|| there.take()).collect();
    let mut batch = Batch::new();
    // Nothing to put them into: they are gone at once, and the channel is empty again.
    assert_eq!(taker.take(&mut batch, &mut there, &tables, NOW, &mut counters), carried as usize);
    assert!(batch.is_empty());
    assert_eq!(counters.dropped_for(Reason::HandoffFull), u64::from(carried) + 1);
    assert_eq!(counters.taken, u64::from(carried));
    taken.into_iter().for_each(|frame| there.put(frame));
    giver.collect(&mut here);
    assert_eq!(here.available(), here.capacity());

    // From an interface that the other's tables do not have yet.
    let mut unknown = tables;
    unknown.interfaces[1].number = 99;
    assert!(giver.give(frame(&mut here, 0), 1, &unknown).is_ok());
    assert_eq!(taker.take(&mut batch, &mut there, &self::tables(["lan", "wan"]), NOW, &mut counters), 1);
    assert_eq!(counters.dropped_for(Reason::InterfaceGone), 1);
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

/// Two threads: what comes to one and is the other's goes out by the other, also while that sleeps, also after it has
/// failed and begun anew; and every frame is counted once.
#[test]
fn workers_go_on_handing_over_after_one_has_failed() {
    let tables = Arc::new(tables(["lan", "wan"]));
    let steering = Arc::new(SteeringTable::new(2, tables.limits.flows).unwrap());
    let channels: Vec<_> = (0..2).map(|_| command_channel().unwrap()).collect();
    let wake_ups: Vec<WakeUp> = channels.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
    let (events, told) = channel();
    let (mut threads, mut held, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for ((number, (sender, commands)), exchange) in
        channels.into_iter().enumerate().zip(Exchange::between(&wake_ups))
    {
        let share = Share::new(number as u16, 2).unwrap();
        let clock = Clock::start();
        let setup = Setup { seed: [1, 2], now: clock.now(), resolve: Resolve::Assume, share };
        let (events, tables) = (events.clone(), tables.clone());
        let shared = Some(Shared { steering: steering.clone(), clients: Arc::default(), exchange });
        let events = Box::new(move |event: WorkerEvent| events.send(event).is_ok());
        let parts = Parts { number, tables, setup, pool: pool(), clock, commands, events, shared, log: None };
        let worker = Worker::new(parts).unwrap();
        let (comes, coming) = channel();
        let (leaves, left) = channel();
        let wakes = WakeUp::new().unwrap();
        let lan = Fake { wakes: wakes.clone(), coming, gone: channel().0 };
        let wan = Fake { wakes: WakeUp::new().unwrap(), coming: channel().1, gone: leaves };
        for (name, line) in [("lan", lan), ("wan", wan)] {
            let ends = Attachment { line: Some(Box::new(line)), punt: None };
            sender.send(Command::Attach { interface: name.to_owned(), ends, done: None });
        }
        threads.push(thread::spawn(move || worker.work()));
        held.push(Held { commands: sender, wakes, comes });
        gone.push(left);
    }
    let patience = Duration::from_secs(10);
    let home = |host: u8| {
        let source = std::net::IpAddr::from([192, 168, 1, host]);
        usize::from(steering.home_of_source(Address::from(source).bits))
    };
    let host_of = |worker: usize| (10..=99).find(|host| home(*host) == worker).unwrap();
    let (host, taker) = (host_of(1), 1);
    for round in 0..3u16 {
        for n in 0..50 {
            held[0].receive(Some(packet(host, 1_000 + round * 50 + n)));
        }
        for n in 0..50 {
            let frame = gone[taker].recv_timeout(patience).unwrap();
            // In the order in which they came: its port says which.
            assert_eq!(frame[34..36], (1_000 + round * 50 + n).to_be_bytes());
        }
        // The next round finds it asleep, or begun anew.
        thread::sleep(Duration::from_millis(5));
        if round == 1 {
            held[taker].receive(None);
            loop {
                match told.recv_timeout(patience).unwrap() {
                    WorkerEvent::Panicked { worker, .. } => break assert_eq!(worker, taker),
                    WorkerEvent::NotAlone { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(gone[0].try_recv().is_err(), "what is another's went out");
    let until = Instant::now() + patience;
    let reports = loop {
        let reports = [held[0].report(), held[1].report()];
        let free = |report: &Report| report.free_frames;
        if reports.iter().map(free).all(|free| free >= 2_900) || Instant::now() > until {
            break reports;
        }
    };
    assert_eq!((reports[0].counters.received.frames, reports[0].counters.given), (150, 150));
    // What it has counted before it failed is gone with all that it knew.
    assert_eq!((reports[1].counters.taken, reports[1].counters.forwarded()), (50, 50));
    assert!(reports.iter().all(|report| report.counters.are_conserved()));
    assert_eq!((reports[0].flows, reports[1].flows), (0, 50));
    held.iter().for_each(|held| assert!(held.commands.send(Command::Stop)));
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    assert!(steering.is_empty(), "flows that are gone are still shown");
}
