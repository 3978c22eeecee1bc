//! `police`: does it come faster than its class may?
//!
//! The meter of the packet's class gives the packet a colour, and the meter's action for that colour decides: the packet passes,
//! is dropped, or is to be marked (RFC 2475, section 2.3.3). Changes no byte: `mark` does.

use policy::model::{Colour, ColourAction, ColourMode, Meter, MeterScope};
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::segment::Plan;
use wire::vlan::{DropEligible, Priority};
use wire::{Dscp, Frame};

use super::{About, Cx, Packets, Stage, Step, header};
use crate::flag;
use crate::flow::{FlowId, Key};
use crate::limiter;
use crate::meter::{Arrival, MeterState};
use crate::tables::{Address, OTHER, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Police;

impl Stage for Police {
    const ABOUT: About = About {
        name: "police",
        asks: "Does it come faster than its class may?",
        reads: Fields::SEEN.and(Fields::RECEIVED).and(Fields::CLASS).and(Fields::FLOW).and(Fields::OPENING),
        writes: Fields::COLOUR,
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.classes.meters.is_empty() { Packets::None } else { Packets::Every }
    }

    /// Packets of the gateway itself are subject to no limit; packets that have waited for a neighbour have been metered before.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        let is_own = frame.meta.flags & flag::OWN != 0 && frame.meta.ingress != OTHER;
        frame.meta.fate == 0 && frame.meta.class != 0 && frame.meta.flags & flag::WAITED == 0 && !is_own
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // The class and its meter, each by place and bound, 18; instance, 8; length and code point, 8; the arrival, 8; the action for the
        // colour, 6; a counter of 64 bits for the class and the colour, 12.
        cx.tally.instructions(60);
        cx.tally.execute(Op::Branch, 18);
        let Some(metered) = Metered::of(frame, cx) else { return Step::Next };
        if frame.is_big() {
            colour_segments(frame, &metered, cx);
        } else {
            colour(frame, &metered, metered.packet.length, cx);
        }
        match metered.meter.actions[usize::from(frame.meta.colour) % 3] {
            ColourAction::Drop => Step::Drop(Reason::Policed),
            // RFC 3168, section 5: 0 is a transport that is not capable of ECN.
            ColourAction::EcnOrDrop if frame.meta.ds_field & 3 == 0 => Step::Drop(Reason::Policed),
            ColourAction::Pass | ColourAction::Mark(_) | ColourAction::Ecn | ColourAction::EcnOrDrop => {
                Step::Next
            }
        }
    }

    fn program(tables: &Tables) -> u32 {
        let is_of_tag = |meter: &Meter| meter.colours == ColourMode::DropEligible;
        // This stage, 30; subjects of instances, 16; the meter, whose two rates go through one routine, 94.
        140 + if tables.classes.meters.iter().any(is_of_tag) { 8 } else { 0 }
    }
}

/// A packet and the meter of its class.
struct Metered<'a> {
    place: u16,
    meter: &'a Meter,
    /// Key of the packet's instance with its hash, where there is more than one.
    subject: Option<(Key, u64)>,
    packet: Arrival,
}

impl<'a> Metered<'a> {
    /// The packet with the meter of its class; `None` if that has none.
    #[inline(always)]
    fn of<T: Tally>(frame: &Frame, cx: &mut Cx<'a, T>) -> Option<Metered<'a>> {
        let classes = &cx.tables.classes;
        let place = classes.get(frame.meta.class).and_then(|class| class.meter)?;
        let meter = classes.meters.get(usize::from(place))?;
        let subject = subject(frame, meter.per, cx).map(|key| (key, cx.shard.flows.hash(&key, cx.tally)));
        let packet = Arrival {
            length: frame.meta.end.saturating_sub(frame.meta.network).into(),
            before: before(frame, meter.colours, cx.tally),
            at: frame.meta.received,
        };
        Some(Metered { place, meter, subject, packet })
    }
}

/// Gives a packet of that length its colour, takes its tokens, and counts it.
#[inline(always)]
fn colour<T: Tally>(frame: &mut Frame, metered: &Metered<'_>, length: u64, cx: &mut Cx<'_, T>) {
    let packet = Arrival { length, ..metered.packet };
    frame.meta.colour = cx.shard.meters.colour(metered.place, packet, metered.subject, cx.tally) as u8;
    cx.tally.atomic(Region::Counter, usize::from(frame.meta.class) * 32 + 16, 8);
    cx.shard.counters.count_colour(frame);
}

/// Gives a packet of many segments their colour, one after the other: they have the same one, or it would have been cut before
/// (`pipeline/whole.rs`).
#[inline(never)]
fn colour_segments<T: Tally>(frame: &mut Frame, metered: &Metered<'_>, cx: &mut Cx<'_, T>) {
    let Some(plan) = Plan::of(frame) else { return };
    for length in plan.packet_lengths() {
        colour(frame, metered, length, cx);
    }
}

/// True if the stage would give all segments of a packet the same colour, or none. Takes no tokens.
pub(crate) fn is_of_one_colour<T: Tally>(frame: &Frame, plan: &Plan, cx: &mut Cx<'_, T>) -> bool {
    if !Police::takes(frame) {
        return true;
    }
    let Some(Metered { place, subject, packet, .. }) = Metered::of(frame, cx) else { return true };
    cx.shard.meters.have_one_colour(place, packet, plan.packet_lengths(), subject)
}

/// Colour that a packet comes with: by its code point, or by the outer VLAN tag of its frame.
#[inline(always)]
fn before<T: Tally>(frame: &Frame, mode: ColourMode, tally: &mut T) -> Colour {
    match mode {
        ColourMode::Blind | ColourMode::Aware => Colour::of(Dscp::of_field(frame.meta.ds_field)),
        ColourMode::DropEligible => {
            // The mode, 2; the type, two comparisons, 4; the indicator, as a colour, 2.
            tally.instructions(8);
            tally.execute(Op::Branch, 3);
            match Priority::of_frame(frame.bytes()).eligible() {
                DropEligible::No => Colour::Green,
                DropEligible::Yes => Colour::Yellow,
            }
        }
    }
}

/// The tokens that the meter of a packet's class has for it; `None` without a meter.
pub(crate) fn state<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Option<MeterState> {
    let place = cx.tables.classes.get(frame.meta.class).and_then(|class| class.meter)?;
    let meter = cx.tables.classes.meters.get(usize::from(place))?;
    let subject = subject(frame, meter.per, cx).map(|key| (key, cx.shard.flows.hash(&key, cx.tally)));
    cx.shard.meters.state(place, subject, frame.meta.received)
}

/// Key of the instance that a packet belongs to; `None` where there is one for all.
#[inline]
fn subject<T: Tally>(frame: &Frame, per: MeterScope, cx: &Cx<'_, T>) -> Option<Key> {
    let prefix =
        |address: Address, v4: u8, v6: u8| limiter::subject(address.prefix(v4, v6), limiter::ALL_RULES);
    match per {
        MeterScope::All => None,
        MeterScope::Source(v4, v6) => Some(prefix(header::addresses(frame).0, v4, v6)),
        MeterScope::Destination(v4, v6) => Some(prefix(header::addresses(frame).1, v4, v6)),
        MeterScope::Flow => {
            match (cx.shard.openings.of(&frame.meta), cx.shard.flows.flow(FlowId(frame.meta.flow))) {
                (Some(opening), _) => Some(opening.key),
                (None, Some(flow)) => Some(*flow.original()),
                (None, None) => Some(prefix(header::addresses(frame).0, 32, 128)),
            }
        }
    }
}
