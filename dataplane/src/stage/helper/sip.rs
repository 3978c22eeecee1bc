//! SIP in datagrams: has media and registered contacts expected, and translates what messages say of addresses.
//!
//! A message that is not understood, in fragments, or longer than its link once it is translated, passes as it is and is counted
//! ([`Counters::helper_unread`](crate::counter::Counters::helper_unread)). One whose media find no port is dropped, and its sender repeats it.

use std::net::{IpAddr, SocketAddr};

use policy::model::Helper;
use tally::{NoTally, Op, Region, Tally};
use wire::header::Protocol;
use wire::{Family, Frame, Nanos, Part, ipv4, udp};

use super::control::Control;
use super::{complete as complete_packet, helper_of};
use crate::flag;
use crate::flow::{Direction, Flow, FlowId};
use crate::helper::expectation::{self, Kind, PATIENCE};
use crate::helper::ftp::LOWEST_PORT;
use crate::helper::sdp::Media;
use crate::helper::sip::{About, Ends, Fault, Kind as MessageKind, Message, Method, is_keepalive};
use crate::helper::stream::Stream;
use crate::helper::{Expectation, ExpectationId};
use crate::hop::leaves;
use crate::nat::{Endpoint, Mapped, MappingId, PoolId};
use crate::opening::Opening;
use crate::shard::NOTHING;
use crate::stage::own::pseudo;
use crate::stage::{Cx, Step, track};
use crate::tables::Address;
use crate::verdict::Reason;

/// Media, and contacts, that one control connection has expected at a time.
const MOST_OF_MASTER: usize = 16;

/// Time within which a registrar answers (RFC 3261, section 17.1.2.2: 32 s), generously.
const ANSWERED: Nanos = Nanos::from_secs(64);

/// Reads and rewrites a message, whose packet has been translated.
///
/// # Errors
/// Step for a message that cannot be carried out.
pub(super) fn apply<T: Tally>(
    frame: &mut Frame,
    (id, direction): (FlowId, Direction),
    flow: &Flow,
    rule: u32,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    if helper_of(flow, cx) != Some(Helper::Sip) || frame.meta.part == Part::Later {
        return Ok(());
    }
    let begin = usize::from(frame.meta.transport) + udp::HEADER_LEN;
    let end = usize::from(frame.meta.end);
    let len = end.saturating_sub(begin);
    // Names of headers and hosts, each byte looked at about thrice, 12; endpoints and changes, 200.
    cx.tally.instructions(200 + 12 * len as u32);
    cx.tally.execute(Op::Branch, 40 + 3 * len as u32);
    cx.tally.read(Region::Frame, begin, len as u32);
    match read(frame, begin..end, &Control::new(id, direction, flow, rule, frame.meta.received), cx) {
        Ok(None) => return Ok(()),
        Ok(Some(new)) if replace(frame, begin, new, cx).is_some() => return Ok(()),
        Err(Fault::Refused) => return Err(Step::Drop(Reason::HelperRefused)),
        Ok(Some(_)) | Err(Fault::Unread) => cx.shard.counters.helper_unread += 1,
    }
    Ok(())
}

/// Gives the flow that a registered contact expects the same helper. The expectation stays, with its mapping.
///
/// # Errors
/// There is no memory for it.
pub(super) fn begin_expected<T: Tally>(
    id: FlowId,
    expected: ExpectationId,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let full = Step::Drop(Reason::FlowTableFull);
    let expectation = *cx.shard.expectations.get(expected).ok_or(full)?;
    if expectation.mapping != NOTHING {
        let mapped = cx.shard.mappings.retain(MappingId(expectation.mapping), cx.tally);
        opening.inward = mapped.map(|mapped| mapped.id);
    }
    cx.shard.flows.set_helped(id, [Stream::NEW; 2], expectation.rule).map_err(|_| full)
}

/// Writes length and checksum of a datagram.
pub(super) fn complete(datagram: &mut [u8], from: Address, to: Address) -> Option<()> {
    let len = datagram.len();
    let mut header = udp::HeaderMut::of(datagram)?;
    header.set_length(u16::try_from(len).ok()?);
    // Its sender may have computed none.
    if header.view().checksum() != 0 {
        header.set_checksum(0);
        let sum = pseudo(from, to, Protocol::UDP, len).and(datagram).udp_checksum();
        udp::HeaderMut::of(datagram)?.set_checksum(sum);
    }
    Some(())
}

