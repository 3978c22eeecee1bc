//! Leaves that are changed: cuboids in the order of their rules, some of which may have been removed.

use super::editable::Editable;
use super::order::Positions;
use crate::classify::budget::Budget;
use crate::classify::tree::entry::{Entry, Exact};
use crate::classify::tree::layout::{ASK, Branch, MACS, MISC, MORE, NUMBER, Octet, Shape, WIDTH, lanes};
use crate::classify::tree::search::Order;
use crate::classify::{NO_MATCH, TooLarge};

/// A cuboid in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot<S: Shape> {
    low: S::Lanes,
    span: S::Lanes,
    /// Number of the rule, and [`ASK`].
    tag: u32,
}

/// Branches that see a change of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All that lead to it.
    ByAll,
    /// Some of them.
    BySome,
}

/// A leaf's cuboids, as they are looked through to add one.
struct Room {
    blocks: usize,
    /// Cuboids, of removed rules, too.
    used: usize,
    /// The place behind all cuboids of rules in front.
    at: usize,
}

impl<S: Shape> Slot<S> {
    pub(super) fn of(entry: &Entry<S>) -> Slot<S> {
        let ask = if entry.exact == Exact::Yes { 0 } else { ASK };
        Slot { low: entry.low, span: entry.span, tag: entry.position | ask }
    }

    pub(super) fn number(&self) -> u32 {
        self.tag & NUMBER
    }

    /// The cuboid, as far as leaves tell.
    pub(super) fn entry(&self) -> Entry<S> {
        let exact = if self.tag & ASK == 0 { Exact::Yes } else { Exact::No };
        Entry { position: self.number(), exact, low: self.low, span: self.span }
    }

    /// A place in a block where there is no cuboid: no bit that is looked at has its value.
    fn nothing() -> Slot<S> {
        let mut span = S::Lanes::default();
        span.as_mut()[S::PORTS + MISC] = 1;
        Slot { low: S::Lanes::default(), span, tag: NUMBER }
    }

    fn read(block: &[Octet], place: usize) -> Slot<S> {
        let (mut low, mut span) = (S::Lanes::default(), S::Lanes::default());
        let (lanes, tags) = (block.len() / 2, &block[block.len() - 1]);
        for lane in 0..lanes {
            low.as_mut()[lane] = block[2 * lane].0[place];
            span.as_mut()[lane] = block[2 * lane + 1].0[place];
        }
        // Leaves do not compare it: any class.
        span.as_mut()[S::PORTS + MACS] = u32::from(u16::MAX);
        Slot { low, span, tag: tags.0[place] & !MORE }
    }

    fn write(&self, block: &mut [Octet], place: usize) {
        let lanes = block.len() / 2;
        for lane in 0..lanes {
            block[2 * lane].0[place] = self.low.as_ref()[lane];
            block[2 * lane + 1].0[place] = self.span.as_ref()[lane];
        }
        block[2 * lanes].0[place] = self.tag;
    }

    /// True if a leaf with so many lanes tells no difference.
    fn is_like(&self, other: &Slot<S>, lanes: usize) -> bool {
        self.tag == other.tag
            && self.low.as_ref()[..lanes] == other.low.as_ref()[..lanes]
            && self.span.as_ref()[..lanes] == other.span.as_ref()[..lanes]
    }
}

impl<S: Shape> Editable<S> {
    /// Puts the cuboids of a leaf's present rules into `slots`.
    pub(super) fn read(&self, leaf: u32, order: Positions<'_>, slots: &mut Vec<Slot<S>>) {
        slots.clear();
        let octets = self.forest.octets.entries();
        for block in self.blocks(leaf) {
            let block = &octets[block..block + self.length];
            for place in 0..WIDTH {
                let number = block[self.length - 1].0[place] & NUMBER;
                if number == NUMBER {
                    return;
                }
                if order.position(number) != NO_MATCH {
                    slots.push(Slot::read(block, place));
                }
            }
        }
    }

    /// Makes a leaf of cuboids, to which nothing leads yet; of none, that of no pattern.
    ///
    /// # Errors
    /// The budget has no memory for it.
    pub(super) fn add_leaf(&mut self, slots: &[Slot<S>], budget: &mut Budget) -> Result<u32, TooLarge> {
        if slots.is_empty() {
            return Ok(Branch::NOWHERE.octet() as u32);
        }
        let leaf = self.take(slots.len().div_ceil(WIDTH), budget)?;
        self.write(leaf, slots);
        Ok(leaf)
    }

    /// Puts a cuboid into a leaf, behind those of all rules in front. Returns the leaf that has it: another one, where this one has no
    /// room, or where not all that lead to it see the change; to the other one nothing leads yet.
    ///
    /// # Errors
    /// The budget has no memory for another leaf.
    pub(super) fn put(
        &mut self,
        leaf: u32,
        slot: &Slot<S>,
        seen: Seen,
        order: Positions<'_>,
        budget: &mut Budget,
    ) -> Result<u32, TooLarge> {
        let Some(room) = self.room(leaf, slot, order) else { return Ok(leaf) };
        if seen == Seen::ByAll && room.used < room.blocks * WIDTH {
            self.insert_at(leaf, room.at, slot);
            return Ok(leaf);
        }
        let mut slots = std::mem::take(&mut self.workshop.slots);
        self.read(leaf, order, &mut slots);
        let position = order.position(slot.number());
        let at = slots.partition_point(|other| order.position(other.number()) <= position);
        slots.insert(at, *slot);
        let done = if seen == Seen::ByAll && slots.len() <= room.blocks * WIDTH {
            self.write(leaf, &slots);
            self.release_end(leaf, slots.len(), room.blocks);
            Ok(leaf)
        } else {
            self.add_leaf(&slots, budget)
        };
        self.workshop.slots = slots;
        done
    }

