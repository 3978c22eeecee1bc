//! Log keys of `[gateway]`: events, rates and outputs.

use toml::de::DeValue;

use super::value;
use super::{Complaint, Table};
use crate::diagnostic::Code;
use crate::model::{Log, LogOutput};
use crate::word;

/// Reads `log`, `log-events`, `log-rate` and `log-rate-total`.
pub(super) fn read(table: &mut Table<'_, '_, '_>) -> Log {
    let events = table.has("log-events");
    Log {
        outputs: table.list("log", output),
        events: events.then(|| table.items("log-events", |value| value::one_of(value, word::LOG_EVENT))),
        rate: table.take("log-rate", value::rate),
        total: table.take("log-rate-total", value::rate),
    }
}

fn output(value: &DeValue<'_>) -> Result<LogOutput, Complaint> {
    let text = value::text(value)?;
    LogOutput::of(text).ok_or_else(|| {
        let message = format!("\"{text}\" is nowhere that a log can go to");
        Complaint::new(Code::BadLogOutput, message).hint(
            "write \"stderr\", \"journald\", \"syslog\", \"syslog:udp:192.0.2.1:514\", \"syslog:tcp:192.0.2.1:601\" or \
             \"file:/var/log/wirerate/log.json\"",
        )
    })
}
