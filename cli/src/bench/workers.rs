//! Packets per second of several workers of a live gateway: each with the flows that it owns, or two with one tree of queues, whose packets
//! are scheduled where they are decided, or handed off to the worker that serves the tree. Frames are from memory, no I/O; the workers'
//! loops, channels and pools are those of the gateway.
//!
//! Sources bring as many packets as workers take, so what is received beyond what is sent has been dropped: where packets are handed
//! off, what is received is what the one worker can decide on and hand off, and what is sent is what the other can schedule and send.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::Tables;
use dataplane::flow::SteeringTable;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::replay::SEED;
use dataplane::shard::Setup;
use dataplane::tables::Address;
use gateway::clock::Clock;
use gateway::worker::{Attachment, Command, CommandSender, Exchange, Parts, Shared, Worker, command_channel};
use policy::model::TreeWorkers;
use ports::{Line, Statistics};
use wire::build;
use wire::ethernet::Mac;
use wire::{Batch, Pool, Port, PortError, Received};

use super::in_memory::{self, BenchError};

/// Rounds of each arrangement, of which the medians count.
const ROUNDS: usize = 5;

/// Duration of a round.
const ROUND: Duration = Duration::from_millis(400);

/// Hosts of each worker.
const HOSTS: usize = 16;

/// Flows of each host.
const FLOWS: u16 = 16;

/// Slots of a worker's pool.
const SLOTS: u32 = 16_384;

/// Workers, and places where packets come and are scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrangement {
    /// Name.
    pub(crate) name: String,
    workers: u16,
    /// Workers that packets come to.
    receivers: Vec<usize>,
    /// Workers of the tree of queues; `None` where packets are translated and there is no tree.
    tree: Option<TreeWorkers>,
}

impl Arrangement {
    /// The arrangements of one tree.
    pub(crate) fn of_a_tree() -> [Arrangement; 4] {
        let tree = |name: &str, workers, receivers: &[usize], tree| Arrangement {
            name: format!("tree, {name}"),
            workers,
            receivers: receivers.to_vec(),
            tree: Some(tree),
        };
        [
            tree("one worker", 1, &[0], TreeWorkers::One),
            tree("handed off", 2, &[1], TreeWorkers::One),
            tree("one of two", 2, &[0, 1], TreeWorkers::One),
            tree("divided", 2, &[0, 1], TreeWorkers::Divided),
        ]
    }

    /// So many workers, each of which receives packets of its own flows, and translates them; no tree.
    pub(crate) fn of_owners(workers: u16) -> Arrangement {
        let name = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
        Arrangement { name, workers, receivers: (0..usize::from(workers)).collect(), tree: None }
    }
}

/// Result of a measurement.
pub(crate) struct Outcome {
    /// Millions of packets received a second, by all workers together.
    pub(crate) received: f64,
    /// Millions of packets sent a second.
    pub(crate) sent: f64,
}

/// Measures an arrangement.
pub(crate) fn measure(arrangement: &Arrangement) -> Result<Outcome, BenchError> {
    let mut bench = Bench::new(arrangement)?;
    bench.round(ROUND / 2);
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| bench.round(ROUND)).collect();
    bench.stop();
    rounds.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (received, sent) = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    Ok(Outcome { received, sent })
}

/// Frames that have come and gone.
#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
}

/// One worker's end of an interface: frames from memory, if there are any, and nothing behind.
struct Memory {
    /// Packets received, over and over.
    frames: Vec<Vec<u8>>,
    next: usize,
    counts: Arc<Counts>,
    /// Always readable.
    file: File,
}

impl Port for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        let before = batch.len();
        while !self.frames.is_empty() {
            let Some(frame) = batch.extend_from(pool) else { break };
            let _ = frame.fill(&self.frames[self.next]);
            self.next = if self.next + 1 == self.frames.len() { 0 } else { self.next + 1 };
        }
        let many = batch.len() - before;
        self.counts.received.fetch_add(many as u64, Ordering::Relaxed);
        Ok(if many == 0 { Received::Nothing } else { Received::Frames(many) })
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        self.counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        pool.put_all(batch.drain());
        Ok(())
    }
}

impl Line for Memory {
    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

struct Bench {
    commands: Vec<CommandSender>,
    threads: Vec<thread::JoinHandle<()>>,
    counts: Vec<Arc<Counts>>,
}

fn policy(tree: Option<TreeWorkers>, workers: u16) -> String {
    let flows = u32::from(workers) * 4_096;
    let base = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/8\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
         [default]\n\"lan > wan\" = \"accept\"\n[limit]\nflows = {flows}\n"
    );
    let workers = match tree {
        None => {
            return base
                + "[[nat]]\nname = \"napt\"\nkind = \"source\"\nfrom = \"lan\"\nto = \"wan\"\n\
                   pool = [\"203.0.113.100-203.0.113.131\"]\n";
        }
        Some(TreeWorkers::One) => "one",
        Some(TreeWorkers::Divided) => "divided",
    };
    base + &format!(
        "[[queue]]\nname = \"port\"\non = \"wan\"\nrate = \"1 Tbit/s\"\nworkers = \"{workers}\"\n\
         [[queue]]\nname = \"voice\"\nin = \"port\"\nphb = \"ef\"\n\
         [[queue]]\nname = \"rest\"\nin = \"port\"\npriority = 1\nscheduler = \"fq\"\ndrop = \"codel\"\n"
    )
}