    /// Takes the cuboids of removed rules out of a leaf of so many blocks. Returns the number of the blocks that it keeps.
    pub(super) fn purge(&mut self, leaf: u32, blocks: usize, order: Positions<'_>) -> usize {
        let octets = self.forest.octets.entries();
        let is_gone = |tag: &u32| tag & NUMBER != NUMBER && order.position(tag & NUMBER) == NO_MATCH;
        if !self.blocks(leaf).any(|block| octets[block + self.length - 1].0.iter().any(is_gone)) {
            return blocks;
        }
        let mut slots = std::mem::take(&mut self.workshop.slots);
        self.read(leaf, order, &mut slots);
        self.write(leaf, &slots);
        let kept = slots.len().div_ceil(WIDTH).max(1);
        self.workshop.slots = slots;
        kept
    }

    /// Looks where a cuboid is to be put; `None` where it is already.
    fn room(&self, leaf: u32, slot: &Slot<S>, order: Positions<'_>) -> Option<Room> {
        let octets = self.forest.octets.entries();
        let position = order.position(slot.number());
        let mut room = Room { blocks: 0, used: 0, at: 0 };
        for begin in self.blocks(leaf) {
            room.blocks += 1;
            let block = &octets[begin..begin + self.length];
            for (place, tag) in block[self.length - 1].0.iter().enumerate() {
                let number = tag & NUMBER;
                if number == NUMBER {
                    return Some(room);
                }
                room.used += 1;
                let other = order.position(number);
                if other != NO_MATCH && other <= position {
                    room.at = room.used;
                }
                if number == slot.number() && slot.is_like(&Slot::read(block, place), self.length / 2) {
                    return None;
                }
            }
        }
        Some(room)
    }

    /// Inserts into a leaf that has room for it.
    fn insert_at(&mut self, leaf: u32, at: usize, slot: &Slot<S>) {
        let mut moved = *slot;
        let mut place = at % WIDTH;
        let mut begin = leaf as usize + at / WIDTH * self.length;
        loop {
            let block = self.octets_mut(begin..begin + self.length);
            let last = block.len() - 1;
            let more = block[last].0[WIDTH - 1] & MORE;
            block[last].0[WIDTH - 1] &= !MORE;
            for lane in 0..last / 2 {
                let low = &mut moved.low.as_mut()[lane];
                *low = block[2 * lane].insert(place, *low);
                let span = &mut moved.span.as_mut()[lane];
                *span = block[2 * lane + 1].insert(place, *span);
            }
            moved.tag = block[last].insert(place, moved.tag);
            block[last].0[WIDTH - 1] |= more;
            if more == 0 {
                return;
            }
            (place, begin) = (0, begin + self.length);
        }
    }

    /// Writes cuboids where a leaf lies, or is to lie.
    fn write(&mut self, leaf: u32, slots: &[Slot<S>]) {
        let blocks = slots.len().div_ceil(WIDTH).max(1);
        let nothing = Slot::nothing();
        for number in 0..blocks {
            let begin = leaf as usize + number * self.length;
            let block = self.octets_mut(begin..begin + self.length);
            for place in 0..WIDTH {
                slots.get(number * WIDTH + place).unwrap_or(&nothing).write(block, place);
            }
            if number + 1 < blocks {
                block[block.len() - 1].0[WIDTH - 1] |= MORE;
            }
        }
    }

    /// Releases the blocks of a leaf that it needs no more.
    fn release_end(&mut self, leaf: u32, slots: usize, blocks: usize) {
        let kept = slots.div_ceil(WIDTH).max(1);
        self.release(leaf as usize + kept * self.length, leaf as usize + blocks * self.length);
    }

    /// The cuboid of an entry, as leaves of these trees compare it: what they do not, is asked of the pattern.
    pub(super) fn narrowed(&self, entry: &Entry<S>) -> Entry<S> {
        let mut narrowed = *entry;
        for lane in lanes::<S>(self.forest.asks_zones())..narrowed.low.as_ref().len() {
            let any = if lane == S::PORTS + MACS { u32::from(u16::MAX) } else { 0 };
            let (low, span) = (&mut narrowed.low.as_mut()[lane], &mut narrowed.span.as_mut()[lane]);
            // Trees that know zones choose branches by classes of MAC addresses, too.
            let is_known = lane == S::PORTS + MACS && self.forest.asks_zones();
            if (*low, *span) != (0, any) && !is_known {
                (*low, *span) = (0, any);
                narrowed.exact = Exact::No;
            }
        }
        narrowed
    }
}
