//! Address translation: mappings of endpoints, and rewriting of packets.
//!
//! [`Mappings`] chooses once per flow: the outside address and port of an inside endpoint, endpoint-independently (RFC
//! 4787, REQ-1; RFC 5382, REQ-1; RFC 5508, REQ-1). The pure functions of [`rewrite`] rewrite each packet.
//!
//! Promises: no outside endpoint is handed out twice at one time; no allocation after the start; a refusal touches no
//! other mapping. The module knows neither frames nor flows: a mapping lives as long as there are references to it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::Family;

use crate::tables::VrfNumber;

mod block;
mod host;
mod index;
mod mapping;
mod network;
mod pool;
mod port;
pub mod rewrite;
mod share;
mod write_behind;

pub use block::{BlockChange, BlockEvent, LEAST_BLOCK, PortBlock};
pub use mapping::{Capacity, Mapping, Mappings, PoolUse, Restore};
pub(crate) use mapping::{PoolsPlan, RetiredPools, WantedPort};
pub use network::NetworkPair;
pub(crate) use pool::merge as merge_ports;
pub use pool::{
    AddressRange, Block, ConfigError, Hold, Hosts, MAX_ADDRESSES, OnDemand, PoolConfig, PoolCounters,
    PoolProblem, PortRange, Reserved,
};

/// A pool by its place in the list that [`Mappings::new`] was given: one per source translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u16);

pub use share::Share;

/// A mapping by its place in the table. Some time after the mapping has ended, another takes the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u32);

/// One end of a flow: address, port, transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address as a number in host order; IPv4 in the low 32 bits.
    pub address: u128,
    /// TCP or UDP port, ICMP query identifier, call ID of PPTP; 0 for other protocols.
    pub port: u16,
    /// Transport protocol, as in the IP header.
    pub protocol: u8,
    /// IPv4 or IPv6.
    pub family: Family,
    /// VRF of an inside endpoint; outside is the default one. No part of exported state: numbers are one process' own.
    #[serde(skip)]
    pub vrf: VrfNumber,
}

impl Endpoint {
    /// An endpoint with an address of either family.
    pub fn new(address: IpAddr, port: u16, protocol: u8) -> Endpoint {
        let (address, family) = bits_of(address);
        Endpoint { address, port, protocol, family, vrf: VrfNumber::DEFAULT }
    }

    /// An IPv4 endpoint.
    #[inline(always)]
    pub const fn v4(address: u32, port: u16, protocol: u8) -> Endpoint {
        let family = Family::V4;
        Endpoint { address: address as u128, port, protocol, family, vrf: VrfNumber::DEFAULT }
    }

    /// An IPv6 endpoint.
    #[inline(always)]
    pub const fn v6(address: u128, port: u16, protocol: u8) -> Endpoint {
        Endpoint { address, port, protocol, family: Family::V6, vrf: VrfNumber::DEFAULT }
    }

    /// The address, to show.
    pub fn ip(&self) -> IpAddr {
        ip_of(self.address, self.family)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} port {}", wire::header::Protocol(self.protocol), self.ip(), self.port)
    }
}

/// Result of [`Mappings::map`]: the outside endpoint, with a reference to the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Reference, to be [released](Mappings::release) when the flow ends.
    pub id: MappingId,
    /// Outside endpoint.
    pub outside: Endpoint,
}

/// Reason for refusing a mapping to an inside endpoint. Every reason is counted per pool but [`Refusal::NoPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No free port of this protocol on the outside address that the host keeps to, in its block, or (for a host without
    /// mappings) on any outside address.
    PortsExhausted,
    /// The host holds as many ports of this protocol as the pool's quota allows, or all ports of as many blocks as it may have.
    QuotaReached,
    /// All mappings or hosts that there is memory for are in use.
    TableFull,
    /// The pool has no outside address for this host: none of its family, or (deterministic NAT) the host is
    /// in none of the inside ranges.
    NoAddress,
    /// The protocol has no ports that are translated: ask [`Mappings::map_address`].
    NoPorts,
    /// There is no such pool; not counted.
    NoPool,
}

/// The protocols whose ports are handed out, each from a space of its own. ICMP identifiers are ports here, and so are call IDs of PPTP,
/// which few hosts have: both are of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum PortSpace {
    Tcp = 0,
    Udp = 1,
    Icmp = 2,
}

impl PortSpace {
    const COUNT: usize = 3;
    const ALL: [PortSpace; PortSpace::COUNT] = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Icmp];

    #[inline(always)]
    const fn of(protocol: u8) -> Option<PortSpace> {
        match protocol {
            6 => Some(PortSpace::Tcp),
            17 => Some(PortSpace::Udp),
            1 | 47 | 58 => Some(PortSpace::Icmp),
            _ => None,
        }
    }

    /// The protocols whose ports it has.
    const fn protocols(self) -> &'static [u8] {
        match self {
            PortSpace::Tcp => &[6],
            PortSpace::Udp => &[17],
            PortSpace::Icmp => &[1, 47, 58],
        }
    }
}

fn bits_of(address: IpAddr) -> (u128, Family) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), Family::V4),
        IpAddr::V6(v6) => (v6.to_bits(), Family::V6),
    }
}

fn ip_of(address: u128, family: Family) -> IpAddr {
    match family {
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(address)),
        Family::V4 | Family::Other => IpAddr::V4(Ipv4Addr::from_bits(address as u32)),
    }
}

#[cfg(test)]
mod tests;
