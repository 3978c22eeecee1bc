//! Trace of one frame through the pipeline, stage by stage.
//!
//! The frame takes the path of all frames ([`Pipeline::step_watched`](crate::Pipeline::step_watched)): the trace records
//! real processing, which changes flows, ports and counters. Nothing here prints.

use std::mem;

use tally::Count;
use wire::{Frame, Meta, Nanos, PortId};

use crate::flow::{Flow, FlowId};
use crate::meter::MeterState;
use crate::opening::Opening;
use crate::pipeline::Watch;
use crate::port_mapping::{self, PortMapping};
use crate::replay::{Replay, Witness};
use crate::stage::classify::{self, Classify};
use crate::stage::dnat::{self, Dnat};
use crate::stage::filter::{self, Filter};
use crate::stage::police::{self, Police};
use crate::stage::route::{self, Route};
use crate::stage::snat::{self, Snat};
use crate::stage::{Cx, Stage};
use crate::stage::{vrf, wan};
use crate::tables::{Side, VrfId, WanChoice};
use crate::tunnel::is_copy;
use crate::verdict::{Reason, Verdict};

mod sa;

pub use sa::{SaBrief, SaMet};

/// Trace of one frame: its stages, the frames sent, its verdict.
#[derive(Clone, Debug)]
pub struct Account {
    /// The stages that took the frame, in their order. None if it was too large to be taken in.
    pub visits: Vec<Visit>,
    /// Of a packet to a multicast group: its further copies, in the order in which they ended or were queued.
    pub copies: Vec<CopyEnd>,
    /// Frames sent because of it, in order: itself, its fragments, its answer, or frames that waited for it.
    pub sent: Vec<Sent>,
    /// Its verdict.
    pub verdict: Verdict,
}

/// Outcome of a further copy of a packet to a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// Interface that the copy was for.
    pub egress: PortId,
    /// Rule that decided on it, by its place; [`Meta::NO_RULE`] for none.
    pub rule: u32,
    /// Its verdict.
    pub verdict: Verdict,
}

impl CopyEnd {
    fn of(frame: &Frame, verdict: Verdict) -> CopyEnd {
        CopyEnd { egress: frame.meta.egress, rule: frame.meta.rule, verdict }
    }
}

/// Visit of the frame to one stage: metadata, flow and bytes after it, and its cost.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The stage's name.
    pub stage: &'static str,
    /// Metadata of the frame before the stage.
    pub before: Meta,
    /// Metadata of the frame after the stage, with its verdict if there is one.
    pub after: Meta,
    /// Decisions so far on the flow that the frame opens, if it opens one.
    pub opening: Option<Opening>,
    /// Flow of the frame, after the stage.
    pub flow: Option<Flow>,
    /// Number of flows before and after the stage.
    pub flows: [u32; 2],
    /// Of `police`: the tokens that the packet found.
    pub meter: Option<MeterState>,
    /// Of `decap` and `encap`: the security association that the packet met.
    pub sa: Option<SaMet>,
    /// Of `route`: the VRF in whose routes the packet is looked up, where no flow remembers its way.
    pub vrf: VrfId,
    /// Of `route`: the WAN chosen for a packet whose best route is the WANs'.
    pub wan: Option<WanChoice>,
    /// Of stages that ask for dynamic sets: those that the packet's addresses are in, of those asked for.
    pub sets: Vec<Membership>,
    /// Of `filter`: the port mapping that accepts the packet where no rule decides on it.
    pub mapped: Option<PortMapping>,
    /// Cost of the stage.
    pub cost: Count,
    /// Bytes of the frame; `None` if the stage has not changed them.
    pub bytes: Option<Vec<u8>>,
}

/// Membership of an end of a packet in a dynamic set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Place of the set in [`Tables::sets`](crate::Tables::sets).
    pub set: u16,
    /// End of the packet.
    pub side: Side,
}

/// A frame that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port it left by.
    pub port: PortId,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its verdict; `None` for further fragments of a packet.
    pub verdict: Option<Verdict>,
}

