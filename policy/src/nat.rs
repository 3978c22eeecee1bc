//! Addresses of translations that the gateway answers for on its links.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::model::{AddressRange, Balance, Clat, Nat64, NatAction, Policy};
pub use crate::validate::interface_of;

/// Outside addresses of translations on the link of an interface: no host there has them, so the gateway answers for them
/// by ARP or neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnLink {
    /// Index of the interface in the policy.
    pub interface: usize,
    /// Range of addresses, of one family.
    pub addresses: AddressRange,
}

/// Returns the outside addresses of translations (pools, one-to-one translations, forwards) on the network of an interface,
/// without the gateway's own: ordered, disjoint, of an IPv4 network neither the network nor the broadcast address. An
/// address on the networks of two interfaces belongs to the one with the longer prefix.
pub fn on_link_addresses(policy: &Policy) -> Vec<OnLink> {
    let mut nets: Vec<(usize, IpNet)> = Vec::new();
    // Outside is the default VRF.
    let interfaces = policy.interfaces.iter().enumerate();
    for (place, interface) in interfaces.filter(|(_, interface)| interface.vrf.is_none()) {
        nets.extend(interface.addresses.iter().map(|net| (place, *net)));
    }
    // Whoever is active answers for them by Linux.
    let moved = || policy.interfaces.iter().flat_map(|interface| &interface.virtual_addresses);
    let mut found = Vec::new();
    for range in policy.nats.iter().flat_map(|nat| outside_of(&nat.action)) {
        for (place, net) in &nets {
            let Some(part) = part_of(range, *net) else { continue };
            // What divides the part: addresses that are not answered for, and networks within this one.
            let of_family = moved().filter(|address| address.is_ipv4() == net.addr().is_ipv4());
            let mut holes: Vec<(u128, u128)> =
                of_family.map(|address| (bits(*address), bits(*address))).collect();
            for (_, other) in nets.iter().filter(|(_, other)| other.addr().is_ipv4() == net.addr().is_ipv4())
            {
                holes.push((bits(other.addr()), bits(other.addr())));
                let is_within = net.trunc().contains(&other.trunc()) && other.prefix_len() > net.prefix_len();
                if is_within {
                    holes.push((bits(other.network()), bits(other.broadcast())));
                }
            }
            if let IpNet::V4(net) = net {
                if net.prefix_len() < 31 {
                    let ends = [u128::from(net.network().to_bits()), u128::from(net.broadcast().to_bits())];
                    holes.extend(ends.map(|end| (end, end)));
                }
            }
            let parts = without((bits(part.first), bits(part.last)), &mut holes);
            found.extend(parts.into_iter().map(|(first, last)| OnLink {
                interface: *place,
                addresses: AddressRange { first: ip(first, part.first), last: ip(last, part.first) },
            }));
        }
    }
    // An address of which two networks of one length say that it is theirs is on the link of the first.
    found.retain(|on| interface_of(policy, None, on.addresses.first) == Some(on.interface));
    joined(found)
}

fn outside_of(action: &NatAction) -> Vec<AddressRange> {
    match action {
        NatAction::Source { pool, .. } => pool.clone(),
        NatAction::Nat64(Nat64 { pool, .. }) | NatAction::Clat(Clat { pool, .. }) => pool.clone(),
        NatAction::Forward { outside: Some(outside), .. }
        | NatAction::Balance(Balance { outside: Some(outside), .. }) => vec![AddressRange::single(*outside)],
        NatAction::OneToOne { outside, .. } | NatAction::Npt { outside, .. } => {
            vec![AddressRange { first: outside.network(), last: outside.broadcast() }]
        }
        NatAction::Masquerade { .. }
        | NatAction::Exempt
        | NatAction::Forward { outside: None, .. }
        | NatAction::Balance(Balance { outside: None, .. })
        | NatAction::Redirect { .. } => Vec::new(),
    }
}