/// Carries out a message, and writes what becomes of it into the scratch memory. Returns its length; `None` if nothing changes.
fn read<T: Tally>(
    frame: &Frame,
    place: std::ops::Range<usize>,
    control: &Control,
    cx: &mut Cx<'_, T>,
) -> Result<Option<usize>, Fault> {
    if frame.meta.part != Part::Whole {
        return Err(Fault::Unread);
    }
    let range = usize::from(frame.meta.transport)..place.end;
    let datagram = udp::parse(frame.bytes().get(range).unwrap_or_default()).map_err(|_| Fault::Unread)?;
    let text = datagram.payload();
    if is_keepalive(text) {
        return Ok(None);
    }
    // Its receiver drops what has arrived damaged; options behind the datagram (RFC 9868) are left where they are.
    if text.len() != place.len() || !track::checksum_is_right(frame, cx) {
        return Err(Fault::Unread);
    }
    let message = Message::parse(text)?;
    end_call(&message.about, control, cx);
    let mut signalling = Signalling { control, about: message.about, cx };
    let changes = message.translate(&mut signalling)?;
    if changes.is_empty() {
        return Ok(None);
    }
    message.write(&changes, &mut cx.shard.expectations.scratch).map(Some).ok_or(Fault::Unread)
}

/// Ends what a call expects that is over, or has been refused.
fn end_call<T: Tally>(about: &About, control: &Control, cx: &mut Cx<'_, T>) {
    let is_over = match about.kind {
        MessageKind::Request(method) => matches!(method, Method::Bye | Method::Cancel),
        MessageKind::Response(code, method) => method == Method::Invite && code >= 300,
    };
    if is_over {
        let call = about.call;
        cx.shard.end_expectations_by(control.id, |of| of.kind == Kind::Media && of.call == call);
    }
}

/// A port of the sender's that is expected to be called.
struct Wanted {
    kind: Kind,
    inside: u16,
    outside: u16,
    /// Mapping that the expectation holds from now on; `NOTHING` for none.
    mapping: u32,
    until: Nanos,
}

/// Carries out what a message says.
struct Signalling<'a, 'b, T> {
    control: &'a Control,
    about: About,
    cx: &'a mut Cx<'b, T>,
}

impl<T: Tally> Ends for Signalling<'_, '_, T> {
    fn endpoint(&mut self, named: SocketAddr) -> SocketAddr {
        let control = self.control;
        if named == control.own {
            return control.shown;
        }
        if named == control.addressed {
            return control.really;
        }
        // Another port of either, which has been registered.
        let found = if named.ip() == control.own.ip() && control.hides_sender() {
            self.contact(named).and_then(|id| self.cx.shard.expectations.get(id)).map(outside)
        } else if named.ip() == control.addressed.ip() && control.hides_receiver() {
            let id = self.registered_at(control.own.ip(), named);
            // Another host's is that host's own affair: who is told its inside address tells it the registrar.
            let found = id.and_then(|id| self.cx.shard.expectations.get(id)).map(inside);
            found.filter(|found| found.ip() == control.really.ip())
        } else {
            None
        };
        found.unwrap_or(named)
    }

    fn address(&mut self, named: IpAddr) -> IpAddr {
        let control = self.control;
        match named {
            own if own == control.own.ip() => control.shown.ip(),
            addressed if addressed == control.addressed.ip() => control.really.ip(),
            other => other,
        }
    }

