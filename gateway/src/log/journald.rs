//! Datagrams of the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): a field a line, with a length
//! before a value that contains newlines.

use super::line::{Line, plain};

/// Encodes a record for journald.
pub(super) fn datagram(line: &Line) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    field(&mut bytes, "MESSAGE", &line.message());
    field(&mut bytes, "PRIORITY", &line.level.severity().to_string());
    field(&mut bytes, "SYSLOG_IDENTIFIER", "wirerate");
    field(&mut bytes, "SYSLOG_TIMESTAMP", &line.time());
    field(&mut bytes, "WIRERATE_EVENT", line.event);
    for (key, value) in &line.fields {
        field(&mut bytes, &format!("WIRERATE_{}", key.to_ascii_uppercase()), &plain(value));
    }
    bytes
}

fn field(bytes: &mut Vec<u8>, key: &str, value: &str) {
    bytes.extend(key.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value.as_bytes());
    bytes.push(b'\n');
}
