//! Trees of queues from qdiscs and classes, and the packets of each leaf.

use std::collections::HashMap;

use wire::{BitRate, Bytes, Dscp};

use super::device::Device;
use super::filter::Filter;
use super::ledger::Ledger;
use super::option::{Bounded, Options};
use super::source::Parent;
use super::unit::Handle;
use crate::import::cond::Cond;
use crate::import::name::valid;
use crate::import::note::{NoteKind, Why};
use crate::model::{Interface, Meter, Overhead, Queue};

mod cake;
mod htb;
mod leaf;
mod meter;
mod prio;
mod tbf;

pub(super) use cake::Cake;
pub(super) use meter::Policed;

/// Longest name of a device, in characters: names of its queues begin with it.
const LONGEST: usize = 32;

/// Most conditions of a tree.
pub(super) const MOST_ENTRIES: usize = 32_768;

/// Node of a tree.
pub(super) struct Node {
    pub(super) queue: Queue,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// Object that the node comes from.
    pub(super) object: usize,
    /// True if packets may come to the node by other means than filters, which have no counterpart here: an empty one is kept.
    pub(super) is_kept: bool,
    overhead: Overhead,
    level: usize,
}

/// Packets, and what is done with them. Of a list the first that matches counts.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) cond: Cond,
    /// Leaves that the packets wait in: of one tree, or of the two that a packet may pass.
    pub(super) nodes: Vec<usize>,
    pub(super) meter: Option<String>,
    pub(super) mark: Option<Dscp>,
    /// Filter that the entry comes from.
    pub(super) object: Option<usize>,
}

impl Entry {
    pub(super) fn all(node: usize) -> Entry {
        Entry::of(Cond::default(), node)
    }

    fn of(cond: Cond, node: usize) -> Entry {
        Entry { cond, nodes: vec![node], meter: None, mark: None, object: None }
    }

    /// Packets that match both, with what both do; `None` if there are none.
    pub(super) fn and(&self, other: &Entry) -> Option<Entry> {
        Some(Entry {
            cond: self.cond.and(&other.cond)?,
            nodes: [&self.nodes[..], &other.nodes[..]].concat(),
            meter: self.meter.clone().or_else(|| other.meter.clone()),
            mark: other.mark.or(self.mark),
            object: self.object.or(other.object),
        })
    }
}

/// A tree of a device.
pub(super) struct Tree {
    pub(super) root: usize,
    /// Packets of the leaves; the last entry has all that no other has.
    pub(super) entries: Vec<Entry>,
}

/// Queues and meters of all devices.
#[derive(Default)]
pub(super) struct Forest {
    pub(super) nodes: Vec<Node>,
    pub(super) meters: Vec<Meter>,
    /// Meters of policers that the kernel has under a number.
    shared: HashMap<u32, String>,
}

