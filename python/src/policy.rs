//! Policies, read and checked.

use std::path::PathBuf;

use ::policy::{Checked, Diagnostic, Lines, Sound, keys};
use pyo3::{PyErr, PyResult, Python, pyclass, pymethods};

use crate::failure::{self, Told, told};

/// A policy without errors.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Policy {
    pub(crate) file: String,
    pub(crate) policy: ::policy::Policy,
    pub(crate) lines: Lines,
    pub(crate) warnings: Vec<Diagnostic>,
}

#[pymethods]
impl Policy {
    /// Reads a file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Policy> {
        let checked = py.detach(|| ::policy::load(&path)).map_err(|error| failure::load_error(py, &error))?;
        Policy::of(py, checked, path.display().to_string())
    }

    /// Reads a text.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str, file: String) -> PyResult<Policy> {
        let checked = py.detach(|| ::policy::check(text, &file));
        Policy::of(py, checked, file)
    }

    /// Name of the file.
    #[getter]
    fn file(&self) -> &str {
        &self.file
    }

    /// Numbers of parts, in words.
    #[getter]
    fn outline(&self) -> String {
        let ::policy::Policy { interfaces, rules, nats, routes, .. } = &self.policy;
        format!(
            "interfaces {}, rules {}, translations {}, routes {}",
            interfaces.len(),
            rules.len(),
            nats.len(),
            routes.len()
        )
    }

    /// Warnings and notes.
    #[getter]
    fn warnings(&self) -> Vec<Told> {
        self.warnings.iter().map(told).collect()
    }

    /// True if the keys of tunnels are in files.
    #[getter]
    fn has_key_files(&self) -> bool {
        keys::has_files(&self.policy)
    }

    /// Canonical text.
    fn to_toml(&self) -> String {
        self.policy.to_string()
    }

    /// True if the other policy says the same.
    fn equals(&self, other: &Policy) -> bool {
        self.policy == other.policy
    }
}

impl Policy {
    fn of(py: Python<'_>, checked: Checked, file: String) -> PyResult<Policy> {
        match checked.sound() {
            Ok(Sound { policy, lines, warnings }) => Ok(Policy { file, policy, lines, warnings }),
            Err(errors) => Err(wrong(py, &file, &errors)),
        }
    }
}

fn wrong(py: Python<'_>, file: &str, errors: &[Diagnostic]) -> PyErr {
    let many = if errors.len() == 1 { "an error".to_owned() } else { format!("{} errors", errors.len()) };
    failure::policy_error(py, format!("{file} has {many}"), errors)
}
