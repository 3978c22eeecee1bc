//! PPTP: has the calls of a control connection expected, and translates their call IDs.
//!
//! Each direction of a call has the call ID that its receiver has chosen. One behind a masquerade becomes the outside one of a mapping, as its
//! port would, so that clients that have chosen the same are told apart; all others stay. The GRE of both directions is expected when the call is
//! connected, and is one flow, whose keys have the call ID as destination port ([`Flow::is_call`]). What is expected stays
//! until the call has ended, so that a call that was silent for long goes on.
//!
//! Messages are read in the order of the text. The head of one, with its call IDs, passes whole or not at all, as an announcement of FTP does. Text
//! that begins with no message passes as it is, to the end of its segment.

use std::net::IpAddr;

use tally::{NoTally, Op, Region, Tally};
use wire::header::Protocol;
use wire::{Frame, Nanos, Part, gre};

use super::control::Control;
use super::{Unread, handoff, of_opening, text, unread};
use crate::flow::{Direction, Flow, FlowId, Key};
use crate::helper::expectation::{self, Kind, PATIENCE};
use crate::helper::ftp::Form;
use crate::helper::pptp::{self, Act, CallId, Message, Read};
use crate::helper::stream::{Edit, Stream};
use crate::helper::{Expectation, ExpectationId, Helped};
use crate::log::Cause;
use crate::nat::{Endpoint, MappingId, PoolId};
use crate::opening::Opening;
use crate::shard::{NOTHING, Shard};
use crate::stage::{Cx, Step};
use crate::verdict::Reason;

/// Expectations of calls that one control connection has at a time: two for each call.
const MOST_OF_MASTER: usize = 32;

/// Stand-in for the source port in keys of quotes.
const QUOTE: u16 = Key::CALL + 1;

/// Bytes of a call ID.
const CALL_ID_LEN: u8 = 2;

/// Reads the messages of a segment that are new, and carries out what they say of calls. Returns the length of the text that may pass.
///
/// # Errors
/// Step for a segment of which nothing may.
pub(super) fn read<T: Tally>(
    frame: &Frame,
    (id, direction): (FlowId, Direction),
    flow: &Flow,
    helped: &mut Helped,
    cx: &mut Cx<'_, T>,
) -> Result<usize, Step> {
    let stream = &mut helped.streams[direction as usize];
    let Some(Unread { seq, mut text, known }) = unread(frame, stream, cx)? else {
        return Ok(text(frame).map_or(0, <[u8]>::len));
    };
    let control = Control::new(id, direction, flow, helped.rule, frame.meta.received);
    // Where the next message begins. A rule with another helper may have left it behind.
    let mut at = usize::try_from(stream.line().wrapping_sub(seq) as i32).unwrap_or(0).max(known);
    while at < text.len() {
        // A head, compared and taken apart.
        cx.tally.instructions(60);
        cx.tally.execute(Op::Branch, 20);
        let message = match pptp::read(&text[at..]) {
            Read::Message(message) => message,
            Read::Other => {
                at = text.len();
                break;
            }
            Read::Incomplete => {
                text = before(text, at, Reason::HelperIncomplete)?;
                break;
            }
        };
        let position = seq.wrapping_add(at as u32);
        match control.carry_out(&message, position, stream, cx) {
            Ok(()) => at += message.len,
            Err(Refused) => {
                text = before(text, at, Reason::HelperRefused)?;
                break;
            }
        }
    }
    stream.read_on(seq.wrapping_add(text.len() as u32), seq.wrapping_add(at as u32));
    Ok(text.len())
}

/// The text before a message that does not pass; its sender repeats the message.
///
/// # Errors
/// There is none.
fn before(text: &[u8], at: usize, reason: Reason) -> Result<&[u8], Step> {
    text.get(..at).filter(|text| !text.is_empty()).ok_or(Step::Drop(reason))
}

/// Refusal of a message that cannot be carried out now: no port, no memory, or too many call IDs are not acknowledged yet.
struct Refused;

impl Control {
    /// Carries out a message at a position, and has its call IDs translated.
    fn carry_out<T: Tally>(
        &self,
        message: &Message,
        position: u32,
        stream: &mut Stream,
        cx: &mut Cx<'_, T>,
    ) -> Result<(), Refused> {
        let (own, peer) = (message.own, message.peer);
        let outside = match own {
            Some(own) if matches!(message.act, Act::Requests | Act::Connects) => {
                Some(self.announce(own.id, cx)?)
            }
            Some(own) => Some(self.outside_of(own.id, cx)),
            None => None,
        };
        let inside = peer.map(|peer| self.inside_of(peer.id, cx));
        let mut edited = *stream;
        let changes = [own.zip(outside), peer.zip(inside)];
        for (CallId { at, .. }, new) in changes.into_iter().flatten().filter(|(old, new)| old.id != *new) {
            let edit = Edit {
                at: position.wrapping_add(at as u32),
                port: new,
                old: CALL_ID_LEN,
                new: CALL_ID_LEN,
                form: Form::Number as u8,
                delimiter: 0,
                unused: [0; 2],
            };
            edited.edit(edit).map_err(|_| Refused)?;
        }
        match (message.act, outside, peer) {
            (Act::Connects, Some(outside), Some(peer)) => self.connect(outside, peer.id, cx),
            (Act::Refuses, _, Some(peer)) => self.end(self.key_of_receiver(peer.id), cx),
            (Act::Ends, Some(outside), _) => self.end(self.key_of_sender(outside), cx),
            _ => {}
        }
        *stream = edited;
        Ok(())
    }

