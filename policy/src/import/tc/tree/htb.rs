//! Hierarchical token bucket: rates become guarantees, ceilings become rates.
//!
//! A class that has no parent has nobody to borrow from, and so no more than its rate. One with classes in it passes on at least
//! what they are promised, as in the kernel, which looks at the rate of a class only when it lends. A priority is a leaf's; its
//! parents have the first of theirs. Shares of what is lent are by quantum, of an inner class by the sum of its leaves'.

use std::collections::HashMap;

use wire::{BitRate, Bytes};

use super::{Builder, Entry, MOST_ENTRIES, Policed};
use crate::import::cond::Cond;
use crate::import::note::{NoteKind, Why};
use crate::import::tc::filter::Filter;
use crate::import::tc::option::Options;
use crate::import::tc::source::{Parent, Verb};
use crate::import::tc::unit::{self, Handle};
use crate::model::{Meter, Queue};

/// Bounds of a quantum that the kernel computes.
const QUANTA: [u64; 2] = [1_000, 200_000];

/// Bytes that tc gives a bucket without a burst: a packet, and what the rate brings in a nanosecond.
const BURST: u64 = 1_600;

/// A class.
#[derive(Debug)]
struct Class {
    object: usize,
    handle: Handle,
    children: Vec<usize>,
    rate: u64,
    ceil: u64,
    quantum: u64,
    /// Origin of the quantum.
    quantum_from: QuantumFrom,
    burst: u64,
    ceil_burst: u64,
    /// Options of the size of packets.
    sizes: Options,
    /// First priority among the leaves, and true if there are others.
    first: u8,
    is_mixed: bool,
    /// Rate that the class is promised, with all in it.
    promised: u64,
    node: Option<usize>,
    /// Node that its packets wait in where the tree has no level for its own.
    above: Option<usize>,
}

/// Origin of the quantum of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantumFrom {
    /// The source has it, or a command leaves it to the kernel.
    Source,
    /// The rate: the source is a listing without details, which lacks it.
    Rate,
}

/// The classes of a qdisc.
struct Classes {
    list: Vec<Class>,
    /// Classes without a parent.
    roots: Vec<usize>,
    by_handle: HashMap<Handle, usize>,
}

/// Targets of filters.
struct Finder<'a> {
    handle: Handle,
    classes: &'a Classes,
    /// Filters by their place.
    filters: HashMap<Parent, Vec<Filter>>,
    /// Packets within each leaf class.
    inner: &'a HashMap<usize, Vec<Entry>>,
    /// Packets that no filter leads to a leaf.
    rest: Vec<Entry>,
    direct: Option<usize>,
}

/// Filters that a packet has met on its path to a leaf.
#[derive(Clone, Copy)]
struct Descent<'a> {
    /// Conditions of all of them.
    cond: &'a Cond,
    /// Number of inner classes that they have led to.
    depth: usize,
}

