//! `answer`: the sender is told why its packet went no further.
//!
//! Turns the frame, in its slot, into the ICMP error (RFC 792, RFC 4443) or TCP reset (RFC 9293, section
//! 3.10.7.1) that answers it, and sends it back the way routing leads. Nothing is answered that must not be:
//! errors, groups, later fragments, resets (RFC 1122, section 3.2.2; RFC 1812, section 4.3.2.7), but for packets of IPv6 to groups that are too
//! big (RFC 4443, section 2.4). Frames
//! without an answer, or above the limits per second, are dropped for the same reason. Limits hold by receiver, and for each kind
//! of answer apart, so that neither a flooding host nor the rules' refusals use up the tokens of others. The answer to a
//! packet of the gateway itself is for the gateway itself, and no limit holds it back.

use arrayvec::ArrayVec;
use policy::model::{Action, RejectWith};
use tally::{Region, Tally};
use wire::atm::{self, Cell, Connection};
use wire::checksum::Sum;
use wire::header::Protocol;
use wire::icmpv4::unreachable as unreachable4;
use wire::icmpv6::unreachable as unreachable6;
use wire::meta::Fields;
use wire::tcp::Flags;
use wire::{Family, Frame, Part, icmpv4, icmpv6, ipv6, oam, tcp};

use super::own::{IpHeader, MOST_LINK, note, pseudo};
use super::queue::ANSWERED;
use super::route::back;
use super::vrf::Towards;
use super::{About, Cx, Packets, Stage, Step, filter, handshake, header, link, nat64, proxy};
use crate::flag;
use crate::hop::{CELL_HOP, LOCAL_HOP, Wanted};
use crate::limiter::{self, ErrorBounds, ErrorKind};
use crate::tables::{Address, LOCAL, Tables, Target, VrfId};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer;

/// Largest ICMP error for IPv4 (RFC 1812, section 4.3.2.3) and IPv6 (RFC 4443, section 2.4 c).
const LARGEST4: usize = 576;
const LARGEST6: usize = ipv6::LEAST_MTU as usize;

/// Internetwork control: what routers send (RFC 1812, section 4.3.2.5).
const CONTROL: u8 = 0xc0;

impl Stage for Answer {
    const ABOUT: About = About {
        name: "answer",
        asks: "What is its sender told?",
        reads: Fields::SEEN
            .and(Fields::RECEIVED)
            .and(Fields::HOP)
            .and(Fields::EGRESS)
            .and(Fields::FLOW)
            .and(Fields::RULE)
            .and(Fields::OPENING)
            .and(Fields::TUNNEL),
        writes: Fields::PACKET.and(Fields::HEADERS).and(Fields::HOP).and(Fields::EGRESS).and(Fields::TUNNEL),
    };

    fn packets(_: &Tables) -> Packets {
        Packets::Answered
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.fate >> 8 == ANSWERED
    }

    #[cold]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        let Some(Verdict::Answered(reason)) = Verdict::of_fate(frame.meta.fate) else { return Step::Next };
        // What is to be told, to whom, and whether it may be, 90; two buckets of the limiter, 110; the way back with its hop, 80; the
        // address that it is told from, among those of the interface, 110; headers of 28 or 48 bytes, 90, their checksums, and the
        // quote's sum, 150; the link's header, 70.
        cx.tally.instructions(700);
        cx.tally.write(Region::Frame, 0, 64);
        let recorded = cx.shard.recorder.recorded();
        match build(frame, reason, cx) {
            Some(()) => Step::Next,
            None => {
                cx.shard.recorder.retract(reason, recorded);
                Step::Drop(reason)
            }
        }
    }

    fn program(tables: &Tables) -> u32 {
        // The SYN-ACK with its options, 32; `track` has the cookie.
        let nat64 = if tables.nat.has_translator { 12 } else { 0 };
        217 + nat64 + link::program(tables) + if tables.filter.has_syn_proxy { 32 } else { 0 }
    }
}

