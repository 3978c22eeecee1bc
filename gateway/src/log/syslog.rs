//! Messages of RFC 5424, encoded here: existing crates give the time of writing instead of the event's, and block on
//! connecting, where a gateway must not.

use std::fmt::Write as _;

use super::line::{Line, plain};

/// "System daemons", RFC 5424, section 6.2.1.
const FACILITY: u8 = 3;

/// Name of the structured data (section 6.3.2). The enterprise number is the one that RFC 5612 reserves for examples:
/// wirerate has none of its own.
pub const SD_ID: &str = "wirerate@32473";

/// Originator in the header: host name and process ID.
pub(super) struct Sender {
    host: String,
    process: u32,
}

impl Sender {
    pub(super) fn new() -> Sender {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = host.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Sender { host, process: std::process::id() }
    }

    /// Encodes a message.
    pub(super) fn message(&self, line: &Line) -> String {
        let priority = FACILITY * 8 + line.level.severity();
        let Sender { host, process } = self;
        let mut text =
            format!("<{priority}>1 {} {host} wirerate {process} {} [{SD_ID}", line.time(), line.event);
        for (key, value) in &line.fields {
            let _ = write!(text, " {key}=\"{}\"", escaped(&plain(value)));
        }
        let _ = write!(text, "] {}", line.message());
        text
    }
}

/// Escapes the three characters of section 6.3.3, and no others.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for sign in value.chars() {
        if matches!(sign, '"' | '\\' | ']') {
            text.push('\\');
        }
        text.push(sign);
    }
    text
}
