//! Multicast forwarding cache of Linux: which multicast daemons program, and the interfaces that they have made part of its multicast
//! router.

use std::net::IpAddr;
use std::sync::Arc;

use super::interface::LinkIndex;

/// Key of an entry of the multicast forwarding cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MulticastKey {
    /// Group; the unspecified address for all groups.
    pub group: IpAddr,
    /// Source of the packets; the unspecified address for any.
    pub source: IpAddr,
}

/// Entry of the multicast forwarding cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastEntry {
    /// Interface that packets come in by.
    pub from: LinkIndex,
    /// Interfaces that copies leave by.
    pub to: Arc<[MulticastExit]>,
}

/// Interface that copies of multicast packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastExit {
    /// The interface.
    pub link: LinkIndex,
    /// TTL threshold: packets leave whose TTL is greater.
    pub threshold: u8,
}

/// Part of an interface in the multicast router of Linux (`mc_forwarding`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastRouter {
    /// A daemon has made it a virtual interface of the router.
    On,
    /// None.
    Off,
}
