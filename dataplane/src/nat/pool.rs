//! Pools of outside addresses: configuration, validation and compilation; and deterministic NAT (RFC 7422), in which an
//! inside address owns a block of ports by arithmetic.
//!
//! The inside addresses of a deterministic pool are numbered in the order of its ranges, outside addresses in the
//! order of theirs, each family by itself. With b blocks in the range of ports, inside address i owns block
//! i mod b of outside address i div b (RFC 7422, section 2.2, sequential). Of several ranges of ports each has blocks of its
//! own, one range after the other. Ports past the last whole block of a range are not handed out.
//!
//! Blocks on demand are in `block.rs`.

use std::collections::HashMap;
use std::net::IpAddr;

use lookup::memory::MemoryError;
use policy::model::PortChoice;
use wire::Family;

use super::block::{Blocks, LEAST_BLOCK};
use super::port::Sharing;
use super::{PoolId, PortSpace, Share, bits_of};

/// The most outside addresses of a pool. Each one takes 24960 bytes of bitmaps, so that this many take 102 MB.
pub const MAX_ADDRESSES: u32 = 4096;

/// Ports from the first to the last; identifiers, for ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// Lowest.
    pub first: u16,
    /// Highest, included.
    pub last: u16,
}

/// Addresses from the first to the last, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// Lowest.
    pub first: IpAddr,
    /// Highest, included.
    pub last: IpAddr,
}

impl PortRange {
    /// True if the range has a port.
    #[inline]
    pub const fn has(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// Returns the intersection with another range.
    pub(super) fn within(self, other: PortRange) -> Option<PortRange> {
        let both = PortRange { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }

    /// True if another range has all its ports.
    pub(super) const fn is_within(self, other: PortRange) -> bool {
        other.first <= self.first && self.last <= other.last
    }

    const fn len(self) -> u32 {
        self.last as u32 - self.first as u32 + 1
    }
}

impl AddressRange {
    /// One address.
    pub const fn one(address: IpAddr) -> AddressRange {
        AddressRange { first: address, last: address }
    }
}

/// Addresses and ports of a source translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Outside addresses; each inside host uses those of its own family. Pools may share addresses.
    pub addresses: Vec<AddressRange>,
    /// Ports handed out: disjoint, ascending. Port 0 never is.
    pub ports: Vec<PortRange>,
    /// Choice among the free ports for an inside endpoint.
    pub choice: PortChoice,
    /// The most ports that one inside address may hold at one time, for each protocol.
    pub quota: Option<u32>,
    /// Deterministic NAT.
    pub block: Option<Block>,
    /// Blocks on demand, of all ports of its addresses, whichever pool hands them out. Of several pools with an address the first
    /// one's size counts.
    pub on_demand: Option<OnDemand>,
    /// Inside hosts.
    pub hosts: Hosts,
    /// Ports in other use on the outside addresses: port forwards, one-to-one translations, the gateway's own services.
    /// They are reserved in every pool that shares the address.
    pub reserved: Vec<Reserved>,
}

impl PoolConfig {
    /// True if the pool may hand out a port.
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.iter().any(|range| range.has(port))
    }

    /// True if the pool has an outside address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.first <= address && address <= range.last)
    }
}

/// Blocks of ports that hosts take when they need them, and have for as long as they have mappings there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Ports of a block, [`LEAST_BLOCK`](super::LEAST_BLOCK) at least. A block begins at a multiple of its size.
    pub ports: u16,
    /// The most blocks of one host.
    pub most: u16,
}

/// Inside hosts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Each uses outside addresses of its own family.
    #[default]
    OfSameFamily,
    /// They have IPv6, the outside addresses are IPv4 (NAT64).
    V6ToV4,
    /// They have IPv4, the outside addresses are IPv6 (CLAT).
    V4ToV6,
}

