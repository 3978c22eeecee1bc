//! Frames that one worker hands off to another, because theirs is what belongs to it.
//!
//! Both ways of a connection, and the fragments of a datagram, may come to different workers. Each of these has flows of
//! its own ([`SteeringTable`](crate::flow::SteeringTable) says who has which); a packet that belongs to another's is ended by
//! [`Verdict::Held`] with [`Reason::HandedOff`] before anything has been decided or changed about it. Its host carries it
//! to the worker that [`receiver`] names, in the order in which they come, where it goes on by
//! [`Pipeline::run_taken`](crate::Pipeline::run_taken). What cannot be carried is
//! [lost](crate::counter::Counters::count_not_carried), or [not taken](crate::counter::Counters::count_not_taken).
//!
//! A frame is handed off [`MOST`] times at most, then it is taken as it is: at worst it has gone to the worker that puts
//! fragments in order, followed a hint that was wrong, and gone home. So whatever hints say, no frame goes in circles.

use wire::{Meta, Nanos, PortId};

use crate::stage::parse::flag;
use crate::verdict::{Reason, Verdict};

/// How often a frame is handed off at most.
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

/// How often a frame has been handed off.
pub(crate) fn times(meta: &Meta) -> u8 {
    (meta.flags >> flag::HANDED.trailing_zeros()) as u8
}

/// What the receiver knows of a frame that was handed off: what it carries was found out where it came in. `ingress` is
/// the same interface in the receiver's tables, and `received` the time there, which must not go backwards.
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
        ..Meta::default()
    }
}
