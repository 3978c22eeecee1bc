//! Multicast routes.

use std::net::IpAddr;

use ipnet::IpNet;

/// A multicast route: packets to a group, or to a prefix of groups, are copied from one interface to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastRoute {
    /// Group, or prefix of groups. Of the routes to a group the one with the longest prefix counts.
    pub group: IpNet,
    /// Source of the packets; any where absent. Of two routes with one prefix the one with the packet's source counts.
    pub source: Option<IpAddr>,
    /// Interface that the packets come in by; those that come by another are dropped.
    pub from: String,
    /// Interfaces that copies leave by. Without any, packets are dropped.
    pub to: Vec<MulticastExit>,
}

impl MulticastRoute {
    /// Most routes of a policy, with those of Linux.
    pub const MOST: usize = 65_536;

    /// Most interfaces that a route leads to.
    pub const MOST_EXITS: usize = 64;
}

/// An interface that copies of multicast packets leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastExit {
    /// Name of the interface.
    pub interface: String,
    /// TTL threshold: packets leave whose TTL, or hop limit, on receipt is greater.
    pub threshold: u8,
}

impl MulticastExit {
    /// TTL threshold of an interface that is given none: packets leave that have a hop to go.
    pub const THRESHOLD: u8 = 1;
}

/// Treatment of packets to multicast groups that no route has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MulticastMiss {
    /// Dropped.
    #[default]
    Drop,
    /// Given to Linux at a bounded rate, whose multicast router asks its daemon for a route.
    Punt,
}
