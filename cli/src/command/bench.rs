//! `wirerate bench`: how fast is it here?

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::bench::forward::{self, Outcome, Scenario};

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
}

#[derive(Args, Debug)]
struct Forward {
    /// How many flows; may be given several times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    flows: Vec<u32>,
    /// What is done with the packets.
    #[arg(long, value_enum, default_value_t = Kind::Napt)]
    scenario: Kind,
    /// Print an array of `{flows, mpps, instructions_per_packet, ...}`.
    #[arg(long)]
    json: bool,
}

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
    pub(crate) fn run(self) -> Result<(), forward::BenchError> {
        let What::Forward(forward) = self.what;
        forward.run()
    }
}

impl Forward {
    fn run(self) -> Result<(), forward::BenchError> {
        let scenario = match self.scenario {
            Kind::Forward => Scenario::Forward,
            Kind::Firewall => Scenario::Firewall,
            Kind::Napt => Scenario::Napt,
        };
        let flows = if self.flows.is_empty() { vec![1, 1_000, 100_000, 1_000_000] } else { self.flows };
        let mut outcomes = Vec::with_capacity(flows.len());
        for count in flows {
            let outcome =
                forward::measure(scenario, count, &mut |doing| eprintln!("{count} flows: {doing}"))?;
            outcomes.push(outcome);
        }
        if self.json {
            let rows: Vec<_> = outcomes.iter().map(row).collect();
            println!("{}", serde_json::Value::from(rows));
        } else {
            println!(
                "{:>10} {:>8} {:>14} {:>12} {:>10}",
                "flows", "Mpps", "instr/packet", "M setups/s", "MiB"
            );
            for outcome in &outcomes {
                println!(
                    "{:>10} {:>8.2} {:>14.0} {:>12.2} {:>10.1}",
                    outcome.flows,
                    outcome.mpps,
                    outcome.instructions,
                    outcome.setups,
                    outcome.memory as f64 / f64::from(1 << 20),
                );
            }
        }
        Ok(())
    }
}

fn row(outcome: &Outcome) -> serde_json::Value {
    json!({
        "flows": outcome.flows,
        "mpps": outcome.mpps,
        "instructions_per_packet": outcome.instructions,
        "setups_mps": outcome.setups,
        "memory_bytes": outcome.memory,
    })
}