impl Builder<'_> {
    pub(super) fn htb(&mut self, qdisc: usize, slot: usize) -> Vec<Entry> {
        let object = &self.ledger.objects[qdisc];
        let handle = object.handle.unwrap_or(Handle { major: 0, minor: 0 });
        let mut options = Options::of("htb", &object.words);
        let r2q = options.number(&["r2q"]);
        let r2q = self.taken(qdisc, r2q).and_then(|r2q| u64::try_from(r2q).ok()).filter(|r2q| *r2q > 0);
        let default = options.word(&["default"]).and_then(|word| unit::hex(&word));
        let direct_limit = options.size(&["direct_qlen"]);
        let direct_limit = self.taken(qdisc, direct_limit);
        // Statistics, the version of the kernel's part, and work for the card.
        options.word(&["direct_packets_stat"]);
        options.word(&["ver"]);
        options.word(&["debug"]);
        options.flag("offload");
        let most = u64::from(Queue::MOST_LIMIT);
        let direct_limit = direct_limit.map(|limit| options.within("direct_qlen", limit, 1..=most) as u32);
        self.rest(qdisc, &options);
        self.ledger.translated(qdisc);

        let mut classes = self.classes(handle, r2q.unwrap_or(10));
        let default = default
            .and_then(|minor| u16::try_from(minor).ok())
            .and_then(|minor| classes.by_handle.get(&Handle { minor, ..handle }))
            .copied()
            .filter(|default| classes.list[*default].children.is_empty());
        let filters = self.filters_of(qdisc, handle);
        let is_sent_direct = filters.values().flatten().any(|filter| filter.target == Some(handle));
        let needs_direct = default.is_none() || is_sent_direct;
        let queue = &self.forest.nodes[slot].queue;
        let is_free = queue.rate.is_none() && queue.guarantee.is_none();
        let mut direct = None;
        match classes.roots[..] {
            [only] if is_free && !needs_direct => {
                classes.list[only].node = Some(slot);
                self.forest.nodes[slot].object = classes.list[only].object;
            }
            _ => {
                if needs_direct {
                    direct = self.child(slot, &format!("{handle}direct"), qdisc);
                    if let Some(direct) = direct {
                        self.node(direct).limit = direct_limit;
                    }
                    self.ledger.note(Some(qdisc), NoteKind::Direct);
                }
                for root in classes.roots.clone() {
                    let name = classes.list[root].handle.to_string();
                    classes.list[root].node = self.child(slot, &name, classes.list[root].object);
                }
                let roots = classes.roots.clone();
                self.shares(slot, &roots, &classes, u8::from(direct.is_some()));
            }
        }
        let above = self.ceiling(slot).map_or(u64::MAX, |rate| rate.0);
        for root in classes.roots.clone() {
            // Without a parent, what is above the rate is nobody's to lend.
            if classes.list[root].ceil > classes.list[root].rate {
                self.ledger.note(Some(classes.list[root].object), NoteKind::NothingToBorrow);
            }
            let class = &mut classes.list[root];
            class.ceil = class.ceil.min(class.rate).min(above);
            class.promised = class.promised.min(class.ceil);
            class.ceil_burst = class.ceil_burst.min(class.burst);
            class.burst = class.ceil_burst;
        }
        let roots = classes.roots.clone();
        let most = self.forest.nodes[slot].queue.guarantee.map_or(above, |rate| rate.0);
        self.bound(qdisc, &roots, &mut classes, most);
        for root in roots {
            self.class(root, slot, &mut classes);
        }
        let mut inner: HashMap<usize, Vec<Entry>> = HashMap::new();
        for (index, class) in classes.list.iter().enumerate().filter(|(_, class)| class.children.is_empty()) {
            let Some(node) = class.node.or(class.above) else { continue };
            self.forest.nodes[node].is_kept |= node != slot;
            let entries = match class.node {
                Some(node) => self.place_at(class.handle, node),
                None => vec![Entry::all(node)],
            };
            inner.insert(index, entries);
        }
        let rest = default.and_then(|default| inner.get(&default).cloned());
        let rest = rest.or_else(|| direct.map(|direct| vec![Entry::all(direct)]));
        let mut rest = rest.unwrap_or_else(|| vec![Entry::all(slot)]);
        let finder = Finder { handle, classes: &classes, filters, inner: &inner, rest: rest.clone(), direct };
        let mut out = Vec::new();
        let descent = Descent { cond: &Cond::default(), depth: 0 };
        self.classify(&finder, Parent::Of(handle), descent, &mut out);
        out.append(&mut rest);
        out
    }

    /// Filters of the qdisc and of its classes; those at the root of the device are of the root qdisc.
    fn filters_of(&self, qdisc: usize, handle: Handle) -> HashMap<Parent, Vec<Filter>> {
        let is_root = self.ledger.objects[qdisc].parent == Parent::Root;
        let mut filters: HashMap<Parent, Vec<Filter>> = HashMap::new();
        for filter in self.filters {
            let parent = match filter.parent {
                Parent::Of(of) if of.qdisc() == handle => Parent::Of(of),
                Parent::Root if is_root => Parent::Of(handle),
                _ => continue,
            };
            filters.entry(parent).or_default().push(filter.clone());
        }
        filters
    }

    /// Reads the classes of a qdisc, and finds their places.
    fn classes(&mut self, qdisc: Handle, r2q: u64) -> Classes {
        let mut classes = Classes { list: Vec::new(), roots: Vec::new(), by_handle: HashMap::new() };
        for object in self.device.classes.iter().copied() {
            let of = &self.ledger.objects[object];
            let is_own = |handle: &Handle| handle.qdisc() == qdisc && of.kind == "htb";
            let Some(handle) = of.handle.filter(is_own) else { continue };
            if let Some(class) = self.read(object, handle, r2q) {
                classes.by_handle.insert(handle, classes.list.len());
                classes.list.push(class);
            }
        }
        for index in 0..classes.list.len() {
            let object = classes.list[index].object;
            match self.ledger.objects[object].parent {
                Parent::Root => classes.roots.push(index),
                Parent::Of(parent) if parent == qdisc => classes.roots.push(index),
                Parent::Of(parent) => match classes.by_handle.get(&parent).copied() {
                    Some(parent) => classes.list[parent].children.push(index),
                    None => self.ledger.miss(object, Why::Missing(parent.to_string())),
                },
                _ => self.ledger.miss(object, Why::Feature("a class without a parent".to_owned())),
            }
        }
        let seen = classes.settle();
        for class in classes.list.iter().zip(seen).filter(|(_, seen)| !seen).map(|(class, _)| class) {
            self.ledger.miss(class.object, Why::Feature("a class in none of the others".to_owned()));
        }
        classes
    }

    fn read(&mut self, object: usize, handle: Handle, r2q: u64) -> Option<Class> {
        let mut options = Options::of("htb", &self.ledger.objects[object].words);
        let rate = options.rate(&["rate"]);
        let rate = self.taken(object, rate).and_then(|rate| self.bit_rate(object, rate));
        let Some(rate) = rate else {
            self.ledger.miss(object, Why::Feature("a class without a rate".to_owned()));
            return None;
        };
        let ceil = options.rate(&["ceil"]);
        let ceil = self.taken(object, ceil).and_then(|ceil| self.bit_rate(object, ceil)).unwrap_or(rate);
        let prio = options.number(&["prio"]);
        let prio = self.taken(object, prio).unwrap_or(0).clamp(0, i64::from(Queue::PRIORITIES) - 1) as u8;
        let quantum = options.size(&["quantum"]);
        let quantum = self.taken(object, quantum).filter(|quantum| *quantum > 0);
        let is_shown = self.ledger.objects[object].verb == Verb::Is;
        let quantum_from =
            if is_shown && quantum.is_none() { QuantumFrom::Rate } else { QuantumFrom::Source };
        // No policy has a burst of more than that.
        let bursts = 0..=Meter::MOST_BURST;
        let burst = options.size(&["burst", "buffer", "maxburst"]);
        let burst = self.taken(object, burst).map(|burst| options.within("burst", burst, bursts.clone()));
        let ceil_burst = options.size(&["cburst", "cbuffer", "cmaxburst"]);
        let ceil_burst = self.taken(object, ceil_burst).map(|burst| options.within("cburst", burst, bursts));
        options.word(&["mtu"]);
        options.word(&["level"]);
        let sizes = options.clone();
        options.last(&["overhead", "linklayer", "mpu"]);
        self.rest(object, &options);
        self.ledger.translated(object);
        Some(Class {
            object,
            handle,
            children: Vec::new(),
            rate: rate.0,
            ceil: ceil.0,
            quantum: quantum.unwrap_or_else(|| (rate.0 / 8 / r2q).clamp(QUANTA[0], QUANTA[1])),
            quantum_from,
            burst: burst.unwrap_or(BURST),
            ceil_burst: ceil_burst.unwrap_or(BURST),
            sizes,
            first: prio,
            is_mixed: false,
            promised: rate.0,
            node: None,
            above: None,
        })
    }

    /// Fills in the node of a class within that of `above`, and makes those of the classes in it. A class without a node is too deep.
    fn class(&mut self, index: usize, above: usize, classes: &mut Classes) {
        let Some(node) = classes.list[index].node else { return self.too_deep(index, above, classes) };
        let class = &mut classes.list[index];
        let overhead = self.forest.nodes[node].overhead;
        let mut sizes = std::mem::take(&mut class.sizes);
        let (object, ceil, promised) = (class.object, class.ceil, class.promised);
        let (burst, ceil_burst) = (class.burst, class.ceil_burst);
        let own = self.overhead(object, &mut sizes, overhead);
        self.set_overhead(node, own);
        let longest = self.longest(node);
        let is_root = self.forest.nodes[node].parent.is_none();
        let queue = self.node(node);
        queue.rate = Some(BitRate(ceil));
        queue.guarantee = (!is_root && promised > 0).then_some(BitRate(promised));
        // Below that, they are what a queue has anyway.
        let usual = if is_root { 2 * longest } else { 3 * longest };
        let long = |bytes: u64| Some(bytes).filter(|bytes| *bytes > usual);
        queue.burst = long(ceil_burst).map(Bytes);
        if long(burst) != long(ceil_burst) {
            self.ledger.note(Some(object), NoteKind::OneBurst);
        }
        let children = classes.list[index].children.clone();
        if children.is_empty() {
            return;
        }
        if classes.list[index].is_mixed && !is_root {
            self.ledger.note(Some(object), NoteKind::MixedPriorities);
        }
        for child in children.iter().copied() {
            let name = classes.list[child].handle.to_string();
            let object = classes.list[child].object;
            classes.list[child].node = self.child(node, &name, object);
            let child = &mut classes.list[child];
            child.ceil = child.ceil.min(ceil);
            child.promised = child.promised.min(child.ceil);
        }
        self.shares(node, &children, classes, 0);
        // What is promised in it is bounded by what it is promised itself.
        self.bound(object, &children, classes, if is_root { ceil } else { promised });
        for child in children {
            self.class(child, node, classes);
        }
    }

    /// Lowers what siblings are promised to what there is.
    fn bound(&mut self, object: usize, siblings: &[usize], classes: &mut Classes, most: u64) {
        let sum: u128 = siblings.iter().map(|child| u128::from(classes.list[*child].promised)).sum();
        if sum <= u128::from(most) {
            return;
        }
        self.ledger.miss(object, Why::Oversubscribed);
        for child in siblings.iter().copied() {
            let part = u128::from(classes.list[child].promised) * u128::from(most) / sum;
            // A part of a rate, which has 64 bits.
            classes.list[child].promised = part as u64;
        }
    }

    /// Reports all in a class for which the tree has no level left. Their packets wait in the last node that there is.
    fn too_deep(&mut self, index: usize, above: usize, classes: &mut Classes) {
        let mut list = vec![index];
        while let Some(next) = list.pop() {
            let class = &mut classes.list[next];
            class.above = Some(above);
            list.extend(&class.children);
            if next != index {
                self.ledger.miss(class.object, Why::Levels);
            }
        }
    }

    /// Gives siblings their priorities, and those of one priority their weights: quanta, in terms of the greatest common divisor.
    fn shares(&mut self, parent: usize, siblings: &[usize], classes: &Classes, after: u8) {
        let mut counts = [0_usize; Queue::PRIORITIES as usize];
        siblings.iter().for_each(|index| counts[usize::from(classes.list[*index].first)] += 1);
        let is_shared = |class: &Class| counts[usize::from(class.first)] > 1;
        let of = || siblings.iter().map(|index| &classes.list[*index]).filter(|class| is_shared(class));
        if of().any(|class| class.quantum_from == QuantumFrom::Rate) {
            let device = self.device.name.clone();
            self.ledger.note(None, NoteKind::Quanta { device });
        }
        let quanta: Vec<u64> = of().map(|class| class.quantum.max(1)).collect();
        let most = quanta.iter().copied().max().unwrap_or(1);
        let divisor = quanta.iter().copied().fold(0, gcd).max(Queue::LEAST_QUANTUM.0);
        let divisor = divisor.max(most.div_ceil(u64::from(Queue::MOST_WEIGHT)));
        if !quanta.is_empty() {
            self.node(parent).quantum = Some(Bytes(divisor.min(Queue::MOST_QUANTUM.0)));
        }
        for class in siblings.iter().map(|index| &classes.list[*index]) {
            let Some(node) = class.node else { continue };
            let queue = self.node(node);
            queue.priority = (class.first + after).min(Queue::PRIORITIES - 1);
            if is_shared(class) {
                let weight = (class.quantum + divisor / 2) / divisor;
                queue.weight = weight.clamp(1, u64::from(Queue::MOST_WEIGHT)) as u32;
            }
        }
    }

    /// Appends the packets of each leaf: filters of one place, then those of the inner class that they lead to.
    fn classify(&mut self, finder: &Finder<'_>, place: Parent, descent: Descent<'_>, out: &mut Vec<Entry>) {
        for filter in finder.filters.get(&place).into_iter().flatten() {
            // Classes whose filters lead to each other multiply without bound.
            if out.len() >= MOST_ENTRIES {
                return self.ledger.miss(filter.object, Why::TooMany);
            }
            let Some(Policed { meter }) = self.policed(filter, self.header) else { continue };
            for part in &filter.conds {
                let Some(both) = descent.cond.and(part) else { continue };
                let leaf =
                    self.target(finder, filter, meter.is_some(), Descent { cond: &both, ..descent }, out);
                self.push(out, filter, &both, &leaf, meter.as_deref());
            }
        }
    }

    /// Packets within the leaf that a filter leads to; with an inner class, its own filters come first.
    fn target(
        &mut self,
        finder: &Finder<'_>,
        filter: &Filter,
        is_metered: bool,
        descent: Descent<'_>,
        out: &mut Vec<Entry>,
    ) -> Vec<Entry> {
        let rest = || finder.rest.clone();
        let Some(target) = filter.target else { return rest() };
        if target == finder.handle {
            return finder.direct.map_or_else(rest, |direct| vec![Entry::all(direct)]);
        }
        let Some(class) = finder.classes.by_handle.get(&target) else {
            self.ledger.miss(filter.object, Why::Missing(target.to_string()));
            return rest();
        };
        if let Some(leaf) = finder.inner.get(class) {
            return leaf.clone();
        }
        let place = Parent::Of(target);
        if descent.depth >= Queue::MOST_LEVELS {
            self.ledger.miss(filter.object, Why::TooDeep);
        } else if finder.filters.contains_key(&place) {
            if is_metered {
                self.ledger
                    .miss(filter.object, Why::Feature("police before the filters of a class".to_owned()));
            }
            self.classify(finder, place, Descent { depth: descent.depth + 1, ..descent }, out);
        }
        rest()
    }
}

