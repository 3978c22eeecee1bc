//! `decap`: does it come through a tunnel, and is it genuine?
//!
//! Takes the ESP (RFC 4303) of packets for the gateway's end of a tunnel off, in UDP (RFC 3948) or not, and lets the inner packet go on
//! as if it had come in by the tunnel's interface. Where several workers share the work, the security association's owner does so.
//! In transport mode the packet that goes on has the header that was in front of ESP.
//! Nothing about a packet is believed before its integrity check value has been verified: an unknown index, a number that was received
//! before and a forged packet change nothing. ESP for other addresses goes on as it is. No answer is ever given to an outer packet.

use std::ops::Range;

use esp::format::untrail;
use esp::{Forged, Packet, Place, SPARE};
use policy::model::KeySource;
use tally::{Op, Region, Tally};
use wire::esp::{Direction, EcnUse, Esn, HEADER_LEN, Header, Mode, NAT_PORT, Udp};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Family, Frame, Part, PortId, ipv4, ipv6, link_kind, udp};

use super::route::is_link_local;
use super::{About, Cx, Packets, Stage, Step, cipher, handoff, header, parse, selector};
use crate::flag;
use crate::sa::{Expired, Peer, SA_BYTES};
use crate::tables::Tables;
use crate::tunnel;
use crate::verdict::Reason;

mod fragments;
mod path_mtu;
mod together;
mod transport;

pub(crate) use path_mtu::Quote;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decap;

impl Stage for Decap {
    const ABOUT: About = About {
        name: "decap",
        asks: "Does it come through a tunnel, and is it genuine?",
        reads: Fields::SEEN.and(Fields::RECEIVED).and(Fields::TUNNEL),
        writes: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::INGRESS)
            .and(Fields::HOP)
            .and(Fields::FLAGS)
            .and(Fields::TUNNEL),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.tunnels.is_empty() { Packets::None } else { Packets::Every }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        let is_esp = match Protocol(frame.meta.protocol) {
            Protocol::ESP => true,
            // Of a fragment that is not the first no port is known.
            Protocol::UDP => frame.meta.dport == NAT_PORT || frame.meta.part == Part::Later,
            Protocol::ICMP | Protocol::ICMPV6 => path_mtu::is_told(frame),
            _ => false,
        };
        // What has come out of a tunnel may have been handed off since.
        frame.meta.fate == 0 && is_esp && frame.meta.tunnel & tunnel::IN == 0
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        match claim(frame, cx) {
            Ok(carried) => open(frame, &carried, cx),
            Err(step) => step,
        }
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        together::run(frames, cx);
    }

    fn program(tables: &Tables) -> u32 {
        // What is told, 121; congestion, 14; fragments put together, 164; a path MTU learnt, 90. The inner header is read by the
        // program of `parse`.
        389 + cipher::program(tables)
    }
}

/// ESP within a packet for an end of a tunnel.
struct Carried {
    udp: Udp,
    /// Its bytes within the frame.
    start: u16,
    end: u16,
    /// Lower half of its number, if there is a header.
    number: Option<u32>,
    /// Place of its security association, if there is one.
    sa: Option<u32>,
}

impl Carried {
    fn span(&self) -> Range<usize> {
        self.start.into()..self.end.into()
    }
}

/// Bytes in the place of an SPI that say that IKE follows (RFC 3948, section 2.2).
const IKE: [u8; 4] = [0; 4];

/// The byte that keeps a NAT open (RFC 3948, section 2.3).
pub(crate) const KEEPALIVE: [u8; 1] = [0xff];

/// Finds the ESP in a packet that is this worker's to open.
///
/// # Errors
/// There is none: the packet goes on, or ends here.
fn claim<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<Carried, Step> {
    // What Linux itself sends is no packet from a peer.
    if frame.meta.flags & flag::OWN != 0 {
        return Err(Step::Next);
    }
    let (_, destination) = header::addresses(frame);
    if !cx.tables.tunnels.is_local(destination) {
        return Err(Step::Next);
    }
    if frame.meta.flags & flag::ERROR != 0 {
        return Err(match path_mtu::learn(frame, destination, cx) {
            Some(()) => Step::Drop(Reason::TunnelPathMtu),
            None => Step::Next,
        });
    }
    if frame.meta.part != Part::Whole {
        fragments::take(frame, cx)?;
    }
    let mut carried = carried(frame).map_err(Step::Drop)?.ok_or(Step::Next)?;
    if let Some(header) = frame.bytes().get(carried.span()).and_then(Header::of) {
        let spi = header.spi();
        carried.number = Some(header.sequence());
        if let Some(step) = handoff::to_sa(frame, spi, cx) {
            return Err(step);
        }
        carried.sa = cx.shard.sas.place_of_inbound(spi, destination);
    }
    Ok(carried)
}

