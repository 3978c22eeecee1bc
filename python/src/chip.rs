//! Chips: runs, searches and sweeps.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use ::chip::builtin::{CHIPS, MAPPINGS};
use ::chip::description;
use ::chip::host::{Entry, Onlooker};
use ::chip::machine::Ideal;
use ::chip::mapping;
use ::chip::plan::texts::{Described, Setting, Text, Texts};
use ::chip::plan::{
    Fates, Fitted, Item, Order, PlanError, Prepared, Problem, Problems, Stop, Taken, Variant, Wish,
};
use ::chip::run::{RunError, Setup, SourceError};
use ::chip::search::{Bench, Inquiry, Method, Request, SearchError};
use ::chip::sweep::NOTHING_OFFERED;
use ::chip::traffic::TrafficError;
use dataplane::replay::Witness;
use dataplane::{Reason, Verdict};
use pyo3::exceptions::PyValueError;
use pyo3::{Bound, Py, PyAny, PyErr, PyResult, Python, pyclass, pyfunction, pymethods};
use replay::{Compiled, Named};
use serde_json::json;
use wire::capture::{CaptureError, Problem as CaptureProblem};
use wire::{Frame, Nanos, PortId};

use crate::failure;
use crate::keys::{self, Keys};
use crate::policy::Policy;
use crate::sweep::Sweep;
use crate::watch::watched;

/// A chip and its mapping.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Chip {
    /// The words by which both were found, without traffic.
    order: Order,
    texts: Texts,
    described: Described,
}

#[pymethods]
impl Chip {
    /// Finds a chip and a mapping by their names or files, and sets parameters, whose values are TOML.
    #[staticmethod]
    fn read(
        py: Python<'_>,
        name: String,
        mapping: Option<String>,
        settings: Vec<(String, String)>,
    ) -> PyResult<Chip> {
        let settings = settings.into_iter().map(|(path, value)| Setting { path, value }).collect();
        let (wishes, traffic) = (Vec::new(), Vec::new());
        let order = Order { chip: name, mapping, settings, wishes, traffic, seed: 1 };
        let read = py.detach(|| {
            let texts = order.texts()?;
            let described = texts.read()?;
            Ok((texts, described))
        });
        let (texts, described) = read.map_err(|error| refused(py, error))?;
        Ok(Chip { order, texts, described })
    }

    /// A chip and a mapping by their texts, each with its name in diagnostics.
    #[staticmethod]
    fn of(py: Python<'_>, chip: (String, String), mapping: (String, String)) -> PyResult<Chip> {
        let text = |(file, text): (String, String)| Text { file, text };
        let texts = Texts { chip: text(chip), mapping: text(mapping) };
        let described = py.detach(|| texts.read()).map_err(|error| refused(py, error))?;
        let order = Order {
            chip: texts.chip.file.clone(),
            // Which one spreads long programs has been settled.
            mapping: Some(texts.mapping.file.clone()),
            settings: Vec::new(),
            wishes: Vec::new(),
            traffic: Vec::new(),
            seed: 1,
        };
        Ok(Chip { order, texts, described })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.described.chip.name
    }

    #[getter]
    fn about(&self) -> &str {
        &self.described.chip.about
    }

    /// Name or file of the mapping.
    #[getter]
    fn mapping(&self) -> &str {
        &self.described.file
    }
}

/// A policy and traffic on a chip.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Job {
    fitted: Fitted,
}

#[pymethods]
impl Job {
    /// Plans a run; `traffic` has streams, and captures with the interfaces that they come in by. With `static_keys`, keys of tunnels are read
    /// from their files.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (chip, policy, traffic, ports, seed, static_keys=false))]
    fn new(
        py: Python<'_>,
        chip: Bound<'_, Chip>,
        policy: Bound<'_, Policy>,
        traffic: Vec<(Option<String>, String)>,
        ports: Vec<(String, String)>,
        seed: u64,
        static_keys: bool,
    ) -> PyResult<Job> {
        let (chip, policy) = (chip.get(), policy.get());
        let traffic: PyResult<Vec<Item>> = traffic.into_iter().map(item).collect();
        let wishes = ports.into_iter().map(|(interface, port)| Wish { interface, port }).collect();
        let order = Order { traffic: traffic?, wishes, seed, ..chip.order.clone() };
        let compiled = py.detach(|| Keys::from((static_keys, None)).compile(policy));
        let compiled = compiled.map_err(|refusal| keys::refused(py, refusal, &policy.file))?;
        let planned = py.detach(|| {
            let (texts, described) = (chip.texts.clone(), chip.described.clone());
            let Compiled { tables, keyed } = compiled;
            let prepared =
                order.prepare(texts, described, keyed.unwrap_or_else(|| policy.policy.clone()), &tables)?;
            drop(tables);
            order.fit(prepared, &policy.file)
        });
        Ok(Job { fitted: planned.map_err(|error| refused(py, error))? })
    }

