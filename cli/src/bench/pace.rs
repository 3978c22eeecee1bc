//! Precision of departures: the gateway's worker between a port that always has frames and one that discards them.
//!
//! A queue of a rate is kept filled; the port behind it reads the clock for each frame that it is handed, and no more. So what is
//! measured is the worker's loop, its sleep and its clock, without a driver. Beside it a plain loop does nothing but read the clock
//! until the same moments: what it is late by is the machine's (interrupts, other threads, the host of a guest).

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::replay::SEED;
use dataplane::shard::Setup;
use dataplane::tables::Tables;
use gateway::clock::Clock;
use gateway::worker::{Attachment, Command, Parts, WakeUp, Worker, command_channel};
use ports::{Line, Statistics};
use wire::build;
use wire::ethernet::Mac;
use wire::{Batch, Nanos, Pool, Port, PortError, Received};

use super::in_memory::{self, BenchError};

/// Departures to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Length of each frame, without check sequence.
    pub(crate) bytes: u32,
    /// Bytes that count beside the frame.
    pub(crate) overhead: u32,
    /// Rate, in Mbit/s.
    pub(crate) mbit: u32,
}

impl Pace {
    /// Paces of RENA-CHIP's shaper (section 3.2), and the shortest frames of Ethernet with preamble, check sequence and gap, 672 ns each.
    pub(crate) const DEFAULT: [Pace; 4] = [
        Pace { bytes: 242, overhead: 0, mbit: 1 },
        Pace { bytes: 242, overhead: 0, mbit: 5 },
        Pace { bytes: 242, overhead: 0, mbit: 25 },
        Pace { bytes: 60, overhead: 24, mbit: 1_000 },
    ];

    /// Nanoseconds between two departures.
    fn gap(&self) -> f64 {
        f64::from((self.bytes + self.overhead) * 8) * 1e3 / f64::from(self.mbit)
    }

    /// Frames that wait, at least: those of 5 ms, so that a worker which others keep from its core makes up for it afterwards, as it
    /// does with what Linux has received meanwhile.
    fn waiting(&self) -> u64 {
        (5e6 / self.gap()).clamp(256.0, 8_000.0) as u64
    }

    fn policy(&self) -> String {
        // Of the queue, what counts beside the IP packet.
        let overhead = ETHERNET + self.overhead;
        format!(
            "mode = \"stateless\"\n\
             [interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/8\"]\n\
             [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
             [default]\n\"lan > wan\" = \"accept\"\n\
             [[queue]]\nname = \"port\"\non = \"wan\"\nrate = \"{} Mbit/s\"\noverhead = {overhead}\n\
             [[queue]]\nname = \"all\"\nin = \"port\"\nlimit = {}\n",
            self.mbit,
            self.waiting() * 2,
        )
    }
}

/// Length of an Ethernet header.
const ETHERNET: u32 = 14;

/// Frames that are received at once.
const MOST: usize = 2;

/// Departures before the first that counts.
const WARM_UP: usize = 100;

/// Errors of the times between departures, in nanoseconds, and the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Precision {
    /// Departures that count.
    pub(crate) departures: usize,
    /// Mean rate, in parts of that to be kept.
    pub(crate) rate: f64,
    /// Median, 90th and 99th percentile, and longest error.
    pub(crate) errors: [f64; 4],
    /// Share of errors below a microsecond.
    pub(crate) exact: f64,
}

/// Result of a measurement.
pub(crate) struct Outcome {
    /// Departures asked for.
    pub(crate) pace: Pace,
    /// Of the worker.
    pub(crate) worker: Precision,
    /// Share of a core that the worker took.
    pub(crate) core: f64,
    /// Of the plain loop.
    pub(crate) plain: Precision,
}

/// Measures departures for a time, and then the plain loop for as long.
pub(crate) fn measure(pace: Pace, time: Duration) -> Result<Outcome, BenchError> {
    let count = WARM_UP + (time.as_nanos() as f64 / pace.gap()).max(10.0) as usize;
    let (moments, core) = departures(pace, count, time)?;
    Ok(Outcome { pace, worker: precision(&moments, pace), core, plain: precision(&plain(pace, count), pace) })
}