impl Classes {
    /// Computes what depends on the classes within, and returns true for those that a root has in it.
    fn settle(&mut self) -> Vec<bool> {
        // Without recursion: a source may nest as deep as it likes.
        let mut order = self.roots.clone();
        let mut seen = vec![false; self.list.len()];
        let mut at = 0;
        while let Some(next) = order.get(at).copied() {
            seen[next] = true;
            // A class has one parent, so it comes once.
            order.extend(&self.list[next].children);
            at += 1;
        }
        for index in order.into_iter().rev() {
            let children = std::mem::take(&mut self.list[index].children);
            let of = |child: &usize| &self.list[*child];
            let first = children.iter().map(|child| of(child).first).min();
            let is_mixed = children.iter().any(|child| Some(of(child).first) != first || of(child).is_mixed);
            let sum = children.iter().fold(0_u64, |sum, child| sum.saturating_add(of(child).promised));
            let quanta = children.iter().fold(0_u64, |sum, child| sum.saturating_add(of(child).quantum));
            let is_from = |from| children.iter().any(|child| of(child).quantum_from == from);
            let quantum_from =
                if is_from(QuantumFrom::Rate) { QuantumFrom::Rate } else { QuantumFrom::Source };
            let class = &mut self.list[index];
            class.promised = class.rate.max(sum).min(class.ceil);
            if let Some(first) = first {
                (class.first, class.is_mixed) = (first, is_mixed);
                (class.quantum, class.quantum_from) = (quanta, quantum_from);
            }
            class.children = children;
        }
        seen
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
