//! Helpers' part in stages: `track` finds expected connections and what acknowledgements mean, `rewrite` reads and rewrites control
//! connections.
//!
//! A control connection is read in the order of its text: a segment before which another is missing is dropped, and its sender repeats it. A
//! line is read where it is whole in one segment. One that may become an announcement and is not whole is cut off its segment, so that no
//! announcement passes unread; its sender repeats it with what has followed meanwhile.
//!
//! A segment that a translated announcement makes too long for its link becomes two.
//!
//! Datagrams (SIP) are messages by themselves: see `stage/helper/sip.rs`. Messages of PPTP are read from a stream as lines are, and keep their
//! length: see `stage/helper/pptp.rs`.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use policy::model::Helper;
use tally::{Op, Region, Tally};
use wire::checksum::{Delta, Sum};
use wire::header::{Protocol, RawOptions};
use wire::tcp::{self, Flags};
use wire::{Frame, Part, ipv4, ipv6};

use super::handshake::{SACK, move_quoted, put};
use super::own::{note, pseudo};
use super::{Cx, Step, handoff, header, link, rewrite, track};
use crate::flag;
use crate::flow::{Direction, Flow, FlowId, FlowTable, Hit, Key};
use crate::helper::expectation::{self, Kind, PATIENCE};
use crate::helper::ftp::{self, Announcement, LOWEST_PORT, Line};
use crate::helper::stream::{Edge, Edit, Stream};
use crate::helper::{Expectation, ExpectationId, Expectations};
use crate::hop::leaves;
use crate::nat::{Endpoint, MappingId};
use crate::opening::Opening;
use crate::shard::{NOTHING, Shard};
use crate::tables::{Address, FilterRule, NO_NUMBER, Tables};
use crate::verdict::Reason;

mod control;
mod pptp;
mod sip;

pub(super) use pptp::{answer_to_quoted, choose_call, note_quotes};

/// Most headers of a packet whose text is rewritten: IPv6 with extension headers, and TCP with options.
const MOST_HEADERS: usize = 512;

/// Instructions of the helpers that a policy names.
pub(super) fn program(tables: &Tables) -> u32 {
    let has = |helper| tables.filter.rules.iter().any(|rule| rule.helper == Some(helper));
    // Of FTP: numbers and options, 90; lines and their two forms, each a loop, 160; the new text and a second segment, 120; mappings and
    // expectations, 130.
    let ftp = if has(Helper::Ftp) { 500 } else { 0 };
    // Of SIP: lines, headers and their names, 180; URIs, lists and parameters, 240; descriptions, 260; endpoints and changes, 160; the new
    // message and its lengths, 100; mappings, pairs of them and expectations, 260.
    let sip = if has(Helper::Sip) { 1_200 } else { 0 };
    // Of PPTP: numbers, options, the new text and a second segment, as of FTP, 210; messages, 110; call IDs, mappings and expectations, 300; the
    // call ID of a packet, and quotes, 120.
    ftp + sip + if has(Helper::Pptp) { 740 } else { 0 }
}

/// The expectation that a first packet meets.
///
/// # Errors
/// Step for a packet that another worker expects.
#[inline(never)]
pub(super) fn find<T: Tally>(
    frame: &mut Frame,
    key: &Key,
    cx: &mut Cx<'_, T>,
) -> Result<Option<ExpectationId>, Step> {
    let Some(key) = expected_key(frame, key) else { return Ok(None) };
    let is_shared = cx.shard.flows.member().is_some();
    if cx.shard.expectations.is_empty() && !is_shared {
        return Ok(None);
    }
    let hash = cx.shard.flows.hash(&key, cx.tally);
    let found = expected(frame, &key, hash, cx);
    if found.is_some() {
        return Ok(found);
    }
    handoff::to_flow(frame, hash, cx).map_or(Ok(None), Err)
}

