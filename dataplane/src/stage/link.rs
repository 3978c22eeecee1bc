//! Link-layer headers of packets that leave.

use tally::Tally;
use wire::ethernet::EtherType;
use wire::{Family, Frame};

use super::Cx;

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
    true
}