    fn registered(&mut self, named: SocketAddr, lifetime: u32) -> Result<SocketAddr, Fault> {
        let is_own = named.ip() == self.control.own.ip();
        let known = self.endpoint(named);
        if let MessageKind::Response(..) = self.about.kind {
            // The registrar says how long it holds.
            if let Some(id) = self.registered_at(self.control.own.ip(), named) {
                let until = self.control.now + Nanos::from_secs(lifetime.into());
                match lifetime {
                    0 => self.cx.shard.end_expectation(id),
                    _ => self.cx.shard.expectations.hold_until(id, until),
                }
            }
            return Ok(known);
        }
        if !is_own || named.port() < LOWEST_PORT {
            return Ok(known);
        }
        let former = self.contact(named);
        if lifetime == 0 {
            if let Some(former) = former {
                self.cx.shard.end_expectation(former);
            }
            return Ok(known);
        }
        if let Some(of) = former.and_then(|id| self.cx.shard.expectations.get(id)) {
            if of.master == self.control.id && of.until > self.control.now + ANSWERED {
                return Ok(outside(of));
            }
        }
        let (mapping, port) = self.mapping_of(named.port())?;
        if let Some(former) = former {
            self.cx.shard.end_expectation(former);
        }
        let until = self.control.now + ANSWERED;
        self.expect(Wanted { kind: Kind::Signalling, inside: named.port(), outside: port, mapping, until })?;
        Ok(SocketAddr::new(self.control.shown.ip(), port))
    }

    fn media(&mut self, media: Media) -> Result<Media, Fault> {
        let control = self.control;
        if media.address != control.own.ip() {
            return Ok(self.direct(media).unwrap_or(media));
        }
        if media.rtp < LOWEST_PORT || media.rtcp < LOWEST_PORT {
            return Ok(media);
        }
        let until = control.now + PATIENCE;
        let [(rtp_mapping, rtp), (rtcp_mapping, rtcp)] = self.mappings_of(media)?;
        let of = |inside, outside, mapping| Wanted { kind: Kind::Media, inside, outside, mapping, until };
        let expected = self.expect(of(media.rtp, rtp, rtp_mapping));
        if media.rtcp == media.rtp {
            expected?;
        } else if expected.is_ok() {
            self.expect(of(media.rtcp, rtcp, rtcp_mapping))?;
        } else {
            self.release(rtcp_mapping);
            expected?;
        }
        Ok(Media { address: control.shown.ip(), rtp, rtcp })
    }
}

impl<T: Tally> Signalling<'_, '_, T> {
    /// The expectation of a contact of the sender's at the receiver, by its inside endpoint.
    fn contact(&self, named: SocketAddr) -> Option<ExpectationId> {
        let control = self.control;
        let outside = if named == control.own {
            control.shown
        } else {
            let inside = self.endpoint_of(named.port());
            let mapped =
                self.pool().ok().flatten().and_then(|pool| self.cx.shard.mappings.outside_of(pool, inside));
            SocketAddr::new(control.shown.ip(), mapped.map_or(named.port(), |mapped| mapped.port))
        };
        let id = self.registered_at(control.really.ip(), outside)?;
        self.cx.shard.expectations.get(id).filter(|of| inside(of) == named).map(|_| id)
    }

    /// The expectation of a contact at a registrar, by its outside endpoint.
    fn registered_at(&self, registrar: IpAddr, contact: SocketAddr) -> Option<ExpectationId> {
        let control = self.control;
        // Calls of the registrar arrive in its own conntrack zone.
        let ct_zone = if registrar == control.own.ip() { control.back_ct_zone } else { control.ct_zone };
        let to = (contact.ip(), contact.port());
        let key = expectation::key_to(Protocol::UDP, registrar, to, ct_zone)?;
        let hash = self.cx.shard.flows.hash(&key, &mut NoTally);
        let id = self.cx.shard.expectations.find(&key, hash)?;
        self.cx.shard.expectations.get(id).filter(|of| of.kind == Kind::Signalling).map(|_| id)
    }

    /// Inside ends of a medium of another host behind the same translation: between two of them it needs no gateway (netfilter does the
    /// same).
    fn direct(&self, media: Media) -> Option<Media> {
        let is_outside = self.control.hides_receiver() && self.cx.tables.nat.is_outside(media.address.into());
        if !is_outside {
            return None;
        }
        let mappings = &self.cx.shard.mappings;
        let find = |port| {
            let outside = Endpoint::new(media.address, port, Protocol::UDP.0);
            let (mapping, inside) = mappings.inside_of(&outside, &mut NoTally)?;
            (!mappings.is_service(mapping) && inside.family == outside.family).then_some(inside)
        };
        let rtp = find(media.rtp)?;
        let rtcp = find(media.rtcp).filter(|rtcp| rtcp.address == rtp.address);
        let rtcp = rtcp.map_or(rtp.port.saturating_add(1), |rtcp| rtcp.port);
        Some(Media { address: rtp.ip(), rtp: rtp.port, rtcp })
    }

