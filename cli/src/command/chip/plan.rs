//! Common part of the commands about a chip: the chip, its mapping and its traffic, from the words of the command line to a
//! pipeline and its input.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use chip::description::{Chip, Ports};
use chip::diagnostic::{Code, Diagnostic};
use chip::host::{Plug, Traffic, Wiring};
use chip::kernel::Timebase;
use chip::machine::PROGRAMS;
use chip::mapping::{Extent, Mapping, Program, check_fit};
use chip::run::{Source, SourceError};
use chip::traffic::{
    BadStream, Begin, Generator, KEYS, Lines, Merge, Size, Slowed, Stream, TrafficError, Ways, in_cells,
};
use clap::Args;
use dataplane::replay::Way;
use dataplane::tables::CompileError;
use dataplane::{Replay, Tables, extent};
use lookup::classify::{ALGORITHMS, Algorithm};
use policy::Policy;
use replay::capture::OpenError;
use replay::{Captures, Named, Readdress};
use wire::Nanos;

use super::captured::{Captured, Problem, Problems};
use crate::builtin::{Described, Setting, Texts};
use crate::failure::{ChipError, Exit, Failure, PolicyError, UsageError};
use crate::policy_file::{self, EPOCH, Loaded, StaticKeys};
use crate::screen;

/// A chip, a policy and traffic, in words.
#[derive(Debug, Args)]
pub(super) struct Subject {
    /// The chip: one of `wirerate chip list`, or a file (TOML)
    #[arg(long, value_name = "NAME|FILE")]
    chip: String,

    /// What runs where: one of `wirerate chip list`, or a file (TOML); otherwise run to completion, CHIP-pool,
    /// or CHIP-split, or CHIP-tunnel, where programs are too long for that
    #[arg(long, value_name = "NAME|FILE")]
    mapping: Option<String>,

    /// The policy (TOML)
    policy: PathBuf,

    /// Captures, and streams to be generated
    #[arg(required = true, value_name = "[IFACE=]CAPTURE | FROM>TO[,KEY=VALUE...]")]
    traffic: Vec<Item>,

    /// What everything random follows from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Give an interface a certain port, by number or kind, as wan=8 or wan=gigabit; otherwise they take ports in their
    /// order. May be repeated
    #[arg(long, value_name = "IFACE=PORT")]
    port: Vec<Wish>,

    /// Set a parameter of the chip or the mapping, as memory.sram.latency=45; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<Setting>,

    #[command(flatten)]
    keys: StaticKeys,
}

/// Returns the keys of a stream, for help.
pub(super) fn keys() -> String {
    let mut text = String::from(
        "A generated stream is FROM>TO and keys, with commas between; FROM and TO are interfaces of the policy:\n",
    );
    for (key, meaning) in KEYS {
        text.push_str(&format!("  {key}\n      {meaning}\n"));
    }
    text
}

/// `IFACE=PORT`, on the command line.
#[derive(Clone, Debug)]
struct Wish {
    interface: String,
    port: String,
}

/// Text that gives no interface a port.
#[derive(Debug, thiserror::Error)]
#[error("write IFACE=PORT, as in wan=8")]
struct BadWish;

impl FromStr for Wish {
    type Err = BadWish;

    fn from_str(text: &str) -> Result<Wish, BadWish> {
        match text.split_once('=') {
            Some((interface, port)) if !interface.is_empty() && !port.is_empty() => {
                Ok(Wish { interface: interface.to_owned(), port: port.to_owned() })
            }
            _ => Err(BadWish),
        }
    }
}

/// A capture or a stream, as on the command line.
#[derive(Clone, Debug)]
enum Item {
    Capture(Named),
    /// The text of a stream, and the stream.
    Stream(String, Stream),
}

impl FromStr for Item {
    type Err = BadStream;

    fn from_str(text: &str) -> Result<Item, BadStream> {
        if text.contains('>') && !Path::new(text).exists() {
            return text.parse().map(|stream| Item::Stream(text.to_owned(), stream));
        }
        let Ok(named) = text.parse();
        Ok(Item::Capture(named))
    }
}

/// Generated traffic without a capture begins at this moment: any, but none at which a clock starts.
const START: Nanos = Nanos::from_secs(1_700_000_000);

