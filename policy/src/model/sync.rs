//! State synchronisation with a second gateway.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of the synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// The peer; nothing is synchronised if absent.
    pub peer: Option<SyncPeer>,
    /// PEM file of this gateway's certificate, with its chain.
    pub certificate: Option<PathBuf>,
    /// PEM file of the certificate's private key.
    pub key: Option<PathBuf>,
    /// PEM file of the authority whose certificates the peer may show.
    pub ca: Option<PathBuf>,
}

/// Side that opens the connection between the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPeer {
    /// The peer does, to this address and TCP port of this gateway.
    Listen(SocketAddr),
    /// This gateway does, to this address and TCP port of the peer.
    Connect(SocketAddr),
}

impl SyncPeer {
    /// Reads `listen:ADDRESS:PORT` or `connect:ADDRESS:PORT`. The port is not 0, and an address to connect to is a host's.
    pub fn of(text: &str) -> Option<SyncPeer> {
        let (side, at) = text.split_once(':')?;
        let at: SocketAddr = at.parse().ok()?;
        if at.port() == 0 || at.ip().is_multicast() {
            return None;
        }
        match side {
            "listen" => Some(SyncPeer::Listen(at)),
            "connect" if !at.ip().is_unspecified() => Some(SyncPeer::Connect(at)),
            _ => None,
        }
    }
}

impl fmt::Display for SyncPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncPeer::Listen(at) => write!(f, "listen:{at}"),
            SyncPeer::Connect(at) => write!(f, "connect:{at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_read_as_printed() {
        for text in ["listen:192.0.2.1:9480", "listen:[::]:9480", "connect:[2001:db8::9]:9480"] {
            assert_eq!(SyncPeer::of(text).unwrap().to_string(), text);
        }
        for text in ["192.0.2.1:9480", "connect:0.0.0.0:9480", "listen:192.0.2.1:0", "connect:224.0.0.1:9480"]
        {
            assert_eq!(SyncPeer::of(text), None, "{text}");
        }
    }
}
