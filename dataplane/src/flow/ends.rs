//! Ends of a flow as plain data: what a key holds, but its conntrack zone.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::header::{Ports, Protocol};

use super::Key;

/// Addresses and ports of packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Source port, or the ICMP query's stand-in for it ([`Key::query_ports`]), or the PPTP call's ([`Key::CALL`]).
    pub sport: u16,
    /// Destination port, likewise; call ID of PPTP.
    pub dport: u16,
    /// Transport protocol, as in the IP header.
    pub protocol: u8,
}

/// Type and identifier of an ICMP query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpQuery {
    /// Type of the request.
    pub kind: u8,
    /// Identifier.
    pub id: u16,
}

impl Ends {
    /// Returns the ends of a key.
    pub fn of(key: &Key) -> Ends {
        Ends {
            source: key.source(),
            destination: key.destination(),
            sport: key.sport(),
            dport: key.dport(),
            protocol: key.protocol(),
        }
    }

    /// The protocol.
    fn kind(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// Both ports; `None` for protocols that have none.
    pub fn ports(&self) -> Option<Ports> {
        let Ends { sport, dport, .. } = *self;
        self.kind().has_ports().then_some(Ports { sport, dport })
    }

    /// Type and identifier of this direction's ICMP queries; `None` for other packets. Valid for the querying direction alone.
    pub fn query(&self) -> Option<IcmpQuery> {
        let icmp = if self.source.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
        let is_query = self.kind() == icmp;
        is_query.then_some(IcmpQuery { kind: self.dport as u8, id: self.sport })
    }

    /// Call ID of this direction's packets of a PPTP call; `None` for other packets.
    pub fn call(&self) -> Option<u16> {
        (self.kind() == Protocol::GRE && self.sport == Key::CALL).then_some(self.dport)
    }

    /// The key, in no conntrack zone; `None` where the families differ.
    pub fn to_key(self) -> Option<Key> {
        let Ends { sport, dport, protocol, .. } = self;
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Some(Key::v4(from.to_bits(), to.to_bits(), sport, dport, protocol))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Some(Key::v6(from.to_bits(), to.to_bits(), sport, dport, protocol))
            }
            _ => None,
        }
    }
}
