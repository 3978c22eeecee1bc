//! Packets per second of one core through the whole pipeline, frames from memory, no I/O.
//!
//! A scenario is a policy and flows through it. Each flow's first packet sets it up; what comes out is turned
//! round into the packet that answers it. Then frames of both directions, in an order drawn at random, lie in
//! one ring of memory, from which they are copied into slots (that is the reception), taken through the
//! pipeline in batches of 64, taken out of the queues, and their slots given back.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tally::{Count, NoTally};
use wire::build;
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{Frame, PortId};

use super::in_memory::{self, Arrival, BenchError, Gateway};

mod rule;

/// Processing of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Routes only, stateless.
    Forward,
    /// A stateful firewall.
    Firewall,
    /// A stateful firewall that translates source address and port.
    Napt,
}

/// Length of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Several rounds by the clock, of which the median counts.
    Rounds,
    /// A number of packets, once: each run executes the same, as a count of instructions needs.
    Packets(u64),
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Flows.
    pub(crate) flows: u32,
    /// Number of rules beside those of the scenario.
    pub(crate) rules: u32,
    /// Millions of packets a second, the median of the rounds.
    pub(crate) mpps: f64,
    /// Instructions a packet, as the stages tally them.
    pub(crate) instructions: f64,
    /// Flow set-ups, in millions a second.
    pub(crate) setups: f64,
    /// Bytes of memory for flows, their index and their translations.
    pub(crate) memory: usize,
}

/// Bytes of a frame.
const LEN: usize = 64;

/// Rounds, of which the median counts.
const ROUNDS: usize = 5;

/// Minimum duration of a round.
const ROUND: Duration = Duration::from_millis(300);

/// Frames in the ring: 16 MiB, so that the load itself streams from memory rather than from the first cache.
const RING: usize = 1 << 18;

/// Frames over which instructions are counted.
const SAMPLE: usize = 4_096;

impl Scenario {
    /// The policy, for that many flows. It has what an edge gateway's has: zones, a route to the internet, and
    /// ten rules before the one that accepts.
    fn policy(self, flows: u32) -> String {
        let mut text = String::new();
        let stateless = self == Scenario::Forward;
        if stateless {
            text.push_str("mode = \"stateless\"\n");
        }
        text.push_str(concat!(
            "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/24\"]\n",
            "mac = \"02:00:00:00:00:01\"\n",
            "[interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n",
            "mac = \"02:00:00:00:00:02\"\n",
        ));
        if stateless {
            // A core router's: its packets come from anywhere.
            text = text.replace("\"\n[interface.wan]", "\"\nsource-check = \"off\"\n[interface.wan]");
            text.push_str("source-check = \"off\"\n[default]\n\"any > any\" = \"accept\"\n");
        }
        text.push_str("[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n");
        text.push_str("[[route]]\nto = \"10.0.0.0/8\"\nvia = \"10.0.0.2\"\n");
        if stateless {
            for destination in 0..FORWARD_DESTINATIONS {
                let (b, c) = (destination / 256, destination % 256);
                text.push_str(&format!(
                    "[[route]]\nto = \"20.{b}.{c}.0/24\"\nvia = \"203.0.113.{}\"\n",
                    destination % 200 + 10
                ));
            }
            return text;
        }
        text.push_str(&format!("[limit]\nflows = {}\n", flows.max(1)));
        for rule in 0..10 {
            text.push_str(&format!(
                "[[rule]]\nname = \"service-{rule}\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\n\
                 destination = \"198.51.{rule}.0/24\"\ndport = {}\naction = \"accept\"\n",
                1000 + rule
            ));
        }
        text.push_str("[[rule]]\nname = \"out\"\nfrom = \"lan\"\nto = \"wan\"\naction = \"accept\"\n");
        if self == Scenario::Napt {
            text.push_str(
                "[[nat]]\nname = \"napt\"\nkind = \"source\"\nfrom = \"lan\"\nto = \"wan\"\n\
                 source = \"10.0.0.0/8\"\npool = [\"203.0.113.100-203.0.113.131\"]\n",
            );
        }
        text
    }
}

/// Destinations of the stateless scenario, a route each.
const FORWARD_DESTINATIONS: u32 = 1_000;

/// Measures a scenario with that many flows, and that many rules of mixed shape before its own: each packet meets them in
/// the stateless scenario, where packets are made for them; else the first of each flow. `progress` is told what is being done.
pub(crate) fn measure(
    scenario: Scenario,
    flows: u32,
    rules: u32,
    extent: Extent,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, BenchError> {
    let mut bench = Bench::new(scenario, flows, rules)?;
    progress("setting flows up");
    let mut firsts = match (scenario, rules) {
        (Scenario::Forward, 1..) => rule::packets(rules, flows),
        _ => Vec::new(),
    };
    firsts.extend((firsts.len() as u32..flows).map(|flow| first_packet(scenario, flow)));
    // Touched before the clock runs: the pages of the bench's own list are no part of setting flows up.
    let mut answers: Vec<Load> = firsts.clone();
    answers.clear();
    let started = Instant::now();
    bench.0.pass(&firsts, &mut NoTally, &mut |frame| answers.push(answer_to(frame)));
    let setups = f64::from(flows) / started.elapsed().as_secs_f64() / 1e6;
    if scenario != Scenario::Forward {
        bench.0.pass(&answers, &mut NoTally, &mut |_| ());
    }
    bench.0.check_all_passed()?;
    progress("laying out the load");
    let ring = ring(scenario, &firsts, &answers);
    drop((firsts, answers));
    progress("measuring");
    let mut count = Count::default();
    let sample = ring.len().min(SAMPLE);
    bench.0.pass(&ring[..sample], &mut count, &mut |_| ());
    let mpps = match extent {
        Extent::Rounds => {
            let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| bench.round(&ring)).collect();
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        }
        Extent::Packets(packets) => bench.exactly(packets, &ring),
    };
    bench.0.check_all_passed()?;
    Ok(Outcome {
        flows,
        rules,
        mpps,
        instructions: count.executed_total() as f64 / sample as f64,
        setups,
        memory: bench.0.shard.memory_bytes(),
    })
}

