//! Chips, mappings and their traffic: what they do not have, what does not fit, and what did not run.

use chip::cipher::CipherError;
use chip::estimate::EstimateError;
use chip::plan::PlanError;
use chip::reproduce::ReproduceError;
use chip::run::{RunError, SourceError};
use chip::sweep::{BadAxis, NOTHING_OFFERED, SweepError};
use chip::traffic::{BadStream, TrafficError};

use super::Exit;
use crate::screen;

/// Errors of chips, mappings and their traffic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChipError {
    /// A chip, a mapping or a parameter of them is not there.
    #[error(transparent)]
    Plan(PlanError),
    /// A cipher cannot be measured.
    #[error(transparent)]
    Cipher(CipherError),
    /// A claim could not be put to the test.
    #[error(transparent)]
    Reproduce(ReproduceError),
    /// Points have no regression, or one that predicts nothing.
    #[error("{file}: {error}")]
    Estimate {
        /// The file of the points, or where they are from.
        file: String,
        /// Reason.
        error: EstimateError,
    },
    /// Programs or tables do not fit the chip, in these many ways, which have been shown.
    #[error("{}", misfit(.file, *.errors))]
    DoesNotFit {
        /// The mapping.
        file: String,
        /// Number of them.
        errors: usize,
    },
    /// The axes of a sweep make no sense.
    #[error(transparent)]
    Grid(BadAxis),
    /// A key of generated traffic cannot be varied like that.
    #[error(transparent)]
    Stream(BadStream),
    /// The traffic has no frame to search with.
    #[error("{NOTHING_OFFERED}")]
    NothingOffered,
    /// Runs are to be repeated that have nothing random.
    #[error("captures are the same in every run: there is nothing to repeat")]
    NothingRandom,
    /// Power is wanted of a chip that does not say what it draws.
    #[error(transparent)]
    NoPower(SweepError),
    /// A search with something that makes no sense: too few objectives for a picture, or one twice.
    #[error("{0}")]
    Objectives(String),
    /// None of so many combinations could be run; each has been shown with its reason.
    #[error("none of {} could be run", screen::count(*.0 as u64, "combination", "combinations"))]
    NothingRan(usize),
    /// A chip did not run to the end.
    #[error(transparent)]
    Run(RunError),
}

fn misfit(file: &str, errors: usize) -> String {
    match errors {
        1 => format!("something does not fit where {file} puts it"),
        errors => format!("{errors} things do not fit where {file} puts them"),
    }
}

impl ChipError {
    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            ChipError::Run(RunError::Source(SourceError::Traffic(error))) => match error {
                TrafficError::Capture(_) => Exit::Unreadable,
                TrafficError::NotThrough { .. } => Exit::Wrong,
                _ => Exit::Usage,
            },
            ChipError::DoesNotFit { .. }
            | ChipError::Run(_)
            | ChipError::NothingRan(_)
            | ChipError::Estimate { .. }
            | ChipError::Reproduce(_) => Exit::Wrong,
            // What was asked for the chip does not have; a chip without what every cipher needs is a fault of its own.
            ChipError::Cipher(CipherError::TooMany { .. } | CipherError::Key(_)) => Exit::Usage,
            ChipError::Cipher(_) => Exit::Wrong,
            ChipError::Plan(_)
            | ChipError::Grid(_)
            | ChipError::Stream(_)
            | ChipError::NothingOffered
            | ChipError::NothingRandom
            | ChipError::NoPower(_)
            | ChipError::Objectives(_) => Exit::Usage,
        }
    }

    /// Returns advice on the error.
    pub(super) fn hint(&self) -> Option<String> {
        Some(match self {
            ChipError::Plan(PlanError::NoPort { known, .. }) => format!("the chip has {}", known.join(", ")),
            ChipError::Plan(PlanError::NotShipped { nearest, known, .. }) => {
                let known = known.join(", ");
                match nearest {
                    Some(nearest) => {
                        format!("did you mean {nearest}? There are {known}; or give the path of a file (TOML)")
                    }
                    None => format!("there are {known}; or give the path of a file (TOML)"),
                }
            }
            ChipError::Plan(PlanError::NoMapping { .. }) => {
                "give one with --mapping FILE; docs/add/chip.md shows how, and `wirerate chip list tetra-pool` prints one to begin from".to_owned()
            }
            ChipError::Plan(PlanError::Set { .. }) => {
                "paths are as in the TOML of the chip (memory.sram.latency) or of the mapping (pool.process.threads)"
                    .to_owned()
            }
            ChipError::DoesNotFit { .. } => {
                "lower the policy's [limit], use fewer rules, place regions elsewhere with --set region.NAME=MEMORY, or take \
                 another --mapping: `wirerate chip list` has those that come with the program"
                    .to_owned()
            }
            ChipError::Grid(_) => "`wirerate chip sweep --help` has examples".to_owned(),
            ChipError::NoPower(_) => {
                "leave power out, or give the description [power], with sources: docs/add/chip.md".to_owned()
            }
            ChipError::Objectives(_) => "`wirerate chip optimise --help` has examples".to_owned(),
            ChipError::Estimate { error, .. } => error.hint().to_owned(),
            ChipError::NothingOffered => "offer more frames than --warm leaves out".to_owned(),
            ChipError::NothingRandom => {
                "leave --repeat out, or generate the traffic, as in 'lan>wan,arrivals=poisson'".to_owned()
            }
            ChipError::Run(RunError::Deadlock(_)) => {
                "let another pool empty the ring, or give it more entries than there are threads that fill it".to_owned()
            }
            ChipError::Run(RunError::Source(SourceError::Traffic(error))) => return error.hint(),
            ChipError::Cipher(CipherError::NoMemory(_)) => {
                "take a chip with memories called scratch, sram and dram, as the ixp2800, or with one memory alone, as the pc1".to_owned()
            }
            ChipError::Run(_)
            | ChipError::Cipher(_)
            | ChipError::Plan(_)
            | ChipError::Reproduce(_)
            | ChipError::Stream(_)
            | ChipError::NothingRan(_) => return None,
        })
    }
}
