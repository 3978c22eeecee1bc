//! A tree of queues: scheduler, shapers and droppers of a port.
//!
//! Time in a tree is virtual: arrivals, timers and departures take their effects in the order of their moments, however late the
//! host asks. Arrivals wait in a line until their moments come, and a departure is decided at the moment at which it begins; so
//! the same packets depart at the same times on every host.
//!
//! A node offers its parent a packet if one of its children does and its ceiling lets it go (hierarchical link sharing, Floyd and
//! Jacobson 1995). Its parent serves first children within their guarantees, then the others, which borrow; both by priority; and
//! of one priority by deficit round robin or start tags. A node that has sent less than its guarantee owes nothing to those that
//! borrowed.

use std::collections::VecDeque;
use std::sync::Arc;

use policy::model::{Colour, MeterScope};
use wire::{Bytes, Frame, Link, Nanos};

use super::Next;
use super::dropper::{Aqm, Decision, Random};
use super::ends::Ends;
use super::fq::{FlowHash, Fq};
use super::instance::Instances;
use super::mark;
use super::node::{NO_RING, Node, Rings, Shaping, Tagged};
use super::packets::{List, NONE, Packets, Waiting};
use super::report::LeafCounts;
use super::shaper::{Pace, counted};
use super::wheel::Wheel;
use crate::stage::header;
use crate::tables::{LeafSettings, NO_NODE, NodeKind, QueueNode, QueueTree};
use crate::verdict::Reason;

/// Packet that comes to a tree.
#[derive(Debug)]
struct Arrival {
    frame: Frame,
    /// Moment of its arrival.
    at: Nanos,
    /// Place of its leaf.
    leaf: u32,
    /// Drop precedence.
    colour: Colour,
    ends: Ends,
}

/// A tree of queues, with what waits in it.
#[derive(Debug)]
pub(crate) struct Tree {
    settings: Arc<QueueTree>,
    /// Ceiling and guarantee, by place of the settings.
    paces: Vec<Paces>,
    nodes: Vec<Node>,
    shapers: Vec<Shaping>,
    rings: Vec<Rings>,
    tagged: Vec<Tagged>,
    aqms: Vec<Aqm>,
    flows: Vec<Fq>,
    instances: Vec<Instances>,
    packets: Packets,
    wheel: Wheel,
    /// Arrivals in the order of their moments.
    line: VecDeque<Arrival>,
    /// Most arrivals in the line.
    line_limit: usize,
    /// Packets dropped, with the moments.
    lost: VecDeque<(Frame, Reason, Nanos)>,
    /// True if the root has a packet that its ceiling lets go.
    is_ready: bool,
    now: Nanos,
    random: Random,
    /// Key of hashes of flows and hosts.
    seed: u64,
    workers: u16,
    counts: Vec<LeafCounts>,
}

#[derive(Clone, Copy, Debug)]
struct Paces {
    ceiling: Option<Pace>,
    guarantee: Option<Pace>,
}

/// What happens next in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Timer,
    Arrival,
    Departure,
}

