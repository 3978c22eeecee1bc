//! Outer packets that came in fragments.

use tally::{Region, Tally};
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::{Family, Frame, Part, ipv4, ipv6, udp};

use super::IKE;
use crate::sa::{Congestion, Fragment, Whole};
use crate::stage::parse;
use crate::stage::track::datagram;
use crate::stage::{Cx, Step};
use crate::tables::Tables;
use crate::verdict::Reason;

/// Bits of the DS field that say that congestion was experienced.
const MARKED: u8 = 3;

/// Keeps a fragment of ESP until the others have come, and makes the last one to come the whole packet.
///
/// # Errors
/// [`Step::Next`]: the fragment is not ESP's. [`Step::Drop`]: its bytes have been kept, or it is not to be used.
#[cold]
#[inline(never)]
pub(super) fn take<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let unusable = Step::Drop(Reason::TunnelFragment);
    let (key, span) = datagram(frame, cx).ok_or(unusable)?;
    let now = frame.meta.received;
    let (network, end) = (usize::from(frame.meta.network), usize::from(frame.meta.end));
    let begins = end.checked_sub(span.len as usize).ok_or(unusable)?;
    let packet = frame.bytes().get(network..end).unwrap_or_default();
    let payload = frame.bytes().get(begins..end).unwrap_or_default();
    if frame.meta.protocol == Protocol::UDP.0 {
        // Whose a later fragment is, only the first one tells.
        let is_esp = match frame.meta.part {
            Part::Later => cx.shard.sas.reassembly.knows(&key, now),
            _ => payload.get(udp::HEADER_LEN..).and_then(<[u8]>::first_chunk).is_some_and(|spi| *spi != IKE),
        };
        if !is_esp {
            return Err(Step::Next);
        }
    }
    let header = match frame.meta.family {
        Family::V4 => packet.get(..begins - network),
        // What lies between the header and that of the fragment would have to be kept: no tunnel sends any.
        _ if begins == network + ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN => {
            packet.get(..ipv6::HEADER_LEN)
        }
        _ => None,
    };
    let congestion = match crate::stage::header::ds_field(frame) & MARKED {
        MARKED => Congestion::Marked,
        _ => Congestion::None,
    };
    let (header, protocol) = (header.ok_or(unusable)?, Protocol(frame.meta.protocol));
    let fragment = Fragment { key, span, header, protocol, payload, congestion };
    // The table's keys, 64; ranges, 20; bytes, a load and a store of each word.
    cx.tally.instructions(84 + span.len / 2);
    cx.tally.read(Region::Frame, begins, span.len);
    cx.tally.write(Region::FragmentTable, span.offset as usize, span.len);
    let tables = cx.tables;
    let whole = match cx.shard.sas.reassembly.add(&fragment, now) {
        Ok(Some(whole)) => whole,
        Ok(None) => return Err(Step::Drop(Reason::TunnelReassembly)),
        Err(_) => return Err(unusable),
    };
    cx.tally.instructions(40 + whole.payload.len() as u32 / 2);
    cx.tally.read(Region::FragmentTable, 0, whole.payload.len() as u32);
    cx.tally.write(Region::Frame, 0, whole.payload.len() as u32);
    fill(frame, &whole, tables).map_err(Step::Drop)
}

/// Puts the whole packet into the frame, without tags, and reads it anew.
fn fill(frame: &mut Frame, whole: &Whole<'_>, tables: &Tables) -> Result<(), Reason> {
    let Whole { header, protocol, payload, congestion } = whole;
    let (interface, family) = (frame.meta.ingress, frame.meta.family);
    let ends: [u8; 12] = *frame.bytes().first_chunk().ok_or(Reason::TunnelFragment)?;
    let len = ethernet::HEADER_LEN + header.len() + payload.len();
    let bytes = frame.prepare(len).ok_or(Reason::SlotTooSmall)?;
    let (link, packet) = bytes.split_at_mut(ethernet::HEADER_LEN);
    let EtherType(kind) = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
    link[..12].copy_from_slice(&ends);
    link[12..].copy_from_slice(&kind.to_be_bytes());
    let (head, rest) = packet.split_at_mut(header.len());
    head.copy_from_slice(header);
    rest.copy_from_slice(payload);
    if family == Family::V4 {
        if let Some(mut header) = ipv4::HeaderMut::of(head) {
            header.set_total_len((len - ethernet::HEADER_LEN) as u16);
            header.set_flags_and_offset(0);
            let field = header.view().ds_field();
            header.set_ds_field(marked(field, *congestion));
        }
        ipv4::fill_checksum(head);
    } else if let Some(mut header) = ipv6::HeaderMut::of(head) {
        header.set_payload_len(payload.len() as u16);
        header.set_next_header(*protocol);
        let field = header.view().ds_field();
        header.set_congestion(marked(field, *congestion));
    }
    parse::packet(frame, interface, family, tables)
}

fn marked(field: u8, congestion: Congestion) -> u8 {
    match congestion {
        Congestion::None => field,
        Congestion::Marked => field | MARKED,
    }
}
