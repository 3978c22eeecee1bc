//! Replays, batch by batch.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::policy::model::{Collector, Ipfix, IpfixRecord};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use dataplane::accounting::{End, Record};
use dataplane::flow::FlowId;
use dataplane::replay::{Due, ReplayError};
use lookup::memory::MemoryError;
use pyo3::exceptions::PyValueError;
use pyo3::{Bound, Py, PyErr, PyResult, Python, pyclass, pyfunction, pymethods};
use replay::capture::{Moment, NoMoment, NoPackets, OpenError};
use replay::fate::Fates;
use replay::measurement::Measurements;
use replay::split::{Part, PartResult};
use replay::summary::Span;
use replay::{Captures, Compiled, Decryptor, Named, Observer, Player, Readdress, Summary, Window};
use wire::Nanos;
use wire::capture::{CaptureError, Problem};

use crate::batch::{Batch, failed};
use crate::failure;
use crate::flows::{self, Flows};
use crate::keys::{self, Given, Keys};
use crate::packets::{self, Packets};
use crate::policy::Policy;

/// Packets that are played between two looks at signals: a few milliseconds.
const SLICE: u32 = 8_192;

/// Slices that are played before something is said: progress is told as often.
const SLICES: u32 = 16;

/// Records of flows that have ended, at most, between two packets.
const ENDED: usize = 65_536;

/// Table whose rows a playback makes.
enum Table {
    /// Packets, all or those that were dropped.
    Packets {
        rows: Box<Packets>,
        only: Only,
    },
    Flows(Box<Flows>),
    /// No table: a summary alone.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    All,
    Dropped,
}

/// Packets that are played.
struct Input {
    captures: Vec<Named>,
    readdress: Readdress,
    window: Window,
}

/// A replay under way.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Playback {
    policy: Py<Policy>,
    state: Mutex<State>,
}

struct State {
    player: Player,
    observer: Observer<Fates>,
    decryptor: Option<Decryptor>,
    table: Table,
    begun: Instant,
    /// Time spent by playing, without what Python does between two batches.
    spent: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Playing,
    /// All packets have been played; flows from this place on are still to be told.
    Telling(FlowId),
    Done,
}

/// Outcome of a slice.
enum Slice {
    /// A batch is complete, or the end has come.
    Batch(Option<RecordBatch>),
    /// There is more to play.
    More,
}

/// Reason for refusing to begin.
enum Refusal {
    Keys(keys::Refusal),
    Open(OpenError),
    Window(NoPackets),
    Setup(ReplayError),
    Memory(MemoryError),
}

#[pymethods]
impl Playback {
    /// Begins a replay; `captures` are pairs of interface and path, `table` names the rows, `window` has the first
    /// moment and the one behind the last, `keys` those of tunnels, `part` is a number, from 0, of so many parts by flow.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (policy, captures, table, any_mac, window, keys, part=None))]
    fn new(
        py: Python<'_>,
        policy: Bound<'_, Policy>,
        captures: Vec<(Option<String>, PathBuf)>,
        table: &str,
        any_mac: bool,
        window: Moments,
        keys: Given,
        part: Option<(u16, u16)>,
    ) -> PyResult<Playback> {
        let window = self::window(window)?;
        let part = match part {
            None => None,
            Some((number, of)) => Some(Part::new(number, of).ok_or_else(|| {
                PyValueError::new_err(format!("there is no part {number} of {of}: they are numbered from 0"))
            })?),
        };
        let input = Input {
            captures: captures.into_iter().map(|(interface, path)| Named { interface, path }).collect(),
            readdress: if any_mac { Readdress::Always } else { Readdress::Inferred },
            window,
        };
        let (of, keys) = (policy.get(), Keys::from(keys));
        let begun = py.detach(|| State::begin(of, &keys, &input, table, part));
        match begun {
            Ok(state) => Ok(Playback { policy: policy.unbind(), state: Mutex::new(state) }),
            Err(refusal) => Err(refused(py, refusal, &of.file)),
        }
    }

    /// Plays on until `most` rows are there, or for some time. Returns them, if there are any, and true at the end.
    fn next(&self, py: Python<'_>, most: usize) -> PyResult<(Option<Batch>, bool)> {
        for _ in 0..SLICES {
            let slice = py.detach(|| self.state().play(most)).map_err(failed)?;
            py.check_signals()?;
            if let Slice::Batch(batch) = slice {
                let batch = batch.map(Batch);
                let is_done = self.state().phase == Phase::Done;
                return Ok((batch, is_done));
            }
        }
        Ok((None, false))
    }

    /// Bytes of all captures, and about how many have been read.
    fn progress(&self) -> (u64, u64) {
        let state = self.state();
        (state.player.captures.read(), state.player.captures.size())
    }