/// Answer to the sender.
enum Tell {
    /// A SYN-ACK with a cookie.
    Cookie,
    Reset,
    Icmp {
        kind: u8,
        code: u8,
        mtu: u32,
    },
}

/// Builds the answer in the place of the packet, which is recorded while its bytes are its own.
fn build<T: Tally>(frame: &mut Frame, reason: Reason, cx: &mut Cx<'_, T>) -> Option<()> {
    if matches!(reason, Reason::NeighbourProxied | Reason::AtmLoopback) {
        cx.shard.recorder.note_answered(frame);
    }
    if reason == Reason::NeighbourProxied {
        return proxy::answer(frame, cx);
    }
    if reason == Reason::AtmLoopback {
        return loop_back(frame, cx);
    }
    if reason == Reason::PppControl {
        // The session has made it.
        return Some(());
    }
    if !may_be_answered(frame, reason, cx) {
        return None;
    }
    let tell = tell(frame, reason, cx)?;
    if frame.meta.flags & flag::OWN != 0 {
        cx.shard.recorder.note_answered(frame);
        return to_itself(frame, tell);
    }
    let (sender, meant) = header::addresses(frame);
    let bounds = ErrorBounds::of(cx.tables);
    let vrf = cx.tables.vrf_of(frame.meta.ingress);
    let subject = limiter::subject_in(cx.tables.vrf_number(vrf), sender, 0);
    let hash = cx.shard.flows.hash(&subject, cx.tally);
    // A cookie is no error, and no larger than what it answers by much: whoever asks gets one.
    let is_bounded = !matches!(tell, Tell::Cookie);
    if is_bounded && !cx.shard.limiter.admits_error(kind_of(reason), hash, bounds, frame.meta.received) {
        return None;
    }
    cx.shard.recorder.note_answered(frame);
    let opening = cx.shard.openings.of(&frame.meta);
    let is_redirected = frame.meta.hop == LOCAL_HOP && opening.is_some_and(|opening| opening.dnat != 0);
    // What has come out of a tunnel by its selectors is answered through the tunnel.
    let ingress = frame.meta.ingress;
    let protected = |routed, cx: &mut Cx<'_, T>| {
        let is_by_policy = cx.tables.tunnel_at(ingress).is_some_and(|tunnel| !tunnel.selectors.is_empty());
        Ok(if is_by_policy { Some(Target::Link(ingress)) } else { routed })
    };
    let wan = cx.tables.wans.carrying(ingress, sender.family());
    let hop = back(frame, Towards { vrf, address: sender }, 0, wan, protected, cx)
        .ok()
        .filter(|hop| *hop != LOCAL_HOP)?;
    let known = cx.shard.hops.get(hop).filter(|hop| hop.is_known());
    let Some((interface, by)) = known.map(|hop| (hop.interface, hop.tunnel)) else {
        // Nor does an answer wait; but the next one shall find its way.
        let asked = Wanted { interface: frame.meta.egress, address: sender };
        let wanted = cx.shard.hops.owner(hop).unwrap_or(asked);
        cx.shard.hops.waiting.ask(wanted, frame.meta.received);
        return None;
    };
    match tell {
        Tell::Cookie => handshake::answer(frame, cx)?,
        Tell::Reset => reset(frame, sender, meant)?,
        Tell::Icmp { kind, code, mtu } => {
            let own = if is_redirected { meant } else { own_address((interface, vrf), sender, meant, cx)? };
            let id = cx.shard.next_id;
            cx.shard.next_id = id.wrapping_add(1);
            icmp(frame, own, sender, [kind, code], mtu, id)?;
        }
    }
    frame.meta.hop = hop;
    frame.meta.egress = interface;
    // What shall be encrypted is the answer, whatever the packet was to leave by.
    let out = if by == 0 { 0 } else { tunnel::ANSWER_OUT };
    frame.meta.tunnel = frame.meta.tunnel & (tunnel::IN | tunnel::COPY) | out;
    link::replace(frame, cx).then_some(())
}

