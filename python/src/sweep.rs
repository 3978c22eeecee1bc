//! Sweeps of a chip, by numbers of combinations.

use std::sync::atomic::{AtomicU64, Ordering};

use ::chip::plan::{Prepared, Problems, Stop};
use ::chip::sweep::objective::{Better, Bound, OBJECTIVES, Objective, Side};
use ::chip::sweep::{Axis, BadAxis, Cell, Figures, Grid, SweepError};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::{IntoPyObject, Py, PyAny, PyErr, PyResult, Python, pyclass, pyfunction, pymethods};
use rayon::ThreadPoolBuilder;
use rayon::prelude::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

use crate::chip::{refused, told_problems};
use crate::failure;
use crate::watch::watched;

/// A plan that is run with each combination of a grid.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Sweep {
    sweep: ::chip::sweep::Sweep,
}

/// Result of a combination: figures by column, or the reason for there being none.
type Row = (Option<Vec<Option<Value>>>, Option<String>);

/// Figure: a number or a name.
#[derive(IntoPyObject)]
enum Value {
    Number(f64),
    Name(String),
}

impl Sweep {
    pub(crate) fn new(
        py: Python<'_>,
        prepared: &Prepared,
        axes: Vec<(String, Vec<String>)>,
        runs: u32,
        warm: u64,
        loss: Option<f64>,
    ) -> PyResult<Sweep> {
        let planned = py.detach(|| {
            let axes: Result<Vec<Axis>, _> =
                axes.into_iter().map(|(name, values)| Axis::new(&name, values)).collect();
            let grid = axes.and_then(Grid::vast).map_err(SweepError::Grid)?;
            let (texts, plan) = (prepared.texts.clone(), prepared.plan.clone());
            let sweep = ::chip::sweep::Sweep { grid, texts, plan, runs, warm, loss };
            sweep.check()?;
            Ok(sweep)
        });
        match planned {
            Ok(sweep) => Ok(Sweep { sweep }),
            Err(error) => Err(not_planned(py, error)),
        }
    }
}

#[pymethods]
impl Sweep {
    /// Number of combinations.
    fn __len__(&self) -> usize {
        self.sweep.grid.combinations()
    }

    /// Names of the figures' columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        Figures::columns(self.sweep.runs, self.sweep.loss)
    }

    /// Raises an error if a search for this column has no sense for the chip.
    fn check_column(&self, py: Python<'_>, column: &str) -> PyResult<()> {
        self.sweep.check_column(column).map_err(|error| not_planned(py, error))
    }

    /// Runs the combinations of these numbers on so many threads, or with 0 on all cores, and returns their rows in the same order, and
    /// warnings. `tell` is called with the number of rows that are done.
    fn rows(
        &self,
        py: Python<'_>,
        numbers: Vec<usize>,
        threads: usize,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<Row>, Vec<String>)> {
        let (stop, problems, done) = (Stop::default(), Problems::default(), AtomicU64::new(0));
        let sweep =
            ::chip::sweep::Sweep { plan: self.sweep.plan.clone().until(stop.clone()), ..self.sweep.clone() };
        let all = sweep.grid.combinations();
        if let Some(number) = numbers.iter().find(|number| **number >= all) {
            return Err(failure::grid_error(py, format!("there is no combination {number} of {all}"), all));
        }
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let row = |number: &usize| {
            if stop.is_asked() {
                return (None, None);
            }
            let row = sweep.row(*number, &problems);
            done.fetch_add(1, Ordering::Relaxed);
            match row.outcome {
                Ok(figures) => (Some(figures.cells().into_iter().map(value).collect()), None),
                Err(error) => (None, Some(error)),
            }
        };
        let work = || pool.install(|| numbers.par_iter().with_max_len(1).map(row).collect());
        let rows: Vec<Row> = watched(py, &stop, tell.as_ref(), &done, work)?;
        Ok((rows, told_problems(py, &problems)?))
    }
}

/// The values of a list as on the command line, whose commas may be within braces or quotes.
#[pyfunction]
pub(crate) fn values(name: &str, text: &str) -> PyResult<Vec<String>> {
    let axis: Result<Axis, BadAxis> = format!("{name}={text}").parse();
    axis.map(|axis| axis.values).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The objectives of a search: name, column, true if more is better, unit, meaning.
#[pyfunction]
pub(crate) fn objectives() -> Vec<(&'static str, &'static str, bool, &'static str, &'static str)> {
    let told = |of: Objective| (of.name, of.column, of.better == Better::More, of.unit, of.about);
    OBJECTIVES.into_iter().map(told).collect()
}

/// The objective of that name, by its place in [`objectives`].
#[pyfunction]
pub(crate) fn objective(name: &str) -> PyResult<usize> {
    let found: Objective = name.parse().map_err(value_error)?;
    Ok(OBJECTIVES.iter().position(|of| of.name == found.name).unwrap_or_default())
}

/// A bound: the place of its objective, the column that is compared, true if it is a lower one, and its value.
#[pyfunction]
pub(crate) fn bound(text: &str) -> PyResult<(usize, &'static str, bool, f64)> {
    let bound: Bound = text.parse().map_err(value_error)?;
    let place = OBJECTIVES.iter().position(|of| of.name == bound.objective.name).unwrap_or_default();
    Ok((place, bound.column, bound.side == Side::AtLeast, bound.value))
}

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn value(cell: Cell) -> Option<Value> {
    match cell {
        Cell::Number(number) => Some(Value::Number(number)),
        Cell::Name(name) => Some(Value::Name(name)),
        Cell::Nothing => None,
    }
}

fn not_planned(py: Python<'_>, error: SweepError) -> PyErr {
    match error {
        SweepError::Set(error) => refused(py, error),
        error => failure::chip_error(py, error.to_string(), &[]),
    }
}
