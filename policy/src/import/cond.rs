//! Conditions of another firewall's rules: conjunctions of sets, one for each field.
//!
//! A rule with more than a conjunction becomes several. Conjunctions intersect exactly; so the rules of a chain that is jumped
//! to take on the conditions of the jump.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use wire::ethernet::Mac;
use wire::tcp::Flags;

use super::IpVersion;
use super::member::{Members, Side};
use super::range::{ByteSet, Ranges};
use super::word::address_type;
use crate::model::{AddressRange, DnatStatus, MacRange, Protocol, TcpFlagsMatch};

/// Interfaces by their index in the importer's list; `None` stands for all, even those that no rule names.
pub(super) type Interfaces = Option<Vec<u16>>;

/// Source addresses of Ethernet frames as numbers; `None` stands for all packets, even those without an Ethernet header.
pub(super) type SourceMacs = Option<Ranges>;

pub(super) const NEW: u8 = 1;
pub(super) const ESTABLISHED: u8 = 2;
pub(super) const RELATED: u8 = 4;
pub(super) const INVALID: u8 = 8;
/// Every connection state, as bits.
pub(super) const STATES: u8 = 15;

/// A conjunction: a packet matches if each of its fields lies in the set of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cond {
    pub(super) inward: Interfaces,
    pub(super) outward: Interfaces,
    pub(super) source_macs: SourceMacs,
    pub(super) source: Place,
    pub(super) destination: Place,
    /// Memberships of both addresses in dynamic sets.
    pub(super) members: Members,
    /// True if the destination must be one of the gateway's own addresses; relevant before routing only.
    pub(super) to_gateway: bool,
    pub(super) protocols: ByteSet,
    pub(super) sports: Ranges,
    pub(super) dports: Ranges,
    pub(super) icmp_types: ByteSet,
    pub(super) icmp_codes: ByteSet,
    pub(super) flags: Option<TcpFlagsMatch>,
    pub(super) dscp: ByteSet,
    /// Bits of [`NEW`], [`ESTABLISHED`], [`RELATED`], [`INVALID`].
    pub(super) states: u8,
    /// Destination NAT of the connection; `None` stands for both.
    pub(super) dnat: Option<DnatStatus>,
}

impl Default for Cond {
    /// Returns the condition for all packets.
    fn default() -> Cond {
        Cond {
            inward: None,
            outward: None,
            source_macs: None,
            source: Place::all(),
            destination: Place::all(),
            members: Members::default(),
            to_gateway: false,
            protocols: ByteSet::ALL,
            sports: all_ports(),
            dports: all_ports(),
            icmp_types: ByteSet::ALL,
            icmp_codes: ByteSet::ALL,
            flags: None,
            dscp: ByteSet::ALL,
            states: STATES,
            dnat: None,
        }
    }
}

impl Cond {
    /// Returns the condition for all packets of an IP version.
    pub(super) fn of(version: IpVersion) -> Cond {
        let place = match version {
            IpVersion::V4 => Place::v4(),
            IpVersion::V6 => Place::v6(),
        };
        Cond { source: place.clone(), destination: place, ..Cond::default() }
    }

    /// Intersection of both conditions; `None` if it is empty.
    pub(super) fn and(&self, other: &Cond) -> Option<Cond> {
        let flags = match (self.flags, other.flags) {
            (None, flags) | (flags, None) => flags,
            (Some(a), Some(b)) => {
                if (a.value ^ b.value) & a.mask & b.mask != 0 {
                    return None;
                }
                Some(TcpFlagsMatch { mask: a.mask | b.mask, value: a.value | b.value })
            }
        };
        let dnat = match (self.dnat, other.dnat) {
            (Some(one), Some(other)) if one != other => return None,
            (one, other) => one.or(other),
        };
        let both = Cond {
            inward: and_interfaces(&self.inward, &other.inward),
            outward: and_interfaces(&self.outward, &other.outward),
            source_macs: and_macs(&self.source_macs, &other.source_macs),
            source: self.source.and(&other.source),
            destination: self.destination.and(&other.destination),
            members: self.members.and(&other.members)?,
            to_gateway: self.to_gateway || other.to_gateway,
            protocols: self.protocols.and(other.protocols),
            sports: self.sports.and(&other.sports),
            dports: self.dports.and(&other.dports),
            icmp_types: self.icmp_types.and(other.icmp_types),
            icmp_codes: self.icmp_codes.and(other.icmp_codes),
            flags,
            dscp: self.dscp.and(other.dscp),
            states: self.states & other.states,
            dnat,
        };
        if both.is_empty() { None } else { Some(both) }
    }