impl Hosts {
    /// Family of the outside addresses of a host.
    pub(super) fn outside(self, inside: Family) -> Family {
        match self {
            Hosts::OfSameFamily => inside,
            Hosts::V6ToV4 => Family::V4,
            Hosts::V4ToV6 => Family::V6,
        }
    }

    /// True if the pool is for hosts of this family.
    pub(super) fn have(self, family: Family) -> bool {
        match self {
            Hosts::OfSameFamily => family != Family::Other,
            Hosts::V6ToV4 => family == Family::V6,
            Hosts::V4ToV6 => family == Family::V4,
        }
    }
}

/// Blocks of ports, each owned by an inside address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Ports of a block.
    pub ports: u16,
    /// Inside addresses that own a block each.
    pub inside: Vec<AddressRange>,
}

/// Firmness of a reservation of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The ports are never handed out.
    Always,
    /// The ports are handed out last: services of the gateway itself, which receive packets of no flow.
    WhileOthersAreFree,
}

/// Reserved ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Transport protocol, as in the IP header; every protocol if absent.
    pub protocol: Option<u8>,
    /// Outside address.
    pub address: IpAddr,
    /// Ports.
    pub ports: PortRange,
    /// Firmness of the reservation.
    pub hold: Hold,
}

/// Reason for refusing to make [`Mappings`](super::Mappings).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A pool is wrong.
    #[error("pool {}: {problem}", .pool.0)]
    Pool {
        /// The pool at fault.
        pool: PoolId,
        /// Fault in the pool.
        #[source]
        problem: PoolProblem,
    },
    /// More pools than 65535.
    #[error("more than 65535 pools")]
    TooManyPools,
    /// The system did not give the memory.
    #[error(transparent)]
    Memory(MemoryError),
}

/// Fault in the configuration of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolProblem {
    /// The pool has no outside address.
    #[error("the pool has no outside address")]
    NoAddress,
    /// More than [`MAX_ADDRESSES`] outside addresses.
    #[error("the pool has {count} outside addresses, more than {MAX_ADDRESSES}")]
    TooManyAddresses {
        /// Number of outside addresses.
        count: u128,
    },
    /// A range whose first address is above its last, or of the other family.
    #[error("{} to {} is no range of addresses", .0.first, .0.last)]
    BadRange(AddressRange),
    /// The outside address is in the pool twice.
    #[error("{0} is in the pool twice")]
    Twice(IpAddr),
    /// The first port is above the last, or the only port is 0.
    #[error("{} to {} is no range of ports", .0.first, .0.last)]
    BadPorts(PortRange),
    /// Blocks of no port, or larger than the range of ports.
    #[error("no block of {ports} ports is within a range of ports")]
    BadBlock {
        /// Ports of a block.
        ports: u16,
    },
    /// More inside addresses than there are blocks.
    #[error("{inside} inside addresses, but only {blocks} blocks of ports")]
    TooFewBlocks {
        /// Inside addresses of one family.
        inside: u128,
        /// Blocks on outside addresses of that family.
        blocks: u64,
    },
    /// An inside range overlaps another one: an address would own two blocks.
    #[error("{} to {} overlaps another inside range", .0.first, .0.last)]
    InsideOverlap(AddressRange),
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Mappings made.
    pub created: u64,
    /// Mappings ended.
    pub ended: u64,
    /// [`Refusal::PortsExhausted`](super::Refusal).
    pub ports_exhausted: u64,
    /// [`Refusal::QuotaReached`](super::Refusal).
    pub quota_reached: u64,
    /// [`Refusal::TableFull`](super::Refusal).
    pub table_full: u64,
    /// [`Refusal::NoAddress`](super::Refusal).
    pub no_address: u64,
    /// [`Refusal::NoPorts`](super::Refusal).
    pub no_ports: u64,
}

impl PoolCounters {
    /// Mappings that exist.
    pub fn live(&self) -> u64 {
        self.created - self.ended
    }
}

