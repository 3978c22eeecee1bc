//! Case files: a policy, packets in, and the packets, verdicts and counters that must come of them. `docs/cases.md`
//! is the manual of the format.
//!
//! A case is read ([`read`]) and played ([`play`]): every frame goes through the replay host in its four ways, one
//! frame or a batch at a time, and through all further hosts that the caller gives, such as modelled chips. All hosts
//! must do the same, to the byte and to the nanosecond, and that must be what the case expects. [`pass`] does both and
//! words what differs, as `wirerate test` prints it:
//!
//! ```
//! use std::path::Path;
//!
//! let case = r#"
//! title: nobody comes in from the wan side
//! policy:
//!     [interface.lan]
//!     zone = "lan"
//!     addresses = ["192.168.1.1/24"]
//!     [interface.wan]
//!     zone = "wan"
//!     addresses = ["203.0.113.2/24"]
//!
//! in wan udp 203.0.113.7:9 > 192.168.1.10:53 => forwarded
//! "#;
//! let report = cases::pass(case, Path::new("office.case"), |path| std::fs::read_to_string(path), &[]).unwrap_err();
//! assert!(report.to_string().contains("expected forwarded, got dropped default-drop"), "{report}");
//! ```
//!
//! Nothing in a file makes this crate panic; each fault of a file is reported with its line. No file is opened but
//! those that a case names, and these by a function of the caller's.

use policy::Policy;
use wire::Nanos;

use dataplane::Verdict;

mod build;
mod diff;
mod dissect;
mod fault;
mod field;
pub mod host;
mod packet;
mod parse;
mod reassemble;
mod report;
mod run;

pub use fault::Fault;
pub use parse::{Open, Unusable, read};
pub use report::{Problem, Report, Unreadable, collect, pass};
pub use run::{Failure, Unplayable, play};

use packet::Packet;

/// A case, read.
#[derive(Debug)]
pub struct Case {
    /// What it shows, in one line.
    pub title: String,
    /// The policy that it is played with.
    pub policy: Policy,
    /// Number of packets that come in.
    pub packets: u64,
    /// What happens, in order.
    steps: Vec<Step>,
}

/// What happens next in a case.
#[derive(Debug)]
enum Step {
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
struct In {
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
struct Counter {
    line: usize,
    name: String,
    value: u64,
}
