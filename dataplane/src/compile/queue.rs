//! Compilation of trees of queues.

use std::collections::HashMap;
use std::sync::Arc;

use policy::Policy;
use policy::model::{Dropper, MeterScope, Overhead, Queue, RedThreshold, Scheduler};
use wire::{BitRate, Bytes, Nanos};

use super::names::Names;
use crate::tables::{
    ClassEntry, CompileError, FqSettings, LeafSettings, NO_NODE, NodeKind, QueueNode, QueueTree, QueueTrees,
};

/// Bytes of a turn where the policy says none: a full frame of Ethernet.
const QUANTUM: u64 = 1_514;

/// Most bytes of a turn: a deficit has 32 bits.
const MOST_QUANTUM: u64 = 1 << 30;

/// Most packets that wait in a tree, if the policy's limit is not higher.
const CAPACITY: u64 = 16_384;

/// The trees of a policy.
pub(super) fn compile(
    policy: &Policy,
    names: &Names,
    classes: &[ClassEntry],
) -> Result<QueueTrees, CompileError> {
    let queues = policy::expand::queues(policy);
    let mut children: HashMap<&str, Vec<&Queue>> = HashMap::new();
    for queue in &queues {
        if let Some(parent) = &queue.parent {
            children.entry(parent).or_default().push(queue);
        }
    }
    let places = classes.iter().enumerate().map(|(place, entry)| (entry.name.as_str(), place));
    let classes: HashMap<&str, usize> = places.collect();
    let none = || vec![None; policy.interfaces.len()];
    let (mut on, mut from) = (none(), none());
    for root in queues.iter().filter(|queue| queue.is_root()) {
        let tree = Arc::new(tree(root, &children, policy, &classes));
        for (list, interfaces) in [(&mut on, &root.on), (&mut from, &root.from)] {
            for name in interfaces {
                let place = names.interface(name)?;
                if let Some(entry) = list.get_mut(usize::from(place.0)) {
                    *entry = Some(Arc::clone(&tree));
                }
            }
        }
    }
    Ok(QueueTrees::new(on, from))
}

/// Node to compile: its queue, and its parent's compiled settings.
struct Open<'a> {
    queue: &'a Queue,
    parent: u32,
    priority: u8,
    overhead: Overhead,
    quantum: u64,
    within: u32,
    /// Least rate of those above.
    rate: Option<BitRate>,
}

fn tree(
    root: &Queue,
    children: &HashMap<&str, Vec<&Queue>>,
    policy: &Policy,
    classes: &HashMap<&str, usize>,
) -> QueueTree {
    let longest = longest(policy);
    let mut nodes: Vec<QueueNode> = Vec::new();
    let mut by_class = vec![NO_NODE; classes.len() + 1];
    let (mut by_dscp, mut rest) = ([NO_NODE; 64], NO_NODE);
    let mut parent = NO_NODE;
    if root.per != MeterScope::All {
        // Its instances share the interface.
        parent = 0;
        nodes.push(QueueNode {
            name: root.name.clone(),
            parent: NO_NODE,
            size: 1,
            per: MeterScope::All,
            instances: 1,
            within: NO_NODE,
            kind: NodeKind::Drr,
            priority: 0,
            weight: 1,
            quantum: QUANTUM as u32,
            guarantee: None,
            rate: None,
            burst: None,
            overhead: root.overhead.unwrap_or(Overhead::ETHERNET),
        });
    }
    // The last is taken first: the nodes of a subtree stand in a row.
    let mut open = vec![Open {
        queue: root,
        parent,
        priority: 0,
        overhead: Overhead::ETHERNET,
        quantum: QUANTUM,
        within: NO_NODE,
        rate: root.on.first().and_then(|port| policy.interface(port)?.rate),
    }];
    while let Some(Open { queue, parent, priority, overhead, quantum, within, rate }) = open.pop() {
        let place = nodes.len() as u32;
        let inside = children.get(queue.name.as_str()).map_or(&[][..], Vec::as_slice);
        let overhead = queue.overhead.unwrap_or(overhead);
        let rate = rate.into_iter().chain(queue.rate).min();
        let within = if queue.per == MeterScope::All { within } else { place };
        let kind = match queue.scheduler {
            _ if inside.is_empty() => NodeKind::Leaf(leaf(queue, policy, overhead, rate)),
            Some(Scheduler::Wfq) => NodeKind::Wfq,
            _ => NodeKind::Drr,
        };
        if inside.is_empty() {
            for class in queue.classes.iter().filter_map(|class| classes.get(class.as_str())) {
                by_class[class + 1] = place;
            }
            let points = queue.phbs.iter().fold(0, |points, phb| points | phb.code_points());
            for (point, leaf) in by_dscp.iter_mut().enumerate().filter(|(point, _)| points >> point & 1 == 1)
            {
                debug_assert!(point < 64);
                *leaf = place;
            }
            if queue.classes.is_empty() && queue.phbs.is_empty() {
                rest = place;
            }
        }
        nodes.push(QueueNode {
            name: queue.name.clone(),
            parent,
            size: 1,
            per: queue.per,
            instances: queue.instances,
            within,
            kind,
            priority,
            weight: queue.weight,
            quantum: (quantum * u64::from(queue.weight)).min(MOST_QUANTUM) as u32,
            guarantee: queue.guarantee,
            rate: queue.rate,
            burst: queue.burst,
            overhead,
        });
        let turn = queue.quantum.map_or(QUANTUM, |quantum| quantum.0);
        for (rank, child) in inside.iter().enumerate().rev() {
            let is_strict = queue.scheduler == Some(Scheduler::Strict);
            // `validate` has seen that there are as many.
            let priority =
                if is_strict { rank.min(usize::from(Queue::PRIORITIES) - 1) as u8 } else { child.priority };
            open.push(Open { queue: child, parent: place, priority, overhead, quantum: turn, within, rate });
        }
    }
    for place in (1..nodes.len()).rev() {
        let (size, parent) = (nodes[place].size, nodes[place].parent);
        nodes[parent as usize].size += size;
    }
    for leaf in by_dscp.iter_mut().filter(|leaf| **leaf == NO_NODE) {
        *leaf = rest;
    }
    let needs_ends = nodes.iter().any(|node| {
        node.per != MeterScope::All || matches!(&node.kind, NodeKind::Leaf(leaf) if leaf.fq.is_some())
    });
    let capacity = capacity(&nodes, policy.limits.queue);
    QueueTree { nodes, by_class, by_dscp, longest, capacity, needs_ends, workers: root.workers }
}

