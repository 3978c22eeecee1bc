//! Log of packets on a live gateway: events, rates and outputs.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use wire::Nanos;

use super::{Rate, Scope};

/// The log of packets, connections and mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Outputs of the records; standard error if empty.
    pub outputs: Vec<LogOutput>,
    /// Events logged; only those of rules with `log = true` if absent.
    pub events: Option<Vec<LogEvent>>,
    /// Most records of each rule; [`Log::RATE`] if absent.
    pub rate: Option<Rate>,
    /// Most records of all kinds together; [`Log::TOTAL`] if absent.
    pub total: Option<Rate>,
}

impl Log {
    /// Default rate of records of each rule.
    pub const RATE: Rate = Rate { count: 10, per: Nanos::from_secs(1), burst: 50, scope: Scope::Rule };

    /// Default rate of records of all kinds together.
    pub const TOTAL: Rate = Rate { count: 1_000, per: Nanos::from_secs(1), burst: 2_000, scope: Scope::Rule };

    /// True if records of `event` are written.
    pub fn has(&self, event: LogEvent) -> bool {
        self.events.as_ref().map_or(event == LogEvent::Rule, |events| events.contains(&event))
    }

    /// Rate of records of each rule.
    pub fn rate(&self) -> Rate {
        self.rate.unwrap_or(Log::RATE)
    }

    /// Rate of records of all kinds together.
    pub fn total(&self) -> Rate {
        self.total.unwrap_or(Log::TOTAL)
    }
}

/// A kind of log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A packet matched a rule with `log = true`.
    Rule,
    /// A connection began or ended.
    Connection,
    /// A NAT mapping was created or deleted.
    Nat,
    /// A block of ports was taken or given back.
    NatBlock,
}

/// Output of log records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard error, as the gateway's other log lines.
    Stderr,
    /// The journal of systemd, by its native protocol, at this socket; systemd's own if absent.
    Journald(Option<PathBuf>),
    /// Syslog (RFC 5424).
    Syslog(SyslogAddress),
    /// A file: one JSON object a line.
    File(PathBuf),
}

/// Transport and address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A datagram socket in the file system; `/dev/log` where absent.
    Unix(Option<PathBuf>),
    /// UDP (RFC 5426).
    Udp(SocketAddr),
    /// TCP, each message preceded by its length (RFC 6587, section 3.4.1).
    Tcp(SocketAddr),
}

impl LogOutput {
    /// Reads `stderr`, `journald`, `journald:PATH`, `syslog`, `syslog:PATH`, `syslog:udp:ADDRESS:PORT`,
    /// `syslog:tcp:ADDRESS:PORT` or `file:PATH`. Paths begin with a slash.
    pub fn of(text: &str) -> Option<LogOutput> {
        let path = |text: &str| text.starts_with('/').then(|| PathBuf::from(text));
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("stderr", None) => Some(LogOutput::Stderr),
            ("journald", None) => Some(LogOutput::Journald(None)),
            ("journald", Some(rest)) => path(rest).map(|path| LogOutput::Journald(Some(path))),
            ("file", Some(rest)) => path(rest).map(LogOutput::File),
            ("syslog", None) => Some(LogOutput::Syslog(SyslogAddress::Unix(None))),
            ("syslog", Some(rest)) => match rest.split_once(':') {
                Some(("udp", at)) => at.parse().ok().map(SyslogAddress::Udp),
                Some(("tcp", at)) => at.parse().ok().map(SyslogAddress::Tcp),
                _ => path(rest).map(|path| SyslogAddress::Unix(Some(path))),
            }
            .map(LogOutput::Syslog),
            _ => None,
        }
    }
}

impl fmt::Display for LogOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogOutput::Stderr => f.write_str("stderr"),
            LogOutput::Journald(None) => f.write_str("journald"),
            LogOutput::Journald(Some(path)) => write!(f, "journald:{}", path.display()),
            LogOutput::Syslog(SyslogAddress::Unix(None)) => f.write_str("syslog"),
            LogOutput::Syslog(SyslogAddress::Unix(Some(path))) => write!(f, "syslog:{}", path.display()),
            LogOutput::Syslog(SyslogAddress::Udp(at)) => write!(f, "syslog:udp:{at}"),
            LogOutput::Syslog(SyslogAddress::Tcp(at)) => write!(f, "syslog:tcp:{at}"),
            LogOutput::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}