    /// Notes the call ID that the sender has chosen, and returns the one by which the receiver knows the call.
    fn announce<T: Tally>(&self, own: u16, cx: &mut Cx<'_, T>) -> Result<u16, Refused> {
        // Keys, the mapping, and the expectation with its place in the control connection's list, 180.
        cx.tally.instructions(180);
        cx.tally.execute(Op::Branch, 40);
        cx.tally.write(Region::Timer, 0, 96);
        let (mapping, outside) = self.mapping_of(own, cx)?;
        // Another call of that ID is over.
        self.end(self.key_of_sender(outside), cx);
        self.make_room(cx);
        let made = self.key_of_sender(outside).and_then(|key| {
            let hash = cx.shard.flows.hash(&key, cx.tally);
            cx.shard.add_expectation(Expectation {
                kind: Kind::Requested,
                call: 0,
                key,
                hash,
                master: self.id,
                rule: self.rule,
                destination: self.own.ip().into(),
                port: own,
                source: self.addressed.ip().into(),
                mapping,
                until: self.now + PATIENCE,
            })
        });
        if made.is_none() && mapping != NOTHING {
            cx.shard.release_mapping(MappingId(mapping));
        }
        made.map(|_| outside).ok_or(Refused)
    }

    /// Has the GRE of both directions of a call expected: the sender's call ID as the receiver knows it, and the receiver's as the sender knows
    /// it.
    fn connect<T: Tally>(&self, sender: u16, receiver: u16, cx: &mut Cx<'_, T>) {
        let of_sender = self.expectation(self.key_of_sender(sender), cx);
        match (of_sender, self.expectation(self.key_of_receiver(receiver), cx)) {
            (Some(to_sender), Some(to_receiver)) => {
                // The place that becomes free is the next one taken, so that both stay where they are.
                cx.shard.expectations.connect(to_sender, receiver);
                cx.shard.expectations.connect(to_receiver, sender);
            }
            // Nobody has asked for it, or too long ago.
            (Some(to_sender), None) => cx.shard.end_expectation(to_sender),
            _ => {}
        }
    }

    /// Ends a call of which packets have this key: what is expected, and the flow, of both directions.
    fn end<T: Tally>(&self, key: Option<Key>, cx: &mut Cx<'_, T>) {
        let Some(key) = key else { return };
        if let Some(id) = self.expectation(Some(key), cx) {
            let of = cx.shard.expectations.get(id).copied();
            cx.shard.end_expectation(id);
            let other = of.filter(|of| of.kind == Kind::Call).and_then(|of| self.key_of_answers(&of));
            if let Some(other) = self.expectation(other, cx) {
                cx.shard.end_expectation(other);
            }
        }
        let hash = cx.shard.flows.hash(&key, cx.tally);
        cx.shard.end_call_flow(&key, hash);
    }

    /// The expectation of a call of this control connection's ends with this key.
    fn expectation<T: Tally>(&self, key: Option<Key>, cx: &mut Cx<'_, T>) -> Option<ExpectationId> {
        let key = key?;
        let hash = cx.shard.flows.hash(&key, &mut NoTally);
        let id = cx.shard.expectations.find(&key, hash)?;
        let of = cx.shard.expectations.get(id)?;
        matches!(of.kind, Kind::Requested | Kind::Call).then_some(id)
    }

    /// Key of GRE to the sender, by the call ID that the receiver knows.
    fn key_of_sender(&self, call: u16) -> Option<Key> {
        expectation::key_to(Protocol::GRE, self.really.ip(), (self.shown.ip(), call), self.ct_zone)
    }

    /// Key of GRE to the receiver, by the call ID that the sender knows.
    fn key_of_receiver(&self, call: u16) -> Option<Key> {
        expectation::key_to(Protocol::GRE, self.own.ip(), (self.addressed.ip(), call), self.back_ct_zone)
    }

