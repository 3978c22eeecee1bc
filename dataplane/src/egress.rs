//! The egress: queues of frames before each port, and the selection of the next frame to send.
//!
//! Ingress is pushed, egress is pulled: the pipeline queues frames, and the host offers a port opportunities to send
//! ([`Shard::next`](crate::Shard::next)). A port has one first-in-first-out queue of fixed length, or the tree that
//! the policy says, and a [`Link`], which knows when the next transmission may begin: a frame departs when it has been queued and
//! the link is free, whenever the host asks. The times of departure are thus the same on every host.
//!
//! What comes by an interface may have a tree, too: its frames wait there first, and come to the port that they leave by when they
//! depart from that tree.
//!
//! Frames that a device refuses stay with the host, in a FIFO behind the egress.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use lookup::memory::MemoryError;
use tally::{NoTally, Tally};
use wire::segment::Segments;
use wire::{Batch, Frame, Link, Nanos, PortId};

use crate::hop::CELL_HOP;
use crate::nat::Share;
use crate::tables::{LOCAL, NodeKind, QueueTree, Tables, is_linux};
use crate::verdict::Reason;

mod dropper;
mod dualpi2;
mod ends;
mod fifo;
mod fq;
mod incoming;
mod inner;
mod instance;
mod kind;
mod mark;
mod node;
mod others;
mod packets;
mod placement;
pub(crate) mod program;
mod report;
mod shaper;
mod subscriber;
mod tag;
mod tree;
mod wheel;

pub use ends::Ends;
use fifo::Fifo;
use incoming::{EndsBehind, Incoming};
pub(crate) use mark::congestion as mark_congestion;
pub use others::Handoff;
use others::Others;
pub use placement::{LeafPlace, Placement, ip_length, is_marked};
pub use report::{Delays, LeafCounts};
pub use subscriber::{RecentDelays, SubscriberCounts, SubscriberReport};
use tree::Tree;

/// The answer to an opportunity to send.
#[derive(Debug)]
pub enum Next {
    /// This frame is sent; its transmission begins at that moment, which is not after that of the opportunity.
    Frame(Frame, Nanos),
    /// This frame is dropped from a queue, at that moment; there may be others to send.
    Dropped(Frame, Reason, Nanos),
    /// Frames wait; none is sent before this moment, which is after that of the opportunity.
    Wait(Nanos),
    /// Nothing waits.
    Empty,
}

impl Next {
    /// The frame, if any.
    fn into_frame(self) -> Option<Frame> {
        match self {
            Next::Frame(frame, _) | Next::Dropped(frame, ..) => Some(frame),
            Next::Wait(_) | Next::Empty => None,
        }
    }
}

/// The egress of one shard: queues and a link for each port, by place of its interface.
#[derive(Debug, Default)]
pub struct Egress {
    ports: Vec<EgressPort>,
    /// Trees of what comes by an interface, by its place; empty if there are none.
    from: Vec<Option<Box<Incoming>>>,
    /// Other workers that serve trees; `None` if there are none.
    others: Option<Box<Others>>,
}

/// The egress of one port.
#[derive(Debug)]
pub(crate) struct EgressPort {
    /// Frames that wait where there is no tree.
    queue: Fifo,
    /// Segments that wait in the queue beside the frames that stand for them: a packet of many takes their room.
    further: usize,
    /// Most frames that wait.
    limit: usize,
    link: Link,
    tree: Option<Box<Tree>>,
    /// Frames that have departed from the queue, or were dropped from it, to make room for what came from a tree of incoming packets:
    /// the next answers.
    departed: VecDeque<Next>,
}

/// Tables of a worker that hands a packet off, beside those of the worker that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The same.
    Same,
    /// Those that came before.
    Previous,
    /// Those that come next.
    Next,
}

/// Sharing of links among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links of the shard's own: there is one worker.
    Own,
    /// Links of the tables, common to the shards of all workers.
    Shared,
}

/// Queues of one tree, for reports.
#[derive(Clone, Debug)]
pub struct TreeReport {
    /// Interface that the packets leave by, or come by.
    pub port: PortId,
    /// Direction.
    pub side: TreeSide,
    /// Settings, with the names of leaves.
    pub settings: Arc<QueueTree>,
    /// Counters, by place of the settings.
    pub counts: Vec<LeafCounts>,
    /// Subscribers that have had queues.
    pub subscribers: usize,
}

