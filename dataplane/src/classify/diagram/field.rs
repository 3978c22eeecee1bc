//! What of a header is decided on, and in which order.

use crate::classify::Header;

/// A field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    From,
    To,
    Ingress,
    Egress,
    Source,
    Destination,
    Sport,
    Dport,
    Protocol,
    Flags,
    Dscp,
}

/// The version of IP, which decides how long addresses are. Each has diagrams of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Fields in the order in which diagrams decide on them, the highest bit of each first.
///
/// What has few values and divides the list first: zones, interfaces, protocol. Then what tells most rules apart,
/// addresses; last what repeats in many rules, so that its diagrams are shared. Decision 18 has what was measured.
pub(crate) const ORDER: [Field; 11] = [
    Field::From,
    Field::To,
    Field::Ingress,
    Field::Egress,
    Field::Protocol,
    Field::Source,
    Field::Destination,
    Field::Dport,
    Field::Sport,
    Field::Flags,
    Field::Dscp,
];

impl Version {
    pub(crate) const BOTH: [Version; 2] = [Version::V4, Version::V6];

    /// Bits of all fields together: the variables of its diagrams.
    pub(crate) fn bits(self) -> u16 {
        ORDER.iter().map(|field| field.bits(self)).sum()
    }
}

impl Field {
    /// How many bits it has.
    pub(crate) const fn bits(self, version: Version) -> u16 {
        match (self, version) {
            (Field::From | Field::To | Field::Dscp, _) => 6,
            (Field::Ingress | Field::Egress | Field::Sport | Field::Dport, _) => 16,
            (Field::Source | Field::Destination, Version::V4) => 32,
            (Field::Source | Field::Destination, Version::V6) => 128,
            (Field::Protocol | Field::Flags, _) => 8,
        }
    }

    /// The highest value.
    pub(crate) const fn highest(self, version: Version) -> u128 {
        u128::MAX >> (128 - self.bits(version))
    }

    /// The variable of its highest bit.
    pub(crate) fn first_variable(self, version: Version) -> u16 {
        ORDER.iter().take_while(|field| **field != self).map(|field| field.bits(version)).sum()
    }

    /// Its value in a header.
    pub(crate) fn of(self, header: &Header) -> u128 {
        match self {
            Field::From => header.from.into(),
            Field::To => header.to.into(),
            Field::Ingress => header.ingress.into(),
            Field::Egress => header.egress.into(),
            Field::Source => header.source,
            Field::Destination => header.destination,
            Field::Sport => header.sport.into(),
            Field::Dport => header.dport.into(),
            Field::Protocol => header.protocol.into(),
            Field::Flags => header.tcp_flags.into(),
            Field::Dscp => header.dscp.into(),
        }
    }

    /// Sets it in a header; `value` is no higher than [`Field::highest`].
    pub(crate) fn put(self, value: u128, header: &mut Header) {
        match self {
            Field::From => header.from = value as u8,
            Field::To => header.to = value as u8,
            Field::Ingress => header.ingress = value as u16,
            Field::Egress => header.egress = value as u16,
            Field::Source => header.source = value,
            Field::Destination => header.destination = value,
            Field::Sport => header.sport = value as u16,
            Field::Dport => header.dport = value as u16,
            Field::Protocol => header.protocol = value as u8,
            Field::Flags => header.tcp_flags = value as u8,
            Field::Dscp => header.dscp = value as u8,
        }
    }
}