/// Intersection of a range and a network.
fn part_of(range: AddressRange, net: IpNet) -> Option<AddressRange> {
    if range.first.is_ipv4() != net.addr().is_ipv4() {
        return None;
    }
    let (first, last) = (range.first.max(net.network()), range.last.min(net.broadcast()));
    (first <= last).then_some(AddressRange { first, last })
}

/// Range of numbers less the ranges in `holes`.
fn without(range: (u128, u128), holes: &mut [(u128, u128)]) -> Vec<(u128, u128)> {
    holes.sort_unstable();
    let mut left = Vec::new();
    let mut next = Some(range.0);
    for (first, last) in holes.iter().filter(|hole| hole.1 >= range.0 && hole.0 <= range.1) {
        let Some(from) = next else { break };
        if *first > from {
            left.push((from, first - 1));
        }
        next = last.checked_add(1).map(|after| after.max(from));
    }
    if let Some(from) = next.filter(|from| *from <= range.1) {
        left.push((from, range.1));
    }
    left
}

/// Sorts ranges, and joins those that overlap or touch.
fn joined(mut found: Vec<OnLink>) -> Vec<OnLink> {
    found.sort_unstable();
    let mut joined: Vec<OnLink> = Vec::with_capacity(found.len());
    for on in found {
        match joined.last_mut() {
            Some(last)
                if last.interface == on.interface
                    && last.addresses.last.is_ipv4() == on.addresses.first.is_ipv4()
                    && bits(on.addresses.first) <= bits(last.addresses.last).saturating_add(1) =>
            {
                last.addresses.last = last.addresses.last.max(on.addresses.last);
            }
            _ => joined.push(on),
        }
    }
    joined
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Address with the number `bits`, of the family of `family_of`.
fn ip(bits: u128, family_of: IpAddr) -> IpAddr {
    match family_of {
        IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(bits.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let policy = crate::parse(text, "nat.toml").policy.unwrap();
        let shown = |on: OnLink| {
            let name = &policy.interfaces[on.interface].name;
            format!("{name} {}-{}", on.addresses.first, on.addresses.last)
        };
        on_link_addresses(&policy).into_iter().map(shown).collect()
    }

    const INTERFACES: &str = r#"
        [interface.lan]
        zone = "lan"
        addresses = ["192.168.1.1/24"]
        [interface.wan]
        zone = "wan"
        addresses = ["203.0.113.2/24", "2001:db8:ff::2/64", "203.0.113.130/28"]
    "#;

    #[test]
    fn pools_one_to_ones_and_forwards_on_a_network_are_answered_for() {
        let text = format!(
            r#"{INTERFACES}
            [[nat]]
            name = "pool"
            kind = "source"
            pool = ["203.0.113.0-203.0.113.4", "203.0.113.5", "198.51.100.1"]
            [[nat]]
            name = "six"
            kind = "one-to-one"
            outside = "2001:db8:ff::/126"
            inside = "2001:db8:1::/126"
            [[nat]]
            name = "web"
            kind = "forward"
            outside = "203.0.113.9"
            target = "192.168.1.9"
            [[nat]]
            name = "own"
            kind = "forward"
            outside = "203.0.113.2"
            target = "192.168.1.9"
            "#
        );
        let expected = [
            "wan 203.0.113.1-203.0.113.1",
            "wan 203.0.113.3-203.0.113.5",
            "wan 203.0.113.9-203.0.113.9",
            "wan 2001:db8:ff::-2001:db8:ff::1",
            "wan 2001:db8:ff::3-2001:db8:ff::3",
        ];
        assert_eq!(found(&text), expected);
    }

    #[test]
    fn the_longer_prefix_has_an_address() {
        let text = r#"
            [interface.all]
            zone = "a"
            addresses = ["10.0.0.1/8"]
            [interface.part]
            zone = "b"
            addresses = ["10.1.0.1/16"]
            [[nat]]
            name = "pool"
            kind = "source"
            pool = "10.0.255.254-10.2.0.0"
        "#;
        let expected =
            ["all 10.0.255.254-10.0.255.255", "all 10.2.0.0-10.2.0.0", "part 10.1.0.2-10.1.255.254"];
        assert_eq!(found(text), expected);
    }
}
