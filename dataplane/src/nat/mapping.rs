//! The mappings: from inside endpoints to outside ones and back, each for as long as something refers to it.
//!
//! All memory is taken at the start: 40 bytes a mapping (an entry of 16, two index slots and their slack), 44 a
//! host, and 24960 for each outside address. A mapping knows its inside address by its host's entry.
//!
//! Paired pooling (RFC 4787, REQ-2): a host keeps to one outside address for as long as it holds a mapping in the pool.
//! A keyed hash of the host's address selects the outside address, the same in every pool of the same addresses. If that
//! address has no free port, a host without mappings takes the next one that has: no peer has yet seen the host by
//! another address, so nothing breaks. A host that holds mappings is refused instead.

use std::collections::HashMap;

use arrayvec::ArrayVec;
use bytemuck::{Pod, Zeroable};
use policy::model::PortChoice;
use tally::{NoTally, Region, Tally};
use wire::Family;

use super::block::{BlockChange, Blocks};
use super::host::{Hosts, after, distance};
use super::index::Index;
use super::pool::{Compiled, ConfigError, Outside, Pool, PoolConfig, PortRange, side_of};
use super::port::{BYTES_OF_ADDRESS, Chunk, Home, Ports, Random, Sharing, Wanted, Wish, next_with_free};
use super::write_behind::WriteBehind;
use super::{BlockEvent, Endpoint, Mapped, MappingId, PoolId, PortSpace, Refusal, Share};
use crate::flow::Key;
use crate::flow::hash::Hasher;
use crate::tables::VrfNumber;

mod block;
mod list;
mod pair;
mod reload;
mod restore;
mod wanted;

pub use list::{Mapping, PoolUse};
use lookup::memory::{MemoryError, Paging, Slab};
pub(crate) use reload::{PoolsPlan, RetiredPools};
pub use restore::Restore;
pub(crate) use wanted::WantedPort;

/// Numbers of entries that memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The most mappings at one time.
    pub mappings: u32,
    /// The most inside addresses with mappings at one time, counted once per pool.
    pub hosts: u32,
}

impl Capacity {
    /// Returns the capacity of so many mappings, for half as many hosts.
    pub const fn of(mappings: u32) -> Capacity {
        Capacity { mappings, hosts: mappings.div_ceil(2) }
    }
}

/// A mapping in memory.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    /// The host's place.
    host: u32,
    /// Number of references; of a free entry, [the distance](after) of the next free one.
    references: u32,
    inside: u16,
    outside: u16,
    /// 0 in a free entry: no protocol with ports has that number.
    protocol: u8,
    unused: [u8; 3],
}

const ENTRY: usize = size_of::<Entry>();
const _: () = assert!(ENTRY == 16);

/// The table of mappings of one shard.
pub struct Mappings {
    entries: Slab<Entry>,
    free: u32,
    live: u32,
    by_inside: Index,
    by_outside: WriteBehind,
    hosts: Hosts,
    ports: Ports,
    /// Ports of the gateway's own services, handed out last: bitmaps of the addresses that have services.
    services: Ports,
    /// Outside addresses, including those that no pool has any more while mappings use them; entries with neither pools
    /// nor mappings are free places.
    outside: Vec<Outside>,
    /// Place of each outside address.
    known: HashMap<(u128, Family), u32>,
    /// Free places in `outside`.
    vacant: Vec<u32>,
    /// Pools; as with addresses, those gone stay while mappings use them.
    pools: Vec<Pool>,
    /// By [`PoolId`], place of each of the present tables' pools.
    places: Vec<u16>,
    /// True if some host may keep to an address that its pool no longer has.
    any_left: bool,
    /// Blocks taken and given back since the last [`Mappings::take_block_event`].
    block_events: ArrayVec<BlockEvent, 4>,
    hasher: Hasher,
    /// Hash that selects outside addresses, with secrets of its own, because others see the results.
    pairing: Hasher,
    random: Random,
}

