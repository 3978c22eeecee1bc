//! The egress: a queue of frames before each port, and the selection of the next frame to send.
//!
//! Ingress is pushed, egress is pulled: the pipeline queues frames, and the host offers a port opportunities to send
//! ([`Shard::next`](crate::Shard::next)). A port has one first-in-first-out queue of fixed length and a [`Link`], which
//! knows when the next transmission may begin: a frame departs when it has been queued and the link is free, whenever
//! the host asks. The times of departure are thus the same on every host.
//!
//! Frames that a device refuses stay with the host, in a FIFO behind the egress.

use std::collections::VecDeque;

use wire::{Frame, Link, Nanos, PortId};

use crate::nat::Share;
use crate::tables::Tables;

/// The answer to an opportunity to send.
#[derive(Debug)]
pub enum Next {
    /// This frame is sent; its transmission begins at that moment, which is not after that of the opportunity.
    Frame(Frame, Nanos),
    /// Frames wait; the next may be sent from this moment on, which is after that of the opportunity.
    Wait(Nanos),
    /// Nothing waits.
    Empty,
}

/// The egress of one shard: a queue and a link for each port, by place of its interface.
#[derive(Debug, Default)]
pub struct Egress {
    ports: Vec<EgressPort>,
}

/// The egress of one port.
#[derive(Debug)]
pub(crate) struct EgressPort {
    queue: VecDeque<Frame>,
    /// Most frames that wait.
    limit: usize,
    link: Link,
}

/// Sharing of links among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links of the shard's own: there is one worker.
    Own,
    /// Links of the tables, common to the shards of all workers.
    Shared,
}

impl Links {
    /// Returns the sharing for the shard with that share of the work.
    pub(crate) fn of(share: Share) -> Links {
        if share.workers() > 1 { Links::Shared } else { Links::Own }
    }
}

impl Egress {
    /// With an empty queue for each interface of the tables, as long as they say.
    pub(crate) fn new(tables: &Tables, links: Links) -> Egress {
        let limit = tables.limits.queue as usize;
        let port = |interface: &crate::tables::Interface| EgressPort {
            queue: VecDeque::with_capacity(limit),
            limit,
            link: match links {
                Links::Own => interface.egress.another(),
                Links::Shared => interface.egress.shared(),
            },
        };
        Egress { ports: tables.interfaces.iter().map(port).collect() }
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
    pub(crate) fn next(&mut self, port: PortId, now: Nanos) -> Next {
        match self.port(port) {
            Some(port) => port.next(now),
            None => Next::Empty,
        }
    }

    /// The frames that wait before a port behind the first `before`.
    pub fn queued_behind(&self, port: PortId, before: usize) -> impl Iterator<Item = &Frame> {
        let queue = self.ports.get(usize::from(port.0)).map(|port| &port.queue);
        queue.into_iter().flat_map(move |queue| queue.range(before.min(queue.len())..))
    }

    /// True if the link of a port has a rate.
    pub(crate) fn has_rate(&self, port: PortId) -> bool {
        self.ports.get(usize::from(port.0)).is_some_and(|port| port.link.rate().is_some())
    }

    /// Number of frames that wait before each port, by place of its interface.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.ports.iter().map(|port| port.queue.len())
    }

    /// Follows a clock that was set back by `span`: what waits has waited as long as before.
    pub(crate) fn set_back(&mut self, span: Nanos) {
        for port in &mut self.ports {
            port.link.set_back(span);
            for frame in &mut port.queue {
                frame.meta.received = frame.meta.received - span;
            }
        }
    }

    /// Lets all links be free.
    pub(crate) fn free_links(&mut self) {
        self.ports.iter_mut().for_each(|port| port.link.set_back(Nanos::MAX));
    }

    /// Goes on with the queues and links of `old`: `were` gives, by place, the place of the same port there, or none.
    /// A queue keeps what waits in it, even where it is shorter now. `renumber` is told of each frame and its port's place.
    pub(crate) fn continue_from(
        &mut self,
        old: &mut Egress,
        were: impl Fn(PortId) -> Option<PortId>,
        mut renumber: impl FnMut(&mut Frame, PortId),
    ) {
        for (place, port) in (0..).map(PortId).zip(&mut self.ports) {
            let Some(before) = were(place).and_then(|was| old.port(was)) else { continue };
            if port.limit == before.limit {
                std::mem::swap(&mut port.queue, &mut before.queue);
            } else {
                port.queue.extend(before.queue.drain(..));
            }
            port.link.continue_from(&before.link);
            port.queue.iter_mut().for_each(|frame| renumber(frame, place));
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queues = self.ports.iter().map(|port| port.queue.capacity() * size_of::<Frame>());
        size_of_val(self.ports.as_slice()) + queues.sum::<usize>()
    }

    /// Takes out all frames that wait.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        self.ports.iter_mut().flat_map(|port| port.queue.drain(..))
    }
}

impl EgressPort {
    /// True if there is no room for one more.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.limit
    }

    /// Queues a frame, which may depart from the moment of its [`received`](wire::Meta::received) on. The caller has
    /// checked that there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.queue.push_back(frame);
    }

    #[inline(always)]
    fn next(&mut self, now: Nanos) -> Next {
        let Some(first) = self.queue.front() else { return Next::Empty };
        match self.link.take(first.meta.received, now, first.len()) {
            Ok(at) => match self.queue.pop_front() {
                Some(frame) => Next::Frame(frame, at),
                None => Next::Empty,
            },
            Err(at) => Next::Wait(at),
        }
    }
}
