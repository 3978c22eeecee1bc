//! Records beside the flows, one for each place, in memory that is taken only for a policy that needs such records.

use bytemuck::Pod;
use lookup::memory::{MemoryError, Paging, Slab};

use super::FlowId;

/// A record for each flow, or none at all. The table neither clears nor moves records: their owner writes them.
pub(crate) struct Beside<T>(Option<Slab<T>>);

impl<T> Default for Beside<T> {
    fn default() -> Beside<T> {
        Beside(None)
    }
}

/// Takes memory for the records of so many flows, zeroed.
///
/// # Errors
/// The system has not that much memory to give.
pub(crate) fn records<T: Pod>(flows: u32, paging: Paging) -> Result<Slab<T>, MemoryError> {
    Slab::paged(flows as usize, paging)
}

impl<T: Pod> Beside<T> {
    /// Keeps records from now on, unless there are some already; gives back memory that is not needed.
    pub(crate) fn keep(&mut self, records: Slab<T>) -> Option<Slab<T>> {
        if self.is_kept() {
            return Some(records);
        }
        self.0 = Some(records);
        None
    }

    /// Keeps records no more, and gives back the memory.
    pub(crate) fn forget(&mut self) -> Option<Slab<T>> {
        self.0.take()
    }

    /// True if there are records.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// The record of a flow, if there are any.
    #[inline(always)]
    pub(crate) fn get(&self, id: FlowId) -> Option<&T> {
        self.0.as_ref()?.entries().get(id.0 as usize)
    }

    /// The record of a flow, to be written, if there are any.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        self.0.as_mut()?.entries_mut().get_mut(id.0 as usize)
    }

    /// Prefetches the record of a flow, if there are any.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: FlowId) {
        if let Some(record) = self.get(id) {
            wire::prefetch::read(record);
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Slab::bytes)
    }
}