/// Moments of departure by the worker, and the share of a core that it took.
fn departures(pace: Pace, count: usize, time: Duration) -> Result<(Vec<u64>, f64), BenchError> {
    let policy = in_memory::policy(&pace.policy())?;
    let tables = Tables::compile(&policy, 1).map_err(|error| BenchError::Policy(error.to_string()))?;
    let pool = Pool::new(3 * pace.waiting() as u32, 2_048).map_err(BenchError::Pool)?;
    let (sender, commands) = command_channel().map_err(BenchError::System)?;
    let clock = Clock::start();
    let setup = Setup { seed: SEED, now: clock.now(), resolve: Resolve::Assume, share: Share::WHOLE };
    let worker = Worker::new(Parts {
        number: 0,
        tables: Arc::new(tables),
        setup,
        pool,
        clock,
        commands,
        events: Box::new(|_| true),
        shared: None,
        log: None,
        export: None,
        fast_path: None,
    })
    .map_err(BenchError::Shard)?;
    let account = Arc::new(Account {
        sent: AtomicU64::new(0),
        moments: (0..count).map(|_| AtomicU64::new(0)).collect(),
    });
    let source = Source::new(pace, Arc::clone(&account)).map_err(BenchError::System)?;
    let sink = Sink { fd: WakeUp::new().map_err(BenchError::System)?, account: Arc::clone(&account) };
    for (interface, line) in [("lan", Box::new(source) as Box<dyn Line>), ("wan", Box::new(sink))] {
        let ends = Attachment { line: Some(line), punt: None, fast: None };
        sender.send(Command::Attach { interface: interface.to_owned(), ends, done: None });
    }
    let thread = thread::spawn(move || worker.work());
    let started = Instant::now();
    let before = processor_time();
    // Where the rate cannot be reached, as far as it gets.
    let patience = time * 2 + Duration::from_secs(5);
    while account.sent.load(Ordering::Relaxed) < count as u64 && started.elapsed() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    let core = (processor_time() - before) / started.elapsed().as_nanos() as f64;
    sender.send(Command::Stop);
    // Its own memory is of no use here.
    drop(thread.join());
    let sent = (account.sent.load(Ordering::Relaxed) as usize).min(count);
    let moments =
        account.moments.iter().take(sent).skip(WARM_UP).map(|moment| moment.load(Ordering::Relaxed));
    Ok((moments.collect(), core))
}

/// Moments at which a loop sees that a departure is due that does nothing else.
fn plain(pace: Pace, count: usize) -> Vec<u64> {
    let mut moments = Vec::with_capacity(count - WARM_UP);
    let start = ports::now().0;
    for departure in 0..count - WARM_UP {
        let due = start + (departure as f64 * pace.gap()) as u64;
        let mut now = ports::now().0;
        while now < due {
            now = ports::now().0;
        }
        moments.push(now);
    }
    moments
}

fn precision(moments: &[u64], pace: Pace) -> Precision {
    let gap = pace.gap();
    let gaps = moments.iter().zip(moments.iter().skip(1)).map(|(one, next)| next.saturating_sub(*one) as f64);
    let mut errors: Vec<f64> = gaps.map(|found| (found - gap).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors.get((errors.len() as f64 * share) as usize).or(errors.last()).copied();
    let span = moments.first().zip(moments.last()).map_or(0, |(first, last)| last - first);
    Precision {
        departures: moments.len(),
        rate: errors.len() as f64 * gap / (span as f64).max(1.0),
        errors: [0.5, 0.9, 0.99, 1.0].map(|share| at(share).unwrap_or(f64::NAN)),
        exact: errors.iter().filter(|error| **error < 1e3).count() as f64 / errors.len().max(1) as f64,
    }
}

/// Nanoseconds of processor time that the threads of this process have had so far.
fn processor_time() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    times.filter_map(|text| text.split_whitespace().next()?.parse::<f64>().ok()).sum()
}

