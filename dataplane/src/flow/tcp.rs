//! TCP connection tracking: validation of segments against a connection, and its state machine.
//!
//! The windows are those of Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (SANE 2000), with
//! the bounds that Linux's connection tracking has since widened to what RFC 9293 accepts: a segment need only
//! touch the window. For a segment of sender S to receiver R that covers `seq..end`:
//!
//! - I: `seq` is not past what R allows S to send;
//! - II: `end` is not further behind what S has sent than R's largest window: no older data can be unacknowledged;
//! - III: `ack` is not past what R has sent;
//! - IV: `ack` is not further behind what R has sent than S's largest window.
//!
//! A reset counts only at the exact number that its receiver waits for, as in RFC 5961: one elsewhere in the window
//! passes, for the receiver to challenge, but changes nothing here. Nor does a SYN of either side within a connection
//! that is open: a host that has restarted sends one, and the other side's challenge makes it reset what is left of the
//! old connection. A SYN-ACK to an older SYN passes likewise, for its receiver to reset. A SYN in a connection that is
//! over ([`reopens`]) belongs to another connection, which the rules decide on: the caller ends the flow first.
//!
//! Promises: pure functions of flow and segment, no panic on any numbers. Not checked: SACK blocks and timestamps. A
//! connection that is picked up in its middle may use any window scale, so its windows are wide; and each side may
//! acknowledge data that was not seen, as far as its window allowed the other to send. The latter holds for a connection, too,
//! whose earlier segments another gateway has followed; its scales are known, and its windows are learnt from the next segments.

use wire::tcp::{self, Flags, TcpOption};

use super::{Direction, Flow, MIDWAY, Side, State, UNHEARD};

/// Fields of a TCP segment that the state machine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Sequence number expected next, if [`Flags::ACK`] is set.
    pub ack: u32,
    /// Receive window, before scaling.
    pub window: u16,
    /// Flags.
    pub flags: Flags,
    /// Number of bytes of data.
    pub data: u32,
    /// Window scale option of a SYN.
    pub scale: Option<u8>,
}

impl Segment {
    /// Reads the fields of a segment on the wire. Options are parsed only where SYN is set.
    #[inline]
    pub fn of(segment: &tcp::Segment<'_>) -> Segment {
        let header = segment.header;
        let flags = header.flags();
        let scale = if flags.intersects(Flags::SYN) { window_scale(segment) } else { None };
        Segment {
            seq: header.seq(),
            ack: header.ack(),
            window: header.window(),
            flags,
            data: segment.payload.len() as u32, // at most what an IP packet holds
            scale,
        }
    }

    /// The sequence number after its last byte; SYN and FIN take one each.
    #[inline]
    fn end(&self) -> u32 {
        let flags = self.flags.0;
        let marks = u32::from((flags >> 1) & 1) + u32::from(flags & 1);
        self.seq.wrapping_add(self.data).wrapping_add(marks)
    }
}

/// TCP window state of one side of an open connection, which the segments of that side alone change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSide {
    /// Highest sequence number sent, plus one.
    pub end: u32,
    /// Largest window offered, scaled, in bytes.
    pub max_window: u32,
    /// Highest sequence number that the side allows the other to send, plus one.
    pub allows: u32,
    /// Window scale, 0 to 14.
    pub scale: u8,
}

/// Strictness of TCP connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Window check (RFC 9293, section 3.10.7.4): on or off.
    pub window: WindowCheck,
    /// Pickup of connections in their middle.
    pub midstream: Midstream,
}

/// Window check (RFC 9293, section 3.10.7.4): on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowCheck {
    /// Segments outside the window are refused.
    #[default]
    Strict,
    /// Segments outside the window pass, and any reset counts.
    Off,
    /// The segments of either direction may go by elsewhere, so that the window that they offer is not known: those of the other pass. A reset
    /// that is not at the number that its sender has come to here passes, too, and changes nothing.
    OneWay,
}

