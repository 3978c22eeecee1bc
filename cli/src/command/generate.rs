//! `wirerate generate`: what to try a policy and its rules on, and rules to try.

use clap::{Args, Subcommand};

use crate::failure::{Exit, Failure};

mod rules;
mod traffic;

/// Make traffic to try a policy on, or rules and headers to measure with
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Traffic(traffic::Traffic),
    Rules(rules::Rules),
    Trace(rules::Trace),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.what {
            What::Traffic(traffic) => traffic.run(),
            What::Rules(rules) => rules.run(),
            What::Trace(trace) => trace.run(),
        }
    }
}
