//! `terminate`: is it of a PPP session that ends here, and open?
//!
//! Finds the session of a frame of PPP over Ethernet (RFC 2516), by sender and session identifier, or of a PPP packet that an ATM channel
//! carries (RFC 2364), and lets the IP packet in it go on as if it had come in by the session's interface as it is. Control packets and
//! discovery are the session's ([`ppp`](crate::ppp)): they are answered in their frame, or dropped as [`Reason::PppControl`] where they
//! need no answer; what else the session sends follows by itself.

use tally::{Op, Region, Tally};
use wire::ethernet::{EtherType, Header, Mac};
use wire::link_kind::{STAND_IN, received_as};
use wire::meta::Fields;
use wire::ppp::{PROTOCOL_LEN, Protocol};
use wire::{Family, Frame, Meta, Nanos, pppoe};

use super::parse::Parse;
use super::{About, Cx, Packets, Stage, Step, handoff};
use crate::flag;
use crate::hop::NO_HOP;
use crate::limiter::{self, ErrorBounds, ErrorKind};
use crate::ppp::{Kind, Outgoing};
use crate::tables::{Address, Carrier, Interface, LOCAL, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminate;

impl Stage for Terminate {
    const ABOUT: About = About {
        name: "terminate",
        asks: "Is it of a PPP session that ends here, and open?",
        reads: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::FLAGS)
            .and(Fields::INGRESS)
            .and(Fields::RECEIVED)
            .and(Fields::NUMBER),
        writes: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::FLAGS)
            .and(Fields::INGRESS)
            .and(Fields::EGRESS)
            .and(Fields::HOP),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.sessions.is_empty() { Packets::None } else { Packets::Every }
    }

    /// Frames that `parse` lets through are IP, but for those of sessions, and cells, which `reassemble` has taken.
    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        frame.meta.family == Family::Other && frame.meta.fate == 0
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Type, 2; header, 8; the session by sender and identifier, 10; protocol and version, 5; the new header, 4.
        cx.tally.instructions(29);
        cx.tally.execute(Op::Branch, 9);
        cx.tally.write(Region::Frame, 0, 16);
        match take(frame, cx) {
            Ok(Taken::Packet) => Parse::step(frame, cx),
            Ok(Taken::Control) => answer(frame, cx),
            Ok(Taken::HandedOff(step)) => step,
            // What the session has to say of it follows by itself.
            Err(reason) => Step::Drop(reason),
        }
    }

    fn program(_: &Tables) -> u32 {
        // What is told. The packet's headers are read by the program of `parse`; control packets are for another processor.
        30
    }
}

/// Frame that has been taken.
enum Taken {
    /// An IP packet, in a frame of the session's interface.
    Packet,
    /// A control packet, which the session has taken in.
    Control,
    /// A control packet for the worker that has the sessions.
    HandedOff(Step),
}

/// Takes a frame of a session or of discovery.
///
/// # Errors
/// The frame goes no further, for this reason.
fn take<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<Taken, Reason> {
    let network = usize::from(frame.meta.network);
    let bytes = frame.bytes();
    let (head, rest) = bytes.split_at_checked(network).ok_or(Reason::LinkTruncated)?;
    let from = Header::of(head).ok_or(Reason::LinkTruncated)?.src();
    let kind = head.last_chunk::<2>().ok_or(Reason::LinkTruncated)?;
    let interface = cx.tables.interface(frame.meta.ingress).ok_or(Reason::InterfaceGone)?;
    let is_group = frame.meta.flags & flag::GROUP != 0;
    match EtherType(u16::from_be_bytes(*kind)) {
        EtherType::PPPOE_SESSION => {
            let packet = pppoe::packet(rest).map_err(|_| Reason::PppMalformed)?;
            let found = cx.shard.sessions.find(&interface.sessions, from, packet.session);
            let (place, link) = found.filter(|_| !is_group).ok_or(Reason::PppSessionUnknown)?;
            if packet.code != pppoe::code::SESSION {
                return Err(Reason::PppMalformed);
            }
            let (protocol, payload) = packet.payload.split_first_chunk().ok_or(Reason::PppMalformed)?;
            let protocol = Protocol(u16::from_be_bytes(*protocol));
            let Some(family) = family(protocol) else {
                return control(place, protocol, network + pppoe::SESSION_LEN, payload.len(), frame, cx);
            };
            if !link.carries(family) {
                return Err(Reason::PppNotOpen);
            }
            let at = network + pppoe::SESSION_LEN;
            let end = at + payload.len();
            packet_of(place, family, at, end, frame, cx)
        }
        EtherType::PPPOE_DISCOVERY => discover(interface, from, frame, cx),
        EtherType::PPP => {
            let place = interface.ppp.as_ref().ok_or(Reason::EthertypeUnsupported)?.place;
            let (protocol, payload) = rest.split_first_chunk().ok_or(Reason::PppMalformed)?;
            let protocol = Protocol(u16::from_be_bytes(*protocol));
            let at = network + PROTOCOL_LEN;
            let Some(family) = family(protocol) else {
                return control(place, protocol, at, payload.len(), frame, cx);
            };
            if !cx.shard.sessions.link(place).is_some_and(|link| link.carries(family)) {
                return Err(Reason::PppNotOpen);
            }
            let end = at + payload.len();
            packet_of(place, family, at, end, frame, cx)
        }
        _ => Err(Reason::EthertypeUnsupported),
    }
}

