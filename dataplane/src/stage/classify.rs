//! `classify`: which traffic class is it in?
//!
//! The class is the class selector of its DS field (RFC 2474, section 4.2.2): 0 to 7. A flow keeps the class
//! of its first packet. Changes no byte.

use tally::Tally;
use wire::Frame;

use super::parse::flag;
use super::{Cx, Stage, Step};
use crate::tables::Tables;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classify;

impl<T: Tally> Stage<T> for Classify {
    #[inline(always)]
    fn takes(&self, frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::HIT == 0
    }

    #[inline]
    fn step(&mut self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Load, shift, store, and that it goes on.
        cx.tally.instructions(4);
        frame.meta.class = u16::from(frame.meta.ds_field >> 5);
        Step::Next
    }

    fn program(&self, _: &Tables) -> u32 {
        4
    }
}
