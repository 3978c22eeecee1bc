//! A run of a policy and traffic on a chip, from words: names or files of chip and mapping, parameters to be set, streams and captures.
//!
//! An [`Order`] says what is wanted, in the words of the command line and of the Python package; a [`Plan`] is what can be run, as often as
//! wanted, from another load or seed each time. What is wrong is an error with its diagnostics; nothing is printed here.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dataplane::replay::Way;
use dataplane::tables::CompileError;
use dataplane::{Replay, Tables, extent};
use lookup::classify::{ALGORITHMS, Algorithm};
use policy::Policy;
use replay::capture::OpenError;
use replay::{Captures, Named, Readdress};
use wire::{Nanos, PortId};

use self::captured::Captured;
use self::texts::{Described, Setting, Texts};
use crate::description::{Chip, Ports};
use crate::diagnostic::{Code, Diagnostic};
use crate::host::{Entry, Plug, Traffic, Wiring};
use crate::kernel::Timebase;
use crate::machine::PROGRAMS;
use crate::mapping::{Extent, Mapping, Program, check_fit};
use crate::run::{Source, SourceError};
use crate::traffic::{
    BadStream, Begin, Generator, Lines, Merge, Size, Slowed, Stream, TrafficError, Ways, in_cells,
};

mod captured;
mod error;
mod fates;
pub mod texts;

pub use captured::{Problem, Problems};
pub use error::PlanError;
pub use fates::Fates;

/// Epoch of tables that are never replaced.
const EPOCH: u16 = 1;

/// Wanted run, in words.
#[derive(Clone, Debug)]
pub struct Order {
    /// Name or file of the chip.
    pub chip: String,
    /// Name or file of the mapping; without one it is `CHIP-pool`, or one that spreads long programs.
    pub mapping: Option<String>,
    /// Parameters to be set in chip and mapping.
    pub settings: Vec<Setting>,
    /// Ports that interfaces are to have.
    pub wishes: Vec<Wish>,
    /// Captures, and streams to be generated.
    pub traffic: Vec<Item>,
    /// Number that everything random follows from.
    pub seed: u64,
}

/// `IFACE=PORT`, on the command line.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Name of the interface.
    pub interface: String,
    /// Number or kind of the port.
    pub port: String,
}

/// Text that gives no interface a port.
#[derive(Debug, thiserror::Error)]
#[error("write IFACE=PORT, as in wan=8")]
pub struct BadWish;

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
pub enum Item {
    /// A capture.
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

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Texts of chip and mapping, with what was to be set in them set.
    pub texts: Texts,
    /// Chip and mapping.
    pub described: Described,
    /// Policy and traffic.
    pub plan: Plan,
    /// Approximate size of the frames to come, in bytes.
    pub size: u64,
}

/// A run with all that does not fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The run.
    pub prepared: Prepared,
    /// Misfits of tables and programs.
    pub found: Vec<Diagnostic>,
    /// Mapping that was taken.
    pub taken: Taken,
}

/// Choice of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The one that was asked for, or `CHIP-pool`.
    First,
    /// One that spreads programs that are too long for an engine's store.
    Spread,
}

impl Order {
    /// Finds the texts of chip and mapping, and sets in them what is to be set.
    ///
    /// # Errors
    /// They are not there, or have no such parameter.
    pub fn texts(&self) -> Result<Texts, PlanError> {
        self.set_in(Texts::find(&self.chip, self.mapping.as_deref())?)
    }

    /// Prepares a run of `policy`, of whose keys those in files have been read, on a chip; `tables` are the policy's.
    ///
    /// # Errors
    /// A capture cannot be read, or an interface or port is not there.
    pub fn prepare(
        &self,
        texts: Texts,
        described: Described,
        policy: Policy,
        tables: &Tables,
    ) -> Result<Prepared, PlanError> {
        let mut plan = Plan::new(self, &described, policy);
        let captures = Captures::open(&plan.captures, tables, Readdress::Inferred)?;
        if !plan.captures.is_empty() {
            plan.start = captures.start();
        }
        plan.plugs = plugs(&self.wishes, tables, &described.chip.ports)?;
        let size = captures.size() + plan.streams.iter().map(expected_bytes).sum::<u64>();
        Ok(Prepared { texts, described, plan, size })
    }

    /// Finds what does not fit; where programs are too long and no mapping was asked for, takes one that spreads them. The policy is called
    /// `file`.
    ///
    /// # Errors
    /// The policy has no tables, or no memory for them.
    pub fn fit(&self, prepared: Prepared, file: &str) -> Result<Fitted, PlanError> {
        let found = weigh(&prepared.described, &prepared.plan, file)?;
        let mut fitted = Fitted { prepared, found, taken: Taken::First };
        let mut kinds = Texts::SPLITS.iter().filter(|_| self.mapping.is_none());
        while fitted.found.iter().any(|found| found.code == Code::StoreFull) {
            let Some(kind) = kinds.next() else { break };
            let Some((texts, described)) = self.split(kind) else { continue };
            let plan = fitted.prepared.plan.on(&described.chip, &described.mapping);
            let found = weigh(&described, &plan, file)?;
            let prepared = Prepared { texts, described, plan, size: fitted.prepared.size };
            fitted = Fitted { prepared, found, taken: Taken::Spread };
        }
        Ok(fitted)
    }

    /// The texts with what is to be set in them set.
    fn set_in(&self, mut texts: Texts) -> Result<Texts, PlanError> {
        self.settings.iter().try_for_each(|Setting { path, value }| texts.set(path, value))?;
        Ok(texts)
    }

