//! Faults of a line of words, by the word.

use std::fmt::Display;
use std::ops::Range;

use wire::header::Protocol;

/// A fault of a line: of a case file, or of a packet in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// Place in the line of the word at fault, in bytes; empty if it is none of the line's.
    pub(crate) at: Range<usize>,
    /// Kind of the fault.
    pub(crate) what: What,
}

/// Kind of fault on a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum What {
    /// A word that means nothing here, and the one that was probably meant.
    #[error("`{word}` means nothing here")]
    Unknown { word: String, nearest: Option<&'static str> },
    /// A word that should be another kind of thing.
    #[error("`{word}` is not {wanted}")]
    Value { word: String, wanted: String },
    /// A missing part.
    #[error("{0} is missing")]
    Missing(String),
    /// A word that is stated twice.
    #[error("`{0}` is said twice")]
    Twice(&'static str),
    /// An interface that the policy does not have, and those that it has.
    #[error("the policy has no interface `{name}`")]
    Interface { name: String, known: Vec<String> },
    /// Another word than the `>` between source and destination.
    #[error("`{0}` stands where `>` should")]
    Arrow(String),
    /// An address without a port, of a protocol that has ports.
    #[error("`{0}` has no port, and the protocol has ports")]
    NoPort(String),
    /// An address with a port, of a protocol that has none.
    #[error("`{0}` has a port, and the protocol has none")]
    Port(String),
    /// A variable that stands for nothing yet, where a packet is to be made with it.
    #[error("`${0}` stands for nothing yet: an `out` of an earlier moment has to name it first")]
    Unbound(String),
    /// A packet from an address of one IP version to one of the other.
    #[error("source and destination are of different IP versions")]
    Families,
    /// ICMP over IPv6, or the other way round.
    #[error("{0} is of the other IP version than the addresses")]
    Version(Protocol),
    /// A packet of fewer bytes than its headers take.
    #[error("a packet of {length} bytes cannot be: its headers take {least}")]
    Length { length: usize, least: usize },
    /// Packets quoted within packets, more than so many.
    #[error("more than {0} packets are quoted within one another")]
    TooDeep(usize),
    /// More packets come in than this.
    #[error("more than {0} packets come in, all lines together")]
    TooMany(u64),
    /// More bytes come in than these many MiB.
    #[error("more than {0} MiB of packets come in, all lines together")]
    TooLarge(usize),
    /// Time would run out.
    #[error("it lasts more than 584 years")]
    TooLong,
    /// Time would go back.
    #[error("time goes back")]
    Backwards,
    /// There is no policy, or a second one.
    #[error("a case has one `policy:`, before the first packet")]
    Policy,
    /// The file that holds the policy cannot be read.
    #[error("cannot read the policy {path}: {error}")]
    PolicyFile { path: String, error: String },
    /// A counter that does not exist.
    #[error("there is no counter `{0}`")]
    Counter(String),
}

impl What {
    /// A word that is not `wanted`.
    pub(crate) fn value(word: &str, wanted: impl Display) -> What {
        What::Value { word: word.to_owned(), wanted: wanted.to_string() }
    }

    /// A word that is none of `known`.
    pub(crate) fn unknown(word: &str, known: impl IntoIterator<Item = &'static str>) -> What {
        What::Unknown { word: word.to_owned(), nearest: config::nearest(word, known) }
    }
}

impl Fault {
    /// Returns advice on the fault, where there is some.
    pub fn hint(&self) -> Option<String> {
        match &self.what {
            What::Unknown { nearest: Some(nearest), .. } => Some(format!("did you mean `{nearest}`?")),
            What::Interface { known, .. } => Some(format!("the policy has {}", known.join(", "))),
            What::NoPort(_) => Some("write 192.0.2.1:443 or [2001:db8::1]:443".to_owned()),
            _ => None,
        }
    }

    /// Returns the marks that stand in the line below `text`, the line of the fault, under the word at fault.
    pub fn marks(&self, text: &str) -> String {
        let chars = |part: Option<&str>| part.map_or(0, |part| part.chars().count());
        let marks = "^".repeat(chars(text.get(self.at.clone())).max(self.at.len().min(1)));
        format!("{:before$}{marks}", "", before = chars(text.get(..self.at.start)))
    }
}
