//! Reload: other pools take the place of the present ones, and mappings go on.
//!
//! A pool stays itself if the caller says so (its translation has the same name), and keeps its hosts, mappings and
//! counters, whatever else about it has changed; others end. An outside address stays itself by its value. Pools that
//! are gone, and addresses that their pool no longer has, stay until their last mapping has ended, but hand out no
//! ports. A host that keeps to such an address gets another one for its new mappings.
//!
//! An address that is divided otherwise from now on (other blocks on demand, or none) takes another place, with the same bitmaps: its mappings
//! are of pools that are gone, and keep their ports until they end; nobody else gets these. Their blocks end at once, as their flows carry no packet
//! under the new tables.
//!
//! Newly reserved ports stay with their holders, and are not handed out again.
//!
//! The work is bounded by pools and outside addresses, not by mappings. Memory for new addresses is taken beforehand
//! ([`PoolsPlan::prepare`]), and retired state is returned for the caller to free when it has time.

use std::collections::{HashMap, HashSet};

use super::super::block::Blocks;
use super::super::pool::{Role, Side};
use super::super::port::Sharing;
use super::super::{Endpoint, PoolConfig, PortBlock};
use super::{
    Chunk, Compiled, ConfigError, Home, Mappings, NoTally, Outside, Pool, PortRange, PortSpace, Share, lent,
    reserve,
};

/// Reload plan of the pools.
pub(crate) struct PoolsPlan {
    compiled: Compiled,
    /// Predecessor of each pool, by its place in the old list.
    was: Vec<Option<u16>>,
    /// Bitmaps for addresses that the old pools did not have.
    chunk: Chunk,
    /// For each address, its place among those bitmaps.
    fresh: Vec<Option<u32>>,
    /// Bitmaps of ports that are handed out last, for all addresses that have such ports.
    lent: Chunk,
    /// For each address, its place among those bitmaps.
    lent_places: Vec<Option<u32>>,
}

/// Retired state of the pools.
#[derive(Default)]
pub(crate) struct RetiredPools {
    _chunks: Vec<Chunk>,
    _pools: Vec<Pool>,
    blocks: Vec<Blocks>,
    /// Blocks on demand that have ended, because their address is divided otherwise.
    pub(crate) ended: Vec<PortBlock>,
}

impl PoolsPlan {
    /// Compiles `new`; `was` is the predecessor of each pool in `old`.
    ///
    /// # Errors
    /// All faults of the pools, or the system has not enough memory.
    pub(crate) fn prepare(
        old: &[PoolConfig],
        new: &[PoolConfig],
        was: Vec<Option<u16>>,
        share: Share,
    ) -> Result<PoolsPlan, Vec<ConfigError>> {
        let before = Compiled::of(old, share)?;
        let known: HashMap<_, _> = before
            .outside
            .iter()
            .map(|outside| ((outside.address, outside.family), outside.block_size()))
            .collect();
        let compiled = Compiled::of(new, share)?;
        let mut count = 0;
        let mut number = |outside: &Outside| {
            (!known.contains_key(&(outside.address, outside.family))).then(|| {
                count += 1;
                count - 1
            })
        };
        let fresh: Vec<Option<u32>> = compiled.outside.iter().map(&mut number).collect();
        let mut chunk =
            Chunk::new(count as usize, share).map_err(|error| vec![ConfigError::Memory(error)])?;
        for (outside, place) in compiled.outside.iter().zip(&fresh) {
            if let Some(place) = place {
                reserve(&mut chunk, *place as usize, outside, share);
            }
        }
        let (lent, lent_places) =
            lent(&compiled.outside, share).map_err(|error| vec![ConfigError::Memory(error)])?;
        // Blocks are owned by arithmetic: where that has changed, what was mapped by it must not stay.
        let same = |new: &PoolConfig, old: &PoolConfig| {
            let same_blocks = new.ports == old.ports && new.addresses == old.addresses;
            new.block == old.block && (new.block.is_none() || same_blocks)
        };
        // Where an address is divided otherwise, what was mapped to it must not stay.
        let stays_divided = |place: u32| {
            let outside = &compiled.outside[place as usize];
            let before = known.get(&(outside.address, outside.family));
            before.is_none_or(|before| *before == outside.block_size())
        };
        let was = was.into_iter().zip(new).zip(&compiled.pools).map(|((was, new), pool)| {
            let mut addresses = pool.sides.iter().flat_map(|side| &side.outside);
            let is_same = |was: &u16| old.get(usize::from(*was)).is_some_and(|old| same(new, old));
            was.filter(|was| is_same(was) && addresses.all(|place| stays_divided(*place)))
        });
        let was = was.collect();
        Ok(PoolsPlan { was, compiled, chunk, fresh, lent, lent_places })
    }
}

