//! `classify`: which traffic class is it in?
//!
//! The first class of the policy whose conditions hold, as multi-field classification has it (RFC 2475, section 2.3.1); none of
//! them, no class. Of a flow the first packet decides, for both directions, but for the code point and the priority in the frame's
//! VLAN tag (IEEE 802.1Q): each packet has its own. A flow remembers the class of each direction's last code point and priority; any
//! other is searched for. Changes no byte.

use lookup::classify::Header;
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::vlan::Priority;
use wire::{Dscp, Frame};

use super::revalidate;
use super::{About, Cx, Packets, Stage, Step, header};
use crate::flag;
use crate::flow::{Direction, FlowId};
use crate::tables::{Kind, Tables};

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
        let kind = kind(frame, dscp, cx);
        // The kind of the code point by a table, 3; what is remembered of it, compared, 6.
        cx.tally.instructions(9);
        cx.tally.execute(Op::Branch, 3);
        frame.meta.class = if frame.meta.flags & flag::HIT != 0 {
            of_flow(frame, dscp, kind, cx)
        } else {
            of_packet(frame, kind, cx)
        };
        // What has waited for a neighbour has been counted before.
        if frame.meta.flags & flag::WAITED == 0 {
            cx.tally.atomic(Region::Counter, usize::from(frame.meta.class) * 32, 16);
            cx.shard.counters.count_class(frame);
        }
        Step::Next
    }

    fn program(tables: &Tables) -> u32 {
        40 + tables.classes.program() + if tables.classes.asks_priority() { 8 } else { 0 }
    }
}

/// The kind of a packet, by its code point and the priority in its frame's outer tag.
#[inline(always)]
fn kind<T: Tally>(frame: &Frame, dscp: Dscp, cx: &mut Cx<'_, T>) -> Kind {
    let classes = &cx.tables.classes;
    if !classes.asks_priority() {
        return classes.kind(dscp, Priority::DEFAULT);
    }
    // The type, two comparisons, 4; the priority, its kind, and both kinds together, 4.
    cx.tally.instructions(8);
    cx.tally.execute(Op::Branch, 2);
    classes.kind(dscp, Priority::of_frame(frame.bytes()))
}

/// The class of a packet of a decided flow.
#[inline]
fn of_flow<T: Tally>(frame: &Frame, dscp: Dscp, kind: Kind, cx: &mut Cx<'_, T>) -> u16 {
    let id = FlowId(frame.meta.flow);
    let is_reply = frame.meta.flags & flag::REPLY != 0;
    let direction = if is_reply { Direction::Reply } else { Direction::Original };
    cx.tally.read(Region::Timer, id.0 as usize * 12, 12);
    if let Some(class) = cx.shard.flows.classes.get(id).and_then(|flow| flow.class(direction, kind)) {
        return class;
    }
    let Some(seen) = revalidate::first_packet(id, cx) else { return of_packet(frame, kind, cx) };
    let class = cx.tables.classes.find(&Header { dscp: dscp.value(), ..seen }, kind, cx.tally);
    if let Some(classified) = cx.shard.flows.classes.get_mut(id) {
        classified.set(direction, kind, class);
    }
    class
}

/// The class of a packet of no decided flow, which its flow remembers if it opens one.
fn of_packet<T: Tally>(frame: &Frame, kind: Kind, cx: &mut Cx<'_, T>) -> u16 {
    let seen = header::routed(frame, cx);
    let class = cx.tables.classes.find(&seen, kind, cx.tally);
    if let Some(opening) = cx.shard.openings.of_mut(&frame.meta) {
        (opening.class, opening.class_kind) = (class, kind);
    }
    class
}