    /// Summary of all packets so far, as `wirerate replay --json` prints it.
    fn summary(&self, py: Python<'_>) -> String {
        let policy = &self.policy.get().policy;
        py.detach(|| self.state().summary(policy))
    }

    /// Outcome of a part that has been played to its end, for `merge`.
    fn part_result(&self, py: Python<'_>) -> String {
        let policy = &self.policy.get().policy;
        py.detach(|| self.state().part_result(policy))
    }

    /// Raises the first error of a capture that could not be read to its end.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state();
        match state.player.captures.sources().iter().find_map(|source| source.problem.as_ref()) {
            Some(problem) => Err(capture_error(py, problem)),
            None => Ok(()),
        }
    }

    /// Captures that break off, each in a sentence.
    fn cut_short(&self) -> Vec<String> {
        let state = self.state();
        let sources = state.player.captures.sources().iter();
        let cut = sources.filter_map(|source| Some((source.path.display(), source.cut_short()?)));
        cut.map(|(path, cut)| format!("{path} is {cut}; everything before that was played")).collect()
    }
}

impl Playback {
    /// A panic within a slice has been raised as an exception; what is left of the replay is never played on.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(
        policy: &Policy,
        keys: &Keys,
        input: &Input,
        table: &str,
        part: Option<Part>,
    ) -> Result<State, Refusal> {
        let Compiled { mut tables, .. } = keys.compile(policy).map_err(Refusal::Keys)?;
        let mut decryptor = keys.decryptor().map_err(Refusal::Keys)?;
        let table = match table {
            "packets" => Table::Packets { rows: Box::new(Packets::new(&tables)), only: Only::All },
            "drops" => Table::Packets { rows: Box::new(Packets::new(&tables)), only: Only::Dropped },
            "flows" => {
                tables.ipfix = counting();
                Table::Flows(Box::new(Flows::new(&tables)))
            }
            _ => Table::Nothing,
        };
        let mut captures =
            Captures::open(&input.captures, &tables, input.readdress).map_err(Refusal::Open)?;
        captures.select(input.window, &tables).map_err(Refusal::Window)?;
        let observer = Observer::new(Fates::new(&tables), &tables, captures.start());
        let player = match part {
            Some(part) => Player::part(tables, captures, part),
            None => Player::new(tables, captures),
        };
        let mut player = player.map_err(Refusal::Setup)?;
        if let Some(decryptor) = &mut decryptor {
            decryptor.join(&mut player.replay);
        }
        if matches!(table, Table::Flows(_)) {
            let dataplane::Replay { tables, shard, .. } = &mut player.replay;
            shard.keep_accounts(tables).map_err(Refusal::Memory)?;
            shard.accounting.exchange(Vec::with_capacity(ENDED));
        }
        let (begun, spent) = (Instant::now(), Duration::ZERO);
        Ok(State { player, observer, decryptor, table, begun, spent, phase: Phase::Playing })
    }

    /// Plays a slice.
    fn play(&mut self, most: usize) -> Result<Slice, ArrowError> {
        self.begun = Instant::now();
        let outcome = self.slice(most);
        self.spent += self.begun.elapsed();
        outcome
    }

    fn slice(&mut self, most: usize) -> Result<Slice, ArrowError> {
        if self.phase == Phase::Playing {
            for _ in 0..SLICE {
                if self.step() {
                    break;
                }
                if self.table.len() >= most {
                    return self.table.finish().map(Slice::Batch);
                }
            }
        }
        match self.phase {
            Phase::Playing => return Ok(Slice::More),
            Phase::Telling(first) => {
                self.phase = match self.player.replay.shard.report_rest(first) {
                    Some(next) => Phase::Telling(next),
                    None => Phase::Done,
                };
                self.collect_flows();
            }
            Phase::Done => {}
        }
        self.table.finish().map(Slice::Batch)
    }

    /// Plays a packet; true at the end.
    fn step(&mut self) -> bool {
        let State { player, observer, decryptor, table, .. } = self;
        let has_rows = matches!(table, Table::Packets { .. });
        let played = player.step(observer, |number, packet, fates: &mut Fates| {
            if has_rows {
                fates.arrives(number, packet);
            }
            if let Some(decryptor) = decryptor {
                decryptor.take(packet.at, packet.captured, packet.original_len);
            }
        });
        let is_over = played.is_none() && player.expire(observer) == Due::Nothing;
        if is_over {
            player.finish(observer);
            observer.outputs.finish();
            self.phase = Phase::Telling(FlowId(0));
        } else {
            observer.outputs.settle();
        }
        self.collect();
        is_over
    }

    /// Takes rows that are complete.
    fn collect(&mut self) {
        let State { player, observer, table, .. } = self;
        match table {
            Table::Packets { rows, only } => {
                for fate in observer.outputs.take() {
                    if *only == Only::All || matches!(fate.verdict, Some(dataplane::Verdict::Dropped(_))) {
                        rows.push(&fate, &player.replay.tables.nat);
                    }
                }
            }
            Table::Flows(_) if player.replay.shard.accounting.is_half_full() => self.collect_flows(),
            Table::Flows(_) | Table::Nothing => {}
        }
    }

    fn collect_flows(&mut self) {
        let State { player, table: Table::Flows(rows), phase, .. } = self else { return };
        for record in player.replay.shard.accounting.exchange(Vec::with_capacity(ENDED)) {
            if let Record::Flow(report) = record {
                let flow = player.unwrapped(report.counts.opener());
                let is_live = *phase != Phase::Playing && report.end == End::Forced;
                let end = if is_live { flows::LIVE } else { flows::cause(report.end) };
                rows.push(&report, flow, end, &player.replay.tables);
            }
        }
    }

    fn span(&self) -> Span {
        Span { start: self.player.start(), end: self.player.end(), elapsed: self.spent }
    }

    fn part_result(&mut self, policy: &::policy::Policy) -> String {
        let span = self.span();
        let result = PartResult::new(&mut self.player, policy, &self.observer.measured, span);
        serde_json::to_string(&result).expect("numbers and texts are JSON")
    }

    fn summary(&mut self, policy: &::policy::Policy) -> String {
        let span = self.span();
        let State { player, observer, decryptor, .. } = self;
        let measured: &Measurements = &observer.measured;
        let Player { replay, captures, .. } = player;
        let mut summary = Summary::new(replay, policy, captures, measured, span);
        if let Some(decryptor) = decryptor {
            summary.add_decrypted(decryptor);
        }
        summary.to_json().to_string()
    }
}

