//! Queues: their places in trees. Templates and shapes are written out before.

use std::collections::{HashMap, HashSet};

use config::did_you_mean;

use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::expand::{Origin, written};
use crate::lines::Item;
use crate::model::{Policy, Queue, Scheduler};

mod effect;
mod key;
mod packet;
mod rate;

/// All trees of a policy.
struct Trees {
    nodes: Vec<Node>,
    /// Indices of the nodes of trees, parents first. Nodes that are in themselves are missing.
    order: Vec<usize>,
}

/// A node of a tree.
struct Node {
    queue: Queue,
    item: Item,
    origin: Origin,
    parent: Option<usize>,
    children: Vec<usize>,
    /// Root of the tree: a node without parent, if only because its parent is unknown.
    root: usize,
    /// Level, from 1, the root's.
    level: usize,
}

impl Validator<'_> {
    pub(super) fn queues(&mut self) {
        let mut trees = Trees::of(self.policy);
        let before = self.diagnostics.len();
        self.places(&trees);
        self.cycles(&trees);
        self.levels(&trees);
        self.priorities_of(&trees);
        self.interfaces_of(&trees);
        self.beside_tunnels(&trees);
        self.shapes();
        // What is in the wrong place is missed in the right one.
        let is_placed = self.diagnostics.len() == before && !self.lines.any_broken(Item::Queue(0));
        trees.order.retain(|index| trees.nodes[*index].level <= Queue::MOST_LEVELS);
        self.keys(&trees);
        self.scopes(&trees);
        self.packets(&trees);
        if is_placed {
            self.rest(&trees);
        }
        self.rates_of_queues(&trees);
        self.sizes_of_queues(&trees);
        self.thresholds(&trees);
        self.vlans_of_shapes(&trees);
        self.flows_of_tunnels(&trees);
    }

    /// Reports nodes that are not at exactly one place, and places that are unknown.
    fn places(&mut self, trees: &Trees) {
        for node in trees.of_file() {
            let (queue, item) = (&node.queue, node.item);
            let places = [
                ("on", !queue.on.is_empty()),
                ("from", !queue.from.is_empty()),
                ("in", queue.parent.is_some()),
            ];
            let given: Vec<&str> = places.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
            match given[..] {
                [] if self.lines.is_broken(item) => {}
                [] => {
                    let message = format!("\"{}\" is before no interface and in no other queue", queue.name);
                    self.wrong(config::Code::MissingKey, item, "name", message, PLACE);
                }
                [_] => {}
                [first, second, ..] => {
                    let message = format!("`{second}` has no meaning beside `{first}`");
                    self.wrong(config::Code::MisplacedKey, item, second, message, PLACE);
                }
            }
            if let Some(parent) =
                queue.parent.as_deref().filter(|_| node.parent.is_none() && !queue.is_root())
            {
                self.unknown_queue(item, parent);
            }
        }
    }

    fn unknown_queue(&mut self, item: Item, name: &str) {
        if self.lines.any_broken(Item::Queue(0)) {
            return;
        }
        let known = self.policy.queues.iter().map(|queue| queue.name.as_str());
        let hint = did_you_mean(name, known, || "add a [[queue]] with that name".to_owned());
        self.wrong(Code::UnknownQueue, item, "in", format!("there is no queue \"{name}\""), hint);
    }

    /// Reports one node of each cycle.
    fn cycles(&mut self, trees: &Trees) {
        let mut seen: HashSet<usize> = trees.order.iter().copied().collect();
        for start in 0..trees.nodes.len() {
            let mut path = Vec::new();
            let mut next = start;
            while seen.insert(next) {
                path.push(next);
                // A node outside the trees has a parent: without one it would be a root.
                next = trees.nodes[next].parent.unwrap_or(next);
            }
            if path.contains(&next) {
                let node = &trees.nodes[next];
                let message = format!("\"{}\" is in itself", node.queue.name);
                let hint = "the first queue of a tree is `on` or `from` interfaces";
                self.wrong(Code::BadQueueTree, node.item, "in", message, hint);
            }
        }
    }

    /// Reports the first node of each tree that is too far from the root.
    fn levels(&mut self, trees: &Trees) {
        let mut deep = HashSet::new();
        for node in trees.order.iter().map(|index| &trees.nodes[*index]) {
            if node.level > Queue::MOST_LEVELS && deep.insert(node.root) {
                let message = format!(
                    "\"{}\" is at level {} of its tree, and there are {} at most",
                    node.queue.name,
                    node.level,
                    Queue::MOST_LEVELS
                );
                let hint = "put it into a queue nearer to the root";
                self.wrong(Code::BadQueueTree, node.item, "in", message, hint);
            }
        }
    }

    /// Reports strict queues with more children than there are priorities.
    fn priorities_of(&mut self, trees: &Trees) {
        let most = usize::from(Queue::PRIORITIES);
        let is_over =
            |node: &&Node| node.queue.scheduler == Some(Scheduler::Strict) && node.children.len() > most;
        for node in trees.nodes.iter().filter(is_over) {
            let message = format!(
                "{} queues are in \"{}\", and there are {most} priorities",
                node.children.len(),
                node.queue.name
            );
            let hint = "put some of them into a queue of their own in it";
            self.wrong(Code::BadQueueTree, node.item, "scheduler", message, hint);
        }
    }

    /// Reports unknown interfaces of roots, those whose frames another one's port carries, and those of two trees.
    fn interfaces_of(&mut self, trees: &Trees) {
        let mut first: HashMap<(&str, &str), Item> = HashMap::new();
        for node in &trees.nodes {
            let on = node.queue.on.iter().enumerate().map(|(index, name)| ("on", index, name));
            let from = node.queue.from.iter().enumerate().map(|(index, name)| ("from", index, name));
            for (key, index, name) in on.chain(from) {
                let at = In { item: node.item, key, index };
                if !self.known_interface(at, name) {
                    continue;
                }
                if key == "on" && self.policy.interface(name).is_some_and(|own| own.esp.is_some()) {
                    let message = format!("\"{name}\" has no queue of its own: it is a tunnel");
                    let hint = format!(
                        "its packets wait at the interface that leads to the peer: write a [[class]] with out = \"{name}\""
                    );
                    self.wrong_in(Code::BadQueueTree, at, message, hint);
                    continue;
                }
                if let Some(port) = self.port_of(name).filter(|_| key == "on") {
                    let message =
                        format!("\"{name}\" has no queue of its own: its frames leave by \"{port}\"");
                    let hint = match node.origin {
                        Origin::Shape => format!("write [shape.{port}]"),
                        _ => format!("write on = \"{port}\", and a [[class]] with out = \"{name}\""),
                    };
                    self.wrong_in(Code::BadQueueTree, at, message, hint);
                    continue;
                }
                if let Some(other) = first.insert((key, name), node.item) {
                    let message = format!("\"{name}\" has two trees of queues {key} it");
                    let diagnostic = Diagnostic::new(Code::BadQueueTree, message)
                        .hint("put all queues into one tree, whose root is written once; a shape has a tree each way")
                        .at(self.lines.place_in(node.item, key, index))
                        .and("the first", self.lines.place(other));
                    self.report(diagnostic);
                }
            }
        }
    }

    /// Reports the first interface too many whose tree packets out of tunnels may belong in.
    fn beside_tunnels(&mut self, trees: &Trees) {
        if self.policy.interfaces.iter().all(|interface| interface.esp.is_none()) {
            return;
        }
        let from =
            trees.nodes.iter().flat_map(|node| (0..node.queue.from.len()).map(|index| (node.item, index)));
        if let Some((item, index)) = from.clone().nth(Queue::MOST_FROM_BESIDE_TUNNELS) {
            let most = Queue::MOST_FROM_BESIDE_TUNNELS;
            let message =
                format!("beside tunnels {most} interfaces have a tree of what comes from them, at most");
            let hint = "leave out the trees that are needed least";
            self.wrong_in(Code::BadQueueTree, In { item, key: "from", index }, message, hint);
        }
    }

    /// Reports shapes of unknown interfaces.
    fn shapes(&mut self) {
        for (index, shape) in self.policy.shapes.iter().enumerate() {
            let at = In { item: Item::Shape(index), key: "", index: 0 };
            self.known_interface(at, &shape.interface);
        }
    }

    /// Interface whose port carries the frames of the VLAN `name`; `None` for an interface with a port of its own.
    fn port_of(&self, name: &str) -> Option<&str> {
        let parent = |name: &str| self.policy.interface(name)?.parent.as_deref();
        // A VLAN in a VLAN in a VLAN is an error elsewhere, and may be its own parent.
        let mut port = parent(name)?;
        for _ in 0..2 {
            port = parent(port).unwrap_or(port);
        }
        Some(port)
    }
}

