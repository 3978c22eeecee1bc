//! Logging: named events of the gateway on standard error, as text or JSON; and the log of packets, connections and
//! mappings, where the policy enables one.

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

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text, for people.
    #[default]
    Text,
    /// JSON, an object a line.
    Json,
}

/// Count of records made and not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Kind of the records: `rule`, `connection` or `nat`.
    pub of: &'static str,
    /// Index of the rule.
    pub rule: Option<u32>,
    /// Number of records.
    pub count: u64,
}

/// Format given to [`start`].
static FORMAT: OnceLock<Format> = OnceLock::new();

impl Format {
    /// Returns the format of this process's log lines.
    pub(crate) fn current() -> Format {
        FORMAT.get().copied().unwrap_or_default()
    }
}

/// Starts logging from the level in the environment variable WIRERATE_LOG, by default `info`. Only the first call in a
/// process has an effect.
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