impl Table {
    fn len(&self) -> usize {
        match self {
            Table::Packets { rows, .. } => rows.len(),
            Table::Flows(rows) => rows.len(),
            Table::Nothing => 0,
        }
    }

    /// Takes the rows, if there are any.
    fn finish(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.len() == 0 {
            return Ok(None);
        }
        match self {
            Table::Packets { rows, .. } => rows.finish().map(Some),
            Table::Flows(rows) => rows.finish().map(Some),
            Table::Nothing => Ok(None),
        }
    }
}

/// Settings by which flows are counted, for nobody outside.
fn counting() -> Ipfix {
    Ipfix {
        collector: Some(Collector::Udp(SocketAddr::from(([127, 0, 0, 1], 4739)))),
        records: Some(vec![IpfixRecord::Flow]),
        active_timeout: Some(Nanos::MAX),
        ..Ipfix::default()
    }
}

/// Moments in words: the first, and the one behind the last.
pub(crate) type Moments = (Option<String>, Option<String>);

/// Window between two moments.
pub(crate) fn window((from, to): Moments) -> PyResult<Window> {
    Ok(Window { from: moment(from)?, to: moment(to)? })
}

/// Raises an error of a text that is no moment.
#[pyfunction]
pub(crate) fn check_moment(text: String) -> PyResult<()> {
    moment(Some(text)).map(drop)
}

fn moment(text: Option<String>) -> PyResult<Option<Moment>> {
    let moment = text.map(|text| text.parse()).transpose();
    moment.map_err(|error: NoMoment| PyValueError::new_err(error.to_string()))
}

fn refused(py: Python<'_>, refusal: Refusal, file: &str) -> PyErr {
    match refusal {
        Refusal::Keys(refusal) => keys::refused(py, refusal, file),
        Refusal::Open(error) => not_opened(py, error, file),
        Refusal::Window(error) => failure::window_error(py, error),
        Refusal::Setup(error) => {
            failure::policy_error(py, format!("{file} asks for more than this machine has: {error}"), &[])
        }
        Refusal::Memory(error) => {
            failure::policy_error(py, format!("{file} asks for more than this machine has: {error}"), &[])
        }
    }
}

/// The exception for captures that cannot be opened for the policy `file`.
pub(crate) fn not_opened(py: Python<'_>, error: OpenError, file: &str) -> PyErr {
    match error {
        OpenError::Capture(error) => capture_error(py, &error),
        OpenError::NoInterface { name, known } => {
            let hint = format!("{file} has no interface \"{name}\"; it has {}", known.join(", "));
            failure::policy_error(py, hint, &[])
        }
    }
}

fn capture_error(py: Python<'_>, error: &CaptureError) -> PyErr {
    match &error.problem {
        Problem::Input(system) => failure::read_error(py, error.file.as_ref(), system),
        _ => failure::capture_error(py, error.to_string(), &error.file),
    }
}

/// An empty batch of a table, which has its columns.
#[pyfunction]
pub(crate) fn empty(table: &str) -> Batch {
    let schema = if table == "flows" { flows::schema() } else { packets::schema() };
    Batch(RecordBatch::new_empty(schema))
}
