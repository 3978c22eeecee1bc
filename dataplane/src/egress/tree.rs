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
//!
//! The tally is of an engine that has the descriptor of a queue, 32 bytes, read before and written after its work, and its
//! settings in local memory.

use std::collections::VecDeque;
use std::sync::Arc;

use lookup::memory::Slab;
use tally::{Region, Tally};
use wire::{Frame, Link, Nanos};

use super::dropper::{Aqm, Random};
use super::ends::{Ends, Subscriber};
use super::fq::FlowHash;
use super::inner::Inner;
use super::instance::Instances;
use super::kind::{Kind, Work};
use super::node::{Node, Rings, Shaping};
use super::packets::{NONE, Packets};
use super::report::LeafCounts;
use super::shaper::Pace;
use super::tag::{Service, Tagged};
use super::wheel::Wheel;
use super::{Next, length};
use crate::stage::header;
use crate::tables::{NodeKind, QueueTree};
use crate::verdict::Reason;

mod admit;
mod build;
mod select;
mod subscriber;

/// Packet that comes to a tree: all that its leaf needs to know, in a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Arrival {
    frame: Frame,
    /// Moment of its arrival.
    at: Nanos,
    subscriber: Subscriber,
    flow: FlowHash,
    /// Place of its leaf, or of the settings of its leaf where there are instances.
    leaf: u32,
    /// Bytes of the IP packet.
    length: u16,
}

/// A tree of queues, with what waits in it.
#[derive(Debug)]
pub(crate) struct Tree {
    settings: Arc<QueueTree>,
    /// Settings of nodes for the packet path, by place of the settings.
    kinds: Vec<Kind>,
    /// Ceiling and guarantee, by place of the settings.
    paces: Vec<Paces>,
    nodes: Slab<Node>,
    shapers: Vec<Shaping>,
    rings: Vec<Rings>,
    tagged: Vec<Tagged>,
    aqms: Vec<Aqm>,
    /// Queues inside of leaves.
    inners: Vec<Inner>,
    instances: Vec<Instances>,
    packets: Packets,
    wheel: Wheel,
    /// Arrivals in the order of their moments.
    line: VecDeque<Arrival>,
    /// Most arrivals in the line.
    line_limit: usize,
    /// Packet dropped, with the moment: it leaves before anything else happens.
    lost: Option<Lost>,
    /// True if the root has a packet that its ceiling lets go.
    is_ready: bool,
    now: Nanos,
    /// Packet that is being sent, or was sent last.
    service: Service,
    random: Random,
    /// Key of hashes of flows and hosts.
    seed: u64,
    /// Counters of packets that have left, by place of the settings.
    counts: Vec<LeafCounts>,
    /// True if the nodes of all instances are too many to be near all the time.
    is_large: bool,
    /// Node from which the selection of the next packet goes on: nothing has changed above it since the last.
    turn: u32,
    /// Place of the instance whose successor's nodes have been asked for.
    ahead: u32,
    /// Bytes of memory, all of it allocated at the start.
    memory: usize,
}

#[derive(Debug)]
struct Lost {
    frame: Frame,
    reason: Reason,
    at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Paces {
    ceiling: Option<Pace>,
    guarantee: Option<Pace>,
}

/// Next event of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Timer,
    Arrival,
    Departure,
}

impl Tree {
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
    #[inline(always)]
    pub(crate) fn arrive<T: Tally>(&mut self, frame: Frame, at: Nanos, ends: &Ends, tally: &mut T) {
        // Code point and length, which the engine has in registers, 4; colour, 3; leaf by class and by code point, 6; the line's end
        // and bound, 4; what is known of the packet, 32 bytes.
        tally.instructions(17);
        tally.write(Region::Queue, self.tallied_line(), 32);
        let (dscp, length) = header::code_point_and_length(&frame);
        let leaf = self.settings.leaf(frame.meta.class, dscp);
        let (mut subscriber, mut flow) = (Subscriber::default(), FlowHash::default());
        if let Some(kind) = self.kinds.get(leaf as usize) {
            if let Some(instances) = self.instances.get(kind.group as usize) {
                tally.hash(16);
                subscriber = ends.subscriber(instances.per, self.seed);
                if self.is_large {
                    self.prefetch_queue(instances, subscriber.hash, leaf);
                }
            }
            if kind.work == Work::Divided {
                tally.hash(40);
                flow = self.flow_of(leaf, ends);
            }
        }
        let length = length.min(u16::MAX.into()) as u16;
        let arrival = Arrival { frame, at, subscriber, flow, leaf, length };
        if self.line.back().is_some_and(|last| last.at > at) {
            let place = self.line.partition_point(|before| before.at <= at);
            return self.line.insert(place, arrival);
        }
        self.line.push_back(arrival);
    }

    #[inline(never)]
    fn flow_of(&self, leaf: u32, ends: &Ends) -> FlowHash {
        match self.settings.nodes.get(leaf as usize).map(|node| &node.kind) {
            Some(NodeKind::Leaf(leaf)) => {
                leaf.fq.map_or(FlowHash::default(), |fq| ends.hash(fq.isolate, self.seed))
            }
            _ => FlowHash::default(),
        }
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
        self.line.len() + self.packets.len() as usize + usize::from(self.lost.is_some())
    }

    /// True if the root has a ceiling.
    #[inline(always)]
    pub(crate) fn has_rate(&self) -> bool {
        self.paces.first().is_some_and(|paces| paces.ceiling.is_some())
    }

