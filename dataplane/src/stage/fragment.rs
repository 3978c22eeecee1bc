//! `fragment`: does its link carry it whole?
//!
//! Fragments a packet that is larger than its link carries, where its sender lets routers do that (RFC 791, section 2.3). `route` has
//! compared sizes, and answered what must not be fragmented. Of IPv6 the gateway fragments packets of its own alone: those of a tunnel whose
//! way is too narrow for what each link of IPv6 inside must carry (RFC 2473, section 7.1). The further fragments go out behind the first one.

use arrayvec::ArrayVec;
use tally::Tally;
use wire::esp::Header;
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Family, Frame, ipv6};

use super::{About, Cx, Stage, Step};
use crate::flag;
use crate::fragmentation::own::fragment_own;
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
        let made = if frame.meta.family == Family::V4 {
            fragment(frame, usize::from(frame.meta.network), hop.mtu, cx.pool, &mut parts, cx.tally)
        } else {
            // Less than this no link on the way has (RFC 8200, section 5).
            let mtu = hop.mtu.min(ipv6::LEAST_MTU);
            fragment_own(frame, mtu, identification(frame), cx.pool, &mut parts, cx.tally)
        };
        match made {
            Ok(further) => {
                frame.meta.parts = further as u8;
                cx.shard.parts.extend(parts);
                Step::Next
            }
            Err(reason) => Step::Drop(reason),
        }
    }

    fn program(tables: &Tables) -> u32 {
        76 + if tables.tunnels.list.iter().any(|tunnel| tunnel.local.v6) { 64 } else { 0 }
    }
}

/// Identification of an outer packet: its SPI and number, which are unlike those of any other packet to the same peer for as long as one
/// may be on its way (RFC 8200, section 4.5).
fn identification(frame: &Frame) -> u32 {
    let esp = usize::from(frame.meta.transport)
        + if frame.meta.protocol == Protocol::UDP.0 { wire::udp::HEADER_LEN } else { 0 };
    let header = frame.bytes().get(esp..).and_then(Header::of);
    header.map_or(0, |header| header.spi() ^ header.sequence())
}