impl Replay {
    /// Takes one frame through as [`Replay::receive`] and [`Replay::pass`] do, and returns its trace. Frames received before
    /// go through first, and frames due before it depart. `number` must not be that of another frame under way.
    pub fn explain(
        &mut self,
        ingress: PortId,
        at: Nanos,
        number: u32,
        bytes: &[u8],
        witness: &mut impl Witness,
    ) -> Account {
        self.advance(at, witness);
        let mut listener = Listener { witness, number, copies: Vec::new(), sent: Vec::new(), verdict: None };
        self.receive(ingress, at, number, bytes, &mut listener);
        let mut watcher = Watcher::default();
        let mut tally = Count::default();
        self.pass_watched(&mut listener, &mut tally, &mut watcher);
        let Listener { copies, sent, verdict, .. } = listener;
        // Of what waits nobody has been told; its last stage knows.
        let last = watcher.visits.last().and_then(|visit| Verdict::of_fate(visit.after.fate));
        let verdict = verdict.or(last).unwrap_or(Verdict::Held(Reason::FragmentWaits));
        Account { visits: watcher.visits, copies, sent, verdict }
    }
}

/// Recorder of the visits to stages.
#[derive(Default)]
struct Watcher {
    visits: Vec<Visit>,
    meta: Meta,
    flows: u32,
    bytes: Vec<u8>,
    meter: Option<MeterState>,
    sa: Option<SaMet>,
    wan: Option<WanChoice>,
    vrf: VrfId,
    sets: Vec<Membership>,
    mapped: Option<PortMapping>,
}

impl Watch<Count> for Watcher {
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, Count>) {
        self.meter = if stage == Police::ABOUT.name { police::state(frame, cx) } else { None };
        self.sa = sa::met(stage, frame, cx);
        self.wan = if stage == Route::ABOUT.name { route::wan(frame, cx) } else { None };
        self.vrf = vrf::of_packet(frame, cx);
        self.sets = match stage {
            _ if stage == Dnat::ABOUT.name => dnat::memberships(frame, cx),
            _ if stage == Route::ABOUT.name => wan::memberships(frame, cx),
            _ if stage == Snat::ABOUT.name => snat::memberships(frame, cx),
            _ if stage == Filter::ABOUT.name => filter::memberships(frame, cx),
            _ if stage == Classify::ABOUT.name => classify::memberships(frame, cx),
            _ => Vec::new(),
        };
        self.mapped = if stage == Filter::ABOUT.name { port_mapping::of_frame(frame, cx) } else { None };
        self.meta = frame.meta.clone();
        self.flows = cx.shard.flows.len();
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.bytes());
        *cx.tally = Count::default();
    }

    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, Count>) {
        self.visits.push(Visit {
            stage,
            before: self.meta.clone(),
            after: frame.meta.clone(),
            opening: cx.shard.openings.of(&frame.meta).copied(),
            flow: cx.shard.flows.flow(FlowId(frame.meta.flow)).copied(),
            flows: [self.flows, cx.shard.flows.len()],
            meter: self.meter.take(),
            sa: self.sa.take(),
            wan: self.wan.take(),
            vrf: self.vrf,
            sets: mem::take(&mut self.sets),
            mapped: self.mapped.take(),
            cost: mem::take(cx.tally),
            bytes: (frame.bytes() != self.bytes).then(|| frame.bytes().to_vec()),
        });
    }
}

/// Witness that records the outcome of the frame, and passes all events on.
struct Listener<'a, W> {
    witness: &'a mut W,
    number: u32,
    copies: Vec<CopyEnd>,
    sent: Vec<Sent>,
    verdict: Option<Verdict>,
}

impl<W> Listener<'_, W> {
    /// Notes the verdict of a frame, if it is of the packet.
    fn note(&mut self, frame: &Frame, verdict: Verdict) {
        if frame.meta.number != self.number {
            return;
        }
        if is_copy(&frame.meta) {
            self.copies.push(CopyEnd::of(frame, verdict));
        } else {
            self.verdict = Some(verdict);
        }
    }
}

impl<W: Witness> Witness for Listener<'_, W> {
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let verdict = Verdict::of_fate(frame.meta.fate);
        if let Some(verdict) = verdict {
            self.note(frame, verdict);
        }
        self.sent.push(Sent { port, bytes: frame.bytes().to_vec(), verdict });
        self.witness.queued(port, frame);
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.witness.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.note(frame, verdict);
        self.witness.ended(frame, verdict);
    }

    fn ended_at(&mut self, at: Nanos, frame: &Frame, verdict: Verdict) {
        self.note(frame, verdict);
        self.witness.ended_at(at, frame, verdict);
    }

    fn released(&mut self, number: u32, first: u32) {
        self.witness.released(number, first);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        if number == self.number {
            self.verdict = Some(Verdict::Dropped(reason));
        }
        self.witness.refused(number, ingress, reason);
    }
}

#[cfg(test)]
mod tests;
