//! `wirerate chip run`: one policy, one mapping, one load.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use chip::description::Chip;
use chip::host::{Entry, Onlooker, Traffic};
use chip::machine::{Ideal, PROGRAMS};
use chip::mapping::{Extent, Mapping, Program, check_fit};
use chip::run::{RunError, Setup, Source, SourceError};
use chip::traffic::{BadStream, Begin, Generator, KEYS, Line, Merge, Size, Stream, TrafficError, Ways};
use clap::Args;
use dataplane::classify::Algorithm;
use dataplane::replay::{Way, Witness};
use dataplane::tables::CompileError;
use dataplane::{Replay, Tables, Verdict, extent};
use policy::Policy;
use wire::{Frame, Nanos, PortId};

use super::captured::{Captured, Problem, Problems};
use super::{page, table};
use crate::failure::{Exit, Failure};
use crate::input::{Captures, Named, Readdress};
use crate::output::{Came, Optional, Outputs};
use crate::policy_file::{self, EPOCH, Loaded};
use crate::progress::{Progress, Unit};
use crate::shelf::{self, Described, Setting};
use crate::{screen, with_exit_codes};

/// Run a policy and traffic on a modelled chip: how fast, how busy, and what limits it
///
/// The pipeline itself runs, frame by frame; what it does is played out on the chip's engines, memories and rings in
/// modelled time. Frames are lost only where they come in, when the receive buffer is full. Where some are, the run is
/// repeated with each resource made infinitely fast in turn: the one that brings most is the bottleneck.
///
/// Traffic is captures, which come in as `replay` has them come in, and generated streams, all merged by time.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes(&help()))]
pub(super) struct Arguments {
    /// The chip: one of `wirerate chip list`, or a file (TOML)
    #[arg(long, value_name = "NAME|FILE")]
    chip: String,

    /// What runs where: one of `wirerate chip list`, or a file (TOML); otherwise run to completion, CHIP-pool
    #[arg(long, value_name = "NAME|FILE")]
    mapping: Option<String>,

    /// The policy (TOML)
    policy: PathBuf,

    /// Captures, and streams to be generated
    #[arg(required = true, value_name = "[IFACE=]CAPTURE | FROM>TO[,KEY=VALUE...]")]
    traffic: Vec<Item>,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,

    /// Write a page with plots into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write what left by each interface, and what was dropped or lost, into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// What everything random follows from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Leave the first N frames, and what comes after the last, out of what is told, for a steady state
    #[arg(long, default_value_t = 0, value_name = "N")]
    warm: u64,

    /// Set a parameter of the chip or the mapping, as memory.sram.latency=45; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<Setting>,

    /// List all resources, regions and assumed parameters
    #[arg(short, long)]
    verbose: bool,
}

fn help() -> String {
    let mut text = String::from(
        "\
Examples:
  wirerate chip run --chip ixp2400 policies/home-office.toml 'lan>wan,size=64,rate=100%,both,established'
  wirerate chip run --chip ixp2400 --mapping firewall policy.toml 'lan>wan,size=imix,rate=60%,arrivals=poisson'
  wirerate chip run --chip ixp2400 policy.toml 'lan>wan,flows=each,rate=3kpps,frames=10000' --json
  wirerate chip run --chip my-chip.toml --mapping my-mapping.toml policy.toml lan=lan.pcapng wan.pcapng --out out
  wirerate chip run --chip ixp2800 --set memory.sram.latency=200 policy.toml 'lan>wan' --html report.html

A generated stream is FROM>TO and keys, with commas between; FROM and TO are interfaces of the policy:
",
    );
    for (key, meaning) in KEYS {
        text.push_str(&format!("  {key}\n      {meaning}\n"));
    }
    text.push_str(
        "
--json prints one object:
  offered_mpps delivered_mpps ended_mpps   millions of frames a second; ended: within, by the policy
  gbps                    10^9 bits of frames delivered a second, without what only the line has
  lost lost_by_port       frames that found no room in the receive buffer
  latency_ns              min p50 p90 p99 p999 max, from the last bit in to the last bit out; latency_curve in full
  engines memories rings others   how busy each was
  bottleneck              name text relief: what each resource would bring were it infinitely fast
  instructions_per_packet mix simulated_instructions wall_seconds assumed

--out DIR is written as by `replay`; where nothing is lost, it is the same. What is lost is in DIR/dropped.pcapng with
the comment `lost: overload`.",
    );
    text
}

/// A capture or a stream, as on the command line.
#[derive(Clone, Debug)]
enum Item {
    Capture(Named),
    Stream(Stream),
}

