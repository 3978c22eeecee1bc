//! Transport mode: the headers that were in front of ESP are those of the packet.

use tally::{Op, Region, Tally};
use wire::checksum::Sum;
use wire::esp::{Front, Udp};
use wire::header::Protocol;
use wire::{Family, Frame, Part, icmpv6, ipv4, ipv6, tcp, udp};

use crate::stage::header;
use crate::tables::Tunnel;
use crate::verdict::Reason;

/// Moves the packet's headers to what ESP has carried, which begins at `start` and is of that protocol, and takes off what is in front of
/// them.
pub(super) fn join<T: Tally>(
    frame: &mut Frame,
    start: usize,
    protocol: Protocol,
    tally: &mut T,
) -> Result<(), Reason> {
    let (network, transport) = (usize::from(frame.meta.network), usize::from(frame.meta.transport));
    let len = transport.saturating_sub(network);
    // Where the headers end, and are written, 19; moved, a load and a store of each word.
    tally.instructions(19 + len as u32 / 2);
    tally.execute(Op::Branch, 6);
    let at = start.checked_sub(len).ok_or(Reason::EspTrailer)?;
    frame.bytes_mut().copy_within(network..transport, at);
    frame.pull_front(at);
    let front = Front::ending_at(frame.bytes(), len as u16).ok_or(Reason::EspTrailer)?;
    front.lead_to(frame.bytes_mut(), protocol);
    Ok(())
}

/// Refuses a packet that does not go between the ends of the tunnel. In UDP, where a NAT may have changed addresses on the
/// way, its checksum is made anew (RFC 3948, section 3.1.2): the integrity check has been right.
pub(super) fn check<T: Tally>(frame: &mut Frame, tunnel: &Tunnel, tally: &mut T) -> Result<(), Reason> {
    tally.instructions(8);
    let (source, destination) = header::addresses(frame);
    if (Some(source), destination) != (tunnel.remote, tunnel.local) {
        return Err(Reason::TunnelSelector);
    }
    if tunnel.udp == Udp::Yes {
        sum_anew(frame, tally);
    }
    Ok(())
}

/// Computes the checksum of TCP, UDP or ICMPv6, which cover addresses. A datagram of UDP without one stays without one across IPv4.
fn sum_anew<T: Tally>(frame: &mut Frame, tally: &mut T) {
    let (family, protocol) = (frame.meta.family, Protocol(frame.meta.protocol));
    let (network, transport, end) =
        (usize::from(frame.meta.network), usize::from(frame.meta.transport), usize::from(frame.meta.end));
    let is_covered = match protocol {
        Protocol::TCP | Protocol::UDP => true,
        Protocol::ICMPV6 => family == Family::V6,
        _ => false,
    };
    let payload = frame.bytes_mut().get_mut(transport..end).unwrap_or_default();
    let len = match udp::Header::of(payload) {
        Some(header) if protocol == Protocol::UDP => match (header.checksum(), family) {
            (0, Family::V4) => return,
            // What is behind the datagram is not covered (RFC 9868).
            _ => usize::from(header.length()).min(payload.len()),
        },
        _ => payload.len(),
    };
    if !is_covered || frame.meta.part != Part::Whole {
        return;
    }
    // An add for every four bytes, and a fold.
    tally.instructions(len as u32 / 4 + 24);
    tally.read(Region::Frame, transport, len as u32);
    set(frame.bytes_mut().get_mut(transport..).unwrap_or_default(), protocol, 0);
    let packet = frame.bytes().get(network..).unwrap_or_default();
    let payload = frame.bytes().get(transport..transport + len).unwrap_or_default();
    let pseudo = match (ipv4::Header::of(packet), ipv6::Header::of(packet)) {
        (Some(ip), _) if family == Family::V4 => Sum::pseudo_v4(ip.src(), ip.dst(), protocol, len as u16),
        (_, Some(ip)) => Sum::pseudo_v6(ip.src(), ip.dst(), protocol, len as u32),
        _ => return,
    };
    let sum = pseudo.and(payload);
    let checksum = if protocol == Protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
    set(frame.bytes_mut().get_mut(transport..).unwrap_or_default(), protocol, checksum);
}

fn set(payload: &mut [u8], protocol: Protocol, checksum: u16) {
    match protocol {
        Protocol::TCP => {
            if let Some(mut header) = tcp::HeaderMut::of(payload) {
                header.set_checksum(checksum);
            }
        }
        Protocol::UDP => {
            if let Some(mut header) = udp::HeaderMut::of(payload) {
                header.set_checksum(checksum);
            }
        }
        _ => {
            if let Some(mut header) = icmpv6::HeaderMut::of(payload) {
                header.set_checksum(checksum);
            }
        }
    }
}
