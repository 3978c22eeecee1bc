//! A worker that panics: it says so, loses no frame of its pool, and goes on; one that panics all the time takes neither
//! the core nor the log. A worker whose packets wait sleeps meanwhile.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dataplane::Reason;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use ports::{Line, Statistics};
use wire::ethernet::Mac;
use wire::{Batch, Port, PortError, Received, build};

use super::*;

const FRAMES: u32 = 256;

/// A port that gives frames and, while it has faults left, panics among them.
struct Faulty {
    faults: Arc<AtomicUsize>,
    fd: WakeUp,
}

impl Port for Faulty {
    fn name(&self) -> &str {
        "east"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let Some(mut frame) = pool.take() else { return Ok(Received::Nothing) };
        frame.push_back(60).unwrap().fill(0);
        batch.push(frame).unwrap();
        let left = self.faults.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a fault");
        Ok(Received::Frames(1))
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Pool) -> Result<(), PortError> {
        Ok(())
    }
}

impl Line for Faulty {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

struct WorkerHandle {
    commands: CommandSender,
    thread: JoinHandle<Memory>,
    faults: Arc<AtomicUsize>,
}

impl WorkerHandle {
    fn report(&self) -> Report {
        let (to, told) = channel();
        self.commands.send(Command::Report(to));
        told.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn end(self) {
        self.commands.send(Command::Stop);
        self.thread.join().unwrap();
    }
}

/// A worker without ports, and the way to command it.
fn worker(
    number: usize,
    text: &str,
    resolve: Resolve,
    events: Sender<WorkerEvent>,
) -> (Worker, CommandSender) {
    let tables = Arc::new(Tables::compile(&policy::check(text, "policy").policy.unwrap(), 1).unwrap());
    let (sender, commands) = command_channel().unwrap();
    let clock = Clock::start();
    let setup = Setup { seed: [1, 2], now: clock.now(), resolve, share: Share::WHOLE };
    let pool = Pool::new(FRAMES, 2048).unwrap();
    let events = Box::new(move |event| events.send(event).is_ok());
    let shared = None;
    let parts = Parts {
        number,
        tables,
        setup,
        pool,
        clock,
        commands,
        events,
        shared,
        log: None,
        export: None,
        fast_path: None,
    };
    (Worker::new(parts).unwrap(), sender)
}

/// A worker with a port that panics so many times.
fn spawn(number: usize, faults: usize, events: Sender<WorkerEvent>) -> WorkerHandle {
    let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[limit]\nflows = 1024\n";
    let (worker, sender) = worker(number, text, Resolve::ByHost, events);
    let thread = thread::spawn(move || worker.work());
    let faults = Arc::new(AtomicUsize::new(faults));
    let line: Box<dyn Line> = Box::new(Faulty { faults: faults.clone(), fd: WakeUp::new().unwrap() });
    let ends = Attachment { line: Some(line), punt: None, fast: None };
    sender.send(Command::Attach { interface: "east".to_owned(), ends, done: None });
    WorkerHandle { commands: sender, thread, faults }
}

#[test]
fn a_worker_that_panics_says_so_and_goes_on() {
    let (events, told) = channel();
    let (failing, sound) = (spawn(1, 1, events.clone()), spawn(0, 0, events));
    let WorkerEvent::Panicked { worker, message } = told.recv_timeout(Duration::from_secs(20)).unwrap()
    else {
        panic!("it told something else")
    };
    assert_eq!((worker, message.as_str()), (1, "a fault"));
    for handle in [&failing, &sound] {
        let before = handle.report();
        let mut after = handle.report();
        while after.counters.received.frames == before.counters.received.frames {
            after = handle.report();
        }
        let Report { counters, .. } = &after;
        assert_eq!(counters.received.frames, counters.dropped(), "frames of zeroes have one fate");
    }
    failing.end();
    sound.end();
    assert!(told.recv().is_err(), "there was one panic");
}

#[test]
fn a_worker_loses_no_frame_by_panics() {
    let (events, told) = channel();
    let handle = spawn(0, 6, events);
    for _ in 0..6 {
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    while handle.faults.load(Ordering::Relaxed) > 0 || handle.report().counters.received.frames == 0 {}
    // Between two turns no frame is anywhere but in the pool.
    assert_eq!(handle.report().free_frames, FRAMES as usize);
    handle.end();
}

#[test]
fn a_worker_that_fails_again_and_again_waits_longer_each_time() {
    let (events, told) = channel();
    let begin = Instant::now();
    let handle = spawn(0, usize::MAX, events);
    for _ in 0..7 {
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    // The first one at once, then after 0, 10, 20, 40, 80 and 160 ms.
    assert!(begin.elapsed() >= Duration::from_millis(310));
    handle.report();
    handle.faults.store(0, Ordering::Relaxed);
    while handle.report().counters.received.frames == 0 {}
    handle.end();
}

/// A port that gives some packets at once, and notes when it is handed any.
struct Paced {
    left: usize,
    departed: Arc<Mutex<Vec<Nanos>>>,
    fd: WakeUp,
}

impl Port for Paced {
    fn name(&self) -> &str {
        "paced"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let count = std::mem::take(&mut self.left);
        for _ in 0..count {
            let packet = build::ethernet(Mac([2; 6]), Mac([2, 0, 0, 0, 0, 1]))
                .ipv4([10, 0, 0, 9].into(), [203, 0, 113, 9].into())
                .udp(1_000, 2_000)
                .payload(&[0; 972]);
            let frame = batch.extend_from(pool).unwrap();
            assert!(frame.fill(&packet.to_vec()));
            frame.meta.received = ports::now();
        }
        Ok(if count == 0 { Received::Nothing } else { Received::Frames(count) })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        for frame in batch.drain() {
            self.departed.lock().unwrap().push(ports::now());
            pool.put(frame);
        }
        Ok(())
    }
}

impl Line for Paced {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

/// Packets of a tenth of a second each. Between them the worker sleeps: it makes some hundred turns before each, where it would make
/// a hundred thousand.
#[test]
fn a_worker_sleeps_between_departures_and_none_is_early() {
    const PACKETS: usize = 6;
    let text = "mode = \"stateless\"\n[interface.lan]\nzone = \"a\"\naddresses = [\"10.0.0.1/8\"]\n\
                [interface.wan]\nzone = \"b\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"a > b\" = \"accept\"\n\
                [[queue]]\nname = \"all\"\non = \"wan\"\nrate = \"80 kbit/s\"\noverhead = \"ip\"\n";
    let (events, _told) = channel();
    let (worker, sender) = worker(0, text, Resolve::Assume, events);
    let thread = thread::spawn(move || worker.work());
    let departed = Arc::new(Mutex::new(Vec::new()));
    let began = ports::now();
    for (interface, left) in [("wan", 0), ("lan", PACKETS)] {
        let line = Paced { left, departed: departed.clone(), fd: WakeUp::new().unwrap() };
        let ends = Attachment { line: Some(Box::new(line)), punt: None, fast: None };
        sender.send(Command::Attach { interface: interface.to_owned(), ends, done: None });
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while departed.lock().unwrap().len() < PACKETS && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let handle = WorkerHandle { commands: sender, thread, faults: Arc::default() };
    let turns = handle.report().turns;
    handle.end();
    let departed = departed.lock().unwrap();
    assert_eq!(departed.len(), PACKETS);
    for (moment, number) in departed.iter().zip(0..) {
        assert!(*moment >= began + Nanos(number * 100_000_000), "{number} after {}", moment.since(began));
    }
    assert!(turns < 50_000, "{turns} turns");
}

/// The interface that packets would leave by has no port, as when it was deleted: they are lost, and none counts as forwarded.
#[test]
fn packets_for_an_interface_without_a_port_are_dropped() {
    const PACKETS: usize = 6;
    let text = "mode = \"stateless\"\n[interface.lan]\nzone = \"a\"\naddresses = [\"10.0.0.1/8\"]\n\
                [interface.wan]\nzone = \"b\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"a > b\" = \"accept\"\n";
    let (events, _told) = channel();
    let (worker, sender) = worker(0, text, Resolve::Assume, events);
    let thread = thread::spawn(move || worker.work());
    let line = Paced { left: PACKETS, departed: Arc::default(), fd: WakeUp::new().unwrap() };
    let ends = Attachment { line: Some(Box::new(line)), punt: None, fast: None };
    sender.send(Command::Attach { interface: "lan".to_owned(), ends, done: None });
    let handle = WorkerHandle { commands: sender, thread, faults: Arc::default() };
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut report = handle.report();
    while report.counters.dropped() < PACKETS as u64 && Instant::now() < deadline {
        report = handle.report();
    }
    handle.end();
    let Report { counters, links, .. } = report;
    assert_eq!((counters.received.frames, counters.forwarded()), (PACKETS as u64, 0));
    assert_eq!(counters.dropped_for(Reason::InterfaceGone), PACKETS as u64);
    assert!(links.iter().all(|link| link.counts.unsent == 0));
}

/// Frames without end: a drained port is one that has given what its ring held.
#[test]
fn a_flood_does_not_defer_a_drain_for_ever() {
    let text = "[interface.east]\nzone = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[limit]\nflows = 1024\n";
    let (events, _told) = channel();
    let (mut worker, sender) = worker(0, text, Resolve::ByHost, events);
    let line: Box<dyn Line> = Box::new(Faulty { faults: Arc::default(), fd: WakeUp::new().unwrap() });
    let ends = Attachment { line: Some(line), punt: None, fast: None };
    sender.send(Command::Attach { interface: "east".to_owned(), ends, done: None });
    let (done, drained) = channel();
    sender.send(Command::Drain(done));
    assert_eq!(worker.run_commands(), Then::Continue);
    let mut turns = 0;
    while drained.try_recv() == Err(TryRecvError::Empty) {
        let now = worker.clock.now();
        assert_eq!(worker.turn(now).received, 1);
        turns += 1;
    }
    assert_eq!(turns * BATCH, 17_408, "batches of the largest ring");
}
