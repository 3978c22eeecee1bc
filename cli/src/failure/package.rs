//! The Python package, where it cannot be asked.

use std::io;

/// Errors of what the Python package does for a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// Python cannot be run.
    #[error("python3 cannot be run: {error}")]
    NoPython {
        /// Reason.
        error: io::Error,
        /// Extra of the package that is needed.
        extra: &'static str,
    },
    /// Python has no package of that name.
    #[error("python3 has no package wirerate with the extra {extra}")]
    NoPackage {
        /// Extra of the package that is needed.
        extra: &'static str,
    },
    /// The package has ended with an error.
    #[error("{what} ended: {told}")]
    Failed {
        /// Work that it had.
        what: &'static str,
        /// Its last words.
        told: String,
    },
    /// Line of the package that is not understood.
    #[error("the Python package said what is not understood: {line}")]
    Garbled {
        /// The line.
        line: String,
    },
    /// The package cannot be heard any more.
    #[error("the Python package is lost: {0}")]
    Lost(io::Error),
}

impl PackageError {
    /// Returns advice on the error.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            PackageError::NoPython { extra, .. } | PackageError::NoPackage { extra } => Some(format!(
                "install the package into the environment whose python3 comes first: pip install 'wirerate[{extra}]'"
            )),
            PackageError::Garbled { .. } => {
                Some("install the package of this version of the command".to_owned())
            }
            PackageError::Failed { .. } | PackageError::Lost(_) => None,
        }
    }
}
