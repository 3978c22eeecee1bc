//! `fragment`: does its link carry it whole?
//!
//! Fragments a packet that is larger than its link carries, where its sender lets routers do that (RFC 791, section 2.3). `route` has
//! compared sizes, and answered what must not be fragmented. The further fragments go out behind the first one.

use arrayvec::ArrayVec;
use tally::Tally;
use wire::Frame;
use wire::meta::Fields;

use super::{About, Cx, Stage, Step};
use crate::flag;
use crate::fragmentation::{MOST_PARTS, fragment};
use crate::tables::Tables;
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragment;

impl Stage for Fragment {
    const ABOUT: About = About {
        name: "fragment",
        asks: "Does its link carry it whole?",
        reads: Fields::PACKET.and(Fields::HEADERS).and(Fields::FLAGS).and(Fields::HOP),
        writes: Fields::PACKET.and(Fields::HEADERS).and(Fields::PARTS),
    };

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate == 0 && frame.meta.flags & flag::CUT != 0
    }

    #[cold]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        let Some(hop) = cx.shard.hops.get(frame.meta.hop) else {
            return Step::Drop(Reason::NeighbourUnknown);
        };
        if cx.shard.parts.capacity() - cx.shard.parts.len() < MOST_PARTS {
            // Rather than let the list of fragments grow.
            return Step::Drop(Reason::SlotTooSmall);
        }
        let mut parts: ArrayVec<Frame, MOST_PARTS> = ArrayVec::new();
        match fragment(frame, usize::from(frame.meta.network), hop.mtu, cx.pool, &mut parts, cx.tally) {
            Ok(further) => {
                frame.meta.parts = further as u8;
                cx.shard.parts.extend(parts);
                Step::Next
            }
            Err(reason) => Step::Drop(reason),
        }
    }

    fn program(_: &Tables) -> u32 {
        76
    }
}
