//! Tunnels: routes to their peers, and the packets that they carry.

use std::net::IpAddr;

use wire::Family;

use crate::model::{FragmentWhen, Interface, Policy, RouteTarget, Tunnel};
use crate::validate::{hop_interface, interface_of};

/// Smallest MTU of IPv4 (RFC 791, section 3.2): no interface has less.
pub const LEAST_MTU: u16 = 68;

/// Returns the interfaces, by their indices, that the best route to `address` leads by: several of a route with several next
/// hops and of WANs, none where no route leads on.
pub fn interfaces_to(policy: &Policy, address: IpAddr) -> Vec<usize> {
    let of_default = policy.routes.iter().filter(|route| route.vrf.is_none());
    let routes = of_default.filter(|route| route.destination.contains(&address));
    let route = routes.max_by_key(|route| route.destination.prefix_len());
    let link = interface_of(policy, None, address).and_then(|index| {
        let nets = policy.interfaces[index].addresses.iter().filter(|net| net.contains(&address));
        nets.map(|net| net.prefix_len()).max().map(|length| (length, index))
    });
    match (route, link) {
        // A route to an interface's own network is an error elsewhere.
        (route, Some((length, index)))
            if route.is_none_or(|route| route.destination.prefix_len() <= length) =>
        {
            vec![index]
        }
        (Some(route), _) => match &route.target {
            RouteTarget::Via(hops) => {
                hops.iter().filter_map(|hop| hop_interface(policy, route.hop_vrf(), hop)).collect()
            }
            RouteTarget::Blackhole | RouteTarget::Unreachable => Vec::new(),
        },
        (None, _) => {
            let places = policy.wans.iter().filter_map(|wan| {
                let place = policy.interfaces.iter().position(|own| own.name == wan.interface)?;
                wan.carries(address, &policy.interfaces[place]).then_some(place)
            });
            places.collect()
        }
    }
}

/// Links that have this address, by their indices.
fn links_with(policy: &Policy, address: IpAddr) -> impl Iterator<Item = usize> + '_ {
    let links = policy.interfaces.iter().enumerate().filter(|(_, interface)| interface.esp.is_none());
    let has = move |interface: &Interface| interface.addresses.iter().any(|net| net.addr() == address);
    links.filter(move |(_, interface)| has(interface)).map(|(index, _)| index)
}

/// Reads a number of bytes as policies have it: `"10 GiB"`, or a bare number. `None` for any other text.
pub fn bytes(text: &str) -> Option<u64> {
    crate::value::tunnel::bytes(text)
}

/// Largest inner packet of the tunnel whose interface has that index: the interface's own bound, and the room that is left on each
/// link that may carry the outer packets, unless these are fragmented. 0 if there is no room.
pub fn mtu(policy: &Policy, index: usize, tunnel: &Tunnel) -> u16 {
    if tunnel.fragment == FragmentWhen::After {
        return policy.interfaces[index].mtu;
    }
    let ways = match tunnel.remote {
        Some(remote) => interfaces_to(policy, remote),
        // Where its packets come in.
        None => links_with(policy, tunnel.local).collect(),
    };
    let mut outer: Vec<u16> = ways.into_iter().map(|index| policy.interfaces[index].mtu).collect();
    if outer.is_empty() {
        // Wherever routes of the running system will lead.
        let links = policy.interfaces.iter().filter(|interface| interface.esp.is_none());
        outer.extend(links.map(|interface| interface.mtu));
    }
    let family = if tunnel.local.is_ipv4() { Family::V4 } else { Family::V6 };
    let (suites, udp) = (tunnel.suites_out(), tunnel.room_for());
    let inner =
        |outer: u16| suites.iter().map(|suite| suite.inner_mtu(outer, family, udp, tunnel.mode)).min();
    let room = outer.into_iter().filter_map(inner).min();
    policy.interfaces[index].mtu.min(room.unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_written_as_in_policies() {
        let read =
            ["4096", "10 GiB", "1.5kB", "2 TB", "GiB", "-1 B", "10 Gbit/s", "", "99999999999 TiB"].map(bytes);
        let expected = [Some(4_096), Some(10 << 30), Some(1_500), Some(2_000_000_000_000)];
        assert_eq!(read[..4], expected);
        assert_eq!(read[4..], [None; 5]);
    }
}
