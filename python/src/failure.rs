//! Exceptions of the package, which `wirerate/errors.py` defines.

use std::io;
use std::path::Path;

use ::policy::Diagnostic;
use ::policy::keys::KeyFileError;
use config::{Kind, LoadError};
use pyo3::types::{PyAnyMethods, PyTuple};
use pyo3::{IntoPyObjectExt, PyErr, PyResult, Python};
use replay::CompileRefusal;
use replay::capture::NoPackets;

/// A diagnostic as a tuple, in the order of `wirerate.Diagnostic`.
pub(crate) type Told =
    (String, String, String, Option<String>, Option<String>, Option<u32>, Option<u32>, Vec<Related>);

/// A related place as a tuple, in the order of `wirerate.Related`.
type Related = (String, String, u32, u32);

/// Returns a diagnostic as a tuple.
pub(crate) fn told<C: Kind>(found: &config::Diagnostic<C>) -> Told {
    let config::Diagnostic { code, severity, message, hint, place, related } = found;
    let related = related.iter().map(|one| {
        let place = &one.place;
        (one.label.clone(), place.file().to_owned(), place.line(), place.column())
    });
    (
        code.to_string(),
        severity.to_string(),
        message.clone(),
        hint.clone(),
        place.as_ref().map(|place| place.file().to_owned()),
        place.as_ref().map(config::Place::line),
        place.as_ref().map(config::Place::column),
        related.collect(),
    )
}

/// A `PolicyError` with its diagnostics.
pub(crate) fn policy_error(py: Python<'_>, message: String, found: &[Diagnostic]) -> PyErr {
    raised(|| {
        let found = PyTuple::new(py, found.iter().map(told))?;
        error(py, "PolicyError", (message, found))
    })
}

/// A `ChipError` with its diagnostics.
pub(crate) fn chip_error(py: Python<'_>, message: String, found: &[::chip::diagnostic::Diagnostic]) -> PyErr {
    raised(|| {
        let found = PyTuple::new(py, found.iter().map(told))?;
        error(py, "ChipError", (message, found))
    })
}

/// A `GridError` with the number of combinations.
pub(crate) fn grid_error(py: Python<'_>, message: String, combinations: usize) -> PyErr {
    raised(|| error(py, "GridError", (message, combinations)))
}

/// A `ReadError` of a file that a system call could not read.
pub(crate) fn read_error(py: Python<'_>, path: &Path, error_of_system: &io::Error) -> PyErr {
    raised(|| {
        let path = path.display().to_string();
        let (number, text) = (error_of_system.raw_os_error(), error_of_system.to_string());
        // OSError has the number apart from the text.
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        match number {
            Some(number) => error(py, "ReadError", (number, text, path)),
            None => error(py, "ReadError", (format!("{text}: {path}"),)),
        }
    })
}

/// A `ReadError` of a policy.
pub(crate) fn load_error(py: Python<'_>, LoadError { path, error, .. }: &LoadError) -> PyErr {
    read_error(py, path, error)
}

/// The exception for a policy `file` that cannot be carried out.
pub(crate) fn not_compiled(py: Python<'_>, refusal: CompileRefusal, file: &str) -> PyErr {
    match refusal {
        CompileRefusal::Compile(error) => {
            policy_error(py, format!("{file} cannot be compiled: {error}"), &[])
        }
        CompileRefusal::StaticKeys => static_keys(py, file, "a copy with keys of its own needs none"),
        CompileRefusal::Key(KeyFileError::System { path, error, .. }) => read_error(py, &path, &error),
        CompileRefusal::Key(error) => raised(|| self::error(py, "ReadError", (error.to_string(),))),
    }
}

/// The exception for a policy `file` whose keys are in files, with advice.
pub(crate) fn static_keys(py: Python<'_>, file: &str, advice: &str) -> PyErr {
    let message = format!("{file} has keys of tunnels in files, as a live gateway has them: {advice}");
    policy_error(py, message, &[])
}

/// A `WindowError`.
pub(crate) fn window_error(py: Python<'_>, found: NoPackets) -> PyErr {
    raised(|| error(py, "WindowError", (found.to_string(),)))
}

/// A `TableError`.
pub(crate) fn table_error(py: Python<'_>, message: String) -> PyErr {
    raised(|| error(py, "TableError", (message,)))
}

/// A `PacketError` with advice.
pub(crate) fn packet_error(py: Python<'_>, message: String, hint: String) -> PyErr {
    raised(|| error(py, "PacketError", (message, hint)))
}

/// A `CaptureError` of a file that is damaged, or no capture.
pub(crate) fn capture_error(py: Python<'_>, message: String, file: &str) -> PyErr {
    raised(|| error(py, "CaptureError", (message, file)))
}

fn error<'py, A: pyo3::call::PyCallArgs<'py>>(py: Python<'py>, name: &str, arguments: A) -> PyResult<PyErr> {
    let class = py.import("wirerate.errors")?.getattr(name)?;
    Ok(PyErr::from_value(class.call1(arguments)?.into_bound_py_any(py)?))
}

/// An exception, or the one that kept it from being made.
fn raised(make: impl FnOnce() -> PyResult<PyErr>) -> PyErr {
    make().unwrap_or_else(|error| error)
}
