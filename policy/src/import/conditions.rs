//! Conditions of a policy from those of another firewall's rules.

use super::cond::{Cond, Place, SourceMacs, mac_ranges};
use super::note::Why;
use super::range::{ByteSet, Ranges};
use crate::model::{AddressItem, Addresses, Conditions, FamilyMatch, IcmpMatch, Macs, PortRange, Protocol};

/// Returns the condition on all that a packet says by itself, for any zones.
pub(super) fn conditions(cond: &Cond, source: Addresses, destination: Addresses) -> Conditions {
    let (v4, v6) = families(cond);
    let pinned = !source.items.is_empty() || !destination.items.is_empty();
    // A dynamic set says nothing of the IP version.
    let pinned = pinned && cond.members.is_all();
    let family = match (v4, v6) {
        (true, false) if !pinned => FamilyMatch::V4,
        (false, true) if !pinned => FamilyMatch::V6,
        _ => FamilyMatch::Both,
    };
    Conditions {
        family,
        source_macs: source_macs(&cond.source_macs),
        source,
        destination,
        protocols: protocols(cond),
        sports: port_ranges(&cond.sports),
        dports: port_ranges(&cond.dports),
        icmp: icmp(cond),
        tcp_flags: cond.flags.filter(|flags| flags.mask != 0),
        dscp: if ByteSet::CODE_POINTS.is_within(cond.dscp) {
            Vec::new()
        } else {
            cond.dscp.iter().filter_map(wire::Dscp::new).collect()
        },
        ..Conditions::default()
    }
}

/// Returns the addresses of `place` that are of the IP versions wanted.
pub(super) fn addresses(place: &Place, v4: bool, v6: bool) -> Addresses {
    let place = of_versions(place, v4, v6);
    if place.is_whole() {
        return Addresses::default();
    }
    let within = match (v4, v6) {
        (true, false) => Place::v4(),
        (false, true) => Place::v6(),
        _ => Place::all(),
    };
    let ranges = place.ranges();
    let others = place.except(&within).ranges();
    // An exception names the families that it is for; with both at hand it could not leave one open.
    let except = v4 != v6 && others.len() < ranges.len();
    let items = if except { others } else { ranges };
    Addresses { items: items.into_iter().map(AddressItem::Range).collect(), except }
}

/// Returns the part of `place` that is of the IP versions wanted.
pub(super) fn of_versions(place: &Place, v4: bool, v6: bool) -> Place {
    let mut place = place.clone();
    if !v4 {
        place = place.and(&Place::v6());
    }
    if !v6 {
        place = place.and(&Place::v4());
    }
    place
}

/// Checks that a policy can express the condition: ports, ICMP types and TCP flags only with protocols that have them.
pub(super) fn sound(cond: &Cond) -> Result<(), Why> {
    let only = |protocol: Protocol| cond.protocols == ByteSet::one(protocol.0);
    let ported = cond.protocols.iter().all(|protocol| Protocol(protocol).has_ports());
    if !(ported || cond.sports.is_all() && cond.dports.is_all()) {
        return Err(Why::Feature("ports of any protocol".to_owned()));
    }
    let kinds = !cond.icmp_types.is_all() || !cond.icmp_codes.is_all();
    if kinds && !only(Protocol::ICMP) && !only(Protocol::ICMPV6) {
        return Err(Why::Feature("ICMP types of any protocol".to_owned()));
    }
    if cond.flags.is_some_and(|flags| flags.mask != 0) && !only(Protocol::TCP) {
        return Err(Why::Feature("TCP flags of any protocol".to_owned()));
    }
    if cond.is_of_other_icmp() {
        return Err(Why::Value("the other IP version's ICMP".to_owned()));
    }
    Ok(())
}

pub(super) fn protocols(cond: &Cond) -> Vec<Protocol> {
    if cond.protocols.is_all() { Vec::new() } else { cond.protocols.iter().map(Protocol).collect() }
}

/// Returns the addresses, or all except their complement, whichever is shorter.
fn source_macs(macs: &SourceMacs) -> Macs {
    let Some(these) = macs else { return Macs::default() };
    let others = these.complement();
    // Without any exception it would be for packets without an Ethernet header, too.
    let except = !others.is_empty() && others.list().len() < these.list().len();
    Macs { items: mac_ranges(if except { &others } else { these }).collect(), except }
}

pub(super) fn port_ranges(ports: &Ranges) -> Vec<PortRange> {
    if ports.is_all() {
        return Vec::new();
    }
    // Port sets never pass 16 bits.
    ports.list().iter().map(|&(first, last)| PortRange { first: first as u16, last: last as u16 }).collect()
}

fn icmp(cond: &Cond) -> Vec<IcmpMatch> {
    if cond.icmp_types.is_all() && cond.icmp_codes.is_all() {
        return Vec::new();
    }
    let mut list = Vec::new();
    for kind in cond.icmp_types.iter() {
        if cond.icmp_codes.is_all() {
            list.push(IcmpMatch { kind, code: None });
        } else {
            list.extend(cond.icmp_codes.iter().map(|code| IcmpMatch { kind, code: Some(code) }));
        }
    }
    list
}

/// IP versions of the addresses that a rule names: those of its packets; for ICMP, its own version if it names addresses.
pub(super) fn families(cond: &Cond) -> (bool, bool) {
    let (v4, v6) = cond.families();
    let named = !cond.source.is_whole() || !cond.destination.is_whole();
    let only = |protocol: Protocol| cond.protocols == ByteSet::one(protocol.0);
    (v4 && !(named && only(Protocol::ICMPV6)), v6 && !(named && only(Protocol::ICMP)))
}
