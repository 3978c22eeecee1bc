//! Mappings with an outside port of the caller's choice.

use tally::NoTally;

use super::super::port::{Wanted, Wish};
use super::super::{Endpoint, Mapped, PoolId, PortRange, PortSpace, Refusal};
use super::{Mappings, preferred};
use crate::port_mapping::{PortWish, common};

/// Outside ports that a mapping may have.
pub(crate) struct WantedPort<'a> {
    /// Ports: disjoint, ascending ranges.
    pub(crate) ports: &'a [PortRange],
    /// Choice among them.
    pub(crate) wish: PortWish,
}

impl Mappings {
    /// The mapping of an inside endpoint, made with a port of choice if there is none yet; takes a reference to it. Ports that are
    /// set aside, for forwards or services, are never taken.
    ///
    /// # Errors
    /// The mapping cannot be made, or the one that is there has another port than it may have. Nothing is counted.
    pub(crate) fn map_port(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        wanted: &WantedPort<'_>,
    ) -> Result<Mapped, Refusal> {
        let tally = &mut NoTally;
        let place = *self.places.get(usize::from(pool.0)).ok_or(Refusal::NoPool)?;
        let space = PortSpace::of(inside.protocol).ok_or(Refusal::NoPorts)?;
        let by_place = PoolId(place);
        let mut host = self.hosts.find(&self.hasher, by_place, &inside, tally);
        if self.any_left {
            host = host.filter(|host| self.stays(*host, by_place));
        }
        // Ports of an address that goes by blocks are a host's with a block of its own, and not by themselves.
        let side = self.pools[usize::from(place)].side(inside.family);
        if side.outside.iter().any(|address| self.outside[*address as usize].blocks.is_some()) {
            return Err(Refusal::PortsExhausted);
        }
        let hash = self.hash_inside(&inside, tally);
        if let Some(found) = host.and_then(|host| self.find_inside(host, inside, hash, tally)) {
            // Flows have the mapping already, and their outside port stays.
            let port = self.outside_end(found).port;
            let is_wanted = match wanted.wish {
                PortWish::Only(only) => port == only,
                PortWish::Any | PortWish::Suggested(_) => true,
            };
            let may = wanted.ports.iter().any(|range| range.has(port));
            let is_set_aside = self.outside
                [self.hosts.get(self.entries.entries()[found as usize].host).outside as usize]
                .reserves(space, port);
            return if is_wanted && may && !is_set_aside {
                Ok(self.hold(found, tally))
            } else {
                Err(Refusal::PortsExhausted)
            };
        }
        let held = host.map_or(0, |host| self.hosts.get(host).held[space as usize]);
        let compiled = &self.pools[usize::from(place)];
        if u32::from(held) >= self.ports.share().of_bound(compiled.quota) {
            return Err(Refusal::QuotaReached);
        }
        if self.is_full_for(host) {
            return Err(Refusal::TableFull);
        }
        let side = compiled.side(inside.family);
        let count = side.outside.len();
        if count == 0 {
            return Err(Refusal::NoAddress);
        }
        let (addresses, ranges): (Vec<u32>, Vec<PortRange>) = if compiled.block.is_some() {
            let (own, block) = compiled.owned(inside.address, inside.family).ok_or(Refusal::NoAddress)?;
            (side.outside.get(own).copied().into_iter().collect(), common(wanted.ports, &[block]))
        } else {
            let ranges = common(wanted.ports, &compiled.ports);
            match host {
                Some(host) => (vec![self.hosts.get(host).outside], ranges),
                None => {
                    let first = preferred(&self.pairing, &inside, count, tally);
                    let all = side.outside[first..].iter().chain(&side.outside[..first]);
                    (all.copied().collect(), ranges)
                }
            }
        };
        let (outside, port) = addresses
            .into_iter()
            .find_map(|address| {
                Some((address, self.take_wanted(address, space, &ranges, &inside, wanted.wish)?))
            })
            .ok_or(Refusal::PortsExhausted)?;
        let host = match host {
            Some(host) => host,
            None => {
                let key = (by_place, &inside);
                // There was room a moment ago.
                self.hosts.insert(&self.hasher, key, outside, tally).ok_or(Refusal::TableFull)?
            }
        };
        self.hosts.get_mut(host).held[space as usize] += 1;
        Ok(self.insert(host, (&inside, hash), port, tally))
    }

    /// Takes a port of an outside address.
    fn take_wanted(
        &mut self,
        address: u32,
        space: PortSpace,
        ranges: &[PortRange],
        inside: &Endpoint,
        wish: PortWish,
    ) -> Option<u16> {
        let Mappings { ports, random, .. } = self;
        let share = ports.share();
        let tally = &mut NoTally;
        let mut take = |ranges: &[PortRange], port| {
            let wanted = Wanted { ranges, wish: Wish::Port(port), share };
            ports.take(address, space, wanted, random, tally)
        };
        let one = |port| common(ranges, &[PortRange { first: port, last: port }]);
        match wish {
            PortWish::Only(port) => take(&one(port), port),
            PortWish::Suggested(port) => take(&one(port), port).or_else(|| take(ranges, port)),
            PortWish::Any => take(ranges, inside.port),
        }
    }
}
