//! Traffic classes of flows, beside the flows, in memory that is taken only for a policy with classes.

use bytemuck::{Pod, Zeroable};

use super::Direction;
use crate::tables::Kind;

/// Classification of a flow. Valid while the flow is of the tables' epoch: creation and revalidation write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Classified {
    /// The interface that the first packet left by, by its number.
    egress: u32,
    /// Class, per [`Direction`], of packets of the kind in `kinds`.
    classes: [u16; 2],
    /// Kind of code point and VLAN priority; [`Kind::NONE`] where no class has been found yet.
    kinds: [u16; 2],
}

impl Classified {
    /// A flow that leaves by an interface, with no class found yet.
    pub(crate) fn new(egress: u32) -> Classified {
        Classified { egress, classes: [0; 2], kinds: [Kind::NONE; 2] }
    }

    /// The interface that the first packet left by, by its number.
    pub(crate) fn egress(&self) -> u32 {
        self.egress
    }

    /// The class of packets of a direction and kind, if it has been found.
    #[inline(always)]
    pub(crate) fn class(&self, direction: Direction, kind: Kind) -> Option<u16> {
        (self.kinds[direction as usize] == kind.number()).then_some(self.classes[direction as usize])
    }

    /// The class of the last kind of packets of a direction that a class was found for, and the number of that kind.
    pub(crate) fn any_class(&self, direction: Direction) -> Option<(u16, u16)> {
        let (class, kind) = (self.classes[direction as usize], self.kinds[direction as usize]);
        (kind != Kind::NONE).then_some((class, kind))
    }

    /// Records the class of packets of a direction and kind.
    pub(crate) fn set(&mut self, direction: Direction, kind: Kind, class: u16) {
        (self.classes[direction as usize], self.kinds[direction as usize]) = (class, kind.number());
    }
}