    /// The mapping of a port of the sender's, to be held, and its outside port. Ports stay where the translation has no pool.
    fn mapping_of(&mut self, port: u16) -> Result<(u32, u16), Fault> {
        if !self.control.hides_sender() {
            return Ok((NOTHING, port));
        }
        if port == self.control.own.port() {
            let own = self.own_mapping();
            let held = own.and_then(|own| self.cx.shard.mappings.retain(own, self.cx.tally));
            return Ok((held.map_or(NOTHING, |held| held.id.0), self.control.shown.port()));
        }
        let Some(pool) = self.pool()? else { return Ok((NOTHING, port)) };
        let mapped = self.cx.shard.mappings.map(pool, self.endpoint_of(port), self.cx.tally);
        self.settle(mapped.map(|mapped| [mapped]).map_err(drop)).map(|[mapped]| mapped)
    }

    /// The mappings of a medium's two ports, to be held, and their outside ports.
    fn mappings_of(&mut self, media: Media) -> Result<[(u32, u16); 2], Fault> {
        let Media { rtp, rtcp, .. } = media;
        if rtp == rtcp {
            let one = self.mapping_of(rtp)?;
            return Ok([one, (NOTHING, one.1)]);
        }
        let pool = if self.control.hides_sender() { self.pool()? } else { None };
        let Some(pool) = pool else { return Ok([(NOTHING, rtp), (NOTHING, rtcp)]) };
        if rtcp == rtp.wrapping_add(1) {
            let pair = self.cx.shard.mappings.map_pair(pool, self.endpoint_of(rtp), self.cx.tally);
            return self.settle(pair.map_err(drop));
        }
        let first = self.mapping_of(rtp)?;
        match self.mapping_of(rtcp) {
            Ok(second) => Ok([first, second]),
            Err(fault) => {
                self.release(first.0);
                Err(fault)
            }
        }
    }

    /// Notes mappings that have been made, if they are of the address that the sender is known by.
    fn settle<const N: usize>(&mut self, mapped: Result<[Mapped; N], ()>) -> Result<[(u32, u16); N], Fault> {
        self.cx.shard.note_blocks();
        let mapped = mapped.map_err(|()| Fault::Refused)?;
        let shown = self.control.shown.ip();
        for of in mapped {
            self.cx.shard.log.note_mapped(&self.cx.shard.mappings, of.id);
        }
        if mapped.iter().any(|of| of.outside.ip() != shown) {
            mapped.iter().for_each(|of| self.release(of.id.0));
            return Err(Fault::Refused);
        }
        Ok(mapped.map(|of| (of.id.0, of.outside.port)))
    }

    fn endpoint_of(&self, port: u16) -> Endpoint {
        Endpoint::new(self.control.own.ip(), port, Protocol::UDP.0)
    }

    /// Pool that the sender's mapping is from.
    fn pool(&self) -> Result<Option<PoolId>, Fault> {
        let Some(mapping) = self.own_mapping() else { return Ok(None) };
        self.cx.shard.mappings.pool_of(mapping).map(Some).ok_or(Fault::Refused)
    }

    /// Mapping of the sender's own port.
    fn own_mapping(&self) -> Option<MappingId> {
        let cold = self.cx.shard.flows.cold(self.control.id)?;
        let mapping = match self.control.direction {
            Direction::Original => cold.mapping,
            Direction::Reply => cold.inward,
        };
        (mapping != NOTHING).then_some(MappingId(mapping))
    }

    fn release(&mut self, mapping: u32) {
        if mapping != NOTHING {
            self.cx.shard.release_mapping(MappingId(mapping));
        }
    }

    /// Has the receiver of the message expected to call a port of the sender's.
    fn expect(&mut self, wanted: Wanted) -> Result<(), Fault> {
        let made = self.try_expect(&wanted);
        if made.is_none() {
            self.release(wanted.mapping);
        }
        made.ok_or(Fault::Refused)
    }