    /// Answers an opportunity to send by `link` at `now`.
    #[inline]
    pub(crate) fn next<T: Tally>(&mut self, link: &mut Link, now: Nanos, tally: &mut T) -> Next {
        loop {
            if self.lost.is_some() {
                return self.leave_lost();
            }
            // Node by place and bound, 6; its limit, 4; whether it has anything to send, 4; levels up, 6.
            tally.instructions(20);
            let Some((at, event)) = self.first(link) else { return Next::Empty };
            if at > now {
                // A timer alone may be about a guarantee, of a node that has nothing to send.
                return if self.is_empty() { Next::Empty } else { Next::Wait(at) };
            }
            self.now = at;
            match event {
                Event::Timer => self.pass_timers(tally),
                Event::Arrival => self.admit_due(self.is_joint(link), tally),
                Event::Departure => {
                    if let Some(frame) = self.send(tally) {
                        // The opportunity has come.
                        let start = link.begin(at, length(&frame));
                        if !self.tagged.is_empty() {
                            let until = link.opportunity().max(self.root_ready());
                            self.service = Service { began: at, until };
                        }
                        return Next::Frame(frame, start);
                    }
                }
            }
        }
    }

    /// Moment of the next event; `None` where there is none but for timers of queues without packets.
    pub(crate) fn moment(&self, link: &Link) -> Option<Nanos> {
        if let Some(lost) = &self.lost {
            return Some(lost.at);
        }
        self.first(link).map(|(at, _)| at).filter(|_| !self.is_empty())
    }

    /// The packet that was dropped leaves.
    #[cold]
    fn leave_lost(&mut self) -> Next {
        self.lost.take().map_or(Next::Empty, |Lost { frame, reason, at }| Next::Dropped(frame, reason, at))
    }

    /// True if arrivals of one moment compete for the departure of that moment. Where nothing bounds the rate, a packet goes before the
    /// next one of its moment comes.
    #[inline(always)]
    fn is_joint(&self, link: &Link) -> bool {
        link.rate().is_some() || self.has_rate()
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.packets.len() == 0 && self.line.is_empty()
    }

    /// The first event, and its moment: of one moment timers come first, then arrivals, then departures, where packets that come
    /// together compete.
    #[inline(always)]
    fn first(&self, link: &Link) -> Option<(Nanos, Event)> {
        let mut first = None;
        if self.is_ready {
            first = Some((link.opportunity().max(self.now), Event::Departure));
        }
        if let Some(arrival) = self.line.front() {
            let at = arrival.at.max(self.now);
            if first.is_none_or(|(departure, _)| at < departure || at == departure && self.is_joint(link)) {
                first = Some((at, Event::Arrival));
            }
        }
        if let Some(timer) = self.wheel.bound() {
            let at = timer.max(self.now);
            if first.is_none_or(|(first, _)| at <= first) {
                first = Some((at, Event::Timer));
            }
        }
        first
    }

    /// Moment from which the root's ceiling lets the next packet go.
    #[inline(always)]
    fn root_ready(&self) -> Nanos {
        let pace = self.paces.first().and_then(|paces| paces.ceiling.as_ref());
        let shaping = self.nodes.first().and_then(|root| self.shapers.get(root.shaper as usize));
        pace.zip(shaping).map_or(Nanos(0), |(pace, shaping)| pace.ready(&shaping.ceiling))
    }

    /// Sets a packet aside that is dropped now.
    #[inline]
    fn lose(&mut self, frame: Frame, reason: Reason) {
        debug_assert!(self.lost.is_none(), "what was lost before has left");
        self.lost = Some(Lost { frame, reason, at: self.now });
    }

    /// The frames that wait, to renumber them; those that have arrived in the tree keep their leaves.
    pub(crate) fn frames_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        let waiting = self.packets.iter_mut().map(|(frame, _)| frame);
        waiting.chain(self.line.iter_mut().map(|arrival| &mut arrival.frame))
    }

    /// Counters of each leaf, by place of its settings: of work that does not grow with the number of instances.
    pub(crate) fn counts(&self) -> Vec<LeafCounts> {
        self.counts.clone()
    }

    /// Number of subscribers that have had instances.
    pub(crate) fn subscribers(&self) -> usize {
        self.instances.iter().map(Instances::made).sum()
    }

    /// Bytes of the descriptors in the region of queues: nodes, and the line of arrivals.
    pub(crate) fn tallied_bytes(&self) -> usize {
        (self.nodes.len() + LINE) * DESCRIPTOR as usize
    }

    /// Offset of a node's descriptor in the region of queues.
    #[inline(always)]
    fn tallied_node(&self, place: u32) -> usize {
        place as usize * DESCRIPTOR as usize
    }

    /// Offset of the line of arrivals in the region of queues, behind the nodes.
    #[inline(always)]
    fn tallied_line(&self) -> usize {
        (self.nodes.len() + self.line.len() % LINE) * DESCRIPTOR as usize
    }
}

/// Place of the root.
const ROOT: u32 = 0;

/// Bytes of a node's descriptor in the memory of a chip.
const DESCRIPTOR: u32 = 32;

/// Packets in the line of arrivals of a chip.
const LINE: usize = 64;

/// No place: of a leaf that there is not.
const _: () = assert!(NONE == crate::tables::NO_NODE);
