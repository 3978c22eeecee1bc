//! Mappings of two ports that follow one another: of RTP, and of RTCP with the next port (RFC 3550, section 11).

use arrayvec::ArrayVec;
use tally::{NoTally, Tally};

use super::super::port::{Wanted, Wish};
use super::super::{Endpoint, Mapped, MappingId, PoolId, PortRange, PortSpace, Refusal};
use super::Mappings;

/// Outside ports tried for the first of two.
const MOST_TRIES: usize = 8;

impl Mappings {
    /// The mappings of an inside endpoint and of that with the next port, with outside ports that follow one another, if a few tries find
    /// any, else with two others. Takes a reference to each.
    ///
    /// # Errors
    /// A mapping cannot be made; no reference is taken.
    pub(crate) fn map_pair<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        tally: &mut T,
    ) -> Result<[Mapped; 2], Refusal> {
        let next = Endpoint { port: inside.port.checked_add(1).ok_or(Refusal::NoPorts)?, ..inside };
        let first = self.map(pool, inside, tally)?;
        if let Some(second) = self.map_behind(pool, next, first, tally) {
            return Ok([first, second]);
        }
        // One that nobody has used may be another.
        let is_new = self.entry(first.id).is_some_and(|entry| entry.references == 1);
        if is_new && !self.goes_by_blocks(first.id) {
            if let Some(pair) = self.try_pairs(pool, [inside, next], tally) {
                self.release(first.id, tally);
                return Ok(pair);
            }
        }
        match self.map(pool, next, tally) {
            Ok(second) => Ok([first, second]),
            Err(refusal) => {
                self.release(first.id, tally);
                Err(refusal)
            }
        }
    }

    /// The outside endpoint of an inside one that has a mapping.
    pub(crate) fn outside_of(&self, pool: PoolId, inside: Endpoint) -> Option<Endpoint> {
        let place = PoolId(*self.places.get(usize::from(pool.0))?);
        let tally = &mut NoTally;
        let host = self.hosts.find(&self.hasher, place, &inside, tally)?;
        let found = self.find_inside(host, inside, self.hash_inside(&inside, tally), tally)?;
        Some(self.outside_end(found))
    }

    /// Both ends of a mapping: inside and outside.
    pub(crate) fn ends_of(&self, id: MappingId) -> Option<[Endpoint; 2]> {
        self.entry(id)?;
        Some([self.inside_end(id.0), self.outside_end(id.0)])
    }

    /// Tries further outside ports, of which the next one may be free.
    fn try_pairs<T: Tally>(
        &mut self,
        pool: PoolId,
        [inside, next]: [Endpoint; 2],
        tally: &mut T,
    ) -> Option<[Mapped; 2]> {
        // What has been tried is held meanwhile, or it would be chosen again.
        let mut tried: ArrayVec<MappingId, MOST_TRIES> = ArrayVec::new();
        let mut found = None;
        while found.is_none() && !tried.is_full() {
            let Ok(another) = self.map_another(pool, inside, tally) else { break };
            match self.map_behind(pool, next, another, tally) {
                Some(second) => found = Some([another, second]),
                None => tried.push(another.id),
            }
        }
        for mapping in tried {
            self.release(mapping, tally);
        }
        found
    }

    /// The mapping of an inside endpoint with the outside port behind that of another mapping of its host; `None` if it has another, or the
    /// port is not to be had.
    fn map_behind<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        first: Mapped,
        tally: &mut T,
    ) -> Option<Mapped> {
        let port = first.outside.port.checked_add(1)?;
        let place = *self.places.get(usize::from(pool.0))?;
        let space = PortSpace::of(inside.protocol)?;
        let host = self.entry(first.id)?.host;
        let hash = self.hash_inside(&inside, tally);
        if let Some(found) = self.find_inside(host, inside, hash, tally) {
            return (self.outside_end(found).port == port).then(|| self.hold(found, tally));
        }
        if self.goes_by_blocks(first.id) || self.is_full_for(Some(host)) {
            return None;
        }
        let (share, compiled) = (self.ports.share(), self.pools.get(usize::from(place))?);
        let may_have = match compiled.block {
            Some(_) => compiled.owned(inside.address, inside.family)?.1.has(port),
            None => compiled.ports.iter().any(|range| range.has(port)),
        };
        let at = *self.hosts.get(host);
        if !may_have || u32::from(at.held[space as usize]) >= share.of_bound(compiled.quota) {
            return None;
        }
        let Mappings { ports, random, .. } = self;
        let ranges = &[PortRange { first: port, last: port }];
        let taken =
            ports.take(at.outside, space, Wanted { ranges, wish: Wish::Port(port), share }, random, tally)?;
        self.hosts.get_mut(host).held[space as usize] += 1;
        Some(self.insert(host, (&inside, hash), taken, tally))
    }

    /// True if the ports of a mapping's outside address go by blocks, which are hosts' with all that is in them.
    fn goes_by_blocks(&self, id: MappingId) -> bool {
        let host = self.entry(id).map(|entry| *self.hosts.get(entry.host));
        host.is_none_or(|host| self.outside[host.outside as usize].blocks.is_some())
    }
}
