//! Parts of the drawing: trees with what is drawn of each, alike ones as one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use config::quantity::bit_rate_text;
use policy::model::{Interface, MeterScope, Queue};
use policy::{Policy, Settings, expand};

use super::card;
use super::queue::{instances, lines};
use super::source::{ByCodePoint, Classes, Way};
use crate::screen::{self, count};
use crate::svg::{Card, Kind};

/// Siblings that are alike are one stack, if there are more of them.
const MOST_ALIKE: usize = 6;
/// Children of a node, stacks counted as one, that are drawn.
const MOST_CHILDREN: usize = 150;
/// Nodes of all trees together that are drawn.
const MOST_NODES: usize = 250;
/// Trees that are drawn.
const MOST_TREES: usize = 40;
/// Names that are listed.
pub(super) const MOST_NAMED: usize = 3;

/// All that is drawn.
pub(super) struct Parts {
    pub(super) list: Vec<Part>,
    /// Number of trees that are not.
    trees_left_out: usize,
}

/// One tree, or several that are alike.
pub(super) struct Part {
    pub(super) heading: String,
    pub(super) note: String,
    pub(super) root: Node,
    pub(super) port: Card,
    pub(super) by_code_point: Option<ByCodePoint>,
}

/// Node of a tree, or several that are alike.
pub(super) struct Node {
    pub(super) card: Card,
    /// Names of the queues that the node stands for.
    pub(super) names: Vec<String>,
    /// Parties that have instances of the node, and all that is in it.
    pub(super) instances: Option<String>,
    pub(super) children: Vec<Node>,
    /// Of a leaf: what comes to it.
    pub(super) sources: Vec<Source>,
}

/// Traffic class that comes to a leaf.
pub(super) struct Source {
    pub(super) class: Card,
    pub(super) meter: Option<Card>,
    /// Other leaves that packets of some colours go to.
    pub(super) also: Vec<String>,
}

impl Parts {
    /// Says which trees are not drawn.
    pub(super) fn left_out(&self) -> Option<String> {
        let trees = count(self.trees_left_out as u64, "more tree is", "more trees are");
        (self.trees_left_out > 0).then(|| format!("… {trees} not drawn"))
    }
}

/// Returns the parts of a sound policy.
pub(super) fn parts(policy: &Policy) -> Parts {
    let queues = expand::queues(policy);
    let mut children: HashMap<&str, Vec<&Queue>> = HashMap::new();
    for queue in &queues {
        if let Some(parent) = &queue.parent {
            children.entry(parent).or_default().push(queue);
        }
    }
    let mut builder = Builder { policy, children, classes: Classes::of(policy), left: MOST_NODES };
    // Roots that are alike, in their order.
    let mut alike: Vec<(u64, Vec<&Queue>)> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for root in queues.iter().filter(|queue| queue.is_root()) {
        let key = builder.key_of_root(root);
        match places.get(&key).and_then(|place| alike.get_mut(*place)) {
            Some((_, same)) => same.push(root),
            None => {
                places.insert(key, alike.len());
                alike.push((key, vec![root]));
            }
        }
    }
    let mut parts = Parts { list: Vec::new(), trees_left_out: 0 };
    for (_, roots) in &alike {
        if parts.list.len() == MOST_TREES || builder.left == 0 {
            parts.trees_left_out += roots.len();
            continue;
        }
        parts.list.extend(builder.part(roots));
    }
    parts
}

struct Builder<'a> {
    policy: &'a Policy,
    children: HashMap<&'a str, Vec<&'a Queue>>,
    classes: Classes<'a>,
    /// Nodes that may still be drawn.
    left: usize,
}

impl<'a> Builder<'a> {
    fn inside(&self, queue: &Queue) -> &[&'a Queue] {
        self.children.get(queue.name.as_str()).map_or(&[], Vec::as_slice)
    }

