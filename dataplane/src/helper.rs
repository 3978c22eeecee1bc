//! Protocol helpers (application layer gateways): what text on a control connection says of another connection.
//!
//! A rule names a helper (`helper = "ftp"`, as nftables' `ct helper`), and a control connection that the rule accepts has it. The helper reads
//! the commands and replies (`helper/ftp.rs`) that announce the address and port of a data connection. Each announcement makes an
//! *expectation*, as netfilter's `nf_conntrack_expect`: the connection that comes is accepted as related, by the rule of the control
//! connection, and is translated as that is. Where the control connection is translated, so is the announcement; sequence numbers then follow
//! ([`Stream`]). `stage/helper.rs` does this to packets.
//!
//! Promises: an announcement of another address than the announcer's own, or of a port below 1024, expects nothing. A control connection
//! expects one connection at a time, which may come once and within 300 s; all expectations are in memory taken at the start.

use bytemuck::{Pod, Zeroable};

use crate::flow::{FlowId, FlowTable, HELPED, HELPED_BITS, NoRoom};
use crate::tables::{NO_NUMBER, Tables};

pub(crate) mod expectation;
pub(crate) mod ftp;
pub(crate) mod stream;

pub use expectation::ExpectationId;
pub(crate) use expectation::{Expectation, Expectations};
pub use stream::Stream;

/// A flow's part in what a helper does: control connection, related connection, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Helped {
    /// Text of each direction, of a control connection.
    pub(crate) streams: [Stream; 2],
    /// Number of the rule that names the helper; [`NO_NUMBER`] if the flow has nothing to do with one.
    pub(crate) rule: u32,
}

impl FlowTable {
    /// True if the flow was expected by a control connection.
    pub fn is_related(&self, id: FlowId) -> bool {
        self.related_by(id).is_some()
    }

    /// Number of the rule of the control connection that expected the flow.
    pub(crate) fn related_by(&self, id: FlowId) -> Option<u32> {
        let rule = self.helped.get(id)?.rule;
        (rule != NO_NUMBER && self.flow(id)?.state & HELPED_BITS != HELPED).then_some(rule)
    }

    /// Notes that a flow is a control connection, let in by the rule of that number.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn set_helped(&mut self, id: FlowId, streams: [Stream; 2], rule: u32) -> Result<(), NoRoom> {
        *self.helped.get_mut(id).ok_or(NoRoom)? = Helped { streams, rule };
        if let Some(flow) = self.flow_mut(id) {
            flow.state = flow.state & !HELPED_BITS | HELPED;
        }
        Ok(())
    }

    /// Notes the rule by which a flow is related; [`NO_NUMBER`] for a flow that has nothing to do with a helper.
    pub(crate) fn set_related(&mut self, id: FlowId, rule: u32) {
        if let Some(helped) = self.helped.get_mut(id) {
            helped.rule = rule;
        }
    }

    /// Notes the rule that now lets in a control connection.
    pub(crate) fn set_helper_rule(&mut self, id: FlowId, rule: u32) {
        if let Some(helped) = self.helped.get_mut(id) {
            helped.rule = rule;
        }
    }
}

impl Tables {
    /// The place of the rule of that number, if it accepts and names a helper.
    pub(crate) fn helper_rule(&self, number: u32) -> Option<u32> {
        let rules = &self.filter.rules;
        let place = rules.iter().position(|rule| rule.number == number && rule.helper.is_some())?;
        Some(place as u32)
    }
}
