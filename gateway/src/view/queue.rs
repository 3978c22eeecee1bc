//! Views of queues.

use std::collections::HashMap;
use std::sync::Arc;

use dataplane::egress::{LeafCounts, TreeReport, TreeSide};
use dataplane::tables::{NO_NODE, QueueTree, QueueTrees};
use policy::model::{MeterScope, TreeWorkers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::PortId;

use super::Count;
use crate::request::Overview;

/// Queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    /// Name of the interface.
    pub interface: String,
    /// Frames queued now.
    pub waiting: usize,
    /// Capacity in frames, all workers together.
    pub capacity: usize,
    /// Worker that serves the interface's trees; none where there is but one worker, or each serves one of its own.
    #[serde(default)]
    pub worker: Option<u16>,
    /// Queues of the interface's trees; none where it has but one queue.
    pub queues: Vec<LeafView>,
}

/// Queue of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeafView {
    /// Name of the queue.
    pub name: String,
    /// `on`: of packets that leave by the interface; `from`: of those that come by it.
    pub side: String,
    /// Traffic classes whose packets wait here.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Packets that wait.
    pub waiting: u64,
    /// Bytes of IP packets that wait.
    pub waiting_bytes: u64,
    /// Packets sent, and their bytes.
    pub sent: Count,
    /// Packets dropped for want of room.
    pub dropped_full: u64,
    /// Packets dropped by active queue management.
    pub dropped_early: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Delays of packets sent.
    pub delay: DelayView,
    /// Distribution of the delays, where it is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<DelayCount>,
    /// Subscribers that have had queues in the tree.
    pub subscribers: usize,
}

/// Delays that a part of the packets did not exceed, in nanoseconds, to an eighth; 0 without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayView {
    /// Half of them.
    pub p50: u64,
    /// 90 %.
    #[serde(default)]
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// All of them.
    #[serde(default)]
    pub max: u64,
}

/// Number of packets whose delay was at most so long, and longer than that of the entry before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayCount {
    /// Delay in nanoseconds.
    pub ns: u64,
    /// Number of packets.
    pub packets: u64,
}

