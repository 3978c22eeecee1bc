//! Packets of many segments, taken through the stages whole.
//!
//! Whole, a packet has the effect that its segments would have, one after the other: the same bytes once it is cut, the same flow, the
//! same counters, the same tokens. That holds for plain packets of flows that have been decided, whose stages carry out what the flow
//! remembers, and where nothing is tracked for plain packets whose segments all meet the same route, rule and class; and in both cases if
//! the meter of their class gives all the same colour. All others are refused, and the host cuts them first: the first packet of a flow, one
//! for a neighbour that is not known, one that a rule counts, logs or answers, one of several colours, shaped, held back to a rate,
//! encrypted, too big, or at the end of its time to live. Each question is asked before anything is changed.

use policy::model::Mode;
use tally::Tally;
use wire::segment::{Plan, Transport};
use wire::tcp::{self, Flags};
use wire::{Family, Frame, Part, PortId, ipv4, ipv6};

use super::{Pipeline, Stages, Watch, end, keep_alive};
use crate::flag;
use crate::flow::tcp::{Segment, exceeds_window, track};
use crate::flow::{Flow, FlowId, Hit};
use crate::hop::{Hop, LOCAL_HOP, NO_HOP, leaves};
use crate::stage::parse::Parse;
use crate::stage::route::Route;
use crate::stage::track::{carry, decided, settings};
use crate::stage::{Cx, Stage, Step, classify, filter, police, take};
use crate::verdict::Verdict;

impl Pipeline {
    /// Takes a packet of many segments ([`Frame::is_big`]) through the stages whole, to the effect of [`Pipeline::run`] on its segments,
    /// one after the other, with the observer `watch`.
    ///
    /// # Errors
    /// The frame as it was: not all segments would simply follow their flow. The host cuts it ([`Plan`]), and runs the segments.
    pub fn run_whole<T: Tally + 'static>(
        &mut self,
        mut frame: Frame,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
        watch: &mut impl Watch<T>,
    ) -> Result<(), Frame> {
        let (now, number) = (frame.meta.received, frame.meta.number);
        cx.shard.follow_sessions(cx.tables);
        self.released(now, ended, cx);
        // What ends first, by time, ends in the middle of the first segment's way.
        if cx.shard.is_due(now) {
            return Err(frame);
        }
        let meta = frame.meta.clone();
        let Some(plan) = Plan::of(&frame).filter(|plan| is_plain(&mut frame, plan, cx)) else {
            frame.meta = meta;
            return Err(frame);
        };
        let segments = plan.segments();
        cx.shard.counters.received.frames += segments.count;
        cx.shard.counters.received.bytes += segments.bytes;
        // It is parsed already, which changes no byte.
        watch.before(Parse::ABOUT.name, &frame, cx);
        watch.after(Parse::ABOUT.name, &frame, cx);
        let stages = &cx.tables.stages;
        let behind = if cx.tables.mode == Mode::Stateful { &stages.decided } else { &stages.first };
        for place in stages.track.iter().chain(behind) {
            Stages::at(*place).take_watched(&mut frame, cx, watch);
        }
        let further = segments.count - 1;
        let headers = plan.headers() - plan.network();
        cx.shard.counters.count_further_decisions(further, headers, &frame);
        if frame.meta.flags & flag::HIT != 0 {
            let (id, direction) = (FlowId(frame.meta.flow), flag::direction(frame.meta.flags));
            cx.shard.accounting.count_further(id, direction, further, further * headers as u64);
        }
        let (many, port) = (ended.len(), root(frame.meta.egress, cx));
        for place in &stages.leaving {
            Stages::at(*place).take_watched(&mut frame, cx, watch);
        }
        end(frame, ended, cx);
        let fate = ended.get(many).map(|frame| frame.meta.fate);
        if let (None, Some(port)) = (fate, port.and_then(|port| cx.shard.egress.port(port))) {
            port.stand_for(segments);
        }
        cx.shard.counters.count_further_verdicts(further, fate);
        self.released(now, ended, cx);
        keep_alive(now, number, cx);
        Ok(())
    }
}

/// Port by which frames of an interface leave.
fn root<T: Tally>(interface: PortId, cx: &Cx<'_, T>) -> Option<PortId> {
    cx.tables.interface(interface).map(|interface| interface.root)
}

/// True if every stage would do with a packet as with each of its segments, one after the other. Parses the packet.
fn is_plain<T: Tally + 'static>(frame: &mut Frame, plan: &Plan, cx: &mut Cx<'_, T>) -> bool {
    if plan.count() < 2 {
        return false;
    }
    take::<Parse, T>(frame, cx);
    if !has_plain_headers(frame, plan) {
        return false;
    }
    let mut before_track = cx.tables.stages.taken.iter().map(|place| Stages::<T>::at(*place));
    if before_track.any(|stage| (stage.takes)(frame)) {
        return false;
    }
    let parsed = frame.meta.clone();
    let is_plain = (cx.tables.mode == Mode::Stateless || follows_flow(frame, plan, cx))
        && decides_alike(frame, plan, cx);
    frame.meta = parsed;
    is_plain
}