    /// True if every packet that matches here matches `other`. May be false where that is so.
    pub(super) fn is_within(&self, other: &Cond) -> bool {
        let flags = match (self.flags, other.flags) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a.mask & b.mask == b.mask && a.value & b.mask == b.value,
        };
        flags
            && interfaces_within(&self.inward, &other.inward)
            && interfaces_within(&self.outward, &other.outward)
            && macs_within(&self.source_macs, &other.source_macs)
            && self.source.is_within(&other.source)
            && self.destination.is_within(&other.destination)
            && self.members.is_within(&other.members)
            && (self.to_gateway || !other.to_gateway)
            && self.protocols.is_within(other.protocols)
            && self.sports.is_within(&other.sports)
            && self.dports.is_within(&other.dports)
            && self.icmp_types.is_within(other.icmp_types)
            && self.icmp_codes.is_within(other.icmp_codes)
            && self.dscp.is_within(other.dscp)
            && self.states & !other.states == 0
            && (other.dnat.is_none() || self.dnat == other.dnat)
    }

    /// True if the condition is on connection state and IP version alone.
    pub(super) fn is_wide(&self) -> bool {
        let Cond { source, destination, .. } = Cond::default();
        let rest = Cond { source, destination, states: STATES, ..self.clone() };
        self.source.is_whole() && self.destination.is_whole() && rest == Cond::default()
    }

    /// True if it is for the ICMP of the other IP version than its packets have: those are none of a host's, and no policy has words for them.
    pub(super) fn is_of_other_icmp(&self) -> bool {
        let only = |protocol: Protocol| self.protocols == ByteSet::one(protocol.0);
        let (v4, v6) = self.families();
        only(Protocol::ICMP) && !v4 || only(Protocol::ICMPV6) && !v6
    }

    /// True if it is for segments of TCP alone that open no connection: here, as nothing but a SYN opens one, they are of one or meet no rule.
    pub(super) fn opens_nothing(&self) -> bool {
        let of_others = Flags::FIN.and(Flags::RST).and(Flags::ACK).0;
        self.protocols == ByteSet::one(Protocol::TCP.0)
            && self.flags.is_some_and(|TcpFlagsMatch { mask, value }| {
                mask & !value & Flags::SYN.0 != 0 || mask & value & of_others != 0
            })
    }

    /// True if some packet may match both. May be true where none does.
    pub(super) fn meets(&self, other: &Cond) -> bool {
        self.and(other).is_some()
    }

    /// True if no packet can match.
    pub(super) fn is_empty(&self) -> bool {
        // A source and a destination of different families, too.
        let v4 = !self.source.v4.is_empty() && !self.destination.v4.is_empty();
        let v6 = !self.source.v6.is_empty() && !self.destination.v6.is_empty();
        self.inward.as_ref().is_some_and(Vec::is_empty)
            || self.outward.as_ref().is_some_and(Vec::is_empty)
            || self.source_macs.as_ref().is_some_and(Ranges::is_empty)
            || !(v4 || v6)
            || self.protocols.is_empty()
            || self.sports.is_empty()
            || self.dports.is_empty()
            || self.icmp_types.is_empty()
            || self.icmp_codes.is_empty()
            || self.dscp.and(ByteSet::CODE_POINTS).is_empty()
            || self.states == 0
    }

    /// Size in memory, in ranges.
    pub(super) fn weight(&self) -> usize {
        let places = [&self.source.v4, &self.source.v6, &self.destination.v4, &self.destination.v6];
        let ranges = places.into_iter().chain([&self.sports, &self.dports]).chain(&self.source_macs);
        ranges.map(|ranges| ranges.list().len()).sum::<usize>() + self.members.weight()
    }

    /// True if the condition is on the destination address, port or memberships, or on its translation.
    pub(super) fn is_aimed(&self) -> bool {
        let is_member = self.members.of(Side::Destination).next().is_some();
        self.to_gateway
            || self.dnat.is_some()
            || is_member
            || !self.destination.is_whole()
            || !self.dports.is_all()
    }

    /// True for IPv4, and true for IPv6, if such packets can match.
    pub(super) fn families(&self) -> (bool, bool) {
        (
            !self.source.v4.is_empty() && !self.destination.v4.is_empty(),
            !self.source.v6.is_empty() && !self.destination.v6.is_empty(),
        )
    }
}

pub(super) fn all_ports() -> Ranges {
    Ranges::all(u128::from(u16::MAX))
}

/// Returns the set of the port ranges in `list`, each first to last.
pub(super) fn ports(list: impl IntoIterator<Item = (u16, u16)>) -> Ranges {
    Ranges::of(u128::from(u16::MAX), list.into_iter().map(|(a, b)| (u128::from(a), u128::from(b))))
}

/// Highest Ethernet address.
pub(super) const MAC_MAX: u64 = Mac::BROADCAST.to_bits();

/// Returns the set of the Ethernet address ranges in `list`, each first to last.
pub(super) fn macs(list: impl IntoIterator<Item = (u64, u64)>) -> Ranges {
    Ranges::of(u128::from(MAC_MAX), list.into_iter().map(|(a, b)| (u128::from(a), u128::from(b))))
}

/// Ranges of a set of Ethernet addresses.
pub(super) fn mac_ranges(macs: &Ranges) -> impl Iterator<Item = MacRange> {
    macs.list().iter().map(|&(first, last)| MacRange {
        first: Mac::from_bits(first as u64),
        last: Mac::from_bits(last as u64),
    })
}

