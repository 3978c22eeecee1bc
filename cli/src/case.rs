//! Case files: a policy, packets in, and what must come of them. `docs/cases.md` is the manual of the format.
//!
//! [`read`] reads one, [`run::play`] plays it on every host and says what differs from what is expected. Nothing
//! in a file makes this panic; what is wrong with one is told with its line.

use policy::Policy;
use wire::Nanos;

use dataplane::Verdict;

mod build;
mod diff;
mod dissect;
mod fault;
mod field;
mod host;
mod packet;
mod parse;
mod reassemble;
pub(crate) mod run;

pub(crate) use parse::{Unusable, read};

use packet::Packet;

/// A case, read.
#[derive(Debug)]
pub(crate) struct Case {
    /// What it shows, in one line.
    pub(crate) title: String,
    /// The policy that it is played with.
    pub(crate) policy: Policy,
    /// What happens, in order.
    pub(crate) steps: Vec<Step>,
    /// Number of packets that come in.
    pub(crate) packets: u64,
}

/// What happens next in a case.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is now this long after the beginning.
    At(Nanos),
    /// A packet comes in.
    In(In),
    /// All connections are forgotten.
    Clear,
    /// Another policy holds from now on.
    Reload(Box<Policy>),
    /// A counter has this value now.
    Counter(Counter),
}

/// A packet that comes in, and what must come of it.
#[derive(Debug)]
pub(crate) struct In {
    /// Where it is written.
    line: usize,
    /// The interface that it comes in by.
    interface: String,
    /// The packet.
    packet: Packet,
    /// How often it comes.
    times: u64,
    /// How long after one another.
    every: Nanos,
    /// Its fate.
    fate: Fate,
    /// What comes out for it.
    outs: Vec<Out>,
}

/// What must become of a packet.
#[derive(Debug)]
struct Fate {
    verdict: Verdict,
    /// The rule that decided; `None` if it is not said.
    rule: Option<String>,
    /// Translations; `None` if they are not said.
    nats: Option<Vec<String>>,
}

/// A packet that must come out.
#[derive(Debug)]
struct Out {
    line: usize,
    interface: String,
    /// When it departs; `None` if it is not said.
    departure: Option<Departure>,
    packet: Packet,
}

/// When a packet departs: so long after the beginning, and for each repetition so much later.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Nanos,
    every: Nanos,
}

/// A counter and its value.
#[derive(Debug)]
pub(crate) struct Counter {
    line: usize,
    name: String,
    value: u64,
}
