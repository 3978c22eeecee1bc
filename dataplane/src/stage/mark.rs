//! `mark`: which code point does it go on with?
//!
//! Writes the DiffServ code point (RFC 2474) that the meter's action for the packet's colour gives, else that of its class. It leaves
//! congestion notification (RFC 3168) as it is, unless that action is to mark the packet. The checksum of IPv4 is updated incrementally
//! (RFC 1624).

use policy::model::ColourAction;
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::{Dscp, Family, Frame, ipv4, ipv6};

use super::{About, Cx, Packets, Stage, Step};
use crate::egress::mark_congestion;
use crate::hop::leaves;
use crate::tables::{Classes, Tables};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark;

impl Stage for Mark {
    const ABOUT: About = About {
        name: "mark",
        asks: "Which code point does it go on with?",
        reads: Fields::PACKET.and(Fields::HEADERS).and(Fields::HOP).and(Fields::CLASS).and(Fields::COLOUR),
        writes: Fields::PACKET.and(Fields::HEADERS),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.classes.has_marks() { Packets::Every } else { Packets::None }
    }

    /// Packets for the gateway, or for a link that Linux brings them to, keep their code points. A packet that waits for a neighbour is
    /// marked when it goes on: it is classified once more by then, and an ICMP error quotes it as it came.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.class != 0 && leaves(frame.meta.hop)
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Class and meter by place and bound, 14; the action for the colour, 10; the code point compared, 4; congestion, 2.
        cx.tally.instructions(30);
        cx.tally.execute(Op::Branch, 10);
        let Marks { dscp, congestion } = marks(frame, &cx.tables.classes);
        if let Some(dscp) = dscp.filter(|dscp| *dscp != Dscp::of_field(frame.meta.ds_field)) {
            tell_write(cx);
            mark(frame, dscp);
        }
        // What has met congestion before stays marked.
        if congestion == Congestion::Experienced && frame.meta.ds_field & 3 != 3 && mark_congestion(frame) {
            // The field of the metadata stays that which the packet came with: reports and DualPI2 tell what was marked here by it.
            tell_write(cx);
        }
        Step::Next
    }

    fn program(_: &Tables) -> u32 {
        42
    }
}

/// Tells a write of the field.
#[inline(always)]
fn tell_write<T: Tally>(cx: &mut Cx<'_, T>) {
    // The family, 2; where the header is, with its bounds, 8; the field, 5; the checksum with its carries, 12; both put back, 3.
    cx.tally.instructions(30);
    cx.tally.write(Region::Frame, 16, 16);
}

fn mark(frame: &mut Frame, dscp: Dscp) {
    let (network, family) = (usize::from(frame.meta.network), frame.meta.family);
    frame.meta.ds_field = frame.meta.ds_field & 3 | dscp.value() << 2;
    let packet = frame.bytes_mut().get_mut(network..).unwrap_or_default();
    if family == Family::V4 {
        if let Some(mut header) = ipv4::HeaderMut::of(packet) {
            header.mark(dscp);
        }
    } else if let Some(mut header) = ipv6::HeaderMut::of(packet) {
        header.mark(dscp);
    }
}

/// Marks that a packet is given.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Code point, if any.
    dscp: Option<Dscp>,
    congestion: Congestion,
}

/// Mark of congestion (RFC 3168), where the transport is capable of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Congestion {
    #[default]
    None,
    Experienced,
}

/// Marks by the meter's action for the packet's colour, and by its class.
#[inline]
fn marks(frame: &Frame, classes: &Classes) -> Marks {
    let Some(class) = classes.get(frame.meta.class) else { return Marks::default() };
    let meter = class.meter.and_then(|place| classes.meters.get(usize::from(place)));
    match meter.map(|meter| meter.actions[usize::from(frame.meta.colour) % 3]) {
        Some(ColourAction::Mark(dscp)) => Marks { dscp: Some(dscp), congestion: Congestion::None },
        Some(ColourAction::Ecn | ColourAction::EcnOrDrop) => {
            Marks { dscp: class.mark, congestion: Congestion::Experienced }
        }
        Some(ColourAction::Pass | ColourAction::Drop) | None => {
            Marks { dscp: class.mark, congestion: Congestion::None }
        }
    }
}
