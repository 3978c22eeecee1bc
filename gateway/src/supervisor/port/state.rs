//! The state of a port, as operators see it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A port, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// Its interface.
    pub interface: String,
    /// Presence.
    pub state: Presence,
    /// Carrier of its link.
    #[serde(default)]
    pub carrier: Carrier,
    /// How frames come and go.
    pub driver: String,
    /// Drivers that were tried and did not work, and why.
    pub refused: Vec<String>,
}

/// Carrier of a link, as Linux says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Somebody is.
    Up,
    /// Nobody is.
    Down,
    /// Linux does not have the interface, or it is switched off.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// Frames come and go.
    Up,
    /// Linux has the interface, but it is switched off.
    Down,
    /// Linux does not have the interface.
    Absent,
    /// It could not be opened.
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