/// True for a whole packet without options, extension headers, or flags that are not on all segments, which lives on.
fn has_plain_headers(frame: &Frame, plan: &Plan) -> bool {
    const OF_ONE: u8 = Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0 | Flags::URG.0 | Flags::CWR.0;
    let meta = &frame.meta;
    let is_own = meta.flags & flag::OWN != 0;
    let packet = frame.bytes().get(usize::from(meta.network)..).unwrap_or_default();
    let (header_len, ttl) = match meta.family {
        Family::V4 => (ipv4::MIN_HEADER_LEN, ipv4::Header::of(packet).map(ipv4::Header::ttl)),
        Family::V6 => (ipv6::HEADER_LEN, ipv6::Header::of(packet).map(ipv6::Header::hop_limit)),
        Family::Other => return false,
    };
    meta.fate == 0
        && meta.part == Part::Whole
        && meta.flags & !(flag::DONT_FRAGMENT | flag::OWN) == 0
        && meta.tcp_flags & OF_ONE == 0
        && usize::from(meta.transport - meta.network) == header_len
        && !plan.is_unsummed()
        && plan.transport_range().end == frame.len()
        && ttl.is_some_and(|ttl| ttl > 1 || is_own)
}

/// True if a packet is of a flow that has been decided, which lets each segment pass. Lets the frame carry what the flow remembers.
fn follows_flow<T: Tally>(frame: &mut Frame, plan: &Plan, cx: &mut Cx<'_, T>) -> bool {
    let Some(hit) = decided(frame, cx) else { return false };
    let Some(flow) = cx.shard.flows.flow(hit.id).copied() else { return false };
    carry(frame, hit.id, hit.direction, &flow);
    // Segments of the other IP version may be too long, or have to be fragmented.
    frame.meta.hop != NO_HOP
        && !flow.is_proxied()
        && !flow.is_helped()
        && !flow.is_across()
        && follows(frame, plan, hit, flow, cx)
}

/// True if the flow lets every segment pass, and stays in its state.
fn follows<T: Tally>(frame: &Frame, plan: &Plan, hit: Hit, mut flow: Flow, cx: &Cx<'_, T>) -> bool {
    if plan.transport() == Transport::Udp {
        return true;
    }
    let Ok(packet) = tcp::parse(frame.bytes().get(plan.transport_range()).unwrap_or_default()) else {
        return false;
    };
    let whole = Segment::of(&packet);
    let (size, before) = (plan.size() as u32, (plan.count() - 1) as u32 * plan.size() as u32);
    let first = Segment { data: size, ..whole };
    let last = Segment { seq: whole.seq.wrapping_add(before), data: whole.data - before, ..whole };
    // Each such segment would widen the window once more.
    if exceeds_window(&flow, hit.direction, &last) {
        return false;
    }
    // Each begins further on than the one before, and ends further on: between two that pass, all pass.
    let state = flow.state();
    [first, last].iter().all(|segment| track(&mut flow, hit.direction, segment, settings(cx)) == Ok(state))
}

/// True if the stages from `route` to `police` would come to the same decisions on each segment: that they leave as they are, are delivered,
/// or are dropped.
fn decides_alike<T: Tally>(frame: &mut Frame, plan: &Plan, cx: &mut Cx<'_, T>) -> bool {
    // It looks at addresses and ports, and lets sizes to `fits`.
    take::<Route, T>(frame, cx);
    match Verdict::of_fate(frame.meta.fate) {
        None => {}
        Some(Verdict::Dropped(_)) => return true,
        Some(_) => return false,
    }
    if !fits(frame, plan, cx) {
        return false;
    }
    let Some(decision) = Decision::on_all(frame, cx) else { return false };
    frame.meta.class = decision.class;
    decision.step != Step::Next || police::is_of_one_colour(frame, plan, cx)
}

/// Decision of `filter` and `classify` on a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Decision {
    step: Step,
    rule: u32,
    /// Class, where the segment goes on.
    class: u16,
}

impl Decision {
    /// The decision on all segments of a packet; `None` if there are several, or if `filter` would count, log or answer the segments.
    fn on_all<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<Decision> {
        let last = Decision::on(frame, cx)?;
        let flags = frame.meta.tcp_flags;
        if flags & Flags::PSH.0 == 0 {
            return Some(last);
        }
        // Of what rules and classes ask for, this alone is the last segment's own.
        frame.meta.tcp_flags = flags & !Flags::PSH.0;
        let others = Decision::on(frame, cx);
        frame.meta.tcp_flags = flags;
        others.filter(|others| *others == last)
    }

    fn on<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<Decision> {
        let before = frame.meta.rule;
        let step = filter::foresee(frame, cx)?;
        let rule = std::mem::replace(&mut frame.meta.rule, before);
        let class = if step == Step::Next { classify::foresee(frame, cx) } else { 0 };
        Some(Decision { step, rule, class })
    }
}

/// True if segments leave by the hop of their packet as they are, or are delivered.
fn fits<T: Tally>(frame: &Frame, plan: &Plan, cx: &mut Cx<'_, T>) -> bool {
    let hop = frame.meta.hop;
    if hop == LOCAL_HOP {
        return true;
    }
    let Some(&Hop { mtu, tunnel, interface, .. }) = cx.shard.hops.get(hop).filter(|_| leaves(hop)) else {
        return false;
    };
    let Some(interface) = cx.tables.interface(interface) else { return false };
    let queues = &cx.tables.queues;
    // What a tree does depends on each segment's length, and on what is queued beside it.
    let has_tree = queues.on(interface.root).is_some() || queues.from(queues.ingress(&frame.meta)).is_some();
    // Each segment has a moment of its own where the policy has a rate; a device has its own.
    let is_held_back = cx.tables.interface(interface.root).is_none_or(|port| port.egress.holds_back());
    // Nobody cuts what is in a session or in cells.
    let is_carried = interface.ppp.is_some() || interface.channel.is_some();
    let has_room =
        cx.shard.egress.port(interface.root).is_some_and(|port| port.has_room_for(plan.segments().count));
    let is_small = plan.headers() - plan.network() + plan.size() <= usize::from(mtu);
    tunnel == 0 && !has_tree && !is_held_back && !is_carried && has_room && is_small
}