/// Addresses as numbers, of one family, with their place among the pool's inside addresses.
#[derive(Clone, Copy)]
struct Span {
    first: u128,
    last: u128,
    /// Number of the first one.
    number: u64,
}

/// A pool's addresses of one family.
#[derive(Default)]
pub(super) struct Side {
    /// Places in the list of outside addresses.
    pub(super) outside: Vec<u32>,
    /// Inside addresses that own blocks, in ascending order of addresses.
    inside: Vec<Span>,
    /// Outside addresses that were found to have no free port in the pool's range, a bit each.
    pub(super) full: [Vec<u64>; PortSpace::COUNT],
}

/// A pool, ready for use.
pub(super) struct Pool {
    /// Place in the tables' list, by which callers know the pool; `None` if the present tables no longer have it.
    pub(super) id: Option<PoolId>,
    /// Mappings by port space.
    pub(super) held: [u32; PortSpace::COUNT],
    pub(super) ports: Vec<PortRange>,
    pub(super) choice: PortChoice,
    pub(super) quota: u32,
    pub(super) hosts: Hosts,
    /// Ports of a block, and blocks of an outside address.
    pub(super) block: Option<(u16, u32)>,
    /// The most blocks of a host, where they are on demand.
    pub(super) most_blocks: u16,
    /// Blocks on demand that hosts have.
    pub(super) blocks: u32,
    pub(super) sides: [Side; 2],
    pub(super) counters: PoolCounters,
}

/// An outside address, and the pools that hand out its ports.
pub(super) struct Outside {
    pub(super) address: u128,
    pub(super) family: Family,
    /// Pools, each with the address's place among the pool's addresses of its family.
    pub(super) users: Vec<(u16, u16)>,
    /// Reserved ports, by port space: disjoint, ascending.
    pub(super) reserved: [Vec<PortRange>; PortSpace::COUNT],
    /// Reserved ports that are handed out last.
    pub(super) services: [Vec<PortRange>; PortSpace::COUNT],
    /// Blocks on demand.
    pub(super) blocks: Option<Blocks>,
    /// Number of mappings.
    pub(super) held: u32,
    /// Role of the place.
    pub(super) role: Role,
}

/// Role of a place in the list of outside addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The address is its own.
    Only,
    /// Mappings of before, when the address was divided otherwise, are in another place with the same bitmaps.
    Successor,
    /// The address is another place's by now.
    Predecessor,
    /// The place is free.
    Vacant,
}

impl Outside {
    /// True if a pool, by its place, has this address.
    pub(super) fn is_of(&self, pool: u16) -> bool {
        self.users.iter().any(|(user, _)| *user == pool)
    }

    /// True if a port is reserved.
    pub(super) fn reserves(&self, space: PortSpace, port: u16) -> bool {
        is_in(&self.reserved[space as usize], port)
    }

    /// True if a port is of a service of the gateway itself.
    pub(super) fn serves(&self, space: PortSpace, port: u16) -> bool {
        is_in(&self.services[space as usize], port)
    }

    /// Ports of a block, where they go by blocks on demand.
    pub(super) fn block_size(&self) -> Option<u16> {
        self.blocks.as_ref().map(Blocks::size)
    }

    /// Division of the ports among workers.
    pub(super) fn sharing(&self) -> Sharing {
        if self.blocks.is_some() { Sharing::Blocks } else { Sharing::Pairs }
    }

    /// True if the gateway itself has services on the address.
    pub(super) fn has_services(&self) -> bool {
        self.services.iter().any(|ranges| !ranges.is_empty())
    }
}

/// True if disjoint, ascending ranges have a port.
fn is_in(ranges: &[PortRange], port: u16) -> bool {
    let after = ranges.partition_point(|range| range.first <= port);
    ranges[..after].last().is_some_and(|range| port <= range.last)
}

