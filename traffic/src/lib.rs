//! Traffic made from a seed: a minute of mixed office traffic, as a gateway between the office and the internet would
//! receive it.
//!
//! [`Office`] is the world around the gateway, on both sides of it. The caller takes packet after packet from
//! [`Office::next`], passes each to the gateway on its side, and reports with [`Office::arrived`] the frames that come
//! out; hosts and servers answer the packets that really arrive. So replies go where NAT wants them, dropped packets
//! are sent again or given up, and a refused connection stays refused. With the same settings and the same gateway, the
//! same packets.
//!
//! Memory is bounded: so many connections at a time, so many packets on their way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod app;
mod hostile;
mod network;
mod office;
mod tcp;

pub use office::Office;
use wire::ethernet::Mac;
use wire::unit::Nanos;

/// A side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The office.
    Lan,
    /// The internet.
    Wan,
}

/// A packet that enters the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Time at which the packet enters.
    pub at: Nanos,
    /// Side on which the packet enters.
    pub side: Side,
    /// The Ethernet frame.
    pub bytes: Vec<u8>,
    /// Intent of the sender.
    pub intent: Intent,
}

/// Intent of a packet's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To be understood: all its lengths and checksums are right.
    Honest,
    /// To do harm, or by a fault: anything may be wrong with it.
    Hostile,
}

/// Settings of an office: size, addresses, load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seed of everything random.
    pub seed: u64,
    /// Time at which the traffic begins, since 1970.
    pub start: Nanos,
    /// Duration of the traffic.
    pub duration: Nanos,
    /// The office side of the gateway. Its neighbour is not used.
    pub lan: Link,
    /// The internet side; its neighbour is the provider's router.
    pub wan: Link,
    /// The machines in the office.
    pub hosts: Vec<Host>,
    /// The first of [`SERVERS`] successive addresses of servers on the internet.
    pub servers_v4: Ipv4Addr,
    /// The first of [`SERVERS`] successive addresses of servers on the internet. Without an IPv6 address on
    /// both sides there is no IPv6.
    pub servers_v6: Ipv6Addr,
    /// The first of 256 successive addresses that attacks come from.
    pub attackers_v4: Ipv4Addr,
    /// TCP ports of the gateway's outside IPv4 address that lead to a machine in the office.
    pub published: Vec<u16>,
    /// Number of activities that the people in the office begin in a second, on average; one makes about 150 packets.
    pub activities_per_second: u32,
    /// Number of attacks that the internet begins in a second, on average.
    pub attacks_per_second: u32,
    /// Most TCP connections alive at a time, on both sides together.
    pub max_connections: usize,
}

/// Number of servers of each IP version.
pub const SERVERS: u32 = 48;

/// One side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The gateway's hardware address.
    pub mac: Mac,
    /// The gateway's address.
    pub v4: Ipv4Addr,
    /// The gateway's IPv6 address, if it has one.
    pub v6: Option<Ipv6Addr>,
    /// Hardware address of the neighbour at the other end.
    pub neighbour: Mac,
}

/// A machine in the office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its hardware address.
    pub mac: Mac,
    /// Its address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, if it has one.
    pub v6: Option<Ipv6Addr>,
}

impl Host {
    /// `count` machines with successive addresses, the first as given, and hardware addresses 02:00:00:00:01:00
    /// and on.
    pub fn successive(count: u16, first_v4: Ipv4Addr, first_v6: Option<Ipv6Addr>) -> Vec<Host> {
        (0..count)
            .map(|n| {
                let [high, low] = (0x100 + n).to_be_bytes();
                Host {
                    mac: Mac([0x02, 0, 0, 0, high, low]),
                    v4: nth_v4(first_v4, u32::from(n)),
                    v6: first_v6.map(|first| nth_v6(first, u32::from(n))),
                }
            })
            .collect()
    }
}

impl Default for Settings {
    /// A minute of a dozen machines in 192.168.1.0/24 and 2001:db8:1::/64 behind 203.0.113.10.
    fn default() -> Settings {
        let lan_v6 = |last| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last);
        let wan_v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);
        Settings {
            seed: 1,
            start: Nanos::from_secs(1_700_000_000),
            duration: Nanos::from_secs(60),
            lan: Link {
                mac: Mac([0x02, 0, 0, 0, 0, 0x0a]),
                v4: Ipv4Addr::new(192, 168, 1, 1),
                v6: Some(lan_v6(1)),
                neighbour: Mac::ZERO,
            },
            wan: Link {
                mac: Mac([0x02, 0, 0, 0, 0, 0x0b]),
                v4: Ipv4Addr::new(203, 0, 113, 10),
                v6: Some(wan_v6),
                neighbour: Mac([0x02, 0, 0, 0, 0, 0x0c]),
            },
            hosts: Host::successive(12, Ipv4Addr::new(192, 168, 1, 10), Some(lan_v6(0x10))),
            servers_v4: Ipv4Addr::new(198, 51, 100, 1),
            servers_v6: Ipv6Addr::new(0x2001, 0xdb8, 0xfeed, 0, 0, 0, 0, 1),
            attackers_v4: Ipv4Addr::new(192, 0, 2, 0),
            published: vec![443],
            activities_per_second: 10,
            attacks_per_second: 15,
            max_connections: 2000,
        }
    }
}

impl Settings {
    /// The nth server of an IP version.
    fn server(&self, family: Family, n: u32) -> IpAddr {
        match family {
            Family::V4 => nth_v4(self.servers_v4, n % SERVERS).into(),
            Family::V6 => nth_v6(self.servers_v6, n % SERVERS).into(),
        }
    }

    /// True if a server has this address.
    fn is_server(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.to_bits().wrapping_sub(self.servers_v4.to_bits()) < SERVERS,
            IpAddr::V6(address) => {
                address.to_bits().wrapping_sub(self.servers_v6.to_bits()) < u128::from(SERVERS)
            }
        }
    }

    fn link(&self, side: Side) -> &Link {
        match side {
            Side::Lan => &self.lan,
            Side::Wan => &self.wan,
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

fn nth_v4(first: Ipv4Addr, n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits().wrapping_add(n))
}

fn nth_v6(first: Ipv6Addr, n: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(first.to_bits().wrapping_add(u128::from(n)))
}

#[cfg(test)]
mod tests;