/// Pickup of connections by another segment than a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Midstream {
    /// Only a SYN opens a connection.
    #[default]
    Refuse,
    /// Any segment but a reset opens a connection; the windows are learnt from the first segment of each side.
    Learn,
}

/// Reason for refusing a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A combination of flags that no TCP sends.
    Flags,
    /// No connection is open, and the segment opens none.
    NotOpen,
    /// The segment lies outside the window, or acknowledges data never sent.
    Window,
    /// The segment does not fit the state of the connection: the handshake, or after FIN or reset.
    State,
}

/// The highest window scale (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;
/// In place of a window scale: the side has sent no such option.
pub(super) const NO_SCALE: u8 = 15;
/// The scales of a connection that was picked up: the largest, as they are not known. That a handshake agrees on
/// just these is possible; such a connection is followed as loosely.
const PICKED_UP: u8 = (MAX_SCALE << 4) | MAX_SCALE;
/// More than any window can be (RFC 7323, section 2.3), so that comparisons modulo 2^32 stay true.
pub(super) const MAX_WINDOW: u32 = 1 << 30;
/// An acknowledgement may be this much behind, however small the window: as in Linux, a little over 64 KiB.
const MIN_ACK_RANGE: u32 = 66_000;

/// True if a segment with these flags, of either side, opens another connection in the place of one that is in `state`:
/// a SYN after both sides have closed, or one has reset (RFC 9293, section 3.6.1; as in Linux, either side may).
#[inline]
pub const fn reopens(state: State, flags: Flags) -> bool {
    let is_syn = flags.0 & (Flags::SYN.0 | Flags::ACK.0 | Flags::RST.0 | Flags::FIN.0) == Flags::SYN.0;
    is_syn && matches!(state, State::LastAck | State::TimeWait | State::Reset)
}

/// State of a connection of which this gateway has seen one side's FIN, and a second gateway the other's; `None` where the second one's state says
/// no more.
pub(crate) const fn closed_by_both(own: State, other: State) -> Option<State> {
    match (own, other) {
        (State::FinOriginal, State::FinReply) | (State::FinReply, State::FinOriginal) => Some(State::LastAck),
        (State::FinOriginal | State::FinReply, State::LastAck | State::TimeWait) => Some(other),
        _ => None,
    }
}

/// True if a segment that passed, and led from one state to the other, renews the flow's timer. Retransmissions before
/// the first answer do not, or a host could keep the flow, and its translation, for ever by trying. Nor do a SYN and a
/// reset that leave the state unchanged: they need not be of this connection.
#[inline(always)]
pub const fn renews(before: State, after: State, flags: Flags) -> bool {
    let is_doubtful = flags.0 & (Flags::SYN.0 | Flags::RST.0) != 0 || matches!(after, State::SynSent);
    before as u8 != after as u8 || !is_doubtful
}

