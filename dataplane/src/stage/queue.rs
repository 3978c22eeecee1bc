//! `queue`: is there room before its interface?
//!
//! One first-in-first-out queue for each port, of fixed length; a frame that finds the queue full is dropped (tail drop).
//! The pipeline then moves the frame into the queue. Where the policy has a tree of queues, the frame waits for its scheduler,
//! which finds the queue and has the last word on a drop ([`egress`](crate::egress)).

use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::{Frame, PortId};

use super::{About, Cx, Stage, Step, header};
use crate::egress::{Ends, program};
use crate::flag;
use crate::flow::FlowId;
use crate::tables::{Address, LOCAL, QueueTrees, Tables};
use crate::verdict::{Reason, Verdict};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue;

impl Stage for Queue {
    const ABOUT: About = About {
        name: "queue",
        asks: "Is there room before its interface?",
        // In a tree the class counts, and by flow the ends.
        reads: Fields::SEEN
            .and(Fields::EGRESS)
            .and(Fields::TUNNEL)
            .and(Fields::FLOW)
            .and(Fields::CLASS)
            .and(Fields::COLOUR),
        writes: Fields::EGRESS,
    };

    /// Answers go out like what is forwarded, and cells that are switched, which no stage between decides on.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        const FORWARDED: u16 = Verdict::Forwarded.to_fate();
        frame.meta.fate == 0 || frame.meta.fate >> 8 == ANSWERED || frame.meta.fate == FORWARDED
    }

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // The interface's port and its queue, each by place and bound, 11; length, those admitted, capacity, 4; egress and verdict, 5.
        cx.tally.instructions(20);
        cx.tally.execute(Op::Branch, 6);
        if cx.tables.queues.has_any {
            // The tree's room for packets on their way to it, and the packet's interface of origin.
            cx.tally.instructions(6);
            cx.tally.execute(Op::Branch, 2);
        }
        cx.tally.write(Region::Queue, usize::from(frame.meta.egress.0) * 64, 8);
        let root = cx.tables.interfaces.get(usize::from(frame.meta.egress.0)).map(|interface| interface.root);
        let Some(queue) = root.and_then(|root| cx.shard.egress.port(root)) else {
            // Only an answer to the gateway itself comes here without a port.
            let is_own = frame.meta.fate != 0 && frame.meta.egress == LOCAL;
            return if is_own { Step::Next } else { Step::Drop(Reason::NeighbourUnknown) };
        };
        let port = root.unwrap_or(frame.meta.egress);
        let refusal = match cx.tables.queues.has_any {
            false => queue.is_full().then_some(Reason::QueueFull),
            true => cx.shard.egress.refusal(ingress(frame, &cx.tables.queues), port),
        };
        if let Some(reason) = refusal {
            return Step::Drop(reason);
        }
        // From here on it is the port that counts, not which of its VLANs the frame is in.
        frame.meta.egress = port;
        if frame.meta.fate == 0 { Step::Forward } else { Step::Next }
    }

    fn program(tables: &Tables) -> u32 {
        // This stage; the engine that queues the next frame schedules, too.
        19 + program::size(&tables.queues)
    }
}

/// Interface that a packet came by, for the tree of such packets; that of the gateway itself for its own answers.
#[inline(always)]
pub(crate) fn ingress(frame: &Frame, trees: &QueueTrees) -> PortId {
    if frame.meta.fate >> 8 == ANSWERED { LOCAL } else { trees.ingress(&frame.meta) }
}

/// Ends of a packet as the rules have seen them, where queues share by them.
#[inline]
pub(crate) fn ends<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Ends {
    if !cx.tables.queues.needs_ends {
        return Ends::default();
    }
    let Some(flow) =
        cx.shard.flows.flow(FlowId(frame.meta.flow)).filter(|_| frame.meta.fate >> 8 != ANSWERED)
    else {
        return ends_on_wire(frame);
    };
    let (there, back) = (flow.original(), flow.reply());
    let (here, beyond): (Address, Address) = (there.source().into(), back.source().into());
    let is_reply = frame.meta.flags & flag::REPLY != 0;
    let (source, destination) = if is_reply { (beyond, here) } else { (here, beyond) };
    let (one, other) = if is_reply { (back.sport(), there.sport()) } else { (there.sport(), back.sport()) };
    Ends { source, destination, ports: arranged(one, other, frame.meta.protocol) }
}

/// Ends of a packet by its bytes alone.
pub(crate) fn ends_on_wire(frame: &Frame) -> Ends {
    let (source, destination) = header::addresses(frame);
    let (one, other) = (frame.meta.sport, frame.meta.dport);
    Ends { source, destination, ports: arranged(one, other, frame.meta.protocol) }
}

fn arranged(one: u16, other: u16, protocol: u8) -> u64 {
    u64::from(one) << 32 | u64::from(other) << 16 | u64::from(protocol)
}

/// The high byte of an answered frame's fate.
pub(crate) const ANSWERED: u16 = Verdict::Answered(Reason::TtlExpired).to_fate() >> 8;
