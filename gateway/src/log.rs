//! What the gateway says of itself, on standard error: events with their names, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Begins to log. The environment variable WIRERATE_LOG says from which level on, `info` where it is absent. Only the
/// first call in a process has an effect.
pub fn start(format: Format) {
    let filter = EnvFilter::try_from_env("WIRERATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Nobody but this function sets a logger; a second call changes nothing.
    let _ = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}
