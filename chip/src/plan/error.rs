//! Reasons for which a run cannot be planned.

use std::io;
use std::path::PathBuf;

use dataplane::replay::ReplayError;
use dataplane::tables::CompileError;
use replay::capture::OpenError;
use wire::capture::CaptureError;

use crate::diagnostic::Diagnostic;
use crate::setting::SetError;

/// Failure to plan a run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No chip or mapping of that name comes with the program.
    #[error("`{name}` is no {what} that comes with wirerate, and no file")]
    NotShipped {
        /// A chip or a mapping.
        what: &'static str,
        /// The name.
        name: String,
        /// The name that was probably meant.
        nearest: Option<&'static str>,
        /// Names that come with the program.
        known: Vec<&'static str>,
    },
    /// A chip of one's own was given without a mapping.
    #[error("no mapping for the chip `{chip}` comes with wirerate")]
    NoMapping {
        /// Name of the chip.
        chip: String,
    },
    /// A chip or a mapping is wrong.
    #[error("{file} has {}", errors(.diagnostics))]
    Wrong {
        /// Its file.
        file: String,
        /// Errors and warnings.
        diagnostics: Vec<Diagnostic>,
    },
    /// The file of a chip or a mapping cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// A parameter cannot be set.
    #[error("`{path}` cannot be set: {error}")]
    Set {
        /// Path given.
        path: String,
        /// Reason for refusing it.
        error: SetError,
    },
    /// The chip has no such port.
    #[error("the chip has no port `{name}`")]
    NoPort {
        /// Name given.
        name: String,
        /// Numbers and kinds that it has.
        known: Vec<String>,
    },
    /// The policy has no interface of that name.
    #[error("the policy has no interface `{name}`")]
    NoInterface {
        /// Name given.
        name: String,
        /// Names of the policy's interfaces.
        known: Vec<String>,
    },
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(CaptureError),
    /// The policy cannot be compiled.
    #[error("{file} cannot be compiled: {error}")]
    Compile {
        /// The file of the policy.
        file: String,
        /// Error of the compiler.
        error: CompileError,
    },
    /// The policy asks for more than this machine has.
    #[error("{file} asks for more than this machine has: {error}")]
    Setup {
        /// The file of the policy.
        file: String,
        /// Error of the setup.
        error: ReplayError,
    },
}

fn errors(diagnostics: &[Diagnostic]) -> String {
    match diagnostics.iter().filter(|found| found.is_error()).count() {
        1 => "an error".to_owned(),
        errors => format!("{errors} errors"),
    }
}

impl From<OpenError> for PlanError {
    fn from(error: OpenError) -> PlanError {
        match error {
            OpenError::Capture(error) => PlanError::Capture(error),
            OpenError::NoInterface { name, known } => PlanError::NoInterface { name, known },
        }
    }
}