    /// Key of the GRE that answers.
    fn key_of_answers(&self, of: &Expectation) -> Option<Key> {
        let is_to_sender = of.key.source() == self.really.ip() && of.key.destination() == self.shown.ip();
        let call = of.call as u16;
        if is_to_sender { self.key_of_receiver(call) } else { self.key_of_sender(call) }
    }

    /// Ends the oldest call, if the control connection has as many as it may.
    fn make_room<T: Tally>(&self, cx: &mut Cx<'_, T>) {
        let of_master = cx.shard.expectations.of_master(self.id);
        let oldest = of_master.map(|(_, of)| of.key).nth(MOST_OF_MASTER - 1);
        self.end(oldest, cx);
    }

    /// The mapping of a call ID of the sender's, to be held, and the call ID outside. Call IDs stay where the translation has no pool.
    fn mapping_of<T: Tally>(&self, call: u16, cx: &mut Cx<'_, T>) -> Result<(u32, u16), Refused> {
        let Some(pool) = self.pool(cx)? else { return Ok((NOTHING, call)) };
        let inside = Endpoint::new(self.own.ip(), call, Protocol::GRE.0);
        let mapped = cx.shard.mappings.map(pool, inside, cx.tally);
        cx.shard.note_blocks();
        let mapped = mapped.map_err(|_| Refused)?;
        cx.shard.log.note_mapped(&cx.shard.mappings, mapped.id);
        if mapped.outside.ip() != self.shown.ip() {
            cx.shard.release_mapping(mapped.id);
            return Err(Refused);
        }
        Ok((mapped.id.0, mapped.outside.port))
    }

    /// The sender's call ID as the receiver knows it.
    fn outside_of<T: Tally>(&self, call: u16, cx: &Cx<'_, T>) -> u16 {
        let Ok(Some(pool)) = self.pool(cx) else { return call };
        let inside = Endpoint::new(self.own.ip(), call, Protocol::GRE.0);
        let outside = cx.shard.mappings.outside_of(pool, inside);
        outside.filter(|outside| outside.ip() == self.shown.ip()).map_or(call, |outside| outside.port)
    }

    /// The receiver's call ID as it knows it itself.
    fn inside_of<T: Tally>(&self, call: u16, cx: &Cx<'_, T>) -> u16 {
        if !self.hides_receiver() {
            return call;
        }
        let outside = Endpoint::new(self.addressed.ip(), call, Protocol::GRE.0);
        let found = cx.shard.mappings.inside_of(&outside, &mut NoTally);
        found.filter(|(_, inside)| inside.ip() == self.really.ip()).map_or(call, |(_, inside)| inside.port)
    }

    /// Pool that the sender's mapping is from; `None` if its ports stay.
    fn pool<T>(&self, cx: &Cx<'_, T>) -> Result<Option<PoolId>, Refused> {
        let cold = cx.shard.flows.cold(self.id).filter(|_| self.hides_sender());
        let mapping = cold.map_or(NOTHING, |cold| match self.direction {
            Direction::Original => cold.mapping,
            Direction::Reply => cold.inward,
        });
        if mapping == NOTHING {
            return Ok(None);
        }
        cx.shard.mappings.pool_of(MappingId(mapping)).map(Some).ok_or(Refused)
    }
}

/// Gives the opening of a call the source, and the call ID of its answers, that have been announced; says whether it is of one.
#[inline(always)]
pub(in crate::stage) fn choose_call<T>(opening: &mut Opening, cx: &Cx<'_, T>) -> bool {
    let Some(expectation) = of_opening(opening, cx).filter(|of| of.kind == Kind::Call) else { return false };
    (opening.source, opening.sport, opening.dport) = (expectation.source, expectation.call as u16, Key::CALL);
    // Packets in the direction of the control connection have its source translation.
    let (master, tables) = (expectation.master, cx.tables);
    if let (Some(flow), Some(cold)) = (cx.shard.flows.flow(master), cx.shard.flows.cold(master)) {
        if flow.original().source() == opening.key.source() {
            opening.snat = tables.source_numbered(cold.snat).map_or(0, |place| place + 1);
        }
    }
    true
}

/// Makes the flow of a call one, with the mappings of both ends. What is expected stays.
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
    let answers = cx.shard.flows.flow(id).map(|flow| *flow.reply());
    let other = answers.and_then(|key| {
        let hash = cx.shard.flows.hash(&key, cx.tally);
        cx.shard.expectations.get(cx.shard.expectations.find(&key, hash)?).copied()
    });
    let mut hold = |mapping| {
        let mapped = cx.shard.mappings.retain(MappingId(mapping), cx.tally);
        mapped.map(|mapped| mapped.id)
    };
    opening.inward = hold(expectation.mapping);
    opening.mapping = other.and_then(|of| hold(of.mapping));
    cx.shard.flows.set_helped(id, [Stream::NEW; 2], expectation.rule).map_err(|_| full)
}

