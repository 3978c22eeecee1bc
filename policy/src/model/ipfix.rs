//! Export of flow records and NAT events by IPFIX (RFC 7011).

use std::fmt;
use std::net::SocketAddr;

use wire::Nanos;

/// Settings of the export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipfix {
    /// Collector of the records; nothing is exported if absent.
    pub collector: Option<Collector>,
    /// Kinds of records; flows alone if absent.
    pub records: Option<Vec<IpfixRecord>>,
    /// Time after which a flow that goes on is reported; [`Ipfix::ACTIVE_TIMEOUT`] if absent.
    pub active_timeout: Option<Nanos>,
    /// Interval at which templates are sent again over UDP; [`Ipfix::TEMPLATE_REFRESH`] if absent.
    pub template_refresh: Option<Nanos>,
    /// Observation domain; [`Ipfix::DOMAIN`] if absent.
    pub domain: Option<u32>,
}

impl Ipfix {
    /// Default time after which a flow that goes on is reported: 1 min.
    pub const ACTIVE_TIMEOUT: Nanos = Nanos::from_secs(60);

    /// Default interval at which templates are sent again: 1 min.
    pub const TEMPLATE_REFRESH: Nanos = Nanos::from_secs(60);

    /// Default observation domain.
    pub const DOMAIN: u32 = 1;

    /// True if records of this kind are exported.
    pub fn has(&self, record: IpfixRecord) -> bool {
        let is_listed =
            self.records.as_ref().map_or(record == IpfixRecord::Flow, |records| records.contains(&record));
        self.collector.is_some() && is_listed
    }

    /// Time after which a flow that goes on is reported.
    pub fn active_timeout(&self) -> Nanos {
        self.active_timeout.unwrap_or(Ipfix::ACTIVE_TIMEOUT)
    }

    /// Interval at which templates are sent again over UDP.
    pub fn template_refresh(&self) -> Nanos {
        self.template_refresh.unwrap_or(Ipfix::TEMPLATE_REFRESH)
    }

    /// Observation domain.
    pub fn domain(&self) -> u32 {
        self.domain.unwrap_or(Ipfix::DOMAIN)
    }
}

/// A kind of IPFIX record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpfixRecord {
    /// Packets and bytes of a flow.
    Flow,
    /// A translated connection began or ended (RFC 8158).
    Nat,
    /// A block of ports was taken or given back (RFC 8158, section 4.3.9).
    NatBlock,
}

/// Transport and address of an IPFIX collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// Over UDP.
    Udp(SocketAddr),
    /// Over TCP.
    Tcp(SocketAddr),
}

impl Collector {
    /// Reads `udp:ADDRESS:PORT` or `tcp:ADDRESS:PORT`. The address is a host's, and the port is not 0.
    pub fn of(text: &str) -> Option<Collector> {
        let (transport, at) = text.split_once(':')?;
        let at: SocketAddr = at.parse().ok()?;
        if at.port() == 0 || at.ip().is_unspecified() || at.ip().is_multicast() {
            return None;
        }
        match transport {
            "udp" => Some(Collector::Udp(at)),
            "tcp" => Some(Collector::Tcp(at)),
            _ => None,
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collector::Udp(at) => write!(f, "udp:{at}"),
            Collector::Tcp(at) => write!(f, "tcp:{at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_read_as_printed() {
        for text in ["udp:192.0.2.9:4739", "tcp:[2001:db8::9]:4740"] {
            assert_eq!(Collector::of(text).unwrap().to_string(), text);
        }
        for text in
            ["192.0.2.9:4739", "sctp:192.0.2.9:4739", "udp:192.0.2.9", "udp:0.0.0.0:1", "tcp:192.0.2.9:0"]
        {
            assert_eq!(Collector::of(text), None, "{text}");
        }
    }
}
