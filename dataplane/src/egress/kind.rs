//! Settings of a node as the packet path reads them, half a cache line.

use policy::model::{Dropper, Overhead};

use super::packets::NONE;
use crate::tables::{LeafSettings, NO_NODE, NodeKind, QueueNode, QueueTree};

/// Settings of a node.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Kind {
    /// Bytes that the node may send in its turn.
    pub(super) quantum: u32,
    /// Weight among its siblings.
    pub(super) weight: u32,
    /// Most bytes of a leaf.
    limit_bytes: u64,
    /// Most packets of a leaf.
    limit: u32,
    /// Place of the instances that the node is one of; [`NONE`] if there is one for all.
    pub(super) group: u32,
    /// Bytes counted beside an IP packet.
    beside: u16,
    /// Bytes that a shorter IP packet is padded to.
    least: u8,
    /// Units that are carried.
    carried: Carried,
    /// Priority among its siblings.
    pub(super) priority: u8,
    /// Work of the node.
    pub(super) work: Work,
    /// Work of its parent.
    pub(super) above: Above,
}

/// Work of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Deficit round robin among its children.
    Drr,
    /// Start-time fair queueing among its children.
    Wfq,
    /// First in, first out; bounded by its limits alone.
    Fifo,
    /// First in, first out, with active queue management.
    Managed,
    /// Queues inside: of flows, or the two of DualPI2.
    Divided,
}

/// Scheduler that a node is served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    /// None: the node is the root.
    Nothing,
    /// Deficit round robin.
    Drr,
    /// Start-time fair queueing.
    Wfq,
}

/// Units in which packets are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Bytes,
    /// Cells of ATM.
    Cells,
    /// Codewords of PTM.
    Codewords,
}

impl Kind {
    /// The settings of all nodes of a tree, by place.
    pub(super) fn all(settings: &QueueTree) -> Vec<Kind> {
        let mut groups = 0;
        let mut all: Vec<Kind> = Vec::with_capacity(settings.nodes.len());
        for (place, node) in (0..).zip(&settings.nodes) {
            let group = match node.within {
                NO_NODE => NONE,
                within if within == place => {
                    groups += 1;
                    groups - 1
                }
                // The nodes of a subtree stand behind its first.
                within => all.get(within as usize).map_or(NONE, |within| within.group),
            };
            let above = match settings.nodes.get(node.parent as usize).map(|parent| &parent.kind) {
                None => Above::Nothing,
                Some(NodeKind::Wfq) => Above::Wfq,
                Some(_) => Above::Drr,
            };
            all.push(Kind::new(node, group, above));
        }
        all
    }

    fn new(node: &QueueNode, group: u32, above: Above) -> Kind {
        let (work, limit, limit_bytes) = match &node.kind {
            NodeKind::Drr => (Work::Drr, 0, 0),
            NodeKind::Wfq => (Work::Wfq, 0, 0),
            NodeKind::Leaf(leaf) => (Work::of(leaf), leaf.limit, leaf.limit_bytes),
        };
        let (carried, least, beside) = match node.overhead {
            Overhead::Fixed(beside) => (Carried::Bytes, 0, beside),
            Overhead::Ethernet(beside) => (Carried::Bytes, Overhead::ETHERNET_LEAST, beside),
            Overhead::Atm(beside) => (Carried::Cells, 0, beside),
            Overhead::Ptm(beside) => (Carried::Codewords, 0, beside),
        };
        Kind {
            quantum: node.quantum,
            weight: node.weight,
            limit_bytes,
            limit,
            group,
            beside: beside.0.min(u16::MAX.into()) as u16,
            least,
            carried,
            priority: node.priority,
            work,
            above,
        }
    }

    /// A kind of nodes that count an overhead, and have nothing else.
    #[cfg(test)]
    pub(super) fn counting(overhead: Overhead) -> Kind {
        let node = QueueNode {
            name: String::new(),
            parent: NO_NODE,
            size: 1,
            per: policy::model::MeterScope::All,
            instances: 1,
            within: NO_NODE,
            kind: NodeKind::Drr,
            priority: 0,
            weight: 1,
            quantum: 1,
            guarantee: None,
            rate: None,
            burst: None,
            overhead,
        };
        Kind::new(&node, NONE, Above::Nothing)
    }

    /// Bytes that are counted for an IP packet of that length: [`Overhead::count`].
    #[inline(always)]
    pub(super) fn counted(&self, length: u32) -> u32 {
        let bytes = length.max(self.least.into()) + u32::from(self.beside);
        match self.carried {
            Carried::Bytes => bytes,
            Carried::Cells => bytes.div_ceil(48) * 53,
            Carried::Codewords => bytes + bytes.div_ceil(64),
        }
    }

    /// True if a leaf that has so many packets and bytes has no room for one more packet of `length` bytes.
    #[inline(always)]
    pub(super) fn is_over(&self, packets: u32, bytes: u64, length: u32) -> bool {
        packets >= self.limit || bytes + u64::from(length) > self.limit_bytes
    }

    /// True if a leaf has no room for a packet of `length` bytes even when it is empty.
    pub(super) fn is_too_small(&self, length: u32) -> bool {
        self.is_over(0, 0, length)
    }
}

impl Work {
    fn of(leaf: &LeafSettings) -> Work {
        match leaf.drop {
            _ if leaf.is_divided() => Work::Divided,
            Dropper::Tail => Work::Fifo,
            _ => Work::Managed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::Bytes;

    use super::*;

    proptest! {
        /// The compiled overhead counts what the policy's does.
        #[test]
        fn bytes_are_counted_as_the_policy_says(length in 0_u32..65_536, bytes in 0_u64..=256, kind in 0_usize..4) {
            let overheads: [fn(Bytes) -> Overhead; 4] =
                [Overhead::Fixed, Overhead::Ethernet, Overhead::Atm, Overhead::Ptm];
            let overhead = overheads[kind](Bytes(bytes));
            let compiled = Kind::counting(overhead);
            prop_assert_eq!(u64::from(compiled.counted(length)), overhead.count(length.into()));
        }
    }
}
