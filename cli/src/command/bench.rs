//! `wirerate bench`: how fast is it here?

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use classify::Classify;
use esp::Esp;

use crate::bench::forward::{self, Extent, Outcome, Scenario};
use crate::bench::pace::{self, Pace, Precision};
use crate::bench::routes;
use crate::bench::schedule;
use crate::bench::workers::{self, Arrangement};
use crate::failure::Failure;
use crate::{screen, with_exit_codes};

mod classify;
mod esp;

/// Measure the speed of one core, frames from memory, no I/O.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// The whole pipeline: 64-byte frames of established flows, in random order, both directions.
    Forward(Forward),
    /// Look-ups in routing tables like the Internet's, 64 destinations at a time.
    Routes(Routes),
    Classify(Classify),
    Esp(Esp),
    Schedule(Schedule),
    Pace(Departures),
    Workers(Workers),
}

/// Precision of departures: the gateway's worker and a queue of a rate, into a port that discards. Takes a core.
///
/// Beside it a plain loop reads the clock until the same moments: what it is late by is the machine's.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench pace
  wirerate bench pace --bytes 1500 --mbit 100 --json"))]
struct Departures {
    /// Length of the frames, without check sequence.
    #[arg(long, value_name = "N", requires = "mbit", default_value_t = 242, value_parser = clap::value_parser!(u32).range(60..=1_514))]
    bytes: u32,
    /// Bytes that count beside each frame: 24 are preamble, check sequence and gap of Ethernet.
    #[arg(long, value_name = "N", requires = "mbit", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000))]
    overhead: u32,
    /// Rate in Mbit/s; may be given several times. Without it: 242 bytes at 1, 5 and 25, and 60 and 24 at 1000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mbit: Vec<u32>,
    /// Seconds to measure each.
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = classify::seconds)]
    seconds: f64,
    /// Print an array of `{bytes, overhead, mbit, core, worker, plain}`, the last two with the rate in parts of that to be kept, and
    /// the errors of the times between departures in nanoseconds.
    #[arg(long)]
    json: bool,
}

/// Several workers of a live gateway: each with flows of its own, translated; and two with one tree of queues: packets that are scheduled
/// where they are decided, and packets that are handed off to the worker that serves the tree. Takes a core for each worker, two for the
/// tree.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench workers
  wirerate bench workers --workers 1 --workers 2 --workers 8 --json"))]
struct Workers {
    /// Number of workers without a tree; may be given several times. Without it: 1 and 2, and one tree.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Vec<u16>,
    /// Print an array of `{arrangement, received_mpps, sent_mpps}`.
    #[arg(long)]
    json: bool,
}

/// Enqueue and dequeue through a scheduler of subscribers with 16 queues each, 64-byte frames; beside it DPDK's rte_sched.
#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench schedule
  wirerate bench schedule --subscribers 64 --subscribers 4096 --json"))]
struct Schedule {
    /// Number of subscribers; may be given several times (64 and 4096 if it is not). rte_sched has powers of two alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    subscribers: Vec<u32>,
    /// Print an array of `{subscribers, queues, mpps, instructions_per_packet, peer_mpps}`.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench forward
  wirerate bench forward --flows 1000 --flows 1000000 --scenario firewall
  wirerate bench forward --scenario forward --flows 100000 --rules 1000
  wirerate bench forward --flows 1000 --json | jq '.[0].mpps'"))]
struct Forward {
    /// Number of flows; may be given several times (1, 1000, 100000 and 1000000 if it is not).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    flows: Vec<u32>,
    /// What is done with the packets.
    #[arg(long, value_enum, default_value_t = Kind::Napt)]
    scenario: Kind,
    /// Rules of mixed shape before those of the scenario, a third each as `wirerate generate rules` makes them.
    ///
    /// In the scenario `forward` every packet meets them, and packets are made for them; else the first of each flow.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    rules: u32,
    /// Measure over exactly so many packets, once: for profilers that count instructions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Print an array of `{flows, mpps, instructions_per_packet, ...}`.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate bench routes
  wirerate bench routes --v4 10000 --v6 0 --json"))]
struct Routes {
    /// Prefixes in the IPv4 table; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 900_000,
          value_parser = clap::value_parser!(u32).range(..=MOST_PREFIXES))]
    v4: u32,
    /// Prefixes in the IPv6 table; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u32).range(..=MOST_PREFIXES))]
    v6: u32,
    /// Write the tables and the destinations to files of this directory, and measure nothing.
    ///
    /// v4-prefixes.bin has 12 bytes a prefix: address as a number, length, next hop. v4-destinations.bin has
    /// 4 bytes each. v6-prefixes.bin has 24 bytes a prefix: 16 of address in the order of the wire, length,
    /// next hop. v6-destinations.bin has 16 bytes each. Numbers are little-endian, of 4 bytes.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// Print an array of `{family, prefixes, build_s, lookups_mps, memory_bytes, sum}`.
    #[arg(long)]
    json: bool,
}

