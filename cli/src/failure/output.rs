//! Outputs that cannot be written.

use std::io;
use std::path::PathBuf;

use crate::screen;

/// Why an output cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// Standard output takes no more.
    #[error("cannot write to standard output: {0}")]
    Standard(io::Error),
    /// A directory or file cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A live capture cannot be written any more.
    #[error("cannot write {path}: {error}; {} are in it", screen::count(*.packets, "packet", "packets"))]
    CaptureFile {
        /// The file.
        path: PathBuf,
        /// Packets that are in it.
        packets: u64,
        /// What the system says.
        error: io::Error,
    },
}

impl OutputError {
    /// What to do about it.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            OutputError::Standard(_) => None,
            OutputError::Write { .. } => Some("name a directory that you may write to"),
            OutputError::CaptureFile { .. } => {
                Some("check that there is room and that you may write there; the gateway goes on")
            }
        }
    }
}
