//! Format of records in each output.

use std::time::{Duration, SystemTime};

use super::line::{Level, Line};
use super::{journald, syslog};

fn line() -> Line {
    Line {
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001),
        event: "rule",
        level: Level::Info,
        fields: vec![
            ("rule", "a \"b\" [c] \\d".into()),
            ("verdict", "dropped".into()),
            ("protocol", "tcp".into()),
            ("source", "192.0.2.1".into()),
            ("sport", 5000.into()),
            ("destination", "198.51.100.7".into()),
            ("dport", 22.into()),
        ],
    }
}

#[test]
fn json_has_every_field_by_its_own_type() {
    let json: serde_json::Value = serde_json::from_str(&line().json()).unwrap();
    assert_eq!(json["timestamp"], "2023-11-14T22:13:20.000001Z");
    assert_eq!((&json["level"], &json["event"]), (&"INFO".into(), &"rule".into()));
    assert_eq!((&json["sport"], &json["rule"]), (&5000.into(), &"a \"b\" [c] \\d".into()));
}

/// RFC 5424, section 6: header, structured data with its three escaped characters, message.
#[test]
fn syslog_messages_are_those_of_rfc_5424() {
    let text = syslog::Sender::new().message(&line());
    let mut words = text.splitn(8, ' ');
    assert_eq!(words.next(), Some("<30>1"));
    assert_eq!(words.next(), Some("2023-11-14T22:13:20.000001Z"));
    assert!(words.next().is_some_and(|host| !host.is_empty()));
    assert_eq!(words.next(), Some("wirerate"));
    assert_eq!(words.next(), Some(std::process::id().to_string().as_str()));
    assert_eq!((words.next(), words.next()), (Some("rule"), Some("[wirerate@32473")));
    let rest = words.next().unwrap();
    assert!(rest.starts_with(r#"rule="a \"b\" [c\] \\d" verdict="dropped" protocol="tcp" "#), "{rest}");
    assert!(rest.contains(r#" dport="22"] rule a "b""#), "{rest}");
}

/// Value with newlines: preceded by its length, 64 bits little-endian.
#[test]
fn journal_datagrams_have_a_field_a_line() {
    let line = line().with("note", "one\ntwo");
    let bytes = journald::datagram(&line);
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("MESSAGE=rule a "), "{text}");
    for field in ["\nPRIORITY=6\n", "\nSYSLOG_IDENTIFIER=wirerate\n", "\nWIRERATE_SPORT=5000\n"] {
        assert!(text.contains(field), "{field} is not in {text}");
    }
    let tail = b"WIRERATE_NOTE\n\x07\0\0\0\0\0\0\0one\ntwo\n";
    assert!(bytes.ends_with(tail), "{text}");
}
