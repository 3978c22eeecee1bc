//! `decap`: does it come through a tunnel, and is it genuine?
//!
//! Takes the ESP (RFC 4303) of packets for the gateway's end of a tunnel off, in UDP (RFC 3948) or not, and lets the inner packet go on
//! as if it had come in by the tunnel's interface. Where several workers share the work, the security association's owner does so.
//! In transport mode the packet that goes on has the header that was in front of ESP.
//! Nothing about a packet is believed before its integrity check value has been verified: an unknown index, a number that was received
//! before and a forged packet change nothing. ESP for other addresses goes on as it is. No answer is ever given to an outer packet.

use std::ops::Range;

use tally::{Op, Tally};
use wire::esp::{Header, NAT_PORT, Udp};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Frame, Part, udp};

use super::{About, Cx, Packets, Stage, Step, cipher, handoff, header, take};
use crate::flag;
use crate::tables::{Address, Tables, VrfId};
use crate::tunnel;
use crate::verdict::Reason;

mod fragments;
mod opener;
mod path_mtu;
mod together;
mod transport;

use opener::Opener;
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
        match claim(frame, &mut None, cx) {
            Ok(carried) => open(frame, &carried, cx),
            Err(step) => step,
        }
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        if cx.tally.is_kept() {
            // What is found once for several packets would be told of once.
            frames.iter_mut().for_each(|frame| take::<Decap, T>(frame, cx));
        } else {
            together::run(frames, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        // What is told, 121; congestion, 14; fragments put together, 164; a path MTU learnt, 90. The inner header is read by the
        // program of `parse`.
        389 + cipher::program(tables)
    }
}

/// ESP for a security association of this worker's.
struct Carried {
    udp: Udp,
    /// Its bytes within the frame.
    start: u16,
    end: u16,
    /// Lower half of its number.
    number: u32,
    /// Place of its security association.
    sa: u32,
}

/// Security association that a packet was for, which is this worker's.
#[derive(Clone, Copy)]
struct Met {
    spi: u32,
    destination: Address,
    sa: u32,
}

/// Bytes in the place of an SPI that say that IKE follows (RFC 3948, section 2.2).
const IKE: [u8; 4] = [0; 4];

/// The byte that keeps a NAT open (RFC 3948, section 2.3).
pub(crate) const KEEPALIVE: [u8; 1] = [0xff];

/// Finds the ESP in a packet that is this worker's to open. `met`: the packet before, and then this one.
///
/// # Errors
/// There is none: the packet goes on, or ends here.
#[inline(always)]
fn claim<T: Tally>(frame: &mut Frame, met: &mut Option<Met>, cx: &mut Cx<'_, T>) -> Result<Carried, Step> {
    // What Linux itself sends is no packet from a peer, and peers are in the default VRF.
    if frame.meta.flags & flag::OWN != 0 || cx.tables.vrf_of(frame.meta.ingress) != VrfId::DEFAULT {
        return Err(Step::Next);
    }
    let (_, destination) = header::addresses(frame);
    let before = met.filter(|before| before.destination == destination);
    if before.is_none() && !cx.tables.tunnels.is_local(destination) {
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
    let (udp, span) = span(frame).map_err(Step::Drop)?.ok_or(Step::Next)?;
    // Destination among the tunnels' ends, 8; encapsulation, 5; index, 3; its hash and entry, 6.
    cx.tally.instructions(22);
    cx.tally.execute(Op::Branch, 7);
    let header = frame.bytes().get(range(&span)).and_then(Header::of);
    let (spi, number) =
        header.map(|header| (header.spi(), header.sequence())).ok_or(Step::Drop(Reason::EspLength))?;
    let sa = match before.filter(|before| before.spi == spi) {
        Some(Met { sa, .. }) => sa,
        None => {
            if let Some(step) = handoff::to_sa(frame, spi, cx) {
                return Err(step);
            }
            let found = cx.shard.sas.place_of_inbound(spi, destination);
            let sa = found.ok_or(Step::Drop(Reason::SpiUnknown))?;
            *met = Some(Met { spi, destination, sa });
            sa
        }
    };
    Ok(Carried { udp, start: span.start, end: span.end, number, sa })
}

/// Place of the ESP in a packet, and its encapsulation; `None` in a packet of IKE.
#[inline(always)]
fn span(frame: &Frame) -> Result<Option<(Udp, Range<u16>)>, Reason> {
    let (start, end) = (frame.meta.transport, frame.meta.end);
    if frame.meta.protocol == Protocol::ESP.0 {
        return Ok(Some((Udp::No, start..end)));
    }
    let datagram = frame.bytes().get(range(&(start..end))).unwrap_or_default();
    // The checksum is zero or may be (RFC 3948, section 2.1): the integrity check decides.
    let length = udp::Header::of(datagram).map_or(0, udp::Header::length);
    let span = start + udp::HEADER_LEN as u16..start.saturating_add(length);
    match frame.bytes().get(range(&span)) {
        Some(payload) if *payload == KEEPALIVE => Err(Reason::NatKeepalive),
        Some(payload) if payload.first_chunk().is_some_and(|spi| *spi != IKE) => Ok(Some((Udp::Yes, span))),
        _ => Ok(None),
    }
}

fn range(span: &Range<u16>) -> Range<usize> {
    span.start.into()..span.end.into()
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
    frame.bytes().get(range(&span(frame).ok()??.1))
}

/// True for a packet of ESP for an end of a tunnel, whole or a fragment.
pub fn is_for_tunnel(frame: &Frame, tables: &Tables) -> bool {
    let is_esp = frame.meta.protocol == Protocol::ESP.0 || esp_of(frame).is_some();
    is_esp && frame.meta.tunnel & tunnel::IN == 0 && tables.tunnels.is_local(header::addresses(frame).1)
}

/// Verifies and decrypts a packet for an end of a tunnel, and lets what is in it come in.
fn open<T: Tally>(frame: &mut Frame, carried: &Carried, cx: &mut Cx<'_, T>) -> Step {
    match Opener::of(carried.sa, cx).and_then(|opener| opener.open(frame, carried, cx)) {
        Ok(()) => Step::Next,
        Err(reason) => refuse(carried.sa, reason, frame, cx),
    }
}

/// Counts a packet that does not come in under the security association of that place.
#[cold]
fn refuse<T: Tally>(place: u32, reason: Reason, frame: &Frame, cx: &mut Cx<'_, T>) -> Step {
    if let Some(sa) = cx.shard.sas.inbound_at(place) {
        sa.note(reason);
        // A lifetime in time may have ended since the last packet.
        let news = if reason == Reason::SaExpired { sa.news(frame.meta.received) } else { None };
        cx.shard.sas.note_bound(news);
    }
    Step::Drop(reason)
}
