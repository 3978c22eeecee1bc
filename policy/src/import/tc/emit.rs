//! The policy: trees, the classes of their packets, and interfaces.
//!
//! A packet has one class, and may pass two trees: that of its incoming interface and that of the outgoing one. Where both have
//! classes, there is one for each pair.

use std::collections::HashSet;

use wire::{Dscp, LinkKind};

use super::ledger::Ledger;
use super::tree::{Entry, Forest, Node, Tree, is_ip, label};
use crate::import::cond::Cond;
use crate::import::conditions;
use crate::import::emit::zone;
use crate::import::name::Unique;
use crate::import::note::{NoteKind, Why};
use crate::import::range::ByteSet;
use crate::import::{Import, MOST_RULES};
use crate::model::{
    AddressItem, AddressRange, Addresses, Class, Conditions, Interface, Mode, Phb, Queue, Scheduler, Shape,
};

/// Side of an interface, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Outgoing packets.
    On(u16),
    /// Incoming packets.
    From(u16),
}

/// The policy in the making.
#[derive(Default)]
pub(super) struct Emit {
    pub(super) forest: Forest,
    pub(super) shapes: Vec<Shape>,
    interfaces: Vec<Interface>,
    interface_names: Unique,
    roots: Vec<usize>,
    /// Leaves of all packets that no other leaf has.
    rests: HashSet<usize>,
    /// Packets of trees of incoming packets, and of policers; and of those of outgoing packets.
    incoming: Vec<Entry>,
    outgoing: Vec<Entry>,
    class_names: Unique,
    classes: Vec<Class>,
}

impl Emit {
    /// Adds an interface, and returns its index and its name.
    pub(super) fn interface(&mut self, device: &str, ledger: &mut Ledger) -> (u16, String) {
        let name = self.interface_names.name(&label(device));
        if name != device {
            let kind = NoteKind::Renamed { name: device.to_owned(), interface: name.clone() };
            ledger.note(None, kind);
        }
        let mut interface = Interface::new(&name, &zone(&name));
        if is_ip(device) {
            interface.link = LinkKind::Ip;
        }
        self.interfaces.push(interface);
        // More devices than that have no names.
        let index = u16::try_from(self.interfaces.len() - 1).unwrap_or(u16::MAX);
        (index, name)
    }

    /// Adds the packets of a side: those of policers, and those of the leaves of a tree.
    pub(super) fn entries(
        &mut self,
        side: Side,
        policed: Vec<Entry>,
        tree: Option<Tree>,
        ledger: &mut Ledger,
    ) {
        let mut entries = match tree {
            Some(tree) => self.tree(tree),
            None => Vec::new(),
        };
        if !policed.is_empty() {
            entries = product(&policed, &entries, ledger);
        }
        for entry in &mut entries {
            match side {
                Side::On(index) => entry.cond.outward = Some(vec![index]),
                Side::From(index) => entry.cond.inward = Some(vec![index]),
            }
        }
        match side {
            Side::On(_) => self.outgoing.extend(entries),
            Side::From(_) => self.incoming.extend(entries),
        }
    }

    /// Gives the leaves of a tree their code points, or returns the packets that need a class.
    fn tree(&mut self, Tree { root, mut entries }: Tree) -> Vec<Entry> {
        self.roots.push(root);
        for entry in &mut entries {
            for node in &mut entry.nodes {
                *node = self.leaf_of(*node);
            }
        }
        // Nothing comes after what all packets match.
        if let Some(all) = entries.iter().position(|entry| is_all(&entry.cond)) {
            entries.truncate(all + 1);
        }
        let rest = entries.last().and_then(|entry| entry.nodes.first().copied()).unwrap_or(root);
        self.rests.insert(rest);
        let is_plain = |entry: &Entry| entry.meter.is_none() && entry.mark.is_none();
        let is_by_point = entries.iter().all(|entry| is_plain(entry) && is_all(&of_any_point(&entry.cond)));
        let mut reached = vec![rest];
        if is_by_point {
            let mut points: Vec<(usize, u64)> = Vec::new();
            for point in 0..64_u8 {
                let first = entries.iter().find(|entry| entry.cond.dscp.contains(point));
                let Some(node) = first.and_then(|entry| entry.nodes.first().copied()) else { continue };
                match points.iter_mut().find(|(of, _)| *of == node) {
                    Some((_, points)) => *points |= 1 << point,
                    None => points.push((node, 1 << point)),
                }
            }
            for (node, points) in points.into_iter().filter(|(node, _)| *node != rest) {
                self.forest.nodes[node].queue.phbs = phbs(points);
                reached.push(node);
            }
            entries.clear();
        } else {
            reached.extend(entries.iter().flat_map(|entry| entry.nodes.iter().copied()));
            // Of the rest nobody needs to know more.
            if entries.last().is_some_and(is_plain) {
                entries.pop();
            }
        }
        reached.sort_unstable();
        reached.dedup();
        self.prune(root, &reached);
        entries
    }

