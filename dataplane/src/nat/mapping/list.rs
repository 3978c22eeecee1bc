//! What mappings and pools there are, for operators.

use std::net::IpAddr;

use super::super::{Endpoint, MappingId, PoolCounters, PoolId, PortRange, PortSpace, bits_of, ip_of};
use super::Mappings;

/// A mapping, to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its place.
    pub id: MappingId,
    /// The pool that it was made from; `None` if that, or its outside address, is in the present tables no more.
    pub pool: Option<PoolId>,
    /// The host's own endpoint.
    pub inside: Endpoint,
    /// What it looks like from outside.
    pub outside: Endpoint,
    /// How many hold it.
    pub references: u32,
}

/// How much of a pool is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Outside addresses.
    pub addresses: u32,
    /// Ports, for each of TCP, UDP and ICMP identifiers: those of this worker's share in the pool's range on all its
    /// addresses, those included that are set aside for something else.
    pub ports: u64,
    /// Of those of TCP, of UDP and of ICMP, how many are in use.
    pub used: [u32; 3],
    /// What the pool has done so far.
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

    /// The places from one on, each with its mapping, if it has one: to be gone through little by little.
    pub fn iter_from(&self, first: MappingId) -> impl Iterator<Item = Option<Mapping>> + '_ {
        (first.0..self.capacity()).map(|place| self.get(MappingId(place)))
    }

    /// The pool of the present tables that a mapping is of; `None` where that, or the mapping's outside address, is in
    /// them no more.
    pub fn pool_of(&self, id: MappingId) -> Option<PoolId> {
        let host = self.hosts.get(self.entry(id)?.host);
        let place = host.pool().0;
        if self.outside[host.outside as usize].is_of(place) {
            self.pools[usize::from(place)].id
        } else {
            None
        }
    }

    /// How much of a pool is in use.
    pub fn usage(&self, pool: PoolId) -> Option<PoolUse> {
        let pool = &self.pools[usize::from(*self.places.get(usize::from(pool.0))?)];
        let share = self.ports.share();
        let own: u32 = pool.ports.iter().map(|range| share.within(*range)).sum();
        let addresses = pool.addresses();
        Some(PoolUse {
            addresses,
            ports: u64::from(own) * u64::from(addresses),
            used: PortSpace::ALL.map(|space| pool.held[space as usize]),
            counters: pool.counters,
        })
    }

    /// What a pool has done so far.
    pub fn counters(&self, pool: PoolId) -> Option<PoolCounters> {
        Some(self.pools[usize::from(*self.places.get(usize::from(pool.0))?)].counters)
    }

    /// What an inside address owns of a deterministic pool (RFC 7422): the outside address and its block.
    pub fn block_of(&self, pool: PoolId, inside: IpAddr) -> Option<(IpAddr, PortRange)> {
        let pool = &self.pools[usize::from(*self.places.get(usize::from(pool.0))?)];
        let (address, family) = bits_of(inside);
        let (place, ports) = pool.owned(address, family)?;
        let outside = self.outside.get(*pool.side(family).outside.get(place)? as usize)?;
        Some((ip_of(outside.address, family), ports))
    }

    /// Who owns an outside port by deterministic NAT, whether or not it is in use: the answer to a complaint, for
    /// which no log is needed.
    pub fn owner_of(&self, outside: IpAddr, port: u16) -> Option<(PoolId, IpAddr)> {
        let known = &self.outside[*self.known.get(&bits_of(outside))? as usize];
        known.users.iter().find_map(|(user, place)| {
            let pool = &self.pools[usize::from(*user)];
            let owner = pool.owner(usize::from(*place), known.family, port)?;
            Some((pool.id?, ip_of(owner, known.family)))
        })
    }
}
