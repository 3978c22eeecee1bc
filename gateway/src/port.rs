//! The state of a port, as operators see it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A port, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortState {
    /// Name of the interface.
    pub interface: String,
    /// Presence of the port.
    pub state: Presence,
    /// Carrier of its link.
    #[serde(default)]
    pub carrier: Carrier,
    /// Driver in use; empty where the port is not open.
    pub driver: String,
    /// Drivers that were tried and failed, with the cause.
    pub refused: Vec<String>,
    /// Packets dropped behind the gateway.
    #[serde(flatten)]
    pub egress: EgressDrops,
}

impl PortState {
    /// Port of an interface, so far without a driver.
    pub(crate) fn new(interface: &str, state: Presence) -> PortState {
        PortState {
            interface: interface.to_owned(),
            state,
            carrier: Carrier::Unknown,
            driver: String::new(),
            refused: Vec::new(),
            egress: EgressDrops::default(),
        }
    }
}

/// Packets dropped at an interface behind the gateway, by Linux's count since the gateway's start: of workers, of the fast path and of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressDrops {
    /// Packets that the device dropped: no carrier, too long for the other end, no room (`tx_dropped`).
    #[serde(rename = "tx_dropped", default)]
    pub device: u64,
    /// Packets that the queueing discipline dropped. Those of workers pass it by.
    #[serde(rename = "qdisc_dropped", default)]
    pub qdisc: u64,
}

/// Carrier of a link, as Linux reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Carrier present.
    Up,
    /// No carrier.
    Down,
    /// No such interface in Linux, or the interface is down.
    #[default]
    Unknown,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Carrier::Up => "up",
            Carrier::Down => "down",
            Carrier::Unknown => "-",
        })
    }
}

/// Presence of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// Open: frames are received and sent.
    Up,
    /// Interface administratively down in Linux.
    Down,
    /// No such interface in Linux.
    Absent,
    /// Failed to open.
    Failed,
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Presence::Up => "up",
            Presence::Down => "down",
            Presence::Absent => "absent",
            Presence::Failed => "failed",
        })
    }
}
