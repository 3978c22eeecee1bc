//! Blocks on demand: ports of a host's own blocks, of a new one, and the end of a block.

use tally::Tally;

use super::super::block::{BlockChange, Blocks, Left, NO_BLOCK};
use super::super::pool::{Outside, Role};
use super::super::port::{Ports, Random, Wanted};
use super::super::{BlockEvent, Endpoint, PortBlock, PortRange, PortSpace, Refusal, Share, ip_of};
use super::{Mappings, wish};

/// Takes a free block of an address, and a port of it.
pub(super) fn take_of_new<T: Tally>(
    ports: &mut Ports,
    (outside, address): (u32, &Outside),
    space: PortSpace,
    wanted: Wanted<'_>,
    random: &mut Random,
    tally: &mut T,
) -> Option<u16> {
    let blocks = address.blocks.as_ref()?;
    // Mappings of before may have ports of the block, where the address was divided otherwise.
    let is_clean = |range| {
        let mut spaces = PortSpace::ALL.into_iter();
        spaces.all(|space| ports.is_clean(outside, space, range, |port| address.reserves(space, port)))
    };
    let mut probe = tally::NoTally;
    let is_good = |range: PortRange| is_clean(range) && ports.has_free(outside, space, range, &mut probe);
    let number = blocks.find(wanted.ranges, random, is_good, tally)?;
    let range = blocks.ports(number);
    // A word of each of the three bitmaps for 64 ports: load, compare, branch, advance, 8.
    tally.instructions(24 * u32::from(blocks.size()).div_ceil(64));
    let wanted = Wanted { ranges: &[range], share: Share::WHOLE, ..wanted };
    ports.take(outside, space, wanted, random, tally)
}

impl Mappings {
    /// Takes a port of a host's blocks, oldest first; `None` if another block is to be taken, or the ports of the host's address do not go
    /// by blocks.
    pub(super) fn take_of_own<T: Tally>(
        &mut self,
        host: u32,
        inside: &Endpoint,
        space: PortSpace,
        tally: &mut T,
    ) -> Option<Result<(u32, u16), Refusal>> {
        let own = *self.hosts.get(host);
        let Mappings { ports, random, pools, outside, .. } = self;
        let blocks = outside[own.outside as usize].blocks.as_ref()?;
        let pool = &pools[usize::from(own.pool().0)];
        let mut count = 0;
        for number in blocks.own_of(own.blocks) {
            blocks.read(number, tally);
            count += 1;
            let range = blocks.ports(number);
            if !pool.ports.iter().any(|ports| range.is_within(*ports)) {
                continue;
            }
            let wanted = Wanted { ranges: &[range], wish: wish(pool.choice, inside), share: Share::WHOLE };
            if let Some(port) = ports.take(own.outside, space, wanted, random, tally) {
                return Some(Ok((own.outside, port)));
            }
        }
        (count >= pool.most_blocks).then_some(Err(Refusal::QuotaReached))
    }

    /// Counts a port of a host among those of its block; returns the number of the block where the host did not have it before.
    pub(super) fn enter_block<T: Tally>(&mut self, host: u32, port: u16, tally: &mut T) -> Option<PortBlock> {
        let own = *self.hosts.get(host);
        let blocks = self.outside[own.outside as usize].blocks.as_mut()?;
        let number = blocks.number(port)?;
        blocks.change(number, tally);
        let is_new = blocks.host(number) != Some(host);
        if is_new {
            let last = blocks.of(own.blocks).last();
            blocks.give(number, host, last);
            if own.blocks == NO_BLOCK {
                self.hosts.get_mut(host).blocks = number;
            }
            self.pools[usize::from(own.pool().0)].blocks += 1;
        }
        blocks.hold(number);
        is_new.then(|| self.describe(host, number))
    }

    /// Counts a port of a host off; with the last one of a block, the block is free, and its ports are returned.
    pub(super) fn leave_block<T: Tally>(&mut self, host: u32, port: u16, tally: &mut T) -> Option<PortRange> {
        let own = *self.hosts.get(host);
        let blocks = self.outside[own.outside as usize].blocks.as_mut()?;
        let number = blocks.number(port).filter(|number| blocks.host(*number) == Some(host))?;
        blocks.change(number, tally);
        let ports = blocks.ports(number);
        let mut first = own.blocks;
        if blocks.leave(number, &mut first) == Left::InUse {
            return None;
        }
        let block = self.describe(host, number);
        self.hosts.get_mut(host).blocks = first;
        self.pools[usize::from(own.pool().0)].blocks -= 1;
        self.note_block(BlockChange::Freed, block);
        Some(ports)
    }

