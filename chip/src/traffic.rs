//! Frames to come: generated streams, and several sources merged by time.
//!
//! A [`Stream`] describes traffic, and has a text form for the command line; a [`Generator`] makes its frames, the same
//! from the same seed. Memory grows with the number of flows and with nothing else.

use dataplane::Verdict;
use ipnet::IpNet;
use wire::capture::CaptureError;
use wire::{Nanos, PortId};

use crate::host::{Entry, Traffic};

mod address;
mod cell;
mod clock;
mod generate;
mod paced;
mod stream;
#[cfg(test)]
mod tests;
mod text;

pub use cell::in_cells;
pub use clock::Lines;
pub use generate::Generator;
pub use paced::{First, Slowed};
pub use stream::{Arrivals, Begin, Flows, Rate, Size, Stream, Transport, Ways};
pub use text::{BadStream, KEYS};

/// Sources side by side, their frames in the order of time; of several at one moment, that of the source named first.
pub struct Merge {
    sources: Vec<Box<dyn Traffic>>,
    /// The source that gave the last frame.
    last: usize,
}

impl Merge {
    /// Merges these sources.
    pub fn new(sources: Vec<Box<dyn Traffic>>) -> Merge {
        Merge { sources, last: 0 }
    }

    fn earliest(&mut self) -> Option<(Nanos, usize)> {
        let heads = self.sources.iter_mut().enumerate();
        heads.filter_map(|(place, source)| source.peek().map(|at| (at, place))).min()
    }
}

impl Traffic for Merge {
    fn peek(&mut self) -> Option<Nanos> {
        self.earliest().map(|(at, _)| at)
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let (_, place) = self.earliest()?;
        self.last = place;
        self.sources[place].next(bytes)
    }

    fn left(&mut self, port: PortId, frame: &[u8]) {
        if let Some(source) = self.sources.get_mut(self.last) {
            source.left(port, frame);
        }
    }
}

/// Failure to make traffic.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The policy has no interface of that name.
    #[error("the policy has no interface `{name}`")]
    NoInterface {
        /// The name.
        name: String,
        /// Names of the interfaces that the policy has.
        known: Vec<String>,
    },
    /// No addresses were found that packets could come from.
    #[error("the interface `{from}` is on no network whose hosts could send")]
    NoSource {
        /// The interface that they come in by.
        from: String,
    },
    /// No destination was found that the policy routes out of the interface.
    #[error("no destination was found that the policy routes out of `{to}`")]
    NoDestination {
        /// The interface that they should leave by.
        to: String,
    },
    /// Source and destination are not of the same family.
    #[error("no packet goes from {from} to {to}")]
    Families {
        /// The source.
        from: IpNet,
        /// The destination.
        to: IpNet,
    },
    /// There is no room for the headers.
    #[error("frames of {size} bytes have no room for their headers, which take {least}")]
    TooSmall {
        /// The size asked for, in bytes.
        size: u16,
        /// The least that has room.
        least: u16,
    },
    /// More flows than addresses and ports can tell apart.
    #[error("{flows} flows cannot be told apart: addresses and ports make {most}")]
    TooManyFlows {
        /// Number of flows asked for.
        flows: u32,
        /// Highest number of distinct flows.
        most: u64,
    },
    /// TCP in one direction only would never get past its first segment.
    #[error("TCP in one direction never gets past its first segment")]
    OneWayTcp,
    /// Something that only TCP has.
    #[error("only TCP has `{key}`")]
    OnlyTcp {
        /// The key.
        key: &'static str,
    },
    /// Connections to be closed that have no answers.
    #[error("connections without answers are never closed")]
    NeverClosed,
    /// A flow that was to be set up beforehand did not get through.
    #[error(
        "{packet}, which sets up a flow, did not leave by `{to}`{}",
        .verdict.map_or_else(String::new, |verdict| format!(": {verdict}"))
    )]
    NotThrough {
        /// The packet: "udp 10.0.0.2:1024 > 198.18.0.1:443".
        packet: String,
        /// The interface that it was to leave by.
        to: String,
        /// Verdict on the packet; `None` if it left by another interface, or waits.
        verdict: Option<Verdict>,
    },
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

impl TrafficError {
    /// Returns a remedy, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            TrafficError::NoInterface { known, .. } => format!("the policy has {}", known.join(", ")),
            TrafficError::NoSource { .. } => "say `source=NETWORK`".to_owned(),
            TrafficError::NoDestination { .. } => {
                "say `destination=ADDRESS`, or add a route to the policy".to_owned()
            }
            TrafficError::Families { .. } => "give both as IPv4 or both as IPv6".to_owned(),
            TrafficError::TooSmall { least, .. } => format!("say `size={least}` or more"),
            TrafficError::TooManyFlows { most, .. } => {
                format!("say `flows={most}` or less, or a larger `source=NETWORK`")
            }
            TrafficError::OneWayTcp => {
                "add `both`, so that answers come, or `established`, or `flows=each`".to_owned()
            }
            TrafficError::OnlyTcp { .. } => "say `protocol=tcp`".to_owned(),
            TrafficError::NeverClosed => {
                "add `both`, and leave `stray` and `flows=each` out, or leave `segments` out".to_owned()
            }
            TrafficError::NotThrough { .. } => {
                "choose `source`, `destination` and `dport` so that the policy accepts them, or leave `established` out"
                    .to_owned()
            }
            TrafficError::Capture(_) => return None,
        })
    }
}
