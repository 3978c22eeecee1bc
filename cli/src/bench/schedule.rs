//! Packets per second of one core through a scheduler alone: enqueue and dequeue, frames from memory, no I/O.
//!
//! A port of 100 Gbit/s has subscribers, each of 16 queues: four of each of four strict priorities, served by deficit round robin.
//! As many packets wait as there are queues, of random subscribers and code points; each turn brings a burst of 32 and takes as
//! many out, which are used again. DPDK's rte_sched does the same beside, where DPDK is (`bench/peers/sched.c`).

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dataplane::egress::{Ends, Next};
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::replay::SEED;
use dataplane::shard::Setup;
use dataplane::tables::Address;
use dataplane::{Shard, Tables, Verdict};
use tally::{Count, NoTally, Tally};
use wire::build;
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{Family, Frame, Nanos, Pool, PortId};

use super::in_memory::{self, BenchError};
use super::peer;

/// Environment variable with the path of rte_sched's program.
pub(crate) const VARIABLE: &str = "WIRERATE_RTE_SCHED";

/// Its name on the PATH.
const PROGRAM: &str = "wirerate-rte-sched";

/// Queues of a subscriber.
const QUEUES: u32 = 16;

/// Packets that come, and go, at once.
const BURST: usize = 32;

/// Rounds of each, of which the medians count.
const ROUNDS: usize = 5;

/// Bursts over which instructions are counted.
const SAMPLE: u64 = 128;

/// Duration of a round.
const ROUND: Duration = Duration::from_millis(400);

/// Time of a burst of frames of 64 bytes, counted as 84, at 100 Gbit/s.
const STEP: Nanos = Nanos(BURST as u64 * 84 * 8 / 100);

/// Result of a measurement.
pub(crate) struct Outcome {
    /// Subscribers.
    pub(crate) subscribers: u32,
    /// Queues of all subscribers.
    pub(crate) queues: u32,
    /// Millions of packets a second, enqueued and dequeued.
    pub(crate) mpps: f64,
    /// Instructions a packet, as the tree tallies them.
    pub(crate) instructions: f64,
    /// Likewise of rte_sched.
    pub(crate) peer_mpps: Option<f64>,
}

/// Measures the scheduler with that many subscribers, by turns with rte_sched. Why that is not there goes to `note`.
pub(crate) fn measure(subscribers: u32, note: &mut dyn FnMut(String)) -> Result<Outcome, BenchError> {
    let mut bench = Bench::new(subscribers)?;
    let mut peer = match Peer::start(subscribers) {
        Ok(peer) => Some(peer),
        Err(why) => {
            note(format!("rte_sched is left out: {why}"));
            None
        }
    };
    let (mut own, mut others) = (Vec::new(), Vec::new());
    bench.round(ROUND / 4)?;
    let mut count = Count::default();
    bench.bursts(SAMPLE, &mut count)?;
    for _ in 0..ROUNDS {
        own.push(bench.round(ROUND)?);
        others.extend(peer.as_mut().and_then(Peer::round));
    }
    Ok(Outcome {
        subscribers,
        queues: subscribers * QUEUES,
        mpps: median(&mut own).unwrap_or(0.0),
        instructions: count.executed_total() as f64 / (SAMPLE * BURST as u64) as f64,
        peer_mpps: median(&mut others),
    })
}

fn median(rounds: &mut [f64]) -> Option<f64> {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied()
}

struct Bench {
    shard: Shard,
    random: Random,
    subscribers: u32,
    now: Nanos,
    /// Frames that do not wait.
    free: Vec<Frame>,
    // Dropped after the frames.
    _pool: Pool,
}

fn policy(subscribers: u32) -> String {
    let mut text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/8\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nrate = \"100 Gbit/s\"\n\
         [limit]\nflows = 16\nqueue = {}\n\
         [[queue]]\nname = \"port\"\non = \"wan\"\n\
         [[queue]]\nname = \"subscriber\"\nin = \"port\"\nper = \"source\"\ninstances = {subscribers}\n",
        (subscribers * QUEUES * 2).max(1_024)
    );
    for queue in 0..QUEUES {
        let phb = if queue == 0 { String::new() } else { format!("phb = {queue}\n") };
        let priority = queue / 4;
        text += &format!(
            "[[queue]]\nname = \"queue-{queue}\"\nin = \"subscriber\"\npriority = {priority}\nlimit = 64\n{phb}"
        );
    }
    text
}