fn family(protocol: Protocol) -> Option<Family> {
    match protocol {
        Protocol::IPV4 => Some(Family::V4),
        Protocol::IPV6 => Some(Family::V6),
        _ => None,
    }
}

/// Makes the IP packet between two places a frame of the session's interface.
fn packet_of<T: Tally>(
    place: u16,
    family: Family,
    at: usize,
    end: usize,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Taken, Reason> {
    cx.shard.sessions.hear(place, frame.meta.received);
    frame.meta.ingress = cx.shard.sessions.interface(place).ok_or(Reason::InterfaceGone)?;
    frame.truncate(end);
    // In front of the packet there is the carrier's header, at least as long as a stand-in.
    frame.pull_front(at - STAND_IN);
    let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let header = frame.bytes_mut().first_chunk_mut::<STAND_IN>().ok_or(Reason::LinkTruncated)?;
    *header = received_as(kind);
    Ok(Taken::Packet)
}

/// Gives a control packet, of so many bytes from a place on, to its session.
fn control<T: Tally>(
    place: u16,
    protocol: Protocol,
    at: usize,
    len: usize,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Taken, Reason> {
    if let Some(step) = handoff::to_sessions(frame, cx) {
        return Ok(Taken::HandedOff(step));
    }
    let now = frame.meta.received;
    let payload = frame.bytes().get(at..at + len).ok_or(Reason::PppMalformed)?;
    let taken = cx.shard.sessions.receive(place, protocol, payload, now);
    cx.shard.follow_sessions(cx.tables);
    taken.map(|()| Taken::Control)
}

/// Gives a discovery packet to the sessions over an interface, within the bounds of answers: each sender is a receiver.
#[cold]
fn discover<T: Tally>(
    interface: &Interface,
    from: Mac,
    frame: &mut Frame,
    cx: &mut Cx<'_, T>,
) -> Result<Taken, Reason> {
    if let Some(step) = handoff::to_sessions(frame, cx) {
        return Ok(Taken::HandedOff(step));
    }
    let rest = frame.bytes().get(usize::from(frame.meta.network)..).ok_or(Reason::LinkTruncated)?;
    let packet = pppoe::packet(rest).map_err(|_| Reason::PppMalformed)?;
    let now = frame.meta.received;
    if matches!(packet.code, pppoe::code::PADI | pppoe::code::PADR) && !interface.sessions.is_empty() {
        let subject = limiter::subject(Address::v6(from.to_bits().into()), frame.meta.ingress.0.into());
        let hash = cx.shard.flows.hash(&subject, cx.tally);
        let bounds = ErrorBounds::of(cx.tables);
        if !cx.shard.limiter.admits_error(ErrorKind::Discovery, hash, bounds, now) {
            return Err(Reason::PppControl);
        }
    }
    let taken = cx.shard.sessions.discover(&interface.sessions, from, &packet, now);
    cx.shard.follow_sessions(cx.tables);
    taken.map(|()| Taken::Control)
}

/// Answers a control packet in its frame, where the session has something to say.
#[cold]
fn answer<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    match write_next(frame, cx) {
        true => Step::Answer(Reason::PppControl),
        false => Step::Drop(Reason::PppControl),
    }
}

/// Writes the next packet of a session into a frame. False if there is none, or no room for it.
fn write_next<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> bool {
    let tables = cx.tables;
    let Some(outgoing) = cx.shard.sessions.outgoing() else { return false };
    write(frame, &outgoing, tables).is_some()
}

/// Makes the frame of the next packet that a session sends by itself; `None` if there is none, or no slot is free. `number` is that of the frame
/// by which time has passed.
pub(crate) fn next<T: Tally>(now: Nanos, number: u32, cx: &mut Cx<'_, T>) -> Option<Frame> {
    while cx.shard.sessions.has_outgoing() {
        let mut frame = cx.pool.take()?;
        frame.meta = Meta { received: now, ingress: LOCAL, number, ..Meta::default() };
        if write_next(&mut frame, cx) {
            return Some(frame);
        }
        cx.pool.put(frame);
    }
    None
}

/// Writes a packet with the headers of its carrier.
fn write(frame: &mut Frame, outgoing: &Outgoing<'_>, tables: &Tables) -> Option<()> {
    let Outgoing { place, to, session, kind, bytes } = *outgoing;
    let id = *tables.sessions.get(usize::from(place))?;
    let own = tables.interface(id)?.ppp.as_ref()?;
    let carrier_id = if let Carrier::Ethernet(carrier) = own.carrier { carrier } else { id };
    let carrier = tables.interface(carrier_id)?;
    let (ethertype, code, protocol) = match (kind, own.carrier) {
        (Kind::Discovery(code), _) => (EtherType::PPPOE_DISCOVERY, code, None),
        (Kind::Ppp(protocol), Carrier::Ethernet(_)) => {
            (EtherType::PPPOE_SESSION, pppoe::code::SESSION, Some(protocol))
        }
        (Kind::Ppp(protocol), Carrier::Atm) => (EtherType::PPP, 0, Some(protocol)),
    };
    let protocol = protocol.map(|protocol| protocol.0.to_be_bytes());
    let protocol = protocol.as_ref().map_or(&[][..], |field| field.as_slice());
    let tags = carrier.tags.as_slice();
    let head = STAND_IN + wire::vlan::TAG_LEN * tags.len();
    let front = match own.carrier {
        Carrier::Ethernet(_) => pppoe::HEADER_LEN,
        Carrier::Atm => 0,
    };
    let all = frame.prepare(head + front + protocol.len() + bytes.len())?;
    let (link, rest) = all.split_at_mut(head);
    let (pppoe_header, rest) = rest.split_at_mut(front);
    let (field, payload) = rest.split_at_mut(protocol.len());
    link[..6].copy_from_slice(&to.0);
    link[6..12].copy_from_slice(&carrier.mac.0);
    for (tag, place) in tags.iter().zip(link[12..].chunks_exact_mut(wire::vlan::TAG_LEN)) {
        place[..2].copy_from_slice(&tag.tpid.0.to_be_bytes());
        place[2..].copy_from_slice(&tag.tci.to_be_bytes());
    }
    link[head - 2..].copy_from_slice(&ethertype.0.to_be_bytes());
    if front > 0 {
        pppoe_header.copy_from_slice(&pppoe::header(code, session, protocol.len() + bytes.len()));
    }
    field.copy_from_slice(protocol);
    payload.copy_from_slice(bytes);
    let len = frame.len() as u16;
    let meta = &mut frame.meta;
    (meta.network, meta.transport, meta.end) = (head as u16, head as u16, len);
    (meta.egress, meta.hop) = (carrier_id, NO_HOP);
    Some(())
}

/// True if a frame may be a control packet of a session, or of discovery, or a cell that has part of one: such frames bring sessions news, and
/// each goes through all stages before the next.
pub(crate) fn may_be_control(bytes: &[u8]) -> bool {
    let Ok(layer) = wire::ethernet::parse(bytes) else { return false };
    match layer.ethertype {
        EtherType::PPPOE_DISCOVERY | EtherType::CELL | EtherType::PPP => true,
        EtherType::PPPOE_SESSION => {
            let field = layer.payload.get(pppoe::HEADER_LEN..pppoe::SESSION_LEN);
            let protocol = field.and_then(|field| field.first_chunk::<2>());
            protocol.is_some_and(|field| family(Protocol(u16::from_be_bytes(*field))).is_none())
        }
        _ => false,
    }
}
