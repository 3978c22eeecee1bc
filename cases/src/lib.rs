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
//! [`received()`] reads one packet to receive, in the packet syntax of case files: `wirerate explain` takes such packets.
//!
//! Nothing in a file makes this crate panic; each fault of a file is reported with its line. No file is opened but
//! those that a case names, and these by a function of the caller's.

use ipnet::IpNet;
use policy::Policy;
use wire::Nanos;

use dataplane::Verdict;
use dataplane::nat::Endpoint;

mod build;
mod diff;
mod dissect;
mod fault;
mod field;
pub mod host;
mod packet;
mod parse;
mod reassemble;
mod received;
mod report;
mod run;
mod word;

pub use fault::Fault;
pub use parse::{Open, Unusable, read};
pub use received::{Received, received};
pub use report::{Problem, Report, Unreadable, collect, pass};
pub use run::{Failure, Unplayable, play};

use packet::Packet;

/// A case, read.
#[derive(Debug)]
pub struct Case {
    /// Title of the case, in one line.
    pub title: String,
    /// Policy of the gateway.
    pub policy: Policy,
    /// Number of packets received.
    pub packets: u64,
    /// Steps, in order.
    steps: Vec<Step>,
}

/// A step of a case.
#[derive(Debug)]
enum Step {
    /// Time advances to this long after the beginning.
    At(Nanos),
    /// A packet is received.
    In(In),
    /// The gateway forgets all connections.
    Clear,
    /// A dynamic set changes, by request.
    Set(SetStep),
    /// A port mapping changes, by request.
    Port(PortStep),
    /// The gateway reloads this policy.
    Reload(Box<Policy>),
    /// A counter has this value now.
    Counter(Counter),
}

/// Change of a port mapping.
#[derive(Clone, Copy, Debug)]
struct PortStep {
    line: usize,
    /// The host's end.
    inside: Endpoint,
    wish: PortWish,
}

/// Wish for a port mapping.
#[derive(Clone, Copy, Debug)]
enum PortWish {
    /// The outside port, for so long.
    Map(u16, Option<Nanos>),
    /// No mapping.
    Unmap,
}

/// A change of a dynamic set.
#[derive(Clone, Debug)]
struct SetStep {
    line: usize,
    /// Name of the set.
    set: String,
    change: SetWish,
}

/// Wish for a set.
#[derive(Clone, Copy, Debug)]
enum SetWish {
    /// This element in it, for that long, or for the set's own time.
    Add(IpNet, Option<Nanos>),
    /// This element out of it.
    Remove(IpNet),
    /// Nothing in it.
    Flush,
}

/// A packet to receive, with its expected verdict and output.
#[derive(Debug)]
struct In {
    /// Line of the case file, from 1.
    line: usize,
    /// Ingress interface.
    interface: String,
    /// The packet.
    packet: Packet,
    /// Number of times that the packet is received.
    times: u64,
    /// Interval between repetitions.
    every: Nanos,
    /// Expected verdict.
    fate: Fate,
    /// Expected output.
    outs: Vec<Out>,
}

/// Expected verdict of a packet, with rule and translations.
#[derive(Debug)]
struct Fate {
    verdict: Verdict,
    /// Deciding rule; `None` if not stated.
    rule: Option<String>,
    /// Translations; `None` if not stated.
    nats: Option<Vec<String>>,
}

/// A packet expected to be sent.
#[derive(Debug)]
struct Out {
    line: usize,
    interface: String,
    /// Time of departure; `None` if not stated.
    departure: Option<Departure>,
    packet: Packet,
}

/// Time of departure: offset from the beginning, plus an increment for each repetition.
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
