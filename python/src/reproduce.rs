//! Published measurements beside predictions.

use std::sync::atomic::{AtomicU64, Ordering};

use ::chip::plan::Stop;
use ::chip::reproduce::{Claim, Model, Plan, Study, claims, reproduce as predicted};
use pyo3::exceptions::PyValueError;
use pyo3::{Py, PyAny, PyResult, Python, pyfunction};

use crate::failure;
use crate::watch::watched;

/// Returns the outcomes of claims, or of studies, by their names, or of all, as `wirerate reproduce --json` prints them. `tell` is called
/// with the number of runs that are done.
#[pyfunction]
pub(crate) fn reproduce(
    py: Python<'_>,
    ids: Vec<String>,
    ranges: bool,
    tell: Option<Py<PyAny>>,
) -> PyResult<String> {
    let all = claims();
    let named = |claim: &Claim, id: &str| {
        claim.id.eq_ignore_ascii_case(id) || claim.study.name().eq_ignore_ascii_case(id)
    };
    if let Some(id) = ids.iter().find(|id| !all.iter().any(|claim| named(claim, id))) {
        let known: Vec<&str> =
            Study::ALL.iter().map(|study| study.name()).chain(all.iter().map(|claim| claim.id)).collect();
        return Err(PyValueError::new_err(format!(
            "no claim or study \"{id}\"; there are {}",
            known.join(", ")
        )));
    }
    let wanted = |claim: &Claim| ids.is_empty() || ids.iter().any(|id| named(claim, id));
    let chosen: Vec<Claim> = all.into_iter().filter(wanted).collect();
    let (stop, done) = (Stop::default(), AtomicU64::new(0));
    let count = || {
        done.fetch_add(1, Ordering::Relaxed);
    };
    let outcomes = watched(py, &stop, tell.as_ref(), &done, || {
        let model = Model::default();
        let mut outcomes = predicted(&model, &chosen, &|_| count())?;
        if ranges && !stop.is_asked() {
            Plan::new(&model, &chosen, &outcomes).run(&mut outcomes, &count)?;
        }
        Ok(outcomes)
    })?;
    let outcomes = outcomes.map_err(|error: ::chip::reproduce::ReproduceError| {
        failure::chip_error(py, error.to_string(), &[])
    })?;
    serde_json::to_string(&outcomes).map_err(|error| PyValueError::new_err(error.to_string()))
}
