//! Handoff of frames from one worker to another, the owner of the flow or datagram.
//!
//! Both directions of a connection, and the fragments of a datagram, may come to different workers. Each worker has flows
//! of its own ([`SteeringTable`](crate::flow::SteeringTable) lists the owners); a packet of another worker's flow ends with
//! [`Verdict::Held`] and [`Reason::HandedOff`] before anything has been decided or changed about it. The host carries it
//! to the worker that [`receiver`] names, in order, where it goes on by
//! [`Pipeline::run_taken`](crate::Pipeline::run_taken). A frame that cannot be carried is
//! [lost](crate::Shard::count_not_carried), or [not taken](crate::Shard::count_not_taken).
//!
//! A packet whose [tree of queues](crate::egress) another worker serves is handed off once more, when all has been decided
//! ([`Shard::hand_off`](crate::Shard::hand_off)), and queued there.
//!
//! A frame is handed off [`MOST`] times at most, then it is taken as it is: at worst it has gone to the worker that puts
//! fragments in order, followed a wrong hint, and gone to its owner. So no frame goes in circles, for any hints. An outer packet of a tunnel
//! is handed off once to the owner of its security association, before it is decrypted; what comes out of it is a new packet.

use wire::{Meta, Nanos, PortId};

use crate::flag;
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

/// Largest number of handoffs of one frame.
pub const MOST: u8 = 3;

const HANDED_OFF: u16 = Verdict::Held(Reason::HandedOff).to_fate();

/// The worker that a frame is to be handed off to; `None` if it is not.
pub fn receiver(meta: &Meta) -> Option<u16> {
    (meta.fate == HANDED_OFF).then_some(meta.hop as u16)
}

/// Notes the worker that a frame is to be handed off to.
pub(crate) fn address(meta: &mut Meta, worker: u16) {
    meta.flags += 1 << flag::HANDED.trailing_zeros();
    meta.hop = u32::from(worker);
}

/// Returns the number of handoffs of a frame so far.
pub(crate) fn times(meta: &Meta) -> u8 {
    (meta.flags >> flag::HANDED.trailing_zeros()) as u8
}

/// Returns the receiver's metadata of a packet that is to be [queued](crate::Shard::take_handed_off) there, which keeps its decisions.
/// Ports are those of the receiver's tables.
pub fn decided(given: &Meta, ingress: PortId, egress: PortId) -> Meta {
    Meta { ingress, egress, flow: u32::MAX, opening: Meta::NO_OPENING, parts: 0, ..given.clone() }
}

/// Returns the receiver's metadata of a frame handed off: the parsed fields of `given`, all else at its default. `ingress`
/// is the same interface in the receiver's tables, and `received` the receiver's time, which must not go backwards.
pub fn arrived(given: &Meta, ingress: PortId, received: Nanos) -> Meta {
    Meta {
        received,
        ingress,
        number: given.number,
        network: given.network,
        transport: given.transport,
        end: given.end,
        family: given.family,
        protocol: given.protocol,
        part: given.part,
        ds_field: given.ds_field,
        tcp_flags: given.tcp_flags,
        sport: given.sport,
        dport: given.dport,
        flags: given.flags,
        tunnel: given.tunnel & (tunnel::IN | tunnel::PEER),
        ..Meta::default()
    }
}
