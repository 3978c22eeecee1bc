//! Reachability of addresses: the interfaces that the best routes lead to.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::space::{Family, Interval, Space, interval};
use crate::model::{AddressRange, Interface, NextHop, Policy, RouteTarget, SELF_ZONE, SourceCheck};

/// Prefixes of the default routes.
pub(super) const EVERYWHERE: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
];

/// Reachable addresses, by zone.
pub(super) struct Reach<'a> {
    /// Addresses with a route in each VRF.
    routed: Vec<Routed<'a>>,
    sources: HashMap<&'a str, Arc<Space>>,
    destinations: HashMap<&'a str, Arc<Space>>,
}

/// Addresses with a route in a VRF.
struct Routed<'a> {
    vrf: Option<&'a str>,
    /// By the zone that the route leads to.
    zones: HashMap<&'a str, Space>,
}

impl<'a> Reach<'a> {
    /// Computes reachability by longest prefix match on the interfaces' own networks and the static routes, in each VRF by itself.
    pub(super) fn of(policy: &'a Policy) -> Reach<'a> {
        let vrfs = std::iter::once(None).chain(policy.vrfs().into_iter().map(Some));
        let routed: Vec<Routed<'_>> = vrfs.map(|vrf| Routed { vrf, zones: routed(policy, vrf) }).collect();
        let mut sources = HashMap::new();
        let mut to: HashMap<&str, Space> = HashMap::new();
        let mut itself = Space::default();
        for Routed { vrf, zones } in &routed {
            let own = own_addresses(policy, *vrf);
            for (zone, space) in zones {
                let known = to.entry(zone).or_default();
                *known = std::mem::take(known).union(&space.without(&own));
                if policy.vrf_of_zone(zone) != *vrf {
                    continue;
                }
                let mut interfaces = policy.interfaces.iter().filter(|interface| interface.zone == *zone);
                let strict = interfaces.all(|interface| interface.source_check == SourceCheck::Strict);
                let from = if strict { space.clone().union(&link_local()) } else { Space::all() };
                sources.insert(*zone, Arc::new(from));
            }
            itself = itself.union(&own);
        }
        // Groups are routed by the policy, or by Linux.
        let mut destinations: HashMap<&str, Arc<Space>> =
            to.into_iter().map(|(zone, space)| (zone, Arc::new(space.union(&groups())))).collect();
        let nets = policy.interfaces.iter().flat_map(|interface| &interface.addresses);
        let broadcasts = Space::of_ranges(nets.map(|net| AddressRange::single(net.broadcast())));
        let itself = itself.union(&broadcasts).union(&link_local()).union(&multicast());
        destinations.insert(SELF_ZONE, Arc::new(itself));
        Reach { routed, sources, destinations }
    }

    /// Possible source addresses of packets from `zone`.
    pub(super) fn sources(&self, zone: &str) -> Arc<Space> {
        self.sources.get(zone).cloned().unwrap_or_default()
    }

    /// Possible destination addresses of packets to `zone`.
    pub(super) fn destinations(&self, zone: &str) -> Arc<Space> {
        self.destinations.get(zone).cloned().unwrap_or_default()
    }

    /// True if a route of a VRF leads to `address`.
    pub(super) fn leads_to(&self, vrf: Option<&str>, address: IpAddr) -> bool {
        let routed = self.routed.iter().find(|routed| routed.vrf == vrf);
        routed.is_some_and(|routed| routed.zones.values().any(|zone| zone.contains(address)))
    }

    /// Zones that `space` lies behind, for hints.
    pub(super) fn zones_of(&self, space: &Space) -> Vec<&'a str> {
        let all = self.routed.iter().flat_map(|routed| &routed.zones);
        let mut zones: Vec<&str> =
            all.filter(|(_, zone)| zone.overlaps(space)).map(|(name, _)| *name).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }
}

/// Addresses with routes of a VRF, by the zone of the outgoing interface.
fn routed<'a>(policy: &'a Policy, vrf: Option<&str>) -> HashMap<&'a str, Space> {
    let mut entries: Vec<Entry> = Vec::new();
    let is_own = |interface: &Interface| interface.vrf.as_deref() == vrf;
    for (index, interface) in policy.interfaces.iter().enumerate().filter(|(_, one)| is_own(one)) {
        entries.extend(interface.addresses.iter().map(|net| Entry::of(net.trunc(), vec![index])));
    }
    for route in policy.routes.iter().filter(|route| route.vrf.as_deref() == vrf) {
        let leaves_by = match &route.target {
            RouteTarget::Via(hops) => {
                hops.iter().filter_map(|hop| hop_interface(policy, route.hop_vrf(), hop)).collect()
            }
            RouteTarget::Blackhole | RouteTarget::Unreachable => Vec::new(),
        };
        entries.push(Entry::of(route.destination, leaves_by));
    }
    for everywhere in EVERYWHERE.into_iter().filter(|_| vrf.is_none()) {
        let leaves_by = policy.wans.iter().filter_map(|wan| {
            let place = policy.interfaces.iter().position(|interface| interface.name == wan.interface)?;
            // Where the routers are not written they are learnt from Linux.
            let may_carry = wan.gateways.is_empty() || wan.gateway(everywhere.addr()).is_some();
            may_carry.then_some(place)
        });
        let leaves_by: Vec<usize> = leaves_by.collect();
        if !leaves_by.is_empty() {
            entries.push(Entry::of(everywhere, leaves_by));
        }
    }
    let mut zones: HashMap<&str, Space> = HashMap::new();
    for family in Family::BOTH {
        let mut by_interface = vec![Vec::new(); policy.interfaces.len()];
        let mine = entries.iter().filter(|entry| entry.family == family).collect();
        each_best(mine, |interval, leaves_by| {
            leaves_by.iter().for_each(|index| by_interface[*index].push(interval));
        });
        for (interface, intervals) in policy.interfaces.iter().zip(by_interface) {
            let zone = zones.entry(&interface.zone).or_default();
            *zone = std::mem::take(zone).union(&Space::of_intervals(family, intervals));
        }
    }
    // Selectors stand in the place of routes.
    for interface in policy.interfaces.iter().filter(|one| is_own(one)) {
        let Some(tunnel) = interface.esp.as_ref().filter(|tunnel| tunnel.is_by_policy()) else { continue };
        let remote = Space::of_ranges(tunnel.selectors().map(|pair| AddressRange::from(pair.remote.net)));
        let zone = zones.entry(&interface.zone).or_default();
        *zone = std::mem::take(zone).union(&remote);
    }
    zones
}

