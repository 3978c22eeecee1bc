//! Placement of a frame: the leaves of trees that it waits in, for reports on its way.

use std::sync::Arc;

use wire::{Frame, PortId};

use crate::stage::header;
use crate::stage::queue::ingress;
use crate::tables::{QueueTree, QueueTrees};

/// Leaf of a tree, by the interface of the tree and the place of the leaf's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafPlace {
    /// Interface that the packet comes by, or leaves by.
    pub port: PortId,
    /// Place among the nodes of the tree.
    pub leaf: u32,
    /// True in DualPI2's queue of low latency.
    pub is_low_latency: bool,
}

/// Leaves that a frame waits in, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// In the tree of packets that come by its interface.
    pub from: Option<LeafPlace>,
    /// In the tree of packets that leave by its port.
    pub on: Option<LeafPlace>,
}

impl Placement {
    /// Returns the leaves of a frame that has been queued: its egress is a port.
    pub fn of(frame: &Frame, trees: &QueueTrees) -> Placement {
        if trees.is_empty() {
            return Placement::default();
        }
        let dscp = header::code_point(frame);
        let place = |port: PortId, tree: Option<&Arc<QueueTree>>| {
            tree.map(|tree| {
                let leaf = tree.leaf(frame.meta.class, dscp);
                LeafPlace { port, leaf, is_low_latency: tree.is_dual(leaf) && came_low_latency(frame) }
            })
        };
        let (from, on) = (ingress(frame, trees), frame.meta.egress);
        Placement { from: place(from, trees.from(from)), on: place(on, trees.on(on)) }
    }
}

/// True for a packet of L4S when it came (RFC 9331): a mark of the classic queue does not make it one.
fn came_low_latency(frame: &Frame) -> bool {
    frame.meta.ds_field & 1 != 0
}

/// Returns the bytes of the IP packet in a frame, as queues count them.
pub fn ip_length(frame: &Frame) -> u32 {
    header::ip_length(frame)
}

/// True if a frame that was not marked "congestion experienced" (RFC 3168) when it came is marked now.
pub fn is_marked(frame: &Frame) -> bool {
    const CONGESTION: u8 = 3;
    let now = header::ds_field(frame) & CONGESTION;
    now == CONGESTION && frame.meta.ds_field & CONGESTION != CONGESTION
}