impl Mappings {
    /// True if there are places for all pools beside those whose mappings go on, as always but for tens of thousands.
    pub(crate) fn has_places_for(&self, plan: &PoolsPlan) -> bool {
        let more = plan.was.iter().filter(|was| was.is_none()).count();
        self.pools.len() + more <= usize::from(u16::MAX) || self.is_empty()
    }

    /// Puts the pools in place, for which [there are places](Mappings::has_places_for).
    pub(crate) fn apply(&mut self, plan: PoolsPlan) -> RetiredPools {
        let PoolsPlan { compiled: Compiled { mut pools, outside }, was, chunk, fresh, lent, lent_places } =
            plan;
        let mut retired = RetiredPools::default();
        let home = self.ports.add(chunk);
        let lent_home = self.services.add(lent);
        for at in &mut self.outside {
            at.users.clear();
        }
        let mut addresses = Vec::with_capacity(outside.len());
        for ((new, fresh), lent_place) in outside.into_iter().zip(fresh).zip(lent_places) {
            let known = self.known.get(&(new.address, new.family)).copied();
            let place = match known {
                Some(place) if self.outside[place as usize].block_size() != new.block_size() => {
                    self.succeed(place, new, lent_place.map(|further| (lent_home, further)), &mut retired)
                }
                Some(place) => {
                    self.reserve_anew(place, new.reserved);
                    if self.outside[place as usize].services != new.services {
                        self.outside[place as usize].services = new.services;
                        self.lend_anew(place, lent_place.map(|further| (lent_home, further)));
                    }
                    place
                }
                None => {
                    let place = self.take_outside(new);
                    self.ports.settle(place, home, fresh.unwrap_or(0));
                    if let Some(further) = lent_place {
                        self.services.settle(place, lent_home, further);
                    }
                    place
                }
            };
            addresses.push(place);
        }
        // Pools that were there before stay in their places, as hosts know them by these.
        let mut places: Vec<Option<u16>> =
            was.iter().map(|was| was.and_then(|was| self.places.get(usize::from(was)).copied())).collect();
        for pool in &mut self.pools {
            pool.id = None;
        }
        for (pool, place) in pools.iter_mut().zip(&places) {
            for side in pool.sides_mut() {
                for address in &mut side.outside {
                    *address = addresses[*address as usize];
                }
            }
            if let Some(place) = place {
                let before = &self.pools[usize::from(*place)];
                pool.counters = before.counters;
                pool.held = before.held;
                pool.blocks = before.blocks;
                self.pools[usize::from(*place)].id = pool.id;
            }
        }
        let mut free = 0;
        for (pool, place) in pools.into_iter().zip(&mut places) {
            let place = place.get_or_insert_with(|| {
                while self.pools.get(free).is_some_and(|pool| pool.id.is_some() || pool.counters.live() > 0) {
                    free += 1;
                }
                free as u16
            });
            match self.pools.get_mut(usize::from(*place)) {
                Some(before) => retired._pools.push(std::mem::replace(before, pool)),
                None => self.pools.push(pool),
            }
        }
        self.places = places.into_iter().flatten().collect();
        self.note_users();
        self.any_left = self.live > 0;
        retired.blocks.extend(self.forget_unused());
        retired._chunks = self.ports.unused();
        retired._chunks.extend(self.services.unused());
        retired
    }

