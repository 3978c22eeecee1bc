//! Fields of a header, in the order in which diagrams decide on them.

use crate::classify::{Header, field};

/// A field of a header, of either version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Zone of origin.
    From,
    /// Zone of destination.
    To,
    /// Interface of origin.
    Ingress,
    /// Interface of destination.
    Egress,
    /// Class of the source MAC address.
    SourceMac,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    Sport,
    /// Destination port; of ICMP, type and code.
    Dport,
    /// Transport protocol.
    Protocol,
    /// TCP flags.
    Flags,
    /// DiffServ code point.
    Dscp,
    /// Memberships of the addresses in sets: the byte of this number, 0 to 3, the lowest first.
    Sets(u8),
}

/// The version of IP, which decides how long addresses are. Each has diagrams of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Fields in the order in which diagrams decide on them, the highest bit of each first.
///
/// First, fields of few values that divide the list: zones, interfaces, source MAC addresses, protocol, memberships in sets. Then addresses,
/// which tell most rules apart; last, fields that repeat in many rules, so that their diagrams are shared. Measurements:
/// decision 18.
pub const ORDER: [Field; 16] = [
    Field::From,
    Field::To,
    Field::Ingress,
    Field::Egress,
    Field::SourceMac,
    Field::Protocol,
    Field::Sets(0),
    Field::Sets(1),
    Field::Sets(2),
    Field::Sets(3),
    Field::Source,
    Field::Destination,
    Field::Dport,
    Field::Sport,
    Field::Flags,
    Field::Dscp,
];

impl Version {
    /// Both versions.
    pub const BOTH: [Version; 2] = [Version::V4, Version::V6];

    /// Bits of all fields together: the variables of its diagrams.
    pub fn bits(self) -> u16 {
        ORDER.iter().map(|field| field.bits(self)).sum()
    }
}

impl Field {
    /// The field of that version.
    pub(super) fn of_version(self, version: Version) -> field::Field {
        use field::Field as Of;
        match (self, version) {
            (Field::From, _) => Of::From,
            (Field::To, _) => Of::To,
            (Field::Ingress, _) => Of::Ingress,
            (Field::Egress, _) => Of::Egress,
            (Field::SourceMac, _) => Of::SourceMac,
            (Field::Source, Version::V4) => Of::Source4,
            (Field::Source, Version::V6) => Of::Source6,
            (Field::Destination, Version::V4) => Of::Destination4,
            (Field::Destination, Version::V6) => Of::Destination6,
            (Field::Sport, _) => Of::Sport,
            (Field::Dport, _) => Of::Dport,
            (Field::Protocol, _) => Of::Protocol,
            (Field::Flags, _) => Of::TcpFlags,
            (Field::Dscp, _) => Of::Dscp,
            (Field::Sets(number), _) => Of::Sets(number),
        }
    }

    /// Number of bits that it has.
    pub fn bits(self, version: Version) -> u16 {
        self.of_version(version).bits() as u16
    }

    /// The highest value.
    pub fn highest(self, version: Version) -> u128 {
        self.of_version(version).highest()
    }

    /// The variable of its highest bit.
    pub fn first_variable(self, version: Version) -> u16 {
        ORDER.iter().take_while(|field| **field != self).map(|field| field.bits(version)).sum()
    }

    /// Returns the value of the field in a header.
    pub fn of(self, header: &Header) -> u128 {
        match self {
            Field::From => header.from.into(),
            Field::To => header.to.into(),
            Field::Ingress => header.ingress.into(),
            Field::Egress => header.egress.into(),
            Field::SourceMac => header.source_mac.into(),
            Field::Source => header.source,
            Field::Destination => header.destination,
            Field::Sport => header.sport.into(),
            Field::Dport => header.dport.into(),
            Field::Protocol => header.protocol.into(),
            Field::Flags => header.tcp_flags.into(),
            Field::Dscp => header.dscp.into(),
            Field::Sets(number) => field::byte(header.sets, number).into(),
        }
    }

    /// Sets it in a header; `value` is no higher than [`Field::highest`].
    pub fn put(self, value: u128, header: &mut Header) {
        match self {
            Field::From => header.from = value as u8,
            Field::To => header.to = value as u8,
            Field::Ingress => header.ingress = value as u16,
            Field::Egress => header.egress = value as u16,
            Field::SourceMac => header.source_mac = value as u16,
            Field::Source => header.source = value,
            Field::Destination => header.destination = value,
            Field::Sport => header.sport = value as u16,
            Field::Dport => header.dport = value as u16,
            Field::Protocol => header.protocol = value as u8,
            Field::Flags => header.tcp_flags = value as u8,
            Field::Dscp => header.dscp = value as u8,
            Field::Sets(number) => {
                let shift = 8 * u32::from(number & 3);
                header.sets = header.sets & !(0xff << shift) | u32::from(value as u8) << shift;
            }
        }
    }
}