/// Hint for a node that is not at exactly one place.
const PLACE: &str =
    "the root of a tree is `on` interfaces, or `from` interfaces; any other queue is `in` its parent";

impl Trees {
    fn of(policy: &Policy) -> Trees {
        let mut nodes: Vec<Node> = written(policy)
            .into_iter()
            .enumerate()
            .map(|(index, written)| Node {
                queue: written.queue,
                item: written.item,
                origin: written.origin,
                parent: None,
                children: Vec::new(),
                root: index,
                level: 1,
            })
            .collect();
        let mut named: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            named.entry(&node.queue.name).or_insert(index);
        }
        let parent = |node: &Node| {
            let parent = node.queue.parent.as_deref().filter(|_| !node.queue.is_root());
            parent.and_then(|parent| named.get(parent).copied())
        };
        let parents: Vec<Option<usize>> = nodes.iter().map(parent).collect();
        for (index, parent) in parents.iter().enumerate() {
            nodes[index].parent = *parent;
            parent.iter().for_each(|parent| nodes[*parent].children.push(index));
        }
        let mut order: Vec<usize> = (0..nodes.len()).filter(|index| parents[*index].is_none()).collect();
        let mut at = 0;
        while let Some(index) = order.get(at).copied() {
            let (root, level) = (nodes[index].root, nodes[index].level + 1);
            for child in nodes[index].children.clone() {
                (nodes[child].root, nodes[child].level) = (root, level);
                order.push(child);
            }
            at += 1;
        }
        Trees { nodes, order }
    }

    /// Nodes that the file has, in its order.
    fn of_file(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.origin == Origin::File)
    }

    /// Nodes of trees, parents first.
    fn ordered(&self) -> impl Iterator<Item = &Node> {
        self.order.iter().map(|index| &self.nodes[*index])
    }

    /// Name of the tree that a node is of: its root's.
    fn name_of(&self, node: &Node) -> &str {
        &self.nodes[node.root].queue.name
    }
}

impl Node {
    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

#[cfg(test)]
mod tests;
