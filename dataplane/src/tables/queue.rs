//! Trees of queues of compiled tables.

use std::sync::Arc;

use policy::model::{Dropper, Isolation, MeterScope, Overhead, RedThreshold, TreeWorkers};
use wire::{BitRate, Bytes, Dscp, Meta, Nanos, PortId};

/// No node.
pub const NO_NODE: u32 = u32::MAX;

/// The trees of queues: before interfaces that packets leave by, and behind those that packets come by.
#[derive(Clone, Debug, Default)]
pub struct QueueTrees {
    /// Trees by the interface that packets leave by.
    pub on: Vec<Option<Arc<QueueTree>>>,
    /// Trees by the interface that packets come by.
    pub from: Vec<Option<Arc<QueueTree>>>,
    /// True if there are any trees.
    pub(crate) has_any: bool,
    /// True if packets' addresses and ports decide on queues.
    pub(crate) needs_ends: bool,
    /// Interfaces with a tree that one worker serves, ascending.
    owned: Vec<PortId>,
    /// Interfaces with a tree of packets that come by them, by the number of the tree, from 1.
    numbered: Vec<PortId>,
}

/// A tree of queues: what to build for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTree {
    /// Nodes; a parent stands before its children, and the root is the first.
    pub nodes: Vec<QueueNode>,
    /// For each class, from 0 for none, the leaf of its packets; [`NO_NODE`] where the code point decides.
    pub by_class: Vec<u32>,
    /// For each code point, the leaf of packets whose class has none.
    pub by_dscp: [u32; 64],
    /// Longest IP packet.
    pub longest: Bytes,
    /// Most packets that wait in the tree.
    pub capacity: u32,
    /// True if a leaf is shared by flow or host, or a node has instances: addresses count.
    pub needs_ends: bool,
    /// Workers that serve it, where there are several.
    pub workers: TreeWorkers,
}

/// A node of a tree of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNode {
    /// Name.
    pub name: String,
    /// Place of its parent; [`NO_NODE`] of the root.
    pub parent: u32,
    /// Number of nodes of the subtree, itself counted; they stand in a row.
    pub size: u32,
    /// Instances: one, or one for each flow, address or prefix.
    pub per: MeterScope,
    /// Most instances.
    pub instances: u32,
    /// Place of the node with instances that this one is in or is; [`NO_NODE`] if there is one for all.
    pub within: u32,
    /// Work of the node.
    pub kind: NodeKind,
    /// Priority among its siblings, from 0.
    pub priority: u8,
    /// Weight among its siblings.
    pub weight: u32,
    /// Bytes that it may send in its turn among its siblings.
    pub quantum: u32,
    /// Guaranteed rate.
    pub guarantee: Option<BitRate>,
    /// Ceiling.
    pub rate: Option<BitRate>,
    /// Bytes that may be sent at once after a pause.
    pub burst: Option<Bytes>,
    /// Overhead that is counted with a packet.
    pub overhead: Overhead,
}

/// Work of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Deficit round robin among its children, within each priority.
    Drr,
    /// Start-time fair queueing among its children, within each priority.
    Wfq,
    /// A leaf, where packets wait.
    Leaf(LeafSettings),
}

/// Bounds and dropper of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSettings {
    /// Queues for flows; `None` for one of all.
    pub fq: Option<FqSettings>,
    /// Most packets.
    pub limit: u32,
    /// Most bytes.
    pub limit_bytes: u64,
    /// Active queue management.
    pub drop: Dropper,
    /// Thresholds of RED, by drop precedence.
    pub red: [RedThreshold; 3],
    /// Time of a full packet at the rate of the leaf, by which RED's average falls while it is empty.
    pub idle: Nanos,
    /// Target of CoDel, PIE or DualPI2.
    pub target: Nanos,
    /// Interval of CoDel; longest round trip of DualPI2.
    pub interval: Nanos,
    /// Delay from which DualPI2 marks all packets of low latency.
    pub step: Nanos,
    /// Coupling of DualPI2.
    pub coupling: u32,
    /// Mark in the place of drops, where the transport can.
    pub ecn: bool,
    /// Longest IP packet: a queue of no more is no standing queue.
    pub longest: Bytes,
}

/// Fair queueing in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqSettings {
    /// Number of queues for flows, a power of two.
    pub flows: u32,
    /// Hosts that share before their flows.
    pub isolate: Isolation,
    /// Bytes of a flow's turn.
    pub quantum: u32,
}

