//! Trees as they are searched.

use std::marker::PhantomData;

use super::hiding::Hiding;
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
    /// Estimate of the time of a search when the trees were grown ([`weigh`](super::weigh::weigh)).
    pub time: f32,
    /// [`Growth::open`](super::build::Growth::open) when the trees were grown.
    pub open: u32,
    /// Rules that were left out of leaves when the trees were grown.
    pub hiding: Hiding,
    asks_zones: bool,
    shape: PhantomData<S>,
}

/// Entry point of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    /// Branch to the root node.
    pub branch: Branch,
    /// First position in the tree, or one before it.
    pub first: Position,
    /// Cuboids that may come before this tree is grown anew by itself; [`ROOM`] of one that was grown with the others.
    pub room: u32,
    /// Number of the bits gathered by its root that may be open in a cuboid of the tree.
    pub open: u32,
}

/// Room of trees that are only grown anew together.
pub(super) const ROOM: u32 = u32::MAX;

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
        let (time, open, hiding) = (0.0, 0, Hiding::default());
        Ok(Forest { roots, branches, octets, time, open, hiding, asks_zones, shape: PhantomData })
    }

    /// An independent copy.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub(super) fn copy(&self) -> Result<Forest<S>, MemoryError> {
        let mut copy = Forest::new(self.roots.clone(), &self.branches, &self.octets, self.asks_zones)?;
        (copy.time, copy.open) = (self.time, self.open);
        copy.hiding = self.hiding.clone();
        Ok(copy)
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
