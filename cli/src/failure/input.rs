//! Inputs that cannot be read; of policies [`super::policy`] tells.

use std::io;
use std::path::PathBuf;

use replay::decrypt::TableError;
use wire::capture::{CaptureError, Problem};

use crate::bench::classify::trace::BadHeader;

/// Reason that an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        error: io::Error,
    },
    /// A capture cannot be read or written.
    #[error(transparent)]
    Capture(CaptureError),
    /// A table of security associations has lines that cannot be read, which have been shown, or none.
    #[error(transparent)]
    Associations(TableError),
    /// Headers cannot be read.
    #[error("{path}{}: {problem}", after(*.line))]
    Trace {
        /// The file of the headers.
        path: PathBuf,
        /// The line, from 1; 0 where it is no line.
        line: usize,
        /// Reason for refusing the line.
        problem: BadHeader,
    },
}

fn after(number: usize) -> String {
    if number == 0 { String::new() } else { format!(":{number}") }
}

impl InputError {
    /// Returns advice on the error.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            InputError::Read { .. } => "check the path and that you may read it",
            InputError::Capture(error) => match error.problem {
                Problem::Input(_) => "check the path and that you may read it",
                Problem::Output(_) => "check that there is room and that you may write there",
                Problem::BadMagic(_) => "give a capture that tcpdump, dumpcap or Wireshark wrote",
                Problem::UnsupportedLink(_) => "capture on an Ethernet or IP interface, or on `any`",
                Problem::HeaderCut => "the file is empty or was cut; capture again",
                _ => "the file is damaged; `editcap` or `pcapfix` may save what is left",
            },
            InputError::Associations(_) => {
                "give Wireshark's table: the file esp_sa of its profile, or what strongSwan's plugin save-keys or \
                 `wirerate run --key-log` wrote; `wirerate replay --help` shows a line"
            }
            InputError::Trace { .. } => {
                "a line has source, destination, source port, destination port, protocol and flags, decimal; \
                 `wirerate generate trace` writes such lines"
            }
        }
    }
}
