//! Protocol helpers (application layer gateways): what text on a control connection says of another connection.
//!
//! A rule names a helper (`helper = "ftp"`, as nftables' `ct helper`), and a control connection that the rule accepts has it. The helper reads
//! the commands and replies of FTP (`helper/ftp.rs`) that announce the address and port of a data connection, or the messages of SIP
//! (`helper/sip.rs`) and the descriptions of media in them (`helper/sdp.rs`), or the messages of PPTP that name calls (`helper/pptp.rs`). Each announcement makes an *expectation*, as netfilter's `nf_conntrack_expect`: the connection that comes is accepted as related, by the rule of the control
//! connection, and is translated as that is. Where the control connection is translated, so is the announcement; sequence numbers then follow
//! ([`Stream`]). `stage/helper.rs` does this to packets.
//!
//! Promises: an announcement of another address than the announcer's own, or of a port below 1024, expects nothing. A control connection
//! of FTP expects one connection at a time, one of SIP or PPTP a bounded number; each may come once and within 300 s, but for signalling to a
//! registered contact, which may come for as long as the registration holds, and for a call of PPTP, which may until it ends. All expectations are in memory taken at the start.

use bytemuck::{Pod, Zeroable};
use policy::model::Helper;
use wire::Nanos;

use crate::flow::{FlowId, FlowTable, HELPED, HELPED_BITS, NoRoom};
use crate::tables::{FilterRule, NO_NUMBER, Tables};

pub(crate) mod expectation;
pub(crate) mod ftp;
pub(crate) mod pptp;
pub(crate) mod sdp;
pub(crate) mod sip;
pub(crate) mod stream;

pub use expectation::ExpectationId;
pub(crate) use expectation::{Expectation, Expectations};
pub use stream::Stream;

/// Time for which a SIP endpoint may be silent, as in netfilter: registrations often hold as long.
const SIGNALLING: Nanos = Nanos::from_secs(3600);

/// Idle timeout of the connections that a helper reads, where the rule says none; `None` for that of their state.
pub(crate) fn timeout(helper: Helper) -> Option<Nanos> {
    match helper {
        Helper::Ftp | Helper::Pptp => None,
        Helper::Sip => Some(SIGNALLING),
    }
}

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
        let (rule, flow) = (self.helped.get(id)?.rule, self.flow(id)?);
        (rule != NO_NUMBER && (!flow.is_helped() || flow.is_call())).then_some(rule)
    }

    /// Notes that a flow is a control connection, let in by the rule of that number, or a call that is related by it.
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

impl FlowTable {
    /// Number of the idle timeout that a flow has by its rule; 0 for that of its state. Media of a call have the latter.
    pub(crate) fn idle_by(&self, id: FlowId, rule: Option<&FilterRule>) -> u8 {
        rule.filter(|rule| rule.helper != Some(Helper::Sip) || !self.is_related(id))
            .map_or(0, |rule| rule.idle)
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
