//! Command lines that ask for what there is not, or for what does not go together.

use std::path::PathBuf;

use replay::capture::NoPackets;
use report::explain::NoPacket;
use report::packet_syntax::{EXAMPLE, WordError};

use crate::draft::AnswerError;

/// Errors of a command line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    /// Two options exclude each other.
    #[error("{one} does not go with {other}")]
    Clash {
        /// One option.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A capture is said to come in by an interface that the policy does not have.
    #[error("the policy has no interface `{name}`")]
    NoInterface {
        /// Name given.
        name: String,
        /// Names of the policy's interfaces.
        known: Vec<String>,
    },
    /// An output would overwrite an input.
    #[error("{path} is read and would be written over")]
    Overwrites {
        /// The capture.
        path: PathBuf,
    },
    /// A packet in words is not understood.
    #[error(transparent)]
    Words(#[from] WordError),
    /// A capture has no packet of that number.
    #[error(transparent)]
    NoPacket(#[from] NoPacket),
    /// No packet is in a window of time.
    #[error(transparent)]
    NoPackets(#[from] NoPackets),
    /// An answer for a first policy will not do, or is missing.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Several files for a format that is read from one.
    #[error("{format} is read from one file")]
    OneFile {
        /// Name of the format.
        format: String,
    },
    /// A word is not among those that are known.
    #[error("`{word}` is no {what}")]
    Unknown {
        /// Kind of word.
        what: &'static str,
        /// The word.
        word: String,
    },
    /// A chip would not be warmer than the air.
    #[error("a chip of {junction} degrees gives air of {ambient} degrees no heat")]
    NoHeat {
        /// Highest temperature of the chip, in degrees Celsius.
        junction: f64,
        /// Highest temperature of the air, in degrees Celsius.
        ambient: f64,
    },
    /// The name is not known.
    #[error("there is no {what} `{name}`")]
    NotKnown {
        /// A claim, a cipher, a chip or a mapping.
        what: &'static str,
        /// The name.
        name: String,
        /// Known names.
        known: Vec<&'static str>,
    },
}

impl UsageError {
    /// Returns advice on the error.
    pub(super) fn hint(&self) -> String {
        match self {
            UsageError::Clash { .. } => "leave one of them out; --help says what each is for".to_owned(),
            UsageError::NoInterface { known, .. } => format!("the policy has {}", known.join(", ")),
            UsageError::Overwrites { .. } => "name another file or directory to write to".to_owned(),
            UsageError::Words(error) => {
                error.hint().unwrap_or_else(|| format!("{EXAMPLE}; `wirerate explain --help` has the words"))
            }
            UsageError::Answer(error) => error.hint(),
            UsageError::NoPacket(error) => error.hint(),
            UsageError::NoPackets(_) => {
                "--from and --to are seconds from that packet on, or times of UTC; --from is the earlier"
                    .to_owned()
            }
            UsageError::OneFile { .. } => "import each by itself, and put the policies together".to_owned(),
            UsageError::Unknown { .. } => "`wirerate reasons` lists them all".to_owned(),
            UsageError::NoHeat { .. } => "give a --junction above --ambient".to_owned(),
            UsageError::NotKnown { name, known, .. } => match config::nearest(name, known.iter().copied()) {
                Some(nearest) => format!("did you mean {nearest}? There are {}", known.join(", ")),
                None => format!("there are {}", known.join(", ")),
            },
        }
    }
}