/// Number of packets that a tree has room for.
fn capacity(nodes: &[QueueNode], limit: u32) -> u32 {
    let instances = |node: &QueueNode| // One more is for those that find none left.
        nodes.get(node.within as usize).map_or(1, |within| u64::from(within.instances) + 1);
    let leaves = nodes.iter().map(|node| match &node.kind {
        NodeKind::Leaf(leaf) => u64::from(leaf.limit) * instances(node),
        NodeKind::Drr | NodeKind::Wfq => 0,
    });
    leaves.sum::<u64>().min(CAPACITY.max(limit.into())).max(1) as u32
}

/// The longest packet that an interface carries.
fn longest(policy: &Policy) -> Bytes {
    let mtus = policy.interfaces.iter().map(|interface| u64::from(interface.mtu));
    Bytes(mtus.max().unwrap_or(0))
}

/// Rate of a leaf that nothing bounds, for RED alone: packets wait there only behind a device.
const UNBOUNDED: BitRate = BitRate(1_000_000_000);

/// Time of so many bytes.
fn time_of(bytes: Bytes, rate: BitRate) -> Nanos {
    let nanos = u128::from(bytes.0) * 8_000_000_000 / u128::from(rate.0.max(1));
    Nanos(nanos.clamp(1, u64::MAX.into()) as u64)
}

fn leaf(queue: &Queue, policy: &Policy, overhead: Overhead, rate: Option<BitRate>) -> LeafSettings {
    let limit = queue.limit.unwrap_or(policy.limits.queue);
    // Half of the queue and a quarter, where the policy says nothing (Floyd and Jacobson: max at least twice min).
    let default = RedThreshold { min: limit / 4, max: (limit / 2).max(limit / 4 + 1), per_mille: 100 };
    let red = match queue.red.as_slice() {
        [] => [default; 3],
        [one] => [*one; 3],
        [green, yellow, red, ..] => [*green, *yellow, *red],
        [green, red] => [*green, *red, *red],
    };
    let target = match queue.drop {
        Dropper::Pie | Dropper::DualPi2 => Nanos::from_millis(15),
        _ => Nanos::from_millis(5),
    };
    let fq = (queue.scheduler == Some(Scheduler::Fq)).then(|| FqSettings {
        flows: queue.flows,
        isolate: queue.isolate,
        quantum: queue.quantum.map_or(QUANTUM, |quantum| quantum.0).min(MOST_QUANTUM) as u32,
    });
    LeafSettings {
        fq,
        limit,
        limit_bytes: queue.limit_bytes.map_or(u64::MAX, |bytes| bytes.0),
        drop: queue.drop,
        red,
        idle: time_of(Bytes(overhead.count(longest(policy).0)), rate.unwrap_or(UNBOUNDED)),
        target: queue.target.unwrap_or(target),
        interval: queue.interval.unwrap_or(Nanos::from_millis(100)),
        step: queue.step.unwrap_or(Nanos::from_millis(1)),
        coupling: queue.coupling,
        // L4S is marks.
        ecn: queue.ecn || queue.drop == Dropper::DualPi2,
        longest: longest(policy),
    }
}