/// Builder of the tree of a device.
pub(super) struct Builder<'a> {
    pub(super) forest: &'a mut Forest,
    pub(super) ledger: &'a mut Ledger,
    pub(super) device: &'a Device,
    pub(super) filters: &'a [Filter],
    /// Name of the device in the names of queues.
    label: String,
    /// Bytes of the link layer that tc counts with a packet.
    header: u64,
    /// True if the tree is of incoming packets.
    is_in: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        forest: &'a mut Forest,
        ledger: &'a mut Ledger,
        device: &'a Device,
        filters: &'a [Filter],
        name: &str,
    ) -> Builder<'a> {
        let label = label(name);
        Builder { forest, ledger, device, filters, label, header: header(name), is_in: false }
    }

    /// Builds the tree of the root qdisc before the interfaces that `root` is on.
    pub(super) fn tree(&mut self, qdisc: usize, root: Queue) -> Tree {
        self.is_in = !root.from.is_empty();
        let mut overhead = Overhead::Fixed(Bytes(self.header));
        let sizes = self.ledger.objects[qdisc].sizes.clone();
        if !sizes.is_empty() {
            let mut options = Options::of("stab", &sizes);
            overhead = self.overhead(qdisc, &mut options, overhead);
            options.word(&["mtu"]);
            options.word(&["tsize"]);
            self.rest(qdisc, &options);
        }
        let queue = Queue { overhead: Some(overhead), ..root };
        self.forest.nodes.push(Node {
            queue,
            parent: None,
            children: Vec::new(),
            object: qdisc,
            is_kept: false,
            overhead,
            level: 1,
        });
        let root = self.forest.nodes.len() - 1;
        let entries = self.place(qdisc, root);
        Tree { root, entries }
    }

    /// Puts a qdisc at a node: as its scheduler, shaper or dropper. Returns the packets of the leaves.
    fn place(&mut self, qdisc: usize, slot: usize) -> Vec<Entry> {
        let kind = self.ledger.objects[qdisc].kind.clone();
        match kind.as_str() {
            "htb" => self.htb(qdisc, slot),
            "prio" | "pfifo_fast" => self.prio(qdisc, slot),
            "tbf" => self.tbf(qdisc, slot),
            "cake" => self.cake(qdisc, slot),
            _ => {
                self.leaf(qdisc, slot, &kind);
                vec![Entry::all(slot)]
            }
        }
    }

    /// Puts the qdisc of a class, if it has one, at the node of the class.
    fn place_at(&mut self, class: Handle, slot: usize) -> Vec<Entry> {
        match self.device.qdisc_at(Parent::Of(class)) {
            Some(qdisc) => self.place(qdisc, slot),
            None => vec![Entry::all(slot)],
        }
    }

    fn node(&mut self, index: usize) -> &mut Queue {
        &mut self.forest.nodes[index].queue
    }

    /// Adds a node in another; `None` where the tree would be too deep.
    fn child(&mut self, parent: usize, name: &str, object: usize) -> Option<usize> {
        let Node { overhead, level, .. } = self.forest.nodes[parent];
        if level >= Queue::MOST_LEVELS {
            self.ledger.miss(object, Why::Levels);
            return None;
        }
        let queue = Queue::new(&format!("{}-{name}", self.label));
        let index = self.forest.nodes.len();
        self.forest.nodes.push(Node {
            queue,
            parent: Some(parent),
            children: Vec::new(),
            object,
            is_kept: false,
            overhead,
            level: level + 1,
        });
        self.forest.nodes[parent].children.push(index);
        Some(index)
    }

    /// Reads options; what is not understood is reported, and left out.
    fn taken<T>(&mut self, object: usize, value: Result<Option<T>, Why>) -> Option<T> {
        value.unwrap_or_else(|why| {
            self.ledger.miss(object, why);
            None
        })
    }

    /// Reports the options that nobody took, and notes those that were bounded.
    fn rest(&mut self, object: usize, options: &Options) {
        options.rest().into_iter().for_each(|why| self.ledger.miss(object, why));
        for Bounded { given, becomes } in options.bounded() {
            let (given, becomes) = (given.clone(), becomes.clone());
            self.ledger.note(Some(object), NoteKind::Bounded { given, becomes });
        }
    }

    /// Takes `overhead`, `linklayer` and `mpu`, which come on top of the header of the link layer.
    fn overhead(&mut self, object: usize, options: &mut Options, above: Overhead) -> Overhead {
        let number = options.number(&["overhead"]);
        let number = self.taken(object, number);
        let layer = options.word(&["linklayer"]);
        let minimum = options.size(&["mpu"]);
        let minimum = self.taken(object, minimum).unwrap_or(0);
        let is_atm = match layer.as_deref() {
            Some("atm" | "adsl") => true,
            Some("ethernet" | "unspec") | None => false,
            Some(other) => {
                self.ledger.miss(object, Why::Value(format!("linklayer {other}")));
                false
            }
        };
        if number.is_none() && !is_atm && minimum == 0 {
            return above;
        }
        let bytes = i64::try_from(self.header).unwrap_or(0) + number.unwrap_or(0);
        let layer = if is_atm { Overhead::Atm } else { Overhead::Fixed };
        let found = counted(bytes, minimum, layer);
        found.missing.into_iter().for_each(|why| self.ledger.miss(object, why));
        found.overhead.unwrap_or(above)
    }

    fn set_overhead(&mut self, node: usize, overhead: Overhead) {
        if self.forest.nodes[node].overhead != overhead {
            self.forest.nodes[node].overhead = overhead;
            self.node(node).overhead = Some(overhead);
        }
    }

    /// Lowest rate of a node and of those above it: nothing within has more.
    fn ceiling(&self, node: usize) -> Option<BitRate> {
        let mut lowest = None;
        let mut next = Some(node);
        while let Some(of) = next.and_then(|index| self.forest.nodes.get(index)) {
            lowest = lowest.into_iter().chain(of.queue.rate).min();
            next = of.parent;
        }
        lowest
    }

    /// Bytes of the longest packet, as they are counted at a node.
    fn longest(&self, node: usize) -> u64 {
        self.forest.nodes[node].overhead.count(Interface::MTU.into())
    }

    /// Checks a rate: of packets that are sent at all, and that a policy can have.
    fn bit_rate(&mut self, object: usize, rate: u64) -> Option<BitRate> {
        /// Highest rate of a queue, 10 Tbit/s.
        const MOST: u64 = 10_000_000_000_000;
        if (1..=MOST).contains(&rate) {
            return Some(BitRate(rate));
        }
        self.ledger.miss(object, Why::Value(format!("rate {rate}bit")));
        None
    }

    /// Classes that a qdisc makes by itself say nothing more.
    fn imply_classes(&mut self, handle: Handle) {
        for class in self.device.classes.iter().copied() {
            if self.ledger.objects[class].handle.map(Handle::qdisc) == Some(handle) {
                self.ledger.implied(class);
            }
        }
    }

    /// Appends the packets that a filter sends to a leaf; those of the filter's conditions that also match `cond`.
    fn push(
        &mut self,
        out: &mut Vec<Entry>,
        filter: &Filter,
        cond: &Cond,
        target: &[Entry],
        meter: Option<&str>,
    ) {
        for entry in target {
            let Some(cond) = cond.and(&entry.cond) else { continue };
            if out.len() >= MOST_ENTRIES {
                return self.ledger.miss(filter.object, Why::TooMany);
            }
            if meter.is_some() && entry.meter.is_some() {
                self.ledger.miss(filter.object, Why::Feature("a second police".to_owned()));
            }
            let meter = meter.map(str::to_owned).or_else(|| entry.meter.clone());
            out.push(Entry { cond, meter, object: Some(filter.object), ..entry.clone() });
        }
    }

    /// Bytes of the link layer that tc counts with a packet that leaves.
    pub(super) fn header(&self) -> u64 {
        self.header
    }
}