/// Account of the departures, shared by both ports.
struct Account {
    sent: AtomicU64,
    /// Moments of the first departures, by the clock of ports.
    moments: Vec<AtomicU64>,
}

/// Port that frames come by, as long as few wait.
struct Source {
    fd: WakeUp,
    packet: Vec<u8>,
    given: u64,
    /// Number of frames below which it has more, up to half as many again.
    enough: u64,
    is_filling: bool,
    account: Arc<Account>,
}

impl Source {
    fn new(pace: Pace, account: Arc<Account>) -> io::Result<Source> {
        let headers = 42;
        let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4(Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(203, 0, 113, 9))
            .udp(1_000, 2_000)
            .payload(&vec![0; (pace.bytes as usize).saturating_sub(headers)])
            .to_vec();
        let enough = pace.waiting();
        Ok(Source { fd: WakeUp::new()?, packet, given: 0, enough, is_filling: true, account })
    }
}

impl Port for Source {
    fn name(&self) -> &str {
        "lan"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let waiting = self.given.saturating_sub(self.account.sent.load(Ordering::Relaxed));
        let enough = self.enough;
        self.is_filling = waiting < enough || self.is_filling && waiting < enough * 3 / 2;
        if !self.is_filling {
            return Ok(Received::Nothing);
        }
        let mut count = 0;
        while count < MOST {
            let Some(frame) = batch.extend_from(pool) else { break };
            let _ = frame.fill(&self.packet);
            frame.meta.received = ports::now();
            count += 1;
        }
        self.given += count as u64;
        Ok(if count == 0 { Received::Nothing } else { Received::Frames(count) })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        pool.put_all(batch.drain());
        Ok(())
    }
}

/// Port that discards what it is handed, and notes when.
struct Sink {
    fd: WakeUp,
    account: Arc<Account>,
}

impl Port for Sink {
    fn name(&self) -> &str {
        "wan"
    }

    fn receive(&mut self, _: &mut Batch, _: &mut Pool) -> Result<Received, PortError> {
        Ok(Received::Nothing)
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        let Account { sent, moments } = &*self.account;
        for frame in batch.drain() {
            let place = sent.fetch_add(1, Ordering::Relaxed);
            if let Some(moment) = moments.get(place as usize) {
                let Nanos(now) = ports::now();
                moment.store(now, Ordering::Relaxed);
            }
            pool.put(frame);
        }
        Ok(())
    }
}

impl Line for Source {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

impl Line for Sink {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_gaps() {
        // 1 us apart, but for one frame that is 300 ns late, and one 1 us.
        let pace = Pace { bytes: 125, overhead: 0, mbit: 1_000 };
        let moments = [0, 1_000, 2_300, 3_000, 4_000, 6_000, 6_000, 7_000];
        let Precision { departures, rate, errors, exact } = precision(&moments, pace);
        assert_eq!((departures, rate), (8, 1.0));
        assert_eq!(errors, [300.0, 1_000.0, 1_000.0, 1_000.0]);
        assert_eq!(exact, 5.0 / 7.0);
    }

    /// Others may have the core for a while, and what is late then is made up for; but no frame departs before its time.
    #[test]
    fn frames_depart_no_faster_than_the_rate() {
        let pace = Pace { bytes: 242, overhead: 0, mbit: 25 };
        let before = Instant::now();
        let Outcome { worker, plain, .. } = measure(pace, Duration::from_millis(200)).expect("it runs");
        let took = before.elapsed().as_nanos() as f64;
        assert_eq!([worker.departures, plain.departures], [2_582; 2]);
        let gaps = WARM_UP + worker.departures - 1 + plain.departures - 1;
        assert!(took >= gaps as f64 * pace.gap(), "{took} ns for {gaps} times {}", pace.gap());
    }
}
