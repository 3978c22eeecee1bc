//! Ends of a control connection, as a helper sees them from a message.

use std::net::SocketAddr;

use wire::Nanos;

use crate::flow::{Direction, Flow, FlowId};

/// A control connection in the direction of a message: who has sent it to whom, inside and outside of the translation.
pub(super) struct Control {
    pub(super) id: FlowId,
    pub(super) direction: Direction,
    pub(super) rule: u32,
    pub(super) now: Nanos,
    /// Conntrack zone that the receiver's packets arrive in.
    pub(super) ct_zone: u16,
    /// Conntrack zone that the sender's packets arrive in.
    pub(super) back_ct_zone: u16,
    /// The sender as it knows itself.
    pub(super) own: SocketAddr,
    /// The sender as the receiver knows it.
    pub(super) shown: SocketAddr,
    /// The receiver as the sender knows it.
    pub(super) addressed: SocketAddr,
    /// The receiver as it knows itself.
    pub(super) really: SocketAddr,
}

impl Control {
    pub(super) fn new(id: FlowId, direction: Direction, flow: &Flow, rule: u32, now: Nanos) -> Control {
        let (towards, back) = (flow.key(direction.turned()), flow.key(direction));
        Control {
            id,
            direction,
            rule,
            now,
            ct_zone: towards.ct_zone(),
            back_ct_zone: back.ct_zone(),
            own: SocketAddr::new(back.source(), back.sport()),
            shown: SocketAddr::new(towards.destination(), towards.dport()),
            addressed: SocketAddr::new(back.destination(), back.dport()),
            really: SocketAddr::new(towards.source(), towards.sport()),
        }
    }

    /// True if the receiver's address is translated.
    pub(super) fn hides_receiver(&self) -> bool {
        self.addressed.ip() != self.really.ip()
    }

    /// True if the sender's address is translated.
    pub(super) fn hides_sender(&self) -> bool {
        self.own.ip() != self.shown.ip()
    }
}
