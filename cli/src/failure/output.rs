//! Outputs that cannot be written.

use std::io;
use std::path::PathBuf;

use crate::screen;

/// Reason that an output cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// Standard output takes no more.
    #[error("cannot write to standard output: {0}")]
    Standard(io::Error),
    /// A directory or file cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The directory or file.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// A file is there that is somebody's.
    #[error("{path} is there already")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A live capture cannot be written any more.
    #[error("cannot write {path}: {error}; {} are in it", screen::count(*.packets, "packet", "packets"))]
    CaptureFile {
        /// The file.
        path: PathBuf,
        /// Number of packets in the file.
        packets: u64,
        /// Error of the system call.
        error: io::Error,
    },
}

impl OutputError {
    /// Returns advice on the error.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            OutputError::Standard(_) => None,
            OutputError::Write { .. } => Some("name a directory that you may write to"),
            OutputError::Exists { .. } => {
                Some("--force writes over it, and --out names another file, or `-` to look at it only")
            }
            OutputError::CaptureFile { .. } => {
                Some("check that there is room and that you may write there; the gateway goes on")
            }
        }
    }
}