impl Bench {
    fn new(subscribers: u32) -> Result<Bench, BenchError> {
        let policy = in_memory::policy(&policy(subscribers))?;
        let tables = Tables::compile(&policy, 1).map_err(|error| BenchError::Policy(error.to_string()))?;
        let now = Nanos::from_secs(1_000);
        let setup = Setup { seed: SEED, now, resolve: Resolve::Assume, share: Share::WHOLE };
        let shard = Shard::new(&tables, setup).map_err(BenchError::Shard)?;
        let backlog = (subscribers * QUEUES) as usize;
        let mut pool = Pool::new((backlog + BURST) as u32, 2_048).map_err(BenchError::Pool)?;
        let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4(Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(203, 0, 113, 9))
            .udp(1_000, 2_000)
            .payload(&[0; 22])
            .to_vec();
        let mut free = Vec::with_capacity(backlog + BURST);
        while let Some(mut frame) = pool.take() {
            let _ = frame.fill(&packet);
            frame.meta.network = 14;
            frame.meta.family = Family::V4;
            frame.meta.fate = Verdict::Forwarded.to_fate();
            frame.meta.egress = PortId(1);
            free.push(frame);
        }
        let random = Random::new(7);
        let mut bench = Bench { shard, random, subscribers, now, free, _pool: pool };
        for _ in 0..backlog {
            bench.enqueue(&mut NoTally);
        }
        Ok(bench)
    }

    /// Enqueues a free frame as a packet of a random subscriber and code point.
    #[inline(always)]
    fn enqueue<T: Tally>(&mut self, tally: &mut T) {
        let Some(mut frame) = self.free.pop() else { return };
        let drawn = self.random.next_u64();
        let subscriber = (drawn as u32) % self.subscribers;
        if let Some(field) = frame.bytes_mut().get_mut(15) {
            *field = ((drawn >> 32) as u8 % QUEUES as u8) << 2;
        }
        frame.meta.received = self.now;
        let ends = Ends::of_source(Address::v4(0x0a01_0000 + subscriber));
        self.shard.enqueue(frame, &ends, tally);
    }

    /// Millions of packets a second over a round.
    fn round(&mut self, time: Duration) -> Result<f64, BenchError> {
        let started = Instant::now();
        let mut packets = 0_u64;
        while started.elapsed() < time {
            self.bursts(64, &mut NoTally)?;
            packets += 64 * BURST as u64;
        }
        Ok(packets as f64 / started.elapsed().as_secs_f64() / 1e6)
    }

    /// Lets so many bursts come and go.
    #[inline(always)]
    fn bursts<T: Tally>(&mut self, count: u64, tally: &mut T) -> Result<(), BenchError> {
        for _ in 0..count {
            for _ in 0..BURST {
                self.enqueue(tally);
            }
            self.now += STEP;
            let mut taken = 0;
            while taken < BURST {
                match self.shard.next_tallied(PortId(1), self.now, tally) {
                    Next::Frame(frame, _) => {
                        self.free.push(frame);
                        taken += 1;
                    }
                    // A packet that found its queue full is replaced, and does not count.
                    Next::Dropped(frame, ..) => {
                        self.free.push(frame);
                        self.enqueue(tally);
                    }
                    Next::Wait(until) => self.now = until,
                    Next::Empty => return Err(BenchError::Lost(1)),
                }
            }
        }
        Ok(())
    }
}

/// rte_sched's program, waiting for its turns.
struct Peer(peer::Process);

/// Memory that rte_sched needs.
const MEMORY: peer::Memory = peer::Memory { huge_pages: 256, most_mebibytes: 1_024 };

/// Time within which rte_sched answers.
const PATIENCE: Duration = Duration::from_secs(30);

impl Peer {
    fn start(subscribers: u32) -> Result<Peer, String> {
        if !subscribers.is_power_of_two() {
            return Err("its number of subscribers is a power of two".to_owned());
        }
        let program = peer::program(VARIABLE, PROGRAM, "sched").ok_or_else(|| {
            format!("neither {VARIABLE} nor {PROGRAM} on the PATH is its program, and DPDK to build it is not here (Debian: libdpdk-dev pkg-config)")
        })?;
        let mut peer = Peer(peer::Process::start(&program, MEMORY, &[subscribers.to_string()])?);
        match peer.0.answer(PATIENCE) {
            Some(_) => Ok(peer),
            None => Err("it ended; run it by itself to see why".to_owned()),
        }
    }

    /// Millions of packets a second of a round.
    fn round(&mut self) -> Option<f64> {
        self.0.ask(&ROUND.as_secs_f64().to_string())?;
        self.0.answer(PATIENCE)?["mpps"].as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_through_the_scheduler() {
        let mut bench = Bench::new(8).expect("a sound policy");
        assert!(bench.round(Duration::from_millis(5)).expect("packets come and go") > 0.0);
        assert_eq!(bench.free.len(), BURST);
        assert_eq!(bench.shard.egress.lengths().sum::<usize>(), 8 * QUEUES as usize);
    }
}
