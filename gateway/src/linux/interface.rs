//! Interfaces of Linux: index, attributes, and use of routes without a carrier.

use wire::ethernet::Mac;

use super::multicast::MulticastRouter;

/// Interface index of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub u32);

/// Routing table of Linux, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// The main table.
    pub const MAIN: TableId = TableId(254);
}

/// Interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the interface.
    pub name: String,
    /// Ethernet address; `None` where the link has none, or an address of another kind.
    pub mac: Option<Mac>,
    /// MTU: largest IP packet, in bytes.
    pub mtu: u32,
    /// Operational state.
    pub condition: Condition,
    /// Hardware type (`ARPHRD_*`), which decides the link-layer header; 1 for Ethernet.
    pub hardware: u16,
    /// Kind of virtual link: `veth`, `vlan`, `tun` and so on; empty for hardware.
    pub kind: String,
    /// Lower link, such as a VLAN's parent, if in the same network namespace.
    pub parent: Option<LinkIndex>,
    /// Bridge, bond or VRF that the interface belongs to.
    pub master: Option<LinkIndex>,
    /// Routing table of the interfaces that belong to it, where it is a VRF device.
    pub table: Option<TableId>,
}

/// Operational state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Switched off.
    Down,
    /// Switched on, without a carrier.
    NoCarrier,
    /// Switched on, with a carrier.
    Running,
}

/// Key of the sysctls for packets of an IP version by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkdownKey {
    /// Interface.
    pub link: LinkIndex,
    /// True for IPv6, false for IPv4.
    pub v6: bool,
}

/// Sysctls of an interface that a message has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Use of its routes while it has no carrier.
    pub linkdown: Option<Linkdown>,
    /// Its part in the multicast router.
    pub multicast: Option<MulticastRouter>,
}

/// Use of routes by an interface without a carrier (`ignore_routes_with_linkdown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkdown {
    /// Routes are used.
    Used,
    /// Routes are ignored.
    Ignored,
}