/// Pools, checked and compiled, with their outside addresses.
pub(super) struct Compiled {
    pub(super) pools: Vec<Pool>,
    pub(super) outside: Vec<Outside>,
}

impl Compiled {
    /// Checks and compiles.
    ///
    /// # Errors
    /// All faults of the pools.
    pub(super) fn of(configs: &[PoolConfig], share: Share) -> Result<Compiled, Vec<ConfigError>> {
        if configs.len() > usize::from(u16::MAX) {
            return Err(vec![ConfigError::TooManyPools]);
        }
        let (mut errors, mut known) = (Vec::new(), HashMap::new());
        let mut compiled = Compiled { pools: Vec::with_capacity(configs.len()), outside: Vec::new() };
        for (number, config) in (0..u16::MAX).zip(configs) {
            let mut problems = Vec::new();
            let outside = &mut Addresses { list: &mut compiled.outside, known: &mut known };
            compiled.pools.push(Pool::compile(config, number, outside, &mut problems));
            let pool = PoolId(number);
            errors.extend(problems.into_iter().map(|problem| ConfigError::Pool { pool, problem }));
        }
        for (config, pool) in configs.iter().zip(&compiled.pools) {
            let Some(OnDemand { ports, .. }) = config.on_demand else { continue };
            for place in pool.sides.iter().flat_map(|side| &side.outside) {
                let blocks = &mut compiled.outside[*place as usize].blocks;
                blocks.get_or_insert_with(|| Blocks::new(ports, share));
            }
        }
        for reserved in configs.iter().flat_map(|config| &config.reserved) {
            let Some(place) = known.get(&bits_of(reserved.address)) else { continue };
            let ports = PortRange { first: reserved.ports.first.max(1), ..reserved.ports };
            let outside = &mut compiled.outside[*place as usize];
            for space in PortSpace::ALL {
                if reserved.protocol.is_none_or(|protocol| PortSpace::of(protocol) == Some(space)) {
                    outside.reserved[space as usize].push(ports);
                    if reserved.hold == Hold::WhileOthersAreFree {
                        outside.services[space as usize].push(ports);
                    }
                }
            }
        }
        // What is set aside always, nothing else can lend.
        for reserved in configs.iter().flat_map(|config| &config.reserved) {
            let Some(place) = known.get(&bits_of(reserved.address)) else { continue };
            if reserved.hold == Hold::Always {
                let outside = &mut compiled.outside[*place as usize];
                for space in PortSpace::ALL {
                    if reserved.protocol.is_none_or(|protocol| PortSpace::of(protocol) == Some(space)) {
                        cut_out(&mut outside.services[space as usize], reserved.ports);
                    }
                }
            }
        }
        for outside in &mut compiled.outside {
            outside.reserved.iter_mut().chain(&mut outside.services).for_each(merge);
        }
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }
}

/// Outside addresses in the order in which pools name them.
struct Addresses<'a> {
    list: &'a mut Vec<Outside>,
    known: &'a mut HashMap<(u128, Family), u32>,
}

/// Subtracts a range from others.
fn cut_out(ranges: &mut Vec<PortRange>, hole: PortRange) {
    let parts = ranges.iter().flat_map(|range| {
        let before = (range.first < hole.first)
            .then(|| PortRange { first: range.first, last: range.last.min(hole.first - 1) });
        let behind = (range.last > hole.last)
            .then(|| PortRange { first: range.first.max(hole.last + 1), last: range.last });
        before.into_iter().chain(behind)
    });
    *ranges = parts.collect();
}

/// Sorts ranges, and joins what overlaps or touches.
pub(crate) fn merge(ranges: &mut Vec<PortRange>) {
    ranges.retain(|range| range.first <= range.last);
    ranges.sort_unstable_by_key(|range| range.first);
    ranges.dedup_by(|next, before| {
        let joins = u32::from(next.first) <= u32::from(before.last) + 1;
        if joins {
            before.last = before.last.max(next.last);
        }
        joins
    });
}

