//! Ray clusters that cannot be asked.

use std::io;

/// Errors of sweeps on a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// Python cannot be run.
    #[error("python3 cannot be run: {0}")]
    NoPython(io::Error),
    /// Python has no package of that name.
    #[error("python3 has no package wirerate with Ray")]
    NoPackage,
    /// The package has ended with an error.
    #[error("the sweep on the cluster ended: {told}")]
    Failed {
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

impl ClusterError {
    /// Returns advice on the error.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            ClusterError::NoPython(_) | ClusterError::NoPackage => Some(
                "install the package into the environment whose python3 comes first: pip install 'wirerate[ray]'",
            ),
            ClusterError::Garbled { .. } => Some("install the package of this version of the command"),
            ClusterError::Failed { .. } | ClusterError::Lost(_) => None,
        }
    }
}