/// Key, without a source port, by which an expected connection is found; `None` for a packet that opens no connection of TCP or UDP, and no call.
fn expected_key(frame: &Frame, key: &Key) -> Option<Key> {
    let protocol = Protocol(frame.meta.protocol);
    let is_it = match protocol {
        Protocol::TCP => {
            let is_syn = Flags(frame.meta.tcp_flags).masked(Flags::SYN_ACK) == Flags::SYN;
            is_syn && frame.meta.part == Part::Whole
        }
        Protocol::UDP => frame.meta.part != Part::Later,
        Protocol::GRE => frame.meta.part != Part::Later && frame.meta.sport == Key::CALL,
        _ => false,
    };
    let to = (key.destination(), key.dport());
    is_it.then(|| expectation::key_to(protocol, key.source(), to, key.ct_zone())).flatten()
}

/// The expectation with this key, if it still holds.
fn expected<T: Tally>(frame: &Frame, key: &Key, hash: u64, cx: &mut Cx<'_, T>) -> Option<ExpectationId> {
    // The bucket and a key compared, 30; the control connection and its rule, 16.
    cx.tally.instructions(46);
    cx.tally.execute(Op::Branch, 12);
    cx.tally.read(Region::Timer, 0, 96);
    let id = cx.shard.expectations.find(key, hash)?;
    let expectation = cx.shard.expectations.get(id)?;
    let is_kept = cx.shard.flows.flow(expectation.master).is_some_and(Flow::is_helped);
    let is_there = is_kept && expectation.kind.is_opened() && frame.meta.received < expectation.until;
    (is_there && rule_of_master(expectation, cx).is_some()).then_some(id)
}

/// Place of the rule that lets in a control connection, if it still names a helper.
fn rule_of_master<T>(expectation: &Expectation, cx: &Cx<'_, T>) -> Option<u32> {
    let flow = cx.shard.flows.flow(expectation.master)?;
    // Earlier tables have decided it: the rule may stand elsewhere.
    if flow.epoch != cx.tables.epoch {
        return cx.tables.helper_rule(expectation.rule);
    }
    helper_of(flow, cx).map(|_| flow.rule)
}

/// The helper that the rule of a flow, which these tables have decided, names.
fn helper_of<T>(flow: &Flow, cx: &Cx<'_, T>) -> Option<Helper> {
    cx.tables.filter.rules.get(flow.rule as usize)?.helper
}

/// The expectation that an opening meets.
#[inline(always)]
pub(super) fn of_opening<'a, T>(opening: &Opening, cx: &'a Cx<'_, T>) -> Option<&'a Expectation> {
    cx.shard.expectations.get(opening.expected?)
}

/// Place of the rule that accepts an expected connection: that of its control connection.
pub(super) fn rule_of<T>(frame: &Frame, cx: &Cx<'_, T>) -> Option<u32> {
    let expectation = of_opening(cx.shard.openings.of(&frame.meta)?, cx)?;
    rule_of_master(expectation, cx)
}

/// Gives the flow of an opening what its rule, or its expectation, says: the helper, or the mark of a related connection.
///
/// # Errors
/// There is no memory for it.
pub(super) fn begin<T: Tally>(
    id: FlowId,
    frame: &Frame,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    if let Some(expected) = opening.expected.take() {
        match cx.shard.expectations.get(expected).map(|of| of.kind) {
            Some(Kind::Signalling) => return sip::begin_expected(id, expected, opening, cx),
            Some(Kind::Call) => return pptp::begin_expected(id, expected, opening, cx),
            _ => {}
        }
        // Its control connection may just have made room for this flow.
        let expectation = cx.shard.take_expectation(expected).ok_or(Step::Drop(Reason::FlowTableFull))?;
        // What the expectation held is the flow's now.
        opening.inward = (expectation.mapping != NOTHING).then_some(MappingId(expectation.mapping));
        cx.shard.flows.set_related(id, expectation.rule);
        return Ok(());
    }
    cx.shard.flows.set_related(id, NO_NUMBER);
    let rule = cx.tables.filter.rules.get(frame.meta.rule as usize);
    let may = |rule: &&FilterRule| rule.helper.is_some_and(|helper| may_help(helper, frame, opening));
    let Some(rule) = rule.filter(may) else { return Ok(()) };
    let mut streams = [Stream::NEW; 2];
    if let Some(segment) = segment(frame).filter(|segment| segment.header.flags().contains(Flags::SYN)) {
        streams[Direction::Original as usize].begin(segment.header.seq().wrapping_add(1));
    }
    cx.shard.flows.set_helped(id, streams, rule.number).map_err(|_| Step::Drop(Reason::FlowTableFull))
}