impl TreeReport {
    /// Names and counters of the leaves, in the order of the tree; behind one with DualPI2, `NAME/l4s` has those of its queue of low
    /// latency, which are not counted with the leaf's own.
    pub fn leaves(&self) -> impl Iterator<Item = (Cow<'_, str>, &LeafCounts)> {
        self.placed_leaves().map(|(_, name, counts)| (name, counts))
    }

    /// [`TreeReport::leaves`], each with its place.
    pub fn placed_leaves(&self) -> impl Iterator<Item = (LeafPlace, Cow<'_, str>, &LeafCounts)> {
        let nodes = (0..).zip(self.settings.nodes.iter().zip(&self.counts));
        let leaves = nodes.filter(|(_, (node, _))| matches!(node.kind, NodeKind::Leaf(_)));
        leaves.flat_map(move |(leaf, (node, counts))| {
            let place = LeafPlace { port: self.port, leaf, is_low_latency: false };
            let low = counts.low_latency.as_deref().map(|counts| {
                let name = Cow::Owned(format!("{}/l4s", node.name));
                (LeafPlace { is_low_latency: true, ..place }, name, counts)
            });
            std::iter::once((place, Cow::Borrowed(node.name.as_str()), counts)).chain(low)
        })
    }
}

/// Direction of the packets of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeSide {
    /// Those that leave by the interface.
    On,
    /// Those that come by it.
    From,
}

impl TreeSide {
    /// `on` or `from`, as in policies.
    pub const fn name(self) -> &'static str {
        match self {
            TreeSide::On => "on",
            TreeSide::From => "from",
        }
    }
}

impl Links {
    /// Returns the sharing for the shard with that share of the work.
    pub(crate) fn of(share: Share) -> Links {
        if share.workers() > 1 { Links::Shared } else { Links::Own }
    }
}

