//! Programs of the [fast path](crate::fast_path): the filter of a line's sockets, which decides about each packet, and the program at
//! TCX ingress, which acts on the decision; and the program at XDP, which does both. Memory that they share, and with whom, is described in
//! [`layout`](crate::fast_path::layout).

use std::os::fd::BorrowedFd;

use super::assembler::{Assembler, If, Op, Width};
use super::{R0, R9, call};
use crate::fast_path::hash::Hasher;
use crate::fast_path::layout::{CPU_SHIFT, Fall, Layout, fall};

mod action;
mod filter;
mod rules;
#[cfg(any(test, feature = "trial"))]
pub(crate) mod trial;
mod witness;
mod xdp;

pub(crate) use action::action;
pub(crate) use filter::{Limits, filter};
pub(crate) use witness::witnesses;
pub(crate) use xdp::{Checksums, Front, xdp};

/// Memory of a fast path, as its programs need to know it.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) map: BorrowedFd<'a>,
    pub(crate) layout: Layout,
    pub(crate) hasher: &'a Hasher,
}

/// Mark of packets that go by, on their way to the interface that they leave by: never 0, and not `mark`.
pub(crate) const fn fast_mark(mark: u32) -> u32 {
    /// Not a mark that a person is likely to choose.
    const OTHER: u32 = 0x5a61_7374;
    if mark == OTHER { !OTHER } else { mark ^ OTHER }
}

const PROCESSOR: i32 = 8;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// Bytes of an Ethernet header.
const ETHERNET: i32 = 14;
/// Binary logarithm of the bytes of a slot.
const SLOT_SHIFT: i32 = 8;

impl Memory<'_> {
    /// R9 = address of this CPU's part. The number of CPUs is a power of two, so that the mask changes nothing.
    fn find_cpu(&self, a: &mut Assembler) {
        a.all(&[call(PROCESSOR)]);
        a.long_by(Op::And, R0, self.layout.cpus() as i32 - 1);
        a.long_by(Op::Left, R0, CPU_SHIFT as i32);
        a.address(R9, self.map, self.layout.first_cpu());
        a.long(Op::Add, R9, R0);
    }

    /// `target` = address of the slot whose index is in `index`, which is lost.
    fn find_slot(&self, a: &mut Assembler, target: u8, index: u8) {
        let second = self.layout.second_part();
        if self.last_slot() < second {
            self.add_slots(a, target, index, 0);
            return;
        }
        let (beyond, found) = (a.label(), a.label());
        a.jump_if(index, If::Above, second - 1, beyond);
        self.add_slots(a, target, index, 0);
        a.jump(found);
        a.place(beyond);
        a.long_by(Op::Subtract, index, second as i32);
        self.add_slots(a, target, index, second);
        a.place(found);
    }

    /// `target` = address of the slot that is `index` slots behind `first`.
    fn add_slots(&self, a: &mut Assembler, target: u8, index: u8, first: u32) {
        a.long_by(Op::Left, index, SLOT_SHIFT);
        a.address(target, self.map, self.layout.field(first, 0));
        a.long(Op::Add, target, index);
    }

    fn last_slot(&self) -> u32 {
        self.layout.slots() as u32 - 1
    }
}

/// Makes all loads by `base` come after that of `loaded`, which is lost: an address that depends on a loaded value is not
/// formed before, whatever the CPU's memory order.
fn order_after(a: &mut Assembler, base: u8, loaded: u8) {
    a.long_by(Op::And, loaded, 0);
    a.long(Op::Add, base, loaded);
}

/// Counts a packet that falls through; R1 is lost. No other CPU writes the counter.
fn count(a: &mut Assembler, reason: Fall) {
    a.load(Width::Double, super::R1, R9, fall(reason));
    a.long_by(Op::Add, super::R1, 1);
    a.store_to(Width::Double, R9, fall(reason), super::R1);
}

/// Protocol and family as they lie in a slot, of packets of no VLAN.
fn kind(protocol: u32, family: u8) -> u32 {
    u32::from_ne_bytes([protocol as u8, family, 0, 0])
}

#[cfg(test)]
mod tests;