/// Input resolved from the command line.
pub(super) struct Prepared {
    pub(super) texts: Texts,
    pub(super) described: Described,
    pub(super) plan: Plan,
    /// Approximate size of the frames to come, in bytes.
    pub(super) size: u64,
}

impl Subject {
    /// Reads everything, and shows what is wrong with it.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let (prepared, found) = self.read()?;
        screen::diagnostics(&found);
        match found.iter().filter(|found| found.is_error()).count() {
            0 => Ok(prepared),
            errors => Err(ChipError::DoesNotFit { file: prepared.described.file, errors }.into()),
        }
    }

    /// Prepares without a check that tables and programs fit: something may yet be changed.
    pub(super) fn prepare_unfitted(&self) -> Result<Prepared, Failure> {
        self.read().map(|(prepared, _)| prepared)
    }

    /// Reads everything, and finds what does not fit.
    fn read(&self) -> Result<(Prepared, Vec<Diagnostic>), Failure> {
        let texts = self.set_in(Texts::find(&self.chip, self.mapping.as_deref())?)?;
        let described = texts.read()?;
        let Loaded { file, policy, tables, .. } = policy_file::load_keyed(&self.policy, self.keys)?;
        let mut plan = Plan::new(self, &described, policy);
        let captures = Captures::open(&plan.captures, &tables, Readdress::Inferred)?;
        if !plan.captures.is_empty() {
            plan.start = captures.start();
        }
        plan.plugs = plugs(&self.port, &tables, &described.chip.ports)?;
        let size = captures.size() + plan.streams.iter().map(expected_bytes).sum::<u64>();
        tell_shared_ports(&tables, &described.chip);
        drop(tables);
        let found = weigh(&described, &plan, &file)?;
        let mut prepared = (Prepared { texts, described, plan, size }, found);
        let too_long = |found: &[Diagnostic]| found.iter().any(|found| found.code == Code::StoreFull);
        let mut kinds = Texts::SPLITS.iter().filter(|_| self.mapping.is_none());
        let mut is_split = false;
        while too_long(&prepared.1) {
            let Some(kind) = kinds.next() else { break };
            let Some((texts, described)) = self.split(kind) else { continue };
            let plan = prepared.0.plan.on(&described.chip, &described.mapping);
            let found = weigh(&described, &plan, &file)?;
            prepared = (Prepared { texts, described, plan, size }, found);
            is_split = true;
        }
        if is_split {
            screen::note(&format_args!(
                "the programs of {file} are too long for an engine's store; it runs as {} spreads them",
                prepared.0.described.file
            ));
        }
        Ok(prepared)
    }

    /// The texts with what is to be set in them set.
    fn set_in(&self, mut texts: Texts) -> Result<Texts, Failure> {
        self.set.iter().try_for_each(|Setting { path, value }| texts.set(path, value))?;
        Ok(texts)
    }

    /// The chip with its mapping of a [kind](Texts::SPLITS), if it has one and what is to be set can be set there.
    fn split(&self, kind: &str) -> Option<(Texts, Described)> {
        let texts = self.set_in(Texts::split(&self.chip, kind)?).ok()?;
        let described = texts.read_quietly().ok()?;
        Some((texts, described))
    }

    /// Returns a title of one line: policy and traffic.
    pub(super) fn title(&self) -> String {
        let items = self.traffic.iter().map(|item| match item {
            Item::Capture(named) => named.path.display().to_string(),
            Item::Stream(text, _) => text.clone(),
        });
        format!("{}, {}", self.policy.display(), items.collect::<Vec<_>>().join(", "))
    }
}

/// Bytes of frames that a stream will come to, about.
fn expected_bytes(stream: &Stream) -> u64 {
    let size = match stream.size {
        Size::Fixed(size) => u64::from(size),
        Size::Imix => Size::IMIX.iter().map(|(size, of)| u64::from(*size) * of).sum::<u64>() / 12,
        Size::Normal { mean, .. } => u64::from(mean),
    };
    let ways = if stream.ways == Ways::Both { 2 } else { 1 };
    stream.frames.saturating_mul(size * ways)
}

