//! Ports in tests: opened, filled, carried between, emptied.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ports::{Alone, Guard, GuardSet, Line, MARK, Opened, Punt, Spec, Statistics, Wish};
use wire::ethernet::Mac;
use wire::vlan::Tag;
use wire::{Batch, Frame, Pool, build};

use super::{Host, command, pattern};

pub(crate) const NEAR: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const FAR: Mac = Mac([2, 0, 0, 0, 0, 2]);

pub(crate) fn spec(name: &str, wish: Wish) -> Spec {
    Spec { name: name.to_owned(), wish, ..Spec::default() }
}

pub(crate) fn open(name: &str, wish: Wish, pool: &Pool) -> Opened {
    ports::open(&spec(name, wish), &[pool.memory()]).unwrap_or_else(|error| panic!("{error}"))
}

/// The guard of an interface, open to its punt, removed on drop.
pub(crate) fn guarded(name: &str, punt: &Punt) -> Guard {
    let (guards, unpinned) = GuardSet::open(Path::new("/proc/self"), MARK);
    assert!(unpinned.is_some());
    let ifindex = command("cat", &format!("/proc/self/net/dev_snmp6/{name}"));
    let ifindex = ifindex.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap();
    let guard = guards.put(ifindex, &Alone::default(), None, None).unwrap_or_else(|error| panic!("{error}"));
    guard.open(punt.ifindex).unwrap_or_else(|error| panic!("{error}"));
    guard
}

pub(crate) fn host(near: &str) -> Host {
    let host = Host::new();
    host.connect(near, "eth", 1);
    host
}

/// A wire: carries frames between two lines until stopped; returns the counters of each, and the longest frame.
pub(crate) struct Wire {
    stop: Arc<AtomicBool>,
    worker: thread::JoinHandle<(Statistics, Statistics, usize)>,
}

impl Wire {
    pub(crate) fn new(mut one: Box<dyn Line>, mut other: Box<dyn Line>, mut pool: Pool) -> Wire {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let worker = thread::spawn(move || {
            let mut longest = 0;
            while !told.load(Ordering::Relaxed) {
                carry(&mut *one, &mut *other, &mut pool, &mut longest);
                carry(&mut *other, &mut *one, &mut pool, &mut longest);
            }
            (one.statistics(), other.statistics(), longest)
        });
        Wire { stop, worker }
    }

    pub(crate) fn stop(self) -> (Statistics, Statistics, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.join().unwrap()
    }
}

fn carry(from: &mut dyn Line, to: &mut dyn Line, pool: &mut Pool, longest: &mut usize) {
    let mut batch = Batch::new();
    from.receive(&mut batch, pool).unwrap();
    *longest = batch.iter().map(Frame::len).fold(*longest, usize::max);
    let patience = Instant::now();
    while !batch.is_empty() && patience.elapsed() < Duration::from_secs(1) {
        to.transmit(&mut batch, pool).unwrap();
    }
    batch.drain().for_each(|frame| pool.put(frame));
}

/// Lets the line have slots to receive into: AF_XDP has none before it is first asked.
pub(crate) fn lend(line: &mut dyn Line, pool: &mut Pool) {
    let mut batch = Batch::new();
    line.receive(&mut batch, pool).unwrap();
    assert!(batch.is_empty());
}

/// Frames received within a while, up to so many.
pub(crate) fn receive(line: &mut dyn Line, pool: &mut Pool, wanted: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let patience = Instant::now();
    while frames.len() < wanted && patience.elapsed() < Duration::from_secs(2) {
        let mut batch = Batch::new();
        line.receive(&mut batch, pool).unwrap();
        frames.extend(batch.iter().map(|frame| frame.bytes().to_vec()));
        batch.drain().for_each(|frame| pool.put(frame));
    }
    frames
}

pub(crate) fn transmit(line: &mut dyn Line, pool: &mut Pool, frames: &[Vec<u8>]) {
    for frames in frames.chunks(wire::BATCH) {
        let mut batch = Batch::new();
        for bytes in frames {
            assert!(batch.extend_from(pool).unwrap().fill(bytes));
        }
        let patience = Instant::now();
        while !batch.is_empty() {
            line.transmit(&mut batch, pool).unwrap();
            assert!(patience.elapsed() < Duration::from_secs(2), "{} frames are not taken", batch.len());
        }
    }
}

/// A datagram in a frame of so many bytes, with these tags, and a checksum that is right.
pub(crate) fn datagram(src: Mac, dst: Mac, tags: &[Tag], bytes: usize, sport: u16) -> Vec<u8> {
    let payload = pattern(bytes - 42 - 4 * tags.len());
    let frame = tags.iter().fold(build::ethernet(src, dst), |frame, tag| frame.vlan(*tag));
    frame.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(sport, 5000).payload(&payload).to_vec()
}

/// Number of free slots of a pool: all, once no slot is lent.
pub(crate) fn at_home(pool: &mut Pool) -> usize {
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    let slots = frames.len();
    frames.into_iter().for_each(|frame| pool.put(frame));
    slots
}