/// Follows a connection by one more segment. The state in which it then is (the same one, mostly) is for the
/// caller to [set](super::FlowTable::set_state); windows and scales of `flow` are updated here.
///
/// # Errors
/// [`Fault`]: the segment is to be dropped; the flow is as it was.
#[inline]
pub fn track(
    flow: &mut Flow,
    direction: Direction,
    segment: &Segment,
    settings: Settings,
) -> Result<State, Fault> {
    if !are_possible(segment.flags) {
        return Err(Fault::Flags);
    }
    let state = flow.state();
    if flow.state & UNHEARD != 0 {
        // The number that a reset's receiver waits for is not known: that receiver decides.
        if segment.flags.intersects(Flags::RST) {
            return Ok(state);
        }
        if segment.flags.intersects(Flags::ACK) {
            flow.begin_midway(direction, segment);
        }
    }
    if segment.flags.intersects(Flags::RST) {
        return reset(flow, direction, segment, settings);
    }
    if segment.flags.intersects(Flags::SYN) {
        return synchronise(flow, direction, segment, settings);
    }
    match state {
        State::Established | State::SynReceived | State::FinOriginal | State::FinReply => {}
        State::LastAck | State::TimeWait => {}
        State::SynBoth => {
            // Whoever acknowledges the other side's SYN has seen it.
            return (segment.ack == flow.side(direction.turned()).end
                || settings.window != WindowCheck::Strict)
                .then(|| flow.learn(direction, segment))
                .map_or(Err(Fault::Window), |()| Ok(State::Established));
        }
        State::SynSent => {
            // The other side may still hold an old connection and say so (RFC 9293, section 3.5.1).
            let tells_of_old = direction == Direction::Reply && segment.end() == segment.seq;
            return if tells_of_old { Ok(state) } else { Err(Fault::State) };
        }
        State::Opening => return pick_up(flow, direction, segment, settings),
        State::Reset => return Err(Fault::State),
        _ => return Err(Fault::NotOpen),
    }
    if settings.window == WindowCheck::Strict {
        check(flow, direction, segment)?;
        // After its FIN a side has nothing new to say.
        if state.is_closed_by(direction) && is_after(segment.end(), flow.side(direction).end) {
            return Err(Fault::State);
        }
    }
    flow.learn(direction, segment);
    Ok(next(flow, direction, segment, state))
}

/// True if a segment reaches beyond the window that its receiver is known to have, which then was larger than it seemed.
pub(crate) fn exceeds_window(flow: &Flow, direction: Direction, segment: &Segment) -> bool {
    flow.side(direction.turned()).max_window != 0 && is_after(segment.end(), flow.side(direction).max_end)
}

/// True if an ICMP error may quote a segment with this sequence number, sent in `direction` (RFC 5927, section 4.1):
/// sent already, and possibly not yet acknowledged. An attacker off the path has to guess such a number.
pub fn may_be_quoted(flow: &Flow, direction: Direction, seq: u32, settings: Settings) -> bool {
    let (side, other) = (flow.side(direction), flow.side(direction.turned()));
    // A side of which nothing has been seen bounds nothing.
    if settings.window != WindowCheck::Strict || flow.state() == State::Opening || side.max_window == 0 {
        return true;
    }
    let sent = if flow.is_midway() { later(side.end, side.max_end) } else { side.end };
    let range = other.max_window.max(MIN_ACK_RANGE);
    !is_after(seq, sent) && !is_after(sent.wrapping_sub(range), seq)
}

/// Returns the state after a segment of the connection that is neither SYN nor reset.
#[inline]
fn next(flow: &Flow, direction: Direction, segment: &Segment, state: State) -> State {
    let acknowledges_all = segment.ack == flow.side(direction.turned()).end;
    if segment.flags.intersects(Flags::FIN) {
        return match (state, direction) {
            (State::FinOriginal, Direction::Reply) | (State::FinReply, Direction::Original) => State::LastAck,
            (State::SynReceived | State::Established, Direction::Original) => State::FinOriginal,
            (State::SynReceived | State::Established, Direction::Reply) => State::FinReply,
            (state, _) => state,
        };
    }
    match state {
        State::SynReceived if direction == Direction::Original => State::Established,
        State::LastAck if acknowledges_all => State::TimeWait,
        state => state,
    }
}