/// Turns an OAM loopback cell into its answer, which goes back by the connection that it came by (ITU-T I.610, section 9.2.1.3), within the
/// bounds of answers: each connection is a receiver.
fn loop_back<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<()> {
    let vc = Cell::of(atm::cell_of(frame.bytes())?).ok()?.vc();
    let connection = Address::v4(u32::from(vc.vpi) << 16 | u32::from(vc.vci));
    let subject = limiter::subject(connection, frame.meta.ingress.0.into());
    let hash = cx.shard.flows.hash(&subject, cx.tally);
    let (bounds, now) = (ErrorBounds::of(cx.tables), frame.meta.received);
    if !cx.shard.limiter.admits_error(ErrorKind::Loopback, hash, bounds, now) {
        return None;
    }
    let cell = atm::cell_of_mut(frame.bytes_mut())?;
    oam::loop_back(cell.last_chunk_mut()?);
    atm::switch(cell, Connection::Channel(vc));
    (frame.meta.egress, frame.meta.hop) = (frame.meta.ingress, CELL_HOP);
    Some(())
}

/// Returns the kind of answer for rate limiting: each kind has its own token buckets.
fn kind_of(reason: Reason) -> ErrorKind {
    match reason {
        Reason::PacketTooBig => ErrorKind::TooBig,
        Reason::TtlExpired | Reason::RouteMissing | Reason::RouteUnreachable | Reason::NeighbourUnknown => {
            ErrorKind::Routing
        }
        _ => ErrorKind::Refusal,
    }
}

/// Answers the gateway itself, as whoever it has called would. An address of its own could not stand as source: no host
/// takes in packets from itself.
fn to_itself(frame: &mut Frame, tell: Tell) -> Option<()> {
    let mut link = ArrayVec::<u8, MOST_LINK>::new();
    link.try_extend_from_slice(frame.bytes().get(..usize::from(frame.meta.network))?).ok()?;
    let (sender, meant) = header::addresses(frame);
    match tell {
        // Nobody answers the gateway's own SYNs but those whom it calls.
        Tell::Cookie => return None,
        Tell::Reset => reset(frame, sender, meant)?,
        Tell::Icmp { kind, code, mtu } => icmp(frame, meant, sender, [kind, code], mtu, 0)?,
    }
    let (to, from) = link.get_mut(..12)?.split_at_mut(6);
    to.swap_with_slice(from);
    frame.push_front(link.len())?.copy_from_slice(&link);
    let shift = link.len() as u16;
    frame.meta.network += shift;
    frame.meta.transport += shift;
    frame.meta.end += shift;
    frame.meta.hop = LOCAL_HOP;
    frame.meta.egress = LOCAL;
    Some(())
}

fn may_be_answered<T: Tally>(frame: &Frame, reason: Reason, cx: &mut Cx<'_, T>) -> bool {
    if frame.meta.flags & flag::ERROR != 0 || frame.meta.part == Part::Later {
        return false;
    }
    let groups = flag::GROUP | flag::TO_GROUP;
    if frame.meta.flags & groups == 0 {
        return true;
    }
    // Path MTU discovery of a group (RFC 4443, section 2.4 e.3 to e.5; RFC 8201, section 5.2): of copies that rules let pass alone, as nobody misses others.
    reason == Reason::PacketTooBig && frame.meta.family == Family::V6 && filter::accepts(frame, cx)
}

