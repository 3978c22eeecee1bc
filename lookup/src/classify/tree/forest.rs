//! Trees as they are searched.

use std::marker::PhantomData;

use super::layout::{Branch, Octet, Shape};
use crate::classify::Position;
use crate::memory::{MemoryError, Slab};

/// The trees over the patterns of one family, to be searched all.
pub(super) struct Forest<S: Shape> {
    /// Roots, in the order of their first positions.
    pub roots: Vec<Root>,
    /// Targets of the bits that nodes gather.
    pub branches: Slab<Branch>,
    /// Nodes, each one octet, and blocks of leaves: for each lane that is compared two octets, then the positions.
    pub octets: Slab<Octet>,
    asks_zones: bool,
    shape: PhantomData<S>,
}

/// Entry point of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    /// Branch to the root node.
    pub branch: Branch,
    /// First position in the tree.
    pub first: Position,
}

impl<S: Shape> Forest<S> {
    /// # Errors
    /// The system has not that much memory.
    pub(super) fn new(
        roots: Vec<Root>,
        branches: &[Branch],
        octets: &[Octet],
        asks_zones: bool,
    ) -> Result<Forest<S>, MemoryError> {
        let (branches, octets) = (Slab::copy_of(branches)?, Slab::copy_of(octets)?);
        Ok(Forest { roots, branches, octets, asks_zones, shape: PhantomData })
    }

    /// True if any pattern asks for zones or interfaces: their lane is compared only then.
    #[inline(always)]
    pub(super) fn asks_zones(&self) -> bool {
        self.asks_zones
    }

    /// Bytes of all that is searched.
    pub(super) fn bytes(&self) -> usize {
        self.branches.bytes() + self.octets.bytes()
    }
}
