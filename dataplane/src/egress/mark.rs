//! Marks of explicit congestion notification (RFC 3168) in the place of drops.

use wire::{Family, Frame, ipv4, ipv6};

/// Marks a packet "congestion experienced". False, and unchanged, if its transport does not know marks.
pub(crate) fn congestion(frame: &mut Frame) -> bool {
    let (network, family) = (usize::from(frame.meta.network), frame.meta.family);
    let packet = frame.bytes_mut().get_mut(network..).unwrap_or_default();
    match family {
        Family::V4 => ipv4::HeaderMut::of(packet).is_some_and(|mut header| header.mark_congestion()),
        Family::V6 => ipv6::HeaderMut::of(packet).is_some_and(|mut header| header.mark_congestion()),
        Family::Other => false,
    }
}