impl FromStr for Item {
    type Err = BadStream;

    fn from_str(text: &str) -> Result<Item, BadStream> {
        if text.contains('>') && !Path::new(text).exists() {
            return text.parse().map(Item::Stream);
        }
        let Ok(named) = text.parse();
        Ok(Item::Capture(named))
    }
}

/// Generated traffic without a capture begins at this moment: any, but none at which a clock starts.
const START: Nanos = Nanos::from_secs(1_700_000_000);

impl Arguments {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let described = shelf::take(&self.chip, self.mapping.as_deref(), &self.set)?;
        let Loaded { file, policy, tables, .. } = policy_file::load(&self.policy)?;
        let plan = Plan::new(&self, &described, &policy);
        let captures = Captures::open(&plan.captures, &tables, Readdress::Inferred)?;
        let start = if plan.captures.is_empty() { START } else { captures.start() };
        let size = captures.size() + plan.streams.iter().map(expected_bytes).sum::<u64>();
        let outputs = match &self.out {
            Some(directory) => {
                let inputs = captures.sources().iter().map(|source| source.path.as_path());
                Some(Outputs::create(directory, &tables, inputs)?)
            }
            None => None,
        };
        drop(captures);
        tell_shared_ports(&tables, &described.chip);
        let replay = Replay::new(tables, start, Way::Step).map_err(|error| Failure::Setup { file, error })?;
        fit(&described, &replay)?;
        drop(replay);
        let problems = Problems::default();
        let source = || plan.source(start, &problems);
        let Described { chip, mapping, .. } = &described;
        let setup = Setup { chip, mapping, source: &source, warm: self.warm };
        let mut onlooker =
            Seen { outputs: Optional(outputs), progress: Progress::new("chip", Unit::Packet, size), done: 0 };
        let mut report = setup.run(Ideal::Nothing, &mut onlooker).map_err(failure)?;
        onlooker.progress.finish();
        if let Some(outputs) = onlooker.outputs.0 {
            outputs.finish()?;
        }
        if report.lost > 0 && report.wall_seconds > 0.2 && io::stderr().is_terminal() {
            screen::note(&"frames were lost; running it again with each resource infinitely fast in turn");
        }
        setup.relieve(&mut report).map_err(failure)?;
        if let Some(path) = &self.html {
            let page = page::of(&report, chip, &self.title()).map_err(Failure::Draw)?;
            fs::write(path, page).map_err(|error| Failure::Write { path: path.clone(), error })?;
        }
        let mut out = screen::out();
        if self.json {
            let json = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
            writeln!(out, "{json}")?;
        } else {
            table::print(&mut out, &report, chip, self.verbose.into())?;
            for path in [&self.html, &self.out].into_iter().flatten() {
                writeln!(out, "Written to {}.", path.display())?;
            }
        }
        Ok(tell_problems(&problems))
    }

    /// What was run, in a line.
    fn title(&self) -> String {
        let items = self.traffic.iter().map(|item| match item {
            Item::Capture(named) => named.path.display().to_string(),
            Item::Stream(stream) => format!("{} > {}", stream.from, stream.to),
        });
        format!("{}, {}", self.policy.display(), items.collect::<Vec<_>>().join(", "))
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Source(SourceError::Traffic(error)) => Failure::Traffic(error),
        error => Failure::Chip(error),
    }
}

/// Bytes of frames that a stream will come to, about.
fn expected_bytes(stream: &Stream) -> u64 {
    let size = match stream.size {
        Size::Fixed(size) => u64::from(size),
        Size::Imix => Size::IMIX.iter().map(|(size, of)| u64::from(*size) * of).sum::<u64>() / 12,
    };
    let ways = if stream.ways == Ways::Both { 2 } else { 1 };
    stream.frames.saturating_mul(size * ways)
}

/// All that a run needs, as often as it is run.
struct Plan<'a> {
    policy: &'a Policy,
    mapping: &'a Mapping,
    line: Line,
    captures: Vec<Named>,
    streams: Vec<Stream>,
    seed: u64,
}

