//! Source MAC addresses of the first packets of flows, for rules that match one when they revalidate a flow.
//!
//! The addresses lie beside the flows, in memory that is taken only for a policy with such a rule.

use lookup::memory::{MemoryError, Slab};
use wire::ethernet::Mac;

use super::{FlowId, FlowTable};

/// Memory for an address of each flow; zeros where it is not known.
pub(crate) type Senders = Slab<[u8; 6]>;

/// Takes memory for the addresses of so many flows.
///
/// # Errors
/// The system has not that much memory to give.
pub(crate) fn senders(flows: u32) -> Result<Senders, MemoryError> {
    Slab::new(flows as usize)
}

impl FlowTable {
    /// Has the table remember addresses from now on, unless it does already; gives back memory that is not needed.
    pub(crate) fn remember_senders(&mut self, senders: Senders) -> Option<Senders> {
        if self.senders.is_some() {
            return Some(senders);
        }
        self.senders = Some(senders);
        None
    }

    /// True if the table remembers addresses.
    pub(crate) fn remembers_senders(&self) -> bool {
        self.senders.is_some()
    }

    /// Returns the source MAC address of the flow's first frame; `None` if not recorded.
    pub fn sender(&self, id: FlowId) -> Option<Mac> {
        let known = self.senders.as_ref()?.entries().get(id.0 as usize).copied().map(Mac)?;
        Some(known).filter(|mac| *mac != Mac::ZERO)
    }

    /// Records the source MAC address, `None` if unknown, if the table keeps such addresses.
    #[inline]
    pub(crate) fn note_sender(&mut self, id: FlowId, mac: Option<Mac>) {
        let place = self.senders.as_mut().and_then(|senders| senders.entries_mut().get_mut(id.0 as usize));
        if let Some(place) = place {
            *place = mac.unwrap_or(Mac::ZERO).0;
        }
    }
}