/// Validates SYN and SYN-ACK, and returns the state that follows.
fn synchronise(
    flow: &mut Flow,
    direction: Direction,
    segment: &Segment,
    settings: Settings,
) -> Result<State, Fault> {
    let state = flow.state();
    let strict = settings.window == WindowCheck::Strict;
    if !segment.flags.intersects(Flags::ACK) {
        return match (state, direction) {
            (State::Opening, _) | (State::SynSent, Direction::Original) => {
                flow.scales = 0xff;
                flow.sides = [Side::default(); 2];
                flow.begin(direction, segment);
                Ok(State::SynSent)
            }
            (State::SynSent, Direction::Reply) => {
                flow.begin(direction, segment);
                Ok(State::SynBoth)
            }
            (State::SynBoth, _) if segment.end() == flow.side(direction).end => Ok(state),
            (State::SynReceived | State::Established | State::FinOriginal | State::FinReply, _) => Ok(state),
            _ => Err(Fault::State),
        };
    }
    let other = flow.side(direction.turned());
    match (state, direction) {
        (State::SynSent, Direction::Reply) => {
            // Data in a SYN (RFC 7413) may be acknowledged or not; `max_end` is the end of the SYN alone.
            if strict && !acknowledges(segment, other.max_end, other.end) {
                // The answer to an older SYN (RFC 9293, section 3.5, figure 8): whoever sent that resets it.
                return Ok(state);
            }
            flow.accept(direction, segment);
            Ok(State::SynReceived)
        }
        (State::SynReceived, Direction::Reply) => {
            // Sent again; or by a host that has forgotten the first, with other numbers.
            if check(flow, direction, segment).is_err() {
                if strict && segment.ack != other.end {
                    return Err(Fault::Window);
                }
                flow.accept(direction, segment);
            }
            Ok(state)
        }
        (State::SynBoth, _) => {
            if strict && (segment.ack != other.end || segment.end() != flow.side(direction).end) {
                return Err(Fault::Window);
            }
            flow.accept(direction, segment);
            Ok(State::Established)
        }
        // The other side has not seen what acknowledged the first one.
        (State::Established | State::FinOriginal | State::FinReply | State::LastAck | State::TimeWait, _) => {
            if strict {
                check(flow, direction, segment)?;
            }
            flow.learn(direction, segment);
            Ok(state)
        }
        (State::Opening, _) => pick_up(flow, direction, segment, settings),
        _ => Err(Fault::State),
    }
}

/// Validates a reset, and returns the state that follows.
fn reset(flow: &Flow, direction: Direction, segment: &Segment, settings: Settings) -> Result<State, Fault> {
    let state = flow.state();
    let (side, other) = (flow.side(direction), flow.side(direction.turned()));
    match state {
        State::Opening => return Err(Fault::NotOpen),
        _ if settings.window == WindowCheck::Off => return Ok(State::Reset),
        State::SynSent if direction == Direction::Reply => {
            // The answer of a closed port: it has no number of its own to show (RFC 9293, section 3.10.7.3).
            let refuses =
                segment.flags.intersects(Flags::ACK) && acknowledges(segment, other.max_end, other.end);
            return if refuses { Ok(State::Reset) } else { Err(Fault::Window) };
        }
        // The answer to one who still holds an old connection; its numbers are the old one's.
        State::SynSent if segment.seq != side.end => return Ok(state),
        _ => {}
    }
    if segment.seq == side.end {
        Ok(State::Reset)
    } else if state == State::Reset {
        Err(Fault::State)
    } else if settings.window == WindowCheck::OneWay {
        Ok(state)
    } else if is_after(segment.seq, side.max_end) || is_after(oldest(side, other), segment.seq) {
        Err(Fault::Window)
    } else {
        Ok(state)
    }
}

/// Picks up a connection that began unseen, by its first segment.
fn pick_up(
    flow: &mut Flow,
    direction: Direction,
    segment: &Segment,
    settings: Settings,
) -> Result<State, Fault> {
    if settings.midstream == Midstream::Refuse {
        return Err(Fault::NotOpen);
    }
    flow.scales = PICKED_UP;
    flow.begin_midway(direction, segment);
    flow.learn(direction, segment);
    Ok(next(flow, direction, segment, State::Established))
}

