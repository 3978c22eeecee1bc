//! Packets of queues: which leaf they wait in, and for which instance.

use std::collections::{HashMap, HashSet};

use config::did_you_mean;
use wire::Dscp;

use super::{Node, Trees};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{MeterScope, Queue, Scheduler};
use crate::validate::{In, Validator};
use crate::word::dscp_name;

impl Validator<'_> {
    /// Reports unknown classes, and packets for which a tree has two leaves.
    pub(super) fn packets(&mut self, trees: &Trees) {
        let known: HashSet<&str> = self.policy.classes.iter().map(|class| class.name.as_str()).collect();
        let mut classes: HashMap<(usize, &str), &Node> = HashMap::new();
        let mut points: HashMap<(usize, u8), &Node> = HashMap::new();
        let mut rest: HashMap<usize, &Node> = HashMap::new();
        for node in trees.ordered() {
            for (index, name) in node.queue.classes.iter().enumerate() {
                let at = In { item: node.item, key: "class", index };
                if !known.contains(name.as_str()) {
                    self.unknown_class(at, name);
                } else if node.is_leaf() {
                    let first = *classes.entry((node.root, name)).or_insert(node);
                    self.two_leaves(trees, at, [first, node], &format!("the class \"{name}\""));
                }
            }
            if !node.is_leaf() {
                continue;
            }
            for (index, phb) in node.queue.phbs.iter().enumerate() {
                let at = In { item: node.item, key: "phb", index };
                let of = (0..64_u8).filter(|point| phb.code_points() & 1 << point != 0);
                let twice = of.fold(None, |twice, point| {
                    let first = *points.entry((node.root, point)).or_insert(node);
                    twice.or((!std::ptr::eq(first, node)).then_some((first, point)))
                });
                if let Some((first, point)) = twice {
                    let name = Dscp::new(point).and_then(dscp_name).map_or(point.to_string(), str::to_owned);
                    self.two_leaves(trees, at, [first, node], &format!("the code point {name}"));
                }
            }
            if node.has_rest() && !self.lines.is_broken(node.item) {
                let first = *rest.entry(node.root).or_insert(node);
                let at = In { item: node.item, key: "name", index: 0 };
                self.two_leaves(trees, at, [first, node], "the rest of the packets");
            }
        }
    }

    /// Reports two leaves of one tree for the same packets, unless they are the same.
    fn two_leaves(&mut self, trees: &Trees, at: In<'_>, [first, second]: [&Node; 2], what: &str) {
        if std::ptr::eq(first, second) {
            return;
        }
        let message = format!(
            "{what} has two queues in \"{}\": \"{}\" and \"{}\"",
            trees.name_of(second),
            first.queue.name,
            second.queue.name
        );
        let hint = match at.key {
            "name" => "write `class` or `phb` in one of them: a queue without either has the rest",
            _ => "name it in one of them only",
        };
        let diagnostic = Diagnostic::new(Code::AmbiguousQueue, message)
            .hint(hint)
            .at(self.lines.place_in(at.item, at.key, at.index))
            .and("the first", self.lines.place(first.item));
        self.report(diagnostic);
    }

    fn unknown_class(&mut self, at: In<'_>, name: &str) {
        if self.lines.any_broken(Item::Class(0)) {
            return;
        }
        let known = self.policy.classes.iter().map(|class| class.name.as_str());
        let hint = did_you_mean(name, known, || "add a [[class]] with that name".to_owned());
        self.wrong_in(Code::UnknownClass, at, format!("there is no class \"{name}\""), hint);
    }

    /// Reports trees without a leaf for the packets that none of their leaves names.
    pub(super) fn rest(&mut self, trees: &Trees) {
        let mut points: HashMap<usize, u64> = HashMap::new();
        for leaf in trees.ordered().filter(|node| node.is_leaf()) {
            let all = |phbs: u64| if leaf.has_rest() { u64::MAX } else { phbs };
            let phbs = leaf.queue.phbs.iter().fold(0, |points, phb| points | phb.code_points());
            *points.entry(leaf.root).or_default() |= all(phbs);
        }
        for root in trees.ordered().filter(|node| node.queue.is_root()) {
            if points.get(&root.root) == Some(&u64::MAX) {
                continue;
            }
            let name = &root.queue.name;
            let message = format!("packets of no class have no queue in \"{name}\"");
            let hint = match root.is_leaf() {
                true => {
                    "leave `class` and `phb` out: the queue is the only one, and has all packets".to_owned()
                }
                false => format!("add a [[queue]] with in = \"{name}\", without `class` and `phb`"),
            };
            let place = self.lines.place(root.item);
            self.report(Diagnostic::new(Code::NoQueue, message).hint(hint).at(place));
        }
    }

    /// Reports instances within instances, those of flows that nobody tracks, and more nodes than there may be.
    pub(super) fn scopes(&mut self, trees: &Trees) {
        // Of each node, the node at or above it with instances.
        let mut scoped: Vec<Option<usize>> = vec![None; trees.nodes.len()];
        let mut counts: HashMap<usize, u64> = HashMap::new();
        let (mut flows, mut most_flows) = (0_u64, (0, 0));
        for index in trees.order.iter().copied() {
            let node = &trees.nodes[index];
            let outer = node.parent.and_then(|parent| scoped[parent]);
            let has_own = node.queue.per != MeterScope::All;
            scoped[index] = outer.or(has_own.then_some(index));
            if let Some(outer) = outer.filter(|_| has_own) {
                let outer = &trees.nodes[outer].queue.name;
                let message = format!("`per` of \"{}\" is within that of \"{outer}\"", node.queue.name);
                let hint = "there are instances at one level from the root to a leaf: leave one of them out";
                self.wrong(Code::BadQueueTree, node.item, "per", message, hint);
            }
            if node.queue.per == MeterScope::Flow && self.is_stateless() {
                let message = "a stateless policy knows no flows".to_owned();
                let hint = "write per = \"source\", scheduler = \"fq\", or mode = \"stateful\"";
                self.wrong(Code::NeedsStateful, node.item, "per", message, hint);
            }
            let instances = scoped[index].map_or(1, |scoped| trees.nodes[scoped].queue.instances.into());
            let root = &trees.nodes[node.root].queue;
            let interfaces = (root.on.len() + root.from.len()) as u64;
            if node.is_leaf() && node.queue.scheduler == Some(Scheduler::Fq) {
                let own = interfaces.saturating_mul(instances).saturating_mul(node.queue.flows.into());
                flows = flows.saturating_add(own);
                if own > most_flows.0 {
                    most_flows = (own, index);
                }
            }
            let count = counts.entry(scoped[index].unwrap_or(node.root)).or_default();
            *count = count.saturating_add(interfaces.saturating_mul(instances));
        }
        let total = counts.values().fold(0, |total: u64, count| total.saturating_add(*count));
        // At the place that has most of them: of several, the first.
        let most = counts.iter().max_by_key(|(index, count)| (**count, std::cmp::Reverse(**index)));
        if let Some((index, _)) = most.filter(|_| total > Queue::MOST_NODES) {
            let message = format!("{total} queues, instances counted, are more than {}", Queue::MOST_NODES);
            let item = trees.nodes[*index].item;
            self.wrong(Code::TooMany, item, "instances", message, "write fewer `instances`");
        } else if flows > Queue::MOST_FLOW_QUEUES {
            let message = format!(
                "{flows} queues for flows, instances counted, are more than {}",
                Queue::MOST_FLOW_QUEUES
            );
            let item = trees.nodes[most_flows.1].item;
            self.wrong(
                Code::TooMany,
                item,
                "scheduler",
                message,
                "write fewer `flows`, or fewer `instances`",
            );
        }
    }
}

impl Node {
    /// True for a leaf of all packets that no other leaf of the tree has.
    fn has_rest(&self) -> bool {
        self.is_leaf() && self.queue.classes.is_empty() && self.queue.phbs.is_empty()
    }
}