impl Egress {
    /// With empty queues for each interface of the tables, as long as they say.
    ///
    /// # Errors
    /// The system has not the memory for a tree.
    pub(crate) fn new(tables: &Tables, share: Share, seed: [u64; 2]) -> Result<Egress, MemoryError> {
        let limit = tables.limits.queue as usize;
        let queues = &tables.queues;
        // A tree that is another worker's is not built.
        let tree =
            |port: PortId, settings: &Arc<QueueTree>| match Others::serves(queues, port, settings, share) {
                Some(_) => Ok(None),
                None => {
                    let is_one = queues.owner(port, settings, share.workers()).is_some();
                    let workers = if is_one { 1 } else { share.workers() };
                    Tree::new(settings, limit, workers, seed[0] ^ seed[1]).map(Some)
                }
            };
        let waiting = |tree: &QueueTree| tree.capacity as usize + limit;
        let incoming: usize = queues.from.iter().flatten().map(|tree| waiting(tree)).sum();
        let port = |(place, interface): (u16, &crate::tables::Interface)| {
            let settings = tables.queues.on(PortId(place));
            // All that trees of incoming packets hold may come at once, and find as many here.
            let departed =
                if incoming == 0 { 0 } else { incoming + settings.map_or(limit, |tree| waiting(tree)) };
            Ok(EgressPort {
                queue: Fifo::with_capacity(if settings.is_some() { 0 } else { limit }),
                further: 0,
                limit,
                link: match Links::of(share) {
                    Links::Own => interface.egress.another(),
                    Links::Shared => interface.egress.shared(),
                },
                tree: settings.map_or(Ok(None), |settings| tree(PortId(place), settings))?.map(Box::new),
                departed: VecDeque::with_capacity(departed),
            })
        };
        let needs_ends = queues.on.iter().flatten().any(|tree| tree.needs_ends);
        let behind = if needs_ends { EndsBehind::Needed } else { EndsBehind::Unused };
        let from = |(port, settings): (PortId, &Option<Arc<QueueTree>>)| {
            let Some(settings) = settings else { return Ok(None) };
            let tree = tree(port, settings)?;
            Ok(tree.map(|tree| Box::new(Incoming::new(tree, waiting(settings), behind))))
        };
        let mut from: Vec<_> = (0..).map(PortId).zip(&queues.from).map(from).collect::<Result<_, _>>()?;
        if from.iter().all(Option::is_none) {
            from.clear();
        }
        Ok(Egress {
            ports: (0..).zip(&tables.interfaces).map(port).collect::<Result<_, _>>()?,
            from,
            others: Others::new(queues, share, limit),
        })
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// The egress of a port.
    #[inline(always)]
    pub(crate) fn port(&mut self, port: PortId) -> Option<&mut EgressPort> {
        self.ports.get_mut(usize::from(port.0))
    }

    /// Answers an opportunity to send at `now`.
    #[inline(always)]
    pub(crate) fn next<T: Tally>(&mut self, port: PortId, now: Nanos, tally: &mut T) -> Next {
        if !self.from.is_empty() {
            return self.next_of_all(port, now, tally);
        }
        match self.port(port) {
            Some(port) if port.departed.is_empty() => port.next(now, tally),
            // Of a tree of incoming packets that a reload has taken away.
            Some(port) => port.departed.pop_front().unwrap_or(Next::Empty),
            None => Next::Empty,
        }
    }

    /// Moves frames that may depart at `now` into `out`, in order and as long as there is room, and shows each to `departs`. None where
    /// departures are not simply those of a queue (a tree, a rate), and none behind a packet of many segments.
    #[inline(always)]
    pub(crate) fn dequeue_burst(
        &mut self,
        port: PortId,
        now: Nanos,
        out: &mut Batch,
        mut departs: impl FnMut(&Frame),
    ) {
        if !self.from.is_empty() {
            return;
        }
        let is_simple =
            |port: &&mut EgressPort| port.tree.is_none() && port.departed.is_empty() && !port.link.is_paced();
        let Some(port) = self.port(port).filter(is_simple) else { return };
        port.queue.pop_burst(out, |frame| {
            let is_ready = !frame.is_big() && frame.meta.received <= now;
            if is_ready {
                departs(frame);
            }
            is_ready
        });
    }

    /// [`Egress::next`], after what comes from trees of incoming packets by then.
    #[inline(never)]
    fn next_of_all<T: Tally>(&mut self, port: PortId, now: Nanos, tally: &mut T) -> Next {
        let mut until;
        let Egress { ports, from, others } = self;
        loop {
            // Trees take turns by their moments, as packets of several may come to one port.
            let trees = from.iter_mut().flatten().map(Box::as_mut);
            let moments = trees.filter_map(|incoming| Some((incoming.moment()?, incoming)));
            let Some((moment, incoming)) = moments.min_by_key(|(moment, _)| *moment) else {
                until = None;
                break;
            };
            until = Some(moment);
            if moment > now {
                break;
            }
            let (next, ends) = incoming.next(moment, tally);
            match next {
                Next::Frame(mut frame, at) => {
                    frame.meta.received = at;
                    let elsewhere = others.as_ref().and_then(|others| others.on(frame.meta.egress));
                    if let (Some(worker), Some(others)) = (elsewhere, &mut *others) {
                        if others.is_full() {
                            return Next::Dropped(frame, Reason::HandoffFull, at);
                        }
                        others.push(frame, ends, LOCAL, worker);
                        continue;
                    }
                    let Some(port) = ports.get_mut(usize::from(frame.meta.egress.0)) else {
                        return Next::Dropped(frame, Reason::InterfaceGone, at);
                    };
                    if !port.make_room(at, tally) {
                        return Next::Dropped(frame, Reason::QueueFull, at);
                    }
                    port.push_in_order(frame, &ends, tally);
                }
                Next::Wait(_) | Next::Empty => {}
                dropped @ Next::Dropped(..) => return dropped,
            }
        }
        let Some(port) = self.port(port) else { return Next::Empty };
        if let Some(next) = port.departed.pop_front() {
            return next;
        }
        let next = port.next(now, tally);
        match (next, until) {
            (Next::Empty, Some(until)) => Next::Wait(until),
            (Next::Wait(at), Some(until)) => Next::Wait(at.min(until)),
            (next, _) => next,
        }
    }

    /// Queues a frame that came by `ingress`, where that interface or the frame's port has a tree: here, or to be handed off to the
    /// worker that serves the tree.
    #[inline]
    pub(crate) fn enter<T: Tally>(&mut self, frame: Frame, ingress: PortId, ends: &Ends, tally: &mut T) {
        let elsewhere = self.elsewhere(ingress, frame.meta.egress);
        if let (Some(worker), Some(others)) = (elsewhere, &mut self.others) {
            return others.push(frame, *ends, ingress, worker);
        }
        let at = frame.meta.received;
        if let Some(Some(incoming)) = self.from.get_mut(usize::from(ingress.0)) {
            return incoming.arrive(frame, at, ends, tally);
        }
        if let Some(port) = self.port(frame.meta.egress) {
            port.push_in_order(frame, ends, tally);
        }
    }

    /// [`Egress::enter`], for a frame that another worker has handed off because this one serves its tree, by tables of `order`.
    pub(crate) fn take(&mut self, frame: Frame, ingress: PortId, ends: Ends, order: Order) {
        let is_elsewhere = self.elsewhere(ingress, frame.meta.egress).is_some();
        match &mut self.others {
            // By the tables that come next it is this worker's.
            Some(others) if is_elsewhere && order == Order::Next => others.keep(frame, ends, ingress),
            _ => self.enter(frame, ingress, &ends, &mut NoTally),
        }
    }

    /// The other worker that serves the first tree of a packet that comes by `ingress` and leaves by `port`.
    #[inline(always)]
    fn elsewhere(&self, ingress: PortId, port: PortId) -> Option<u16> {
        self.others.as_deref().and_then(|others| self.elsewhere_of(others, ingress, port))
    }

    #[inline(never)]
    fn elsewhere_of(&self, others: &Others, ingress: PortId, port: PortId) -> Option<u16> {
        if matches!(self.from.get(usize::from(ingress.0)), Some(Some(_))) {
            return None;
        }
        others.from(ingress).or_else(|| others.on(port))
    }

    /// The reason for which one more frame that comes by `ingress` and leaves by `port` cannot be queued.
    pub(crate) fn refusal(&self, ingress: PortId, port: PortId) -> Option<Reason> {
        if self.elsewhere(ingress, port).is_some() {
            let is_full = self.others.as_ref().is_some_and(|others| others.is_full());
            return is_full.then_some(Reason::HandoffFull);
        }
        let is_full = match self.from.get(usize::from(ingress.0)) {
            Some(Some(incoming)) => incoming.tree.is_full(),
            _ => self.ports.get(usize::from(port.0)).is_some_and(EgressPort::is_full),
        };
        is_full.then_some(Reason::QueueFull)
    }

    /// The packets to be handed off to the workers that serve their trees.
    pub(crate) fn handoffs(&mut self) -> Option<&mut VecDeque<Handoff>> {
        self.others.as_mut().map(|others| others.out()).filter(|out| !out.is_empty())
    }

    /// The frames that have been queued for a port, or have come by one with a tree, behind the first `before`, and no scheduler has
    /// looked at yet.
    pub fn queued_behind(&self, place: usize, before: usize) -> impl Iterator<Item = &Frame> {
        let port = self.ports.get(place).filter(|port| port.tree.is_none());
        let queue = port.map(|port| &port.queue).into_iter();
        let queue = queue.flat_map(move |queue| queue.behind(before));
        let on = self.ports.get(place).and_then(|port| port.tree.as_deref());
        let from = place.checked_sub(self.ports.len()).and_then(|place| self.from.get(place)?.as_deref());
        let trees = on.into_iter().chain(from.map(|incoming| &incoming.tree));
        queue.chain(trees.flat_map(move |tree| tree.arrivals_behind(before)))
    }

    /// Number of frames that [`queued_behind`](Egress::queued_behind) has, by its places: first those of ports.
    pub fn arriving(&self) -> impl Iterator<Item = usize> {
        let ports = self.ports.iter().map(|port| match &port.tree {
            Some(tree) => tree.arriving(),
            None => port.queue.len(),
        });
        let from = self.from.iter().map(|from| from.as_ref().map_or(0, |incoming| incoming.tree.arriving()));
        ports.chain(from)
    }

    /// True if something bounds the rate of a port.
    pub(crate) fn has_rate(&self, port: PortId) -> bool {
        let port = self.ports.get(usize::from(port.0));
        port.is_some_and(|port| {
            port.link.rate().is_some() || port.tree.as_ref().is_some_and(|tree| tree.has_rate())
        })
    }

    /// Number of frames that wait before each port, by place of its interface. Those that wait in a tree of incoming packets count
    /// with the interface that they came by.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.ports.iter().enumerate().map(|(place, port)| {
            let from = self.from.get(place).and_then(Option::as_ref);
            let others = self.others.as_ref();
            port.len()
                + from.map_or(0, |incoming| incoming.tree.len())
                + others.map_or(0, |others| others.waiting(PortId(place as u16)))
        })
    }

    /// The trees, with their counters.
    pub fn trees(&self) -> impl Iterator<Item = TreeReport> {
        let report = |place: usize, side, tree: &Tree| TreeReport {
            port: PortId(place as u16),
            side,
            settings: Arc::clone(tree.settings()),
            counts: tree.counts(),
            subscribers: tree.subscribers(),
        };
        let on = self.ports.iter().enumerate().filter_map(move |(place, port)| {
            port.tree.as_ref().map(|tree| report(place, TreeSide::On, tree))
        });
        let from = self.from.iter().enumerate().filter_map(move |(place, from)| {
            from.as_ref().map(|incoming| report(place, TreeSide::From, &incoming.tree))
        });
        on.chain(from)
    }

    /// Reports up to `most` instances of subscribers, from the one of number `first` on, over all trees. Returns the number to go on
    /// from; `None` at the end.
    pub fn subscribers(&self, first: u32, most: u32, mut tell: impl FnMut(SubscriberReport)) -> Option<u32> {
        let on = self.ports.iter().enumerate();
        let on = on.filter_map(|(place, port)| Some((place, TreeSide::On, port.tree.as_deref()?)));
        let from = self.from.iter().enumerate();
        let from = from.filter_map(|(place, from)| Some((place, TreeSide::From, &from.as_ref()?.tree)));
        let (mut before, end) = (0, first.saturating_add(most));
        for (place, side, tree) in on.chain(from) {
            let made = tree.made();
            let numbers = first.saturating_sub(before).min(made)..end.saturating_sub(before).min(made);
            tree.subscribers_among(numbers, PortId(place as u16), side, &mut tell);
            before += made;
        }
        (end < before).then_some(end)
    }

    /// Follows a clock that was set back by `span`: what waits has waited as long as before.
    pub(crate) fn set_back(&mut self, span: Nanos) {
        for port in &mut self.ports {
            port.link.set_back(span);
            for frame in port.queue.iter_mut() {
                frame.meta.received = frame.meta.received - span;
            }
            port.tree.iter_mut().for_each(|tree| tree.set_back(span));
        }
        self.from.iter_mut().flatten().for_each(|incoming| incoming.tree.set_back(span));
    }

    /// Lets all links and shapers be free.
    pub(crate) fn free_links(&mut self) {
        self.ports.iter_mut().for_each(|port| port.link.set_back(Nanos::MAX));
        let trees = self.ports.iter_mut().filter_map(|port| port.tree.as_deref_mut());
        let from = self.from.iter_mut().flatten().map(|incoming| &mut incoming.tree);
        trees.chain(from).for_each(|tree| tree.set_back(Nanos::MAX));
    }

    /// Goes on at `now` with the queues and links of `old`: `were` gives, by place, the place of the same port there, or none.
    /// A queue keeps what waits in it, even where it is shorter now. `renumber` is told of each frame and its port's place.
    pub(crate) fn continue_from(
        &mut self,
        old: &mut Egress,
        now: Nanos,
        were: impl Fn(PortId) -> Option<PortId>,
        mut renumber: impl FnMut(&mut Frame, PortId),
    ) {
        let Egress { ports, others, .. } = self;
        for (place, port) in (0..).map(PortId).zip(ports) {
            let elsewhere = others.as_ref().and_then(|others| others.on(place));
            let Some(before) = were(place).and_then(|was| old.port(was)) else { continue };
            port.link.continue_from(&before.link);
            std::mem::swap(&mut port.departed, &mut before.departed);
            for next in &mut port.departed {
                if let Next::Frame(frame, _) | Next::Dropped(frame, ..) = next {
                    renumber(frame, place);
                }
            }
            let has_no_tree = port.tree.is_none() && before.tree.is_none() && elsewhere.is_none();
            if has_no_tree && port.limit == before.limit {
                std::mem::swap(&mut port.queue, &mut before.queue);
                port.further = std::mem::take(&mut before.further);
                port.queue.iter_mut().for_each(|frame| renumber(frame, place));
                continue;
            }
            continue_tree(&mut port.tree, &mut before.tree, now);
            // What waited in a tree of the same settings stays there; all else is queued anew.
            port.tree.iter_mut().flat_map(|tree| tree.frames_mut()).for_each(|frame| renumber(frame, place));
            let has_changed = before.tree.is_some() || port.tree.is_some() || elsewhere.is_some();
            let mut frames = before.tree.as_mut().map_or_else(Vec::new, |tree| tree.drain());
            frames.extend(before.queue.drain());
            for mut frame in frames {
                if has_changed {
                    // What has not departed by now departs later.
                    frame.meta.received = frame.meta.received.max(now);
                }
                renumber(&mut frame, place);
                let ends = crate::stage::queue::ends_on_wire(&frame);
                if port.tree.is_none() && elsewhere.is_none() {
                    port.stand_for(Segments::of(&frame));
                }
                match (elsewhere, &mut *others) {
                    (Some(worker), Some(others)) => others.push(frame, ends, LOCAL, worker),
                    _ => port.push_in_order(frame, &ends, &mut NoTally),
                }
            }
        }
    }

    /// Goes on with what `old` was to hand off: `renumber` gives the place of a port now.
    pub(crate) fn continue_handoffs(
        &mut self,
        old: &mut Egress,
        mut renumber: impl FnMut(&mut Frame) -> Option<PortId>,
    ) {
        for Handoff { mut frame, ends, ingress, .. } in
            old.others.as_mut().map_or_else(VecDeque::new, |others| std::mem::take(others.out()))
        {
            match renumber(&mut frame) {
                Some(_) => {
                    let ingress = if is_linux(ingress) { ingress } else { frame.meta.ingress };
                    self.enter(frame, ingress, &ends, &mut NoTally);
                }
                None => old.push_lost(frame),
            }
        }
    }

    /// Goes on with the trees of incoming packets of `old`, in the same way: `becomes` gives the place of a port now.
    pub(crate) fn continue_incoming(
        &mut self,
        old: &mut Egress,
        now: Nanos,
        were: impl Fn(PortId) -> Option<PortId>,
        mut renumber: impl FnMut(&mut Frame) -> Option<PortId>,
    ) {
        for (place, from) in (0..).map(PortId).zip(&mut self.from) {
            let Some(was) = were(place) else { continue };
            let Some(Some(before)) = old.from.get_mut(usize::from(was.0)) else { continue };
            let Some(incoming) = from else { continue };
            if incoming.tree.settings() == before.tree.settings() {
                incoming.take_over(before);
                // A frame whose port is gone is dropped when its turn comes.
                incoming.tree.frames_mut().for_each(|frame| {
                    let _ = renumber(frame);
                });
            } else {
                incoming.tree.continue_from(&before.tree, now);
            }
        }
        // What waited in other trees goes on to its port.
        let kept: Vec<_> = old.from.iter_mut().flatten().flat_map(|before| before.drain()).collect();
        for (mut frame, ends) in kept {
            frame.meta.received = frame.meta.received.max(now);
            match renumber(&mut frame) {
                Some(_) => {
                    self.enter(frame, LOCAL, &ends, &mut NoTally);
                }
                None => old.push_lost(frame),
            }
        }
    }

    /// Keeps a frame for [`drain`](Egress::drain).
    fn push_lost(&mut self, frame: Frame) {
        if let Some(port) = self.ports.first_mut() {
            port.queue.push_back(frame);
        }
    }

    /// Bytes of the descriptors of queues in the memory of a chip.
    pub(crate) fn tallied_bytes(&self) -> usize {
        let trees = self.ports.iter().filter_map(|port| port.tree.as_deref());
        let from = self.from.iter().flatten().map(|incoming| incoming.tallied_bytes());
        self.ports.len() * 64 + trees.map(Tree::tallied_bytes).chain(from).sum::<usize>()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let trees = self.ports.iter().filter_map(|port| port.tree.as_deref());
        let from = self.from.iter().flatten().map(|incoming| incoming.memory_bytes());
        let queues = self.ports.iter().map(|port| port.queue.memory_bytes());
        size_of_val(self.ports.as_slice())
            + queues.sum::<usize>()
            + trees.map(Tree::memory_bytes).chain(from).sum::<usize>()
            + self.others.as_ref().map_or(0, |others| others.memory_bytes())
    }

    /// Takes out all frames that wait.
    pub(crate) fn drain(&mut self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for port in &mut self.ports {
            frames.extend(port.departed.drain(..).filter_map(Next::into_frame));
            frames.extend(port.queue.drain());
            port.further = 0;
            frames.extend(port.tree.as_mut().map_or_else(Vec::new, |tree| tree.drain()));
        }
        for incoming in self.from.iter_mut().flatten() {
            frames.extend(incoming.drain().into_iter().map(|(frame, _)| frame));
        }
        if let Some(others) = &mut self.others {
            frames.extend(others.out().drain(..).map(|handoff| handoff.frame));
        }
        frames
    }
}

