//! Making, keeping and emptying a tree.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lookup::memory::{MemoryError, Slab, room_for};
use policy::model::MeterScope;
use wire::{Bytes, Frame, Nanos};

use super::super::dropper::{Aqm, Random};
use super::super::inner::Inner;
use super::super::instance::Instances;
use super::super::kind::{Above, Kind};
use super::super::node::{Account, Node, PRIORITIES, Rings, Shaping};
use super::super::packets::{NONE, Packets};
use super::super::report::LeafCounts;
use super::super::shaper::Pace;
use super::super::tag::{Service, Tagged};
use super::super::wheel::Wheel;
use super::{Arrival, Paces, ROOT, Tree};
use crate::tables::{NO_NODE, NodeKind, QueueNode, QueueTree};

impl Tree {
    /// Creates the empty tree of one of `workers`, with room for `line` arrivals.
    ///
    /// # Errors
    /// The system has not the memory for it.
    pub(crate) fn new(
        settings: &Arc<QueueTree>,
        line: usize,
        workers: u16,
        seed: u64,
    ) -> Result<Tree, MemoryError> {
        let pace = |node: &QueueNode, rate: Option<wire::BitRate>, packets: u64| {
            let longest = Bytes(node.overhead.count(settings.longest.0));
            let burst = node.burst.unwrap_or(Bytes(longest.0 * packets));
            // What begins at a source, or is of a flow, is one worker's.
            let per = settings.nodes.get(node.within as usize).map_or(MeterScope::All, |within| within.per);
            let workers = match per {
                MeterScope::All | MeterScope::Destination(..) => workers,
                MeterScope::Flow | MeterScope::Source(..) => 1,
            };
            rate.map(|rate| Pace::new(rate, burst, longest, workers))
        };
        // Who waits for others' packets to end makes up for that time, or would never have all of his rate.
        let ceiling = |node: &QueueNode| if node.parent == NO_NODE { 1 } else { 2 };
        let paces = |node: &QueueNode| Paces {
            ceiling: pace(node, node.rate, ceiling(node)),
            guarantee: pace(node, node.guarantee, 3),
        };
        let mut tree = Tree {
            kinds: Kind::all(settings),
            paces: settings.nodes.iter().map(paces).collect(),
            nodes: Slab::of(Vec::new())?,
            shapers: Vec::new(),
            rings: Vec::new(),
            tagged: Vec::new(),
            aqms: Vec::new(),
            inners: Vec::new(),
            instances: Vec::new(),
            packets: Packets::new(settings.capacity)?,
            wheel: Wheel::new(0),
            line: VecDeque::with_capacity(line),
            line_limit: line,
            lost: None,
            is_ready: false,
            now: Nanos(0),
            service: Service::default(),
            random: Random(seed),
            seed,
            counts: settings.nodes.iter().map(|node| LeafCounts::new(node, settings.nodes.len())).collect(),
            is_large: false,
            turn: ROOT,
            ahead: NONE,
            memory: 0,
            settings: Arc::clone(settings),
        };
        tree.build()?;
        Ok(tree)
    }

    fn build(&mut self) -> Result<(), MemoryError> {
        let settings = Arc::clone(&self.settings);
        let scoped = (0..).zip(&settings.nodes).filter(|(kind, node)| node.within == *kind);
        let instances = scoped.map(|(_, node)| (node.instances.max(1) as usize + 1) * node.size as usize);
        let mut nodes = room_for(settings.nodes.len() + instances.sum::<usize>())?;
        let mut base = settings.nodes.len() as u32;
        for (kind, node) in (0..).zip(&settings.nodes) {
            let parent = if node.within == NO_NODE || node.within == kind { node.parent } else { NONE };
            let has_one = node.within == NO_NODE;
            self.add(&mut nodes, kind, if parent == NO_NODE { NONE } else { parent }, has_one)?;
        }
        for (kind, node) in (0..).zip(&settings.nodes).filter(|(kind, node)| node.within == *kind) {
            let mut instances = Instances::new(node.per, kind, base, node.size, node.instances);
            let rings = self.rings.len() as u32;
            for number in 0..=node.instances.max(1) {
                let first = base + number * node.size;
                for (place, inner) in
                    (kind..).zip(settings.nodes.iter().skip(kind as usize).take(node.size as usize))
                {
                    let parent = if place == kind { inner.parent } else { first + (inner.parent - kind) };
                    self.add(&mut nodes, place, parent, true)?;
                }
            }
            instances.note_rings(rings, (self.rings.len() as u32 - rings) / (node.instances.max(1) + 1));
            base += instances.nodes();
            self.instances.push(instances);
        }
        self.nodes = Slab::of(nodes)?;
        self.reserve();
        self.is_large = self.nodes.bytes() > NEAR;
        self.wheel = Wheel::new(self.shapers.len() * 2);
        self.memory = self.allocated();
        Ok(())
    }

