//! EtherTypes: protocols of Ethernet payloads, and the types of VLAN tags.

use std::fmt;

/// Protocol of a frame's payload (IANA, "IEEE 802 Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP (RFC 826).
    pub const ARP: EtherType = EtherType(0x0806);
    /// Of the stand-in header in front of an ATM cell ([`crate::atm`]), which no link carries: a number that IEEE 802 sets aside for local
    /// experiments.
    pub const CELL: EtherType = EtherType(0x88b5);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// A service VLAN tag (IEEE 802.1ad, "QinQ").
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// Discovery stage of PPP over Ethernet (RFC 2516).
    pub const PPPOE_DISCOVERY: EtherType = EtherType(0x8863);
    /// Session stage of PPP over Ethernet (RFC 2516).
    pub const PPPOE_SESSION: EtherType = EtherType(0x8864);
    /// PPP (IANA): of the stand-in header in front of a PPP packet that an ATM channel carries.
    pub const PPP: EtherType = EtherType(0x880b);

    /// True for a length in place of a type (IEEE 802.3).
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }

    /// True for the type of a VLAN tag.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EtherType::IPV4 => f.pad("ipv4"),
            EtherType::ARP => f.pad("arp"),
            EtherType::VLAN => f.pad("vlan"),
            EtherType::IPV6 => f.pad("ipv6"),
            EtherType::QINQ => f.pad("qinq"),
            EtherType(other) => write!(f, "0x{other:04x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