impl Bench {
    fn new(arrangement: &Arrangement) -> Result<Bench, BenchError> {
        let Arrangement { workers, tree, .. } = *arrangement;
        let policy = in_memory::policy(&policy(tree, workers))?;
        let compiled = Tables::compile(&policy, 1).map_err(|error| BenchError::Policy(error.to_string()))?;
        let tables = Arc::new(compiled);
        let steering = SteeringTable::new(workers, tables.limits.flows);
        let steering = Arc::new(steering.map_err(|error| BenchError::Policy(error.to_string()))?);
        let made: Vec<_> =
            (0..workers).map(|_| command_channel()).collect::<io::Result<_>>().map_err(BenchError::System)?;
        let wake_ups: Vec<_> = made.iter().map(|(_, commands)| commands.wake_up().clone()).collect();
        let clock = Clock::start();
        let mut bench = Bench { commands: Vec::new(), threads: Vec::new(), counts: Vec::new() };
        for ((number, (sender, commands)), exchange) in
            made.into_iter().enumerate().zip(Exchange::between(&wake_ups))
        {
            let share = Share::new(number as u16, workers).unwrap_or(Share::WHOLE);
            let setup = Setup { seed: SEED, now: clock.now(), resolve: Resolve::Assume, share };
            let shared = (workers > 1).then(|| Shared {
                steering: steering.clone(),
                clients: Arc::default(),
                exchange,
            });
            let pool = Pool::new(SLOTS, 2_048).map_err(BenchError::Pool)?;
            let (tables, events) = (tables.clone(), Box::new(|_| true));
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
            let worker = Worker::new(parts).map_err(BenchError::Shard)?;
            let counts = Arc::new(Counts::default());
            let own = |host: &u32| usize::from(steering.home_of_source(Address::v4(*host).bits)) == number;
            let hosts: Vec<u32> = (0x0a00_0010..).filter(own).take(HOSTS).collect();
            for name in ["lan", "wan"] {
                let comes = name == "lan" && arrangement.receivers.contains(&number);
                let line = Memory {
                    frames: if comes { frames(&hosts) } else { Vec::new() },
                    next: 0,
                    counts: counts.clone(),
                    file: File::open("/dev/null").map_err(BenchError::System)?,
                };
                let ends = Attachment { line: Some(Box::new(line)), punt: None, fast: None };
                sender.send(Command::Attach { interface: name.to_owned(), ends, done: None });
            }
            bench.threads.push(thread::spawn(move || drop(worker.work())));
            bench.commands.push(sender);
            bench.counts.push(counts);
        }
        Ok(bench)
    }

    /// Millions of packets received, and sent, a second.
    fn round(&mut self, time: Duration) -> (f64, f64) {
        let sum = |of: fn(&Counts) -> &AtomicU64| -> u64 {
            self.counts.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
        };
        let both = || [sum(|counts| &counts.received), sum(|counts| &counts.sent)];
        let (started, before) = (Instant::now(), both());
        thread::sleep(time);
        let (after, elapsed) = (both(), started.elapsed().as_secs_f64() * 1e6);
        ((after[0] - before[0]) as f64 / elapsed, (after[1] - before[1]) as f64 / elapsed)
    }

    fn stop(self) {
        let (to, reports) = channel();
        for commands in &self.commands {
            commands.send(Command::Report(to.clone()));
        }
        drop(to);
        for report in reports {
            assert!(report.counters.are_conserved(), "{:?}", report.counters);
        }
        for commands in &self.commands {
            commands.send(Command::Stop);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Packets of 64 bytes of these hosts' flows, one of each in turn.
fn frames(hosts: &[u32]) -> Vec<Vec<u8>> {
    let packet = |flow: u16, host: u32| {
        build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4(Ipv4Addr::from(host), Ipv4Addr::new(203, 0, 113, 9))
            .udp(1_000 + flow, 2_000)
            .payload(&[0; 22])
            .to_vec()
    };
    (0..FLOWS).flat_map(|flow| hosts.iter().map(move |host| packet(flow, *host))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True for each worker that sends packets, of an arrangement that runs until all that `expected` to do.
    fn senders(arrangement: &Arrangement, expected: &[bool]) -> Vec<bool> {
        let mut bench = Bench::new(arrangement).expect("a sound policy");
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            bench.round(Duration::from_millis(10));
            let senders: Vec<bool> =
                bench.counts.iter().map(|counts| counts.sent.load(Ordering::Relaxed) > 0).collect();
            if senders == expected || Instant::now() > until {
                bench.stop();
                return senders;
            }
        }
    }

    #[test]
    fn packets_are_sent_by_the_workers_of_the_tree() {
        let expected: [&[bool]; 4] = [&[true], &[true, false], &[true, false], &[true, true]];
        for (arrangement, expected) in Arrangement::of_a_tree().iter().zip(expected) {
            assert_eq!(senders(arrangement, expected), expected, "{arrangement:?}");
        }
    }

    #[test]
    fn each_worker_sends_packets_of_the_flows_that_it_owns() {
        for workers in [1, 3] {
            let expected = vec![true; usize::from(workers)];
            assert_eq!(senders(&Arrangement::of_owners(workers), &expected), expected, "{workers} workers");
        }
    }
}
