//! The anti-replay window (RFC 4303, section 3.4.3, in the manner of RFC 6479): exactly as many numbers as it is large.

use wire::esp::Esn;

use crate::sequence::infer;

/// Numbers received, as far back as the window reaches.
#[derive(Clone, Debug)]
pub struct Window {
    /// Highest number accepted.
    top: u64,
    /// Numbers from the top down that are told apart; 0 if nothing is checked.
    size: u32,
    /// Numbers up to here count as received, as another process received them.
    floor: u64,
    /// Numbers above `floor` accepted.
    accepted: u64,
    /// Ring of bits by number. It has room for a block that is partly above the top and one that is partly below the window.
    blocks: Box<[u64]>,
}

/// Place of a number in a window; carries the whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not received yet.
    Fresh(u64),
    /// Received before.
    Seen(u64),
    /// Left of the window, or a number that is never sent.
    Old(u64),
}

impl Window {
    /// Largest size.
    pub const LARGEST: u32 = 65_536;

    /// An empty window of `size` numbers, at most [`Window::LARGEST`]. Of size 0 it takes every number but 0, any number of times.
    pub fn new(size: u32) -> Window {
        Window::closed_at(size, 0)
    }

    /// A window for which all numbers up to `top` have been received.
    pub fn closed_at(size: u32, top: u64) -> Window {
        let size = size.min(Window::LARGEST);
        // In the worst place `size` numbers touch one block more than they fill. A power of two, so that a block is found without a
        // division.
        let blocks = (size.saturating_sub(1).div_ceil(64) + 1).next_power_of_two();
        let blocks = vec![u64::MAX; blocks as usize].into_boxed_slice();
        let mut window = Window { top, size, floor: top, accepted: 0, blocks };
        window.close_at(top);
        window
    }

    /// Forgets all: all numbers up to `top` count as received.
    pub fn close_at(&mut self, top: u64) {
        (self.top, self.floor, self.accepted) = (top, top, 0);
        self.blocks.fill(u64::MAX);
        let block = self.block(top);
        self.blocks[block] = up_to(top);
    }

    /// The place of the number whose lower half a packet carries. Changes nothing: the packet may be forged.
    #[inline]
    pub fn place(&self, low: u32, esn: Esn) -> Place {
        let full = self.full(low, esn, self.top);
        // The first packet has number 1 (RFC 4303, section 3.3.3).
        if full == 0 {
            Place::Old(full)
        } else if full > self.top || self.size == 0 {
            Place::Fresh(full)
        } else if self.top - full >= u64::from(self.size) {
            Place::Old(full)
        } else if self.blocks[self.block(full)] & bit(full) != 0 {
            Place::Seen(full)
        } else {
            Place::Fresh(full)
        }
    }

    /// The whole number of a packet, if it stays the same, and does not leave the window, while that moves up to `top`.
    pub fn settled(&self, low: u32, esn: Esn, top: u64) -> Option<u64> {
        let top = top.max(self.top);
        let full = self.full(low, esn, self.top);
        let leaves = self.size > 0 && top.saturating_sub(full) >= u64::from(self.size);
        (self.full(low, esn, top) == full && !leaves).then_some(full)
    }

    /// The whole number of a packet in a window with this top.
    fn full(&self, low: u32, esn: Esn, top: u64) -> u64 {
        match esn {
            Esn::Off => u64::from(low),
            Esn::On => infer(low, top, self.size),
        }
    }

    /// Marks a number as received, and moves the window up to it. Only for packets whose ICV is right. A number left of the window
    /// or seen before changes nothing.
    #[inline]
    pub fn accept(&mut self, full: u64) {
        if self.size == 0 {
            self.top = self.top.max(full);
            return;
        }
        if full > self.top {
            self.advance(full);
        } else if self.top - full >= u64::from(self.size) {
            return;
        }
        let block = self.block(full);
        self.accepted += u64::from(self.blocks[block] & bit(full) == 0);
        self.blocks[block] |= bit(full);
    }

    /// The highest number accepted.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Numbers that are told apart; 0 if nothing is checked.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Bytes of memory beside the window itself.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * size_of::<u64>()
    }

    /// Numbers that were never received and have left the window: packets lost on the way, or very late.
    pub fn lost(&self) -> u64 {
        if self.size == 0 {
            return 0;
        }
        let left = self.top.saturating_sub(u64::from(self.size)).max(self.floor);
        let inside: u64 = (left / 64..=self.top / 64)
            .map(|number| {
                let from = if number == left / 64 { !up_to(left) } else { u64::MAX };
                let to = if number == self.top / 64 { up_to(self.top) } else { u64::MAX };
                u64::from((self.blocks[self.block(number * 64)] & from & to).count_ones())
            })
            .sum();
        left - self.floor - (self.accepted - inside)
    }

    /// Moves the top, and clears the blocks that come in.
    fn advance(&mut self, top: u64) {
        let passed = (top / 64 - self.top / 64).min(self.blocks.len() as u64);
        for step in 1..=passed {
            let block = self.block((self.top / 64 + step) * 64);
            self.blocks[block] = 0;
        }
        self.top = top;
    }

    fn block(&self, number: u64) -> usize {
        (number / 64) as usize & (self.blocks.len() - 1)
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// Bits of a number and of those below in its block.
fn up_to(number: u64) -> u64 {
    u64::MAX >> (63 - number % 64)
}

#[cfg(test)]
mod tests;