/// True if the connection that a packet opens may have a helper: of its protocol, forwarded, without a handshake of the gateway's or another
/// IP version.
fn may_help(helper: Helper, frame: &Frame, opening: &Opening) -> bool {
    let is_of_protocol = match helper {
        Helper::Ftp | Helper::Pptp => {
            frame.meta.protocol == Protocol::TCP.0 && frame.meta.part == Part::Whole
        }
        Helper::Sip => frame.meta.protocol == Protocol::UDP.0,
    };
    is_of_protocol && frame.meta.flags & flag::OWN == 0 && opening.cookie.is_none() && !opening.is_across()
}

/// An acknowledgement of a control connection as the position of whom it is for.
#[cold]
#[inline(never)]
pub(super) fn acknowledged<T: Tally>(hit: Hit, ack: u32, cx: &mut Cx<'_, T>) -> u32 {
    cx.tally.instructions(20);
    let other = hit.direction.turned() as usize;
    cx.shard.flows.helped.get(hit.id).map_or(ack, |helped| helped.streams[other].inward(ack, Edge::Begin))
}

/// Position of a sequence number that an ICMP error of this direction quotes.
pub(super) fn quoted<T>(hit: Hit, seq: u32, cx: &Cx<'_, T>) -> u32 {
    let is_helped = cx.shard.flows.flow(hit.id).is_some_and(Flow::is_helped);
    let helped = cx.shard.flows.helped.get(hit.id).filter(|_| is_helped);
    helped.map_or(seq, |helped| helped.streams[hit.direction.turned() as usize].inward(seq, Edge::Begin))
}

/// Reads and rewrites a packet of a control connection, whose addresses have been translated.
///
/// # Errors
/// Step for a packet that must not pass.
#[cold]
#[inline(never)]
pub(super) fn apply<T: Tally>(
    frame: &mut Frame,
    direction: Direction,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let id = FlowId(frame.meta.flow);
    let both = (cx.shard.flows.flow(id).copied(), cx.shard.flows.helped.get(id).copied());
    let (Some(flow), Some(mut helped)) = both else { return Ok(()) };
    if flow.original().protocol() != Protocol::TCP.0 {
        if frame.meta.flags & flag::RELATED != 0 {
            return Ok(());
        }
        if flow.is_call() {
            pptp::translate(frame, (id, direction), &flow, cx);
            return Ok(());
        }
        return sip::apply(frame, (id, direction), &flow, helped.rule, cx);
    }
    if frame.meta.flags & flag::RELATED != 0 {
        let stream = helped.streams[direction.turned() as usize];
        let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
        if let Some(message) = frame.bytes_mut().get_mut(range) {
            let _ = move_quoted(message, |seq| stream.inward(seq, Edge::Begin));
        }
        return Ok(());
    }
    if frame.meta.part != Part::Whole {
        return Err(Step::Drop(Reason::HelperIncomplete));
    }
    let Some(found) = segment(frame) else { return Err(Step::Drop(Reason::TransportLength)) };
    let (header, mut data) = (found.header, found.payload.len());
    let (seq, flags) = (header.seq(), header.flags());
    // Numbers, their edits and the options, 120; a line's bytes, each compared once, 4.
    cx.tally.instructions(120 + 4 * data as u32);
    cx.tally.execute(Op::Branch, 30 + data as u32);
    cx.tally.read(Region::Timer, id.0 as usize * 96, 96);
    let before = helped;
    let (this, other) = (direction as usize, direction.turned() as usize);
    if flags.contains(Flags::ACK) {
        let ack = helped.streams[other].inward(header.ack(), Edge::Begin);
        helped.streams[other].acknowledge(ack);
    }
    if flags.contains(Flags::SYN) {
        helped.streams[this].begin(seq.wrapping_add(1));
    } else if data > 0 {
        let whole = match helper_of(&flow, cx) {
            Some(Helper::Pptp) => pptp::read(frame, (id, direction), &flow, &mut helped, cx)?,
            _ => read(frame, (id, direction), &flow, &mut helped.streams, cx)?,
        };
        if whole < data {
            cut(frame, whole).ok_or(Step::Drop(Reason::TransportLength))?;
            data = whole;
        }
    }
    if helped != before {
        if let Some(place) = cx.shard.flows.helped.get_mut(id) {
            *place = helped;
        }
        cx.tally.write(Region::Timer, id.0 as usize * 96, 96);
        if helped.streams[this].edits() != before.streams[this].edits() || helped.streams[this].is_closed() {
            cx.shard.changes.note(id);
        }
    }
    let streams = helped.streams;
    if streams.iter().all(Stream::is_plain) {
        return Ok(());
    }
    let new_text = if streams[this].touches(seq, data) {
        if !track::checksum_is_right(frame, cx) {
            return Err(Step::Drop(Reason::TransportChecksum));
        }
        let text = text(frame).unwrap_or_default();
        let shown = flow.key(direction.turned()).destination();
        let len = streams[this].write(seq, text, shown, &mut cx.shard.expectations.scratch);
        Some(len.ok_or(Step::Drop(Reason::HelperRefused))?)
    } else {
        None
    };
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    if let Some(segment) = frame.bytes_mut().get_mut(range) {
        let _ = move_numbers(segment, &streams, direction);
    }
    match new_text {
        Some(len) => replace(frame, len, cx).ok_or(Step::Drop(Reason::SlotTooSmall)),
        None => Ok(()),
    }
}

