//! `wirerate stages`: the pipeline, stage by stage.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use dataplane::Tables;
use dataplane::pipeline::{self, Entry};
use dataplane::stage::{About, Packets};
use serde_json::{Value, json};
use tally::NoTally;

use crate::failure::{Exit, Failure};
use crate::policy_file;
use crate::screen::{self, HEADING, Table};
use crate::with_exit_codes;

/// Show the stages of the pipeline, or those that a policy needs
///
/// Every packet goes through them in this order, up to the one that decides its fate. With a policy, it is said which of them are in
/// that policy's pipeline, for which packets, and how long their programs are on an engine of a chip.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate stages
  wirerate stages policies/home-office.toml
  wirerate stages --json | jq '.[].name'

JSON:
  name           of the stage
  asks           the question that it answers of a packet
  reads, writes  fields of the frame's metadata
  packets        with a policy: none, first (packets of flows), answered, every
  program        with a policy: instructions in an engine's store"))]
pub(crate) struct Arguments {
    /// The policy; without one, all stages are shown
    policy: Option<PathBuf>,

    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let loaded = self.policy.as_deref().map(policy_file::load).transpose()?;
        let tables = loaded.as_ref().map(|loaded| &loaded.tables);
        let mut out = screen::out();
        if self.json {
            let list: Vec<Value> = pipeline::stages().map(|entry| json(entry, tables)).collect();
            writeln!(out, "{:#}", json!(list))?;
            return Ok(Exit::Done);
        }
        for (side, stages) in [("Ingress", pipeline::ingress()), ("Egress", pipeline::egress())] {
            writeln!(out, "{HEADING}{side}{HEADING:#}")?;
            let mut table = Table::new(if tables.is_some() { &[2] } else { &[] });
            for entry in stages {
                table.row(row(entry, tables));
            }
            write!(out, "{table}")?;
        }
        Ok(Exit::Done)
    }
}

/// A stage in a line.
fn row(entry: &Entry<NoTally>, tables: Option<&Tables>) -> Vec<String> {
    let About { name, asks, .. } = entry.about;
    let Some(tables) = tables else { return vec![name.to_owned(), asks.to_owned()] };
    let packets = (entry.packets)(tables);
    let taken = match packets {
        Packets::None => "not in the pipeline",
        Packets::First => "first packets of flows",
        Packets::Answered => "what is answered",
        Packets::Every => "every packet",
    };
    let program = match packets {
        Packets::None => String::new(),
        _ => format!("{} instructions", (entry.program)(tables)),
    };
    vec![name.to_owned(), taken.to_owned(), program]
}

fn json(entry: &Entry<NoTally>, tables: Option<&Tables>) -> Value {
    let About { name, asks, reads, writes } = entry.about;
    let fields = |fields: wire::meta::Fields| fields.names().collect::<Vec<_>>();
    let mut stage = json!({ "name": name, "asks": asks, "reads": fields(reads), "writes": fields(writes) });
    if let Some(tables) = tables {
        stage["packets"] = json!((entry.packets)(tables));
        stage["program"] = json!((entry.program)(tables));
    }
    stage
}
