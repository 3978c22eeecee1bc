//! `classify`: which traffic class is it in?
//!
//! The first class of the policy whose conditions hold, as multi-field classification has it (RFC 2475, section 2.3.1); none of
//! them, no class. Of a flow the first packet decides, for both directions, but for the code point and the priority in the frame's
//! VLAN tag (IEEE 802.1Q): each packet has its own. A flow remembers the class of each direction's last code point and priority; any
//! other is searched for. Changes no byte.

use arrayvec::ArrayVec;
use lookup::classify::{self, Header, NO_MATCH};
use policy::model::Mode;
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::vlan::Priority;
use wire::{BATCH, Dscp, Frame};

use super::revalidate;
use super::{About, Cx, Packets, Stage, Step, header, take};
use crate::explain::Membership;
use crate::flag;
use crate::flow::FlowId;
use crate::tables::{ClassSearch, Kind, Tables};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classify;

impl Stage for Classify {
    const ABOUT: About = About {
        name: "classify",
        asks: "Which traffic class is it in?",
        reads: Fields::SEEN.and(Fields::FLOW).and(Fields::OPENING).and(Fields::HOP).and(Fields::EGRESS),
        writes: Fields::CLASS.and(Fields::OPENING),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.classes.is_empty() { Packets::None } else { Packets::Every }
    }

    #[inline]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        let dscp = Dscp::of_field(frame.meta.ds_field);
        let kind = kind(frame, cx.tables);
        tell_kind(cx);
        let class = if frame.meta.flags & flag::HIT != 0 {
            of_flow(frame, dscp, kind, cx)
        } else {
            of_packet(frame, kind, cx)
        };
        set(frame, class, cx);
        Step::Next
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        // Of flows most packets have their class already. Without flows all are searched for together.
        if cx.tables.mode == Mode::Stateful {
            for frame in frames {
                take::<Classify, T>(frame, cx);
            }
            return;
        }
        for frames in frames.chunks_mut(BATCH) {
            search_together(frames, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        58 + tables.classes.program() + if tables.classes.asks_priority() { 8 } else { 0 }
    }
}

/// Searches the classes for up to a batch of frames, those together whose kinds have the same search.
fn search_together<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    const { assert!(BATCH <= 64, "each frame has a bit") };
    let mut searches = [0_u16; BATCH];
    let mut left = 0_u64;
    for (place, frame) in frames.iter().enumerate().filter(|(_, frame)| Classify::takes(frame)) {
        searches[place] = kind(frame, cx.tables).search();
        left |= 1 << place;
    }
    while left != 0 {
        let number = searches[left.trailing_zeros() as usize];
        let same =
            places(left).filter(|place| searches[*place] == number).fold(0, |same, place| same | 1 << place);
        left &= !same;
        search(frames, same, cx.tables.classes.searches.get(usize::from(number)), cx);
    }
}

/// Searches the classes for the frames at the places in `same`.
fn search<T: Tally>(frames: &mut [Frame], same: u64, among: Option<&ClassSearch>, cx: &mut Cx<'_, T>) {
    let mut headers: ArrayVec<Header, BATCH> =
        places(same).map(|place| header::of(&frames[place], cx)).collect();
    for (place, seen) in places(same).zip(&mut headers) {
        header::ask_sets(seen, cx.tables.set_questions.of_classes, frames[place].meta.received, cx);
    }
    let mut positions = [NO_MATCH; BATCH];
    if let Some(among) = among {
        among.search.classifier.classify_bulk(&headers, &mut positions[..headers.len()]);
    }
    for ((place, header), position) in places(same).zip(&headers).zip(positions) {
        tell_kind(cx);
        let mut class = 0;
        if let Some(ClassSearch { search, numbers }) = among {
            classify::tell(search.classifier.as_ref(), header, cx.tally);
            class = numbers.get(position as usize).copied().unwrap_or(0);
        }
        set(&mut frames[place], class, cx);
    }
}

/// Places of the bits that are set.
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(place)
    })
}

/// Notes the class of a packet, and counts it.
#[inline(always)]
fn set<T: Tally>(frame: &mut Frame, class: u16, cx: &mut Cx<'_, T>) {
    frame.meta.class = class;
    // What has waited for a neighbour has been counted before.
    if frame.meta.flags & flag::WAITED == 0 {
        cx.tally.atomic(Region::Counter, usize::from(frame.meta.class) * 32, 16);
        cx.shard.counters.count_class(frame);
    }
}

