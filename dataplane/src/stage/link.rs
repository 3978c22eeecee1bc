//! Link-layer headers of packets that leave, with the priorities in their VLAN tags.

use policy::model::Colour;
use tally::{Op, Region, Tally};
use wire::ethernet::{self, EtherType, Mac};
use wire::vlan::TAG_LEN;
use wire::{Family, Frame, LinkKind, ppp, pppoe};

use super::{Cx, header};
use crate::hop::{Hop, SessionHeader};
use crate::tables::{Interface, Tables};
use crate::verdict::Reason;

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
    if hop.is_session() {
        return in_session(frame, cx);
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
        set_priority(frame, len - 2, cx);
    }
    true
}

/// Puts the headers of a PPP session in front: the link's, of PPP over Ethernet with the session's, and the protocol field. `false` if
/// the session does not carry the packet's IP version.
#[inline(never)]
fn in_session<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> bool {
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return false };
    let (Some(session), Some(link)) = (hop.session(frame.meta.family), hop.header()) else { return false };
    // The session's kind and identifier, the length, three words put together and written, 12.
    cx.tally.instructions(12);
    cx.tally.execute(Op::Branch, 3);
    let protocol = match frame.meta.family {
        Family::V4 => ppp::Protocol::IPV4,
        _ => ppp::Protocol::IPV6,
    };
    let old = frame.meta.network;
    frame.pull_front(usize::from(old));
    let packet_len = frame.len();
    let behind = match session {
        SessionHeader::Ethernet(_) => pppoe::SESSION_LEN,
        SessionHeader::Atm => ppp::PROTOCOL_LEN,
    };
    let len = link.len() + 2 + behind;
    let Some(front) = frame.push_front(len) else { return false };
    let (head, rest) = front.split_at_mut(link.len());
    head.copy_from_slice(link);
    let (ethertype, rest) = rest.split_at_mut(2);
    let (session_header, protocol_field) = rest.split_at_mut(behind - ppp::PROTOCOL_LEN);
    protocol_field.copy_from_slice(&protocol.0.to_be_bytes());
    let kind = match session {
        SessionHeader::Ethernet(session) => {
            let header = pppoe::header(pppoe::code::SESSION, session, packet_len + ppp::PROTOCOL_LEN);
            session_header.copy_from_slice(&header);
            EtherType::PPPOE_SESSION
        }
        SessionHeader::Atm => EtherType::PPP,
    };
    ethertype.copy_from_slice(&kind.0.to_be_bytes());
    let tags_end = link.len();
    frame.meta.network = len as u16;
    frame.meta.transport = frame.meta.transport - old + len as u16;
    frame.meta.end = frame.meta.end - old + len as u16;
    if tags_end > ethernet::HEADER_LEN - 2 {
        set_priority(frame, tags_end, cx);
    }
    true
}

/// Addresses a frame to the multicast group of its packet (RFC 1112, section 6.4; RFC 2464, section 7), where its link is Ethernet.
#[cold]
#[inline(never)]
pub(super) fn address_group<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    // The link, 4; the address, 6; two words, 4.
    cx.tally.instructions(14);
    cx.tally.execute(Op::Branch, 3);
    cx.tally.write(Region::Frame, 0, 6);
    if cx.tables.interface(frame.meta.egress).is_none_or(|own| own.link != LinkKind::Ethernet) {
        return;
    }
    let (_, group) = header::addresses(frame);
    if let Some(destination) = frame.bytes_mut().first_chunk_mut::<6>() {
        *destination = Mac::of_group(group.to_ip()).0;
    }
}

/// Reason why [`replace`] has refused a packet.
#[cold]
pub(super) fn refusal<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Reason {
    let is_session = cx.shard.hops.get(frame.meta.hop).is_some_and(Hop::is_session);
    if is_session { Reason::PppNotOpen } else { Reason::NeighbourUnknown }
}

/// Size of the program that writes priorities, where frames have tags.
pub(super) fn program(tables: &Tables) -> u32 {
    let tags = if tables.interfaces.iter().any(Interface::is_tagged) { 25 } else { 0 };
    // Headers of a PPP session.
    tags + if tables.sessions.is_empty() { 0 } else { 14 }
}

/// Writes the priority of a packet into the tags of its frame, which end there: that of its class, else of its code point by the interface. An answer
/// is of no class.
#[inline(never)]
fn set_priority<T: Tally>(frame: &mut Frame, tags_end: usize, cx: &mut Cx<'_, T>) {
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
    let tags = frame.bytes_mut().get_mut(ethernet::HEADER_LEN - 2..tags_end);
    for tag in tags.unwrap_or_default().chunks_exact_mut(TAG_LEN) {
        tag[2] = tag[2] & 0x0f | bits;
    }
}