    /// Takes a place for a new address.
    fn take_outside(&mut self, new: Outside) -> u32 {
        let key = (new.address, new.family);
        let new = Outside { users: Vec::new(), ..new };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.outside[place as usize] = new;
                place
            }
            None => {
                self.outside.push(new);
                (self.outside.len() - 1) as u32
            }
        };
        self.known.insert(key, place);
        place
    }

    /// Takes another place for an address that is divided otherwise from now on, with the same bitmaps.
    fn succeed(
        &mut self,
        former: u32,
        new: Outside,
        lent: Option<(Home, u32)>,
        retired: &mut RetiredPools,
    ) -> u32 {
        let before = self.outside[former as usize].sharing();
        retired.ended.extend(self.blocks_of(former));
        retired.blocks.extend(self.end_blocks(former));
        let (reserved, sharing) = (new.reserved.clone(), [before, new.sharing()]);
        let before = &mut self.outside[former as usize];
        let is_used = before.held > 0 || before.role == Role::Successor;
        // Ports of before that, of blocks, which pairs make other workers'.
        let has_older = before.role == Role::Successor && sharing == [Sharing::Pairs, Sharing::Blocks];
        before.role = Role::Predecessor;
        let role = if is_used { Role::Successor } else { Role::Only };
        let new = Outside { reserved: before.reserved.clone(), role, ..new };
        let place = self.take_outside(new);
        self.ports.take_over(place, former, sharing);
        let share = self.ports.share();
        if has_older && share.is_divided() {
            for space in PortSpace::ALL {
                for port in (1..=u16::MAX).filter(|port| !share.owns(*port)) {
                    if self.is_held(place, space, port) {
                        self.ports.claim(place, space, port);
                    }
                }
            }
        }
        for space in PortSpace::ALL {
            for range in self.outside[place as usize].reserved[space as usize].clone() {
                self.ports.reserve(place, space, range);
            }
        }
        self.reserve_anew(place, reserved);
        self.lend_anew(place, lent);
        place
    }

    /// Notes the pools that use each address; pools that are gone use none.
    fn note_users(&mut self) {
        let Mappings { pools, outside, .. } = self;
        for (place, pool) in (0..).zip(pools.iter_mut()) {
            if pool.id.is_none() {
                *pool.sides_mut() = [Side::default(), Side::default()];
            }
            for side in pool.sides_mut() {
                for (number, address) in (0..).zip(&side.outside) {
                    outside[*address as usize].users.push((place, number));
                }
            }
        }
    }

    /// Forgets addresses without pools and mappings; returns their blocks.
    fn forget_unused(&mut self) -> Vec<Blocks> {
        let mut retired = Vec::new();
        let predecessors = self.outside.iter().filter(|at| at.role == Role::Predecessor && at.held > 0);
        let held: HashSet<_> = predecessors.map(|at| (at.address, at.family)).collect();
        for place in 0..self.outside.len() {
            let at = &mut self.outside[place];
            let key = (at.address, at.family);
            if at.role == Role::Successor {
                if held.contains(&key) {
                    continue;
                }
                at.role = Role::Only;
            }
            if at.users.is_empty() && at.held == 0 && at.role != Role::Vacant {
                at.role = Role::Vacant;
                retired.extend(at.blocks.take());
                if self.known.get(&key) == Some(&(place as u32)) {
                    self.known.remove(&key);
                }
                self.vacant.push(place as u32);
                self.ports.leave(place as u32);
                self.services.leave(place as u32);
            }
        }
        retired
    }

    /// Replaces the reserved ports of an address.
    fn reserve_anew(&mut self, place: u32, reserved: [Vec<PortRange>; PortSpace::COUNT]) {
        let before = std::mem::replace(&mut self.outside[place as usize].reserved, reserved);
        for space in PortSpace::ALL {
            let (old, new) =
                (&before[space as usize], self.outside[place as usize].reserved[space as usize].clone());
            if *old == new {
                continue;
            }
            for range in &new {
                self.ports.reserve(place, space, *range);
            }
            for port in old.iter().flat_map(|range| range.first..=range.last) {
                let is_open =
                    self.is_open(place, port) && !self.outside[place as usize].reserves(space, port);
                if is_open && !self.is_held(place, space, port) {
                    self.ports.free(place, space, port);
                }
            }
        }
    }

    /// Replaces an address's bitmaps of the ports that are handed out last, if it has such ports; those of mappings are
    /// taken.
    fn lend_anew(&mut self, place: u32, home: Option<(Home, u32)>) {
        self.services.leave(place);
        let Some((home, further)) = home else { return };
        self.services.settle(place, home, further);
        for space in PortSpace::ALL {
            let ranges = self.outside[place as usize].services[space as usize].clone();
            for port in ranges.iter().flat_map(|range| range.first..=range.last) {
                if self.is_held(place, space, port) {
                    self.services.claim(place, space, port);
                }
            }
        }
    }

    /// True if a mapping has a port.
    fn is_held(&self, place: u32, space: PortSpace, port: u16) -> bool {
        let Outside { address, family, held, role, .. } = self.outside[place as usize];
        (held > 0 || role == Role::Successor)
            && space.protocols().iter().any(|protocol| {
                let end = Endpoint { address, port, protocol: *protocol, family, ..Endpoint::default() };
                self.inside_of(&end, &mut NoTally).is_some()
            })
    }
}

#[cfg(test)]
mod tests;