    fn try_expect(&mut self, wanted: &Wanted) -> Option<()> {
        // Key, bucket and comparison, 60; the place in the list of the control connection's, and the expectation, 120.
        self.cx.tally.instructions(180);
        self.cx.tally.execute(Op::Branch, 40);
        self.cx.tally.write(Region::Timer, 0, 96);
        let control = self.control;
        let to = (control.shown.ip(), wanted.outside);
        let key = expectation::key_to(Protocol::UDP, control.really.ip(), to, control.ct_zone)?;
        let hash = self.cx.shard.flows.hash(&key, self.cx.tally);
        let own = SocketAddr::new(control.own.ip(), wanted.inside);
        if let Some(same) = self.cx.shard.expectations.find(&key, hash) {
            if self.cx.shard.expectations.get(same).map(inside) != Some(own) {
                return None;
            }
            self.cx.shard.end_expectation(same);
        }
        self.make_room(wanted.kind);
        self.cx.shard.add_expectation(Expectation {
            kind: wanted.kind,
            call: if wanted.kind == Kind::Media { self.about.call } else { 0 },
            key,
            hash,
            master: control.id,
            rule: control.rule,
            destination: own.ip().into(),
            port: wanted.inside,
            source: control.addressed.ip().into(),
            mapping: wanted.mapping,
            until: wanted.until,
        })?;
        Some(())
    }

    /// Ends the oldest of a kind, if the control connection has as many as it may.
    fn make_room(&mut self, kind: Kind) {
        let of_master = self.cx.shard.expectations.of_master(self.control.id);
        let oldest = of_master.filter(|(_, of)| of.kind == kind).map(|(id, _)| id).nth(MOST_OF_MASTER - 1);
        if let Some(oldest) = oldest {
            self.cx.shard.end_expectation(oldest);
        }
    }
}

/// Endpoint that an expected packet is for, as its sender knows it.
fn outside(expectation: &Expectation) -> SocketAddr {
    SocketAddr::new(expectation.key.destination(), expectation.key.dport())
}

/// Endpoint that an expected packet is for, as it knows itself.
fn inside(expectation: &Expectation) -> SocketAddr {
    SocketAddr::new(expectation.destination.to_ip(), expectation.port)
}

/// Puts the new message, `len` bytes of the scratch memory, in the place of the datagram's. `None`, and nothing done, if its slot or its link
/// has no room for it.
fn replace<T: Tally>(frame: &mut Frame, begin: usize, len: usize, cx: &mut Cx<'_, T>) -> Option<()> {
    let (network, end) = (usize::from(frame.meta.network), usize::from(frame.meta.end));
    let hop = cx.shard.hops.get(frame.meta.hop).filter(|_| leaves(frame.meta.hop));
    let mtu = hop.map_or(usize::MAX, |hop| usize::from(hop.mtu));
    let is_longer = begin + len > end;
    let is_too_long = is_longer && begin + len - network > mtu && frame.meta.flags & flag::CUT == 0;
    if is_too_long && frame.meta.family != Family::V4 {
        return None;
    }
    frame.truncate(end);
    if is_longer {
        frame.push_back(begin + len - end)?;
    } else {
        frame.truncate(begin + len);
    }
    let text = cx.shard.expectations.scratch.get(..len)?;
    frame.bytes_mut().get_mut(begin..begin + len)?.copy_from_slice(text);
    frame.meta.end = u16::try_from(begin + len).ok()?;
    if is_too_long {
        be_cut(frame, cx);
    }
    complete_packet(frame)
}

/// Has a packet fragmented that has become too long by the gateway's own doing: its sender could make it no shorter.
fn be_cut<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    const DF: u16 = 0x4000;
    frame.meta.flags |= flag::CUT;
    let network = usize::from(frame.meta.network);
    let header = frame.bytes_mut().get_mut(network..).and_then(ipv4::HeaderMut::of);
    let Some(mut header) = header else { return };
    let field = header.view().flags_and_offset();
    if field & DF != 0 {
        // What is not to be fragmented need not have an identification of its own (RFC 6864, section 4.1).
        header.set_flags_and_offset(field & !DF);
        header.set_id(cx.shard.next_id);
        cx.shard.next_id = cx.shard.next_id.wrapping_add(1);
    }
}