/// The kind of a packet, by its code point and the priority in its frame's outer tag.
#[inline(always)]
fn kind(frame: &Frame, tables: &Tables) -> Kind {
    let asks_priority = tables.classes.asks_priority();
    let priority = if asks_priority { Priority::of_frame(frame.bytes()) } else { Priority::DEFAULT };
    tables.classes.kind(Dscp::of_field(frame.meta.ds_field), priority)
}

/// Tells what it took to find the kind of a packet, and to use it.
#[inline(always)]
fn tell_kind<T: Tally>(cx: &mut Cx<'_, T>) {
    if cx.tables.classes.asks_priority() {
        // The type, two comparisons, 4; the priority, its kind, and both kinds together, 4.
        cx.tally.instructions(8);
        cx.tally.execute(Op::Branch, 2);
    }
    // The kind of the code point by a table, 5; what is remembered of it, compared, 8; the class by place and bound, and its counters
    // of 64 bits, 11.
    cx.tally.instructions(24);
    cx.tally.execute(Op::Branch, 10);
}

/// Returns the class that the stage would give a routed packet. Changes nothing.
pub(crate) fn foresee<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> u16 {
    if cx.tables.classes.is_empty() {
        return 0;
    }
    let kind = kind(frame, cx.tables);
    let mut first = None;
    if frame.meta.flags & flag::HIT != 0 {
        let (id, direction) = (FlowId(frame.meta.flow), flag::direction(frame.meta.flags));
        if let Some(class) = cx.shard.flows.classes.get(id).and_then(|flow| flow.class(direction, kind)) {
            return class;
        }
        first = revalidate::first_packet(id, cx);
    }
    let dscp = Dscp::of_field(frame.meta.ds_field).value();
    let mut seen = first.map_or_else(|| header::routed(frame, cx), |seen| Header { dscp, ..seen });
    header::ask_sets(&mut seen, cx.tables.set_questions.of_classes, frame.meta.received, cx);
    cx.tables.classes.find(&seen, kind, cx.tally)
}

/// The dynamic sets that a packet's addresses are in, of those that classes ask for; none of a packet whose flow has its class.
pub(crate) fn memberships<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Vec<Membership> {
    if frame.meta.flags & flag::HIT != 0 {
        return Vec::new();
    }
    header::memberships(
        header::routed(frame, cx),
        cx.tables.set_questions.of_classes,
        frame.meta.received,
        cx,
    )
}

/// The class of a packet of a decided flow.
#[inline]
fn of_flow<T: Tally>(frame: &Frame, dscp: Dscp, kind: Kind, cx: &mut Cx<'_, T>) -> u16 {
    let (id, direction) = (FlowId(frame.meta.flow), flag::direction(frame.meta.flags));
    // The flow by place and bound, 4; its direction, 2; the kind that it was classified by, 4.
    cx.tally.instructions(10);
    cx.tally.execute(Op::Branch, 3);
    cx.tally.read(Region::Timer, id.0 as usize * 12, 12);
    if let Some(class) = cx.shard.flows.classes.get(id).and_then(|flow| flow.class(direction, kind)) {
        return class;
    }
    let Some(mut seen) = revalidate::first_packet(id, cx) else { return of_packet(frame, kind, cx) };
    header::ask_sets(&mut seen, cx.tables.set_questions.of_classes, frame.meta.received, cx);
    let class = cx.tables.classes.find(&Header { dscp: dscp.value(), ..seen }, kind, cx.tally);
    if let Some(classified) = cx.shard.flows.classes.get_mut(id) {
        classified.set(direction, kind, class);
    }
    class
}

/// The class of a packet of no decided flow, which its flow remembers if it opens one.
fn of_packet<T: Tally>(frame: &Frame, kind: Kind, cx: &mut Cx<'_, T>) -> u16 {
    // The header's fourteen fields in two families, with two zones by place and bound, 74; the search by kind, 10; what the opening keeps, 6.
    cx.tally.instructions(90);
    cx.tally.execute(Op::Branch, 24);
    let mut seen = header::routed(frame, cx);
    header::ask_sets(&mut seen, cx.tables.set_questions.of_classes, frame.meta.received, cx);
    let class = cx.tables.classes.find(&seen, kind, cx.tally);
    if let Some(opening) = cx.shard.openings.of_mut(&frame.meta) {
        (opening.class, opening.class_kind) = (class, kind);
    }
    class
}