impl Mappings {
    /// Takes all memory that will ever be needed. The same seed makes the same choices; a live host gives a
    /// random one, and keeps it secret. Ports are handed out of `share`.
    ///
    /// # Errors
    /// All faults of the pools, or the system has not enough memory.
    pub fn new(
        capacity: Capacity,
        pools: &[PoolConfig],
        seed: [u64; 2],
        share: Share,
    ) -> Result<Mappings, Vec<ConfigError>> {
        Mappings::paged(capacity, pools, seed, share, Paging::Prefault)
    }

    /// [`Mappings::new`], with pages of memory at the moment that `paging` says.
    ///
    /// # Errors
    /// As of [`Mappings::new`].
    pub fn paged(
        capacity: Capacity,
        pools: &[PoolConfig],
        seed: [u64; 2],
        share: Share,
        paging: Paging,
    ) -> Result<Mappings, Vec<ConfigError>> {
        let compiled = Compiled::of(pools, share)?;
        Mappings::take(capacity, compiled, seed, share, paging)
            .map_err(|error| vec![ConfigError::Memory(error)])
    }

    fn take(
        capacity: Capacity,
        compiled: Compiled,
        seed: [u64; 2],
        share: Share,
        paging: Paging,
    ) -> Result<Mappings, MemoryError> {
        // An index slot holds a place plus one.
        let count = capacity.mappings.clamp(1, u32::MAX - 1);
        // Zeroed entries are free, one behind the other.
        let entries: Slab<Entry> = Slab::paged(count as usize, paging)?;
        // The region's layout: entries, both indexes, hosts with theirs, bitmaps.
        let mut base = entries.bytes();
        let by_inside = Index::new(count as usize, base, paging)?;
        base += by_inside.bytes();
        let by_outside = WriteBehind::new(count as usize, base, paging)?;
        base += by_outside.bytes();
        let hosts = Hosts::new(capacity.hosts.clamp(1, u32::MAX - 1), base, paging)?;
        base += hosts.bytes();
        let Compiled { pools, mut outside } = compiled;
        let mut chunk = Chunk::new(outside.len(), share)?;
        for (place, address) in outside.iter().enumerate() {
            reserve(&mut chunk, place, address, share);
        }
        let mut ports = Ports::new(share, base);
        let home = ports.add(chunk);
        for address in 0..outside.len() as u32 {
            ports.settle(address, home, address);
        }
        let (chunk, places) = lent(&outside, share)?;
        let mut services = Ports::new(share, base + ports.bytes());
        let home = services.add(chunk);
        for (address, place) in (0..).zip(&places) {
            if let Some(place) = place {
                services.settle(address, home, *place);
            }
        }
        drop(services.unused());
        let mut base = base + ports.bytes() + services.bytes();
        for blocks in outside.iter_mut().filter_map(|at| at.blocks.as_mut()) {
            base = blocks.settle(base);
        }
        Ok(Mappings {
            entries,
            free: 0,
            live: 0,
            by_inside,
            by_outside,
            hosts,
            ports,
            services,
            known: outside.iter().zip(0..).map(|(at, place)| ((at.address, at.family), place)).collect(),
            outside,
            vacant: Vec::new(),
            places: (0..pools.len() as u16).collect(),
            pools,
            any_left: false,
            block_events: ArrayVec::new(),
            hasher: Hasher::new(seed),
            pairing: Hasher::new([!seed[0], seed[1]]),
            random: Random::new(seed),
        })
    }

    /// Asks for the memory in which [`Mappings::map`] will look for this inside endpoint.
    #[inline]
    pub fn prefetch(&self, inside: &Endpoint) {
        self.by_inside.prefetch(self.hash_inside(inside, &mut NoTally));
    }

