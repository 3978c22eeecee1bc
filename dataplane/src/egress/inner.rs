//! Queues inside a leaf: one for each flow, or the two of DualPI2. Leaves with neither have one list.

use lookup::memory::MemoryError;
use policy::model::{Colour, Dropper};
use wire::Nanos;

use super::dropper::{Decision, Random};
use super::dualpi2::Dual;
use super::fq::{FlowHash, Fq};
use super::kind::Kind;
use super::packets::{List, Packets, Waiting};
use crate::tables::{FqSettings, LeafSettings};

/// Queues inside a leaf.
#[derive(Debug)]
pub(super) enum Inner {
    /// Of flows.
    Flows(Box<Fq>, FqSettings),
    /// Of low latency, and classic.
    Dual(Box<Dual>),
}

impl Inner {
    /// Creates the empty queues of a leaf; `None` if it is one queue.
    ///
    /// # Errors
    /// The system has not the memory for them.
    pub(super) fn new(settings: &LeafSettings) -> Result<Option<Inner>, MemoryError> {
        Ok(match (&settings.fq, settings.drop) {
            (_, Dropper::DualPi2) => Some(Inner::Dual(Box::new(Dual::new(settings)))),
            (Some(fq), _) => Some(Inner::Flows(Box::new(Fq::new(fq, settings)?), *fq)),
            (None, _) => None,
        })
    }

    /// Decides on a packet that comes.
    pub(super) fn arrives(
        &mut self,
        settings: &LeafSettings,
        hash: FlowHash,
        colour: Colour,
        now: Nanos,
        random: &mut Random,
    ) -> Decision {
        match self {
            Inner::Flows(flows, _) => {
                let flow = flows.of(hash);
                flow.map_or(Decision::Keep, |(aqm, list)| aqm.arrives(settings, list, colour, now, random))
            }
            Inner::Dual(_) => Decision::Keep,
        }
    }

    /// Puts a packet into its queue.
    ///
    /// # Errors
    /// There is no room in the tree; the packet comes back.
    pub(super) fn push(
        &mut self,
        hash: FlowHash,
        packet: Waiting,
        packets: &mut Packets,
    ) -> Result<(), Waiting> {
        match self {
            Inner::Flows(flows, fq) => flows.push(fq, hash, packet, packets),
            Inner::Dual(dual) => dual.push(packet, packets),
        }
    }

    /// Takes the packet whose turn it is, with the decision on it.
    pub(super) fn pop(
        &mut self,
        kind: &Kind,
        settings: &LeafSettings,
        now: Nanos,
        packets: &mut Packets,
        random: &mut Random,
    ) -> Option<(Waiting, Decision)> {
        match self {
            Inner::Flows(flows, fq) => flows.pop(fq, kind, settings, now, packets),
            Inner::Dual(dual) => dual.pop(kind, settings, now, packets, random),
        }
    }

    /// Takes a packet of another flow, for want of room. `None` where the one that comes is dropped.
    pub(super) fn pop_longest(&mut self, packets: &mut Packets) -> Option<Waiting> {
        match self {
            Inner::Flows(flows, _) => flows.pop_longest(packets),
            Inner::Dual(_) => None,
        }
    }

    /// All queues.
    pub(super) fn lists_mut(&mut self) -> Box<dyn Iterator<Item = &mut List> + '_> {
        match self {
            Inner::Flows(flows, _) => Box::new(flows.lists_mut()),
            Inner::Dual(dual) => Box::new(dual.lists_mut().into_iter()),
        }
    }

    /// Follows a clock that was set back by `span`.
    pub(super) fn set_back(&mut self, span: Nanos) {
        match self {
            Inner::Flows(flows, _) => flows.set_back(span),
            Inner::Dual(dual) => dual.set_back(span),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Inner::Flows(flows, _) => size_of::<Fq>() + flows.memory_bytes(),
            Inner::Dual(_) => size_of::<Dual>(),
        }
    }
}