/// Finds the ESP in a packet; `None` in one of IKE.
#[inline(always)]
fn carried(frame: &Frame) -> Result<Option<Carried>, Reason> {
    let (start, end) = (frame.meta.transport, frame.meta.end);
    if frame.meta.protocol == Protocol::ESP.0 {
        return Ok(Some(Carried { udp: Udp::No, start, end, number: None, sa: None }));
    }
    let datagram = frame.bytes().get(usize::from(start)..usize::from(end)).unwrap_or_default();
    // The checksum is zero or may be (RFC 3948, section 2.1): the integrity check decides.
    let length = udp::Header::of(datagram).map_or(0, udp::Header::length);
    let (start, end) = (start + udp::HEADER_LEN as u16, start.saturating_add(length));
    match frame.bytes().get(usize::from(start)..usize::from(end)) {
        Some(payload) if *payload == KEEPALIVE => Err(Reason::NatKeepalive),
        Some(payload) if payload.first_chunk().is_some_and(|spi| *spi != IKE) => {
            Ok(Some(Carried { udp: Udp::Yes, start, end, number: None, sa: None }))
        }
        _ => Ok(None),
    }
}

/// The ESP in a packet for an end of a tunnel; `None` where there is none, as in one of IKE.
pub(crate) fn esp_of(frame: &Frame) -> Option<&[u8]> {
    let is_esp = match Protocol(frame.meta.protocol) {
        Protocol::ESP => true,
        Protocol::UDP => frame.meta.dport == NAT_PORT,
        _ => false,
    };
    if !is_esp || frame.meta.part == Part::Later {
        return None;
    }
    frame.bytes().get(carried(frame).ok()??.span())
}

/// True for a packet of ESP for an end of a tunnel, whole or a fragment.
pub fn is_for_tunnel(frame: &Frame, tables: &Tables) -> bool {
    let is_esp = frame.meta.protocol == Protocol::ESP.0 || esp_of(frame).is_some();
    is_esp && frame.meta.tunnel & tunnel::IN == 0 && tables.tunnels.is_local(header::addresses(frame).1)
}

/// Contents of an outer packet that has been opened.
struct Opened {
    /// Interface of the tunnel.
    interface: PortId,
    /// Its bytes within the frame; padding for traffic flow confidentiality may be behind an inner packet.
    start: usize,
    end: usize,
    contents: Contents,
    /// DS field of the outer packet.
    ds_field: u8,
    /// Congestion notification across the tunnel.
    ecn: EcnUse,
    /// Place of a security association that has selectors.
    selective: Option<u32>,
}

/// Contents of ESP.
#[derive(Clone, Copy)]
enum Contents {
    /// A packet of that IP version.
    Packet(Family),
    /// Payload behind the headers of a packet in transport mode: its protocol, and the tunnel's number.
    Payload(Protocol, u16),
}

/// Verifies and decrypts a packet for an end of a tunnel, and lets what is in it come in.
fn open<T: Tally>(frame: &mut Frame, carried: &Carried, cx: &mut Cx<'_, T>) -> Step {
    let sealed = match find(frame, carried, cx) {
        Ok(sealed) => sealed,
        Err(reason) => return refuse(carried, reason, cx),
    };
    let mut outcome = (Err(Forged), Ok(()));
    if let (Some(sa), Some(packet)) = (cx.shard.sas.inbound_at(sealed.place), sealed.packet(frame)) {
        outcome.0 = sa.transform.open(packet);
        if outcome.0.is_ok() {
            outcome.1 = sa.spend(sealed.text_len.into(), frame.meta.received);
        }
    }
    match finish(frame, &sealed, outcome.0, outcome.1, cx).and_then(|opened| enter(frame, opened, cx)) {
        Ok(()) => Step::Next,
        Err(reason) => refuse(carried, reason, cx),
    }
}

/// Counts a packet that does not come in.
fn refuse<T: Tally>(carried: &Carried, reason: Reason, cx: &mut Cx<'_, T>) -> Step {
    if let Some(sa) = carried.sa.and_then(|sa| cx.shard.sas.inbound_at(sa)) {
        sa.note(reason);
    }
    Step::Drop(reason)
}

