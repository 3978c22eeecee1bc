//! Faults of a case file, by line.

use std::fmt;

/// A fault of a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// Kind of the fault.
    pub(crate) what: What,
}

/// Kind of fault on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A word that means nothing here.
    Unknown(String),
    /// A word that should be another kind of thing.
    Value { word: String, wanted: &'static str },
    /// A missing part.
    Missing(&'static str),
    /// A word that is stated twice.
    Twice(String),
    /// An interface that the policy does not have.
    Interface(String),
    /// A variable that stands for nothing yet, where a packet is to be made with it.
    Unbound(String),
    /// A packet from an address of one IP version to one of the other.
    Families,
    /// Packets quoted within packets, more than so many.
    TooDeep(usize),
    /// More packets come in than this.
    TooMany(u64),
    /// More bytes come in than these many MiB.
    TooLarge(usize),
    /// Time would run out.
    TooLong,
    /// Time would go back.
    Backwards,
    /// There is no policy, or a second one.
    Policy,
    /// The file that holds the policy cannot be read.
    PolicyFile { path: String, error: String },
    /// A counter that does not exist.
    Counter(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Unknown(word) => write!(f, "`{word}` means nothing here"),
            What::Value { word, wanted } => write!(f, "`{word}` is not {wanted}"),
            What::Missing(wanted) => write!(f, "{wanted} is missing"),
            What::Twice(word) => write!(f, "`{word}` is said twice"),
            What::Interface(name) => write!(f, "the policy has no interface `{name}`"),
            What::Unbound(name) => write!(
                f,
                "`${name}` stands for nothing yet: an `out` of an earlier moment has to name it first"
            ),
            What::Families => f.write_str("source and destination are of different IP versions"),
            What::TooDeep(most) => write!(f, "more than {most} packets are quoted within one another"),
            What::TooMany(most) => write!(f, "more than {most} packets come in, all lines together"),
            What::TooLarge(most) => write!(f, "more than {most} MiB of packets come in, all lines together"),
            What::TooLong => f.write_str("it lasts more than 584 years"),
            What::Backwards => f.write_str("time goes back"),
            What::Policy => f.write_str("a case has one `policy:`, before the first packet"),
            What::PolicyFile { path, error } => write!(f, "cannot read the policy {path}: {error}"),
            What::Counter(name) => write!(f, "there is no counter `{name}`"),
        }
    }
}