    /// The chip with its mapping of a [kind](Texts::SPLITS), if it has one and what is to be set can be set there.
    fn split(&self, kind: &str) -> Option<(Texts, Described)> {
        let texts = self.set_in(Texts::split(&self.chip, kind)?).ok()?;
        let described = texts.read().ok()?;
        Some((texts, described))
    }
}

impl Fitted {
    /// Number of misfits that keep it from running.
    pub fn errors(&self) -> usize {
        self.found.iter().filter(|found| found.is_error()).count()
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
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    /// Captures to be played.
    pub captures: Vec<Named>,
    /// Streams to be generated.
    pub streams: Vec<Stream>,
    /// Moment that modelled time begins with.
    pub start: Nanos,
    classifier: Option<String>,
    ports: Ports,
    /// Time base of the chip.
    time: Timebase,
    plugs: Vec<Plug>,
    seed: u64,
    stop: Option<Stop>,
}

/// Variation of the traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    /// Load, as a multiple of the traffic's own rate, above 0.
    pub load: f64,
    /// Number added to the seed.
    pub repeat: u32,
}

impl Variant {
    /// The traffic as it was described.
    pub const WHOLE: Variant = Variant { load: 1.0, repeat: 0 };
}

impl Plan {
    fn new(order: &Order, described: &Described, policy: Policy) -> Plan {
        let (mut captures, mut streams) = (Vec::new(), Vec::new());
        for item in &order.traffic {
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
            seed: order.seed,
            stop: None,
        }
        .on(&described.chip, &described.mapping)
    }

    /// Returns the plan on another chip, or with another mapping.
    #[must_use]
    pub fn on(mut self, chip: &Chip, mapping: &Mapping) -> Plan {
        self.ports.clone_from(&chip.ports);
        self.time = Timebase::new(chip.ticks_per_second().unwrap_or(1));
        self.classifier.clone_from(&mapping.classifier);
        self
    }

    /// Lets runs end early once `stop` is asked for: no further frame comes.
    #[must_use]
    pub fn until(mut self, stop: Stop) -> Plan {
        self.stop = Some(stop);
        self
    }

    /// The policy, with its rules searched as the mapping says, else as the policy does. What is the fastest on a processor
    /// with vectors need not be that on a chip: where neither says, one rule is compared after the other.
    pub fn tables(&self) -> Result<Tables, CompileError> {
        let named = self.classifier.as_deref().unwrap_or(self.policy.search.algorithm.name());
        Tables::compile_for(&self.policy, EPOCH, Algorithm::named(named).unwrap_or(&ALGORITHMS[0]))
    }

    /// The pipeline and its traffic, from the beginning.
    pub fn source(&self, variant: Variant, problems: &Problems) -> Result<Source, SourceError> {
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
        let mut traffic = merged(sources);
        if let Some(stop) = &self.stop {
            traffic = Box::new(Stoppable { traffic, stop: stop.clone() });
        }
        Ok(Source { replay, traffic, start, wiring })
    }
}

/// Wish to end runs early, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once the end was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag that says so, for work that looks at one.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

/// Traffic that ends when that is asked for.
struct Stoppable {
    traffic: Box<dyn Traffic>,
    stop: Stop,
}

impl Traffic for Stoppable {
    fn peek(&mut self) -> Option<Nanos> {
        if self.stop.is_asked() { None } else { self.traffic.peek() }
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        if self.stop.is_asked() { None } else { self.traffic.next(bytes) }
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        self.traffic.left(port, frame);
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
fn plugs(wishes: &[Wish], tables: &Tables, ports: &Ports) -> Result<Vec<Plug>, PlanError> {
    let mut plugs: Vec<Plug> = Vec::new();
    for Wish { interface, port } in wishes {
        let Some(of) = tables.interface_named(interface) else {
            let known = tables.interfaces.iter().map(|interface| interface.name.clone()).collect();
            return Err(PlanError::NoInterface { name: interface.clone(), known });
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
            return Err(PlanError::NoPort { name: port.clone(), known });
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
fn weigh(described: &Described, plan: &Plan, file: &str) -> Result<Vec<Diagnostic>, PlanError> {
    let tables = plan.tables().map_err(|error| PlanError::Compile { file: file.to_owned(), error })?;
    let replay = Replay::new(tables, plan.start, Way::Step)
        .map_err(|error| PlanError::Setup { file: file.to_owned(), error })?;
    Ok(fits(described, &replay))
}

/// Returns misfits: tables and programs have their sizes only with the policy.
pub fn fits(described: &Described, replay: &Replay) -> Vec<Diagnostic> {
    let Described { chip, mapping, lines, .. } = described;
    let extents = extents(replay);
    let programs: Vec<Program<'_>> = extent::programs(&replay.tables)
        .into_iter()
        .chain(PROGRAMS)
        .map(|(name, instructions)| Program { name, instructions })
        .collect();
    check_fit(chip, mapping, lines, &extents, &programs)
}

/// Returns the sizes of a policy's tables and state.
pub fn extents(replay: &Replay) -> Vec<Extent> {
    let regions = extent::regions(&replay.tables, &replay.shard).into_iter();
    regions.map(|(region, bytes)| Extent { region, bytes }).collect()
}

/// Number of ports that interfaces of a policy would have of their own; more than the chip has where some share.
pub fn ports_wanted(tables: &Tables) -> u32 {
    Wiring::new(tables, &[]).last().map_or(0, |last| u32::from(last) + 1)
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