/// Reads the lines of a segment that are whole and new, and has their announcements expected and translated. Returns the length of the text
/// that may pass.
///
/// # Errors
/// Step for a segment of which nothing may.
fn read<T: Tally>(
    frame: &Frame,
    (id, direction): (FlowId, Direction),
    flow: &Flow,
    streams: &mut [Stream; 2],
    cx: &mut Cx<'_, T>,
) -> Result<usize, Step> {
    let this = direction as usize;
    let Some(Unread { seq, mut text, known }) = unread(frame, &mut streams[this], cx)? else {
        return Ok(text(frame).map_or(0, <[u8]>::len));
    };
    let stream = streams[this];
    let number = cx.shard.flows.helped.get(id).map_or(NO_NUMBER, |helped| helped.rule);
    let is_active = helper_of(flow, cx).is_some();
    // A line that began in an earlier segment announces nothing: there it would have been dropped.
    let mut begin = usize::try_from(stream.line().wrapping_sub(seq) as i32).ok();
    let last = text.iter().skip(known).rposition(|byte| *byte == b'\n').map(|at| known + at + 1);
    if let Some((whole, rest)) = last.or(begin).and_then(|at| text.split_at_checked(at)) {
        if is_active && !stream.is_closed() && ftp::may_announce(direction, rest) {
            if whole.is_empty() {
                return Err(Step::Drop(Reason::HelperIncomplete));
            }
            text = whole;
        }
    }
    let mut from = known;
    while let Some(at) = text.iter().skip(from).position(|byte| *byte == b'\n') {
        let end = from + at;
        if let Some(first) = begin.filter(|_| is_active && !streams[this].is_closed()) {
            let line = text.get(first..end).unwrap_or_default();
            match ftp::read(direction, line.strip_suffix(b"\r").unwrap_or(line)) {
                Line::Announces(announcement) => {
                    let position = seq.wrapping_add((first + announcement.at) as u32);
                    let master = Master { id, direction, flow, rule: number };
                    expect(&announcement, position, &master, &mut streams[this], frame, cx)?;
                }
                Line::Encrypts => streams.iter_mut().for_each(Stream::close),
                Line::Other => {}
            }
        }
        from = end + 1;
        begin = Some(from);
    }
    let line = begin.map_or(stream.line(), |begin| seq.wrapping_add(begin as u32));
    streams[this].read_on(seq.wrapping_add(text.len() as u32), line);
    Ok(text.len())
}

