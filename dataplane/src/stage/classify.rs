//! `classify`: which traffic class is it in?
//!
//! The class is the class selector of its DS field (RFC 2474, section 4.2.2): 0 to 7. A flow keeps the class
//! of its first packet. Changes no byte.

use policy::model::Mode;
use tally::Tally;
use wire::Frame;
use wire::meta::Fields;

use super::{About, Cx, Packets, Stage, Step};
use crate::flag;
use crate::tables::Tables;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classify;

impl Stage for Classify {
    const ABOUT: About = About {
        name: "classify",
        asks: "Which traffic class is it in?",
        reads: Fields::HEADERS.and(Fields::FLAGS),
        writes: Fields::CLASS,
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.mode == Mode::Stateful { Packets::First } else { Packets::Every }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::HIT == 0
    }

    #[inline]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Load, shift, store, and that it goes on.
        cx.tally.instructions(4);
        frame.meta.class = u16::from(frame.meta.ds_field >> 5);
        Step::Next
    }

    fn program(_: &Tables) -> u32 {
        4
    }
}
