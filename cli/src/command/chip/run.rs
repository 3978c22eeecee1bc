//! `wirerate chip run`: one policy, one mapping, one load.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use chip::host::{Entry, Onlooker};
use chip::machine::Ideal;
use chip::plan::{Fates, Prepared, Problems, Variant};
use chip::run::{RunError, Setup};
use clap::Args;
use dataplane::replay::Witness;
use dataplane::{Reason, Verdict};
use serde_json::json;
use wire::{Frame, Nanos, PortId};

use super::plan::{Subject, keys, tell_problems};
use super::{page, table};
use crate::failure::{ChipError, Exit, Failure, Fault, OutputError};
use crate::output::{Came, Optional, Outputs};
use crate::progress::{Progress, Unit};
use crate::screen::number;
use crate::{screen, with_exit_codes};

/// Run a policy and traffic on a modelled chip: how fast, how busy, and what limits it
///
/// The pipeline itself runs, frame by frame; what it does is played out on the chip's engines, memories and rings in
/// modelled time. Frames are lost only where they come in, when the buffers are full. Where some are, the run is
/// repeated with each resource made infinitely fast in turn: the one that brings most is the bottleneck.
///
/// Traffic is captures, which come in as `replay` has them come in, and generated streams, all merged by time.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    #[command(flatten)]
    subject: Subject,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,

    /// Write a page with plots into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write what left by each interface, and what was dropped or lost, into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Leave the first N frames, and what comes after the last, out of what is told, for a steady state
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// List all resources, regions and assumed parameters
    #[arg(short, long)]
    verbose: bool,
}

fn help() -> String {
    let mut text = String::from(
        "\
Examples:
  wirerate chip run --chip ixp2400 policies/firewall.toml \\
    'lan>wan,size=64,rate=100%,both,established,frames=20000'
  wirerate chip run --chip ixp2400 --mapping firewall \\
    policies/firewall.toml 'lan>wan,size=imix,rate=60%,arrivals=poisson'
  wirerate chip run --chip ixp2800 --set memory.sram.latency=200 \\
    policies/home-office.toml 'lan>wan,flows=each,frames=10000' --json
A capture, and a page with plots:
  wirerate generate traffic --seconds 5 --out . \\
    --policy policies/home-office.toml
  wirerate chip run --chip ixp2800 policies/home-office.toml \\
    lan=lan.pcapng wan=wan.pcapng --out out --html report.html
A chip and a mapping of one's own:
  wirerate chip list ixp2400 > my-chip.toml
  wirerate chip list ixp2400-pool > my-mapping.toml
  wirerate chip run --chip my-chip.toml --mapping my-mapping.toml \\
    policies/firewall.toml 'lan>wan'

",
    );
    text.push_str(&keys());
    text.push_str(
        "
--json prints one object:
  offered_mpps delivered_mpps ended_mpps   millions of frames a second; ended: within, by the policy
  further_mpps            of the delivered, those beyond one for each that came in: fragments, and the gateway's own
  gbps                    10^9 bits of frames delivered a second, without what only the line has
  lost lost_by_port       frames for whose first bytes the port's MAC had no room
  overruns                frames that were kept, although the MAC had no room for the rest: hardware would lose them
  reordered               frames that left by a line after a later one of their flow, in the policy's order (RFC 4737, section 3.3)
  latency_ns              min p50 p90 p99 p999 max, from the last bit in to the last bit out; latency_curve in full
  engines memories rings others   how busy each was: utilisation of a memory is the mean over its channels,
                          which are in channels
  caches                  name lookups hit_ratio written_back: of engines, and in front of memories
  bottleneck              name text relief: what each resource would bring were it infinitely fast
  instructions_per_packet mix simulated_instructions wall_seconds assumed
  fates                   frames of the whole run that the policy ended, by reason; delivered: to the gateway itself
Engines have done their work once a frame is queued before its port, and it counts as delivered. What a `rate` or the queues of a
policy delay after that, or drop, is in no latency, but in `fates` and in the captures of --out.

--out DIR is written as by `replay`; where nothing is lost, what leaves is the same. What is lost is in DIR/dropped.pcapng with
the comment `lost: overload`; there the order of queues' drops may be another, and captures of what tunnels carry stay empty.",
    );
    text
}

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Prepared { described, plan, size, .. } = self.subject.prepare()?;
        let outputs = match &self.out {
            Some(directory) => {
                let tables = plan.tables().map_err(|error| ChipError::Run(RunError::Source(error.into())))?;
                let inputs = plan.captures.iter().map(|named| named.path.as_path());
                Some(Outputs::create(directory, &tables, inputs)?)
            }
            None => None,
        };
        let problems = Problems::default();
        let source = || plan.source(Variant::WHOLE, &problems);
        let (chip, mapping) = (&described.chip, &described.mapping);
        let setup = Setup { chip, mapping, source: &source, warm: self.warm };
        let mut onlooker = Seen {
            outputs: Optional(outputs),
            progress: Progress::new("chip", Unit::Packet, size),
            done: 0,
            fates: Fates::default(),
        };
        let mut report = setup.run(Ideal::Nothing, &mut onlooker).map_err(ChipError::Run)?;
        onlooker.progress.finish();
        if self.warm > 0 && report.seconds == 0.0 {
            tell_problems(&problems);
            return Err(ChipError::NothingOffered.into());
        }
        if let Some(outputs) = onlooker.outputs.0 {
            outputs.finish()?;
        }
        if report.lost > 0 && report.wall_seconds > 0.2 && io::stderr().is_terminal() {
            screen::note(&"frames were lost; running it again with each resource infinitely fast in turn");
        }
        setup.relieve(&mut report).map_err(ChipError::Run)?;
        if let Some(path) = &self.html {
            let page = page::of(&report, chip, &self.subject.title()).map_err(Fault::Draw)?;
            fs::write(path, page).map_err(|error| OutputError::Write { path: path.clone(), error })?;
        }
        let mut out = screen::out();
        if self.json {
            let mut json = serde_json::to_value(&report).map_err(io::Error::other)?;
            json["fates"] = json!(onlooker.fates);
            writeln!(out, "{json:#}")?;
        } else {
            table::print(&mut out, &report, chip, self.verbose.into())?;
            if !onlooker.fates.0.is_empty() {
                let told =
                    onlooker.fates.0.iter().map(|(fate, frames)| format!("{fate} {}", number(*frames)));
                writeln!(out, "Ended by the policy: {}.", told.collect::<Vec<_>>().join(", "))?;
            }
            for path in [&self.html, &self.out].into_iter().flatten() {
                writeln!(out, "Written to {}.", path.display())?;
            }
        }
        Ok(tell_problems(&problems))
    }
}

/// Watches the run that counts.
struct Seen {
    outputs: Optional,
    progress: Progress,
    done: u64,
    fates: Fates,
}

impl Witness for Seen {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.outputs.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.fates.ended(frame, verdict);
        self.outputs.ended(frame, verdict);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        self.fates.refused(number, ingress, reason);
        self.outputs.refused(number, ingress, reason);
    }
}

impl Onlooker for Seen {
    fn came(&mut self, number: u32, entry: &Entry, bytes: &[u8]) {
        let Entry { at, ingress, original_len, .. } = *entry;
        if let Some(outputs) = &mut self.outputs.0 {
            outputs.keep(number, &Came { at, ingress, original_len, bytes });
        }
        self.done += bytes.len() as u64;
        self.progress.step(self.done);
    }

    fn lost(&mut self, number: u32) {
        if let Some(outputs) = &mut self.outputs.0 {
            outputs.lose(number);
        }
    }
}