impl Pool {
    /// Checks and compiles a pool; adds new outside addresses to the list.
    fn compile(
        config: &PoolConfig,
        number: u16,
        outside: &mut Addresses<'_>,
        problems: &mut Vec<PoolProblem>,
    ) -> Pool {
        let mut ports = Vec::with_capacity(config.ports.len());
        for given in &config.ports {
            let range = PortRange { first: given.first.max(1), ..*given };
            if range.first > range.last {
                problems.push(PoolProblem::BadPorts(*given));
            }
            ports.push(range);
        }
        merge(&mut ports);
        if config.ports.is_empty() {
            problems.push(PoolProblem::BadPorts(PortRange { first: 0, last: 0 }));
        }
        let block = config.block.as_ref().map(|block| {
            let blocks_of = |range: &PortRange| range.len().checked_div(u32::from(block.ports)).unwrap_or(0);
            let blocks: u32 = ports.iter().map(blocks_of).sum();
            if blocks == 0 {
                problems.push(PoolProblem::BadBlock { ports: block.ports });
            }
            (block.ports.max(1), blocks.max(1))
        });
        if let Some(OnDemand { ports: size, .. }) = config.on_demand {
            let has_block = |range: &PortRange| {
                let (size, end) = (u32::from(size), u32::from(range.last) + 1);
                u32::from(range.first).next_multiple_of(size) + size <= end
            };
            if size < LEAST_BLOCK || !ports.iter().any(has_block) {
                problems.push(PoolProblem::BadBlock { ports: size });
            }
        }
        let quota = config.quota.unwrap_or(u32::MAX);
        let mut pool = Pool {
            id: Some(PoolId(number)),
            held: [0; PortSpace::COUNT],
            ports,
            choice: config.choice,
            quota,
            hosts: config.hosts,
            block,
            most_blocks: config.on_demand.map_or(u16::MAX, |blocks| blocks.most),
            blocks: 0,
            sides: Default::default(),
            counters: PoolCounters::default(),
        };
        pool.add_outside(config, number, outside, problems);
        if let Some(block) = &config.block {
            pool.add_inside(&block.inside, problems);
        }
        pool
    }

    fn add_outside(
        &mut self,
        config: &PoolConfig,
        number: u16,
        outside: &mut Addresses<'_>,
        problems: &mut Vec<PoolProblem>,
    ) {
        let mut spans = Vec::new();
        for range in &config.addresses {
            match numbers(range) {
                Some(span) => spans.push(span),
                None => problems.push(PoolProblem::BadRange(*range)),
            }
        }
        let count = spans
            .iter()
            .fold(0u128, |sum, (first, last, _)| sum.saturating_add((last - first).saturating_add(1)));
        if config.addresses.is_empty() {
            problems.push(PoolProblem::NoAddress);
        }
        if count > u128::from(MAX_ADDRESSES) {
            problems.push(PoolProblem::TooManyAddresses { count });
            return;
        }
        for (first, last, family) in spans {
            for address in first..=last {
                let place = *outside.known.entry((address, family)).or_insert_with(|| {
                    let (reserved, services) = Default::default();
                    outside.list.push(Outside {
                        address,
                        family,
                        users: Vec::new(),
                        reserved,
                        services,
                        blocks: None,
                        held: 0,
                        role: Role::Only,
                    });
                    (outside.list.len() - 1) as u32 // at most 2^16 pools of 2^12
                });
                let users = &mut outside.list[place as usize].users;
                let side = &mut self.sides[side_of(family)];
                if users.last().is_some_and(|(user, _)| *user == number) {
                    problems.push(PoolProblem::Twice(super::ip_of(address, family)));
                    continue;
                }
                users.push((number, side.outside.len() as u16)); // at most 4096
                side.outside.push(place);
            }
        }
        for side in &mut self.sides {
            let words = side.outside.len().div_ceil(64);
            side.full = std::array::from_fn(|_| vec![0; words]);
        }
    }

