//! `encap`: does it leave by a tunnel?
//!
//! Puts a packet that leaves by a tunnel into ESP (RFC 4303, tunnel mode), the outer header in front, and sends it on by the interface that
//! leads to the peer. The packet has been translated, and class and flow stay its own. A packet that is too large for the tunnel, and may be
//! fragmented, is fragmented before it is encrypted. Answers are encrypted as packets are.
//!
//! Sequence numbers go in the order of frames. So `run` seals up to the first packet that may take numbers as it leaves (one to be
//! answered or fragmented, or with another beside it), and leaves those behind it for then.

use esp::format::{self, DontFragment, Outer};
use esp::{Packet, SPARE};
use policy::model::{DfBit, FragmentWhen};
use tally::{Op, Region, Tally};
use wire::checksum::Sum;
use wire::esp::{HEADER_LEN, HeaderMut, NAT_PORT, Udp};
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Family, Frame, Part, PortId, ipv4, ipv6, udp};

use super::queue::ANSWERED;
use super::{About, Cx, Packets, Stage, Step, cipher, fragment, header, link, selector, take, underlay};
use crate::flag;
use crate::hop::Hop;
use crate::sa::{Expired, Peer, SA_BYTES, UsedUp, Way};
use crate::tables::{Address, Tables, Tunnel};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encap;

impl Stage for Encap {
    const ABOUT: About = About {
        name: "encap",
        asks: "Does it leave by a tunnel?",
        reads: Fields::SEEN
            .and(Fields::RECEIVED)
            .and(Fields::EGRESS)
            .and(Fields::HOP)
            .and(Fields::PARTS)
            .and(Fields::TUNNEL),
        writes: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::EGRESS)
            .and(Fields::HOP)
            .and(Fields::FLAGS)
            .and(Fields::PARTS)
            .and(Fields::TUNNEL),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.tunnels.is_empty() { Packets::None } else { Packets::Every }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        match frame.meta.fate {
            0 => frame.meta.tunnel & tunnel::OUT != 0,
            fate => frame.meta.tunnel & tunnel::ANSWER_OUT != 0 && fate >> 8 == ANSWERED,
        }
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Which packet of the two leaves by a tunnel, and by which, 6.
        cx.tally.instructions(6);
        if frame.meta.fate == 0 && is_fragmented_before(frame, cx.tables) {
            return parts(frame, cx);
        }
        match seal(frame, cx) {
            Ok(()) => Step::Next,
            // An answer does not wait, and is not answered.
            Err(_) if frame.meta.fate != 0 => match Verdict::of_fate(frame.meta.fate) {
                Some(Verdict::Answered(reason)) => Step::Drop(reason),
                _ => Step::Next,
            },
            Err(reason) => Step::Drop(reason),
        }
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        for frame in frames {
            let is_answered = frame.meta.fate >> 8 == ANSWERED;
            let has_parts = frame.meta.parts > 0 || frame.meta.flags & flag::CUT != 0;
            if is_answered || Encap::takes(frame) && has_parts {
                return;
            }
            take::<Encap, T>(frame, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        // What is told, 117; a packet moved within its slot, 11; the sum of UDP across IPv6, 44. Fragments are made by the program of
        // `fragment`.
        172 + cipher::program(tables) + link::program(tables)
    }
}

/// True for a packet that is fragmented before it is encrypted.
fn is_fragmented_before(frame: &Frame, tables: &Tables) -> bool {
    let is_before = |tunnel: &Tunnel| tunnel.fragment == FragmentWhen::Before;
    frame.meta.flags & flag::CUT != 0 && tables.tunnel_at(frame.meta.egress).is_some_and(is_before)
}

/// Seals a packet that is queued behind another, where it leaves by a tunnel. False if it cannot leave.
pub(crate) fn part<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> bool {
    if frame.meta.tunnel & tunnel::OUT == 0 {
        return true;
    }
    seal(frame, cx).is_ok()
}

/// Fragments a packet for the tunnel, and seals each fragment.
#[cold]
fn parts<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let before = cx.shard.parts.len();
    match fragment::Fragment::step(frame, cx) {
        Step::Next => {}
        other => return other,
    }
    if let Err(reason) = seal(frame, cx) {
        return Step::Drop(reason);
    }
    if frame.meta.flags & flag::CUT != 0 {
        // Fragments of fragments are not made.
        return Step::Drop(Reason::PacketTooBig);
    }
    for place in before..cx.shard.parts.len() {
        // A frame is two words: what is moved is not the packet.
        let Some(mut part) = cx.shard.parts.remove(place) else { break };
        let sealed = seal(&mut part, cx);
        cx.shard.parts.insert(place, part);
        if let Err(reason) = sealed {
            return Step::Drop(reason);
        }
    }
    Step::Next
}

