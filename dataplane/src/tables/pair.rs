//! Division of flows between two gateways that both forward packets: each flow has an owner, by a hash that both compute alike.
//!
//! The hash is of addresses alone, so that all connections between two hosts have one owner, with what helpers expect of them; and of the
//! end that is the same in both directions of a translated flow. Without a secret, on purpose: both gateways, of whatever releases of one
//! protocol version, come to the same.

use lookup::classify::AddressSpan;
use policy::model::Half;

use super::{Address, is_within};
use crate::flow::steering::mix;

/// The gateway's half, and the addresses that the owner of a flow depends on.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The gateway's half.
    pub half: Half,
    /// Virtual addresses, which both gateways show: ascending.
    pub(crate) shared: Vec<Address>,
    /// Inside hosts whose sources are translated by pools: all their flows to others have one owner, so that mappings, quotas and limits of
    /// one host are exact. Disjoint, ascending.
    pub(crate) hosts: Vec<AddressSpan>,
    /// Inside addresses that are translated one by one: disjoint, ascending.
    pub(crate) fixed: Vec<AddressSpan>,
}

impl Pair {
    /// Returns the owner of all flows of an address.
    pub fn half_of(address: Address) -> Half {
        // Independent of the selection of a worker, which goes by high bits.
        Half::of(of(address))
    }

    /// Returns the owner of flows between two addresses, in either direction.
    pub fn half_between(one: Address, other: Address) -> Half {
        Half::of(mix(of(one).wrapping_add(of(other))))
    }

    /// True if both gateways show an address.
    pub fn is_shared(&self, address: Address) -> bool {
        self.shared.binary_search(&address).is_ok()
    }

    /// Returns the owner of a flow that no destination translation and no port of a mapping decides on; of a packet in either direction.
    /// `shows` says whether a pool has an address.
    pub(crate) fn owner(
        &self,
        source: Address,
        destination: Address,
        ports: Ports,
        shows: impl Fn(Address) -> bool,
    ) -> Half {
        let is_host = |address| is_within(&self.hosts, address);
        if is_within(&self.fixed, source) {
            return Pair::half_of(destination);
        }
        if ports == Ports::None {
            // Translated, it shows no more than its address: the end outside is what both directions have.
            if shows(destination) {
                return Pair::half_of(source);
            }
            if is_host(source) && !is_host(destination) {
                return Pair::half_of(destination);
            }
        }
        match (is_host(source), is_host(destination)) {
            (true, false) => Pair::half_of(source),
            (false, true) => Pair::half_of(destination),
            _ => Pair::half_between(source, destination),
        }
    }
}

/// Ports that translations may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// TCP or UDP ports, or the identifier of an ICMP query.
    Some,
    /// None.
    None,
}

fn of(address: Address) -> u64 {
    mix(address.bits as u64 ^ mix((address.bits >> 64) as u64 ^ u64::from(address.v6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Address {
        Address::v4(0x0a00_0000 + number)
    }

    #[test]
    fn both_directions_have_one_owner_and_halves_are_alike() {
        let hosts = vec![AddressSpan { v6: false, first: 0x0a00_0000, last: 0x0a00_00ff }];
        let fixed = vec![AddressSpan { v6: false, first: 0x0a00_0100, last: 0x0a00_01ff }];
        let pair = Pair { half: Half::Listens, shared: Vec::new(), hosts, fixed };
        let mut counts = [0_u32; 2];
        for one in 0..0x100 {
            for other in (0x200..0x400).step_by(7) {
                let owner = |from, to| pair.owner(address(from), address(to), Ports::Some, |_| false);
                assert_eq!(owner(one, other), owner(other, one));
                assert_eq!(owner(one, other), Pair::half_of(address(one)), "of its host");
                assert_eq!(owner(one, one + 1), owner(one + 1, one));
                assert_eq!(owner(other, other + 1), owner(other + 1, other));
                assert_eq!(
                    owner(0x100 + one, other),
                    Pair::half_of(address(other)),
                    "its source becomes another"
                );
                counts[usize::from(Pair::half_between(address(one), address(other)).number())] += 1;
            }
        }
        assert!(counts.iter().all(|count| *count > 8_000), "{counts:?}");
        let of_hosts = (0..1000).filter(|host| Pair::half_of(address(*host)) == Half::Connects).count();
        assert!((430..570).contains(&of_hosts), "{of_hosts}");
    }

    #[test]
    fn without_ports_the_end_outside_decides() {
        let hosts = vec![AddressSpan { v6: false, first: 0x0a00_0000, last: 0x0a00_00ff }];
        let pair = Pair { half: Half::Listens, shared: Vec::new(), hosts, fixed: Vec::new() };
        let shown = address(0x999);
        for far in 0x200..0x280 {
            let owner = |from, to| pair.owner(from, to, Ports::None, |address| address == shown);
            assert_eq!(owner(address(3), address(far)), owner(address(far), shown));
        }
    }
}