    fn add_inside(&mut self, ranges: &[AddressRange], problems: &mut Vec<PoolProblem>) {
        let mut counts = [0u128; 2];
        for range in ranges {
            let Some((first, last, family)) = numbers(range) else {
                problems.push(PoolProblem::BadRange(*range));
                continue;
            };
            let side = &mut self.sides[side_of(family)];
            if side.inside.iter().any(|other| first <= other.last && other.first <= last) {
                problems.push(PoolProblem::InsideOverlap(*range));
                continue;
            }
            let count = &mut counts[side_of(family)];
            // A number too large to be right is one of too many, which is reported below.
            side.inside.push(Span { first, last, number: u64::try_from(*count).unwrap_or(u64::MAX) });
            *count = count.saturating_add((last - first).saturating_add(1));
        }
        let blocks_each = self.block.map_or(0, |(_, blocks)| u64::from(blocks));
        for (side, inside) in self.sides.iter_mut().zip(counts) {
            let blocks = side.outside.len() as u64 * blocks_each;
            if inside > u128::from(blocks) {
                problems.push(PoolProblem::TooFewBlocks { inside, blocks });
            }
            side.inside.sort_by_key(|span| span.first);
        }
    }

    /// Both sides.
    pub(super) fn sides_mut(&mut self) -> &mut [Side; 2] {
        &mut self.sides
    }

    /// Outside addresses of both families.
    pub(super) fn addresses(&self) -> u32 {
        self.sides.iter().map(|side| side.outside.len() as u32).sum()
    }

    pub(super) fn side(&self, family: Family) -> &Side {
        &self.sides[side_of(family)]
    }

    pub(super) fn side_mut(&mut self, family: Family) -> &mut Side {
        &mut self.sides[side_of(family)]
    }

    /// Returns the place of the outside address among the pool's, and the ports, that an inside address owns.
    pub(super) fn owned(&self, address: u128, family: Family) -> Option<(usize, PortRange)> {
        let (size, blocks) = self.block?;
        let inside = &self.side(family).inside;
        let after = inside.partition_point(|span| span.first <= address);
        let span = inside[..after].last().filter(|span| address <= span.last)?;
        let number = span.number + (address - span.first) as u64;
        let place = number / u64::from(blocks);
        let mut block = (number % u64::from(blocks)) as u32;
        for range in &self.ports {
            let here = range.len() / u32::from(size);
            if block < here {
                // Block times size is below 65536, as the blocks fit the range.
                let first = range.first + (block * u32::from(size)) as u16;
                return Some((place as usize, PortRange { first, last: first + (size - 1) }));
            }
            block -= here;
        }
        None
    }

    /// The inside address that owns a port, by its outside address's place.
    pub(super) fn owner(&self, place: usize, family: Family, port: u16) -> Option<u128> {
        let (size, blocks) = self.block?;
        let mut before = 0;
        let found = self.ports.iter().find_map(|range| {
            let here = range.len() / u32::from(size);
            let block = u32::from(port.checked_sub(range.first)? / size);
            before += if range.last < port { here } else { 0 };
            (range.has(port) && block < here).then_some(block)
        })?;
        let number = place as u64 * u64::from(blocks) + u64::from(before + found);
        self.side(family).inside.iter().find_map(|span| {
            let offset = u128::from(number.checked_sub(span.number)?);
            let address = span.first.checked_add(offset)?;
            (address <= span.last).then_some(address)
        })
    }
}

pub(super) fn side_of(family: Family) -> usize {
    usize::from(family == Family::V6)
}

fn numbers(range: &AddressRange) -> Option<(u128, u128, Family)> {
    let ((first, family), (last, other)) = (bits_of(range.first), bits_of(range.last));
    (family == other && first <= last).then_some((first, last, family))
}
