//! Handing over of packets to the second gateway, the owner of their flow.
//!
//! Two gateways may divide new flows ([`Pair`](crate::tables::Pair)). Then `track` holds a packet of a flow that is unknown here and may be known there, or is
//! for the second gateway to open: it ends with [`Verdict::Held`] and [`Reason::PeerOwns`], before anything has been decided or changed about it.
//! The host carries the frame, as it was received, to the second gateway, which processes it as one that has arrived at its own interface of
//! that name; or [counts it](crate::Shard::count_not_handed_over) as dropped. A frame that was handed over is never handed over again.

use wire::Meta;

use crate::tunnel;
use crate::verdict::{Reason, Verdict};

const PEER_OWNS: u16 = Verdict::Held(Reason::PeerOwns).to_fate();

/// Packets of unknown flows that are handed over to the second gateway. The host says it before each batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// None: there is no second gateway, or it is down, or has not been told of all flows yet.
    #[default]
    None,
    /// Packets of flows that the second gateway owns, and those that open none, whose flow may be known there.
    Owned,
    /// All: this gateway has not been told of all flows yet.
    All,
}

/// True if a frame that has ended is to be handed over.
pub fn is_handed_over(meta: &Meta) -> bool {
    meta.fate == PEER_OWNS
}

/// Notes that the second gateway has handed over a frame.
pub fn note_taken(meta: &mut Meta) {
    meta.tunnel |= tunnel::PEER;
}
