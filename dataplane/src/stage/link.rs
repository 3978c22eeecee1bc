//! Link-layer headers of packets that leave, with the priorities in their VLAN tags.

use policy::model::Colour;
use tally::{Op, Region, Tally};
use wire::ethernet::{self, EtherType};
use wire::vlan::TAG_LEN;
use wire::{Family, Frame};

use super::{Cx, header};
use crate::tables::{Interface, Tables};

/// Puts the hop's link-layer header in the place of the old one, and cuts off what the old link had padded.
/// `false` if the neighbour is unknown.
#[inline(always)]
pub(super) fn replace<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> bool {
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return false };
    frame.truncate(usize::from(frame.meta.end));
    if let Some(plain) = hop.plain_header() {
        // The usual case: one untagged header in the place of another.
        if frame.meta.network == 14 {
            if let Some(header) = frame.bytes_mut().first_chunk_mut::<14>() {
                header[..12].copy_from_slice(plain);
                return true;
            }
        }
    }
    let Some(header) = hop.header() else { return false };
    let ethertype = match frame.meta.family {
        Family::V4 => EtherType::IPV4,
        _ => EtherType::IPV6,
    };
    let [high, low] = ethertype.0.to_be_bytes();
    let old = frame.meta.network;
    frame.pull_front(usize::from(old));
    let len = header.len() + 2;
    let Some(front) = frame.push_front(len) else { return false };
    front[..len - 2].copy_from_slice(header);
    front[len - 2..].copy_from_slice(&[high, low]);
    frame.meta.network = len as u16;
    frame.meta.transport = frame.meta.transport - old + len as u16;
    frame.meta.end = frame.meta.end - old + len as u16;
    if len > ethernet::HEADER_LEN {
        set_priority(frame, cx);
    }
    true
}

/// Size of the program that writes priorities, where frames have tags.
pub(super) fn program(tables: &Tables) -> u32 {
    if tables.interfaces.iter().any(Interface::is_tagged) { 25 } else { 0 }
}

/// Writes the priority of a packet into the tags of its frame: that of its class, else of its code point by the interface. An answer
/// is of no class.
#[inline(never)]
fn set_priority<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    // The interface by place and bound, 4; the class likewise, 5; code point, 3; colour, 4; the tag put together, 3.
    cx.tally.instructions(19);
    cx.tally.execute(Op::Branch, 5);
    cx.tally.write(Region::Frame, 12, 4);
    let Some(interface) = cx.tables.interface(frame.meta.egress) else { return };
    let dscp = header::code_point(frame);
    let (mut colour, mut marked) = (Colour::of(dscp), None);
    if frame.meta.fate == 0 {
        colour = colour.max(Colour::ALL[usize::from(frame.meta.colour) % 3]);
        marked = cx.tables.classes.get(frame.meta.class).and_then(|class| class.mark_pcp);
    }
    let bits = interface.priorities.of_packet(dscp, colour, marked).bits() << 4;
    let network = usize::from(frame.meta.network);
    let tags = frame.bytes_mut().get_mut(ethernet::HEADER_LEN - 2..network.saturating_sub(2));
    for tag in tags.unwrap_or_default().chunks_exact_mut(TAG_LEN) {
        tag[2] = tag[2] & 0x0f | bits;
    }
}