/// A policy and its traffic, as often as they are run.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    pub(super) captures: Vec<Named>,
    pub(super) streams: Vec<Stream>,
    pub(super) start: Nanos,
    classifier: Option<String>,
    ports: Ports,
    /// Time base of the chip.
    time: Timebase,
    plugs: Vec<Plug>,
    seed: u64,
}

/// Variation of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// Load, as a multiple of the traffic's own rate, above 0.
    pub(super) load: f64,
    /// Number added to the seed.
    pub(super) repeat: u32,
}

impl Variant {
    /// The traffic as it was described.
    pub(super) const WHOLE: Variant = Variant { load: 1.0, repeat: 0 };
}

impl Plan {
    fn new(subject: &Subject, described: &Described, policy: Policy) -> Plan {
        let (mut captures, mut streams) = (Vec::new(), Vec::new());
        for item in &subject.traffic {
            match item {
                Item::Capture(named) => captures.push(named.clone()),
                Item::Stream(_, stream) => streams.push(stream.clone()),
            }
        }
        Plan {
            policy,
            captures,
            streams,
            start: START,
            classifier: None,
            ports: described.chip.ports.clone(),
            time: Timebase::new(1),
            plugs: Vec::new(),
            seed: subject.seed,
        }
        .on(&described.chip, &described.mapping)
    }

    /// Returns the plan on another chip, or with another mapping.
    #[must_use]
    pub(super) fn on(mut self, chip: &Chip, mapping: &Mapping) -> Plan {
        self.ports.clone_from(&chip.ports);
        self.time = Timebase::new(chip.ticks_per_second().unwrap_or(1));
        self.classifier.clone_from(&mapping.classifier);
        self
    }

    /// The policy, with its rules searched as the mapping says, else as the policy does. What is the fastest on a processor
    /// with vectors need not be that on a chip: where neither says, one rule is compared after the other.
    pub(super) fn tables(&self) -> Result<Tables, CompileError> {
        let named = self.classifier.as_deref().unwrap_or(self.policy.search.algorithm.name());
        Tables::compile_for(&self.policy, EPOCH, Algorithm::named(named).unwrap_or(&ALGORITHMS[0]))
    }

    /// The pipeline and its traffic, from the beginning.
    pub(super) fn source(&self, variant: Variant, problems: &Problems) -> Result<Source, SourceError> {
        let start = self.start;
        let mut replay = Replay::new(self.tables()?, start, Way::Step)?;
        let wiring = Wiring::new(&replay.tables, &self.plugs);
        let lines = Lines { ports: &self.ports, wiring: &wiring };
        let mut sources: Vec<Box<dyn Traffic>> = Vec::new();
        if !self.captures.is_empty() {
            let captures =
                Captures::open(&self.captures, &replay.tables, Readdress::Inferred).map_err(unopened)?;
            // Played more slowly, it lasts longer.
            let longest = (self.time.longest() as f64 * variant.load) as u64;
            let last = Nanos(start.0.saturating_add(longest));
            let captured = Captured::new(captures, self.tables()?, last, Arc::clone(problems));
            sources.push(Box::new(Slowed::new(Box::new(captured), start, variant.load)));
        }
        let mut generated: Vec<Box<dyn Traffic>> = Vec::new();
        for (place, stream) in self.streams.iter().enumerate() {
            let seed = self.seed.wrapping_add((place as u64) << 32).wrapping_add(u64::from(variant.repeat));
            let stream = stream.scaled(variant.load);
            let mut generator = Generator::new(&stream, &replay.tables, lines, start, seed)?;
            if stream.begin == Begin::Established {
                generator.establish(&mut replay, &stream, start)?;
            }
            generated.push(Box::new(generator));
        }
        if !generated.is_empty() {
            // Packets of one channel follow one another, whatever stream they are of.
            sources.push(in_cells(merged(generated), &replay.tables, lines));
        }
        let traffic = merged(sources);
        Ok(Source { replay, traffic, start, wiring })
    }
}

/// Several sources as one; of one that is alone, nothing needs merging.
fn merged(mut sources: Vec<Box<dyn Traffic>>) -> Box<dyn Traffic> {
    match sources.pop() {
        Some(only) if sources.is_empty() => only,
        last => Box::new(Merge::new(sources.into_iter().chain(last).collect())),
    }
}

