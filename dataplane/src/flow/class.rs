//! Traffic classes of flows, beside the flows, in memory that is taken only for a policy with classes.

use bytemuck::{Pod, Zeroable};

use super::Direction;

/// Classification of a flow. Valid while the flow is of the tables' epoch: creation and revalidation write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Classified {
    /// The interface that the first packet left by, by its number.
    egress: u32,
    /// Class, per [`Direction`], of packets with a code point of the kind in `kinds`.
    classes: [u16; 2],
    /// Kind of code point; [`NO_KIND`] where no class has been found yet.
    kinds: [u8; 2],
    unused: [u8; 2],
}

/// No kind of code point.
pub(crate) const NO_KIND: u8 = u8::MAX;

impl Classified {
    /// A flow that leaves by an interface, with no class found yet.
    pub(crate) fn new(egress: u32) -> Classified {
        Classified { egress, classes: [0; 2], kinds: [NO_KIND; 2], unused: [0; 2] }
    }

    /// The interface that the first packet left by, by its number.
    pub(crate) fn egress(&self) -> u32 {
        self.egress
    }

    /// The class of packets of a direction with a code point of a kind, if it has been found.
    #[inline(always)]
    pub(crate) fn class(&self, direction: Direction, kind: u8) -> Option<u16> {
        (self.kinds[direction as usize] == kind).then_some(self.classes[direction as usize])
    }

    /// Records the class of packets of a direction with a code point of a kind.
    pub(crate) fn set(&mut self, direction: Direction, kind: u8, class: u16) {
        (self.classes[direction as usize], self.kinds[direction as usize]) = (class, kind);
    }
}