impl LeafSettings {
    /// True if there are several queues inside of the leaf.
    #[inline(always)]
    pub(crate) fn is_divided(&self) -> bool {
        self.fq.is_some() || self.drop == Dropper::DualPi2
    }
}

impl QueueTrees {
    /// The tree of packets that leave by an interface.
    #[inline(always)]
    pub fn on(&self, port: PortId) -> Option<&Arc<QueueTree>> {
        self.on.get(usize::from(port.0))?.as_ref()
    }

    /// The tree of packets that come by an interface.
    #[inline(always)]
    pub fn from(&self, port: PortId) -> Option<&Arc<QueueTree>> {
        self.from.get(usize::from(port.0))?.as_ref()
    }

    /// Number of the tree of packets that come by an interface, for [`Meta::outer_tree`](wire::Meta::outer_tree); 0 for none.
    #[inline]
    pub(crate) fn number(&self, port: PortId) -> u8 {
        let place = self.numbered.iter().position(|numbered| *numbered == port);
        place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0)
    }

    /// Interface of a tree of that number.
    #[inline]
    pub(crate) fn interface(&self, number: u8) -> Option<PortId> {
        self.numbered.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// Interface by whose tree of incoming packets a received packet goes: its ingress; if that is a tunnel without a tree, the one that
    /// the outer packet came by.
    #[inline(always)]
    pub fn ingress(&self, meta: &Meta) -> PortId {
        let has_outer = meta.outer_tree != 0 && self.from(meta.ingress).is_none();
        let outer = if has_outer { self.interface(meta.outer_tree) } else { None };
        outer.unwrap_or(meta.ingress)
    }

    /// Frames that may wait before all of `ports`, of which one without a tree has a queue of `limit`.
    pub fn most_waiting(&self, ports: usize, limit: u32) -> u32 {
        let on = (0..ports).map(|port| match self.on.get(port) {
            // Arrivals, and those that wait for the scheduler.
            Some(Some(tree)) => tree.capacity.saturating_add(limit),
            _ => limit,
        });
        let from = self.from.iter().flatten().map(|tree| tree.capacity.saturating_add(limit));
        on.chain(from).fold(0, u32::saturating_add)
    }

    /// Trees by interface of each direction.
    pub(crate) fn new(on: Vec<Option<Arc<QueueTree>>>, from: Vec<Option<Arc<QueueTree>>>) -> QueueTrees {
        let has_from = from.iter().any(Option::is_some);
        let needs_ends = on.iter().chain(&from).flatten().any(|tree| tree.needs_ends);
        let has_any = has_from || on.iter().any(Option::is_some);
        let is_owned = |tree: &Option<Arc<QueueTree>>| {
            tree.as_ref().is_some_and(|tree| tree.workers == TreeWorkers::One)
        };
        let owned = (0..).map(PortId).zip(on.iter().zip(&from));
        let owned = owned.filter(|(_, (on, from))| is_owned(on) || is_owned(from)).map(|(port, _)| port);
        let owned = owned.collect();
        let numbered = (0..).map(PortId).zip(&from).filter(|(_, tree)| tree.is_some());
        let numbered = numbered.map(|(port, _)| port).collect();
        QueueTrees { has_any, needs_ends, owned, numbered, on, from }
    }

    /// Returns the worker, of so many, that serves a tree of an interface: both trees of one interface have the same, and interfaces
    /// take turns. `None` if each serves one of its own.
    pub fn owner(&self, port: PortId, tree: &QueueTree, workers: u16) -> Option<u16> {
        if tree.workers == TreeWorkers::Divided || workers < 2 {
            return None;
        }
        let place = self.owned.iter().position(|owned| *owned == port)?;
        Some((place % usize::from(workers)) as u16)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        !self.has_any
    }
}

impl QueueNode {
    /// True of a leaf with two queues: DualPI2's.
    pub fn is_dual(&self) -> bool {
        matches!(&self.kind, NodeKind::Leaf(leaf) if leaf.drop == Dropper::DualPi2)
    }
}

impl QueueTree {
    /// Place of the leaf for packets of a class and code point.
    #[inline(always)]
    pub fn leaf(&self, class: u16, dscp: Dscp) -> u32 {
        match self.by_class.get(usize::from(class)) {
            Some(leaf) if *leaf != NO_NODE => *leaf,
            _ => self.by_dscp[usize::from(dscp.value()) % 64],
        }
    }

    /// True if a leaf has two queues: DualPI2's.
    pub fn is_dual(&self, leaf: u32) -> bool {
        self.nodes.get(leaf as usize).is_some_and(QueueNode::is_dual)
    }
}
