//! The flow of an ICMP error: that of the packet which the error quotes.

use tally::Tally;
use wire::header::Protocol;
use wire::{Family, Frame, Part, gre, icmpv4, ipv4, ipv6};

use super::super::peer::{self, Effect};
use super::super::{Cx, Step, handoff, handshake, header, helper};
use super::lookups::search;
use super::{carry, checksum_is_right, come_back, find, live, settings};
use crate::flag;
use crate::flow::Key;
use crate::hop::NO_HOP;
use crate::stage::vrf::ct_zone;
use crate::verdict::Reason;

/// Finds the flow of the packet that an ICMP error quotes, which went the other way. Errors from the gateway itself go out
/// even without a flow.
pub(super) fn relate<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    match find_related(frame, cx) {
        Step::Drop(Reason::IcmpUnrelated) if frame.meta.flags & flag::OWN != 0 => Step::Next,
        step => step,
    }
}

fn find_related<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    // As two headers' parse.
    cx.tally.instructions(60);
    let is_redirect = match frame.meta.family {
        Family::V4 => frame.meta.dport >> 8 == u16::from(icmpv4::Type::REDIRECT.0),
        _ => false,
    };
    // Of an error in fragments only the first has the quote; what follows it cannot be told from anything.
    if frame.meta.part == Part::Later {
        return Step::Drop(Reason::IcmpUnrelated);
    }
    if is_redirect || !checksum_is_right(frame, cx) {
        return Step::Drop(if is_redirect { Reason::IcmpUnrelated } else { Reason::TransportChecksum });
    }
    let message =
        frame.bytes().get(usize::from(frame.meta.transport)..usize::from(frame.meta.end)).unwrap_or(&[]);
    let quoted = message.get(8..).unwrap_or(&[]);
    let Some((quote, seq)) = quoted_key(quoted, frame.meta.family) else {
        return Step::Drop(Reason::IcmpUnrelated);
    };
    let mut key = quote.reversed().in_ct_zone(ct_zone(frame, cx));
    if quote.protocol() == Protocol::GRE.0 && cx.tables.filter.has_calls {
        let call = quoted_call(quoted, frame.meta.family);
        match call.map_or(Ok(None), |call| helper::answer_to_quoted(frame, &key, call, cx)) {
            Ok(answer) => key = answer.unwrap_or(key),
            Err(step) => return step,
        }
    }
    cx.tally.begin_offload(search(frame.meta.family));
    let (hash, found) = find(&key, cx);
    cx.tally.end_offload();
    let hit = match live(found, &key, hash, frame, cx) {
        Ok(Some(hit)) => hit,
        Ok(None) => {
            return handoff::to_flow(frame, hash, cx)
                .or_else(|| peer::hand_over(frame, Effect::Nothing, cx))
                .unwrap_or(Step::Drop(Reason::IcmpUnrelated));
        }
        Err(step) => return step,
    };
    // It must go to whoever sent the packet that it quotes.
    let (_, destination) = header::addresses(frame);
    if destination != key.destination().into() {
        return Step::Drop(Reason::IcmpUnrelated);
    }
    let settings = settings(cx);
    // What the gateway itself says of its own connections its own TCP knows better.
    let is_own = frame.meta.flags & flag::OWN != 0;
    let shift = handshake::quoted_shift(hit, cx);
    let seq = seq.map(|seq| helper::quoted(hit, seq.wrapping_add(shift), cx));
    let Some(flow) = cx.shard.flows.flow(hit.id) else { return Step::Drop(Reason::IcmpUnrelated) };
    if let Some(seq) = seq.filter(|_| !is_own) {
        if !crate::flow::tcp::may_be_quoted(flow, hit.direction.turned(), seq, settings) {
            return Step::Drop(Reason::IcmpWindow);
        }
    }
    frame.meta.flags |= flag::RELATED;
    carry(frame, hit.id, hit.direction, flow);
    if frame.meta.hop == NO_HOP { come_back(frame, hit, hash, cx) } else { Step::Next }
}

/// The key of a packet quoted in an ICMP error: its header, and at least the first eight bytes behind it. Of TCP, its
/// sequence number.
pub(in crate::stage) fn quoted_key(quoted: &[u8], family: Family) -> Option<(Key, Option<u32>)> {
    let seq = |protocol, payload: &[u8]| {
        let bytes = payload.get(4..8).filter(|_| protocol == Protocol::TCP)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    if family == Family::V4 {
        let packet = ipv4::parse_prefix(quoted).ok()?;
        let protocol = packet.header.protocol();
        if packet.header.fragment().is_some_and(|fragment| !fragment.is_first()) {
            return None;
        }
        let (sport, dport) = ends(protocol, packet.payload, Family::V4)?;
        let key = Key::v4(packet.header.src_bits(), packet.header.dst_bits(), sport, dport, protocol.0);
        Some((key, seq(protocol, packet.payload)))
    } else {
        let packet = ipv6::parse_prefix(quoted).ok()?;
        let protocol = packet.protocol();
        if packet.extensions.fragment.is_some_and(|found| !found.fragment.is_first()) {
            return None;
        }
        let (sport, dport) = ends(protocol, packet.payload, Family::V6)?;
        let key = Key::v6(packet.header.src_bits(), packet.header.dst_bits(), sport, dport, protocol.0);
        Some((key, seq(protocol, packet.payload)))
    }
}

/// The call ID of a quoted packet of a PPTP call.
fn quoted_call(quoted: &[u8], family: Family) -> Option<u16> {
    match family {
        Family::V4 => gre::call_id(ipv4::parse_prefix(quoted).ok()?.payload),
        _ => gre::call_id(ipv6::parse_prefix(quoted).ok()?.payload),
    }
}

/// Returns the ports of a packet's flow key: TCP or UDP ports, `Key::query_ports` for an ICMP query, or zeros for protocols
/// without ports. `None` if there are none to read, as in an ICMP error.
pub(crate) fn ends(protocol: Protocol, payload: &[u8], family: Family) -> Option<(u16, u16)> {
    let icmp = if family == Family::V4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    if protocol == icmp {
        let header = icmpv4::Header::of(payload)?;
        let class = match family {
            Family::V4 => header.kind().class(),
            _ => wire::icmpv6::Type(header.kind().0).class(),
        };
        // No error about an error (RFC 1122, section 3.2.2).
        let is_query = matches!(class, icmpv4::Class::Request | icmpv4::Class::Reply);
        return is_query.then(|| Key::query_ports(family, header.kind().0, header.id()));
    }
    if protocol.has_ports() {
        return wire::header::Ports::of(payload).map(|ports| (ports.sport, ports.dport));
    }
    Some((0, 0))
}