/// A frame, and the port it comes in by.
#[derive(Clone, Copy)]
struct Load {
    bytes: [u8; LEN],
    ingress: PortId,
}

impl Arrival for Load {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    fn ingress(&self) -> PortId {
        self.ingress
    }
}

/// A gateway that carries a scenario out.
struct Bench(Gateway);

impl Bench {
    fn new(scenario: Scenario, flows: u32, rules: u32) -> Result<Bench, BenchError> {
        let mut policy = in_memory::policy(&scenario.policy(flows))?;
        if rules > 0 {
            rule::add(&mut policy, rules)?;
        }
        Gateway::new(&policy).map(Bench)
    }

    /// Millions of packets a second over one round.
    fn round(&mut self, ring: &[Load]) -> f64 {
        let started = Instant::now();
        let mut packets = 0;
        while started.elapsed() < ROUND {
            self.0.pass(ring, &mut NoTally, &mut |_| ());
            packets += ring.len();
        }
        packets as f64 / started.elapsed().as_secs_f64() / 1e6
    }

    /// Millions of packets a second over exactly that many.
    fn exactly(&mut self, packets: u64, ring: &[Load]) -> f64 {
        let started = Instant::now();
        let mut left = packets;
        while left > 0 {
            let many = ring.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.0.pass(&ring[..many], &mut NoTally, &mut |_| ());
            left -= many as u64;
        }
        packets as f64 / started.elapsed().as_secs_f64() / 1e6
    }
}

/// The packet that a flow begins with: UDP, 64 bytes, from one of as many hosts as there are flows.
fn first_packet(scenario: Scenario, flow: u32) -> Load {
    let source = Ipv4Addr::from_bits(0x0a01_0000 + flow / FLOWS_PER_HOST);
    let destination = match scenario {
        Scenario::Forward => Ipv4Addr::from_bits(0x1400_0001 + (flow % FORWARD_DESTINATIONS) * 256),
        Scenario::Firewall | Scenario::Napt => Ipv4Addr::from_bits(0xc633_6400 + flow % 251 + 1),
    };
    let sport = (10_000 + flow % FLOWS_PER_HOST) as u16;
    let payload = [0x5a; LEN - 42];
    let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4(source, destination)
        .udp(sport, 443)
        .payload(&payload);
    let mut bytes = [0; LEN];
    // The lengths are constants that fit.
    let _ = packet.write(&mut bytes);
    Load { bytes, ingress: PortId(0) }
}

/// Flows of one inside host.
const FLOWS_PER_HOST: u32 = 16;

/// The packet that answers one that was sent: both ends swapped, which leaves all checksums right.
fn answer_to(frame: &Frame) -> Load {
    let mut bytes = [0; LEN];
    let sent = frame.bytes();
    bytes.copy_from_slice(sent.get(..LEN).unwrap_or(&[0; LEN]));
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[6..12].copy_from_slice(&sent[..6]);
    let mut swap = |first: usize, second: usize, len: usize| {
        for at in 0..len {
            bytes.swap(first + at, second + at);
        }
    };
    swap(26, 30, 4);
    swap(34, 36, 2);
    Load { bytes, ingress: PortId(1) }
}

/// The load in the order in which it comes: uniformly random over flows, and over both directions where there
/// are two.
fn ring(scenario: Scenario, firsts: &[Load], answers: &[Load]) -> Vec<Load> {
    let mut random = Random::new(7);
    let len = (2 * firsts.len()).clamp(RING, 4 * RING);
    (0..len)
        .map(|_| {
            let flow = random.below(firsts.len() as u64) as usize;
            let back = scenario != Scenario::Forward && random.chance(50);
            if back { answers[flow] } else { firsts[flow] }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_packets_that_were_asked_for_are_taken_through() {
        let mut bench = Bench::new(Scenario::Firewall, 10, 0).unwrap();
        let firsts: Vec<Load> = (0..10).map(|flow| first_packet(Scenario::Firewall, flow)).collect();
        // More than the load has, so that it comes round, and no multiple of a batch.
        bench.exactly(1_003, &firsts);
        assert_eq!(bench.0.shard.counters.received.frames, 1_003);
        bench.0.check_all_passed().unwrap();
    }

    #[test]
    fn each_scenario_forwards_every_frame() {
        for scenario in [Scenario::Forward, Scenario::Firewall, Scenario::Napt] {
            for rules in [0, 300] {
                let outcome = measure(scenario, 100, rules, Extent::Packets(1_000), &mut |_| ()).unwrap();
                assert_eq!((outcome.flows, outcome.rules), (100, rules));
                assert!(outcome.instructions > 0.0, "{scenario:?}");
            }
        }
    }
}