/// Text of a segment of which some has not been read.
struct Unread<'a> {
    /// Sequence number of the text.
    seq: u32,
    text: &'a [u8],
    /// Bytes that have been read.
    known: usize,
}

/// The text of a segment of which some is new, by a checksum that is right; `None` where all has been read, or there is none.
///
/// # Errors
/// Step for a segment before which another is missing, or whose checksum is wrong.
fn unread<'a, T: Tally>(
    frame: &'a Frame,
    stream: &mut Stream,
    cx: &mut Cx<'_, T>,
) -> Result<Option<Unread<'a>>, Step> {
    let Some(found) = segment(frame) else { return Ok(None) };
    let (seq, text) = (found.header.seq(), found.payload);
    if !stream.has_begun() {
        stream.begin(seq);
    }
    let known = stream.next().wrapping_sub(seq) as i32;
    if known < 0 {
        return Err(Step::Drop(Reason::HelperIncomplete));
    }
    let known = known as usize;
    if known >= text.len() {
        return Ok(None);
    }
    if !track::checksum_is_right(frame, cx) {
        return Err(Step::Drop(Reason::TransportChecksum));
    }
    Ok(Some(Unread { seq, text, known }))
}

/// Leaves so many bytes of a packet's text. A FIN behind the rest comes with the rest.
fn cut(frame: &mut Frame, len: usize) -> Option<()> {
    let transport = usize::from(frame.meta.transport);
    let begin = transport + segment(frame)?.header.header_len();
    frame.truncate(begin + len);
    frame.meta.end = u16::try_from(begin + len).ok()?;
    let mut header = tcp::HeaderMut::of(frame.bytes_mut().get_mut(transport..)?)?;
    let flags = Flags(header.view().flags().0 & !Flags::FIN.0);
    header.set_flags(flags);
    frame.meta.tcp_flags = flags.0;
    complete(frame)
}

/// A control connection on which a data connection is announced.
struct Master<'a> {
    id: FlowId,
    direction: Direction,
    flow: &'a Flow,
    rule: u32,
}

/// Has an announced connection expected, and its announcement translated. One of another address than the announcer's own, or of a port of
/// a service, expects nothing, and passes as it is.
fn expect<T: Tally>(
    announcement: &Announcement,
    position: u32,
    master: &Master<'_>,
    stream: &mut Stream,
    frame: &Frame,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    // The line's bytes once more, 4 each; keys, the mapping and the expectation, 150.
    cx.tally.instructions(350);
    cx.tally.execute(Op::Branch, 90);
    let (towards, back) = (master.flow.key(master.direction.turned()), master.flow.key(master.direction));
    let (own, shown) = (back.source(), towards.destination());
    if announcement.address.is_some_and(|address| address != own) || announcement.port < LOWEST_PORT {
        return Ok(());
    }
    let refused = Step::Drop(Reason::HelperRefused);
    let mut expectation = Expectation {
        kind: Kind::Data,
        call: 0,
        key: Key::default(),
        hash: 0,
        master: master.id,
        rule: master.rule,
        destination: own.into(),
        port: announcement.port,
        source: back.destination().into(),
        mapping: NOTHING,
        until: frame.meta.received + PATIENCE,
    };
    // As netfilter: a further announcement takes the place of the one before.
    let former = cx.shard.expectations.of_master(master.id).next().map(|(id, _)| id);
    let mut outside = announcement.port;
    if shown != own && master.direction == Direction::Original {
        if let Some(mapped) = map(master.id, own, announcement.port, shown, cx).map_err(|()| refused)? {
            (expectation.mapping, outside) = (mapped.0.0, mapped.1);
        }
    }
    if let Some(former) = former {
        cx.shard.end_expectation(former);
    }
    let made = (|| {
        let to = (shown, outside);
        let key = expectation::key_to(Protocol::TCP, towards.source(), to, towards.ct_zone())?;
        expectation.key = key;
        expectation.hash = cx.shard.flows.hash(&key, cx.tally);
        if let Some(same) = cx.shard.expectations.find(&key, expectation.hash) {
            // Of another control connection of the same two hosts: where the port is the announcer's own, it can be only one of them.
            if shown != own {
                return None;
            }
            cx.shard.end_expectation(same);
        }
        if shown != own || outside != announcement.port {
            let text = announcement.form.text(shown, outside, announcement.delimiter)?;
            let edit = Edit {
                at: position,
                port: outside,
                old: u8::try_from(announcement.len).ok()?,
                new: u8::try_from(text.len()).ok()?,
                form: announcement.form as u8,
                delimiter: announcement.delimiter,
                unused: [0; 2],
            };
            stream.edit(edit).ok()?;
        }
        cx.shard.add_expectation(expectation)
    })();
    if made.is_none() && expectation.mapping != NOTHING {
        cx.shard.release_mapping(MappingId(expectation.mapping));
    }
    made.map(drop).ok_or(refused)
}