    /// Clears the marks by which pools pass over an address without a free block, where the block of a port is free by now.
    pub(super) fn offer_block(&mut self, address: u32, freed: Option<PortRange>, port: u16) {
        let at = &self.outside[address as usize];
        let Some(blocks) = &at.blocks else { return };
        // A port from before the address was divided so may have been all that kept a block from being taken.
        let free = || blocks.number(port).filter(|number| blocks.host(*number).is_none());
        let Some(block) = freed.or_else(|| free().map(|number| blocks.ports(number))) else { return };
        for (user, place) in &at.users {
            let user = &mut self.pools[usize::from(*user)];
            if user.ports.iter().any(|range| block.is_within(*range)) {
                for full in &mut user.side_mut(at.family).full {
                    full[usize::from(*place) / 64] &= !(1 << (place % 64));
                }
            }
        }
    }

    /// True if a host may have a port by the blocks of an address: the block is its own, or free and this worker's.
    pub(super) fn may_enter(&self, address: u32, port: u16, host: Option<u32>) -> bool {
        let Some(blocks) = &self.outside[address as usize].blocks else { return true };
        let Some(number) = blocks.number(port) else { return false };
        match blocks.host(number) {
            Some(owner) => Some(owner) == host,
            None => {
                let at = &self.outside[address as usize];
                let range = blocks.ports(number);
                PortSpace::ALL
                    .into_iter()
                    .all(|space| self.ports.is_clean(address, space, range, |port| at.reserves(space, port)))
            }
        }
    }

    /// Has the ports of an address go by blocks no more; returns the blocks.
    pub(super) fn end_blocks(&mut self, address: u32) -> Option<Blocks> {
        let blocks = self.outside[address as usize].blocks.take()?;
        for (_, host) in blocks.all() {
            let host = self.hosts.get_mut(host);
            host.blocks = NO_BLOCK;
            self.pools[usize::from(host.pool().0)].blocks -= 1;
        }
        Some(blocks)
    }

    /// Returns the place that an address has at present.
    pub(super) fn present(&self, address: u32) -> u32 {
        let at = &self.outside[address as usize];
        if at.role == Role::Predecessor {
            self.known.get(&(at.address, at.family)).copied().unwrap_or(address)
        } else {
            address
        }
    }

    /// True if bitmaps have a port of an address as free where nobody holds it: other workers' are taken but where they go by blocks.
    pub(super) fn is_open(&self, address: u32, port: u16) -> bool {
        self.outside[address as usize].blocks.is_some() || self.ports.share().owns(port)
    }

    /// True if a mapping with a port of an address may be held by this worker: one of its share, or one that a second gateway has made.
    pub(super) fn may_hold(&self, address: u32, port: u16) -> bool {
        let share = self.ports.share();
        match &self.outside[address as usize].blocks {
            Some(blocks) => blocks.number(port).is_some_and(|number| share.may_hold_block(number)),
            None => share.may_hold(port),
        }
    }

    pub(super) fn note_block(&mut self, change: BlockChange, block: PortBlock) {
        // Whoever maps and releases takes the events, each time.
        let _ = self.block_events.try_push(BlockEvent { change, block });
    }

    /// Takes the oldest event of blocks that [`Mappings::map`], [`Mappings::map_another`] and [`Mappings::release`] have led to: to be
    /// called after each of them until there is none.
    #[inline(always)]
    pub fn take_block_event(&mut self) -> Option<BlockEvent> {
        self.block_events.pop_at(0)
    }

    /// Blocks on demand that hosts have.
    pub fn blocks(&self) -> impl Iterator<Item = PortBlock> + '_ {
        (0..self.outside.len() as u32).flat_map(|address| self.blocks_of(address))
    }

    /// Blocks of an outside address that hosts have.
    pub(super) fn blocks_of(&self, address: u32) -> impl Iterator<Item = PortBlock> + '_ {
        let blocks = self.outside[address as usize].blocks.iter();
        blocks.flat_map(|blocks| blocks.all().map(|(number, host)| self.describe(host, number)))
    }

    fn describe(&self, host: u32, number: u16) -> PortBlock {
        let own = self.hosts.get(host);
        let at = &self.outside[own.outside as usize];
        let pool = own.pool().0;
        PortBlock {
            inside: ip_of(own.address(), own.family()),
            outside: ip_of(at.address, at.family),
            ports: at.blocks.as_ref().map_or(PortRange { first: 0, last: 0 }, |blocks| blocks.ports(number)),
            pool: at.is_of(pool).then(|| self.pools[usize::from(pool)].id).flatten(),
        }
    }
}

#[cfg(test)]
mod tests;
