//! What the gateway says of itself, on standard error: events with their names, for people or for machines; and the log of
//! packets, connections and mappings, where the policy asks for one.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

mod journald;
pub mod line;
mod output;
pub mod syslog;
mod writer;

#[cfg(test)]
mod tests;

pub use writer::{Feed, LogCounts};
pub(crate) use writer::{Parcel, Writer};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// A count of records that were made and not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What they were of: `rule`, `connection` or `nat`.
    pub of: &'static str,
    /// The rule, by place.
    pub rule: Option<u32>,
    /// Number of them.
    pub count: u64,
}

/// What was given to [`start`].
static FORMAT: OnceLock<Format> = OnceLock::new();

impl Format {
    /// How log lines of this process look.
    pub(crate) fn current() -> Format {
        FORMAT.get().copied().unwrap_or_default()
    }
}

/// Begins to log. The environment variable WIRERATE_LOG says from which level on, `info` where it is absent. Only the
/// first call in a process has an effect.
pub fn start(format: Format) {
    FORMAT.get_or_init(|| format);
    let filter = EnvFilter::try_from_env("WIRERATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Nobody but this function sets a logger; a second call changes nothing.
    let _ = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}