/// The most prefixes that tables are made of: past this there is little room left to draw new ones from.
const MOST_PREFIXES: i64 = 2_000_000;

/// Scenarios on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Routes only, stateless, to 1,000 destinations.
    Forward,
    /// A stateful firewall.
    Firewall,
    /// A stateful firewall that translates source address and port.
    Napt,
}

impl Bench {
    /// Runs it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Forward(forward) => forward.run(),
            What::Routes(routes) => routes.run(),
            What::Classify(classify) => classify.run(),
            What::Esp(esp) => esp.run(),
            What::Schedule(schedule) => schedule.run(),
            What::Pace(departures) => departures.run(),
            What::Workers(workers) => workers.run(),
        }
    }
}

impl Forward {
    fn run(self) -> Result<(), Failure> {
        let scenario = match self.scenario {
            Kind::Forward => Scenario::Forward,
            Kind::Firewall => Scenario::Firewall,
            Kind::Napt => Scenario::Napt,
        };
        let flows = if self.flows.is_empty() { vec![1, 1_000, 100_000, 1_000_000] } else { self.flows };
        let extent = self.packets.map_or(Extent::Rounds, Extent::Packets);
        let mut outcomes = Vec::with_capacity(flows.len());
        for count in flows {
            let mut progress = |doing: &str| screen::doing(&format_args!("{count} flows: {doing}"));
            let outcome = forward::measure(scenario, count, self.rules, extent, &mut progress);
            outcomes.push(outcome?);
        }
        let mut out = screen::out();
        if self.json {
            let rows: Vec<_> = outcomes.iter().map(row).collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
        } else {
            writeln!(
                out,
                "{:>10} {:>8} {:>14} {:>12} {:>10}",
                "flows", "Mpps", "instr/packet", "M setups/s", "MiB"
            )?;
            for outcome in &outcomes {
                writeln!(
                    out,
                    "{:>10} {:>8.2} {:>14.0} {:>12.2} {:>10.1}",
                    outcome.flows,
                    outcome.mpps,
                    outcome.instructions,
                    outcome.setups,
                    outcome.memory as f64 / f64::from(1 << 20),
                )?;
            }
        }
        Ok(())
    }
}

impl Schedule {
    fn run(self) -> Result<(), Failure> {
        let counts = if self.subscribers.is_empty() { vec![64, 4_096] } else { self.subscribers };
        let mut outcomes = Vec::with_capacity(counts.len());
        for subscribers in counts {
            screen::doing(&format_args!("{subscribers} subscribers: measuring"));
            outcomes.push(schedule::measure(subscribers, &mut |why| screen::note(&why))?);
        }
        let mut out = screen::out();
        if self.json {
            let rows: Vec<_> = outcomes
                .iter()
                .map(|outcome| {
                    json!({
                        "subscribers": outcome.subscribers, "queues": outcome.queues,
                        "mpps": outcome.mpps, "instructions_per_packet": outcome.instructions,
                        "peer_mpps": outcome.peer_mpps,
                    })
                })
                .collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
            return Ok(());
        }
        writeln!(
            out,
            "{:>12} {:>10} {:>8} {:>12} {:>16}",
            "subscribers", "queues", "Mpps", "instructions", "rte_sched Mpps"
        )?;
        for schedule::Outcome { subscribers, queues, mpps, instructions, peer_mpps } in &outcomes {
            let peer = peer_mpps.map_or_else(|| "-".to_owned(), |mpps| format!("{mpps:.2}"));
            writeln!(out, "{subscribers:>12} {queues:>10} {mpps:>8.2} {instructions:>12.0} {peer:>16}")?;
        }
        Ok(())
    }
}