/// Outgoing interface of `hop`: its own, or the one of a VRF whose longest prefix contains the router's address.
pub(crate) fn hop_interface(policy: &Policy, vrf: Option<&str>, hop: &NextHop) -> Option<usize> {
    let named = |name: &String| policy.interfaces.iter().position(|interface| interface.name == *name);
    match (&hop.interface, hop.via) {
        (Some(name), _) => named(name),
        (None, Some(via)) => interface_of(policy, vrf, via),
        (None, None) => None,
    }
}

/// Interface of a VRF, `None` for the default one, on whose link `address` is: of several, the one with the longest prefix.
pub fn interface_of(policy: &Policy, vrf: Option<&str>, address: IpAddr) -> Option<usize> {
    let mut found: Option<(u8, usize)> = None;
    let interfaces = policy.interfaces.iter().enumerate();
    for (index, interface) in interfaces.filter(|(_, interface)| interface.vrf.as_deref() == vrf) {
        for net in interface.addresses.iter().filter(|net| net.contains(&address)) {
            if found.is_none_or(|(length, _)| length < net.prefix_len()) {
                found = Some((net.prefix_len(), index));
            }
        }
    }
    found.map(|(_, index)| index)
}

/// The gateway's own addresses in a VRF.
pub(super) fn own_addresses(policy: &Policy, vrf: Option<&str>) -> Space {
    let interfaces = policy.interfaces.iter().filter(|interface| interface.vrf.as_deref() == vrf);
    let all = interfaces.flat_map(|interface| &interface.addresses);
    Space::of_ranges(all.map(|net| AddressRange::single(net.addr())))
}

fn link_local() -> Space {
    range("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
}

fn multicast() -> Space {
    groups().union(&range("255.255.255.255", "255.255.255.255"))
}

/// Multicast groups.
fn groups() -> Space {
    range("224.0.0.0", "239.255.255.255").union(&range("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
}

fn range(first: &str, last: &str) -> Space {
    let ends: Option<(IpAddr, IpAddr)> = first.parse().ok().zip(last.parse().ok());
    Space::of_ranges(ends.map(|(first, last)| AddressRange { first, last }))
}

struct Entry {
    family: Family,
    interval: Interval,
    leaves_by: Vec<usize>,
}

impl Entry {
    fn of(net: IpNet, leaves_by: Vec<usize>) -> Entry {
        Entry { family: Family::of(net.addr()), interval: interval(net.into()), leaves_by }
    }
}

/// Calls `found` for each interval of addresses with the interfaces of the longest prefix that contains the interval.
fn each_best(mut entries: Vec<&Entry>, mut found: impl FnMut(Interval, &[usize])) {
    // Prefixes nest or are disjoint, so a stack of those that are open does; the shorter ones open first.
    entries.sort_by_key(|entry| (entry.interval.first, std::cmp::Reverse(entry.interval.last)));
    let mut open: Vec<&Entry> = Vec::new();
    // The first address that is not given out; `None` past the highest of all.
    let mut next: Option<u128> = Some(0);
    for entry in entries {
        close(&mut open, &mut next, Some(entry.interval.first), &mut found);
        if let (Some(outer), Some(first)) = (open.last(), next.filter(|first| *first < entry.interval.first))
        {
            found(Interval { first, last: entry.interval.first - 1 }, &outer.leaves_by);
        }
        next = Some(entry.interval.first);
        open.push(entry);
    }
    close(&mut open, &mut next, None, &mut found);
}

/// Closes the prefixes that end before `until`, or all.
fn close(
    open: &mut Vec<&Entry>,
    next: &mut Option<u128>,
    until: Option<u128>,
    found: &mut impl FnMut(Interval, &[usize]),
) {
    while let Some(entry) = open.last().filter(|entry| until.is_none_or(|until| entry.interval.last < until))
    {
        let last = entry.interval.last;
        if let Some(first) = next.filter(|first| *first <= last) {
            found(Interval { first, last }, &entry.leaves_by);
            *next = last.checked_add(1);
        }
        open.pop();
    }
}

#[cfg(test)]
mod tests;