    /// Texts of chip and mapping, each with its name: as they were set, and of the mapping that spreads programs if it was taken.
    fn texts(&self) -> [(String, String); 2] {
        let Texts { chip, mapping } = &self.prepared().texts;
        [chip, mapping].map(|Text { file, text }| (file.clone(), text.clone()))
    }

    /// Paths of the captures among the traffic.
    fn captures(&self) -> Vec<String> {
        self.prepared().plan.captures.iter().map(|named| named.path.display().to_string()).collect()
    }

    /// Mapping that was taken in the place of `CHIP-pool`, whose programs would be too long.
    fn spread(&self) -> Option<&str> {
        (self.fitted.taken == Taken::Spread).then_some(&self.prepared().described.file)
    }

    /// Raises an error if tables or programs do not fit.
    fn check_fit(&self, py: Python<'_>) -> PyResult<()> {
        let file = &self.prepared().described.file;
        match self.fitted.errors() {
            0 => Ok(()),
            1 => Err(failure::chip_error(
                py,
                format!("something does not fit where {file} puts it"),
                &self.fitted.found,
            )),
            errors => Err(failure::chip_error(
                py,
                format!("{errors} things do not fit where {file} puts them"),
                &self.fitted.found,
            )),
        }
    }

    /// Approximate size of the frames to come, in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.prepared().size
    }

    /// Makes a run; returns what `wirerate chip run --json` prints, and warnings. `tell` is called with the bytes that have come.
    fn run(
        &self,
        py: Python<'_>,
        warm: u64,
        explain: bool,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(String, Vec<String>)> {
        self.check_fit(py)?;
        let Prepared { described, plan, .. } = self.prepared();
        let (stop, problems, done) = (Stop::default(), Problems::default(), AtomicU64::new(0));
        let plan = plan.clone().until(stop.clone());
        let mut seen = Seen { fates: Fates::default(), done: &done };
        let report = watched(py, &stop, tell.as_ref(), &done, || {
            let source = || plan.source(Variant::WHOLE, &problems);
            let setup = Setup { chip: &described.chip, mapping: &described.mapping, source: &source, warm };
            let mut report = setup.run(Ideal::Nothing, &mut seen)?;
            if explain && !stop.is_asked() {
                setup.relieve(&mut report)?;
            }
            Ok(report)
        })?;
        let report = report.map_err(|error| run_error(py, error))?;
        let warnings = told_problems(py, &problems)?;
        if warm > 0 && report.seconds == 0.0 {
            return Err(failure::chip_error(py, NOTHING_OFFERED.to_owned(), &[]));
        }
        let mut json =
            serde_json::to_value(&report).map_err(|error| PyValueError::new_err(error.to_string()))?;
        json["fates"] = json!(seen.fates);
        Ok((json.to_string(), warnings))
    }

    /// Makes a search; returns what `wirerate chip search --json` prints, and warnings. `tell` is called with the number of trials made.
    #[expect(clippy::too_many_arguments, reason = "a search has as many settings, which Python names")]
    fn search(
        &self,
        py: Python<'_>,
        method: &str,
        losses: Vec<f64>,
        precision: f64,
        trials: u32,
        exceed: f64,
        warm: u64,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(String, Vec<String>)> {
        self.check_fit(py)?;
        let method = match method {
            "mlrsearch" => Method::Mlrsearch,
            "rfc2544" => Method::Rfc2544,
            other => {
                return Err(PyValueError::new_err(format!(
                    "no method \"{other}\"; there are mlrsearch, rfc2544"
                )));
            }
        };
        let inquiry = Inquiry { method, losses, precision, trials, exceed };
        let Prepared { described, plan, .. } = self.prepared();
        let (stop, problems, done) = (Stop::default(), Problems::default(), AtomicU64::new(0));
        let plan = plan.clone().until(stop.clone());
        let answer = watched(py, &stop, tell.as_ref(), &done, || {
            let source = |request: Request| {
                plan.source(Variant { load: request.load, repeat: request.repeat }, &problems)
            };
            let (chip, mapping) = (&described.chip, &described.mapping);
            let bench = Bench { chip, mapping, source: &source, warm };
            inquiry.run(&bench, || {
                done.fetch_add(1, Ordering::Relaxed);
            })
        })?;
        let warnings = told_problems(py, &problems)?;
        match answer {
            Ok(answer) => Ok((answer.to_json().to_string(), warnings)),
            Err(SearchError::Run(error)) => Err(run_error(py, error)),
            Err(error @ SearchError::NothingOffered) => Err(failure::chip_error(py, error.to_string(), &[])),
        }
    }

    /// Plans a sweep over axes, each a parameter with its values; with throughput at that loss, where one is given. It may have any number
    /// of combinations: who runs all of them sees to that.
    fn sweep(
        &self,
        py: Python<'_>,
        axes: Vec<(String, Vec<String>)>,
        runs: u32,
        warm: u64,
        loss: Option<f64>,
    ) -> PyResult<Sweep> {
        Sweep::new(py, self.prepared(), axes, runs, warm, loss)
    }
}

impl Job {
    fn prepared(&self) -> &Prepared {
        &self.fitted.prepared
    }
}

/// Counts what comes in and what the policy ends.
struct Seen<'a> {
    fates: Fates,
    /// Bytes that have come.
    done: &'a AtomicU64,
}