    /// Returns the last leaf in a node.
    fn leaf_of(&self, mut node: usize) -> usize {
        while let Some(child) = self.forest.nodes[node].children.last() {
            node = *child;
        }
        node
    }

    /// Removes leaves that no packet comes to, but for those that one may come to by means that there are none of here.
    fn prune(&mut self, root: usize, reached: &[usize]) {
        let mut order = vec![root];
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            order.extend(&self.forest.nodes[node].children);
            at += 1;
        }
        for node in order.into_iter().rev() {
            if node == root
                || !self.forest.nodes[node].children.is_empty()
                || reached.binary_search(&node).is_ok()
            {
                continue;
            }
            // Others get a class in the end.
            if self.forest.nodes[node].is_kept {
                continue;
            }
            if let Some(parent) = self.forest.nodes[node].parent {
                self.forest.nodes[parent].children.retain(|child| *child != node);
            }
        }
    }

    /// Fills in the policy.
    pub(super) fn close(mut self, ledger: &mut Ledger, import: &mut Import) {
        let incoming = std::mem::take(&mut self.incoming);
        let outgoing = std::mem::take(&mut self.outgoing);
        let entries = product(&incoming, &outgoing, ledger);
        for entry in entries {
            self.class(entry, ledger);
        }
        for root in self.roots.clone() {
            self.fill_in(root, ledger);
        }
        let policy = &mut import.policy;
        if self.classes.is_empty() {
            policy.mode = Mode::Stateful;
        } else {
            policy.mode = Mode::Stateless;
            ledger.note(None, NoteKind::EachPacket);
        }
        let used: HashSet<&str> = self.classes.iter().filter_map(|class| class.meter.as_deref()).collect();
        let meters = std::mem::take(&mut self.forest.meters);
        policy.meters = meters.into_iter().filter(|meter| used.contains(meter.name.as_str())).collect();
        policy.classes = std::mem::take(&mut self.classes);
        policy.queues = self.queues();
        policy.shapes = self.shapes;
        if self.interfaces.is_empty() {
            ledger.note(None, NoteKind::NoInterfaces);
        } else {
            ledger.note(None, NoteKind::Zones);
            ledger.note(None, NoteKind::QueuesOnly);
        }
        for interface in &self.interfaces {
            ledger.note(None, NoteKind::FillInAddresses { interface: interface.name.clone() });
        }
        policy.interfaces = self.interfaces;
    }

    /// Adds the class of packets, to the leaves that they wait in.
    fn class(&mut self, entry: Entry, ledger: &mut Ledger) {
        let report = |ledger: &mut Ledger, why| {
            // Conditions that no filter wrote are on code points alone, which are sound.
            if let Some(object) = entry.object {
                ledger.miss(object, why);
            }
        };
        if self.classes.len() >= MOST_RULES {
            return report(ledger, Why::TooMany);
        }
        if let Err(why) = conditions::sound(&entry.cond) {
            return report(ledger, why);
        }
        let cond = &entry.cond;
        let zones = |interfaces: &Option<Vec<u16>>| -> Vec<String> {
            let indices = interfaces.iter().flatten();
            indices
                .filter_map(|index| self.interfaces.get(usize::from(*index)))
                .map(|of| of.zone.clone())
                .collect()
        };
        let (v4, v6) = conditions::families(cond);
        let source = conditions::addresses(&cond.source, v4, v6);
        let destination = conditions::addresses(&cond.destination, v4, v6);
        let (from, to) = (zones(&cond.inward), zones(&cond.outward));
        let conditions = Conditions { from, to, ..conditions::conditions(cond, source, destination) };
        let wanted = match (entry.nodes.first(), &entry.meter) {
            (Some(node), _) => self.forest.nodes[*node].queue.name.clone(),
            (None, Some(meter)) => meter.clone(),
            (None, None) => "pass".to_owned(),
        };
        let name = self.class_names.name(&wanted);
        for node in entry.nodes.iter().filter(|node| !self.rests.contains(node)) {
            self.forest.nodes[*node].queue.classes.push(name.clone());
        }
        self.classes.push(Class {
            name,
            conditions,
            meter: entry.meter,
            mark: entry.mark,
            ..Class::default()
        });
    }

    /// Gives leaves that no class leads to one whose conditions are to be filled in.
    fn fill_in(&mut self, root: usize, ledger: &mut Ledger) {
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            open.extend(self.forest.nodes[node].children.iter().rev());
            let Node { queue, children, object, .. } = &self.forest.nodes[node];
            let is_led_to = !queue.classes.is_empty() || !queue.phbs.is_empty() || self.rests.contains(&node);
            if is_led_to || !children.is_empty() {
                continue;
            }
            ledger.miss(*object, Why::NoFilter);
            let name = self.class_names.name(&queue.name);
            // No packet comes from there.
            let nowhere = AddressRange::single(std::net::Ipv4Addr::UNSPECIFIED.into());
            let source = Addresses { items: vec![AddressItem::Range(nowhere)], except: false };
            let conditions = Conditions { source, ..Conditions::default() };
            self.classes.push(Class { name: name.clone(), conditions, ..Class::default() });
            self.forest.nodes[node].queue.classes.push(name);
        }
    }

    /// Returns the queues of all trees, parents first.
    fn queues(&mut self) -> Vec<Queue> {
        let mut queues = Vec::new();
        let mut names = Unique::default();
        let mut order: Vec<usize> = self.roots.iter().rev().copied().collect();
        while let Some(node) = order.pop() {
            let name = names.name(&self.forest.nodes[node].queue.name);
            for child in self.forest.nodes[node].children.clone().into_iter().rev() {
                self.forest.nodes[child].queue.parent = Some(name.clone());
                order.push(child);
            }
            let is_leaf = self.forest.nodes[node].children.is_empty();
            let queue = &mut self.forest.nodes[node].queue;
            queue.name = name;
            // A node whose children were too deep, or for no packets.
            if is_leaf && queue.scheduler != Some(Scheduler::Fq) {
                (queue.scheduler, queue.quantum) = (None, None);
            }
            queues.push(queue.clone());
        }
        queues
    }
}

