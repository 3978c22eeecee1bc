//! Traffic classes of flows, beside the flows, in memory that is taken only for a policy with classes.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Slab};

use super::{Direction, FlowId, FlowTable};

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

/// Memory for the classification of each flow.
pub(crate) type Classes = Slab<Classified>;

/// Takes memory for the classification of so many flows.
///
/// # Errors
/// The system has not that much memory to give.
pub(crate) fn classes(flows: u32) -> Result<Classes, MemoryError> {
    Slab::new(flows as usize)
}

impl FlowTable {
    /// Has the table remember classes from now on, unless it does already; gives back memory that is not needed.
    pub(crate) fn remember_classes(&mut self, classes: Classes) -> Option<Classes> {
        if self.classes.is_some() {
            return Some(classes);
        }
        self.classes = Some(classes);
        None
    }

    /// The classification of a flow, if the table keeps any.
    #[inline(always)]
    pub(crate) fn classified(&self, id: FlowId) -> Option<&Classified> {
        self.classes.as_ref()?.entries().get(id.0 as usize)
    }

    /// The classification of a flow, to be written, if the table keeps any.
    #[inline(always)]
    pub(crate) fn classified_mut(&mut self, id: FlowId) -> Option<&mut Classified> {
        self.classes.as_mut()?.entries_mut().get_mut(id.0 as usize)
    }
}
