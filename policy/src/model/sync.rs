//! State synchronisation with a second gateway, and the flows that each of the two owns.

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
    /// Owner of a new flow where both gateways forward packets.
    pub owner: SyncOwner,
}

/// Owner of a new flow, of two gateways that both forward packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncOwner {
    /// The gateway that its first packet comes to.
    #[default]
    First,
    /// The gateway that a hash of the flow's ends selects; packets of flows that it may know are handed over to it.
    Hash,
}

/// One of two gateways that share flows and outside ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The gateway that listens for the connection.
    Listens,
    /// The gateway that opens the connection.
    Connects,
}

impl Half {
    /// Number of halves.
    pub const COUNT: u16 = 2;

    /// Number of the half, 0 or 1.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The half with the parity of a number.
    pub const fn of(number: u64) -> Half {
        if number & 1 == 0 { Half::Listens } else { Half::Connects }
    }

    /// The other half.
    #[must_use]
    pub const fn other(self) -> Half {
        match self {
            Half::Listens => Half::Connects,
            Half::Connects => Half::Listens,
        }
    }
}

impl Sync {
    /// Half of flows and outside ports that is this gateway's; none where it has all.
    pub fn half(&self) -> Option<Half> {
        let peer = self.peer.filter(|_| self.owner == SyncOwner::Hash)?;
        Some(match peer {
            SyncPeer::Listen(_) => Half::Listens,
            SyncPeer::Connect(_) => Half::Connects,
        })
    }
}

/// VXLAN network identifier (RFC 7348, section 5) of frames handed over that came by the interface of that name: 24 bits by a hash (FNV-1a,
/// folded), as both gateways know interfaces by their names alone.
pub fn vni(interface: &str) -> u32 {
    let hash = interface
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 24) ^ (hash & 0xff_ffff)
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
    fn halves_are_one_another_s_others() {
        for number in 0..4 {
            let half = Half::of(number);
            assert_eq!(u64::from(half.number()), number % 2);
            assert_eq!(half.other().other(), half);
            assert_ne!(half.other(), half);
        }
    }

    #[test]
    fn identifiers_have_24_bits_and_differ() {
        let names: Vec<String> =
            (0..200).flat_map(|number| [format!("eth{number}"), format!("lan.{number}")]).collect();
        let mut seen: Vec<u32> = names.iter().map(|name| vni(name)).collect();
        assert!(seen.iter().all(|vni| vni >> 24 == 0));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), names.len());
        // FNV-1a of "a" is e40c292c.
        assert_eq!(vni("a"), 0x0c_292c ^ 0xe4);
    }

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