/// Validates a segment with an acknowledgement against the window: conditions I to IV of the module.
#[inline]
fn check(flow: &Flow, direction: Direction, segment: &Segment) -> Result<(), Fault> {
    let (side, other) = (flow.side(direction), flow.side(direction.turned()));
    // In a connection that was picked up, a side that has not been heard yet bounds nothing, and may acknowledge
    // what the other sent before.
    let (known, other_known) = (side.max_window != 0, other.max_window != 0);
    let first = !is_after(segment.seq, side.max_end);
    let second = !is_after(oldest(side, other), segment.end());
    let range = side.max_window.max(MIN_ACK_RANGE);
    let sent = if flow.is_midway() { later(other.end, other.max_end) } else { other.end };
    let third_and_fourth = acknowledges(segment, other.end.wrapping_sub(range), sent);
    let belongs = !other_known || (first && second && (third_and_fourth || !known));
    if belongs { Ok(()) } else { Err(Fault::Window) }
}

/// True if a segment acknowledges something from `from` to `to`, both included.
#[inline]
fn acknowledges(segment: &Segment, from: u32, to: u32) -> bool {
    !is_after(from, segment.ack) && !is_after(segment.ack, to)
}

/// The oldest data of `side` that may not have been acknowledged yet.
#[inline]
fn oldest(side: Side, other: Side) -> u32 {
    side.end.wrapping_sub(other.max_window)
}

impl Flow {
    /// TCP window state of both sides, per [`Direction`]; None while a side has not been heard, and where the connection was picked up.
    pub(crate) fn tcp_sides(&self) -> Option<[TcpSide; 2]> {
        if self.is_picked_up() || self.sides.iter().any(|side| side.max_window == 0) {
            return None;
        }
        let scales = [self.scales & 15, self.scales >> 4];
        let is_scaled = !scales.contains(&NO_SCALE);
        Some([Direction::Original, Direction::Reply].map(|of| TcpSide {
            end: self.side(of).end,
            max_window: self.side(of).max_window,
            allows: self.side(of.turned()).max_end,
            scale: if is_scaled { scales[of as usize] } else { 0 },
        }))
    }

    /// Updates the TCP window state of both sides, per [`Direction`], by segments that others have followed: no window shrinks.
    pub(crate) fn merge_tcp_sides(&mut self, sides: [TcpSide; 2]) {
        for of in [Direction::Original, Direction::Reply] {
            let (seen, side) = (sides[of as usize], &mut self.sides[of as usize]);
            side.end = later(side.end, seen.end);
            side.max_window = side.max_window.max(seen.max_window);
            side.max_end = later(side.max_end, sides[of.turned() as usize].allows);
        }
    }

    #[inline]
    fn side(&self, direction: Direction) -> Side {
        self.sides[direction as usize]
    }

    /// True if the connection was picked up in its middle: its scales are not known.
    #[inline]
    fn is_picked_up(&self) -> bool {
        self.scales == PICKED_UP
    }

    /// True if segments have gone by elsewhere, before the windows were learnt here.
    #[inline]
    fn is_midway(&self) -> bool {
        self.is_picked_up() || self.state & MIDWAY != 0
    }

    /// Begins both windows by a segment with an acknowledgement, in the middle of the connection.
    #[cold]
    fn begin_midway(&mut self, direction: Direction, segment: &Segment) {
        let end = segment.end();
        self.sides[direction as usize] =
            Side { end, max_end: end.wrapping_add(MIN_ACK_RANGE), max_window: 0 };
        self.sides[direction.turned() as usize] =
            Side { end: segment.ack, max_end: segment.ack, max_window: 0 };
        self.state = self.state & !UNHEARD | MIDWAY;
    }

    /// The window that a segment offers, in bytes, 1 at least: with a closed window one byte may be tried.
    #[inline]
    fn offered(&self, direction: Direction, segment: &Segment) -> u32 {
        let scales = [self.scales & 15, self.scales >> 4];
        let scaled = scales[0] != NO_SCALE && scales[1] != NO_SCALE && !segment.flags.intersects(Flags::SYN);
        let shift = if scaled { scales[direction as usize] } else { 0 };
        (u32::from(segment.window) << shift).max(1)
    }

