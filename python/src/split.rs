//! Replays divided by flow.

use dataplane::Tables;
use pyo3::exceptions::PyValueError;
use pyo3::{Bound, PyResult, Python, pyfunction};
use replay::StaticKeys;
use replay::split::{self, PartResult};

use crate::failure;
use crate::policy::Policy;

/// Obstacles that keep replays by a policy from being divided by flow, each in a sentence.
#[pyfunction]
pub(crate) fn obstacles(py: Python<'_>, policy: Bound<'_, Policy>) -> PyResult<Vec<String>> {
    let tables = compiled(py, policy.get())?;
    let policy = &policy.get().policy;
    Ok(split::obstacles(policy, &tables).iter().map(ToString::to_string).collect())
}

/// Merges the outcomes of all parts: the summary in JSON, or a reason for which it might not be that of a replay of all packets.
#[pyfunction]
pub(crate) fn merge(
    py: Python<'_>,
    policy: Bound<'_, Policy>,
    parts: Vec<String>,
) -> PyResult<(Option<String>, Option<String>)> {
    let tables = compiled(py, policy.get())?;
    let parts: Result<Vec<PartResult>, _> = parts.iter().map(|part| serde_json::from_str(part)).collect();
    let parts = parts.map_err(|error| PyValueError::new_err(format!("no outcome of a part: {error}")))?;
    Ok(match py.detach(|| split::merge(&tables, &parts)) {
        Ok(summary) => (Some(summary.to_string()), None),
        Err(inexact) => (None, Some(inexact.to_string())),
    })
}

fn compiled(py: Python<'_>, policy: &Policy) -> PyResult<Tables> {
    let compiled = py.detach(|| replay::compile(&policy.policy, StaticKeys::Left));
    let compiled = compiled.map_err(|refusal| failure::not_compiled(py, refusal, &policy.file))?;
    Ok(compiled.tables)
}