/// The mapping of the announced port, from the pool that the control connection's source is from, and its outside port. `None` if that source
/// has no pool: ports then stay.
fn map<T: Tally>(
    master: FlowId,
    own: IpAddr,
    port: u16,
    shown: IpAddr,
    cx: &mut Cx<'_, T>,
) -> Result<Option<(MappingId, u16)>, ()> {
    let mapping = cx.shard.flows.cold(master).map_or(NOTHING, |cold| cold.mapping);
    if mapping == NOTHING {
        return Ok(None);
    }
    let pool = cx.shard.mappings.pool_of(MappingId(mapping)).ok_or(())?;
    let inside = Endpoint::new(own, port, Protocol::TCP.0);
    let mapped = cx.shard.mappings.map(pool, inside, cx.tally);
    cx.shard.note_blocks();
    let mapped = mapped.map_err(drop)?;
    cx.shard.log.note_mapped(&cx.shard.mappings, mapped.id);
    if Address::from(shown) != (Address { bits: mapped.outside.address, v6: shown.is_ipv6() }) {
        cx.shard.release_mapping(mapped.id);
        return Err(());
    }
    Ok(Some((mapped.id, mapped.outside.port)))
}

impl Shard {
    /// NAT mappings that expected connections hold.
    pub fn expected_mappings(&self) -> impl Iterator<Item = MappingId> + '_ {
        self.expectations.iter().map(|of| of.mapping).filter(|mapping| *mapping != NOTHING).map(MappingId)
    }

    /// Takes in an expectation; `None` if there is no room.
    fn add_expectation(&mut self, expectation: Expectation) -> Option<ExpectationId> {
        let id = self.expectations.insert(expectation)?;
        if let Some(member) = self.flows.member() {
            member.steering.publish(expectation.hash, member.worker);
        }
        Some(id)
    }

    /// Takes an expectation out; what it holds is the caller's.
    fn take_expectation(&mut self, id: ExpectationId) -> Option<Expectation> {
        let expectation = self.expectations.remove(id)?;
        if let Some(member) = self.flows.member() {
            member.steering.withdraw(expectation.hash, member.worker);
        }
        Some(expectation)
    }

    /// Ends an expectation that has not been met.
    pub(crate) fn end_expectation(&mut self, id: ExpectationId) {
        if let Some(expectation) = self.take_expectation(id).filter(|of| of.mapping != NOTHING) {
            self.release_mapping(MappingId(expectation.mapping));
        }
    }

    /// Ends expectations that nobody has met in time.
    #[cold]
    pub(crate) fn expire_expectations(&mut self, now: wire::Nanos) {
        while let Some(overdue) = self.expectations.overdue(now) {
            self.end_expectation(overdue);
        }
    }

    /// Ends an expectation, and the flow of its packets if it is of a call.
    fn end_expected(&mut self, id: ExpectationId) {
        let of = self.expectations.get(id).copied();
        self.end_expectation(id);
        if let Some(of) = of.filter(|of| of.kind == Kind::Call) {
            self.end_call_flow(&of.key, of.hash);
        }
    }

    /// Ends the expectations of a control connection that ends, and its calls.
    pub(crate) fn end_expectations_of(&mut self, master: FlowId) {
        self.end_expectations_by(master, |_| true);
    }

    /// Ends those expectations of a control connection for which `is_it` holds.
    fn end_expectations_by(&mut self, master: FlowId, is_it: impl Fn(&Expectation) -> bool) {
        let find = |of: &Expectations| of.of_master(master).find(|(_, of)| is_it(of)).map(|(id, _)| id);
        while let Some(id) = find(&self.expectations) {
            self.end_expected(id);
        }
    }

    /// Ends expectations of control connections that have ended, and their calls.
    #[cold]
    pub(crate) fn end_orphaned_expectations(&mut self) {
        let is_orphaned =
            |of: &Expectation, flows: &FlowTable| !flows.flow(of.master).is_some_and(Flow::is_helped);
        let mut next = self.expectations.first();
        while let Some(id) = next {
            next = self.expectations.next(id);
            if self.expectations.get(id).is_some_and(|of| is_orphaned(of, &self.flows)) {
                self.end_expected(id);
                // A call has ended with all that is expected of it.
                next = next.and_then(|next| self.expectations.get(next).map(|_| next));
                next = next.or_else(|| self.expectations.first());
            }
        }
    }

    /// Ends all expectations. Calls go on.
    pub(crate) fn end_expectations(&mut self) {
        while let Some(id) = self.expectations.first() {
            self.end_expectation(id);
        }
    }
}