impl DelayView {
    /// Percentiles of a distribution.
    pub fn of(delays: &[DelayCount]) -> DelayView {
        let total: u64 = delays.iter().map(|entry| entry.packets).sum();
        let percentile = |per_cent: u64| {
            let rank = (u128::from(total) * u128::from(per_cent)).div_ceil(100).max(1) as u64;
            let mut seen = 0;
            let entry = delays.iter().find(|entry| {
                seen += entry.packets;
                seen >= rank
            });
            entry.map_or(0, |entry| entry.ns)
        };
        DelayView {
            p50: percentile(50),
            p90: percentile(90),
            p95: percentile(95),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

impl LeafView {
    /// Distribution of the delays since `before`, an earlier view of the same queue. Counts begin at zero after a restart.
    pub fn delays_since(&self, before: &LeafView) -> Vec<DelayCount> {
        let was =
            |ns: u64| before.delays.iter().find(|entry| entry.ns == ns).map_or(0, |entry| entry.packets);
        let since = |entry: &DelayCount| DelayCount {
            packets: entry.packets.saturating_sub(was(entry.ns)),
            ..*entry
        };
        self.delays.iter().map(since).filter(|entry| entry.packets > 0).collect()
    }
}

/// Number of subscribers that have had queues of a leaf: a leaf with instances, or one in a node with instances.
fn subscribers_of(tree: &TreeReport, leaf: u32) -> usize {
    let node = tree.settings.nodes.get(leaf as usize);
    node.filter(|node| node.within != NO_NODE).map_or(0, |_| tree.subscribers)
}

impl Overview {
    /// Queues, in the order of the policy's interfaces.
    pub fn queues(&self) -> Vec<QueueView> {
        let interfaces = self.tables.interfaces.iter().enumerate();
        interfaces
            .map(|(place, interface)| QueueView {
                interface: interface.name.clone(),
                waiting: self.reports.iter().filter_map(|report| report.queued.get(place)).sum(),
                capacity: self.capacity(place),
                worker: self.owner(place),
                queues: self.leaves(place),
            })
            .collect()
    }

    /// True if a queue of that name has instances for subscribers.
    pub(crate) fn has_subscribers(&self, name: &str) -> bool {
        let QueueTrees { on, from, .. } = &self.tables.queues;
        let mut nodes = on.iter().chain(from).flatten().flat_map(|tree| &tree.nodes);
        nodes.any(|node| node.name == name && node.per != MeterScope::All)
    }

    /// Frames that may wait for an interface.
    fn capacity(&self, place: usize) -> usize {
        let QueueTrees { on, from, .. } = &self.tables.queues;
        let tree = |list: &[Option<Arc<QueueTree>>]| {
            let tree = list.get(place).and_then(Option::as_ref)?;
            let trees = if tree.workers == TreeWorkers::One { 1 } else { self.reports.len() };
            Some(tree.capacity as usize * trees)
        };
        tree(on).unwrap_or(self.tables.limits.queue as usize * self.reports.len()) + tree(from).unwrap_or(0)
    }

    /// Worker that serves the trees of an interface.
    fn owner(&self, place: usize) -> Option<u16> {
        let queues = &self.tables.queues;
        let port = PortId(place as u16);
        let trees = [queues.on(port), queues.from(port)].into_iter().flatten();
        trees.filter_map(|tree| queues.owner(port, tree, self.reports.len() as u16)).next()
    }

    /// Queues of an interface's trees, all workers together.
    fn leaves(&self, place: usize) -> Vec<LeafView> {
        let mut sums: Vec<Leaf> = Vec::new();
        let mut places: HashMap<(TreeSide, String), usize> = HashMap::new();
        let trees = self.reports.iter().flat_map(|report| &report.trees);
        for tree in trees.filter(|tree| usize::from(tree.port.0) == place) {
            let mut classes = self.classes_by_leaf(&tree.settings);
            for (place, name, counts) in tree.placed_leaves() {
                let name = name.into_owned();
                let subscribers = subscribers_of(tree, place.leaf);
                let known = places.get(&(tree.side, name.clone())).copied();
                match known.and_then(|place| sums.get_mut(place)) {
                    Some(sum) => {
                        sum.counts.add(counts);
                        sum.subscribers += subscribers;
                    }
                    None => {
                        places.insert((tree.side, name.clone()), sums.len());
                        sums.push(Leaf {
                            side: tree.side,
                            name,
                            classes: classes.remove(&place.leaf).unwrap_or_default(),
                            counts: counts.clone(),
                            subscribers,
                        });
                    }
                }
            }
        }
        sums.into_iter().map(Leaf::view).collect()
    }

    /// Names of the classes of each leaf that has any.
    fn classes_by_leaf(&self, tree: &QueueTree) -> HashMap<u32, Vec<String>> {
        let list = &self.tables.classes.list;
        let mut classes: HashMap<u32, Vec<String>> = HashMap::new();
        for (class, leaf) in
            list.iter().zip(tree.by_class.iter().skip(1)).filter(|(_, leaf)| **leaf != NO_NODE)
        {
            classes.entry(*leaf).or_default().push(class.name.clone());
        }
        classes
    }
}

/// Leaf of all workers.
struct Leaf {
    side: TreeSide,
    name: String,
    classes: Vec<String>,
    counts: LeafCounts,
    subscribers: usize,
}

impl Leaf {
    fn view(self) -> LeafView {
        let Leaf { side, name, classes, counts, subscribers } = self;
        let delays: Vec<DelayCount> =
            counts.delays.buckets().map(|(ns, packets)| DelayCount { ns: ns.0, packets }).collect();
        LeafView {
            name,
            side: side.name().to_owned(),
            classes,
            waiting: counts.packets,
            waiting_bytes: counts.bytes,
            sent: Count { packets: counts.sent, bytes: counts.sent_bytes },
            dropped_full: counts.full,
            dropped_early: counts.early,
            marked: counts.marked,
            delay: DelayView::of(&delays),
            delays,
            subscribers,
        }
    }
}

#[cfg(test)]
mod tests {
    use dataplane::Tables;
    use dataplane::hop::Resolve;
    use dataplane::nat::Share;
    use dataplane::shard::{Setup, Shard};
    use dataplane::tables::NodeKind;
    use wire::Nanos;

    use super::*;

    /// A leaf beside those of subscribers has none, though its tree has.
    #[test]
    fn subscribers_are_those_of_leaves_with_instances() {
        let text = "[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
            [[queue]]\nname = \"root\"\non = \"wan\"\n\
            [[queue]]\nname = \"calls\"\nin = \"root\"\nphb = \"ef\"\n\
            [[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = 10\n\
            [[queue]]\nname = \"first\"\nin = \"subscriber\"\nphb = \"af11\"\n\
            [[queue]]\nname = \"rest\"\nin = \"subscriber\"\n\
            [[queue]]\nname = \"single\"\nin = \"root\"\nphb = \"cs6\"\nper = \"source\"\ninstances = 10\n";
        let policy = policy::check(text, "policy.toml").policy.expect("a sound policy");
        let tables = Tables::compile(&policy, 1).unwrap();
        let setup = Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::ByHost, share: Share::WHOLE };
        let shard = Shard::new(&tables, setup).unwrap();
        let mut tree = shard.egress.trees().next().expect("a tree");
        tree.subscribers = 7;
        let nodes = (0..).zip(&tree.settings.nodes);
        let leaves = nodes.filter(|(_, node)| matches!(node.kind, NodeKind::Leaf(_)));
        let mut found: Vec<(&str, usize)> =
            leaves.map(|(place, node)| (node.name.as_str(), subscribers_of(&tree, place))).collect();
        found.sort_unstable();
        assert_eq!(found, [("calls", 0), ("first", 7), ("rest", 7), ("single", 7)]);
    }
}
