//! Failures of a command, with their messages and exit codes.
//!
//! Each group of causes has a file of its own, with its texts, hints and exit codes.

use std::io;

use ::gateway::ClientError;
use replay::capture::OpenError;
use wire::capture::CaptureError;

use crate::bench::in_memory::BenchError;
use crate::draft::AnswerError;
use crate::screen;

mod chip;
mod fault;
mod gateway;
mod input;
mod output;
mod package;
mod policy;
mod usage;

pub(crate) use self::chip::ChipError;
pub(crate) use self::fault::Fault;
pub(crate) use self::gateway::GatewayError;
pub(crate) use self::input::InputError;
pub(crate) use self::output::OutputError;
pub(crate) use self::package::PackageError;
pub(crate) use self::policy::PolicyError;
pub(crate) use self::usage::UsageError;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The policy, a description, points of an estimate or a test is wrong, an import left something untranslated, two policies differ, or a set
    /// is full.
    Wrong = 1,
    /// The command line is wrong.
    Usage = 2,
    /// An input cannot be read, or an output not written.
    Unreadable = 3,
    /// The live gateway could not begin, or cannot be asked.
    NoGateway = 4,
}

/// Reason for the end of a command.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Failure {
    /// The command line asks for something that there is not, or that cannot be.
    Usage(#[from] UsageError),
    /// A policy cannot be read, is wrong or too large.
    Policy(#[from] PolicyError),
    /// A file other than a policy cannot be read.
    Input(#[from] InputError),
    /// An output cannot be written.
    Output(#[from] OutputError),
    /// A chip, its mapping or its traffic.
    Chip(#[from] ChipError),
    /// The Python package.
    Package(#[from] PackageError),
    /// A live gateway.
    Gateway(#[from] GatewayError),
    /// A measurement could not be made.
    Bench(#[from] BenchError),
    /// A fault of this program.
    Fault(#[from] Fault),
}

impl Failure {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Policy(error) => error.exit(),
            Failure::Input(_) | Failure::Output(_) => Exit::Unreadable,
            Failure::Chip(error) => error.exit(),
            Failure::Gateway(error) => error.exit(),
            Failure::Bench(_) | Failure::Package(_) | Failure::Fault(_) => Exit::Wrong,
        }
    }

    /// Returns advice on the failure.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Failure::Usage(error) => Some(error.hint()),
            Failure::Policy(error) => error.hint().map(str::to_owned),
            Failure::Input(error) => Some(error.hint().to_owned()),
            Failure::Output(error) => error.hint().map(str::to_owned),
            Failure::Chip(error) => error.hint(),
            Failure::Package(error) => error.hint(),
            Failure::Gateway(error) => Some(error.hint()),
            Failure::Bench(_) => None,
            Failure::Fault(fault) => fault.hint().map(str::to_owned),
        }
    }

    /// True if it is only that nobody reads the output any more.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Output(OutputError::Standard(error)) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        screen::error(self, self.hint().as_deref());
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        OutputError::Standard(error).into()
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Failure {
        UsageError::Answer(error).into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        GatewayError::Client(error).into()
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        match error {
            OpenError::NoInterface { name, known } => UsageError::NoInterface { name, known }.into(),
            OpenError::Capture(error) => error.into(),
        }
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Failure {
        InputError::Capture(error).into()
    }
}
