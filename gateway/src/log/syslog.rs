//! Messages of RFC 5424. By ourselves: the crates that there are write the time of writing, not that of the event, and connect
//! and wait where a gateway must not.

use std::fmt::Write as _;

use super::line::{Line, plain};

/// "System daemons", RFC 5424, section 6.2.1.
const FACILITY: u8 = 3;

/// Name of the structured data (section 6.3.2). The number is the one that RFC 5612 sets aside for examples: wirerate has
/// none of its own.
pub const SD_ID: &str = "wirerate@32473";

/// Who sends messages.
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

    /// A message.
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

/// Section 6.3.3: these three are escaped, nothing else.
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