/// Resolves wishes to the numbers of interfaces and ports. A wish for a kind gets the first port of the kind that nobody
/// else wishes for by then, or its first where there is no more.
fn plugs(wishes: &[Wish], tables: &Tables, ports: &Ports) -> Result<Vec<Plug>, Failure> {
    let mut plugs: Vec<Plug> = Vec::new();
    for Wish { interface, port } in wishes {
        let Some(of) = tables.interface_named(interface) else {
            let known = tables.interfaces.iter().map(|interface| interface.name.clone()).collect();
            return Err(UsageError::NoInterface { name: interface.clone(), known }.into());
        };
        let kind = || {
            let of_kind = (0..).zip(ports.each()).filter(|(_, kind)| kind.name.as_ref() == Some(port));
            let numbers: Vec<u16> = of_kind.map(|(number, _)| number).collect();
            let is_free = |number: &&u16| plugs.iter().all(|plug| plug.port != **number);
            numbers.iter().find(is_free).or(numbers.first()).copied()
        };
        let number = port.parse().ok().filter(|number| u32::from(*number) < ports.count());
        let Some(port) = number.or_else(kind) else {
            let kinds = ports.0.iter().filter_map(|kind| kind.name.clone());
            let known = std::iter::once(format!("0 to {}", ports.count() - 1)).chain(kinds).collect();
            return Err(ChipError::NoPort { name: port.clone(), known }.into());
        };
        plugs.push(Plug { interface: of, port });
    }
    Ok(plugs)
}

/// Reports captures that could not be opened, though they could be before.
fn unopened(error: OpenError) -> SourceError {
    SourceError::Traffic(match error {
        OpenError::Capture(error) => TrafficError::Capture(error),
        OpenError::NoInterface { name, known } => TrafficError::NoInterface { name, known },
    })
}

/// Returns the misfits of a plan, whose policy is called `file`.
fn weigh(described: &Described, plan: &Plan, file: &str) -> Result<Vec<Diagnostic>, Failure> {
    let tables = plan.tables().map_err(|error| PolicyError::Compile { file: file.to_owned(), error })?;
    let replay = Replay::new(tables, plan.start, Way::Step)
        .map_err(|error| PolicyError::Setup { file: file.to_owned(), error })?;
    Ok(fits(described, &replay))
}

/// Returns misfits: tables and programs have their sizes only with the policy.
pub(super) fn fits(described: &Described, replay: &Replay) -> Vec<Diagnostic> {
    let Described { chip, mapping, lines, .. } = described;
    let extents: Vec<Extent> = extent::regions(&replay.tables, &replay.shard)
        .into_iter()
        .map(|(region, bytes)| Extent { region, bytes })
        .collect();
    let programs: Vec<Program<'_>> = extent::programs(&replay.tables)
        .into_iter()
        .chain(PROGRAMS)
        .map(|(name, instructions)| Program { name, instructions })
        .collect();
    check_fit(chip, mapping, lines, &extents, &programs)
}

/// Says which interfaces share a port, where the policy has more than the chip.
fn tell_shared_ports(tables: &Tables, chip: &Chip) {
    let roots = Wiring::new(tables, &[]).last().map_or(0, |last| u32::from(last) + 1);
    let ports = chip.ports.count();
    if roots > ports {
        screen::warning(&format_args!(
            "the policy has {roots} interfaces and the chip {ports} ports: the interface after the last port has the first \
             one, and so on, and those that share a port share its rate"
        ));
    }
}

/// Says on standard error what could not be read.
pub(super) fn tell_problems(problems: &Problems) -> Exit {
    let mut exit = Exit::Done;
    for problem in problems.get().into_iter().flatten() {
        match problem {
            Problem::Unreadable(what) => {
                screen::error(what, Some("everything before that was played; the rest was not"));
                exit = Exit::Unreadable;
            }
            Problem::Short(what) | Problem::Long(what) => screen::warning(what),
        }
    }
    exit
}

#[cfg(test)]
mod tests {
    use super::Item;

    #[test]
    fn traffic_is_told_from_captures() {
        assert!(matches!("lan>wan,both".parse(), Ok(Item::Stream(..))));
        assert!(matches!("lan=a.pcap".parse(), Ok(Item::Capture(_))));
        assert!("lan>wan,bth".parse::<Item>().unwrap_err().to_string().contains("`both`"));
    }
}
