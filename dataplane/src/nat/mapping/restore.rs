//! Mappings restored from another table, with the outside ports that they had there.

use std::collections::HashSet;

use tally::NoTally;

use super::super::{Endpoint, MappingId, PoolCounters, PoolId, PortBlock, PortSpace};
use super::Mappings;

/// Reason for refusing to restore a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Restore {
    /// The pool has no such outside address.
    #[error("its outside address is in the pool no more")]
    AddressGone,
    /// Another inside endpoint has the outside port, or another inside address its block.
    #[error("its outside port is somebody else's")]
    PortTaken,
    /// The port is another worker's, or in the block of another inside address.
    #[error("its outside port is not of this share")]
    NotOurs,
    /// The inside endpoint, or its host, is mapped otherwise.
    #[error("its inside end is mapped to another port or address")]
    Otherwise,
    /// All mappings or hosts that there is memory for are in use.
    #[error("the table of translations is full")]
    TableFull,
    /// The two ends are not of one protocol with ports, or not of families that the pool translates.
    #[error("its ends do not fit one another")]
    Malformed,
}

impl Mappings {
    /// Returns the mapping of these two ends, made if there is none yet; takes a reference to it. The pool's range of
    /// ports and its quota are not checked: they are for new mappings.
    ///
    /// # Errors
    /// [`Restore`]; nothing is changed.
    pub fn restore(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        outside: Endpoint,
    ) -> Result<MappingId, Restore> {
        let space = PortSpace::of(inside.protocol).ok_or(Restore::Malformed)?;
        let place = *self.places.get(usize::from(pool.0)).ok_or(Restore::AddressGone)?;
        let hosts = self.pools[usize::from(place)].hosts;
        let fits = hosts.have(inside.family) && hosts.outside(inside.family) == outside.family;
        if inside.protocol != outside.protocol || !fits || outside.port == 0 {
            return Err(Restore::Malformed);
        }
        let address = self.known.get(&(outside.address, outside.family)).copied();
        let address = address
            .filter(|address| self.outside[*address as usize].is_of(place))
            .ok_or(Restore::AddressGone)?;
        let tally = &mut NoTally;
        let by_place = PoolId(place);
        let host = self.hosts.find(&self.hasher, by_place, &inside, tally);
        let hash = self.hash_inside(&inside, tally);
        if let Some(mapping) = host.and_then(|host| self.find_inside(host, inside, hash, tally)) {
            let same = self.outside_end(mapping) == outside;
            return if same { Ok(self.hold(mapping, tally).id) } else { Err(Restore::Otherwise) };
        }
        if host.is_some_and(|host| self.hosts.get(host).outside != address) {
            return Err(Restore::Otherwise);
        }
        if !self.may_have(place, &inside, address, outside.port) {
            return Err(Restore::NotOurs);
        }
        if self.inside_of(&outside, tally).is_some() || !self.may_enter(address, outside.port, host) {
            return Err(Restore::PortTaken);
        }
        if self.is_full_for(host) {
            return Err(Restore::TableFull);
        }
        let host = match host {
            Some(host) => host,
            None => {
                let key = (by_place, &inside);
                self.hosts.insert(&self.hasher, key, address, tally).ok_or(Restore::TableFull)?
            }
        };
        self.hosts.get_mut(host).held[space as usize] += 1;
        if self.outside[address as usize].serves(space, outside.port) {
            self.services.claim(address, space, outside.port);
        } else {
            self.ports.claim(address, space, outside.port);
        }
        // The block goes on as the mapping does: nobody is told.
        self.enter_block(host, outside.port, tally);
        Ok(self.insert(host, (&inside, hash), outside.port, tally).id)
    }

    /// Continues the counters and the choice of ports of another table, whose mappings this one has taken in and whose
    /// pools are the same. Returns the blocks that the other table had and this one has not.
    pub(crate) fn go_on_from(&mut self, other: &mut Mappings) -> Vec<PortBlock> {
        std::mem::swap(&mut self.random, &mut other.random);
        for (place, before) in self.places.iter().zip(&other.places) {
            let before = other.pools[usize::from(*before)].counters;
            let counters = &mut self.pools[usize::from(*place)].counters;
            *counters = PoolCounters { ended: before.created - counters.live(), ..before };
        }
        let own: HashSet<_> = self.blocks().collect();
        other.blocks().filter(|block| !own.contains(block)).collect()
    }

    /// True if an inside endpoint may have a port, by shares and blocks.
    fn may_have(&self, place: u16, inside: &Endpoint, address: u32, port: u16) -> bool {
        let pool = &self.pools[usize::from(place)];
        let is_in_block = || {
            let owned = pool.owned(inside.address, inside.family);
            owned.is_some_and(|(at, range)| {
                let own = pool.side(inside.family).outside.get(at);
                own == Some(&address) && (range.first..=range.last).contains(&port)
            })
        };
        self.may_hold(address, port) && (pool.block.is_none() || is_in_block())
    }
}
