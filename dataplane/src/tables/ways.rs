//! Routers of routes, and the flows' shares of those of one route (equal-cost multipath, ECMP).
//!
//! Flows are spread over slots, which belong to routers by `rendezvous.rs`: a router that goes moves its own flows and no other's
//! (RFC 2992 counts what a division of the hash moves), and one that comes back gets the same flows again. Linux's resilient next-hop groups
//! keep a table for that; here it follows from the routers' names and weights.

use tally::{Region, Tally};

use super::rendezvous::{self, Member};

/// Slots of a route with several routers: 8 KiB. The share of one of four is 3 % off what its weight says, at a standard deviation.
const SLOTS: usize = 2048;

/// Routers of all targets, by their places in [`Tables::gateways`](super::Tables::gateways), run by run. A run has the routers of one
/// target, each once; those of several are followed by the owners of their slots.
#[derive(Clone, Debug, Default)]
pub struct Ways(Vec<u32>);

/// Share of a router in a target's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    /// The router's place in [`Tables::gateways`](super::Tables::gateways).
    pub(crate) router: u32,
    /// Its weight.
    pub(crate) weight: u32,
}

impl Ways {
    /// Appends the run of a target with these routers, which differ, and returns where it begins. Slots follow from the routers' names.
    pub(crate) fn add(&mut self, routers: &[Share], name: impl Fn(u32) -> String) -> u32 {
        let first = self.0.len() as u32;
        self.0.extend(routers.iter().map(|share| share.router));
        if routers.len() > 1 {
            let member = |share: &Share| Member {
                place: share.router,
                name: rendezvous::hash_of(&name(share.router)),
                weight: share.weight,
            };
            let members: Vec<Member<u32>> = routers.iter().map(member).collect();
            self.0.extend(rendezvous::owners(&members, SLOTS));
        }
        first
    }

    /// The routers of a target with `count` of them, whose run begins at `first`.
    pub(crate) fn of(&self, first: u32, count: u32) -> &[u32] {
        self.0.get(first as usize..first as usize + count as usize).unwrap_or_default()
    }

    /// The router of a flow with that hash.
    #[inline(always)]
    pub(super) fn choose<T: Tally>(&self, first: u32, count: u32, hash: u32, tally: &mut T) -> Option<u32> {
        if count == 1 {
            return self.0.get(first as usize).copied();
        }
        let slot = first as usize + count as usize + rendezvous::slot_of(hash, SLOTS);
        // The slot by a multiplication, place and bound, 8.
        tally.instructions(8);
        tally.read(Region::RouteTable, slot * 4, 4);
        self.0.get(slot).copied()
    }

    /// Bytes in the memory of a network processor.
    pub(crate) fn region_bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

#[cfg(test)]
mod tests;