/// A packet that may be opened.
struct Sealed {
    /// Place of its security association.
    place: u32,
    udp: Udp,
    /// Its ESP within the frame.
    start: u16,
    end: u16,
    /// Bytes of its text.
    text_len: u16,
    /// Its whole number.
    number: u64,
    esn: Esn,
}

impl Sealed {
    /// The packet as the library takes it.
    fn packet<'f>(&self, frame: &'f mut Frame) -> Option<Packet<'f>> {
        let bytes = frame.bytes_mut().get_mut(usize::from(self.start) - SPARE..usize::from(self.end))?;
        Some(Packet { bytes, number: self.number, esn: self.esn })
    }
}

/// Judges a packet by all that is known before its integrity check.
fn find<T: Tally>(frame: &Frame, carried: &Carried, cx: &mut Cx<'_, T>) -> Result<Sealed, Reason> {
    // Destination among the tunnels' ends, 8; encapsulation, 5; index, 3; its hash and entry, 6; lengths, 8; window, 12; lifetime, 8; trailer and
    // padding, 10; the inner packet's bounds, 6.
    cx.tally.instructions(66);
    cx.tally.execute(Op::Branch, 20);
    let Carried { udp, start, end, .. } = *carried;
    let low = carried.number.ok_or(Reason::EspLength)?;
    let place = carried.sa.ok_or(Reason::SpiUnknown)?;
    let sa = cx.shard.sas.inbound_at(place).ok_or(Reason::SpiUnknown)?;
    cx.tally.hash(8);
    cx.tally.read(Region::CipherKey, sa.spi as usize % 64 * SA_BYTES, 64);
    let tunnel = cx.tables.tunnels.list.get(usize::from(sa.tunnel)).ok_or(Reason::SpiUnknown)?;
    // A peer of IKE may send either way (RFC 7296, section 2.23).
    if udp != sa.udp && tunnel.keys == KeySource::Policy {
        return Err(Reason::TunnelEncapsulation);
    }
    let suite = sa.suite;
    let around = HEADER_LEN as u16 + u16::from(suite.iv) + u16::from(suite.icv);
    let text_len = (end - start).saturating_sub(around);
    if text_len == 0 || !suite.is_whole(text_len.into()) {
        return Err(Reason::EspLength);
    }
    sa.check(frame.meta.received).map_err(|Expired| Reason::SaExpired)?;
    let esn = sa.esn;
    let Place::Fresh(number) = sa.window.place(low, esn) else { return Err(Reason::Replayed) };
    cipher::tell(suite, sa.spi, text_len.into(), start.into(), cx.tally);
    if usize::from(end) > frame.len() {
        return Err(Reason::EspLength);
    }
    Ok(Sealed { place, udp, start, end, text_len, number, esn })
}

/// Takes a packet that has been opened into account, and finds the inner packet in it. `spent`: its lifetime has been asked for it.
fn finish<T: Tally>(
    frame: &Frame,
    sealed: &Sealed,
    opened: Result<(), Forged>,
    spent: Result<(), Expired>,
    cx: &mut Cx<'_, T>,
) -> Result<Opened, Reason> {
    opened.map_err(|Forged| Reason::IcvWrong)?;
    let Sealed { number, .. } = *sealed;
    let (start, text_len) = (usize::from(sealed.start), usize::from(sealed.text_len));
    let source = Peer {
        address: header::addresses(frame).0,
        port: if sealed.udp == Udp::Yes { frame.meta.sport } else { 0 },
    };
    let now = frame.meta.received;
    let sa = cx.shard.sas.inbound_at(sealed.place).ok_or(Reason::SpiUnknown)?;
    sa.accept(number);
    let suite = sa.suite;
    let selective = (!sa.selectors.is_empty()).then_some(sealed.place);
    let (is_latest, of, news, spi, udp) = (sa.is_latest(number), sa.tunnel, sa.news(now), sa.spi, sa.udp);
    let tunnel = cx.tables.tunnels.list.get(usize::from(of)).ok_or(Reason::SpiUnknown)?;
    cx.shard.sas.note_bound(news);
    // What is late, or was delayed by somebody, does not tell where the peer is (RFC 7296, section 2.23).
    let may_move = tunnel.mode == Mode::Tunnel || tunnel.remote == Some(source.address);
    let is_followed = is_latest && may_move && source.takes(udp) && tunnel.follows(udp);
    if is_followed && cx.shard.sas.is_elsewhere(of, source) && is_end(source, cx.tables) {
        cx.shard.sas.follow(of, source, now);
    }
    spent.map_err(|Expired| Reason::SaExpired)?;
    cx.tally.write(Region::CipherKey, spi as usize % 64 * SA_BYTES, 16);
    let text = start + HEADER_LEN + usize::from(suite.iv);
    let inner = frame.bytes().get(text..text + text_len).unwrap_or_default();
    let trailer = untrail(inner).map_err(|_| Reason::EspTrailer)?;
    let contents = match (tunnel.mode, trailer.next) {
        // RFC 4303, section 2.6.
        (_, Protocol::NO_NEXT) => return Err(Reason::TunnelDummy),
        (Mode::Transport, next) => Contents::Payload(next, of),
        (Mode::Tunnel, Protocol::IPV4) => Contents::Packet(Family::V4),
        (Mode::Tunnel, Protocol::IPV6) => Contents::Packet(Family::V6),
        (Mode::Tunnel, _) => return Err(Reason::EspTrailer),
    };
    let (interface, ecn, ds_field) = (tunnel.interface, tunnel.ecn, header::ds_field(frame));
    Ok(Opened { interface, start: text, end: text + trailer.before, contents, ds_field, ecn, selective })
}