/// Gives a packet of a call the call ID that its receiver knows.
pub(super) fn translate<T: Tally>(
    frame: &mut Frame,
    (id, direction): (FlowId, Direction),
    flow: &Flow,
    cx: &mut Cx<'_, T>,
) {
    // Two mappings by place and bound, and their ends, 40; the packet, 8.
    cx.tally.instructions(48);
    cx.tally.execute(Op::Branch, 14);
    if frame.meta.part == Part::Later {
        return;
    }
    let call = leaves_with(id, flow, direction, cx.shard);
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    if let Some(packet) = frame.bytes_mut().get_mut(range) {
        gre::set_call_id(packet, call);
    }
}

/// The call ID with which packets of one direction leave.
fn leaves_with(id: FlowId, flow: &Flow, direction: Direction, shard: &Shard) -> u16 {
    let arrives = flow.key(direction);
    let Some(cold) = shard.flows.cold(id) else { return arrives.dport() };
    let outside = Endpoint::new(arrives.destination(), arrives.dport(), Protocol::GRE.0);
    let mappings = [cold.mapping, cold.inward].into_iter().filter(|mapping| *mapping != NOTHING);
    let mut ends = mappings.filter_map(|mapping| shard.mappings.ends_of(MappingId(mapping)));
    ends.find(|[_, end]| *end == outside).map_or(arrives.dport(), |[inside, _]| inside.port)
}

/// Has the ICMP errors about packets of a call found, which quote them as they leave: by addresses and call ID.
pub(in crate::stage) fn note_quotes<T: Tally>(id: FlowId, cx: &mut Cx<'_, T>) {
    let Some(flow) = cx.shard.flows.flow(id).copied().filter(Flow::is_call) else { return };
    for direction in [Direction::Original, Direction::Reply] {
        let call = leaves_with(id, &flow, direction, cx.shard);
        let answers = flow.key(direction.turned());
        let ends = (answers.destination(), answers.source());
        let Some(key) = expectation::key_to(Protocol::GRE, ends.0, (ends.1, call), answers.ct_zone()) else {
            continue;
        };
        let key = quoting(key);
        let hash = cx.shard.flows.hash(&key, cx.tally);
        if let Some(former) = cx.shard.expectations.find(&key, hash) {
            cx.shard.end_expectation(former);
        }
        // Without room for it the call goes on, and errors about it are dropped.
        let _ = cx.shard.add_expectation(Expectation {
            kind: Kind::Quote,
            call: direction.turned() as u32,
            key,
            hash,
            master: id,
            rule: 0,
            destination: answers.destination().into(),
            port: call,
            source: answers.source().into(),
            mapping: NOTHING,
            until: Nanos(u64::MAX),
        });
    }
}

/// A key that no packet has: of packets as they leave, which another call's may be like as they arrive.
fn quoting(key: Key) -> Key {
    let zone = key.ct_zone();
    let (call, protocol) = (key.dport(), key.protocol());
    let quoting = match (key.source(), key.destination()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Key::v4(from.to_bits(), to.to_bits(), QUOTE, call, protocol),
        _ => Key::v6(key.source_v6(), key.destination_v6(), QUOTE, call, protocol),
    };
    quoting.in_ct_zone(zone)
}

/// The key of packets that answer a packet of a call, which an ICMP error quotes as it has left; `answers` has its addresses, turned round.
///
/// # Errors
/// Step for an error about another worker's call.
pub(in crate::stage) fn answer_to_quoted<T: Tally>(
    frame: &mut Frame,
    answers: &Key,
    call: u16,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Key>, Step> {
    let ends = (answers.destination(), answers.source());
    let key = expectation::key_to(Protocol::GRE, ends.0, (ends.1, call), answers.ct_zone());
    let Some(key) = key.map(quoting) else { return Ok(None) };
    let hash = cx.shard.flows.hash(&key, cx.tally);
    if let Some(of) = cx.shard.expectations.find(&key, hash).and_then(|id| cx.shard.expectations.get(id)) {
        let direction = [Direction::Original, Direction::Reply][of.call as usize & 1];
        return Ok(cx.shard.flows.flow(of.master).map(|flow| *flow.key(direction)));
    }
    handoff::to_flow(frame, hash, cx).map_or(Ok(None), Err)
}

impl Shard {
    /// Ends the flow of a call, by the key of its packets in one direction.
    pub(super) fn end_call_flow(&mut self, key: &Key, hash: u64) {
        let hit = self.flows.find(key, hash, &mut NoTally);
        let is_call = |id: &FlowId| self.flows.flow(*id).is_some_and(Flow::is_call);
        if let Some(id) = hit.map(|hit| hit.id).filter(is_call) {
            self.end_flow_for(id, Cause::Killed, &mut NoTally);
        }
    }
}