    /// Adds a node; one without use, of which there are instances elsewhere, has nothing inside.
    fn add(
        &mut self,
        nodes: &mut Vec<Node>,
        kind: u32,
        parent: u32,
        is_used: bool,
    ) -> Result<(), MemoryError> {
        let place = nodes.len() as u32;
        let paces = &self.paces[kind as usize];
        let has_shaper = is_used && (paces.ceiling.is_some() || paces.guarantee.is_some());
        let shaper = if has_shaper { self.shapers.len() as u32 } else { NONE };
        if has_shaper {
            self.shapers.push(Shaping { node: place, ..Shaping::default() });
        }
        let inside = match &self.settings.nodes[kind as usize].kind {
            _ if !is_used => NONE,
            NodeKind::Drr => push(&mut self.rings, Rings::EMPTY),
            NodeKind::Wfq => push(&mut self.tagged, Tagged::default()),
            NodeKind::Leaf(leaf) => match Inner::new(leaf)? {
                Some(inner) => push(&mut self.inners, inner),
                None => push(&mut self.aqms, Aqm::new(leaf)),
            },
        };
        let Kind { work, above, .. } = self.kinds[kind as usize];
        let account = Account::of(shaper, above);
        nodes.push(Node { work, account, ..Node::new(parent, kind, inside, shaper) });
        Ok(())
    }

    /// Makes room for the children of nodes that have them in heaps.
    fn reserve(&mut self) {
        let mut children = vec![[0; PRIORITIES]; self.tagged.len()];
        // What has nothing inside has instances elsewhere.
        for node in self.nodes.iter().filter(|node| node.inside != NONE) {
            let kind = &self.kinds[node.kind as usize];
            if kind.above == Above::Wfq {
                let above = self.nodes[node.parent as usize].inside;
                children[above as usize][usize::from(kind.priority) % PRIORITIES] += 1;
            }
        }
        for (tagged, children) in self.tagged.iter_mut().zip(children) {
            (0..).zip(children).for_each(|(priority, count)| tagged.reserve(priority, count));
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(crate) fn set_back(&mut self, span: Nanos) {
        let back = |at: &mut Nanos| *at = Nanos(at.0.saturating_sub(span.0));
        back(&mut self.now);
        // Over, by then.
        self.service = Service::default();
        self.lost.iter_mut().for_each(|lost| back(&mut lost.at));
        for arrival in &mut self.line {
            back(&mut arrival.at);
            back(&mut arrival.frame.meta.received);
        }
        self.packets.iter_mut().for_each(|(_, since)| back(since));
        for shaping in &mut self.shapers {
            shaping.ceiling.set_back(span);
            shaping.guarantee.set_back(span);
        }
        self.aqms.iter_mut().for_each(|aqm| aqm.set_back(span));
        self.inners.iter_mut().for_each(|inner| inner.set_back(span));
        self.wheel.set_back(span);
    }

    /// Takes all frames, in the order of their arrival, out of a tree that is given up.
    pub(crate) fn drain(&mut self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.lost.take().map(|lost| lost.frame).into_iter().collect();
        let mut waiting = Vec::with_capacity(self.packets.len() as usize);
        let Tree { nodes, inners, packets, .. } = self;
        let lists = nodes.iter_mut().map(|node| &mut node.list);
        for list in lists.chain(inners.iter_mut().flat_map(Inner::lists_mut)) {
            waiting.extend(std::iter::from_fn(|| packets.pop(list)));
        }
        // Those of one moment and one queue stay in their order.
        waiting.sort_by_key(|packet| packet.since);
        frames.extend(waiting.into_iter().map(|packet| packet.frame));
        frames.extend(self.line.drain(..).map(|arrival: Arrival| arrival.frame));
        frames
    }

    /// Goes on at `now` from another tree: with what its root has sent, and with the counters of leaves of the same names.
    pub(crate) fn continue_from(&mut self, old: &Tree, now: Nanos) {
        self.now = old.now.max(now);
        let (root, before) = (self.nodes[0].shaper, old.nodes[0].shaper);
        if let (Some(shaping), Some(before)) =
            (self.shapers.get_mut(root as usize), old.shapers.get(before as usize))
        {
            shaping.ceiling = before.ceiling;
            let ready = self.paces[0].ceiling.map_or(Nanos(0), |pace| pace.ready(&shaping.ceiling));
            if ready > self.now {
                self.nodes[0].is_throttled = true;
                self.wheel.set(root * 2, ready);
            }
        }
        let names = old.settings.nodes.iter().map(|node| node.name.as_str());
        let counted: HashMap<&str, &LeafCounts> = names.zip(&old.counts).collect();
        for (counts, node) in self.counts.iter_mut().zip(&self.settings.nodes) {
            if let Some(before) = counted.get(node.name.as_str()) {
                counts.continue_from(before);
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory
    }

    fn allocated(&self) -> usize {
        self.nodes.bytes()
            + size_of_val(self.kinds.as_slice())
            + size_of_val(self.shapers.as_slice())
            + size_of_val(self.rings.as_slice())
            + size_of_val(self.aqms.as_slice())
            + self.tagged.iter().map(Tagged::memory_bytes).sum::<usize>()
            + self.inners.iter().map(Inner::memory_bytes).sum::<usize>()
            + self.instances.iter().map(Instances::memory_bytes).sum::<usize>()
            + self.packets.memory_bytes()
            + self.wheel.memory_bytes()
            + self.line.capacity() * size_of::<Arrival>()
    }
}

/// Bytes of nodes that are near all the time: half of a usual second cache.
const NEAR: usize = 512 << 10;

/// Adds an element, and returns its place.
fn push<T>(list: &mut Vec<T>, element: T) -> u32 {
    list.push(element);
    (list.len() - 1) as u32
}
