//! `mark`: which code point does it go on with?
//!
//! Writes the DiffServ code point (RFC 2474) that the meter's action for the packet's colour gives, else that of its class, and
//! leaves congestion notification (RFC 3168) as it is. The checksum of IPv4 is updated incrementally (RFC 1624).

use policy::model::ColourAction;
use tally::{Op, Region, Tally};
use wire::meta::Fields;
use wire::{Dscp, Family, Frame, ipv4, ipv6};

use super::{About, Cx, Packets, Stage, Step};
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
        // The class by place and bound, 5; the action for the colour, 5; the code point compared, 2.
        cx.tally.instructions(12);
        cx.tally.execute(Op::Branch, 5);
        let Some(dscp) = code_point(frame, &cx.tables.classes) else { return Step::Next };
        if dscp == Dscp::of_field(frame.meta.ds_field) {
            return Step::Next;
        }
        // The family, 2; the field, 3; the checksum, 5; both put back, 2.
        cx.tally.instructions(12);
        cx.tally.write(Region::Frame, 16, 16);
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
        Step::Next
    }

    fn program(_: &Tables) -> u32 {
        30
    }
}

/// The code point that a packet is given, if any.
#[inline]
fn code_point(frame: &Frame, classes: &Classes) -> Option<Dscp> {
    let class = classes.get(frame.meta.class)?;
    let meter = class.meter.and_then(|place| classes.meters.get(usize::from(place)));
    match meter.map(|meter| meter.actions[usize::from(frame.meta.colour) % 3]) {
        Some(ColourAction::Mark(dscp)) => Some(dscp),
        _ => class.mark,
    }
}