impl Witness for Seen<'_> {
    fn sent(&mut self, _: PortId, _: Nanos, _: &Frame, _: Option<Verdict>) {}

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.fates.ended(frame, verdict);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        self.fates.refused(number, ingress, reason);
    }
}

impl Onlooker for Seen<'_> {
    fn came(&mut self, _: u32, _: &Entry, bytes: &[u8]) {
        self.done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// Stream or capture from words; an interface is one that was given apart.
fn item((interface, text): (Option<String>, String)) -> PyResult<Item> {
    match interface {
        Some(interface) => Ok(Item::Capture(Named { interface: Some(interface), path: PathBuf::from(text) })),
        None => {
            text.parse().map_err(|error: ::chip::traffic::BadStream| PyValueError::new_err(error.to_string()))
        }
    }
}

/// Raises the first capture that could not be read to its end, and returns warnings of the others.
pub(crate) fn told_problems(py: Python<'_>, problems: &Problems) -> PyResult<Vec<String>> {
    let mut warnings = Vec::new();
    for problem in problems.get().into_iter().flatten() {
        match problem {
            Problem::Unreadable(what) => return Err(failure::capture_error(py, what.clone(), "")),
            Problem::Short(what) | Problem::Long(what) => warnings.push(what.clone()),
        }
    }
    Ok(warnings)
}

/// The exception for an error of a plan.
pub(crate) fn refused(py: Python<'_>, error: PlanError) -> PyErr {
    let message = error.to_string();
    match error {
        PlanError::Wrong { diagnostics, .. } => failure::chip_error(py, message, &diagnostics),
        PlanError::Read { path, error } => failure::read_error(py, &path, &error),
        PlanError::Capture(error) => capture_error(py, &error),
        PlanError::NoInterface { known, .. } => {
            failure::policy_error(py, format!("{message}; it has {}", known.join(", ")), &[])
        }
        PlanError::Compile { .. } | PlanError::Setup { .. } => failure::policy_error(py, message, &[]),
        PlanError::NotShipped { known, .. } => {
            failure::chip_error(py, format!("{message}; there are {}", known.join(", ")), &[])
        }
        PlanError::NoPort { known, .. } => {
            failure::chip_error(py, format!("{message}; it has {}", known.join(", ")), &[])
        }
        PlanError::NoMapping { .. } | PlanError::Set { .. } => failure::chip_error(py, message, &[]),
    }
}

fn run_error(py: Python<'_>, error: RunError) -> PyErr {
    match error {
        RunError::Source(SourceError::Traffic(TrafficError::Capture(error))) => capture_error(py, &error),
        error => failure::chip_error(py, error.to_string(), &[]),
    }
}

fn capture_error(py: Python<'_>, error: &CaptureError) -> PyErr {
    match &error.problem {
        CaptureProblem::Input(system) => failure::read_error(py, error.file.as_ref(), system),
        _ => failure::capture_error(py, error.to_string(), &error.file),
    }
}

/// The chips that come with the program, by name, each with the names of its mappings.
#[pyfunction]
pub(crate) fn chips() -> Vec<(String, Vec<String>)> {
    let mut chips = Vec::new();
    for shipped in CHIPS {
        let Some(chip) = description::parse(shipped.text, shipped.name).chip else { continue };
        let its = MAPPINGS.iter().filter(|of| mapping::chip_of(of.text).is_some_and(|of| of == chip.name));
        let names = its.map(|of| of.name.to_owned()).collect();
        chips.push((chip.name, names));
    }
    chips
}
