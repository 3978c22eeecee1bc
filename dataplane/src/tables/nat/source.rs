//! Selection of the address that a translated packet shows.

use ipnet::IpNet;
use wire::PortId;

use super::{NatTables, Returning, SourceAction};
use crate::tables::Address;

/// Pools of an interface's own addresses, in the order of the interface's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// For IPv4.
    pub v4: Vec<OwnAddress>,
    /// For IPv6.
    pub v6: Vec<OwnAddress>,
}

/// An address of an interface, as a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address, with its network.
    pub net: IpNet,
    /// The pool that hands out its ports.
    pub pool: u16,
}

impl Outgoing {
    /// Addresses of a family.
    pub fn of(&self, v6: bool) -> &[OwnAddress] {
        if v6 { &self.v6 } else { &self.v4 }
    }
}

/// The address by which packets go to a next hop: of those whose network has it, that of the longest prefix; else the
/// first that shares most with the destination by scope and prefix (IPv6: RFC 6724, section 5, rules 2, 6 and 8), of IPv4
/// the first. As Linux selects it where no route prefers another.
pub(crate) fn select(own: &[OwnAddress], next: Address, destination: Address) -> Option<OwnAddress> {
    if let [one] = own {
        return Some(*one);
    }
    let next_ip = next.to_ip();
    let rank = |own: &OwnAddress| {
        let near = if own.net.contains(&next_ip) { 1 + own.net.prefix_len() } else { 0 };
        if !destination.v6 {
            return (near, false, 0);
        }
        let bits = Address::from(own.net.addr()).bits;
        let shared = (bits ^ destination.bits).leading_zeros().min(own.net.prefix_len().into());
        (near, is_local(bits) == is_local(destination.bits), shared)
    };
    // Of equals the first.
    let best = own.iter().map(rank).max()?;
    own.iter().find(|own| rank(own) == best).copied()
}

/// Unique local addresses, fc00::/7 (RFC 4193).
fn is_local(bits: u128) -> bool {
    bits >> 121 == 0xfc >> 1
}

impl SourceAction {
    /// The pool that translates what leaves by `out` to `next`, where a pool does.
    pub fn pool(&self, out: PortId, next: Address, destination: Address) -> Option<u16> {
        match self {
            SourceAction::Pool(pool) => Some(*pool),
            SourceAction::Masquerade(_) => {
                select(self.own(out, destination.v6), next, destination).map(|own| own.pool)
            }
            SourceAction::Across { by, .. } => by.pool(out, next, destination),
            SourceAction::Exempt | SourceAction::Network(_) => None,
        }
    }

    /// The interface's own addresses by one of which what leaves by it is masqueraded.
    pub fn own(&self, out: PortId, v6: bool) -> &[OwnAddress] {
        match self {
            SourceAction::Masquerade(outgoing) => {
                outgoing.get(usize::from(out.0)).map_or(&[], |outgoing| outgoing.of(v6))
            }
            SourceAction::Across { by, .. } => by.own(out, v6),
            _ => &[],
        }
    }

    /// True if what leaves by `out` may be translated by a pool.
    pub fn has_pool(&self, out: PortId, v6: bool, pool: u16) -> bool {
        match self {
            SourceAction::Pool(own) => *own == pool,
            SourceAction::Across { by, .. } => by.has_pool(out, v6, pool),
            action => action.own(out, v6).iter().any(|own| own.pool == pool),
        }
    }
}

impl NatTables {
    /// The pool of an address of the gateway, by which it translates of its own accord.
    pub fn accord_of(&self, address: Address) -> Option<u16> {
        let ip = address.to_ip();
        let mut all = self.accord.iter().flat_map(|outgoing| outgoing.of(address.v6));
        all.find(|own| own.net.addr() == ip).map(|own| own.pool)
    }

    /// The pool of an interface's address on the network of another, else of its first, likewise.
    pub fn accord_on(&self, interface: PortId, near: Address) -> Option<u16> {
        let outgoing = self.accord.get(usize::from(interface.0))?;
        select(outgoing.of(near.v6), near, near).map(|own| own.pool)
    }

    /// The forwards that lead to an inside address and port.
    pub fn returning(&self, address: Address, port: u16, protocol: u8) -> impl Iterator<Item = &Returning> {
        let first = self.returning.partition_point(|forward| forward.target < address);
        self.returning[first..]
            .iter()
            .take_while(move |forward| forward.target == address)
            .filter(move |forward| forward.ports.has(port) && forward.protocols.contains(&protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(own: &[&str], next: &str, destination: &str) -> String {
        let own: Vec<OwnAddress> =
            (0..).zip(own).map(|(pool, net)| OwnAddress { net: net.parse().unwrap(), pool }).collect();
        let ip = |text: &str| Address::from(text.parse::<std::net::IpAddr>().unwrap());
        select(&own, ip(next), ip(destination)).map_or("-".to_owned(), |own| own.net.addr().to_string())
    }

    #[test]
    fn the_address_is_that_of_the_next_hop_s_network() {
        let own = ["192.168.1.1/24", "203.0.113.2/24", "203.0.113.3/24", "203.0.113.130/28"];
        assert_eq!(chosen(&own, "203.0.113.1", "198.51.100.7"), "203.0.113.2");
        assert_eq!(chosen(&own, "203.0.113.129", "198.51.100.7"), "203.0.113.130");
        assert_eq!(chosen(&own, "192.168.1.9", "192.168.1.9"), "192.168.1.1");
        // A router that is on none of its networks.
        assert_eq!(chosen(&own, "10.0.0.1", "198.51.100.7"), "192.168.1.1");
        assert_eq!(chosen(&[], "10.0.0.1", "198.51.100.7"), "-");
    }

    #[test]
    fn by_a_link_local_router_scope_and_prefix_decide() {
        let own = ["fd00:1::1/64", "2001:db8:1::1/64", "2001:db8:2::1/64"];
        assert_eq!(chosen(&own, "fe80::1", "2001:db8:2:9::7"), "2001:db8:2::1");
        assert_eq!(chosen(&own, "fe80::1", "2600::7"), "2001:db8:1::1");
        assert_eq!(chosen(&own, "fe80::1", "fd00:9::7"), "fd00:1::1");
        assert_eq!(chosen(&own, "2001:db8:1::9", "2001:db8:2:9::7"), "2001:db8:1::1");
    }
}