    /// The mapping of an inside endpoint, made if there is none yet; takes a reference to it.
    ///
    /// # Errors
    /// The mapping cannot be made; the refusal is counted.
    pub fn map<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        tally: &mut T,
    ) -> Result<Mapped, Refusal> {
        let Some(place) = self.places.get(usize::from(pool.0)).copied() else { return Err(Refusal::NoPool) };
        let mapped = self.find_or_create(PoolId(place), inside, Find::Known, tally);
        self.count(place, mapped)
    }

    /// Makes one more mapping of an inside endpoint that may have some, with another outside port, for a flow whose
    /// outside ends are those of another flow. Takes a reference to it.
    ///
    /// # Errors
    /// The mapping cannot be made; the refusal is counted.
    pub fn map_another<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        tally: &mut T,
    ) -> Result<Mapped, Refusal> {
        let Some(place) = self.places.get(usize::from(pool.0)).copied() else { return Err(Refusal::NoPool) };
        let mapped = self.find_or_create(PoolId(place), inside, Find::Nothing, tally);
        self.count(place, mapped)
    }

    /// Counts a refusal by the pool in a place.
    fn count(&mut self, place: u16, mapped: Result<Mapped, Refusal>) -> Result<Mapped, Refusal> {
        let counters = &mut self.pools[usize::from(place)].counters;
        match mapped {
            Ok(_) => {}
            Err(Refusal::PortsExhausted) => counters.ports_exhausted += 1,
            Err(Refusal::QuotaReached) => counters.quota_reached += 1,
            Err(Refusal::TableFull) => counters.table_full += 1,
            Err(Refusal::NoAddress) => counters.no_address += 1,
            Err(Refusal::NoPorts) => counters.no_ports += 1,
            Err(Refusal::NoPool) => {}
        }
        mapped
    }

    /// `pool` is the pool's place.
    fn find_or_create<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        find: Find,
        tally: &mut T,
    ) -> Result<Mapped, Refusal> {
        let space = PortSpace::of(inside.protocol).ok_or(Refusal::NoPorts)?;
        if !self.pools[usize::from(pool.0)].hosts.have(inside.family) {
            return Err(Refusal::NoAddress);
        }
        let mut host = self.hosts.find(&self.hasher, pool, &inside, tally);
        if self.any_left {
            host = host.filter(|host| self.stays(*host, pool));
        }
        let known = host.filter(|_| find == Find::Known);
        let hash = self.hash_inside(&inside, tally);
        if let Some(place) = known.and_then(|host| self.find_inside(host, inside, hash, tally)) {
            return Ok(self.hold(place, tally));
        }
        let held = host.map_or(0, |host| self.hosts.get(host).held[space as usize]);
        let share = self.ports.share();
        if u32::from(held) >= share.of_bound(self.pools[usize::from(pool.0)].quota) {
            return Err(Refusal::QuotaReached);
        }
        if self.is_full_for(host) {
            return Err(Refusal::TableFull);
        }
        let (outside, port) = match host.and_then(|host| self.take_of_own(host, &inside, space, tally)) {
            Some(port) => port?,
            None => {
                let keeps_to = host.map(|host| self.hosts.get(host).outside);
                self.take_port(pool, &inside, space, keeps_to, tally)?
            }
        };
        let host = match host {
            Some(host) => host,
            None => {
                let key = (pool, &inside);
                let host = self.hosts.insert(&self.hasher, key, outside, tally);
                // There was room a moment ago.
                host.ok_or(Refusal::TableFull)?
            }
        };
        self.hosts.get_mut(host).held[space as usize] += 1;
        if let Some(block) = self.enter_block(host, port, tally) {
            self.note_block(BlockChange::Allocated, block);
        }
        Ok(self.insert(host, (&inside, hash), port, tally))
    }

    /// True if a host may keep to its outside address; else the host stays with its present mappings only, and makes
    /// room for another entry.
    #[cold]
    fn stays(&mut self, host: u32, pool: PoolId) -> bool {
        let stays = self.outside[self.hosts.get(host).outside as usize].is_of(pool.0);
        if !stays {
            self.hosts.detach(host);
        }
        stays
    }

    /// Takes a free port of the address that the host keeps to, or is going to keep to.
    fn take_port<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: &Endpoint,
        space: PortSpace,
        keeps_to: Option<u32>,
        tally: &mut T,
    ) -> Result<(u32, u16), Refusal> {
        // The marks of full addresses lie behind all else in the region.
        let marks = if tally.is_kept() { self.memory_bytes() } else { 0 };
        let Mappings { ports, services, random, pools, outside: addresses, pairing, .. } = self;
        let share = ports.share();
        let mut take = |outside, ranges: &[PortRange], choice, tally: &mut T| {
            let wanted = Wanted { ranges, wish: wish(choice, inside), share };
            if let Some(address) = addresses.get(outside as usize).filter(|at| at.blocks.is_some()) {
                return block::take_of_new(ports, (outside, address), space, wanted, random, tally);
            }
            let own = ports.take(outside, space, wanted, random, tally);
            let last = Wanted { ranges, wish: Wish::Any, share };
            own.or_else(|| services.take(outside, space, last, random, tally))
        };
        let (number, pool) = (pool.0, &mut pools[usize::from(pool.0)]);
        if pool.block.is_some() {
            let (place, range) = pool.owned(inside.address, inside.family).ok_or(Refusal::NoAddress)?;
            // Search of the range, division, remainder (30 each), three adds.
            tally.instructions(80);
            let outside = *pool.side(inside.family).outside.get(place).ok_or(Refusal::NoAddress)?;
            let port = take(outside, &[range], pool.choice, tally);
            return port.map(|port| (outside, port)).ok_or(Refusal::PortsExhausted);
        }
        let Pool { ports: ranges, choice, sides, hosts, .. } = pool;
        let side = &mut sides[side_of(hosts.outside(inside.family))];
        let count = side.outside.len();
        let (mut from, last) = match keeps_to {
            // The only address that will do.
            Some(outside) => {
                let users = &addresses[outside as usize].users;
                let user = users.iter().find(|(user, _)| *user == number);
                user.map(|(_, place)| (usize::from(*place), usize::from(*place))).ok_or(Refusal::NoAddress)?
            }
            None if count == 0 => return Err(Refusal::NoAddress),
            None => (preferred(pairing, inside, count, tally), count - 1),
        };
        let mut to_wrap = if keeps_to.is_none() { from } else { 0 };
        let mut last = last;
        loop {
            let full = &mut side.full[space as usize];
            // What is found full is marked so until a port of it comes back: each address is searched in vain
            // but once, and a pool that is exhausted refuses at the cost of a look at the marks.
            let Some(place) = next_with_free(full, from, last, marks, tally) else {
                if to_wrap == 0 {
                    return Err(Refusal::PortsExhausted);
                }
                (from, last, to_wrap) = (0, to_wrap - 1, 0);
                continue;
            };
            let outside = side.outside[place];
            if let Some(port) = take(outside, ranges, *choice, tally) {
                return Ok((outside, port));
            }
            full[place / 64] |= 1 << (place % 64);
            from = place;
        }
    }

    fn insert<T: Tally>(
        &mut self,
        host: u32,
        (inside, hash_inside): (&Endpoint, u32),
        port: u16,
        tally: &mut T,
    ) -> Mapped {
        let place = self.free;
        let at = *self.hosts.get(host);
        let outside = Endpoint {
            address: self.outside[at.outside as usize].address,
            port,
            protocol: inside.protocol,
            family: self.outside[at.outside as usize].family,
            vrf: VrfNumber::DEFAULT,
        };
        let hash_outside = self.hash_outside(&outside, tally);
        let entry = &mut self.entries.entries_mut()[place as usize];
        self.free = after(place, entry.references);
        *entry = Entry {
            host,
            references: 1,
            inside: inside.port,
            outside: port,
            protocol: inside.protocol,
            unused: [0; 3],
        };
        self.live += 1;
        self.outside[at.outside as usize].held += 1;
        // The pool by place and bound, 6, and its rules: the host's addresses so far, pairing, share of ports, 80; a free place, 8; four words
        // put together, 30; the outside address by place and bound, 10; counters, of 64 bits one, 16.
        tally.instructions(150);
        tally.write(Region::NatTable, place as usize * ENTRY, ENTRY as u32);
        let pool = &mut self.pools[usize::from(at.pool().0)];
        pool.counters.created += 1;
        if let Some(space) = PortSpace::of(inside.protocol) {
            pool.held[space as usize] += 1;
        }
        self.by_inside.insert(hash_inside, place, tally);
        self.by_outside.insert(hash_outside, place, tally);
        Mapped { id: MappingId(place), outside }
    }

    /// True if another mapping can be entered, of whatever host.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full_for(None)
    }

    /// True if no mapping can be entered of a host, or of one that has none yet.
    #[inline(always)]
    fn is_full_for(&self, host: Option<u32>) -> bool {
        self.free >= self.capacity() || (host.is_none() && self.hosts.is_full())
    }

    /// Takes a reference to a mapping that exists; `None` if there is none in that place.
    pub fn retain<T: Tally>(&mut self, id: MappingId, tally: &mut T) -> Option<Mapped> {
        self.entry(id)?;
        Some(self.hold(id.0, tally))
    }

    fn hold<T: Tally>(&mut self, place: u32, tally: &mut T) -> Mapped {
        let entry = &mut self.entries.entries_mut()[place as usize];
        // Flows are far fewer than 2^32, so that this never saturates.
        entry.references = entry.references.saturating_add(1);
        tally.instructions(3);
        tally.atomic(Region::NatTable, place as usize * ENTRY + 4, 4);
        Mapped { id: MappingId(place), outside: self.outside_end(place) }
    }

    /// Gives a reference back. With the last one the mapping ends, and its port is free again. A mapping that
    /// does not exist is left alone.
    pub fn release<T: Tally>(&mut self, id: MappingId, tally: &mut T) {
        debug_assert!(self.entry(id).is_some(), "mapping {} does not exist", id.0);
        let Some(entry) = self.entry(id) else { return };
        tally.instructions(4);
        tally.atomic(Region::NatTable, id.0 as usize * ENTRY + 4, 4);
        if entry.references > 1 {
            self.entries.entries_mut()[id.0 as usize].references -= 1;
            return;
        }
        let outside = self.outside_end(id.0);
        let hash = self.hash_inside(&self.inside_end(id.0), tally);
        self.by_inside.remove(hash, id.0, tally);
        let hash = self.hash_outside(&outside, tally);
        self.by_outside.remove(hash, id.0, tally);
        self.entries.entries_mut()[id.0 as usize] =
            Entry { references: distance(id.0, self.free), ..Entry::zeroed() };
        self.free = id.0;
        self.live -= 1;
        tally.instructions(10);
        tally.write(Region::NatTable, id.0 as usize * ENTRY, 8);
        self.leave(entry.host, &outside, tally);
    }

    /// Counts off a port of a host.
    fn leave<T: Tally>(&mut self, place: u32, outside: &Endpoint, tally: &mut T) {
        let Some(space) = PortSpace::of(outside.protocol) else { return };
        let freed = self.leave_block(place, outside.port, tally);
        let host = self.hosts.get_mut(place);
        host.held[space as usize] -= 1;
        let (address, pool, is_last) = (host.outside, host.pool(), host.held == [0; PortSpace::COUNT]);
        tally.instructions(8);
        if is_last {
            self.hosts.remove(&self.hasher, place, tally);
        }
        let pool = &mut self.pools[usize::from(pool.0)];
        pool.counters.ended += 1;
        pool.held[space as usize] -= 1;
        self.outside[address as usize].held -= 1;
        let address = self.present(address);
        let is_open = self.is_open(address, outside.port);
        let at = &self.outside[address as usize];
        let is_of_block = at.blocks.is_some();
        if at.serves(space, outside.port) {
            self.services.give_back(address, space, outside.port, tally);
        } else if at.reserves(space, outside.port) {
            // It was set aside while it was in use.
            if !is_of_block {
                return;
            }
        } else if is_open {
            self.ports.give_back(address, space, outside.port, tally);
        }
        if is_of_block {
            self.offer_block(address, freed, outside.port);
            return;
        }
        for (user, place) in &at.users {
            let user = &mut self.pools[usize::from(*user)];
            // Range compared (4), bit cleared (5).
            tally.instructions(9);
            if user.ports.iter().any(|range| range.has(outside.port)) {
                let full = &mut user.side_mut(outside.family).full[space as usize];
                full[usize::from(*place) / 64] &= !(1 << (place % 64));
            }
        }
    }

    /// The inside endpoint behind an outside one: for new flows from outside, and from inside by the outside
    /// address (hairpin). Takes no reference.
    pub fn inside_of<T: Tally>(&self, outside: &Endpoint, tally: &mut T) -> Option<(MappingId, Endpoint)> {
        let place = self.by_outside.find(self.hash_outside(outside, tally), tally, |place, tally| {
            let entry = &self.entries.entries()[place as usize];
            // Entry, host and outside address: nine words compared and branched upon, five loads of addresses.
            tally.instructions(23);
            tally.read(Region::NatTable, place as usize * ENTRY, ENTRY as u32);
            entry.outside == outside.port
                && entry.protocol == outside.protocol
                && self.outside_end(place) == *outside
        })?;
        Some((MappingId(place), self.inside_end(place)))
    }

    /// True if the outside port of a mapping is of a service of the gateway itself, which receives packets of no flow.
    pub fn is_service(&self, id: MappingId) -> bool {
        let end = self.outside_end(id.0);
        let host = self.entry(id).map(|entry| *self.hosts.get(entry.host));
        host.zip(PortSpace::of(end.protocol))
            .is_some_and(|(host, space)| self.outside[host.outside as usize].serves(space, end.port))
    }

    /// Returns the outside address for a protocol without ports: the one that the host keeps to, or would get. Port and
    /// protocol stay. No state is kept, so that two hosts may share the address: the other end's address must tell their
    /// flows apart.
    ///
    /// # Errors
    /// The pool has no address for this host; the refusal is counted.
    pub fn map_address<T: Tally>(
        &mut self,
        pool: PoolId,
        inside: Endpoint,
        tally: &mut T,
    ) -> Result<Endpoint, Refusal> {
        let place = PoolId(*self.places.get(usize::from(pool.0)).ok_or(Refusal::NoPool)?);
        let compiled = self.pools.get_mut(usize::from(place.0)).ok_or(Refusal::NoPool)?;
        let keeps = |host: &u32| {
            let outside = self.hosts.get(*host).outside;
            !self.any_left || self.outside[outside as usize].is_of(place.0)
        };
        let side = compiled.side(inside.family);
        let outside = if compiled.block.is_some() {
            let owned = compiled.owned(inside.address, inside.family);
            owned.and_then(|(place, _)| side.outside.get(place).copied())
        } else if let Some(host) = self.hosts.find(&self.hasher, place, &inside, tally).filter(keeps) {
            Some(self.hosts.get(host).outside)
        } else if side.outside.is_empty() {
            None
        } else {
            Some(side.outside[preferred(&self.pairing, &inside, side.outside.len(), tally)])
        };
        match outside {
            Some(outside) => {
                let address = self.outside[outside as usize].address;
                Ok(Endpoint { address, vrf: VrfNumber::DEFAULT, ..inside })
            }
            None => {
                compiled.counters.no_address += 1;
                Err(Refusal::NoAddress)
            }
        }
    }

    /// Number of mappings that exist.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// True if there is no mapping.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Highest number of mappings.
    pub fn capacity(&self) -> u32 {
        self.entries.entries().len() as u32
    }

    /// Bytes of tables, indexes and bitmaps.
    pub fn memory_bytes(&self) -> usize {
        self.entries.bytes()
            + self.by_inside.bytes()
            + self.by_outside.bytes()
            + self.hosts.bytes()
            + self.ports.bytes()
            + self.services.bytes()
            + self.outside.iter().filter_map(|at| at.blocks.as_ref()).map(Blocks::bytes).sum::<usize>()
    }

    /// Bytes of the bitmaps of one outside address.
    pub const fn bytes_of_address() -> usize {
        BYTES_OF_ADDRESS
    }

    #[inline]
    fn entry(&self, id: MappingId) -> Option<Entry> {
        self.entries.entries().get(id.0 as usize).copied().filter(|entry| entry.protocol != 0)
    }

    fn find_inside<T: Tally>(&self, host: u32, inside: Endpoint, hash: u32, tally: &mut T) -> Option<u32> {
        self.by_inside.find(hash, tally, |place, tally| {
            let entry = &self.entries.entries()[place as usize];
            // Three fields compared and branched upon.
            tally.instructions(6);
            tally.read(Region::NatTable, place as usize * ENTRY, ENTRY as u32);
            entry.host == host && entry.inside == inside.port && entry.protocol == inside.protocol
        })
    }

    fn inside_end(&self, place: u32) -> Endpoint {
        let entry = &self.entries.entries()[place as usize];
        self.hosts.get(entry.host).end(entry.inside, entry.protocol)
    }

    fn outside_end(&self, place: u32) -> Endpoint {
        let entry = &self.entries.entries()[place as usize];
        let outside = &self.outside[self.hosts.get(entry.host).outside as usize];
        Endpoint {
            address: outside.address,
            port: entry.outside,
            protocol: entry.protocol,
            family: outside.family,
            vrf: VrfNumber::DEFAULT,
        }
    }

    /// Hash of an inside endpoint without the pool: a host's mappings in two pools have one hash.
    fn hash_inside<T: Tally>(&self, inside: &Endpoint, tally: &mut T) -> u32 {
        let key = if inside.family == Family::V4 {
            tally.hash(7);
            Key::v4(inside.address as u32, 0, inside.port, 0, inside.protocol)
        } else {
            tally.hash(19);
            Key::v6(inside.address, 0, inside.port, 0, inside.protocol)
        };
        (self.hasher.hash(&key) >> 32) as u32
    }

    fn hash_outside<T: Tally>(&self, outside: &Endpoint, tally: &mut T) -> u32 {
        tally.hash(20);
        let key = Key::v6(outside.address, outside.family as u128, outside.port, 0, outside.protocol);
        (self.hasher.hash(&key) >> 32) as u32
    }

    /// True if there is no trace of any mapping.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        let blocks = self.outside.iter().filter_map(|at| at.blocks.as_ref());
        let mut pools = self.pools.iter();
        self.by_inside.is_blank()
            && self.by_outside.is_blank()
            && self.hosts.is_blank()
            && self.live == 0
            && blocks.into_iter().all(Blocks::is_blank)
            && pools.all(|pool| pool.blocks == 0)
    }
}