/// Gives a segment the numbers that its receiver knows.
fn move_numbers(segment: &mut [u8], streams: &[Stream; 2], direction: Direction) -> Option<()> {
    let (this, other) = (&streams[direction as usize], &streams[direction.turned() as usize]);
    let header = tcp::Header::of(segment)?;
    let (seq, ack, flags, end) = (header.seq(), header.ack(), header.flags(), header.header_len());
    let mut delta = Delta::NONE;
    put(segment, 4, this.outward(seq, Edge::Begin), &mut delta)?;
    if flags.contains(Flags::ACK) {
        put(segment, 8, other.inward(ack, Edge::Begin), &mut delta)?;
        let mut edges: ArrayVec<usize, 8> = ArrayVec::new();
        let options = RawOptions::new(segment.get(tcp::MIN_HEADER_LEN..end).unwrap_or(&[]));
        for option in options.map_while(Result::ok).filter(|option| option.kind == SACK) {
            let first = tcp::MIN_HEADER_LEN + option.at + 2;
            edges.extend((first..).step_by(4).take(option.data.len() / 4).take(edges.remaining_capacity()));
        }
        for (place, at) in edges.into_iter().enumerate() {
            let number = u32::from_be_bytes(*segment.get(at..at + 4)?.first_chunk()?);
            // What is acknowledged is the whole of a text or nothing of it.
            let edge = if place % 2 == 0 { Edge::End } else { Edge::Begin };
            put(segment, at, other.inward(number, edge), &mut delta)?;
        }
    }
    tcp::HeaderMut::of(segment)?.adjust_checksum(delta);
    Some(())
}

/// Puts the new text, `len` bytes of the scratch memory, in the place of the segment's; what its link cannot carry goes in a second one.
fn replace<T: Tally>(frame: &mut Frame, len: usize, cx: &mut Cx<'_, T>) -> Option<()> {
    let network = usize::from(frame.meta.network);
    let begin = usize::from(frame.meta.transport) + segment(frame)?.header.header_len();
    let old = usize::from(frame.meta.end) - begin;
    let hop = cx.shard.hops.get(frame.meta.hop).filter(|_| leaves(frame.meta.hop));
    let mtu = hop.map_or(usize::MAX, |hop| usize::from(hop.mtu));
    let is_too_long = begin - network + len > mtu && frame.meta.flags & flag::CUT == 0;
    let first = if is_too_long && len > old { old } else { len };
    if first < len {
        second(frame, begin, first..len, cx)?;
    }
    frame.truncate(begin);
    frame.push_back(first)?.copy_from_slice(cx.shard.expectations.scratch.get(..first)?);
    frame.meta.end = u16::try_from(frame.len()).ok()?;
    if first < len {
        let range = usize::from(frame.meta.transport)..;
        let mut header = tcp::HeaderMut::of(frame.bytes_mut().get_mut(range)?)?;
        let flags = Flags(header.view().flags().0 & !(Flags::FIN.0 | Flags::PSH.0));
        header.set_flags(flags);
        frame.meta.tcp_flags = flags.0;
    }
    complete(frame)
}