/// Packets of either list, and of both: the first of `first` that matches, and the first of `second`.
fn product(first: &[Entry], second: &[Entry], ledger: &mut Ledger) -> Vec<Entry> {
    let mut all = Vec::new();
    for one in first {
        if all.len() >= MOST_RULES {
            one.object.into_iter().for_each(|object| ledger.miss(object, Why::TooMany));
            continue;
        }
        for other in second {
            let Some(both) = one.and(other) else { continue };
            if one.meter.is_some() && other.meter.is_some() {
                other
                    .object
                    .into_iter()
                    .for_each(|object| ledger.miss(object, Why::Feature("a second police".to_owned())));
            }
            all.push(both);
        }
        all.push(one.clone());
    }
    all.extend(second.iter().cloned());
    all
}

/// The condition, whatever the code point.
fn of_any_point(cond: &Cond) -> Cond {
    Cond { dscp: ByteSet::ALL, ..cond.clone() }
}

/// True for the condition of all packets.
fn is_all(cond: &Cond) -> bool {
    *cond == Cond::default()
}

/// Per-hop behaviours of a set of code points: classes of assured forwarding together.
fn phbs(points: u64) -> Vec<Phb> {
    let mut phbs = Vec::new();
    let mut left = points;
    for point in 0..64_u8 {
        if left & 1 << point == 0 {
            continue;
        }
        let assured = Phb::Af(point / 8);
        let is_assured = (1..=4).contains(&(point / 8)) && point % 8 != 0;
        let phb = match is_assured && assured.code_points() & left == assured.code_points() && point % 8 == 2
        {
            true => Some(assured),
            false => Dscp::new(point).map(Phb::of),
        };
        if let Some(phb) = phb {
            left &= !phb.code_points();
            phbs.push(phb);
        }
    }
    phbs
}