impl<'a> Plan<'a> {
    fn new(arguments: &Arguments, described: &'a Described, policy: &'a Policy) -> Plan<'a> {
        let (mut captures, mut streams) = (Vec::new(), Vec::new());
        for item in &arguments.traffic {
            match item {
                Item::Capture(named) => captures.push(named.clone()),
                Item::Stream(stream) => streams.push(stream.clone()),
            }
        }
        let ports = &described.chip.ports;
        let line = Line { rate: ports.rate, gap: ports.gap };
        Plan { policy, mapping: &described.mapping, line, captures, streams, seed: arguments.seed }
    }

    /// The policy, with its rules searched as the mapping says.
    fn tables(&self) -> Result<Tables, CompileError> {
        match self.mapping.classifier.as_deref().and_then(Algorithm::named) {
            Some(algorithm) => Tables::compile_for(self.policy, EPOCH, algorithm),
            None => Tables::compile(self.policy, EPOCH),
        }
    }

    /// The pipeline and its traffic, from the beginning.
    fn source(&self, start: Nanos, problems: &Problems) -> Result<Source, SourceError> {
        let mut replay = Replay::new(self.tables()?, start, Way::Step)?;
        let mut sources: Vec<Box<dyn Traffic>> = Vec::new();
        if !self.captures.is_empty() {
            let captures =
                Captures::open(&self.captures, &replay.tables, Readdress::Inferred).map_err(unopened)?;
            sources.push(Box::new(Captured::new(captures, self.tables()?, Arc::clone(problems))));
        }
        for (place, stream) in self.streams.iter().enumerate() {
            let seed = self.seed.wrapping_add((place as u64) << 32);
            let mut generator = Generator::new(stream, &replay.tables, self.line, start, seed)?;
            if stream.begin == Begin::Established {
                generator.establish(&mut replay, stream, start)?;
            }
            sources.push(Box::new(generator));
        }
        // One source needs no merging.
        let traffic = match sources.pop() {
            Some(only) if sources.is_empty() => only,
            last => Box::new(Merge::new(sources.into_iter().chain(last).collect())),
        };
        Ok(Source { replay, traffic, start })
    }
}

/// Why captures could not be opened, which they could be before.
fn unopened(failure: Failure) -> SourceError {
    SourceError::Traffic(match failure {
        Failure::Capture(error) => TrafficError::Capture(error),
        Failure::NoInterface { name, known } => TrafficError::NoInterface { name, known },
        _ => TrafficError::NoInterface { name: String::new(), known: Vec::new() },
    })
}

/// Shows what does not fit: tables and programs have their sizes only with the policy.
fn fit(described: &Described, replay: &Replay) -> Result<(), Failure> {
    let Described { chip, mapping, lines, file } = described;
    let extents: Vec<Extent> = extent::regions(&replay.tables, &replay.shard)
        .into_iter()
        .map(|(region, bytes)| Extent { region, bytes })
        .collect();
    let programs: Vec<Program<'_>> = extent::programs(&replay.tables)
        .into_iter()
        .chain(PROGRAMS)
        .map(|(name, instructions)| Program { name, instructions })
        .collect();
    let found = check_fit(chip, mapping, lines, &extents, &programs);
    screen::diagnostics(&found);
    match found.iter().filter(|found| found.is_error()).count() {
        0 => Ok(()),
        errors => Err(Failure::DoesNotFit { file: file.clone(), errors }),
    }
}

/// Says which interfaces share a port, where the policy has more than the chip.
fn tell_shared_ports(tables: &Tables, chip: &Chip) {
    let lines = chip::host::lines(tables);
    let roots = lines.iter().max().map_or(0, |last| u32::from(*last) + 1);
    if roots > chip.ports.count {
        screen::warning(&format_args!(
            "the policy has {roots} interfaces and the chip {} ports: the interface after the last port has the first \
             one, and so on, and those that share a port share its rate",
            chip.ports.count
        ));
    }
}

/// Says on standard error what could not be read.
fn tell_problems(problems: &Problems) -> Exit {
    let mut exit = Exit::Done;
    for problem in problems.get().into_iter().flatten() {
        match problem {
            Problem::Unreadable(what) => {
                screen::error(what, Some("everything before that was played; the rest was not"));
                exit = Exit::Unreadable;
            }
            Problem::Short(what) => screen::warning(what),
        }
    }
    exit
}

/// Watches the run that counts.
struct Seen {
    outputs: Optional,
    progress: Progress,
    done: u64,
}

impl Witness for Seen {
    fn sent(&mut self, port: PortId, frame: &Frame, verdict: Option<Verdict>) {
        self.outputs.sent(port, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.outputs.ended(frame, verdict);
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

#[cfg(test)]
mod tests {
    use super::Item;

    #[test]
    fn traffic_is_told_from_captures() {
        assert!(matches!("lan>wan,both".parse(), Ok(Item::Stream(_))));
        assert!(matches!("lan=a.pcap".parse(), Ok(Item::Capture(_))));
        assert!("lan>wan,bth".parse::<Item>().unwrap_err().to_string().contains("`both`"));
    }
}