/// Makes the second segment of a text that has become too long, which goes behind the first.
fn second<T: Tally>(
    frame: &mut Frame,
    begin: usize,
    range: std::ops::Range<usize>,
    cx: &mut Cx<'_, T>,
) -> Option<()> {
    if cx.shard.parts.len() == cx.shard.parts.capacity() {
        return None;
    }
    let network = usize::from(frame.meta.network);
    let mut headers: ArrayVec<u8, MOST_HEADERS> = ArrayVec::new();
    headers.try_extend_from_slice(frame.bytes().get(network..begin)?).ok()?;
    let mut part = cx.pool.take()?;
    part.meta = frame.meta.clone();
    let made = (|| {
        part.push_back(headers.len())?.copy_from_slice(&headers);
        let text = cx.shard.expectations.scratch.get(range.clone())?;
        part.push_back(text.len())?.copy_from_slice(text);
        note(&mut part, usize::from(frame.meta.transport) - network);
        let transport = usize::from(part.meta.transport);
        let mut header = tcp::HeaderMut::of(part.bytes_mut().get_mut(transport..)?)?;
        let seq = header.view().seq();
        header.set_seq(seq.wrapping_add(range.start as u32));
        complete(&mut part)?;
        if frame.meta.flags & flag::OWN == 0 {
            rewrite::lower_ttl(&mut part);
        }
        link::replace(&mut part, cx).then_some(())
    })();
    if made.is_none() {
        cx.pool.put(part);
        return None;
    }
    cx.shard.parts.push_back(part);
    frame.meta.parts = 1;
    Some(())
}

/// Writes lengths and checksums of a packet whose text has changed.
fn complete(frame: &mut Frame) -> Option<()> {
    let (from, to) = header::addresses(frame);
    let (network, transport) = (usize::from(frame.meta.network), usize::from(frame.meta.transport));
    let (end, protocol) = (usize::from(frame.meta.end), Protocol(frame.meta.protocol));
    let packet = frame.bytes_mut().get_mut(network..end)?;
    let len = packet.len();
    if from.v6 {
        ipv6::HeaderMut::of(packet)?.set_payload_len(u16::try_from(len - ipv6::HEADER_LEN).ok()?);
    } else {
        let header_len = ipv4::Header::of(packet)?.header_len();
        let mut header = ipv4::HeaderMut::of(packet)?;
        header.set_total_len(u16::try_from(len).ok()?);
        header.set_checksum(0);
        let checksum = Sum::of(packet.get(..header_len)?).checksum();
        ipv4::HeaderMut::of(packet)?.set_checksum(checksum);
    }
    let segment = packet.get_mut(transport - network..)?;
    if protocol == Protocol::UDP {
        return sip::complete(segment, from, to);
    }
    tcp::HeaderMut::of(segment)?.set_checksum(0);
    let sum = pseudo(from, to, Protocol::TCP, segment.len()).and(segment).checksum();
    tcp::HeaderMut::of(segment)?.set_checksum(sum);
    Some(())
}

/// The TCP segment of a packet.
fn segment(frame: &Frame) -> Option<tcp::Segment<'_>> {
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    tcp::parse(frame.bytes().get(range)?).ok()
}

/// The text of a packet.
fn text(frame: &Frame) -> Option<&[u8]> {
    Some(segment(frame)?.payload)
}