/// Overhead counted with a packet, and parts of the source that cannot be counted.
struct Counted {
    overhead: Option<Overhead>,
    missing: Vec<Why>,
}

/// Finds the overhead of so many bytes, with a shortest packet: there is one of Ethernet.
fn counted(bytes: i64, minimum: u64, layer: fn(Bytes) -> Overhead) -> Counted {
    let fits = u64::try_from(bytes).ok().map(Bytes).filter(|bytes| *bytes <= Overhead::MOST);
    let overhead = fits.map(layer);
    let least = u64::from(Overhead::ETHERNET_LEAST);
    let of_ethernet = [(Overhead::LAYER_2, 14), (Overhead::ETHERNET, 38)]
        .into_iter()
        .find(|(_, bytes)| overhead == Some(Overhead::Fixed(Bytes(*bytes))) && minimum == bytes + least);
    let mut missing = Vec::new();
    if overhead.is_none() {
        missing.push(Why::Value(format!("overhead {bytes}")));
    }
    // A packet has a header of IP at least.
    if of_ethernet.is_none() && minimum > u64::try_from(bytes).unwrap_or(0) + 20 {
        missing.push(Why::Feature(format!("mpu {minimum}")));
    }
    Counted { overhead: of_ethernet.map(|(overhead, _)| overhead).or(overhead), missing }
}

/// Name of a device as an interface, and in the names of queues.
pub(super) fn label(device: &str) -> String {
    let mut label = valid(device).unwrap_or_else(|| "device".to_owned());
    label.truncate(LONGEST);
    label
}

/// Bytes of the link layer that tc counts with a packet: none on devices without Ethernet, as far as their names tell.
fn header(device: &str) -> u64 {
    if is_ip(device) { 0 } else { 14 }
}

/// True for devices of bare IP packets, by their usual names.
pub(super) fn is_ip(device: &str) -> bool {
    ["ppp", "tun", "wg", "pppoe-wan", "wwan"].iter().any(|prefix| device.starts_with(prefix))
}
