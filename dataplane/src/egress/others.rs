//! Trees that other workers serve, and the packets to be handed off to them.
//!
//! A tree that is one worker's has the packets of all: whoever has decided on a packet hands it off to that worker, with the moment
//! of its arrival, its class, colour and ends. Packets wait here until the host takes them
//! ([`Shard::hand_off`](crate::Shard::hand_off)); where there is no room, they are dropped
//! ([`Reason::HandoffFull`](crate::Reason::HandoffFull)).

use std::collections::VecDeque;
use std::sync::Arc;

use policy::model::TreeWorkers;
use wire::{Frame, PortId};

use super::Ends;
use crate::nat::Share;
use crate::tables::{QueueTree, QueueTrees};

/// Packet for a tree that another worker serves.
#[derive(Debug)]
pub struct Handoff {
    /// The packet, decided and rewritten; [`received`](wire::Meta::received) is the moment of its arrival in the tree.
    pub frame: Frame,
    /// Ends by which queues share.
    pub ends: Ends,
    /// Interface that the packet came by; [`LOCAL`](crate::tables::LOCAL) if it has passed the tree of that interface.
    pub ingress: PortId,
    /// Worker that serves the tree.
    pub worker: u16,
}

/// The other workers that serve trees.
#[derive(Debug)]
pub(super) struct Others {
    /// Worker that serves the tree of an interface that packets leave by; `None` if that is this one, or each.
    on: Vec<Option<u16>>,
    /// Likewise of an interface that packets come by.
    from: Vec<Option<u16>>,
    own: u16,
    out: VecDeque<Handoff>,
    limit: usize,
}

impl Others {
    /// Returns the other worker that serves a tree; `None` if this one does.
    pub(super) fn serves(queues: &QueueTrees, port: PortId, tree: &QueueTree, share: Share) -> Option<u16> {
        let owner = queues.owner(port, tree, share.workers())?;
        (owner != share.worker()).then_some(owner)
    }

    /// `None` if no other worker serves a tree. `limit` bounds the packets that wait to be handed off.
    pub(super) fn new(queues: &QueueTrees, share: Share, limit: usize) -> Option<Box<Others>> {
        let is_shared = |tree: &QueueTree| tree.workers == TreeWorkers::One;
        if share.workers() < 2 || !queues.on.iter().chain(&queues.from).flatten().any(|tree| is_shared(tree))
        {
            return None;
        }
        let workers = |trees: &[Option<Arc<QueueTree>>]| {
            let places = (0..).map(PortId).zip(trees);
            places.map(|(port, tree)| Others::serves(queues, port, tree.as_deref()?, share)).collect()
        };
        let out = VecDeque::with_capacity(limit);
        Some(Box::new(Others {
            on: workers(&queues.on),
            from: workers(&queues.from),
            own: share.worker(),
            out,
            limit,
        }))
    }

    /// Worker that serves the tree of an interface that packets leave by, if another one does.
    pub(super) fn on(&self, port: PortId) -> Option<u16> {
        self.on.get(usize::from(port.0)).copied().flatten()
    }

    /// Worker that serves the tree of an interface that packets come by, if another one does.
    pub(super) fn from(&self, port: PortId) -> Option<u16> {
        self.from.get(usize::from(port.0)).copied().flatten()
    }

    /// True if there is no room for one more packet.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.limit
    }

    /// Number of packets that wait for one port to be handed off.
    pub(super) fn waiting(&self, port: PortId) -> usize {
        self.out.iter().filter(|handoff| handoff.frame.meta.egress == port).count()
    }

    /// Adds a packet. After a reload there may be more of them than the limit.
    pub(super) fn push(&mut self, frame: Frame, ends: Ends, ingress: PortId, worker: u16) {
        self.out.push_back(Handoff { frame, ends, ingress, worker });
    }

    /// Adds a packet that is handed off by the next tables.
    pub(super) fn keep(&mut self, frame: Frame, ends: Ends, ingress: PortId) {
        self.push(frame, ends, ingress, self.own);
    }

    /// The packets, in order.
    pub(super) fn out(&mut self) -> &mut VecDeque<Handoff> {
        &mut self.out
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.on.len() + self.from.len()) * size_of::<Option<u16>>()
            + self.out.capacity() * size_of::<Handoff>()
    }
}
