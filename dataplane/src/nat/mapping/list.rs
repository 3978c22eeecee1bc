//! Lists of mappings and pools, for operators.

use std::net::IpAddr;

use super::super::{Endpoint, MappingId, PoolCounters, PoolId, PortRange, PortSpace, bits_of, ip_of};
use super::Mappings;

/// A mapping, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Place of the mapping.
    pub id: MappingId,
    /// Pool of the mapping; `None` if the present tables no longer have the pool, or the outside address.
    pub pool: Option<PoolId>,
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// The outside endpoint, as other hosts see it.
    pub outside: Endpoint,
    /// Number of references.
    pub references: u32,
}

/// Use of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Outside addresses.
    pub addresses: u32,
    /// Ports, for each of TCP, UDP and ICMP identifiers: this worker's share of the pool's range on all its addresses,
    /// reserved ports included.
    pub ports: u64,
    /// Number of ports in use, of TCP, UDP and ICMP identifiers.
    pub used: [u32; 3],
    /// Number of blocks on demand that hosts have.
    pub blocks: u32,
    /// Counters of the pool.
    pub counters: PoolCounters,
}

impl Mappings {
    /// A mapping; `None` if there is none in that place.
    pub fn get(&self, id: MappingId) -> Option<Mapping> {
        let entry = self.entry(id)?;
        Some(Mapping {
            id,
            pool: self.pool_of(id),
            inside: self.inside_end(id.0),
            outside: self.outside_end(id.0),
            references: entry.references,
        })
    }

    /// All mappings, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = Mapping> + '_ {
        self.iter_from(MappingId(0)).take(self.capacity() as usize).flatten()
    }

    /// Iterates over places from one on, each with its mapping, if any: for going through the table in steps.
    pub fn iter_from(&self, first: MappingId) -> impl Iterator<Item = Option<Mapping>> + '_ {
        (first.0..self.capacity()).map(|place| self.get(MappingId(place)))
    }

    /// Returns the pool of a mapping; `None` if the present tables no longer have the pool, or the mapping's outside
    /// address.
    pub fn pool_of(&self, id: MappingId) -> Option<PoolId> {
        let host = self.hosts.get(self.entry(id)?.host);
        let place = host.pool().0;
        if self.outside[host.outside as usize].is_of(place) {
            self.pools[usize::from(place)].id
        } else {
            None
        }
    }

    /// Returns the use of a pool.
    pub fn usage(&self, pool: PoolId) -> Option<PoolUse> {
        let pool = &self.pools[usize::from(*self.places.get(usize::from(pool.0))?)];
        let share = self.ports.share();
        let own: u32 = pool.ports.iter().map(|range| share.within(*range)).sum();
        let addresses = pool.addresses();
        Some(PoolUse {
            addresses,
            ports: u64::from(own) * u64::from(addresses),
            used: PortSpace::ALL.map(|space| pool.held[space as usize]),
            blocks: pool.blocks,
            counters: pool.counters,
        })
    }

    /// Returns the counters of a pool.
    pub fn counters(&self, pool: PoolId) -> Option<PoolCounters> {
        Some(self.pools[usize::from(*self.places.get(usize::from(pool.0))?)].counters)
    }

    /// Returns the outside address and the block of an inside address in a deterministic pool (RFC 7422).
    pub fn block_of(&self, pool: PoolId, inside: IpAddr) -> Option<(IpAddr, PortRange)> {
        let pool = &self.pools[usize::from(*self.places.get(usize::from(pool.0))?)];
        let (address, family) = bits_of(inside);
        let (place, ports) = pool.owned(address, family)?;
        let outside = self.outside.get(*pool.side(family).outside.get(place)? as usize)?;
        Some((ip_of(outside.address, family), ports))
    }

    /// Returns the owner of an outside port by deterministic NAT, in use or not: the answer to an abuse report, without
    /// a log.
    pub fn owner_of(&self, outside: IpAddr, port: u16) -> Option<(PoolId, IpAddr)> {
        let known = &self.outside[*self.known.get(&bits_of(outside))? as usize];
        known.users.iter().find_map(|(user, place)| {
            let pool = &self.pools[usize::from(*user)];
            let owner = pool.owner(usize::from(*place), known.family, port)?;
            Some((pool.id?, ip_of(owner, known.family)))
        })
    }
}