/// Returns the answer for a reason; `None` if there is no answer.
fn tell<T: Tally>(frame: &Frame, reason: Reason, cx: &mut Cx<'_, T>) -> Option<Tell> {
    let v4 = frame.meta.family == Family::V4;
    let icmp = |four: (icmpv4::Type, u8), six: (icmpv6::Type, u8)| {
        let (kind, code) = if v4 { (four.0.0, four.1) } else { (six.0.0, six.1) };
        Some(Tell::Icmp { kind, code, mtu: 0 })
    };
    let unreachable = |four, six| {
        icmp((icmpv4::Type::DESTINATION_UNREACHABLE, four), (icmpv6::Type::DESTINATION_UNREACHABLE, six))
    };
    match reason {
        Reason::TtlExpired => icmp((icmpv4::Type::TIME_EXCEEDED, 0), (icmpv6::Type::TIME_EXCEEDED, 0)),
        Reason::PacketTooBig => {
            let is_across = nat64::is_across(frame, cx);
            let hop = cx.shard.hops.get(frame.meta.hop)?;
            let mtu = if is_across { nat64::told_mtu(frame, hop) } else { hop.told_mtu(frame.meta.family) };
            let mtu = u32::from(mtu);
            let four = (icmpv4::Type::DESTINATION_UNREACHABLE.0, unreachable4::FRAGMENTATION_NEEDED);
            let (kind, code) = if v4 { four } else { (icmpv6::Type::PACKET_TOO_BIG.0, 0) };
            Some(Tell::Icmp { kind, code, mtu })
        }
        // Its connection has ended: no other answer fits what is in the middle of one.
        Reason::FlowTranslation | Reason::WanDown | Reason::ServerDown => {
            (frame.meta.protocol == Protocol::TCP.0).then_some(Tell::Reset)
        }
        // A server that answers something else than the SYN which it was sent still has an older connection: it is told that
        // this is over, as by the client.
        Reason::SynProxied => {
            let is_syn = frame.meta.tcp_flags & Flags::SYN_ACK.0 == Flags::SYN.0;
            Some(if is_syn { Tell::Cookie } else { Tell::Reset })
        }
        // As of a server that does not listen.
        Reason::NoServer if frame.meta.protocol == Protocol::TCP.0 => Some(Tell::Reset),
        Reason::NoServer => unreachable(unreachable4::PORT, unreachable6::PORT),
        Reason::Nat64Address => unreachable(unreachable4::HOST, unreachable6::ADDRESS),
        Reason::RouteMissing => unreachable(unreachable4::NET, unreachable6::NO_ROUTE),
        Reason::RouteUnreachable => unreachable(unreachable4::HOST, unreachable6::REJECT_ROUTE),
        Reason::NeighbourUnknown => unreachable(unreachable4::HOST, unreachable6::ADDRESS),
        _ => {
            let is_tcp = frame.meta.protocol == Protocol::TCP.0;
            match reject_with(frame, cx) {
                RejectWith::TcpReset => is_tcp.then_some(Tell::Reset),
                RejectWith::Fitting if is_tcp => Some(Tell::Reset),
                RejectWith::Fitting if frame.meta.protocol == Protocol::UDP.0 => {
                    unreachable(unreachable4::PORT, unreachable6::PORT)
                }
                RejectWith::PortUnreachable => unreachable(unreachable4::PORT, unreachable6::PORT),
                RejectWith::HostUnreachable => unreachable(unreachable4::HOST, unreachable6::ADDRESS),
                RejectWith::Fitting | RejectWith::AdminProhibited => unreachable(
                    unreachable4::ADMINISTRATIVELY_PROHIBITED,
                    unreachable6::ADMINISTRATIVELY_PROHIBITED,
                ),
            }
        }
    }
}

/// The answer that the rule, or the default of the zone pair, asks for.
fn reject_with<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> RejectWith {
    let filter = &cx.tables.filter;
    let action = match filter.rules.get(frame.meta.rule as usize) {
        Some(rule) => rule.action,
        None => {
            let zone = |id| cx.tables.zone(id);
            filter.default_action(zone(frame.meta.ingress), zone(frame.meta.egress))
        }
    };
    match action {
        Action::Reject(with) => with,
        Action::Accept | Action::Drop => RejectWith::Fitting,
    }
}