impl Departures {
    fn run(self) -> Result<(), Failure> {
        let (bytes, overhead) = (self.bytes, self.overhead);
        let paces = if self.mbit.is_empty() {
            Pace::DEFAULT.to_vec()
        } else {
            self.mbit.iter().map(|mbit| Pace { bytes, overhead, mbit: *mbit }).collect()
        };
        let mut outcomes = Vec::with_capacity(paces.len());
        for pace in paces {
            screen::doing(&format_args!("{} bytes at {} Mbit/s: measuring", pace.bytes, pace.mbit));
            outcomes.push(pace::measure(pace, Duration::from_secs_f64(self.seconds))?);
        }
        let mut out = screen::out();
        if self.json {
            let precision = |found: &Precision| {
                let [median, p90, p99, longest] = found.errors;
                json!({
                    "departures": found.departures, "rate": found.rate, "within_1us": found.exact,
                    "p50_ns": median, "p90_ns": p90, "p99_ns": p99, "longest_ns": longest,
                })
            };
            let row = |outcome: &pace::Outcome| {
                let Pace { bytes, overhead, mbit } = outcome.pace;
                json!({
                    "bytes": bytes, "overhead": overhead, "mbit": mbit, "core": outcome.core,
                    "worker": precision(&outcome.worker), "plain": precision(&outcome.plain),
                })
            };
            let rows: Vec<_> = outcomes.iter().map(row).collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
            return Ok(());
        }
        writeln!(
            out,
            "{:>6} {:>7}  {:<10} {:>10} {:>11} {:>9} {:>9} {:>9} {:>10} {:>6}",
            "bytes", "Mbit/s", "", "departures", "rate", "p50, us", "p90, us", "p99, us", "longest", "core"
        )?;
        for pace::Outcome { pace: Pace { bytes, mbit, .. }, worker, core, plain } in &outcomes {
            let core = format!("{:.1}%", core * 100.0);
            for (name, found, core) in [("worker", worker, core.as_str()), ("plain loop", plain, "")] {
                let [median, p90, p99, longest] = found.errors.map(|error| error / 1e3);
                writeln!(
                    out,
                    "{bytes:>6} {mbit:>7}  {name:<10} {:>10} {:>10.3}% {median:>9.3} {p90:>9.3} {p99:>9.3} {longest:>10.1} {core:>6}",
                    found.departures,
                    found.rate * 100.0,
                )?;
            }
        }
        Ok(())
    }
}

impl Routes {
    fn run(self) -> Result<(), Failure> {
        let (v4, v6) = (self.v4 as usize, self.v6 as usize);
        if let Some(directory) = self.dump {
            return routes::dump(&directory, v4, v6);
        }
        let mut outcomes = Vec::new();
        if v4 > 0 {
            screen::doing(&format_args!("{v4} IPv4 prefixes: measuring"));
            outcomes.push(routes::measure4(v4)?);
        }
        if v6 > 0 {
            screen::doing(&format_args!("{v6} IPv6 prefixes: measuring"));
            outcomes.push(routes::measure6(v6)?);
        }
        let mut out = screen::out();
        if self.json {
            let rows: Vec<_> = outcomes.iter().map(routes_row).collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
            return Ok(());
        }
        writeln!(
            out,
            "{:>6} {:>9} {:>9} {:>12} {:>8}",
            "family", "prefixes", "build, s", "M look-ups/s", "MiB"
        )?;
        for outcome in &outcomes {
            writeln!(
                out,
                "{:>6} {:>9} {:>9.3} {:>12.1} {:>8.1}",
                format!("IPv{}", outcome.family),
                outcome.prefixes,
                outcome.build.as_secs_f64(),
                outcome.lookups,
                outcome.memory as f64 / f64::from(1 << 20),
            )?;
        }
        Ok(())
    }
}

fn routes_row(outcome: &routes::Outcome) -> serde_json::Value {
    json!({
        "family": outcome.family,
        "prefixes": outcome.prefixes,
        "build_s": outcome.build.as_secs_f64(),
        "lookups_mps": outcome.lookups,
        "memory_bytes": outcome.memory,
        "sum": outcome.sum,
    })
}

fn row(outcome: &Outcome) -> serde_json::Value {
    json!({
        "flows": outcome.flows,
        "rules": outcome.rules,
        "mpps": outcome.mpps,
        "instructions_per_packet": outcome.instructions,
        "setups_mps": outcome.setups,
        "memory_bytes": outcome.memory,
    })
}

impl Workers {
    fn run(self) -> Result<(), Failure> {
        let mut outcomes = Vec::new();
        let mut arrangements = Vec::new();
        let many: &[u16] = if self.workers.is_empty() { &[1, 2] } else { &self.workers };
        arrangements.extend(many.iter().map(|workers| Arrangement::of_owners(*workers)));
        if self.workers.is_empty() {
            arrangements.extend(Arrangement::of_a_tree());
        }
        for arrangement in arrangements {
            screen::doing(&format_args!("{}: measuring", arrangement.name));
            let outcome = workers::measure(&arrangement)?;
            outcomes.push((arrangement.name, outcome));
        }
        let mut out = screen::out();
        if self.json {
            let row = |(name, outcome): &(String, workers::Outcome)| {
                let workers::Outcome { received, sent } = outcome;
                json!({ "arrangement": name, "received_mpps": received, "sent_mpps": sent })
            };
            let rows: Vec<_> = outcomes.iter().map(row).collect();
            writeln!(out, "{}", serde_json::Value::from(rows))?;
            return Ok(());
        }
        writeln!(out, "{:<16} {:>14} {:>10}", "arrangement", "received Mpps", "sent Mpps")?;
        for (name, workers::Outcome { received, sent }) in &outcomes {
            writeln!(out, "{name:<16} {received:>14.2} {sent:>10.2}")?;
        }
        Ok(())
    }
}