impl Tree {
    /// Creates the empty tree of one of `workers`, with room for `line` arrivals.
    pub(crate) fn new(settings: &Arc<QueueTree>, line: usize, workers: u16, seed: u64) -> Tree {
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
            paces: settings.nodes.iter().map(paces).collect(),
            nodes: Vec::new(),
            shapers: Vec::new(),
            rings: Vec::new(),
            tagged: Vec::new(),
            aqms: Vec::new(),
            flows: Vec::new(),
            instances: Vec::new(),
            packets: Packets::new(settings.capacity),
            wheel: Wheel::new(0),
            line: VecDeque::with_capacity(line),
            line_limit: line,
            lost: VecDeque::new(),
            is_ready: false,
            now: Nanos(0),
            random: Random(seed),
            seed,
            workers,
            counts: settings.nodes.iter().map(|_| LeafCounts::new(settings.nodes.len())).collect(),
            settings: Arc::clone(settings),
        };
        tree.build();
        tree
    }

    fn build(&mut self) {
        let settings = Arc::clone(&self.settings);
        let mut base = settings.nodes.len() as u32;
        for (kind, node) in (0..).zip(&settings.nodes) {
            let parent = if node.within == NO_NODE || node.within == kind { node.parent } else { NONE };
            let has_one = node.within == NO_NODE;
            self.add(kind, if parent == NO_NODE { NONE } else { parent }, has_one);
        }
        for (kind, node) in (0..).zip(&settings.nodes).filter(|(kind, node)| node.within == *kind) {
            let instances = Instances::new(kind, base, node.size, node.instances);
            for number in 0..=node.instances.max(1) {
                let first = base + number * node.size;
                for (place, inner) in
                    (kind..).zip(settings.nodes.iter().skip(kind as usize).take(node.size as usize))
                {
                    let parent = if place == kind { inner.parent } else { first + (inner.parent - kind) };
                    self.add(place, parent, true);
                }
            }
            base += instances.nodes();
            self.instances.push(instances);
        }
        self.wheel = Wheel::new(self.shapers.len() * 2);
    }

    /// Adds a node; one without use, of which there are instances elsewhere, has nothing inside.
    fn add(&mut self, kind: u32, parent: u32, is_used: bool) {
        let settings = &self.settings.nodes[kind as usize];
        let place = self.nodes.len() as u32;
        let paces = self.paces[kind as usize];
        let has_shaper = is_used && (paces.ceiling.is_some() || paces.guarantee.is_some());
        let shaper = if has_shaper { self.shapers.len() as u32 } else { NONE };
        if has_shaper {
            self.shapers.push(Shaping { node: place, ..Shaping::default() });
        }
        let inside = match &settings.kind {
            _ if !is_used => NONE,
            NodeKind::Drr => push(&mut self.rings, Rings::EMPTY),
            NodeKind::Wfq => push(&mut self.tagged, Tagged::default()),
            NodeKind::Leaf(leaf) => match &leaf.fq {
                Some(fq) => push(&mut self.flows, Fq::new(fq, leaf)),
                None => push(&mut self.aqms, Aqm::new(leaf)),
            },
        };
        self.nodes.push(Node {
            parent,
            next: NONE,
            previous: NONE,
            kind,
            deficit: 0,
            shaper,
            inside,
            ring: NO_RING,
            is_throttled: false,
            finish: 0,
            list: List::EMPTY,
        });
        let above = self.nodes.get(parent as usize).filter(|_| is_used).copied();
        if let Some(above) = above.filter(|above| self.kind(above) == &NodeKind::Wfq) {
            self.tagged[above.inside as usize].reserve(self.settings.nodes[kind as usize].priority);
        }
    }

    #[inline(always)]
    fn kind(&self, node: &Node) -> &NodeKind {
        &self.settings.nodes[node.kind as usize].kind
    }

    /// Settings that the tree is built by.
    pub(crate) fn settings(&self) -> &Arc<QueueTree> {
        &self.settings
    }

    /// True if there is no room for another arrival.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.line.len() >= self.line_limit
    }

    /// Adds a frame that arrives at `at`. One that comes before others that have been added goes in front of them.
    #[inline]
    pub(crate) fn arrive(&mut self, frame: Frame, at: Nanos, ends: Ends) {
        let dscp = header::code_point(&frame);
        let colour = Colour::ALL[usize::from(frame.meta.colour) % 3].max(Colour::of(dscp));
        let arrival = Arrival { leaf: self.settings.leaf(frame.meta.class, dscp), colour, at, ends, frame };
        let mut place = self.line.len();
        while place > 0 && self.line.get(place - 1).is_some_and(|before| before.at > arrival.at) {
            place -= 1;
        }
        if place == self.line.len() { self.line.push_back(arrival) } else { self.line.insert(place, arrival) }
    }

    /// Number of arrivals in the line.
    pub(crate) fn arriving(&self) -> usize {
        self.line.len()
    }

    /// The arrivals behind the first `before`.
    pub(crate) fn arrivals_behind(&self, before: usize) -> impl Iterator<Item = &Frame> {
        self.line.range(before.min(self.line.len())..).map(|arrival| &arrival.frame)
    }

    /// Number of packets that wait, arrivals counted.
    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.packets.len() as usize + self.lost.len()
    }

    /// True if the root has a ceiling.
    pub(crate) fn has_rate(&self) -> bool {
        self.paces.first().is_some_and(|paces| paces.ceiling.is_some())
    }

    /// Answers an opportunity to send by `link` at `now`.
    pub(crate) fn next(&mut self, link: &mut Link, now: Nanos) -> Next {
        loop {
            if let Some((frame, reason, at)) = self.lost.pop_front() {
                return Next::Dropped(frame, reason, at);
            }
            let Some((at, event)) = self.first(link) else { return Next::Empty };
            if at > now {
                // A timer alone may be about a guarantee, of a node that has nothing to send.
                return if self.packets.len() == 0 && self.line.is_empty() {
                    Next::Empty
                } else {
                    Next::Wait(at)
                };
            }
            self.now = at;
            match event {
                Event::Timer => self.pass_timers(),
                Event::Arrival => {
                    if let Some(arrival) = self.line.pop_front() {
                        self.admit(arrival);
                    }
                }
                Event::Departure => {
                    if let Some(packet) = self.send() {
                        // The opportunity has come.
                        let start = link.take(at, Nanos::MAX, packet.frame.len()).unwrap_or(at);
                        return Next::Frame(packet.frame, start);
                    }
                }
            }
        }
    }

    /// Moment of the next event; `None` where there is none but for timers of queues without packets.
    pub(crate) fn moment(&self, link: &Link) -> Option<Nanos> {
        if let Some((_, _, at)) = self.lost.front() {
            return Some(*at);
        }
        let is_empty = self.packets.len() == 0 && self.line.is_empty();
        self.first(link).map(|(at, _)| at).filter(|_| !is_empty)
    }

    /// The first event, and its moment: of one moment timers come first, then arrivals, then departures.
    #[inline]
    fn first(&self, link: &Link) -> Option<(Nanos, Event)> {
        // Where nothing bounds the rate, a packet goes before the next one of its moment comes.
        let competes = link.rate().is_some() || self.has_rate();
        let departure = self.is_ready.then(|| (link.opportunity().max(self.now), Event::Departure));
        let arrival = self.line.front().map(|arrival| (arrival.at.max(self.now), Event::Arrival));
        let timer = self.wheel.bound().map(|at| (at.max(self.now), Event::Timer));
        let first = match (departure, arrival) {
            (Some(departure), Some(arrival)) => {
                let is_departure = departure.0 < arrival.0 || departure.0 == arrival.0 && !competes;
                Some(if is_departure { departure } else { arrival })
            }
            (departure, arrival) => departure.or(arrival),
        };
        match (first, timer) {
            (Some(first), Some(timer)) => Some(if timer.0 <= first.0 { timer } else { first }),
            (first, timer) => first.or(timer),
        }
    }

    /// Queues an arrival in its leaf, or drops it.
    fn admit(&mut self, arrival: Arrival) {
        let Arrival { mut frame, at: _, leaf, colour, ends } = arrival;
        let now = self.now;
        let place = self.locate(leaf, &ends);
        let length = header::ip_length(&frame);
        let settings = Arc::clone(&self.settings);
        let Some((node, NodeKind::Leaf(leaf))) =
            self.nodes.get_mut(place as usize).map(|node| (node, &settings.nodes[leaf as usize].kind))
        else {
            return self.lost.push_back((frame, Reason::QueueFull, now));
        };
        let hash = leaf.fq.map_or(FlowHash::default(), |fq| ends.hash(fq.isolate, self.seed));
        let counts = &mut self.counts[node.kind as usize];
        let mut over =
            node.list.packets >= leaf.limit || node.list.bytes + u64::from(length) > leaf.limit_bytes;
        if leaf.fq.is_some() {
            let flows = &mut self.flows[node.inside as usize];
            while over || self.packets.is_full() {
                // The longest flow makes room (RFC 8290, section 4.1).
                let Some(longest) = flows.pop_longest(&mut self.packets) else { break };
                node.list.packets -= 1;
                node.list.bytes -= u64::from(longest.length);
                counts.full += 1;
                self.lost.push_back((longest.frame, Reason::QueueFull, now));
                over = node.list.packets >= leaf.limit
                    || node.list.packets > 0 && node.list.bytes + u64::from(length) > leaf.limit_bytes;
            }
        }
        if over || self.packets.is_full() {
            counts.full += 1;
            return self.lost.push_back((frame, Reason::QueueFull, now));
        }
        let decision = if leaf.fq.is_some() {
            let flow = self.flows[node.inside as usize].of(hash);
            flow.map_or(Decision::Keep, |(aqm, list)| aqm.arrives(leaf, list, colour, now, &mut self.random))
        } else {
            self.aqms[node.inside as usize].arrives(leaf, &node.list, colour, now, &mut self.random)
        };
        if !counts.lets_go(decision, leaf, &mut frame) {
            return self.lost.push_back((frame, Reason::EarlyDrop, now));
        }
        let was_empty = node.list.packets == 0;
        let packet = Waiting { frame, length, since: now };
        let pushed = if leaf.fq.is_some() {
            let pushed = self.flows[node.inside as usize].push(leaf, hash, packet, &mut self.packets);
            node.list.packets += 1;
            node.list.bytes += u64::from(length);
            pushed
        } else {
            self.packets.push(&mut node.list, packet)
        };
        debug_assert!(pushed.is_ok(), "room was checked");
        counts.packets += 1;
        counts.bytes += u64::from(length);
        if was_empty {
            self.activate(place);
        }
    }

    /// Place of the leaf for an arrival: of its subscriber, where there are instances.
    #[inline]
    fn locate(&mut self, leaf: u32, ends: &Ends) -> u32 {
        let Some(within) = self.settings.nodes.get(leaf as usize).map(|node| node.within) else {
            return NONE;
        };
        let Some(per) = self.settings.nodes.get(within as usize).map(|node| node.per) else { return leaf };
        let Tree { instances, nodes, seed, .. } = self;
        let Some(instances) = instances.iter_mut().find(|instances| instances.kind == within) else {
            return leaf;
        };
        let size = instances.size as usize;
        let (key, hash) = ends.subscriber(per, *seed);
        let first = instances.find(&key, hash, |first| {
            let block = nodes.get(first as usize..first as usize + size).unwrap_or_default();
            block.iter().all(|node| node.list.packets == 0 && !node.is_throttled)
        });
        first + (leaf - within)
    }

    /// Takes the packet whose turn it is out of its leaf. `None` if that was dropped.
    #[inline]
    fn send(&mut self) -> Option<Waiting> {
        let settings = Arc::clone(&self.settings);
        let mut place = 0;
        let leaf = loop {
            let node = self.nodes[place as usize];
            match &settings.nodes[node.kind as usize].kind {
                NodeKind::Leaf(leaf) => break leaf,
                NodeKind::Wfq => match self.tagged[node.inside as usize].first() {
                    Some(child) => place = child,
                    None => return self.rest(),
                },
                NodeKind::Drr => {
                    let rings = &mut self.rings[node.inside as usize];
                    if let Some(shaper) = rings.first_guaranteed() {
                        place = self.shapers[shaper as usize].node;
                        continue;
                    }
                    place = loop {
                        let Some(child) = rings.first() else { return self.rest() };
                        let node = &mut self.nodes[child as usize];
                        if node.deficit > 0 {
                            break child;
                        }
                        node.deficit += settings.nodes[node.kind as usize].quantum as i32;
                        let ring = node.ring;
                        rings.rotate(ring, &self.nodes);
                    };
                }
            }
        };
        let (now, node) = (self.now, &mut self.nodes[place as usize]);
        let popped = if leaf.fq.is_some() {
            let popped = self.flows[node.inside as usize].pop(leaf, now, &mut self.packets);
            if let Some((packet, _)) = &popped {
                node.list.packets -= 1;
                node.list.bytes -= u64::from(packet.length);
            }
            popped
        } else {
            self.packets.pop(&mut node.list).map(|packet| {
                let aqm = &mut self.aqms[node.inside as usize];
                let decision = aqm.departs(leaf, packet.since, &node.list, now);
                (packet, decision)
            })
        };
        let Some((mut packet, decision)) = popped else {
            node.list = List::EMPTY;
            self.finish(place, None);
            return None;
        };
        let counts = &mut self.counts[node.kind as usize];
        counts.packets -= 1;
        counts.bytes -= u64::from(packet.length);
        if !counts.lets_go(decision, leaf, &mut packet.frame) {
            self.finish(place, None);
            self.lost.push_back((packet.frame, Reason::EarlyDrop, now));
            return None;
        }
        counts.count_sent(packet.length, now.since(packet.since));
        self.finish(place, Some(packet.length));
        Some(packet)
    }

    /// Nothing to send after all.
    #[cold]
    fn rest(&mut self) -> Option<Waiting> {
        self.is_ready = false;
        None
    }

    /// Charges the nodes from a leaf up to the root with what the leaf has sent, and ends their turns.
    #[inline]
    fn finish(&mut self, leaf: u32, sent: Option<u32>) {
        let mut place = leaf;
        loop {
            let node = self.nodes[place as usize];
            let settings = &self.settings.nodes[node.kind as usize];
            let bytes = sent.map_or(0, |length| counted(settings.overhead, length));
            let is_guaranteed =
                self.shapers.get(node.shaper as usize).is_some_and(|shaping| shaping.is_guaranteed);
            let mut is_past_guarantee = false;
            if node.shaper != NONE && sent.is_some() {
                is_past_guarantee = self.charge(place, bytes);
            }
            let is_throttled = self.nodes[place as usize].is_throttled;
            // Of a leaf the list has changed since.
            let stays = !is_throttled && self.is_active(&self.nodes[place as usize]);
            let Some(parent) = self.nodes.get(node.parent as usize).copied() else {
                self.is_ready = stays;
                return;
            };
            let settings = &self.settings.nodes[node.kind as usize];
            let priority = settings.priority;
            if self.kind(&parent) == &NodeKind::Wfq {
                let tagged = &mut self.tagged[parent.inside as usize];
                tagged.take(node.ring, bytes, settings.weight, &mut self.nodes);
                if stays {
                    tagged.insert(place, priority, &mut self.nodes);
                }
                place = node.parent;
                continue;
            }
            let rings = &mut self.rings[parent.inside as usize];
            // What is guaranteed takes nothing from the turn among those that share.
            let charged = if is_guaranteed { 0 } else { bytes.min(1 << 24) as i32 };
            let deficit = node.deficit.saturating_sub(charged);
            let is_over = deficit <= 0;
            let quantum = if is_over && stays { settings.quantum as i32 } else { 0 };
            self.nodes[place as usize].deficit = deficit.saturating_add(quantum);
            if !stays {
                rings.remove(place, &mut self.nodes);
                // A debt stays: who comes back does not gain by having been away.
                self.nodes[place as usize].deficit = deficit.min(0);
            } else if is_over && !is_guaranteed {
                rings.rotate(priority, &self.nodes);
            }
            if is_guaranteed && (!stays || is_past_guarantee) {
                rings.remove_guaranteed(node.shaper, priority, &mut self.shapers);
                self.await_guarantee(place);
            } else if is_guaranteed {
                rings.rotate_guaranteed(priority, &self.shapers);
            }
            place = node.parent;
        }
    }

    /// Charges a node's shaper. True if the node was within its guarantee, and is past it now.
    #[inline(never)]
    fn charge(&mut self, place: u32, bytes: u64) -> bool {
        let now = self.now;
        let node = &mut self.nodes[place as usize];
        let paces = self.paces[node.kind as usize];
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return false };
        if let Some(pace) = paces.ceiling {
            pace.charge(&mut shaping.ceiling, now, bytes);
            let ready = pace.ready(&shaping.ceiling);
            if ready > now && !node.is_throttled {
                node.is_throttled = true;
                self.wheel.set(node.shaper * 2, ready);
            }
        }
        match paces.guarantee {
            // What is borrowed is not charged.
            Some(pace) if shaping.is_guaranteed => {
                pace.charge(&mut shaping.guarantee, now, bytes);
                pace.ready(&shaping.guarantee) > now
            }
            _ => false,
        }
    }

    /// Sets the timer for a node's guarantee, where the node is past it.
    fn await_guarantee(&mut self, place: u32) {
        let node = self.nodes[place as usize];
        let Some(pace) = self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return };
        let ready = pace.ready(&shaping.guarantee);
        if ready > self.now && !shaping.is_guarantee_awaited {
            shaping.is_guarantee_awaited = true;
            self.wheel.set(node.shaper * 2 + 1, ready);
        }
    }

    /// True if a node has anything to send, but for its ceiling.
    #[inline(always)]
    fn is_active(&self, node: &Node) -> bool {
        match self.kind(node) {
            NodeKind::Leaf(_) => node.list.packets > 0,
            NodeKind::Drr => !self.rings[node.inside as usize].is_empty(),
            NodeKind::Wfq => !self.tagged[node.inside as usize].is_empty(),
        }
    }

    /// Offers a node, which has something to send now, to its parent, and so on.
    #[inline]
    fn activate(&mut self, leaf: u32) {
        let mut place = leaf;
        loop {
            let node = self.nodes[place as usize];
            if node.is_throttled || node.ring != NO_RING {
                return;
            }
            let Some(parent) = self.nodes.get(node.parent as usize).copied() else {
                self.is_ready = true;
                return;
            };
            let was_active = self.is_active(&parent);
            let settings = &self.settings.nodes[node.kind as usize];
            let (priority, quantum) = (settings.priority, settings.quantum as i32);
            if self.kind(&parent) == &NodeKind::Wfq {
                self.tagged[parent.inside as usize].insert(place, priority, &mut self.nodes);
            } else {
                self.nodes[place as usize].deficit = node.deficit.min(0).saturating_add(quantum);
                self.rings[parent.inside as usize].insert(place, priority, &mut self.nodes);
                self.offer_guarantee(place);
            }
            if was_active {
                return;
            }
            place = node.parent;
        }
    }

    /// Puts a node that has something to send among those within their guarantees, now or later.
    fn offer_guarantee(&mut self, place: u32) {
        let node = self.nodes[place as usize];
        let Some(pace) = self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get(node.shaper as usize) else { return };
        if pace.ready(&shaping.guarantee) > self.now {
            return self.await_guarantee(place);
        }
        let Some(parent) = self.nodes.get(node.parent as usize) else { return };
        let rings = &mut self.rings[parent.inside as usize];
        rings.insert_guaranteed(node.shaper, node.ring, &mut self.shapers);
    }

    /// Takes the effects of all timers that are due.
    fn pass_timers(&mut self) {
        while let Some(timer) = self.wheel.take(self.now) {
            let Some(shaping) = self.shapers.get_mut((timer / 2) as usize) else { continue };
            let place = shaping.node;
            let node = self.nodes[place as usize];
            if timer % 2 == 0 {
                self.nodes[place as usize].is_throttled = false;
                if self.is_active(&node) {
                    self.activate(place);
                }
                continue;
            }
            shaping.is_guarantee_awaited = false;
            if node.ring != NO_RING && !shaping.is_guaranteed {
                self.offer_guarantee(place);
            }
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(crate) fn set_back(&mut self, span: Nanos) {
        let back = |at: &mut Nanos| *at = Nanos(at.0.saturating_sub(span.0));
        back(&mut self.now);
        for arrival in &mut self.line {
            back(&mut arrival.at);
            back(&mut arrival.frame.meta.received);
        }
        self.packets.iter_mut().for_each(|packet| back(&mut packet.since));
        for shaping in &mut self.shapers {
            shaping.ceiling.set_back(span);
            shaping.guarantee.set_back(span);
        }
        self.aqms.iter_mut().for_each(|aqm| aqm.set_back(span));
        self.flows.iter_mut().for_each(|flows| flows.set_back(span));
        self.wheel.set_back(span);
    }

    /// Takes out all frames, in the order of their arrival.
    pub(crate) fn drain(&mut self) -> Vec<Frame> {
        let lost = self.lost.drain(..).map(|(frame, ..)| frame);
        let mut frames: Vec<Frame> = lost.collect();
        frames.extend(self.packets.drain().into_iter().map(|packet| packet.frame));
        frames.extend(self.line.drain(..).map(|arrival| arrival.frame));
        // What is left is a tree as at the beginning.
        *self = Tree::new(&self.settings, self.line_limit, self.workers, self.seed);
        frames
    }

    /// The frames that wait, to renumber them; those that have arrived in the tree keep their leaves.
    pub(crate) fn frames_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        let waiting = self.packets.iter_mut().map(|packet| &mut packet.frame);
        waiting.chain(self.line.iter_mut().map(|arrival| &mut arrival.frame))
    }

    /// Counters of each leaf, by place of its settings.
    pub(crate) fn counts(&self) -> &[LeafCounts] {
        &self.counts
    }

    /// Number of subscribers that have had instances.
    pub(crate) fn subscribers(&self) -> usize {
        self.instances.iter().map(Instances::made).sum()
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
        for (counts, node) in self.counts.iter_mut().zip(&self.settings.nodes) {
            let was = old.settings.nodes.iter().position(|before| before.name == node.name);
            if let Some(before) = was.and_then(|was| old.counts.get(was)) {
                *counts = LeafCounts { packets: 0, bytes: 0, ..before.clone() };
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice())
            + size_of_val(self.shapers.as_slice())
            + size_of_val(self.rings.as_slice())
            + size_of_val(self.aqms.as_slice())
            + self.tagged.iter().map(Tagged::memory_bytes).sum::<usize>()
            + self.flows.iter().map(Fq::memory_bytes).sum::<usize>()
            + self.instances.iter().map(Instances::memory_bytes).sum::<usize>()
            + self.packets.memory_bytes()
            + self.wheel.memory_bytes()
            + self.line.capacity() * size_of::<Arrival>()
    }
}

impl LeafCounts {
    /// True if a packet goes on after a decision: kept, or marked.
    fn lets_go(&mut self, decision: Decision, leaf: &LeafSettings, frame: &mut Frame) -> bool {
        if decision == Decision::Keep {
            return true;
        }
        if decision == Decision::Signal && leaf.ecn && mark::congestion(frame) {
            self.marked += 1;
            return true;
        }
        self.early += 1;
        false
    }
}

/// Adds an element, and returns its place.
fn push<T>(list: &mut Vec<T>, element: T) -> u32 {
    list.push(element);
    (list.len() - 1) as u32
}
