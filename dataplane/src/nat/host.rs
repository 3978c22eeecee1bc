//! Inside hosts that hold mappings: the outside address that each keeps to, and the number of its ports. Pools are known
//! here by their place in [`Mappings`](super::Mappings).

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};
use tally::{Region, Tally};
use wire::Family;

use super::block::NO_BLOCK;
use super::index::Index;
use super::{Endpoint, PoolId, PortSpace};
use crate::flow::Key;
use crate::flow::hash::Hasher;
use crate::tables::VrfNumber;

/// Place of the next free entry, of an entry that has its distance.
pub(super) fn after(place: u32, distance: u32) -> u32 {
    place.wrapping_add(1).wrapping_add(distance)
}

/// Distance of the next free entry from the one behind a place. In zeroed memory the next free entry is the one behind; the last one leads
/// behind the end of the table, which is full then.
pub(super) fn distance(place: u32, next: u32) -> u32 {
    next.wrapping_sub(place.wrapping_add(1))
}

/// An inside address in one pool.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Host {
    /// High and low half.
    address: [u64; 2],
    /// Place of the outside address in the list; of a free entry, [the distance](after) of the next free one.
    pub(super) outside: u32,
    /// Mappings of each port space. 16 bits do, as a host keeps to one outside address, with 65535 ports.
    pub(super) held: [u16; PortSpace::COUNT],
    pool: u16,
    /// 4 or 6; 0 in a free entry. With [`LEFT`], the outside address is no longer the pool's, and no look-up finds the entry.
    family: u8,
    /// Number of its VRF.
    vrf: u8,
    /// The first of its blocks on demand, by number, or [`NO_BLOCK`].
    pub(super) blocks: u16,
}

/// Bit of [`Host::family`].
const LEFT: u8 = 0x80;

const _: () = assert!(size_of::<Host>() == 32);

impl Host {
    pub(super) fn address(&self) -> u128 {
        u128::from(self.address[0]) << 64 | u128::from(self.address[1])
    }

    pub(super) fn family(&self) -> Family {
        if self.family & !LEFT == Family::V6 as u8 { Family::V6 } else { Family::V4 }
    }

    pub(super) fn pool(&self) -> PoolId {
        PoolId(self.pool)
    }

    pub(super) fn vrf(&self) -> VrfNumber {
        VrfNumber(self.vrf)
    }

    /// An endpoint of the host.
    pub(super) fn end(&self, port: u16, protocol: u8) -> Endpoint {
        Endpoint { address: self.address(), port, protocol, family: self.family(), vrf: self.vrf() }
    }
}

pub(super) struct Hosts {
    entries: Slab<Host>,
    index: Index,
    free: u32,
    base: usize,
}

impl Hosts {
    pub(super) fn new(count: u32, base: usize, paging: Paging) -> Result<Hosts, MemoryError> {
        // Zeroed entries are free, one behind the other.
        let entries: Slab<Host> = Slab::paged(count as usize, paging)?;
        let index = Index::new(count as usize, base + entries.bytes(), paging)?;
        Ok(Hosts { entries, index, free: 0, base })
    }

    pub(super) fn is_full(&self) -> bool {
        self.free as usize >= self.entries.len()
    }

    pub(super) fn get(&self, place: u32) -> &Host {
        &self.entries.entries()[place as usize]
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut Host {
        &mut self.entries.entries_mut()[place as usize]
    }

    pub(super) fn find<T: Tally>(
        &self,
        hasher: &Hasher,
        pool: PoolId,
        inside: &Endpoint,
        tally: &mut T,
    ) -> Option<u32> {
        let entries = self.entries.entries();
        let halves = halves(inside.address);
        self.index.find(hash(hasher, pool, inside, tally), tally, |place, tally| {
            let host = &entries[place as usize];
            // The host by place and bound, 6; its address of four words, zone and family, compared and branched upon, 40; the outside
            // address that it has, 44.
            tally.instructions(90);
            tally.read(Region::NatTable, self.at(place), size_of::<Host>() as u32);
            host.address == halves
                && host.pool == pool.0
                && host.family == inside.family as u8
                && host.vrf == inside.vrf.0
        })
    }

    /// Adds a host that is not there, if there is room.
    pub(super) fn insert<T: Tally>(
        &mut self,
        hasher: &Hasher,
        (pool, inside): (PoolId, &Endpoint),
        outside: u32,
        tally: &mut T,
    ) -> Option<u32> {
        let place = self.free;
        let host = self.entries.entries_mut().get_mut(place as usize)?;
        self.free = after(place, host.outside);
        *host = Host {
            address: halves(inside.address),
            outside,
            held: [0; PortSpace::COUNT],
            pool: pool.0,
            family: inside.family as u8,
            vrf: inside.vrf.0,
            blocks: NO_BLOCK,
        };
        // Eight words written, the head of the free list moved on.
        tally.instructions(12);
        tally.write(Region::NatTable, self.at(place), size_of::<Host>() as u32);
        self.index.insert(hash(hasher, pool, inside, tally), place, tally);
        Some(place)
    }

    /// Removes a host from look-ups; its mappings go on. Another entry may then be made for the same address.
    pub(super) fn detach(&mut self, place: u32) {
        self.get_mut(place).family |= LEFT;
    }

    pub(super) fn remove<T: Tally>(&mut self, hasher: &Hasher, place: u32, tally: &mut T) {
        let host = *self.get(place);
        let hash = hash(hasher, host.pool(), &host.end(0, 0), tally);
        self.index.remove(hash, place, tally);
        let free = Host { outside: distance(place, self.free), ..Host::zeroed() };
        *self.get_mut(place) = free;
        self.free = place;
        tally.instructions(6);
        tally.write(Region::NatTable, self.at(place), 24);
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.index.bytes()
    }

    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.index.is_blank() && self.entries.entries().iter().all(|host| host.family == 0)
    }

    fn at(&self, place: u32) -> usize {
        self.base + place as usize * size_of::<Host>()
    }
}

fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

fn hash<T: Tally>(hasher: &Hasher, pool: PoolId, inside: &Endpoint, tally: &mut T) -> u32 {
    tally.hash(20);
    (hasher.hash(&Key::v6(inside.address, inside.family as u128, 0, pool.0, inside.vrf.0)) >> 32) as u32
}