pub(super) fn and_macs(a: &SourceMacs, b: &SourceMacs) -> SourceMacs {
    match (a, b) {
        (None, other) | (other, None) => other.clone(),
        (Some(a), Some(b)) => Some(a.and(b)),
    }
}

fn macs_within(a: &SourceMacs, b: &SourceMacs) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a.is_within(b),
    }
}

fn and_interfaces(a: &Interfaces, b: &Interfaces) -> Interfaces {
    match (a, b) {
        (None, other) | (other, None) => other.clone(),
        (Some(a), Some(b)) => Some(a.iter().filter(|index| b.contains(index)).copied().collect()),
    }
}

fn interfaces_within(a: &Interfaces, b: &Interfaces) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a.iter().all(|index| b.contains(index)),
    }
}

/// A set of addresses of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) v4: Ranges,
    pub(super) v6: Ranges,
    /// Named set equal to this one, or to its complement.
    pub(super) name: Option<Named>,
}

/// A named set, as a source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) set: Arc<str>,
    pub(super) except: bool,
}

const V4_MAX: u128 = u32::MAX as u128;

impl Place {
    /// Returns all addresses.
    pub(super) fn all() -> Place {
        Place { v4: Ranges::all(V4_MAX), v6: Ranges::all(u128::MAX), name: None }
    }

    /// Returns all IPv4 addresses.
    pub(super) fn v4() -> Place {
        Place { v4: Ranges::all(V4_MAX), v6: Ranges::none(u128::MAX), name: None }
    }

    /// Returns all IPv6 addresses.
    pub(super) fn v6() -> Place {
        Place { v4: Ranges::none(V4_MAX), v6: Ranges::all(u128::MAX), name: None }
    }

    /// Returns the union of `ranges`.
    pub(super) fn of(ranges: &[AddressRange]) -> Place {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for range in ranges {
            match (range.first, range.last) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    v4.push((u128::from(u32::from(a)), u128::from(u32::from(b))))
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => v6.push((u128::from(a), u128::from(b))),
                _ => {}
            }
        }
        Place { v4: Ranges::of(V4_MAX, v4), v6: Ranges::of(u128::MAX, v6), name: None }
    }

    /// Returns the destinations of the packets of a type of Linux's, which link-layer addresses tell there (`pkttype`); `None` for an
    /// unknown type.
    pub(super) fn of_packet_type(word: &str) -> Option<Place> {
        let of = |types: &[&str]| {
            Place::of(&types.iter().filter_map(|word| address_type(word)).flatten().collect::<Vec<_>>())
        };
        match word.to_ascii_lowercase().as_str() {
            "host" | "unicast" => Some(of(&["broadcast", "multicast"]).except(&Place::all())),
            kind @ ("broadcast" | "multicast") => Some(of(&[kind])),
            // Frames for others come to no rule.
            "other" | "otherhost" => Some(of(&[])),
            _ => None,
        }
    }

    /// Returns the addresses of `within` that are not in the set.
    pub(super) fn except(&self, within: &Place) -> Place {
        let name = self.name.as_ref().map(|n| Named { set: n.set.clone(), except: !n.except });
        let others = Place { v4: self.v4.complement(), v6: self.v6.complement(), name: None }.and(within);
        Place { name, ..others }
    }

    /// Returns the union of both, without a name.
    pub(super) fn or(&self, other: &Place) -> Place {
        let neither = self.except(&Place::all()).and(&other.except(&Place::all()));
        Place { name: None, ..neither.except(&Place::all()) }
    }

    pub(super) fn and(&self, other: &Place) -> Place {
        let v4 = self.v4.and(&other.v4);
        let v6 = self.v6.and(&other.v6);
        let name = [self, other]
            .into_iter()
            .find(|place| place.name.is_some() && place.v4 == v4 && place.v6 == v6)
            .and_then(|place| place.name.clone());
        Place { v4, v6, name }
    }

    pub(super) fn is_within(&self, other: &Place) -> bool {
        self.v4.is_within(&other.v4) && self.v6.is_within(&other.v6)
    }

    /// True if the set is empty, everything, or all of one IP version.
    pub(super) fn is_whole(&self) -> bool {
        (self.v4.is_all() || self.v4.is_empty()) && (self.v6.is_all() || self.v6.is_empty())
    }

    /// Ranges of the set, IPv4 before IPv6.
    pub(super) fn ranges(&self) -> Vec<AddressRange> {
        let v4 =
            self.v4.list().iter().map(|&(a, b)| AddressRange { first: v4_address(a), last: v4_address(b) });
        let v6 = self.v6.list().iter().map(|&(a, b)| AddressRange {
            first: IpAddr::V6(Ipv6Addr::from(a)),
            last: IpAddr::V6(Ipv6Addr::from(b)),
        });
        v4.chain(v6).collect()
    }
}

fn v4_address(number: u128) -> IpAddr {
    // Ranges of IPv4 addresses never pass 32 bits.
    IpAddr::V4(Ipv4Addr::from(number as u32))
}
