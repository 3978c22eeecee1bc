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

use policy::model::Colour;
use wire::{Frame, Link, Nanos};

use super::Next;
use super::dropper::{Aqm, Decision, Random};
use super::ends::Ends;
use super::fq::Fq;
use super::instance::Instances;
use super::mark;
use super::node::{Node, Rings, Shaping, Tagged};
use super::packets::Packets;
use super::report::LeafCounts;
use super::shaper::Pace;
use super::wheel::Wheel;
use crate::stage::header;
use crate::tables::{LeafSettings, NodeKind, QueueTree};
use crate::verdict::Reason;

mod admit;
mod build;
mod select;

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

    /// True if a node has anything to send, but for its ceiling.
    #[inline(always)]
    fn is_active(&self, node: &Node) -> bool {
        match self.kind(node) {
            NodeKind::Leaf(_) => node.list.packets > 0,
            NodeKind::Drr => !self.rings[node.inside as usize].is_empty(),
            NodeKind::Wfq => !self.tagged[node.inside as usize].is_empty(),
        }
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