/// Encrypts the frame's packet, and puts the outer header and that of the link in front.
fn seal<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
    // Tunnel and security association, 6; lengths and padding, 14; number, 3; lifetime, 8; the outer header and its sum, 40.
    cx.tally.instructions(71);
    cx.tally.execute(Op::Branch, 14);
    let tables = cx.tables;
    let egress = frame.meta.egress;
    let hop = hop(egress, frame, cx)?;
    let Hop { interface, mtu: way_mtu, .. } = *cx.shard.hops.get(hop).ok_or(Reason::NeighbourUnknown)?;
    let number = tables.tunnel_of(egress).ok_or(Reason::RouteMissing)?;
    let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(Reason::RouteMissing)?;
    let place = selector::carrier(frame, number, cx)?;
    let sa = cx.shard.sas.outbound_mut(number, place).ok_or(Reason::RouteMissing)?;
    let suite = sa.transform.suite();
    let (esn, family, now) = (sa.esn, frame.meta.family, frame.meta.received);
    let ds_field = esp::ecn::outer(header::ds_field(frame), tunnel.dscp, tunnel.ecn);
    let mtu = cx.shard.hops.get(frame.meta.hop).map_or(0, |own| own.mtu);
    let inner = usize::from(frame.meta.end.saturating_sub(frame.meta.network));
    let layout = format::layout(inner, suite, tunnel.tfc, mtu).ok_or(Reason::SlotTooSmall)?;
    let head = Head { local: tunnel.local, peer: sa.peer, udp: tunnel.udp };
    let esp_at = ethernet::HEADER_LEN + head.len();
    let text_at = esp_at + HEADER_LEN + usize::from(suite.iv);
    // A packet that is refused stays as it is.
    let spent = sa.spend(layout.text.into(), now);
    let news = sa.news(now);
    cx.shard.sas.note_bound(news);
    spent.map_err(|Expired| Reason::SaExpired)?;
    let sa = cx.shard.sas.outbounds(number).get(place).ok_or(Reason::RouteMissing)?;
    let sequence = sa.number().map_err(|UsedUp| Reason::EspSequence)?;
    frame.truncate(usize::from(frame.meta.end));
    frame.pull_front(usize::from(frame.meta.network));
    make_room(frame, text_at, usize::from(layout.text) - inner + usize::from(suite.icv))?;
    cipher::tell(suite, sa.spi, layout.text.into(), esp_at, cx.tally);
    cx.tally.atomic(Region::CipherKey, sa.spi as usize % 64 * SA_BYTES, 8);
    cx.tally.write(Region::Frame, 0, text_at as u32);
    let bytes = frame.bytes_mut();
    if let Some(text) = bytes.get_mut(text_at..text_at + usize::from(layout.text)) {
        let next = if family == Family::V4 { Protocol::IPV4 } else { Protocol::IPV6 };
        format::trailer(text, &layout, next);
    }
    if let Some(mut header) = bytes.get_mut(esp_at..).and_then(HeaderMut::of) {
        header.set_spi(sa.spi);
        header.set_sequence(sequence as u32);
    }
    if let Some(bytes) = bytes.get_mut(esp_at - SPARE..) {
        sa.transform.seal(Packet { bytes, number: sequence, esn });
    }
    let df = match tunnel.df {
        DfBit::Copy if frame.meta.flags & flag::DONT_FRAGMENT == 0 => DontFragment::Clear,
        DfBit::Copy | DfBit::Set => DontFragment::Set,
        DfBit::Clear => DontFragment::Clear,
    };
    let df = if tunnel.fragment == FragmentWhen::After { DontFragment::Clear } else { df };
    let fields = Varying {
        ds_field,
        df,
        // Unique for as long as one may be under way, where routers may fragment it (RFC 6864).
        id: if df == DontFragment::Clear { (sequence as u32 ^ sa.spi) as u16 } else { 0 },
        payload_len: layout.total,
    };
    head.write(frame.bytes_mut(), &fields);
    if tunnel.udp == Udp::Yes && tunnel.local.v6 {
        // Across IPv6 there must be a checksum (RFC 8200, section 8.1): an add for every four bytes, and a fold.
        cx.tally.instructions(u32::from(layout.total) / 4 + 24);
        cx.tally.read(Region::Frame, esp_at, layout.total.into());
    }
    head.describe(frame, ds_field);
    if frame.meta.end - frame.meta.network > way_mtu {
        // The way leads by a smaller link than it did when the tunnel's MTU was made known.
        if tunnel.local.v6 || df == DontFragment::Set {
            return Err(Reason::PacketTooBig);
        }
        frame.meta.flags |= flag::CUT;
    }
    (frame.meta.egress, frame.meta.hop) = (interface, hop);
    if link::replace(frame, cx) { Ok(()) } else { Err(Reason::NeighbourUnknown) }
}

