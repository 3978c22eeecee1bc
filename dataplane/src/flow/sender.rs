//! Source MAC addresses of the first packets of flows, for rules that match one when they revalidate a flow.
//!
//! The addresses lie beside the flows, in memory that is taken only for a policy with such a rule.

use wire::ethernet::Mac;

use super::{FlowId, FlowTable};

impl FlowTable {
    /// Returns the source MAC address of the flow's first frame; `None` if not recorded.
    pub fn sender(&self, id: FlowId) -> Option<Mac> {
        let known = Mac(*self.senders.get(id)?);
        Some(known).filter(|mac| *mac != Mac::ZERO)
    }

    /// Records the source MAC address, `None` if unknown, if the table keeps such addresses.
    #[inline]
    pub(crate) fn note_sender(&mut self, id: FlowId, mac: Option<Mac>) {
        if let Some(place) = self.senders.get_mut(id) {
            *place = mac.unwrap_or(Mac::ZERO).0;
        }
    }
}