    fn interfaces(&self, root: &Queue) -> Vec<&'a Interface> {
        let names = root.on.iter().chain(&root.from);
        names.filter_map(|name| self.policy.interface(name)).collect()
    }

    /// Key of the settings of a queue and of all that is in it, but for names.
    fn key(&self, queue: &Queue) -> u64 {
        let mut hasher = DefaultHasher::new();
        let settings = queue.settings();
        let own = settings
            .iter()
            .filter(|setting| !["name", "on", "from", "in", "class", "phb"].contains(&setting.key.as_str()));
        own.for_each(|setting| setting.hash(&mut hasher));
        (queue.phbs.is_empty(), self.classes.key(&queue.classes)).hash(&mut hasher);
        self.inside(queue).iter().for_each(|child| self.key(child).hash(&mut hasher));
        hasher.finish()
    }

    /// [`Builder::key`] of a root, with what decides which classes come to it.
    fn key_of_root(&self, root: &Queue) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key(root), root.on.is_empty()).hash(&mut hasher);
        for interface in self.interfaces(root) {
            interface.zone.hash(&mut hasher);
            if self.classes.names_interfaces() {
                interface.name.hash(&mut hasher);
            }
        }
        let points: Vec<u64> = self.inside(root).iter().flat_map(|child| self.points(child)).collect();
        points.hash(&mut hasher);
        hasher.finish()
    }

    /// Code points of the leaves in a queue.
    fn points(&self, queue: &Queue) -> Vec<u64> {
        match self.inside(queue) {
            [] => vec![queue.phbs.iter().fold(0, |points, phb| points | phb.code_points())],
            children => children.iter().flat_map(|child| self.points(child)).collect(),
        }
    }

    fn part(&mut self, roots: &[&'a Queue]) -> Option<Part> {
        let root = *roots.first()?;
        let names: Vec<&str> =
            roots.iter().flat_map(|root| root.on.iter().chain(&root.from)).map(String::as_str).collect();
        let (side, about) = match root.on.is_empty() {
            false => ("on", "packets that leave by it"),
            true => ("from", "packets that come by it, before the queue of the interface that they leave by"),
        };
        let heading = format!("{side} {}", listed(&names));
        let note = match names.len() {
            1 => about.to_owned(),
            trees => format!("{about}; {} alike", count(trees as u64, "tree", "trees")),
        };
        let mut leaves = Vec::new();
        self.leaves(root, &mut leaves);
        let interfaces = self.interfaces(root);
        let way = self.classes.way(root.on.is_empty(), &interfaces, &leaves);
        let node = self.node(&[root], None, &way);
        let port = match (root.on.as_slice(), interfaces.as_slice()) {
            ([], _) => {
                let text = "the queue of the interface that the packet leaves by".to_owned();
                card(Kind::Port, "then", &[text])
            }
            (_, [interface]) => {
                let rate = interface.rate.map(|rate| format!("rate {}", bit_rate_text(rate.0)));
                card(Kind::Port, &interface.name, rate.as_slice())
            }
            (names, _) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                card(Kind::Port, &listed(&names), &["each a tree of its own".to_owned()])
            }
        };
        Some(Part { heading, note, root: node, port, by_code_point: way.by_code_point })
    }

    fn leaves(&self, queue: &'a Queue, leaves: &mut Vec<&'a Queue>) {
        match self.inside(queue) {
            [] => leaves.push(queue),
            children => children.iter().for_each(|child| self.leaves(child, leaves)),
        }
    }

    /// Node of queues that are alike. `order` is that among the children of a strict scheduler.
    fn node(&mut self, alike: &[&'a Queue], order: Option<usize>, way: &Way<'a>) -> Node {
        self.left = self.left.saturating_sub(1);
        let first = alike[0];
        let inside = self.inside(first).to_vec();
        let is_leaf = inside.is_empty();
        let names: Vec<&str> = alike.iter().map(|queue| queue.name.as_str()).collect();
        let mut text = lines(first, is_leaf, order, self.policy.limits.queue);
        let (title, kind) = (names[0], if is_leaf { Kind::Queue } else { Kind::Node });
        let own = match names.as_slice() {
            [_] => card(kind, title, &text),
            [.., last] => {
                text.retain(|line| !line.starts_with("phb "));
                text.insert(0, format!("and {} alike, to {last}", screen::number(names.len() as u64 - 1)));
                card(kind, title, &text).stacked()
            }
            [] => card(kind, title, &text),
        };
        let sources = if is_leaf { self.classes.sources(alike, way) } else { Vec::new() };
        Node {
            card: own,
            instances: (first.per != MeterScope::All).then(|| instances(first)),
            children: self.children_of(first, &inside, way),
            sources,
            names: names.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Nodes of the children of a queue.
    fn children_of(&mut self, parent: &Queue, inside: &[&'a Queue], way: &Way<'a>) -> Vec<Node> {
        let is_strict = parent.scheduler == Some(policy::model::Scheduler::Strict);
        let mut groups: Vec<(usize, Vec<&'a Queue>)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (place, child) in inside.iter().enumerate() {
            let key = self.key(child);
            match places.get(&key).and_then(|place| groups.get_mut(*place)) {
                Some((_, group)) => group.push(child),
                None => {
                    places.insert(key, groups.len());
                    groups.push((place, vec![child]));
                }
            }
        }
        // A few of a kind are drawn one by one, at their places.
        let mut drawn: Vec<(usize, Vec<&'a Queue>)> = Vec::new();
        let mut few: HashMap<&str, usize> = HashMap::new();
        for (place, child) in inside.iter().enumerate() {
            few.insert(child.name.as_str(), place);
        }
        for (place, group) in groups {
            if group.len() > MOST_ALIKE && !is_strict {
                drawn.push((place, group));
            } else {
                let each = group.into_iter().map(|child| (few[child.name.as_str()], vec![child]));
                drawn.extend(each);
            }
        }
        drawn.sort_by_key(|(place, _)| *place);
        let mut nodes = Vec::new();
        let mut left_out = 0;
        for (place, group) in drawn {
            if nodes.len() == MOST_CHILDREN || self.left == 0 {
                left_out += group.len();
                continue;
            }
            nodes.push(self.node(&group, is_strict.then_some(place), way));
        }
        if left_out > 0 {
            let title = format!("… {}", count(left_out as u64, "more queue", "more queues"));
            let text = ["not drawn one by one".to_owned()];
            let card = card(Kind::Rest, &title, &text);
            nodes.push(Node {
                card,
                names: Vec::new(),
                instances: None,
                children: Vec::new(),
                sources: Vec::new(),
            });
        }
        nodes
    }
}

/// The first names, and the number of the others.
pub(super) fn listed(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(MOST_NAMED).collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), screen::number(more as u64)),
    }
}