/// Hop of the outer packet. The way has been looked up before a packet was changed, and is the same now; that of an answer is looked up
/// for the first time.
fn hop<T: Tally>(egress: PortId, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<u32, Reason> {
    let hop = match underlay::way(egress, cx) {
        Ok(Way { hop, .. }) => hop,
        Err(Step::Drop(reason)) => return Err(reason),
        Err(_) => return Err(Reason::RouteMissing),
    };
    if cx.shard.hops.get(hop).is_some_and(|hop| hop.is_known()) {
        return Ok(hop);
    }
    // Nor does an answer wait; but the next one shall find its way.
    if let Some(wanted) = underlay::awaited(egress, cx) {
        cx.shard.hops.waiting.ask(wanted, frame.meta.received);
    }
    Err(Reason::NeighbourUnknown)
}

/// Makes the frame longer at both ends. What is too long behind is moved to the front: the room of a slot is the same wherever its packet
/// lies.
fn make_room(frame: &mut Frame, front: usize, behind: usize) -> Result<(), Reason> {
    let missing = behind.saturating_sub(frame.tailroom());
    if frame.headroom() < front + missing {
        return Err(Reason::SlotTooSmall);
    }
    if missing > 0 {
        let len = frame.len();
        frame.push_front(missing).ok_or(Reason::SlotTooSmall)?;
        frame.bytes_mut().copy_within(missing.., 0);
        frame.truncate(len);
    }
    frame.push_back(behind).ok_or(Reason::SlotTooSmall)?;
    frame.push_front(front).ok_or(Reason::SlotTooSmall)?;
    Ok(())
}

/// Outer header of a tunnel's packets: IP, and UDP where the tunnel has it.
struct Head {
    local: Address,
    peer: Peer,
    udp: Udp,
}

/// Fields of an outer header that differ between the packets of a tunnel.
struct Varying {
    ds_field: u8,
    df: DontFragment,
    id: u16,
    /// Bytes of ESP.
    payload_len: u16,
}

impl Head {
    /// Bytes of the IP header.
    fn ip_len(&self) -> usize {
        if self.local.v6 { ipv6::HEADER_LEN } else { ipv4::MIN_HEADER_LEN }
    }

    /// Bytes of all headers before that of ESP.
    fn len(&self) -> usize {
        match self.udp {
            Udp::No => self.ip_len(),
            Udp::Yes => self.ip_len() + udp::HEADER_LEN,
        }
    }

    /// Writes the header in front of a packet of ESP, and the type of what follows into the header of the link in front of that.
    fn write(&self, frame: &mut [u8], fields: &Varying) {
        let Varying { ds_field, df, id, payload_len } = *fields;
        let (protocol, payload_len) = match self.udp {
            Udp::No => (Protocol::ESP, payload_len),
            Udp::Yes => (Protocol::UDP, payload_len + udp::HEADER_LEN as u16),
        };
        let Some((link, packet)) = frame.split_first_chunk_mut::<{ ethernet::HEADER_LEN }>() else { return };
        let (local, remote) = (self.local.bits, self.peer.address.bits);
        let EtherType(kind) = if self.local.v6 {
            if let Some((header, payload)) = packet.split_first_chunk_mut() {
                let (local, remote) = (local.into(), remote.into());
                format::outer_v6(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
                self.write_udp(payload, || Sum::pseudo_v6(local, remote, protocol, payload_len.into()));
            }
            EtherType::IPV6
        } else {
            if let Some((header, payload)) = packet.split_first_chunk_mut() {
                let (local, remote) = ((local as u32).into(), (remote as u32).into());
                format::outer_v4(header, &Outer { local, remote, ds_field, df, id, protocol, payload_len });
                self.write_udp(payload, || Sum::ZERO);
            }
            EtherType::IPV4
        };
        link[12..].copy_from_slice(&kind.to_be_bytes());
    }

    /// Writes the UDP header, if there is one, at the start of what it covers.
    fn write_udp(&self, datagram: &mut [u8], pseudo: impl FnOnce() -> Sum) {
        let length = datagram.len() as u16;
        let Some(mut header) = udp::HeaderMut::of(datagram).filter(|_| self.udp == Udp::Yes) else { return };
        header.set_sport(NAT_PORT);
        header.set_dport(self.peer.port);
        header.set_length(length);
        header.set_checksum(0);
        if self.local.v6 {
            let checksum = pseudo().and(datagram).udp_checksum();
            if let Some(mut header) = udp::HeaderMut::of(datagram) {
                header.set_checksum(checksum);
            }
        }
    }

    /// Describes the outer packet as `parse` would. Flow, class and colour stay those of the inner packet.
    fn describe(&self, frame: &mut Frame, ds_field: u8) {
        let end = frame.len() as u16;
        let meta = &mut frame.meta;
        meta.network = ethernet::HEADER_LEN as u16;
        meta.transport = (ethernet::HEADER_LEN + self.ip_len()) as u16;
        meta.end = end;
        meta.family = self.local.family();
        (meta.protocol, meta.sport, meta.dport) = match self.udp {
            Udp::No => (Protocol::ESP.0, 0, 0),
            Udp::Yes => (Protocol::UDP.0, NAT_PORT, self.peer.port),
        };
        meta.part = Part::Whole;
        (meta.tcp_flags, meta.ds_field) = (0, ds_field);
        meta.flags &= !flag::CUT;
        meta.tunnel = meta.tunnel & tunnel::IN | tunnel::OUTER;
    }
}