    /// Takes numbers and scale from a SYN.
    fn begin(&mut self, direction: Direction, segment: &Segment) {
        let scale = segment.scale.map_or(NO_SCALE, |scale| scale.min(MAX_SCALE));
        let shift = direction as u8 * 4;
        self.scales = (self.scales & !(15 << shift)) | (scale << shift);
        self.sides[direction as usize] = Side {
            end: segment.end(),
            max_end: segment.seq.wrapping_add(1),
            max_window: u32::from(segment.window).max(1),
        };
    }

    /// Takes numbers and scale from a SYN-ACK, by which each side knows what the other allows.
    fn accept(&mut self, direction: Direction, segment: &Segment) {
        self.begin(direction, segment);
        let other = self.sides[direction.turned() as usize];
        let side = &mut self.sides[direction as usize];
        side.max_end = side.end.wrapping_add(other.max_window);
        let allowed = segment.ack.wrapping_add(u32::from(segment.window).max(1));
        self.sides[direction.turned() as usize].max_end = later(other.end, allowed);
    }

    /// Updates both sides by a segment that passed.
    #[inline]
    fn learn(&mut self, direction: Direction, segment: &Segment) {
        let end = segment.end();
        let offered = self.offered(direction, segment);
        let allowed = segment.ack.wrapping_add(offered);
        let (mut side, mut other) = (self.side(direction), self.side(direction.turned()));
        if self.is_midway() {
            // What one side acknowledges the other has sent, though it was not seen.
            other.end = later(other.end, segment.ack);
        }
        if other.max_window != 0 && is_after(end, side.max_end) {
            // The receiver's window was larger than it seemed.
            let more = end.wrapping_sub(side.max_end);
            other.max_window = other.max_window.saturating_add(more).min(MAX_WINDOW);
        }
        side.max_window = side.max_window.max(offered);
        side.end = later(side.end, end);
        other.max_end = later(other.max_end, allowed);
        self.sides[direction as usize] = side;
        self.sides[direction.turned() as usize] = other;
    }
}

impl State {
    /// True if the side that sends this way has sent FIN.
    #[inline]
    fn is_closed_by(self, direction: Direction) -> bool {
        match self {
            State::FinOriginal => direction == Direction::Original,
            State::FinReply => direction == Direction::Reply,
            State::LastAck | State::TimeWait => true,
            _ => false,
        }
    }
}

/// True if a TCP sends this combination; PSH and the ECN bits go with any.
#[inline]
pub const fn are_possible(flags: Flags) -> bool {
    const MASK: u8 = 0x37;
    const POSSIBLE: u64 = {
        const fn bit(flags: Flags) -> u64 {
            1 << (flags.0 & MASK)
        }
        bit(Flags::SYN)
            | bit(Flags::SYN.and(Flags::URG))
            | bit(Flags::SYN_ACK)
            | bit(Flags::RST)
            | bit(Flags::RST.and(Flags::ACK))
            | bit(Flags::FIN.and(Flags::ACK))
            | bit(Flags::FIN.and(Flags::ACK).and(Flags::URG))
            | bit(Flags::ACK)
            | bit(Flags::ACK.and(Flags::URG))
    };
    (POSSIBLE >> (flags.0 & MASK)) & 1 == 1
}

/// True if sequence number `a` comes after `b` (RFC 9293, section 3.4: arithmetic modulo 2^32).
#[inline]
const fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[inline]
const fn later(a: u32, b: u32) -> u32 {
    if is_after(a, b) { a } else { b }
}

fn window_scale(segment: &tcp::Segment<'_>) -> Option<u8> {
    segment.options().map_while(Result::ok).find_map(|option| match option {
        TcpOption::WindowScale(scale) => Some(scale),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