/// Goes on with the tree of the same settings; of one that differs, with its time and counters.
fn continue_tree(tree: &mut Option<Box<Tree>>, before: &mut Option<Box<Tree>>, now: Nanos) {
    let (Some(new), Some(old)) = (&mut *tree, &mut *before) else { return };
    if new.settings() == old.settings() {
        std::mem::swap(new, old);
    } else {
        new.continue_from(old, now);
    }
}

/// Length of a frame on its link; a cell is one whatever the link adds to packets.
#[inline(always)]
fn length(frame: &Frame) -> usize {
    if frame.meta.hop == CELL_HOP { wire::link::ONE_CELL } else { frame.len() }
}

impl EgressPort {
    /// True if there is no room for one more.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        match &self.tree {
            None => self.queue.len() + self.further >= self.limit,
            Some(tree) => tree.is_full(),
        }
    }

    /// True if so many more fit in the queue where there is no tree.
    pub(crate) fn has_room_for(&self, frames: u64) -> bool {
        self.limit.saturating_sub(self.queue.len() + self.further) as u64 >= frames
    }

    /// Notes that a frame of the queue stands for so many.
    pub(crate) fn stand_for(&mut self, segments: Segments) {
        self.further += segments.count as usize - 1;
    }

    /// Lets frames depart that are due by `at`, where there is no room for one that comes then. True if there is room.
    fn make_room<T: Tally>(&mut self, at: Nanos, tally: &mut T) -> bool {
        while self.is_full() {
            match self.next(at, tally) {
                Next::Wait(_) | Next::Empty => break,
                next => self.departed.push_back(next),
            }
        }
        // In a tree the leaf decides, when its time comes.
        !self.is_full()
    }

    /// Number of frames that wait.
    fn len(&self) -> usize {
        self.tree.as_ref().map_or(self.queue.len() + self.further, |tree| tree.len()) + self.departed.len()
    }

    /// Queues a frame, which may depart from the moment of its [`received`](wire::Meta::received) on, where no tree is. The caller
    /// has checked that there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.queue.push_back(frame);
    }

    /// Queues a frame, in front of those that may depart later.
    #[inline(always)]
    fn push_in_order<T: Tally>(&mut self, frame: Frame, ends: &Ends, tally: &mut T) {
        let at = frame.meta.received;
        if let Some(tree) = &mut self.tree {
            return tree.arrive(frame, at, ends, tally);
        }
        self.queue.insert(frame, |before| before.meta.received <= at);
    }

    #[inline(always)]
    fn next<T: Tally>(&mut self, now: Nanos, tally: &mut T) -> Next {
        if let Some(tree) = &mut self.tree {
            return tree.next(&mut self.link, now, tally);
        }
        let Some(first) = self.queue.front() else { return Next::Empty };
        if first.is_big() {
            return self.next_whole(now);
        }
        match self.link.take(first.meta.received, now, length(first)) {
            Ok(at) => match self.queue.pop_front() {
                Some(frame) => Next::Frame(frame, at),
                None => Next::Empty,
            },
            Err(at) => Next::Wait(at),
        }
    }

    /// [`EgressPort::next`], of a packet of many segments at the front: they take the link one after the other.
    #[cold]
    fn next_whole(&mut self, now: Nanos) -> Next {
        let Some(first) = self.queue.front() else { return Next::Empty };
        let segments = Segments::of(first);
        match self.link.take(first.meta.received, now, self.link.length_of(segments)) {
            Ok(at) => {
                self.further = self.further.saturating_sub(segments.count as usize - 1);
                self.queue.pop_front().map_or(Next::Empty, |frame| Next::Frame(frame, at))
            }
            Err(at) => Next::Wait(at),
        }
    }
}