/// True for an end that packets can be sent to.
#[cold]
fn is_end(peer: Peer, tables: &Tables) -> bool {
    !tables.is_own(peer.address) && !is_link_local(peer.address)
}

/// Lets the inner packet come in by the interface of its tunnel.
fn enter<T: Tally>(frame: &mut Frame, opened: Opened, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
    // The outer headers and the padding off, a link-layer header in front, congestion, 24. The frame's start is another one.
    cx.tally.instructions(24);
    cx.tally.execute(Op::Branch, 6);
    cx.tally.write(Region::Frame, 0, 32);
    cx.tally.write(Region::Meta, 0, 32);
    let Opened { interface, start, end, contents, ds_field, ecn, selective } = opened;
    frame.truncate(end);
    match contents {
        Contents::Packet(_) => frame.pull_front(start),
        Contents::Payload(protocol, _) => transport::join(frame, start, protocol, cx.tally)?,
    }
    let link = link_kind::received(frame.bytes()).ok_or(Reason::EspTrailer)?;
    let header = frame.push_front(link.len()).ok_or(Reason::SlotTooSmall)?;
    header.copy_from_slice(&link);
    parse::inner(frame, interface, cx.tables)?;
    match contents {
        Contents::Packet(family) if frame.meta.family != family => return Err(Reason::EspTrailer),
        Contents::Packet(_) => {}
        Contents::Payload(_, tunnel) => transport::check(frame, tunnel, cx)?,
    }
    // What is behind the inner packet is padding against traffic analysis (RFC 4303, section 2.7).
    frame.truncate(usize::from(frame.meta.end));
    frame.meta.tunnel = tunnel::IN;
    if frame.meta.protocol == Protocol::ESP.0 && cx.tables.tunnels.is_local(header::addresses(frame).1) {
        return Err(Reason::TunnelNested);
    }
    if let Some(place) = selective {
        // RFC 4301, section 5.2, step 4.
        let sa = cx.shard.sas.inbound_at(place).ok_or(Reason::SpiUnknown)?;
        if !selector::admits(&sa.selectors, frame, Direction::In, cx.tables.mode, cx.tally) {
            return Err(Reason::TunnelSelector);
        }
    }
    match contents {
        Contents::Packet(_) => congestion(frame, ds_field, ecn),
        // Its header is the one that was marked.
        Contents::Payload(..) => Ok(()),
    }
}

/// Carries a mark of congestion from the outer header to the inner one (RFC 6040). A sender that knows no marks is told by a loss.
fn congestion(frame: &mut Frame, outer: u8, ecn: EcnUse) -> Result<(), Reason> {
    let inner = frame.meta.ds_field;
    let marked = esp::ecn::inner(inner, outer, ecn).ok_or(Reason::TunnelCongestion)?;
    if marked == inner {
        return Ok(());
    }
    frame.meta.ds_field = marked;
    let (network, family) = (usize::from(frame.meta.network), frame.meta.family);
    let packet = frame.bytes_mut().get_mut(network..).unwrap_or_default();
    if family == Family::V4 {
        if let Some(mut header) = ipv4::HeaderMut::of(packet) {
            header.set_congestion(marked);
        }
    } else if let Some(mut header) = ipv6::HeaderMut::of(packet) {
        header.set_congestion(marked);
    }
    Ok(())
}