/// Choice among the mappings of an inside endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Find {
    /// An existing mapping.
    Known,
    /// A new mapping only.
    Nothing,
}

/// Preference for an outside port of an inside endpoint.
fn wish(choice: PortChoice, inside: &Endpoint) -> Wish {
    if choice == PortChoice::Random { Wish::Any } else { Wish::Port(inside.port) }
}

/// Returns bitmaps of the ports that are handed out last, and the place of each address among them.
fn lent(outside: &[Outside], share: Share) -> Result<(Chunk, Vec<Option<u32>>), MemoryError> {
    let mut count = 0;
    let places: Vec<Option<u32>> = outside
        .iter()
        .map(|at| {
            at.has_services().then(|| {
                count += 1;
                count - 1
            })
        })
        .collect();
    let mut chunk = Chunk::full(count as usize)?;
    for (at, place) in outside.iter().zip(&places) {
        let Some(place) = place else { continue };
        for space in PortSpace::ALL {
            for ports in &at.services[space as usize] {
                chunk.offer(*place as usize, space, *ports, share);
            }
        }
    }
    Ok((chunk, places))
}

/// Sets aside the ports of an address, whose bitmaps are at that place of a chunk.
fn reserve(chunk: &mut Chunk, place: usize, address: &Outside, share: Share) {
    if address.sharing() == Sharing::Blocks {
        chunk.open(place, share);
    }
    for space in PortSpace::ALL {
        for ports in &address.reserved[space as usize] {
            chunk.reserve(place, space, *ports);
        }
    }
}

/// The place among `count` outside addresses that a host takes if it can.
fn preferred<T: Tally>(pairing: &Hasher, inside: &Endpoint, count: usize, tally: &mut T) -> usize {
    tally.hash(17);
    tally.instructions(2);
    let hash = pairing.hash(&Key::v6(inside.address, inside.family as u128, 0, 0, 0)) >> 32;
    ((hash * count as u64) >> 32) as usize
}