/// The address of the gateway that the answer comes from: the one that the packet was sent to (RFC 4443, section 2.2 a; RFC
/// 1122, section 3.2.1.3), as for a redirected packet. Else one of the interface that the answer leaves by (RFC 1812, section 4.3.2.4), on the network
/// of the receiver if there is one; else any of the VRF that the packet came from.
fn own_address<T: Tally>(
    (out, vrf): (wire::PortId, VrfId),
    receiver: Address,
    meant: Address,
    cx: &Cx<'_, T>,
) -> Option<Address> {
    if cx.tables.is_own(vrf, meant) {
        return Some(meant);
    }
    let of = |interface: &crate::tables::Interface| {
        let first = if receiver.v6 {
            interface.address6.map(Address::v6)
        } else {
            interface.address4.map(Address::v4)
        };
        let near = interface.networks.iter().find(|network| network.contains(&receiver.to_ip()));
        near.map(|network| network.addr().into()).or(first)
    };
    let any = || {
        let interfaces = (0..).map(wire::PortId).zip(&cx.tables.interfaces);
        let mut of_vrf = interfaces.filter(|(id, _)| cx.tables.vrf_of(*id) == vrf);
        of_vrf.find_map(|(_, interface)| of(interface))
    };
    cx.tables.interface(out).and_then(of).or_else(any)
}

/// Turns the frame's IP packet into an ICMP error that quotes it. No link-layer header stands before it then.
fn icmp(
    frame: &mut Frame,
    from: Address,
    to: Address,
    [kind, code]: [u8; 2],
    mtu: u32,
    id: u16,
) -> Option<()> {
    let v4 = !from.v6;
    let (header_len, largest) = if v4 { (20, LARGEST4) } else { (40, LARGEST6) };
    frame.truncate(usize::from(frame.meta.end));
    frame.pull_front(usize::from(frame.meta.network));
    frame.truncate(largest - header_len - 8);
    let message_len = frame.len() + 8;
    frame.push_front(header_len + 8)?.fill(0);
    let bytes = frame.bytes_mut();
    let protocol = if v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
    IpHeader { from, to, protocol, payload_len: message_len, ds_field: CONTROL, id }.write(bytes)?;
    let message = bytes.get_mut(header_len..)?;
    message[0] = kind;
    message[1] = code;
    // RFC 1191: the lower half; RFC 4443: all of it.
    message[4..8].copy_from_slice(&mtu.to_be_bytes());
    let sum = if v4 { Sum::ZERO } else { pseudo(from, to, Protocol::ICMPV6, message_len) };
    let checksum = sum.and(message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    note(frame, header_len);
    // What a tunnel's selectors ask of: the message, not the packet that it quotes.
    (frame.meta.protocol, frame.meta.part) = (protocol.0, Part::Whole);
    Some(())
}

/// Turns the frame's TCP segment into the reset that answers it.
fn reset(frame: &mut Frame, sender: Address, meant: Address) -> Option<()> {
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    let segment = tcp::parse(frame.bytes().get(range)?).ok()?;
    let header = segment.header;
    if header.flags().contains(Flags::RST) {
        return None;
    }
    let (seq, ack, flags) = if header.flags().contains(Flags::ACK) {
        (header.ack(), 0, Flags::RST)
    } else {
        (0, header.seq().wrapping_add(segment.sequence_len()), Flags::RST.and(Flags::ACK))
    };
    let (sport, dport) = (header.dport(), header.sport());
    let header_len = if sender.v6 { 40 } else { 20 };
    frame.truncate(0);
    frame.push_front(header_len + tcp::MIN_HEADER_LEN)?.fill(0);
    let bytes = frame.bytes_mut();
    IpHeader {
        from: meant,
        to: sender,
        protocol: Protocol::TCP,
        payload_len: tcp::MIN_HEADER_LEN,
        ds_field: 0,
        id: 0,
    }
    .write(bytes)?;
    let payload = bytes.get_mut(header_len..)?;
    let mut out = tcp::HeaderMut::of(payload)?;
    out.set_sport(sport);
    out.set_dport(dport);
    out.set_seq(seq);
    out.set_ack(ack);
    out.set_header_len(tcp::MIN_HEADER_LEN);
    out.set_flags(flags);
    let sum = pseudo(meant, sender, Protocol::TCP, tcp::MIN_HEADER_LEN).and(payload).checksum();
    tcp::HeaderMut::of(payload)?.set_checksum(sum);
    note(frame, header_len);
    Some(())
}
